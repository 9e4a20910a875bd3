//! The workload of NOMT's own benchmark: transfers between random accounts.
//!
//! A batch has 25,000 transfers. The sender is an account of the first state. The receiver is
//! another one or, in every fourth transfer, a new account. All 50,000 accounts are read, change
//! their balance or nonce, and are written. Batch `n` depends only on the seed and `n`, so every
//! store gets the same keys in the same order in any number of runs.
//!
//! Accounts of the first state are chosen uniformly, as in that benchmark, or by Zipf's law, as they are on real chains.

use alloy_primitives::{B256, U256};
use cambium_keccak::{Batch as Keccak, keccak256};
use cambium_primitives::Account;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::Range};
use xxhash_rust::xxh3::xxh3_64;

/// One in this many transfers goes to a new account.
const FRESH_EVERY: usize = 4;

/// The keys of a run, and those that each batch touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workload {
    /// Seed of all keys and choices.
    pub(crate) seed: u64,
    /// Number of accounts in the first state.
    pub(crate) accounts: u64,
    /// Number of transfers per batch.
    pub(crate) transfers: usize,
    pub(crate) spread: Spread,
}

/// How the accounts of the first state are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Spread {
    /// Each account is as likely as any other, as in NOMT's benchmark.
    #[default]
    Uniform,
    /// Number n is about 1/n times as likely as the first, to within a factor of two.
    Zipf,
}

impl Workload {
    /// Returns the key of an account: a hash of its index.
    pub(crate) fn key(&self, index: u64) -> B256 {
        keccak256(&self.preimage(index))
    }

    fn preimage(&self, index: u64) -> [u8; 16] {
        let mut preimage = [0; 16];
        preimage[..8].copy_from_slice(&self.seed.to_be_bytes());
        preimage[8..].copy_from_slice(&index.to_be_bytes());
        preimage
    }

    /// Returns the keys of some accounts, hashed together.
    pub(crate) fn keys(&self, indices: Range<u64>) -> Vec<B256> {
        let mut keccak = Keccak::new();
        for index in indices {
            keccak.push(&self.preimage(index));
        }
        keccak.run().to_vec()
    }

    /// Returns the account at `key` in the first state. Balances differ, so that no store can
    /// compress them.
    pub(crate) fn first_state(key: &B256) -> Account {
        let mut low = [0; 8];
        low[4..].copy_from_slice(&key[28..]);
        Account {
            balance: U256::from(1_000_000_000_000_000_000 + u64::from_be_bytes(low)),
            ..Account::default()
        }
    }

    /// Returns the number of new accounts in a batch.
    pub(crate) const fn fresh(&self) -> u64 {
        (self.transfers / FRESH_EVERY) as u64
    }

    /// Returns a batch by its number, from 0.
    pub(crate) fn batch(&self, number: u64) -> Batch {
        let mut random = SplitMix(
            self.seed
                .wrapping_add(number.wrapping_mul(0xd134_2543_de82_ef95)),
        );
        // Never an account of the first state, nor of a batch of another size.
        let mut fresh = ((self.transfers as u64) << 40) + number * self.fresh();
        let mut places: HashMap<u64, u32> = HashMap::with_capacity(2 * self.transfers);
        let mut indices = Vec::with_capacity(2 * self.transfers);
        let mut place = |index| {
            *places.entry(index).or_insert_with(|| {
                indices.push(index);
                indices.len() as u32 - 1
            })
        };
        let transfers = (0..self.transfers).map(|at| {
            let sender = random.choose(self.accounts, self.spread);
            let receiver = if at % FRESH_EVERY == FRESH_EVERY - 1 {
                fresh += 1;
                fresh
            } else {
                let other = random.choose(self.accounts - 1, self.spread);
                other + u64::from(other >= sender)
            };
            (place(sender), place(receiver))
        });
        let transfers = transfers.collect();
        let keys = indices.iter().map(|index| self.key(*index)).collect();
        Batch {
            number,
            keys,
            transfers,
        }
    }
}

/// A batch of transfers, with the keys that they touch.
pub(crate) struct Batch {
    pub(crate) number: u64,
    /// Unique keys, in the order in which execution first touches them.
    pub(crate) keys: Vec<B256>,
    /// Sender and receiver of each transfer, as indices into `keys`.
    transfers: Vec<(u32, u32)>,
}

