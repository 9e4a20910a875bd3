//! Shared by the tests of the program: the program itself, run as its users run it, on small generated chains.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod http;
pub(crate) mod served;

use serde_json::Value;
use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

/// How a run ended.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
        let run = Self {
            // A panic would be 101, and a signal has no code at all.
            code: output.status.code().expect("no signal ended it"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!run.stderr.contains("panicked at"), "{}", run.stderr);
        assert_ne!(run.code, 101, "{}", run.stderr);
        run
    }

    /// The one JSON object on standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {:?}; {}", self.stdout, self.stderr))
    }

    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self
    }

    /// Expects an exit code and, on standard error, all of `words`.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        let told = &self.stderr;
        assert_eq!(self.code, code, "{}{told}", self.stdout);
        for word in words {
            assert!(told.contains(word), "no {word:?} in {told:?}");
        }
        self
    }
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cambium"));
    command.env_remove("CAMBIUM_LOG");
    command
}

pub(crate) fn cambium<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    Run::of(program().args(args).output().expect("the program starts"))
}

/// Arguments as words: `cambium!["get", address, "--json"]` without a thought to their types.
#[macro_export]
macro_rules! cambium {
    ($($arg:expr),+ $(,)?) => {
        $crate::support::cambium([$(std::ffi::OsString::from(&$arg)),+])
    };
}

/// A folder with a generated chain and room for databases.
pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
}

impl Fixture {
    /// Some accounts and blocks; the same for the same numbers.
    pub(crate) fn generate(accounts: u64, blocks: u64, transactions: u64) -> Self {
        Self::generate_with(accounts, blocks, transactions, &[])
    }

    /// The same with further arguments.
    pub(crate) fn generate_with(
        accounts: u64,
        blocks: u64,
        transactions: u64,
        more: &[&str],
    ) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let numbers = [
            ("--accounts", accounts),
            ("--blocks", blocks),
            ("--transactions", transactions),
            ("--erc20", 40),
            ("--seed", 7),
        ];
        let mut args = vec!["workload".into(), "--out".into(), dir.path().into()];
        for (name, number) in numbers {
            args.extend([name.into(), number.to_string().into()]);
        }
        args.extend(more.iter().map(OsString::from));
        cambium(args).done();
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn genesis(&self) -> PathBuf {
        self.path("genesis.json")
    }

    pub(crate) fn chain(&self) -> PathBuf {
        self.path("chain.rlp")
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path("db")
    }

    /// Writes a file beside the chain.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Imports a file into the database, which is made if need be.
    pub(crate) fn import(&self, file: &Path) -> Run {
        cambium!(
            "import",
            "--json",
            "--genesis",
            self.genesis(),
            "--datadir",
            self.db(),
            file
        )
    }

    /// Imports the chain into a database at `db`, which is made if need be. `options` are separated by spaces.
    pub(crate) fn import_new(&self, db: &Path, options: &str) -> Run {
        let mut args: Vec<OsString> = vec!["import".into()];
        args.extend(options.split_whitespace().map(OsString::from));
        args.extend(["--genesis".into(), self.genesis().into()]);
        args.extend(["--datadir".into(), db.into(), self.chain().into()]);
        cambium(args)
    }

    /// The chain's blocks, encoded.
    pub(crate) fn blocks(&self) -> Vec<cambium::chain::RawBlock> {
        cambium::BlockSource::open(self.chain())
            .and_then(Iterator::collect)
            .expect("the chain's blocks")
    }

    /// Where the database is.
    pub(crate) fn head(&self) -> u64 {
        let stats = cambium!("db", "stats", "--json", "--datadir", self.db()).done();
        number(&stats.json()["head_number"])
    }
}

/// A quantity of a chain, as JSON has it.
pub(crate) fn quantity(number: u64) -> Value {
    format!("{number:#x}").into()
}

/// The number of a quantity of a chain.
#[track_caller]
pub(crate) fn number(quantity: &Value) -> u64 {
    let digits = quantity.as_str().and_then(|text| text.strip_prefix("0x"));
    let digits = digits.unwrap_or_else(|| panic!("no quantity: {quantity}"));
    u64::from_str_radix(digits, 16).expect("hexadecimal digits")
}

/// Copies a folder and all in it.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a copy");
        }
    }
}

/// Says something on the test's own output even if it passes.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
