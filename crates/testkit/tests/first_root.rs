//! The first root after a crash: the tries come from references in the block log, and their pages stay unread.
//! Whatever the references say, roots are those of the model.

use crate::small_database::append;
use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{AccountDiff, BlockId, Changes, Path, put_varint};
use cambium_state::{BlockMeta, Db, FaultyDisk, FileSizes, Options, StateError, StoreError};
use cambium_testkit::{
    Model, Random, TINY_FILES, is_long,
    plain::{make, path, put, random_changes, seal, wait_until_closed},
};
use std::sync::Arc;

/// Accounts of the first state: some for each of the 256 shards.
const ACCOUNTS: u64 = 3_000;
/// Slots of account 0, in several pages of their own.
const SLOTS: u64 = 1_500;
/// Kind of the log's records with references.
const KIND: u8 = 5;

fn slots_of(index: u64) -> u64 {
    match index {
        0 => SLOTS,
        index => index % 2,
    }
}

fn options(reference_leaves: u64) -> Options {
    Options {
        memory_bytes: 64 << 20,
        unfinalized_blocks: 8,
        files: FileSizes {
            log_reference_leaves: reference_leaves,
            ..TINY_FILES
        },
        ..Options::default()
    }
}

/// A database, and the model of its state.
struct World {
    disk: FaultyDisk,
    model: Model,
    options: Options,
    /// Number of blocks committed: their hashes follow from it.
    blocks: u64,
}

impl World {
    fn new(options: Options) -> Self {
        let disk = FaultyDisk::new(1);
        let db = make(Arc::new(disk.clone()), options, ACCOUNTS, slots_of);
        let mut model = Model::default();
        let first = (0..ACCOUNTS).map(|index| AccountDiff {
            slots: sorted((0..slots_of(index)).map(|at| (path(at), U256::from(at + 1)))),
            ..put(path(index), 0)
        });
        model.apply(&Changes::new(first.collect()));
        assert_eq!(db.view().unwrap().state_root(), model.root());
        drop(db);
        wait_until_closed(&disk);
        Self {
            disk,
            model,
            options,
            blocks: 0,
        }
    }

    fn open(&self) -> Db {
        wait_until_closed(&self.disk);
        let (db, _) = Db::open(Arc::new(self.disk.clone()), self.options).unwrap();
        db
    }

    /// Commits a block on the head, and compares its root with the model's.
    fn commit(&mut self, db: &Db, changes: Changes) {
        self.model.apply(&changes);
        self.blocks += 1;
        let name = self.blocks.to_be_bytes();
        let sealed = seal(db.view().unwrap(), name, changes, vec![]).unwrap();
        let root = sealed.view().unwrap().state_root();
        assert_eq!(root, self.model.root(), "root of {}", sealed.id());
        sealed.commit().unwrap();
    }
}

fn sorted(slots: impl Iterator<Item = (B256, U256)>) -> Vec<(B256, U256)> {
    let mut slots: Vec<_> = slots.collect();
    slots.sort_unstable();
    slots
}

/// Changes of `count` accounts and as many slots of account 0.
fn batch(random: &mut Random, count: u64, nonce: u64) -> Changes {
    let mut changed: Vec<_> = (0..count).map(|_| random.below(ACCOUNTS)).collect();
    changed.push(0);
    changed.sort_unstable();
    changed.dedup();
    let change = |index| match index {
        0 => {
            let mut slots: Vec<_> = (0..count).map(|_| random.below(SLOTS)).collect();
            slots.sort_unstable();
            slots.dedup();
            let value = |at: u64| match at % 7 {
                0 => U256::ZERO,
                _ => U256::from(nonce + 1),
            };
            AccountDiff {
                slots: sorted(slots.into_iter().map(|at| (path(at), value(at)))),
                ..put(path(0), nonce)
            }
        }
        index => put(path(index), nonce),
    };
    Changes::new(changed.into_iter().map(change).collect())
}

