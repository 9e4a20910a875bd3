//! A block with its witness: executed again, and its post-root computed, with no database.
//!
//! Nothing in a witness is believed: the state's nodes hang together by hash from the parent's
//! state root, codes are found by their hash, and earlier headers by the hashes that the next one
//! names. What binds the parent is the block's own header. The rules of its chain are the
//! verifier's to say ([`StatelessRules`]), and so is which block the parent is.

use crate::{
    BlockFault, Chain, ChainError, ChainSpec, Fork, HeaderError,
    error::execution_error,
    files::{decode_block, decode_header},
    reads::TimedReads,
    validate_body, validate_header, validate_size, verify_outcome, verify_state_root,
};
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256, map::HashMap};
use alloy_rlp::Encodable;
use cambium_evm::{
    ExecutionError, Executor, Hooks, Recorder, Sequential, StateRead, Touched, account_info,
    recover_senders,
};
use cambium_primitives::{BlockId, BlockNumber, Path};
use cambium_state::bytecode;
use cambium_trie::{
    Keys, Lookup, Missing, NoResolve, PartialTrie, Stub, UpdateError, Witness, WitnessError, commit,
};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use serde::Serialize;

/// More gas than blocks have by far: executing it takes minutes at most, not hours.
pub const STATELESS_GAS_LIMIT_MAX: u64 = 1_000_000_000;

/// A block, and all that is needed to execute it. See [`BlockWitness::from_json`] for the forms
/// that others write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockWitness {
    /// RLP of the block.
    pub block: Bytes,
    /// In the form of `debug_executionWitness`.
    pub witness: Witness,
}

/// What a verifier goes by, and no witness brings with it.
#[derive(Clone, Copy, Debug)]
pub struct StatelessRules<'a> {
    /// The fork rules of the chain that the block claims to be of.
    pub spec: &'a ChainSpec,
    /// The hash of its parent, where that is known. Otherwise what is shown is that the block
    /// follows from the parent which it names, whatever that is.
    pub parent: Option<B256>,
    /// Difficulty of the parent and of all before it, where that is known. Otherwise a block on a
    /// parent with proof of work is past the merge if it has no difficulty itself.
    pub parent_total_difficulty: Option<U256>,
    /// A block with a higher gas limit is not executed.
    pub gas_limit_max: u64,
}

impl<'a> StatelessRules<'a> {
    /// The rules of a chain, and nothing known of the parent.
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
            // Proof of work never comes back.
            None => {
                let parent_is_post_merge = parent.difficulty.is_zero() && parent.number > 0;
                terminal.is_zero() || parent_is_post_merge || header.difficulty.is_zero()
            }
        }
    }
}

/// What executing a block from its witness showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatelessReport {
    /// The block.
    pub id: BlockId,
    /// Its parent, from whose state it follows.
    pub parent: BlockId,
    /// The chain whose rules it was executed by.
    pub chain_id: u64,
    /// The fork whose rules it was executed by.
    pub fork: Fork,
    /// State root before it, by the parent's header.
    pub pre_root: B256,
    /// State root after it: computed, and equal to the header's.
    pub state_root: B256,
    /// Its transactions.
    pub transactions: usize,
    /// Gas used: counted, and equal to the header's.
    pub gas_used: u64,
    /// False before Byzantium: receipts hold states' roots in mid-block, for which witnesses have
    /// no nodes.
    pub receipts_checked: bool,
    /// Nodes of the witness that nothing named.
    pub unused_nodes: usize,
}

/// Why a block does not follow from its witness.
#[derive(Debug, thiserror::Error)]
pub enum StatelessError {
    /// The block's bytes.
    #[error("{0}")]
    Block(String),
    /// The block is not a child of the one that is known to be its parent.
    #[error("the block's parent is {got}, and not {expected}")]
    OtherParent {
        /// The block's parent.
        got: B256,
        /// The one that was given.
        expected: B256,
    },
    /// More gas than the verifier spends.
    #[error("the block's gas limit is {got}, over the {max} that are executed")]
    GasLimit {
        /// The block's gas limit.
        got: u64,
        /// The most that the verifier spends: [`StatelessRules::gas_limit_max`].
        max: u64,
    },
    /// A header's bytes.
    #[error("header {index} of the witness is no RLP of a header: {source}")]
    Header {
        /// Its place in the list.
        index: usize,
        /// What is wrong.
        source: alloy_rlp::Error,
    },
    /// The parent's header is not there.
    #[error("the witness lacks the parent's header, {0}")]
    NoParent(B256),
    /// The state's nodes.
    #[error("the witness's state: {0}")]
    State(#[from] WitnessError),
    /// Something that the block reads or changes is not there.
    #[error("the witness lacks something: {0}")]
    Lacks(WitnessGap),
    /// The block itself is wrong.
    #[error("block {id} is invalid: {fault}")]
    Invalid {
        /// The block.
        id: BlockId,
        /// What is wrong.
        fault: Box<BlockFault>,
    },
}

/// Something that a witness lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessGap {
    /// A trie node.
    #[error("{0}")]
    Node(#[from] Missing),
    /// A code.
    #[error("the code {0}")]
    Code(B256),
    /// An earlier block's header.
    #[error("the header of block {0}")]
    Header(BlockNumber),
}

impl DBErrorMarker for WitnessGap {}

impl Chain {
    /// The witness of a canonical block: executes it again on its parent's state.
    pub fn witness(&self, number: BlockNumber) -> Result<BlockWitness, ChainError> {
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
        let view = self.db().view_of(self.parent_of(&block.header))?;
        let recorder = Recorder::new(TimedReads::new(view.clone()));
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

/// The leaves that execution asked for.
fn keys_of(touched: &Touched) -> Keys {
    let hashed = touched.accounts.iter().map(|(address, slots)| {
        let slots = slots.iter().map(|slot| keccak256(slot.to_be_bytes::<32>()));
        (keccak256(address), slots.collect())
    });
    Keys::new(hashed.collect())
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
    /// Executes the block from the witness alone, and checks all that its header claims. Uncles
    /// are checked by hash only: their ancestors are no part of a witness.
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

    /// The parent's header, and the hashes of as many ancestors as the headers link up to.
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
        // Each header vouches for its parent's hash. Taking them out ends any loop.
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

/// The state before a block, as far as its witness has it.
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
            Lookup::Absent | Lookup::Slot(_) => Ok(None),
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
            Lookup::Absent | Lookup::Account(_) => Ok(U256::ZERO),
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
            Lookup::Absent | Lookup::Slot(_) => Ok(false),
        }
    }
}
