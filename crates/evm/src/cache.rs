//! Values of one parent state, shared by the threads of a block or of a batch: each is read once. Optimistic execution
//! shares codes alone.

use crate::{ManyRead, StateRead};
use alloy_primitives::{Address, B256, U256, map::HashMap};
use cambium_primitives::{AccessList, AccountChanges};
use revm::{bytecode::Bytecode, state::AccountInfo};
use std::{
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// Keys of accounts and slots to read in one batch.
#[derive(Default)]
pub(crate) struct Keys {
    pub(crate) accounts: Vec<Address>,
    pub(crate) slots: Vec<(Address, U256)>,
}

impl Keys {
    /// The keys whose pre-state values decide what a list's block changes.
    pub(crate) fn for_changes(list: &AccessList) -> Self {
        let mut keys = Self::default();
        let changed = |account: &&AccountChanges| AccessList::is_changed(account);
        for account in list.accounts().iter().filter(changed) {
            keys.accounts.push(account.address);
            let back = account.storage_changes.iter();
            let back = back.filter(|slot| slot.changes.len() > 1);
            keys.slots
                .extend(back.map(|slot| (account.address, slot.slot)));
        }
        keys
    }
}

/// Values of the parent's state that a block has read.
pub(crate) struct BlockCache<'a, DB> {
    db: &'a DB,
    accounts: Shards<Address, Option<AccountInfo>>,
    slots: Shards<(Address, U256), U256>,
    codes: Shards<B256, Bytecode>,
    empty_account: AtomicBool,
}

impl<'a, DB: StateRead> BlockCache<'a, DB> {
    pub(crate) fn new(db: &'a DB) -> Self {
        Self {
            db,
            accounts: Shards::default(),
            slots: Shards::default(),
            codes: Shards::default(),
            empty_account: AtomicBool::new(false),
        }
    }

    pub(crate) const fn db(&self) -> &'a DB {
        self.db
    }

    pub(crate) fn account(&self, address: Address) -> Result<Option<AccountInfo>, DB::Error> {
        self.accounts.get(address, || self.read_account(address))
    }

    /// Reads an account without caching it. Notes whether it is empty.
    pub(crate) fn read_account(&self, address: Address) -> Result<Option<AccountInfo>, DB::Error> {
        let account = self.db.basic_ref(address)?;
        self.look_at(account.as_ref());
        Ok(account)
    }

    pub(crate) fn slot(&self, address: Address, slot: U256) -> Result<U256, DB::Error> {
        self.slots
            .get((address, slot), || self.db.storage_ref(address, slot))
    }

    pub(crate) fn code(&self, hash: B256) -> Result<Bytecode, DB::Error> {
        self.codes.get(hash, || self.db.code_by_hash_ref(hash))
    }

    /// Reads many keys in one batch.
    pub(crate) fn read(&self, keys: &Keys) -> Result<(), DB::Error> {
        let (accounts, slots) = self.read_all(keys)?;
        for (address, account) in keys.accounts.iter().zip(accounts) {
            self.accounts.put(*address, account);
        }
        for (slot, value) in keys.slots.iter().zip(slots) {
            self.slots.put(*slot, value);
        }
        Ok(())
    }

    /// Reads many keys in one batch without caching them. Notes whether an account is empty.
    pub(crate) fn read_all(&self, keys: &Keys) -> Result<ManyRead, DB::Error> {
        let (accounts, slots) = self.db.read_all(&keys.accounts, &keys.slots)?;
        for account in &accounts {
            self.look_at(account.as_ref());
        }
        Ok((accounts, slots))
    }

    /// Whether an account that was read exists and is empty. No such account has come into being
    /// since EIP-161. Touching one deletes it, which an access list does not say.
    pub(crate) fn has_empty_account(&self) -> bool {
        self.empty_account.load(Ordering::Relaxed)
    }

    fn look_at(&self, account: Option<&AccountInfo>) {
        if account.is_some_and(AccountInfo::is_empty) {
            self.empty_account.store(true, Ordering::Relaxed);
        }
    }
}

/// Number of maps, each with a lock of its own, so that threads rarely contend.
const SHARDS: usize = 64;

struct Shards<K, V>([RwLock<HashMap<K, Arc<Cell<V>>>>; SHARDS]);

/// A value that is read at most once.
pub(crate) struct Cell<V> {
    value: OnceLock<V>,
    reading: Mutex<()>,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::default()))
    }
}

impl<V> Default for Cell<V> {
    fn default() -> Self {
        Self {
            value: OnceLock::new(),
            reading: Mutex::new(()),
        }
    }
}

impl<V: Clone> Cell<V> {
    /// The value, if it is known.
    pub(crate) fn known(&self) -> Option<&V> {
        self.value.get()
    }

    /// Returns the value. The first caller reads it; others wait for that.
    pub(crate) fn get<E>(&self, read: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.value.get() {
            return Ok(value.clone());
        }
        // Other readers of the same value wait here.
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.get() {
            return Ok(value.clone());
        }
        let value = read()?;
        let _ = self.value.set(value.clone());
        Ok(value)
    }

    /// Makes other readers wait until the guard is dropped. `None` if the value is known or being
    /// read.
    pub(crate) fn claim(&self) -> Option<MutexGuard<'_, ()>> {
        let claim = self.reading.try_lock().ok()?;
        self.value.get().is_none().then_some(claim)
    }

    /// Sets the value, unless it is known.
    pub(crate) fn put(&self, value: V) {
        let _ = self.value.set(value);
    }
}

impl<K: Shard, V: Clone> Shards<K, V> {
    fn cell(&self, key: K) -> Arc<Cell<V>> {
        let shard = &self.0[key.shard() % SHARDS];
        let mut known = shard.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(key).or_default().clone()
    }

    fn known(&self, key: &K) -> Option<V> {
        let shard = &self.0[key.shard() % SHARDS];
        let known = shard.read().unwrap_or_else(PoisonError::into_inner);
        known.get(key)?.value.get().cloned()
    }

    fn get<E>(&self, key: K, read: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        match self.known(&key) {
            Some(value) => Ok(value),
            None => self.cell(key).get(read),
        }
    }

    fn put(&self, key: K, value: V) {
        self.cell(key).put(value);
    }
}

/// A key that selects a shard.
trait Shard: Copy + Eq + Hash {
    fn shard(&self) -> usize;
}

impl Shard for Address {
    fn shard(&self) -> usize {
        self.0[19].into()
    }
}

impl Shard for (Address, U256) {
    fn shard(&self) -> usize {
        (self.0.0[19] ^ self.1.byte(0)).into()
    }
}

impl Shard for B256 {
    fn shard(&self) -> usize {
        self.0[31].into()
    }
}
