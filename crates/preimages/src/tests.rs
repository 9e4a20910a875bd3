//! Preimages beside a model: through runs, merges, crashes, failed operations and bad bits.

use crate::{
    Preimages, PreimagesError, PreimagesOptions, copy_preimages,
    list::{RUN_LIST, RunList},
};
use alloy_primitives::{Address, B256, keccak256};
use cambium_disk::{Disk, Fault, FaultyDisk};
use cambium_primitives::BlockId;
use std::{collections::BTreeMap, sync::Arc};

/// A few dozen preimages in memory.
const SMALL: PreimagesOptions = PreimagesOptions {
    memory_bytes: 40 * 112,
};

fn genesis() -> B256 {
    block(0).hash
}

fn block(number: u64) -> BlockId {
    BlockId::new(number, keccak256(number.to_be_bytes()))
}

fn address(n: u64) -> Address {
    Address::from_word(keccak256([b"address", &n.to_be_bytes()[..]].concat()))
}

fn slot(n: u64) -> B256 {
    B256::with_last_byte(n as u8) | (B256::from(alloy_primitives::U256::from(n)))
}

fn create(disk: &FaultyDisk) -> Preimages {
    Preimages::create(Arc::new(disk.clone()), SMALL).unwrap()
}

/// Those of the first state are in a run.
fn create_with_first_state(disk: &FaultyDisk) -> Preimages {
    let preimages = create(disk);
    add_block(&preimages, 0).unwrap();
    preimages.flush().unwrap();
    preimages
}

fn open(disk: &FaultyDisk) -> Result<Preimages, PreimagesError> {
    Preimages::open(Arc::new(disk.clone()), genesis(), SMALL)
}

/// Adds the preimages of a block: three new addresses and five keys of slots, of which some are known.
fn add_block(preimages: &Preimages, number: u64) -> Result<(), PreimagesError> {
    let addresses = (0..3).map(|n| address(number * 3 + n));
    let slots = (0..5).map(|n| slot(number * 4 + n));
    preimages.add(addresses, slots)?;
    preimages.advance(block(number));
    Ok(())
}

/// All of the blocks up to `last` are found, and nothing else is.
fn assert_has(preimages: &Preimages, last: u64) {
    for n in 0..(last + 1) * 3 {
        let found = preimages.address_of(&keccak256(address(n))).unwrap();
        assert_eq!(found, Some(address(n)), "address {n}");
    }
    for n in 0..=last * 4 + 4 {
        let found = preimages.slot_of(&keccak256(slot(n))).unwrap();
        assert_eq!(found, Some(slot(n)), "slot {n}");
    }
    for n in 0..50u64 {
        let other = keccak256([b"no", &n.to_be_bytes()[..]].concat());
        assert_eq!(preimages.address_of(&other).unwrap(), None);
        assert_eq!(preimages.slot_of(&other).unwrap(), None);
    }
}

#[test]
fn what_was_added_is_found_in_memory_in_runs_and_after_merges() {
    let disk = FaultyDisk::new(1);
    let preimages = create(&disk);
    let mut most = 0;
    for number in 0..400 {
        add_block(&preimages, number).unwrap();
        if number % 50 == 49 {
            assert_has(&preimages, number);
            preimages.merge().unwrap();
            assert_has(&preimages, number);
        }
        most = most.max(preimages.stats().runs);
    }
    assert!(most > 5, "{most} runs");
    assert_eq!(preimages.upto(), Some(block(399)));
    preimages.flush().unwrap();
    assert_eq!(preimages.durable(), Some(block(399)));
    let merged = preimages.stats();
    assert!(
        merged.runs < 12 && merged.memory_bytes < 4_000,
        "{merged:?}"
    );
    let counts = preimages.check(&mut |_| {}).unwrap();
    assert_eq!(counts, (1_200, 1_601));
    drop(preimages);
    let again = open(&disk).unwrap();
    assert_has(&again, 399);
    assert_eq!(again.upto(), Some(block(399)));
    let reader = Preimages::open_read_only(Arc::new(disk.clone()), genesis(), SMALL).unwrap();
    assert_has(&reader, 399);
    assert!(matches!(reader.flush(), Err(PreimagesError::ReadOnly)));
    assert!(matches!(
        Preimages::create(Arc::new(disk.clone()), SMALL),
        Err(PreimagesError::Store(_))
    ));
    // A copy, while the original goes on.
    let copy = FaultyDisk::new(2);
    assert!(copy_preimages(&disk, &copy, genesis()).unwrap());
    add_block(&again, 400).unwrap();
    again.flush().unwrap();
    again.merge().unwrap();
    assert_has(&open(&copy).unwrap(), 399);
    assert_has(&again, 400);
    // A reader drops its own additions when it reads a later list.
    add_block(&reader, 400).unwrap();
    assert_has(&reader, 400);
    reader.reload().unwrap();
    assert_has(&reader, 400);
    assert_eq!(reader.upto(), Some(block(400)));
    let told = copy_preimages(&disk, &copy, genesis());
    assert!(matches!(told, Err(PreimagesError::Exists { .. })));
    assert_has(&open(&copy).unwrap(), 399);
}

