//! Which blocks are safe and finalized, and the log's record of that.

use cambium_primitives::{BlockId, DecodeError, Reader};

/// The blocks that the consensus layer has called safe and finalized, which are canonical: see
/// [`Db::set_canonical`](crate::Db::set_canonical).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finality {
    /// The newest safe block. Not below the finalized one, if there is one.
    pub safe: Option<BlockId>,
    /// The newest finalized block.
    pub finalized: Option<BlockId>,
}

/// Flags of an encoded [`Finality`].
const HAS_SAFE: u8 = 1;
const HAS_FINALIZED: u8 = 2;

impl Finality {
    /// Both blocks, those that there are.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.safe.into_iter().chain(self.finalized)
    }

    /// Forgets the blocks for which `is_kept` is false.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(BlockId) -> bool) {
        self.finalized = self.finalized.filter(|block| is_kept(*block));
        let safe = self.safe.filter(|block| is_kept(*block));
        self.safe = safe.or(self.finalized);
    }

    /// Appends the encoding.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | bit 0: there is a safe block; bit 1: there is a finalized block |
    /// | 1 | 40 | number (8, little-endian) and hash of the safe block, if there is one |
    /// | then | 40 | number and hash of the finalized block, if there is one |
    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        let safe = if self.safe.is_some() { HAS_SAFE } else { 0 };
        let finalized = if self.finalized.is_some() {
            HAS_FINALIZED
        } else {
            0
        };
        out.push(safe | finalized);
        self.blocks().for_each(|block| put_id(out, block));
    }

    /// Reads an encoding.
    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let flags = reader.u8()?;
        if flags & !(HAS_SAFE | HAS_FINALIZED) != 0 {
            return Err(reader.error("unknown flags of safe and finalized blocks"));
        }
        let mut take = |flag| match flags & flag {
            0 => Ok(None),
            _ => take_id(reader).map(Some),
        };
        Ok(Self {
            safe: take(HAS_SAFE)?,
            finalized: take(HAS_FINALIZED)?,
        })
    }
}

/// Kind of a record that makes a committed block the head, and says which blocks are safe and
/// finalized from then on.
pub(crate) const KIND_CANONICAL: u8 = 3;

/// The payload of a record of [`KIND_CANONICAL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CanonicalRecord {
    pub(crate) head: BlockId,
    pub(crate) finality: Finality,
}

impl CanonicalRecord {
    /// Returns the encoding.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 40 | number (8, little-endian) and hash of the head |
    /// | 40 | | safe and finalized blocks, as [`Finality::encode_to`] encodes them |
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(121);
        put_id(&mut out, self.head);
        self.finality.encode_to(&mut out);
        out
    }

    /// Decodes a whole payload.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let head = take_id(&mut reader)?;
        let finality = Finality::take(&mut reader)?;
        reader.finish()?;
        Ok(Self { head, finality })
    }

    /// Decodes the head of a payload, or of the beginning of one.
    pub(crate) fn decode_head(bytes: &[u8]) -> Result<BlockId, DecodeError> {
        take_id(&mut Reader::new(bytes))
    }
}

fn put_id(out: &mut Vec<u8>, id: BlockId) {
    out.extend_from_slice(&id.number.to_le_bytes());
    out.extend_from_slice(id.hash.as_slice());
}

fn take_id(reader: &mut Reader<'_>) -> Result<BlockId, DecodeError> {
    Ok(BlockId::new(reader.u64()?, reader.b256()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{B256, hex};

    #[test]
    fn canonical_records_survive_encoding_and_every_cut_is_refused() {
        let id = |number: u64| BlockId::new(number, B256::repeat_byte(number as u8));
        for (safe, finalized) in [
            (None, None),
            (Some(id(2)), None),
            (None, Some(id(1))),
            (Some(id(2)), Some(id(1))),
        ] {
            let record = CanonicalRecord {
                head: id(3),
                finality: Finality { safe, finalized },
            };
            let mut bytes = record.encode();
            assert_eq!(CanonicalRecord::decode(&bytes), Ok(record));
            assert_eq!(CanonicalRecord::decode_head(&bytes), Ok(id(3)));
            assert!((0..bytes.len()).all(|end| CanonicalRecord::decode(&bytes[..end]).is_err()));
            bytes.push(0);
            assert!(CanonicalRecord::decode(&bytes).is_err());
            bytes.pop();
            bytes[40] |= 4;
            assert!(CanonicalRecord::decode(&bytes).is_err());
        }
    }

    /// The golden encoding. Changing it requires a new format version.
    #[test]
    fn the_format_is_what_it_was() {
        let record = CanonicalRecord {
            head: BlockId::new(0x0102, B256::repeat_byte(7)),
            finality: Finality {
                safe: None,
                finalized: Some(BlockId::new(1, B256::repeat_byte(9))),
            },
        };
        let expected = [
            "0201000000000000",
            &"07".repeat(32),
            "02",
            "0100000000000000",
            &"09".repeat(32),
        ]
        .concat();
        assert_eq!(hex::encode(record.encode()), expected);
    }
}
