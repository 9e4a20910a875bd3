//! Old blocks leave the log: the kept blocks, the errors for the others, and the size on disk.

use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber, Changes};
use cambium_state::{
    BlockMeta, Db, Disk, FaultyDisk, FileSizes, Loader, Options, StateError, StdDisk, StoreError,
    backup, repair,
};
use cambium_testkit::{
    TINY_FILES,
    plain::{account, first_block, make, path, put, seal},
    say,
};
use std::{collections::BTreeMap, sync::Arc};

const ACCOUNTS: u64 = 200;
const KEEP: u64 = 30;
/// Blocks between merges.
const FLUSH_EVERY: u64 = 10;

fn options(keep_blocks: Option<u64>) -> Options {
    Options {
        memory_bytes: 64 << 20,
        unfinalized_blocks: 8,
        keep_blocks,
        files: FileSizes {
            log_file_bytes_max: 8 << 10,
            log_extend_bytes: 4 << 10,
            ..TINY_FILES
        },
        ..Options::default()
    }
}

/// Options with this many spare blocks.
fn sparing(keep_blocks: Option<u64>, log_spare_blocks: u64) -> Options {
    let options = options(keep_blocks);
    Options {
        files: FileSizes {
            log_spare_blocks,
            ..options.files
        },
        ..options
    }
}

fn slots_of(index: u64) -> u64 {
    index % 3
}

/// Commits blocks up to that number: block n gives account n, and one more, the nonce n.
fn advance(db: &Db, to: BlockNumber) {
    for n in db.head().number + 1..=to {
        let changes = [n % ACCOUNTS, (n * 7 + 1) % ACCOUNTS];
        let mut changes: Vec<_> = changes.iter().map(|at| put(path(*at), n)).collect();
        changes.dedup_by_key(|change| change.path);
        // Of another name than a block of that number that was taken back.
        let name = [db.head().hash.as_slice(), &to.to_le_bytes()].concat();
        let sealed = seal(db.view().unwrap(), name, Changes::new(changes), vec![]);
        sealed.unwrap().commit().unwrap();
        if n % FLUSH_EVERY == 0 {
            db.flush((n % 3) as usize).unwrap();
        }
    }
}

/// A database whose head is block `head`, on a disk with that seed.
fn database_at(head: BlockNumber, options: Options, seed: u64) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(seed);
    let db = make(Arc::new(disk.clone()), options, ACCOUNTS, slots_of);
    advance(&db, head);
    (db, disk)
}

fn nonce_at(db: &Db, number: BlockNumber) -> Result<u64, StateError> {
    let view = db.view_at(number)?;
    let found = view.account(&path(number % ACCOUNTS))?;
    assert_eq!(found, Some(account(number)), "block {number}");
    Ok(number)
}

fn oldest<T>(result: Result<T, StateError>) -> BlockNumber {
    match result.map(|_| ()) {
        Err(StateError::NotKept { oldest }) => oldest,
        other => panic!("{other:?}"),
    }
}

