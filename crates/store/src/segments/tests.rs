use super::{
    addr::{PageAddr, SEGMENT_MAX},
    part::{PART_HEAD_BYTES, encode_part},
    segment::{DIR, HEADER_BYTES, name_of},
    set::{SegmentOptions, Segments, SegmentsRecovery},
};
use crate::PageBuilder;
use crate::{
    PAGE_BYTES_MAX, Page, StoreError,
    sync::{Mutex, RwLock},
};
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Disk, Fault, FaultyDisk, StdDisk};
use cambium_primitives::Path;
use proptest::prelude::*;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub(super) const SMALL: SegmentOptions = SegmentOptions {
    segment_bytes_max: 12_288,
    buffer_bytes: 5_000,
    segments_max: SEGMENT_MAX,
};
pub(super) const SALT: u64 = 0x5eed;

/// Returns a page with unique content, whose length depends on `n`.
pub(super) fn page(n: u64) -> Vec<u8> {
    let account = keccak256(n.to_be_bytes());
    let mut builder = PageBuilder::new(&Path::EMPTY);
    builder
        .leaf(
            &Path::account(&account),
            &vec![n as u8; 10 + (n * 37 % 500) as usize],
        )
        .finish()
}

pub(super) fn same(page: &Page, bytes: Vec<u8>) -> bool {
    let expected = Page::parse(bytes).unwrap();
    page.leaves().eq(expected.leaves())
}

fn open(disk: &FaultyDisk, table: Option<&[u8]>) -> (Segments, SegmentsRecovery) {
    let (segments, damage) =
        Segments::open(Arc::new(disk.clone()), SMALL, SALT, table, &[]).unwrap();
    assert!(damage.is_empty(), "{damage:?}");
    let recovery = segments.settle().unwrap();
    (segments, recovery)
}

/// Writes and syncs sixty pages, which fill more than one segment.
pub(super) fn filled(disk: &FaultyDisk) -> (Segments, Vec<PageAddr>) {
    let (segments, _) = open(disk, None);
    let addrs = (0..60)
        .map(|n| segments.append(&page(n)).unwrap())
        .collect();
    segments.sync().unwrap();
    (segments, addrs)
}

#[test]
fn pages_are_read_back_buffered_flushed_and_after_reopening() {
    let disk = FaultyDisk::new(1);
    let (segments, _) = open(&disk, None);
    let mut addrs = Vec::new();
    for n in 0..160 {
        addrs.push(segments.append(&page(n)).unwrap());
        for (n, addr) in addrs.iter().enumerate() {
            assert!(
                same(&segments.read(*addr).unwrap(), page(n as u64)),
                "page {n}"
            );
        }
    }
    assert!(segments.live().len() > 3);
    segments.sync().unwrap();
    let (reopened, recovery) = open(&disk.crash(), Some(&segments.encode_table(&[])));
    assert_eq!(recovery, SegmentsRecovery::default());
    assert_eq!(reopened.live(), segments.live());
    for (n, page_read) in reopened.read_batch(&addrs).into_iter().enumerate() {
        assert!(same(&page_read.unwrap(), page(n as u64)), "page {n}");
    }
    let addr = reopened.append(&page(160)).unwrap();
    assert!(same(&reopened.read(addr).unwrap(), page(160)));
}

