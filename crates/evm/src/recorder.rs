//! Recording of the reads of execution, from which a witness is made.

use crate::StateRead;
use alloy_primitives::{Address, B256, U256};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

/// Everything that was read from a database. Execution reads what it writes, except slots of
/// accounts that it creates, which are empty before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Accounts with their slots, including accounts that do not exist.
    pub accounts: BTreeMap<Address, BTreeSet<U256>>,
    /// Hashes of contract codes.
    pub codes: BTreeSet<B256>,
    /// Hashes of earlier blocks, by number.
    pub block_hashes: BTreeMap<u64, B256>,
}

/// A database that records what is read from it. Every read takes a lock, so it is meant for
/// making witnesses only.
#[derive(Debug, Default)]
pub struct Recorder<DB> {
    db: DB,
    touched: Mutex<Touched>,
}

impl<DB> Recorder<DB> {
    /// Starts recording reads from `db`.
    pub fn new(db: DB) -> Self {
        Self {
            db,
            touched: Mutex::default(),
        }
    }

    /// Returns what was read.
    pub fn into_touched(self) -> Touched {
        self.into_parts().1
    }

    /// Returns the database, and what was read from it.
    pub fn into_parts(self) -> (DB, Touched) {
        let touched = self.touched.into_inner();
        (self.db, touched.unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, note: impl FnOnce(&mut Touched)) {
        note(&mut self.touched.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<DB: DatabaseRef> DatabaseRef for Recorder<DB> {
    type Error = DB::Error;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, DB::Error> {
        self.note(|touched| {
            touched.accounts.entry(address).or_default();
        });
        self.db.basic_ref(address)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, DB::Error> {
        self.note(|touched| {
            touched.codes.insert(hash);
        });
        self.db.code_by_hash_ref(hash)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, DB::Error> {
        self.note(|touched| {
            touched.accounts.entry(address).or_default().insert(slot);
        });
        self.db.storage_ref(address, slot)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, DB::Error> {
        let hash = self.db.block_hash_ref(number)?;
        self.note(|touched| {
            touched.block_hashes.insert(number, hash);
        });
        Ok(hash)
    }
}

impl<DB: StateRead> StateRead for Recorder<DB> {
    fn has_storage(&self, address: Address) -> Result<bool, DB::Error> {
        self.note(|touched| {
            touched.accounts.entry(address).or_default();
        });
        self.db.has_storage(address)
    }
}
