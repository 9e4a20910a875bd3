//! A real block, on a database with the part of the state that it touches.

use crate::bal::block::{Executed, Given};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_chain::{BlockExecutor, ExecutorKind, TimedReads, verify_outcome};
use cambium_conformance::SparseBlock;
use cambium_evm::{
    BlockInput, ExecutionCounts, Executor, Hooks, ManyRead, Outcome, Sequential, StateRead,
};
use cambium_primitives::{Account, BlockId};
use cambium_state::{BlockMeta, Db, Loaded, Loader, Options, StateError, StdDisk, View};
use cambium_testkit::Model;
use revm::{DatabaseRef, bytecode::Bytecode, primitives::hardfork::SpecId, state::AccountInfo};
use std::{collections::BTreeMap, error::Error, path::Path, sync::Arc, time::Instant};
use tempfile::TempDir;

/// Memory budget of a database, far more than such a state needs.
const MEMORY_BYTES: u64 = 256 << 20;

/// A sparse state in a database of its own, with the hashes of earlier blocks.
pub(super) struct SparseState {
    reads: TimedReads,
    view: View,
    block_hashes: BTreeMap<u64, B256>,
    _db: Db,
    _dir: TempDir,
}

/// Loads the state of `model`, with `others` accounts beside it that it does not have, into a directory.
pub(super) fn load(model: &Model, dir: &Path, others: u64) -> Result<Loaded, Box<dyn Error>> {
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        ..Options::default()
    };
    let mut loader = Loader::new(Arc::new(StdDisk::new(dir)), options)?;
    let mut codes = BTreeMap::new();
    for (path, held) in model.accounts() {
        let slots = held.slots.iter().map(|(slot, value)| (*slot, *value));
        loader.account(*path, &held.account, slots)?;
        let hash = held.account.code_hash;
        codes.extend(model.code(&hash).map(|code| (hash, code)));
    }
    let other = Account {
        balance: U256::from(1),
        ..Account::default()
    };
    for number in 0..others {
        let path = keccak256(number.to_be_bytes());
        loader.account(path, &other, [])?;
    }
    for (hash, code) in codes {
        loader.code(hash, code)?;
    }
    Ok(loader.finish(&mut |_| {})?)
}

impl SparseState {
    /// Creates the database in a temporary directory below `parent`.
    pub(super) fn new(model: &Model, parent: &Path) -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir_in(parent)?;
        let loaded = load(model, dir.path(), 0)?;
        let meta = BlockMeta {
            id: BlockId::new(0, B256::with_last_byte(1)),
            parent: B256::ZERO,
            state_root: loaded.root(),
            body: Bytes::new(),
        };
        let db = loaded.create(meta, Vec::new())?;
        let view = db.view()?;
        Ok(Self {
            reads: TimedReads::new(view.clone()),
            view,
            block_hashes: model.block_hashes().clone(),
            _db: db,
            _dir: dir,
        })
    }
}

impl DatabaseRef for SparseState {
    type Error = StateError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, StateError> {
        self.reads.basic_ref(address)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, StateError> {
        self.reads.code_by_hash_ref(hash)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, StateError> {
        self.reads.storage_ref(address, slot)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, StateError> {
        let hash = self.block_hashes.get(&number).copied();
        Ok(hash.unwrap_or_default())
    }
}

impl StateRead for SparseState {
    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        self.reads.has_storage(address)
    }

    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, StateError> {
        self.reads.read_all(accounts, slots)
    }
}

/// A real block with every input that executors can take.
pub(super) struct RealBlock {
    pub(super) sparse: SparseBlock,
    state: SparseState,
    /// The access list, from Cancun on.
    pub(super) given: Option<Given>,
    /// Outcome of sequential execution.
    expected: Outcome,
}

impl RealBlock {
    /// Loads the block's state into a database in a temporary directory below `parent`, executes
    /// the block sequentially, and compares the outcome with its header. From Cancun on, every
    /// execution of the block records its access list.
    pub(super) fn new(mut sparse: SparseBlock, parent: &Path) -> Result<Self, Box<dyn Error>> {
        sparse.rules.block_access_list = sparse.rules.is(SpecId::CANCUN);
        let state = SparseState::new(&sparse.state, parent)?;
        let expected = Sequential.execute(&sparse.input(), &state, Hooks::default())?;
        let verified = verify_outcome(&sparse.header, &expected, None)?;
        if !verified.receipts_root {
            return Err("receipts hold states' roots".into());
        }
        let list = expected.access_list.clone();
        let given = list.map(|list| Given::new(list, &state.view)).transpose()?;
        Ok(Self {
            sparse,
            state,
            given,
            expected,
        })
    }

    pub(super) const fn expected(&self) -> &Outcome {
        &self.expected
    }

    /// Returns the kinds of executors that can execute the block in parallel or in sequence.
    pub(super) fn kinds(&self) -> &'static [ExecutorKind] {
        match self.given {
            Some(_) => &ExecutorKind::ALL,
            None => &[ExecutorKind::Sequential, ExecutorKind::Optimistic],
        }
    }

    /// Executes the block, with the list for this kind of executor.
    pub(super) fn execute(
        &self,
        executor: &BlockExecutor,
        counts: &mut ExecutionCounts,
    ) -> Result<Executed, Box<dyn Error>> {
        let given = self.given.as_ref();
        let input = BlockInput {
            access_list: given.map(|given| given.list_for(executor.kind)),
            pre_state: given.map(|given| &given.found),
            ..self.sparse.input()
        };
        let hooks = Hooks {
            counts: Some(counts),
            ..Hooks::default()
        };
        let start = Instant::now();
        let outcome = executor.execute(&input, &self.state, hooks)?;
        let elapsed = start.elapsed();
        Ok(Executed { outcome, elapsed })
    }

    /// Returns whether an outcome equals that of sequential execution.
    pub(super) fn is_expected(&self, outcome: &Outcome) -> bool {
        *outcome == self.expected
    }
}
