//! Stateless execution: a block is executed from its witness, without a database, and its state
//! root computed.
//!
//! A witness is untrusted. Trie nodes are linked by hash from the parent's state root, codes are
//! found by hash, and each earlier header by the parent hash in the next one. The parent itself is
//! only bound by the block's header. The verifier provides the fork rules, and the parent's hash if
//! it knows it ([`StatelessRules`]).

use crate::{
    BlockFault, Chain, ChainError, ChainSpec, Fork, HeaderError,
    error::execution_error,
    files::{decode_block, decode_header},
    validate_body, validate_header, validate_size, verify_outcome, verify_state_root,
};
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256, map::HashMap};
use alloy_rlp::Encodable;
use cambium_evm::{
    ExecutionError, Executor, Hooks, Recorder, Sequential, StateRead, Touched, account_info,
    recover_senders,
};
use cambium_history::{HistoryError, HistoryView};
use cambium_primitives::{BlockId, BlockNumber, Path};
use cambium_state::bytecode;
use cambium_trie::{
    Lookup, Missing, NoResolve, PartialTrie, ProofTargets, Stub, UpdateError, Witness,
    WitnessError, commit,
};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use serde::Serialize;

/// Default of [`StatelessRules::gas_limit_max`]: far more gas than real blocks have, which takes
/// minutes to execute, not hours.
pub const STATELESS_GAS_LIMIT_MAX: u64 = 1_000_000_000;

/// A block with its execution witness. [`BlockWitness::from_json`] also reads the formats of other
/// clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockWitness {
    /// RLP of the block.
    pub block: Bytes,
    /// The witness, as in `debug_executionWitness`.
    pub witness: Witness,
}

/// What the verifier trusts. None of it comes from the witness.
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
}

impl<'a> StatelessRules<'a> {
    /// The rules of a chain, without knowledge of the parent.
    pub const fn of(spec: &'a ChainSpec) -> Self {
        Self {
            spec,
            parent: None,
            parent_total_difficulty: None,
            gas_limit_max: STATELESS_GAS_LIMIT_MAX,
        }
    }

