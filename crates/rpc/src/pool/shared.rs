//! A pool, which follows the head of the chain: it looks where the head is whenever it is asked.

use super::{
    announced::{Announced, Announcement},
    limits::PoolLimits,
    rules::NextRules,
    transaction::PooledTransaction,
    waiting::{Sender, Waiting},
};
use crate::error::RpcError;
use alloy_eips::{
    eip7594::BlobTransactionSidecarVariant, eip7702::constants::EIP7702_DELEGATION_DESIGNATOR,
};
use alloy_primitives::{Address, B256};
use cambium_chain::Transaction;
use cambium_history::StateAt;
use cambium_metrics::{Count, LabelledMetrics, MetricsHost};
use cambium_node::{BlockRef, Node};
use cambium_primitives::{Account, BlockId};
use parking_lot::Mutex;
use revm::primitives::KECCAK_EMPTY;
use std::sync::Arc;
use tokio::sync::watch;

/// Most bytes of the sidecar of a transaction.
const SIDECAR_BYTES_MAX: usize = 4 << 20;
/// Most blocks that left the chain whose transactions come back.
const REVERTED_MAX: usize = 64;

/// So many times as many transactions as a pool holds are remembered as having become executable.
const ANNOUNCED_POOLS: usize = 2;

/// The transaction that has a blob, and the blob's index in its sidecar; `None` if there is none.
pub(crate) type FoundBlob = Option<(Arc<PooledTransaction>, usize)>;

/// How many transactions wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Those that can be executed.
    pub(crate) pending: usize,
    /// Those that wait for another one of their sender.
    pub(crate) queued: usize,
}

/// Transactions that wait for a block. They are in memory alone.
pub struct Pool {
    limits: PoolLimits,
    inner: Mutex<Inner>,
    /// Read without waiting for the pool.
    shown: Shown,
    announced: Mutex<Announced>,
}

/// What is shown of a pool.
#[derive(Default)]
struct Shown {
    transactions: Count,
    bytes: Count,
    added: Count,
    refused: Count,
}

#[derive(Default)]
struct Inner {
    /// The head that the rest follows from.
    at: Option<(BlockId, NextRules)>,
    waiting: Waiting,
    /// Grows with each transaction that is added.
    added: u64,
    /// What became executable, and is not announced yet.
    executable: Vec<Announcement>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({:?})", self.limits)
    }
}

impl Pool {
    /// An empty pool.
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            inner: Mutex::default(),
            shown: Shown::default(),
            announced: Mutex::new(Announced::new(limits.transactions * ANNOUNCED_POOLS)),
        }
    }

    /// Adds a transaction that may become part of a block after the head. Returns its hash.
    pub(crate) fn add(&self, node: &Node, raw: &[u8]) -> Result<B256, RpcError> {
        let most = self.limits.transaction_bytes + SIDECAR_BYTES_MAX;
        if raw.len() > most {
            let what = format!("oversized data: {} bytes, limit {most}", raw.len());
            return Err(RpcError::server(what));
        }
        let added = PooledTransaction::decode(raw).and_then(|new| {
            let hash = new.hash();
            self.with(node, |inner| {
                inner.add(&node.state_at(BlockRef::Latest)?, new, &self.limits)?;
                Ok(hash)
            })
        });
        if added.is_err() {
            self.shown.refused.add(1);
        }
        added
    }

    pub(crate) fn get(
        &self,
        node: &Node,
        hash: &B256,
    ) -> Result<Option<Arc<PooledTransaction>>, RpcError> {
        self.with(node, |inner| Ok(inner.waiting.get(hash).cloned()))
    }

    /// The nonce after those of a sender that can be executed; `None` if there are none.
    pub(crate) fn next_nonce(&self, node: &Node, of: Address) -> Result<Option<u64>, RpcError> {
        self.with(node, |inner| {
            let sender = inner.waiting.senders.get(&of);
            Ok(sender.and_then(|sender| Some(sender.pending().last()?.nonce() + 1)))
        })
    }

    pub(crate) fn status(&self, node: &Node) -> Result<Status, RpcError> {
        let mut status = Status::default();
        self.each(node, None, |_, is_pending| match is_pending {
            true => status.pending += 1,
            false => status.queued += 1,
        })?;
        Ok(status)
    }

    /// Shows all transactions, or those of one sender, and whether each can be executed.
    pub(crate) fn each(
        &self,
        node: &Node,
        of: Option<Address>,
        mut show: impl FnMut(&Arc<PooledTransaction>, bool),
    ) -> Result<(), RpcError> {
        let mut show_all = |sender: &Sender| {
            let pending = sender.pending().count();
            for (index, own) in sender.transactions.values().enumerate() {
                show(own, index < pending);
            }
        };
        self.with(node, |inner| {
            let senders = &inner.waiting.senders;
            match of {
                Some(address) => senders.get(&address).into_iter().for_each(&mut show_all),
                None => senders.values().for_each(&mut show_all),
            }
            Ok(())
        })
    }

    /// Those that can be executed at these fees, the best first, and how many transactions were ever added.
    pub(crate) fn best(
        &self,
        node: &Node,
        base_fee: u64,
        blob_fee: u128,
    ) -> Result<(Vec<Arc<PooledTransaction>>, u64), RpcError> {
        self.with(node, |inner| {
            Ok((inner.waiting.best(base_fee, blob_fee), inner.added))
        })
    }

    /// How many transactions were ever added.
    pub(crate) fn added(&self) -> u64 {
        self.inner.lock().added
    }

    /// The blob of each of these hashes.
    pub(crate) fn blobs(&self, node: &Node, hashes: &[B256]) -> Result<Vec<FoundBlob>, RpcError> {
        let mut found = vec![None; hashes.len()];
        self.each(node, None, |own, _| {
            let sidecar: Option<&BlobTransactionSidecarVariant> = own.sidecar.as_ref();
            let Some(sidecar) = sidecar else {
                return;
            };
            for (index, hash) in sidecar.versioned_hashes().enumerate() {
                for (at, _) in hashes
                    .iter()
                    .enumerate()
                    .filter(|(_, asked)| **asked == hash)
                {
                    found[at] = Some((Arc::clone(own), index));
                }
            }
        })?;
        Ok(found)
    }

    /// How many transactions ever became executable, with news of it. Those of a new head do so when the pool is asked the next
    /// time.
    pub(crate) fn announced(&self) -> watch::Receiver<u64> {
        self.announced.lock().count()
    }

    /// Those that became executable after the first `seen`; `None` if some of them are not remembered any more.
    pub(crate) fn announced_since(&self, seen: u64) -> Option<Vec<Announcement>> {
        self.announced.lock().since(seen)
    }

    fn with<T>(
        &self,
        node: &Node,
        act: impl FnOnce(&mut Inner) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let mut inner = self.inner.lock();
        let followed = inner.follow(node, &self.limits);
        let result = followed.and_then(|()| act(&mut inner));
        self.shown.transactions.set(inner.waiting.len() as u64);
        self.shown.bytes.set(inner.waiting.bytes() as u64);
        self.shown.added.set(inner.added);
        let new = std::mem::take(&mut inner.executable);
        // Under the lock of the pool: announced in the order in which they became executable.
        self.announced.lock().add(new);
        result
    }
}

