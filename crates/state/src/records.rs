//! What the block log holds: blocks with their changes both ways, and moves of the head.

use alloy_primitives::{B256, Bytes};
use cambium_primitives::{BlockId, Changes, DecodeError, Reader, put_varint};

/// A block as the engine keeps it. What `body` means is its user's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMeta {
    /// The block.
    pub id: BlockId,
    /// Hash of its parent.
    pub parent: B256,
    /// State root after it.
    pub state_root: B256,
    /// Kept and given back as it is: the block's RLP, say.
    pub body: Bytes,
}

/// A block with what it did and how to undo it.
pub(crate) const KIND_BLOCK: u8 = 1;
/// A committed block that became the head: its hash.
pub(crate) const KIND_HEAD: u8 = 2;
/// A committed block brought back as a layer above another. (Kind 3 was an earlier form of it.)
pub(crate) const KIND_JUMP: u8 = 4;

/// A block with what it did and how to undo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockRecord {
    pub(crate) meta: BlockMeta,
    /// Whether the block became the head when it was committed.
    pub(crate) head: bool,
    pub(crate) changes: Changes,
    pub(crate) reverts: Changes,
    pub(crate) codes: Vec<(B256, Bytes)>,
}

/// A committed block brought back as a layer above `base`, to build on it or to make it the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JumpRecord {
    pub(crate) base: B256,
    pub(crate) target: BlockId,
    pub(crate) parent: B256,
    pub(crate) state_root: B256,
    /// From the base's state to the target's.
    pub(crate) changes: Changes,
    pub(crate) reverts: Changes,
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.count(1)?;
    reader.take(len)
}

fn put_meta(out: &mut Vec<u8>, meta: &BlockMeta) {
    out.extend_from_slice(&meta.id.number.to_le_bytes());
    out.extend_from_slice(meta.id.hash.as_slice());
    out.extend_from_slice(meta.parent.as_slice());
    out.extend_from_slice(meta.state_root.as_slice());
    put_bytes(out, &meta.body);
}

fn take_meta(reader: &mut Reader<'_>) -> Result<BlockMeta, DecodeError> {
    Ok(BlockMeta {
        id: BlockId::new(reader.u64()?, reader.b256()?),
        parent: reader.b256()?,
        state_root: reader.b256()?,
        body: Bytes::copy_from_slice(take_bytes(reader)?),
    })
}

impl BlockRecord {
    /// The payload of the record of a block that becomes the head. `B` stands for LEB128 length and
    /// that many bytes.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | 1 if the block became the head, else 0 |
    /// | 1 | 8 | number, little-endian |
    /// | 9 | 32 | hash |
    /// | 41 | 32 | parent's hash |
    /// | 73 | 32 | state root |
    /// | 105 | B | body |
    /// | | B | changes |
    /// | | B | reverts |
    /// | | 1-10 | number of codes, LEB128 |
    /// | | each 32 + B | code hash, code |
    pub(crate) fn encode(
        meta: &BlockMeta,
        changes: &Changes,
        reverts: &Changes,
        codes: &[(B256, Bytes)],
    ) -> Vec<u8> {
        let (changes, reverts) = (changes.encode(), reverts.encode());
        let codes_len: usize = codes.iter().map(|(_, code)| code.len() + 42).sum();
        let size = 140 + meta.body.len() + changes.len() + reverts.len() + codes_len;
        let mut out = Vec::with_capacity(size);
        out.push(1);
        put_meta(&mut out, meta);
        put_bytes(&mut out, &changes);
        put_bytes(&mut out, &reverts);
        put_varint(&mut out, codes.len() as u64);
        for (hash, code) in codes {
            out.extend_from_slice(hash.as_slice());
            put_bytes(&mut out, code);
        }
        out
    }

    /// Says in an encoded payload whether the block became the head.
    pub(crate) fn set_head(payload: &mut [u8], head: bool) {
        payload[0] = head.into();
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let head = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.error("unknown flags of a block record")),
        };
        let meta = take_meta(&mut reader)?;
        let changes = Changes::decode(take_bytes(&mut reader)?)?;
        let reverts = Changes::decode(take_bytes(&mut reader)?)?;
        let count = reader.count(33)?;
        let mut codes = Vec::with_capacity(count);
        for _ in 0..count {
            let hash = reader.b256()?;
            codes.push((hash, Bytes::copy_from_slice(take_bytes(&mut reader)?)));
        }
        reader.finish()?;
        Ok(Self {
            meta,
            head,
            changes,
            reverts,
            codes,
        })
    }

    /// Reads the block alone, without decoding its changes.
    pub(crate) fn decode_meta(bytes: &[u8]) -> Result<BlockMeta, DecodeError> {
        let mut reader = Reader::new(bytes);
        reader.u8()?;
        take_meta(&mut reader)
    }
}

