use super::*;
use crate::WritePace;
use crate::record::FRAME_BYTES;
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Fault, FaultyDisk};
use proptest::{collection::vec, prelude::*};

const SALT: u64 = 0x5eed;
pub(super) const SMALL: LogOptions = LogOptions {
    file_bytes_max: 2_000,
    extend_bytes: 512,
    salt: SALT,
};
const NO_STEPS: LogOptions = LogOptions {
    extend_bytes: 0,
    ..SMALL
};

fn open(disk: &FaultyDisk, options: LogOptions) -> Result<(BlockLog, LogRecovery), StoreError> {
    let opened = BlockLog::open(Arc::new(disk.clone()), options, LogPosition::START)?;
    opened.0.settle()?;
    Ok(opened)
}

/// A payload that can be told from others, of a length that depends on `n`.
fn payload(n: u64) -> Vec<u8> {
    (0..30 + n * 61 % 300)
        .map(|at| (n * 7 + at) as u8)
        .collect()
}

/// `count` records, each synced.
fn filled(disk: &FaultyDisk, options: LogOptions, count: u64) -> (BlockLog, Vec<LogPosition>) {
    let (log, _) = open(disk, options).unwrap();
    let append = |n| {
        let position = log
            .append(kind(n), &[&payload(n)[..9], &payload(n)[9..]])
            .unwrap();
        log.sync().unwrap();
        position
    };
    let positions = (0..count).map(append).collect();
    (log, positions)
}

fn kind(n: u64) -> u8 {
    (n % 200) as u8
}

fn record(n: u64) -> Record {
    Record {
        kind: kind(n),
        payload: payload(n),
    }
}

fn records(log: &BlockLog) -> Vec<Record> {
    log.scan(LogPosition::START)
        .map(|item| item.unwrap().1)
        .collect()
}

