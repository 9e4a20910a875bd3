//! Codec of the log's records with references of changed subtries.
//!
//! After a crash the tries above the newest checkpoint are made again from the changes in the log. Their leaves are
//! there, and their pages are on disk, one random read each: six batches of 49,000 changes are 257,000 reads. With
//! the reference that each changed subtrie has after a block, only the nodes above these subtries are needed for
//! the next root, and they are in the index: no page is read.
//!
//! A record is a claim: the root made from it is compared with the state root of its block before anything uses it.
//! Without records, or with a false one, pages are read as before.

use alloy_primitives::B256;
use cambium_primitives::{
    BlockId, BlockNumber, DecodeError, Path, Reader, SLOT_NIBBLES, put_varint,
};
use cambium_trie::{NodeKind, SHARD_NIBBLES};

/// Kind of a record with references of the subtries that blocks have changed. It follows the record of its block.
pub(crate) const KIND_REFERENCES: u8 = 5;
/// Kind of such records that had branches alone. They are not read.
pub(crate) const KIND_BRANCH_REFERENCES: u8 = 4;

/// The root of a subtrie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) kind: NodeKind,
    pub(crate) hash: B256,
}

/// A subtrie by the path of its root.
pub(crate) type Subtrie = (Path, Root);

/// References of subtries that blocks have changed, in the state after the newest of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct References {
    /// The newest of the blocks.
    pub(crate) block: BlockId,
    /// The number below that of the oldest of the blocks.
    pub(crate) after: BlockNumber,
    /// Sorted by path; none is within another.
    pub(crate) subtries: Vec<Subtrie>,
}

/// Smallest size of an encoded subtrie, in bytes.
const SUBTRIE_BYTES_MIN: usize = 34;
/// Bit that says, beside the number of shared nibbles, that the root is a leaf, and beside that of further ones, that it is
/// an extension.
const IS_KIND: u8 = 0x80;

/// Encodes the subtries that the blocks above number `after` have changed, sorted by path. It is the
/// payload of a record without its block, which may have no hash yet.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 8 | number below that of the oldest block, little-endian |
/// | 8 | 1-10 | number of subtries, LEB128 |
/// | each | 1 | nibbles shared with the path before; topmost bit: the root is a leaf |
/// | | 1 | number a of further nibbles; topmost bit: the root is an extension |
/// | | a/2, rounded up | these, packed |
/// | | 32 | hash of the root |
pub(crate) fn encode_subtries(after: BlockNumber, subtries: &[Subtrie]) -> Vec<u8> {
    let mut out = Vec::with_capacity(18 + subtries.len() * (SUBTRIE_BYTES_MIN + 2));
    out.extend_from_slice(&after.to_le_bytes());
    put_varint(&mut out, subtries.len() as u64);
    let mut before = Path::EMPTY;
    for (path, Root { kind, hash }) in subtries {
        let shared = before.common_prefix_len(path);
        let further = path.suffix(shared);
        let bit = |of| if *kind == of { IS_KIND } else { 0 };
        out.push(shared as u8 | bit(NodeKind::Leaf));
        out.push(further.len() as u8 | bit(NodeKind::Extension));
        out.extend_from_slice(further.packed());
        out.extend_from_slice(hash.as_slice());
        before = *path;
    }
    out
}

/// Encodes the block with which the payload begins: its number, little-endian, and its hash.
pub(crate) fn encode_block(id: BlockId) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&id.number.to_le_bytes());
    bytes[8..].copy_from_slice(id.hash.as_slice());
    bytes
}

fn take_subtrie(reader: &mut Reader<'_>, before: &Path) -> Result<Subtrie, DecodeError> {
    let (shared, further) = (reader.u8()?, reader.u8()?);
    let kind = match (shared & IS_KIND, further & IS_KIND) {
        (0, 0) => NodeKind::Branch,
        (_, 0) => NodeKind::Leaf,
        (0, _) => NodeKind::Extension,
        _ => return Err(reader.error("a subtrie whose root is of two kinds")),
    };
    let (shared, further) = (shared & !IS_KIND, further & !IS_KIND);
    let (shared, further) = (usize::from(shared), usize::from(further));
    if shared > before.len() || shared + further >= SLOT_NIBBLES {
        return Err(reader.error("a subtrie's path is too long"));
    }
    let packed = reader.take(further.div_ceil(2))?;
    let further = Path::from_packed(packed, further);
    let further = further.ok_or_else(|| reader.error("a subtrie's path has padding"))?;
    let path = before.prefix(shared).join(&further);
    if path.len() < SHARD_NIBBLES {
        return Err(reader.error("a subtrie above the shards"));
    }
    if path <= *before || (!before.is_empty() && path.starts_with(before)) {
        return Err(reader.error("subtries out of order"));
    }
    let hash = reader.b256()?;
    Ok((path, Root { kind, hash }))
}

