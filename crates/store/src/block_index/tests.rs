use super::*;
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Fault, FaultyDisk};
use proptest::prelude::*;

fn open(disk: &FaultyDisk, numbers: u64) -> (BlockIndex, IndexState) {
    BlockIndex::open(Arc::new(disk.clone()), numbers).unwrap()
}

fn entry(n: u64) -> BlockEntry {
    let position = LogPosition {
        file: 1 + n as u32 / 100,
        offset: n as u32 * 8,
    };
    BlockEntry {
        hash: keccak256(n.to_be_bytes()),
        position,
    }
}

fn filled(disk: &FaultyDisk, numbers: u64) -> BlockIndex {
    let (index, state) = open(disk, 0);
    assert_eq!(state, IndexState::Ready);
    (0..numbers).for_each(|n| index.set(n, entry(n)).unwrap());
    index.sync().unwrap();
    index
}

#[test]
fn entries_are_read_back_from_the_buffer_and_from_the_file() {
    let disk = FaultyDisk::new(1);
    let index = filled(&disk, DIRTY_MAX as u64 + 100);
    let numbers = index.numbers();
    index.set(numbers, entry(numbers)).unwrap();
    assert_eq!(index.numbers(), numbers + 1);
    for n in 0..=numbers {
        assert_eq!(index.get(n).unwrap(), Some(entry(n)));
    }
    assert_eq!(index.get(numbers + 1).unwrap(), None);
    let (index, state) = open(&disk.crash(), numbers);
    assert_eq!((state, index.numbers()), (IndexState::Ready, numbers));
    assert!((0..numbers).all(|n| index.get(n).unwrap() == Some(entry(n))));
    assert_eq!(index.get(numbers).unwrap(), None);
}

#[test]
fn a_hash_is_found_in_the_buffer_and_in_the_file_in_large_reads() {
    let disk = FaultyDisk::new(4);
    let end = 2 * SEARCHED_AT_ONCE + 100;
    let index = filled(&disk, end);
    index.set(5, entry(end + 5)).unwrap();
    index.set(end, entry(end)).unwrap();
    let search = |n: u64, numbers| index.search(&entry(n).hash, numbers).unwrap();
    for n in [0, 4, 6, SEARCHED_AT_ONCE, end - 1, end] {
        assert_eq!(search(n, 0..end + 1), Some(n));
        assert_eq!(search(n, n..n + 1), Some(n));
        assert_eq!((search(n, 0..n), search(n, n + 1..end + 1)), (None, None));
    }
    // One that is replaced, and not written yet.
    assert_eq!(
        (search(5, 0..end), search(end + 5, 0..end)),
        (None, Some(5))
    );
    let before = index.reads();
    assert_eq!(search(end + 7, 0..end + 1), None);
    assert_eq!(index.reads() - before, 3);
}

#[test]
fn a_restart_keeps_what_is_below_and_is_not_taken_for_whole_before_its_end() {
    for is_cut in [false, true] {
        let disk = FaultyDisk::new(9);
        drop(filled(&disk, 200));
        disk.flip_bit(NAME, offset_of(30) + 3, 1);
        if is_cut {
            disk.open(NAME).unwrap().set_len(offset_of(60)).unwrap();
        }
        let (index, _) = open(&disk, 200);
        index.restart(100).unwrap();
        let state = open(&disk.duplicate().crash(), 200).1;
        assert!(matches!(state, IndexState::Rebuild { .. }), "{state:?}");
        (100..200).for_each(|n| index.set(n, entry(n)).unwrap());
        index.sync().unwrap();
        let (index, state) = open(&disk.crash(), 200);
        assert_eq!(state, IndexState::Ready);
        for n in 0..200 {
            let is_there = n >= 100 || (n < 60 || !is_cut) && n != 30;
            let found = index.expect(n);
            assert_eq!(found.as_ref().ok(), is_there.then_some(&entry(n)), "{n}");
            assert!(found.is_ok() || found.unwrap_err().is_corruption());
        }
    }
}

