use super::{format::*, *};
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Fault, FaultyDisk};
use proptest::{collection::vec, prelude::*};

const SALT: u64 = 0x5eed;

fn code(n: u64) -> Vec<u8> {
    (0..n * 37 % 200).map(|at| (n + at) as u8).collect()
}

fn hash(n: u64) -> B256 {
    keccak256(n.to_be_bytes())
}

fn open(disk: &FaultyDisk, checkpointed: u64) -> Result<(Codes, CodesRecovery), StoreError> {
    let opened = Codes::open(Arc::new(disk.clone()), SALT, checkpointed)?;
    opened.0.settle()?;
    Ok(opened)
}

/// Returns the opened codes, and the number of bytes dropped, after checking that nothing is
/// damaged.
fn undamaged(opened: Result<(Codes, CodesRecovery), StoreError>) -> (Codes, u64) {
    let (codes, recovery) = opened.unwrap();
    assert!(recovery.damage.is_empty(), "{:?}", recovery.damage);
    assert_eq!(recovery.codes, codes.hashes().len());
    (codes, recovery.truncated_bytes)
}

/// Writes `count` codes, and syncs each. Returns the file's length after each.
fn filled(disk: &FaultyDisk, count: u64) -> (Codes, Vec<u64>) {
    let (codes, _) = open(disk, 0).unwrap();
    let put = |n| {
        assert!(codes.put(hash(n), &code(n)).unwrap());
        codes.sync().unwrap()
    };
    let ends = (0..count).map(put).collect();
    (codes, ends)
}

fn assert_holds(codes: &Codes, count: u64) {
    for n in 0..count {
        assert_eq!(codes.get(&hash(n)).unwrap(), Some(code(n)), "code {n}");
    }
    assert_eq!(codes.hashes().len() as u64, count);
}

#[test]
fn codes_are_read_back_and_kept_once() {
    let disk = FaultyDisk::new(1);
    let (codes, ends) = filled(&disk, 20);
    assert!(!codes.put(hash(3), &code(3)).unwrap());
    assert_eq!(codes.sync().unwrap(), ends[19]);
    assert_holds(&codes, 20);
    assert!(codes.contains(&hash(19)) && !codes.contains(&hash(20)));
    assert_eq!(codes.get(&hash(20)).unwrap(), None);
    let disk = disk.crash();
    for checkpointed in [0, ends[0], ends[10], ends[19]] {
        let (codes, truncated) = undamaged(open(&disk, checkpointed));
        assert_eq!(truncated, 0);
        assert_holds(&codes, 20);
    }
}

#[test]
fn a_flipped_bit_is_told_and_costs_one_code_which_can_be_restored() {
    let disk = FaultyDisk::new(2);
    let (_, ends) = filled(&disk, 4);
    let good = disk.duplicate();
    for at in 0..ends[2] {
        for checkpointed in [0, ends[3]] {
            let disk = good.duplicate();
            disk.flip_bit(NAME, at, (at % 8) as u8);
            let (codes, recovery) = open(&disk, checkpointed).unwrap();
            let mut told: Vec<String> = recovery.damage.iter().map(ToString::to_string).collect();
            let mut lost = Vec::new();
            for n in 0..4 {
                match codes.get(&hash(n)) {
                    Ok(Some(found)) => assert_eq!(found, code(n), "byte {at}"),
                    Ok(None) => lost.push(n),
                    Err(error) => {
                        told.push(error.to_string());
                        lost.push(n);
                    }
                }
            }
            // A damaged header loses no code.
            assert_eq!(lost.len(), usize::from(at >= HEADER_BYTES), "byte {at}");
            assert_eq!(told.len(), 1, "byte {at}: {told:?}");
            let is_named = told[0].starts_with("codes.dat is damaged at byte");
            assert!(
                is_named && told[0].contains("cambium db repair"),
                "{told:?}"
            );
            for n in lost {
                codes.restore(hash(n), &code(n)).unwrap();
            }
            codes.put(hash(4), &code(4)).unwrap();
            codes.sync().unwrap();
            let (codes, _) = open(&disk, checkpointed).unwrap();
            assert_holds(&codes, 5);
        }
    }
}

#[test]
fn a_torn_end_is_dropped_and_what_is_put_next_is_kept() {
    let disk = FaultyDisk::new(3);
    let (_, ends) = filled(&disk, 5);
    let whole = disk.contents(NAME).unwrap();
    for len in ends[3] + 1..ends[4] {
        let file = disk.open(NAME).unwrap();
        file.set_len(len).unwrap();
        let (codes, truncated) = undamaged(open(&disk, ends[1]));
        assert_eq!((codes.hashes().len(), truncated), (4, len - ends[3]));
        assert!(codes.put(hash(4), &code(4)).unwrap());
        codes.sync().unwrap();
        assert_holds(&open(&disk, ends[1]).unwrap().0, 5);
        file.write_at(&whole, 0).unwrap();
    }
}

