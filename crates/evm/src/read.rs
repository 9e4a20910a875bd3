//! The state that execution reads.

use alloy_primitives::{Address, U256};
use revm::{DatabaseRef, state::AccountInfo};
use std::sync::Arc;

/// Accounts and slot values, in the order of the request.
pub type ManyRead = (Vec<Option<AccountInfo>>, Vec<U256>);

/// A state to execute blocks on: revm's reads, and what Cambium needs besides. Executors need one
/// that threads can share.
pub trait StateRead: DatabaseRef {
    /// Whether an account has any storage. Called before a contract is created at an account that
    /// has neither code nor nonce: with storage, creation fails (EIP-7610). No such account has
    /// come into being since EIP-161.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error>;

    /// Reads many accounts and slots. A state on disk issues all the reads together; the default
    /// reads one after another.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, Self::Error> {
        let accounts = accounts.iter().map(|address| self.basic_ref(*address));
        let slots = slots
            .iter()
            .map(|(address, slot)| self.storage_ref(*address, *slot));
        Ok((
            accounts.collect::<Result<_, _>>()?,
            slots.collect::<Result<_, _>>()?,
        ))
    }
}

impl<T: StateRead + ?Sized> StateRead for &T {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        (**self).has_storage(address)
    }

    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, Self::Error> {
        (**self).read_all(accounts, slots)
    }
}

impl<T: StateRead + ?Sized> StateRead for Arc<T> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        (**self).has_storage(address)
    }

    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, Self::Error> {
        (**self).read_all(accounts, slots)
    }
}
