//! The engine: one open database, and the order in which its parts are touched.
//!
//! Locks, in the order in which they are taken:
//! 1. `log`: block log and block index. Commits, moves of the head, freezing.
//! 2. `delta`: the trie above the base. Roots.
//! 3. `current`: base, overlay and tree of layers. Held for moments only; views copy from it.
//!
//! Order of writing, on which crash safety rests:
//! - a block is durable when its record is in the synced log;
//! - a checkpoint is written only when the pages, codes and block index it speaks of are synced;
//! - a page counts as dead only when no kept checkpoint names it.

use crate::{
    base::Base,
    commit::LogWriter,
    counters::{CounterValues, Counters},
    delta::Delta,
    error::StateError,
    merger::Retired,
    overlay::Overlay,
    pages::Pages,
    records::{BlockMeta, BlockRecord},
    session::Session,
    tree::{Layer, Tree},
    view::View,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, BlockNumber, Changes};
use cambium_store::{Codes, DataDirLock, Manifest};
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, OnceLock};

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory for caches and layers together, in bytes.
    pub memory_bytes: u64,
    /// How many of the newest blocks stay in memory as a tree, so that a reorganisation is cheap.
    pub unfinalized_blocks: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            unfinalized_blocks: 64,
        }
    }
}

impl Options {
    pub(crate) const fn cache_bytes(&self) -> u64 {
        self.memory_bytes / 4
    }

    /// Layers are frozen and merged when they take more than this.
    pub(crate) const fn layer_bytes_max(&self) -> usize {
        (self.memory_bytes / 4) as usize
    }
}

/// What views are made from.
pub(crate) struct Current {
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) tree: Tree,
}

/// The parts of an open database, shared by views and sessions.
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) codes: Codes,
    pub(crate) retired: Mutex<Retired>,
    pub(crate) log: Mutex<LogWriter>,
    pub(crate) delta: Mutex<Delta>,
    /// A trie of its own for proofs, so that they do not get in the way of roots.
    pub(crate) prover: Mutex<Option<Delta>>,
    pub(crate) current: RwLock<Current>,
    pub(crate) poisoned: OnceLock<String>,
    pub(crate) genesis: BlockId,
    pub(crate) manifest: Manifest,
    /// Held as long as the database is open.
    pub(crate) _lock: DataDirLock,
}

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<Inner>,
}

impl Db {
    /// The newest block of the canonical chain.
    pub fn head(&self) -> BlockId {
        self.inner.current.read().tree.head().block
    }

    /// Block 0, or whatever block the database was made from.
    pub fn genesis(&self) -> BlockId {
        self.inner.genesis
    }

