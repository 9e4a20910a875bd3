//! A session for callers that run revm by themselves.

use crate::reads::TimedReads;
use alloy_primitives::{Address, B256, U256, map::AddressMap};
use cambium_evm::{BlockChanges, BlockState};
use cambium_state::{Session, Staged, StateError, View};
use revm::{
    Database, DatabaseCommit,
    bytecode::Bytecode,
    state::{Account, AccountInfo},
};

/// The state of a block that is being executed by revm: a database that transactions are committed to, each
/// by itself ([`BlockState`]).
///
/// ```no_run
/// use cambium_chain::EvmSession;
/// use cambium_state::{BlockMeta, Db, StateError};
/// use revm::{Context, ExecuteCommitEvm, MainBuilder, MainContext, context::TxEnv};
///
/// # fn f(db: &Db, transactions: Vec<TxEnv>, meta: BlockMeta) -> Result<(), StateError> {
/// let mut evm = Context::mainnet()
///     .with_db(EvmSession::new(db.view()?))
///     .build_mainnet();
/// for transaction in transactions {
///     evm.transact_commit(transaction).expect("a valid transaction");
/// }
/// let staged = evm.ctx.journaled_state.database.finish()?;
/// println!("the root is {}", staged.root());
/// staged.seal(meta)?.commit()?;
/// # Ok(())
/// # }
/// ```
pub struct EvmSession {
    session: Session,
    state: BlockState<TimedReads>,
}

impl EvmSession {
    /// Begins a block on the state of a view.
    pub fn new(view: View) -> Self {
        let reads = TimedReads::new(view.clone());
        Self {
            session: view.session(),
            state: BlockState::new(reads),
        }
    }

    /// Adds to a balance outside any transaction: a withdrawal (in wei), or a reward before the merge.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn add_balance(&mut self, address: Address, wei: U256) -> Result<(), StateError> {
        self.state.add_balance(address, wei)
    }

    /// Computes the state root after everything that was committed.
    ///
    /// # Errors
    ///
    /// The first error that a commit met, and those of [`Session::finish`].
    pub fn finish(self) -> Result<Staged, StateError> {
        let BlockChanges { changes, codes } = self.state.finish()?;
        self.session.finish(changes, codes)
    }
}

impl Database for EvmSession {
    type Error = StateError;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, StateError> {
        self.state.basic(address)
    }

    fn code_by_hash(&mut self, code_hash: B256) -> Result<Bytecode, StateError> {
        self.state.code_by_hash(code_hash)
    }

    fn storage(&mut self, address: Address, index: U256) -> Result<U256, StateError> {
        self.state.storage(address, index)
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, StateError> {
        self.state.block_hash(number)
    }
}

impl DatabaseCommit for EvmSession {
    fn commit(&mut self, changes: AddressMap<Account>) {
        self.state.commit(changes);
    }
}