fn is_kept<T>(result: &Result<T, StateError>) -> bool {
    match result {
        Ok(_) => true,
        Err(StateError::NotKept { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn log_files(disk: &FaultyDisk) -> Vec<String> {
    let names = disk.files().into_iter();
    names.filter(|name| name.starts_with("log/")).collect()
}

#[test]
fn what_is_promised_is_kept_and_what_is_older_is_refused_by_name() {
    let (db, disk) = database_at(400, options(Some(KEEP)), 3);
    let kept_from = db.stats().unwrap().kept_from;
    assert!((300..=400 - KEEP).contains(&kept_from), "{kept_from}");
    assert!(!log_files(&disk).contains(&"log/00000001.log".to_owned()));
    for number in 400 - KEEP..=400 {
        nonce_at(&db, number).unwrap();
        db.block(number).unwrap().unwrap();
        db.block_changes(number).unwrap().unwrap();
    }
    for number in [0, 1, 100] {
        assert_eq!(oldest(db.view_at(number)), kept_from);
        assert_eq!(oldest(db.block(number)), kept_from);
        assert_eq!(oldest(db.block_changes(number)), kept_from);
        assert_eq!(oldest(db.unwind(number)), kept_from);
        // Names are known of all.
        let id = db.block_id(number).unwrap().unwrap();
        assert!(db.has(id).unwrap());
        assert_eq!(oldest(db.set_head(id)), kept_from);
        assert_eq!(oldest(db.block_by_id(id)), kept_from);
        assert_eq!(db.head().number, 400);
    }
    let told = db.unwind(1).unwrap_err().to_string();
    assert!(
        told.contains(&format!("blocks before block {kept_from}")),
        "{told}"
    );
    // Each block between is there or rejected.
    let there = (1..=400).filter(|number| is_kept(&nonce_at(&db, *number)));
    let there: Vec<_> = there.collect();
    assert_eq!(there, (there[0]..=400).collect::<Vec<_>>());
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
    // Back to the promised block, and on from there.
    db.unwind(kept_from).unwrap();
    nonce_at(&db, kept_from).unwrap();
    assert_eq!(db.stats().unwrap().kept_from, kept_from);
    oldest(db.unwind(kept_from - 1));
    advance(&db, kept_from + 120);
    assert!(db.stats().unwrap().kept_from > kept_from);
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
    db.close().unwrap();
    let (db, recovery) = Db::open(Arc::new(disk), options(None)).unwrap();
    assert_eq!(
        (db.head().number, recovery.notes),
        (kept_from + 120, vec![])
    );
    oldest(db.block(1));
}

/// A block without reverts down to it can't be built upon: neither committed aside, nor as the head.
#[test]
fn a_view_that_is_held_while_its_block_leaves_can_be_read_and_not_built_upon() {
    let (db, disk) = database_at(40, options(Some(KEEP)), 4);
    let view = db.view_at(25).unwrap();
    let build = |name: &str| {
        let changes = Changes::new(vec![put(path(3), 77)]);
        seal(view.clone(), name, changes, vec![])
    };
    let early = build("early").unwrap();
    advance(&db, 400);
    assert_eq!(view.account(&path(25)).unwrap(), Some(account(25)));
    let late = build("late").unwrap();
    let head = db.head();
    for sealed in [early, late] {
        let id = sealed.id();
        oldest(sealed.commit());
        assert!(!db.has(id).unwrap());
    }
    assert_eq!(db.head(), head);
    advance(&db, 410);
    drop(view);
    db.close().unwrap();
    let (db, _) = Db::open(Arc::new(disk), options(Some(KEEP))).unwrap();
    assert_eq!(db.head().number, 410);
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
}

/// Of all files but the block index, which has 48 bytes for each block.
fn bytes_on_disk(dir: &std::path::Path) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                todo.push(entry.path());
                continue;
            }
            let path = entry.path();
            let is_index = path.file_name().unwrap() == "blocks.idx";
            let of = match path.extension().and_then(|ending| ending.to_str()) {
                _ if is_index => "block index",
                Some("log") => "log",
                Some("seg") => "segments",
                _ => "others",
            };
            *sizes.entry(of.to_owned()).or_default() += meta.len();
        }
    }
    sizes
}

#[test]
fn disk_use_levels_off_where_few_blocks_are_kept() {
    let blocks = if cambium_seeds::is_long() {
        100_000
    } else {
        4_000
    };
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
    let db = make(disk, options(Some(KEEP)), ACCOUNTS, slots_of);
    // The largest of each quarter.
    let mut quarters: Vec<BTreeMap<String, u64>> = Vec::new();
    for quarter in 0..4 {
        let mut largest: BTreeMap<String, u64> = BTreeMap::new();
        for part in 1..=20 {
            advance(&db, blocks / 4 * quarter + blocks / 80 * part);
            for (of, bytes) in bytes_on_disk(dir.path()) {
                let max = largest.entry(of).or_default();
                *max = bytes.max(*max);
            }
        }
        quarters.push(largest);
    }
    say(&format!("{blocks} blocks, {KEEP} kept: {quarters:?}"));
    let (second, last) = (&quarters[1], &quarters[3]);
    for of in ["log", "segments", "others"] {
        assert!(last[of] * 10 <= second[of] * 12, "{of}: {quarters:?}");
    }
    assert_eq!(
        last["block index"],
        48 * (blocks / FLUSH_EVERY * FLUSH_EVERY - blocks % 3 + 2)
    );
}

