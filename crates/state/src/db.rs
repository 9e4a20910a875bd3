//! The engine: one open database, and the order in which its parts are touched.
//!
//! Locks, in the order in which they are taken:
//! 1. `catching_up`: held by whoever merges what opening has left.
//! 2. `head_moves`: held by whoever commits blocks or moves the head, until that is done.
//! 3. `delta`: the trie above the base. Roots.
//! 4. `writer`: held by whoever appends to the block log, and while layers are frozen.
//! 5. `current`: base, overlay and tree of layers. Held for moments only; views copy from it.
//! 6. that of `blocks`: where blocks are. Held for moments only.
//!
//! Before all of them a reader that catches up takes the lock of what it holds
//! ([`crate::readers::Reading`]).
//!
//! The phase of merging and the list of what may be reclaimed have locks of their own, under which
//! no other is taken but those of the store.
//!
//! Order of writing, on which crash safety rests:
//! - a block is durable when its record is in the synced log;
//! - a checkpoint is written only when the pages, codes and block index it speaks of are synced;
//! - a page counts as dead only when no kept checkpoint names it.

use crate::{
    base::Base,
    blocks::Blocks,
    budget::LayerLimit,
    commit::check_record,
    delta::{Delta, DeltaLock, LockedDelta},
    kept::Keeping,
    merger::Merging,
    options::Options,
    overlay::{Overlay, size_of_changes},
    past::PastStates,
    readers::Reading,
    records::BlockMeta,
    tree::{Layer, Tree},
    view::{Touched, View},
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, BlockNumber, Changes};
use cambium_snapshot::{CodeCache, Counters, Key, Pages, PartCache, Reclaim, StateError};
use cambium_store::{BlockLog, Codes, DataDirLock, LogPosition, Manifest};
use cambium_trie::{Keys, PartialTrie, TrieError};
use parking_lot::{Mutex, RwLock};
use std::{
    ops::RangeInclusive,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    time::Instant,
};

/// What views are made from.
pub(crate) struct Current {
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) tree: Tree,
}

/// The parts of an open database, shared by views and sessions.
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) layer_limit: LayerLimit,
    /// What the budget has for the index.
    pub(crate) index_reserved: AtomicU64,
    /// Whether the log had blocks to replay, which may be too many for the tries at once.
    pub(crate) is_behind: AtomicBool,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pages: Arc<Pages>,
    /// Parts of the index in memory, if it is on disk.
    pub(crate) parts: Arc<PartCache>,
    pub(crate) codes: Codes,
    pub(crate) code_cache: CodeCache,
    pub(crate) reclaim: Mutex<Reclaim>,
    pub(crate) log: BlockLog,
    pub(crate) blocks: Blocks,
    pub(crate) catching_up: Mutex<()>,
    pub(crate) head_moves: Mutex<()>,
    pub(crate) delta: DeltaLock,
    pub(crate) writer: Mutex<()>,
    pub(crate) current: RwLock<Current>,
    pub(crate) merging: Arc<Merging>,
    /// What the values take of blocks that are sealed and not committed.
    pub(crate) sealed_bytes: AtomicUsize,
    /// A trie of its own for proofs, so that they do not get in the way of roots.
    pub(crate) prover: Mutex<Option<Delta>>,
    /// States of old blocks that views hold.
    pub(crate) past: Arc<PastStates>,
    /// What was merged, and the memory that it took: views may keep it.
    pub(crate) merged: Mutex<Vec<(Weak<dyn Send + Sync>, usize)>>,
    /// From where on the log is kept.
    pub(crate) keeping: Mutex<Keeping>,
    /// The record of the log that is replayed, from which the next opening is to go on.
    pub(crate) replaying: Mutex<Option<LogPosition>>,
    /// The head by the log, while the one in memory is on its way down to it. Whoever changes or
    /// reads it has locked `writer`, or is the only one there is.
    pub(crate) head_to_be: Mutex<Option<BlockId>>,
    pub(crate) poisoned: OnceLock<String>,
    pub(crate) genesis: BlockId,
    pub(crate) manifest: Manifest,
    pub(crate) holds: Holds,
}

/// What is held as long as a database is open.
pub(crate) enum Holds {
    /// The directory: nobody else writes.
    Writer(#[expect(dead_code, reason = "held for its Drop")] DataDirLock),
    Reader(Reading),
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

    /// What it was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
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
        let current = self.inner.current.read();
        let head = current.tree.head().clone();
        Ok(self.inner.view_at(&current, head))
    }

    /// The state after that block, whatever its branch: sealed, of one of the newest heights, or an
    /// ancestor of such a block. What is not in memory is brought back from the log for this view,
    /// and goes with it: the further it is from the head, the more is read and kept.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] for a block that is not here, at once; [`StateError::NotKept`] for
    /// one that is older than [`Options::keep_blocks`] says, or soon;
    /// [`StateError::TooFar`] if what lies between does not fit into its share of the memory.
    pub fn view_of(&self, id: BlockId) -> Result<View, StateError> {
        self.inner.view_of(id)
    }

