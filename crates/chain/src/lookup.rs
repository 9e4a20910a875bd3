//! Looking up blocks, transactions, receipts and logs in the index.

use crate::{
    Block, Chain, ChainError,
    error::unreadable,
    replay::Replay,
    stored::{StoredBlock, packed},
};
use alloy_primitives::{Address, B256, Log};
use cambium_evm::{Hooks, Receipt, Sequential, Transaction, recover_senders};
use cambium_history::{History, HistoryError, HistoryView};
use cambium_index::{ChainIndex, IndexError, IndexProgress, LogFilter, StoredBody};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::StateError;
use std::{
    ops::{ControlFlow, RangeInclusive},
    slice,
};

/// Blocks that a search for logs looks at together: it takes memory in proportion to them.
const SEARCHED_BLOCKS: u64 = 1 << 16;

/// After a state could not be restored, the next attempt is nearer to the snapshot by this part of the way.
const RETRY_DIVISOR: u64 = 16;

/// How far states were replayed.
#[derive(Default)]
struct Replaying {
    state: Option<Replay>,
    /// States of blocks below can't be restored.
    retry_from: BlockNumber,
}

/// A transaction of the canonical chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTransaction {
    /// Its block.
    pub block: BlockId,
    /// Its index in the block.
    pub index: usize,
    /// The transaction.
    pub transaction: Transaction,
    /// Its sender, from its signature.
    pub sender: Address,
}

/// A receipt of a transaction of the canonical chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundReceipt {
    /// The transaction.
    pub found: FoundTransaction,
    /// Its receipt. The cumulative gas is that of the block up to it.
    pub receipt: Receipt,
    /// Gas that the transaction used, in gas.
    pub gas_used: u64,
    /// Index of its first log among the logs of the block.
    pub first_log: usize,
}

/// A log of the canonical chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLog {
    /// Its block.
    pub block: BlockId,
    /// Hash of the transaction that made it.
    pub transaction: B256,
    /// Index of the transaction in the block.
    pub transaction_index: usize,
    /// Index of the log among those of the block.
    pub log_index: usize,
    /// The log.
    pub log: Log,
}

impl Chain {
    fn need_index(&self) -> Result<&ChainIndex, ChainError> {
        let none = || IndexError::NotOpen;
        Ok(self.index().ok_or_else(none)?)
    }

    /// The canonical block with a hash, and its number; `None` if there is none. A block that is not
    /// canonical is found by [`Db::search`](cambium_state::Db::search).
    ///
    /// # Errors
    ///
    /// [`IndexError::NotOpen`] without an index. If it is not found, [`IndexError::Behind`] while blocks are
    /// still to be indexed, and [`IndexError::Incomplete`] if older ones are not indexed. Errors of the disk.
    pub fn block_by_hash(&self, hash: B256) -> Result<Option<(BlockId, Block)>, ChainError> {
        let found = self.need_index()?.find(self.db(), hash)?;
        let Some(found) = found.filter(|found| found.transaction.is_none()) else {
            return Ok(None);
        };
        let stored = StoredBlock::from(found.block);
        Ok(Some((stored.id, stored.block()?)))
    }

    /// The transaction of the canonical chain with a hash; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Chain::block_by_hash`].
    pub fn transaction(&self, hash: B256) -> Result<Option<FoundTransaction>, ChainError> {
        let found = self.stored_transaction(hash)?;
        found
            .map(|(stored, index)| self.transaction_of(&stored, index))
            .transpose()
    }

    fn stored_transaction(&self, hash: B256) -> Result<Option<(StoredBlock, usize)>, ChainError> {
        let found = self.need_index()?.find(self.db(), hash)?;
        let found = found.and_then(|found| {
            let index = found.transaction?;
            Some((StoredBlock::from(found.block), index))
        });
        Ok(found)
    }

    fn transaction_of(
        &self,
        stored: &StoredBlock,
        index: usize,
    ) -> Result<FoundTransaction, ChainError> {
        let Block { header, mut body } = stored.block()?;
        if index >= body.transactions.len() {
            let what = "it has fewer transactions than the index says";
            return Err(unreadable(stored.id, what));
        }
        let transaction = body.transactions.swap_remove(index);
        let low = self.spec().has_low_signatures(&header);
        let sender = recover_senders(slice::from_ref(&transaction), low);
        let sender = sender.map_err(|error| ChainError::invalid(stored.id, error))?;
        Ok(FoundTransaction {
            block: stored.id,
            index,
            sender: sender[0],
            transaction,
        })
    }

