//! Promises about opening and repairing, each of which was once broken.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{AccountDiff, BlockId, Changes};
use cambium_state::{
    BlockMeta, Db, Disk, Fault, FaultyDisk, FileSizes, Loader, Options, StateError, repair,
};
use cambium_store::lock_data_dir;
use cambium_testkit::{
    Random,
    plain::{account, first_block, make, path, put, tiny_options, wait_until_closed},
    say,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

const ACCOUNTS: u64 = 300;

fn database() -> (Db, FaultyDisk) {
    database_with(tiny_options())
}

fn database_with(options: Options) -> (Db, FaultyDisk) {
    database_of(ACCOUNTS, options)
}

fn database_of(accounts: u64, options: Options) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(7);
    let slots_of = |index| if index == 0 { 1000 } else { index % 3 };
    (
        make(Arc::new(disk.clone()), options, accounts, slots_of),
        disk,
    )
}

fn code(number: u64) -> (B256, Bytes) {
    let code = [number as u8; 300];
    (keccak256(code), Bytes::copy_from_slice(&code))
}

/// Block `number` on the head.
fn commit(db: &Db, random: &mut Random, number: u64) {
    let changed: BTreeSet<_> = (0..25).map(|_| random.below(ACCOUNTS - 60)).collect();
    let change = |index| AccountDiff {
        slots: vec![(path(random.below(8)), U256::from(number + 1))],
        ..put(path(index), number)
    };
    let changes: Vec<_> = changed.into_iter().map(change).collect();
    let session = db.view().unwrap().session();
    let staged = session
        .finish(Changes::new(changes), vec![code(number)])
        .unwrap();
    let head = db.head();
    let meta = BlockMeta {
        id: BlockId::new(head.number + 1, keccak256(head.hash)),
        parent: head.hash,
        state_root: staged.root(),
        body: Bytes::from(vec![number as u8; 2000]),
    };
    staged.seal(meta).unwrap().commit().unwrap();
}

fn close(db: Db, disk: &FaultyDisk) -> FaultyDisk {
    drop(db);
    wait_until_closed(disk);
    disk.duplicate()
}

#[test]
fn repairs_that_a_full_disk_ends_leave_no_copies_of_what_they_did_not_change() {
    let (db, disk) = database();
    let mut random = Random::new(9);
    (1..=60).for_each(|number| commit(&db, &mut random, number));
    db.flush(0).unwrap();
    let disk = close(db, &disk);
    let log = disk
        .files()
        .into_iter()
        .find(|name| name.starts_with("log/"));
    let log = log.unwrap();
    let len = disk.contents(&log).unwrap().len() as u64;
    type Damage<'a> = (&'a str, Box<dyn Fn(&FaultyDisk) + 'a>);
    let damages: [Damage<'_>; 2] = [
        ("log", Box::new(|disk| disk.spoil(&log, len / 3, 4096))),
        (
            "codes.dat",
            Box::new(|disk| disk.flip_bit("codes.dat", 5_000, 1)),
        ),
    ];
    for (what, damage) in damages {
        let disk = disk.duplicate();
        damage(&disk);
        let repaired = |disk: &FaultyDisk| {
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            repair(&shared, tiny_options(), false, &mut |_| {})
        };
        let copies = |disk: &FaultyDisk| {
            let names = disk.files().into_iter();
            names.filter(|name| name.ends_with(".damaged")).count()
        };
        let whole = disk.duplicate();
        repaired(&whole).unwrap();
        let expected = copies(&whole);
        let used: u64 = disk
            .files()
            .iter()
            .map(|name| disk.contents(name).unwrap().len() as u64)
            .sum();
        // So little that not even the copy fits, up to some that does.
        let mut failed = 0;
        for more in [0, 100, 1_000, 3_000, 4_000] {
            disk.limit_space(Some(used + more));
            failed += u32::from(repaired(&disk).is_err());
            assert!(copies(&disk) <= expected, "{what}: {more} bytes of room");
        }
        disk.limit_space(None);
        let report = repaired(&disk).unwrap();
        say(&format!(
            "{what}: {failed} failed, {} copies",
            report.copies.len()
        ));
        assert!(failed > 0 && copies(&disk) <= expected.max(1), "{what}");
    }
}

