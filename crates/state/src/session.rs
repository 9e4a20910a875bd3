//! From a view to a durable block: `View -> Session -> Staged -> Sealed -> Committed`.
//!
//! ```text
//!   View       the state after the parent
//!   Session    what a block does to it, as far as it has run
//!   Staged     all it does, and the root that results; dropped: as if it had not been
//!   Sealed     named: other blocks can be built on it, though it is not durable
//!   Committed  survives power loss
//! ```

use crate::{
    batch::{Ask, Key},
    db::{Db, Inner},
    error::StateError,
    pool,
    records::{BlockMeta, BlockRecord},
    tree::Layer,
    view::View,
};
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{Account, BlockId, Changes};
use cambium_trie::{Keys, PartialTrie};
use rayon::prelude::*;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// A block being executed on a view.
pub struct Session {
    view: View,
    id: u64,
    /// The changes of which roots were asked for already, and the way back from them.
    floating: Changes,
    floating_reverts: Changes,
}

impl Session {
    pub(crate) fn new(view: View) -> Self {
        let id = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
        Self {
            view,
            id,
            floating: Changes::default(),
            floating_reverts: Changes::default(),
        }
    }

    /// The state before the block.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Reads accounts that the block is going to change, by keccak(address), in any order: as
    /// [`View::accounts`], and what their update needs besides is made ready meanwhile, so that
    /// [`Session::finish`] has less to do.
    pub fn accounts(&self, paths: &[B256]) -> Result<Vec<Option<Account>>, StateError> {
        self.read(paths)
    }

    /// Reads slots that the block is going to change, each by keccak(address) and keccak(slot):
    /// see [`Session::accounts`].
    pub fn storage(&self, slots: &[(B256, B256)]) -> Result<Vec<U256>, StateError> {
        self.read(slots)
    }

    fn read<K: Key>(&self, keys: &[K]) -> Result<Vec<K::Value>, StateError> {
        if !self.floating.is_empty() {
            // The trie is past the state before the block.
            return self.view.read_all(keys, Ask::Entries);
        }
        let mut sorted: Vec<_> = keys.iter().copied().zip(0..).collect();
        pool::install(|| sorted.par_sort_unstable());
        let (sorted, places): (Vec<K>, Vec<usize>) = sorted.into_iter().unzip();
        let values = self.view.inner.read(self.view.block(), &sorted)?;
        let mut ordered: Vec<_> = keys.iter().map(|_| None).collect();
        for (at, value) in places.into_iter().zip(values) {
            ordered[at] = Some(value);
        }
        Ok(ordered.into_iter().flatten().collect())
    }

    /// As [`View::extract_for_changes`] of the state before the block, from the tries that
    /// [`Session::finish`] computes the root with: what was read through this session is in them
    /// already, and what is hashed for a witness is not hashed again for the root. Roots wait for
    /// it, as they don't for a view's.
    pub fn extract_for_changes(
        &self,
        keys: &Keys,
        changes: &Changes,
    ) -> Result<PartialTrie, StateError> {
        let all = keys.clone().and(&Keys::of_changes(changes.accounts()));
        match self.view.inner.extract(self.view.block(), &all, changes)? {
            Some(part) => Ok(part),
            None => self.view.extract_for_changes(keys, changes),
        }
    }

    /// The state root after `changes` on top of those of earlier calls, before the block ends:
    /// what a receipt before Byzantium holds.
    pub fn intermediate_root(&mut self, changes: &Changes) -> Result<B256, StateError> {
        let older = std::mem::take(&mut self.floating_reverts);
        let reverts = older.then(self.view.reverts_of(changes)?);
        self.floating_reverts = reverts.clone();
        self.floating = std::mem::take(&mut self.floating).then(changes.clone());
        let View { inner, layer, .. } = &self.view;
        inner.float(layer.block, self.id, changes, &self.floating, reverts)
    }

