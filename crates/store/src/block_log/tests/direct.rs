//! Files that are written by whole blocks, past the page cache.

use super::{SALT, expect_corrupt, kind, open, payload, record, records};
use crate::{
    LogPosition,
    block_log::{
        format::{MARK_BYTES, name_of},
        log::{BlockLog, LogOptions},
        repair::LogFindings,
    },
    record::record_bytes,
};
use cambium_disk::{BLOCK_BYTES, Disk, FaultyDisk, StdDisk, WritePace};
use cambium_seeds::Random;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

pub(in crate::block_log) const DIRECT: LogOptions = LogOptions {
    file_bytes_max: 32 << 10,
    extend_bytes: 4096,
    salt: SALT,
};

fn append(log: &BlockLog, n: u64) -> LogPosition {
    log.append(kind(n), &[&payload(n)]).unwrap()
}

/// Commits records until the newest file is one that was prepared. Returns their number.
fn fill_to_a_prepared_file(log: &BlockLog) -> u64 {
    let mut n = 0;
    while log.end().file == 1 {
        append(log, n);
        log.sync().unwrap();
        log.preallocate_next(&WritePace::default()).unwrap();
        n += 1;
    }
    n
}

#[test]
fn a_group_begins_at_a_block_and_one_operation_makes_it_durable() {
    let disk = FaultyDisk::new(30);
    let (log, _) = open(&disk, DIRECT).unwrap();
    let first = fill_to_a_prepared_file(&log);
    let mut groups = Vec::new();
    for n in (first..first + 9).step_by(3) {
        let before = disk.stats();
        let positions = [append(&log, n), append(&log, n + 1), append(&log, n + 2)];
        assert_eq!(disk.stats().writes, before.writes, "they wait for the sync");
        let known = log.sync().unwrap();
        let after = disk.stats();
        assert_eq!(after.syncs - before.syncs, 1);
        assert_eq!(
            after.writes - before.writes,
            2,
            "the group, and the sync mark"
        );
        assert_eq!(known.offset as usize % BLOCK_BYTES, 0);
        groups.push((positions, known));
    }
    for pair in groups.windows(2) {
        let ((before, known), (next, _)) = (pair[0], pair[1]);
        assert!(before[2] < known);
        assert_eq!(
            (next[0].file, next[0].offset),
            (known.file, known.offset + MARK_BYTES)
        );
    }
    let count = first + 9;
    assert_eq!(records(&log), (0..count).map(record).collect::<Vec<_>>());
    drop(log);
    let (log, recovery) = open(&disk.crash(), DIRECT).unwrap();
    assert_eq!(recovery.torn_tail, None);
    assert_eq!(records(&log), (0..count).map(record).collect::<Vec<_>>());
}

#[test]
fn a_record_can_be_read_before_its_sync_and_the_group_goes_on() {
    let disk = FaultyDisk::new(31);
    let (log, _) = open(&disk, DIRECT).unwrap();
    let first = fill_to_a_prepared_file(&log);
    for n in first..first + 20 {
        let position = append(&log, n);
        if n % 2 == 0 {
            assert_eq!(log.read(position).unwrap(), record(n));
        }
        if n % 5 == 0 {
            let all = (0..=n).map(record).collect::<Vec<_>>();
            assert_eq!(records(&log), all);
        }
        if n % 7 == 0 {
            log.sync().unwrap();
        }
    }
    log.sync().unwrap();
    let (log, _) = open(&disk.crash(), DIRECT).unwrap();
    let all = (0..first + 20).map(record).collect::<Vec<_>>();
    assert_eq!(records(&log), all);
}

#[test]
fn a_group_of_megabytes_is_written_before_its_sync_and_lost_as_a_whole_or_in_part() {
    let options = LogOptions {
        file_bytes_max: 8 << 20,
        ..DIRECT
    };
    let disk = FaultyDisk::new(32);
    let (log, _) = open(&disk, options.clone()).unwrap();
    let large = |n: u64| vec![n as u8; (600 << 10) + 8 * n as usize];
    let append = |n| log.append(7, &[&large(n)]).unwrap();
    (0..8).for_each(|n| _ = append(n));
    log.sync().unwrap();
    log.preallocate_next(&WritePace::default()).unwrap();
    let positions: Vec<_> = (8..14).map(append).collect();
    assert!(positions.iter().all(|position| position.file == 2));
    let written = log.bytes_written();
    log.sync().unwrap();
    assert!(
        log.bytes_written() - written < 2 << 20,
        "most of it was written before"
    );
    (14..17).for_each(|n| _ = append(n));
    let (log, _) = open(&disk.crash(), options).unwrap();
    let found = records(&log);
    assert!((14..=17).contains(&found.len()), "{}", found.len());
    assert!(
        (0..)
            .zip(&found)
            .all(|(n, found)| found.payload == large(n))
    );
}

