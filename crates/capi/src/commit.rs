//! Commits, as callers see them.

use cambium_kv::Commit;

/// A commit: a state of the store with its root.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CambiumCommit {
    /// One more than the commit before. The empty store is commit 0.
    pub number: u64,
    /// Keccak-256 hash of number, parent and root, by which the commit is known.
    pub hash: [u8; 32],
    /// The root of all entries after it.
    pub root: [u8; 32],
}

impl From<Commit> for CambiumCommit {
    fn from(commit: Commit) -> Self {
        Self {
            number: commit.number(),
            hash: commit.id.hash.0,
            root: commit.root.0,
        }
    }
}
