//! Reads by address and slot number, whose hashes are the keys of the state.
//!
//! Each read hashes its keys anew, and then asks the same layers and caches as a read by hash does: nothing
//! is cached by address.

use crate::view::state::View;
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_primitives::Account;
use cambium_snapshot::StateError;

/// The key of an account.
fn path_of(address: &Address) -> B256 {
    keccak256(address)
}

/// The key of a slot in its account.
fn slot_of(slot: &U256) -> B256 {
    keccak256(slot.to_be_bytes::<32>())
}

impl View {
    /// Reads the account at an address; `None` if it doesn't exist. Accounts that recent blocks wrote or that are in
    /// the value cache come from memory, absent ones included; others take one device read, and two if the index does
    /// not fit into memory.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn account_at(&self, address: Address) -> Result<Option<Account>, StateError> {
        self.account(&path_of(&address))
    }

    /// Reads a slot of the account at an address; zero if it is not set. It costs what
    /// [`View::account_at`] does; the account is not read for it.
    ///
    /// # Errors
    ///
    /// As [`View::slot`].
    pub fn slot_at(&self, address: Address, slot: U256) -> Result<U256, StateError> {
        self.slot(&path_of(&address), &slot_of(&slot))
            .map_err(|error| error.at_address(address))
    }

    /// Reads many accounts with all device reads in flight at once, in the order of `addresses`. A page that has
    /// several of them is read once.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn accounts_at(&self, addresses: &[Address]) -> Result<Vec<Option<Account>>, StateError> {
        let paths: Vec<_> = addresses.iter().map(path_of).collect();
        self.accounts(&paths)
    }

    /// Reads many slots with all device reads in flight at once, in the order of `slots`. A page that has several
    /// of them is read once.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn slots_at(&self, slots: &[(Address, U256)]) -> Result<Vec<U256>, StateError> {
        let paths = slots.iter();
        let paths: Vec<_> = paths
            .map(|(address, slot)| (path_of(address), slot_of(slot)))
            .collect();
        self.storage(&paths).map_err(|error| {
            let addresses = slots.iter().map(|(address, _)| *address);
            addresses.fold(error, StateError::at_address)
        })
    }
}