    /// Number and hash of the block of that hash, if it is in memory: sealed and not committed yet,
    /// or of one of the newest [`Options::unfinalized_blocks`] heights. Others are found by number:
    /// [`Db::block_id`].
    pub fn find(&self, hash: &B256) -> Option<BlockId> {
        self.inner.find(hash)
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
        self.inner.view_of(id)
    }

    /// Name of the canonical block of that height.
    pub fn block_id(&self, number: BlockNumber) -> Result<Option<BlockId>, StateError> {
        let entry = self.inner.blocks.canonical(number)?;
        Ok(entry.map(|entry| BlockId::new(number, entry.hash)))
    }

    /// The canonical block of that height, as it was given. [`StateError::NotKept`] if it has left the
    /// log.
    pub fn block(&self, number: BlockNumber) -> Result<Option<BlockMeta>, StateError> {
        let entry = self.inner.blocks.canonical(number)?;
        entry
            .map(|entry| self.inner.meta_at(entry.position))
            .transpose()
    }

    /// A committed block, if it can be built upon: see [`Db::has`].
    pub fn block_by_id(&self, id: BlockId) -> Result<Option<BlockMeta>, StateError> {
        let position = self.inner.blocks.position_of(id)?;
        position
            .map(|position| self.inner.meta_at(position))
            .transpose()
    }

    /// What the canonical block of that height changed, and what takes it back.
    pub fn block_changes(
        &self,
        number: BlockNumber,
    ) -> Result<Option<(Changes, Changes)>, StateError> {
        let Some(entry) = self.inner.blocks.canonical(number)? else {
            return Ok(None);
        };
        let record = self.inner.record_at(entry.position)?;
        Ok(Some((record.changes, record.reverts)))
    }

    /// Whether the block is committed and can be built upon: it is canonical, or of one of the
    /// newest [`Options::unfinalized_blocks`] heights.
    pub fn has(&self, id: BlockId) -> Result<bool, StateError> {
        Ok(self.inner.blocks.position_of(id)?.is_some())
    }

    /// Makes a committed block the head: unwinds, to any depth that is kept, or changes branch. Durable when it
    /// returns. Where the way back is too long for the memory it is gone in steps, and blocks of
    /// the heights in between are the head meanwhile.
    pub fn set_head(&self, id: BlockId) -> Result<BlockId, StateError> {
        self.inner.set_head(id)
    }

    /// Takes the head back to the canonical block of that height.
    pub fn unwind(&self, to: BlockNumber) -> Result<BlockId, StateError> {
        let head = self.head();
        let id = self.block_id(to)?.filter(|id| id.number <= head.number);
        let id = id.ok_or(StateError::NoSuchBlock { number: to, head })?;
        self.inner.set_head(id)
    }

    /// Merges all but the newest `keep` blocks and waits until it is in a checkpoint: the next
    /// opening has less to replay.
    pub fn flush(&self, keep: usize) -> Result<(), StateError> {
        self.inner.check_writable("merged")?;
        self.inner.merge_now(keep)
    }

    /// Waits for the merges that are under way, and closes the database: its directory can be
    /// opened again at once. Dropping the last handle closes it as well, but not before a merge is
    /// through.
    ///
    /// # Errors
    ///
    /// [`StateError::StillUsed`] if there are other handles, views, sessions or blocks of it: it is
    /// closed with the last of them. Otherwise it is closed, and an error says that the engine had
    /// stopped.
    pub fn close(self) -> Result<(), StateError> {
        let sound = self.inner.wait_for_merge();
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => {
                drop(inner);
                sound
            }
            Err(inner) => Err(StateError::StillUsed {
                users: Arc::strong_count(&inner) - 1,
            }),
        }
    }
}