/// An option is for as long as a database is open.
#[test]
fn blocks_that_were_kept_leave_once_fewer_are_to_be() {
    let (db, disk) = database_at(200, options(None), 5);
    nonce_at(&db, 1).unwrap();
    let all = log_files(&disk).len();
    db.close().unwrap();
    let reopened = |keep| Db::open(Arc::new(disk.clone()), options(keep)).unwrap().0;
    let db = reopened(Some(KEEP));
    nonce_at(&db, 1).unwrap();
    // The last two checkpoints are to say so, and blocks before them not to be in memory.
    advance(&db, 230);
    assert!(log_files(&disk).len() < all / 2, "{:?}", log_files(&disk));
    oldest(nonce_at(&db, 1));
    let kept_from = db.stats().unwrap().kept_from;
    db.close().unwrap();
    let db = reopened(None);
    advance(&db, 400);
    assert_eq!(db.stats().unwrap().kept_from, kept_from);
    for number in kept_from..=400 {
        nonce_at(&db, number).unwrap();
    }
    // With none, the blocks that branches of the newest heights need stay.
    db.close().unwrap();
    let db = reopened(Some(0));
    advance(&db, 440);
    let kept_from = db.stats().unwrap().kept_from;
    assert!((420..=432).contains(&kept_from), "{kept_from}");
    for number in kept_from..=440 {
        nonce_at(&db, number).unwrap();
    }
}

/// The block index is rebuilt from the present records; its entries of older blocks stay where possible.
#[test]
fn a_block_index_is_made_again_without_the_old_blocks() {
    let (db, disk) = database_at(405, options(Some(KEEP)), 6);
    let ids: Vec<BlockId> = (0..=405)
        .map(|n| db.block_id(n).unwrap().unwrap())
        .collect();
    let kept_from = db.stats().unwrap().kept_from;
    db.close().unwrap();
    let with_index = |change: &dyn Fn(&FaultyDisk)| {
        let disk = disk.duplicate();
        change(&disk);
        disk
    };
    let record = |number: u64| 48 * (number + 1);
    let cases: [(&str, FaultyDisk, bool); 4] = [
        (
            "gone",
            with_index(&|disk| disk.remove("blocks.idx").unwrap()),
            true,
        ),
        (
            "bad header",
            with_index(&|disk| disk.flip_bit("blocks.idx", 3, 1)),
            false,
        ),
        (
            "cut short",
            with_index(&|disk| {
                disk.open("blocks.idx")
                    .unwrap()
                    .set_len(record(50))
                    .unwrap()
            }),
            true,
        ),
        (
            "a bad entry of a block that is kept",
            with_index(&|disk| disk.flip_bit("blocks.idx", record(kept_from + 2), 1)),
            false,
        ),
    ];
    for (what, disk, old_are_lost) in cases {
        let arc: Arc<dyn Disk> = Arc::new(disk.clone());
        let report = repair(&arc, options(Some(KEEP)), false, &mut |_| {}).unwrap();
        assert!(
            report.is_whole() && !report.findings.is_empty(),
            "{what}: {report:?}"
        );
        assert_eq!(report.head, ids[405], "{what}");
        let (db, _) = Db::open(arc, options(Some(KEEP))).unwrap();
        for (number, id) in ids.iter().enumerate() {
            let number = number as u64;
            match db.block_id(number) {
                Ok(found) => assert_eq!(found, Some(*id), "{what}"),
                Err(StateError::NotKept { .. }) => {
                    assert!(old_are_lost && number < kept_from, "{what}: block {number}");
                }
                Err(error) => panic!("{what}: {error}"),
            }
            if number >= kept_from {
                nonce_at(&db, number).unwrap();
            }
        }
        assert!(db.check(&mut |_| {}).unwrap().damage.is_empty(), "{what}");
        advance(&db, 500);
        assert!(db.check(&mut |_| {}).unwrap().damage.is_empty(), "{what}");
        db.close().unwrap();
    }
}

