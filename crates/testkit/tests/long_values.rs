//! Values that are stored apart from their leaves, beside a model: merges with tiny files, side branches,
//! unwinds, old views, losses of power; what they take on disk; and what rot in them costs.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{
    AccountDiff, AccountUpdate, BlockId, Changes, EntryValue, Path, StoredValue,
};
use cambium_state::{
    BlockMeta, Db, Disk, FaultyDisk, LeafKind, Loader, Options, Sealed, Session, StateError,
    StdDisk, StoreError, View, backup,
};
use cambium_testkit::{Random, TINY_FILES, plain::wait_until_closed, say};
use cambium_trie::{Blake3, Commitment, LeafValue, PartialTrie, Sha256, commit};
use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU64,
    ops::ControlFlow,
    sync::Arc,
};

type Entries = BTreeMap<B256, Bytes>;

/// Bytes of a value's record besides the value, without what aligns it.
const HEAD_BYTES: u64 = 80;
/// Bytes of a segment's header.
const HEADER_BYTES: u64 = 24;
const KEEP_BLOCKS: u64 = 16;
/// Few, so that segments are soon of no block that is kept.
const MODEL_KEEP_BLOCKS: u64 = 8;

fn options(commitment: Commitment) -> Options {
    Options {
        memory_bytes: 8 << 20,
        unfinalized_blocks: 8,
        keep_blocks: Some(KEEP_BLOCKS),
        files: TINY_FILES,
        commitment,
        leaves: LeafKind::Entries,
        ..Options::default()
    }
}

