//! Random histories from several threads have no cycle in their dependencies. With validation
//! switched off they have, and the checker finds it.

use crate::support::{
    all,
    checker::{Done, Observed, Violation, check},
    key, store,
};
use alloy_primitives::{B256, Bytes};
use cambium_kv::{KeyRange, KvError, Store, Transaction, WriteBatch};
use cambium_seeds::Random;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

const KEYS: u64 = 12;
const OPEN: usize = 4;

/// A transaction at work, with its observations.
struct Working {
    transaction: Transaction,
    done: Done,
    steps: u64,
}

/// How transactions of a history are committed.
#[derive(Clone, Copy, PartialEq)]
enum Validation {
    On,
    /// Reads are a transaction's, and writes a batch that read nothing: without validation against
    /// each other.
    Off,
}

struct Histories<'a> {
    store: &'a Store,
    validation: Validation,
    history: Mutex<Vec<Done>>,
    values: AtomicU64,
    lost: AtomicU64,
}

impl Histories<'_> {
    fn begin(&self, rng: &mut Random) -> Working {
        let newest = self.store.newest().unwrap().number();
        let transaction = match rng.percent(20) {
            true => self.store.begin_at(newest - rng.below(newest.min(5) + 1)),
            false => self.store.begin(),
        };
        let transaction = transaction.unwrap();
        let snapshot = transaction.snapshot().number();
        let done = Done {
            snapshot,
            place: None,
            reads: Vec::new(),
            writes: BTreeMap::new(),
        };
        let steps = 1 + rng.below(5);
        Working {
            transaction,
            done,
            steps,
        }
    }

    fn step(&self, working: &mut Working, rng: &mut Random) {
        let Working {
            transaction, done, ..
        } = working;
        let at = key(rng.below(KEYS) as u8);
        match rng.below(10) {
            0..3 => {
                let value = transaction.get(&at).unwrap();
                if !done.writes.contains_key(&at) {
                    done.reads.push(Observed::Key(at, value));
                }
            }
            3 => {
                let keys = [at, key(rng.below(KEYS) as u8)];
                let values = transaction.get_many(&keys).unwrap();
                let both = keys.into_iter().zip(values);
                let foreign = both.filter(|(key, _)| !done.writes.contains_key(key));
                done.reads
                    .extend(foreign.map(|(key, value)| Observed::Key(key, value)));
            }
            4..6 => iterate(transaction, done, at, rng),
            6 => {
                transaction.delete(at);
                done.writes.insert(at, None);
            }
            _ => {
                let unique = self.values.fetch_add(1, Ordering::Relaxed);
                // Some are stored apart from their leaves.
                let size = if rng.percent(5) { 600 } else { 8 };
                let mut bytes = unique.to_be_bytes().to_vec();
                bytes.resize(size, 0x11);
                let value = Bytes::from(bytes);
                transaction.put(at, value.clone()).unwrap();
                done.writes.insert(at, Some(value));
            }
        }
    }

    /// Commits transactions, together if there are several.
    fn commit(&self, mut group: Vec<Working>, rng: &mut Random) {
        if self.validation == Validation::Off {
            for Working { mut done, .. } in group {
                self.write_blindly(&mut done);
                self.history.lock().unwrap().push(done);
            }
            return;
        }
        let (works, dones): (Vec<_>, Vec<_>) = group
            .drain(..)
            .map(|working| (working.transaction, working.done))
            .unzip();
        let (number, outcomes) = self.commit_group(works, rng);
        for (position, (mut done, outcome)) in dones.into_iter().zip(outcomes).enumerate() {
            match outcome {
                Ok(()) => {
                    let is_writer = !done.writes.is_empty();
                    done.place = is_writer.then(|| (number.unwrap(), position));
                    self.history.lock().unwrap().push(done);
                }
                Err(KvError::Conflict(_)) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn commit_group(
        &self,
        mut group: Vec<Transaction>,
        rng: &mut Random,
    ) -> (Option<u64>, Vec<Result<(), KvError>>) {
        if group.len() == 1 {
            let done = group.remove(0).commit();
            let number = done.as_ref().ok().map(|commit| commit.number());
            return (number, vec![done.map(|_| ())]);
        }
        if rng.percent(30) {
            let prepared = self.store.prepare_all(group).unwrap();
            thread::yield_now();
            let Some(next) = prepared.prepared else {
                return (None, prepared.outcomes);
            };
            // All of them lose if another writer was faster.
            return match next.commit() {
                Ok(commit) => (Some(commit.number()), prepared.outcomes),
                Err(KvError::NotNext { .. }) => (None, Vec::new()),
                Err(error) => panic!("{error}"),
            };
        }
        let done = self.store.commit_all(group).unwrap();
        (done.commit.map(|commit| commit.number()), done.outcomes)
    }

    fn write_blindly(&self, done: &mut Done) {
        let mut batch = WriteBatch::new();
        for (key, value) in &done.writes {
            match value {
                Some(value) => batch.put(*key, value.clone()).unwrap(),
                None => batch.delete(*key),
            };
        }
        if !batch.is_empty() {
            let commit = self.store.write(batch).unwrap();
            done.place = Some((commit.number(), 0));
        }
    }

    /// Runs transactions, of which some are open at the same time.
    fn run(&self, seed: u64, rounds: u64) {
        let mut rng = Random::new(seed);
        let mut open: Vec<Working> = Vec::new();
        for _ in 0..rounds {
            while open.len() < OPEN {
                open.push(self.begin(&mut rng));
            }
            let at = rng.below(OPEN as u64) as usize;
            if open[at].steps > 0 {
                open[at].steps -= 1;
                self.step(&mut open[at], &mut rng);
                if rng.percent(10) {
                    thread::yield_now();
                }
                continue;
            }
            let mut group = vec![open.swap_remove(at)];
            if rng.percent(25) {
                group.append(&mut open);
            }
            self.commit(group, &mut rng);
        }
        while let Some(last) = open.pop() {
            self.commit(vec![last], &mut rng);
        }
    }
}

/// Iterates over some entries of a random range, and records how far it got.
fn iterate(transaction: &Transaction, done: &mut Done, from: B256, rng: &mut Random) {
    let through = key((u64::from(from[0]) + rng.below(6)) as u8);
    let take = match rng.percent(50) {
        true => usize::MAX,
        false => 1 + rng.below(3) as usize,
    };
    let found = transaction.range(from..=through).take(take);
    let mut found: BTreeMap<_, _> = found.collect::<Result<_, _>>().unwrap();
    let got_through = match found.len() == take {
        true => *found.last_key_value().unwrap().0,
        false => through,
    };
    assert!(KeyRange::new(from, got_through).is_some());
    let own: BTreeSet<_> = done.writes.keys().copied().collect();
    found.retain(|key, _| !own.contains(key));
    done.reads
        .push(Observed::Range(from, got_through, found, own));
}

/// Runs a random history from `threads` threads. Returns it, and how many transactions lost.
fn history(store: &Store, seed: u64, threads: u64, validation: Validation) -> (Vec<Done>, u64) {
    let histories = Histories {
        store,
        validation,
        history: Mutex::default(),
        values: AtomicU64::new(1),
        lost: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        for thread in 0..threads {
            let histories = &histories;
            scope.spawn(move || histories.run(seed * 1_000 + thread, 1_000));
        }
    });
    let lost = histories.lost.into_inner();
    (histories.history.into_inner().unwrap(), lost)
}

/// The entries after all of a history, one transaction after the other. Each has to read what it
/// read then, at its place.
fn replay(history: &[Done]) -> BTreeMap<B256, Bytes> {
    let mut writers: Vec<_> = history.iter().filter(|done| done.place.is_some()).collect();
    writers.sort_by_key(|done| done.place);
    let mut model = BTreeMap::new();
    for done in writers {
        for observed in &done.reads {
            match observed {
                Observed::Key(key, value) => assert_eq!(model.get(key), value.as_ref()),
                Observed::Range(from, through, entries, own) => {
                    let there = model.range(*from..=*through);
                    let there = there.filter(|(key, _)| !own.contains(*key));
                    assert!(there.eq(entries.iter()), "{done:?}");
                }
            }
        }
        for (key, value) in &done.writes {
            match value {
                Some(value) => model.insert(*key, value.clone()),
                None => model.remove(key),
            };
        }
    }
    model
}

#[test]
fn histories_of_several_threads_are_serializable_in_the_order_of_commits() {
    let (mut committed, mut all_lost) = (0, 0);
    for seed in cambium_seeds::seeds!(0..6) {
        let store = store();
        let (history, lost) = history(&store, seed, 1 + seed % 4, Validation::On);
        assert_eq!(check(&history), Ok(()), "seed {seed}");
        let model: Vec<_> = replay(&history).into_iter().collect();
        assert_eq!(all(&store.begin().unwrap()), model, "seed {seed}");
        committed += history.len() as u64;
        all_lost += lost;
    }
    assert!(
        committed > 1_000 && all_lost > 200,
        "{committed} and {all_lost}"
    );
}

#[test]
fn without_validation_the_checker_finds_cycles() {
    let mut lengths = BTreeSet::new();
    for seed in cambium_seeds::seeds!(0..6) {
        let (history, _) = history(&store(), seed, 1 + seed % 4, Validation::Off);
        match check(&history) {
            Err(Violation::Cycle(cycle)) => lengths.insert(cycle.len()),
            other => panic!("seed {seed}: {other:?}"),
        };
    }
    assert!(lengths.first() >= Some(&2), "{lengths:?}");
}
