//! The outcome of a block from the versions of all keys and the results of all transactions, in
//! jobs for many threads.
//!
//! ```text
//!   first   keys       last values of some shards, hashed, by ranges of paths
//!           receipts   of some transactions
//!   second  changes    of the accounts in a range of paths
//!           accesses   to the accounts of some shards, if they are recorded
//! ```

use super::{
    run::Run,
    schedule::Schedule,
    sync::{AtomicUsize, Mutex, Ordering, lock},
    versions::{SHARDS, Versions, account_shard},
};
use crate::{
    BlockInput, Receipt,
    access_list::{AccessListBuilder, SomeAccesses, StepAccesses, list_of},
    account::account,
    overlay::{EntryChange, OverlayMode},
    results::receipts,
};
use alloy_primitives::{
    Address, B256, Bytes, U256,
    map::{AddressMap, B256Map},
};
use cambium_keccak::keccak256_each;
use cambium_primitives::{AccessList, AccountChanges, AccountDiff, AccountUpdate, Changes};
use std::sync::OnceLock;

type ChangesAndCodes = (Changes, Vec<(B256, Bytes)>);

/// Number of transactions in a job.
const TRANSACTIONS: usize = 64;
/// Most jobs of keys.
const PARTS_MAX: usize = 64;

pub(super) struct Finish<'a> {
    input: &'a BlockInput<'a>,
    versions: &'a Versions,
    schedule: &'a Schedule<Run>,
    mode: OverlayMode,
    parts: usize,
    first: Phase,
    second: Phase,
    given: OnceLock<Given>,
    /// Values by the range of their paths.
    keys: Box<[Mutex<Vec<Keys>>]>,
    receipts: Box<[Mutex<Vec<Receipt>>]>,
    /// Accesses to the accounts of each part.
    steps: Box<[Mutex<Vec<Portion>>]>,
    codes: Mutex<B256Map<Bytes>>,
    changes: Box<[Mutex<Vec<AccountDiff>>]>,
    accesses: Box<[Mutex<Vec<AccountChanges>>]>,
}

/// Accesses of consecutive steps.
struct Portion {
    first: usize,
    accesses: SomeAccesses,
}

/// What is known when all transactions are committed.
pub(super) struct Given {
    /// Gas that each transaction and those before it have used after refunds.
    pub(super) gas_used: Vec<u64>,
    /// The beneficiary's balance after each step that changed it. `None` if only steps that are
    /// recorded as a whole accessed it.
    pub(super) balances: Option<Vec<(u64, U256)>>,
}

/// Jobs that are claimed in any order. None can be claimed before it is opened.
#[derive(Default)]
struct Phase {
    count: AtomicUsize,
    next: AtomicUsize,
    done: AtomicUsize,
}

/// Changed accounts and slots in a range of paths.
#[derive(Default)]
struct Keys {
    accounts: Vec<(B256, EntryChange)>,
    slots: Vec<(B256, B256, U256)>,
}

/// A job, by its number in the phase.
#[derive(Clone, Copy)]
pub(super) enum Job {
    First(usize),
    Second(usize),
}

impl<'a> Finish<'a> {
    pub(super) fn new(
        input: &'a BlockInput<'a>,
        versions: &'a Versions,
        schedule: &'a Schedule<Run>,
    ) -> Self {
        let count = input.transactions.len();
        let parts = count.div_ceil(TRANSACTIONS).next_power_of_two();
        let parts = parts.min(PARTS_MAX);
        let record = input.rules.block_access_list;
        let access_parts = if record { parts } else { 0 };
        Self {
            input,
            versions,
            schedule,
            mode: OverlayMode::of(&input.rules),
            parts,
            first: Phase::default(),
            second: Phase::default(),
            given: OnceLock::new(),
            keys: (0..parts).map(|_| Mutex::default()).collect(),
            receipts: (0..count.div_ceil(TRANSACTIONS))
                .map(|_| Mutex::default())
                .collect(),
            steps: (0..access_parts).map(|_| Mutex::default()).collect(),
            codes: Mutex::default(),
            changes: (0..parts).map(|_| Mutex::default()).collect(),
            accesses: (0..access_parts).map(|_| Mutex::default()).collect(),
        }
    }

    /// Adds the accesses of a step, if they are recorded.
    pub(super) fn add_accesses(&self, step: usize, accesses: Option<StepAccesses>) {
        self.add_all_accesses(step, accesses.map(|accesses| (step, accesses)));
    }

    /// Adds the accesses of consecutive steps from `first` on.
    fn add_all_accesses(
        &self,
        first: usize,
        steps: impl IntoIterator<Item = (usize, StepAccesses)>,
    ) {
        if self.steps.is_empty() {
            return;
        }
        let part_of = |address: &Address| account_shard(address) * self.parts / SHARDS;
        let mut parts: Vec<_> = self.steps.iter().map(|_| SomeAccesses::default()).collect();
        for (step, accesses) in steps {
            accesses.divide(step as u64, part_of, &mut parts);
        }
        let all = self.steps.iter().zip(parts);
        for (all, accesses) in all.filter(|(_, accesses)| !accesses.is_empty()) {
            lock(all).push(Portion { first, accesses });
        }
    }

