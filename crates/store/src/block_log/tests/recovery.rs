//! Recovery after crashes and damage.

use super::{
    super::{
        format::{DIR, MARK_BYTES, name_of},
        log::{BlockLog, LogOptions},
        repair::LogFindings,
    },
    NO_STEPS, SALT, SMALL, claim, expect_corrupt, filled, kind, open, payload, record, records,
};
use crate::{
    LogPosition, StoreError,
    log_position::HEADER_BYTES,
    record::{FRAME_BYTES, record_bytes},
};
use cambium_disk::{Disk, Fault, FaultyDisk};
use proptest::{collection::vec, prelude::*};
use std::sync::Arc;

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
            // Up to the size of a sync mark, the bytes may be a torn mark.
            assert_eq!(recovery.torn_tail.is_some(), kept > MARK_BYTES);
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
    // The cut is at a record boundary, so all remaining records are intact.
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

#[test]
fn a_header_that_takes_the_last_record_for_the_end_is_found_by_opening() {
    let disk = FaultyDisk::new(33);
    drop(filled(&disk, SMALL, 20));
    let len = disk.contents(&name_of(1)).unwrap().len() as u32;
    claim(&disk, 2, len - MARK_BYTES);
    disk.open(&name_of(1))
        .unwrap()
        .punch_hole(u64::from(len - MARK_BYTES), MARK_BYTES.into())
        .unwrap();
    let (_, at) = expect_corrupt(open(&disk, SMALL));
    assert_eq!((at.file, at.offset), (1, len - MARK_BYTES));
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
    // The sync mark after it proves that it was acknowledged.
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
            assert_eq!(found.unwrap(), LogFindings::default());
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
    // An error while settling loses nothing: the next opening finds the same state.
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
fn a_file_that_was_ended_and_not_synced_is_made_durable_before_the_next_is_appended_to() {
    for seed in cambium_seeds::seeds!(0..40) {
        let disk = FaultyDisk::new(seed);
        let (log, _) = open(&disk, SMALL).unwrap();
        // The newest file is full of records that were never synced.
        let mut n = 0;
        while log.end().offset < SMALL.file_bytes_max {
            log.append(kind(n), &[&payload(n)]).unwrap();
            n += 1;
        }
        disk.inject(Fault::FailedSync, "log/00000001.log", 1);
        log.append(kind(n), &[&payload(n)]).unwrap_err();
        drop(log);
        // As after the process was killed: all writes are visible, whether durable or not.
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