    fn is_post_merge(&self, header: &Header, parent: &Header) -> bool {
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
    /// The block.
    pub id: BlockId,
    /// The parent.
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
    /// The witness lacks the parent's header.
    #[error("the witness lacks the parent's header, {0}")]
    NoParent(B256),
    /// The trie nodes of the witness are malformed or inconsistent.
    #[error("the witness's state: {0}")]
    State(#[from] WitnessError),
    /// The witness lacks something that the block reads or changes.
    #[error("the witness lacks {0}")]
    Lacks(WitnessGap),
    /// The block is invalid.
    #[error("block {id} is invalid: {fault}")]
    Invalid {
        /// The block.
        id: BlockId,
        /// Why it is invalid.
        fault: Box<BlockFault>,
    },
}

/// Data that a witness lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessGap {
    /// A trie node.
    #[error("a trie node: {0}")]
    Node(#[from] Missing),
    /// A contract code, by its hash.
    #[error("the code {0}")]
    Code(B256),
    /// The header of an earlier block.
    #[error("the header of block {0}")]
    Header(BlockNumber),
}

impl DBErrorMarker for WitnessGap {}

impl Chain {
    /// Builds the witness of a canonical block, by executing it again on its parent's state.
    ///
    /// # Errors
    ///
    /// If there is no such block, it is the first one, or the database can't be read.
    pub fn witness(&self, number: BlockNumber) -> Result<BlockWitness, ChainError> {
        self.witness_on(number, |parent| Ok(self.db().view_of(parent)?.into()))
    }

    /// As [`Chain::witness`], on the state that `parent_state` makes of the parent: that of a history,
    /// for an old block.
    ///
    /// # Errors
    ///
    /// As [`Chain::witness`], and the errors of `parent_state`.
    pub fn witness_on(
        &self,
        number: BlockNumber,
        parent_state: impl FnOnce(BlockId) -> Result<HistoryView, ChainError>,
    ) -> Result<BlockWitness, ChainError> {
        let head = self.db().head();
        let parent_number = number
            .checked_sub(1)
            .ok_or(ChainError::NoSuchBlock { number, head })?;
        let block = self.block(number)?;
        let parent_total_difficulty = self.total_difficulty(parent_number)?;
        let post_merge = self.spec().is_post_merge(number, parent_total_difficulty);
        let id = BlockId::new(number, block.header.hash_slow());
        let senders = self.senders(&block);
        let senders = senders.map_err(|error| ChainError::invalid(id, error))?;
        let view = parent_state(self.parent_of(&block.header))?;
        let recorder = Recorder::new(OldState(&view));
        let input = self.spec().input(&block, &senders, post_merge);
        let outcome = Sequential.execute(&input, &recorder, Hooks::default());
        let outcome = outcome.map_err(|error| execution_error(id, error))?;
        let touched = recorder.into_touched();
        let trie = view.extract_for_changes(&keys_of(&touched), &outcome.changes)?;
        let codes = touched
            .codes
            .iter()
            .filter(|hash| **hash != KECCAK256_EMPTY);
        let codes = codes
            .map(|hash| view.code(hash))
            .collect::<Result<_, _>>()?;
        let oldest = touched
            .block_hashes
            .keys()
            .next()
            .copied()
            .unwrap_or(parent_number);
        let headers = (oldest.min(parent_number)..=parent_number).rev();
        let headers = headers.map(|number| {
            let mut rlp = Vec::new();
            self.block(number)?.header.encode(&mut rlp);
            Ok(rlp.into())
        });
        let witness = Witness {
            state: trie.witness_nodes(),
            codes,
            keys: raw_keys(&touched),
            headers: headers.collect::<Result<_, ChainError>>()?,
        };
        Ok(BlockWitness {
            block: self.block_rlp(number)?,
            witness,
        })
    }
}

/// The state before a block, as execution reads it.
struct OldState<'a>(&'a HistoryView);

impl DatabaseRef for OldState<'_> {
    type Error = HistoryError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, HistoryError> {
        self.0.basic_ref(address)
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, HistoryError> {
        self.0.code_by_hash_ref(code_hash)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, HistoryError> {
        self.0.storage_ref(address, index)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, HistoryError> {
        self.0.block_hash_ref(number)
    }
}

impl StateRead for OldState<'_> {
    fn has_storage(&self, address: Address) -> Result<bool, HistoryError> {
        self.0.has_storage(&keccak256(address))
    }
}

/// The trie keys of everything that execution read.
fn keys_of(touched: &Touched) -> ProofTargets {
    let hashed = touched.accounts.iter().map(|(address, slots)| {
        let slots = slots.iter().map(|slot| keccak256(slot.to_be_bytes::<32>()));
        (keccak256(address), slots.collect())
    });
    ProofTargets::new(hashed.collect())
}

fn raw_keys(touched: &Touched) -> Vec<Bytes> {
    let mut keys = Vec::new();
    for (address, slots) in &touched.accounts {
        keys.push(Bytes::copy_from_slice(address.as_slice()));
        keys.extend(
            slots
                .iter()
                .map(|slot| Bytes::from(slot.to_be_bytes::<32>())),
        );
    }
    keys
}

impl BlockWitness {
    /// Executes the block from the witness alone, and verifies it against its header. Ommers are
    /// verified by their hash only, since a witness does not contain their ancestors.
    ///
    /// # Errors
    ///
    /// If the block is invalid, or the witness is malformed or incomplete.
    pub fn execute(&self, rules: &StatelessRules<'_>) -> Result<StatelessReport, StatelessError> {
        let spec = rules.spec;
        let header = decode_header(&self.block).map_err(StatelessError::Block)?;
        let id = BlockId::new(header.number, header.hash_slow());
        let invalid = |fault: BlockFault| StatelessError::Invalid {
            id,
            fault: Box::new(fault),
        };
        let got = header.parent_hash;
        if let Some(expected) = rules.parent.filter(|parent| *parent != got) {
            return Err(StatelessError::OtherParent { got, expected });
        }
        let (got, max) = (header.gas_limit, rules.gas_limit_max);
        if got > max {
            return Err(StatelessError::GasLimit { got, max });
        }
        let (parent, hashes) = self.ancestors(&header)?;
        let post_merge = rules.is_post_merge(&header, &parent);
        validate_header(spec, &header, &parent, header.parent_hash, post_merge)
            .map_err(|error: HeaderError| invalid(error.into()))?;
        validate_size(spec, &header, &self.block, post_merge)
            .map_err(|error| invalid(error.into()))?;
        let block = decode_block(&self.block).map_err(StatelessError::Block)?;
        validate_body(spec, &block, post_merge).map_err(|error| invalid(error.into()))?;
        let senders = recover_senders(&block.body.transactions, spec.has_low_signatures(&header))
            .map_err(|error| invalid(error.into()))?;

        let (trie, unused_nodes) =
            PartialTrie::from_witness(parent.state_root, &self.witness.state)?;
        let codes = self
            .witness
            .codes
            .iter()
            .map(|code| (keccak256(code), code.clone()));
        let mut state = WitnessState {
            trie,
            codes: codes.collect(),
            hashes,
        };
        let input = spec.input(&block, &senders, post_merge);
        let outcome = Sequential
            .execute(&input, &state, Hooks::default())
            .map_err(|error| match error {
                ExecutionError::Database(gap) => StatelessError::Lacks(gap),
                fault => invalid(BlockFault::Execution(fault.to_string())),
            })?;
        let verified =
            verify_outcome(&header, &outcome, None).map_err(|error| invalid(error.into()))?;
        let changes = outcome.changes.accounts();
        state
            .trie
            .apply(changes, &mut NoResolve)
            .map_err(|error| match error {
                UpdateError::Resolve(missing) => StatelessError::Lacks(missing.into()),
                UpdateError::Trie(error) => invalid(BlockFault::Execution(error.to_string())),
            })?;
        commit(&mut [&mut state.trie], &mut Default::default());
        let state_root = state.trie.state_root().unwrap_or_default();
        verify_state_root(&header, state_root).map_err(|error| invalid(error.into()))?;
        Ok(StatelessReport {
            id,
            parent: BlockId::new(parent.number, header.parent_hash),
            chain_id: spec.chain_id,
            fork: spec.fork_at(header.number, header.timestamp, post_merge),
            pre_root: parent.state_root,
            state_root,
            transactions: block.body.transactions.len(),
            gas_used: outcome.gas_used,
            receipts_checked: verified.receipts_root,
            unused_nodes,
        })
    }

    /// The parent's header, and the hashes of all ancestors that the headers of the witness link
    /// to.
    fn ancestors(
        &self,
        header: &Header,
    ) -> Result<(Header, HashMap<BlockNumber, B256>), StatelessError> {
        let mut by_hash: HashMap<B256, Header> = HashMap::default();
        for (index, rlp) in self.witness.headers.iter().enumerate() {
            let header: Header = alloy_rlp::decode_exact(rlp)
                .map_err(|source| StatelessError::Header { index, source })?;
            by_hash.insert(keccak256(rlp), header);
        }
        let parent = by_hash.get(&header.parent_hash).cloned();
        let parent = parent.ok_or(StatelessError::NoParent(header.parent_hash))?;
        let mut hashes = HashMap::default();
        let mut hash = header.parent_hash;
        let mut number = header.number;
        // Each header proves its parent's hash. Removing headers prevents endless loops.
        while let Some(before) = number.checked_sub(1) {
            number = before;
            hashes.insert(number, hash);
            let Some(header) = by_hash.remove(&hash) else {
                break;
            };
            hash = header.parent_hash;
        }
        Ok((parent, hashes))
    }
}

/// The part of a block's pre-state that its witness contains.
struct WitnessState {
    trie: PartialTrie,
    codes: HashMap<B256, Bytes>,
    hashes: HashMap<BlockNumber, B256>,
}

fn missing(stub: &Stub, path: &Path, depth: usize) -> WitnessGap {
    Missing {
        path: path.prefix(depth),
        node: stub.node,
    }
    .into()
}

impl DatabaseRef for WitnessState {
    type Error = WitnessGap;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, WitnessGap> {
        let path = Path::account(&keccak256(address));
        match self.trie.lookup(&path) {
            Lookup::Account(account) => Ok(Some(account_info(account))),
            Lookup::Stub { stub, depth } => Err(missing(stub, &path, depth)),
            Lookup::Absent | Lookup::Slot(_) | Lookup::Entry(_) => Ok(None),
        }
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, WitnessGap> {
        if hash == KECCAK256_EMPTY {
            return Ok(Bytecode::default());
        }
        let code = self.codes.get(&hash).ok_or(WitnessGap::Code(hash))?;
        Ok(bytecode(code.clone()))
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, WitnessGap> {
        let path = Path::slot(&keccak256(address), &keccak256(index.to_be_bytes::<32>()));
        match self.trie.lookup(&path) {
            Lookup::Slot(value) => Ok(value),
            Lookup::Stub { stub, depth } => Err(missing(stub, &path, depth)),
            Lookup::Absent | Lookup::Account(_) | Lookup::Entry(_) => Ok(U256::ZERO),
        }
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, WitnessGap> {
        self.hashes
            .get(&number)
            .copied()
            .ok_or(WitnessGap::Header(number))
    }
}

impl StateRead for WitnessState {
    fn has_storage(&self, address: Address) -> Result<bool, WitnessGap> {
        let account = Path::account(&keccak256(address));
        match self.trie.lookup(&account) {
            Lookup::Stub { stub, depth } => Err(missing(stub, &account, depth)),
            Lookup::Account(_) => Ok(self.trie.find(&account).is_some()),
            Lookup::Absent | Lookup::Slot(_) | Lookup::Entry(_) => Ok(false),
        }
    }
}
