//! The state that look-ups see: runs, and preimages that are not in files yet.

use crate::{
    kind::{Entry, Kind},
    run::RunFile,
};
use alloy_primitives::B256;
use std::{collections::BTreeMap, sync::Arc};

/// Preimages that are not in files yet.
#[derive(Clone, Default)]
pub(crate) struct Recent {
    /// By their hashes, for each kind.
    entries: [BTreeMap<B256, [u8; 32]>; 2],
}

impl Recent {
    pub(crate) fn add(&mut self, kind: Kind, entry: &Entry) {
        self.entries[kind as usize].insert(entry.hash, entry.preimage);
    }

    pub(crate) fn get(&self, kind: Kind, hash: &B256) -> Option<[u8; 32]> {
        self.entries[kind as usize].get(hash).copied()
    }

    /// By their hashes, for each kind.
    pub(crate) const fn entries(&self) -> &[BTreeMap<B256, [u8; 32]>; 2] {
        &self.entries
    }

    /// Number of preimages.
    pub(crate) fn len(&self) -> u64 {
        self.entries.iter().map(|of| of.len() as u64).sum()
    }
}

/// The state that look-ups see. It is immutable.
#[derive(Clone)]
pub(crate) struct Seen {
    /// Oldest first.
    pub(crate) runs: Arc<Vec<Arc<RunFile>>>,
    /// Closed parts of the preimages that are not in files yet.
    pub(crate) recent: Vec<Arc<Recent>>,
}