fn contents(disk: &FaultyDisk) -> BTreeMap<String, Option<Vec<u8>>> {
    let names = disk.files().into_iter();
    names
        .filter(|name| name != "cambium.lock")
        .map(|name| (name.clone(), disk.contents(&name)))
        .collect()
}

/// The files that have changed, by name.
fn changed(disk: &FaultyDisk, before: &BTreeMap<String, Option<Vec<u8>>>) -> Vec<String> {
    let now = contents(disk);
    let names: BTreeSet<_> = now.keys().chain(before.keys()).cloned().collect();
    names
        .into_iter()
        .filter(|name| now.get(name) != before.get(name))
        .collect()
}

/// 20 blocks, merged every 7, with the last ones in the log alone.
fn story() -> FaultyDisk {
    let (db, disk) = database();
    let mut random = Random::new(1);
    for number in 1..=20 {
        commit(&db, &mut random, number);
        if number % 7 == 0 {
            db.flush(0).unwrap();
        }
    }
    close(db, &disk)
}

/// "An opening that fails has changed nothing", for reads and openings that fail
/// once, each of them.
fn each_passing_error_changes_nothing(disk: &FaultyDisk, options: Options, what: &str) {
    let whole = disk.duplicate();
    let (db, _) = Db::open(Arc::new(whole.clone()), options).unwrap();
    let head = db.head();
    let calls = whole.calls();
    drop(db);
    let mut broken = BTreeMap::<String, (u64, Vec<String>)>::new();
    let mut failed = 0;
    for call in 0..calls {
        let disk = disk.duplicate();
        let before = contents(&disk);
        disk.fail_call_after(call);
        match Db::open(Arc::new(disk.clone()), options) {
            Ok((db, _)) => assert_eq!(db.head(), head),
            Err(error) => {
                failed += 1;
                // Of writes that fail a part is there.
                let text = error.to_string();
                let writes = [
                    "write", "sync", "create", "rename", "remove", "cut", "resize",
                ];
                let passes = !writes.iter().any(|what| text.contains(what));
                assert!(
                    !error.is_damage(),
                    "{what}: call {call}: as damage: {error}"
                );
                let mut changed = changed(&disk, &before);
                // The last step, once all is read, may be done in part, and can be repeated.
                changed.retain(|name| !is_settled(name, what));
                disk.clear_faults();
                let again = Db::open(Arc::new(disk.clone()), options);
                let (again, _) = again.unwrap_or_else(|e| panic!("{what}: call {call}: {e}"));
                assert_eq!(again.head(), head, "{what}: call {call}");
                if passes && !changed.is_empty() {
                    let entry = broken.entry(text).or_default();
                    *entry = (entry.0 + 1, changed);
                }
            }
        }
    }
    say(&format!("{what}: {failed} of {calls} openings failed"));
    assert!(
        broken.is_empty(),
        "{what}: failed openings have changed: {broken:#?}"
    );
}

/// Whether a file is one that is set aside with a damaged checkpoint, or cut off then.
fn is_settled(name: &str, what: &str) -> bool {
    what.contains("checkpoint")
        && (name.starts_with("checkpoint-") || name.starts_with("segments/"))
}

#[test]
fn a_failed_opening_changes_nothing() {
    each_passing_error_changes_nothing(&story(), tiny_options(), "whole");
}

/// The same with less memory for the index than it takes.
#[test]
fn a_failed_opening_with_a_large_index_changes_nothing() {
    let options = Options {
        index_bytes_max: Some(0),
        ..tiny_options()
    };
    each_passing_error_changes_nothing(&story(), options, "a large index");
}

