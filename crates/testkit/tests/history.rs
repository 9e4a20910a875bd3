//! The history beside the naive model: any account, slot and proof at any kept block, whatever the
//! chain did since, and whatever happened to the history's files.

use alloy_primitives::{B256, U256};
use cambium_history::{Follower, History, HistoryError, HistoryOptions, HistoryView, WholeNodes};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes, Path};
use cambium_state::{Db, Disk, Fault, FaultyDisk, Options};
use cambium_testkit::{
    Model, Random, TINY_FILES,
    plain::{self, account, path},
    say,
};
use cambium_trie::{Lookup, PartialTrie, ProofTargets};
use std::{collections::HashMap, num::NonZeroU64, sync::Arc};

const ACCOUNTS: u64 = 40;
const SLOTS: u64 = 30;

/// Memory so little that a few blocks fill it.
const LITTLE: HistoryOptions = HistoryOptions {
    memory_bytes: 16 << 10,
    trie_bytes: 64 << 10,
    cache_bytes: 32 << 10,
    buffer_bytes: 8 << 10,
    keep_blocks: None,
};

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        files: TINY_FILES,
        ..Options::default()
    }
}

/// A database, its history, and the model at each block that was ever canonical.
struct World {
    disk: FaultyDisk,
    db: Db,
    history: History,
    models: HashMap<B256, Model>,
    random: Random,
    blocks: u64,
}

/// Opens the history as soon as nobody else has it.
fn open_history(disk: &FaultyDisk, db: &Db) -> History {
    History::open(Arc::new(disk.clone()), db, LITTLE).unwrap()
}

/// Proves keys, those of nothing included, and compares what the proof says with the model.
fn compare_proof(view: &HistoryView, model: &Model, keys: ProofTargets) {
    let id = view.block();
    let part = view
        .extract(&keys)
        .unwrap_or_else(|error| panic!("{id}: {error}"));
    let (proof, unused) = PartialTrie::from_witness(model.root(), &part.witness_nodes())
        .unwrap_or_else(|error| panic!("{id}: {error}"));
    assert_eq!(unused, 0, "{id}");
    for (account, slots) in keys.accounts() {
        let expected = model.account(account);
        let found = match proof.lookup(&Path::account(account)) {
            Lookup::Absent => None,
            Lookup::Account(account) => Some(account),
            other => panic!("{account} at {id}: {other:?}"),
        };
        assert_eq!(
            found,
            expected.map(|account| account.account),
            "{account} at {id}"
        );
        for slot in slots {
            let value = expected.and_then(|account| account.slots.get(slot));
            let found = match proof.lookup(&Path::slot(account, slot)) {
                Lookup::Absent => None,
                Lookup::Slot(value) => Some(value),
                other => panic!("{slot} of {account} at {id}: {other:?}"),
            };
            assert_eq!(found.as_ref(), value, "{slot} of {account} at {id}");
        }
    }
}

impl World {
    /// A history of values alone.
    fn new(seed: u64) -> Self {
        Self::with(None, seed)
    }

    /// A history with nodes or without.
    fn with(nodes: Option<WholeNodes>, seed: u64) -> Self {
        let disk = FaultyDisk::new(seed);
        let db = plain::make(Arc::new(disk.clone()), options(), 0, |_| 0);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let history = History::create(shared, &db, 0, nodes, LITTLE).unwrap();
        Self {
            models: HashMap::from([(db.head().hash, Model::default())]),
            disk,
            db,
            history,
            random: Random::new(seed),
            blocks: 0,
        }
    }

    fn model(&self) -> &Model {
        &self.models[&self.db.head().hash]
    }

    /// Random changes of the state at the head: new, changed, wiped, deleted and recreated accounts.
    fn changes(&mut self) -> Changes {
        let model = self.model().clone();
        let random = &mut self.random;
        let mut changes = HashMap::new();
        for _ in 0..random.below(8) {
            let at = path(random.below(ACCOUNTS));
            let exists = model.account(&at).is_some();
            let kind = random.below(10);
            let (update, wipe) = match kind {
                0 if exists => (AccountUpdate::Delete, true),
                1..=4 if exists => (AccountUpdate::Keep, kind == 1),
                _ => (AccountUpdate::Put(account(random.next())), kind == 5),
            };
            let mut slots = HashMap::new();
            if update != AccountUpdate::Delete && random.percent(70) {
                for _ in 0..random.below(12) {
                    let value = U256::from(random.below(4));
                    slots.insert(path(random.below(SLOTS)), value);
                }
            }
            changes.insert(
                at,
                AccountDiff {
                    path: at,
                    account: update,
                    wipe,
                    slots: slots.into_iter().collect(),
                },
            );
        }
        Changes::new(changes.into_values().collect())
    }

