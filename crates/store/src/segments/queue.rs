//! Reading pages through a queue.

use super::{addr::PageAddr, segment::Segment, set::Segments};
use crate::{Page, StoreError, sync::AtomicUsize};
use cambium_disk::{FinishedRead, QueuedRead, ReadQueue};
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

/// A queue of page reads, made by [`Segments::page_queue`]. Each submitted page is handed out by
/// one later [`PageQueue::poll`], in any order.
///
/// A segment that is removed meanwhile stays readable for the pages submitted before. Dropping the
/// queue abandons the pages that were not handed out. It may wait for those that the device is
/// reading.
pub struct PageQueue {
    /// Number of reads in flight, of all readers of the segments.
    reading: Arc<AtomicUsize>,
    reads: Box<dyn ReadQueue>,
    /// Pages under way, by the tags of their reads.
    pages: HashMap<u64, QueuedPage>,
    next_tag: u64,
    /// Pages that needed no device read, because they are in the tail or do not exist.
    ready: Vec<FinishedPage>,
    /// Reads that were taken in a poll. Empty outside of it.
    finished: Vec<FinishedRead>,
}

/// A page that a [`PageQueue`] has read.
#[derive(Debug)]
pub struct FinishedPage {
    /// Number that the caller gave the page.
    pub tag: u64,
    /// Address of the page.
    pub addr: PageAddr,
    /// The page, with errors as in [`Segments::read`].
    pub page: Result<Page, StoreError>,
}

/// A page that is being read from its file.
struct QueuedPage {
    tag: u64,
    addr: PageAddr,
    segment: Arc<Segment>,
    /// The end of the page that was not in the file when the read was queued.
    in_tail: Vec<u8>,
}

impl Segments {
    /// Creates a queue of page reads with up to `depth` device reads in flight, for one thread that
    /// submits pages as it learns of them and takes the finished ones later.
    pub fn page_queue(&self, depth: usize) -> PageQueue {
        PageQueue {
            reading: Arc::clone(&self.reading),
            reads: self.disk.read_queue(depth),
            pages: HashMap::new(),
            next_tag: 0,
            ready: Vec::new(),
            finished: Vec::new(),
        }
    }
}

impl PageQueue {
    /// Adds the page at `addr` of the segments that made the queue. Its read may begin only with the next call of [`PageQueue::poll`].
    /// `tag` identifies the page in [`FinishedPage`] and is not interpreted.
    pub fn submit(&mut self, segments: &Segments, addr: PageAddr, tag: u64) {
        if let Some(page) = self.begin(segments, addr, tag).transpose() {
            self.ready.push(FinishedPage { tag, addr, page });
        }
    }

    /// Returns the number of pages that were submitted and not yet handed out.
    pub fn in_flight(&self) -> usize {
        self.pages.len() + self.ready.len()
    }

    /// Begins submitted reads, and appends finished pages to `finished`. With `wait`, returns only
    /// with at least one, unless none is in flight.
    pub fn poll(&mut self, segments: &Segments, wait: bool, finished: &mut Vec<FinishedPage>) {
        self.reads
            .poll(wait && self.ready.is_empty(), &mut self.finished);
        finished.append(&mut self.ready);
        self.reading
            .fetch_sub(self.finished.len(), Ordering::Relaxed);
        for read in self.finished.drain(..) {
            let page = self.pages.remove(&read.tag).expect("a page under way");
            finished.push(page.finish(segments, read));
        }
    }

    /// Submits the read of a page. Returns the page instead if it is in the tail.
    fn begin(
        &mut self,
        segments: &Segments,
        addr: PageAddr,
        tag: u64,
    ) -> Result<Option<Page>, StoreError> {
        let map = segments.segments();
        let segment = segments.segment_of(&map, addr)?;
        let mut bytes = vec![0; addr.len() as usize];
        let in_file = segments.read_buffered(segment, addr, &mut bytes);
        if in_file == 0 {
            return segments.parse(segment, addr, bytes).map(Some);
        }
        let file = Arc::clone(segments.file_of(segment, addr)?);
        let page = QueuedPage {
            tag,
            addr,
            segment: Arc::clone(segment),
            in_tail: bytes.split_off(in_file),
        };
        self.reads.submit(QueuedRead {
            file,
            offset: addr.offset(),
            bytes,
            tag: self.next_tag,
        });
        self.reading.fetch_add(1, Ordering::Relaxed);
        self.pages.insert(self.next_tag, page);
        self.next_tag += 1;
        Ok(None)
    }
}

