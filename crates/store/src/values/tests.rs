use super::{format::*, place::Place, table::Table, *};
use crate::{
    BackupSource, BlockLog, LogOptions, LogPosition, SegmentOptions, Segments, StoreError,
    copy_files,
};
use alloy_primitives::{B256, b256, keccak256};
use cambium_disk::{Disk, Fault, FaultyDisk, StdDisk};
use cambium_primitives::VALUE_BYTES_MAX;
use proptest::{collection::vec, prelude::*};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const SALT: u64 = 0x5eed;
/// Segments that hold about three values.
const SMALL: ValueOptions = ValueOptions {
    segment_bytes_max: 2_500,
};

fn key(n: u64) -> B256 {
    keccak256(n.to_be_bytes())
}

/// A value with content of its own. Every length occurs, also those of neighbours that take the
/// same space.
fn value(n: u64) -> Vec<u8> {
    let len = 513 + n * 97 % 700;
    (0..len).map(|at| (n * 7 + at) as u8).collect()
}

/// Reference of an appended value.
type Ref = (NonZeroU64, u32);

fn append(values: &Values, n: u64) -> Ref {
    let value = value(n);
    let place = values.append(&key(n), &value).unwrap();
    (place, value.len() as u32)
}

fn try_open(disk: &FaultyDisk, table: &[u8]) -> Result<(Values, ValuesRecovery), StoreError> {
    Values::open(Arc::new(disk.clone()), SALT, SMALL, table)
}

fn open(disk: &FaultyDisk, table: &[u8]) -> Values {
    let (values, recovery) = try_open(disk, table).unwrap();
    assert!(recovery.damage.is_empty(), "{:?}", recovery.damage);
    assert_eq!(recovery.segments, values.list().len());
    values.settle().unwrap();
    values
}

/// Appends and syncs `count` values, all of them live.
fn filled(disk: &FaultyDisk, count: u64) -> (Values, Vec<Ref>) {
    let values = open(disk, &[]);
    let refs: Vec<_> = (0..count).map(|n| append(&values, n)).collect();
    refs.iter()
        .for_each(|(place, len)| values.refer(*place, *len));
    values.sync().unwrap();
    (values, refs)
}

fn assert_holds(values: &Values, refs: &[Ref]) {
    for (n, read) in values.read_batch(refs).into_iter().enumerate() {
        assert_eq!(read.unwrap(), value(n as u64), "value {n}");
        let (place, len) = refs[n];
        assert_eq!(values.read(place, len).unwrap(), value(n as u64));
    }
}

/// Returns what a scan of all segments finds, by place.
fn scanned(values: &Values) -> BTreeMap<u64, (B256, u32)> {
    let numbers = values.list().into_iter().map(|it| it.number);
    let found = numbers.flat_map(|number| values.scan(number).into_iter().flatten());
    found
        .map(|found| found.map(|(key, place, len)| (place.get(), (key, len))))
        .collect::<Result<_, _>>()
        .unwrap()
}

fn segments_of(refs: &[Ref]) -> BTreeSet<u32> {
    refs.iter()
        .map(|(place, _)| Values::segment_of(*place))
        .collect()
}

#[test]
fn values_are_read_at_once_after_a_sync_and_after_reopening() {
    let disk = FaultyDisk::new(1);
    let values = open(&disk, &[]);
    let mut refs = Vec::new();
    for n in 0..40 {
        refs.push(append(&values, n));
        assert_holds(&values, &refs);
        if n % 7 == 0 {
            values.sync().unwrap();
        }
    }
    values.sync().unwrap();
    assert!(values.stats().segments > 10);
    let tables = [Vec::new(), values.encode_table(1)];
    let disk = disk.crash();
    for table in tables {
        let values = open(&disk, &table);
        assert_holds(&values, &refs);
        let expected = refs.iter().zip(0..);
        let expected = expected.map(|((place, len), n)| (place.get(), (key(n), *len)));
        assert_eq!(scanned(&values), expected.collect());
    }
}

#[test]
fn the_formats_are_what_they_were() {
    let disk = FaultyDisk::new(2);
    let (values, refs) = filled(&disk, 8);
    values.release(refs[0].0, refs[0].1, 9);
    let of = |number| keccak256(disk.contents(&name_of(number)).unwrap());
    // Existing data directories contain this format. Changing it requires a new format number.
    let golden = [
        b256!("daf36121b425003061c42863ce85882451f2ec8ba37b31f2a8520955d78437d2"),
        b256!("8524ae31e342c22c7adfd3e4970d6cd66dfe47a30d674f2c80d3c2baa52b2c09"),
        b256!("fb259d42a4d677e020f1739a54d020c9f852a506455f5feb9f28cad34eb13ad9"),
    ];
    assert_eq!([of(1), of(2), keccak256(values.encode_table(2))], golden);
    let place = Place {
        segment: 0x0102_0304,
        offset: 24,
    };
    assert_eq!(place.to_word().get(), 0x0102_0304_0000_0018);
    assert_eq!(Place::from_word(place.to_word()), place);
    assert_eq!(refs[0].0.get(), 0x0000_0001_0000_0018);
}

