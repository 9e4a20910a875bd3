//! Errors as clients get them: a code, a message, and data.

use alloy_primitives::Bytes;
use cambium_chain::ChainError;
use cambium_history::HistoryError;
use cambium_index::IndexError;
use cambium_node::NodeError;
use cambium_state::StateError;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// By JSON-RPC 2.0 and EIP-1474, and the codes of single methods.
    pub code: i64,
    /// What is wrong, for people.
    pub message: String,
    /// More of it, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// The request is no JSON.
    pub const PARSE: i64 = -32700;
    /// The request is no call.
    pub const REQUEST: i64 = -32600;
    /// There is no such method.
    pub const NO_METHOD: i64 = -32601;
    /// The parameters are not those of the method.
    pub const PARAMS: i64 = -32602;
    /// Something that should not go wrong does.
    pub const INTERNAL: i64 = -32603;
    /// The call can't be answered.
    pub const SERVER: i64 = -32000;
    /// What is asked for is not there.
    pub const NOT_FOUND: i64 = -32001;
    /// The answer takes too long.
    pub const TIMEOUT: i64 = -32002;
    /// The answer is too large.
    pub const TOO_LARGE: i64 = -32003;
    /// A limit of the server is reached.
    pub const LIMIT: i64 = -32005;
    /// It was there, and is kept no more.
    pub const PRUNED: i64 = 4444;
    /// There is no such payload.
    pub const UNKNOWN_PAYLOAD: i64 = -38001;
    /// The safe or the finalized block is not on the chain of the head.
    pub const FORKCHOICE_STATE: i64 = -38002;
    /// The attributes of a payload are not those of its version, or do not fit the parent.
    pub const PAYLOAD_ATTRIBUTES: i64 = -38003;
    /// More is asked for at once than there may be.
    pub const TOO_LARGE_REQUEST: i64 = -38004;
    /// The head can't go there: what is between is not kept.
    pub const TOO_DEEP_REORG: i64 = -38006;
    /// A payload or its attributes are of a fork that the version of the method does not have.
    pub const UNSUPPORTED_FORK: i64 = -38005;
    /// The code reverts.
    pub const REVERT: i64 = 3;
    /// A simulated call ends with an error other than a revert.
    pub const EXECUTION: i64 = -32015;
    /// The nonce of a simulated call is below the sender's.
    pub const NONCE_TOO_LOW: i64 = -38010;
    /// The nonce of a simulated call is above the sender's.
    pub const NONCE_TOO_HIGH: i64 = -38011;
    /// A simulated call pays less than the base fee.
    pub const FEE_TOO_LOW: i64 = -38012;
    /// A simulated call has less gas than it takes to begin.
    pub const INTRINSIC_GAS: i64 = -38013;
    /// The sender of a simulated call can't pay for it.
    pub const NO_FUNDS: i64 = -38014;
    /// A simulated call has more gas than is left in its block.
    pub const BLOCK_GAS: i64 = -38015;
    /// The numbers of simulated blocks do not increase.
    pub const BLOCK_NUMBER: i64 = -38020;
    /// The timestamps of simulated blocks do not increase.
    pub const BLOCK_TIME: i64 = -38021;
    /// A precompiled contract is moved to where it is.
    pub const MOVED_TO_ITSELF: i64 = -38022;
    /// The sender of a simulated call is a contract.
    pub const SENDER_HAS_CODE: i64 = -38024;
    /// The code that creates a contract is too long.
    pub const INIT_CODE: i64 = -38025;
    /// A simulation is larger than the server allows.
    pub const SIMULATION: i64 = -38026;

    /// An error without data.
    pub fn new(code: i64, message: impl Display) -> Self {
        Self {
            code,
            message: message.to_string(),
            data: None,
        }
    }

    /// The parameters are not those of the method.
    pub fn params(message: impl Display) -> Self {
        Self::new(Self::PARAMS, message)
    }

    /// The call can't be answered.
    pub fn server(message: impl Display) -> Self {
        Self::new(Self::SERVER, message)
    }

    /// Something that should not go wrong does.
    pub fn internal(message: impl Display) -> Self {
        Self::new(Self::INTERNAL, message)
    }

    /// The code reverts with this output.
    pub fn revert(output: &Bytes) -> Self {
        let message = match reason_of(output) {
            Some(reason) => format!("execution reverted: {reason}"),
            None => "execution reverted".to_owned(),
        };
        Self {
            code: Self::REVERT,
            message,
            data: Some(json!(output)),
        }
    }

    /// Whether what was asked for is not there, rather than not readable.
    pub(crate) const fn is_not_there(&self) -> bool {
        matches!(self.code, Self::NOT_FOUND)
    }
}