#[test]
fn neighbours_take_one_read_of_the_device_and_one_that_is_damaged_none_of_the_others() {
    let disk = FaultyDisk::new(14);
    let (segments, addrs) = filled(&disk);
    let table = segments.encode_table(&[]);
    drop(segments);
    let (reopened, _) = open(&disk, Some(&table));
    let reads = |addrs: &[PageAddr]| {
        let (before, together) = (disk.stats().reads, reopened.read_together());
        let read = reopened.read_batch(addrs);
        let together = reopened.read_together() - together;
        (read, disk.stats().reads - before, together)
    };
    let (all, took, together) = reads(&addrs);
    for (n, page_read) in all.into_iter().enumerate() {
        assert!(same(&page_read.unwrap(), page(n as u64)), "page {n}");
    }
    // A segment has 12 KiB, less than the longest span.
    assert_eq!(took, reopened.live().len() as u64);
    assert_eq!(together, addrs.len() as u64 - took);
    // Not in order, or far apart, each takes one.
    let backward: Vec<_> = addrs.iter().rev().copied().collect();
    let (all, took, together) = reads(&backward);
    assert!(all.iter().all(Result::is_ok));
    assert_eq!((took, together), (addrs.len() as u64, 0));
    disk.flip_bit(
        &name_of(addrs[7].segment().into()),
        addrs[7].offset() + 20,
        3,
    );
    let (all, ..) = reads(&addrs);
    for (n, page_read) in all.iter().enumerate() {
        assert_eq!(page_read.is_ok(), n != 7, "page {n}");
    }
}

#[test]
fn a_page_is_read_whose_start_is_in_the_file_and_whose_end_is_not() {
    let disk = FaultyDisk::new(12);
    let (segments, _) = open(&disk, None);
    let mut addrs = Vec::new();
    let mut across = 0;
    for n in 0..300 {
        addrs.push(segments.append(&page(n)).unwrap());
        let addr = addrs[n as usize];
        let written = disk
            .contents(&name_of(addr.segment().into()))
            .unwrap()
            .len() as u64;
        let newest = &addrs[addrs.len().saturating_sub(20)..];
        for (read, n) in segments
            .read_batch(newest)
            .into_iter()
            .rev()
            .zip((0..=n).rev())
        {
            assert!(same(&read.unwrap(), page(n)), "page {n}");
            let page_addr = addrs[n as usize];
            let is_across = (page_addr.offset() + 1..page_addr.end()).contains(&written);
            if is_across && page_addr.segment() == addr.segment() {
                across += 1;
                assert!(same(&segments.read(page_addr).unwrap(), page(n)));
            }
        }
    }
    assert!(across > 10, "{across} times");
}

#[test]
fn what_was_synced_stays_whatever_becomes_of_what_is_written_after_it() {
    for seed in cambium_seeds::seeds!(0..100) {
        let disk = FaultyDisk::new(seed);
        let (segments, _) = open(&disk, None);
        let nothing = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            segments.encode_table(&[]),
            nothing,
            "nothing is durable yet"
        );
        let mut addrs = Vec::new();
        for n in 0..1 + seed % 9 {
            addrs.push(segments.append(&page(n)).unwrap());
            segments.sync().unwrap();
        }
        let table = segments.encode_table(&[]);
        let next = segments.append(&page(9)).unwrap();
        assert!(next.offset().is_multiple_of(4096) || next.offset() == HEADER_BYTES);
        for n in 10..60 {
            segments.append(&page(n)).unwrap();
        }
        let written = disk.contents(&name_of(1)).unwrap().len() as u64;
        assert!(written > next.offset(), "some of it was written");
        assert_eq!(
            segments.encode_table(&[])[12..32],
            table[12..32],
            "no more of it durable"
        );
        let (segments, _) = open(&disk.crash(), Some(&table));
        for (n, page_read) in segments.read_batch(&addrs).into_iter().enumerate() {
            assert!(
                same(&page_read.unwrap(), page(n as u64)),
                "seed {seed}, page {n}"
            );
        }
        assert!(segments.read(next).is_err());
    }
}

