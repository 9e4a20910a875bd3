//! One scout: a transaction that is run for its reads alone.

use crate::{
    BlockInput, StateRead,
    overlay::{Overlay, OverlayMode},
    step::StepRunner,
};
use alloy_primitives::{Address, B256, U256};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
};

/// A state that is read ahead of execution. Reads that need the disk end later: `Pending` means
/// that `ticket` is returned when the read should be repeated.
pub trait AheadState: 'static {
    /// A block that is read ahead for.
    type Block: 'static;
    /// Why a read failed. Execution will meet the same error, if it lasts.
    type Error;

    /// The block to execute.
    fn input<'a>(block: &'a Self::Block) -> BlockInput<'a>;

    /// Reads an account, or begins to.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn account(
        &mut self,
        block: &Self::Block,
        address: Address,
        ticket: u64,
    ) -> Result<Poll<Option<AccountInfo>>, Self::Error>;

    /// Reads a slot of an account, or begins to.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn slot(
        &mut self,
        block: &Self::Block,
        address: Address,
        slot: U256,
        ticket: u64,
    ) -> Result<Poll<U256>, Self::Error>;

    /// Reads a contract's code by its hash.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn code(&mut self, block: &Self::Block, hash: B256) -> Result<Bytecode, Self::Error>;

    /// The hash of an ancestor of the block.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn block_hash(&mut self, block: &Self::Block, number: u64) -> Result<B256, Self::Error>;

    /// Loads what a change of the account needs, without waiting for it.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn load_account(&mut self, block: &Self::Block, address: Address) -> Result<(), Self::Error>;

    /// Loads what a change of the slot needs, without waiting for it.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn load_slot(
        &mut self,
        block: &Self::Block,
        address: Address,
        slot: U256,
    ) -> Result<(), Self::Error>;
}

/// Number of times that a value is asked for. Where its page can't be read, or is dropped at once
/// for lack of memory, execution reads it.
const ASKED_MAX: usize = 3;

/// How a scout waits for a value.
pub(super) trait Wait {
    /// Returns once the value may be there. False if the scout is to be abandoned.
    fn wait(&self) -> bool;
}

/// A scout's state to execute on.
struct ScoutDb<'a, S: AheadState, W> {
    state: &'a RefCell<S>,
    block: &'a S::Block,
    ticket: u64,
    wait: &'a W,
}

/// The scout can't go on. The reason is not needed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the scout is abandoned")]
struct Abandoned;

impl DBErrorMarker for Abandoned {}

impl<S: AheadState, W: Wait> ScoutDb<'_, S, W> {
    fn value<T>(&self, read: impl Fn(&mut S) -> Result<Poll<T>, S::Error>) -> Result<T, Abandoned> {
        for _ in 0..ASKED_MAX {
            let asked = read(&mut self.state.borrow_mut());
            match asked.map_err(|_| Abandoned)? {
                Poll::Ready(value) => return Ok(value),
                Poll::Pending if self.wait.wait() => {}
                Poll::Pending => break,
            }
        }
        Err(Abandoned)
    }
}

impl<S: AheadState, W: Wait> DatabaseRef for ScoutDb<'_, S, W> {
    type Error = Abandoned;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Abandoned> {
        self.value(|state| state.account(self.block, address, self.ticket))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Abandoned> {
        let code = self.state.borrow_mut().code(self.block, hash);
        code.map_err(|_| Abandoned)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Abandoned> {
        self.value(|state| state.slot(self.block, address, slot, self.ticket))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Abandoned> {
        let hash = self.state.borrow_mut().block_hash(self.block, number);
        hash.map_err(|_| Abandoned)
    }
}

impl<S: AheadState, W: Wait> StateRead for ScoutDb<'_, S, W> {
    /// Not worth reading many pages for: such accounts are as old as the DAO.
    fn has_storage(&self, _: Address) -> Result<bool, Abandoned> {
        Ok(false)
    }
}

/// Runs a transaction of a block for its reads, and loads what its writes need. A panic ends the
/// scout, and nothing else: on a state that no block ever has, even the EVM may come upon what its
/// authors held for impossible.
pub(super) fn run<S: AheadState>(
    state: &RefCell<S>,
    block: &S::Block,
    index: usize,
    ticket: u64,
    wait: &impl Wait,
) {
    let scout = AssertUnwindSafe(|| scout(state, block, index, ticket, wait));
    let _ = catch_unwind(scout);
}

fn scout<S: AheadState>(
    state: &RefCell<S>,
    block: &S::Block,
    index: usize,
    ticket: u64,
    wait: &impl Wait,
) {
    let input = S::input(block);
    let mode = OverlayMode {
        steps: false,
        record: false,
        ..OverlayMode::of(&input.rules)
    };
    let db = ScoutDb {
        state,
        block,
        ticket,
        wait,
    };
    let mut runner = StepRunner::new(&input, Overlay::new(db, mode));
    runner.relax();
    let Ok((_, writes, _)) = runner.transaction_and_fee(index) else {
        return;
    };
    let mut state = state.borrow_mut();
    for (address, account) in writes.iter().filter(|(_, account)| account.is_touched()) {
        let changed = account.changed_storage_slots();
        let slots = changed.map(|(slot, _)| state.load_slot(block, *address, *slot));
        // A failed load is left to execution.
        let _ = slots.collect::<Result<(), _>>();
        let _ = state.load_account(block, *address);
    }
}