    fn block(&mut self) {
        let changes = self.changes();
        self.commit(changes);
    }

    fn commit(&mut self, changes: Changes) {
        let mut model = self.model().clone();
        model.apply(&changes);
        self.blocks += 1;
        let name = format!("block {}", self.blocks);
        let sealed = plain::seal(self.db.view().unwrap(), name, changes, vec![]).unwrap();
        sealed.commit().unwrap();
        self.models.insert(self.db.head().hash, model);
    }

    /// A block of accounts that are never changed again: they make tries deeper.
    fn crowd(&mut self) {
        let crowd = (1_000..1_700).map(|at| AccountDiff {
            path: path(at),
            account: AccountUpdate::Put(account(at)),
            wipe: false,
            slots: (0..at % 3)
                .map(|slot| (path(slot), U256::from(at)))
                .collect(),
        });
        self.commit(Changes::new(crowd.collect()));
    }

    fn catch_up(&self) {
        self.history.catch_up(&self.db, &mut |_| true).unwrap();
    }

    /// Compares the whole state at a block with the model's.
    fn compare(&self, number: u64) {
        let id = self
            .db
            .block_id(number)
            .unwrap()
            .expect("a canonical block");
        let view = self.history.view_at(&self.db, number).unwrap();
        self.compare_view(&view, id);
    }

    fn compare_view(&self, view: &HistoryView, id: BlockId) {
        assert_eq!(view.block(), id);
        let model = &self.models[&id.hash];
        for at in (0..ACCOUNTS).map(path) {
            let expected = model.account(&at);
            let what = format!("account {at} at {id}");
            assert_eq!(
                view.account(&at).unwrap(),
                expected.map(|a| a.account),
                "{what}"
            );
            let slots: Vec<(B256, U256)> = expected
                .map(|account| account.slots.iter().map(|(k, v)| (*k, *v)).collect())
                .unwrap_or_default();
            assert_eq!(view.slots(&at).unwrap(), slots, "{what}");
            for slot in (0..SLOTS).step_by(7).map(path) {
                let value = slots.iter().find(|(key, _)| *key == slot);
                let value = value.map_or(U256::ZERO, |(_, value)| *value);
                assert_eq!(view.slot(&at, &slot).unwrap(), value, "{slot} of {what}");
            }
        }
        if self.history.has_nodes() {
            assert_eq!(view.state_root().unwrap(), model.root(), "{id}");
            let slots: Vec<_> = (0..SLOTS + 5).step_by(3).map(path).collect();
            let keys = (0..ACCOUNTS + 30).map(|at| (path(at), slots.clone()));
            compare_proof(view, model, ProofTargets::new(keys.collect()));
            for at in [id.number % ACCOUNTS, ACCOUNTS + 2 + id.number] {
                let keys = vec![(path(at), vec![path(id.number % SLOTS)])];
                compare_proof(view, model, ProofTargets::new(keys));
            }
        }
    }

    /// Compares some blocks, old ones above all.
    fn compare_some(&mut self) {
        let head = self.db.head().number;
        for _ in 0..3 {
            let number = self.random.below(head + 1);
            self.compare(number);
        }
        self.compare(0);
        self.compare(head.saturating_sub(1));
    }

    /// Removes the history, and begins another one at a block.
    fn remade(self, first: u64, nodes: Option<WholeNodes>, options: HistoryOptions) -> Self {
        let Self {
            disk,
            db,
            history,
            models,
            random,
            blocks,
        } = self;
        drop(history);
        let names = disk.files().into_iter();
        for name in names.filter(|name| name.starts_with("history/")) {
            disk.remove(&name).unwrap();
        }
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        Self {
            history: History::create(shared, &db, first, nodes, options).unwrap(),
            disk,
            db,
            models,
            random,
            blocks,
        }
    }

    /// Opens database and history again, after a crash or not.
    fn reopen(self, crash: bool) -> Self {
        let Self {
            disk,
            db,
            history,
            models,
            random,
            blocks,
        } = self;
        let disk = match crash {
            true => disk.crash(),
            false => disk,
        };
        drop((db, history));
        plain::wait_until_closed(&disk);
        let (db, _) = Db::open(Arc::new(disk.clone()), options()).unwrap();
        Self {
            history: open_history(&disk, &db),
            disk,
            db,
            models,
            random,
            blocks,
        }
    }
}