#[test]
fn a_missing_or_short_file_is_told_and_begun_anew_by_a_repair_with_what_is_left() {
    for (len, left) in [(Some(3), 4), (None, 0)] {
        let disk = FaultyDisk::new(4);
        let (_, ends) = filled(&disk, 5);
        match len {
            Some(n) => disk.open(NAME).unwrap().set_len(ends[n] + 5).unwrap(),
            None => disk.remove(NAME).unwrap(),
        }
        let (codes, recovery) = open(&disk, ends[4]).unwrap();
        let told = recovery.damage[0].to_string();
        let expected = match len {
            Some(_) => "shorter than its checkpointed length",
            None => "codes.dat is damaged at byte 0: the file is missing",
        };
        assert!(told.contains(expected), "{told}");
        assert_holds(&codes, left);
        assert_eq!(codes.get(&hash(4)).unwrap(), None);
        // Nothing is appended to an incomplete file, and the next checkpoint keeps its expected
        // length.
        assert!(codes.put(hash(9), &code(9)).unwrap_err().is_corruption());
        assert_eq!(codes.sync().unwrap(), ends[4]);
        drop(codes);
        let arc: Arc<dyn Disk> = Arc::new(disk.clone());
        Codes::rebuild_from(&arc, SALT, ends[4], "codes.dat.old").unwrap();
        assert_eq!(disk.contents("codes.dat.old").is_some(), len.is_some());
        let (codes, _) = undamaged(open(&disk.crash(), ends[4]));
        assert_holds(&codes, left);
        (left..6).for_each(|n| assert!(codes.put(hash(n), &code(n)).unwrap()));
        assert_holds(&codes, 6);
    }
    let disk = FaultyDisk::new(4);
    filled(&disk, 5);
    disk.remove(NAME).unwrap();
    assert!(undamaged(open(&disk, 0)).0.hashes().is_empty());
}

#[test]
fn opening_changes_nothing_and_a_passing_error_is_no_damage() {
    let disk = FaultyDisk::new(9);
    let (_, ends) = filled(&disk, 3);
    disk.open(NAME).unwrap().set_len(ends[2] - 3).unwrap();
    let operations = disk.operations();
    let arc = || Arc::new(disk.clone());
    for fault in [Fault::FailedRead, Fault::FailedOpen] {
        disk.inject(fault, NAME, 1);
        let error = Codes::open(arc(), SALT, ends[1]).unwrap_err();
        assert!(matches!(error, StoreError::Disk(_)) && !error.is_corruption());
    }
    let (codes, recovery) = Codes::open(arc(), SALT, ends[1]).unwrap();
    assert_holds(&codes, 2);
    assert!(recovery.damage.is_empty() && recovery.truncated_bytes > 0);
    assert_eq!(disk.operations(), operations);
    codes.settle().unwrap();
    assert_eq!(disk.contents(NAME).unwrap().len() as u64, ends[1]);
}

#[test]
fn a_failed_sync_or_a_full_disk_poisons_writing() {
    let disk = FaultyDisk::new(5);
    let (codes, _) = filled(&disk, 3);
    codes.put(hash(3), &code(3)).unwrap();
    disk.inject(Fault::FailedSync, NAME, 1);
    assert!(matches!(codes.sync(), Err(StoreError::Disk(_))));
    assert!(matches!(
        codes.sync(),
        Err(StoreError::Poisoned { part: "codes", .. })
    ));
    assert!(matches!(
        codes.put(hash(9), b""),
        Err(StoreError::Poisoned { .. })
    ));
    assert_eq!(codes.get(&hash(2)).unwrap(), Some(code(2)));
    let (codes, _) = open(&disk, 0).unwrap();
    disk.limit_space(Some(0));
    let error = codes.put(hash(9), &code(9)).unwrap_err();
    assert!(error.to_string().contains("disk full"), "{error}");
    assert!(matches!(
        codes.put(hash(9), b""),
        Err(StoreError::Poisoned { .. })
    ));
}

#[test]
fn a_code_beyond_the_limit_is_refused() {
    let (codes, _) = filled(&FaultyDisk::new(6), 0);
    let error = codes
        .put(hash(0), &vec![0; CODE_BYTES_MAX as usize + 1])
        .unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }));
    assert!(
        codes
            .put(hash(0), &vec![0; CODE_BYTES_MAX as usize])
            .unwrap()
    );
}

#[test]
fn the_format_is_what_it_was() {
    let disk = FaultyDisk::new(7);
    filled(&disk, 6);
    // Existing data directories contain this format. Changing it requires a new format number.
    assert_eq!(
        keccak256(disk.contents(NAME).unwrap()),
        b256!("14694536dae244a4f12cfe2f81fb18c1d94bdbe25ad16e4f1d730977980ea2b5")
    );
}

proptest! {
    #[test]
    fn random_bytes_in_the_file_never_panic(
        bytes in vec(any::<u8>(), 0..300),
        at in 0u64..600,
        checkpointed in 0usize..7,
    ) {
        let disk = FaultyDisk::new(8);
        let (_, ends) = filled(&disk, 6);
        disk.open(NAME).unwrap().write_at(&bytes, at).unwrap();
        let checkpointed = checkpointed.checked_sub(1).map_or(0, |n| ends[n]);
        if let Ok((codes, _)) = open(&disk, checkpointed) {
            for n in 0..6 {
                if let Ok(Some(read)) = codes.get(&hash(n)) {
                    prop_assert_eq!(read, code(n));
                }
            }
        }
    }
}
