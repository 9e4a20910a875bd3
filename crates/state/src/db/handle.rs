//! The handle of an open database: views, blocks, and moves of the head.

use crate::engine::parts::Engine;
use crate::write::sealed::Sealed;
use crate::{
    log::{blocks::SideBranch, finality::Finality, records::BlockMeta},
    options::Options,
    view::{ahead::ReadAhead, state::View},
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, BlockNumber, Changes};
use cambium_snapshot::{KeptStorage, PagePin, StateError, pinned_bytes_max};
use cambium_store::StoreError;
use std::sync::Arc;

/// A canonical block, with its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedBlock {
    /// The block, as it was sealed.
    pub meta: BlockMeta,
    /// Changes of the block.
    pub changes: Changes,
    /// The changes that undo it: the values before.
    pub reverts: Changes,
}

/// Canonical blocks that [`Db::search`] looks at.
const SEARCHED_MAX: BlockNumber = 100_000;

/// An open database. Clones are handles of the same database.
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<Engine>,
}

impl Db {
    /// The newest block of the canonical chain.
    pub fn head(&self) -> BlockId {
        self.inner.layers.current.read().tree.head().block
    }

    /// The block from which the database was made; block 0 unless it began at a later one.
    pub fn genesis(&self) -> BlockId {
        self.inner.journal.genesis
    }

    /// The options with which the database was opened.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The contracts whose storage is kept, if the database is partial. The changes of its blocks have, of other contracts, the
    /// new storage roots alone: as one slot with the key [`STORAGE_ROOT_KEY`](cambium_primitives::STORAGE_ROOT_KEY), whose
    /// value is zero for the root of an empty trie ([`storage_root_of`](crate::storage_root_of)).
    pub fn kept_storage(&self) -> Option<&KeptStorage> {
        self.inner.kept_storage.as_ref()
    }

    /// Number of blocks of an interval, if the chain has the `layered` commitment: see
    /// [`Options::merge_interval_blocks`].
    pub fn merge_interval(&self) -> Option<u64> {
        let layered = self.inner.layered.as_ref()?;
        Some(layered.intervals.blocks())
    }

