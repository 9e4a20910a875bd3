//! Inserting blocks without making them the head, and choosing the head, as a consensus client does with
//! `engine_newPayload` and `engine_forkchoiceUpdated`.
//!
//! ```text
//!   insert          validated, executed, durable on a branch of its own     the head stays
//!   set_canonical   head, safe, finalized: one record of the log            branches are freed
//! ```

use crate::{Block, Chain, ChainError, PreparedBlock, Timings, execute::Step};
use alloy_primitives::{B256, Bytes};
use cambium_evm::Outcome;
use cambium_primitives::BlockId;
use cambium_state::{StateError, View};
use std::time::Instant;

/// A valid block that the database has: see [`Chain::insert`]. It says what the block did and is not
/// needed for anything else: dropping it removes nothing.
#[derive(Clone, Debug)]
pub struct InsertedBlock {
    /// The block.
    pub id: BlockId,
    /// Its parent's hash.
    pub parent: B256,
    /// The state root after it, which is that in its header.
    pub state_root: B256,
    /// Receipts, requests, access list, gas and state changes of its execution. `None` if the
    /// database had the block already: [`Chain::outcome_of`] executes it again.
    pub outcome: Option<Outcome>,
    /// What the time went to. Nothing, if the database had the block already; [`Timings::recover`] is spent in
    /// [`Chain::prepare`], and not counted.
    pub timings: Timings,
}

impl Chain {
    /// Validates and executes a block on its parent, on any branch, and stores it. The head stays where it is:
    /// [`Chain::set_canonical`] moves it.
    ///
    /// The block is durable when this returns. From then on it can be read
    /// ([`Db::view_of`](cambium_state::Db::view_of)) and built upon, as long as it is one of the newest
    /// [`Options::unfinalized_blocks`](cambium_state::Options::unfinalized_blocks) heights or becomes
    /// canonical, and no block of another branch is finalized.
    ///
    /// Callers take turns: blocks are inserted one at a time. Imports may go on beside, of the same blocks as well.
    ///
    /// `rlp` is the block's encoding, and `access_list` that of its access list, if it came with one.
    ///
    /// # Errors
    ///
    /// [`ChainError::NotABlock`] and [`ChainError::Block`] if the block is invalid or its parent is
    /// unknown: nothing is stored then. [`ChainError::State`] if the database fails.
    pub fn insert(
        &self,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<InsertedBlock, ChainError> {
        self.insert_prepared(&self.prepare(rlp, access_list)?)
    }

    /// Does the same as [`Chain::insert`] for a block that the caller has decoded, or composed of a payload. `rlp` is the encoding of
    /// `block`, which is not verified. Senders are recovered while the block is executed, where one thread executes it.
    ///
    /// # Errors
    ///
    /// As [`Chain::insert`], but for [`ChainError::NotABlock`].
    pub fn insert_decoded(
        &self,
        block: Block,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<InsertedBlock, ChainError> {
        self.insert_prepared(&self.prepare_unrecovered(block, rlp, access_list)?)
    }

    /// Does the same as [`Chain::insert`] for a block that [`Chain::prepare`] has decoded.
    ///
    /// # Errors
    ///
    /// As [`Chain::insert`].
    pub fn insert_prepared(&self, prepared: &PreparedBlock) -> Result<InsertedBlock, ChainError> {
        let id = prepared.id();
        let header = &prepared.block().header;
        let inserted = |outcome, timings| InsertedBlock {
            id,
            parent: header.parent_hash,
            state_root: header.state_root,
            outcome,
            timings,
        };
        let known = || Ok(inserted(None, Timings::default()));
        // A block that another caller has sealed and not committed yet could not be built upon.
        let _alone = self.inserting.lock();
        if self.has(id)? {
            return known();
        }
        // An import that goes on beside commits it soon.
        self.await_commit(self.parent_of(header))?;
        match self.unless_known(|| self.execute_alone(prepared, self.db().head(), true))? {
            Step::Known(_) => known(),
            Step::New(executed) => {
                let start = Instant::now();
                executed.sealed.commit_side_branch()?;
                let timings = Timings {
                    commit: start.elapsed(),
                    ..executed.timings
                };
                Ok(inserted(executed.outcome, timings))
            }
        }
    }

    /// Makes a block in the database the head, and sets which of its ancestors, itself included, are safe and
    /// finalized. `None` keeps the previous block if it is still canonical; a finalized block is safe, too. Durable
    /// when this returns.
    ///
    /// Branches that do not descend from the finalized block are freed, and nothing can be built on
    /// them any more. [`Chain::import`] and [`Chain::import_block`] still make each valid block the head,
    /// and fail with [`StateError::NotOnFinalized`] for one that would undo the finalized block.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] for a block that [`Db::search`](cambium_state::Db::search) does not
    /// find, and the other errors of [`Db::set_canonical`](cambium_state::Db::set_canonical): nothing is changed then.
    pub fn set_canonical(
        &self,
        head: B256,
        safe: Option<B256>,
        finalized: Option<B256>,
    ) -> Result<(), ChainError> {
        let find = |hash: B256| -> Result<BlockId, ChainError> {
            let found = self.db().search(&hash)?;
            Ok(found.ok_or(StateError::UnknownBlock(hash))?)
        };
        let head = find(head)?;
        let (safe, finalized) = (
            safe.map(find).transpose()?,
            finalized.map(find).transpose()?,
        );
        Ok(self.db().set_canonical(head, safe, finalized)?)
    }

    /// The state after the newest block that [`Chain::set_canonical`] has called finalized; `None` if
    /// there is none.
    ///
    /// # Errors
    ///
    /// Those of [`Db::view_of`](cambium_state::Db::view_of).
    pub fn finalized_view(&self) -> Result<Option<View>, ChainError> {
        let view = |block| self.db().view_of(block);
        Ok(self.db().finality().finalized.map(view).transpose()?)
    }
}
