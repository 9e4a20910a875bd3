//! Writing the file of a run.

use super::{
    format::{Fences, Section, Trailer},
    page::{PAGE_BYTES, PageBuilder},
};
use crate::{
    IndexError,
    entry::{Entry, Kind},
    extents::Extents,
};
use cambium_disk::{Access, Disk, DiskFile, whole_blocks};
use cambium_primitives::BlockNumber;
use cambium_store::{KeyFilter, WritePace};
use std::{ops::RangeInclusive, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a run from entries in their order: those of hashes, then those of logs.
pub(crate) struct RunWriter {
    file: Arc<dyn DiskFile>,
    identity: u64,
    blocks: RangeInclusive<BlockNumber>,
    page: PageBuilder,
    /// The last key of the page before, in this section.
    key_before: Option<u64>,
    pages: u64,
    sections: [Section; 2],
    fences: [Fences; 2],
    filter: Option<KeyFilter>,
    /// Whole blocks that are not written yet.
    buffer: Vec<u8>,
    written: u64,
    pace: Arc<WritePace>,
}

impl RunWriter {
    /// Creates the file `name`, with a filter of `keys` keys of hashes if there is to be one.
    pub(crate) fn create(
        disk: &dyn Disk,
        name: &str,
        identity: u64,
        blocks: RangeInclusive<BlockNumber>,
        filter_keys: Option<u64>,
        pace: Arc<WritePace>,
    ) -> Result<Self, IndexError> {
        Ok(Self {
            file: disk.create_with(name, Access::Direct)?,
            identity,
            // Numbers of indexed blocks have 32 bits.
            page: PageBuilder::new(*blocks.start() as u32),
            blocks,
            key_before: None,
            pages: 0,
            sections: Default::default(),
            fences: Default::default(),
            filter: filter_keys.map(KeyFilter::new),
            buffer: Vec::with_capacity(BUFFER_BYTES + PAGE_BYTES),
            written: 0,
            pace,
        })
    }

    /// Adds the next entry of a kind.
    pub(crate) fn push(&mut self, kind: Kind, entry: Entry) -> Result<(), IndexError> {
        if !self.page.has_room() {
            self.key_before = Some(self.page.last_key());
            self.end_page()?;
        }
        let (section, fences) = (
            &mut self.sections[kind as usize],
            &mut self.fences[kind as usize],
        );
        if self.page.is_empty() {
            fences.push(entry, self.key_before == Some(entry.key));
            section.pages += 1;
        }
        section.entries += 1;
        self.page.push(entry);
        if kind == Kind::Hashes
            && let Some(filter) = &mut self.filter
        {
            filter.add(&entry.key.to_le_bytes());
        }
        Ok(())
    }

    /// Ends the entries of a kind.
    pub(crate) fn end_section(&mut self) -> Result<(), IndexError> {
        self.key_before = None;
        match self.page.is_empty() {
            true => Ok(()),
            false => self.end_page(),
        }
    }

    fn end_page(&mut self) -> Result<(), IndexError> {
        self.page
            .finish(self.identity, self.pages, &mut self.buffer);
        self.pages += 1;
        self.flush_if_full()
    }

    /// Adds a part, filled up to whole blocks.
    fn write(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        for piece in bytes.chunks(BUFFER_BYTES) {
            self.buffer.extend_from_slice(piece);
            // Only the last piece is not of whole blocks.
            let whole = whole_blocks(self.buffer.len() as u64) as usize;
            self.buffer.resize(whole, 0);
            self.flush_if_full()?;
        }
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), IndexError> {
        match self.buffer.len() >= BUFFER_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), IndexError> {
        let (file, buffer, at) = (&self.file, &self.buffer, self.written);
        self.pace.write(|| file.write_at(buffer, at))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the file durable; its name is, once the directory is synced. Returns the file's length.
    pub(crate) fn finish(mut self, extents: &Extents) -> Result<u64, IndexError> {
        self.end_section()?;
        let mut fences = Vec::new();
        self.fences.iter().for_each(|of| of.encode_to(&mut fences));
        let filter = self.filter.take();
        let filter = filter.as_ref().map_or(&[][..], KeyFilter::as_bytes);
        let extents = extents.encode();
        let [hashes, logs] = self.sections;
        let trailer = Trailer {
            identity: self.identity,
            blocks: self.blocks.clone(),
            hashes,
            logs,
            fences_sum: xxh3_64(&fences),
            filter_bytes: filter.len() as u64,
            filter_sum: xxh3_64(filter),
            extents_bytes: extents.len() as u64,
            extents_sum: xxh3_64(&extents),
        };
        self.write(&fences)?;
        self.write(filter)?;
        self.write(&extents)?;
        self.write(&trailer.encode())?;
        self.flush()?;
        debug_assert_eq!(self.written, trailer.file_bytes());
        self.file.sync()?;
        Ok(self.written)
    }
}
