//! An open database, as its owner holds it.

use crate::engine::parts::Engine;
use crate::write::sealed::Sealed;
use crate::{log::records::BlockMeta, options::Options, view::state::View};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber, Changes};
use cambium_snapshot::StateError;
use std::sync::Arc;

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<Engine>,
}

impl Db {
    /// The newest block of the canonical chain.
    pub fn head(&self) -> BlockId {
        self.inner.layers.current.read().tree.head().block
    }

    /// Block 0, or whatever block the database was made from.
    pub fn genesis(&self) -> BlockId {
        self.inner.journal.genesis
    }

    /// What it was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// What was kept under that name when the database was made.
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        self.inner.journal.manifest.property(name)
    }

    /// The newest block whose state is in pages: what lies above is in memory, and in the log.
    pub fn snapshot_block(&self) -> BlockId {
        self.inner.layers.current.read().base.snapshot.block
    }

    /// The state at the head.
    pub fn view(&self) -> Result<View, StateError> {
        let current = self.inner.layers.current.read();
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
        let entry = self.inner.journal.blocks.canonical(number)?;
        Ok(entry.map(|entry| BlockId::new(number, entry.hash)))
    }

    /// The canonical block of that height, as it was given. [`StateError::NotKept`] if it has left the
    /// log.
    pub fn block(&self, number: BlockNumber) -> Result<Option<BlockMeta>, StateError> {
        let entry = self.inner.journal.blocks.canonical(number)?;
        entry
            .map(|entry| self.inner.journal.meta_at(entry.position))
            .transpose()
    }

    /// A committed block, if it can be built upon: see [`Db::has`].
    pub fn block_by_id(&self, id: BlockId) -> Result<Option<BlockMeta>, StateError> {
        let position = self.inner.journal.blocks.position_of(id)?;
        position
            .map(|position| self.inner.journal.meta_at(position))
            .transpose()
    }

    /// What the canonical block of that height changed, and what takes it back.
    pub fn block_changes(
        &self,
        number: BlockNumber,
    ) -> Result<Option<(Changes, Changes)>, StateError> {
        let Some(entry) = self.inner.journal.blocks.canonical(number)? else {
            return Ok(None);
        };
        let record = self.inner.journal.record_at(entry.position)?;
        Ok(Some((record.changes, record.reverts)))
    }

    /// Whether the block is committed and can be built upon: it is canonical, or of one of the
    /// newest [`Options::unfinalized_blocks`] heights.
    pub fn has(&self, id: BlockId) -> Result<bool, StateError> {
        Ok(self.inner.journal.blocks.position_of(id)?.is_some())
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

    /// Makes several blocks durable with one sync, in order, each after its parent; the last is
    /// the head then. After an error none of them counts as committed: those of which the disk has
    /// all are there when the database is opened again.
    pub fn commit_all(&self, sealed: Vec<Sealed>) -> Result<(), StateError> {
        self.inner.commit(sealed, true)
    }

    /// Merges all but the newest `keep` blocks and waits until it is in a checkpoint: the next
    /// opening has less to replay.
    pub fn flush(&self, keep: usize) -> Result<(), StateError> {
        self.inner.journal.check_writable("merged")?;
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
