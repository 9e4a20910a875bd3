//! The disks that repairs run on: unreadable bytes are zeros, and a trial repair changes nothing.

use cambium_disk::{Access, BLOCK_BYTES, Disk, DiskFile, FaultyDisk, SalvageDisk, TrialDisk};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn read(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn contents(disk: &FaultyDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.files().into_iter();
    names
        .map(|name| (name.clone(), disk.contents(&name).unwrap()))
        .collect()
}

#[test]
fn what_the_device_cannot_give_is_zeros_and_can_be_written_again() {
    let below = FaultyDisk::new(1);
    let bytes: Vec<u8> = (0..5 * BLOCK + 100).map(|at| at as u8 | 1).collect();
    below.create("a").unwrap().write_at(&bytes, 0).unwrap();
    below.spoil("a", BLOCK + 5, BLOCK_BYTES);
    below.spoil("a", 5 * BLOCK, 1);
    assert!(read_fails(&below, "a"));
    let salvage = SalvageDisk::new(Arc::new(below.clone()));
    let file = salvage.open("a").unwrap();
    let mut expected = bytes.clone();
    expected[BLOCK_BYTES..3 * BLOCK_BYTES].fill(0);
    expected[5 * BLOCK_BYTES..].fill(0);
    assert_eq!(read(&*file), expected);
    let mut found = salvage.unreadable();
    found.sort_unstable_by_key(|range| range.offset);
    let offsets: Vec<_> = found
        .iter()
        .map(|range| (range.offset, range.len))
        .collect();
    assert_eq!(offsets, [(BLOCK, 2 * BLOCK), (5 * BLOCK, BLOCK)]);
    assert_eq!(read(&*file), expected);
    assert_eq!(salvage.unreadable().len(), 2, "each once");
    assert!(found.iter().all(|range| range.file == "a"));
    // A part of a block is written as a whole block.
    file.write_at(b"again", 2 * BLOCK - 2).unwrap();
    file.write_at(b"end", 5 * BLOCK + 97).unwrap();
    expected[2 * BLOCK_BYTES - 2..][..5].copy_from_slice(b"again");
    expected[5 * BLOCK_BYTES + 97..].copy_from_slice(b"end");
    assert_eq!(read(&*file), expected);
    assert_eq!(below.contents("a").unwrap(), expected);
    assert!(!read_fails(&below, "a"));
}

fn read_fails(disk: &FaultyDisk, name: &str) -> bool {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let error = file.read_at(&mut bytes, 0).err();
    error.is_some_and(|error| error.is_unreadable())
}

#[test]
fn a_trial_that_would_keep_too_much_says_so() {
    let trial = TrialDisk::new(Arc::new(FaultyDisk::new(1)), 3 * BLOCK);
    let file = trial.create("a").unwrap();
    file.write_at(&vec![1; 3 * BLOCK_BYTES], 0).unwrap();
    file.write_at(b"again", 10).unwrap();
    let error = file.write_at(b"more", 3 * BLOCK).unwrap_err();
    assert!(
        error.to_string().contains("more than 12288 bytes"),
        "{error}"
    );
    file.set_len(BLOCK).unwrap();
    file.write_at(b"now", 2 * BLOCK).unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Remove(usize),
    Rename(usize, usize),
    Write(usize, u64, Vec<u8>),
    SetLen(usize, u64),
    Punch(usize, u64, u64),
}

const NAMES: [&str; 4] = ["a", "b", "dir/a", "dir/b"];

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let at = 0..4 * BLOCK;
    prop_oneof![
        name.clone().prop_map(Step::Create),
        name.clone().prop_map(Step::Remove),
        (0..2usize, 0..2usize).prop_map(|(from, to)| Step::Rename(from, to)),
        (
            name.clone(),
            at.clone(),
            prop::collection::vec(any::<u8>(), 1..6000)
        )
            .prop_map(|(name, at, bytes)| Step::Write(name, at, bytes)),
        (name.clone(), at.clone()).prop_map(|(name, len)| Step::SetLen(name, len)),
        (name, at.clone(), at).prop_map(|(name, at, len)| Step::Punch(name, at, len)),
    ]
}

/// Whether it could be done.
fn take(disk: &dyn Disk, step: &Step) -> bool {
    let open = |name: &usize| disk.open_with(NAMES[*name], Access::Cached);
    match step {
        Step::Create(name) => disk.create(NAMES[*name]).is_ok(),
        Step::Remove(name) => disk.remove(NAMES[*name]).is_ok(),
        Step::Rename(from, to) => disk.rename(NAMES[*from], NAMES[*to]).is_ok(),
        Step::Write(name, at, bytes) => {
            open(name).is_ok_and(|file| file.write_at(bytes, *at).is_ok())
        }
        Step::SetLen(name, len) => open(name).is_ok_and(|file| file.set_len(*len).is_ok()),
        Step::Punch(name, at, len) => {
            open(name).is_ok_and(|file| file.punch_hole(*at, *len).is_ok())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_trial_is_as_the_disk_would_be_and_leaves_that_alone(
        before in prop::collection::vec(step(), 0..8),
        steps in prop::collection::vec(step(), 0..20),
    ) {
        let disk = FaultyDisk::new(1);
        disk.create_dir("dir").unwrap();
        for step in &before {
            take(&disk, step);
        }
        let there = contents(&disk);
        let real = disk.duplicate();
        let trial = TrialDisk::new(Arc::new(disk.clone()), u64::MAX);
        for step in &steps {
            prop_assert_eq!(take(&trial, step), take(&real, step), "{:?}", step);
        }
        for dir in ["", "dir"] {
            prop_assert_eq!(trial.list(dir).unwrap(), real.list(dir).unwrap());
        }
        for (name, bytes) in contents(&real) {
            prop_assert_eq!(read(&*trial.open(&name).unwrap()), bytes, "{}", name);
        }
        for name in NAMES {
            prop_assert_eq!(trial.exists(name).unwrap(), real.exists(name).unwrap());
        }
        prop_assert_eq!(contents(&disk), there);
    }
}