#[test]
fn a_walk_in_order_reads_each_page_once() {
    let disk = FaultyDisk::new(3);
    let options = PreimagesOptions {
        memory_bytes: 64 << 20,
    };
    let preimages = Preimages::create(Arc::new(disk.clone()), options).unwrap();
    let count = 100_000;
    preimages.add((0..count).map(address), []).unwrap();
    preimages.flush().unwrap();
    let pages = count.div_ceil(204);
    let sorted: BTreeMap<_, _> = (0..count).map(|n| (keccak256(address(n)), n)).collect();
    let mut lookup = preimages.lookup();
    for (hash, n) in &sorted {
        assert_eq!(lookup.address_of(hash).unwrap(), Some(address(*n)));
    }
    assert_eq!(lookup.reads(), pages);
    // 20 bytes each, and little more.
    let bytes = preimages.stats().file_bytes;
    assert!(bytes < count * 21, "{bytes}");
    assert!(preimages.stats().memory_bytes <= pages * 8);
    let one = preimages.lookup();
    assert_eq!(one.reads(), 0);
}

#[test]
fn a_lookup_keeps_what_it_saw_while_runs_are_merged() {
    let disk = FaultyDisk::new(4);
    let preimages = create(&disk);
    for number in 0..60 {
        add_block(&preimages, number).unwrap();
    }
    let mut lookup = preimages.lookup();
    for number in 60..200 {
        add_block(&preimages, number).unwrap();
        preimages.merge().unwrap();
    }
    for n in 0..180 {
        let found = lookup.address_of(&keccak256(address(n))).unwrap();
        assert_eq!(found, Some(address(n)));
    }
    assert_eq!(lookup.address_of(&keccak256(address(500))).unwrap(), None);
}

#[test]
fn after_any_loss_of_power_all_up_to_the_durable_block_are_there() {
    let mut losses = 0;
    for seed in cambium_seeds::seeds!(0..40) {
        let mut disk = FaultyDisk::new(seed);
        drop(create_with_first_state(&disk));
        for round in 0..4 {
            let preimages = open(&disk).unwrap();
            let durable = preimages.durable();
            assert_eq!(preimages.upto(), durable);
            // Block 0 stands for the state at the first block.
            let durable = durable.unwrap().number;
            assert_has(&preimages, durable);
            let next = durable + 1;
            disk.lose_power_after(5 + seed * 7 % 90 + round * 13);
            for number in next..next + 120 {
                let flush = || match number % 16 {
                    15 => preimages.flush(),
                    _ => Ok(()),
                };
                let merge = || match number % 40 {
                    39 => preimages.merge(),
                    _ => Ok(()),
                };
                let done = add_block(&preimages, number)
                    .and_then(|()| flush())
                    .and_then(|()| merge());
                if done.is_err() {
                    losses += 1;
                    break;
                }
            }
            let acknowledged = preimages.durable();
            drop(preimages);
            disk = disk.crash();
            // The next list may count already when the disk went off while it was made durable.
            let after = open(&disk).unwrap().durable();
            let number = |of: Option<BlockId>| of.map(|block| block.number);
            assert!(number(after) >= number(acknowledged), "seed {seed}");
        }
    }
    assert!(losses > 70, "{losses}");
}