#[test]
fn any_state_is_as_it_was_whatever_has_happened_since() {
    let (mut files, mut merged, mut unwound) = (0, 0, 0);
    for seed in 0..12 {
        let nodes = [None, Some(WholeNodes::default()), Some(WholeNodes::ALL)];
        let mut world = World::with(nodes[seed as usize % 3], seed);
        if seed % 2 == 1 {
            world.block();
            world.crowd();
        }
        for _ in 0..260 {
            match world.random.below(40) {
                0 => world.db.flush(2).unwrap(),
                1 | 2 => world.history.flush().unwrap(),
                3..=5 => {
                    let before = world.history.stats().files;
                    world.history.merge().unwrap();
                    merged += before - world.history.stats().files;
                }
                6 => {
                    let crash = world.random.percent(50);
                    world = world.reopen(crash);
                }
                7 | 8 => {
                    let head = world.db.head().number;
                    // Mostly not far, and sometimes below everything that is in memory.
                    let most = if world.random.percent(20) {
                        head
                    } else {
                        head.min(6)
                    };
                    let to = head - world.random.below(most + 1);
                    world.db.unwind(to).unwrap();
                    unwound += head - to;
                }
                9..=12 => {
                    world.catch_up();
                    world.compare_some();
                    files = files.max(world.history.stats().files);
                }
                _ => world.block(),
            }
        }
        world.catch_up();
        world.history.flush().unwrap();
        (0..=world.db.head().number).for_each(|number| world.compare(number));
        world.history.check().unwrap();
    }
    say(&format!(
        "at most {files} files, {merged} merged away, {unwound} blocks unwound"
    ));
    assert!(files >= 4 && merged > 20 && unwound > 200);
}

#[test]
fn made_afterwards_it_serves_the_same() {
    let mut world = World::new(11);
    for at in 0..300 {
        world.block();
        if at % 9 == 0 {
            world.db.flush(1).unwrap();
        }
    }
    world.catch_up();
    let numbers = [0, 1, 7, 64, 150, 299];
    numbers.into_iter().for_each(|number| world.compare(number));
    // From a later block on.
    let World {
        disk, db, history, ..
    } = world;
    drop(history);
    for name in disk
        .files()
        .into_iter()
        .filter(|name| name.starts_with("history/"))
    {
        disk.remove(&name).unwrap();
    }
    let history = History::create(Arc::new(disk.clone()), &db, 100, None, LITTLE).unwrap();
    history
        .catch_up(&db, &mut |so_far| so_far.upto.number < 170)
        .unwrap();
    history.flush().unwrap();
    drop(history);
    let world = World {
        history: open_history(&disk, &db),
        disk,
        db,
        models: world.models,
        random: world.random,
        blocks: world.blocks,
    };
    assert_eq!(
        world.history.blocks().1.number,
        170,
        "it goes on where it was"
    );
    world.catch_up();
    for number in [100, 101, 164, 171, 299, 300] {
        world.compare(number);
    }
    let error = world.history.view_at(&world.db, 99).err().unwrap();
    assert!(matches!(
        error,
        HistoryError::NotKept {
            number: 99,
            first: 100
        }
    ));
}

#[test]
fn a_history_grows_downwards_window_by_window_and_goes_on_where_it_was() {
    for nodes in [None, Some(WholeNodes::default()), Some(WholeNodes::ALL)] {
        let mut world = World::with(nodes, 31);
        world.crowd();
        for at in 0..160 {
            world.block();
            if at % 30 == 29 {
                world.db.flush(at % 4).unwrap();
            }
        }
        let world = world.remade(100, nodes, LITTLE);
        let mut left = 37;
        let first = world.history.extend_down(&world.db, 10, &mut |_| {
            left -= 1;
            left > 0
        });
        let first = first.unwrap().number;
        assert!((63..100).contains(&first), "{first}");
        let mut world = world.reopen(true);
        assert_eq!(world.history.blocks().0.number, first);
        world.catch_up();
        // The nodes for the next windows come from runs above and below the first one.
        let reached = world.history.extend_down(&world.db, 10, &mut |_| true);
        assert_eq!(reached.unwrap().number, 10);
        (0..30).for_each(|_| world.block());
        world.db.unwind(150).unwrap();
        (0..20).for_each(|_| world.block());
        world.catch_up();
        (10..world.db.head().number).for_each(|number| world.compare(number));
        assert!(world.history.view_at(&world.db, 9).is_err());
        world
            .history
            .extend_down(&world.db, 0, &mut |_| true)
            .unwrap();
        world.history.merge().unwrap();
        world.history.check().unwrap();
        world.compare_some();
    }
}

