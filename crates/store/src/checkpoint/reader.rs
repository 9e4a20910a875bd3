//! Checkpoints: whatever a start needs besides the log, in one file.
//!
//! A checkpoint is named sections of bytes. It is written under a temporary name, synced, and only
//! then given its own, so that a file with a checkpoint's name is whole unless it has rotted since.
//! The last two are kept: a start that finds the newest damaged takes the one before, and replays
//! more of the log. One found damaged is set aside under another name once the database is open,
//! and does not count as one of the two. One that can't be read now is not damaged: whoever opens
//! the database tries again.
//!
//! A checkpoint may be *on* an older one: it has only what has changed since, and is good for
//! nothing without it. Those that a kept one needs are kept, too.
//!
//! ```text
//!   7 <- 8 <- 9    10 <- 11 <- 12    7 and 10 are on none; 11 and 12 are the last two: 10 is
//!                                    kept for them, 7 to 9 are gone
//! ```
//!
//! A section may be made of *pieces*, each with a checksum of its own, to be read one by one for as
//! long as somebody has the section open: even after its file was removed.
//!
//! Everything that a checkpoint speaks of (pages in segments, codes) must be durable before it is
//! finished; whatever only the one before the last needs may be removed once it is.

mod pieces;
mod writer;

pub use pieces::{PIECE_SUM_BYTES, SectionReader, put_piece};
pub use writer::{CheckpointWriter, FinishedCheckpoint};

use crate::{StoreError, pace::PIECE_BYTES};
use cambium_disk::{Disk, DiskFile};
use cambium_primitives::{DecodeError, Reader};
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

// Checkpoint. Numbers are little-endian.
//
// OFFSET    SIZE  MEANING
// 0         8     "CambiCkp"
// 8         4     format: 4
// 12        4     zeros
// 16        8     sequence number
// 24              sections, back to back; of one that is on another the first is "on":
//           8     sequence number of the one that it is on
//           8     sequence number of the first of those that it needs
// d               directory: of each section, in order,
//           1     length of its name
//                 name
//           8     length of the section
//           8     xxh3-64 of the section
// end - 24  8     d
// end - 16  8     number of sections
// end - 8   8     xxh3-64 of the first 24 bytes, the directory, and the 16 bytes before this
const MAGIC: &[u8; 8] = b"CambiCkp";
const FORMAT: u32 = 4;
const HEADER_BYTES: u64 = 24;
const TRAILER_BYTES: u64 = 24;
const DIRECTORY_BYTES_MAX: u64 = 1 << 20;

/// The section that says what a checkpoint is on.
const ON: &str = "on";
const ON_BYTES: u64 = 16;

const PREFIX: &str = "checkpoint-";
const TEMPORARY: &str = ".tmp";
const DAMAGED: &str = ".damaged";

/// Written past the page cache, and verified, so many bytes at a time.
const FLUSH_BYTES: usize = PIECE_BYTES;

/// A checkpoint, and what it stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    /// Its number: each is more than the one before.
    pub sequence: u64,
    /// That of the one that it is on; its own, if on none.
    before: u64,
    /// That of the first of those that it needs; its own, if on none.
    first: u64,
}

impl CheckpointId {
    /// The next after all that there are, on `before`.
    const fn new(sequence: u64, before: Option<Self>) -> Self {
        let (before, first) = match before {
            None => (sequence, sequence),
            Some(before) => (before.sequence, before.first),
        };
        Self {
            sequence,
            before,
            first,
        }
    }

    /// The sequence number of the one that it is on.
    pub fn before(&self) -> Option<u64> {
        (self.before != self.sequence).then_some(self.before)
    }

    fn encode(&self) -> [u8; ON_BYTES as usize] {
        let mut bytes = [0; ON_BYTES as usize];
        bytes[..8].copy_from_slice(&self.before.to_le_bytes());
        bytes[8..].copy_from_slice(&self.first.to_le_bytes());
        bytes
    }

    /// `None` if that can't be.
    fn decode(sequence: u64, bytes: &[u8]) -> Option<Self> {
        let (before, first) = bytes.split_first_chunk()?;
        let before = u64::from_le_bytes(*before);
        let first = u64::from_le_bytes(first.try_into().ok()?);
        (first <= before && before < sequence).then_some(Self {
            sequence,
            before,
            first,
        })
    }
}

#[derive(Debug)]
struct Section {
    name: String,
    offset: u64,
    len: u64,
    checksum: u64,
}

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
            Ok(_) if format != FORMAT => {
                let (file, found, supported) = (path, format, FORMAT);
                Err(match found > supported {
                    true => StoreError::NewerFormat {
                        file,
                        found,
                        supported,
                    },
                    false => StoreError::OlderFormat {
                        file,
                        found,
                        supported,
                    },
                })
            }
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

/// What was found of checkpoints.
#[derive(Debug)]
pub struct FoundCheckpoints<T, E> {
    /// What was made of the newest whole one.
    pub loaded: Option<T>,
    /// Those newer than it, the newest first, and what is wrong with them.
    pub damaged: Vec<(u64, E)>,
}

/// Looks for the newest checkpoint that `load` takes, which is to read all of it. Nothing is
/// changed: those found damaged are to be set aside by [`set_aside`] when all else is open, too.
///
/// # Errors
///
/// The first error that is no damage by `is_damage`, whatever older checkpoints there are: another
/// format, a file that can't be read now.
pub fn load_latest_checkpoint<T, E: From<StoreError>>(
    disk: &Arc<dyn Disk>,
    is_damage: impl Fn(&E) -> bool,
    mut load: impl FnMut(&Checkpoint) -> Result<T, E>,
) -> Result<FoundCheckpoints<T, E>, E> {
    let mut damaged = Vec::new();
    for sequence in usable(&**disk)? {
        let opened = Checkpoint::open(disk, sequence).map_err(E::from);
        match opened.and_then(|checkpoint| load(&checkpoint)) {
            Ok(loaded) => {
                let loaded = Some(loaded);
                return Ok(FoundCheckpoints { loaded, damaged });
            }
            Err(error) if is_damage(&error) => damaged.push((sequence, error)),
            Err(error) => return Err(error),
        }
    }
    let loaded = None;
    Ok(FoundCheckpoints { loaded, damaged })
}