    pub(super) fn add_codes(&self, codes: impl IntoIterator<Item = (B256, Bytes)>) {
        lock(&self.codes).extend(codes);
    }

    /// Opens the first jobs. Returns their number.
    pub(super) fn open_first(&self, given: Given) -> usize {
        let _ = self.given.set(given);
        self.first.open(self.parts + self.receipts.len())
    }

    /// Opens the second jobs. Returns their number.
    pub(super) fn open_second(&self) -> usize {
        self.second.open(self.parts + self.accesses.len())
    }

    pub(super) fn has_job(&self) -> bool {
        self.first.has_job() || self.second.has_job()
    }

    pub(super) fn is_first_done(&self) -> bool {
        self.first.is_done()
    }

    pub(super) fn is_second_done(&self) -> bool {
        self.second.is_done()
    }

    pub(super) fn claim(&self) -> Option<Job> {
        let first = self.first.claim().map(Job::First);
        first.or_else(|| self.second.claim().map(Job::Second))
    }

    /// Does a job. Returns whether it was the last one of its phase.
    pub(super) fn run(&self, job: Job) -> bool {
        match job {
            Job::First(part) => {
                match part.checked_sub(self.parts) {
                    None => self.hash_keys(part),
                    Some(chunk) => self.make_receipts(chunk),
                }
                self.first.finished()
            }
            Job::Second(part) => {
                let is_recorded = self.input.rules.block_access_list;
                match part.checked_sub(self.parts) {
                    None => *lock(&self.changes[part]) = self.changes_of(part),
                    Some(part) => *lock(&self.accesses[part]) = self.accesses_of(part),
                }
                // Freed here, by many threads.
                if !is_recorded || part >= self.parts {
                    for shard in self.shards(part % self.parts) {
                        let accounts = std::mem::take(&mut self.versions.shard(shard).accounts);
                        drop(accounts);
                    }
                }
                self.second.finished()
            }
        }
    }

    /// The shards of a part.
    fn shards(&self, part: usize) -> std::ops::Range<usize> {
        let shards = SHARDS / self.parts;
        part * shards..(part + 1) * shards
    }

    fn hash_keys(&self, part: usize) {
        let mut accounts = Vec::new();
        let mut slots = Vec::new();
        for shard in self.shards(part) {
            let of_shard = {
                let mut cells = self.versions.shard(shard);
                for (address, cell) in &mut cells.accounts {
                    let (now, wiped) = cell.last();
                    let before = cell.parent.as_ref().map(account);
                    let wipes = self.mode.wipes;
                    let change = EntryChange::of_fields(before, now, wiped.is_some(), wipes);
                    let change = change.filter(EntryChange::is_change);
                    accounts.extend(change.map(|change| (*address, change)));
                }
                std::mem::take(&mut cells.slots)
            };
            // Other shards are locked here.
            for ((address, slot), cell) in of_shard {
                let wiped = self.versions.wiped(address, usize::MAX);
                let (before, now) = cell.change(wiped);
                let is_changed = match wiped {
                    None => now != before,
                    Some(_) => !now.is_zero() && self.versions.exists(address),
                };
                if is_changed {
                    slots.push((address, slot, now));
                }
            }
        }
        let mut of_slots = AddressMap::<usize>::default();
        let mut addresses: Vec<_> = accounts.iter().map(|(address, _)| *address).collect();
        for (address, ..) in &slots {
            of_slots.entry(*address).or_insert_with(|| {
                addresses.push(*address);
                addresses.len() - 1
            });
        }
        let paths = keccak256_each(&addresses);
        let hashed = keccak256_each(slots.iter().map(|(_, slot, _)| slot.to_be_bytes::<32>()));
        let mut ranges: Vec<_> = (0..self.parts).map(|_| Keys::default()).collect();
        for ((_, change), path) in accounts.into_iter().zip(&paths) {
            ranges[self.range(path)].accounts.push((*path, change));
        }
        for ((address, _, value), slot) in slots.into_iter().zip(hashed) {
            let path = paths[of_slots[&address]];
            ranges[self.range(&path)].slots.push((path, slot, value));
        }
        for (keys, range) in self.keys.iter().zip(ranges) {
            if !range.accounts.is_empty() || !range.slots.is_empty() {
                lock(keys).push(range);
            }
        }
    }

    /// The range that a path is in. Ranges are in the order of paths.
    fn range(&self, path: &B256) -> usize {
        usize::from(path[0]) * self.parts / 256
    }