fn expect_corrupt(result: Result<(BlockLog, LogRecovery), StoreError>) -> (String, LogPosition) {
    match result.map(|_| ()).unwrap_err() {
        StoreError::CorruptLog {
            file,
            offset,
            position,
            ..
        } => {
            assert_eq!(offset, u64::from(position.offset));
            (file, position)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn records_are_read_back_by_position_and_in_order_across_files() {
    for options in [SMALL, NO_STEPS] {
        let disk = FaultyDisk::new(1);
        let (log, positions) = filled(&disk, options.clone(), 60);
        assert!(log.end().file > 3 && positions.is_sorted());
        for log in [log, open(&disk, options).unwrap().0] {
            assert_eq!(log.scan(LogPosition::START).count(), positions.len());
            for (n, position) in positions.iter().enumerate() {
                assert_eq!(log.read(*position).unwrap(), record(n as u64));
                let rest = log.scan(*position).map(Result::unwrap);
                assert!(
                    rest.map(|(position, _)| position)
                        .eq(positions[n..].iter().copied())
                );
            }
            assert_eq!(log.scan(log.end()).count(), 0);
            for (n, found) in (0..).zip(log.scan_heads(LogPosition::START, 33)) {
                let (position, found) = found.unwrap();
                let mut expected = record(n);
                expected.payload.truncate(33);
                assert_eq!((position, found), (positions[n as usize], expected));
            }
        }
        let (log, recovery) = open(&disk.crash(), SMALL).unwrap();
        assert_eq!(recovery.torn_tail, None);
        log.append(9, &[b"", b"x"]).unwrap();
        assert_eq!(records(&log)[..60], (0..60).map(record).collect::<Vec<_>>());
        let expected = Record {
            kind: 9,
            payload: vec![b'x'],
        };
        assert_eq!(records(&log)[60], expected);
    }
}

#[test]
fn opening_from_a_checkpoint_reads_only_what_came_later() {
    let disk = FaultyDisk::new(2);
    let (log, positions) = filled(&disk, SMALL, 60);
    let from = positions[40];
    disk.flip_bit(&name_of(1), 50, 0);
    let opened = BlockLog::open(Arc::new(disk), SMALL, from).unwrap();
    assert_eq!(opened.1.end, log.end());
    assert!(opened.0.read(positions[0]).is_err());
    assert_eq!(opened.0.read(positions[50]).unwrap(), record(50));
}

#[test]
fn a_torn_end_is_dropped_and_reported_and_writing_goes_on() {
    for options in [SMALL, NO_STEPS] {
        let disk = FaultyDisk::new(3);
        let (_, positions) = filled(&disk, options.clone(), 5);
        let last = positions[4];
        let size = (FRAME_BYTES + payload(4).len()) as u32;
        let whole = disk.contents(&name_of(1)).unwrap();
        for kept in 1..size {
            let file = disk.open(&name_of(1)).unwrap();
            file.set_len(u64::from(last.offset + kept)).unwrap();
            file.set_len(whole.len() as u64).unwrap();
            let (log, recovery) = open(&disk, options.clone()).unwrap();
            assert_eq!(recovery.end, last, "{kept} of {size} bytes kept");
            // Of no more than a mark takes it is not known whether it was one.
            assert_eq!(recovery.torn_tail.is_some(), kept > OWN_BYTES);
            if let Some(torn) = recovery.torn_tail {
                let at = (&*torn.file, torn.offset);
                assert_eq!(at, (&*name_of(1), last.offset.into()));
                assert!(torn.bytes <= kept.into());
            }
            log.append(77, &[b"instead"]).unwrap();
            log.sync().unwrap();
            let (log, recovery) = open(&disk, options.clone()).unwrap();
            assert_eq!((records(&log).len(), recovery.torn_tail), (5, None));
            disk.open(&name_of(1)).unwrap().write_at(&whole, 0).unwrap();
        }
    }
}

#[test]
fn unacknowledged_records_are_dropped_even_if_a_later_one_of_them_survived() {
    let disk = FaultyDisk::new(4);
    let (log, positions) = filled(&disk, SMALL, 3);
    let lost = log.append(3, &[&payload(3)]).unwrap();
    let kept = log.append(4, &[&payload(4)]).unwrap();
    let file = disk.open(&name_of(1)).unwrap();
    file.write_at(
        &vec![0; (kept.offset - lost.offset) as usize],
        lost.offset.into(),
    )
    .unwrap();
    let (log, recovery) = open(&disk, SMALL).unwrap();
    assert_eq!((recovery.end, records(&log).len()), (lost, positions.len()));
    assert!(recovery.torn_tail.is_some());
}

#[test]
fn damage_to_an_acknowledged_record_is_never_dropped_silently() {
    let disk = FaultyDisk::new(5);
    let (log, positions) = filled(&disk, SMALL, 30);
    assert!(log.end().file > 2);
    let mut all: Vec<LogPosition> = positions.clone();
    all.extend((1..=log.end().file).map(|file| LogPosition { file, offset: 0 }));
    for damaged in all.iter().filter(|position| **position < positions[29]) {
        for at in [0, 9, 13, 17, 25, 31] {
            disk.flip_bit(&name_of(damaged.file), u64::from(damaged.offset) + at, 5);
            let (file, position) = expect_corrupt(open(&disk, SMALL));
            assert_eq!(
                (&*file, position),
                (&*name_of(damaged.file), *damaged),
                "byte {at}"
            );
            disk.flip_bit(&name_of(damaged.file), u64::from(damaged.offset) + at, 5);
        }
    }
    assert!(open(&disk, SMALL).is_ok());
}

#[test]
fn missing_and_short_files_are_never_dropped_silently() {
    let disk = FaultyDisk::new(6);
    let (log, positions) = filled(&disk, SMALL, 30);
    let end = log.end();
    // Cut at a record boundary, so that all that is left is whole.
    let cut = positions
        .iter()
        .rfind(|position| position.file == 2)
        .unwrap();
    let file = disk.open(&name_of(2)).unwrap();
    let whole = disk.contents(&name_of(2)).unwrap();
    file.set_len(cut.offset.into()).unwrap();
    assert_eq!(expect_corrupt(open(&disk, SMALL)).1, *cut);
    file.write_at(&whole, 0).unwrap();
    for number in 1..end.file {
        let whole = disk.contents(&name_of(number)).unwrap();
        disk.remove(&name_of(number)).unwrap();
        assert_eq!(expect_corrupt(open(&disk, SMALL)).0, name_of(number));
        disk.create(&name_of(number))
            .unwrap()
            .write_at(&whole, 0)
            .unwrap();
    }
    for from in [
        LogPosition {
            offset: end.offset + 5_000,
            ..end
        },
        LogPosition { file: 99, ..end },
    ] {
        expect_corrupt(BlockLog::open(Arc::new(disk.clone()), SMALL, from));
    }
    assert_eq!(open(&disk, SMALL).unwrap().1.end, end);
}

/// Damages a log of 40 records over some files, repairs it, and returns which records are left.
fn repaired(damage: impl Fn(&FaultyDisk, &[LogPosition])) -> (Vec<u64>, Vec<LogDamageKind>) {
    let disk = FaultyDisk::new(7);
    let (log, positions) = filled(&disk, SMALL, 40);
    assert!(log.end().file > 4, "{:?}", log.end());
    drop(log);
    let before = disk.duplicate();
    damage(&disk, &positions);
    let damaged = disk.duplicate();
    let find = || BlockLog::find_damage(&disk, SALT, Some(LogPosition::START), &[]).unwrap();
    let found = find();
    let opened = BlockLog::open(Arc::new(disk.clone()), SMALL, LogPosition::START);
    assert_eq!(opened.is_err(), !only_ends(&found), "{found:?}");
    assert_eq!(disk.files(), damaged.files(), "changed by looking");
    for (at, damage) in found.iter().enumerate() {
        let copy = disk.create(&format!("copy-{at}")).unwrap();
        BlockLog::take_out(&disk, SALT, &[], damage, &*copy).unwrap();
        // The copy has the bytes that were there.
        let LogDamage { position, end, .. } = damage;
        if let Some(bytes) = damaged.contents(&name_of(position.file)) {
            let end = bytes.len().min(*end as usize);
            let expected = bytes.get(position.offset as usize..end).unwrap_or_default();
            assert_eq!(disk.contents(&format!("copy-{at}")).unwrap(), expected);
        }
    }
    assert_eq!(find(), []);
    let (log, recovery) = open(&disk.crash(), SMALL).unwrap();
    assert_eq!(recovery.torn_tail, None);
    let scanned: Vec<_> = log.scan(LogPosition::START).map(Result::unwrap).collect();
    // All that is there is where it was.
    for (position, record) in &scanned {
        let at = positions.iter().position(|at| at == position).unwrap() as u64;
        assert_eq!(*record, self::record(at));
        assert_eq!(log.read(*position).unwrap(), *record);
    }
    let left = scanned.iter().map(|(position, _)| {
        let at = positions.iter().position(|at| at == position);
        at.unwrap() as u64
    });
    let left = left.collect();
    log.append(3, &[b"it goes on"]).unwrap();
    log.sync().unwrap();
    assert_eq!(log.scan(LogPosition::START).count(), scanned.len() + 1);
    drop(before);
    (left, found.iter().map(|damage| damage.kind).collect())
}

/// An end that is damaged keeps nothing from being read.
fn only_ends(found: &[LogDamage]) -> bool {
    found.iter().all(|damage| damage.kind == LogDamageKind::End)
}

#[test]
fn a_repair_takes_out_what_is_damaged_and_keeps_all_that_is_whole() {
    for damaged in 0..40 {
        for at in [0, 9, 13, 33, 45] {
            let (left, kinds) = repaired(|disk, positions| {
                let LogPosition { file, offset } = positions[damaged];
                disk.flip_bit(&name_of(file), u64::from(offset) + at, 1);
            });
            let expected: Vec<u64> = (0..40).filter(|n| *n != damaged as u64).collect();
            assert_eq!((left, kinds), (expected, vec![LogDamageKind::Range]));
        }
    }
    // Some neighbours, and one far from them.
    let (left, kinds) = repaired(|disk, positions| {
        for n in [3, 4, 5, 30] {
            let LogPosition { file, offset } = positions[n];
            let file = disk.open(&name_of(file)).unwrap();
            file.write_at(&[7; 60], offset.into()).unwrap();
        }
    });
    assert_eq!(left.len(), 36);
    assert!(kinds.len() >= 2);
}

#[test]
fn a_repair_goes_on_without_a_header_an_end_or_a_file() {
    let all: Vec<u64> = (0..40).collect();
    for file in 1..=4 {
        let in_file = |positions: &[LogPosition]| -> Vec<u64> {
            let is_in = |n: &u64| positions[*n as usize].file == file;
            (0..40).filter(is_in).collect()
        };
        for at in [0, 8, 14, 20, 30] {
            let (left, kinds) = repaired(|disk, _| disk.flip_bit(&name_of(file), at, 6));
            assert_eq!((left, kinds), (all.clone(), vec![LogDamageKind::Header]));
        }
        let (left, kinds) = repaired(|disk, _| {
            let len = disk.contents(&name_of(file)).unwrap().len() as u64;
            disk.flip_bit(&name_of(file), len - 30, 6);
        });
        assert_eq!((left, kinds), (all.clone(), vec![LogDamageKind::End]));

        let lost = std::cell::RefCell::new(Vec::new());
        let (left, kinds) = repaired(|disk, positions| {
            *lost.borrow_mut() = in_file(positions);
            disk.remove(&name_of(file)).unwrap();
        });
        let mut expected = all.clone();
        expected.retain(|n| !lost.borrow().contains(n));
        assert_eq!((left, kinds), (expected, vec![LogDamageKind::File]));

        // Cut short: its later records and its end are gone.
        let (left, kinds) = repaired(|disk, positions| {
            let in_file = in_file(positions);
            let cut = in_file[in_file.len() / 2];
            *lost.borrow_mut() = in_file.into_iter().filter(|n| *n >= cut).collect();
            let offset = positions[cut as usize].offset + 20;
            disk.open(&name_of(file))
                .unwrap()
                .set_len(offset.into())
                .unwrap();
        });
        let mut expected = all.clone();
        expected.retain(|n| !lost.borrow().contains(n));
        assert_eq!(left, expected);
        assert_eq!(kinds, [LogDamageKind::Range, LogDamageKind::End]);
    }
    let lost = std::cell::RefCell::new(0);
    let (left, kinds) = repaired(|disk, positions| {
        let newest = positions[39].file;
        let is_newest = |position: &&LogPosition| position.file == newest;
        *lost.borrow_mut() = positions.iter().filter(is_newest).count();
        disk.remove(&name_of(newest)).unwrap();
    });
    assert_eq!(kinds, [LogDamageKind::Newest]);
    assert_eq!(left.len(), 40 - *lost.borrow());
}

/// As a repair of a database does: what is taken out may show more.
fn repaired_in_rounds(disk: &FaultyDisk) {
    for round in 0..9 {
        let found = BlockLog::find_damage(disk, SALT, Some(LogPosition::START), &[]).unwrap();
        if found.is_empty() {
            return;
        }
        for (at, damage) in found.iter().enumerate() {
            let copy = disk.create(&format!("copy-{round}-{at}")).unwrap();
            BlockLog::take_out(disk, SALT, &[], damage, &*copy).unwrap();
        }
    }
    panic!("there is always more damage");
}

#[test]
fn a_repair_makes_a_header_again_although_the_end_before_it_is_lost_too() {
    let disk = FaultyDisk::new(30);
    let (log, _) = filled(&disk, SMALL, 20);
    drop(log);
    let end = disk.contents(&name_of(1)).unwrap().len() as u64 - FRAME_BYTES as u64;
    disk.flip_bit(&name_of(1), end, 1);
    disk.flip_bit(&name_of(2), 3, 1);
    repaired_in_rounds(&disk);
    let (log, _) = open(&disk, SMALL).unwrap();
    assert_eq!(records(&log), (0..20).map(record).collect::<Vec<_>>());
}

/// Puts a header into a file that says of the one before that it has so many bytes.
fn claim(disk: &FaultyDisk, file: u32, previous_bytes: u32) {
    let header = header_of(file, previous_bytes, SALT);
    let file = disk.open(&name_of(file)).unwrap();
    file.write_at(&header, 0).unwrap();
}

#[test]
fn a_header_that_gives_the_file_before_an_impossible_length_is_a_bad_one() {
    let least = HEADER_BYTES + OWN_BYTES;
    for claimed in [0, 1, 32, 39, least - 8, least + 8, least + 32, least + 41] {
        let disk = FaultyDisk::new(31);
        drop(filled(&disk, SMALL, 20));
        claim(&disk, 2, claimed);
        let (_, at) = expect_corrupt(open(&disk, SMALL));
        assert_eq!((at.file, at.offset), (2, 0));
        repaired_in_rounds(&disk);
        let (log, _) = open(&disk, SMALL).unwrap();
        assert_eq!(records(&log), (0..20).map(record).collect::<Vec<_>>());
    }
}

#[test]
fn a_header_that_takes_the_last_record_for_the_end_is_found_by_opening() {
    let disk = FaultyDisk::new(33);
    drop(filled(&disk, SMALL, 20));
    let len = disk.contents(&name_of(1)).unwrap().len() as u32;
    claim(&disk, 2, len - OWN_BYTES);
    disk.open(&name_of(1))
        .unwrap()
        .punch_hole(u64::from(len - OWN_BYTES), OWN_BYTES.into())
        .unwrap();
    let (_, at) = expect_corrupt(open(&disk, SMALL));
    assert_eq!((at.file, at.offset), (1, len - OWN_BYTES));
}

#[test]
fn nothing_is_appended_to_a_file_that_has_ended() {
    let disk = FaultyDisk::new(32);
    let (log, _) = filled(&disk, NO_STEPS, 20);
    let last = log.end().file;
    drop(log);
    let file = disk.open(&name_of(last)).unwrap();
    file.set_len(HEADER_BYTES.into()).unwrap();
    let previous = disk.contents(&name_of(last - 1)).unwrap().len() as u32;
    claim(&disk, last, previous + 16);
    let (_, at) = expect_corrupt(open(&disk, NO_STEPS));
    assert_eq!(at.file, last - 1);
}

#[test]
fn the_newest_file_is_missed_and_even_the_newest_record_is_not_dropped_for_its_damage() {
    let disk = FaultyDisk::new(18);
    let (log, positions) = filled(&disk, SMALL, 12);
    let newest = log.end().file;
    drop(log);
    // A mark behind it tells that it was acknowledged.
    let LogPosition { file, offset } = positions[11];
    for at in [0, 20, 45] {
        disk.flip_bit(&name_of(file), u64::from(offset) + at, 2);
        assert_eq!(expect_corrupt(open(&disk, SMALL)).1, positions[11]);
        disk.flip_bit(&name_of(file), u64::from(offset) + at, 2);
    }
    disk.remove(&name_of(newest)).unwrap();
    let (file, _) = expect_corrupt(open(&disk, SMALL));
    assert_eq!(file, name_of(newest));
}

#[test]
fn damage_to_a_mark_does_no_harm() {
    let disk = FaultyDisk::new(22);
    let (log, positions) = filled(&disk, SMALL, 12);
    drop(log);
    for (n, position) in positions.into_iter().enumerate().take(11) {
        let LogPosition { file, offset } = position;
        let mark = offset as usize + record_bytes(payload(n as u64).len() as u64) as usize;
        for at in [0, 10, 12, 30] {
            disk.flip_bit(&name_of(file), mark as u64 + at, 1);
            let (log, recovery) = open(&disk, SMALL).unwrap();
            assert_eq!((records(&log).len(), recovery.torn_tail), (12, None));
            let found = BlockLog::find_damage(&disk, SALT, Some(LogPosition::START), &[]);
            assert_eq!(found.unwrap(), []);
            disk.flip_bit(&name_of(file), mark as u64 + at, 1);
        }
    }
}

#[test]
fn nothing_changes_until_the_log_is_settled() {
    let disk = FaultyDisk::new(19);
    let (log, positions) = filled(&disk, SMALL, 12);
    let last = positions[11];
    drop(log);
    let file = disk.open(&name_of(last.file)).unwrap();
    file.set_len(u64::from(last.offset) + 50).unwrap();
    disk.create(&name_of(last.file + 1)).unwrap();
    let before: Vec<_> = disk
        .files()
        .iter()
        .map(|name| disk.contents(name))
        .collect();
    let operations = disk.operations();
    let opened = BlockLog::open(Arc::new(disk.clone()), SMALL, LogPosition::START);
    let (log, recovery) = opened.unwrap();
    assert_eq!((recovery.end, log.end()), (last, last));
    assert!(recovery.torn_tail.is_some());
    assert_eq!(records(&log).len(), 11);
    assert_eq!(disk.operations(), operations);
    let after: Vec<_> = disk
        .files()
        .iter()
        .map(|name| disk.contents(name))
        .collect();
    assert_eq!(before, after);
    // An error while settling costs nothing: the next opening finds the same.
    disk.inject(Fault::FailedSync, DIR, 1);
    assert!(log.settle().is_err());
    assert!(matches!(log.sync(), Err(StoreError::Poisoned { .. })));
    let (log, recovery) = open(&disk, SMALL).unwrap();
    assert_eq!(recovery.end, last);
    assert_eq!(records(&log).len(), 11);
}

#[test]
fn a_passing_error_is_no_damage() {
    let disk = FaultyDisk::new(20);
    filled(&disk, SMALL, 12);
    for fault in [Fault::FailedRead, Fault::FailedOpen] {
        disk.inject(fault, DIR, 1);
        let error = open(&disk, SMALL).map(|_| ()).unwrap_err();
        assert!(matches!(error, StoreError::Disk(_)) && !error.is_corruption());
        disk.inject(fault, DIR, 1);
        let found = BlockLog::find_damage(&disk, SALT, Some(LogPosition::START), &[]);
        assert!(matches!(found, Err(StoreError::Disk(_))));
        assert_eq!(records(&open(&disk, SMALL).unwrap().0).len(), 12);
    }
}

#[test]
fn a_failed_write_during_a_sync_is_not_hidden_by_it() {
    let disk = FaultyDisk::new(21);
    let (log, _) = filled(&disk, SMALL, 3);
    log.append(3, &[&payload(3)]).unwrap();
    disk.inject(Fault::FailedWrite, DIR, 1);
    assert!(log.append(4, &[&payload(4)]).is_err());
    assert!(matches!(log.sync(), Err(StoreError::Poisoned { .. })));
}

#[test]
fn a_failed_write_or_sync_poisons_the_log_for_writing() {
    type Injection = fn(&FaultyDisk);
    let write: Injection = |disk| disk.inject(Fault::FailedWrite, DIR, 1);
    let sync: Injection = |disk| disk.inject(Fault::FailedSync, DIR, 1);
    for fault in [write, sync] {
        let disk = FaultyDisk::new(8);
        let (log, positions) = filled(&disk, SMALL, 3);
        fault(&disk);
        let first = log.append(1, &[b"x"]).and_then(|_| log.sync());
        assert!(matches!(first, Err(StoreError::Disk(_))), "{first:?}");
        for error in [log.append(1, &[b"y"]).unwrap_err(), log.sync().unwrap_err()] {
            let StoreError::Poisoned {
                part: "block log",
                cause,
            } = error
            else {
                panic!("{error}")
            };
            assert!(cause.contains("log/00000001.log"), "{cause}");
        }
        assert_eq!(log.read(positions[2]).unwrap(), record(2));
        drop(log);
        let (log, _) = open(&disk, SMALL).unwrap();
        assert_eq!(records(&log)[..3], [record(0), record(1), record(2)]);
    }
}

#[test]
fn a_file_that_was_ended_and_not_synced_is_made_durable_before_the_next_is_appended_to() {
    for seed in 0..40 {
        let disk = FaultyDisk::new(seed);
        let (log, _) = open(&disk, SMALL).unwrap();
        // The newest file is full, with records that no sync has covered.
        let mut n = 0;
        while log.end().offset < SMALL.file_bytes_max {
            log.append(kind(n), &[&payload(n)]).unwrap();
            n += 1;
        }
        disk.inject(Fault::FailedSync, "log/00000001.log", 1);
        log.append(kind(n), &[&payload(n)]).unwrap_err();
        drop(log);
        // As after the process was killed: what was written can be read, durable or not.
        let (log, recovery) = open(&disk, SMALL).unwrap();
        let found = records(&log);
        for more in n..n + 3 {
            log.append(kind(more), &[&payload(more)]).unwrap();
        }
        log.sync().unwrap();
        drop(log);
        let (log, _) = open(&disk.crash(), SMALL)
            .unwrap_or_else(|error| panic!("seed {seed}, from {:?}: {error}", recovery.end));
        let kept = records(&log);
        assert!(kept.starts_with(&found), "seed {seed}");
        assert_eq!(kept.len(), found.len() + 3, "seed {seed}");
    }
}

#[test]
fn a_full_disk_is_named_and_costs_nothing_acknowledged() {
    let disk = FaultyDisk::new(9);
    let (log, _) = filled(&disk, SMALL, 5);
    disk.limit_space(Some(3_000));
    let mut acknowledged = 5;
    let error = loop {
        match log
            .append(kind(acknowledged), &[&payload(acknowledged)])
            .and_then(|_| log.sync())
        {
            Ok(_) => acknowledged += 1,
            Err(e) => break e,
        }
    };
    assert!(
        error
            .to_string()
            .contains("disk full: free some space and run again"),
        "{error}"
    );
    assert!(
        acknowledged > 5,
        "the zeros at the end are room for records"
    );
    disk.limit_space(None);
    let (log, _) = open(&disk.crash(), SMALL).unwrap();
    assert_eq!(
        records(&log),
        (0..acknowledged).map(record).collect::<Vec<_>>()
    );
}

#[test]
fn the_log_of_another_database_is_left_alone() {
    let disk = FaultyDisk::new(10);
    filled(&disk, SMALL, 3);
    let before = disk.contents(&name_of(1));
    let error = expect_corrupt(open(
        &disk,
        LogOptions {
            salt: SALT + 1,
            ..SMALL
        },
    ));
    assert_eq!(error, (name_of(1), LogPosition { file: 1, offset: 0 }));
    assert_eq!(disk.contents(&name_of(1)), before);
}

#[test]
fn a_file_whose_beginning_was_cut_off_by_a_crash_is_begun_again() {
    for first in [true, false] {
        let disk = FaultyDisk::new(14);
        let count = if first { 0 } else { 3 };
        filled(&disk, SMALL, count);
        let stub = name_of(if first { 1 } else { 2 });
        if first {
            disk.remove(&stub).unwrap();
        }
        disk.create(&stub).unwrap().write_at(&[1; 20], 0).unwrap();
        let (log, _) = open(&disk, SMALL).unwrap();
        (count..20).for_each(|n| _ = log.append(kind(n), &[&payload(n)]).unwrap());
        log.sync().unwrap();
        let (log, _) = open(&disk, SMALL).unwrap();
        assert_eq!(records(&log), (0..20).map(record).collect::<Vec<_>>());
    }
}

#[test]
fn appends_need_not_wait_for_a_sync_in_another_thread() {
    let disk = FaultyDisk::new(11);
    let (log, _) = open(&disk, SMALL).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|_| _ = log.sync().unwrap()));
        scope.spawn(|| (0..300).for_each(|n| _ = log.append(kind(n), &[&payload(n)]).unwrap()));
        scope.spawn(|| {
            (0..50).for_each(|_| assert!(log.scan(LogPosition::START).all(|r| r.is_ok())))
        });
    });
    log.sync().unwrap();
    let (log, _) = open(&disk.crash(), SMALL).unwrap();
    assert_eq!(records(&log), (0..300).map(record).collect::<Vec<_>>());
}

