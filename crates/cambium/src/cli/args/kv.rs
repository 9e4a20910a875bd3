//! Arguments of the commands on a key-value store.

use super::{
    super::numbers::{count_in, parse_count},
    accounts::parse_hash,
    database::DbArgs,
};
use cambium::{
    B256, keccak256,
    kv::{Commitment, VALUE_BYTES_MAX},
};
use clap::{Args as ClapArgs, Subcommand, builder::PossibleValuesParser};
use std::{
    fs::File,
    io::{self, Read},
    num::NonZeroUsize,
    path::PathBuf,
};

pub(crate) const KV_HELP: &str = "\
Keys:
  0x and 64 hexadecimal digits: the key itself
  anything else                 a name, whose keccak256 hash is the key

Values:
  0x and hexadecimal digits     bytes
  @FILE                         the content of a file, 16 MiB at most; @- of standard input
  anything else                 the text itself (after -- if one begins with a hyphen)

Each put, delete and load is a commit: durable when the command returns, with a number and a root. An
empty store is commit 0. A proof is verified with the root alone, without the store.

To get started:
  cambium kv init -d store
  cambium kv put -d store alice 100 bob 20
  cambium kv prove -d store alice carol > proof.json
  cambium kv verify proof.json --root $(cambium kv root -d store)";

const LOAD_HELP: &str = "\
Each line has a key, a tab or a space, and a value: the rest of the line. A line with a key alone deletes
its entry. Empty lines are skipped. If a line can't be read, the commits before it stay. Values of 64 MiB
together make a commit of their own, however few lines they are.

With --json: commits, entries, deleted, number, hash and root.";

#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// Create an empty store
    #[command(
        after_help = "With --json: number, hash and root of commit 0, commitment, and merge_interval if it is layered."
    )]
    Init(KvInitArgs),
    /// Print the values at keys
    #[command(
        after_help = "With --json: number, root and entries, each a key and a value: null if there is none."
    )]
    Get(KvGetArgs),
    /// Set values at keys, as one commit
    #[command(after_help = "With --json: number, hash and root of the commit.")]
    Put(KvPutArgs),
    /// Remove the entries at keys, as one commit
    #[command(after_help = "With --json: number, hash and root of the commit.")]
    Delete(KvDeleteArgs),
    /// Print entries in the order of their keys
    #[command(after_help = "\
With --json: number, root, entries, and next: the first key beyond the limit, or null. Go on with --from.")]
    List(KvListArgs),
    /// Print a proof of the values at keys, or of all entries of a range
    #[command(after_help = "\
The JSON has number and root of the commit, its commitment, the entries (a value is null if there is
none), and the proof in hexadecimal digits. That of a range has the first and the last key of what is
proved, and next: the first key beyond the limit, or null. Go on with --from.")]
    Prove(KvProveArgs),
    /// Verify a proof against a root, without a store
    Verify(KvVerifyArgs),
    /// Print the root of all entries
    Root(KvRootArgs),
    /// Take the newest commits back
    Rollback(KvRollbackArgs),
    /// Write the entries of a file, one commit for each --batch of lines
    #[command(after_help = LOAD_HELP)]
    Load(KvLoadArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvInitArgs {
    /// What roots commit to: a binary trie with the roots of NOMT, Ethereum's Merkle Patricia trie, or
    /// layered, whose roots are computed in memory from what recent commits changed
    #[arg(long, value_name = "NAME", default_value = "binary-blake3",
          value_parser = PossibleValuesParser::new(COMMITMENTS.map(|(name, _)| name)))]
    pub(crate) commitment: String,
    /// Number of commits of an interval of the layered commitment, a parameter of the store
    #[arg(long, value_name = "COMMITS", required_if_eq("commitment", "layered"),
          value_parser = count_in::<u64>(1..=u64::MAX))]
    pub(crate) merge_interval: Option<u64>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

impl KvInitArgs {
    pub(crate) fn commitment(&self) -> Commitment {
        // The argument parser rejects other names.
        commitment_named(&self.commitment).unwrap_or_default()
    }
}

/// A store that the command writes to.
#[derive(Debug, ClapArgs)]
pub(crate) struct KvWriteArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Keep this many commits below the newest one for reads and for rollbacks [default: all]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    pub(crate) keep_commits: Option<u64>,
}