#[test]
fn a_first_state_that_was_not_added_whole_is_not_taken_for_one() {
    let disk = FaultyDisk::new(5);
    let preimages = create(&disk);
    // More than there is memory for: a part is in a file already.
    preimages.add((0..10_000).map(address), []).unwrap();
    assert!(preimages.stats().runs > 0);
    assert_eq!((preimages.upto(), preimages.durable()), (None, None));
    preimages.flush().unwrap();
    drop(preimages);
    let told = open(&disk).map(drop);
    assert!(matches!(told, Err(PreimagesError::Unfinished { .. })));
    Preimages::remove(&disk).unwrap();
    assert!(!Preimages::exist(&disk).unwrap());
    assert!(!disk.files().iter().any(|name| name.ends_with(".run")));
    let again = create(&disk);
    again.add((0..10_000).map(address), []).unwrap();
    again.advance(block(0));
    again.flush().unwrap();
    drop(again);
    assert_eq!(open(&disk).unwrap().durable(), Some(block(0)));
}

#[test]
fn an_operation_that_fails_costs_nothing_and_leaves_no_file() {
    for fault in [Fault::FailedWrite, Fault::FailedSync] {
        for failures in 1..6 {
            let disk = FaultyDisk::new(9);
            let preimages = create(&disk);
            disk.inject(fault, "preimages/0", failures);
            for number in 0..200 {
                // A follower repeats a block that was not added.
                while add_block(&preimages, number).is_err() {}
                _ = preimages.merge();
            }
            assert_has(&preimages, 199);
            preimages.flush().unwrap();
            preimages.merge().unwrap();
            drop(preimages);
            let files = disk.files();
            let runs = files.iter().filter(|name| name.ends_with(".run")).count();
            let again = open(&disk).unwrap();
            assert_eq!(again.stats().runs, runs as u64, "{files:?}");
            assert_has(&again, 199);
        }
    }
}

#[test]
fn blocks_that_were_not_added_are_counted_for_good() {
    let disk = FaultyDisk::new(14);
    let preimages = create_with_first_state(&disk);
    preimages.skip(3, block(3));
    preimages.flush().unwrap();
    add_block(&preimages, 4).unwrap();
    preimages.skip(2, block(6));
    preimages.flush().unwrap();
    drop(preimages);
    let again = open(&disk).unwrap();
    assert_eq!(
        (again.upto(), again.stats().lost_blocks),
        (Some(block(6)), 5)
    );
}

#[test]
fn a_damaged_page_hides_nothing_that_other_runs_have() {
    let disk = FaultyDisk::new(16);
    let preimages = create_with_first_state(&disk);
    for number in 1..30 {
        add_block(&preimages, number).unwrap();
        preimages.flush().unwrap();
    }
    // The first run has the preimages of the first block alone.
    let file = disk.open("preimages/00000001.run").unwrap();
    file.write_at(&[0xff; 100], 0).unwrap();
    let mut lookup = preimages.lookup();
    for number in 3..90 {
        let found = lookup.address_of(&keccak256(address(number))).unwrap();
        assert_eq!(found, Some(address(number)));
    }
    let told = lookup.address_of(&keccak256(address(0))).map(drop);
    assert!(matches!(told, Err(PreimagesError::Damaged { .. })));
    let told = lookup.address_of(&keccak256(address(4_000)));
    assert_eq!(told.unwrap_or_default(), None);
}

#[test]
fn memory_has_a_limit_where_nothing_can_be_written() {
    let disk = FaultyDisk::new(6);
    let preimages = create(&disk);
    add_block(&preimages, 0).unwrap();
    preimages.flush().unwrap();
    let reader = Preimages::open_read_only(Arc::new(disk.clone()), genesis(), SMALL).unwrap();
    disk.inject(Fault::FailedWrite, "preimages/0", u32::MAX);
    for of in [&preimages, &reader] {
        let mut refused = 0;
        for number in 1..500 {
            refused += usize::from(add_block(of, number).is_err());
            // Each look-up for many begins a part of its own.
            drop(of.lookup());
        }
        assert!(refused > 450, "{refused}");
        let bytes = of.stats().memory_bytes;
        assert!(bytes < 2 * SMALL.memory_bytes, "{bytes}");
    }
    disk.clear_faults();
    let next = preimages.upto().unwrap().number + 1;
    for number in next..100 {
        add_block(&preimages, number).unwrap();
    }
    assert_has(&preimages, 99);
}