impl Checkpoint {
    /// Number of the newest, damaged or not.
    pub fn newest(disk: &dyn Disk) -> Result<Option<u64>, StoreError> {
        Ok(usable(disk)?.first().copied())
    }
}

/// Gives checkpoints that were found damaged another name, with `.damaged` behind it. One that is
/// gone is none.
pub fn set_aside(disk: &dyn Disk, sequences: &[u64]) -> Result<(), StoreError> {
    for sequence in sequences {
        let name = name_of(*sequence);
        match disk.rename(&name, &(name.clone() + DAMAGED)) {
            Err(error) if error.is_not_found() => {}
            renamed => renamed?,
        }
    }
    Ok(disk.sync_dir("")?)
}

/// The checkpoints that a start can go by, the newest first: all that older ones need is there only
/// as long as they are one of the last two, and one that was set aside since is one of these.
fn usable(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
    let aside = disk.list("")?.into_iter().filter_map(|name| {
        let (sequence, ending) = sequence_of(&name)?;
        (ending == DAMAGED).then_some(sequence)
    });
    let aside = aside.max().unwrap_or(0);
    let mut usable = sequences(disk)?;
    usable.reverse();
    let newest = usable.first().copied().unwrap_or(0);
    usable.truncate(if newest > aside { 2 } else { 1 });
    Ok(usable)
}

/// Sequence numbers of the checkpoints that there are, in order.
fn sequences(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
    let names = disk.list("")?;
    let whole = names.iter().filter_map(|name| sequence_of(name));
    let mut sequences: Vec<u64> = whole
        .filter(|(_, ending)| ending.is_empty())
        .map(|(sequence, _)| sequence)
        .collect();
    sequences.sort_unstable();
    Ok(sequences)
}

pub(crate) fn name_of(sequence: u64) -> String {
    format!("{PREFIX}{sequence:08}")
}

/// Whether a file of that name is a checkpoint.
pub(crate) fn is_checkpoint(name: &str) -> bool {
    sequence_of(name).is_some_and(|(_, ending)| ending.is_empty())
}

/// The sequence number in a name, and what comes after it.
fn sequence_of(name: &str) -> Option<(u64, &str)> {
    let number = name.strip_prefix(PREFIX)?;
    let digits = number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len());
    let sequence = number[..digits]
        .parse()
        .ok()
        .filter(|&sequence| sequence < u64::MAX)?;
    name.starts_with(&name_of(sequence))
        .then(|| (sequence, &number[digits..]))
}

fn find_section<'a>(
    sections: &'a [Section],
    name: &str,
    path: &str,
) -> Result<&'a Section, StoreError> {
    let found = sections.iter().find(|section| section.name == name);
    found
        .ok_or_else(|| StoreError::corrupt(path.to_owned(), 0, format!("it has no section {name}")))
}

fn len_of(sections: &[Section], name: &str) -> Option<u64> {
    let found = sections.iter().find(|section| section.name == name);
    found.map(|section| section.len)
}

fn header_of(sequence: u64, format: u32) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&format.to_le_bytes());
    header[16..].copy_from_slice(&sequence.to_le_bytes());
    header
}

/// The directory and the trailer, at offset `start`.
fn encode_directory(sequence: u64, sections: &[Section], start: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for section in sections {
        bytes.push(section.name.len() as u8);
        bytes.extend(section.name.as_bytes());
        bytes.extend(section.len.to_le_bytes());
        bytes.extend(section.checksum.to_le_bytes());
    }
    bytes.extend(start.to_le_bytes());
    bytes.extend((sections.len() as u64).to_le_bytes());
    bytes.extend(directory_checksum(sequence, FORMAT, &bytes).to_le_bytes());
    bytes
}

fn directory_checksum(sequence: u64, format: u32, bytes: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&header_of(sequence, format));
    hasher.update(bytes);
    hasher.digest()
}

/// The reverse of [`encode_directory`].
fn decode_directory(
    sequence: u64,
    format: u32,
    bytes: &[u8],
    start: u64,
) -> Result<Vec<Section>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let Some((content, sum)) = bytes.split_last_chunk::<8>() else {
        return Err(reader.error("cut short"));
    };
    if u64::from_le_bytes(*sum) != directory_checksum(sequence, format, content) {
        return Err(reader.error("the checksum of its directory does not match"));
    }
    let mut sections = Vec::new();
    let mut offset = HEADER_BYTES;
    while reader.remaining() > TRAILER_BYTES as usize {
        let name_len = usize::from(reader.u8()?);
        let name = String::from_utf8(reader.take(name_len)?.to_vec())
            .map_err(|_| reader.error("a name that is no text"))?;
        let (len, checksum) = (reader.u64()?, reader.u64()?);
        sections.push(Section {
            name,
            offset,
            len,
            checksum,
        });
        offset = offset
            .checked_add(len)
            .ok_or_else(|| reader.error("impossible length"))?;
    }
    if reader.remaining() != TRAILER_BYTES as usize
        || offset != start
        || reader.u64()? != start
        || reader.u64()? != sections.len() as u64
    {
        return Err(reader.error("impossible directory"));
    }
    Ok(sections)
}

#[cfg(test)]
mod tests;