    /// What was kept under that name when the database was made.
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        self.inner.manifest.property(name)
    }

    /// The newest block whose state is in pages: what lies above is in memory, and in the log.
    pub fn snapshot_block(&self) -> BlockId {
        self.inner.current.read().base.snapshot.block
    }

    /// The state at the head.
    pub fn view(&self) -> Result<View, StateError> {
        let head = self.inner.current.read().tree.head().clone();
        self.inner.view_of(&head)
    }

    /// The state after the block of that hash, whatever its branch.
    pub fn view_of(&self, hash: &B256) -> Result<View, StateError> {
        let known = self.inner.current.read().tree.by_hash(hash).cloned();
        if let Some(layer) = known {
            return self.inner.view_of(&layer);
        }
        // Below the base: brought back as a layer, by the ways back of the blocks since.
        let mut log = self.inner.log.lock();
        let layer = self.inner.rewind_to(&mut log, hash)?;
        drop(log);
        self.inner.view_of(&layer)
    }

    /// The state after the canonical block of that height.
    pub fn view_at(&self, number: BlockNumber) -> Result<View, StateError> {
        let head = self.head();
        if number == head.number {
            return self.view();
        }
        let id = self
            .block_id(number)?
            .ok_or(StateError::NoSuchBlock { number, head })?;
        self.view_of(&id.hash)
    }

    /// Begins a block on `view`.
    pub fn session(&self, view: View) -> Session {
        Session::new(view)
    }

    /// Name of the canonical block of that height.
    pub fn block_id(&self, number: BlockNumber) -> Result<Option<BlockId>, StateError> {
        let entry = self.inner.log.lock().canonical(number)?;
        Ok(entry.map(|entry| BlockId::new(number, entry.hash)))
    }

    /// The canonical block of that height, as it was given.
    pub fn block(&self, number: BlockNumber) -> Result<Option<BlockMeta>, StateError> {
        let log = self.inner.log.lock();
        let Some(entry) = log.canonical(number)? else {
            return Ok(None);
        };
        let record = log.log.read(entry.position)?;
        drop(log);
        decode_meta(&record.payload, number).map(Some)
    }

    /// A committed block, if it can be built upon: see [`Db::has`].
    pub fn block_by_id(&self, id: BlockId) -> Result<Option<BlockMeta>, StateError> {
        let log = self.inner.log.lock();
        let Some(position) = log.position_of(id)? else {
            return Ok(None);
        };
        let record = log.log.read(position)?;
        drop(log);
        decode_meta(&record.payload, id).map(Some)
    }

    /// What the canonical block of that height changed, and what takes it back.
    pub fn block_changes(
        &self,
        number: BlockNumber,
    ) -> Result<Option<(Changes, Changes)>, StateError> {
        let record = self.inner.log.lock().block_record(number)?;
        Ok(record.map(|record| (record.changes, record.reverts)))
    }

    /// Whether the block is committed and can be built upon: it is canonical, on a branch that
    /// is kept, or was canonical before the head moved to a branch that begins below the
    /// snapshot.
    pub fn has(&self, id: BlockId) -> Result<bool, StateError> {
        Ok(self.inner.log.lock().position_of(id)?.is_some())
    }

    /// Makes a committed block the head: unwinds, or changes branch. Durable when it returns.
    pub fn set_head(&self, hash: &B256) -> Result<BlockId, StateError> {
        self.inner.set_head(hash)
    }

    /// Takes the head back to the canonical block of that height.
    pub fn unwind(&self, to: BlockNumber) -> Result<BlockId, StateError> {
        let head = self.head();
        let id = self.block_id(to)?.filter(|id| id.number <= head.number);
        let id = id.ok_or(StateError::NoSuchBlock { number: to, head })?;
        self.inner.set_head(&id.hash)
    }

    /// Merges all but the newest `keep` blocks and waits until it is in a checkpoint: the next
    /// opening has less to replay.
    pub fn flush(&self, keep: usize) -> Result<(), StateError> {
        let mut log = self.inner.log.lock();
        self.inner.wait_for_merge(&mut log)?;
        self.inner.freeze(&mut log, keep)?;
        self.inner.wait_for_merge(&mut log)
    }

    /// What the engine did since it was opened.
    pub fn counters(&self) -> CounterValues {
        self.inner.counters.values()
    }
}

fn decode_meta(payload: &[u8], name: impl std::fmt::Display) -> Result<BlockMeta, StateError> {
    let what = || format!("block {name} in the block log");
    BlockRecord::decode_meta(payload).map_err(|source| StateError::Damaged {
        what: what(),
        source,
    })
}

