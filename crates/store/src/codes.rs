//! Contract code by hash.

use crate::StoreError;
use alloy_primitives::B256;
use cambium_disk::Disk;
use std::sync::Arc;

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodesRecovery {
    /// How many codes there are.
    pub codes: usize,
    /// Bytes at the end that no sync had acknowledged, dropped.
    pub truncated_bytes: u64,
}

/// All codes: one file of bytes, and in memory where each is.
#[derive(Debug)]
pub struct Codes {
    _disk: Arc<dyn Disk>,
}

impl Codes {
    /// Opens the codes, or begins them if `checkpointed_bytes` is 0. What was put after that
    /// length and not synced may be gone: it is put again by replaying the log. `salt` as in
    /// [`LogOptions::salt`](crate::LogOptions::salt).
    pub fn open(
        disk: Arc<dyn Disk>,
        salt: u64,
        checkpointed_bytes: u64,
    ) -> Result<(Self, CodesRecovery), StoreError> {
        _ = (disk, salt, checkpointed_bytes);
        unimplemented!()
    }

    /// Adds `code`, whose hash is `hash`, unless it is there. True if it was added.
    pub fn put(&self, hash: B256, code: &[u8]) -> Result<bool, StoreError> {
        _ = (hash, code);
        unimplemented!()
    }

    /// The code of `hash`.
    pub fn get(&self, hash: &B256) -> Result<Option<Vec<u8>>, StoreError> {
        _ = hash;
        unimplemented!()
    }

    /// Whether there is a code of `hash`.
    pub fn contains(&self, hash: &B256) -> bool {
        _ = hash;
        unimplemented!()
    }

    /// All hashes, in no order.
    pub fn hashes(&self) -> Vec<B256> {
        unimplemented!()
    }

    /// Makes all codes put so far durable, and returns the length to keep in the checkpoint.
    pub fn sync(&self) -> Result<u64, StoreError> {
        unimplemented!()
    }
}