/// Whichever file of the log is lost, and however: opening and repair go by what is kept.
#[test]
fn the_oldest_file_of_the_log_is_brought_back_or_its_loss_is_told() {
    let (db, disk) = database_at(405, options(Some(KEEP)), 7);
    let head = db.head();
    db.close().unwrap();
    let names = log_files(&disk);
    assert!(names.len() > 3, "{names:?}");
    for name in &names {
        for bit in [None, Some((5, 1)), Some((40, 3))] {
            let disk = disk.duplicate();
            match bit {
                None => disk.remove(name).unwrap(),
                Some((at, bit)) => disk.flip_bit(name, at, bit),
            }
            let arc: Arc<dyn Disk> = Arc::new(disk.clone());
            let report = repair(&arc, options(Some(KEEP)), false, &mut |_| {}).unwrap();
            let what = format!("{name} {bit:?}: {report:?}");
            let (db, _) = Db::open(arc.clone(), options(Some(KEEP))).unwrap();
            assert_eq!(db.head(), report.head, "{what}");
            assert!(db.head() == head || report.lost_blocks, "{what}");
            let root = db.view().unwrap().state_root();
            assert_ne!(root, B256::ZERO);
            advance(&db, 500);
            db.close().unwrap();
            let again = repair(&arc, options(Some(KEEP)), true, &mut |_| {}).unwrap();
            assert!(again.is_sound(), "{what}: {again:?}");
        }
    }
}

#[test]
fn readers_and_backups_go_by_what_is_kept() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let disk = |at: usize| -> Arc<dyn Disk> { Arc::new(StdDisk::new(dirs[at].path())) };
    let options = Options {
        reader_lag: 3,
        ..options(Some(KEEP))
    };
    let writer = make(disk(0), options, ACCOUNTS, slots_of);
    advance(&writer, 200);
    let (mut reader, _) = Db::open_read_only(disk(0), options).unwrap();
    let kept_from = reader.stats().unwrap().kept_from;
    assert_eq!(kept_from, writer.stats().unwrap().kept_from);
    nonce_at(&reader, kept_from).unwrap();
    oldest(reader.block(1));
    let report = backup(&disk(0), &disk(1), options, &mut |_| {}).unwrap();
    assert_eq!(report.head, writer.head());
    advance(&writer, 400);
    // The reader's files were removed meanwhile: it gets an error, and catches up.
    let gone = nonce_at(&reader, kept_from).unwrap_err();
    assert!(
        matches!(gone, StateError::Store(StoreError::ReaderBehind { .. })),
        "{gone}"
    );
    reader.catch_up().unwrap();
    assert_eq!(reader.head(), writer.head());
    oldest(nonce_at(&reader, kept_from));
    nonce_at(&reader, 390).unwrap();
    let (copy, _) = Db::open(disk(1), options).unwrap();
    assert_eq!(copy.head().number, 200);
    nonce_at(&copy, kept_from).unwrap();
    assert!(copy.check(&mut |_| {}).unwrap().damage.is_empty());
    advance(&copy, 300);
    assert!(copy.check(&mut |_| {}).unwrap().damage.is_empty());
    // The newest checkpoint of a copy may be lost, too.
    copy.close().unwrap();
    let newest = std::fs::read_dir(dirs[1].path()).unwrap();
    let names = newest.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let newest = names.filter(|name| name.starts_with("checkpoint-")).max();
    std::fs::remove_file(dirs[1].path().join(newest.unwrap())).unwrap();
    let (copy, _) = Db::open(disk(1), options).unwrap();
    assert_eq!(copy.head().number, 300);
    assert!(copy.check(&mut |_| {}).unwrap().damage.is_empty());
}

