//! Reading a checkpoint and its bases.

use super::{
    format::{
        BASE_SECTION, BASE_SECTION_BYTES, CheckpointId, DIRECTORY_BYTES_MAX, FLUSH_BYTES, FORMAT,
        HEADER_BYTES, Section, TRAILER_BYTES, decode_directory, find_section, header_of, len_of,
    },
    names::{name_of, sequences, usable},
    pieces::SectionReader,
};
use crate::StoreError;
use cambium_disk::{Disk, DiskFile};
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// An open checkpoint with an intact directory. The contents of sections are verified when they are
/// read.
#[derive(Debug)]
pub struct Checkpoint {
    id: CheckpointId,
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    path: String,
    sections: Vec<Section>,
}

impl Checkpoint {
    /// Sequence number. Each checkpoint has a greater one than all before.
    pub const fn sequence(&self) -> u64 {
        self.id.sequence
    }

    /// Identity of the checkpoint and its base.
    pub const fn id(&self) -> CheckpointId {
        self.id
    }

    /// Opens the base. Returns `None` if the checkpoint has none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the base is damaged or belongs to another chain, and
    /// [`StoreError::Disk`] if it is missing or can't be read.
    pub fn before(&self) -> Result<Option<Self>, StoreError> {
        let before = self.id.before();
        let Some(before) = before.map(|before| Self::open(&self.disk, before)) else {
            return Ok(None);
        };
        let before = before?;
        if before.id.first != self.id.first {
            let what = "it is not the base of the checkpoint after it";
            return Err(StoreError::corrupt(before.path, 0, what));
        }
        Ok(Some(before))
    }

    /// Returns the sequence numbers of this checkpoint and of all existing ones that it may be
    /// based on, in ascending order. The files may be damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be listed.
    pub fn chain(&self) -> Result<Vec<u64>, StoreError> {
        let mut chain = sequences(&*self.disk)?;
        chain.retain(|sequence| (self.id.first..=self.id.sequence).contains(sequence));
        Ok(chain)
    }

    /// Returns the sequence numbers of the checkpoints from which the database can be opened, the
    /// newest first. Only the last two qualify, because files that older ones need may be gone. A
    /// checkpoint that was set aside since counts as one of the two.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be listed.
    pub fn usable(disk: &Arc<dyn Disk>) -> Result<Vec<u64>, StoreError> {
        usable(&**disk)
    }

    /// Returns whether there is a checkpoint file, intact or damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be listed.
    pub fn exists(disk: &dyn Disk) -> Result<bool, StoreError> {
        Ok(disk.exists("")? && !sequences(disk)?.is_empty())
    }

    /// Returns the sequence numbers of all checkpoint files, intact or damaged, in ascending order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be listed.
    pub fn all(disk: &Arc<dyn Disk>) -> Result<Vec<u64>, StoreError> {
        sequences(&**disk)
    }

    /// Removes the file of the checkpoint with this sequence number.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be removed.
    pub fn remove(disk: &dyn Disk, sequence: u64) -> Result<(), StoreError> {
        Ok(disk.remove(&name_of(sequence))?)
    }

    /// Removes all checkpoint files of a database that could not be made whole.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be removed.
    pub fn remove_all(disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
        for sequence in Self::all(disk)? {
            Self::remove(&**disk, sequence)?;
        }
        Ok(disk.sync_dir("")?)
    }

    /// Returns the sequence number of the newest checkpoint file, intact or damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be listed.
    pub fn newest(disk: &dyn Disk) -> Result<Option<u64>, StoreError> {
        Ok(usable(disk)?.first().copied())
    }

    /// Returns the names of the sections in the order in which they were written.
    pub fn sections(&self) -> impl Iterator<Item = &str> + '_ {
        self.sections.iter().map(|section| &*section.name)
    }

    /// Returns the length of a section in bytes, or `None` if there is no section of this name.
    pub fn section_len(&self, name: &str) -> Option<u64> {
        len_of(&self.sections, name)
    }

    /// Reads a whole section and verifies it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the section is missing or damaged, and [`StoreError::Disk`] if it
    /// can't be read.
    pub fn read_section(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let section = self.section(name)?;
        let mut bytes = vec![0; section.len as usize];
        self.file.read_at(&mut bytes, section.offset)?;
        if xxh3_64(&bytes) != section.checksum {
            return Err(self.corrupt_section(section));
        }
        Ok(bytes)
    }

    /// Opens a section for reading piece by piece, past the page cache if the disk supports that.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if there is no section of this name, and [`StoreError::Disk`] if the
    /// file can't be opened.
    pub fn read_pieces(&self, name: &str) -> Result<SectionReader, StoreError> {
        SectionReader::open(&self.disk, self.id.sequence, &self.sections, name)
    }

    fn section(&self, name: &str) -> Result<&Section, StoreError> {
        find_section(&self.sections, name, &self.path)
    }

    /// Opens the checkpoint with this sequence number, and verifies its header and directory.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if they are damaged, [`StoreError::NewerFormat`] or
    /// [`StoreError::OlderFormat`] for another format, and [`StoreError::Disk`] if the file is
    /// missing or can't be read.
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
            return corrupt(len - TRAILER_BYTES, "bad trailer");
        };
        let mut directory = vec![0; (directory_len + TRAILER_BYTES) as usize];
        file.read_at(&mut directory, start)?;
        match decode_directory(sequence, format, &directory, start) {
            // The directory's checksum covers the header, so the format number is not damaged.
            Ok(_) if format != FORMAT => Err(StoreError::other_format(path, format, FORMAT)),
            Ok(sections) => {
                let mut checkpoint = Self {
                    id: CheckpointId::new(sequence, None),
                    disk: disk.clone(),
                    file,
                    path,
                    sections,
                };
                if let Some(len) = checkpoint.section_len(BASE_SECTION) {
                    let on = match len {
                        BASE_SECTION_BYTES => checkpoint.read_section(BASE_SECTION)?,
                        _ => Vec::new(),
                    };
                    let id = CheckpointId::decode(sequence, &on);
                    checkpoint.id = id.ok_or_else(|| {
                        let what = "the identity of its base is impossible";
                        StoreError::corrupt(checkpoint.path.clone(), HEADER_BYTES, what)
                    })?;
                }
                Ok(checkpoint)
            }
            Err(e) => corrupt(start + e.offset as u64, e.what),
        }
    }

    /// Verifies all sections of the checkpoint and of its chain of bases.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] for the first damaged section, and [`StoreError::Disk`] if one can't
    /// be read.
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

    /// Verifies one section.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if it is missing or damaged, and [`StoreError::Disk`] if it can't be
    /// read.
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