impl Drop for PageQueue {
    fn drop(&mut self) {
        self.reading.fetch_sub(self.pages.len(), Ordering::Relaxed);
    }
}

impl QueuedPage {
    /// Checks what was read of the page.
    fn finish(self, segments: &Segments, read: FinishedRead) -> FinishedPage {
        let page = match read.outcome {
            Ok(()) => {
                let mut bytes = read.bytes;
                bytes.extend(self.in_tail);
                segments.parse(&self.segment, self.addr, bytes)
            }
            Err(error) => Err(segments.read_error(&self.segment, error)),
        };
        FinishedPage {
            tag: self.tag,
            addr: self.addr,
            page,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::{
            segment::name_of,
            set::SegmentOptions,
            tests::{SALT, SMALL, filled, page, same},
        },
        *,
    };
    use cambium_disk::{Disk, FaultyDisk, StdDisk};
    use std::collections::BTreeSet;

    /// Takes the pages that a queue has left, in the order of their tags.
    fn take_rest(segments: &Segments, queue: &mut PageQueue) -> Vec<FinishedPage> {
        let mut finished = Vec::new();
        while queue.in_flight() > 0 {
            let (before, in_flight) = (finished.len(), queue.in_flight());
            queue.poll(segments, true, &mut finished);
            assert!(finished.len() > before, "no progress");
            assert_eq!(finished.len() + queue.in_flight(), before + in_flight);
        }
        finished.sort_unstable_by_key(|page| page.tag);
        finished
    }

    /// Reads pages through a queue. Returns them in the order of `addrs`.
    pub(in crate::segments) fn read_queued(
        segments: &Segments,
        addrs: &[PageAddr],
    ) -> Vec<Result<Page, StoreError>> {
        let mut queue = segments.page_queue(8);
        for (tag, addr) in addrs.iter().enumerate() {
            queue.submit(segments, *addr, tag as u64);
        }
        let finished = take_rest(segments, &mut queue);
        assert!(finished.iter().map(|page| page.addr).eq(addrs.to_vec()));
        finished.into_iter().map(|page| page.page).collect()
    }

    /// The counters that reads change: of the disk, and of the tail.
    fn read_counts(disk: &dyn Disk, segments: &Segments) -> [u64; 3] {
        let stats = disk.stats();
        [stats.reads, stats.bytes_read, segments.reads_buffered()]
    }

    #[test]
    fn a_queue_finds_pages_wherever_they_are_and_counts_as_single_reads_do() {
        let dir = tempfile::tempdir().unwrap();
        let disks: [Arc<dyn Disk>; 2] = [
            Arc::new(FaultyDisk::new(18)),
            Arc::new(StdDisk::new(dir.path())),
        ];
        for disk in disks {
            let (segments, _) = Segments::open(disk.clone(), SMALL, SALT, None, &[]).unwrap();
            segments.settle().unwrap();
            let (mut addrs, mut buffered) = (Vec::new(), 0);
            for n in 0..300 {
                addrs.push(segments.append(&page(n)).unwrap());
                let first = addrs.len().saturating_sub(20);
                let before = read_counts(&*disk, &segments);
                addrs[first..]
                    .iter()
                    .for_each(|addr| _ = segments.read(*addr).unwrap());
                let single = read_counts(&*disk, &segments);
                let read = read_queued(&segments, &addrs[first..]);
                let queued = read_counts(&*disk, &segments);
                for at in 0..3 {
                    assert_eq!(queued[at] - single[at], single[at] - before[at]);
                }
                buffered += queued[2] - single[2];
                for (n, read) in (first as u64..).zip(read) {
                    assert!(same(&read.unwrap(), page(n)), "page {n}");
                }
            }
            assert!(
                (300..6_000 - 300).contains(&buffered),
                "{buffered} in the tail"
            );
            assert_eq!(segments.reading.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_page_that_can_not_be_read_has_the_same_error_in_a_queue() {
        let disk = FaultyDisk::new(19);
        let (segments, mut addrs) = filled(&disk);
        let table = segments.encode_table(&[]);
        for (n, addr) in addrs.iter().enumerate().step_by(7) {
            let name = name_of(addr.segment().into());
            disk.flip_bit(&name, addr.offset() + n as u64 % addr.len(), 3);
        }
        disk.spoil(&name_of(1), 8192, 1);
        disk.remove(&name_of(2)).unwrap();
        let last = *addrs.last().unwrap();
        addrs.push(PageAddr::new(1_000, 4096, 64));
        addrs.push(PageAddr::new(1, 16, 64));
        addrs.push(PageAddr::new(last.segment(), 1 << 20, 64));
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let (segments, _) = Segments::open(disk, SMALL, SALT, Some(&table), &[]).unwrap();
        let mut kinds = BTreeSet::new();
        for (addr, queued) in addrs.iter().zip(read_queued(&segments, &addrs)) {
            match (queued, segments.read(*addr)) {
                (Ok(queued), Ok(read)) => assert!(queued.leaves().eq(read.leaves())),
                (queued, read) => {
                    let errors = [queued, read].map(|read| read.unwrap_err().to_string());
                    assert_eq!(errors[0], errors[1]);
                    kinds.insert(errors[0].rsplit_once(" at byte ").unwrap().1[5..].to_owned());
                }
            }
        }
        assert!(kinds.len() > 4, "{kinds:?}");
    }

    #[test]
    fn a_reader_whose_segment_was_truncated_is_behind_in_a_queue_too() {
        let disk = FaultyDisk::new(20);
        let (segments, addrs) = filled(&disk);
        segments.allow_truncation();
        disk.open(&name_of(1)).unwrap().set_len(4096).unwrap();
        let read = read_queued(&segments, &addrs);
        let is_behind =
            |read: &Result<Page, _>| matches!(read, Err(StoreError::ReaderBehind { .. }));
        for (addr, read) in addrs.iter().zip(&read) {
            let is_cut = addr.segment() == 1 && addr.end() > 4096;
            assert_eq!(
                (read.is_ok(), is_behind(read)),
                (!is_cut, is_cut),
                "{addr:?}"
            );
        }
        assert!(read.iter().any(is_behind));
    }

    #[test]
    fn a_segment_removed_while_a_queue_reads_it_is_read_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let disks: [Arc<dyn Disk>; 2] = [
            Arc::new(FaultyDisk::new(21)),
            Arc::new(StdDisk::new(dir.path())),
        ];
        for disk in disks {
            let options = SegmentOptions {
                segments_max: 3,
                ..SMALL
            };
            let (segments, _) = Segments::open(disk, options, SALT, None, &[]).unwrap();
            segments.settle().unwrap();
            let append = |n| segments.append(&page(n)).unwrap();
            let addrs: Vec<_> = (0..60).map(append).collect();
            segments.sync().unwrap();
            let mut queue = segments.page_queue(8);
            for (tag, addr) in addrs.iter().enumerate() {
                queue.submit(&segments, *addr, tag as u64);
            }
            addrs.iter().for_each(|addr| segments.mark_dead(*addr));
            assert!(!segments.remove_dead(|_| true).unwrap().is_empty());
            // The numbers of removed segments are used again.
            let again: Vec<_> = (60..120).map(append).collect();
            assert!(
                again
                    .iter()
                    .any(|addr| addr.segment() == addrs[0].segment())
            );
            for (n, read) in (0..).zip(take_rest(&segments, &mut queue)) {
                assert!(same(&read.page.unwrap(), page(n)), "page {n}");
            }
        }
    }

    #[test]
    fn a_queue_dropped_with_pages_in_flight_leaves_none_behind() {
        let disk = FaultyDisk::new(22);
        let (segments, addrs) = filled(&disk);
        for polls in 0..3 {
            let mut queue = segments.page_queue(8);
            addrs
                .iter()
                .for_each(|addr| queue.submit(&segments, *addr, 7));
            assert_eq!(segments.reading.load(Ordering::Relaxed), addrs.len());
            (0..polls).for_each(|_| queue.poll(&segments, false, &mut Vec::new()));
            drop(queue);
            assert_eq!(segments.reading.load(Ordering::Relaxed), 0);
        }
    }
}