/// The same with one damaged file.
#[test]
fn a_failed_opening_beside_a_damaged_block_index_changes_nothing() {
    let disk = story();
    disk.remove("blocks.idx").unwrap();
    each_passing_error_changes_nothing(&disk, tiny_options(), "no block index");
    let disk = story();
    disk.flip_bit("blocks.idx", 48 * 14 + 3, 1);
    each_passing_error_changes_nothing(&disk, tiny_options(), "a wrong block index");
}

fn checkpoints(disk: &FaultyDisk) -> Vec<String> {
    let is_one = |name: &String| {
        name.strip_prefix("checkpoint-")
            .is_some_and(|number| number.parse::<u64>().is_ok())
    };
    disk.files().into_iter().filter(is_one).collect()
}

#[test]
fn a_failed_opening_beside_a_damaged_checkpoint_changes_nothing() {
    let disk = story();
    let names = checkpoints(&disk);
    disk.flip_bit(names.last().unwrap(), 100, 1);
    each_passing_error_changes_nothing(&disk, tiny_options(), "the newest checkpoint");
    let disk = story();
    disk.flip_bit(&names[0], 100, 1);
    each_passing_error_changes_nothing(&disk, tiny_options(), "the oldest checkpoint");
}

/// The same with both: the opening writes the index of the checkpoint before as a whole, above the damaged one, and still needs what it was
/// copied from if it fails afterwards.
#[test]
fn a_failed_opening_with_a_large_index_beside_a_damaged_checkpoint_changes_nothing() {
    let options = Options {
        index_bytes_max: Some(0),
        ..tiny_options()
    };
    for at in [100, 20] {
        let disk = story();
        let newest = checkpoints(&disk).pop().unwrap();
        disk.flip_bit(&newest, at, 1);
        each_passing_error_changes_nothing(&disk, options, "a large index, the newest checkpoint");
    }
}

/// The same with one damaged file, without which it does not open, after a merge that was cut short.
#[test]
fn an_opening_that_lacks_codes_changes_nothing() {
    let (db, disk) = database();
    let mut random = Random::new(1);
    for number in 1..=14 {
        commit(&db, &mut random, number);
        if number % 7 == 0 {
            db.flush(0).unwrap();
        }
    }
    for number in 15..=20 {
        commit(&db, &mut random, number);
    }
    // The merge is cut short before its checkpoint.
    disk.inject(Fault::FailedWrite, "blocks.idx", 1);
    assert!(db.flush(0).is_err());
    disk.clear_faults();
    let disk = close(db, &disk);
    let len = disk.contents("codes.dat").unwrap().len() as u64;
    disk.open("codes.dat").unwrap().set_len(len / 2).unwrap();
    let before = contents(&disk);
    let Err(error) = Db::open(Arc::new(disk.clone()), tiny_options()) else {
        panic!("opens");
    };
    say(&format!("{error}"));
    assert_eq!(changed(&disk, &before), Vec::<String>::new());
}

/// Blocks that the checkpoint has above its own, as when blocks are committed beside a merge: their records are before
/// the place from which it replays.
fn kept() -> FaultyDisk {
    let (db, disk) = database();
    let mut random = Random::new(1);
    for number in 1..=20 {
        commit(&db, &mut random, number);
        if number % 7 == 0 {
            db.flush(4).unwrap();
        }
    }
    db.flush(5).unwrap();
    assert_eq!(db.snapshot_block().number, 15);
    close(db, &disk)
}

/// Damages a file at a place.
type Damage = fn(&FaultyDisk, &str, u64, u64);

