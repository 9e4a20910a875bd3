//! Tests of the log through its public functions, and helpers for the tests in this folder.

mod recovery;
mod retention;
mod ahead;
mod repair;

use super::{
    format::{DIR, header_of, name_of},
    log::{BlockLog, LogOptions, OPEN_FILES_MAX},
    read::Record,
    recovery::LogRecovery,
};
use crate::{LogPosition, StoreError};
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Disk, Fault, FaultyDisk};
use std::sync::Arc;

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

/// Returns a payload with unique content, whose length depends on `n`.
fn payload(n: u64) -> Vec<u8> {
    (0..30 + n * 61 % 300)
        .map(|at| (n * 7 + at) as u8)
        .collect()
}

/// Writes `count` records, and syncs each.
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

/// Overwrites the header of a file with one that states `previous_bytes` as the previous file's
/// length.
fn claim(disk: &FaultyDisk, file: u32, previous_bytes: u32) {
    let header = header_of(file, previous_bytes, SALT);
    let file = disk.open(&name_of(file)).unwrap();
    file.write_at(&header, 0).unwrap();
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
    // Existing data directories contain this format. Changing it requires a new format number.
    let golden = [
        b256!("07ed1ef7c520bc8a2559e5fd7cd113bdd1681541c8a4d8b9a6be41a6d806a7cf"),
        b256!("52ac8ce47a1bf86a6673f1165de3cedb2873f7bbd11725c54610f5fe2102bd4d"),
    ];
    assert_eq!([of(1), of(2)], golden);
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