fn key(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

/// A value of which every byte depends on `name`.
fn value_of(name: u64, len: usize) -> Bytes {
    let mut random = Random::new(name);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// The root of a trie built from scratch, with all values in its leaves.
fn root_of(commitment: Commitment, entries: &Entries) -> B256 {
    let leaves = entries.iter().map(|(key, value)| {
        let value = LeafValue::Entry(EntryValue::Inline(value.clone()));
        (Path::account(key), value)
    });
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    let root = trie
        .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
        .unwrap();
    trie.set_root(root);
    commit(&mut [&mut trie], &mut Batch::new());
    trie.state_root().unwrap()
}

fn put(session: &Session, key: B256, value: Option<&Bytes>) -> Result<AccountDiff, StateError> {
    Ok(AccountDiff {
        path: key,
        account: match value {
            Some(value) => AccountUpdate::Entry(session.value(&key, value.clone())?),
            None => AccountUpdate::Delete,
        },
        wipe: value.is_none(),
        slots: vec![],
    })
}

/// Seals a block of puts and deletions, in the order of their keys.
fn seal(
    view: View,
    name: u64,
    writes: &BTreeMap<B256, Option<Bytes>>,
) -> Result<Sealed, StateError> {
    let parent = view.block();
    let session = view.session();
    let changes: Result<Vec<_>, _> = writes
        .iter()
        .map(|(key, value)| put(&session, *key, value.as_ref()))
        .collect();
    let staged = session.finish(Changes::new(changes?), vec![])?;
    let meta = BlockMeta {
        id: BlockId::new(parent.number + 1, keccak256(name.to_le_bytes())),
        parent: parent.hash,
        state_root: staged.root(),
        body: Bytes::new(),
    };
    staged.seal(meta)
}

fn create(disk: &FaultyDisk, options: Options, entries: &Entries) -> Db {
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for (key, value) in entries {
        let value = loader.value(key, value.clone()).unwrap();
        loader.entry(*key, &value).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    assert_eq!(loaded.root(), root_of(options.commitment, entries));
    let meta = BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    loaded.create(meta, vec![]).unwrap()
}

fn open(disk: &FaultyDisk, options: Options) -> Db {
    let (db, recovery) = Db::open(Arc::new(disk.clone()), options).unwrap();
    assert_eq!(recovery.skipped_records, 0, "{:?}", recovery.notes);
    db
}

/// Paths of all value segments, in the order of their numbers.
fn segments(disk: &FaultyDisk) -> Vec<String> {
    let mut files = disk.files();
    files.retain(|file| file.starts_with("values/"));
    files.sort();
    files
}

fn value_bytes_on_disk(disk: &FaultyDisk) -> u64 {
    let files = segments(disk);
    let len = |file: &String| disk.contents(file).map_or(0, |bytes| bytes.len() as u64);
    files.iter().map(len).sum()
}

fn assert_reads(view: &View, keys: &[B256], expected: &Entries, at: &str) {
    let values: Vec<_> = keys.iter().map(|key| expected.get(key).cloned()).collect();
    assert!(view.entries(keys).unwrap() == values, "{at}");
    let one = keys[keys.len() / 2];
    assert!(
        view.entry(&one).unwrap().as_ref() == expected.get(&one),
        "{at}"
    );
    let mut found = Entries::new();
    let each = |key, value| {
        found.insert(key, value);
        ControlFlow::Continue(())
    };
    view.each_entry(&B256::ZERO, each).unwrap();
    assert!(found == *expected, "{at}");
}

struct World {
    options: Options,
    random: Random,
    keys: Vec<B256>,
    /// States by the hash of their block.
    states: HashMap<B256, Entries>,
    names: u64,
}

impl World {
    fn value(&mut self) -> Bytes {
        let len = match self.random.below(8) {
            0 => 0,
            1 => 512,
            2 => 513,
            3 | 4 => self.random.below(512),
            5 => self.random.below(40 << 10),
            _ => 513 + self.random.below(4 << 10),
        };
        self.names += 1;
        value_of(self.names, len as usize)
    }

    /// Seals a block of random writes on a block. Its state is in the model from now on.
    fn block(&mut self, db: &Db, parent: BlockId) -> Result<Sealed, StateError> {
        let mut state = self.states[&parent.hash].clone();
        let mut writes = BTreeMap::new();
        for _ in 0..1 + self.random.below(5) {
            // Most writes are of a few keys, so that values of the others stay among dead ones.
            let keys = match self.random.below(8) {
                0 => self.keys.len(),
                _ => self.keys.len() / 8,
            };
            let key = self.keys[self.random.below(keys as u64) as usize];
            let value = match (self.random.below(8), state.get(&key)) {
                (0 | 1, _) => None,
                // The same bytes, at another place.
                (2, Some(value)) => Some(value.clone()),
                _ => Some(self.value()),
            };
            match &value {
                Some(value) => _ = state.insert(key, value.clone()),
                None => _ = state.remove(&key),
            }
            writes.insert(key, value);
        }
        self.names += 1;
        let sealed = seal(db.view_of(parent)?, self.names, &writes)?;
        let root = sealed.view()?.state_root();
        assert_eq!(root, root_of(self.options.commitment, &state));
        self.states.insert(sealed.id().hash, state);
        Ok(sealed)
    }

    /// Commits a side branch of two blocks, and returns the second one.
    fn branch(&mut self, db: &Db, parent: BlockId) -> Result<BlockId, StateError> {
        let first = self.block(db, parent)?;
        let id = first.id();
        first.commit_side_branch()?;
        let second = self.block(db, id)?;
        let id = second.id();
        second.commit_side_branch()?;
        Ok(id)
    }

    /// One random action. It may fail if the disk is losing power.
    fn act(&mut self, db: &Db) -> Result<(), StateError> {
        let head = db.head();
        match self.random.below(16) {
            // A session that comes to nothing, and a block that does.
            0 => {
                let session = db.view()?.session();
                for _ in 0..3 {
                    let value = self.value();
                    session.value(&self.keys[0], value)?;
                }
            }
            1 => drop(self.block(db, head)?),
            // A branch beside the head, which becomes the head or not.
            2 | 3 => {
                let below = head.number.saturating_sub(self.random.below(4));
                let Some(parent) = db.block_id(below)? else {
                    return Ok(());
                };
                let Some(id) = unless_removed(self.branch(db, parent))? else {
                    return Ok(());
                };
                if self.random.below(2) == 0 {
                    for _ in 0..self.random.below(3) {
                        self.block(db, head)?.commit()?;
                    }
                    _ = unless_removed(db.set_head(id))?;
                }
            }
            4 => {
                let kept = db.stats()?.kept_from;
                let to = head.number.saturating_sub(1 + self.random.below(12));
                _ = unless_removed(db.unwind(to.max(kept)))?;
            }
            5 => db.flush(self.random.below(3) as usize)?,
            _ => _ = self.block(db, head)?.commit()?,
        }
        Ok(())
    }

    fn check(&mut self, db: &Db, at: &str) {
        let head = db.head();
        assert_reads(
            &db.view().unwrap(),
            &self.keys,
            &self.states[&head.hash],
            at,
        );
        let kept = db.stats().unwrap().kept_from;
        let older = head
            .number
            .saturating_sub(self.random.below(MODEL_KEEP_BLOCKS));
        // A merge that runs may have removed it since.
        let Some(view) = unless_removed(db.view_at(older.max(kept))).unwrap() else {
            return;
        };
        let state = &self.states[&view.block().hash];
        assert_reads(&view, &self.keys, state, at);
    }
}

#[test]
fn values_of_any_length_agree_with_the_model_through_merges_branches_and_losses_of_power() {
    let commitments = [
        Commitment::Mpt,
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
    ];
    let (mut merges, mut moved, mut removed, mut losses) = (0, 0, 0, 0);
    let seeds = match std::env::var_os("CAMBIUM_LONG") {
        None => 6,
        Some(_) => 60,
    };
    for seed in 0..seeds {
        let commitment = commitments[seed as usize % 3];
        let mut world = World {
            options: Options {
                unfinalized_blocks: 4,
                keep_blocks: Some(MODEL_KEEP_BLOCKS),
                ..options(commitment)
            },
            random: Random::new(seed),
            keys: (0..40).map(key).collect(),
            states: HashMap::new(),
            names: seed << 32,
        };
        let mut disk = FaultyDisk::new(seed);
        let mut first = Entries::new();
        for at in 0..20 {
            let value = world.value();
            first.insert(key(at), value);
        }
        let mut db = create(&disk, world.options, &first);
        world.states.insert(db.head().hash, first);
        let mut views: Vec<View> = Vec::new();
        for round in 0..400 {
            let at = format!("seed {seed}, round {round}");
            let loses_power = world.random.below(12) == 0;
            if loses_power {
                disk.lose_power_after(world.random.below(60));
            }
            let mut acts = 0;
            let lost = loop {
                acts += 1;
                let acted = world.act(&db);
                match acted {
                    Ok(()) if loses_power && acts < 20 => {}
                    Ok(()) => break loses_power,
                    Err(error) => {
                        assert!(loses_power, "{at}: {error}");
                        break true;
                    }
                }
            };
            if lost || world.random.below(10) == 0 {
                merges += db.counters().merges;
                moved += db.counters().values_moved;
                views.clear();
                drop(db);
                // A merge that goes on may lose the power that is to be lost.
                wait_until_closed(&disk);
                if lost || world.random.below(2) == 0 {
                    disk = disk.crash();
                    losses += 1;
                }
                db = open(&disk, world.options);
            }
            if world.random.below(3) == 0 {
                world.check(&db, &at);
                let view = db.view().unwrap();
                views.push(view);
            }
            for view in &views {
                let state = &world.states[&view.block().hash];
                assert_reads(view, &world.keys, state, &at);
            }
            if !views.is_empty() && world.random.below(4) == 0 {
                let one = world.random.below(views.len() as u64) as usize;
                views.swap_remove(one);
            }
            if round % 50 == 49 {
                let report = db.check(&mut |_| {}).unwrap();
                assert_eq!(report.damage, Vec::<String>::new(), "{at}");
            }
        }
        merges += db.counters().merges;
        moved += db.counters().values_moved;
        let numbers = segments(&disk);
        let number = |file: &String| file["values/".len()..][..8].parse::<usize>().unwrap();
        removed += number(&numbers[numbers.len() - 1]) - numbers.len();
        views.clear();

        let copy = FaultyDisk::new(seed);
        let (from, to) = (Arc::new(disk.clone()) as _, Arc::new(copy.clone()) as _);
        backup(&from, &to, world.options, &mut |_| {}).unwrap();
        let copied = open(&copy, world.options);
        assert_eq!(copied.head(), db.head());
        world.check(&copied, "the copy");
    }
    say(&format!(
        "long values: {merges} merges, {losses} losses of power, {moved} values moved, \
         {removed} segments removed"
    ));
    assert!(
        merges > 30 && removed > 200 && moved > 20,
        "{merges} merges, {removed} removed, {moved} moved"
    );
}

/// Passes over that a merge has removed what is needed to go back to a block, or to build on it.
fn unless_removed<T>(done: Result<T, StateError>) -> Result<Option<T>, StateError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(StateError::NotKept { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Overwrites one value `times` times, with blocks of one write.
fn overwrite(db: &Db, len: usize, times: u64) {
    for name in 0..times {
        let writes = [(key(1), Some(value_of(name, len)))].into();
        let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
        sealed.commit().unwrap();
    }
}

#[test]
fn a_value_that_is_overwritten_leaves_three_windows_of_it_at_most() {
    let len = 64 << 10;
    let disk = FaultyDisk::new(1);
    let db = create(&disk, options(Commitment::Mpt), &Entries::new());
    let (mut most, mut names) = (0, 0);
    for _ in 0..20 {
        for _ in 0..50 {
            names += 1;
            let writes = [(key(1), Some(value_of(names, len)))].into();
            let sealed = seal(db.view().unwrap(), names, &writes).unwrap();
            sealed.commit().unwrap();
        }
        most = most.max(value_bytes_on_disk(&disk));
    }
    assert_eq!(names, 1000);
    let written = db.counters().value_bytes_written;
    let record = HEAD_BYTES + len as u64;
    assert_eq!(
        written,
        names * (record + HEADER_BYTES),
        "each value has a segment of its own"
    );
    // The checkpoint before the newest one may still need what that one does not.
    db.flush(0).unwrap();
    names += 1;
    let writes = [(key(1), Some(value_of(names, len)))].into();
    let sealed = seal(db.view().unwrap(), names, &writes).unwrap();
    sealed.commit().unwrap();
    db.flush(0).unwrap();
    let written = db.counters().value_bytes_written;
    let window = KEEP_BLOCKS * len as u64;
    let left = value_bytes_on_disk(&disk);
    say(&format!(
        "overwritten: {written} bytes written, {most} at most, {left} left"
    ));
    assert!(left <= 3 * window, "{left} bytes are left");
    // All that can be unwound to is there.
    let kept = db.stats().unwrap().kept_from;
    assert!(names - kept >= KEEP_BLOCKS);
    for number in kept..=names {
        let view = db.view_at(number).unwrap();
        assert!(
            view.entry(&key(1)).unwrap() == Some(value_of(number, len)),
            "{number}"
        );
    }
    assert_eq!(db.counters().value_bytes_written, written);
    assert_eq!(db.stats().unwrap().values.live_bytes, record);
}

/// Blocks between two merges that a test asks for.
const BLOCKS_PER_MERGE: u64 = 60;

/// Overwrites one key again and again, with a value of its own for another key from time to time, so
/// that each segment keeps a live value among dead ones. Returns the state, and the most bytes on disk
/// after a merge.
fn leave_one_live_value_in_each_segment(
    db: &Db,
    disk: &FaultyDisk,
    len: usize,
    blocks: u64,
) -> (Entries, u64) {
    let (mut expected, mut most) = (Entries::new(), 0);
    for name in 1..=blocks {
        let hot = value_of(name, len);
        let mut writes = BTreeMap::from([(key(0), Some(hot))]);
        if name % 30 == 0 {
            writes.insert(key(name), Some(value_of(name << 32, len)));
        }
        seal(db.view().unwrap(), name, &writes)
            .unwrap()
            .commit()
            .unwrap();
        if name % BLOCKS_PER_MERGE == 0 {
            db.flush(0).unwrap();
            most = most.max(value_bytes_on_disk(disk));
        }
        expected.extend(writes.into_iter().filter_map(|(key, it)| Some((key, it?))));
    }
    (expected, most)
}

#[test]
fn segments_with_one_live_value_among_dead_ones_do_not_pile_up() {
    let (len, blocks) = (2_000, 6_000);
    let disk = FaultyDisk::new(7);
    let mut db = create(&disk, options(Commitment::Binary(&Blake3)), &Entries::new());
    let (expected, held) = leave_one_live_value_in_each_segment(&db, &disk, len, blocks);
    db.flush(0).unwrap();
    let counters = db.counters();
    let (written, moved) = (counters.value_bytes_written, counters.value_bytes_moved);
    let live = db.stats().unwrap().values.live_bytes;
    say(&format!(
        "one live value a segment: {written} bytes written, {moved} of them moved, {live} live, {held} on disk at most"
    ));
    assert_eq!(live, expected.len() as u64 * (HEAD_BYTES + len as u64));
    // Without moves each of the 180 segments would stay.
    let window = KEEP_BLOCKS * len as u64;
    let merges = 3 * BLOCKS_PER_MERGE * len as u64;
    assert!(held < 2 * live + 3 * window + merges, "{held}");
    assert!(moved * 5 < written, "{moved} of {written} bytes moved");
    let keys: Vec<_> = expected.keys().copied().collect();
    assert_reads(&db.view().unwrap(), &keys, &expected, "after cleaning");
    let kept = db.stats().unwrap().kept_from;
    for number in kept..=blocks {
        let view = db.view_at(number).unwrap();
        assert!(view.entry(&key(0)).unwrap() == Some(value_of(number, len)));
    }
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
    drop(db);
    wait_until_closed(&disk);
    db = open(&disk.crash(), options(Commitment::Binary(&Blake3)));
    assert_reads(
        &db.view().unwrap(),
        &keys,
        &expected,
        "after a loss of power",
    );
}

#[test]
fn while_all_blocks_are_kept_no_value_is_moved_or_removed() {
    let options = Options {
        keep_blocks: None,
        ..options(Commitment::Mpt)
    };
    let disk = FaultyDisk::new(8);
    let db = create(&disk, options, &Entries::new());
    leave_one_live_value_in_each_segment(&db, &disk, 2_000, 300);
    db.flush(0).unwrap();
    assert_eq!(db.counters().values_moved, 0);
    for number in 1..=300 {
        let view = db.view_at(number).unwrap();
        assert!(view.entry(&key(0)).unwrap() == Some(value_of(number, 2_000)));
    }
}

#[test]
fn the_same_bytes_at_another_place_are_read_after_their_first_place_is_gone() {
    for commitment in [Commitment::Mpt, Commitment::Binary(&Blake3)] {
        let disk = FaultyDisk::new(9);
        let entries: Entries = (0..5).map(|at| (key(at), value_of(at, 900))).collect();
        let db = create(&disk, options(commitment), &entries);
        let root = db.view().unwrap().state_root();
        let writes = entries.iter().map(|(key, it)| (*key, Some(it.clone())));
        let writes: BTreeMap<_, _> = writes.collect();
        for name in 0..100 {
            let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
            assert_eq!(sealed.view().unwrap().state_root(), root);
            sealed.commit().unwrap();
            if name % 10 == 9 {
                db.flush(0).unwrap();
            }
        }
        assert!(!segments(&disk)[0].contains("00000001"), "the first place");
        let keys: Vec<_> = entries.keys().copied().collect();
        assert_reads(&db.view().unwrap(), &keys, &entries, "written again");
        assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
        assert!(value_bytes_on_disk(&disk) < 300_000);
    }
}

#[test]
fn pages_whose_values_were_only_read_are_not_written_again() {
    let disk = FaultyDisk::new(10);
    let options = Options {
        files: Options::default().files,
        ..options(Commitment::Mpt)
    };
    let entries: Entries = (0..3_000).map(|at| (key(at), value_of(at, 520))).collect();
    let db = create(&disk, options, &entries);
    let keys: Vec<_> = entries.keys().copied().collect();
    let session = db.view().unwrap().session();
    assert_eq!(session.entries(&keys).unwrap().len(), keys.len());
    let change = put(&session, keys[17], Some(&value_of(1 << 40, 520))).unwrap();
    let staged = session.finish(Changes::new(vec![change]), vec![]).unwrap();
    let meta = BlockMeta {
        id: BlockId::new(1, B256::with_last_byte(2)),
        parent: B256::with_last_byte(1),
        state_root: staged.root(),
        body: Bytes::new(),
    };
    staged.seal(meta).unwrap().commit().unwrap();
    let before = db.counters().pages_written;
    db.flush(0).unwrap();
    assert_eq!(db.counters().pages_written - before, 1);
}

#[test]
fn a_missing_or_short_value_file_is_named_with_the_way_back() {
    let disk = FaultyDisk::new(11);
    let entries: Entries = (0..20).map(|at| (key(at), value_of(at, 5_000))).collect();
    let options = options(Commitment::Binary(&Sha256));
    drop(create(&disk, options, &entries));
    wait_until_closed(&disk);
    let file = segments(&disk).remove(0);
    let is_named = |damaged: &FaultyDisk| {
        let error = Db::open(Arc::new(damaged.clone()), options).err().unwrap();
        let text = error.to_string();
        assert!(
            error.is_damage() && text.contains(&file) && text.contains("backup"),
            "{text}"
        );
    };
    let damaged = disk.duplicate();
    damaged.remove(&file).unwrap();
    is_named(&damaged);
    let damaged = disk.duplicate();
    damaged.open(&file).unwrap().set_len(20_000).unwrap();
    is_named(&damaged);
    // With the file put back, the directory is whole.
    let put_back = damaged.open(&file).unwrap();
    put_back
        .write_at(&disk.contents(&file).unwrap(), 0)
        .unwrap();
    let db = open(&damaged, options);
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
}

#[test]
fn another_process_reads_values_while_they_are_replaced_and_moved() {
    let disk = FaultyDisk::new(12);
    let options = options(Commitment::Mpt);
    let db = create(&disk, options, &Entries::new());
    let mut name = 0;
    let mut write = || {
        for _ in 0..40 {
            name += 1;
            let mut writes = BTreeMap::from([(key(0), Some(value_of(name, 1_500)))]);
            if name % 20 == 0 {
                writes.insert(key(name), Some(value_of(name << 32, 1_500)));
            }
            let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
            sealed.commit().unwrap();
        }
        name
    };
    let mut newest = write();
    let (mut reader, _) = Db::open_read_only(Arc::new(disk.clone()), options).unwrap();
    for _ in 0..30 {
        let expected = Some(value_of(newest, 1_500));
        assert!(reader.view().unwrap().entry(&key(0)).unwrap() == expected);
        let session = reader.view().unwrap().session();
        let refused = session.value(&key(0), value_of(1, 600)).unwrap_err();
        assert!(matches!(refused, StateError::ReadOnly(..)), "{refused}");
        newest = write();
        // What is gone for a reader that is behind is named as that.
        match reader.view().unwrap().entry(&key(0)) {
            Ok(value) => assert!(value == expected),
            Err(error) => assert!(
                matches!(error, StateError::Store(StoreError::ReaderBehind { .. })),
                "{error}"
            ),
        }
        reader.catch_up().unwrap();
    }
    assert!(db.counters().values_moved > 0);
}

/// Writes 10 GB to a directory: `cargo test --release -- --ignored`.
#[test]
#[ignore = "writes 10 GB"]
fn ten_thousand_values_of_1_mib_leave_three_windows_of_them_at_most() {
    let (len, times, keep) = (1 << 20, 10_000_u64, 256);
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_bytes: 256 << 20,
        unfinalized_blocks: 64,
        keep_blocks: Some(keep),
        leaves: LeafKind::Entries,
        ..Options::default()
    };
    let disk = Arc::new(StdDisk::new(dir.path()));
    let loaded = Loader::new(disk, options).unwrap().finish(&mut |_| {});
    let loaded = loaded.unwrap();
    let meta = BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    let db = loaded.create(meta, vec![]).unwrap();
    let on_disk = || -> u64 {
        let files = std::fs::read_dir(dir.path().join("values")).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let (mut value, mut most) = (value_of(1, len).to_vec(), 0);
    let start = std::time::Instant::now();
    for name in 0..times {
        value[..8].copy_from_slice(&name.to_le_bytes());
        let writes = [(key(1), Some(value.clone().into()))].into();
        let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
        sealed.commit().unwrap();
        if name % 16 == 0 {
            most = most.max(on_disk());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let left = on_disk();
    say(&format!(
        "10,000 times 1 MiB: {seconds:.0} s, {} MiB on disk at most, {} MiB at the end",
        most >> 20,
        left >> 20
    ));
    assert!(left <= 3 * keep * len as u64, "{left}");
}

#[test]
fn a_value_is_written_once_before_merging() {
    let disk = FaultyDisk::new(2);
    let db = create(&disk, options(Commitment::Mpt), &Entries::new());
    let mut expected = 0;
    for (name, len) in (0u64..).zip([513, 600, 1_000, 4_096, 20_001]) {
        let writes = [(key(name), Some(value_of(name, len)))].into();
        let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
        sealed.commit().unwrap();
        expected += (HEAD_BYTES + len as u64).next_multiple_of(8);
    }
    let written = db.counters();
    assert_eq!(written.value_bytes_written, HEADER_BYTES + expected);
    assert!(written.log_bytes_written < 20_000, "{written:?}");
    db.flush(0).unwrap();
    let merged = db.counters();
    assert_eq!(merged.value_bytes_written, HEADER_BYTES + expected);
    assert_eq!(db.stats().unwrap().values.live_bytes, expected);
}

#[test]
fn rot_in_a_value_is_named_and_costs_nothing_else() {
    let disk = FaultyDisk::new(3);
    let entries: Entries = (0..10).map(|at| (key(at), value_of(at, 3_000))).collect();
    let mut db = create(&disk, options(Commitment::Binary(&Blake3)), &entries);
    overwrite(&db, 5_000, 3);
    db.flush(0).unwrap();
    drop(db);
    wait_until_closed(&disk);
    let file = segments(&disk).remove(0);
    let wanted = &entries[&key(4)];
    let bytes = disk.contents(&file).unwrap();
    let at = bytes
        .windows(100)
        .position(|part| *part == wanted[..100])
        .unwrap();
    disk.flip_bit(&file, at as u64 + 1_234, 3);
    db = open(&disk, options(Commitment::Binary(&Blake3)));
    let view = db.view().unwrap();
    let named = |error: &str| error.contains(&key(4).to_string()) && error.contains(&file);
    let error = view.entry(&key(4)).unwrap_err();
    assert!(error.is_damage() && named(&error.to_string()), "{error}");
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    assert!(named(&report.damage[0]), "{:?}", report.damage);
    for (one, value) in &entries {
        if ![key(1), key(4)].contains(one) {
            assert!(view.entry(one).unwrap().as_ref() == Some(value));
        }
    }
    assert!(view.entry(&key(1)).unwrap() == Some(value_of(2, 5_000)));
    // It can be put again.
    let writes = [(key(4), Some(wanted.clone()))].into();
    seal(view, 99, &writes).unwrap().commit().unwrap();
    db.flush(0).unwrap();
    assert!(db.view().unwrap().entry(&key(4)).unwrap().as_ref() == Some(wanted));
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
}

#[test]
fn values_that_no_leaf_can_have_are_refused() {
    let disk = FaultyDisk::new(4);
    let db = create(&disk, options(Commitment::Mpt), &Entries::new());
    let finish = |value: EntryValue| {
        let changes = Changes::new(vec![AccountDiff {
            path: key(1),
            account: AccountUpdate::Entry(value),
            wipe: false,
            slots: vec![],
        }]);
        let session = db.view().unwrap().session();
        session.finish(changes, vec![]).map(drop)
    };
    let long = finish(EntryValue::Inline(value_of(1, 513)));
    assert!(
        matches!(long, Err(StateError::LongValue { len: 513, .. })),
        "{long:?}"
    );
    let session = db.view().unwrap().session();
    let EntryValue::Stored(stored) = session.value(&key(1), value_of(1, 600)).unwrap() else {
        panic!("a long value in its leaf")
    };
    for wrong in [
        StoredValue { len: 512, ..stored },
        StoredValue {
            len: 601 + 8,
            ..stored
        },
        StoredValue {
            len: u32::MAX,
            ..stored
        },
        StoredValue {
            place: NonZeroU64::MIN,
            ..stored
        },
        StoredValue {
            place: NonZeroU64::MAX,
            ..stored
        },
        StoredValue {
            place: stored.place.saturating_add(1 << 32),
            ..stored
        },
    ] {
        let refused = finish(EntryValue::Stored(wrong));
        assert!(
            matches!(refused, Err(StateError::MissingValue { .. })),
            "{refused:?}"
        );
    }
    finish(EntryValue::Stored(stored)).unwrap();
    let error = session
        .value(&key(1), value_of(1, (16 << 20) + 1))
        .unwrap_err();
    assert!(error.to_string().contains("16777216"), "{error}");
    finish(EntryValue::Inline(value_of(1, 512))).unwrap();
}