#[test]
fn what_is_no_longer_kept_leaves_by_whole_runs() {
    let keep = 60;
    for nodes in [None, Some(WholeNodes::default())] {
        let options = HistoryOptions {
            keep_blocks: NonZeroU64::new(keep),
            ..LITTLE
        };
        let mut world = World::with(nodes, 32).remade(0, nodes, options);
        let (mut most, mut most_bytes) = (0, Vec::new());
        for at in 0..600 {
            world.block();
            if at % 5 == 4 {
                world.catch_up();
                world.history.merge().unwrap();
                let (first, upto) = world.history.blocks();
                most = most.max(upto.number - first.number);
                most_bytes.push(world.history.stats().file_bytes);
            }
            if at % 200 == 199 {
                // It is remembered: opening again says nothing of it.
                world = world.reopen(at % 400 == 399);
                world.catch_up();
            }
            if at % 50 == 49 {
                let first = world.history.blocks().0.number;
                world.compare(first);
                world.compare(world.db.head().number.saturating_sub(keep));
                assert_eq!(
                    first == 0,
                    world.history.view_at(&world.db, first.max(1) - 1).is_ok()
                );
            }
        }
        assert!((keep..2 * keep).contains(&most), "{most} blocks");
        let files = world.disk.files().into_iter();
        let files = files.filter(|name| name.ends_with(".run")).count() as u64;
        assert_eq!(files, world.history.stats().files, "no file is left behind");
        let half = most_bytes.len() / 2;
        let largest = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or_default();
        let (early, late) = (largest(&most_bytes[..half]), largest(&most_bytes[half..]));
        assert!(2 * late < 3 * early, "{early} bytes, then {late}");
    }
}

#[test]
fn a_view_stays_as_it_is_while_the_head_moves() {
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::with(nodes, 12);
        (0..80).for_each(|_| world.block());
        world.catch_up();
        let ids: Vec<_> = [3, 40, 77]
            .map(|number| world.db.block_id(number).unwrap().unwrap())
            .into();
        let views: Vec<_> = ids
            .iter()
            .map(|id| world.history.view_at(&world.db, id.number).unwrap())
            .collect();
        world.db.unwind(50).unwrap();
        (0..60).for_each(|_| world.block());
        world.catch_up();
        world.history.flush().unwrap();
        world.history.merge().unwrap();
        for (view, id) in views.iter().zip(&ids) {
            world.compare_view(view, *id);
        }
    }
}

#[test]
fn a_reader_beside_the_writer_sees_the_same() {
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::with(nodes, 13);
        for _ in 0..4 {
            (0..25).for_each(|_| world.block());
            world.catch_up();
            world.block();
            let shared: Arc<dyn Disk> = Arc::new(world.disk.clone());
            let reading = History::open_read_only(shared, &world.db, LITTLE).unwrap();
            reading.catch_up(&world.db, &mut |_| true).unwrap();
            assert!(matches!(
                reading.flush(),
                Err(HistoryError::ReadOnly) | Ok(())
            ));
            let files = world.disk.files();
            let own = std::mem::replace(&mut world.history, reading);
            (0..world.db.head().number).for_each(|number| world.compare(number));
            world.history = own;
            assert_eq!(files, world.disk.files());
        }
    }
}

#[test]
fn a_thread_follows_the_chain_and_keeps_the_log_for_itself() {
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::with(nodes, 14);
        let follower = Follower::start(world.history.clone(), world.db.clone());
        for at in 0..400 {
            world.block();
            if at % 50 == 49 {
                world.db.flush(1).unwrap();
                world.db.unwind(world.db.head().number - 3).unwrap();
            }
        }
        let history = follower.finish().unwrap();
        assert_eq!(history.blocks().1, world.db.head());
        assert_eq!(history.durable(), world.db.head());
        for number in (0..world.db.head().number).step_by(11) {
            world.compare(number);
        }
    }
}

