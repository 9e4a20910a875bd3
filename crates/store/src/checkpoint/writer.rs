//! Writing checkpoints.

use super::{
    format::{
        BASE_SECTION, CheckpointId, FLUSH_BYTES, FORMAT, Section, encode_directory, header_of,
        len_of,
    },
    names::{TEMPORARY, name_of, sequence_of, sequences},
    pieces::SectionReader,
    reader::Checkpoint,
};
use crate::StoreError;
use cambium_disk::{Access, BLOCK_BYTES, Disk, DiskError, DiskFile, WritePace};
use std::{fmt, sync::Arc, thread, time::Duration};
use xxhash_rust::xxh3::Xxh3;

/// Writer of a new checkpoint. Sections are written one after another, each in any number of parts.
/// If the writer is dropped before [`CheckpointWriter::finish`], the checkpoint is discarded.
pub struct CheckpointWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    id: CheckpointId,
    /// Identity of the newest checkpoint on disk, if it is known.
    newest: Option<CheckpointId>,
    sections: Vec<Section>,
    hasher: Xxh3,
    buffer: Vec<u8>,
    written: u64,
    pace: Arc<WritePace>,
    /// Whether older checkpoints stay.
    keeps_older: bool,
    finished: bool,
}

/// A durable checkpoint.
#[derive(Debug)]
pub struct FinishedCheckpoint {
    /// Identity of the checkpoint and its base.
    pub id: CheckpointId,
    /// Number of bytes written, in whole blocks.
    pub bytes: u64,
    disk: Arc<dyn Disk>,
    sections: Vec<Section>,
}

/// Pauses before each new attempt to open the file.
const RETRY_AFTER: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_millis(200),
];

impl FinishedCheckpoint {
    /// Opens a section for reading piece by piece, as [`Checkpoint::read_pieces`] does. A finished
    /// checkpoint can't be undone, so temporary errors are retried for some time.
    ///
    /// # Errors
    ///
    /// As [`Checkpoint::read_pieces`].
    pub fn read_pieces(&self, name: &str) -> Result<SectionReader, StoreError> {
        let open = || SectionReader::open(&self.disk, self.id.sequence, &self.sections, name);
        let mut opened = open();
        for pause in RETRY_AFTER {
            match &opened {
                Err(error) if !error.is_corruption() => thread::sleep(pause),
                _ => break,
            }
            opened = open();
        }
        opened
    }

    /// Returns the length of a section in bytes, or `None` if there is no section of this name.
    pub fn section_len(&self, name: &str) -> Option<u64> {
        len_of(&self.sections, name)
    }
}

impl CheckpointWriter {
    /// Creates the successor of the newest checkpoint on disk. If `newest` is the identity of that
    /// one, it need not be read to find out what it is based on.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be created.
    pub fn create(disk: Arc<dyn Disk>, newest: Option<CheckpointId>) -> Result<Self, StoreError> {
        Self::new(disk, newest, None)
    }

    /// Creates an incremental checkpoint based on the existing checkpoint `before`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be created or written.
    pub fn create_incremental(
        disk: Arc<dyn Disk>,
        before: CheckpointId,
    ) -> Result<Self, StoreError> {
        Self::new(disk, Some(before), Some(before))
    }

    fn new(
        disk: Arc<dyn Disk>,
        newest: Option<CheckpointId>,
        before: Option<CheckpointId>,
    ) -> Result<Self, StoreError> {
        let mut sequence = 1;
        for name in disk.list("")? {
            if let Some((number, ending)) = sequence_of(&name) {
                if ending == TEMPORARY {
                    disk.remove(&name)?;
                } else {
                    sequence = sequence.max(number + 1);
                }
            }
        }
        let id = CheckpointId::new(sequence, before);
        let file = disk.create_with(&(name_of(sequence) + TEMPORARY), Access::Direct)?;
        let buffer = header_of(sequence, FORMAT).to_vec();
        let (sections, hasher) = (Vec::new(), Xxh3::new());
        let mut writer = Self {
            disk,
            file,
            id,
            newest,
            sections,
            hasher,
            buffer,
            written: 0,
            pace: Arc::default(),
            keeps_older: false,
            finished: false,
        };
        if before.is_some() {
            writer.section(BASE_SECTION)?;
            writer.write(&id.encode())?;
        }
        Ok(writer)
    }

    /// Sets the throttle for writes.
    pub fn with_pace(mut self, pace: Arc<WritePace>) -> Self {
        self.pace = pace;
        self
    }

