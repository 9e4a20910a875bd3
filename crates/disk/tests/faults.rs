//! Faults that the faulty disk injects into unsynced data, and those that it never does.

use cambium_disk::{Access, BLOCK_BYTES, Disk, Fault, FaultyDisk, QueuedRead, ReadRequest};
use std::collections::BTreeSet;

/// A disk with the durable file `f` of 2,000 ones.
fn disk(seed: u64) -> FaultyDisk {
    let disk = FaultyDisk::new(seed);
    let file = disk.create("f").unwrap();
    file.write_at(&[1; 2_000], 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    disk
}

#[test]
fn what_was_synced_survives_every_crash() {
    for seed in cambium_seeds::seeds!(0..200) {
        let disk = disk(seed).crash().crash();
        assert_eq!(disk.contents("f").unwrap(), [1; 2_000]);
    }
}

#[test]
fn an_unsynced_write_is_kept_lost_or_torn_and_nothing_else_changes() {
    let mut outcomes = BTreeSet::new();
    for seed in cambium_seeds::seeds!(0..300) {
        let disk = disk(seed);
        disk.open("f").unwrap().write_at(&[2; 600], 1_000).unwrap();
        let found = disk.crash().contents("f").unwrap();
        let (before, rest) = found.split_at(1_000);
        let (written, after) = rest.split_at(600);
        assert_eq!((before, after), (&[1; 1_000][..], &[1; 400][..]));
        assert!(written.iter().all(|byte| [1, 2].contains(byte)));
        outcomes.insert(match written.iter().filter(|byte| **byte == 2).count() {
            0 => "lost",
            600 => "kept",
            _ if written[0] == 2 => "start kept",
            _ => "end kept",
        });
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

#[test]
fn unsynced_writes_survive_independently_of_their_order() {
    let mut outcomes = BTreeSet::new();
    for seed in cambium_seeds::seeds!(0..300) {
        let disk = disk(seed);
        let file = disk.open("f").unwrap();
        file.write_at(&[2], 0).unwrap();
        file.write_at(&[2], 1).unwrap();
        file.write_at(&[3], 2_100).unwrap();
        let found = disk.crash().contents("f").unwrap();
        outcomes.insert((found[0], found[1], found.len(), found.last().copied()));
    }
    for (first, second) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        assert!(outcomes.contains(&(first, second, 2_000, Some(1))));
        assert!(outcomes.contains(&(first, second, 2_101, Some(3))));
    }
    assert!(
        outcomes.contains(&(1, 1, 2_101, Some(0))),
        "a length may survive without content"
    );
}

#[test]
fn a_name_survives_for_certain_only_if_its_directory_was_synced() {
    let mut outcomes = BTreeSet::new();
    for seed in cambium_seeds::seeds!(0..100) {
        let disk = disk(seed);
        disk.create("new").unwrap().sync().unwrap();
        disk.rename("f", "g").unwrap();
        disk.create_dir("dir").unwrap();
        disk.create("dir/inner").unwrap();
        disk.sync_dir("dir").unwrap();
        outcomes.insert(disk.crash().files());
        disk_synced_survives(seed);
    }
    let has = |names: &[&str]| outcomes.iter().any(|found| found == names);
    assert!(has(&["f"]) && has(&["g"]) && has(&["f", "new"]) && has(&["dir/inner", "g", "new"]));
}

fn disk_synced_survives(seed: u64) {
    let disk = disk(seed);
    disk.create("new").unwrap();
    disk.rename("f", "g").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(disk.crash().files(), ["g", "new"]);
}

#[test]
fn the_same_seed_and_steps_give_the_same_accidents() {
    let run = |seed| {
        let disk = disk(seed);
        let file = disk.open("f").unwrap();
        (0..50).for_each(|n| file.write_at(&[n; 90], u64::from(n) * 60).unwrap());
        disk.inject(Fault::FailedSync, "f", 1);
        assert!(file.sync().is_err());
        disk.crash().contents("f").unwrap()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn after_a_failed_sync_writes_can_be_lost_although_the_next_one_succeeds() {
    let lost = |seed| {
        let disk = disk(seed);
        let file = disk.open("f").unwrap();
        file.write_at(&[2], 0).unwrap();
        disk.inject(Fault::FailedSync, "f", 1);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [2], "it still looks written");
        disk.crash().contents("f").unwrap()[0] == 1
    };
    let losses = (0..100).filter(|seed| lost(*seed)).count();
    assert!((1..100).contains(&losses), "{losses} of 100");
}

#[test]
fn from_a_power_loss_on_all_operations_fail() {
    let disk = disk(1);
    let file = disk.open("f").unwrap();
    disk.lose_power_after(1);
    file.write_at(&[2], 0).unwrap();
    let before = disk.operations();
    assert!(file.write_at(&[2], 1).is_err());
    let mut byte = [0];
    assert!(file.read_at(&mut byte, 0).is_err() && file.sync().is_err() && file.len().is_err());
    assert!(disk.create("g").is_err() && disk.list("").is_err() && disk.lock("l").is_err());
    assert_eq!(disk.operations(), before + 1);
    let next = disk.crash();
    assert!(next.open("f").unwrap().read_at(&mut byte, 0).is_ok());
    assert!(disk.open("f").is_err(), "the old disk stays dead");
}

#[test]
fn reads_writes_and_space_fail_on_demand() {
    let disk = disk(1);
    let file = disk.open("f").unwrap();
    let mut byte = [0];
    disk.inject(Fault::FailedRead, "f", u32::MAX);
    assert!(file.read_at(&mut byte, 0).is_err());
    disk.inject(Fault::FailedRead, "f", 0);
    file.read_at(&mut byte, 0).unwrap();
    disk.inject(Fault::FailedWrite, "f", 1);
    assert!(file.write_at(&byte, 0).is_err() && file.write_at(&byte, 0).is_ok());
    disk.limit_space(Some(2_010));
    assert_eq!(disk.free_bytes().unwrap(), 10);
    assert!(file.write_at(&[7; 20], 2_000).is_err());
    assert_eq!(file.len().unwrap(), 2_010, "what fits is written");
    file.write_at(&[7; 20], 100)
        .expect("room that the file has is no growth");
    disk.remove("f").unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 2_010);
}

#[test]
fn a_flipped_bit_stays_flipped() {
    let disk = disk(1);
    disk.flip_bit("f", 9, 3);
    assert_eq!(disk.contents("f").unwrap()[9], 9);
    assert_eq!(disk.crash().contents("f").unwrap()[9], 9);
}

#[test]
fn an_unsynced_hole_is_there_or_not_block_by_block_and_nothing_else_changes() {
    let (block, len) = (BLOCK_BYTES as u64, 6 * BLOCK_BYTES);
    let mut outcomes = BTreeSet::new();
    for seed in cambium_seeds::seeds!(0..200) {
        let disk = FaultyDisk::new(seed);
        let file = disk.create("f").unwrap();
        file.write_at(&vec![1; len], 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir("").unwrap();
        file.punch_hole(2 * block, 3 * block).unwrap();
        let live = disk.contents("f").unwrap();
        assert!(
            live[2 * BLOCK_BYTES..5 * BLOCK_BYTES]
                .iter()
                .all(|byte| *byte == 0)
        );
        let found = disk.crash().contents("f").unwrap();
        let blocks: Vec<_> = found
            .chunks(BLOCK_BYTES)
            .map(|block| (block[0], block.iter().all(|byte| *byte == block[0])))
            .collect();
        assert!(blocks.iter().all(|(_, is_uniform)| *is_uniform));
        for at in [0, 1, 5] {
            assert_eq!(blocks[at].0, 1);
        }
        outcomes.insert([2, 3, 4].map(|at| blocks[at].0));
        file.sync().unwrap_err();
    }
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
}

#[test]
fn a_synced_hole_survives_and_gives_its_space_back() {
    let block = BLOCK_BYTES as u64;
    let disk = FaultyDisk::new(1);
    disk.limit_space(Some(10 * block));
    let file = disk.create("f").unwrap();
    file.write_at(&vec![1; 10 * BLOCK_BYTES], 0).unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 0);
    file.punch_hole(block / 2, 3 * block).unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 2 * block, "whole blocks only");
    file.sync().unwrap();
    let disk = disk.crash();
    let found = disk.contents("f").unwrap();
    assert_eq!(
        found.iter().filter(|byte| **byte == 0).count(),
        3 * BLOCK_BYTES
    );
    disk.limit_space(Some(10 * block));
    assert_eq!(disk.free_bytes().unwrap(), 2 * block);
    let file = disk.open("f").unwrap();
    file.write_at(&[1], block).expect("room in the hole");
    assert_eq!(disk.free_bytes().unwrap(), block);
    disk.limit_space(Some(9 * block));
    assert!(file.write_at(&[1], 2 * block).unwrap_err().is_full());
    disk.inject(Fault::FailedWrite, "f", 1);
    assert!(file.punch_hole(5 * block, block).is_err());
    assert_eq!(disk.contents("f").unwrap()[5 * BLOCK_BYTES], 1);
}

#[test]
fn reads_of_a_batch_and_direct_files_have_the_same_accidents() {
    let disk = disk(1);
    disk.create("g").unwrap().write_at(&[5; 100], 0).unwrap();
    let files = ["f", "g"].map(|name| disk.open_with(name, Access::Direct).unwrap());
    disk.flip_bit("g", 3, 1);
    let batch = || {
        let mut bufs = [[0; 10]; 2];
        let mut requests: Vec<_> = files
            .iter()
            .zip(&mut bufs)
            .map(|(file, buf)| ReadRequest::new(&**file, 0, buf))
            .collect();
        disk.read_batch(&mut requests);
        let outcomes = [0, 1].map(|at| requests[at].outcome.is_ok());
        (outcomes, bufs)
    };
    let (outcomes, bufs) = batch();
    assert_eq!((outcomes, bufs[0]), ([true; 2], [1; 10]));
    assert_eq!(bufs[1], [5, 5, 5, 7, 5, 5, 5, 5, 5, 5]);
    disk.inject(Fault::FailedRead, "f", u32::MAX);
    assert_eq!(batch().0, [false, true]);
    disk.lose_power_after(0);
    assert!(files[0].punch_hole(0, 1).is_err());
    assert_eq!(batch().0, [false, false]);
}

#[test]
fn a_queue_loses_no_read_whatever_their_order_and_errors() {
    const READS: u64 = 60;
    let (mut orders, mut empty_polls) = (BTreeSet::new(), 0);
    for seed in cambium_seeds::seeds!(0..200) {
        let disk = disk(seed);
        let file = disk.open("f").unwrap();
        disk.flip_bit("f", 7, 3);
        disk.inject(Fault::FailedRead, "f", 5);
        let mut queue = disk.read_queue(4);
        let (mut finished, mut submitted) = (Vec::new(), 0);
        while finished.len() < READS as usize {
            for _ in 0..(seed % 9).min(READS - submitted) + 1 {
                if submitted < READS {
                    queue.submit(QueuedRead {
                        file: file.clone(),
                        offset: submitted,
                        bytes: vec![0; 2],
                        tag: submitted,
                    });
                    submitted += 1;
                }
            }
            let before = finished.len();
            let wait = finished.len() % 3 == 0;
            queue.poll(wait, &mut finished);
            assert!(!wait || finished.len() > before, "no progress");
            empty_polls += u64::from(finished.len() == before);
            assert_eq!(queue.in_flight() + finished.len(), submitted as usize);
        }
        let order: Vec<_> = finished.iter().map(|read| read.tag).collect();
        let tags: BTreeSet<_> = order.iter().copied().collect();
        assert!(tags.into_iter().eq(0..READS), "seed {seed}: {order:?}");
        orders.insert(order);
        let failed = finished.iter().filter(|read| read.outcome.is_err());
        assert_eq!((failed.count(), disk.take_hits().len()), (5, 5));
        for read in finished.iter().filter(|read| read.outcome.is_ok()) {
            let expected = [0, 1].map(|at| if read.tag + at == 7 { 1 ^ 8 } else { 1 });
            assert_eq!(read.bytes, expected);
        }
    }
    assert!(orders.len() > 190, "{} orders", orders.len());
    assert!(empty_polls > 200, "{empty_polls}");
}

#[test]
fn a_read_or_an_opening_fails_as_often_as_was_asked_and_is_noted() {
    let disk = disk(1);
    let file = disk.open("f").unwrap();
    let mut byte = [0];
    disk.inject(Fault::FailedRead, "f", 2);
    disk.inject(Fault::FailedOpen, "", 1);
    assert!(file.read_at(&mut byte, 0).is_err() && file.read_at(&mut byte, 0).is_err());
    file.read_at(&mut byte, 0).unwrap();
    let error = disk.open("f").unwrap_err().to_string();
    assert!(error.contains("too many open files"), "{error}");
    disk.open("f").unwrap();
    let hits = disk.take_hits();
    let faults: Vec<_> = hits.iter().map(|(fault, _)| *fault).collect();
    let expected = [Fault::FailedRead, Fault::FailedRead, Fault::FailedOpen];
    assert_eq!(faults, expected);
    assert!(disk.take_hits().is_empty());
}

#[test]
fn any_operation_can_be_the_one_that_fails() {
    let script = |disk: &FaultyDisk| -> Result<(), cambium_disk::DiskError> {
        let file = disk.create("g")?;
        file.write_at(&[2; 10], 0)?;
        file.sync()?;
        disk.sync_dir("")?;
        disk.list("")?;
        file.len()?;
        file.read_at(&mut [0; 10], 0)?;
        disk.open("g")?;
        disk.rename("g", "h")?;
        disk.remove("h")
    };
    let whole = disk(1);
    let before = whole.calls();
    script(&whole).unwrap();
    let calls = whole.calls() - before;
    assert_eq!(calls, 10);
    for call in 0..calls {
        let disk = disk(1);
        disk.fail_call_after(call);
        assert!(script(&disk).is_err(), "call {call}");
        let left: BTreeSet<_> = disk.files().into_iter().collect();
        assert!(left.len() <= 2, "{left:?}");
    }
    let disk = disk(1);
    disk.fail_call_after(calls);
    script(&disk).unwrap();
}

#[test]
fn a_disk_is_full_from_some_operation_on() {
    let disk = disk(1);
    let file = disk.open("f").unwrap();
    disk.fill_after(1);
    file.write_at(&[2; 10], 2_000).unwrap();
    assert!(file.write_at(&[2; 10], 2_010).unwrap_err().is_full());
    file.write_at(&[3; 10], 0)
        .expect("room that the file has is no growth");
    assert!(file.set_len(3_000).unwrap_err().is_full());
    file.set_len(1_000).expect("cutting is no growth");
    disk.limit_space(None);
    file.set_len(3_000).unwrap();
}

#[test]
fn a_lost_write_is_seen_through_the_cache_until_the_next_start_alone() {
    for access in [Access::Cached, Access::Direct] {
        let disk = FaultyDisk::new(1);
        let file = disk.create_with("f", access).unwrap();
        file.write_at(&[1; BLOCK_BYTES], 0).unwrap();
        disk.inject(Fault::LostWrite, "f", 1);
        file.write_at(&[2; 2 * BLOCK_BYTES], 0).unwrap();
        assert_eq!(disk.take_hits().len(), 1);
        file.sync().unwrap();
        disk.sync_dir("").unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 0).unwrap();
        let seen = if access == Access::Cached { 2 } else { 1 };
        assert_eq!(byte, [seen]);
        let found = disk.crash().contents("f").unwrap();
        let (old, new) = found.split_at(BLOCK_BYTES);
        assert!(old.iter().all(|byte| *byte == 1) && new == [0; BLOCK_BYTES]);
    }
}