#[test]
fn many_append_and_sync_at_once_and_all_is_found_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let faulty = FaultyDisk::new(3);
    let disks: [Arc<dyn Disk>; 2] = [Arc::new(faulty.clone()), Arc::new(StdDisk::new(dir.path()))];
    for disk in disks {
        let (values, _) = Values::open(disk.clone(), SALT, SMALL, &[]).unwrap();
        values.settle().unwrap();
        let (values, next) = (&values, &AtomicU64::new(0));
        let work = move || {
            let mut refs = Vec::new();
            for step in 0..100 {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let (place, len) = append(values, n);
                assert_eq!(values.read(place, len).unwrap(), value(n));
                refs.push((n, (place, len)));
                if step % 10 == 9 {
                    values.sync().unwrap();
                }
            }
            refs
        };
        let mut refs: Vec<(u64, Ref)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            let done = threads.into_iter().flat_map(|it| it.join().unwrap());
            done.collect()
        });
        refs.sort_unstable();
        let refs: Vec<_> = refs.into_iter().map(|(_, it)| it).collect();
        let places: BTreeSet<_> = refs.iter().map(|(place, _)| place).collect();
        assert_eq!(places.len(), 400, "each has a place of its own");
        assert_holds(values, &refs);
        assert_eq!(scanned(values).len(), 400);
        let disk = match disk.real_path("") {
            Some(_) => disk,
            None => Arc::new(faulty.crash()),
        };
        let (values, _) = Values::open(disk, SALT, SMALL, &values.encode_table(1)).unwrap();
        assert_holds(&values, &refs);
    }
}

#[test]
fn synced_values_survive_one_crash_after_another_and_unsynced_ones_do_no_harm() {
    for seed in cambium_seeds::seeds!(0..150) {
        let mut disk = FaultyDisk::new(seed);
        let (mut refs, mut table) = (Vec::new(), Vec::new());
        for cycle in 0..6 {
            let values = open(&disk, &table);
            assert_holds(&values, &refs);
            for round in 0..1 + (seed + cycle) % 3 {
                (0..1 + round).for_each(|_| {
                    refs.push(append(&values, refs.len() as u64));
                });
                values.sync().unwrap();
                if (seed + cycle + round) % 2 == 0 {
                    table = values.encode_table(1);
                }
            }
            for n in 0..(seed + cycle) % 6 {
                append(&values, 1_000 + n);
            }
            let before = disk.operations();
            assert_holds(&values, &refs);
            assert_eq!(disk.operations(), before);
            disk = disk.crash();
        }
        let values = open(&disk, &table);
        assert_holds(&values, &refs);
        let found = scanned(&values);
        for (n, (place, len)) in refs.iter().enumerate() {
            let expected = (key(n as u64), *len);
            assert_eq!(found.get(&place.get()), Some(&expected), "seed {seed}");
        }
    }
}

#[test]
fn a_sync_of_one_thread_does_not_pass_for_that_of_another_which_still_writes() {
    for seed in cambium_seeds::seeds!(0..8) {
        let disk = FaultyDisk::new(seed);
        let values = open(&disk, &[]);
        // Long values take a while from getting their place to being written, and each has a segment of
        // its own, which no later sync makes durable by chance.
        let long = vec![7; 30_000];
        let work = || {
            let add = |n| {
                let place = values.append(&key(n), &long).unwrap();
                values.sync().unwrap();
                place
            };
            (0..100).map(add).collect::<Vec<_>>()
        };
        let places: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            let done = threads.into_iter().flat_map(|it| it.join().unwrap());
            done.collect()
        });
        let values = open(&disk.crash(), &[]);
        for place in places {
            assert!(values.read(place, 30_000).unwrap() == long);
        }
    }
}

#[test]
fn what_a_killed_process_left_is_durable_once_it_is_in_a_table() {
    for seed in cambium_seeds::seeds!(0..20) {
        let disk = FaultyDisk::new(seed);
        let values = open(&disk, &[]);
        (0..7).for_each(|n| _ = append(&values, n));
        drop(values);
        let values = open(&disk, &[]);
        let table = values.encode_table(1);
        for row in Table::read(&table).unwrap().rows {
            let len = disk.contents(&name_of(row.number)).unwrap().len();
            assert_eq!(row.bytes, len as u64);
        }
        // No file is missing or too short.
        assert_eq!(open(&disk.crash(), &table).list(), values.list());
    }
}

/// The durable log and checkpoints of a database, which survive every crash here.
#[derive(Default)]
struct Known {
    /// Synced values, without those of removed segments.
    refs: BTreeMap<u64, Ref>,
    table: Vec<u8>,
}

/// Appends, syncs, merges and removes, as a database would with blocks of two values each. Each
/// value is replaced three blocks later.
fn script(disk: &FaultyDisk, known: &mut Known) -> Result<(), StoreError> {
    let (values, _) = Values::open(Arc::new(disk.clone()), SALT, SMALL, &known.table)?;
    values.check_kept(0)?;
    values.settle()?;
    for block in 0..8u64 {
        let numbers = block * 2..block * 2 + 2;
        let mut refs = Vec::new();
        for n in numbers {
            let value = value(n);
            refs.push((n, (values.append(&key(n), &value)?, value.len() as u32)));
        }
        values.sync()?;
        known.refs.extend(refs);
        for (n, (place, len)) in &known.refs {
            if *n / 2 == block {
                values.refer(*place, *len);
            } else if *n / 2 + 3 == block {
                values.release(*place, *len, block);
            }
        }
        let pinned_from = values.newest() + 1;
        known.table = values.encode_table(pinned_from);
        for number in values.removable(block.saturating_sub(1), pinned_from) {
            // From here on they may be gone.
            known
                .refs
                .retain(|_, (place, _)| Values::segment_of(*place) != number);
            assert!(values.remove(number)?.is_some());
        }
    }
    Ok(())
}

