//! A model of a block's threads: transactions that add up slots, on the schedule, the versions and
//! the team of real blocks, under random schedules.

use super::{
    run::Committed,
    schedule::{Job, Ran, Schedule, Take},
    sync::{AtomicBool, Mutex, Ordering, lock, try_lock},
    team::Team,
    versions::{Found, ParentValues, Put, Verdict, Versions},
};
use crate::effects::{AccountRead, Needs, Reads, SlotWrite, Writes};
use alloy_primitives::{Address, U256};
use revm::state::AccountInfo;
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};
use std::{convert::Infallible, sync::Arc};

/// A transaction adds the slots that it reads, and one, and writes the sum to a slot.
#[derive(Clone, Copy)]
struct Transaction {
    reads: [u64; 2],
    writes: u64,
    /// Whether it only runs at its commit position.
    in_order: bool,
    gas_limit: u64,
}

const ACCOUNT: Address = Address::repeat_byte(7);

struct Parent;

impl ParentValues for Parent {
    type Error = Infallible;

    fn account(&self, _: Address) -> Result<Option<AccountInfo>, Infallible> {
        Ok(Some(AccountInfo::default()))
    }

    fn slot(&self, _: Address, slot: U256) -> Result<U256, Infallible> {
        Ok(slot * U256::from(1000))
    }
}

/// Number of a team's threads, and of the processors that it takes the machine to have.
#[derive(Clone, Copy)]
struct Threads {
    all: usize,
    processors: usize,
}

const THREE: Threads = Threads {
    all: 3,
    processors: usize::MAX,
};

struct Model {
    transactions: Vec<Transaction>,
    versions: Versions,
    schedule: Schedule<Reads>,
    team: Team,
    committed: Mutex<Committed>,
}

impl Model {
    fn new(transactions: &[Transaction], threads: Threads) -> Self {
        let after = transactions.iter().enumerate().map(|(index, transaction)| {
            let same = |other: &Transaction| other.writes == transaction.writes;
            // Some dependencies are known, right or wrong.
            let before = transactions[..index].iter().rposition(same);
            let before = before.filter(|before| (index + before) % 3 == 0);
            // Some are in groups.
            (transaction.gas_limit, before)
        });
        Self {
            transactions: transactions.to_vec(),
            versions: Versions::new(transactions.len() + 3),
            // As for one thread, so that groups are not of one.
            schedule: Schedule::new(after, vec![2], 1),
            team: Team::on(threads.processors, threads.all),
            committed: Mutex::new(Committed::default()),
        }
    }

    /// The reads and writes of a transaction, or the step that it has to wait for.
    fn run(&self, thread: usize, index: usize) -> Result<(Reads, Writes), (usize, U256)> {
        let Transaction { reads, writes, .. } = self.transactions[index];
        let mut sum = U256::from(1);
        let mut seen: Vec<(U256, U256)> = Vec::new();
        for slot in [reads[0], reads[1], writes].map(U256::from) {
            if seen.iter().any(|(known, _)| *known == slot) {
                continue;
            }
            let value = match self.versions.slot(ACCOUNT, slot, index + 1) {
                Found::Parent | Found::Unread => {
                    let reading = self.team.reading(thread);
                    let read = || Parent.slot(ACCOUNT, slot).unwrap_or_default();
                    reading.read(read)
                }
                Found::Value(value) => value,
                Found::WaitFor(step) => return Err((step - 1, slot)),
            };
            seen.push((slot, value));
            if slot != U256::from(writes) || reads.contains(&writes) {
                sum += value;
            }
        }
        let before = seen.iter().find(|(slot, _)| *slot == U256::from(writes));
        let write = SlotWrite {
            address: ACCOUNT,
            slot: U256::from(writes),
            before: before.map_or(U256::ZERO, |(_, value)| *value),
            now: sum,
            created: false,
        };
        let account = AccountRead {
            address: ACCOUNT,
            found: Some(Default::default()),
            is_guess: false,
            needs: Needs::Balance(U256::ZERO),
            slot_count: seen.len(),
        };
        let reads = Reads {
            accounts: vec![account],
            slots: seen,
        };
        let writes = Writes {
            slots: vec![write],
            ..Writes::default()
        };
        Ok((reads, writes))
    }