#[test]
fn a_misdirected_write_is_in_another_block_or_nowhere() {
    let mut outcomes = BTreeSet::new();
    for seed in cambium_seeds::seeds!(0..60) {
        let disk = FaultyDisk::new(seed);
        let file = disk.create("f").unwrap();
        file.write_at(&vec![1; 4 * BLOCK_BYTES], 0).unwrap();
        disk.inject(Fault::MisdirectedWrite, "f", 1);
        file.write_at(&[2; 100], 10).unwrap();
        file.sync().unwrap();
        disk.sync_dir("").unwrap();
        let found = disk.crash().contents("f").unwrap();
        let blocks = found.chunks(BLOCK_BYTES);
        let hit = blocks
            .map(|block| block[10..110] == [2; 100])
            .collect::<Vec<_>>();
        assert!(!hit[0] && hit.iter().filter(|hit| **hit).count() <= 1);
        outcomes.insert(hit);
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

#[test]
fn a_duplicate_is_durable_and_apart() {
    let disk = disk(1);
    disk.open("f").unwrap().write_at(&[2; 10], 0).unwrap();
    disk.create("g").unwrap();
    let copy = disk.duplicate();
    disk.open("f").unwrap().write_at(&[3; 10], 0).unwrap();
    let found = copy.crash();
    assert_eq!(found.files(), ["f", "g"]);
    assert_eq!(
        found.contents("f").unwrap()[..11],
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    );
}

#[test]
fn salts_are_random_unless_they_are_counted_and_never_repeat_after_a_crash() {
    let random = [FaultyDisk::new(1), FaultyDisk::new(1)].map(|disk| disk.new_salt());
    assert_ne!(random[0], random[1]);
    let disk = FaultyDisk::new(1);
    disk.count_salts();
    assert_eq!([disk.new_salt(), disk.new_salt()], [1, 2]);
    assert_eq!(disk.duplicate().new_salt(), 3);
    assert_eq!(disk.crash().new_salt(), 3);
}