#[test]
fn a_look_up_takes_at_most_one_read_of_the_history_but_for_false_positives() {
    let mut world = World::new(15);
    (0..600).for_each(|_| world.block());
    world.history = {
        let World { disk, history, .. } = &world;
        drop(history.clone());
        let disk = disk.clone();
        let db = world.db.clone();
        world.catch_up();
        world.history.flush().unwrap();
        let old = std::mem::replace(
            &mut world.history,
            History::open_read_only(Arc::new(disk.clone()), &db, HistoryOptions::default())
                .unwrap(),
        );
        drop(old);
        History::open(Arc::new(disk), &db, HistoryOptions::default()).unwrap()
    };
    let files = world.history.stats().files;
    let (mut look_ups, mut most) = (0, 0);
    let before = world.history.stats().reads;
    for number in (0..600).step_by(13) {
        let view = world.history.view_at(&world.db, number).unwrap();
        for at in (0..ACCOUNTS).map(path) {
            let before = world.history.stats().reads;
            view.account(&at).unwrap();
            view.slot(&at, &path(3)).unwrap();
            look_ups += 2;
            most = most.max(world.history.stats().reads - before);
        }
    }
    let reads = world.history.stats().reads - before;
    say(&format!(
        "{files} files, {look_ups} look-ups, {reads} pages, at most {most} for two"
    ));
    assert!(files > 3);
    assert!(reads <= look_ups + look_ups / 20);
}

#[test]
fn a_failed_write_loses_nothing_and_a_crash_at_any_time_nothing_either() {
    let mut failures = 0;
    for calls in (0..320).step_by(5) {
        let nodes = (calls % 3 > 0).then(WholeNodes::default);
        let mut world = World::with(nodes, 100 + calls);
        (0..40).for_each(|_| world.block());
        world.disk.fail_call_after(calls);
        let outcome = world
            .history
            .catch_up(&world.db, &mut |_| true)
            .map(drop)
            .and_then(|()| world.history.flush())
            .and_then(|()| world.history.merge());
        failures += u64::from(outcome.is_err());
        world.disk.clear_faults();
        let crash = calls % 2 == 0;
        let mut world = world.reopen(crash);
        world.block();
        world.catch_up();
        world.compare_some();
        world.history.flush().unwrap();
        world.history.merge().unwrap();
        world.compare_some();
        world.history.check().unwrap();
    }
    say(&format!("{failures} of 64 calls failed"));
    assert!(failures > 20);
}

#[test]
fn a_loss_of_power_at_any_operation_loses_nothing() {
    for operations in 0..80 {
        let nodes = (operations % 3 > 0).then(WholeNodes::default);
        let mut world = World::with(nodes, 200 + operations);
        (0..30).for_each(|_| world.block());
        world.disk.lose_power_after(operations);
        let _ = world
            .history
            .catch_up(&world.db, &mut |_| true)
            .map(drop)
            .and_then(|()| world.history.flush())
            .and_then(|()| world.history.merge());
        let mut world = world.reopen(true);
        world.block();
        world.catch_up();
        world.compare_some();
        world.history.check().unwrap();
    }
}

#[test]
fn every_bad_bit_is_named_and_none_is_believed() {
    let mut world = World::with(Some(WholeNodes::default()), 16);
    (0..120).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let head = world.db.head();
    let names: Vec<_> = world
        .disk
        .files()
        .into_iter()
        .filter(|name| name.ends_with(".run") || name.ends_with(".list"))
        .collect();
    assert!(names.len() >= 3);
    let mut found = 0;
    for name in &names {
        let len = world.disk.contents(name).unwrap().len() as u64;
        for at in (0..len).step_by(97) {
            let disk = world.disk.duplicate();
            disk.flip_bit(name, at, (at % 8) as u8);
            let shared: Arc<dyn Disk> = Arc::new(disk);
            let opened = History::open_read_only(shared, &world.db, LITTLE);
            let checked = opened.and_then(|history| history.check());
            match checked {
                Err(HistoryError::Damaged { file, .. } | HistoryError::Missing { file }) => {
                    assert!(file.contains(name.as_str()), "{file}, {name}");
                    found += 1;
                }
                Err(error) => panic!("{name} at {at}: {error}"),
                // What lies between the sections is not read.
                Ok(_) => assert!(is_padding(&world.disk, name, at), "{name} at {at}"),
            }
        }
    }
    assert!(found > 100, "{found}");
    assert_eq!(world.db.head(), head);
}

/// Whether a byte is zero, and so is the next one.
fn is_padding(disk: &FaultyDisk, name: &str, at: u64) -> bool {
    let bytes = disk.contents(name).unwrap();
    let at = at as usize;
    bytes[at..(at + 2).min(bytes.len())]
        .iter()
        .all(|byte| *byte == 0)
}

