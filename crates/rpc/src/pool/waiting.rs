//! What waits, by sender and nonce.

use super::{limits::PoolLimits, transaction::PooledTransaction};
use crate::error::RpcError;
use alloy_consensus::Transaction as _;
use alloy_primitives::{Address, B256, U256};
use cambium_primitives::Account;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    sync::Arc,
};

/// The transactions of a sender, and its account after the head.
#[derive(Default)]
pub(super) struct Sender {
    pub(super) account: Account,
    pub(super) transactions: BTreeMap<u64, Arc<PooledTransaction>>,
}

impl Sender {
    /// Those that can be executed one after another.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Arc<PooledTransaction>> {
        let nonces = self.account.nonce..;
        let both = nonces.zip(self.transactions.values());
        both.take_while(|(nonce, own)| *nonce == own.nonce())
            .map(|(_, own)| own)
    }

    fn last_fee(&self) -> u128 {
        let last = self.transactions.values().next_back();
        last.map_or(0, |own| own.transaction.max_fee_per_gas())
    }
}

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) senders: BTreeMap<Address, Sender>,
    by_hash: HashMap<B256, (Address, u64)>,
    bytes: usize,
}

impl Waiting {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Bytes of all that wait, with their sidecars.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, hash: &B256) -> Option<&Arc<PooledTransaction>> {
        let (sender, nonce) = self.by_hash.get(hash)?;
        self.senders.get(sender)?.transactions.get(nonce)
    }

    /// Adds a transaction that is valid by the rules, of a sender with this account.
    pub(super) fn insert(
        &mut self,
        new: PooledTransaction,
        account: Account,
        limits: &PoolLimits,
    ) -> Result<(), RpcError> {
        let (nonce, address) = (new.nonce(), new.sender);
        if self.by_hash.contains_key(&new.hash()) {
            return Err(RpcError::server("already known"));
        }
        if nonce < account.nonce {
            return Err(RpcError::server(format!(
                "nonce too low: next nonce {}, tx nonce {nonce}",
                account.nonce
            )));
        }
        let none = BTreeMap::new();
        let own = self.senders.get(&address);
        let own = own.map_or(&none, |sender| &sender.transactions);
        let replaced = own.get(&nonce);
        if let Some(old) = replaced
            && !new.outbids(old, limits.replacement_percent)
        {
            return Err(RpcError::server("replacement transaction underpriced"));
        }
        if replaced.is_none() && own.len() >= limits.of_sender {
            return Err(RpcError::server(format!(
                "account limit exceeded: {} transactions of this sender wait",
                own.len()
            )));
        }
        let others = own.values().filter(|other| other.nonce() != nonce);
        let others = others.fold(U256::ZERO, |sum, other| sum.saturating_add(other.cost()));
        let wanted = others.saturating_add(new.cost());
        if wanted > account.balance {
            return Err(RpcError::server(format!(
                "insufficient funds for gas * price + value: balance {}, all that waits costs {wanted}",
                account.balance
            )));
        }
        let freed = replaced.map_or(0, |old| old.bytes);
        let adds_one = usize::from(replaced.is_none());
        while self.by_hash.len() + adds_one > limits.transactions
            || self.bytes - freed + new.bytes > limits.bytes
        {
            self.make_room(&new)?;
        }
        self.remove(address, nonce);
        self.bytes += new.bytes;
        self.by_hash.insert(new.hash(), (address, nonce));
        let sender = self.senders.entry(address).or_default();
        sender.account = account;
        sender.transactions.insert(nonce, Arc::new(new));
        Ok(())
    }

    /// Drops the last transaction of the sender whose last one pays least, if it pays less than a new one.
    fn make_room(&mut self, new: &PooledTransaction) -> Result<(), RpcError> {
        let others = self.senders.iter();
        let others = others.filter(|(address, _)| **address != new.sender);
        let least = others.min_by_key(|(_, sender)| sender.last_fee());
        let victim = least
            .filter(|(_, sender)| sender.last_fee() < new.transaction.max_fee_per_gas())
            .and_then(|(address, sender)| {
                Some((*address, *sender.transactions.keys().next_back()?))
            });
        let Some((address, nonce)) = victim else {
            return Err(RpcError::server(
                "txpool is full: raise the fee, or try again later",
            ));
        };
        self.remove(address, nonce);
        Ok(())
    }

    pub(super) fn remove(&mut self, address: Address, nonce: u64) {
        let Some(sender) = self.senders.get_mut(&address) else {
            return;
        };
        if let Some(old) = sender.transactions.remove(&nonce) {
            self.by_hash.remove(&old.hash());
            self.bytes -= old.bytes;
        }
        if sender.transactions.is_empty() {
            self.senders.remove(&address);
        }
    }

    /// Takes over what became of a sender's account. What a block has, what is not paid for any more, and what has
    /// waited too long is dropped.
    pub(super) fn update(&mut self, address: Address, account: Account, limits: &PoolLimits) {
        let Some(sender) = self.senders.get_mut(&address) else {
            return;
        };
        sender.account = account;
        let mut left = account.balance;
        let mut gone = Vec::new();
        for (nonce, own) in &sender.transactions {
            let paid = left.checked_sub(own.cost());
            if *nonce < account.nonce || own.since.elapsed() > limits.lifetime || paid.is_none() {
                gone.push(*nonce);
            } else {
                left = paid.unwrap_or_default();
            }
        }
        for nonce in gone {
            self.remove(address, nonce);
        }
    }

    /// Those that can be executed at these fees, in wei: those of a sender by their nonces, and the best tip first.
    pub(super) fn best(&self, base_fee: u64, blob_fee: u128) -> Vec<Arc<PooledTransaction>> {
        let tip = |own: &PooledTransaction| {
            let own = &own.transaction;
            let pays = own
                .max_fee_per_blob_gas()
                .is_none_or(|most| most >= blob_fee);
            own.effective_tip_per_gas(base_fee).filter(|_| pays)
        };
        let mut heap = BinaryHeap::new();
        let mut runs: Vec<_> = self.senders.values().map(Sender::pending).collect();
        let mut next = Vec::with_capacity(runs.len());
        for (index, run) in runs.iter_mut().enumerate() {
            let first = run.next();
            if let Some(tip) = first.and_then(|own| tip(own)) {
                heap.push((tip, Reverse(index)));
            }
            next.push(first);
        }
        let mut best = Vec::new();
        while let Some((_, Reverse(index))) = heap.pop() {
            best.extend(next[index].cloned());
            next[index] = runs[index].next();
            if let Some(tip) = next[index].and_then(|own| tip(own)) {
                heap.push((tip, Reverse(index)));
            }
        }
        best
    }
}