#[test]
fn opening_changes_nothing_and_a_passing_error_is_no_damage() {
    let disk = FaultyDisk::new(7);
    filled(&disk, 10);
    let (whole, operations) = (disk.contents(NAME), disk.operations());
    for fault in [Fault::FailedRead, Fault::FailedOpen] {
        disk.inject(fault, NAME, 1);
        let error = BlockIndex::open(Arc::new(disk.clone()), 10).unwrap_err();
        assert!(matches!(error, StoreError::Disk(_)) && !error.is_corruption());
    }
    let (index, state) = open(&disk, 5);
    assert_eq!((state, index.numbers()), (IndexState::Ready, 5));
    assert_eq!(index.get(7).unwrap(), None);
    index.truncate(3).unwrap();
    index.set(3, entry(103)).unwrap();
    assert_eq!(index.get(3).unwrap(), Some(entry(103)));
    assert_eq!(index.get(4).unwrap(), None);
    assert_eq!(
        (disk.operations(), disk.contents(NAME)),
        (operations, whole)
    );
    index.sync().unwrap();
    let disk = disk.crash();
    let (index, state) = open(&disk, 4);
    assert_eq!(state, IndexState::Ready);
    assert_eq!(index.get(3).unwrap(), Some(entry(103)));
    assert_eq!(disk.contents(NAME).unwrap().len() as u64, offset_of(4));
    // A missing file is created by the first write.
    disk.remove(NAME).unwrap();
    let operations = disk.operations();
    let (index, state) = open(&disk, 4);
    assert!(matches!(state, IndexState::Rebuild { .. }));
    (0..4).for_each(|n| index.set(n, entry(n)).unwrap());
    assert_eq!(disk.operations(), operations);
    assert_eq!(index.get(2).unwrap(), Some(entry(2)));
}

#[test]
fn a_missing_short_or_damaged_index_asks_to_be_rebuilt() {
    let disk = FaultyDisk::new(2);
    filled(&disk, 10);
    let whole = disk.contents(NAME).unwrap();
    let expect_rebuild = |expected: &str| {
        let (index, state) = open(&disk, 10);
        assert_eq!(
            state,
            IndexState::Rebuild {
                reason: expected.to_owned()
            }
        );
        assert_eq!((index.numbers(), index.get(3).unwrap()), (0, None));
        (0..10).for_each(|n| index.set(n, entry(n)).unwrap());
        index.sync().unwrap();
        assert_eq!(disk.contents(NAME).unwrap(), whole);
    };
    disk.remove(NAME).unwrap();
    expect_rebuild("it is missing");
    disk.flip_bit(NAME, 9, 0);
    expect_rebuild("bad header");
    disk.flip_bit(NAME, offset_of(9) + 5, 0);
    expect_rebuild("block 9 is damaged");
    disk.open(NAME).unwrap().set_len(offset_of(7) + 3).unwrap();
    let (index, state) = open(&disk, 10);
    assert_eq!(state, IndexState::Short { numbers: 7 });
    assert_eq!(index.get(6).unwrap(), Some(entry(6)));
    assert_eq!((index.numbers(), index.get(7).unwrap()), (7, None));
    (7..10).for_each(|n| index.set(n, entry(n)).unwrap());
    index.sync().unwrap();
    assert_eq!(disk.contents(NAME).unwrap(), whole);
    disk.open(NAME).unwrap().set_len(offset_of(9)).unwrap();
    disk.open(NAME).unwrap().set_len(offset_of(10)).unwrap();
    expect_rebuild("it lacks block 9");
}

