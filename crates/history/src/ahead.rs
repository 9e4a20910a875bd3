//! Reading pages of runs in one batch, before anybody asks for them.

use crate::{
    entry::Key,
    run::{PAGE_BYTES, PagesAhead, Place, reader::RunFile},
};
use cambium_disk::ReadRequest;
use cambium_primitives::BlockNumber;
use std::{collections::BTreeMap, sync::Arc};

/// Pages that are read ahead for one proof, at most; the rest is read when it is asked for.
const PAGES_MAX: usize = 8_192;

/// Pages that are to be read.
#[derive(Default)]
pub(crate) struct WantedPages {
    wanted: BTreeMap<Place, (Arc<RunFile>, usize)>,
    pages: usize,
}

impl WantedPages {
    /// Adds the pages in which the look-up of `key` begins.
    pub(crate) fn add(&mut self, run: &Arc<RunFile>, key: &Key, from: BlockNumber) {
        let (first, count) = run.pages_of(key, from);
        if self.pages + count > PAGES_MAX {
            return;
        }
        let (_, wanted) = self
            .wanted
            .entry((run.identity(), first))
            .or_insert_with(|| (run.clone(), 0));
        self.pages += count.saturating_sub(*wanted);
        *wanted = count.max(*wanted);
    }

    /// Reads them all. What can't be read is left out: whoever needs it meets the error.
    pub(crate) fn read(self) -> PagesAhead {
        // A single read gains nothing.
        let Some((_, (first, _))) = self
            .wanted
            .first_key_value()
            .filter(|_| self.wanted.len() > 1)
        else {
            return PagesAhead::default();
        };
        let disk = first.disk().clone();
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
        disk.read_batch(&mut requests);
        first.counters().count_batch(requests.len());
        let is_read: Vec<_> = requests.iter().map(|read| read.outcome.is_ok()).collect();
        let found = self.wanted.keys().copied().zip(pages).zip(is_read);
        found
            .filter_map(|(page, is_read)| is_read.then_some(page))
            .collect()
    }
}