    /// The receipt of a transaction of the canonical chain; `None` if there is no such transaction.
    ///
    /// # Errors
    ///
    /// As [`Chain::block_by_hash`], and the errors of [`Chain::receipts`].
    pub fn receipt(&self, hash: B256) -> Result<Option<FoundReceipt>, ChainError> {
        let Some((stored, index)) = self.stored_transaction(hash)? else {
            return Ok(None);
        };
        let receipts = self.receipts_in(&stored)?;
        let found = self.transaction_of(&stored, index)?;
        let missing = || unreadable(stored.id, "it has fewer receipts than transactions");
        let receipt = receipts.get(index).ok_or_else(missing)?.clone();
        let gas_before = match index {
            0 => 0,
            index => receipts[index - 1].cumulative_gas_used(),
        };
        let first_log = receipts[..index].iter().map(|receipt| receipt.logs().len());
        Ok(Some(FoundReceipt {
            found,
            gas_used: receipt.cumulative_gas_used().saturating_sub(gas_before),
            first_log: first_log.sum(),
            receipt,
        }))
    }

    /// The receipts of a block in the database, on any branch, or in the index. If they are not stored, the
    /// block is executed again.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if there is no such block, and if its receipts are neither stored nor
    /// can be made, the error of reading its parent's state: see [`Chain::outcome_of`].
    pub fn receipts(&self, id: BlockId) -> Result<Vec<Receipt>, ChainError> {
        let stored = self.stored_of(id)?;
        self.receipts_in(&stored.ok_or(StateError::UnknownBlock(id.hash))?)
    }

