//! What execution asks of a state.

use alloy_primitives::Address;
use revm::DatabaseRef;
use std::sync::Arc;

/// A state to execute blocks on: revm's reads and one more.
pub trait StateRead: DatabaseRef {
    /// Whether an account has any storage. Asked of accounts that a contract is about to be
    /// created at, if they have no code and no nonce: with storage, creation fails (EIP-7610).
    /// No such account has come to be since EIP-161.
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error>;
}

impl<T: StateRead + ?Sized> StateRead for &T {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        (**self).has_storage(address)
    }
}

impl<T: StateRead + ?Sized> StateRead for Arc<T> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        (**self).has_storage(address)
    }
}
