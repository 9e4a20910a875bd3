//! Roots of the states at which intervals end. Each is computed once, in the background, and has an
//! interval's time for it.

use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use parking_lot::{Condvar, Mutex};
use std::{collections::HashMap, sync::Arc};

/// Most roots that are kept, of the newest blocks.
const KEPT_MAX: usize = 1024;

/// A root, or a job that computes it.
#[derive(Clone, Copy)]
enum Entry {
    Running,
    Known(B256),
}

/// Result of claiming the computation of a root.
pub(crate) enum Claim {
    /// It is known.
    Known(B256),
    /// A job is at work on it.
    Running,
    /// The caller has to compute it.
    Mine(RootJob),
}

/// The computation of a root. Dropping it without a root lets another thread try.
pub(crate) struct RootJob {
    roots: Arc<SnapshotRoots>,
    block: BlockId,
}

impl RootJob {
    /// Ends the job with the root.
    pub(crate) fn end(self, root: B256) {
        self.roots.put(self.block, root);
    }
}

impl Drop for RootJob {
    fn drop(&mut self) {
        let mut roots = self.roots.roots.lock();
        roots.jobs -= 1;
        if let Some((_, Entry::Running)) = roots.entries.get(&self.block.hash) {
            roots.entries.remove(&self.block.hash);
        }
        drop(roots);
        self.roots.changed.notify_all();
    }
}

/// Roots of states after blocks, by the blocks' hashes.
#[derive(Default)]
pub(crate) struct SnapshotRoots {
    roots: Mutex<Roots>,
    changed: Condvar,
}

#[derive(Default)]
struct Roots {
    entries: HashMap<B256, (BlockNumber, Entry)>,
    /// Number of jobs that have not ended. Another thread may have found the root of one meanwhile.
    jobs: usize,
}

impl SnapshotRoots {
    /// Returns the root of a block if it is known; otherwise makes the caller compute it, unless
    /// another thread does.
    pub(crate) fn claim(self: &Arc<Self>, block: BlockId) -> Claim {
        let mut roots = self.roots.lock();
        match roots.entries.get(&block.hash) {
            Some((_, Entry::Known(root))) => Claim::Known(*root),
            Some((_, Entry::Running)) => Claim::Running,
            None => {
                roots.jobs += 1;
                let running = (block.number, Entry::Running);
                roots.entries.insert(block.hash, running);
                Claim::Mine(RootJob {
                    roots: self.clone(),
                    block,
                })
            }
        }
    }

    /// The root of a block, if it is known.
    pub(crate) fn known(&self, block: &B256) -> Option<B256> {
        match self.roots.lock().entries.get(block) {
            Some((_, Entry::Known(root))) => Some(*root),
            _ => None,
        }
    }

    /// Adds a root.
    pub(crate) fn put(&self, block: BlockId, root: B256) {
        let known = (block.number, Entry::Known(root));
        self.roots.lock().entries.insert(block.hash, known);
        self.changed.notify_all();
    }

    /// Waits while a job is at work on the root of a block.
    pub(crate) fn wait(&self, block: &B256) {
        let mut roots = self.roots.lock();
        while let Some((_, Entry::Running)) = roots.entries.get(block) {
            self.changed.wait(&mut roots);
        }
    }

    /// Waits until no job is at work, not even on a root that is known by now.
    pub(crate) fn wait_until_idle(&self) {
        let mut roots = self.roots.lock();
        while roots.jobs > 0 {
            self.changed.wait(&mut roots);
        }
    }

    /// All known roots by their blocks, lowest first. Forgets those below `lowest`, except that of
    /// block `first`.
    pub(crate) fn prune(&self, first: BlockNumber, lowest: BlockNumber) -> Vec<(BlockId, B256)> {
        let entries = &mut self.roots.lock().entries;
        entries.retain(|_, (number, entry)| {
            *number >= lowest || *number == first || matches!(entry, Entry::Running)
        });
        let mut known: Vec<_> = entries
            .iter()
            .filter_map(|(hash, (number, entry))| match entry {
                Entry::Known(root) => Some((BlockId::new(*number, *hash), *root)),
                Entry::Running => None,
            })
            .collect();
        known.sort_unstable_by_key(|(block, _)| (block.number, block.hash));
        let surplus = known.len().saturating_sub(KEPT_MAX);
        for (block, _) in known.drain(..surplus) {
            entries.remove(&block.hash);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread};

    #[test]
    fn a_job_whose_root_somebody_else_found_is_waited_for() {
        let roots = Arc::new(SnapshotRoots::default());
        let block = BlockId::new(3, B256::repeat_byte(3));
        let Claim::Mine(job) = roots.claim(block) else {
            panic!("nobody computes it");
        };
        roots.put(block, B256::repeat_byte(7));
        let (sender, receiver) = mpsc::channel();
        let waiting = roots.clone();
        let waiter = thread::spawn(move || {
            waiting.wait_until_idle();
            sender.send(()).unwrap();
        });
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(receiver.try_recv().is_err(), "the job is at work");
        drop(job);
        waiter.join().unwrap();
        assert!(receiver.try_recv().is_ok());
        assert_eq!(roots.known(&block.hash), Some(B256::repeat_byte(7)));
    }
}
