//! Transactions and receipts, found in the index by hash.

use crate::{FoundBlock, Node, NodeError};
use alloy_primitives::{Address, B256};
use cambium_chain::{Block, ChainError, StoredBlock};
use cambium_evm::{Receipt, Transaction, recover_senders};
use cambium_index::{ChainIndex, IndexError};
use cambium_primitives::BlockId;
use std::slice;

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

impl Node {
    pub(crate) fn need_index(&self) -> Result<&ChainIndex, IndexError> {
        self.index()?.ok_or(IndexError::NotOpen)
    }

    /// The transaction of the canonical chain with a hash; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`IndexError::NotOpen`] without an index. If it is not found, [`IndexError::Behind`] while blocks are
    /// still to be indexed, and [`IndexError::Incomplete`] if older ones are not indexed. Errors of the disk.
    pub fn transaction(&self, hash: B256) -> Result<Option<FoundTransaction>, NodeError> {
        let found = self.stored_transaction(hash)?;
        found
            .map(|(stored, index)| self.transaction_of(&stored, index))
            .transpose()
    }

    fn stored_transaction(&self, hash: B256) -> Result<Option<(StoredBlock, usize)>, IndexError> {
        let found = self.need_index()?.find(self.db(), hash)?;
        Ok(found.and_then(|found| {
            let index = found.transaction?;
            Some((StoredBlock::from(found.block), index))
        }))
    }

    fn transaction_of(
        &self,
        stored: &StoredBlock,
        index: usize,
    ) -> Result<FoundTransaction, NodeError> {
        let Block { header, mut body } = stored.block()?;
        if index >= body.transactions.len() {
            let what = "it has fewer transactions than the index says";
            return Err(ChainError::unreadable(stored.id, what).into());
        }
        let transaction = body.transactions.swap_remove(index);
        let low = self.chain()?.spec().has_low_signatures(&header);
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
    /// As [`Node::transaction`], and the errors of [`Chain::receipts`](cambium_chain::Chain::receipts).
    pub fn receipt(&self, hash: B256) -> Result<Option<FoundReceipt>, NodeError> {
        let Some((stored, index)) = self.stored_transaction(hash)? else {
            return Ok(None);
        };
        let receipts = self.chain()?.receipts_in(&stored)?;
        let found = self.transaction_of(&stored, index)?;
        let mut placed = Placed::default();
        for before in receipts.iter().take(index) {
            placed.next(before);
        }
        let missing =
            || ChainError::unreadable(stored.id, "it has fewer receipts than transactions");
        let receipt = receipts.get(index).ok_or_else(missing)?;
        Ok(Some(placed.found(found, receipt)))
    }

    /// The receipts of a block that was found, in the order of its transactions.
    ///
    /// # Errors
    ///
    /// As [`Chain::receipts`](cambium_chain::Chain::receipts).
    pub fn receipts_of(&self, found: &FoundBlock) -> Result<Vec<FoundReceipt>, NodeError> {
        let chain = self.chain()?;
        let receipts = chain.receipts(found.id)?;
        let senders = chain.senders_of(&found.block)?;
        let transactions = found.block.body.transactions.iter().zip(senders);
        let mut placed = Placed::default();
        let each = receipts.iter().zip(transactions).enumerate();
        let each = each.map(|(index, (receipt, (transaction, sender)))| {
            let transaction = FoundTransaction {
                block: found.id,
                index,
                transaction: transaction.clone(),
                sender,
            };
            placed.found(transaction, receipt)
        });
        Ok(each.collect())
    }
}

/// Gas and logs of the receipts of a block so far.
#[derive(Default)]
struct Placed {
    gas: u64,
    logs: usize,
}

impl Placed {
    /// Gas that the transaction of the next receipt used, and the index of its first log.
    fn next(&mut self, receipt: &Receipt) -> (u64, usize) {
        let gas = receipt.cumulative_gas_used();
        let used = gas.saturating_sub(std::mem::replace(&mut self.gas, gas));
        let first_log = self.logs;
        self.logs += receipt.logs().len();
        (used, first_log)
    }

    fn found(&mut self, found: FoundTransaction, receipt: &Receipt) -> FoundReceipt {
        let (gas_used, first_log) = self.next(receipt);
        FoundReceipt {
            found,
            receipt: receipt.clone(),
            gas_used,
            first_log,
        }
    }
}
