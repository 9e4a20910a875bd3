//! Changed subtries whose pages were not read: the tries that an opening restores from references in the log.
//!
//! ```text
//!   tries       nodes above the subtries, with their new references
//!   unread      the subtries by their paths, and what has changed in them since the snapshot
//!   snapshot    their pages
//! ```
//!
//! To the tries above, snapshot and unread changes together are the base: a blinded node at such a path, or below it, is what
//! the snapshot has there with the changes applied. The resolver makes a subtrie when it is needed, and its
//! reference is compared like that of any node that is loaded.

use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, AccountDiff, AccountUpdate, Path};
use cambium_snapshot::{Snapshot, shard_of};
use std::sync::Arc;

/// The unread subtries of one shard.
#[derive(Default)]
pub(crate) struct UnreadShard {
    /// Paths of their roots, sorted; none is within another.
    pub(crate) roots: Vec<Path>,
    /// What has changed in them since the snapshot, sorted by path. Each change is within one of them, or has slots within
    /// some of them alone.
    pub(crate) changes: Vec<AccountDiff>,
}

impl UnreadShard {
    /// The unread subtrie that contains `path`, by the path of its root.
    fn over(&self, path: &Path) -> Option<&Path> {
        let after = self.roots.partition_point(|root| root <= path);
        let root = self.roots[..after].last()?;
        path.starts_with(root).then_some(root)
    }

    /// The changes in the subtrie at `root`.
    fn changes_under(&self, root: &Path) -> Vec<AccountDiff> {
        let prefix = match root.len() {
            ACCOUNT_NIBBLES.. => root.prefix(ACCOUNT_NIBBLES),
            _ => *root,
        };
        let before = |change: &AccountDiff| Path::account(&change.path) < prefix;
        let from = self.changes.partition_point(before);
        let within = |change: &AccountDiff| Path::account(&change.path).starts_with(&prefix);
        let len = self.changes[from..].partition_point(within);
        let changes = &self.changes[from..from + len];
        match root.len() {
            ACCOUNT_NIBBLES.. => changes
                .iter()
                .map(|change| AccountDiff {
                    path: change.path,
                    account: AccountUpdate::Keep,
                    wipe: false,
                    slots: slots_under(change, root),
                })
                .collect(),
            _ => changes.to_vec(),
        }
    }
}

/// The slots of a change in the subtrie at `root`.
fn slots_under(change: &AccountDiff, root: &Path) -> Vec<(B256, U256)> {
    let path = |slot: &B256| Path::slot(&change.path, slot);
    let slots = &change.slots;
    let from = slots.partition_point(|(slot, _)| path(slot) < *root);
    let len = slots[from..].partition_point(|(slot, _)| path(slot).starts_with(root));
    slots[from..from + len].to_vec()
}

/// Changed subtries of a snapshot that were not read.
pub(crate) struct Unread {
    /// The state below the changes.
    pub(crate) snapshot: Arc<Snapshot>,
    /// One for each shard.
    pub(crate) shards: Vec<UnreadShard>,
}

impl Unread {
    /// The unread subtrie that contains `path`, by the path of its root.
    pub(crate) fn over(&self, path: &Path) -> Option<&Path> {
        self.shards[shard_of(path)].over(path)
    }

    /// What has changed since the snapshot in the unread subtrie at `root`.
    pub(crate) fn changes_under(&self, root: &Path) -> Vec<AccountDiff> {
        self.shards[shard_of(root)].changes_under(root)
    }

    /// Number of unread subtries.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.roots.len()).sum()
    }
}
