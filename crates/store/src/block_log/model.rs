//! The log in many orders of threads: two append and sync, one reads and scans, and one makes the
//! next file ready, while new files are begun.

use super::{log::BlockLog, tests::SMALL};
use crate::{
    LogPosition, WritePace,
    modelled::{YieldingDisk, run},
    sync::Mutex,
};
use cambium_disk::FaultyDisk;
use shuttle::thread;
use std::sync::Arc;

const APPENDERS: u8 = 2;
/// Of each appender: so that some files are filled.
const RECORDS: u8 = 5;

fn payload(kind: u8) -> Vec<u8> {
    vec![kind; 300 + usize::from(kind) * 61 % 300]
}

/// All that the log has is whole and in order. Returns the records' kinds.
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
                    // As groups of blocks are.
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
                ready.prepare_next(&pace).unwrap();
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
        // What was acknowledged survives a loss of power, and what is there besides comes in order.
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