impl Inner {
    /// Refuses to go on after a failure that left the disk in doubt.
    pub(crate) fn check_sound(&self) -> Result<(), StateError> {
        match self.poisoned.get() {
            Some(why) => Err(StateError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// Marks the engine as unsure of the disk if this is an error.
    pub(crate) fn poison<T>(
        &self,
        result: Result<T, impl Into<StateError>>,
    ) -> Result<T, StateError> {
        result.map_err(|error| {
            let error = error.into();
            let _ = self.poisoned.set(error.to_string());
            error
        })
    }

    pub(crate) fn view_of(self: &Arc<Self>, layer: &Arc<Layer>) -> Result<View, StateError> {
        let current = self.current.read();
        if current
            .tree
            .get(layer.id)
            .is_none_or(|known| !Arc::ptr_eq(known, layer))
        {
            return Err(StateError::UnknownBlock(layer.block.hash));
        }
        Ok(View {
            inner: self.clone(),
            base: current.base.clone(),
            overlay: current.overlay.clone(),
            layer: layer.clone(),
        })
    }

    /// Hash of the ancestor of `layer` at `number`, which is not over its own.
    pub(crate) fn ancestor_hash(
        &self,
        layer: &Layer,
        number: BlockNumber,
    ) -> Result<Option<B256>, StateError> {
        {
            let current = self.current.read();
            for ancestor in current.tree.chain(layer.id) {
                if ancestor.block.number == number {
                    return Ok(Some(ancestor.block.hash));
                }
                if ancestor.block.number == number + 1 {
                    return Ok(Some(ancestor.parent_hash));
                }
                if ancestor.block.number < number {
                    break;
                }
            }
        }
        Ok(self.log.lock().blocks.get(number)?.map(|entry| entry.hash))
    }

    /// Puts a session's changes into the trie, on top of its parent's state or of what the
    /// session put there before.
    pub(crate) fn float(
        &self,
        parent: &Arc<Layer>,
        owner: u64,
        changes: &Changes,
        reverts: Changes,
    ) -> Result<B256, StateError> {
        self.check_sound()?;
        let mut delta = self.delta.lock();
        let way = {
            let current = self.current.read();
            if current.tree.get(parent.id).is_none() {
                return Err(StateError::UnknownBlock(parent.block.hash));
            }
            (!delta.floats(owner)).then(|| delta.way_to(&current.tree, parent.id))
        };
        if let Some(way) = way {
            delta.take_way(&way, parent.id)?;
        }
        self.counters.roots.add(1);
        delta.float(owner, changes, reverts)
    }

    /// Adds a layer.
    pub(crate) fn seal(
        &self,
        parent: &Arc<Layer>,
        owner: u64,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Result<Arc<Layer>, StateError> {
        self.check_sound()?;
        let mut delta = self.delta.lock();
        let mut current = self.current.write();
        if current.tree.get(parent.id).is_none() {
            return Err(StateError::UnknownBlock(parent.block.hash));
        }
        let layer = current.add(parent, meta, changes, reverts);
        delta.settle(owner, layer.id);
        Ok(layer)
    }

    /// Takes back a block that was sealed and not committed, with all built on it.
    pub(crate) fn give_up(&self, layer: &Arc<Layer>) {
        let mut delta = self.delta.lock();
        let mut current = self.current.write();
        let Current { tree, overlay, .. } = &mut *current;
        if tree.get(layer.id).is_none() {
            return;
        }
        let lost = tree.descendants(layer.id);
        if lost.contains(&delta.at()) {
            let way = delta.way_to(tree, layer.parent);
            // After an error the trie starts again from the base.
            let _ = delta.take_way(&way, layer.parent);
        }
        for id in lost.into_iter().rev() {
            if let Some(layer) = tree.get(id).cloned() {
                overlay.remove(id, &layer.changes);
                tree.remove(id);
            }
        }
    }

    /// Memory of the layers that are not being merged.
    pub(crate) fn layer_bytes(&self) -> usize {
        let forest = self.delta.lock().forest().memory_bytes();
        self.current.read().overlay.bytes() + forest
    }
}

impl Current {
    /// Adds a layer on `parent`, which is in the tree, and its values.
    pub(crate) fn add(
        &mut self,
        parent: &Arc<Layer>,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Arc<Layer> {
        let layer = self.tree.add(parent.id, meta, changes, reverts);
        self.overlay.insert(layer.id, &layer.changes);
        layer
    }
}
