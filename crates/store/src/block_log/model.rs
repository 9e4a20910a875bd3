//! Model of the log: two threads append and sync, one reads and scans, and one prepares the next
//! file, while new files begin.

use super::{log::BlockLog, tests::SMALL};
use crate::{
    LogPosition,
    modelled::{YieldingDisk, run},
    sync::Mutex,
};
use cambium_disk::{FaultyDisk, WritePace};
use shuttle::thread;
use std::sync::Arc;

const APPENDERS: u8 = 2;
/// Number of records that each thread appends: enough to fill some files.
const RECORDS: u8 = 5;

fn payload(kind: u8) -> Vec<u8> {
    vec![kind; 300 + usize::from(kind) * 61 % 300]
}

/// Checks that all records of the log are intact and in order. Returns their kinds.
fn scanned(log: &BlockLog) -> Vec<u8> {
    let mut last = LogPosition::default();
    let mut kinds = Vec::new();
    for found in log.scan(LogPosition::START) {
        let (position, record) = found.unwrap();
        assert!(position > last, "{position:?} after {last:?}");
        assert_eq!(record.payload, payload(record.kind));
        last = position;
        kinds.push(record.kind);
    }
    kinds
}

#[test]
fn records_are_read_right_and_kept_while_files_are_begun_and_made_ready() {
    run(|| {
        let disk = FaultyDisk::new(1);
        let yielding = Arc::new(YieldingDisk(disk.clone()));
        let opened = BlockLog::open(yielding, SMALL, LogPosition::START);
        let log = Arc::new(opened.unwrap().0);
        log.settle().unwrap();
        let appended = Arc::new(Mutex::new(Vec::new()));
        let durable = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for appender in 0..APPENDERS {
            let (log, appended, durable) = (log.clone(), appended.clone(), durable.clone());
            threads.push(thread::spawn(move || {
                for kind in appender * RECORDS..(appender + 1) * RECORDS {
                    let position = log.append(kind, &[&payload(kind)]).unwrap();
                    appended.lock().push((position, kind));
                    // Several appends share a sync, as blocks committed in a group do.
                    if kind % 3 != 0 {
                        let known = log.sync().unwrap();
                        assert!(known > position, "{known:?}, synced after {position:?}");
                        durable.lock().push((position, kind));
                    }
                }
            }));
        }
        let (ready, pace) = (log.clone(), WritePace::default());
        threads.push(thread::spawn(move || {
            for _ in 0..3 {
                ready.preallocate_next(&pace).unwrap();
            }
        }));
        for _ in 0..4 {
            let newest = appended.lock().last().copied();
            if let Some((position, kind)) = newest {
                let record = log.read(position).unwrap();
                assert_eq!((record.kind, record.payload), (kind, payload(kind)));
            }
            let before = appended.lock().clone();
            let found = scanned(&log);
            assert!(before.iter().all(|(_, kind)| found.contains(kind)));
        }
        threads.into_iter().for_each(|one| one.join().unwrap());
        let all = scanned(&log);
        assert_eq!(all.len(), usize::from(APPENDERS * RECORDS));
        // Acknowledged records survive a power loss, and so does only a prefix of the others.
        let disk = Arc::new(disk.crash());
        let opened = BlockLog::open(disk, SMALL, LogPosition::START);
        let log = opened.unwrap().0;
        let kept = scanned(&log);
        assert!(all.starts_with(&kept), "{kept:?} of {all:?}");
        for (position, kind) in &*durable.lock() {
            assert_eq!(log.read(*position).unwrap().kind, *kind, "{position:?}");
        }
    });
}
