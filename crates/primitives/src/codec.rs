//! Reading bytes from outside: every claim is checked before it is believed.

use alloy_primitives::B256;

/// What is wrong with bytes that should have been one of our encodings, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub struct DecodeError {
    /// What is wrong.
    pub what: &'static str,
    /// Byte offset from the start of the encoding.
    pub offset: usize,
}

/// A cursor over untrusted bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// The error `what`, at the place reached.
    pub const fn error(&self, what: &'static str) -> DecodeError {
        DecodeError {
            what,
            offset: self.offset,
        }
    }

    /// Bytes not yet read.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// Offset of the next byte.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        if len > self.remaining() {
            return Err(self.error("cut short"));
        }
        let taken = &self.bytes[self.offset..self.offset + len];
        self.offset += len;
        Ok(taken)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// 32 bytes.
    pub fn b256(&mut self) -> Result<B256, DecodeError> {
        Ok(B256::from(self.array()?))
    }

    /// `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A LEB128 number of at most 64 bits, in its shortest form.
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

    /// A count of things of at least `size_min` bytes each: refused if they can't all follow.
    pub fn count(&mut self, size_min: usize) -> Result<usize, DecodeError> {
        let count = self.varint()?;
        if count > (self.remaining() / size_min.max(1)) as u64 {
            return Err(self.error("count larger than what follows"));
        }
        Ok(count as usize)
    }

    /// Checks that nothing is left.
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