#[test]
fn many_append_at_once_and_all_is_found_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let disks: [Arc<dyn Disk>; 2] = [
        Arc::new(FaultyDisk::new(14)),
        Arc::new(StdDisk::new(dir.path())),
    ];
    for disk in disks {
        let (segments, _) = Segments::open(disk.clone(), SMALL, SALT, None, &[]).unwrap();
        segments.settle().unwrap();
        let addrs = Mutex::new(Vec::new());
        let append = |from: u64| {
            for n in from..from + 500 {
                let addr = segments.append(&page(n)).unwrap();
                assert!(same(&segments.read(addr).unwrap(), page(n)));
                addrs.lock().push((n, addr));
                if n % 100 == 0 {
                    segments.sync().unwrap();
                }
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|thread| _ = scope.spawn(move || append(thread * 1_000)));
        });
        segments.sync().unwrap();
        let (numbers, addrs): (Vec<_>, Vec<_>) = addrs.into_inner().into_iter().unzip();
        let table = segments.encode_table(&[]);
        let (reopened, _) = Segments::open(disk, SMALL, SALT, Some(&table), &[]).unwrap();
        for segments in [segments, reopened] {
            for (n, page_read) in numbers.iter().zip(segments.read_batch(&addrs)) {
                assert!(same(&page_read.unwrap(), page(*n)), "page {n}");
            }
        }
    }
}

#[test]
fn what_came_after_the_checkpoint_is_dropped_only_once_all_is_open() {
    let disk = FaultyDisk::new(2);
    let (segments, addrs) = filled(&disk);
    let table = segments.encode_table(&[]);
    let later: Vec<_> = (60..150)
        .map(|n| segments.append(&page(n)).unwrap())
        .collect();
    segments.sync().unwrap();
    drop(segments);
    let before = disk.files();
    let calls = disk.operations();
    let arc = || Arc::new(disk.clone());
    let (segments, _) = Segments::open(arc(), SMALL, SALT, Some(&table), &[]).unwrap();
    assert_eq!(
        (disk.operations(), disk.files()),
        (calls, before),
        "changed"
    );
    let recovery = segments.settle().unwrap();
    assert!(recovery.truncated_bytes > 0 && recovery.removed_segments > 0);
    assert!(addrs.iter().all(|addr| segments.read(*addr).is_ok()));
    for result in segments.read_batch(&later) {
        assert!(
            matches!(result, Err(StoreError::Corrupt { .. })),
            "{result:?}"
        );
    }
    // New pages go to new places: no place is written twice.
    let (newest, files) = (disk.files().pop(), disk.files().len());
    for n in 150..240 {
        let now = segments.append(&page(n)).unwrap();
        assert!(same(&segments.read(now).unwrap(), page(n)));
        assert!(addrs.iter().all(|addr| addr.segment() != now.segment()));
    }
    assert!(disk.files().len() > files);
    let last = later.last().unwrap();
    let reused = segments
        .live()
        .into_iter()
        .find(|one| one.segment == last.segment());
    let name = name_of(reused.expect("its number is used again").sequence);
    assert!(Some(name) > newest, "its file is another one");
}

#[test]
fn a_page_can_be_read_from_other_threads_as_soon_as_it_has_an_address() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(3));
    let (segments, _) = Segments::open(disk, SMALL, SALT, None, &[]).unwrap();
    segments.settle().unwrap();
    let (addrs, done) = (RwLock::new(Vec::<PageAddr>::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let newest = addrs.read().last().copied();
                    if let Some(addr) = newest {
                        segments.read(addr).unwrap();
                    }
                }
            });
        }
        for n in 0..2_000 {
            let addr = segments.append(&page(n)).unwrap();
            addrs.write().push(addr);
        }
        done.store(true, Ordering::Relaxed);
    });
    for (n, addr) in addrs.into_inner().into_iter().enumerate() {
        assert!(same(&segments.read(addr).unwrap(), page(n as u64)));
    }
}