/// A block that is imported again after its record was lost is behind its children in the log.
#[test]
fn a_block_that_was_imported_again_keeps_its_children() {
    // The last merge is at block 50.
    let (db, disk) = database_at(59, options(None), 8);
    let head = db.head();
    let positions = log_files(&disk);
    let lost = db.block(53).unwrap().unwrap();
    let (changes, _) = db.block_changes(53).unwrap().unwrap();
    db.close().unwrap();
    // Wherever that block's record is, it is found by its hash.
    let at = positions.iter().find_map(|name| {
        let bytes = disk.contents(name)?;
        let hash = lost.id.hash.as_slice();
        let is_head = |at: &usize| bytes[*at..].starts_with(hash);
        let at = (0..bytes.len() - 32).find(is_head)?;
        // Not where it is a child's parent.
        let number = lost.id.number.to_le_bytes();
        bytes[at - 8..]
            .starts_with(&number)
            .then_some((name.clone(), at))
    });
    let (name, at) = at.expect("its record");
    disk.flip_bit(&name, at as u64, 1);
    let arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let report = repair(&arc, options(None), false, &mut |_| {}).unwrap();
    assert!(report.findings.len() == 1, "{report:?}");
    let (db, _) = Db::open(arc.clone(), options(Some(KEEP))).unwrap();
    assert_eq!(db.head().number, 52, "{report:?}");
    let staged = db.view().unwrap().session().finish(changes, vec![]);
    staged.unwrap().seal(lost).unwrap().commit().unwrap();
    db.set_head(head).unwrap();
    for to in [70, 90, 100, 150, 200] {
        advance(&db, to);
        let kept_from = db.stats().unwrap().kept_from;
        for number in kept_from.max(1)..=db.head().number {
            nonce_at(&db, number).unwrap();
        }
    }
    assert!(!log_files(&disk).contains(&"log/00000001.log".to_owned()));
}

/// A chain may begin anywhere: before there is something to leave, nothing is said of it.
#[test]
fn a_chain_that_begins_above_zero_opens_again() {
    for (first, spare, keep, blocks) in [
        (1_000, 256, 30, 200),
        (1_000, 4, 5_000, 20),
        (1_000, 4, 30, 300),
        (1, 0, 30, 10),
        (1, 0, u64::MAX, 10),
    ] {
        let what = format!("first {first}, {keep} kept and {spare} spared, {blocks} blocks");
        let disk = FaultyDisk::new(11);
        let options = sparing(Some(keep), spare);
        let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
        for index in 0..ACCOUNTS {
            loader.account(path(index), &account(0), []).unwrap();
        }
        let loaded = loader.finish(&mut |_| {}).unwrap();
        let meta = BlockMeta {
            id: BlockId::new(first, B256::with_last_byte(1)),
            ..first_block(loaded.root())
        };
        let db = loaded.create(meta, vec![]).unwrap();
        advance(&db, first + blocks);
        db.flush(0).unwrap();
        let (head, kept_from) = (db.head(), db.stats().unwrap().kept_from);
        db.close().unwrap();
        let (db, recovery) = Db::open(Arc::new(disk), options).unwrap();
        assert_eq!((db.head(), recovery.notes), (head, vec![]), "{what}");
        assert!(
            kept_from >= first && kept_from + keep.min(blocks) <= first + blocks,
            "{what}"
        );
        db.unwind(kept_from).unwrap();
        advance(&db, head.number + 1);
        assert!(db.check(&mut |_| {}).unwrap().damage.is_empty(), "{what}");
    }
}

/// Removed blocks do not come back when more are spared.
#[test]
fn more_can_be_spared_than_before() {
    let disk = FaultyDisk::new(12);
    let open = |spare| Db::open(Arc::new(disk.clone()), sparing(Some(KEEP), spare)).unwrap();
    make(
        Arc::new(disk.clone()),
        sparing(Some(KEEP), 4),
        ACCOUNTS,
        slots_of,
    )
    .close()
    .unwrap();
    let (db, _) = open(4);
    advance(&db, 400);
    db.close().unwrap();
    let (db, _) = open(256);
    advance(&db, 450);
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.damage.is_empty(), "{:?}", check.damage);
    let head = db.head();
    db.close().unwrap();
    disk.remove("blocks.idx").unwrap();
    let arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = sparing(Some(KEEP), 256);
    let report = repair(&arc, options, false, &mut |_| {}).unwrap();
    assert!(report.is_whole() && report.head == head, "{report:?}");
    let (db, _) = open(256);
    advance(&db, 470);
    db.close().unwrap();
    assert!(repair(&arc, options, true, &mut |_| {}).unwrap().is_sound());
}

