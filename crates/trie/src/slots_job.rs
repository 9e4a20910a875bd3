//! Changes of one large storage trie, shared by several threads: see `divide.rs`.

use crate::{error::UpdateError, partial::PartialTrie, resolve::Resolve};
use alloy_primitives::{B256, U256};
use cambium_primitives::Path;

/// The changes of a detached part of a storage trie.
pub struct SlotsJob<'a> {
    /// The detached trie below one child of the root of the storage trie.
    pub trie: &'a mut PartialTrie,
    pub(crate) slots: &'a [(B256, U256)],
}

impl SlotsJob<'_> {
    /// Returns the number of changed slots, which is not zero.
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the full paths of the changed slots, in order.
    pub fn paths(&self) -> impl Iterator<Item = Path> {
        let account = self.trie.base().account_part().unwrap_or_default();
        let slots = self.slots.iter();
        slots.map(move |(slot, _)| Path::slot(&account, slot))
    }
}

/// A pool of threads that share the changes of one storage trie.
pub trait SpreadSlots<R: Resolve> {
    /// Returns the fewest changed slots of an account for which its storage trie is divided.
    fn slots_min(&self) -> usize;

    /// Calls [`SlotsJob::apply`] once on each of `jobs`, in any order and in parallel where
    /// possible, with resolvers that load what `resolver` loads. It may hash the tries of the jobs.
    /// Returns when all jobs have finished.
    ///
    /// # Errors
    ///
    /// Returns the error of a job.
    fn run(&self, jobs: &mut [SlotsJob<'_>], resolver: &mut R)
    -> Result<(), UpdateError<R::Error>>;
}