    /// Takes all that the block changed (what earlier calls gave included) and the code it
    /// created, and computes the state root.
    pub fn finish(self, changes: Changes, codes: Vec<(B256, Bytes)>) -> Result<Staged, StateError> {
        let Self {
            view,
            id,
            floating_reverts,
            ..
        } = self;
        // A slot that one transaction set and a later one set back is in no change set.
        let (root, reverts) = if floating_reverts.is_empty() {
            view.inner.stage(&view, id, &changes)?
        } else {
            let reverts = view.reverts_of(&changes)?;
            let net = floating_reverts.then(changes.clone());
            let parent = view.block();
            let root = view
                .inner
                .float(parent, id, &net, &changes, reverts.clone())?;
            (root, reverts)
        };
        Ok(Staged {
            view,
            id,
            changes,
            reverts,
            codes,
            root,
        })
    }
}

/// A block's changes and the root they lead to. Nothing is durable, nothing visible.
pub struct Staged {
    view: View,
    id: u64,
    changes: Changes,
    reverts: Changes,
    codes: Vec<(B256, Bytes)>,
    root: B256,
}

impl Staged {
    /// The state root after the block.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// What the block changes.
    pub const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Names the block, so that others can be built on it. Refused if its header claims another
    /// state root.
    pub fn seal(self, meta: BlockMeta) -> Result<Sealed, StateError> {
        if meta.state_root != self.root {
            let (got, expected) = (self.root, meta.state_root);
            return Err(StateError::WrongRoot {
                block: meta.id,
                got,
                expected,
            });
        }
        let inner = self.view.inner.clone();
        for (hash, code) in &self.codes {
            inner.codes.put(*hash, code)?;
        }
        let record = BlockRecord::encode(&meta, &self.changes, &self.reverts, &self.codes);
        let (parent, changes, reverts) = (self.view.block(), self.changes, self.reverts);
        let layer = inner.seal(parent, self.id, &meta, changes, reverts)?;
        Ok(Sealed {
            inner,
            layer,
            record: Some(record),
        })
    }
}

/// A named block. Dropping it takes it, and all built on it, away again.
pub struct Sealed {
    inner: Arc<Inner>,
    layer: Arc<Layer>,
    /// What the log is to hold of the block; nothing once it does.
    record: Option<Vec<u8>>,
}

impl Sealed {
    /// The block.
    pub fn id(&self) -> BlockId {
        self.layer.block
    }

    /// The state after the block.
    pub fn view(&self) -> Result<View, StateError> {
        self.inner.view_of(self.layer.block)
    }

    /// Makes the block durable, and the head. When this returns it survives power loss.
    pub fn commit(self) -> Result<Committed, StateError> {
        let id = self.id();
        self.inner.clone().commit(vec![self], true)?;
        Ok(Committed { id })
    }

    /// Makes the block durable without making it the head: a side branch.
    pub fn commit_aside(self) -> Result<Committed, StateError> {
        let id = self.id();
        self.inner.clone().commit(vec![self], false)?;
        Ok(Committed { id })
    }

    /// The hash of its parent.
    pub(crate) fn parent(&self) -> B256 {
        self.layer.parent_hash
    }

    pub(crate) fn record(&mut self) -> Option<&mut [u8]> {
        self.record.as_deref_mut()
    }

    /// The block is durable: dropping this takes nothing away.
    pub(crate) fn is_committed(&mut self) {
        self.record = None;
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if self.record.is_some() {
            self.inner.give_up(&self.layer);
        }
    }
}

/// A durable block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    id: BlockId,
}

impl Committed {
    /// The block.
    pub const fn id(&self) -> BlockId {
        self.id
    }
}

impl Db {
    /// Makes several blocks durable with one sync, in order, each after its parent; the last is
    /// the head then.
    pub fn commit_all(&self, sealed: Vec<Sealed>) -> Result<(), StateError> {
        self.inner.clone().commit(sealed, true)
    }
}
