//! Witnesses, and the rules, results and errors of executing them.

use crate::{BlockFault, ChainSpec, Fork};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_trie::{LayeredGap, LayeredProofError, Missing, Witness, WitnessError};
use revm::database_interface::DBErrorMarker;
use serde::{Deserialize, Serialize};
use std::{fmt, num::NonZeroU64};

/// Default of [`StatelessRules::gas_limit_max`]: far more gas than real blocks have, which takes
/// minutes to execute, not hours.
pub const STATELESS_GAS_LIMIT_MAX: u64 = 1_000_000_000;

/// JSON format of a witness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WitnessForm {
    /// Cambium's own format, which includes the block.
    #[default]
    Own,
    /// The response of reth to `debug_executionWitness`.
    Reth,
    /// The format of EIP-8025 and its fixtures: reth's without keys.
    Eip8025,
    /// The response of geth to `debug_executionWitness`.
    Geth,
}

impl WitnessForm {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Own, Self::Reth, Self::Eip8025, Self::Geth];
}

/// A block with its execution witness. [`BlockWitness::from_json`] also reads the formats of other
/// clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockWitness {
    /// The format in which the witness came, which decides how strictly it is verified: see
    /// [`Strictness::OfForm`].
    #[serde(skip)]
    pub form: WitnessForm,
    /// RLP of the block.
    pub block: Bytes,
    /// The witness, as in `debug_executionWitness`. Of a chain with the commitment `layered` it has no
    /// nodes.
    pub witness: Witness,
    /// The proof in place of nodes under the commitment `layered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layered: Option<LayeredWitness>,
}

/// The parts of the parent's state that a block needs, under the commitment `layered`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LayeredWitness {
    /// Parts of the parent's three tries, encoded as a [`LayeredProof`](cambium_trie::LayeredProof).
    pub tries: Bytes,
    /// Of the first block of an interval: the root of the snapshot on which the interval stands. It is
    /// claimed, see [`StatelessReport::snapshot_root`].
    pub next_snapshot: Option<B256>,
}

/// Most headers of a witness under EIP-8025: `BLOCKHASH` reads no further back.
pub(super) const HEADERS_MAX: usize = 256;
/// Most bytes of a header, and of a trie node, of a witness under EIP-8025.
pub(super) const HEADER_BYTES_MAX: usize = 1 << 10;
pub(super) const NODE_BYTES_MAX: usize = 1 << 10;
/// Most bytes of a contract code of a witness under EIP-8025.
pub(super) const CODE_BYTES_MAX: usize = 1 << 16;

/// Which witnesses a verifier accepts for a valid block. An accepted witness proves the block in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// [`Self::Eip8025`] for a witness in that EIP's format, [`Self::Sound`] for others.
    #[default]
    OfForm,
    /// The verdict of EIP-8025's verifiers (`verify_stateless_new_payload` of the execution specifications): the
    /// headers are a chain, the oldest first, that ends at the parent; the hash of an ancestor is known by its own
    /// header alone; and nothing exceeds the sizes of that EIP's lists. Nodes, codes and older headers that the
    /// block does not need are allowed.
    Eip8025,
    /// Every witness that proves the block: headers in any order, and the hash of an ancestor from the header of its
    /// child.
    Sound,
}

impl Strictness {
    pub(super) fn is_eip8025(self, form: WitnessForm) -> bool {
        match self {
            Self::OfForm => form == WitnessForm::Eip8025,
            Self::Eip8025 => true,
            Self::Sound => false,
        }
    }
}

/// Rules that the verifier trusts. None of them comes from the witness.
#[derive(Clone, Copy, Debug)]
pub struct StatelessRules<'a> {
    /// Fork rules of the block's chain.
    pub spec: &'a ChainSpec,
    /// Hash of the parent, if the verifier knows it. Without it, execution shows only that the
    /// block follows from the parent in its header, which may not exist.
    pub parent: Option<B256>,
    /// Total difficulty of the parent, if the verifier knows it. Without it, a child of a
    /// proof-of-work block counts as past the merge if its own difficulty is zero.
    pub parent_total_difficulty: Option<U256>,
    /// Maximum gas limit of a block: others are not executed.
    pub gas_limit_max: u64,
    /// Blocks of an interval, if the chain has the commitment `layered`. Blocks are counted from block 0.
    pub merge_interval: Option<NonZeroU64>,
    /// Which witnesses are accepted.
    pub strictness: Strictness,
}

impl<'a> StatelessRules<'a> {
    /// The rules of a chain, without knowledge of the parent.
    pub const fn of(spec: &'a ChainSpec) -> Self {
        Self {
            spec,
            parent: None,
            parent_total_difficulty: None,
            gas_limit_max: STATELESS_GAS_LIMIT_MAX,
            merge_interval: None,
            strictness: Strictness::OfForm,
        }
    }

    pub(super) fn is_post_merge(&self, header: &Header, parent: &Header) -> bool {
        let number = header.number;
        let Some(terminal) = self.spec.terminal_total_difficulty else {
            return self.spec.is_post_merge(number, U256::ZERO);
        };
        match self.parent_total_difficulty {
            Some(difficulty) => self.spec.is_post_merge(number, difficulty),
            // A chain never returns to proof of work.
            None => {
                let parent_is_post_merge = parent.difficulty.is_zero() && parent.number > 0;
                terminal.is_zero() || parent_is_post_merge || header.difficulty.is_zero()
            }
        }
    }
}