#[test]
fn any_flipped_byte_is_an_error_that_names_file_and_offset() {
    let disk = FaultyDisk::new(4);
    let (segments, addrs) = filled(&disk);
    let filled_addrs = addrs.clone();
    let table = segments.encode_table(&[]);
    for addr in addrs {
        for at in [0, 9, addr.len() / 2, addr.len() - 1] {
            let name = name_of(addr.segment().into());
            disk.flip_bit(&name, addr.offset() + at, 3);
            let error = segments.read(addr).unwrap_err().to_string();
            assert!(error.contains(&name), "{error}");
            assert!(
                error.contains(&format!("byte {}", addr.offset())),
                "{error}"
            );
            disk.flip_bit(&name, addr.offset() + at, 3);
        }
    }
    for at in 0..HEADER_BYTES {
        disk.flip_bit(&name_of(2), at, 7);
        let arc = Arc::new(disk.clone());
        let (segments, damage) = Segments::open(arc, SMALL, SALT, Some(&table), &[]).unwrap();
        let [damage] = &damage[..] else {
            panic!("byte {at}: {damage:?}")
        };
        assert!(damage.to_string().contains(&name_of(2)), "{damage}");
        let pages = segments.read_batch(&filled_addrs);
        assert!(pages.iter().all(Result::is_ok), "pages stay readable");
        disk.flip_bit(&name_of(2), at, 7);
    }
}

#[test]
fn a_missing_or_short_segment_is_named_and_all_others_are_read() {
    let disk = FaultyDisk::new(5);
    let (segments, addrs) = filled(&disk);
    let table = segments.encode_table(&[]);
    let reopen = || {
        let arc = Arc::new(disk.clone());
        let (segments, damage) = Segments::open(arc, SMALL, SALT, Some(&table), &[]).unwrap();
        let [damage] = &damage[..] else {
            panic!("{damage:?}")
        };
        let found = segments.read_batch(&addrs);
        for (addr, found) in addrs.iter().zip(&found) {
            assert_eq!(found.is_ok(), segments.read(*addr).is_ok(), "{addr:?}");
        }
        for (addr, found) in addrs.iter().zip(&found).filter(|(_, found)| found.is_err()) {
            let error = found.as_ref().unwrap_err();
            assert!(error.is_corruption() && error.to_string().contains("db repair"));
            assert_eq!(addr.segment(), 1);
        }
        // In a span, too, all intact pages are read.
        let spans: Vec<_> = addrs.chunk_by(|a, b| a.segment() == b.segment()).collect();
        let read: Vec<_> = segments
            .read_spans(&spans)
            .iter()
            .map(Result::is_ok)
            .collect();
        assert_eq!(read, found.iter().map(Result::is_ok).collect::<Vec<_>>());
        let read = found.iter().filter(|found| found.is_ok()).count();
        (damage.to_string(), read)
    };
    let first = addrs.iter().filter(|addr| addr.segment() == 1).count();
    disk.open(&name_of(1)).unwrap().set_len(8192).unwrap();
    let (told, read) = reopen();
    assert!(
        told.contains("00000001.seg is damaged at byte 8192"),
        "{told}"
    );
    assert!(
        (addrs.len() - first + 1..addrs.len()).contains(&read),
        "{read}"
    );
    disk.remove(&name_of(1)).unwrap();
    let (told, read) = reopen();
    assert!(told.contains("the file is missing"), "{told}");
    assert_eq!(read, addrs.len() - first);
}

#[test]
fn a_segment_whose_pages_are_all_retired_may_be_gone_and_an_error_of_the_disk_is_no_damage() {
    let disk = FaultyDisk::new(15);
    let (segments, addrs) = filled(&disk);
    let table = segments.encode_table(&[]);
    let retired: Vec<_> = addrs
        .iter()
        .copied()
        .filter(|addr| addr.segment() == 1)
        .collect();
    disk.remove(&name_of(1)).unwrap();
    let open = |retired: &[PageAddr]| {
        Segments::open(Arc::new(disk.clone()), SMALL, SALT, Some(&table), retired)
    };
    assert!(open(&retired).unwrap().1.is_empty());
    assert_eq!(open(&retired[1..]).unwrap().1.len(), 1);
    disk.inject(Fault::FailedOpen, &name_of(2), 1);
    let error = open(&retired).unwrap_err();
    assert!(matches!(error, StoreError::Disk(_)) && !error.is_corruption());
    assert!(open(&retired).unwrap().1.is_empty(), "it has passed");
    // An unreadable header is reported, but does not fail the opening.
    disk.inject(Fault::FailedRead, &name_of(2), 1);
    let told = open(&retired).unwrap().1;
    assert!(told[0].to_string().contains("its header can't be read"));
    assert!(open(&retired).unwrap().1.is_empty(), "it has passed");
}

