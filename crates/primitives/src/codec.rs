//! Decoding of untrusted bytes. Lengths and counts are checked before use.

use alloy_primitives::B256;

/// Error of decoding one of Cambium's own encodings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub struct DecodeError {
    /// The expected item, or the fault.
    pub what: &'static str,
    /// Offset of the error from the start of the encoding, in bytes.
    pub offset: usize,
}

/// A cursor over untrusted bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Creates an error at the current offset.
    pub const fn error(&self, what: &'static str) -> DecodeError {
        DecodeError {
            what,
            offset: self.offset,
        }
    }

    /// Returns the number of bytes not yet read.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// Returns the offset of the next byte.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    ///
    /// This and all following methods return an error if there are too few bytes left.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        if len > self.remaining() {
            return Err(self.error("cut short"));
        }
        let taken = &self.bytes[self.offset..self.offset + len];
        self.offset += len;
        Ok(taken)
    }

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// Returns an error with the offset if the bytes end before.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// Reads two bytes as a little-endian number.
    ///
    /// # Errors
    ///
    /// Returns an error with the offset if the bytes end before.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads four bytes as a little-endian number.
    ///
    /// # Errors
    ///
    /// Returns an error with the offset if the bytes end before.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads eight bytes as a little-endian number.
    ///
    /// # Errors
    ///
    /// Returns an error with the offset if the bytes end before.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads 32 bytes.
    ///
    /// # Errors
    ///
    /// Returns an error with the offset if the bytes end before.
    pub fn b256(&mut self) -> Result<B256, DecodeError> {
        Ok(B256::from(self.array()?))
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error with the offset if the bytes end before.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Reads a LEB128 number of at most 64 bits.
    ///
    /// # Errors
    ///
    /// Returns an error if the number is over 64 bits or not in its shortest form.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.error("number over 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.error("number not in its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(self.error("number over 64 bits"))
    }

    /// Reads a LEB128 count of items of at least `size_min` bytes each.
    ///
    /// # Errors
    ///
    /// Returns an error if the remaining bytes are too few for that many items.
    pub fn count(&mut self, size_min: usize) -> Result<usize, DecodeError> {
        let count = self.varint()?;
        if count > (self.remaining() / size_min.max(1)) as u64 {
            return Err(self.error("count larger than what follows"));
        }
        Ok(count as usize)
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    ///
    /// Returns an error if bytes are left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(self.error("surplus bytes"))
        }
    }
}

/// Appends `value` as LEB128.
pub fn put_varint(out: &mut alloc::vec::Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