#[test]
fn passing_errors_pass() {
    let mut world = World::with(Some(WholeNodes::default()), 17);
    (0..120).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let view = world.history.view_at(&world.db, 3).unwrap();
    let id = view.block();
    let mut failed = 0;
    for at in (0..ACCOUNTS).map(path) {
        world.disk.inject(Fault::FailedRead, "history/", 1);
        failed += u64::from(view.account(&at).is_err());
        world.disk.clear_faults();
    }
    assert!(failed > 10, "{failed}");
    world.compare_view(&view, id);
}

#[test]
fn a_history_without_its_blocks_or_of_another_database_says_so() {
    let mut world = World::new(18);
    (0..20).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
    let again = History::create(disk.clone(), &world.db, 0, None, LITTLE);
    assert!(again.is_err(), "somebody has it");
    let other = FaultyDisk::new(19);
    let db = plain::make(Arc::new(other.clone()), options(), 3, |_| 1);
    let none = History::open(Arc::new(other.clone()), &db, LITTLE);
    assert!(matches!(none.err(), Some(HistoryError::NoHistory { .. })));
    let above = History::create(Arc::new(other), &db, 7, None, LITTLE);
    assert!(above.is_err(), "there is no block 7");
    let run = world
        .disk
        .files()
        .into_iter()
        .find(|name| name.ends_with(".run"))
        .unwrap();
    let copy = world.disk.duplicate();
    copy.remove(&run).unwrap();
    let missing = History::open_read_only(Arc::new(copy), &world.db, LITTLE);
    assert!(matches!(missing.err(), Some(HistoryError::Missing { .. })));
}

#[test]
fn a_chain_that_leaves_the_first_block_may_come_back_to_it_and_no_other_is_followed() {
    let mut world = World::new(20);
    (0..30).for_each(|_| world.block());
    let World {
        disk, db, history, ..
    } = &world;
    drop(history.clone());
    disk.remove("history/runs.list").unwrap();
    let shared: Arc<dyn Disk> = Arc::new(disk.duplicate());
    let history = History::create(shared, db, 20, None, LITTLE).unwrap();
    history.catch_up(db, &mut |_| true).unwrap();
    history.flush().unwrap();
    let head = db.head();
    db.unwind(10).unwrap();
    assert_eq!(
        history.catch_up(db, &mut |_| true).unwrap(),
        head,
        "it waits"
    );
    assert!(history.view_at(db, 15).is_err());
    db.set_head(head).unwrap();
    history.catch_up(db, &mut |_| true).unwrap();
    world.history = history;
    (20..30).for_each(|number| world.compare(number));
    world.db.unwind(10).unwrap();
    (0..20).for_each(|_| world.block());
    let error = world
        .history
        .catch_up(&world.db, &mut |_| true)
        .err()
        .unwrap();
    assert!(matches!(error, HistoryError::Abandoned { .. }), "{error}");
    let error = world.history.view_at(&world.db, 25).err().unwrap();
    assert!(matches!(error, HistoryError::Abandoned { .. }), "{error}");
}

#[test]
fn the_log_is_kept_for_a_follower_and_no_longer() {
    let few = Options {
        keep_blocks: Some(3),
        ..options()
    };
    let kept_from = |follows: bool| {
        let disk = FaultyDisk::new(21);
        let db = plain::make(Arc::new(disk.clone()), few, 0, |_| 0);
        // Nothing of it goes to a file before the end.
        let much = HistoryOptions::default();
        let history = History::create(Arc::new(disk.clone()), &db, 0, None, much).unwrap();
        let mut world = World {
            models: HashMap::from([(db.head().hash, Model::default())]),
            disk,
            db,
            history,
            random: Random::new(21),
            blocks: 0,
        };
        let blocks = |world: &mut World| {
            for _ in 0..400 {
                world.block();
                if world.blocks.is_multiple_of(20) {
                    world.db.flush(0).unwrap();
                }
            }
            world.db.stats().unwrap().kept_from
        };
        let follower = follows.then(|| Follower::start(world.history.clone(), world.db.clone()));
        let during = blocks(&mut world);
        drop(follower.map(Follower::finish).transpose().unwrap());
        (during, blocks(&mut world))
    };
    let (without, later) = kept_from(false);
    assert!(without > 300 && later > without, "{without}, {later}");
    let (during, after) = kept_from(true);
    assert_eq!(during, 0);
    assert!(after > 300, "{after}");
}
