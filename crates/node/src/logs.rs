//! Logs that pass a filter, one after another.

use crate::{Node, NodeError, receipts::is_not_there};
use alloy_primitives::{B256, BloomInput, Log};
use cambium_chain::{Block, ChainError, StoredBlock};
use cambium_index::{IndexError, LogFilter};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::Db;
use std::{ops::RangeInclusive, vec};

/// Blocks that a search for logs looks at together: it takes memory in proportion to them.
const SEARCHED_BLOCKS: u64 = 1 << 16;

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

impl Node {
    /// The logs in the canonical blocks of `range`, up to the head as it is now, that pass `filter`, in the order of
    /// the chain. All of them are of one branch: if the chain leaves it, the next one is
    /// [`IndexError::HeadMoved`].
    ///
    /// # Errors
    ///
    /// [`IndexError::NotOpen`] without an index. The errors of the search are items of the iterator, which ends
    /// with the first: see [`Logs`].
    pub fn logs<'a>(
        &'a self,
        filter: &'a LogFilter,
        range: RangeInclusive<BlockNumber>,
    ) -> Result<Logs<'a>, NodeError> {
        self.need_index()?;
        let head = self.db().head().number;
        Ok(Logs {
            node: self,
            filter,
            rest: *range.start()..=(*range.end()).min(head),
            searched: None,
            logs: Vec::new().into_iter(),
            timestamp: 0,
            is_over: false,
            stops: None,
        })
    }
}

/// Logs of one branch: see [`Node::logs`].
///
/// An item is an error if the next log can't be found; the iteration then ends: [`IndexError::NotIndexed`] and
/// [`IndexError::Behind`] if a block of the range is not in the index, [`IndexError::NoReceipts`] for a block whose
/// receipts are not known and can't be made, [`IndexError::HeadMoved`] if the chain has left the branch, and errors of
/// the disk.
pub struct Logs<'a> {
    node: &'a Node,
    filter: &'a LogFilter,
    /// Blocks that are not searched yet.
    rest: RangeInclusive<BlockNumber>,
    searched: Option<Searched>,
    /// Logs of the last block.
    logs: vec::IntoIter<FoundLog>,
    /// Timestamp of that block.
    timestamp: u64,
    is_over: bool,
    /// Asked before each block whether to end.
    stops: Option<&'a dyn Fn() -> bool>,
}

/// Result of the last search.
struct Searched {
    /// The newest block of the chain then: the result is valid while it is canonical.
    at: BlockId,
    /// Blocks that may have logs.
    blocks: vec::IntoIter<BlockNumber>,
}

impl Searched {
    const fn moved(&self) -> IndexError {
        IndexError::HeadMoved { block: self.at }
    }

    /// Fails if the chain has left the branch that was searched.
    fn check_branch(&self, db: &Db) -> Result<(), NodeError> {
        match db.block_id(self.at.number)? == Some(self.at) {
            true => Ok(()),
            false => Err(self.moved().into()),
        }
    }
}

impl Iterator for Logs<'_> {
    type Item = Result<FoundLog, NodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.next_log().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl<'a> Logs<'a> {
    /// Ends the iteration once `stops` says so, which is asked before each block: a search may look at many without a log.
    #[must_use]
    pub fn until(self, stops: &'a dyn Fn() -> bool) -> Self {
        let stops = Some(stops);
        Self { stops, ..self }
    }
}

impl Logs<'_> {
    /// Timestamp of the block of the log that came last, in seconds since 1970.
    pub const fn timestamp(&self) -> u64 {
        self.timestamp
    }

    fn next_log(&mut self) -> Result<Option<FoundLog>, NodeError> {
        loop {
            if let Some(log) = self.logs.next() {
                return Ok(Some(log));
            }
            if let Some(searched) = &mut self.searched
                && let Some(number) = searched.blocks.next()
            {
                if self.stops.is_some_and(|stops| stops()) {
                    return Ok(None);
                }
                let (timestamp, logs) = logs_of(self.node, self.filter, searched, number)?;
                self.timestamp = timestamp;
                self.logs = logs.into_iter();
            } else if self.rest.is_empty() {
                return Ok(None);
            } else {
                self.search()?;
            }
        }
    }

    /// Searches the next blocks of the range.
    fn search(&mut self) -> Result<(), NodeError> {
        let (from, end) = (*self.rest.start(), *self.rest.end());
        let to = end.min(from.saturating_add(SEARCHED_BLOCKS - 1));
        let index = self.node.need_index()?;
        let found = index.log_blocks(self.node.db(), self.filter, from..=to)?;
        if let Some(before) = &self.searched {
            before.check_branch(self.node.db())?;
        }
        self.searched = Some(Searched {
            at: found.at,
            blocks: found.blocks.into_iter(),
        });
        self.rest = match to < end {
            true => to + 1..=end,
            false => RangeInclusive::new(1, 0),
        };
        Ok(())
    }
}

/// A block's timestamp, and its logs that pass.
fn logs_of(
    node: &Node,
    filter: &LogFilter,
    searched: &Searched,
    number: BlockNumber,
) -> Result<(u64, Vec<FoundLog>), NodeError> {
    let stored = node.need_index()?.block(node.db(), number)?;
    // Where the chain has moved meanwhile, blocks of two branches must not be mixed.
    let stored = StoredBlock::from(stored.ok_or_else(|| searched.moved())?);
    searched.check_branch(node.db())?;
    let block = stored.block()?;
    let timestamp = block.header.timestamp;
    // The bloom rules most blocks without matching logs out.
    if !may_have(&block, filter) {
        return Ok((timestamp, Vec::new()));
    }
    let receipts = match node.chain()?.receipts_in(&stored) {
        Err(ChainError::State(error)) if is_not_there(&error) => {
            return Err(IndexError::NoReceipts { block: stored.id }.into());
        }
        receipts => receipts?,
    };
    let mut logs = Vec::new();
    let mut log_index = 0;
    for (transaction_index, (receipt, transaction)) in
        receipts.iter().zip(&block.body.transactions).enumerate()
    {
        for log in receipt.logs() {
            if filter.passes(&log.address, log.topics()) {
                logs.push(FoundLog {
                    block: stored.id,
                    transaction: *transaction.hash(),
                    transaction_index,
                    log_index,
                    log: log.clone(),
                });
            }
            log_index += 1;
        }
    }
    Ok((timestamp, logs))
}

/// Whether a block may have a log that passes, by the bloom in its header.
fn may_have(block: &Block, filter: &LogFilter) -> bool {
    let bloom = &block.header.logs_bloom;
    let contains = |bytes: &[u8]| bloom.contains_input(BloomInput::Raw(bytes));
    let has_any = |values: &[B256]| {
        values.is_empty() || values.iter().any(|value| contains(value.as_slice()))
    };
    let addresses = &filter.addresses;
    let has_address =
        addresses.is_empty() || addresses.iter().any(|value| contains(value.as_slice()));
    has_address && filter.topics.iter().all(|topics| has_any(topics))
}