#[test]
fn an_interrupted_copy_is_made_again() {
    let disk = FaultyDisk::new(7);
    let preimages = create(&disk);
    for number in 0..100 {
        add_block(&preimages, number).unwrap();
    }
    preimages.flush().unwrap();
    let mut interrupted = 0;
    for calls in 0..60 {
        let copy = FaultyDisk::new(8);
        copy.fail_call_after(calls);
        if copy_preimages(&disk, &copy, genesis()).is_err() {
            interrupted += 1;
            copy.clear_faults();
            match copy_preimages(&disk, &copy, genesis()) {
                Ok(is_copied) => assert!(is_copied),
                // The call that failed was the last one: the list is there.
                Err(error) => assert!(matches!(error, PreimagesError::Exists { .. }), "{error}"),
            }
        }
        assert_has(&open(&copy).unwrap(), 99);
    }
    assert!(interrupted > 10, "{interrupted}");
}

#[test]
fn a_file_with_a_strange_name_is_no_trouble() {
    let disk = FaultyDisk::new(13);
    drop(create_with_first_state(&disk));
    for name in ["000000001.run", "99999999999999999999.run", "1.run", "x"] {
        disk.create(&format!("preimages/{name}")).unwrap();
    }
    drop(open(&disk).unwrap());
    assert_eq!(open(&disk).unwrap().stats().runs, 1);
}

#[test]
fn every_bad_bit_is_named() {
    let disk = FaultyDisk::new(10);
    let preimages = create(&disk);
    for number in 0..80 {
        add_block(&preimages, number).unwrap();
    }
    preimages.flush().unwrap();
    preimages.merge().unwrap();
    drop(preimages);
    let mut named = 0;
    for name in disk.files() {
        if !name.starts_with("preimages/0") && !name.ends_with(".list") {
            continue;
        }
        let len = disk.contents(&name).unwrap().len();
        for at in (0..len).step_by(97) {
            let broken = disk.duplicate();
            let file = broken.open(&name).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at as u64).unwrap();
            file.write_at(&[byte[0] ^ 4], at as u64).unwrap();
            let checked = open(&broken).and_then(|it| it.check(&mut |_| {}));
            let told = checked.unwrap_err().to_string();
            named += 1;
            assert!(told.contains(&name), "{told}");
            assert!(told.contains("the state does not need it"), "{told}");
        }
        for cut in [0, len / 2, len - 1] {
            let broken = disk.duplicate();
            broken.open(&name).unwrap().set_len(cut as u64).unwrap();
            let told = open(&broken).map(drop).unwrap_err().to_string();
            assert!(told.contains(&name), "{told}");
        }
        let broken = disk.duplicate();
        broken.remove(&name).unwrap();
        assert!(open(&broken).is_err());
    }
    assert!(named > 50, "{named}");
}

#[test]
fn a_list_of_another_database_and_every_damaged_one_is_refused() {
    let disk = FaultyDisk::new(11);
    drop(create_with_first_state(&disk));
    let other = Preimages::open(Arc::new(disk.clone()), B256::ZERO, SMALL);
    assert!(matches!(other, Err(PreimagesError::OtherDatabase { .. })));
    let empty = FaultyDisk::new(12);
    assert!(matches!(open(&empty), Err(PreimagesError::None { .. })));
    assert!(!Preimages::exist(&empty).unwrap());
    let bytes = RunList::read(&disk, genesis()).unwrap().encode();
    for end in 0..bytes.len() {
        let cut = RUN_LIST.decode(&bytes[..end], |reader, _| RunList::take(reader));
        assert!(cut.is_err());
    }
}