/// A branch that was given up long ago is in a file that stays, and the chain's own blocks are not: an
/// index that is made again must not name the branch's.
#[test]
fn a_remade_index_names_no_block_of_a_branch_that_was_given_up() {
    let options = sparing(Some(10), 4);
    let (db, disk) = database_at(60, options, 13);
    let files = log_files(&disk).len();
    while log_files(&disk).len() == files {
        advance(&db, db.head().number + 1);
    }
    let main = db.head();
    db.unwind(main.number - 6).unwrap();
    advance(&db, main.number + 1);
    db.set_head(main).unwrap();
    let mut lost = 0;
    for to in (main.number + 1..main.number + 120).step_by(5) {
        advance(&db, to);
        db.flush(2).unwrap();
        let kept_from = db.stats().unwrap().kept_from;
        let copy = disk.duplicate();
        copy.flip_bit("blocks.idx", 3, 1);
        let (again, _) = Db::open(Arc::new(copy.clone()), options).unwrap();
        assert_eq!(again.head(), db.head());
        for number in 0..=to {
            match again.block_id(number) {
                Ok(found) => assert_eq!(found, db.block_id(number).unwrap(), "block {number}"),
                Err(StateError::NotKept { oldest }) => {
                    assert!(number < oldest && oldest == kept_from);
                    lost += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(lost, 0, "the header alone was damaged");
}

/// Back at the oldest block, of whose ancestors not even the names are there.
#[test]
fn the_oldest_block_can_be_built_upon_without_the_names_of_those_before() {
    let options = sparing(Some(20), 0);
    let (db, disk) = database_at(100, options, 14);
    let mut oldest = 0;
    for to in 101..180 {
        advance(&db, to);
        db.flush(0).unwrap();
        let kept_from = db.stats().unwrap().kept_from;
        let copy = disk.duplicate();
        copy.remove("blocks.idx").unwrap();
        let (again, _) = Db::open(Arc::new(copy.crash()), options).unwrap();
        if again.stats().unwrap().kept_from != kept_from {
            continue;
        }
        oldest += 1;
        again.unwind(kept_from).unwrap();
        advance(&again, kept_from + 25);
        again.flush(0).unwrap();
        assert!(again.check(&mut |_| {}).unwrap().damage.is_empty());
    }
    assert!(oldest > 0);
}

/// A copy onto another device takes its time, and what is to be copied may leave meanwhile.
#[test]
fn a_backup_is_made_while_blocks_leave() {
    let from: Arc<dyn Disk> = Arc::new(FaultyDisk::new(15));
    let to: Arc<dyn Disk> = Arc::new(FaultyDisk::new(16));
    let db = make(from.clone(), options(Some(KEEP)), ACCOUNTS, |_| 3);
    advance(&db, 300);
    let mut is_ahead = false;
    let report = backup(&from, &to, options(Some(KEEP)), &mut |_| {
        // While the first segment is copied: five merges, which remove many files.
        if !is_ahead && to.list("segments").is_ok_and(|names| !names.is_empty()) {
            is_ahead = true;
            advance(&db, 350);
        }
    });
    assert!(is_ahead);
    assert_eq!(report.unwrap().head.number, 300);
    let (copy, _) = Db::open(to, options(Some(KEEP))).unwrap();
    assert_eq!(copy.head().number, 300);
    assert!(copy.check(&mut |_| {}).unwrap().damage.is_empty());
    advance(&copy, 350);
    assert!(copy.check(&mut |_| {}).unwrap().damage.is_empty());
}

/// An index rebuilt by an opening is there at the next one, with or without a merge.
#[test]
fn a_remade_index_is_made_once() {
    for keep in [None, Some(KEEP)] {
        let (db, disk) = database_at(200, options(keep), 17);
        db.close().unwrap();
        disk.remove("blocks.idx").unwrap();
        let notes = || {
            let (db, recovery) = Db::open(Arc::new(disk.clone()), options(keep)).unwrap();
            db.close().unwrap();
            recovery.notes
        };
        assert_eq!(notes().len(), 1);
        assert_eq!(notes(), Vec::<String>::new());
    }
}
