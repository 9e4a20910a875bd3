//! One segment: its file, its written and durable lengths, and its references.

use super::format::{HEADER_BYTES, header_of, name_of};
use cambium_disk::{Access, Disk, DiskError, DiskFile};
use cambium_primitives::BlockNumber;
use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Fill level of a value segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSegment {
    /// Number of the segment. It is never used again.
    pub number: u32,
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// Number of bytes in records of values that the state at the newest merge refers to.
    pub live_bytes: u64,
    /// The highest block whose reverts refer to a value in the segment, if there is one.
    pub needed_until: Option<BlockNumber>,
}

/// References to a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    pub(super) live_bytes: u64,
    pub(super) needed_until: Option<BlockNumber>,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    /// The file, open for as long as the segment exists. The newest one is cached, complete ones
    /// are read past the page cache. `None` if it was missing when the database was opened.
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    /// Whether the header was intact when the segment was opened.
    pub(super) has_header: bool,
    /// Offset from which on values are lost, and why, if the file is missing or too short.
    pub(super) lost: Option<(u64, &'static str)>,
    /// Offset at which what was appended ends, whether it is written already or not.
    pub(super) bytes: AtomicU64,
    /// Number of durable bytes.
    pub(super) synced_bytes: AtomicU64,
    pub(super) needs: Mutex<Needs>,
}

impl Segment {
    fn new(number: u32, file: Option<Arc<dyn DiskFile>>, has_header: bool, bytes: u64) -> Self {
        Self {
            number,
            file: RwLock::new(file),
            has_header,
            lost: None,
            bytes: bytes.into(),
            synced_bytes: 0.into(),
            needs: Mutex::default(),
        }
    }

    /// Creates a segment with its header. Both are durable after a sync of the file and of the
    /// directory.
    pub(super) fn create(disk: &dyn Disk, number: u32, salt: u64) -> Result<Self, DiskError> {
        let file = disk.create(&name_of(number))?;
        file.write_at(&header_of(number, salt), 0)?;
        Ok(Self::new(number, Some(file), true, HEADER_BYTES))
    }

    /// Opens the file of a segment as it is. Returns `None` if there is none.
    pub(super) fn open(
        disk: &dyn Disk,
        number: u32,
        salt: u64,
        access: Access,
    ) -> Result<Option<Self>, DiskError> {
        let file = match disk.open_with(&name_of(number), access) {
            Err(error) if error.is_not_found() => return Ok(None),
            file => file?,
        };
        let bytes = file.len()?;
        let mut header = [0; HEADER_BYTES as usize];
        if bytes >= HEADER_BYTES {
            match file.read_at(&mut header, 0) {
                // Values are read without it.
                Err(error) if error.is_unreadable() => {}
                read => read?,
            }
        }
        let has_header = header == header_of(number, salt);
        Ok(Some(Self::new(number, Some(file), has_header, bytes)))
    }

    /// Stands for a segment whose file is missing. It had `bytes`.
    pub(super) fn missing(number: u32, bytes: u64) -> Self {
        Self {
            lost: Some((0, "the file is missing")),
            synced_bytes: bytes.into(),
            ..Self::new(number, None, false, bytes)
        }
    }

    /// Returns the file of a segment whose first `end` bytes are needed, or why they are lost.
    pub(super) fn file_up_to(&self, end: u64) -> Result<Arc<dyn DiskFile>, &'static str> {
        match self.lost {
            Some((from, why)) if end > from => Err(why),
            _ => self.file().ok_or("the file is missing"),
        }
    }

    pub(super) fn file(&self) -> Option<Arc<dyn DiskFile>> {
        self.file.read().clone()
    }

    /// Returns the file of a segment to which values are appended.
    pub(super) fn open_file(&self) -> Arc<dyn DiskFile> {
        self.file().expect("a segment in use has a file")
    }

    /// Turns to reading past the page cache, once nothing more is appended and all is durable. If
    /// the file can't be opened again, it stays as it is.
    pub(super) fn seal(&self, disk: &dyn Disk) {
        if let Ok(file) = disk.open_with(&name_of(self.number), Access::Direct) {
            *self.file.write() = Some(file);
        }
    }

    pub(super) fn stats(&self) -> ValueSegment {
        let needs = *self.needs.lock();
        ValueSegment {
            number: self.number,
            bytes: self.bytes.load(Ordering::Acquire),
            live_bytes: needs.live_bytes,
            needed_until: needs.needed_until,
        }
    }
}