/// Power is lost at any moment, again and again. Blocks that were being written hold anything afterwards.
#[test]
fn acknowledged_records_survive_blocks_that_are_torn_after_them() {
    let (mut direct, mut torn) = (0, 0);
    for seed in cambium_seeds::seeds!(0..400) {
        let mut random = Random::new(seed);
        let mut disk = FaultyDisk::new(seed);
        let (mut acknowledged, mut appended) = (0, 0);
        for _ in 0..4 {
            disk.lose_power_after(random.below(120));
            let Ok((log, _)) = open(&disk, DIRECT) else {
                assert!(disk.is_off(), "seed {seed}: a log that can't be opened");
                disk = disk.crash();
                continue;
            };
            let found = records(&log).len() as u64;
            assert!((acknowledged..=appended).contains(&found), "seed {seed}");
            (acknowledged, appended) = (found, found);
            while !disk.is_off() {
                for _ in 0..=random.below(3) {
                    if log.append(kind(appended), &[&payload(appended)]).is_ok() {
                        appended += 1;
                    }
                }
                if random.below(4) == 0 {
                    let _ = log.scan(LogPosition::START).count();
                }
                if log.sync().is_ok() {
                    acknowledged = appended;
                    direct += u32::from(log.end().file > 1);
                }
                let _ = log.preallocate_next(&WritePace::default());
            }
            // The last append may have been made although it failed.
            appended += 1;
            drop(log);
            disk = disk.crash();
        }
        let (log, recovery) =
            open(&disk, DIRECT).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        torn += u32::from(recovery.torn_tail.is_some());
        let found = records(&log);
        let expected: Vec<_> = (0..found.len() as u64).map(record).collect();
        assert_eq!(found, expected, "seed {seed}");
        let range = acknowledged as usize..=appended as usize;
        assert!(
            range.contains(&found.len()),
            "seed {seed}: {} of {range:?}",
            found.len()
        );
    }
    if std::env::var_os(cambium_seeds::VARIABLE).is_none() {
        assert!(direct > 1000 && torn > 20, "{direct} direct, {torn} torn");
    }
}

#[test]
fn damage_to_a_pad_does_no_harm_and_to_the_newest_record_is_reported() {
    let disk = FaultyDisk::new(33);
    let (log, _) = open(&disk, DIRECT).unwrap();
    let first = fill_to_a_prepared_file(&log);
    let count = first + 3;
    let positions: Vec<_> = (first..count)
        .map(|n| {
            let position = append(&log, n);
            log.sync().unwrap();
            position
        })
        .collect();
    drop(log);
    for (n, position) in (first..).zip(&positions) {
        let pad = u64::from(position.offset) + record_bytes(payload(n).len() as u64);
        for at in [0, 45, 300, 1_000] {
            let at = pad + at;
            // A damaged frame of a pad is like any other damage.
            let is_frame = at < pad + 40;
            disk.flip_bit(&name_of(position.file), at, 3);
            if !is_frame {
                let (log, recovery) = open(&disk, DIRECT).unwrap();
                assert_eq!(
                    (records(&log).len() as u64, recovery.torn_tail),
                    (count, None)
                );
                let found = BlockLog::find_damage(&disk, SALT, Some(LogPosition::START), &[]);
                assert_eq!(found.unwrap(), LogFindings::default());
            }
            disk.flip_bit(&name_of(position.file), at, 3);
        }
        for at in [0, 20, 45] {
            let at = u64::from(position.offset) + at;
            disk.flip_bit(&name_of(position.file), at, 2);
            assert_eq!(expect_corrupt(open(&disk, DIRECT)).1, *position);
            disk.flip_bit(&name_of(position.file), at, 2);
        }
    }
}

/// The mark is written by the third operation of a sync. A panic there once moved all later records.
#[test]
fn a_mark_that_can_not_be_written_leaves_the_log_as_it_was() {
    let faults: [fn(&FaultyDisk); 2] = [
        |disk| disk.fail_call_after(2),
        |disk| disk.panic_call_after(2),
    ];
    for (fault, panics) in faults.into_iter().zip([false, true]) {
        let disk = FaultyDisk::new(35);
        let (log, _) = open(&disk, DIRECT).unwrap();
        let first = fill_to_a_prepared_file(&log);
        append(&log, first);
        fault(&disk);
        let synced = catch_unwind(AssertUnwindSafe(|| log.sync().is_ok()));
        assert_eq!(synced.ok(), (!panics).then_some(true));
        let position = append(&log, first + 1);
        log.sync().unwrap();
        assert_eq!(log.read(position).unwrap(), record(first + 1));
        let all: Vec<_> = (0..first + 2).map(record).collect();
        assert_eq!(records(&log), all);
        assert_eq!(records(&open(&disk.crash(), DIRECT).unwrap().0), all);
    }
}

#[test]
fn a_log_that_is_opened_again_goes_on_at_a_block() {
    let mut disk = FaultyDisk::new(34);
    let (log, _) = open(&disk, DIRECT).unwrap();
    let mut count = fill_to_a_prepared_file(&log);
    drop(log);
    for round in 0..12 {
        let (log, _) = open(&disk, DIRECT).unwrap();
        let group = append(&log, count);
        assert!(group.file > 1);
        log.preallocate_next(&WritePace::default()).unwrap();
        log.sync().unwrap();
        count += 1;
        assert_eq!(records(&log), (0..count).map(record).collect::<Vec<_>>());
        drop(log);
        if round % 3 == 2 {
            disk = disk.crash();
        }
    }
}

#[test]
fn on_a_real_disk_the_same_is_read_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
    let (log, _) = BlockLog::open(disk.clone(), DIRECT, LogPosition::START).unwrap();
    log.settle().unwrap();
    let mut count = fill_to_a_prepared_file(&log);
    let (reader, _) = BlockLog::open(disk.clone(), DIRECT, LogPosition::START).unwrap();
    for _ in 0..30 {
        let position = append(&log, count);
        if count % 4 == 0 {
            assert_eq!(log.read(position).unwrap(), record(count));
        }
        log.sync().unwrap();
        log.preallocate_next(&WritePace::default()).unwrap();
        count += 1;
        assert!(reader.refresh().unwrap() > position);
        assert_eq!(reader.read(position).unwrap(), record(count - 1));
    }
    assert_eq!(records(&reader), (0..count).map(record).collect::<Vec<_>>());
    drop(log);
    let (log, recovery) = BlockLog::open(disk, DIRECT, LogPosition::START).unwrap();
    assert_eq!(recovery.torn_tail, None);
    assert_eq!(records(&log).len() as u64, count);
}
