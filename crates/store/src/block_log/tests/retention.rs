//! Removal of the oldest files.

use super::{
    super::{
        format::{file_numbers, name_of},
        log::BlockLog,
    },
    SMALL, filled, record,
};
use crate::{LogPosition, StoreError};
use cambium_disk::{Disk, FaultyDisk};
use std::sync::Arc;

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
    // Removed files that a crash has restored are deleted by the next removal.
    disk.create(&name_of(1)).unwrap();
    disk.create(&name_of(keep.file - 1)).unwrap();
    let opened = BlockLog::open(Arc::new(disk.clone()), SMALL, positions[50]).unwrap();
    let log = opened.0;
    log.set_start(keep);
    log.settle().unwrap();
    assert_eq!(
        log.remove_before(positions[45]).unwrap().len() as u32,
        2 + positions[45].file - keep.file
    );
    let left = file_numbers(&disk).unwrap();
    assert_eq!(left.first(), Some(&positions[45].file));
    assert_eq!(log.read(positions[59]).unwrap(), record(59));
}
