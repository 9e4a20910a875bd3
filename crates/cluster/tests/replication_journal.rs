//! A shard's journal: crashes, damage, retention.

use crate::common::stream::{bytes_of, chain_of, first_block, signer};
use alloy_primitives::{B256, Bytes};
use cambium_cluster::{
    FollowerState, Journal, JournalEntry, JournalError, JournalOptions, JournalRecovery,
    StreamPosition,
};
use cambium_disk::{Disk, Fault, FaultyDisk};
use cambium_seeds::{Random, seeds};
use std::sync::Arc;

const TINY: JournalOptions = JournalOptions {
    segment_bytes: 1 << 10,
    bytes_max: 1 << 20,
    extend_bytes: 256,
};

fn open(disk: &FaultyDisk) -> Result<(Journal, JournalRecovery), JournalError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::open(disk, TINY)
}

fn state(position: u64) -> FollowerState {
    FollowerState {
        position: StreamPosition(position),
        epoch: 3,
        ..FollowerState::default()
    }
}

/// A record of up to some hundred bytes: the journal does not look into records.
fn record(position: u64) -> Bytes {
    let length = 1 + (position * 37) % 300;
    (0..length).map(|at| (position + at) as u8).collect()
}

fn block(position: u64) -> Option<B256> {
    let mut hash = B256::ZERO;
    hash.0[..8].copy_from_slice(&position.to_be_bytes());
    (!position.is_multiple_of(4)).then_some(hash)
}

fn entry(position: u64) -> JournalEntry {
    JournalEntry {
        position: StreamPosition(position),
        block: block(position),
        state: state(position),
        record: record(position),
    }
}

fn append(journal: &Journal, position: u64) -> Result<(), JournalError> {
    journal.append(&state(position), block(position), &record(position))
}

fn entries(journal: &Journal) -> Vec<JournalEntry> {
    journal.entries().collect::<Result<_, _>>().unwrap()
}

fn filled(disk: &FaultyDisk, count: u64) -> Journal {
    let (journal, _) = open(disk).unwrap();
    for position in 1..=count {
        append(&journal, position).unwrap();
        journal.sync().unwrap();
    }
    journal
}

#[test]
fn records_are_found_by_order_hash_and_position() {
    let disk = FaultyDisk::new(1);
    let journal = filled(&disk, 40);
    let expected: Vec<_> = (1..=40).map(entry).collect();
    for journal in [&journal, &open(&disk).unwrap().0] {
        assert_eq!(entries(journal), expected);
        for entry in &expected {
            assert_eq!(journal.at(entry.position).unwrap().as_ref(), Some(entry));
            if let Some(hash) = entry.block {
                assert_eq!(journal.block(&hash).unwrap().as_ref(), Some(entry));
            }
        }
        assert_eq!(journal.block(&B256::repeat_byte(1)).unwrap(), None);
        assert_eq!(journal.at(StreamPosition(41)).unwrap(), None);
    }
    let (_, recovery) = open(&disk).unwrap();
    let expected = JournalRecovery {
        entries: 40,
        state: state(40),
        ..JournalRecovery::default()
    };
    assert_eq!(recovery, expected);
}

#[test]
fn real_records_and_those_that_were_filled_in_come_back() {
    let disk = FaultyDisk::new(2);
    let (journal, _) = open(&disk).unwrap();
    let chain = chain_of(&signer(1), 1, first_block(), 3);
    let (hashes, records): (Vec<_>, Vec<_>) = chain
        .iter()
        .map(|update| (update.id().hash, bytes_of(update)))
        .unzip();
    journal
        .append(&state(5), Some(hashes[0]), &records[0])
        .unwrap();
    // The record at position 7 needed it.
    let before = state(6);
    journal
        .append_filled(StreamPosition(7), &before, hashes[1], &records[1])
        .unwrap();
    journal
        .append(&state(7), Some(hashes[2]), &records[2])
        .unwrap();
    journal.sync().unwrap();
    let (journal, recovery) = open(&disk).unwrap();
    assert_eq!(recovery.state, state(7));
    let at = journal.at(StreamPosition(7)).unwrap().unwrap();
    assert_eq!((at.block, at.record), (Some(hashes[2]), records[2].clone()));
    let filled = journal.block(&hashes[1]).unwrap().unwrap();
    assert_eq!((filled.record, filled.state), (records[1].clone(), before));
    assert_eq!(entries(&journal).len(), 3);
}