impl Batch {
    pub(crate) const fn transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Executes the batch. Returns the new account of each of `keys`.
    pub(crate) fn execute(&self, values: &[Option<Account>]) -> Result<Vec<Account>, String> {
        let mut accounts: Vec<_> = values
            .iter()
            .map(|value| value.unwrap_or_default())
            .collect();
        for (sender, receiver) in &self.transfers {
            let (sender, receiver) = (*sender as usize, *receiver as usize);
            let amount = U256::from(1_000_000_007);
            let balance = accounts[sender].balance.checked_sub(amount);
            accounts[sender].balance = balance.ok_or_else(|| {
                format!(
                    "the account {} has no balance: the store lost it",
                    self.keys[sender]
                )
            })?;
            accounts[sender].nonce += 1;
            accounts[receiver].balance += amount;
        }
        Ok(accounts)
    }
}

/// Returns a digest of the values that a batch read, for comparing stores.
pub(crate) fn digest(keys: &[B256], values: &[Option<Account>]) -> u64 {
    let mut bytes = Vec::with_capacity(48 * keys.len());
    for (key, value) in keys.iter().zip(values) {
        bytes.extend_from_slice(key.as_slice());
        bytes.push(u8::from(value.is_some()));
        if let Some(account) = value {
            account.encode_to(&mut bytes);
        }
    }
    xxh3_64(&bytes)
}

/// The SplitMix64 generator (Steele, Lea, Flood 2014).
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end` by a distribution.
    fn choose(&mut self, end: u64, spread: Spread) -> u64 {
        match spread {
            Spread::Uniform => self.below(end),
            // Each run [2^k - 1, 2^(k+1) - 1) is as likely as any other, as by Zipf's law.
            Spread::Zipf => {
                let start = (1 << self.below(u64::from(end.ilog2()) + 1)) - 1;
                start + self.below((2 * start + 1).min(end) - start)
            }
        }
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const WORKLOAD: Workload = Workload {
        seed: 7,
        accounts: 10_000,
        transfers: 1_000,
        spread: Spread::Uniform,
    };

    #[test]
    fn a_batch_follows_from_its_number_alone() {
        let (first, again) = (WORKLOAD.batch(3), WORKLOAD.batch(3));
        assert_eq!(first.keys, again.keys);
        assert_eq!(first.transfers, again.transfers);
        assert_ne!(first.keys, WORKLOAD.batch(4).keys);
    }

    #[test]
    fn a_quarter_of_the_receivers_is_fresh_in_every_batch() {
        let mut known: HashSet<_> = WORKLOAD.keys(0..WORKLOAD.accounts).into_iter().collect();
        assert_eq!(known.len() as u64, WORKLOAD.accounts);
        for number in 0..5 {
            let batch = WORKLOAD.batch(number);
            assert_eq!(batch.transfers(), 1_000);
            let fresh = batch.keys.iter().filter(|key| known.insert(**key)).count();
            assert_eq!(fresh, 250);
        }
    }

    #[test]
    fn by_zipfs_law_half_of_the_choices_are_of_few_accounts_and_all_are_in_reach() {
        let mut random = SplitMix(1);
        let mut hits = vec![0u32; 100];
        for _ in 0..100_000 {
            hits[random.choose(100, Spread::Zipf) as usize] += 1;
        }
        assert!(hits.iter().all(|hits| *hits > 100), "{hits:?}");
        assert!(hits[0] > 20 * hits[99], "{hits:?}");
        let zipf = Workload {
            spread: Spread::Zipf,
            ..WORKLOAD
        };
        let (keys, uniform) = (zipf.batch(0).keys.len(), WORKLOAD.batch(0).keys.len());
        assert!(keys < uniform * 3 / 4, "{keys} of {uniform}");
    }

    #[test]
    fn transfers_keep_the_sum_of_balances() {
        let batch = WORKLOAD.batch(0);
        let old = WORKLOAD.keys(0..WORKLOAD.accounts);
        let values: Vec<_> = batch
            .keys
            .iter()
            .map(|key| old.contains(key).then(|| Workload::first_state(key)))
            .collect();
        let after = batch.execute(&values).unwrap();
        let sum =
            |accounts: &[Account]| accounts.iter().map(|account| account.balance).sum::<U256>();
        let before: Vec<_> = values.iter().flatten().copied().collect();
        assert_eq!(sum(&before), sum(&after));
        let nonces: u64 = after.iter().map(|account| account.nonce).sum();
        assert_eq!(nonces, 1_000);
    }

    #[test]
    fn a_lost_account_is_noticed() {
        let batch = WORKLOAD.batch(0);
        let nothing = vec![None; batch.keys.len()];
        assert!(batch.execute(&nothing).unwrap_err().contains("lost"));
    }
}
