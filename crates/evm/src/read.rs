//! What execution asks of a state.

use alloy_primitives::{Address, U256};
use revm::{DatabaseRef, state::AccountInfo};
use std::sync::Arc;

/// Accounts and values of slots, in the order in which they were asked for.
pub type ManyRead = (Vec<Option<AccountInfo>>, Vec<U256>);

/// A state to execute blocks on: revm's reads and some more.
pub trait StateRead: DatabaseRef + Sync {
    /// Whether an account has any storage. Asked of accounts that a contract is about to be
    /// created at, if they have no code and no nonce: with storage, creation fails (EIP-7610).
    /// No such account has come to be since EIP-161.
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error>;

    /// Reads many accounts and slots. A state on a disk has all these reads in flight together;
    /// others read one after another.
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

impl<T: StateRead + Send + ?Sized> StateRead for Arc<T> {
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