fn assert_known(disk: &FaultyDisk, known: &Known, at: u64) {
    let (values, _) = try_open(disk, &known.table)
        .unwrap_or_else(|error| panic!("operation {at}: opening: {error}"));
    values.settle().unwrap();
    for (n, (place, len)) in &known.refs {
        let read = values.read(*place, *len);
        let read = read.unwrap_or_else(|error| panic!("operation {at}, value {n}: {error}"));
        assert_eq!(read, value(*n));
    }
    let (place, len) = append(&values, 99);
    assert_eq!(values.read(place, len).unwrap(), value(99));
    assert!(known.refs.values().all(|(other, _)| *other != place));
}

#[test]
fn power_lost_at_any_operation_costs_no_synced_value() {
    let whole = FaultyDisk::new(4);
    let mut known = Known::default();
    script(&whole, &mut known).unwrap();
    assert!(known.refs.len() < 14, "some segments are removed");
    let operations = whole.operations();
    assert!(operations > 50, "{operations}");
    for seed in cambium_seeds::seeds!(0..4) {
        for at in 0..operations {
            let disk = FaultyDisk::new(seed);
            disk.lose_power_after(at);
            let mut known = Known::default();
            assert!(script(&disk, &mut known).is_err());
            let disk = disk.crash();
            assert_known(&disk, &known, at);
            // Once more, with the power lost again while what was found is settled.
            let (values, _) = try_open(&disk, &known.table).unwrap();
            disk.lose_power_after(at % 5);
            let _ = values.settle();
            assert_known(&disk.crash(), &known, at);
        }
    }
}

#[test]
fn a_failing_call_stops_writing_and_costs_no_synced_value() {
    let whole = FaultyDisk::new(5);
    script(&whole, &mut Known::default()).unwrap();
    let mut stopped = 0;
    for at in 0..whole.calls() {
        let disk = FaultyDisk::new(at);
        disk.fail_call_after(at);
        let mut known = Known::default();
        // Complete segments that can't be opened once more are read as they are.
        stopped += u64::from(script(&disk, &mut known).is_err());
        disk.clear_faults();
        assert_known(&disk, &known, at);
        assert_known(&disk.crash(), &known, at);
    }
    assert!(stopped > whole.calls() / 2, "{stopped}");
}

#[test]
fn a_failed_write_or_sync_poisons_and_reading_goes_on() {
    for fault in [Fault::FailedWrite, Fault::FailedSync] {
        let disk = FaultyDisk::new(6);
        let (values, refs) = filled(&disk, 5);
        disk.inject(fault, "values", 1);
        let outcome = values.append(&key(5), &value(5)).map(drop);
        let outcome = outcome.and_then(|()| values.sync());
        assert!(matches!(outcome, Err(StoreError::Disk(_))), "{outcome:?}");
        let poisoned = [
            values.append(&key(6), &value(6)).map(drop),
            values.sync(),
            values.remove(1).map(drop),
        ];
        for outcome in &poisoned[..2] {
            let is_poisoned = matches!(outcome, Err(StoreError::Poisoned { part: "values", .. }));
            assert!(is_poisoned, "{outcome:?}");
        }
        assert_holds(&values, &refs);
        assert_holds(&open(&disk.crash(), &values.encode_table(1)), &refs);
    }
    let disk = FaultyDisk::new(6);
    let (values, refs) = filled(&disk, 5);
    disk.limit_space(Some(0));
    let error = values.append(&key(5), &value(5)).unwrap_err().to_string();
    assert!(error.contains("disk full"), "{error}");
    assert_holds(&values, &refs);
}

#[test]
fn a_sync_waits_for_the_device_only_if_there_is_something_new() {
    let disk = FaultyDisk::new(7);
    let (values, _) = filled(&disk, 5);
    let syncs = || disk.stats().syncs;
    let before = syncs();
    values.sync().unwrap();
    assert_eq!(syncs(), before);
    while values.list().len() < 5 {
        append(&values, 6);
        let (before, files) = (syncs(), disk.files().len());
        append(&values, 7);
        values.sync().unwrap();
        let is_new = disk.files().len() > files;
        assert!(syncs() > before && (!is_new || syncs() > before + 1));
    }
}

