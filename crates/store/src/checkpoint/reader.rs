//! A checkpoint that is there: its sections, and those that it stands on.

use super::{
    format::{
        CheckpointId, DIRECTORY_BYTES_MAX, FLUSH_BYTES, FORMAT, HEADER_BYTES, ON, ON_BYTES,
        Section, TRAILER_BYTES, decode_directory, find_section, header_of, len_of,
    },
    names::{name_of, sequences, usable},
    pieces::SectionReader,
};
use crate::StoreError;
use cambium_disk::{Disk, DiskFile};
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A checkpoint whose directory is right. What its sections hold is checked when it is read.
#[derive(Debug)]
pub struct Checkpoint {
    id: CheckpointId,
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    path: String,
    sections: Vec<Section>,
}

impl Checkpoint {
    /// Its number: each is more than the one before.
    pub const fn sequence(&self) -> u64 {
        self.id.sequence
    }

    /// Its number, and what it stands on.
    pub const fn id(&self) -> CheckpointId {
        self.id
    }

    /// The one that it is on.
    pub fn before(&self) -> Result<Option<Self>, StoreError> {
        let before = self.id.before();
        let Some(before) = before.map(|before| Self::open(&self.disk, before)) else {
            return Ok(None);
        };
        let before = before?;
        if before.id.first != self.id.first {
            let what = "it is not what the one after it is on";
            return Err(StoreError::corrupt(before.path, 0, what));
        }
        Ok(Some(before))
    }

    /// All checkpoints that this one may need, and it itself, in order, whatever state they are in.
    pub fn chain(&self) -> Result<Vec<u64>, StoreError> {
        let mut chain = sequences(&*self.disk)?;
        chain.retain(|sequence| (self.id.first..=self.id.sequence).contains(sequence));
        Ok(chain)
    }

    /// The numbers of those that a start can go by, the newest first: all that older ones need is
    /// there only as long as they are one of the last two, and one that was set aside since is one
    /// of these.
    pub fn usable(disk: &Arc<dyn Disk>) -> Result<Vec<u64>, StoreError> {
        usable(&**disk)
    }

    /// Whether there is any, in whatever state it is.
    pub fn exists(disk: &dyn Disk) -> Result<bool, StoreError> {
        Ok(disk.exists("")? && !sequences(disk)?.is_empty())
    }

    /// The numbers of all that there are, in order, in whatever state they are.
    pub fn all(disk: &Arc<dyn Disk>) -> Result<Vec<u64>, StoreError> {
        sequences(&**disk)
    }

    /// Number of the newest, damaged or not.
    pub fn newest(disk: &dyn Disk) -> Result<Option<u64>, StoreError> {
        Ok(usable(disk)?.first().copied())
    }

    /// The names of its sections, in the order in which they were written.
    pub fn sections(&self) -> impl Iterator<Item = &str> + '_ {
        self.sections.iter().map(|section| &*section.name)
    }

    /// The length of a section. `None` if there is none of that name.
    pub fn section_len(&self, name: &str) -> Option<u64> {
        len_of(&self.sections, name)
    }

    /// All bytes of a section. An error if there is none of that name.
    pub fn read_section(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let section = self.section(name)?;
        let mut bytes = vec![0; section.len as usize];
        self.file.read_at(&mut bytes, section.offset)?;
        if xxh3_64(&bytes) != section.checksum {
            return Err(self.corrupt_section(section));
        }
        Ok(bytes)
    }

    /// Reads a section piece by piece, past the system's page cache where it can.
    pub fn read_pieces(&self, name: &str) -> Result<SectionReader, StoreError> {
        SectionReader::open(&self.disk, self.id.sequence, &self.sections, name)
    }

    fn section(&self, name: &str) -> Result<&Section, StoreError> {
        find_section(&self.sections, name, &self.path)
    }

    /// Opens the checkpoint of that number.
    pub fn open(disk: &Arc<dyn Disk>, sequence: u64) -> Result<Self, StoreError> {
        let name = name_of(sequence);
        let path = disk.display_path(&name);
        let file = disk.open(&name)?;
        let len = file.len()?;
        let corrupt = |offset, what: &str| Err(StoreError::corrupt(path.clone(), offset, what));
        if len < HEADER_BYTES + TRAILER_BYTES {
            return corrupt(len, "the file is cut short");
        }
        let mut ends = [0; (HEADER_BYTES + TRAILER_BYTES) as usize];
        let (head, tail) = ends.split_at_mut(HEADER_BYTES as usize);
        file.read_at(head, 0)?;
        let format = u32::from_le_bytes(head[8..12].try_into().expect("4 bytes"));
        if head != header_of(sequence, format) {
            return corrupt(0, "bad header");
        }
        file.read_at(tail, len - TRAILER_BYTES)?;
        let start = u64::from_le_bytes(tail[..8].try_into().expect("8 bytes"));
        let directory_len = (len - TRAILER_BYTES).checked_sub(start);
        let Some(directory_len) = directory_len.filter(|&bytes| bytes <= DIRECTORY_BYTES_MAX)
        else {
            return corrupt(len - TRAILER_BYTES, "it is not the end of a checkpoint");
        };
        let mut directory = vec![0; (directory_len + TRAILER_BYTES) as usize];
        file.read_at(&mut directory, start)?;
        match decode_directory(sequence, format, &directory, start) {
            // The checksum covers the header: the format is not a damaged one.
            Ok(_) if format != FORMAT => Err(StoreError::other_format(path, format, FORMAT)),
            Ok(sections) => {
                let mut checkpoint = Self {
                    id: CheckpointId::new(sequence, None),
                    disk: disk.clone(),
                    file,
                    path,
                    sections,
                };
                if let Some(len) = checkpoint.section_len(ON) {
                    let on = match len {
                        ON_BYTES => checkpoint.read_section(ON)?,
                        _ => Vec::new(),
                    };
                    let id = CheckpointId::decode(sequence, &on);
                    checkpoint.id = id.ok_or_else(|| {
                        let what = "what it is said to be on can't be";
                        StoreError::corrupt(checkpoint.path.clone(), HEADER_BYTES, what)
                    })?;
                }
                Ok(checkpoint)
            }
            Err(e) => corrupt(start + e.offset as u64, e.what),
        }
    }

    /// Reads all sections to verify them, and those of all that it stands on.
    pub fn verify(&self) -> Result<(), StoreError> {
        let mut before = None;
        loop {
            let at = before.as_ref().unwrap_or(self);
            at.sections().try_for_each(|name| at.verify_section(name))?;
            match at.before()? {
                None => return Ok(()),
                older => before = older,
            }
        }
    }

    /// Reads a section to verify it.
    pub fn verify_section(&self, name: &str) -> Result<(), StoreError> {
        let section = self.section(name)?;
        let mut bytes = vec![0; section.len.min(FLUSH_BYTES as u64) as usize];
        let mut hasher = Xxh3::new();
        let mut at = 0;
        while at < section.len {
            let take = (section.len - at).min(FLUSH_BYTES as u64) as usize;
            self.file.read_at(&mut bytes[..take], section.offset + at)?;
            hasher.update(&bytes[..take]);
            at += take as u64;
        }
        if hasher.digest() != section.checksum {
            return Err(self.corrupt_section(section));
        }
        Ok(())
    }

    fn corrupt_section(&self, section: &Section) -> StoreError {
        let what = format!(
            "the checksum of its section {} does not match",
            section.name
        );
        StoreError::corrupt(self.path.clone(), section.offset, what)
    }
}
