//! Writing the file of a run.

use super::{
    format::{Fences, Section, Trailer},
    page::PageBuilder,
};
use crate::{
    IndexError,
    entry::{Entry, Kind},
    extents::Extents,
};
use cambium_disk::{Disk, WritePace};
use cambium_primitives::BlockNumber;
use cambium_runs::{FileWriter, KeyFilter};
use std::{ops::RangeInclusive, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a run from entries in their order: those of hashes, then those of logs.
pub(crate) struct RunWriter {
    file: FileWriter,
    identity: u64,
    blocks: RangeInclusive<BlockNumber>,
    page: PageBuilder,
    /// The last key of the page before, in this section.
    key_before: Option<u64>,
    sections: [Section; 2],
    fences: [Fences; 2],
    filter: Option<KeyFilter>,
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
            file: FileWriter::create(disk, name, BUFFER_BYTES, pace)?,
            identity,
            // Numbers of indexed blocks have 32 bits.
            page: PageBuilder::new(*blocks.start() as u32),
            blocks,
            key_before: None,
            sections: Default::default(),
            fences: Default::default(),
            filter: filter_keys.map(KeyFilter::new),
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
        let Self {
            file,
            page,
            identity,
            ..
        } = self;
        Ok(file.page(|number, out| page.finish(*identity, number, out))?)
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
        self.file.section(&fences)?;
        self.file.section(filter)?;
        self.file.section(&extents)?;
        let written = self.file.finish(&trailer.encode())?;
        debug_assert_eq!(written, trailer.file_bytes());
        Ok(written)
    }
}