#[test]
fn any_flipped_bit_is_an_error_that_names_file_and_offset() {
    let disk = FaultyDisk::new(8);
    let (values, refs) = filled(&disk, 8);
    let table = values.encode_table(1);
    for (n, (place, len)) in refs.iter().enumerate() {
        let at = Place::from_word(*place);
        let name = name_of(at.segment);
        for byte in 0..value_bytes(*len) {
            disk.flip_bit(&name, u64::from(at.offset) + byte, (byte % 8) as u8);
            let told = values.read(*place, *len).unwrap_err();
            assert!(told.is_corruption());
            let expected = format!("{name} is damaged at byte {}: ", at.offset);
            let told = told.to_string();
            assert!(told.starts_with(&expected), "{told}");
            assert!(told.contains("from a backup"), "{told}");
            // The scan leaves out what has no intact head, and finds all others.
            if byte % 50 == 0 || byte < VALUE_START as u64 {
                let found = scanned(&values);
                let others = refs.iter().filter(|(other, _)| other != place);
                assert!(
                    others
                        .clone()
                        .all(|(other, _)| found.contains_key(&other.get()))
                );
                let is_found = found.contains_key(&place.get());
                let in_head = (8..VALUE_START as u64).contains(&byte);
                assert!(is_found != in_head, "value {n}, byte {byte}");
            }
            disk.flip_bit(&name, u64::from(at.offset) + byte, (byte % 8) as u8);
        }
    }
    assert_holds(&values, &refs);
    for byte in 0..HEADER_BYTES {
        disk.flip_bit(&name_of(1), byte, 3);
        let (values, recovery) = try_open(&disk, &table).unwrap();
        let told = recovery.damage[0].to_string();
        assert!(told.contains("00000001.val is damaged at byte 0: bad header"));
        assert_holds(&values, &refs);
        disk.flip_bit(&name_of(1), byte, 3);
    }
    disk.spoil(&name_of(1), 0, 1);
    let error = values.read(refs[0].0, refs[0].1).unwrap_err().to_string();
    assert!(
        error.contains(&name_of(1)) && error.contains("byte 24"),
        "{error}"
    );
    let mut scan = values.scan(1).unwrap();
    assert!(scan.any(|found| found.is_err()));
    assert!(try_open(&disk, &table).is_ok());
}

#[test]
fn a_write_that_was_lost_or_went_elsewhere_is_an_error_and_no_other_value() {
    for (seed, fault) in [(23, Fault::LostWrite), (24, Fault::MisdirectedWrite)] {
        let disk = FaultyDisk::new(seed);
        let (values, mut refs) = filled(&disk, 8);
        for n in 8..40 {
            let is_hit = n % 4 == 0;
            disk.inject(fault, "values", u32::from(is_hit));
            refs.push(append(&values, n));
        }
        values.sync().unwrap();
        assert_eq!(disk.take_hits().len(), 8);
        // The page cache hides it until the power is lost.
        let table = values.encode_table(1);
        let (values, _) = try_open(&disk.crash(), &table).unwrap();
        let mut told = 0;
        for (n, read) in values.read_batch(&refs).into_iter().enumerate() {
            match read {
                Ok(read) => assert_eq!(read, value(n as u64)),
                Err(error) => {
                    assert!(error.is_corruption() && error.to_string().contains("values/"));
                    told += 1;
                }
            }
        }
        assert!((4..20).contains(&told), "{told}");
    }
}

#[test]
fn a_panic_while_writing_stops_writing_and_costs_no_synced_value() {
    // Five values are five writes, and begin two segments.
    for at in 0..9 {
        let disk = FaultyDisk::new(at);
        let (values, refs) = filled(&disk, 4);
        disk.panic_operation_after(at);
        let work = || {
            (4..9).for_each(|n| _ = append(&values, n));
            values.sync().unwrap();
        };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        assert!(panicked.is_err());
        let refused = values.append(&key(9), &value(9));
        assert!(matches!(refused, Err(StoreError::Poisoned { .. })));
        assert!(matches!(values.sync(), Err(StoreError::Poisoned { .. })));
        assert_holds(&open(&disk.crash(), &values.encode_table(1)), &refs);
    }
}

#[test]
fn a_reference_to_what_is_not_there_is_an_error() {
    let disk = FaultyDisk::new(9);
    let (values, refs) = filled(&disk, 8);
    let (place, len) = refs[1];
    let word = |segment, offset| Place { segment, offset }.to_word();
    let wrong = [
        (place, len - 1),
        (place, len + 1),
        (place, len - 8),
        (place, 0),
        (place, VALUE_BYTES_MAX as u32),
        (place, VALUE_BYTES_MAX as u32 + 1),
        (place, u32::MAX),
        (word(1, 0), len),
        (word(1, 25), len),
        (word(1, u32::MAX), len),
        (word(2, 24 + 8), len),
        (word(77, 24), len),
        (NonZeroU64::new(24).unwrap(), len),
        (NonZeroU64::MAX, u32::MAX),
    ];
    for (read, (place, len)) in values.read_batch(&wrong).into_iter().zip(wrong) {
        let at = Place::from_word(place);
        let told = read.unwrap_err();
        assert!(told.is_corruption());
        let expected = format!("{} is damaged at byte {}", name_of(at.segment), at.offset);
        assert!(told.to_string().starts_with(&expected), "{told}");
        let single = values.read(place, len).unwrap_err();
        assert_eq!(single.to_string(), told.to_string());
        values.refer(word(77, 24), len);
    }
    // Errors in a batch concern no other value.
    let read = values.read_batch(&[refs[0], wrong[0], refs[1]]);
    assert!(read[0].is_ok() && read[1].is_err() && read[2].is_ok());
}