#[test]
fn the_format_is_what_it_was() {
    let disk = FaultyDisk::new(12);
    filled(&disk, SMALL, 20);
    let of = |file| keccak256(disk.contents(&name_of(file)).unwrap());
    // Data directories in use hold such files: other values here are another format number.
    let golden = [
        b256!("07ed1ef7c520bc8a2559e5fd7cd113bdd1681541c8a4d8b9a6be41a6d806a7cf"),
        b256!("52ac8ce47a1bf86a6673f1165de3cedb2873f7bbd11725c54610f5fe2102bd4d"),
    ];
    assert_eq!([of(1), of(2)], golden);
}

proptest! {
    #[test]
    fn random_bytes_in_a_file_never_panic(
        bytes in vec(any::<u8>(), 0..600),
        at in 0u64..1_500,
        count in 0u64..12,
    ) {
        let disk = FaultyDisk::new(13);
        filled(&disk, SMALL, count);
        disk.open(&name_of(1)).unwrap().write_at(&bytes, at).unwrap();
        if let Ok((log, recovery)) = open(&disk, SMALL) {
            let read = records(&log);
            prop_assert!(read.len() as u64 <= count);
            prop_assert_eq!(&read, &(0..read.len() as u64).map(record).collect::<Vec<_>>());
            prop_assert_eq!(log.end(), recovery.end);
        }
    }
}

