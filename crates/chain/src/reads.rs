//! The state that execution reads from a view, with the time spent reading.

use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_evm::{ManyRead, StateRead, account_info};
use cambium_history::{HistoryError, StateAt};
use cambium_keccak::keccak256_each;
use cambium_state::{StateError, View};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A view as a state to execute on. Measures the time spent reading; reads of many keys are issued
/// together.
pub struct TimedReads {
    view: View,
    spent_ns: AtomicU64,
}

impl TimedReads {
    /// Reads from the state of a view.
    pub const fn new(view: View) -> Self {
        Self {
            view,
            spent_ns: AtomicU64::new(0),
        }
    }

    /// Time spent reading so far, summed over threads.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed))
    }

    fn time<T>(&self, read: impl FnOnce(&View) -> T) -> T {
        let start = Instant::now();
        let result = read(&self.view);
        self.spent_ns
            .fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl DatabaseRef for TimedReads {
    type Error = StateError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, StateError> {
        self.time(|view| view.basic_ref(address))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, StateError> {
        self.time(|view| view.code_by_hash_ref(code_hash))
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, StateError> {
        self.time(|view| view.storage_ref(address, index))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, StateError> {
        self.time(|view| view.block_hash_ref(number))
    }
}

impl StateRead for TimedReads {
    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, StateError> {
        // Slots of one account are consecutive, so its path is hashed once.
        let mut last = None;
        let mut path = |address: &Address| match last {
            Some((known, path)) if known == *address => path,
            _ => last.insert((*address, keccak256(address))).1,
        };
        let numbers = slots.iter().map(|(_, slot)| slot.to_be_bytes::<32>());
        let numbers = keccak256_each(numbers).into_iter();
        let slots = slots.iter().zip(numbers);
        let slots: Vec<_> = slots
            .map(|((account, _), slot)| (path(account), slot))
            .collect();
        let accounts = keccak256_each(accounts);
        self.time(|view| {
            let accounts = view.accounts(&accounts)?.into_iter();
            let accounts = accounts.map(|account| account.map(account_info));
            Ok((accounts.collect(), view.storage(&slots)?))
        })
    }

    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        self.time(|view| view.has_storage(&keccak256(address)))
    }
}

/// The state after an old block, as execution reads it.
pub(crate) struct OldState<'a>(pub(crate) &'a StateAt);

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