#[test]
fn values_of_any_length_to_the_limit_are_stored() {
    let values = open(&FaultyDisk::new(10), &[]);
    let largest = vec![7; VALUE_BYTES_MAX];
    for value in [&largest[..0], &largest[..1], &largest, &largest[..600]] {
        let place = values.append(&key(1), value).unwrap();
        assert!(values.read(place, value.len() as u32).unwrap() == value);
    }
    values.sync().unwrap();
    let error = values.append(&key(1), &vec![7; VALUE_BYTES_MAX + 1]);
    assert!(matches!(error, Err(StoreError::TooLarge { .. })));
    assert!(values.append(&key(1), b"the refusal does no harm").is_ok());
}

#[test]
fn opening_changes_nothing_and_a_passing_error_is_no_damage() {
    let disk = FaultyDisk::new(11);
    let (values, refs) = filled(&disk, 8);
    let table = values.encode_table(1);
    let before = disk.operations();
    disk.inject(Fault::FailedOpen, "values", 1);
    let error = try_open(&disk, &table).map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Disk(_)) && !error.is_corruption());
    let (values, _) = try_open(&disk, &table).unwrap();
    assert_holds(&values, &refs);
    assert_eq!(disk.operations(), before);
}

#[test]
fn values_go_on_where_the_newest_segment_never_became_durable() {
    let disk = FaultyDisk::new(14);
    let (values, _) = filled(&disk, 1);
    // It does not fit. The table lists its segment without any bytes, and the name may be lost.
    values.append(&key(1), &[7; 2_400]).unwrap();
    let begun = values.newest();
    let table = values.encode_table(1);
    disk.remove(&name_of(begun)).unwrap();
    let values = open(&disk, &table);
    // The one before has room for it, but was opened for direct access.
    let (place, len) = append(&values, 100);
    assert!(Values::segment_of(place) > begun);
    values.sync().unwrap();
    assert_eq!(values.read(place, len).unwrap(), value(100));
}

#[test]
fn a_file_that_is_needed_and_missing_or_short_is_named_with_the_way_back() {
    let disk = FaultyDisk::new(12);
    let (values, refs) = filled(&disk, 9);
    let of_segment = |number| {
        refs.iter()
            .filter(move |it| Values::segment_of(it.0) == number)
    };
    // Segment 1 is live, 2 is needed by the reverts of block 7, and 3 is unneeded.
    for (number, block) in [(2, 7), (3, 3)] {
        of_segment(number).for_each(|(place, len)| values.release(*place, *len, block));
    }
    let table = |pinned_from| values.encode_table(pinned_from);
    for cut in [None, Some(100)] {
        let damaged = |number| {
            let disk = disk.duplicate();
            match cut {
                None => disk.remove(&name_of(number)).unwrap(),
                Some(len) => disk.open(&name_of(number)).unwrap().set_len(len).unwrap(),
            }
            disk
        };
        let what = match cut {
            None => "damaged at byte 0: the file is missing",
            Some(_) => "damaged at byte 100: the file is shorter than its checkpointed length",
        };
        let told_of = |result: Result<(), StoreError>, number, who: &str| {
            let told = result.unwrap_err();
            assert!(told.is_corruption());
            let told = told.to_string();
            let expected = format!("{} is {what}, and {who}", name_of(number));
            assert!(told.starts_with(&expected), "{told}");
            assert!(told.contains("put back this file from a backup"), "{told}");
        };
        let files = |disk: &FaultyDisk| disk.files();
        let broken = damaged(1);
        let before = files(&broken);
        told_of(
            try_open(&broken, &table(9)).map(drop),
            1,
            "the state refers to",
        );
        assert_eq!(files(&broken), before, "nothing is deleted");
        told_of(
            try_open(&damaged(3), &table(3)).map(drop),
            3,
            "blocks after the checkpoint may refer to it",
        );
        let values = open(&damaged(2), &table(9));
        told_of(values.check_kept(7), 2, "reverts up to block 7 refer to it");
        values.check_kept(8).unwrap();
        let (place, len) = *of_segment(2).next_back().unwrap();
        let told = values.read(place, len).unwrap_err().to_string();
        assert!(told.contains(&name_of(2)), "{told}");
        // The next checkpoint lists the lost segment until it is unneeded.
        let again = open(&damaged(2), &values.encode_table(9));
        told_of(again.check_kept(7), 2, "reverts up to block 7 refer to it");
        assert_eq!(again.removable(8, 9), [2, 3]);
        let removed = again.remove(2).unwrap().unwrap();
        assert_eq!(removed.file.is_some(), cut.is_some());
        assert!(again.check_kept(7).is_ok());
        // Blocks that are built on an older one refer to earlier segments again.
        let broken = damaged(3);
        let (values, _) = try_open(&broken, &table(9)).unwrap();
        values.check_kept(4).unwrap();
        values.forget_lost();
        values.settle().unwrap();
        assert!(!files(&broken).contains(&name_of(3)));
        let again = open(&broken, &values.encode_table(1));
        assert!(again.list().iter().all(|segment| segment.number != 3));
    }
}