#[test]
fn any_flipped_bit_of_an_entry_is_an_error_that_names_the_block() {
    let disk = FaultyDisk::new(3);
    let index = filled(&disk, 3);
    for at in 0..RECORD_BYTES as u64 {
        disk.flip_bit(NAME, offset_of(1) + at, (at % 8) as u8);
        let error = index.get(1).unwrap_err();
        assert!(
            error.is_corruption() && error.to_string().contains("block 1"),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with("blocks.idx is damaged at byte 96"),
            "{error}"
        );
        disk.flip_bit(NAME, offset_of(1) + at, (at % 8) as u8);
    }
    index.truncate(0).unwrap();
    index.set(1, entry(1)).unwrap();
    assert_eq!(
        (index.get(0).unwrap(), index.get(1).unwrap()),
        (None, Some(entry(1)))
    );
}

#[test]
fn a_failed_sync_poisons_the_index() {
    let disk = FaultyDisk::new(4);
    let index = filled(&disk, 3);
    disk.inject(Fault::FailedSync, NAME, 1);
    index.set(3, entry(3)).unwrap();
    assert!(matches!(index.sync(), Err(StoreError::Disk(_))));
    for result in [index.sync(), index.set(4, entry(4)), index.truncate(1)] {
        assert!(matches!(result, Err(StoreError::Poisoned { .. })));
    }
    assert_eq!(index.get(2).unwrap(), Some(entry(2)));
}

#[test]
fn what_was_cleared_does_not_come_back_among_what_came_after() {
    for seed in cambium_seeds::seeds!(0..40) {
        let disk = FaultyDisk::new(seed);
        let index = filled(&disk, 10);
        index.clear().unwrap();
        (0..10).for_each(|n| index.set(n, entry(100 + n)).unwrap());
        disk.inject(Fault::FailedSync, NAME, 1);
        index.sync().unwrap_err();
        let (_, state) = open(&disk.crash(), 10);
        assert!(matches!(state, IndexState::Rebuild { .. }), "{state:?}");
    }
}

#[test]
fn one_made_again_counts_for_nothing_until_it_is_durable() {
    for seed in cambium_seeds::seeds!(0..20) {
        let disk = FaultyDisk::new(seed);
        filled(&disk, 10);
        disk.remove(NAME).unwrap();
        let rebuild = |result: (BlockIndex, IndexState)| {
            assert!(matches!(result.1, IndexState::Rebuild { .. }));
            (0..10).for_each(|n| result.0.set(n, entry(n)).unwrap());
            result.0
        };
        let index = rebuild(open(&disk, 10));
        disk.inject(Fault::FailedSync, NAME, 1);
        index.sync().unwrap_err();
        // The process restarts with the content of the page cache, and the power fails after that.
        rebuild(open(&disk, 10)).sync().unwrap();
        let (index, state) = open(&disk.crash(), 10);
        assert_eq!(state, IndexState::Ready);
        assert!((0..10).all(|n| index.get(n).unwrap() == Some(entry(n))));
    }
}

#[test]
fn the_format_is_what_it_was() {
    let disk = FaultyDisk::new(5);
    filled(&disk, 20);
    // Existing data directories contain this format. Changing it requires a new format number.
    assert_eq!(
        keccak256(disk.contents(NAME).unwrap()),
        b256!("96c18e34e25a84cb9002ccd9a326b96db74f9201301b076bf7467998f556394a")
    );
}

proptest! {
    #[test]
    fn behaves_as_a_map(
        steps in proptest::collection::vec((0u64..40, 0u64..1_000, 0u8..10), 1..60),
    ) {
        let disk = FaultyDisk::new(6);
        let index = filled(&disk, 0);
        let mut model = BTreeMap::new();
        for (number, value, kind) in steps {
            match kind {
                0 => {
                    index.truncate(number).unwrap();
                    model.split_off(&number);
                }
                1 => index.sync().unwrap(),
                _ => {
                    index.set(number, entry(value)).unwrap();
                    model.insert(number, entry(value));
                }
            }
            for number in 0..41 {
                prop_assert_eq!(index.get(number).unwrap(), model.get(&number).copied());
            }
        }
    }
}