fn one_change(nonce: u64) -> Changes {
    Changes::new(vec![put(path(5), nonce)])
}

/// Reads of pages for the tries until the first root is there, and subtries whose references came from the log.
fn first_root(world: &mut World) -> (u64, u64) {
    let db = world.open();
    world.commit(&db, one_change(1_000));
    let counters = db.counters();
    assert_eq!(counters.references_refused, 0);
    (counters.page_reads_trie, counters.subtries_restored)
}

fn after_batches(reference_leaves: u64) -> World {
    let mut world = World::new(options(reference_leaves));
    let mut random = Random::new(7);
    let db = world.open();
    for nonce in 1..=6 {
        let changes = batch(&mut random, 250, nonce);
        world.commit(&db, changes);
    }
    assert_eq!(db.counters().merges, 0);
    let records = db.counters().reference_records;
    assert_eq!(records > 0, reference_leaves > 0);
    drop(db);
    world
}

#[test]
fn the_first_root_after_a_crash_reads_no_page_of_what_had_changed() {
    let (read, restored) = first_root(&mut after_batches(0));
    assert!(read > 250 && restored == 0, "{read} {restored}");
    let (read, restored) = first_root(&mut after_batches(100));
    // The page of the account that this block changes, and those of single slots, whose roots are leaves.
    assert!(read <= 10 && restored > 250, "{read} {restored}");
    // The newest blocks are too few for references: only their pages are read.
    let mut world = after_batches(100);
    let db = world.open();
    for nonce in 7..10 {
        let changes = batch(&mut Random::new(nonce), 10, nonce);
        world.commit(&db, changes);
    }
    drop(db);
    // The merge of the others may have ended before.
    let (read, _) = first_root(&mut world);
    assert!(read <= 66, "{read}");
}

#[test]
fn what_a_merge_makes_of_restored_tries_is_sound() {
    let mut world = after_batches(100);
    let db = world.open();
    world.commit(&db, one_change(1_000));
    db.flush(0).unwrap();
    assert!(db.counters().merges > 0);
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
    let changes = batch(&mut Random::new(8), 250, 2_000);
    world.commit(&db, changes);
    drop(db);
    let db = world.open();
    assert_eq!(db.view().unwrap().state_root(), world.model.root());
    for index in (0..ACCOUNTS).step_by(97) {
        let found = db.view().unwrap().account(&path(index)).unwrap();
        let expected = world.model.account(&path(index)).map(|it| it.account);
        assert_eq!(found, expected, "account {index}");
    }
}

/// Blocks of all kinds of changes, on two branches, with reopening after some of them.
#[test]
fn roots_are_the_models_whatever_blocks_change_before_a_crash() {
    let mut restored = 0;
    for seed in cambium_seeds::seeds!(0..if is_long() { 400 } else { 24 }) {
        let mut random = Random::new(seed);
        let mut world = World::new(options(1 + random.below(60)));
        let mut db = world.open();
        for number in 0..14 {
            let mut changes = Changes::default();
            for _ in 0..1 + random.below(6) {
                let mut model = world.model.clone();
                model.apply(&changes);
                let more = random_changes(&mut random, &model, ACCOUNTS + 50, SLOTS + 40);
                changes = changes.then(more);
            }
            if random.percent(30) {
                changes = changes.then(batch(&mut random, 60, 10 + number));
            }
            let before = (world.model.clone(), db.head());
            world.commit(&db, changes);
            match random.below(10) {
                0 | 1 => db.flush(random.below(3) as usize).unwrap(),
                // Another branch begins below.
                2 if number > 2 => {
                    db.set_head(before.1).unwrap();
                    world.model = before.0;
                }
                3..=6 => {
                    restored += db.counters().subtries_restored;
                    drop(db);
                    if random.percent(50) {
                        wait_until_closed(&world.disk);
                        world.disk = world.disk.crash();
                    }
                    db = world.open();
                    assert_eq!(db.view().unwrap().state_root(), world.model.root());
                }
                _ => {}
            }
        }
        db.flush(0).unwrap();
        assert_eq!(
            db.check(&mut |_| {}).unwrap().damage,
            Vec::<String>::new(),
            "seed {seed}"
        );
        assert_eq!(db.counters().references_refused, 0, "seed {seed}");
    }
    assert!(restored > 0, "some restore tries");
}