#[test]
fn a_segment_is_removable_when_neither_state_nor_reverts_nor_blocks_to_come_need_it() {
    let disk = FaultyDisk::new(13);
    let (values, refs) = filled(&disk, 30);
    let newest = values.newest();
    assert_eq!(values.list().last().unwrap().number, newest);
    assert!(
        values.removable(u64::MAX, u32::MAX).is_empty(),
        "all are live"
    );
    for (n, (place, len)) in refs.iter().enumerate() {
        values.release(*place, *len, n as u64);
    }
    assert_eq!(values.stats().live_bytes, 0);
    let all: Vec<_> = (1..newest).collect();
    assert_eq!(values.removable(u64::MAX, u32::MAX), all);
    assert_eq!(values.removable(u64::MAX, 4), [1, 2, 3]);
    assert!(values.removable(0, u32::MAX).is_empty());
    for kept_from in 0..30 {
        let first = Values::segment_of(refs[kept_from as usize].0);
        let expected: Vec<_> = (1..first).collect();
        assert_eq!(values.removable(kept_from, u32::MAX), expected);
    }
    values.need_until(refs[0].0, 50);
    assert!(!values.removable(50, u32::MAX).contains(&1));
    assert!(values.removable(51, u32::MAX).contains(&1));
    assert!(values.remove(newest).unwrap().is_none());
    assert!(values.remove(1_000).unwrap().is_none());
    let table = values.encode_table(newest);
    let removed = values.remove(2).unwrap().unwrap();
    assert_eq!(removed.bytes, removed.file.unwrap().len().unwrap());
    assert!(disk.contents(&name_of(2)).is_none());
    let (_, recovery) = try_open(&disk, &table).unwrap();
    assert!(
        recovery.damage.is_empty(),
        "the older checkpoint can be opened"
    );
    let mut gone = refs.iter().filter(|it| Values::segment_of(it.0) == 2);
    let (place, len) = *gone.next_back().unwrap();
    assert!(values.read(place, len).is_err());
    values.refer(refs[0].0, refs[0].1);
    assert!(values.remove(1).unwrap().is_none(), "it is live again");
}

#[test]
fn a_removal_undone_by_a_crash_is_repeated_and_numbers_are_not_used_again() {
    let mut undone = 0;
    for seed in cambium_seeds::seeds!(0..40) {
        let disk = FaultyDisk::new(seed);
        let (values, refs) = filled(&disk, 9);
        let (dead, live): (Vec<Ref>, Vec<Ref>) = refs
            .into_iter()
            .partition(|it| Values::segment_of(it.0) == 1);
        dead.iter()
            .for_each(|(place, len)| values.release(*place, *len, 1));
        values.remove(1).unwrap().unwrap();
        let table = values.encode_table(values.newest() + 1);
        let disk = disk.crash();
        let (values, recovery) = try_open(&disk, &table).unwrap();
        let is_undone = disk.contents(&name_of(1)).is_some();
        undone += usize::from(is_undone);
        assert_eq!(recovery.removed_segments, usize::from(is_undone));
        values.settle().unwrap();
        assert!(disk.contents(&name_of(1)).is_none());
        let appended: Vec<_> = (0..20).map(|n| append(&values, n)).collect();
        let before = segments_of(&live);
        let newest = before.last().copied().unwrap();
        assert!(
            segments_of(&appended)
                .iter()
                .all(|number| *number >= newest)
        );
    }
    assert!((1..40).contains(&undone), "{undone}");
}

