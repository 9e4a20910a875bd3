use super::*;
use crate::WritePace;
use crate::record::FRAME_BYTES;
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Fault, FaultyDisk};
use proptest::{collection::vec, prelude::*};

const SALT: u64 = 0x5eed;
const SMALL: LogOptions = LogOptions {
    file_bytes_max: 2_000,
    extend_bytes: 512,
    salt: SALT,
};
const NO_STEPS: LogOptions = LogOptions {
    extend_bytes: 0,
    ..SMALL
};

fn open(disk: &FaultyDisk, options: LogOptions) -> Result<(BlockLog, LogRecovery), StoreError> {
    BlockLog::open(Arc::new(disk.clone()), options, LogPosition::START)
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
            .append(n as u8, &[&payload(n)[..9], &payload(n)[9..]])
            .unwrap();
        log.sync().unwrap();
        position
    };
    let positions = (0..count).map(append).collect();
    (log, positions)
}

fn record(n: u64) -> Record {
    Record {
        kind: n as u8,
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
        }
        let (log, recovery) = open(&disk.crash(), SMALL).unwrap();
        assert_eq!(recovery.torn_tail, None);
        log.append(9, &[]).unwrap();
        assert_eq!(records(&log)[..60], (0..60).map(record).collect::<Vec<_>>());
        assert_eq!(
            records(&log)[60],
            Record {
                kind: 9,
                payload: vec![]
            }
        );
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
            let torn = recovery.torn_tail.unwrap();
            assert_eq!(
                (&*torn.file, torn.offset),
                (&*name_of(1), last.offset.into())
            );
            assert!(torn.bytes <= kept.into());
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

#[test]
fn a_repair_keeps_what_came_before_the_damage() {
    let disk = FaultyDisk::new(7);
    let (_, positions) = filled(&disk, SMALL, 30);
    for damaged in [
        positions[20],
        LogPosition { file: 2, offset: 0 },
        positions[3],
    ] {
        disk.flip_bit(&name_of(damaged.file), u64::from(damaged.offset) + 12, 1);
        let (_, position) = expect_corrupt(open(&disk, SMALL));
        BlockLog::truncate_from(&disk, position).unwrap();
        let (log, recovery) = open(&disk, SMALL).unwrap();
        assert_eq!(recovery.torn_tail, None);
        let left = positions
            .iter()
            .filter(|position| **position < damaged)
            .count();
        assert_eq!(records(&log).len(), left);
    }
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
            .append(acknowledged as u8, &[&payload(acknowledged)])
            .and_then(|_| log.sync())
        {
            Ok(()) => acknowledged += 1,
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
        (count..20).for_each(|n| _ = log.append(n as u8, &[&payload(n)]).unwrap());
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
        scope.spawn(|| (0..300).for_each(|_| log.sync().unwrap()));
        scope.spawn(|| (0..300).for_each(|n| _ = log.append(n as u8, &[&payload(n)]).unwrap()));
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
        b256!("c6c17a8e309b24c40c85116358de82e7db9cdc837f330d7251b4b565532a9605"),
        b256!("90a38b1a36be83dcb831ce548569febaaa509b15c577761d40ac7ae876b0ff3f"),
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
        let position = log.append(n as u8, &[&payload(n)]).unwrap();
        log.sync().unwrap();
        position
    };
    assert!((4..8).map(next).all(|position| position.file == 1));
    log.prepare_next(&WritePace::default()).unwrap();
    let ready = disk
        .contents("log/00000002.log")
        .expect("a file made ready");
    assert!(ready.len() > 1 << 20 && ready.iter().all(|byte| *byte == 0));
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
            log.append(n as u8, &[&payload(n)]).unwrap();
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
    disk.limit_space(Some(500_000));
    log.prepare_next(&WritePace::default()).unwrap();
    assert_eq!(disk.files(), ["log/00000001.log"]);
    for n in 8..12 {
        log.append(n as u8, &[&payload(n)]).unwrap();
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
            log.append(n as u8, &[&payload(n)]).unwrap();
            if n % 3 == 0 {
                log.sync().unwrap();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(records(&log), (0..2000).map(record).collect::<Vec<_>>());
}