#[test]
fn a_file_made_ready_takes_what_comes_next_and_its_syncs_no_length() {
    let disk = FaultyDisk::new(11);
    let (log, _) = filled(&disk, SMALL, 4);
    log.prepare_next(&WritePace::default()).unwrap();
    assert_eq!(disk.files(), ["log/00000001.log"], "too early");
    let next = |n| {
        let position = log.append(kind(n), &[&payload(n)]).unwrap();
        log.sync().unwrap();
        position
    };
    assert!((4..8).map(next).all(|position| position.file == 1));
    log.prepare_next(&WritePace::default()).unwrap();
    let ready = disk
        .contents("log/00000002.log")
        .expect("a file made ready");
    assert!(ready.len() > 2_000 && ready.iter().all(|byte| *byte == 0));
    // The first was not, so no more is put there.
    for n in 8..16 {
        assert_eq!(next(n).file, 2);
    }
    assert_eq!(
        disk.contents("log/00000002.log").unwrap().len(),
        ready.len()
    );
    log.prepare_next(&WritePace::default()).unwrap();
    log.prepare_next(&WritePace::default()).unwrap();
    for n in 16..60 {
        next(n);
    }
    assert_eq!(records(&log), (0..60).map(record).collect::<Vec<_>>());
    let end = log.end();
    assert!(end.file > 3, "{end:?}");
    drop(log);
    for lost_power in [false, true] {
        let disk = match lost_power {
            true => disk.crash(),
            false => disk.clone(),
        };
        let (log, recovery) = open(&disk, SMALL).unwrap();
        assert_eq!((recovery.end, recovery.torn_tail), (end, None));
        assert_eq!(records(&log), (0..60).map(record).collect::<Vec<_>>());
    }
}

