//! The access lists of a chain's blocks: kept from Amsterdam on, made when asked for before.

use crate::{Chain, ChainError, DryRun, error::unreadable, stored::StoredBlock};
use alloy_primitives::Bytes;
use cambium_evm::{AccessListSizes, Hooks, Sequential};
use cambium_primitives::{AccessList, AccessListLimits, BlockNumber};

impl Chain {
    /// The access list of a canonical block: the one kept with it or, of a block whose header
    /// names none, what executing it again touches and changes. A genesis block has an empty one.
    ///
    /// In a list from before Cancun slots are missing that vanished untouched, with the contract
    /// that they were of.
    pub fn access_list(&self, number: BlockNumber) -> Result<AccessList, ChainError> {
        let stored = self.stored(number)?;
        if stored.access_list.is_empty() {
            return self.made_access_list(&stored);
        }
        let transactions = stored.block()?.body.transactions.len();
        let limits = AccessListLimits::of_transactions(transactions);
        AccessList::decode(&stored.access_list, &limits)
            .map_err(|error| unreadable(stored.id, error))
    }

    /// The RLP of the access list that is kept with a canonical block, if there is one.
    pub fn kept_access_list(&self, number: BlockNumber) -> Result<Option<Bytes>, ChainError> {
        let list = self.stored(number)?.access_list;
        Ok((!list.is_empty()).then_some(list))
    }

    /// How large the access list of a canonical block is, in the forms that executors may be given.
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
        let id = stored.id;
        if id.number == self.db().genesis().number {
            return Ok(AccessList::default());
        }
        let parent_total_difficulty = self.total_difficulty(id.number - 1)?;
        let block = stored.block()?;
        let senders = self.senders(&block);
        let senders = senders.map_err(|error| ChainError::invalid(id, error))?;
        let view = self.db().view_of(self.parent_of(&block.header))?;
        let post_merge = self
            .spec()
            .is_post_merge(id.number, parent_total_difficulty);
        let run = DryRun {
            block: &block,
            post_merge,
            senders: &senders,
            access_list: None,
            found: None,
        };
        let outcome = self.dry_run(run, view, &Sequential, Hooks::default())?;
        Ok(outcome.access_list.unwrap_or_default())
    }
}
