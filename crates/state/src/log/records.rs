//! Codec of the block log's records: blocks with their changes and reverts, and moves of the head.

use alloy_primitives::{B256, Bytes};
use cambium_primitives::{BlockId, Changes, DecodeError, Reader, put_varint};
use cambium_snapshot::StateError;
use cambium_store::{LogPosition, StoreError};
use xxhash_rust::xxh3::xxh3_64;

/// A block without its changes. The engine stores `body` and never interprets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMeta {
    /// Number and hash of the block.
    pub id: BlockId,
    /// Hash of the parent block.
    pub parent: B256,
    /// State root after the block.
    pub state_root: B256,
    /// Bytes of the caller's choice, such as the block's RLP; stored and returned unchanged.
    pub body: Bytes,
}

/// Kind of a record that holds a block with its changes and reverts.
pub(crate) const KIND_BLOCK: u8 = 1;
/// Kind of a record that makes a committed block the head: its number, little-endian, and its hash.
pub(crate) const KIND_HEAD: u8 = 2;

/// A block with its changes and reverts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockRecord {
    pub(crate) meta: BlockMeta,
    /// Whether the block became the head when it was committed.
    pub(crate) head: bool,
    pub(crate) changes: Changes,
    pub(crate) reverts: Changes,
    pub(crate) codes: Vec<(B256, Bytes)>,
}

/// The first bytes of a block's record, which can be read without the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) id: BlockId,
    pub(crate) parent: B256,
    /// Whether the block became the head when it was committed.
    pub(crate) head: bool,
}

/// Size of the encoded [`BlockHead`] and state root, without their checksum, in bytes.
const HEAD_BYTES: usize = 105;
/// Size of the encoded [`BlockHead`] and state root, with their checksum, in bytes.
pub(crate) const CHECKED_HEAD_BYTES: usize = HEAD_BYTES + 8;

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.count(1)?;
    reader.take(len)
}

fn put_head(out: &mut Vec<u8>, meta: &BlockMeta) {
    out.push(1);
    out.extend_from_slice(&meta.id.number.to_le_bytes());
    out.extend_from_slice(meta.id.hash.as_slice());
    out.extend_from_slice(meta.parent.as_slice());
    out.extend_from_slice(meta.state_root.as_slice());
    out.extend_from_slice(&xxh3_64(&out[..HEAD_BYTES]).to_le_bytes());
}

/// Decodes the head and the state root.
fn take_head(reader: &mut Reader<'_>) -> Result<(BlockHead, B256), DecodeError> {
    let sum = xxh3_64(reader.clone().take(HEAD_BYTES)?);
    let head = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(reader.error("unknown flags of a block record")),
    };
    let id = BlockId::new(reader.u64()?, reader.b256()?);
    let (parent, state_root) = (reader.b256()?, reader.b256()?);
    if reader.u64()? != sum {
        return Err(reader.error("the checksum of a block record's head does not match"));
    }
    Ok((BlockHead { id, parent, head }, state_root))
}

fn take_meta(reader: &mut Reader<'_>) -> Result<(BlockMeta, bool), DecodeError> {
    let (BlockHead { id, parent, head }, state_root) = take_head(reader)?;
    let meta = BlockMeta {
        id,
        parent,
        state_root,
        body: Bytes::copy_from_slice(take_bytes(reader)?),
    };
    Ok((meta, head))
}