/// A write that the disk acknowledges, but never makes or makes elsewhere.
#[test]
fn a_lost_or_misdirected_write_is_never_taken_for_the_page_that_belongs_there() {
    let mut lost = 0;
    for seed in cambium_seeds::seeds!(0..40) {
        let disk = FaultyDisk::new(seed);
        let (segments, mut addrs) = filled(&disk);
        let fault = [Fault::LostWrite, Fault::MisdirectedWrite][seed as usize % 2];
        disk.inject(fault, DIR, 2);
        addrs.extend((60..120).map(|n| segments.append(&page(n)).unwrap()));
        segments.sync().unwrap();
        for (n, read) in segments.read_batch(&addrs).into_iter().enumerate() {
            match read {
                Ok(read) => assert!(same(&read, page(n as u64)), "seed {seed}, page {n}"),
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    lost += 1;
                }
            }
        }
    }
    assert!(lost > 100, "{lost}");
}

/// The same bytes at another place, or in another database.
#[test]
fn a_page_is_known_by_its_place_and_its_database() {
    let disk = FaultyDisk::new(16);
    let (segments, addrs) = filled(&disk);
    let (first, second) = (addrs[3], addrs[20]);
    assert_eq!(first.segment(), 1);
    let file = disk.open(&name_of(1)).unwrap();
    let mut bytes = vec![0; first.len() as usize];
    file.read_at(&mut bytes, first.offset()).unwrap();
    file.write_at(&bytes, first.offset() + 4096).unwrap();
    let moved = PageAddr::new(1, first.offset() + 4096, first.len());
    assert!(segments.read(first).is_ok() && segments.read(moved).is_err());
    assert!(segments.read(second).is_ok() || second.offset() >= moved.offset());
    let arc = Arc::new(disk.clone());
    let table = segments.encode_table(&[]);
    let (other, _) = Segments::open(arc, SMALL, SALT + 1, Some(&table), &[]).unwrap();
    assert!(addrs.iter().all(|addr| other.read(*addr).is_err()));
}

#[test]
fn a_scan_finds_all_pages_but_those_that_are_damaged() {
    let disk = FaultyDisk::new(1);
    let (segments, addrs) = filled(&disk);
    let scan = |segments: &Segments, from: u64| {
        let mut found = Vec::new();
        for one in segments.live() {
            let pages = segments.scan(one.segment, from).expect("a segment");
            for (addr, page) in pages.map(Result::unwrap) {
                assert_eq!(page.prefix(), segments.read(addr).unwrap().prefix());
                found.push(addr);
            }
        }
        found
    };
    assert_eq!(scan(&segments, 0), addrs);
    let from = addrs[7].offset();
    let later: Vec<_> = addrs
        .iter()
        .filter(|addr| addr.offset() >= from)
        .copied()
        .collect();
    assert_eq!(scan(&segments, from), later);
    assert!(segments.scan(1000, 0).is_none());
    // The scan finds the pages after a damaged one, even if its length is damaged.
    for byte in [0, 8, 9, 12, 20] {
        disk.flip_bit(&name_of(1), addrs[5].offset() + byte, 1);
        let mut others = addrs.clone();
        others.remove(5);
        assert_eq!(scan(&segments, 0), others, "byte {byte}");
        disk.flip_bit(&name_of(1), addrs[5].offset() + byte, 1);
    }
    // A range that can't be read yields an error.
    disk.inject(Fault::FailedRead, &name_of(1), 1);
    let outcomes: Vec<_> = segments.scan(1, 0).expect("a segment").collect();
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_err()).count(),
        1
    );
    assert!(outcomes.len() > 1);
}