    fn receipts_in(&self, stored: &StoredBlock) -> Result<Vec<Receipt>, ChainError> {
        if let Some(receipts) = stored.receipts()? {
            return Ok(receipts);
        }
        if stored.block()?.body.transactions.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.outcome_in(stored)?.receipts)
    }

    /// Calls `visit` with each log in the blocks of `range`, up to the head, that passes `filter`, in the
    /// order of the chain, until it breaks.
    ///
    /// # Errors
    ///
    /// [`IndexError::NotOpen`] without an index, [`IndexError::NotIndexed`] and [`IndexError::Behind`] if a
    /// block of the range is not in it, [`IndexError::NoReceipts`] for a block whose receipts are not known
    /// and can't be made, [`IndexError::HeadMoved`] if the chain changes branch meanwhile: logs of one branch
    /// alone were visited then. And errors of the disk.
    pub fn logs(
        &self,
        filter: &LogFilter,
        range: RangeInclusive<BlockNumber>,
        visit: &mut dyn FnMut(FoundLog) -> ControlFlow<()>,
    ) -> Result<(), ChainError> {
        let index = self.need_index()?;
        let (mut from, end) = (*range.start(), (*range.end()).min(self.db().head().number));
        let mut before: Option<BlockId> = None;
        while from <= end {
            let to = end.min(from.saturating_add(SEARCHED_BLOCKS - 1));
            let found = index.log_blocks(self.db(), filter, from..=to)?;
            if let Some(block) = before
                && self.db().block_id(block.number)? != Some(block)
            {
                return Err(IndexError::HeadMoved { block }.into());
            }
            before = Some(found.at);
            for number in found.blocks {
                let stored = index.block(self.db(), number)?.map(StoredBlock::from);
                // Where the chain has moved meanwhile, blocks of two branches must not be mixed.
                let moved = || IndexError::HeadMoved { block: found.at };
                let stored = stored.ok_or_else(moved)?;
                if self.db().block_id(found.at.number)? != Some(found.at) {
                    return Err(moved().into());
                }
                if self.visit_logs(&stored, filter, visit)?.is_break() {
                    return Ok(());
                }
            }
            from = to + 1;
        }
        Ok(())
    }

    fn visit_logs(
        &self,
        stored: &StoredBlock,
        filter: &LogFilter,
        visit: &mut dyn FnMut(FoundLog) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ChainError> {
        let block = stored.block()?;
        // Most blocks that have not what is asked for say so by their bloom.
        if !may_have(&block, filter) {
            return Ok(ControlFlow::Continue(()));
        }
        let receipts = match self.receipts_in(stored) {
            Err(ChainError::State(error)) if is_not_there(&error) => {
                return Err(IndexError::NoReceipts { block: stored.id }.into());
            }
            receipts => receipts?,
        };
        let mut log_index = 0;
        for (transaction_index, (receipt, transaction)) in
            receipts.iter().zip(&block.body.transactions).enumerate()
        {
            for log in receipt.logs() {
                if filter.passes(&log.address, log.topics()) {
                    let found = FoundLog {
                        block: stored.id,
                        transaction: *transaction.hash(),
                        transaction_index,
                        log_index,
                        log: log.clone(),
                    };
                    if visit(found).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                log_index += 1;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Adds the blocks of the log up to the head to the index, until `progress` returns false. Blocks that
    /// were stored without receipts are executed again for them, as far as the states of their parents can
    /// be read: near the head, or from `history`. The others are indexed without. Returns whether the index is
    /// at the head.
    ///
    /// # Errors
    ///
    /// [`IndexError::NotOpen`] without an index, and the errors of
    /// [`ChainIndex::catch_up`](cambium_index::ChainIndex::catch_up).
    pub fn build_index(
        &self,
        history: Option<&History>,
        progress: &mut dyn FnMut(&IndexProgress) -> bool,
    ) -> Result<bool, ChainError> {
        let index = self.need_index()?;
        let (mut failed, mut replay) = (None, Replaying::default());
        let mut make = |id: BlockId, body: &StoredBody| {
            let stored = StoredBlock {
                id,
                body: body.clone(),
            };
            match self.receipts_again(&stored, history, &mut replay) {
                Ok(receipts) => Ok(receipts),
                Err(error) => {
                    let why = error.to_string();
                    failed = Some(error);
                    Err(IndexError::Unreadable { block: id, why })
                }
            }
        };
        let built = index.catch_up(self.db(), Some(&mut make), progress);
        match failed {
            Some(error) => Err(error),
            None => Ok(built?),
        }
    }

    /// The receipts of a canonical block, made by executing it again, and packed. `None` if the state that it
    /// was executed on can't be read, or if it has no transactions. `replay` has the state of the block
    /// before, or of an earlier one.
    fn receipts_again(
        &self,
        stored: &StoredBlock,
        history: Option<&History>,
        replay: &mut Replaying,
    ) -> Result<Option<Vec<u8>>, ChainError> {
        if stored.id == self.db().genesis() {
            return Ok(None);
        }
        let block = stored.block()?;
        if block.body.transactions.is_empty() {
            return Ok(None);
        }
        let parent = self.parent_of(&block.header);
        let Some(state) = self.replay_to(parent, history, replay)? else {
            return Ok(None);
        };
        // Without the roots that receipts have before Byzantium.
        let (again, hooks) = (self.prepare_again(stored)?, Hooks::default());
        let outcome = self.execute_again(stored.id, &again, state, &Sequential, hooks)?;
        if outcome.receipts_complete {
            return Ok(packed(&outcome.receipts));
        }
        // Before Byzantium receipts have state roots, which take the tries of the state.
        match self.outcome_in(stored) {
            Ok(outcome) => Ok(packed(&outcome.receipts)),
            Err(ChainError::State(error)) if is_not_there(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The state after a canonical block, from that of an earlier one if possible. `None` if it can't be read.
    fn replay_to<'a>(
        &self,
        block: BlockId,
        history: Option<&History>,
        replay: &'a mut Replaying,
    ) -> Result<Option<&'a Replay>, ChainError> {
        while let Some(state) = &mut replay.state
            && state.block() != block
        {
            if state.block().number >= block.number || !state.advance()? {
                replay.state = None;
            }
        }
        if replay.state.is_none() {
            let Some(view) = self.old_state(block, history, replay)? else {
                return Ok(None);
            };
            replay.state = Some(Replay::on(self.db(), block, view)?);
        }
        Ok(replay.state.as_ref())
    }

    /// A view of an old state: from the history, or else restored from the log.
    fn old_state(
        &self,
        block: BlockId,
        history: Option<&History>,
        replay: &mut Replaying,
    ) -> Result<Option<HistoryView>, ChainError> {
        if let Some(history) = history {
            match history.view_at(self.db(), block.number) {
                Ok(view) => return Ok(Some(view)),
                Err(HistoryError::NotKept { .. }) => {}
                Err(HistoryError::State(error)) if is_not_there(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if block.number < replay.retry_from {
            return Ok(None);
        }
        match self.db().view_of(block) {
            Ok(view) => Ok(Some(view.into())),
            Err(error) if is_not_there(&error) => {
                // To find that out may have read much of the log. The blocks that follow are hardly closer.
                let distance = self
                    .db()
                    .snapshot_block()
                    .number
                    .saturating_sub(block.number);
                replay.retry_from = block.number + (distance / RETRY_DIVISOR).max(1);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the error says that a state can't be read any more, rather than that reading it failed.
const fn is_not_there(error: &StateError) -> bool {
    let is_unknown = matches!(
        error,
        StateError::TooFar { .. } | StateError::UnknownBlock(_)
    );
    is_unknown || error.has_left_log()
}

/// Whether a block may have a log that passes, by the bloom in its header.
fn may_have(block: &Block, filter: &LogFilter) -> bool {
    let bloom = &block.header.logs_bloom;
    let contains = |bytes: &[u8]| bloom.contains_input(alloy_primitives::BloomInput::Raw(bytes));
    let has_any = |values: &[B256]| {
        values.is_empty() || values.iter().any(|value| contains(value.as_slice()))
    };
    let addresses = &filter.addresses;
    let has_address =
        addresses.is_empty() || addresses.iter().any(|value| contains(value.as_slice()));
    has_address && filter.topics.iter().all(|topics| has_any(topics))
}