/// The reason of a revert: `Error(string)` or `Panic(uint256)` of Solidity.
fn reason_of(output: &[u8]) -> Option<String> {
    const ERROR: [u8; 4] = [0x08, 0xc3, 0x79, 0xa0];
    const PANIC: [u8; 4] = [0x4e, 0x48, 0x7b, 0x71];
    let (selector, rest) = output.split_first_chunk::<4>()?;
    let word = |at: usize| rest.get(at..at + 32);
    let small = |word: &[u8]| {
        let (high, low) = word.split_at(28);
        let low = u32::from_be_bytes(low.try_into().ok()?);
        high.iter().all(|byte| *byte == 0).then_some(low as usize)
    };
    match *selector {
        ERROR => {
            let at = small(word(0)?)?;
            let length = small(word(at)?)?;
            let text = rest.get(at + 32..(at + 32).checked_add(length)?)?;
            String::from_utf8(text.to_vec()).ok()
        }
        PANIC => {
            let code = small(word(0)?)?;
            let what = match code {
                0x00 => "generic panic",
                0x01 => "assert(false)",
                0x11 => "arithmetic underflow or overflow",
                0x12 => "division or modulo by zero",
                0x21 => "enum overflow",
                0x22 => "invalid encoded storage byte array accessed",
                0x31 => "out-of-bounds array access; popping on an empty array",
                0x32 => "out-of-bounds access of an array or bytesN",
                0x41 => "out of memory",
                0x51 => "uninitialized function",
                _ => return Some(format!("unknown panic code: {code:#x}")),
            };
            Some(what.to_owned())
        }
        _ => None,
    }
}

impl From<StateError> for RpcError {
    fn from(error: StateError) -> Self {
        match &error {
            StateError::UnknownBlock(_) | StateError::NoSuchBlock { .. } => {
                Self::new(Self::NOT_FOUND, error)
            }
            error if error.has_left_log() || matches!(error, StateError::TooFar { .. }) => {
                Self::new(Self::PRUNED, error)
            }
            _ => Self::internal(error),
        }
    }
}

impl From<HistoryError> for RpcError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::State(error) => error.into(),
            HistoryError::NotKept { .. } => Self::new(Self::PRUNED, error),
            HistoryError::NotYet { .. } => Self::server(error),
            _ => Self::internal(error),
        }
    }
}

impl From<IndexError> for RpcError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::State(error) => error.into(),
            IndexError::NotOpen => Self::server(
                "there is no index, by which transactions and logs are found: `cambium index build` makes one",
            ),
            IndexError::NotIndexed { .. } | IndexError::NoReceipts { .. } => {
                Self::new(Self::PRUNED, error)
            }
            IndexError::Behind { .. } | IndexError::HeadMoved { .. } => Self::server(error),
            _ => Self::internal(error),
        }
    }
}

impl From<ChainError> for RpcError {
    fn from(error: ChainError) -> Self {
        match error {
            ChainError::NoSuchBlock { .. } => Self::new(Self::NOT_FOUND, error),
            ChainError::State(error) => error.into(),
            ChainError::History(error) => (*error).into(),
            ChainError::Index(error) => (*error).into(),
            _ => Self::internal(error),
        }
    }
}

impl From<NodeError> for RpcError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Chain(error) => error.into(),
            NodeError::NotCanonical(_) => Self::server(error),
            NodeError::NotMarked(_) => Self::new(Self::NOT_FOUND, error),
        }
    }
}