#[test]
fn opening_again_continues_the_newest_file_unless_its_end_is_torn_or_it_is_shared() {
    let disk = FaultyDisk::new(14);
    let (values, mut refs) = filled(&disk, 4);
    let (last, _) = *refs.last().unwrap();
    let table = values.encode_table(1);
    for table in [&table[..], &[]] {
        let disk = disk.duplicate();
        let values = open(&disk, table);
        let (place, _) = append(&values, 4);
        assert_eq!(Values::segment_of(place), Values::segment_of(last));
    }
    // A record that is cut off claims space beyond the end of the file. One that began there would
    // be hidden from a scan.
    refs.push(append(&values, 4));
    values.sync().unwrap();
    let torn = Place::from_word(refs.pop().unwrap().0);
    assert_eq!(torn.segment, Values::segment_of(last));
    for len in [1, 40, VALUE_START as u64, 200, value_bytes(513) - 8] {
        let disk = disk.duplicate();
        let file = disk.open(&name_of(torn.segment)).unwrap();
        file.set_len(u64::from(torn.offset) + len).unwrap();
        // An opening that appends nothing does not hide it from the next one.
        let table = open(&disk, &table).encode_table(1);
        let values = open(&disk, &table);
        let mut refs = refs.clone();
        (4..7).for_each(|n| refs.push(append(&values, n)));
        assert!(Values::segment_of(refs[4].0) > torn.segment);
        values.sync().unwrap();
        let values = open(&disk.crash(), &[]);
        assert_holds(&values, &refs);
        let found = scanned(&values);
        let places = refs.iter().map(|(place, _)| place.get());
        assert!(
            found.into_keys().eq(places),
            "{len} bytes of the torn record"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
    let mut numbers = Vec::new();
    for n in 0..3 {
        let (values, _) = Values::open(disk.clone(), SALT, SMALL, &[]).unwrap();
        values.settle().unwrap();
        numbers.push(Values::segment_of(append(&values, n).0));
        values.sync().unwrap();
        if n == 1 {
            disk.create_dir("backup").unwrap();
            assert!(
                disk.link(&*disk, &name_of(1), "backup/00000001.val")
                    .unwrap()
            );
        }
    }
    assert_eq!(numbers, [1, 1, 2]);
}

#[test]
fn the_sparsest_segments_come_first() {
    let disk = FaultyDisk::new(15);
    let (values, refs) = filled(&disk, 60);
    let newest = values.newest();
    let share = |it: &ValueSegment| it.live_bytes as f64 / it.bytes as f64;
    for (n, (place, len)) in refs.iter().enumerate() {
        if n * 7 % 5 < 3 {
            values.release(*place, *len, 1);
        }
    }
    let all = values.sparse(usize::MAX, u32::MAX);
    assert!(all.len() > 5 && all.is_sorted_by_key(share));
    assert!(
        all.iter()
            .all(|it| it.live_bytes > 0 && it.number != newest)
    );
    let expected = values.list().into_iter();
    let expected = expected.filter(|it| it.live_bytes > 0 && it.number != newest);
    assert_eq!(all.len(), expected.count());
    assert_eq!(values.sparse(3, u32::MAX), all[..3]);
    assert!(values.sparse(9, 4).iter().all(|it| it.number < 4));
    let before = values.removable(3, u32::MAX);
    // Cleaning: the live values are moved, and the segment becomes removable.
    let sparsest = all[0].number;
    let live: Vec<_> = values
        .scan(sparsest)
        .unwrap()
        .map(Result::unwrap)
        .filter(|(key, place, _)| {
            let n = refs.iter().position(|(other, _)| other == place).unwrap();
            assert_eq!(*key, super::tests::key(n as u64));
            n * 7 % 5 >= 3
        })
        .collect();
    for (key, place, len) in live {
        let moved = values
            .append(&key, &values.read(place, len).unwrap())
            .unwrap();
        values.refer(moved, len);
        values.release(place, len, 2);
    }
    let mut after = values.removable(3, u32::MAX);
    after.retain(|number| !before.contains(number));
    assert_eq!(after, [sparsest]);
    assert!(!values.removable(2, u32::MAX).contains(&sparsest));
}

#[test]
fn a_reader_finds_what_was_appended_since_and_keeps_what_was_removed() {
    let disk = FaultyDisk::new(16);
    let (values, mut refs) = filled(&disk, 6);
    let table = values.encode_table(1);
    let (reader, _) = try_open(&disk, &table).unwrap();
    reader.allow_truncation();
    let before = disk.operations();
    for n in 6..30 {
        refs.push(append(&values, n));
        let (place, len) = refs[n as usize];
        assert!(reader.read(place, len).is_err());
        let ours = disk.operations();
        reader.refresh().unwrap();
        assert_eq!(disk.operations(), ours, "a reader changes nothing");
        assert_eq!(reader.read(place, len).unwrap(), value(n));
    }
    assert!(disk.operations() > before);
    values.sync().unwrap();
    reader.check_truncation().unwrap();
    refs.iter()
        .for_each(|(place, len)| values.release(*place, *len, 1));
    let removed = values.remove(1).unwrap().unwrap();
    assert_holds(&reader, &refs);
    removed.file.unwrap().set_len(0).unwrap();
    let is_behind = |error| matches!(error, StoreError::ReaderBehind { .. });
    assert!(is_behind(reader.check_truncation().unwrap_err()));
    assert!(is_behind(reader.read(refs[0].0, refs[0].1).unwrap_err()));
    assert!(is_behind(reader.read_batch(&refs).remove(0).unwrap_err()));
    let scan = reader.scan(1).unwrap().next().unwrap();
    assert!(is_behind(scan.unwrap_err()));
}

#[test]
fn a_backup_links_complete_segments_copies_the_newest_and_goes_its_own_way() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let faulty = FaultyDisk::new(17);
    let pairs: [[Arc<dyn Disk>; 2]; 2] = [
        [
            Arc::new(StdDisk::new(dirs[0].path())),
            Arc::new(StdDisk::new(dirs[1].path())),
        ],
        [Arc::new(faulty), Arc::new(FaultyDisk::new(18))],
    ];
    for [from, to] in pairs {
        let (values, _) = Values::open(from.clone(), SALT, SMALL, &[]).unwrap();
        values.settle().unwrap();
        let mut refs: Vec<_> = (0..10).map(|n| append(&values, n)).collect();
        values.sync().unwrap();
        let table = values.encode_table(1);
        let (segments, _) =
            Segments::open(from.clone(), SegmentOptions::default(), SALT, None, &[]).unwrap();
        let (log, _) =
            BlockLog::open(from.clone(), LogOptions::default(), LogPosition::START).unwrap();
        log.settle().unwrap();
        // The copy is made by a reader. Meanwhile a segment is removed.
        let (reader, _) = Values::open(from.clone(), SALT, SMALL, &table).unwrap();
        assert!(values.remove(2).unwrap().is_some());
        let of = BackupSource {
            checkpoints: &[],
            rebuilt: &*from,
            segments: &segments,
            values: Some(&reader),
            log_start: LogPosition::START,
            log_end: log.end(),
        };
        let sizes = copy_files(&*from, &*to, &of, &mut |_| ()).unwrap();
        let count = reader.list().len() as u64;
        let linked = if from.real_path("").is_some() {
            count - 2
        } else {
            0
        };
        // The log file is copied, too.
        assert_eq!(
            (sizes.linked_files, sizes.copied_files),
            (linked, count + 1 - linked)
        );
        let (copy, recovery) = Values::open(to, SALT, SMALL, &table).unwrap();
        assert!(recovery.damage.is_empty() && recovery.later_bytes == 0);
        copy.settle().unwrap();
        assert_holds(&copy, &refs);
        // Both go on in files of their own.
        let theirs: Vec<_> = (10..16).map(|n| append(&copy, n)).collect();
        refs.extend((10..16).map(|n| append(&values, n)));
        assert_eq!(refs[10..], theirs);
        for (n, (place, len)) in refs.iter().enumerate() {
            if Values::segment_of(*place) != 2 {
                assert_eq!(values.read(*place, *len).unwrap(), value(n as u64));
            }
        }
        assert_holds(&copy, &refs);
    }
}

#[test]
fn one_read_of_the_device_answers_a_read() {
    let disk = FaultyDisk::new(19);
    let (values, refs) = filled(&disk, 12);
    let before = disk.stats().reads;
    for (place, len) in &refs {
        values.read(*place, *len).unwrap();
    }
    assert_eq!(disk.stats().reads - before, 12);
    values.read_batch(&refs);
    assert_eq!(disk.stats().reads - before, 24);
    assert_eq!(disk.stats().batches, 1);
}

proptest! {
    #[test]
    fn random_bytes_in_the_files_never_panic_and_never_pass_for_values(
        bytes in vec(any::<u8>(), 0..300),
        number in 1u32..4,
        at in 0u64..3_000,
        with_table in any::<bool>(),
    ) {
        let disk = FaultyDisk::new(20);
        let (values, refs) = filled(&disk, 7);
        let table = if with_table { values.encode_table(1) } else { Vec::new() };
        disk.open(&name_of(number)).unwrap().write_at(&bytes, at).unwrap();
        let (values, _) = try_open(&disk, &table).unwrap();
        values.settle().unwrap();
        for (n, (place, len)) in refs.iter().enumerate() {
            if let Ok(read) = values.read(*place, *len) {
                prop_assert_eq!(read, value(n as u64));
            }
        }
        for (place, (found, len)) in scanned(&values) {
            let of_ours = refs.iter().position(|it| it.0.get() == place);
            prop_assert_eq!(of_ours.map(|n| (key(n as u64), refs[n].1)), Some((found, len)));
        }
        let (place, len) = append(&values, 7);
        prop_assert_eq!(values.read(place, len).unwrap(), value(7));
    }

    #[test]
    fn a_made_up_table_or_reference_is_an_error_and_no_panic(
        mut table in vec(any::<u8>(), 1..100),
        count in 0u8..4,
        word in 1u64..,
        len in any::<u32>(),
    ) {
        let disk = FaultyDisk::new(21);
        let (values, _) = filled(&disk, 5);
        let place = NonZeroU64::new(word).unwrap();
        prop_assert!(values.read(place, len).is_err());
        values.refer(place, len);
        values.release(place, len, word);
        if let Some(first) = table.get_mut(8..12) {
            first.copy_from_slice(&u32::from(count).to_le_bytes());
        }
        let opened = try_open(&disk, &table);
        prop_assert!(opened.is_err() || (count == 0 && table.len() == 12));
    }

    #[test]
    fn the_table_brings_the_accounting_back(
        steps in vec((any::<bool>(), 0usize..20, 0u64..50), 0..60),
    ) {
        let disk = FaultyDisk::new(22);
        let values = open(&disk, &[]);
        let refs: Vec<_> = (0..20).map(|n| append(&values, n)).collect();
        values.sync().unwrap();
        let mut live = BTreeSet::new();
        let mut needed = BTreeMap::<u32, u64>::new();
        for (is_refer, n, block) in steps {
            let (place, len) = refs[n];
            let segment = Values::segment_of(place);
            if is_refer && live.insert(n) {
                values.refer(place, len);
            } else if !is_refer && live.remove(&n) {
                values.release(place, len, block);
                let needed = needed.entry(segment).or_default();
                *needed = block.max(*needed);
            }
        }
        let table = values.encode_table(5);
        prop_assert_eq!(&Table::read(&table).unwrap().encode(), &table);
        let reopened = open(&disk.crash(), &table);
        prop_assert_eq!(reopened.list(), values.list());
        prop_assert_eq!(reopened.stats(), values.stats());
        for it in reopened.list() {
            let of = live.iter().map(|n| refs[*n]);
            let of = of.filter(|(place, _)| Values::segment_of(*place) == it.number);
            let live_bytes: u64 = of.map(|(_, len)| value_bytes(len)).sum();
            prop_assert_eq!(it.live_bytes, live_bytes);
            prop_assert_eq!(it.needed_until, needed.get(&it.number).copied());
            prop_assert!(it.live_bytes <= it.bytes);
        }
    }
}
