//! Which blocks the log keeps: all, or those that [`Options::keep_blocks`](crate::Options) says.
//!
//! ```text
//!   genesis .......... | lowest ... | number ........ base ...... head
//!   whole files leave  |            | can be gone back to
//!                      | position in the log
//! ```
//!
//! Each merge says in its checkpoint from where on the log is kept. Files before that leave it when
//! the *next* checkpoint is durable, so that the last two can both be opened. From the moment a
//! merge has planned what it will say, nothing that needs older blocks gets into the log.

use crate::{
    blocks::BaseMove,
    db::Inner,
    error::StateError,
    tree::{Layer, Tree},
};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_store::LogPosition;

/// From where on blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The lowest canonical block that can be the head again.
    pub(crate) number: BlockNumber,
    /// The lowest canonical block whose record is in the log:
    /// [`log_spare_blocks`](crate::FileSizes::log_spare_blocks) before that.
    pub(crate) lowest: BlockNumber,
    /// Records from here on are in the log: of these blocks, and of all recent ones.
    pub(crate) position: LogPosition,
}

impl Kept {
    /// All blocks.
    pub(crate) const ALL: Self = Self {
        number: 0,
        lowest: 0,
        position: LogPosition::START,
    };
}

/// What is kept, of an open database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// By the newest checkpoint.
    newest: Kept,
    /// By the one that is being written, if there is one.
    planned: Kept,
}

impl Keeping {
    pub(crate) const fn new(newest: Kept) -> Self {
        Self {
            newest,
            planned: newest,
        }
    }
}

impl Inner {
    /// From where on blocks are kept, now or soon.
    pub(crate) fn kept(&self) -> Kept {
        self.keeping.lock().planned
    }

    /// What a merge is to say that does `base_move` with the head at `head`. The caller has locked
    /// `writer`.
    pub(crate) fn plan_kept(
        &self,
        base_move: &BaseMove,
        head: BlockId,
    ) -> Result<Kept, StateError> {
        let before = self.kept();
        let Some(blocks) = self.options.keep_blocks else {
            return Ok(before);
        };
        // A head on its way down, or a log that is still replayed, may need what is there.
        if self.head_to_be.lock().is_some() || self.replaying.lock().is_some() {
            return Ok(before);
        }
        let recent = base_move.recent();
        let lowest_recent = recent.iter().map(|block| block.id.number).min();
        let number = head
            .number
            .saturating_sub(blocks)
            .min(base_move.to().number)
            // Branches leave the base's chain below their lowest block.
            .min(lowest_recent.map_or(u64::MAX, |lowest| lowest.saturating_sub(1)));
        let lowest = number.saturating_sub(self.options.files.log_spare_blocks);
        let lowest = lowest.max(self.genesis.number);
        if number <= before.number {
            return Ok(before);
        }
        let Some(entry) = self.blocks.ancestor_after(base_move, lowest)? else {
            return Ok(before);
        };
        let positions = recent.iter().map(|block| block.position);
        let position = positions.fold(entry.position, LogPosition::min);
        let kept = Kept {
            number,
            lowest,
            position: position.max(before.position),
        };
        self.keeping.lock().planned = kept;
        Ok(kept)
    }

    /// The checkpoint that says `kept` is durable, and so is the one before it: what neither needs
    /// leaves the log.
    pub(crate) fn let_go_of_log(&self, kept: Kept, newest: u64) -> Result<(), StateError> {
        let before = std::mem::replace(&mut self.keeping.lock().newest, kept);
        let removed = self.log.remove_before(before.position)?;
        let mut reclaim = self.reclaim.lock();
        for one in removed {
            reclaim.lent.add(newest, one.bytes, one.file);
        }
        Ok(())
    }

    /// Refuses to make a block the head, or to commit one on it, whose way back needs blocks that
    /// are not kept. The caller has locked `writer`.
    pub(crate) fn check_kept(&self, tree: &Tree, id: BlockId) -> Result<(), StateError> {
        let kept = self.kept();
        if kept == Kept::ALL {
            return Ok(());
        }
        let lowest = match tree.by_hash(&id.hash) {
            // Only what was brought back from below the root needs the log.
            Some(layer) => jump_below(tree, layer).map(|jump| jump.block),
            None => Some(self.fork_of(tree, id)?),
        };
        match lowest.filter(|lowest| lowest.number < kept.number) {
            Some(_) => Err(self.not_kept()),
            None => Ok(()),
        }
    }

    /// That something needs blocks which are not kept.
    pub(crate) fn not_kept(&self) -> StateError {
        let oldest = self.kept().number;
        StateError::NotKept { oldest }
    }
}

/// The block that a layer's branch was brought back with from below the root, if it was.
fn jump_below<'a>(tree: &'a Tree, layer: &Layer) -> Option<&'a std::sync::Arc<Layer>> {
    tree.chain(layer.id).find(|layer| tree.is_jump(layer))
}
