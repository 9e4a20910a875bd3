//! What execution reads: the raw material of a witness.

use crate::StateRead;
use alloy_primitives::{Address, B256, U256};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

/// All that was asked of a database. Whatever execution writes it reads first, but for slots of
/// accounts that it creates, under which there is nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Accounts, whether they exist or not, each with its slots.
    pub accounts: BTreeMap<Address, BTreeSet<U256>>,
    /// Hashes of code.
    pub codes: BTreeSet<B256>,
    /// Hashes of earlier blocks, by height.
    pub block_hashes: BTreeMap<u64, B256>,
}

/// A database that notes what it is asked. It costs a lock for each read: for execution that
/// ends in a witness only.
#[derive(Debug, Default)]
pub struct Recorder<DB> {
    db: DB,
    touched: Mutex<Touched>,
}

impl<DB> Recorder<DB> {
    /// Nothing asked yet.
    pub fn new(db: DB) -> Self {
        Self {
            db,
            touched: Mutex::default(),
        }
    }

    /// All that was asked.
    pub fn into_touched(self) -> Touched {
        self.touched
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
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
