use super::*;
use crate::PageBuilder;
use alloy_primitives::{b256, keccak256};
use cambium_disk::{Fault, FaultyDisk, StdDisk};
use cambium_primitives::Path;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

const SMALL: SegmentOptions = SegmentOptions {
    segment_bytes_max: 12_288,
    buffer_bytes: 5_000,
};

/// A page that can be told from others, of a length that depends on `n`.
fn page(n: u64) -> Vec<u8> {
    let account = keccak256(n.to_be_bytes());
    let mut builder = PageBuilder::new(&Path::EMPTY);
    builder
        .leaf(
            &Path::account(&account),
            &vec![n as u8; 10 + (n * 37 % 500) as usize],
        )
        .finish()
}

fn same(page: &Page, bytes: Vec<u8>) -> bool {
    let expected = Page::parse(bytes).unwrap();
    page.leaves().eq(expected.leaves())
}

fn open(disk: &FaultyDisk, table: Option<&[u8]>) -> (Segments, SegmentsRecovery) {
    Segments::open(Arc::new(disk.clone()), SMALL, table).unwrap()
}

/// Sixty pages, synced: more than one segment.
fn filled(disk: &FaultyDisk) -> (Segments, Vec<PageAddr>) {
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
    let (reopened, recovery) = open(&disk.crash(), Some(&segments.encode_table()));
    assert_eq!(recovery, SegmentsRecovery::default());
    assert_eq!(reopened.live(), segments.live());
    for (n, page_read) in reopened.read_batch(&addrs).into_iter().enumerate() {
        assert!(same(&page_read.unwrap(), page(n as u64)), "page {n}");
    }
    let addr = reopened.append(&page(160)).unwrap();
    assert!(same(&reopened.read(addr).unwrap(), page(160)));
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
        let written = disk.contents(&name_of(addr.segment())).unwrap().len() as u64;
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
    for seed in 0..100 {
        let disk = FaultyDisk::new(seed);
        let (segments, _) = open(&disk, None);
        assert_eq!(segments.encode_table(), [0; 4], "nothing is durable yet");
        let mut addrs = Vec::new();
        for n in 0..1 + seed % 9 {
            addrs.push(segments.append(&page(n)).unwrap());
            segments.sync().unwrap();
        }
        let table = segments.encode_table();
        let next = segments.append(&page(9)).unwrap();
        assert!(next.offset().is_multiple_of(4096) || next.offset() == HEADER_BYTES);
        for n in 10..60 {
            segments.append(&page(n)).unwrap();
        }
        let written = disk.contents(&name_of(1)).unwrap().len() as u64;
        assert!(written > next.offset(), "some of it was written");
        assert_eq!(
            segments.encode_table()[..16],
            table[..16],
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
        let (segments, _) = Segments::open(disk.clone(), SMALL, None).unwrap();
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
        let (reopened, _) = Segments::open(disk, SMALL, Some(&segments.encode_table())).unwrap();
        for segments in [segments, reopened] {
            for (n, page_read) in numbers.iter().zip(segments.read_batch(&addrs)) {
                assert!(same(&page_read.unwrap(), page(*n)), "page {n}");
            }
        }
    }
}

#[test]
fn opening_drops_what_came_after_the_checkpoint() {
    let disk = FaultyDisk::new(2);
    let (segments, addrs) = filled(&disk);
    let table = segments.encode_table();
    let later: Vec<_> = (60..150)
        .map(|n| segments.append(&page(n)).unwrap())
        .collect();
    segments.sync().unwrap();
    drop(segments);
    let (segments, recovery) = open(&disk, Some(&table));
    assert!(recovery.truncated_bytes > 0 && recovery.removed_segments > 0);
    assert!(addrs.iter().all(|addr| segments.read(*addr).is_ok()));
    for result in segments.read_batch(&later) {
        assert!(
            matches!(result, Err(StoreError::Corrupt { .. })),
            "{result:?}"
        );
    }
    // What comes next takes the same places, and is found there.
    for (n, addr) in (150..240).zip(later) {
        let now = segments.append(&page(n)).unwrap();
        assert!(same(&segments.read(now).unwrap(), page(n)));
        assert!(n > 150 || (now.segment(), now.offset()) == (addr.segment(), addr.offset()));
    }
}

#[test]
fn a_page_can_be_read_from_other_threads_as_soon_as_it_has_an_address() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(3));
    let (segments, _) = Segments::open(disk, SMALL, None).unwrap();
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
    let table = segments.encode_table();
    for addr in addrs {
        for at in [0, 9, addr.len() / 2, addr.len() - 1] {
            let name = name_of(addr.segment());
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
        let error = Segments::open(Arc::new(disk.clone()), SMALL, Some(&table)).unwrap_err();
        assert!(error.to_string().contains(&name_of(2)), "{error}");
        disk.flip_bit(&name_of(2), at, 7);
    }
}

#[test]
fn a_missing_or_short_segment_is_an_error_that_names_it() {
    let disk = FaultyDisk::new(5);
    let (segments, _) = filled(&disk);
    let table = segments.encode_table();
    let file = disk.open(&name_of(1)).unwrap();
    file.set_len(100).unwrap();
    let reopen = || Segments::open(Arc::new(disk.clone()), SMALL, Some(&table)).unwrap_err();
    assert!(reopen().to_string().contains("00000001.seg is damaged"));
    disk.remove(&name_of(1)).unwrap();
    assert!(reopen().to_string().contains("the file is missing"));
}

#[test]
fn segments_are_removed_once_dead_and_released() {
    let disk = FaultyDisk::new(6);
    let (segments, addrs) = filled(&disk);
    let last = addrs.last().unwrap().segment();
    assert!(last > 1);
    addrs.iter().for_each(|addr| segments.mark_dead(*addr));
    assert!(segments.live().iter().all(|stats| stats.live_bytes == 0));
    let table = segments.encode_table();
    assert_eq!(segments.remove_dead(|_| false).unwrap(), []);
    assert!(segments.read(addrs[0]).is_ok(), "dead pages stay readable");
    assert_eq!(
        segments.remove_dead(|_| true).unwrap(),
        (1..last).collect::<Vec<_>>()
    );
    assert!(segments.read(addrs[0]).is_err());
    segments.mark_dead(addrs[0]);
    assert_eq!(disk.files(), [name_of(last)]);
    for table in [table, segments.encode_table()] {
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
    let table = segments.encode_table();
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
    // Data directories in use hold these: other values here are another format number.
    let golden = [
        b256!("e50d6b19322c50b99ab9e8fa1414d6e323572d0476f863786c553524ac62f6c1"),
        b256!("53f88e76aad75ffe6e5dd11d674036b0db5dfb1495c9740c08adecbe99c8256a"),
        b256!("5e107e61683635fe4ff0cbab8d59456ac292b25b3d5053b6b7ddbbfc06d68d42"),
    ];
    assert_eq!([of(1), of(2), keccak256(segments.encode_table())], golden);
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
        if let Some(first) = table.get_mut(..4) {
            first.copy_from_slice(&u32::from(count).to_le_bytes());
        }
        let opened = Segments::open(Arc::new(disk), SMALL, Some(&table));
        prop_assert!(opened.is_err() || (count == 0 && table.len() == 4));
    }
}