/// With any one file damaged, the database opens, or names the file and advises a repair, and opens after the repair.
fn damage_each(
    disk: &FaultyDisk,
    head: u64,
    damages: &[(&str, Damage)],
    steps: u64,
) -> Vec<String> {
    let mut broken = Vec::new();
    for name in disk.files() {
        if name == "cambium.lock" {
            continue;
        }
        // Only some files, for a quick look.
        if std::env::var("DAMAGE").is_ok_and(|only| !name.starts_with(&only)) {
            continue;
        }
        let bytes = disk.contents(&name).unwrap();
        let written = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1) as u64;
        if written == 0 {
            continue;
        }
        for (what, damage) in damages {
            for step in 0..steps {
                let at = (written - 1) * step / (steps - 1).max(1);
                let damaged = disk.duplicate();
                damage(&damaged, &name, at, written);
                if damaged.contents(&name).as_ref() == Some(&bytes) && *what != "unreadable" {
                    continue;
                }
                let what = format!("{name} of {written}, {what} at {at}");
                let run = || one_damage(&damaged, head, &name, &what);
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => broken.push(error),
                    Err(_) => broken.push(format!("{what}: panicked")),
                }
            }
        }
    }
    broken
}

fn one_damage(damaged: &FaultyDisk, head: u64, name: &str, what: &str) -> Result<(), String> {
    let copy = damaged.duplicate();
    match Db::open(Arc::new(copy.clone()), tiny_options()) {
        Ok((db, _)) => {
            let there = db.head().number;
            let is_newest_log = name.starts_with("log/");
            if there != head && !is_newest_log {
                return Err(format!("{what}: opens at {there}"));
            }
            let report = db.check(&mut |_| {}).map_err(|error| error.to_string())?;
            drop(report);
        }
        Err(error) => {
            let error = error.to_string();
            if !error.contains(name) || !error.contains("repair") {
                return Err(format!("{what}: does not open, and says: {error}"));
            }
        }
    }
    let copy = damaged.duplicate();
    let arc: Arc<dyn Disk> = Arc::new(copy.clone());
    let planned = repair(&arc, tiny_options(), true, &mut |_| {});
    let done = repair(&arc, tiny_options(), false, &mut |_| {});
    match (planned, done) {
        (Ok(planned), Ok(done)) => {
            if planned.head != done.head || planned.findings != done.findings {
                return Err(format!("{what}: planned {planned:?}, done {done:?}"));
            }
            if done.head.number != head && !name.starts_with("log/") {
                return Err(format!("{what}: repaired to {}", done.head.number));
            }
            if done.head.number < head && done.is_whole() && !done.lost_blocks && done.is_sound() {
                // The loss can't be detected.
                let (db, _) = Db::open(arc.clone(), tiny_options()).map_err(|e| e.to_string())?;
                drop(db);
            }
        }
        (planned, Err(error)) => {
            let planned = planned.map(|_| ()).map_err(|error| error.to_string());
            return Err(format!("{what}: no repair: {error} (planned {planned:?})"));
        }
        (Err(error), Ok(_)) => return Err(format!("{what}: planned {error}, but done")),
    }
    wait_until_closed(&copy);
    let again = repair(&arc, tiny_options(), false, &mut |_| {});
    let again = again.map_err(|error| format!("{what}: no second repair: {error}"))?;
    if again.findings.iter().any(|one| one.is_repaired) {
        return Err(format!("{what}: mends again: {again:?}"));
    }
    wait_until_closed(&copy);
    let opened = Db::open(arc, tiny_options());
    opened.map_err(|error| format!("{what}: does not open after the repair: {error}"))?;
    Ok(())
}

fn assert_none(broken: &[String]) {
    for one in broken.iter().take(40) {
        say(one);
    }
    assert!(broken.is_empty(), "{} are broken", broken.len());
}

fn flip(disk: &FaultyDisk, name: &str, at: u64, _: u64) {
    disk.flip_bit(name, at, (at % 8) as u8);
}

fn zeros(disk: &FaultyDisk, name: &str, at: u64, _: u64) {
    let len = disk.contents(name).unwrap().len() as u64;
    let at = at / 512 * 512;
    let file = disk.open(name).unwrap();
    file.write_at(&vec![0; 512.min(len - at) as usize], at)
        .unwrap();
}

fn ones(disk: &FaultyDisk, name: &str, at: u64, _: u64) {
    let len = disk.contents(name).unwrap().len() as u64;
    let file = disk.open(name).unwrap();
    file.write_at(&vec![0xff; 8.min(len - at) as usize], at)
        .unwrap();
}

