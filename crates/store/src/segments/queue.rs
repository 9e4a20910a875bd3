//! Reading pages through a queue.

use super::{addr::PageAddr, segment::Segment, set::Segments};
use crate::{Page, StoreError};
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
pub struct PageQueue<'a> {
    segments: &'a Segments,
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
    /// The end of the page, as far as it was not yet in the file.
    in_tail: Vec<u8>,
}

impl Segments {
    /// Creates a queue of page reads with up to `depth` device reads in flight, for one thread that
    /// submits pages as it learns of them and takes the finished ones later.
    pub fn page_queue(&self, depth: usize) -> PageQueue<'_> {
        PageQueue {
            segments: self,
            reads: self.disk.read_queue(depth),
            pages: HashMap::new(),
            next_tag: 0,
            ready: Vec::new(),
            finished: Vec::new(),
        }
    }
}

impl PageQueue<'_> {
    /// Adds the page at `addr`. Its read may begin only with the next call of [`PageQueue::poll`].
    /// `tag` identifies the page in [`FinishedPage`] and is not interpreted.
    pub fn submit(&mut self, addr: PageAddr, tag: u64) {
        if let Some(page) = self.begin(addr, tag).transpose() {
            self.ready.push(FinishedPage { tag, addr, page });
        }
    }

    /// Returns the number of pages that were submitted and not yet handed out.
    pub fn in_flight(&self) -> usize {
        self.pages.len() + self.ready.len()
    }

    /// Begins submitted reads, and appends finished pages to `finished`. With `wait`, returns only
    /// with at least one, unless none is in flight.
    pub fn poll(&mut self, wait: bool, finished: &mut Vec<FinishedPage>) {
        self.reads
            .poll(wait && self.ready.is_empty(), &mut self.finished);
        finished.append(&mut self.ready);
        let reading = &self.segments.reading;
        reading.fetch_sub(self.finished.len(), Ordering::Relaxed);
        for read in self.finished.drain(..) {
            let page = self.pages.remove(&read.tag).expect("a page under way");
            finished.push(page.finish(self.segments, read));
        }
    }

    /// Submits the read of a page. Returns the page instead if it is in the tail.
    fn begin(&mut self, addr: PageAddr, tag: u64) -> Result<Option<Page>, StoreError> {
        let segments = self.segments.segments();
        let segment = self.segments.segment_of(&segments, addr)?;
        let mut bytes = vec![0; addr.len() as usize];
        let in_file = self.segments.read_buffered(segment, addr, &mut bytes);
        if in_file == 0 {
            return self.segments.parse(segment, addr, bytes).map(Some);
        }
        let file = Arc::clone(self.segments.file_of(segment, addr)?);
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
        self.segments.reading.fetch_add(1, Ordering::Relaxed);
        self.pages.insert(self.next_tag, page);
        self.next_tag += 1;
        Ok(None)
    }
}

impl Drop for PageQueue<'_> {
    fn drop(&mut self) {
        let reading = &self.segments.reading;
        reading.fetch_sub(self.pages.len(), Ordering::Relaxed);
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