impl BlockRecord {
    /// Encodes the payload of a block's record, for a block that becomes the head. `B` stands for a
    /// LEB128 length and that many bytes.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | 1 if the block became the head, else 0 |
    /// | 1 | 8 | number, little-endian |
    /// | 9 | 32 | hash |
    /// | 41 | 32 | parent's hash |
    /// | 73 | 32 | state root |
    /// | 105 | 8 | xxh3-64 of all before, little-endian |
    /// | 113 | B | body |
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
        put_head(&mut out, meta);
        put_bytes(&mut out, &meta.body);
        put_bytes(&mut out, &changes);
        put_bytes(&mut out, &reverts);
        put_varint(&mut out, codes.len() as u64);
        for (hash, code) in codes {
            out.extend_from_slice(hash.as_slice());
            put_bytes(&mut out, code);
        }
        out
    }

    /// Lower bound of the payload's size, in bytes: each changed account and slot takes at least
    /// its path.
    pub(crate) fn bytes_min(
        meta: &BlockMeta,
        changes: &Changes,
        reverts: &Changes,
        codes: &[(B256, Bytes)],
    ) -> usize {
        let codes: usize = codes.iter().map(|(_, code)| 32 + code.len()).sum();
        let changes = [changes, reverts].map(|changes| {
            let (accounts, slots) = changes.counts();
            32 * (accounts + slots)
        });
        CHECKED_HEAD_BYTES + meta.body.len() + codes + changes.iter().sum::<usize>()
    }

    /// Sets in an encoded payload whether the block became the head.
    pub(crate) fn set_head(payload: &mut [u8], head: bool) {
        payload[0] = head.into();
        let sum = xxh3_64(&payload[..HEAD_BYTES]);
        payload[HEAD_BYTES..CHECKED_HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// Decodes the first [`CHECKED_HEAD_BYTES`] of a payload.
    pub(crate) fn decode_head(bytes: &[u8]) -> Result<BlockHead, DecodeError> {
        take_head(&mut Reader::new(bytes)).map(|(head, _)| head)
    }

    /// Decodes a whole payload.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (meta, head) = take_meta(&mut reader)?;
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

    /// Decodes the block of a payload, but not its changes.
    pub(crate) fn decode_meta(bytes: &[u8]) -> Result<BlockMeta, DecodeError> {
        take_meta(&mut Reader::new(bytes)).map(|(meta, _)| meta)
    }
}

/// Encodes the payload of a record that moves the head.
pub(crate) fn encode_new_head(id: BlockId) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&id.number.to_le_bytes());
    bytes[8..].copy_from_slice(id.hash.as_slice());
    bytes
}

/// Decodes the payload of a record that moves the head.
pub(crate) fn decode_new_head(bytes: &[u8]) -> Result<BlockId, DecodeError> {
    let mut reader = Reader::new(bytes);
    let id = BlockId::new(reader.u64()?, reader.b256()?);
    reader.finish().map(|()| id)
}

/// Describes a record's position in error messages.
pub(crate) fn describe(position: LogPosition) -> String {
    let LogPosition { file, offset } = position;
    format!("the record at byte {offset} of block log file {file}")
}

/// Fails with [`StoreError::TooLarge`] if `bytes` exceed the limit of the log's payloads.
pub(crate) fn check_record(what: &'static str, bytes: usize) -> Result<(), StateError> {
    let (bytes, max) = (bytes as u64, cambium_store::LOG_PAYLOAD_BYTES_MAX);
    match bytes > max {
        true => Err(StoreError::TooLarge { what, bytes, max }.into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{U256, keccak256};
    use cambium_primitives::{Account, AccountDiff, AccountUpdate};

    fn sample() -> BlockRecord {
        let put = AccountUpdate::Put(Account {
            nonce: 3,
            ..Account::default()
        });
        let change = |account, slots| AccountDiff {
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

    #[test]
    fn records_survive_encoding_and_every_cut_is_refused() {
        let block = sample();
        let mut bytes = encoded(&block);
        assert_eq!(BlockRecord::decode(&bytes).unwrap(), block);
        let least =
            BlockRecord::bytes_min(&block.meta, &block.changes, &block.reverts, &block.codes);
        assert!(least <= bytes.len() && least * 3 > bytes.len());
        BlockRecord::set_head(&mut bytes, false);
        assert!(!BlockRecord::decode(&bytes).unwrap().head);
        assert_eq!(BlockRecord::decode_meta(&bytes).unwrap(), block.meta);
        let head = BlockRecord::decode_head(&bytes[..CHECKED_HEAD_BYTES]).unwrap();
        assert_eq!(
            (head.id, head.parent, head.head),
            (block.meta.id, block.meta.parent, false)
        );
        assert!((0..bytes.len()).all(|end| BlockRecord::decode(&bytes[..end]).is_err()));
        for at in 0..CHECKED_HEAD_BYTES {
            bytes[at] ^= 4;
            assert!(BlockRecord::decode_head(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 4;
        }
        let head = encode_new_head(block.meta.id);
        assert_eq!(decode_new_head(&head).unwrap(), block.meta.id);
        assert!(decode_new_head(&head[..39]).is_err());
    }

    /// The golden hash of the format. Changing it requires a new format version.
    #[test]
    fn the_formats_are_what_they_were() {
        let hash = keccak256(encoded(&sample()));
        assert_eq!(hash.to_string(), GOLDEN);
    }

    const GOLDEN: &str = "0xa4959538d000131ca28dec20f4f5061303eee385d9a544eddaf6e7c0b8237596";
}