fn cut(disk: &FaultyDisk, name: &str, at: u64, _: u64) {
    disk.open(name).unwrap().set_len(at).unwrap();
}

fn appended(disk: &FaultyDisk, name: &str, at: u64, _: u64) {
    let len = disk.contents(name).unwrap().len() as u64;
    let bytes: Vec<u8> = (0..1 + at % 5000)
        .map(|byte| (byte % 251) as u8 + 1)
        .collect();
    disk.open(name).unwrap().write_at(&bytes, len).unwrap();
}

/// A block of the device is a copy of another of the same file.
fn copied(disk: &FaultyDisk, name: &str, at: u64, written: u64) {
    let bytes = disk.contents(name).unwrap();
    let (to, from) = (at / 512 * 512, (written / 2 + at / 3) % written / 512 * 512);
    let end = (from + 512).min(bytes.len() as u64);
    let end = end.min(from + bytes.len() as u64 - to);
    let file = disk.open(name).unwrap();
    file.write_at(&bytes[from as usize..end as usize], to)
        .unwrap();
}

fn unreadable(disk: &FaultyDisk, name: &str, at: u64, _: u64) {
    disk.spoil(name, at, 1);
}

#[test]
fn a_flip_where_blocks_are_above_the_checkpoint() {
    assert_none(&damage_each(&kept(), 20, &[("flipped", flip)], 24));
}

#[test]
fn unreadable_where_blocks_are_above_the_checkpoint() {
    assert_none(&damage_each(&kept(), 20, &[("unreadable", unreadable)], 6));
}

#[test]
fn zeros_or_ones_anywhere() {
    assert_none(&damage_each(
        &story(),
        20,
        &[("zeros", zeros), ("ones", ones)],
        10,
    ));
}

#[test]
fn cut_anywhere() {
    assert_none(&damage_each(&story(), 20, &[("cut", cut)], 12));
}

#[test]
fn longer_by_anything() {
    assert_none(&damage_each(&story(), 20, &[("appended", appended)], 4));
}

#[test]
fn a_block_copied_to_another_place() {
    assert_none(&damage_each(&story(), 20, &[("copied", copied)], 12));
}

#[test]
fn missing_where_blocks_are_above_the_checkpoint() {
    let missing: fn(&FaultyDisk, &str, u64, u64) = |disk, name, _, _| disk.remove(name).unwrap();
    assert_none(&damage_each(&kept(), 20, &[("missing", missing)], 1));
}

/// A repair that loses power at any operation, or one of whose operations fails, and is run again, has the same result.
fn interrupted(disk: &FaultyDisk, what: &str, power: bool) -> Vec<String> {
    let whole = disk.duplicate();
    let arc: Arc<dyn Disk> = Arc::new(whole.clone());
    let expected = repair(&arc, tiny_options(), false, &mut |_| {}).unwrap();
    let damage_left = {
        wait_until_closed(&whole);
        let (db, _) = Db::open(arc, tiny_options()).unwrap();
        db.check(&mut |_| {}).unwrap().damage
    };
    let mut broken = Vec::new();
    for operation in 0.. {
        let damaged = disk.duplicate();
        let arc: Arc<dyn Disk> = Arc::new(damaged.clone());
        match power {
            true => damaged.lose_power_after(operation),
            false => damaged.fail_call_after(operation * 3),
        }
        let cut = repair(&arc, tiny_options(), false, &mut |_| {});
        let (is_over, next) = match power {
            true => (!damaged.is_off(), damaged.crash()),
            false => {
                let is_over = damaged.take_hits().is_empty();
                damaged.clear_faults();
                wait_until_closed(&damaged);
                (is_over, damaged.clone())
            }
        };
        drop(cut);
        let arc: Arc<dyn Disk> = Arc::new(next.clone());
        match repair(&arc, tiny_options(), false, &mut |_| {}) {
            Ok(again) => {
                if again.head != expected.head {
                    broken.push(format!(
                        "{what}, cut at {operation}: head {} not {}",
                        again.head, expected.head
                    ));
                }
                wait_until_closed(&next);
                match Db::open(arc, tiny_options()) {
                    Ok((db, _)) => {
                        let left = db.check(&mut |_| {}).unwrap().damage;
                        if left.len() > damage_left.len() {
                            broken.push(format!(
                                "{what}, cut at {operation}: {left:?} not {damage_left:?}"
                            ));
                        }
                    }
                    Err(error) => broken.push(format!("{what}, cut at {operation}: {error}")),
                }
            }
            Err(error) => broken.push(format!("{what}, cut at {operation}: no repair: {error}")),
        }
        if is_over {
            break;
        }
    }
    broken
}

