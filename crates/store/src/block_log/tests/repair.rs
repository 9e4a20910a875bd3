//! Repair of damaged logs.

use super::{
    super::{
        format::{MARK_BYTES, name_of},
        log::BlockLog,
        repair::{LogDamage, LogDamageKind, LogFindings},
    },
    SALT, SMALL, claim, expect_corrupt, filled, open, record, records,
};
use crate::{LogPosition, log_position::HEADER_BYTES, record::FRAME_BYTES};
use cambium_disk::{Disk, FaultyDisk};
use std::sync::Arc;

/// Damages a log of 40 records in several files, repairs it, and returns the numbers of the
/// remaining records.
fn repaired(damage: impl Fn(&FaultyDisk, &[LogPosition])) -> (Vec<u64>, Vec<LogDamageKind>) {
    let disk = FaultyDisk::new(7);
    let (log, positions) = filled(&disk, SMALL, 40);
    assert!(log.end().file > 4, "{:?}", log.end());
    drop(log);
    let before = disk.duplicate();
    damage(&disk, &positions);
    let damaged = disk.duplicate();
    let find = || BlockLog::find_damage(&disk, SALT, Some(LogPosition::START), &[]).unwrap();
    let LogFindings {
        damage: found,
        gaps,
    } = find();
    assert_eq!(gaps, []);
    let opened = BlockLog::open(Arc::new(disk.clone()), SMALL, LogPosition::START);
    assert_eq!(opened.is_err(), !only_ends(&found), "{found:?}");
    assert_eq!(disk.files(), damaged.files(), "changed by looking");
    for (at, damage) in found.iter().enumerate() {
        let copy = disk.create(&format!("copy-{at}")).unwrap();
        BlockLog::cut_out(&disk, SALT, &[], damage, &*copy).unwrap();
        // The copy has the bytes that were cut out.
        let LogDamage { position, end, .. } = damage;
        if let Some(bytes) = damaged.contents(&name_of(position.file)) {
            let end = bytes.len().min(*end as usize);
            let expected = bytes.get(position.offset as usize..end).unwrap_or_default();
            assert_eq!(disk.contents(&format!("copy-{at}")).unwrap(), expected);
        }
    }
    // The gaps are reported by every later search.
    let LogFindings { damage, gaps } = find();
    assert_eq!(damage, []);
    for one in &found {
        let covers = |(from, end): &(LogPosition, u32)| {
            from.file == one.position.file && (from.offset..*end).contains(&one.position.offset)
        };
        let is_range = one.kind == LogDamageKind::Range;
        assert!(!is_range || gaps.iter().any(covers), "{one:?}, {gaps:?}");
    }
    let (log, recovery) = open(&disk.crash(), SMALL).unwrap();
    assert_eq!(recovery.torn_tail, None);
    let scanned: Vec<_> = log.scan(LogPosition::START).map(Result::unwrap).collect();
    // All remaining records have kept their positions.
    for (position, record) in &scanned {
        let at = positions.iter().position(|at| at == position).unwrap() as u64;
        assert_eq!(*record, super::record(at));
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

/// Returns whether only end records are damaged, which does not prevent opening the log.
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
    // Several neighbours, and one record far from them.
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

        // The file is truncated, so its later records and its end record are gone.
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

/// Repairs the log in rounds, as the repair of a database does: cutting out damage may reveal more.
fn repaired_in_rounds(disk: &FaultyDisk) {
    for round in 0..9 {
        let found = BlockLog::find_damage(disk, SALT, Some(LogPosition::START), &[])
            .unwrap()
            .damage;
        if found.is_empty() {
            return;
        }
        for (at, damage) in found.iter().enumerate() {
            let copy = disk.create(&format!("copy-{round}-{at}")).unwrap();
            BlockLog::cut_out(disk, SALT, &[], damage, &*copy).unwrap();
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

#[test]
fn a_header_that_gives_the_file_before_an_impossible_length_is_a_bad_one() {
    let least = HEADER_BYTES + MARK_BYTES;
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
fn a_log_without_its_first_files_is_repaired_from_where_it_is_kept() {
    let disk = FaultyDisk::new(32);
    let (log, positions) = filled(&disk, SMALL, 60);
    let keep = positions[30];
    log.remove_before(keep).unwrap();
    let (first, end) = (log.start(), log.end());
    drop(log);
    let find = |disk: &FaultyDisk, start| {
        BlockLog::find_damage(disk, SALT, start, &[end])
            .unwrap()
            .damage
    };
    for start in [Some(keep), None] {
        assert_eq!(find(&disk, start), []);
    }
    let told = find(&disk, Some(LogPosition::START));
    assert_eq!(told.len() as u32, keep.file - 1);
    let name = name_of(first.file);
    // The file's header, the file itself, and a record in it.
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
            BlockLog::cut_out(&disk, SALT, &[end], damage, &*copy).unwrap();
        }
        assert_eq!(find(&disk, Some(keep)), [], "{damage:?}");
        let (log, _) = BlockLog::open(Arc::new(disk), SMALL, first).unwrap();
        log.set_start(first);
        let last = log.scan(first).last().unwrap().unwrap();
        assert_eq!(last.1, record(59), "{damage:?}");
    }
}