#[test]
fn a_file_made_ready_and_not_begun_is_no_part_of_the_log() {
    for seed in 0..60 {
        let disk = FaultyDisk::new(seed);
        let (log, positions) = filled(&disk, SMALL, 6);
        disk.lose_power_after(seed % 20);
        let _ = log.prepare_next(&WritePace::default());
        let _ = log.append(9, &[b"never synced"]);
        drop(log);
        let disk = disk.crash();
        let (log, recovery) = open(&disk, SMALL).unwrap();
        let found = records(&log);
        let more = found.len().checked_sub(positions.len());
        assert!(matches!(more, Some(0 | 1)), "seed {seed}: {more:?} more");
        assert!(!disk.exists("log/next.tmp").unwrap());
        // It goes on, with whatever file is next.
        for n in found.len() as u64..30 {
            let _ = log.prepare_next(&WritePace::default());
            log.append(kind(n), &[&payload(n)]).unwrap();
            log.sync().unwrap();
        }
        assert!(log.end() > recovery.end);
        assert_eq!(records(&log).len(), 30);
    }
}

#[test]
fn a_full_disk_gets_no_file_ahead_and_loses_nothing() {
    let disk = FaultyDisk::new(12);
    let (log, _) = filled(&disk, SMALL, 8);
    disk.limit_space(Some(5_000));
    log.prepare_next(&WritePace::default()).unwrap();
    assert_eq!(disk.files(), ["log/00000001.log"]);
    for n in 8..12 {
        log.append(kind(n), &[&payload(n)]).unwrap();
        log.sync().unwrap();
    }
    disk.limit_space(None);
    log.prepare_next(&WritePace::default()).unwrap();
    assert_eq!(records(&log).len(), 12);
}