    fn put(&self, index: usize, writes: Writes) -> Put {
        let put = self.versions.put(index + 1, writes, &Parent);
        put.unwrap_or_else(|never| match never {})
    }

    fn work(self: &Arc<Self>, thread: usize) {
        loop {
            self.commit(thread);
            if !self.team.is_crowded()
                && let Some(job) = self.schedule.claim()
            {
                if self.schedule.has_job() {
                    self.call();
                }
                match job {
                    Job::Run(group) => {
                        let members = group.members();
                        members
                            .filter(|index| self.schedule.is_running(*index))
                            .for_each(|index| self.ahead(thread, index));
                    }
                    Job::Validate(range) => range.for_each(|index| self.validate(index)),
                }
                continue;
            }
            if self.schedule.is_over() {
                return;
            }
            self.team
                .rest(|| self.schedule.has_job(), || self.schedule.is_over());
        }
    }

    fn call(self: &Arc<Self>) {
        self.team.call(|thread| {
            let model = self.clone();
            thread::spawn(move || model.work(thread));
        });
    }

    fn ahead(&self, thread: usize, index: usize) {
        if self.transactions[index].in_order {
            self.schedule.hold(index);
            return;
        }
        let (reads, writes) = match self.run(thread, index) {
            Ok(ran) => ran,
            Err((before, slot)) => {
                let expect = || self.versions.expect(index + 1, ACCOUNT, slot);
                return self.schedule.wait_for(index, before, expect);
            }
        };
        let mut put = Put::default();
        let has_result = self.schedule.ran(index, || {
            put = self.put(index, writes);
            if put.is_outdated {
                put.outdated.extend(self.versions.make_estimates(index + 1));
                return None;
            }
            Some(reads)
        });
        let because = put.is_outdated.then_some(index);
        self.outdated(put, because);
        if has_result && self.schedule.is_validatable(index) {
            self.validate(index);
        }
    }

    fn verdict(&self, index: usize, reads: &Reads) -> Verdict {
        self.versions.verdict(index + 1, reads, &Address::ZERO)
    }

    fn validate(&self, index: usize) {
        let is_valid = |reads: &Reads| match self.verdict(index, reads) {
            Verdict::Same => Some(true),
            Verdict::Differs => Some(false),
            Verdict::Unknown => None,
        };
        self.schedule
            .validate(index, is_valid, |index| self.estimate(index));
    }

    fn outdated(&self, put: Put, because: Option<usize>) {
        let transactions = put.outdated.into_iter().map(|step| step - 1).collect();
        self.schedule
            .outdated(transactions, because, |index| self.estimate(index));
    }

    fn estimate(&self, index: usize) -> Vec<usize> {
        let readers = self.versions.make_estimates(index + 1).into_iter();
        readers.map(|step| step - 1).collect()
    }

    fn commit(self: &Arc<Self>, thread: usize) {
        while !self.schedule.is_over() {
            let Some(locked) = try_lock(&self.committed) else {
                return;
            };
            while !self.schedule.is_over()
                && let Some(has_more) = self.commit_next(thread)
            {
                if has_more && self.schedule.has_job() {
                    self.call();
                }
            }
            drop(locked);
            if self.schedule.is_over() {
                self.team.call_all();
            }
            if !self.schedule.is_committable() {
                return;
            }
        }
    }

    fn commit_next(&self, thread: usize) -> Option<bool> {
        let index = self.schedule.position();
        let take = self
            .schedule
            .take(|reads, known| known || self.verdict(index, reads) == Verdict::Same);
        match take {
            Take::Wait => return None,
            Take::Valid => return Some(self.schedule.committed(None, Ran::Well)),
            Take::Run { had_run } => {
                if had_run {
                    self.versions.make_estimates(index + 1);
                }
                let (reads, writes) = self
                    .run(thread, index)
                    .expect("all before it are committed");
                let put = self.put(index, writes);
                let ran = match had_run {
                    true => Ran::InVain { gas: 0 },
                    false => Ran::InOrder,
                };
                self.schedule.committed(Some(reads), ran);
                self.outdated(put, None);
            }
        }
        Some(true)
    }