impl JumpRecord {
    /// The payload of a jump record. `B` stands for LEB128 length and that many bytes.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 32 | hash of the block that the changes start from |
    /// | 32 | 8 | number of the target, little-endian |
    /// | 40 | 32 | hash of the target |
    /// | 72 | 32 | hash of the target's parent |
    /// | 104 | 32 | state root of the target |
    /// | 136 | B | changes from the base's state to the target's |
    /// | | B | reverts |
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (changes, reverts) = (self.changes.encode(), self.reverts.encode());
        let mut out = Vec::with_capacity(156 + changes.len() + reverts.len());
        out.extend_from_slice(self.base.as_slice());
        out.extend_from_slice(&self.target.number.to_le_bytes());
        out.extend_from_slice(self.target.hash.as_slice());
        out.extend_from_slice(self.parent.as_slice());
        out.extend_from_slice(self.state_root.as_slice());
        put_bytes(&mut out, &changes);
        put_bytes(&mut out, &reverts);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let record = Self {
            base: reader.b256()?,
            target: BlockId::new(reader.u64()?, reader.b256()?),
            parent: reader.b256()?,
            state_root: reader.b256()?,
            changes: Changes::decode(take_bytes(&mut reader)?)?,
            reverts: Changes::decode(take_bytes(&mut reader)?)?,
        };
        reader.finish()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{U256, keccak256};
    use cambium_primitives::{Account, AccountChange, AccountUpdate};

    fn sample() -> BlockRecord {
        let put = AccountUpdate::Put(Account {
            nonce: 3,
            ..Account::default()
        });
        let change = |account, slots| AccountChange {
            path: B256::repeat_byte(5),
            account,
            wipe: false,
            slots,
        };
        BlockRecord {
            meta: BlockMeta {
                id: BlockId::new(9, B256::repeat_byte(1)),
                parent: B256::repeat_byte(2),
                state_root: B256::repeat_byte(3),
                body: Bytes::from_static(b"body"),
            },
            head: true,
            changes: Changes::new(vec![change(put, vec![(B256::ZERO, U256::from(4))])]),
            reverts: Changes::new(vec![change(AccountUpdate::Delete, vec![])]),
            codes: vec![(B256::repeat_byte(6), Bytes::from_static(b"code"))],
        }
    }

    fn encoded(block: &BlockRecord) -> Vec<u8> {
        BlockRecord::encode(&block.meta, &block.changes, &block.reverts, &block.codes)
    }

    fn jump_sample() -> JumpRecord {
        let block = sample();
        JumpRecord {
            base: B256::ZERO,
            target: block.meta.id,
            parent: block.meta.parent,
            state_root: block.meta.state_root,
            changes: block.changes,
            reverts: block.reverts,
        }
    }

    #[test]
    fn records_survive_encoding_and_every_cut_is_refused() {
        let (block, jump) = (sample(), jump_sample());
        let mut bytes = encoded(&block);
        assert_eq!(BlockRecord::decode(&bytes).unwrap(), block);
        BlockRecord::set_head(&mut bytes, false);
        assert!(!BlockRecord::decode(&bytes).unwrap().head);
        assert_eq!(BlockRecord::decode_meta(&bytes).unwrap(), block.meta);
        assert!((0..bytes.len()).all(|end| BlockRecord::decode(&bytes[..end]).is_err()));
        let bytes = jump.encode();
        assert_eq!(JumpRecord::decode(&bytes).unwrap(), jump);
        assert!((0..bytes.len()).all(|end| JumpRecord::decode(&bytes[..end]).is_err()));
    }

    /// A change here is a change of the on-disk format: it needs a new format version.
    #[test]
    fn the_formats_are_what_they_were() {
        let hashes = [
            keccak256(encoded(&sample())),
            keccak256(jump_sample().encode()),
        ];
        assert_eq!(hashes.map(|hash| hash.to_string()), GOLDEN);
    }

    const GOLDEN: [&str; 2] = [
        "0xe5cbba163e89f100431c77c228deddd34cd10a146b7960b440175ad6f184922a",
        "0xb2386e7835bddc20588df55b53d7083b997e4f5569094f8c72c4789429f1f5dd",
    ];
}
