//! Preallocated files.

use super::{SMALL, filled, kind, open, payload, record, records};
use crate::LogOptions;
use cambium_disk::{Disk, FaultyDisk, WritePace};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_file_made_ready_takes_what_comes_next_and_its_syncs_no_length() {
    let disk = FaultyDisk::new(11);
    let (log, _) = filled(&disk, SMALL, 4);
    log.preallocate_next(&WritePace::default()).unwrap();
    assert_eq!(disk.files(), ["log/00000001.log"], "too early");
    let next = |n| {
        let position = log.append(kind(n), &[&payload(n)]).unwrap();
        log.sync().unwrap();
        position
    };
    assert!((4..8).map(next).all(|position| position.file == 1));
    log.preallocate_next(&WritePace::default()).unwrap();
    let ready = disk
        .contents("log/00000002.log")
        .expect("a file made ready");
    assert!(ready.len() > 2_000 && ready.iter().all(|byte| *byte == 0));
    // The first file was not preallocated, so the log continues in the second at once.
    for n in 8..16 {
        assert_eq!(next(n).file, 2);
    }
    assert_eq!(
        disk.contents("log/00000002.log").unwrap().len(),
        ready.len()
    );
    log.preallocate_next(&WritePace::default()).unwrap();
    log.preallocate_next(&WritePace::default()).unwrap();
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
    for seed in cambium_seeds::seeds!(0..60) {
        let disk = FaultyDisk::new(seed);
        let (log, positions) = filled(&disk, SMALL, 6);
        disk.lose_power_after(seed % 20);
        let _ = log.preallocate_next(&WritePace::default());
        let _ = log.append(9, &[b"never synced"]);
        drop(log);
        let disk = disk.crash();
        let (log, recovery) = open(&disk, SMALL).unwrap();
        let found = records(&log);
        let more = found.len().checked_sub(positions.len());
        assert!(matches!(more, Some(0 | 1)), "seed {seed}: {more:?} more");
        assert!(!disk.exists("log/next.tmp").unwrap());
        // Appending goes on, whichever file is next.
        for n in found.len() as u64..30 {
            let _ = log.preallocate_next(&WritePace::default());
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
    log.preallocate_next(&WritePace::default()).unwrap();
    assert_eq!(disk.files(), ["log/00000001.log"]);
    for n in 8..12 {
        log.append(kind(n), &[&payload(n)]).unwrap();
        log.sync().unwrap();
    }
    disk.limit_space(None);
    log.preallocate_next(&WritePace::default()).unwrap();
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
                log.preallocate_next(&WritePace::default()).unwrap();
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
fn a_commit_into_a_file_that_was_begun_for_it_takes_one_sync() {
    let disk = FaultyDisk::new(14);
    let options = LogOptions {
        file_bytes_max: 32 << 20,
        ..SMALL
    };
    let (log, _) = open(&disk, options.clone()).unwrap();
    let large = |n: u64| vec![n as u8; 17 << 20];
    let commit = |n: u64, payload: &[u8]| {
        let before = disk.stats().syncs;
        let position = log.append(kind(n), &[payload]).unwrap();
        log.sync().unwrap();
        (position.file, disk.stats().syncs - before)
    };
    let work = || {
        log.preallocate_next(&WritePace::gentle()).unwrap();
        log.begin_prepared().unwrap();
    };
    assert_eq!(commit(0, &large(0)), (1, 1));
    assert!(log.wants_next());
    work();
    assert!(!log.wants_next());
    assert_eq!(commit(1, &payload(1)), (2, 1));
    assert_eq!(commit(2, &large(2)), (2, 1));
    assert!(log.wants_next());
    work();
    assert_eq!(log.end().file, 2, "the file is not full yet");
    assert!(!log.wants_next());
    assert_eq!(commit(3, &large(3)), (2, 1));
    assert!(log.wants_next());
    work();
    assert_eq!(log.end().file, 3);
    assert_eq!(commit(4, &payload(4)), (3, 1));
    let expected = |n: u64| match n {
        0 | 2 | 3 => large(n),
        n => payload(n),
    };
    let (log, _) = open(&disk.crash(), options).unwrap();
    let found = records(&log);
    assert_eq!(found.len(), 5);
    assert!(
        (0..)
            .zip(found)
            .all(|(n, found)| found.payload == expected(n))
    );
}

#[test]
fn a_full_disk_is_not_filled_again_and_again() {
    let disk = FaultyDisk::new(15);
    let options = LogOptions {
        file_bytes_max: 32 << 20,
        ..SMALL
    };
    let (log, _) = open(&disk, options).unwrap();
    log.append(1, &[&vec![1; 17 << 20]]).unwrap();
    log.sync().unwrap();
    disk.limit_space(Some(20 << 20));
    assert!(log.wants_next());
    log.preallocate_next(&WritePace::gentle()).unwrap();
    assert!(!log.wants_next());
    disk.limit_space(None);
    // The end of a merge tries again.
    log.preallocate_next(&WritePace::gentle()).unwrap();
    assert!(log.wants_next(), "a file that is ready is to be begun");
}
