//! Writing the file of a run.

use super::{
    fences::Fences,
    format::{PAGE_BYTES, PageBuilder, REPEATED_BYTES_MAX, Trailer, WAYPOINT_BYTES},
};
use crate::{
    HistoryError,
    entry::{Entry, is_value, key_of},
    node::WholeNodes,
};
use cambium_disk::{Access, Disk, DiskFile, whole_blocks};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_store::{KeyFilter, WritePace};
use std::{ops::RangeInclusive, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// What a run is going to have.
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
    file: Arc<dyn DiskFile>,
    identity: u64,
    nodes: Option<WholeNodes>,
    blocks: RangeInclusive<BlockNumber>,
    page: PageBuilder,
    entries: u64,
    keys: u64,
    pages: u64,
    fences: Fences,
    filter: Option<KeyFilter>,
    /// Whole blocks that are not written yet.
    buffer: Vec<u8>,
    buffer_bytes: usize,
    pace: Arc<WritePace>,
    written: u64,
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
            file: disk.create_with(name, Access::Direct)?,
            identity,
            nodes,
            page: PageBuilder::new(*blocks.start()),
            blocks,
            entries: 0,
            keys: 0,
            pages: 0,
            fences: Fences::default(),
            filter: has_filter.then(|| KeyFilter::new(keys)),
            buffer: Vec::with_capacity(buffer_bytes + PAGE_BYTES),
            buffer_bytes,
            pace,
            written: 0,
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
        let (identity, page) = (self.identity, self.pages);
        self.page.finish(identity, page, goes_on, &mut self.buffer);
        self.pages += 1;
        self.flush_if_full()
    }

    /// Adds a section, filled up to whole blocks.
    fn write(&mut self, bytes: &[u8]) -> Result<(), HistoryError> {
        for piece in bytes.chunks(whole_blocks(self.buffer_bytes as u64) as usize) {
            self.buffer.extend_from_slice(piece);
            // Only the last piece is not of whole blocks.
            let whole = whole_blocks(self.buffer.len() as u64) as usize;
            self.buffer.resize(whole, 0);
            self.flush_if_full()?;
        }
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), HistoryError> {
        match self.buffer.len() >= self.buffer_bytes {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), HistoryError> {
        let Self { file, buffer, .. } = &*self;
        let at = self.written;
        self.pace.write(|| file.write_at(buffer, at))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
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
            pages: self.pages,
            fences_bytes: fences.len() as u64,
            fences_sum: xxh3_64(&fences),
            filter_bytes: filter.len() as u64,
            filter_sum: xxh3_64(filter),
            waypoints: waypoints.len() as u64,
            waypoints_sum: xxh3_64(&ids),
            keys: self.keys,
        };
        self.write(&fences)?;
        self.write(filter)?;
        self.write(&ids)?;
        self.write(&trailer.encode())?;
        self.flush()?;
        debug_assert_eq!(Some(self.written), trailer.file_bytes());
        Ok(self.file.sync()?)
    }
}
