//! Reading pages of runs in one batch, before they are needed.
//!
//! The end of a look-up is known only when a page has been read: entries of a node may go on in the next page, or in
//! the next run. So a batch is followed by another one for the unfinished look-ups.

use crate::{
    entry::Key,
    run::{PagesAhead, Place, reader::RunFile},
};
use cambium_disk::ReadRequest;
use cambium_primitives::BlockNumber;
use cambium_runs::PAGE_BYTES;
use std::{collections::BTreeMap, sync::Arc};

/// Pages that are read in one batch, at most; the rest is read when it is asked for.
pub(crate) const PAGES_MAX: usize = 8_192;

/// Pages that are to be read.
#[derive(Default)]
pub(crate) struct WantedPages {
    /// The runs, and numbers of pages from each place on.
    wanted: BTreeMap<Place, (Arc<RunFile>, usize)>,
    /// Pages that the cache has.
    cached: PagesAhead,
    pages: usize,
}

impl WantedPages {
    /// Adds the pages in which the look-up of `key` begins.
    pub(crate) fn add(&mut self, run: &Arc<RunFile>, key: &Key, from: BlockNumber) {
        let (first, count) = run.pages_of(key, from);
        self.add_pages(run, first, count);
    }

    /// Adds pages that follow each other.
    pub(crate) fn add_pages(&mut self, run: &Arc<RunFile>, first: u64, count: usize) {
        let place = (run.identity(), first);
        if self.pages + count > PAGES_MAX || self.cached.find(place).is_some() {
            return;
        }
        if let Some(page) = run.reads().cached(place) {
            self.cached.add(place, page);
            return;
        }
        let (_, wanted) = self.wanted.entry(place).or_insert_with(|| (run.clone(), 0));
        self.pages += count.saturating_sub(*wanted);
        *wanted = count.max(*wanted);
    }

    /// Reads all wanted pages. Omits those that can't be read: the error is returned to the lookup that needs the page.
    pub(crate) fn read(self) -> PagesAhead {
        let mut ahead = self.cached;
        let Some((_, (run, _))) = self.wanted.first_key_value() else {
            return ahead;
        };
        let reads = run.reads().clone();
        let mut pages: Vec<_> = self
            .wanted
            .values()
            .map(|(_, count)| vec![0; count * PAGE_BYTES])
            .collect();
        let requests = self.wanted.iter().zip(&mut pages);
        let mut requests: Vec<_> = requests
            .map(|(((_, page), (run, _)), buf)| {
                ReadRequest::new(run.file(), page * PAGE_BYTES as u64, buf)
            })
            .collect();
        reads.disk.read_batch(&mut requests);
        reads.count_batch(requests.len());
        for (place, read) in self.wanted.keys().zip(&requests) {
            if read.outcome.is_ok() {
                ahead.add_all(*place, read.buf);
            }
        }
        ahead
    }
}