/// Crashes again and again, in the middle of anything. What a sync has acknowledged is there, and nothing that was not appended.
#[test]
fn crashes_lose_nothing_that_was_acknowledged() {
    let mut cycles = 0;
    for seed in seeds!(0..20) {
        let mut random = Random::new(seed);
        let mut disk = FaultyDisk::new(seed);
        let (mut acknowledged, mut removed_to) = (0, 0);
        for _ in 0..25 {
            cycles += 1;
            let opened = open(&disk);
            let (journal, recovery) = match opened {
                Ok(opened) => opened,
                // Power may be lost while it is being opened.
                Err(_) if disk.is_off() => {
                    disk = disk.crash();
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let found = entries(&journal);
            let last = found.last().map_or(0, |entry| entry.position.0);
            assert!(last >= acknowledged, "{last} of {acknowledged}");
            assert_eq!(recovery.damage, []);
            assert_eq!(recovery.entries, found.len());
            let first = found.first().map_or(last + 1, |entry| entry.position.0);
            assert!(first <= removed_to + 1, "{first} of {removed_to}");
            let expected: Vec<_> = (first..=last).map(entry).collect();
            assert_eq!(found, expected);
            // What was found is durable now.
            acknowledged = last;
            if random.percent(80) {
                disk.lose_power_after(random.below(60));
            }
            let mut next = last + 1;
            for _ in 0..random.below(25) {
                let appended = append(&journal, next);
                if appended.is_err() {
                    break;
                }
                next += 1;
                if random.percent(60) && journal.sync().is_ok() {
                    acknowledged = next - 1;
                }
                if random.percent(10) && acknowledged > 8 {
                    let before = acknowledged - random.below(8);
                    removed_to = removed_to.max(before - 1);
                    let _ = journal.remove_before(StreamPosition(before));
                }
            }
            drop(journal);
            disk = disk.crash();
        }
    }
    println!("{cycles} crashes");
}

#[test]
fn every_failed_operation_loses_nothing_that_was_acknowledged() {
    for calls in 0..400 {
        let disk = FaultyDisk::new(calls);
        disk.fail_call_after(calls);
        let mut acknowledged = 0;
        if let Ok((journal, _)) = open(&disk) {
            for position in 1..=30 {
                if append(&journal, position).is_err() || journal.sync().is_err() {
                    break;
                }
                acknowledged = position;
            }
        }
        disk.clear_faults();
        for disk in [disk.duplicate(), disk.crash()] {
            let (journal, recovery) = open(&disk).unwrap();
            assert_eq!(recovery.damage, []);
            let found = entries(&journal);
            assert!(found.len() as u64 >= acknowledged);
            assert_eq!(
                found,
                (1..=found.len() as u64).map(entry).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn every_flipped_bit_is_named_or_harmless() {
    let original = FaultyDisk::new(4);
    drop(filled(&original, 14));
    let (mut named, mut harmless, mut ids) = (0, 0, 0);
    for name in original.files() {
        let length = original.contents(&name).unwrap().len() as u64;
        for offset in 0..length {
            let disk = original.duplicate();
            disk.flip_bit(&name, offset, (offset % 8) as u8);
            let (journal, recovery) = match open(&disk) {
                Ok(opened) => opened,
                Err(error) => {
                    let told = error.to_string();
                    assert!(told.starts_with(&name) && name == "journal.id", "{told}");
                    ids += 1;
                    continue;
                }
            };
            let found = entries(&journal);
            let missing: Vec<_> = (1..=14)
                .filter(|position| !found.iter().any(|it| it.position.0 == *position))
                .collect();
            for entry_found in &found {
                assert_eq!(entry_found, &entry(entry_found.position.0));
            }
            if missing.is_empty() {
                harmless += 1;
                continue;
            }
            named += 1;
            assert!(!recovery.damage.is_empty(), "{name} {offset}: {missing:?}");
            let damage = &recovery.damage[0];
            assert_eq!(damage.file, name);
            assert!(damage.offset <= offset && offset < damage.offset + damage.bytes);
            let after = damage.after.map_or(0, |position| position.0);
            let before = damage.before.map_or(15, |position| position.0);
            assert_eq!(missing, (after + 1..before).collect::<Vec<_>>());
            let told = damage.to_string();
            assert!(told.contains("come from a replica, by hash"), "{told}");
            // It goes on, and remembers the damage no more.
            append(&journal, 15).unwrap();
            journal.sync().unwrap();
            drop(journal);
            let (journal, recovery) = open(&disk).unwrap();
            assert_eq!(recovery.damage, []);
            assert_eq!(entries(&journal).len(), found.len() + 1);
        }
    }
    println!("{named} flips named, {harmless} harmless, {ids} in journal.id");
    assert!(named > 1_000 && ids == 52);
}

#[test]
fn old_segments_are_removed_and_full_ones_refuse() {
    let disk = FaultyDisk::new(5);
    let journal = filled(&disk, 60);
    let (count, bytes) = journal.size();
    assert_eq!(count, 60);
    assert_eq!(journal.remove_before(StreamPosition(1)).unwrap(), 0);
    let removed = journal.remove_before(StreamPosition(40)).unwrap();
    assert!(removed > 3, "{removed}");
    let first = entries(&journal)[0].position.0;
    assert!((30..=40).contains(&first), "{first}");
    assert!(journal.size().1 < bytes);
    assert_eq!(journal.at(StreamPosition(3)).unwrap(), None);
    assert_eq!(journal.block(&block(3).unwrap()).unwrap(), None);
    // All of them: the newest segment stays.
    journal.remove_before(StreamPosition(1_000)).unwrap();
    assert!(!entries(&journal).is_empty());
    drop(journal);
    let (journal, recovery) = open(&disk).unwrap();
    assert_eq!((recovery.state, recovery.damage), (state(60), Vec::new()));
    append(&journal, 61).unwrap();

    let small = JournalOptions {
        bytes_max: 4 << 10,
        ..TINY
    };
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(6));
    let (journal, _) = Journal::open(disk, small).unwrap();
    let mut position = 1;
    let error = loop {
        match append(&journal, position) {
            Ok(()) => position += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, JournalError::Full { .. }), "{error}");
    journal.sync().unwrap();
    journal.remove_before(StreamPosition(position)).unwrap();
    append(&journal, position).unwrap();
}

#[test]
fn an_unreadable_block_of_the_disk_is_an_error_with_its_file() {
    let disk = FaultyDisk::new(7);
    let journal = filled(&disk, 20);
    disk.inject(Fault::FailedRead, "log/", u32::MAX);
    let error = journal.at(StreamPosition(2)).unwrap_err().to_string();
    assert!(error.contains("log/0000000"), "{error}");
    disk.clear_faults();
    disk.inject(Fault::FailedSync, "log/", 1);
    append(&journal, 21).unwrap();
    assert!(journal.sync().is_err());
    // Nothing more is acknowledged on it.
    assert!(append(&journal, 22).is_err() || journal.sync().is_err());
}
