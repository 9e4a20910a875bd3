//! Access lists of a chain's blocks: stored with the block from Amsterdam on, computed on demand
//! before.

use crate::{Chain, ChainError, DryRun, prepare::BlockAgain, stored::StoredBlock};
use alloy_primitives::Bytes;
use cambium_evm::{AccessListSizes, Hooks, Sequential};
use cambium_primitives::{AccessList, AccessListLimits, BlockNumber};

impl Chain {
    /// The access list of a canonical block: the one stored with it or, if its header has no hash
    /// of a list, the list that executing it again gives. A genesis block has an empty list.
    ///
    /// A list from before Cancun lacks slots that were deleted together with their contract without
    /// being accessed.
    ///
    /// # Errors
    ///
    /// [`ChainError::NoSuchBlock`] if there is none, [`ChainError::Unreadable`] if the stored list can't be
    /// decoded, and [`ChainError::State`] if the block or its parent's state can't be read.
    pub fn access_list(&self, number: BlockNumber) -> Result<AccessList, ChainError> {
        let stored = self.stored(number)?;
        if stored.body.access_list.is_empty() {
            return self.made_access_list(&stored);
        }
        let transactions = stored.block()?.body.transactions.len();
        let limits = AccessListLimits::of_transactions(transactions);
        AccessList::decode(&stored.body.access_list, &limits)
            .map_err(|error| ChainError::unreadable(stored.id, error))
    }

    /// The RLP of the access list that is stored with a canonical block, if there is one.
    ///
    /// # Errors
    ///
    /// [`ChainError::NoSuchBlock`] if there is none, and [`ChainError::State`] if it has left the log or can't
    /// be read.
    pub fn kept_access_list(&self, number: BlockNumber) -> Result<Option<Bytes>, ChainError> {
        let list = self.stored(number)?.body.access_list;
        Ok((!list.is_empty()).then_some(list))
    }

    /// Sizes of the access list of a canonical block, in the forms that executors use.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] if the parent's state can't be read.
    pub fn access_list_sizes(
        &self,
        number: BlockNumber,
        list: &AccessList,
    ) -> Result<AccessListSizes, ChainError> {
        let parent = number.saturating_sub(1).max(self.db().genesis().number);
        let before = self.db().view_at(parent)?;
        Ok(AccessListSizes::measure(list, &before)?)
    }

    fn made_access_list(&self, stored: &StoredBlock) -> Result<AccessList, ChainError> {
        if stored.id.number == self.db().genesis().number {
            return Ok(AccessList::default());
        }
        let BlockAgain {
            block,
            senders,
            post_merge,
        } = self.prepare_again(stored)?;
        let view = self.db().view_of(self.parent_of(&block.header))?;
        let run = DryRun {
            block: &block,
            post_merge,
            senders: &senders,
            access_list: None,
            pre_state: None,
        };
        let outcome = self.dry_run(run, view, &Sequential, Hooks::default())?;
        Ok(outcome.access_list.unwrap_or_default())
    }
}