    /// Keeps all older checkpoints: the next one removes them.
    pub const fn keep_older(&mut self) {
        self.keeps_older = true;
    }

    /// Ends the current section and begins a new one.
    ///
    /// # Panics
    ///
    /// If the name is used already or longer than 255 bytes.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn section(&mut self, name: &str) -> Result<(), StoreError> {
        assert!(name.len() <= 255, "section name of {} bytes", name.len());
        assert!(
            self.sections.iter().all(|section| section.name != name),
            "two sections {name}"
        );
        self.end_section();
        let offset = self.written + self.buffer.len() as u64;
        self.sections.push(Section {
            name: name.to_owned(),
            offset,
            len: 0,
            checksum: 0,
        });
        Ok(())
    }

    /// Appends bytes to the current section.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a write fails.
    ///
    /// # Panics
    ///
    /// If no section was begun.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let section = self.sections.last_mut().expect("a section to write to");
        section.len += bytes.len() as u64;
        self.hasher.update(bytes);
        for piece in bytes.chunks(FLUSH_BYTES) {
            self.buffer.extend_from_slice(piece);
            if self.buffer.len() >= FLUSH_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Makes the checkpoint durable, gives it its name, and removes all older checkpoints except
    /// the previous one and those on which the two are based, unless they are to be kept.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a write, sync or rename fails. Failed removals are not reported: the
    /// next checkpoint repeats them.
    pub fn finish(mut self) -> Result<FinishedCheckpoint, StoreError> {
        self.end_section();
        let directory = encode_directory(self.id.sequence, &self.sections, self.end());
        self.buffer.extend(directory);
        let len = self.end();
        // The last block extends beyond the end of the file, which is cut off afterwards.
        let whole = self.buffer.len().next_multiple_of(BLOCK_BYTES);
        self.buffer.resize(whole, 0);
        self.flush()?;
        self.file.set_len(len)?;
        self.file.sync()?;
        let name = name_of(self.id.sequence);
        self.disk.rename(&(name.clone() + TEMPORARY), &name)?;
        self.finished = true;
        self.disk.sync_dir("")?;
        if !self.keeps_older {
            // A file that remains only costs space, and the next checkpoint removes it.
            let _ = self.remove_older();
        }
        Ok(FinishedCheckpoint {
            id: self.id,
            bytes: self.written,
            disk: self.disk.clone(),
            sections: std::mem::take(&mut self.sections),
        })
    }

    /// Removes the checkpoints that neither this one nor the previous one is based on.
    fn remove_older(&self) -> Result<(), StoreError> {
        let all = sequences(&*self.disk)?;
        let older = all.into_iter().filter(|other| *other < self.id.sequence);
        let older: Vec<_> = older.collect();
        let mut first = self.id.first;
        if let Some(newest) = older.last() {
            let known = self.newest.filter(|known| known.sequence == *newest);
            let needed = match known.map_or_else(
                || Checkpoint::open(&self.disk, *newest).map(|found| found.id()),
                Ok,
            ) {
                Ok(id) => id.first,
                // A damaged checkpoint needs nothing but its own file.
                Err(error) if error.is_corruption() => *newest,
                // The needs of the previous checkpoint are unknown. The next writer removes the
                // rest.
                Err(_) => return Ok(()),
            };
            first = first.min(needed);
        }
        for sequence in older.into_iter().filter(|older| *older < first) {
            self.disk.remove(&name_of(sequence))?;
        }
        Ok(())
    }

    /// Returns the length in bytes of the section that is being written.
    ///
    /// # Panics
    ///
    /// If no section was begun.
    pub fn section_len(&self) -> u64 {
        self.sections.last().expect("a section").len
    }

    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn end_section(&mut self) {
        if let Some(section) = self.sections.last_mut() {
            section.checksum = self.hasher.digest();
        }
        self.hasher.reset();
    }

    /// Writes the whole blocks of the buffer.
    fn flush(&mut self) -> Result<(), DiskError> {
        let whole = self.buffer.len() / BLOCK_BYTES * BLOCK_BYTES;
        self.pace
            .write(|| self.file.write_at(&self.buffer[..whole], self.written))?;
        self.written += whole as u64;
        self.buffer.drain(..whole);
        Ok(())
    }
}

impl fmt::Debug for CheckpointWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointWriter")
            .field("id", &self.id)
            .field("sections", &self.sections)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if !self.finished {
            // This only frees space. The next checkpoint removes the file otherwise.
            let _ = self.disk.remove(&(name_of(self.id.sequence) + TEMPORARY));
        }
    }
}
