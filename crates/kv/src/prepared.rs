//! Prepared commits: they have their root, and other transactions can be built on them before they
//! are durable.

use crate::{
    commit::{Commit, PreparedCommit, Shared},
    error::KvError,
    proof::CommitWitness,
};
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use cambium_state::View;
use std::sync::Arc;

/// A commit that has its root and is not durable yet: an overlay on its parent. Dropping it takes
/// it back, with all that is built on it.
pub struct Prepared {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commit: PreparedCommit,
}

impl Prepared {
    /// The root of all entries after it.
    pub const fn root(&self) -> B256 {
        self.commit.root
    }

    /// The number and hash that it will have as a commit.
    pub fn id(&self) -> BlockId {
        self.commit.sealed.id()
    }

    /// The commit that it is built on.
    pub const fn parent(&self) -> BlockId {
        self.commit.parent
    }

    /// Proof of its root for a verifier with only its parent's root, if it was prepared with
    /// [`Transaction::prepare_with_witness`](crate::Transaction::prepare_with_witness) or
    /// [`Store::prepare_all_with_witness`](crate::Store::prepare_all_with_witness).
    pub const fn witness(&self) -> Option<&CommitWitness> {
        self.commit.witness.as_ref()
    }

    /// Makes it durable, as the newest commit.
    ///
    /// # Errors
    ///
    /// [`KvError::NotNext`] unless its parent is the newest commit. It is taken back then.
    pub fn commit(self) -> Result<Commit, KvError> {
        let commit = Commit {
            id: self.id(),
            root: self.root(),
        };
        self.shared.committing().commit(vec![self.commit])?;
        Ok(commit)
    }

    pub(crate) fn view(&self) -> Result<View, KvError> {
        Ok(self.commit.sealed.view()?)
    }
}
