//! A reference model of the state: sorted maps, with every root computed from scratch.
//!
//! It uses the tries of alloy-trie, so it shares no code with the engine that is compared with it.
//! Like the engine, it is keyed by paths. The model of a key-value database has entries instead of
//! accounts.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::Encodable;
use alloy_trie::{EMPTY_ROOT_HASH, HashBuilder, Nibbles, TrieAccount};
use cambium_evm::{StateRead, account_info};
use cambium_primitives::{Account, AccountUpdate, Changes, EntryValue, STORAGE_ROOT_KEY};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// An account with its storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelAccount {
    /// Nonce, balance, code hash.
    pub account: Account,
    /// Values by keccak(slot), none of them zero.
    pub slots: BTreeMap<B256, U256>,
    storage_root: Computed,
}

/// Reference model of a whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    accounts: BTreeMap<B256, Arc<ModelAccount>>,
    entries: BTreeMap<B256, Bytes>,
    codes: BTreeMap<B256, Bytes>,
    block_hashes: BTreeMap<u64, B256>,
    root: Computed,
}

/// A root once it has been computed: tests ask for one again and again, and most storages are as in the block before.
/// It is no part of what is compared.
#[derive(Clone, Debug, Default)]
struct Computed(OnceLock<B256>);

impl PartialEq for Computed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Computed {}

/// Data that execution reads and the model lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// There is no code with this hash.
    #[error("no code of hash {0}")]
    Code(B256),
    /// There is no hash of a block with this number.
    #[error("no hash of block {0}")]
    BlockHash(u64),
}

impl revm::database_interface::DBErrorMarker for ModelError {}

impl Model {
    /// Applies changes.
    pub fn apply(&mut self, changes: &Changes) {
        self.root = Computed::default();
        for change in changes.accounts() {
            if change.account == AccountUpdate::Delete {
                self.accounts.remove(&change.path);
                self.entries.remove(&change.path);
                continue;
            }
            if let AccountUpdate::Entry(EntryValue::Inline(value)) = &change.account {
                self.entries.insert(change.path, value.clone());
                continue;
            }
            let entry = Arc::make_mut(self.accounts.entry(change.path).or_default());
            if let AccountUpdate::Put(account) = change.account {
                entry.account = account;
            }
            entry.storage_root = Computed::default();
            if change.wipe {
                entry.slots.clear();
            }
            for (slot, value) in &change.slots {
                match value.is_zero() {
                    true => entry.slots.remove(slot),
                    false => entry.slots.insert(*slot, *value),
                };
            }
        }
    }

    /// Adds code.
    pub fn add_codes(&mut self, codes: impl IntoIterator<Item = (B256, Bytes)>) {
        self.codes.extend(codes);
    }

    /// Adds the hash of a block, for BLOCKHASH.
    pub fn add_block_hash(&mut self, number: u64, hash: B256) {
        self.block_hashes.insert(number, hash);
    }

    /// Returns the added hashes of blocks, by number.
    pub const fn block_hashes(&self) -> &BTreeMap<u64, B256> {
        &self.block_hashes
    }

    /// Returns the account at `path`.
    pub fn account(&self, path: &B256) -> Option<&ModelAccount> {
        self.accounts.get(path).map(AsRef::as_ref)
    }

    /// Returns the state as a partial database has it that keeps the storage of some accounts: others have their storage
    /// root in place of their slots. Its root is not that of the state.
    #[must_use]
    pub fn keeping(&self, keeps: impl Fn(&B256) -> bool) -> Self {
        let mut partial = self.clone();
        let left = partial.accounts.iter_mut();
        for (_, account) in left.filter(|(path, account)| !keeps(path) && !account.slots.is_empty())
        {
            let root = account.storage_root();
            let account = Arc::make_mut(account);
            account.slots = BTreeMap::from([(STORAGE_ROOT_KEY, root.into())]);
        }
        partial
    }

    /// Returns all accounts, sorted by path.
    pub fn accounts(&self) -> impl Iterator<Item = (&B256, &ModelAccount)> {
        self.accounts
            .iter()
            .map(|(path, account)| (path, account.as_ref()))
    }

    /// Returns all entries, sorted by key.
    pub const fn entries(&self) -> &BTreeMap<B256, Bytes> {
        &self.entries
    }

    /// Returns the code with this hash. The hash of empty code has empty code.
    pub fn code(&self, hash: &B256) -> Option<&Bytes> {
        self.codes.get(hash)
    }

    /// Computes the state root under `mpt`, of accounts or of entries.
    pub fn root(&self) -> B256 {
        *self.root.0.get_or_init(|| self.compute_root())
    }

    fn compute_root(&self) -> B256 {
        if !self.entries.is_empty() {
            let entries = self.entries.iter();
            return root(entries.map(|(key, value)| (key, entry_leaf(value))));
        }
        root(
            self.accounts
                .iter()
                .map(|(path, account)| (path, account.leaf())),
        )
    }
}

impl ModelAccount {
    /// Computes the storage root of the account.
    pub fn storage_root(&self) -> B256 {
        let slots = self.slots.iter();
        *self
            .storage_root
            .0
            .get_or_init(|| root(slots.map(|(slot, value)| (slot, alloy_rlp::encode(value)))))
    }

    fn leaf(&self) -> Vec<u8> {
        let Account {
            nonce,
            balance,
            code_hash,
        } = self.account;
        let mut leaf = Vec::new();
        let account = TrieAccount {
            nonce,
            balance,
            storage_root: self.storage_root(),
            code_hash,
        };
        account.encode(&mut leaf);
        leaf
    }
}

/// Returns the value of an entry's leaf under `mpt`.
pub(crate) fn entry_leaf(value: &[u8]) -> Vec<u8> {
    match value.len() {
        len @ 0..=32 => [&[len as u8], value].concat(),
        len => {
            let len = (len as u32).to_be_bytes();
            [&[33][..], &len, keccak256(value).as_slice()].concat()
        }
    }
}

/// Returns the root of a trie of these leaves, which are sorted.
pub(crate) fn root<'a>(leaves: impl Iterator<Item = (&'a B256, Vec<u8>)>) -> B256 {
    let mut leaves = leaves.peekable();
    if leaves.peek().is_none() {
        return EMPTY_ROOT_HASH;
    }
    let mut builder = HashBuilder::default();
    for (path, value) in leaves {
        builder.add_leaf(Nibbles::unpack(path), &value);
    }
    builder.root()
}

impl DatabaseRef for Model {
    type Error = ModelError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ModelError> {
        let entry = self.accounts.get(&keccak256(address));
        Ok(entry.map(|entry| account_info(entry.account)))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, ModelError> {
        let code = self.codes.get(&hash).ok_or(ModelError::Code(hash))?;
        Ok(Bytecode::new_raw(code.clone()))
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, ModelError> {
        let account = self.accounts.get(&keccak256(address));
        let slot = keccak256(slot.to_be_bytes::<32>());
        Ok(account
            .and_then(|account| account.slots.get(&slot))
            .copied()
            .unwrap_or_default())
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ModelError> {
        self.block_hashes
            .get(&number)
            .copied()
            .ok_or(ModelError::BlockHash(number))
    }
}

impl StateRead for Model {
    fn has_storage(&self, address: Address) -> Result<bool, ModelError> {
        let account = self.accounts.get(&keccak256(address));
        Ok(account.is_some_and(|account| !account.slots.is_empty()))
    }
}
