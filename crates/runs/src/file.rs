//! The file of a run: pages, sections with checksums, and a trailer in the last block.
//!
//! The trailer. Numbers are little-endian:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       name of the kind of run
//! 8       4       format
//! 12      4       a number that the kind of run decides
//! 16      8       identity of the run
//! 24      8       each further number of that kind of run
//! then    8       xxh3-64 of all before
//! then            zeros, to the end of the block
//! ```

use crate::RunError;
use cambium_disk::{Access, BLOCK_BYTES, Disk, DiskFile};
use cambium_primitives::{DecodeError, Reader};
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Size of a page, in bytes: the smallest read of a device.
pub const PAGE_BYTES: usize = BLOCK_BYTES;

/// Returns the checksum of a page, which no other page of any run has.
pub fn page_sum(bytes: &[u8], identity: u64, page: u64) -> u64 {
    let seed = identity ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxh3_64_with_seed(bytes, seed)
}

/// The trailers of one kind of run, of `N` numbers, the first of which is the identity.
#[derive(Clone, Copy, Debug)]
pub struct TrailerFormat<const N: usize> {
    /// First bytes of the trailer.
    pub magic: &'static [u8; 8],
    /// Number of the format.
    pub format: u32,
}

impl<const N: usize> TrailerFormat<N> {
    const SUMMED_BYTES: usize = 16 + 8 * N;
    /// Size of the trailer without the zeros that fill up its block.
    pub const BYTES: usize = Self::SUMMED_BYTES + 8;

    /// Encodes a trailer.
    pub fn encode(&self, kind: u32, numbers: [u64; N]) -> [u8; PAGE_BYTES] {
        let mut out = Vec::with_capacity(Self::BYTES);
        out.extend_from_slice(self.magic);
        out.extend_from_slice(&self.format.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        let mut block = [0; PAGE_BYTES];
        block[..out.len()].copy_from_slice(&out);
        block
    }

    /// Decodes a trailer.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not those of a trailer in this format.
    pub fn decode(&self, bytes: &[u8]) -> Result<(u32, [u64; N]), DecodeError> {
        let mut reader = Reader::new(bytes);
        let sum = xxh3_64(reader.clone().take(Self::SUMMED_BYTES)?);
        let is_run = reader.take(8)? == self.magic;
        let (format, kind) = (reader.u32()?, reader.u32()?);
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = reader.u64()?;
        }
        if !is_run || reader.u64()? != sum {
            return Err(reader.error("the checksum of a run's trailer does not match"));
        }
        if format != self.format {
            return Err(reader.error("a run in another format"));
        }
        Ok((kind, numbers))
    }
}

/// The file of a run, open for reading.
pub struct FileReader {
    file: Arc<dyn DiskFile>,
    /// The file's path for messages.
    path: String,
    bytes: u64,
}

impl FileReader {
    /// Opens the file `name`.
    ///
    /// # Errors
    ///
    /// [`RunError::Missing`] if there is none, and errors of the disk.
    pub fn open(disk: &dyn Disk, name: &str) -> Result<Self, RunError> {
        let path = disk.display_path(name);
        let file = match disk.open_with(name, Access::Direct) {
            Err(error) if error.is_not_found() => return Err(RunError::Missing { file: path }),
            file => file?,
        };
        let bytes = file.len()?;
        Ok(Self { file, path, bytes })
    }

    /// Returns the length of the file in bytes.
    pub const fn file_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file's path for messages.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the file.
    pub fn file(&self) -> &(dyn DiskFile + 'static) {
        &*self.file
    }

    /// Reads the last block, and where it begins. `None` if the file is shorter.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn last_block(&self) -> Result<Option<(u64, Vec<u8>)>, RunError> {
        let Some(at) = self.bytes.checked_sub(PAGE_BYTES as u64) else {
            return Ok(None);
        };
        let mut block = vec![0; PAGE_BYTES];
        self.read(&mut block, at)?;
        Ok(Some((at, block)))
    }

    /// Reads the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), RunError> {
        Ok(self.file.read_at(bytes, offset)?)
    }

    /// Reads a section, which is no longer than the file. `what` describes a checksum mismatch in the error.
    ///
    /// # Errors
    ///
    /// [`RunError::Damaged`], and errors of the disk.
    pub fn section(&self, at: u64, len: u64, sum: u64, what: &str) -> Result<Vec<u8>, RunError> {
        let mut bytes = vec![0; len as usize];
        self.read(&mut bytes, at)?;
        match xxh3_64(&bytes) == sum {
            true => Ok(bytes),
            false => Err(self.damaged(at, what)),
        }
    }

    /// The error of a file that is not the one that the list of runs names.
    pub fn missing(&self) -> RunError {
        RunError::Missing {
            file: self.path.clone(),
        }
    }

    /// The error of damage at an offset.
    pub fn damaged(&self, offset: u64, what: &str) -> RunError {
        RunError::Damaged {
            file: self.path.clone(),
            offset,
            what: what.to_owned(),
        }
    }

    /// The error of bytes from offset `at` on that can't be decoded.
    pub fn undecodable(&self, at: u64, error: &DecodeError) -> RunError {
        self.damaged(at + error.offset as u64, error.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: TrailerFormat<3> = TrailerFormat {
        magic: b"SomeRuns",
        format: 4,
    };

    #[test]
    fn trailers_survive_and_every_changed_byte_is_found() {
        let bytes = FORMAT.encode(9, [1, 2, u64::MAX]);
        assert_eq!(FORMAT.decode(&bytes), Ok((9, [1, 2, u64::MAX])));
        assert_eq!(TrailerFormat::<3>::BYTES, 48);
        for at in 0..TrailerFormat::<3>::BYTES {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert!(FORMAT.decode(&bytes).is_err(), "byte {at}");
        }
        assert!((0..48).all(|end| FORMAT.decode(&bytes[..end]).is_err()));
        let other = TrailerFormat {
            format: 5,
            ..FORMAT
        };
        let error = other.decode(&bytes).unwrap_err();
        assert_eq!(error.what, "a run in another format");
    }

    #[test]
    fn pages_have_checksums_of_their_places() {
        let sums =
            [(1, 0), (1, 1), (2, 0)].map(|(identity, page)| page_sum(b"page", identity, page));
        assert!(sums[0] != sums[1] && sums[0] != sums[2] && sums[1] != sums[2]);
    }
}