#[test]
fn numbers_of_segments_are_used_again_and_their_files_names_never() {
    let disk = FaultyDisk::new(17);
    let options = SegmentOptions {
        segments_max: 4,
        ..SMALL
    };
    let (segments, _) =
        Segments::open(Arc::new(disk.clone()), options.clone(), SALT, None, &[]).unwrap();
    segments.settle().unwrap();
    let (mut alive, mut sequences) = (Vec::new(), std::collections::BTreeSet::new());
    for n in 0..2_000 {
        let addr = segments.append(&page(n)).unwrap();
        alive.push((n, addr));
        if alive.len() > 60 {
            let (_, dead) = alive.remove(0);
            segments.mark_dead(dead);
            segments.remove_dead(|_| true).unwrap();
        }
        sequences.extend(segments.live().iter().map(|one| one.sequence));
        for (n, addr) in &alive {
            assert!(same(&segments.read(*addr).unwrap(), page(*n)), "page {n}");
        }
    }
    assert!(sequences.len() > 20, "{sequences:?}");
    segments.sync().unwrap();
    let table = segments.encode_table(&[]);
    let arc = Arc::new(disk.clone());
    let (segments, damage) = Segments::open(arc, options, SALT, Some(&table), &[]).unwrap();
    assert!(damage.is_empty());
    for (n, addr) in &alive {
        assert!(same(&segments.read(*addr).unwrap(), page(*n)), "page {n}");
    }
    // No page dies any more, so the fifth segment is refused.
    let error = (0..).find_map(|n| segments.append(&page(n)).err()).unwrap();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    assert!(alive.iter().all(|(_, addr)| segments.read(*addr).is_ok()));
}

#[test]
fn segments_are_removed_once_dead_and_released() {
    let disk = FaultyDisk::new(6);
    let (segments, addrs) = filled(&disk);
    let last = addrs.last().unwrap().segment();
    assert!(last > 1);
    addrs.iter().for_each(|addr| segments.mark_dead(*addr));
    assert!(segments.live().iter().all(|stats| stats.live_bytes == 0));
    let table = segments.encode_table(&addrs);
    assert!(segments.remove_dead(|_| false).unwrap().is_empty());
    assert!(segments.read(addrs[0]).is_ok(), "dead pages stay readable");
    let removed = segments.remove_dead(|_| true).unwrap();
    assert!(removed.iter().map(|one| one.number).eq(1..last));
    // Open handles of a removed segment stay readable.
    assert!(
        removed
            .iter()
            .all(|one| one.file.as_ref().unwrap().len().unwrap() >= one.bytes)
    );
    assert!(segments.read(addrs[0]).is_err());
    segments.mark_dead(addrs[0]);
    assert_eq!(disk.files(), [name_of(last.into())]);
    for table in [table, segments.encode_table(&[])] {
        let (segments, _) = open(&disk, Some(&table));
        assert!(segments.read(*addrs.last().unwrap()).is_ok());
    }
}

#[test]
fn a_failed_sync_poisons_writing_and_not_reading() {
    let disk = FaultyDisk::new(7);
    let (segments, addrs) = filled(&disk);
    segments.append(&page(60)).unwrap();
    disk.inject(Fault::FailedSync, DIR, 1);
    assert!(matches!(segments.sync(), Err(StoreError::Disk(_))));
    for error in [
        segments.sync().unwrap_err(),
        segments.append(&page(1)).unwrap_err(),
    ] {
        let StoreError::Poisoned { part, cause } = error else {
            panic!("{error}")
        };
        assert_eq!(part, "segments");
        assert!(cause.contains("cannot sync segments/"), "{cause}");
    }
    assert!(segments.read(addrs[0]).is_ok());
}