    fn make_receipts(&self, chunk: usize) {
        let Some(given) = self.given.get() else {
            return;
        };
        let first = chunk * TRANSACTIONS;
        let count = self.input.transactions.len();
        let mut results = Vec::with_capacity(TRANSACTIONS);
        let mut accesses = Vec::new();
        for index in first..(first + TRANSACTIONS).min(count) {
            let Some(run) = self.schedule.result(index) else {
                return;
            };
            results.push((run.result, B256::ZERO));
            self.versions.forget(index + 1);
            accesses.extend(run.accesses.map(|accesses| (index + 1, accesses)));
            if !run.codes.is_empty() {
                let codes = run.codes.into_iter();
                self.add_codes(codes.map(|(hash, code)| (hash, code.original_bytes())));
            }
        }
        self.add_all_accesses(first + 1, accesses);
        let gas_before = first.checked_sub(1).map_or(0, |last| given.gas_used[last]);
        let made = receipts(self.input, first, gas_before, results);
        *lock(&self.receipts[chunk]) = made.collect();
    }

    fn changes_of(&self, range: usize) -> Vec<AccountDiff> {
        let found = std::mem::take(&mut *lock(&self.keys[range]));
        let mut diffs = B256Map::<AccountDiff>::default();
        let mut slots = Vec::new();
        for Keys {
            accounts,
            slots: some,
        } in found
        {
            for (path, change) in accounts {
                let diff = AccountDiff {
                    path,
                    account: change.account,
                    wipe: change.wipe,
                    slots: Vec::new(),
                };
                diffs.insert(path, diff);
            }
            slots.push(some);
        }
        for (path, slot, value) in slots.into_iter().flatten() {
            let diff = diffs.entry(path).or_insert_with(|| AccountDiff {
                path,
                account: AccountUpdate::Keep,
                wipe: false,
                slots: Vec::new(),
            });
            diff.slots.push((slot, value));
        }
        let mut diffs: Vec<_> = diffs.into_values().collect();
        diffs.sort_unstable_by_key(|diff| diff.path);
        for diff in &mut diffs {
            diff.slots.sort_unstable_by_key(|(slot, _)| *slot);
        }
        diffs
    }

    fn accesses_of(&self, part: usize) -> Vec<AccountChanges> {
        let shards = self.shards(part);
        let is_wanted = |address: &Address| shards.contains(&account_shard(address));
        let mut builder = AccessListBuilder::default();
        let mut portions = std::mem::take(&mut *lock(&self.steps[part]));
        portions.sort_unstable_by_key(|portion| portion.first);
        for portion in &portions {
            builder.add_some(&portion.accesses);
        }
        let beneficiary = self.input.header.beneficiary;
        for shard in shards.clone() {
            for (address, cell) in &mut self.versions.shard(shard).accounts {
                let balances = cell.added_balances();
                if !balances.is_empty() && *address != beneficiary {
                    let balances = balances.into_iter();
                    builder.add_balances(*address, balances.map(|(step, it)| (step as u64, it)));
                }
            }
        }
        let given = self.given.get().and_then(|given| given.balances.as_ref());
        if let Some(balances) = given.filter(|_| is_wanted(&beneficiary)) {
            builder.add_balances(beneficiary, balances.iter().copied());
        }
        builder.finish_some()
    }

    /// The receipts, after the first jobs.
    pub(super) fn take_receipts(&self) -> Vec<Receipt> {
        let mut all = Vec::with_capacity(self.input.transactions.len());
        for some in &self.receipts {
            all.append(&mut lock(some));
        }
        all
    }

    /// The changes with the codes, and the access list if it is recorded, after the second jobs.
    pub(super) fn take_changes(&self) -> (ChangesAndCodes, Option<AccessList>) {
        let mut diffs = Vec::new();
        for some in &self.changes {
            diffs.append(&mut lock(some));
        }
        let codes = std::mem::take(&mut *lock(&self.codes));
        let mut codes: Vec<_> = codes.into_iter().collect();
        codes.sort_unstable_by_key(|(hash, _)| *hash);
        let list = self.input.rules.block_access_list.then(|| {
            let mut accounts = Vec::new();
            for some in &self.accesses {
                accounts.append(&mut lock(some));
            }
            accounts.sort_unstable_by_key(|account| account.address);
            list_of(accounts, self.input.transactions.len() as u64 + 2)
        });
        ((Changes::new(diffs), codes), list)
    }
}

impl Phase {
    fn open(&self, count: usize) -> usize {
        self.count.store(count, Ordering::SeqCst);
        count
    }

    fn has_job(&self) -> bool {
        self.next.load(Ordering::SeqCst) < self.count.load(Ordering::SeqCst)
    }

    fn claim(&self) -> Option<usize> {
        let count = self.count.load(Ordering::SeqCst);
        let next = |next: usize| (next < count).then_some(next + 1);
        let claimed = self
            .next
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        claimed.ok()
    }

    fn finished(&self) -> bool {
        self.done.fetch_add(1, Ordering::SeqCst) + 1 == self.count.load(Ordering::SeqCst)
    }

    fn is_done(&self) -> bool {
        let count = self.count.load(Ordering::SeqCst);
        count > 0 && self.done.load(Ordering::SeqCst) == count
    }
}