#[test]
fn a_repair_that_is_cut_short_is_done_by_the_next() {
    let story = story();
    let mut broken = Vec::new();
    for name in story.files() {
        if name == "cambium.lock" {
            continue;
        }
        let bytes = story.contents(&name).unwrap();
        let Some(written) = bytes.iter().rposition(|byte| *byte != 0) else {
            continue;
        };
        for power in [true, false] {
            let disk = story.duplicate();
            disk.flip_bit(&name, written as u64 / 2, 3);
            broken.extend(interrupted(
                &disk,
                &format!("{name} flipped ({power})"),
                power,
            ));
            let disk = story.duplicate();
            disk.remove(&name).unwrap();
            let arc: Arc<dyn Disk> = Arc::new(disk.duplicate());
            if repair(&arc, tiny_options(), false, &mut |_| {}).is_ok() {
                broken.extend(interrupted(
                    &disk,
                    &format!("{name} missing ({power})"),
                    power,
                ));
            }
        }
    }
    assert_none(&broken);
}

/// "A database can be opened with other sizes than before."
#[test]
fn a_database_of_any_sizes() {
    let open_again = |disk: &FaultyDisk| {
        let opened = Db::open(Arc::new(disk.clone()), tiny_options());
        opened.is_ok_and(|(db, _)| db.head().number == 20)
    };
    let sizes = |segment, buffer, segments, log, extend| FileSizes {
        segment_bytes_max: segment,
        segment_buffer_bytes: buffer,
        segments_max: segments,
        log_file_bytes_max: log,
        log_extend_bytes: extend,
        ..FileSizes::default()
    };
    let all = [
        ("zero segments", sizes(0, 16 << 10, 512, 64 << 10, 16 << 10)),
        ("no buffer", sizes(64 << 10, 0, 512, 64 << 10, 16 << 10)),
        ("log files of nothing", sizes(64 << 10, 16 << 10, 512, 0, 0)),
        (
            "one segment",
            sizes(64 << 10, 16 << 10, 1, 64 << 10, 16 << 10),
        ),
        (
            "no segments",
            sizes(64 << 10, 16 << 10, 0, 64 << 10, 16 << 10),
        ),
        (
            "too many segments",
            sizes(64 << 10, 16 << 10, u32::MAX, 64 << 10, 0),
        ),
        (
            "large log files",
            sizes(64 << 10, 16 << 10, 512, 1 << 31, 0),
        ),
        (
            "too large log files",
            sizes(64 << 10, 16 << 10, 512, u32::MAX, 0),
        ),
        (
            "large segments",
            sizes(256 << 20, 16 << 10, 512, 64 << 10, 0),
        ),
        (
            "too large segments",
            sizes(u64::MAX, 16 << 10, 512, 64 << 10, 0),
        ),
    ];
    let mut broken = Vec::new();
    for memory_bytes in [0, 1 << 20, 64 << 20] {
        for (what, files) in all {
            for unfinalized_blocks in [0, 1, 64] {
                let disk = story();
                let options = Options {
                    memory_bytes,
                    unfinalized_blocks,
                    files,
                    ..tiny_options()
                };
                let run = || -> Result<(), StateError> {
                    let (db, _) = Db::open(Arc::new(disk.clone()), options)?;
                    let mut random = Random::new(9);
                    for number in 21..=26 {
                        commit(&db, &mut random, number);
                        db.flush((number % 2) as usize)?;
                    }
                    db.unwind(22)?;
                    db.flush(0)?;
                    let report = db.check(&mut |_| {})?;
                    assert!(report.damage.is_empty(), "{:?}", report.damage);
                    drop(db);
                    wait_until_closed(&disk);
                    let (db, _) = Db::open(Arc::new(disk.clone()), options)?;
                    assert_eq!(db.head().number, 22);
                    Ok(())
                };
                let what = format!("{what}, memory {memory_bytes}, {unfinalized_blocks} blocks");
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(())) => {}
                    // Sizes outside the limits are refused, and nothing is changed.
                    Ok(Err(StateError::BadOptions(_))) => {
                        assert!(open_again(&disk), "{what}");
                    }
                    Ok(Err(error)) => broken.push(format!("{what}: {error}")),
                    Err(_) => broken.push(format!("{what}: panicked")),
                }
            }
        }
    }
    assert_none(&broken);
}