    /// The property of that name, stored when the database was made.
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        self.inner.journal.manifest.property(name)
    }

    /// The newest block whose state is in pages. Later blocks are in memory and in the log.
    pub fn snapshot_block(&self) -> BlockId {
        self.inner.layers.current.read().base.snapshot.block
    }

    /// A view of the state at the head.
    ///
    /// # Errors
    ///
    /// None today: the state at the head is always in memory or in pages.
    pub fn view(&self) -> Result<View, StateError> {
        let current = self.inner.layers.current.read();
        let head = current.tree.head().clone();
        Ok(self.inner.view_at(&current, head))
    }

    /// A view of the state after a block of any branch: a sealed block, a block of the newest
    /// heights, or an ancestor of one. A state that is not in memory is restored from the log for
    /// this view, and dropped with it. The farther it is from the head, the more is read and kept
    /// in memory.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] for a block that is not in the database, without reading the
    /// log. [`StateError::NotKept`] for a block that [`Options::keep_blocks`] has removed, or soon
    /// will. [`StateError::TooFar`] if the changes between do not fit into their share of the
    /// memory, a part of which views of blocks below the newest [`Options::unfinalized_blocks`] heights leave
    /// to blocks on which others can be built.
    pub fn view_of(&self, id: BlockId) -> Result<View, StateError> {
        self.inner.view_of(id)
    }

    /// Number and hash of a block by its hash, if it is in memory: sealed and not committed yet, or
    /// one of the newest [`Options::unfinalized_blocks`] heights. [`Db::block_id`] finds canonical
    /// blocks of any height.
    pub fn find(&self, hash: &B256) -> Option<BlockId> {
        self.inner.find(hash)
    }

    /// Number and hash of a block by its hash: one that [`Db::find`] finds, a safe or finalized block, or a
    /// canonical one among the newest 100,000, whose hashes are read in large pieces.
    ///
    /// # Errors
    ///
    /// As [`Db::block_id`].
    pub fn search(&self, hash: &B256) -> Result<Option<BlockId>, StateError> {
        let head = self.head();
        let marked = self.finality();
        let mut known = [Some(head), marked.safe, marked.finalized]
            .into_iter()
            .flatten();
        if let Some(known) = known.find(|block| block.hash == *hash) {
            return Ok(Some(known));
        }
        if let Some(found) = self.find(hash) {
            return Ok(Some(found));
        }
        let lowest = head.number.saturating_sub(SEARCHED_MAX);
        let Some(number) = self.inner.journal.blocks.search(hash, lowest)? else {
            return Ok(None);
        };
        // What is known of it may be of another branch.
        match self.block_id(number) {
            Err(StateError::NotKept { .. }) => Ok(None),
            found => Ok(found?.filter(|block| block.hash == *hash)),
        }
    }

    /// Returns the block at `number` on the chain of the committed block `of`, itself included, on any branch; `None`
    /// above it, and below the first block of the database.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if `of` is not in the database, and those of [`Db::block_id`].
    pub fn ancestor(
        &self,
        of: BlockId,
        number: BlockNumber,
    ) -> Result<Option<BlockId>, StateError> {
        if number > of.number || number < self.genesis().number {
            return Ok(None);
        }
        let hash = self.inner.journal.blocks.ancestor_hash(of, number)?;
        Ok(hash.map(|hash| BlockId::new(number, hash)))
    }

    /// Fails if a block on `parent` could not be committed, because it would undo the finalized block. Callers check
    /// this before they execute the block.
    ///
    /// # Errors
    ///
    /// [`StateError::NotOnFinalized`], and those of [`Db::block_id`].
    pub fn check_buildable(&self, parent: BlockId) -> Result<(), StateError> {
        self.inner.check_buildable(parent)
    }

    /// The branches among the newest [`Options::unfinalized_blocks`] heights that are not canonical and can
    /// still become so, lowest first.
    ///
    /// # Errors
    ///
    /// As [`Db::block_id`].
    pub fn side_branches(&self) -> Result<Vec<SideBranch>, StateError> {
        self.inner.journal.blocks.side_branches()
    }

    /// A view of the state after the canonical block at `number`.
    ///
    /// # Errors
    ///
    /// [`StateError::NoSuchBlock`] above the head, and the errors of [`Db::view_of`].
    pub fn view_at(&self, number: BlockNumber) -> Result<View, StateError> {
        let head = {
            // The head may be another one a moment later.
            let current = self.inner.layers.current.read();
            let head = current.tree.head();
            if number == head.block.number {
                return Ok(self.inner.view_at(&current, head.clone()));
            }
            head.block
        };
        let id = self
            .block_id(number)?
            .ok_or(StateError::NoSuchBlock { number, head })?;
        self.inner.view_of(id)
    }

    /// The block above which all changes are layers in memory: the newest one that is in the snapshot,
    /// or that is being merged into it. A view of it is the cheapest to prove from.
    pub fn settled_block(&self) -> BlockId {
        self.inner.layers.current.read().base.block()
    }

    /// Number and hash of the canonical block at `number`; `None` above the head.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails, and an error that names the file if the block index or a
    /// record of the block log is damaged.
    pub fn block_id(&self, number: BlockNumber) -> Result<Option<BlockId>, StateError> {
        let entry = self.inner.journal.blocks.canonical(number)?;
        Ok(entry.map(|entry| BlockId::new(number, entry.hash)))
    }

    /// The canonical block at `number`, as it was sealed; `None` above the head.
    ///
    /// # Errors
    ///
    /// [`StateError::NotKept`] if the block has left the log.
    pub fn block(&self, number: BlockNumber) -> Result<Option<BlockMeta>, StateError> {
        let entry = self.inner.journal.blocks.canonical(number)?;
        let meta = entry.map(|entry| {
            let id = BlockId::new(number, entry.hash);
            self.inner.journal.meta_of(id, entry.position)
        });
        meta.transpose()
    }

    /// A committed block, if it can be built upon: see [`Db::has`].
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails, and an error that names the file if the block index or a
    /// record of the block log is damaged.
    pub fn block_by_id(&self, id: BlockId) -> Result<Option<BlockMeta>, StateError> {
        let position = self.inner.journal.blocks.position_of(id)?;
        position
            .map(|position| self.inner.journal.meta_of(id, position))
            .transpose()
    }

    /// The changes of the canonical block at `number`, and its reverts; `None` above the head.
    ///
    /// # Errors
    ///
    /// [`StateError::NotKept`] if the block has left the log.
    pub fn block_changes(
        &self,
        number: BlockNumber,
    ) -> Result<Option<(Changes, Changes)>, StateError> {
        let Some(entry) = self.inner.journal.blocks.canonical(number)? else {
            return Ok(None);
        };
        let id = BlockId::new(number, entry.hash);
        let record = self.inner.journal.record_of(id, entry.position)?;
        Ok(Some((record.changes, record.reverts)))
    }

    /// The canonical block at `number`, with its changes and reverts; `None` above the head.
    ///
    /// # Errors
    ///
    /// [`StateError::NotKept`] if the block has left the log.
    pub fn committed_block(
        &self,
        number: BlockNumber,
    ) -> Result<Option<CommittedBlock>, StateError> {
        let Some(entry) = self.inner.journal.blocks.canonical(number)? else {
            return Ok(None);
        };
        let id = BlockId::new(number, entry.hash);
        let record = self.inner.journal.record_of(id, entry.position)?;
        Ok(Some(CommittedBlock {
            meta: record.meta,
            changes: record.changes,
            reverts: record.reverts,
        }))
    }

    /// The oldest canonical block above which the log has all blocks: none has left it, and of none has a repair cut
    /// the record out. It looks at the record of each.
    ///
    /// # Errors
    ///
    /// As [`Db::block_id`].
    pub fn readable_from(&self) -> Result<BlockNumber, StateError> {
        let journal = &self.inner.journal;
        let lowest = journal.kept().number.max(journal.genesis.number);
        let mut number = self.head().number;
        while number > lowest {
            let entry = match journal.blocks.canonical(number) {
                Err(error) if error.has_left_log() => break,
                entry => entry?,
            };
            let has_record = entry.map(|entry| journal.log.has_record(entry.position));
            match has_record.transpose() {
                Ok(Some(true) | None) => {}
                // It has left the log meanwhile.
                Ok(Some(false)) | Err(StoreError::NotKept { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            number -= 1;
        }
        Ok(number)
    }

    /// Whether a block is canonical. One so old that the database does not know its hash any more is.
    ///
    /// # Errors
    ///
    /// As [`Db::block_id`], but for [`StateError::NotKept`].
    pub fn is_canonical(&self, id: BlockId) -> Result<bool, StateError> {
        match self.block_id(id.number) {
            Err(StateError::NotKept { .. }) => Ok(true),
            found => Ok(found? == Some(id)),
        }
    }

    /// The disk that the database is on. Other files on it are not the engine's.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.store.disk
    }

    /// Keeps the blocks above `number` in the block log, regardless of [`Options::keep_blocks`], because `reader` is
    /// still going to read them. Each call replaces the reader's previous number; [`BlockNumber::MAX`] ends it. Removed
    /// blocks don't come back. If the head moves to a branch that leaves the chain below `number`, the blocks above the
    /// fork are kept, and 64 below it: a reader may not know the hash of each block.
    pub fn keep_log_above(&self, reader: &'static str, number: BlockNumber) {
        let mut kept_above = self.inner.journal.kept_above.lock();
        match number {
            BlockNumber::MAX => kept_above.remove(reader),
            number => kept_above.insert(reader, number),
        };
    }

    /// Whether a block is committed and can be built upon: it is canonical, or one of the newest
    /// [`Options::unfinalized_blocks`] heights.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails, and an error that names the file if the block index or a
    /// record of the block log is damaged.
    pub fn has(&self, id: BlockId) -> Result<bool, StateError> {
        Ok(self.inner.journal.blocks.position_of(id)?.is_some())
    }

    /// Makes a committed block the head: unwinds to any depth that is kept, or switches to another
    /// branch. The move is durable when this returns. Safe and finalized blocks from which the new
    /// head does not descend are forgotten. If the changes between exceed the memory for
    /// them, the head goes there in steps, and intermediate blocks are the head meanwhile.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if the block is not committed, and [`StateError::NotKept`] if
    /// the log does not keep the blocks between.
    pub fn set_head(&self, id: BlockId) -> Result<BlockId, StateError> {
        self.inner.set_head(id)
    }

    /// Makes a committed block the head, and sets which of its ancestors, itself included, are safe and finalized.
    /// `None` keeps the previous block if it is still canonical; a finalized block is safe, too. Both are one record of
    /// the log, durable when this returns.
    ///
    /// Branches that do not descend from the finalized block are freed: nothing can be built on them
    /// any more, and their blocks that are not committed yet are dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Db::set_head`]; [`StateError::NotAnAncestor`] and [`StateError::SafeBelowFinalized`]
    /// if the three blocks are not on one chain in this order; and [`StateError::NotOnFinalized`] if
    /// the finalized block would be undone. Only [`Db::set_head`] and [`Db::unwind`] can do that.
    pub fn set_canonical(
        &self,
        head: BlockId,
        safe: Option<BlockId>,
        finalized: Option<BlockId>,
    ) -> Result<(), StateError> {
        self.inner.set_canonical(head, Finality { safe, finalized })
    }

    /// The safe and the finalized block.
    pub fn finality(&self) -> Finality {
        *self.inner.journal.finality.lock()
    }

    /// Moves the head back to the canonical block at `to`.
    ///
    /// # Errors
    ///
    /// [`StateError::NoSuchBlock`] if `to` is above the head, and the errors of [`Db::set_head`].
    pub fn unwind(&self, to: BlockNumber) -> Result<BlockId, StateError> {
        self.inner.set_head_to(|| {
            let head = self.head();
            let id = self.block_id(to)?.filter(|id| id.number <= head.number);
            id.ok_or(StateError::NoSuchBlock { number: to, head })
        })
    }

    /// A reader ahead of execution, with up to `depth` device reads in flight: see [`ReadAhead`].
    pub fn read_ahead(&self, depth: usize) -> ReadAhead {
        ReadAhead::new(&self.inner, depth)
    }

    /// A pin without pages, for one block: see [`View::pinned`].
    pub fn page_pin(&self) -> Arc<PagePin> {
        let (_, ahead_max) = self.pinned_pages();
        // As much again for execution's own reads.
        Arc::new(PagePin::new(self.inner.store.pages.clone(), 2 * ahead_max))
    }

    /// Memory of the pages that pins hold, and its limit, in bytes. A caller that reads ahead should pause at the
    /// limit.
    pub fn pinned_pages(&self) -> (u64, u64) {
        let bytes = self.inner.store.pages.pinned_bytes();
        (bytes, pinned_bytes_max(self.inner.options.memory_bytes))
    }

    /// Makes several blocks durable with one sync. Parents come before their children, and the last
    /// block becomes the head. After an error none of them counts as committed; those that reached
    /// the disk are there when the database is opened again, at the newest of them that leads to the last one, if
    /// there is any.
    ///
    /// # Errors
    ///
    /// [`StateError::OtherDatabase`] for a block of another database, and the errors of
    /// [`Sealed::commit`].
    pub fn commit_all(&self, sealed: Vec<Sealed>) -> Result<(), StateError> {
        self.inner.commit(sealed, true)
    }

    /// Merges all but the newest `keep` blocks, and waits until a durable checkpoint has them. The
    /// next opening has less to replay then.
    ///
    /// # Errors
    ///
    /// [`StateError::ReadOnly`] for a reader, and the failure of the merge, which poisons the
    /// engine.
    pub fn flush(&self, keep: usize) -> Result<(), StateError> {
        self.inner.journal.check_writable("merged")?;
        self.inner.merge_now(keep)
    }

    /// Waits for the merges that are under way, and closes the database: its directory can be
    /// opened again at once. Dropping the last handle closes the database too, once its merges have
    /// ended.
    ///
    /// # Errors
    ///
    /// [`StateError::StillUsed`] if there are other handles, views, sessions or blocks of the
    /// database: it is closed when the last of them is dropped. Any other error reports an earlier
    /// failure of the engine, and the database is closed.
    pub fn close(self) -> Result<(), StateError> {
        // The root of a snapshot may begin a merge, and no merge begins such a root.
        self.inner.wait_for_snapshot_roots();
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