impl MetricsHost for Pool {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.gauges([
            (
                "pool_transactions",
                "Transactions that wait for a block, as of when the pool was asked last.",
                self.shown.transactions.get(),
            ),
            ("pool_bytes", "Bytes of these.", self.shown.bytes.get()),
        ]);
        metrics.counters([
            (
                "pool_transactions_added",
                "Transactions that were added.",
                self.shown.added.get(),
            ),
            (
                "pool_transactions_refused",
                "Transactions that were sent and refused.",
                self.shown.refused.get(),
            ),
        ]);
    }
}

impl Inner {
    fn add(
        &mut self,
        state: &StateAt,
        new: PooledTransaction,
        limits: &PoolLimits,
    ) -> Result<(), RpcError> {
        if let Some((_, rules)) = &self.at {
            rules.check(&new, limits)?;
        }
        let account = state.account_at(new.sender)?.unwrap_or_default();
        if has_foreign_code(state, &account)? {
            return Err(RpcError::server(format!(
                "sender not an eoa: address {} has code",
                new.sender
            )));
        }
        let sender = new.sender;
        let before = self.pending_of(sender);
        self.waiting.insert(new, account, limits)?;
        self.added += 1;
        self.note_executable(sender, &before);
        Ok(())
    }

    /// The hashes of the transactions of a sender that can be executed.
    fn pending_of(&self, sender: Address) -> Vec<B256> {
        let sender = self.waiting.senders.get(&sender);
        let pending = sender.into_iter().flat_map(Sender::pending);
        pending.map(|own| own.hash()).collect()
    }

    /// Notes the transactions of a sender that can be executed and are not among those that could `before`.
    fn note_executable(&mut self, sender: Address, before: &[B256]) {
        let sender = self.waiting.senders.get(&sender);
        let pending = sender.into_iter().flat_map(Sender::pending);
        let new = pending.filter(|own| !before.contains(&own.hash()));
        self.executable.extend(new.map(Announcement::of));
    }

    /// Goes to the head. Transactions of blocks that left the chain come back, but for those with blobs.
    fn follow(&mut self, node: &Node, limits: &PoolLimits) -> Result<(), RpcError> {
        let head = node.head();
        let before = self.at.as_ref().map(|(at, _)| *at);
        if before == Some(head) {
            return Ok(());
        }
        let rules = NextRules::of(node)?;
        let state = node.state_at(BlockRef::Hash(head.hash))?;
        let senders: Vec<_> = self.waiting.senders.keys().copied().collect();
        for address in senders {
            let account = state.account_at(address)?.unwrap_or_default();
            let before = self.pending_of(address);
            self.waiting.update(address, account, limits);
            self.note_executable(address, &before);
        }
        self.at = Some((head, rules));
        for own in reverted(node, before) {
            // It may be in the new chain as well, or be invalid there.
            if let Ok(own) = PooledTransaction::new(own, None) {
                let _ = self.add(&state, own, limits);
            }
        }
        Ok(())
    }
}

/// Code that is not a delegation (EIP-3607, EIP-7702).
fn has_foreign_code(state: &StateAt, account: &Account) -> Result<bool, RpcError> {
    if account.code_hash == KECCAK_EMPTY {
        return Ok(false);
    }
    let code = state.code(&account.code_hash)?;
    Ok(!code.is_empty() && !code.starts_with(&EIP7702_DELEGATION_DESIGNATOR))
}

/// The transactions of blocks that left the chain, as far as they can be read.
fn reverted(node: &Node, from: Option<BlockId>) -> Vec<Transaction> {
    let mut all = Vec::new();
    let (Some(mut at), Ok(chain)) = (from, node.chain()) else {
        return all;
    };
    for _ in 0..REVERTED_MAX {
        if node.db().is_canonical(at).unwrap_or(true) {
            break;
        }
        let Ok(Some((block, _))) = chain.block_of(at) else {
            break;
        };
        at = chain.parent_of(&block.header);
        all.extend(block.body.transactions.into_iter().rev());
    }
    // By their nonces, the lowest first.
    all.reverse();
    all.retain(|own| !own.is_eip4844());
    all
}