/// A payload of references, encoded from the description of the format.
fn payload(block: BlockId, after: u64, subtries: &[(Path, B256)]) -> Vec<u8> {
    let mut bytes = block.number.to_le_bytes().to_vec();
    bytes.extend_from_slice(block.hash.as_slice());
    bytes.extend_from_slice(&after.to_le_bytes());
    put_varint(&mut bytes, subtries.len() as u64);
    for (path, hash) in subtries {
        bytes.extend_from_slice(&[0, path.len() as u8]);
        bytes.extend_from_slice(path.packed());
        bytes.extend_from_slice(hash.as_slice());
    }
    bytes
}

/// Records that pass their checksum, and say something else than the tries had.
#[test]
fn false_references_are_refused_and_the_root_is_right() {
    let world = after_batches(100);
    let db = world.open();
    let head = db.head();
    drop(db);
    wait_until_closed(&world.disk);
    let hash = B256::repeat_byte(0x77);
    let all = |hash: B256| (0..=255_u8).map(move |at| (Path::from_packed(&[at], 2).unwrap(), hash));
    let storage = Path::account(&path(0));
    let deep = Path::account(&path(5)).prefix(40);
    let cases: [(&str, bool, Vec<_>); 6] = [
        ("wrong hashes", true, all(hash).collect()),
        ("one wrong hash", true, all(hash).take(1).collect()),
        (
            "a wrong storage",
            true,
            (0..16).map(|at| (storage.child(at), hash)).collect(),
        ),
        ("the root of a storage", true, vec![(storage, hash)]),
        // Not where the index has a node.
        ("within a page", false, vec![(deep, hash)]),
        ("nothing", false, vec![]),
    ];
    for (what, is_refused, mut subtries) in cases {
        subtries.sort_unstable();
        let mut world = World {
            disk: world.disk.duplicate(),
            model: world.model.clone(),
            options: world.options,
            blocks: world.blocks,
        };
        append(&world.disk, KIND, &payload(head, 0, &subtries));
        let db = world.open();
        world.commit(&db, one_change(1_000));
        assert_eq!(
            db.counters().references_refused,
            u64::from(is_refused),
            "{what}"
        );
        world.commit(&db, batch(&mut Random::new(3), 100, 1_001));
        db.flush(0).unwrap();
        assert_eq!(
            db.check(&mut |_| {}).unwrap().damage,
            Vec::<String>::new(),
            "{what}"
        );
    }
    // References of blocks that the database does not have, and records that are no references.
    let unknown = BlockId::new(head.number, B256::repeat_byte(9));
    let copy = world.disk.duplicate();
    append(&copy, KIND, &payload(unknown, 0, &[(storage, hash)]));
    let (db, recovery) = Db::open(Arc::new(copy), world.options).unwrap();
    assert_eq!((db.head(), recovery.skipped_records), (head, 0));
    for malformed in [
        &[1, 2, 3][..],
        &payload(head, head.number, &[]),
        &[0xff; 60],
    ] {
        let copy = world.disk.duplicate();
        append(&copy, KIND, malformed);
        let (db, recovery) = Db::open(Arc::new(copy), world.options).unwrap();
        assert_eq!((db.head(), recovery.skipped_records), (head, 1));
        assert!(
            recovery.notes[0].contains("of block log file"),
            "{:?}",
            recovery.notes
        );
    }
}

/// What the script commits.
struct Made {
    meta: BlockMeta,
    changes: Changes,
}