/// A code of the first state, which is in codes.dat alone, and of which only older states know.
#[test]
fn a_code_that_older_states_need_is_missed_by_a_repair() {
    let (hash, bytes) = code(9);
    let disk = FaultyDisk::new(7);
    let mut loader = Loader::new(Arc::new(disk.clone()), tiny_options()).unwrap();
    loader.code(hash, &bytes).unwrap();
    for index in 0..20 {
        let with_code = cambium_primitives::Account {
            code_hash: hash,
            ..account(0)
        };
        let account = if index == 3 { with_code } else { account(0) };
        loader.account(path(index), &account, []).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    let db = loaded.create(meta, vec![]).unwrap();
    cambium_testkit::plain::commit(&db, vec![put(path(3), 1)], vec![code(10)]);
    db.flush(0).unwrap();
    let disk = close(db, &disk);
    disk.remove("codes.dat").unwrap();
    let arc: Arc<dyn Disk> = Arc::new(disk);
    let report = repair(&arc, tiny_options(), false, &mut |_| {}).unwrap();
    assert!(!report.is_whole(), "{report:?}");
    let told = |finding: &cambium_state::RepairFinding| {
        !finding.is_repaired && finding.damage.contains(&hash.to_string())
    };
    assert!(report.findings.iter().any(told), "{report:?}");
}

/// A trial of a repair reports the same as the repair: of several damages the first, in any order of the threads that
/// read them. And a damaged checkpoint is passed over, although its index is larger than the memory that it may take.
#[test]
fn of_several_damaged_shards_always_the_same_is_named() {
    let (db, disk) = database_of(5000, tiny_options());
    let mut random = Random::new(1);
    let mut told = BTreeSet::new();
    for number in 1..=3 {
        for _ in 0..4 {
            commit(&db, &mut random, number);
        }
        db.flush(0).unwrap();
        let disk = disk.duplicate();
        lock_data_dir(&disk).expect("a disk of its own");
        let newest = disk.files().into_iter();
        let newest = newest.filter(|name| name.starts_with("checkpoint-")).max();
        let newest = newest.unwrap();
        // The index comes first in the file.
        (1000..4000)
            .step_by(30)
            .for_each(|at| disk.flip_bit(&newest, at, 3));
        for index_bytes_max in [None, Some(0)] {
            for _ in 0..40 {
                let arc: Arc<dyn Disk> = Arc::new(disk.duplicate());
                let options = Options {
                    index_bytes_max,
                    ..tiny_options()
                };
                let (opened, _) = Db::open(Arc::new(disk.duplicate()), options).unwrap();
                assert_eq!(opened.head(), db.head());
                let report = repair(&arc, options, true, &mut |_| {}).unwrap();
                assert!(!report.findings.is_empty());
                told.insert(format!(
                    "{number} {index_bytes_max:?}: {:?}",
                    report.findings
                ));
            }
        }
    }
    say(&format!("{told:#?}"));
    assert_eq!(told.len(), 6, "{told:#?}");
}
