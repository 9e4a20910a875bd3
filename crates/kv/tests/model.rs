//! A store beside a `BTreeMap` for each of its commits, under each commitment: transactions, groups,
//! prepared commits, roll-backs, merges, reopening and losses of power. Roots are those of tries that
//! are built from scratch.

use crate::support::{all, all_options, open, options_of, root_after, tiny_files};
use alloy_primitives::{B256, Bytes};
use cambium_disk::FaultyDisk;
use cambium_kv::{Commit, Commitment, KvError, KvOptions, Prepared, Store, Transaction};
use cambium_seeds::Random;
use std::{collections::BTreeMap, sync::Arc};

type Entries = BTreeMap<B256, Bytes>;

/// Keys of which many share long prefixes.
fn key(rng: &mut Random) -> B256 {
    let mut key = B256::repeat_byte(0x33);
    let from = [0, 0, 1, 16, 31][rng.below(5) as usize];
    key[from] = rng.below(12) as u8 * 16;
    key[31] = rng.below(4) as u8;
    key
}

fn value(rng: &mut Random) -> Bytes {
    let len = match rng.below(8) {
        0 => 0,
        1 => 300,
        // Stored apart from its leaf.
        2 => 513 + rng.below(3000),
        _ => rng.below(60),
    };
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// The acknowledged commits, each with its entries.
struct Model {
    commitment: Commitment,
    interval: Option<u64>,
    commits: Vec<(Commit, Entries)>,
}

impl Model {
    fn of(store: &Store) -> Self {
        Self {
            commitment: store.commitment(),
            interval: store.merge_interval().map(|interval| interval.get()),
            commits: vec![(store.newest().unwrap(), Entries::new())],
        }
    }

    fn entries(&self) -> &Entries {
        &self.commits.last().expect("commit 0").1
    }

    /// Checks that a store is at the newest commit.
    fn check(&self, store: &Store) {
        let (commit, entries) = self.commits.last().expect("commit 0");
        assert_eq!(store.newest().unwrap(), *commit);
        assert_eq!(commit.number(), self.commits.len() as u64 - 1);
        let there = all(&store.begin().unwrap());
        assert!(there.iter().map(|(key, value)| (key, value)).eq(entries));
        let states: Vec<_> = self.commits.iter().map(|(_, entries)| entries).collect();
        let root = root_after(self.commitment, self.interval, &states);
        assert_eq!(commit.root, root);
    }

    /// Checks an older commit as a whole.
    fn check_old(&self, store: &Store, rng: &mut Random) {
        let (commit, entries) = &self.commits[rng.below(self.commits.len() as u64) as usize];
        let reader = store.begin_at(commit.number()).unwrap();
        assert_eq!(reader.snapshot(), *commit);
        assert!(all(&reader).into_iter().eq(entries.clone()));
    }
}

/// Reads and writes at random, in a transaction and in its model.
fn work(
    transaction: &mut Transaction,
    model: &mut Entries,
    rng: &mut Random,
) -> Result<(), KvError> {
    for _ in 0..rng.below(12) {
        let at = key(rng);
        match rng.below(8) {
            0 | 1 => assert_eq!(transaction.get(&at)?, model.get(&at).cloned()),
            2 => {
                let keys = [at, key(rng), at];
                let expected = keys.map(|key| model.get(&key).cloned());
                assert_eq!(transaction.get_many(&keys)?, expected);
            }
            3 => {
                let take = rng.below(20) as usize;
                let end = key(rng).max(at);
                let found = transaction.range(at..end).take(take);
                let found: Vec<_> = found.collect::<Result<_, _>>()?;
                let expected = model.range(at..end).take(take);
                assert!(found.iter().map(|(key, value)| (key, value)).eq(expected));
            }
            4 => {
                transaction.delete(at);
                model.remove(&at);
            }
            5 => transaction.warm_up(&[at, key(rng)])?,
            _ => {
                let value = value(rng);
                transaction.put(at, value.clone())?;
                model.insert(at, value);
            }
        }
    }
    // One that writes nothing makes no commit.
    let (at, value) = (key(rng), value(rng));
    transaction.put(at, value.clone())?;
    model.insert(at, value);
    Ok(())
}

/// Outcome of one step.
enum Step {
    /// The commits that it made, or the number of those that it took back.
    Made(Vec<(Commit, Entries)>),
    Back(u64),
}

impl Step {
    /// Each state at which the store may be if the step was interrupted, as a number of commits that
    /// stay and commits that are added.
    fn apply(self, model: &mut Model) {
        match self {
            Self::Made(commits) => model.commits.extend(commits),
            Self::Back(count) => {
                let left = model.commits.len() - count as usize;
                model.commits.truncate(left);
            }
        }
    }
}

/// Prepared commits, and what each of them makes of the store.
type Chain = (Vec<Prepared>, Vec<(Commit, Entries)>);

/// Prepares a chain of commits, without making them durable.
fn prepare_chain(store: &Store, model: &Model, rng: &mut Random) -> Result<Chain, KvError> {
    let (mut prepared, mut made) = (Vec::<Prepared>::new(), Vec::new());
    let mut entries = model.entries().clone();
    for _ in 0..1 + rng.below(3) {
        let mut transaction = match prepared.last() {
            Some(parent) => store.begin_on(parent)?,
            None => store.begin()?,
        };
        work(&mut transaction, &mut entries, rng)?;
        let next = match rng.percent(30) {
            true => transaction.prepare_with_witness()?,
            false => transaction.prepare()?,
        };
        let next = next.expect("it has writes");
        let (id, root) = (next.id(), next.root());
        made.push((Commit { id, root }, entries.clone()));
        prepared.push(next);
    }
    Ok((prepared, made))
}

/// Does something at random. The first result is where the store may be if it is interrupted.
fn step(
    store: &Store,
    model: &Model,
    rng: &mut Random,
    may_be: &mut Vec<(usize, Vec<(Commit, Entries)>)>,
) -> Result<Step, KvError> {
    let kept = model.commits.len();
    if rng.percent(12) {
        let count = rng.below(kept.min(5) as u64);
        may_be.extend((1..=count as usize).map(|back| (kept - back, Vec::new())));
        store.roll_back(count)?;
        return Ok(Step::Back(count));
    }
    if rng.percent(15) {
        store.flush()?;
        return Ok(Step::Made(Vec::new()));
    }
    let (prepared, made) = prepare_chain(store, model, rng)?;
    if rng.percent(10) {
        return Ok(Step::Made(Vec::new()));
    }
    may_be.extend((1..=made.len()).map(|count| (kept, made[..count].to_vec())));
    match rng.percent(50) {
        true => drop(store.commit_prepared(prepared)?),
        false => {
            for next in prepared {
                next.commit()?;
            }
        }
    }
    Ok(Step::Made(made))
}

fn kv_options(options: KvOptions) -> KvOptions {
    KvOptions {
        files: tiny_files(),
        ..options
    }
}

#[test]
fn a_store_does_what_maps_do() {
    for (options, seed) in all_options().into_iter().zip(1..) {
        let disk = Arc::new(FaultyDisk::new(seed));
        let mut store = Store::create(disk.clone(), kv_options(options)).unwrap();
        let mut rng = Random::new(seed);
        let mut model = Model::of(&store);
        for _ in 0..150 {
            let done = step(&store, &model, &mut rng, &mut Vec::new()).unwrap();
            done.apply(&mut model);
            model.check(&store);
            if rng.percent(20) {
                model.check_old(&store, &mut rng);
            }
            if rng.percent(10) {
                drop(store);
                // An existing store keeps its commitment and ignores the option.
                store = open(&disk, kv_options(options_of(Commitment::Mpt)));
                let interval = store.merge_interval().map(|interval| interval.get());
                assert_eq!(store.commitment(), options.commitment);
                assert_eq!(interval, options.merge_interval_commits);
                model.check(&store);
            }
        }
        assert!(store.check(&mut |_| {}).unwrap().damage.is_empty());
    }
}

#[test]
fn after_a_loss_of_power_the_store_opens_at_what_was_acknowledged() {
    let (mut losses, mut in_between) = (0, 0);
    for (options, seed) in all_options().into_iter().cycle().zip(1..=12) {
        let mut disk = FaultyDisk::new(seed);
        let options = kv_options(options);
        let mut store = Store::create(Arc::new(disk.clone()), options).unwrap();
        let mut rng = Random::new(seed);
        let mut model = Model::of(&store);
        for _ in 0..12 {
            disk.lose_power_after(rng.below(60));
            // Where the store may be: how many commits stay, and which are added.
            let may_be = loop {
                let mut may_be = vec![(model.commits.len(), Vec::new())];
                match step(&store, &model, &mut rng, &mut may_be) {
                    Ok(done) => done.apply(&mut model),
                    Err(_) => break may_be,
                }
            };
            assert!(disk.is_off());
            drop(store);
            losses += 1;
            disk = disk.crash();
            store = Store::open(Arc::new(disk.clone()), options).unwrap();
            let newest = store.newest().unwrap();
            let is_it = |(kept, added): &(usize, Vec<(Commit, Entries)>)| {
                let last = added.last().or_else(|| model.commits[..*kept].last());
                last.is_some_and(|(commit, _)| *commit == newest)
            };
            let found = may_be.into_iter().enumerate().find(|(_, one)| is_it(one));
            let (at, (kept, added)) = found.expect("what was acknowledged");
            in_between += usize::from(at > 0);
            model.commits.truncate(kept);
            model.commits.extend(added);
            model.check(&store);
        }
    }
    assert!(losses == 144 && in_between > 5, "{losses} and {in_between}");
}