impl References {
    /// Decodes a whole payload: the block as [`encode_block`] encodes it, then what [`encode_subtries`] does.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let block = BlockId::new(reader.u64()?, reader.b256()?);
        let after = reader.u64()?;
        if after >= block.number {
            return Err(reader.error("references of no block"));
        }
        let count = reader.count(SUBTRIE_BYTES_MIN)?;
        let mut subtries = Vec::with_capacity(count);
        let mut before = Path::EMPTY;
        for _ in 0..count {
            let subtrie = take_subtrie(&mut reader, &before)?;
            before = subtrie.0;
            subtries.push(subtrie);
        }
        reader.finish()?;
        Ok(Self {
            block,
            after,
            subtries,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{hex, keccak256};

    fn sample() -> References {
        let account = Path::account(&keccak256(b"account"));
        let mut paths: Vec<_> = (1..6_u8)
            .map(|at| Path::account(&keccak256([at])).prefix(3 + usize::from(at)))
            .collect();
        paths.extend([3, 9].map(|nibble| account.child(nibble)));
        paths.sort_unstable();
        References {
            block: BlockId::new(7, B256::repeat_byte(3)),
            after: 4,
            subtries: paths
                .into_iter()
                .zip([NodeKind::Branch, NodeKind::Leaf, NodeKind::Extension].repeat(3))
                .map(|(path, kind)| (path, root(kind, keccak256(path.packed()))))
                .collect(),
        }
    }

    fn root(kind: NodeKind, hash: B256) -> Root {
        Root { kind, hash }
    }

    fn encoded(references: &References) -> Vec<u8> {
        let body = encode_subtries(references.after, &references.subtries);
        [&encode_block(references.block)[..], &body].concat()
    }

    #[test]
    fn references_survive_encoding_and_every_cut_is_refused() {
        let references = sample();
        let mut bytes = encoded(&references);
        assert_eq!(References::decode(&bytes), Ok(references));
        assert!((0..bytes.len()).all(|end| References::decode(&bytes[..end]).is_err()));
        bytes.push(0);
        assert!(References::decode(&bytes).is_err());
    }

    #[test]
    fn paths_out_of_order_within_each_other_or_too_short_are_refused() {
        let path = |nibbles: &[u8]| Path::from_nibbles(nibbles);
        let refused = |paths: &[Path]| {
            let branch = root(NodeKind::Branch, B256::ZERO);
            let subtries: Vec<_> = paths.iter().map(|path| (*path, branch)).collect();
            let (block, after) = (BlockId::new(2, B256::ZERO), 1);
            let references = References {
                block,
                after,
                subtries,
            };
            References::decode(&encoded(&references)).is_err()
        };
        assert!(!refused(&[path(&[1, 2]), path(&[1, 3])]));
        assert!(refused(&[path(&[1, 3]), path(&[1, 2])]));
        assert!(refused(&[path(&[1, 2]), path(&[1, 2])]));
        assert!(refused(&[path(&[1, 2]), path(&[1, 2, 3])]));
        assert!(refused(&[path(&[1])]));
        let mut bytes = encoded(&sample());
        // The first path shares nibbles with none.
        bytes[49] = 1;
        assert!(References::decode(&bytes).is_err());
        let mut bytes = encoded(&sample());
        bytes[49] |= IS_KIND;
        assert!(References::decode(&bytes).is_ok());
        bytes[50] |= IS_KIND;
        assert!(References::decode(&bytes).is_err());
        let mut bytes = encoded(&sample());
        // Of more subtries than follow there is no room.
        bytes[48] = 0x7f;
        assert!(References::decode(&bytes).is_err());
        let mut bytes = encoded(&sample());
        bytes[40..48].copy_from_slice(&7_u64.to_le_bytes());
        assert!(References::decode(&bytes).is_err());
    }

    /// The golden encoding. Changing it requires a new kind of record.
    #[test]
    fn the_format_is_what_it_was() {
        let references = References {
            block: BlockId::new(0x0102, B256::repeat_byte(7)),
            after: 0x0100,
            subtries: [
                (&[1, 2, 3][..], NodeKind::Branch, 1),
                (&[1, 2, 0xf, 4], NodeKind::Leaf, 2),
                (&[1, 3], NodeKind::Extension, 3),
            ]
            .into_iter()
            .map(|(path, kind, byte)| {
                (
                    Path::from_nibbles(path),
                    root(kind, B256::repeat_byte(byte)),
                )
            })
            .collect(),
        };
        let expected = [
            "0201000000000000",
            &"07".repeat(32),
            "0001000000000000",
            "03",
            "00031230",
            &"01".repeat(32),
            "8202f4",
            &"02".repeat(32),
            "018130",
            &"03".repeat(32),
        ]
        .concat();
        assert_eq!(hex::encode(encoded(&references)), expected);
    }
}
