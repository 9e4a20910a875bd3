//! Writing the file of a run.

use super::{
    fences::Fences,
    format::{PageBuilder, REPEATED_BYTES_MAX, Trailer, WAYPOINT_BYTES},
};
use crate::{
    HistoryError,
    entry::{Entry, is_value, key_of},
    node::WholeNodes,
};
use cambium_disk::{Disk, WritePace};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_runs::{FileWriter, KeyFilter};
use std::{ops::RangeInclusive, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// Content of a run to be written.
pub(crate) struct RunContent {
    pub(crate) identity: u64,
    pub(crate) nodes: Option<WholeNodes>,
    pub(crate) blocks: RangeInclusive<BlockNumber>,
    /// Number of keys, at most.
    pub(crate) keys: u64,
    pub(crate) has_filter: bool,
}

/// Writes a run from entries in their order.
pub(crate) struct RunWriter {
    file: FileWriter,
    identity: u64,
    nodes: Option<WholeNodes>,
    blocks: RangeInclusive<BlockNumber>,
    page: PageBuilder,
    entries: u64,
    keys: u64,
    fences: Fences,
    filter: Option<KeyFilter>,
}

impl RunWriter {
    /// Creates the file `name`. It is written in pieces of about `buffer_bytes` bytes.
    pub(crate) fn create(
        disk: &dyn Disk,
        name: &str,
        content: RunContent,
        buffer_bytes: usize,
        pace: Arc<WritePace>,
    ) -> Result<Self, HistoryError> {
        let RunContent {
            identity,
            nodes,
            blocks,
            keys,
            has_filter,
        } = content;
        Ok(Self {
            file: FileWriter::create(disk, name, buffer_bytes, pace)?,
            identity,
            nodes,
            page: PageBuilder::new(*blocks.start()),
            blocks,
            entries: 0,
            keys: 0,
            fences: Fences::default(),
            filter: has_filter.then(|| KeyFilter::new(keys)),
        })
    }

    /// Adds the next entry.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> Result<(), HistoryError> {
        let key = key_of(entry.position);
        let last = self.page.last();
        let is_repeated = !last.is_empty() && key_of(last) == key;
        let is_value = is_value(key);
        let spare = if is_value { REPEATED_BYTES_MAX } else { 0 };
        if !self.page.push(entry, spare) {
            self.fences.push(self.page.last(), entry.position);
            // A reader that looks for the key behind its last change here finds the next one in
            // the same page.
            let goes_on = is_value && is_repeated && self.page.push(entry, 0);
            self.end_page(goes_on)?;
            let fits = self.page.push(entry, spare);
            debug_assert!(fits, "an entry fits into an empty page");
        }
        if !is_repeated {
            self.keys += 1;
            if let Some(filter) = &mut self.filter {
                filter.add(key);
            }
        }
        self.entries += 1;
        Ok(())
    }

    fn end_page(&mut self, goes_on: bool) -> Result<(), HistoryError> {
        let Self {
            file,
            page,
            identity,
            ..
        } = self;
        file.page(|number, out| page.finish(*identity, number, goes_on, out))?;
        Ok(())
    }

    /// Makes the file durable; its name is, once the directory is synced. `waypoints` are some of
    /// the blocks, in their order.
    pub(crate) fn finish(mut self, waypoints: &[BlockId]) -> Result<(), HistoryError> {
        self.end_page(false)?;
        let fences = self.fences.encode();
        let filter = self.filter.take();
        let filter = filter.as_ref().map_or(&[][..], KeyFilter::as_bytes);
        let mut ids = Vec::with_capacity(waypoints.len() * WAYPOINT_BYTES);
        for id in waypoints {
            ids.extend_from_slice(&id.number.to_le_bytes());
            ids.extend_from_slice(id.hash.as_slice());
        }
        let trailer = Trailer {
            identity: self.identity,
            nodes: self.nodes,
            blocks: self.blocks.clone(),
            entries: self.entries,
            pages: self.file.pages(),
            fences_bytes: fences.len() as u64,
            fences_sum: xxh3_64(&fences),
            filter_bytes: filter.len() as u64,
            filter_sum: xxh3_64(filter),
            waypoints: waypoints.len() as u64,
            waypoints_sum: xxh3_64(&ids),
            keys: self.keys,
        };
        self.file.section(&fences)?;
        self.file.section(filter)?;
        self.file.section(&ids)?;
        let written = self.file.finish(&trailer.encode())?;
        debug_assert_eq!(Some(written), trailer.file_bytes());
        Ok(())
    }
}