/// A commit of a store that the command reads.
#[derive(Debug, ClapArgs)]
pub(crate) struct KvReadArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Number of the commit [default: the newest]
    #[arg(long, value_name = "N", conflicts_with = "root", value_parser = parse_count::<u64>)]
    pub(crate) commit: Option<u64>,
    /// Root of the commit, of several the newest
    #[arg(long, value_name = "ROOT", value_parser = parse_hash)]
    pub(crate) root: Option<B256>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvGetArgs {
    #[arg(required = true, value_name = "KEY", value_parser = parse_key)]
    pub(crate) keys: Vec<B256>,
    #[command(flatten)]
    pub(crate) at: KvReadArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvPutArgs {
    /// Keys, each followed by its value
    #[arg(required = true, value_names = ["KEY", "VALUE"], num_args = 2.., allow_negative_numbers = true)]
    pub(crate) entries: Vec<String>,
    #[command(flatten)]
    pub(crate) store: KvWriteArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvDeleteArgs {
    #[arg(required = true, value_name = "KEY", value_parser = parse_key)]
    pub(crate) keys: Vec<B256>,
    #[command(flatten)]
    pub(crate) store: KvWriteArgs,
}

/// A range of keys, and how many of its entries.
#[derive(Debug, ClapArgs)]
pub(crate) struct KvRangeArgs {
    /// First key of the range
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    pub(crate) from: Option<B256>,
    /// Last key of the range, which belongs to it
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    pub(crate) to: Option<B256>,
    /// Largest number of entries [default: 1000]
    #[arg(long, value_name = "N", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) limit: Option<NonZeroUsize>,
}

impl KvRangeArgs {
    pub(crate) fn limit(&self) -> NonZeroUsize {
        const DEFAULT: NonZeroUsize = NonZeroUsize::new(1000).expect("more than none");
        self.limit.unwrap_or(DEFAULT)
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvListArgs {
    #[command(flatten)]
    pub(crate) range: KvRangeArgs,
    #[command(flatten)]
    pub(crate) at: KvReadArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvProveArgs {
    #[arg(value_name = "KEY", value_parser = parse_key, required_unless_present = "range")]
    pub(crate) keys: Vec<B256>,
    /// Prove all entries from --from to --to, and that there are no others
    #[arg(long, conflicts_with = "keys")]
    pub(crate) range: bool,
    #[command(flatten)]
    pub(crate) of: KvRangeArgs,
    #[command(flatten)]
    pub(crate) at: KvReadArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvVerifyArgs {
    /// File with the proof, or - for standard input
    #[arg(value_name = "PROOF.json")]
    pub(crate) proof: PathBuf,
    /// Root of a trusted commit
    #[arg(long, value_parser = parse_hash)]
    pub(crate) root: B256,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvRootArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Number of the commit [default: the newest]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    pub(crate) commit: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvRollbackArgs {
    /// Number of commits to take back
    #[arg(value_name = "N", value_parser = count_in::<u64>(1..=u64::MAX))]
    pub(crate) commits: u64,
    #[command(flatten)]
    pub(crate) store: KvWriteArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KvLoadArgs {
    /// File of entries, or - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Number of lines that make a commit
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) batch: NonZeroUsize,
    #[command(flatten)]
    pub(crate) store: KvWriteArgs,
}

/// The commitments that the program knows, by their names.
const COMMITMENTS: [(&str, Commitment); 4] = [
    ("binary-blake3", Commitment::Binary(&cambium::kv::Blake3)),
    ("binary-sha256", Commitment::Binary(&cambium::kv::Sha256)),
    ("mpt", Commitment::Mpt),
    ("layered", Commitment::Layered),
];

/// The commitment with that name.
pub(crate) fn commitment_named(name: &str) -> Option<Commitment> {
    let found = COMMITMENTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, commitment)| *commitment)
}

/// Parses a key: hexadecimal digits, or a name.
pub(crate) fn parse_key(text: &str) -> Result<B256, String> {
    match text.strip_prefix("0x") {
        None if text.is_empty() => Err("a key is not empty".to_owned()),
        None => Ok(keccak256(text)),
        Some(_) => text
            .parse()
            .map_err(|_| format!("{text} begins with 0x, and is not 64 hexadecimal digits")),
    }
}

/// Parses a value: hexadecimal digits, the name of a file, or text.
pub(crate) fn parse_value(text: &str) -> Result<Vec<u8>, String> {
    if text.starts_with("0x") {
        let bytes = text.parse::<cambium::Bytes>();
        return bytes
            .map(Into::into)
            .map_err(|_| format!("{text} begins with 0x, and is not hexadecimal digits"));
    }
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some(file) => read_value(file).map_err(|error| format!("{file}: {error}")),
    }
}

/// Reads a value from a file. A file that is too long for a value is not read.
fn read_value(file: &str) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("can't be read: {error}");
    let mut value = Vec::new();
    let source: Box<dyn Read> = match file {
        "-" => Box::new(io::stdin().lock()),
        file => Box::new(File::open(file).map_err(failed)?),
    };
    let most = VALUE_BYTES_MAX as u64;
    source
        .take(most + 1)
        .read_to_end(&mut value)
        .map_err(failed)?;
    match value.len() as u64 > most {
        true => Err(format!(
            "has more than {most} bytes, and values have at most {most}"
        )),
        false => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hex_or_names() {
        let key = B256::repeat_byte(0xab);
        assert_eq!(parse_key(&key.to_string()), Ok(key));
        assert_eq!(parse_key("alice"), Ok(keccak256("alice")));
        for bad in ["", "0x", "0xab", "0xzz"] {
            assert!(parse_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_hex_files_or_text() {
        assert_eq!(parse_value("0x00ff"), Ok(vec![0, 255]));
        assert_eq!(parse_value("0x"), Ok(vec![]));
        assert_eq!(parse_value(""), Ok(vec![]));
        assert_eq!(parse_value("12"), Ok(b"12".to_vec()));
        assert!(parse_value("0xf").is_err() && parse_value("@/nowhere/at/all").is_err());
    }

    #[test]
    fn commitments_have_their_own_names() {
        for (name, commitment) in COMMITMENTS {
            assert_eq!(commitment.name().to_string(), name);
        }
    }
}