/// Blocks of `ACCOUNTS` accounts, with the model's roots.
fn story(model: &Model, genesis: BlockId) -> Vec<Made> {
    let (mut random, mut model, mut parent) = (Random::new(5), model.clone(), genesis);
    let mut made = Vec::new();
    for number in 1..=9 {
        let mut changes = batch(&mut random, 25, number);
        changes = changes.then(random_changes(&mut random, &model, ACCOUNTS, SLOTS));
        model.apply(&changes);
        let id = BlockId::new(number, keccak256(number.to_be_bytes()));
        let meta = BlockMeta {
            id,
            parent: parent.hash,
            state_root: model.root(),
            body: Default::default(),
        };
        parent = id;
        made.push(Made { meta, changes });
    }
    made
}

/// Commits all blocks that are missing, with reopening in between, so that tries are restored and merged many
/// times. Returns the number of the last block that was acknowledged.
fn go(
    disk: &FaultyDisk,
    options: Options,
    story: &[Made],
    acknowledged: &mut u64,
) -> Result<u64, StateError> {
    let mut restored = 0;
    loop {
        wait_until_closed(disk);
        let (db, _) = Db::open(Arc::new(disk.clone()), options)?;
        let head = db.head().number;
        for made in story.iter().skip(head as usize).take(3) {
            let staged = db.view()?.session().finish(made.changes.clone(), vec![])?;
            assert_eq!(
                staged.root(),
                made.meta.state_root,
                "root of {}",
                made.meta.id
            );
            staged.seal(made.meta.clone())?.commit()?;
            *acknowledged = made.meta.id.number;
        }
        // The merge of restored tries, also where it is the one that fails.
        let counters = db.counters();
        restored += counters.subtries_restored;
        assert_eq!(counters.references_refused, 0);
        if head == story.len() as u64 {
            db.flush(0)?;
            return Ok(restored);
        }
    }
}

/// Loses power at every operation of the disk in turn, and has it fail at every call.
#[test]
fn power_lost_or_a_failure_at_any_operation_leaves_the_models_roots() {
    let world = World::new(options(20));
    let genesis = world.open().head();
    wait_until_closed(&world.disk);
    let story = story(&world.model, genesis);
    let fresh = || world.disk.duplicate();
    let disk = fresh();
    let restored = go(&disk, world.options, &story, &mut 0).unwrap();
    assert!(restored > 20, "{restored}");
    let mut is_over = [false; 2];
    let step = if is_long() { 1 } else { 3 };
    for at in (0..).step_by(step) {
        for fails in [false, true] {
            if is_over[usize::from(fails)] {
                continue;
            }
            let disk = fresh();
            match fails {
                true => disk.fail_call_after(at),
                false => disk.lose_power_after(at),
            }
            let mut acknowledged = 0;
            let done = go(&disk, world.options, &story, &mut acknowledged);
            let was_hit = done.is_err() || disk.is_off();
            if let Err(error) = done {
                let is_expected = matches!(
                    error,
                    StateError::Store(StoreError::Disk(_) | StoreError::Poisoned { .. })
                        | StateError::Poisoned(_)
                );
                assert!(is_expected, "at {at}: {error}");
            }
            let is_off = disk.is_off();
            disk.clear_faults();
            let disk = if is_off { disk.crash() } else { disk };
            wait_until_closed(&disk);
            let (db, _) = Db::open(Arc::new(disk.clone()), world.options).unwrap();
            let head = db.head().number;
            assert!(
                head == acknowledged || head == acknowledged + 1,
                "at {at}: {head}"
            );
            drop(db);
            go(&disk, world.options, &story, &mut acknowledged).unwrap();
            wait_until_closed(&disk);
            let (db, _) = Db::open(Arc::new(disk.clone()), world.options).unwrap();
            assert_eq!(db.head(), story.last().unwrap().meta.id, "at {at}");
            assert_eq!(
                db.check(&mut |_| {}).unwrap().damage,
                Vec::<String>::new(),
                "at {at}"
            );
            is_over[usize::from(fails)] = !was_hit;
        }
        if is_over == [true; 2] {
            assert!(at > 50, "{at}");
            return;
        }
    }
}