#[test]
fn a_full_disk_is_reported_as_such_and_costs_no_page_synced_before() {
    let disk = FaultyDisk::new(8);
    let (segments, addrs) = filled(&disk);
    let table = segments.encode_table(&[]);
    disk.limit_space(Some(disk.files().len() as u64 * 12_288));
    let error = (0..).find_map(|n| segments.append(&page(n)).err()).unwrap();
    assert!(error.to_string().contains("disk full"), "{error}");
    assert!(addrs.iter().all(|addr| segments.read(*addr).is_ok()));
    disk.limit_space(None);
    let (segments, _) = open(&disk, Some(&table));
    assert!(addrs.iter().all(|addr| segments.read(*addr).is_ok()));
}

#[test]
fn a_page_beyond_the_limit_is_refused_without_harm() {
    let (segments, _) = open(&FaultyDisk::new(9), None);
    for size in [0, PAGE_BYTES_MAX + 1] {
        let error = segments.append(&vec![1; size]).unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    }
    let whole = segments.append(&vec![1; PAGE_BYTES_MAX]).unwrap();
    assert_eq!((whole.len(), whole.offset()), (1 << 20, HEADER_BYTES));
    assert!(segments.read(segments.append(&page(1)).unwrap()).is_ok());
}

#[test]
fn the_formats_are_what_they_were() {
    let disk = FaultyDisk::new(10);
    let (segments, _) = filled(&disk);
    let of = |name| keccak256(disk.contents(&name_of(name)).unwrap());
    // Existing data directories contain this format. Changing it requires a new format number.
    let golden = [
        b256!("6d8cafac4f573ff854b21a2634343db37041bfd7c54abab9fd8a06896e3f9d9c"),
        b256!("bd6a7bee1b5233b291fbb9cb87768a8b077507058343fbe3d22968986f31d382"),
        b256!("bbb6f540b8d60729f94edb7f902681339c930f02c11911dbd65e6ed4b80784cf"),
    ];
    assert_eq!(
        [of(1), of(2), keccak256(segments.encode_table(&[]))],
        golden
    );
}

proptest! {
    #[test]
    fn a_made_up_table_or_address_is_an_error_and_no_panic(
        mut table in proptest::collection::vec(any::<u8>(), 0..100),
        count in 0u8..4,
        word in 1u64..,
    ) {
        let disk = FaultyDisk::new(11);
        let (segments, _) = filled(&disk);
        let addr = PageAddr::from_u64(word).unwrap();
        prop_assert!(segments.read(addr).is_err());
        prop_assert!(segments.read_batch(&[addr])[0].is_err());
        segments.mark_dead(addr);
        if let Some(first) = table.get_mut(8..12) {
            first.copy_from_slice(&u32::from(count).to_le_bytes());
        }
        let opened = Segments::open(Arc::new(disk), SMALL, SALT, Some(&table), &[]);
        prop_assert!(opened.is_err() || (count == 0 && table.len() == 12));
    }
}

/// Returns the record of a part with unique content.
fn part(n: u64) -> Vec<u8> {
    encode_part(|out| out.extend((0..10 + n * 41 % 700).map(|at| (at ^ n) as u8)))
}

/// As in a top whose checksum is right, and whose places are not.
#[test]
fn places_that_overlap_are_read_each_for_itself() {
    let disk = FaultyDisk::new(32);
    let (segments, _) = open(&disk, None);
    let parts: Vec<_> = (0..30)
        .map(|n| segments.append(&part(n)).unwrap())
        .collect();
    segments.sync().unwrap();
    let (reopened, _) = open(&disk, Some(&segments.encode_table(&[])));
    let longer = PageAddr::new(parts[0].segment(), parts[0].offset(), 4096);
    for segments in [&segments, &reopened] {
        let mut read = segments
            .read_parts(&[longer, parts[1], parts[2]])
            .into_iter();
        assert_eq!(read.next().unwrap().unwrap().record(), part(0));
        assert_eq!(read.next().unwrap().unwrap().record(), part(1));
        assert_eq!(read.next().unwrap().unwrap().record(), part(2));
    }
}