    /// Values of some slots after all transactions.
    fn last(&self) -> Vec<U256> {
        let slots = (0..SLOTS).map(U256::from);
        let last = slots.map(|slot| match self.versions.slot(ACCOUNT, slot, usize::MAX) {
            Found::Parent | Found::Unread => Parent.slot(ACCOUNT, slot).unwrap_or_default(),
            Found::Value(value) => value,
            Found::WaitFor(step) => panic!("step {step} has not run"),
        });
        last.collect()
    }
}

const SLOTS: u64 = 3;

/// The slots after running the transactions one by one.
fn expected(transactions: &[Transaction]) -> Vec<U256> {
    let mut slots: Vec<_> = (0..SLOTS).map(|slot| U256::from(slot * 1000)).collect();
    for Transaction { reads, writes, .. } in transactions {
        let mut read = reads.to_vec();
        read.dedup();
        let sum: U256 = read.iter().map(|slot| slots[*slot as usize]).sum();
        slots[*writes as usize] = sum + U256::from(1);
    }
    slots
}

/// Runs them in groups, and each alone.
fn runs_in_order(transactions: &[Transaction], threads: Threads) {
    all_run_in_order(transactions, threads);
    let mut long = transactions.to_vec();
    long.iter_mut().for_each(|it| it.gas_limit = u64::MAX);
    all_run_in_order(&long, threads);
}

fn all_run_in_order(transactions: &[Transaction], threads: Threads) {
    let expected = expected(transactions);
    let transactions = transactions.to_vec();
    let model = move || {
        let model = Arc::new(Model::new(&transactions, threads));
        let held = lock(&model.committed);
        model.call();
        drop(held);
        model.work(0);
        assert!(model.schedule.is_over());
        assert_eq!(model.last(), expected);
    };
    let orders = 1500;
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    let model = Arc::new(model);
    let again = model.clone();
    let random = RandomScheduler::new_from_seed(1, orders);
    Runner::new(random, config.clone()).run(move || model());
    let few_changes = PctScheduler::new_from_seed(2, 3, orders);
    Runner::new(few_changes, config).run(move || again());
}

fn transaction(reads: [u64; 2], writes: u64) -> Transaction {
    Transaction {
        reads,
        writes,
        in_order: false,
        gas_limit: 21_000,
    }
}

fn readers_that_write_elsewhere() -> [Transaction; 5] {
    [
        ([0, 0], 1),
        ([1, 1], 2),
        ([2, 0], 0),
        ([1, 0], 1),
        ([0, 2], 2),
    ]
    .map(|(reads, writes)| transaction(reads, writes))
}

#[test]
fn a_chain_of_transactions_is_as_in_sequence() {
    runs_in_order(&[transaction([0, 0], 0); 5], THREE);
}

#[test]
fn readers_that_write_elsewhere_are_as_in_sequence() {
    runs_in_order(&readers_that_write_elsewhere(), THREE);
}

#[test]
fn transactions_that_only_run_in_order_hold_up_none() {
    let mut some = [
        ([0, 0], 0),
        ([1, 1], 1),
        ([0, 1], 1),
        ([2, 2], 0),
        ([0, 1], 2),
    ]
    .map(|(reads, writes)| transaction(reads, writes));
    some[1].in_order = true;
    some[4].in_order = true;
    runs_in_order(&some, THREE);
}

#[test]
fn threads_that_are_too_many_leave_the_work_to_others() {
    let mut some = readers_that_write_elsewhere();
    let on_two = |all| Threads { all, processors: 2 };
    runs_in_order(&some, on_two(3));
    runs_in_order(&some, on_two(4));
    some[3].in_order = true;
    runs_in_order(&some, on_two(4));
}

#[test]
fn a_stopped_schedule_ends_all_threads() {
    let model = || {
        let model = Arc::new(Model::new(&[transaction([0, 0], 0); 4], THREE));
        let stopped = Arc::new(AtomicBool::new(false));
        model.call();
        let other = {
            let (model, stopped) = (model.clone(), stopped.clone());
            thread::spawn(move || {
                model.schedule.stop();
                stopped.store(true, Ordering::SeqCst);
                model.team.call_all();
            })
        };
        model.work(0);
        other.join().unwrap();
        assert!(stopped.load(Ordering::SeqCst));
    };
    let random = RandomScheduler::new_from_seed(3, 1500);
    Runner::new(random, Config::new()).run(model);
}