/// Result of stateless execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatelessReport {
    /// Number and hash of the block that was executed.
    pub id: BlockId,
    /// The block on whose state it was executed, and whose root the witness has.
    pub parent: BlockId,
    /// Chain id of the fork rules.
    pub chain_id: u64,
    /// Fork whose rules apply to the block.
    pub fork: Fork,
    /// State root before the block, from the parent's header.
    pub pre_root: B256,
    /// State root after the block, which was computed and equals that in the header.
    pub state_root: B256,
    /// Number of transactions.
    pub transactions: usize,
    /// Gas used, which was computed and equals that in the header.
    pub gas_used: u64,
    /// Whether the receipts root was verified. False before Byzantium, when receipts contain state
    /// roots in mid-block, for which a witness has no nodes.
    pub receipts_checked: bool,
    /// Number of nodes in the witness that are not linked from the state root.
    pub unused_nodes: usize,
    /// Number of codes in the witness that the block does not read.
    pub unused_codes: usize,
    /// Number of headers in the witness beside those from the parent to the oldest ancestor whose hash the block
    /// reads.
    pub unused_headers: usize,
    /// Under the commitment `layered`, of the first block of an interval: the root of the snapshot to
    /// which the block's state root commits. That it is the root of the state one interval earlier is
    /// *not* proved: a whole interval of changes leads there. `None` for other blocks, and where it
    /// follows from the witness.
    pub snapshot_root: Option<B256>,
}

/// Why stateless execution of a block failed.
#[derive(Debug, thiserror::Error)]
pub enum StatelessError {
    /// The bytes of the block do not encode one.
    #[error("{0}")]
    Block(String),
    /// The block's parent is not the expected one.
    #[error("the block's parent is {got}, expected {expected}")]
    OtherParent {
        /// Parent hash in the block's header.
        got: B256,
        /// [`StatelessRules::parent`].
        expected: B256,
    },
    /// The block's gas limit exceeds that of the verifier.
    #[error("the block's gas limit is {got}, over the verifier's limit of {max}")]
    GasLimit {
        /// Gas limit of the block.
        got: u64,
        /// [`StatelessRules::gas_limit_max`].
        max: u64,
    },
    /// A header in the witness is malformed.
    #[error("header {index} of the witness is malformed: {source}")]
    Header {
        /// Index of the header in the witness, from 0.
        index: usize,
        /// The error of decoding it.
        source: alloy_rlp::Error,
    },
    /// The witness has more headers than EIP-8025 allows.
    #[error("the witness has {count} headers, over the {HEADERS_MAX} that EIP-8025 allows")]
    TooManyHeaders {
        /// Number of headers.
        count: usize,
    },
    /// A header, code or trie node of the witness has more bytes than EIP-8025 allows.
    #[error("{what} {index} of the witness has {bytes} bytes, over the {max} that EIP-8025 allows")]
    TooLong {
        /// `header`, `code` or `node`.
        what: &'static str,
        /// Its index in its list, from 0.
        index: usize,
        /// Its length.
        bytes: usize,
        /// The largest length that is allowed.
        max: usize,
    },
    /// The headers of the witness are not a chain that ends at the block's parent, as EIP-8025 wants it.
    #[error(
        "the headers of the witness are not a chain, the oldest first: {} has the parent {parent}, and header {} has \
         the hash {before}",
        Follower(*.index, *.count),
        .index - 1
    )]
    HeaderOrder {
        /// Index in the list, from 1, of the first header that does not follow the one before it. The number of
        /// headers for the block itself, which follows the last one.
        index: usize,
        /// Number of headers.
        count: usize,
        /// The parent's hash in it.
        parent: B256,
        /// Hash of the header before it.
        before: B256,
    },
    /// The witness lacks the parent's header.
    #[error("the witness lacks the parent's header, {0}")]
    NoParent(B256),
    /// The trie nodes of the witness are malformed or inconsistent.
    #[error("the witness's state: {0}")]
    State(#[from] WitnessError),
    /// The proof of the three tries is malformed, or of another state than the parent's.
    #[error("the witness's state: {0}")]
    Layered(#[from] LayeredProofError),
    /// The witness is of a chain with another commitment than the verifier's.
    #[error("{0}")]
    OtherCommitment(&'static str),
    /// The witness lacks something that the block reads or changes.
    #[error("the witness lacks {0}")]
    Lacks(WitnessGap),
    /// The block is invalid.
    #[error("block {id} is invalid: {fault}")]
    Invalid {
        /// Number and hash of the invalid block.
        id: BlockId,
        /// Why it is invalid.
        fault: Box<BlockFault>,
    },
}

/// Names a header by its index, or the block behind the last one.
struct Follower(usize, usize);

impl fmt::Display for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(index, count) = *self;
        match index == count {
            true => f.write_str("the block"),
            false => write!(f, "header {index}"),
        }
    }
}

/// Data that a witness lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessGap {
    /// A trie node.
    #[error("a trie node: {0}")]
    Node(#[from] Missing),
    /// A node of one of three tries.
    #[error("{0}")]
    Layered(#[from] LayeredGap),
    /// The root of the snapshot on which a new interval stands.
    #[error("the root of the interval's snapshot")]
    Snapshot,
    /// A contract code, by its hash.
    #[error("the code {0}")]
    Code(B256),
    /// The header of an earlier block.
    #[error("the header of block {0}")]
    Header(BlockNumber),
}

impl DBErrorMarker for WitnessGap {}