#[test]
fn a_file_is_made_ready_while_others_append_and_sync() {
    let disk = FaultyDisk::new(13);
    let (log, _) = filled(&disk, SMALL, 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                log.prepare_next(&WritePace::default()).unwrap();
            }
        });
        for n in 1..2000 {
            log.append(kind(n), &[&payload(n)]).unwrap();
            if n % 3 == 0 {
                log.sync().unwrap();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(records(&log), (0..2000).map(record).collect::<Vec<_>>());
}

#[test]
fn a_log_of_many_files_keeps_few_of_them_open() {
    let disk = FaultyDisk::new(1);
    let options = LogOptions {
        file_bytes_max: 256,
        extend_bytes: 0,
        ..LogOptions::default()
    };
    let (log, _) = BlockLog::open(Arc::new(disk), options, LogPosition::START).unwrap();
    log.settle().unwrap();
    let mut positions = Vec::new();
    while log.end().file < 4 * OPEN_FILES_MAX as u32 {
        positions.push(log.append(1, &[&[7; 100]]).unwrap());
        log.sync().unwrap();
        assert!(log.files.read().len() <= OPEN_FILES_MAX);
    }
    for position in positions {
        assert_eq!(log.read(position).unwrap().payload, [7; 100]);
        assert!(log.files.read().len() <= OPEN_FILES_MAX);
    }
}

#[test]
fn files_leave_from_the_beginning_and_what_they_had_is_refused_by_name() {
    let disk = FaultyDisk::new(31);
    let (log, positions) = filled(&disk, SMALL, 60);
    let keep = positions[30];
    let removed = log.remove_before(keep).unwrap();
    assert_eq!(removed.len() as u32, keep.file - 1);
    assert_eq!(log.start().file, keep.file);
    assert!(
        removed
            .iter()
            .all(|one| one.bytes == one.file.len().unwrap())
    );
    assert!(log.remove_before(keep).unwrap().is_empty());
    for (n, position) in positions.iter().enumerate() {
        match log.read(*position) {
            Ok(found) => assert_eq!(
                (found, true),
                (record(n as u64), position.file >= keep.file)
            ),
            Err(StoreError::NotKept { file }) => {
                assert!(position.file < keep.file);
                assert!(file.ends_with(&name_of(position.file)), "{file}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(matches!(
        log.scan(LogPosition::START).next(),
        Some(Err(StoreError::NotKept { .. }))
    ));
    let scanned = || log.scan(log.start()).map(|item| item.unwrap().1);
    let first = positions
        .iter()
        .position(|one| one.file == keep.file)
        .unwrap();
    assert!(scanned().eq((first as u64..60).map(record)));
    drop(log);
    // Removed files that a crash has brought back are nobody's, and removed with the next.
    disk.create(&name_of(1)).unwrap();
    disk.create(&name_of(keep.file - 1)).unwrap();
    let opened = BlockLog::open(Arc::new(disk.clone()), SMALL, positions[50]).unwrap();
    let log = opened.0;
    log.begin_at(keep);
    log.settle().unwrap();
    assert_eq!(
        log.remove_before(positions[45]).unwrap().len() as u32,
        2 + positions[45].file - keep.file
    );
    let left = recovery::numbers(&disk).unwrap();
    assert_eq!(left.first(), Some(&positions[45].file));
    assert_eq!(log.read(positions[59]).unwrap(), record(59));
}

#[test]
fn a_log_without_its_first_files_is_repaired_from_where_it_is_kept() {
    let disk = FaultyDisk::new(32);
    let (log, positions) = filled(&disk, SMALL, 60);
    let keep = positions[30];
    log.remove_before(keep).unwrap();
    let (first, end) = (log.start(), log.end());
    drop(log);
    let find = |disk: &FaultyDisk, start| BlockLog::find_damage(disk, SALT, start, &[end]).unwrap();
    for start in [Some(keep), None] {
        assert_eq!(find(&disk, start), []);
    }
    let told = find(&disk, Some(LogPosition::START));
    assert_eq!(told.len() as u32, keep.file - 1);
    let name = name_of(first.file);
    // Its header, the file, and a record in it.
    for damage in [Some(9), None, Some(u64::from(HEADER_BYTES) + 20)] {
        let disk = disk.duplicate();
        match damage {
            Some(at) => disk.flip_bit(&name, at, 2),
            None => disk.remove(&name).unwrap(),
        }
        let damages = find(&disk, Some(keep));
        assert!(!damages.is_empty());
        for damage in &damages {
            let copy = disk.create("copy").unwrap();
            BlockLog::take_out(&disk, SALT, &[end], damage, &*copy).unwrap();
        }
        assert_eq!(find(&disk, Some(keep)), [], "{damage:?}");
        let (log, _) = BlockLog::open(Arc::new(disk), SMALL, first).unwrap();
        log.begin_at(first);
        let last = log.scan(first).last().unwrap().unwrap();
        assert_eq!(last.1, record(59), "{damage:?}");
    }
}
