//! A flat key-value store as a state provider for execution.

use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_evm::{ManyRead, StateRead, account_info};
use cambium_primitives::{Account, DecodeError, SlotValue};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::{collections::HashMap, num::NonZeroUsize, panic::resume_unwind, thread};

/// A key-value store with accounts at keccak(address) and slots at keccak(address) followed by
/// keccak(slot). Values have the compact encoding of Cambium's pages.
pub(crate) trait Values: Sync {
    /// Passes the value at `key` to a closure, if there is one.
    fn get<T>(
        &self,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, ProviderError>;

    /// Returns whether a key starts with `prefix` and is longer.
    fn has_longer(&self, prefix: &[u8]) -> Result<bool, ProviderError>;

    /// Returns a description of the store's configuration.
    fn configuration(&self) -> String;
}

/// Why the state could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    #[cfg_attr(
        not(any(feature = "mdbx", feature = "rocksdb")),
        expect(dead_code, reason = "reading memory does not fail")
    )]
    #[error("the store: {0}")]
    Store(String),
    #[error("a value is damaged: {0}")]
    Damaged(#[from] DecodeError),
    #[error("no code {0}")]
    MissingCode(B256),
}

impl DBErrorMarker for ProviderError {}

/// A store, with the codes and the parent's hash in memory.
pub(crate) struct Flat<V> {
    pub(crate) values: V,
    codes: HashMap<B256, Bytecode>,
    /// Hash of the genesis block, which is the parent and the only earlier block.
    genesis: B256,
    /// Number of threads for reads of many keys.
    read_threads: NonZeroUsize,
}

pub(crate) fn account_key(address: &Address) -> B256 {
    keccak256(address)
}

pub(crate) fn slot_key(address: &Address, slot: U256) -> [u8; 64] {
    let mut key = [0; 64];
    key[..32].copy_from_slice(account_key(address).as_slice());
    key[32..].copy_from_slice(keccak256(slot.to_be_bytes::<32>()).as_slice());
    key
}

impl<V: Values> Flat<V> {
    pub(crate) fn new(
        values: V,
        codes: &[Bytes],
        genesis: B256,
        read_threads: NonZeroUsize,
    ) -> Self {
        let decoded = |code: &Bytes| (keccak256(code), Bytecode::new_raw(code.clone()));
        Self {
            values,
            codes: codes.iter().map(decoded).collect(),
            genesis,
            read_threads,
        }
    }
}

impl<V: Values> DatabaseRef for Flat<V> {
    type Error = ProviderError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ProviderError> {
        let key = account_key(&address);
        let account = self.values.get(key.as_slice(), Account::decode)?;
        Ok(account.map(account_info))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, ProviderError> {
        if hash == KECCAK256_EMPTY {
            return Ok(Bytecode::default());
        }
        let code = self.codes.get(&hash).cloned();
        code.ok_or(ProviderError::MissingCode(hash))
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, ProviderError> {
        let key = slot_key(&address, slot);
        let value = self.values.get(&key, SlotValue::decode)?;
        Ok(value.unwrap_or_default())
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ProviderError> {
        Ok(match number {
            0 => self.genesis,
            _ => B256::ZERO,
        })
    }
}

impl<V: Values> StateRead for Flat<V> {
    fn has_storage(&self, address: Address) -> Result<bool, ProviderError> {
        self.values.has_longer(account_key(&address).as_slice())
    }

    /// Reads on several threads, since such a store has no batched reads of its own.
    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, ProviderError> {
        let threads = self.read_threads.get();
        let account = |address: &Address| self.basic_ref(*address);
        let slot = |(address, slot): &(Address, U256)| self.storage_ref(*address, *slot);
        Ok((
            on_threads(threads, accounts, account)?,
            on_threads(threads, slots, slot)?,
        ))
    }
}

fn on_threads<K: Sync, T: Send>(
    threads: usize,
    keys: &[K],
    read: impl Fn(&K) -> Result<T, ProviderError> + Sync,
) -> Result<Vec<T>, ProviderError> {
    let read = &read;
    thread::scope(|scope| {
        let parts: Vec<_> = keys
            .chunks(keys.len().div_ceil(threads).max(1))
            .map(|part| scope.spawn(move || part.iter().map(read).collect::<Result<Vec<_>, _>>()))
            .collect();
        let mut values = Vec::with_capacity(keys.len());
        for part in parts {
            values.extend(part.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(values)
    })
}
