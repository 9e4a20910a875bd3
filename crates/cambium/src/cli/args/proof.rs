//! Arguments of the commands on proofs and witnesses.

use super::{
    super::{block_ref::parse_block, numbers::parse_count},
    accounts::{StateArgs, parse_address, parse_hash, parse_slot},
    database::DbArgs,
};
use cambium::{
    Address, B256, BlockRef, ChainSpec, StorageKey,
    proof::{STATELESS_GAS_LIMIT_MAX, WitnessForm},
};
use clap::{Args as ClapArgs, ValueEnum, builder::PossibleValuesParser};
use std::{
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
};

pub(crate) const PROVE_HELP: &str = "\
Under the commitment `layered` the JSON has instead: commitment, the roots of the three tries (delta,
intermediate, snapshot), address, account (null if it does not exist), storage (key and value of each
slot), and proof, the parts of the three tries. `cambium verify` reads both.";

pub(crate) const PROVE_RANGE_HELP: &str = "\
The path of an account is keccak256 of its address, that of a slot keccak256 of its 32 bytes: a
trie has no other order. The JSON has the block and its state root, the range that is proved
(address, first and last), its leaves, the RLP of the nodes that prove them, and the path of the
first leaf beyond the limit (next; null if there is none): go on with --from. `cambium
verify-range` needs address, first, last and nodes. These and leaves, if there are any, are covered
by the proof: none is left out between first and last. block, hash and next are not: their form is
checked, state_root is the one given, and next is beyond last. `verify-range` prints where the next
range begins so that none is left out between the two.";

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveArgs {
    /// Address of the account
    #[arg(value_parser = parse_address)]
    pub(crate) address: Address,
    /// Storage slots of the account: hex with 0x, otherwise decimal
    #[arg(value_name = "SLOT", value_parser = parse_slot)]
    pub(crate) slots: Vec<StorageKey>,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveRangeArgs {
    /// Prove slots of this account [default: accounts]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) account: Option<Address>,
    /// First path of the range
    #[arg(long, value_name = "PATH", value_parser = parse_hash, default_value_t = B256::ZERO)]
    pub(crate) from: B256,
    /// Last path of the range, which belongs to it
    #[arg(long, value_name = "PATH", value_parser = parse_hash, default_value_t = B256::repeat_byte(0xff))]
    pub(crate) to: B256,
    /// Largest number of accounts or slots
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) limit: NonZeroUsize,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    /// File with the proof or a JSON-RPC response that contains it, or - for standard input
    #[arg(value_name = "PROOF.json")]
    pub(crate) proof: PathBuf,
    /// State root of a trusted block
    #[arg(long, value_parser = parse_hash)]
    pub(crate) root: B256,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WitnessArgs {
    /// The block: a number, a hash, latest, earliest, safe or finalized
    #[arg(value_name = "BLOCK", value_parser = parse_block)]
    pub(crate) block: BlockRef,
    /// Format: `own` includes the block, the others are responses of clients to
    /// debug_executionWitness
    #[arg(long, value_name = "FORM", value_enum, default_value_t = WitnessFormArg::Own)]
    pub(crate) form: WitnessFormArg,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WitnessFormArg {
    /// The block with its witness
    Own,
    /// State, codes, keys, and headers as RLP, the oldest first
    Reth,
    /// The same without keys: the format of EIP-8025
    Eip8025,
    /// State, codes, and headers as objects, the newest first
    Geth,
}

impl From<WitnessFormArg> for WitnessForm {
    fn from(form: WitnessFormArg) -> Self {
        match form {
            WitnessFormArg::Own => Self::Own,
            WitnessFormArg::Reth => Self::Reth,
            WitnessFormArg::Eip8025 => Self::Eip8025,
            WitnessFormArg::Geth => Self::Geth,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatelessArgs {
    /// File with a witness in any format of `cambium witness`, or - for standard input
    pub(crate) witness: PathBuf,
    /// File with the RLP of the block, binary or hex, if the witness does not include it
    #[arg(long, value_name = "FILE")]
    pub(crate) block: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Number of blocks of an interval, if the chain has the layered commitment
    #[arg(long, value_name = "BLOCKS", value_parser = parse_count::<NonZeroU64>)]
    pub(crate) merge_interval: Option<NonZeroU64>,
    /// Hash of the block's parent. Without it, execution shows only that the block follows from the
    /// parent in its header, which may not exist
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    pub(crate) parent: Option<B256>,
    /// Give the verdict of EIP-8025: the headers must be a chain, the oldest first, that ends at the parent
    /// and has each block whose hash is read. The default for a witness in that EIP's format
    #[arg(long)]
    pub(crate) strict: bool,
    /// Reject blocks with a higher gas limit, which may take long to execute
    #[arg(long, value_name = "GAS", default_value_t = STATELESS_GAS_LIMIT_MAX, value_parser = parse_count::<u64>)]
    pub(crate) gas_limit_max: u64,
}

/// Source of the fork rules, which must not come from what is verified.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct RulesArgs {
    /// Public chain whose fork rules apply
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(ChainSpec::PUBLIC.map(|(name, _)| name)))]
    pub(crate) chain: Option<String>,
    /// Genesis file of the chain whose fork rules apply
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: Option<PathBuf>,
}