impl Inner {
    /// Refuses to go on after a failure that left the disk in doubt.
    pub(crate) fn check_sound(&self) -> Result<(), StateError> {
        match self.poisoned.get() {
            Some(why) => Err(StateError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// Refuses a change to what another process writes.
    pub(crate) fn check_writable(&self, what: &'static str) -> Result<(), StateError> {
        match self.is_read_only() {
            false => Ok(()),
            true => Err(StateError::ReadOnly(what)),
        }
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self.holds, Holds::Reader(_))
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

    /// The state after a layer of `current`.
    pub(crate) fn view_at(self: &Arc<Self>, current: &Current, layer: Arc<Layer>) -> View {
        View {
            inner: self.clone(),
            base: current.base.clone(),
            overlay: current.overlay.clone(),
            layer,
            past: None,
        }
    }

    /// Hash of the ancestor of `layer` at `number`, which is not over its own.
    pub(crate) fn ancestor_hash(
        &self,
        layer: &Layer,
        number: BlockNumber,
    ) -> Result<Option<B256>, StateError> {
        if number == layer.block.number {
            return Ok(Some(layer.block.hash));
        }
        let mut id = BlockId::new(layer.block.number - 1, layer.parent_hash);
        // Blocks that are not committed are known to the tree alone.
        let current = self.current.read();
        while id.number > number
            && self.blocks.recent(&id.hash).is_none()
            && let Some(layer) = current.tree.by_hash(&id.hash)
        {
            id = BlockId::new(id.number - 1, layer.parent_hash);
        }
        self.blocks.ancestor_hash(id, number)
    }

    /// Puts a session's changes into the trie, on top of its parent's state or of what the
    /// session put there before. `all` are those changes and these.
    pub(crate) fn float(
        self: &Arc<Self>,
        view: &View,
        owner: u64,
        changes: &Changes,
        all: &Changes,
        reverts: Changes,
    ) -> Result<B256, StateError> {
        self.check_sound()?;
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.counters.roots.add(1);
        if delta.floats(owner) {
            return delta.float(owner, changes, reverts).map_err(of_changes);
        }
        self.take_to(&mut delta, view.block())?;
        delta.float(owner, all, reverts).map_err(of_changes)
    }

    /// Puts all changes of a session into the trie, on top of the state of `view`. Returns the
    /// root, and what takes the changes back.
    pub(crate) fn stage(
        self: &Arc<Self>,
        view: &View,
        owner: u64,
        changes: &Changes,
    ) -> Result<(B256, Changes), StateError> {
        self.check_sound()?;
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.take_to(&mut delta, view.block())?;
        let start = Instant::now();
        let touched = Touched::by(changes);
        let accounts = delta.read(&touched.accounts)?;
        let reverts = view.reverts_from(changes, accounts, delta.read(&touched.slots)?)?;
        let taken = start.elapsed().as_nanos() as u64;
        self.counters.revert_ns.add(taken);
        self.counters.roots.add(1);
        let root = delta.float(owner, changes, reverts.clone());
        Ok((root.map_err(of_changes)?, reverts))
    }

    /// Reads leaves of the state of `view`, sorted by their paths, and loads what is on the
    /// way to them into the trie.
    pub(crate) fn read<K: Key>(
        self: &Arc<Self>,
        view: &View,
        keys: &[K],
    ) -> Result<Vec<K::Value>, StateError> {
        self.check_sound()?;
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.take_to(&mut delta, view.block())?;
        delta.read(keys)
    }

    /// See [`Delta::extract_for_changes`], of the state of `view`.
    pub(crate) fn extract(
        self: &Arc<Self>,
        view: &View,
        keys: &Keys,
        changes: &Changes,
    ) -> Result<Option<PartialTrie>, StateError> {
        self.check_sound()?;
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.take_to(&mut delta, view.block())?;
        let part = delta.extract_for_changes(keys, changes);
        part.map_err(of_changes)
    }

    /// Takes the trie to the state after `parent`, which has a layer.
    fn take_to(&self, delta: &mut Delta, parent: BlockId) -> Result<(), StateError> {
        let (parent, way) = {
            let current = self.current.read();
            let parent = current.tree.by_hash(&parent.hash);
            let parent = parent.expect("the delta is above the parent").id;
            (parent, delta.way_to(&current.tree, parent))
        };
        delta.take_way(&way, parent)
    }

    /// The delta, with the layer of `view` in the tree for as long as it is locked. A block that was
    /// given up has none: another one of its name is not it.
    fn delta_above(&self, view: &View) -> Result<LockedDelta<'_>, StateError> {
        let parent = view.block();
        loop {
            view.check_alive()?;
            self.layer_of(parent)?;
            let mut delta = self.delta.lock();
            view.check_alive()?;
            if self.is_overgrown(delta.memory_bytes()) {
                delta.let_go();
            }
            // The base may have moved in between.
            if self.current.read().tree.by_hash(&parent.hash).is_some() {
                return Ok(delta);
            }
        }
    }

    /// Adds a layer, once there is memory for it. What identifies the block is checked here, before
    /// anything of it is kept: its number and its parent's hash, and that there is none of its
    /// hash. `record` are the bytes that it will take in the log.
    pub(crate) fn seal(
        self: &Arc<Self>,
        view: &View,
        owner: u64,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
        record: usize,
    ) -> Result<Arc<Layer>, StateError> {
        self.check_sound()?;
        self.check_writable("sealed")?;
        let (id, parent) = (meta.id, view.block());
        if meta.parent != parent.hash || parent.number.checked_add(1) != Some(id.number) {
            return Err(StateError::NotAChild {
                block: id,
                claimed: meta.parent,
                parent,
            });
        }
        check_record("record of a block", record)?;
        self.check_new(id)?;
        self.check_ancestors(parent, id)?;
        self.wait_for_room(size_of_changes(&changes))?;
        let mut delta = self.delta_above(view)?;
        // Nobody else adds layers while the delta is locked, but those of known blocks.
        self.check_new(id)?;
        let mut current = self.current.write();
        let parent = current.tree.by_hash(&parent.hash).cloned();
        let parent = parent.expect("the delta is above the parent");
        let layer = current.add(&parent, meta, changes, reverts);
        delta.settle(owner, layer.id);
        Ok(layer)
    }

    /// Refuses a block that is sealed, or committed and still known.
    fn check_new(&self, id: BlockId) -> Result<(), StateError> {
        let is_there = id.hash == self.genesis.hash
            || self.find(&id.hash).is_some()
            || self.blocks.position_of(id)?.is_some();
        match is_there {
            true => Err(StateError::BlockExists(id)),
            false => Ok(()),
        }
    }

    /// Refuses a block with the hash of one of its near ancestors, of which only the block index
    /// may know, if the head was far above them.
    fn check_ancestors(&self, parent: BlockId, id: BlockId) -> Result<(), StateError> {
        let heights = self.options.unfinalized_blocks as u64;
        let mut below = parent;
        {
            // Layers are found by their hash.
            let current = self.current.read();
            for _ in 0..=heights {
                let Some(layer) = current.tree.by_hash(&below.hash) else {
                    break;
                };
                let Some(number) = below.number.checked_sub(1) else {
                    return Ok(());
                };
                below = BlockId::new(number, layer.parent_hash);
            }
        }
        let heights = heights.saturating_sub(parent.number - below.number);
        match self.blocks.is_near_ancestor(&id.hash, below, heights)? {
            true => Err(StateError::BlockExists(id)),
            false => Ok(()),
        }
    }

    /// Takes back a block that was sealed and not committed, with all built on it.
    pub(crate) fn give_up(&self, layer: &Arc<Layer>) {
        let mut delta = self.delta.lock();
        let mut current = self.current.write();
        let Current { tree, overlay, .. } = &mut *current;
        // A freeze may have put another layer in its place; or it went with one below it.
        let found = match layer.is_given_up() {
            true => None,
            false => tree
                .get(layer.id)
                .or_else(|| tree.by_hash(&layer.block.hash)),
        };
        let found = match found {
            Some(found) if found.block == layer.block => found.clone(),
            _ => return,
        };
        if self.blocks.recent(&layer.block.hash).is_some() {
            return;
        }
        let lost = tree.descendants(found.id);
        if lost.contains(&delta.at()) {
            let way = delta.way_to(tree, found.parent);
            // After an error the trie is at the base.
            let _ = delta.take_way(&way, found.parent);
        }
        let mut gone = Vec::with_capacity(lost.len());
        for id in lost.into_iter().rev() {
            gone.extend(tree.get(id).cloned());
            tree.remove(id);
        }
        drop(found);
        let mut held = 0;
        for lost in &gone {
            lost.give_up();
            // Here, and with whoever drops the block.
            let expected = 1 + usize::from(Arc::ptr_eq(lost, layer));
            held += Arc::strong_count(lost).saturating_sub(expected);
        }
        match held {
            0 => gone.iter().for_each(|layer| layer.take_out_of(overlay)),
            // Somebody may have a view of them, which stays what it is.
            _ => {
                let old = std::mem::replace(overlay, Arc::new(tree.overlay()));
                self.note_kept(&old);
            }
        }
    }

    /// The heights of blocks that are not there although later ones are: from the head's child on, or
    /// of another branch below.
    pub(crate) fn missing_blocks(&self) -> Option<RangeInclusive<BlockNumber>> {
        let last = self.blocks.lowest_orphan()?.saturating_sub(1);
        let next = self.current.read().tree.head().block.number + 1;
        Some(next.min(last)..=last)
    }

    /// Memory that views keep although the engine is done with it.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let mut merged = self.merged.lock();
        merged.retain(|(kept, _)| kept.strong_count() > 0);
        merged.iter().map(|(_, bytes)| bytes).sum::<usize>() + self.past.bytes()
    }

    /// Memory of the layers that are not being merged.
    pub(crate) fn layer_bytes(&self) -> usize {
        self.current.read().overlay.bytes() + self.delta.bytes()
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
        layer.put_into(&self.overlay);
        layer
    }
}

/// What the trie says of changes by a caller.
pub(crate) fn of_changes(error: StateError) -> StateError {
    match error {
        StateError::Trie(error @ TrieError::NoAccount { .. }) => StateError::BadChanges(error),
        error => error,
    }
}