#[test]
fn parts_of_an_index_are_read_back_beside_pages_and_scans_skip_them() {
    let disk = FaultyDisk::new(31);
    let (segments, _) = open(&disk, None);
    let (mut pages, mut parts) = (Vec::new(), Vec::new());
    for n in 0..80 {
        pages.push(segments.append(&page(n)).unwrap());
        parts.push(segments.append(&part(n)).unwrap());
        let read = segments.read_parts(&parts);
        for (n, read) in (0..).zip(read) {
            let read = read.unwrap();
            assert_eq!(read.record(), part(n));
            assert_eq!(read.bytes(), &part(n)[PART_HEAD_BYTES..]);
        }
    }
    let newest = segments.read_parts(&parts[79..]).remove(0).unwrap();
    assert!(!newest.is_from_device);
    segments.sync().unwrap();
    let disk = disk.crash();
    let (reopened, _) = open(&disk, Some(&segments.encode_table(&[])));
    let before = disk.stats().reads;
    let read = reopened.read_parts(&parts);
    let reads = disk.stats().reads - before;
    assert!(
        (2..20).contains(&reads),
        "{reads} reads of parts that are close together"
    );
    let from_device = read
        .iter()
        .filter(|read| read.as_ref().unwrap().is_from_device);
    assert_eq!(from_device.count() as u64, reads);
    for (n, read) in (0..).zip(reopened.read_parts(&parts)) {
        assert_eq!(read.unwrap().record(), part(n));
    }
    let numbers = reopened.live().into_iter().map(|segment| segment.segment);
    let scanned = numbers.flat_map(|number| reopened.scan(number, 0).unwrap());
    let mut scanned: Vec<_> = scanned.map(|found| found.unwrap().0).collect();
    scanned.sort_unstable();
    pages.sort_unstable();
    assert_eq!(scanned, pages);
    // Neither passes for the other.
    assert!(reopened.read(parts[3]).is_err());
    let error = reopened.read_parts(&pages[..1]).remove(0).unwrap_err();
    assert!(
        error.to_string().contains("no part of the index is there"),
        "{error}"
    );
}

#[test]
fn each_damaged_byte_of_a_part_is_told_by_its_place() {
    let disk = FaultyDisk::new(32);
    let (segments, _) = open(&disk, None);
    let addrs = [3, 4, 5].map(|n| segments.append(&part(n)).unwrap());
    segments.sync().unwrap();
    let name = name_of(1);
    let told = format!("{name} is damaged at byte {}: ", addrs[1].offset());
    for at in 0..part(4).len() as u64 {
        let at = addrs[1].offset() + at;
        disk.flip_bit(&name, at, (at % 8) as u8);
        let read = segments.read_parts(&addrs);
        let error = read[1].as_ref().unwrap_err().to_string();
        assert!(error.starts_with(&told), "byte {at}: {error}");
        assert!(error.contains("db repair"), "{error}");
        assert!(read[0].is_ok() && read[2].is_ok());
        disk.flip_bit(&name, at, (at % 8) as u8);
    }
    // A part that was written elsewhere does not pass for this one.
    let bytes = disk.contents(&name).unwrap();
    let other = &bytes[addrs[0].offset() as usize..][..addrs[0].len() as usize];
    disk.open(&name)
        .unwrap()
        .write_at(other, addrs[1].offset())
        .unwrap();
    assert!(segments.read_parts(&addrs).remove(1).is_err());
    let gone = PageAddr::new(77, 4096, 64);
    assert!(segments.read_parts(&[gone]).remove(0).is_err());
}

#[test]
fn the_format_of_a_part_is_what_it_was() {
    // Existing data directories contain this format. Changing it requires a new format number of checkpoints.
    assert_eq!(
        keccak256(part(7)),
        b256!("c6724e503db6cea8702c2d33639d8d0443fbc500eaee0d633f8b510f3e5e341c")
    );
}
