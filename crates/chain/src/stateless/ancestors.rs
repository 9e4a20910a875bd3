//! The headers of a witness: the parent, and the hashes of ancestors.

use super::witness::{
    CODE_BYTES_MAX, HEADER_BYTES_MAX, HEADERS_MAX, NODE_BYTES_MAX, StatelessError,
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, keccak256, map::HashMap};
use cambium_primitives::BlockNumber;
use cambium_trie::Witness;

/// Ancestors of a block in its witness.
pub(super) struct Ancestors {
    pub(super) parent: Header,
    pub(super) hashes: HashMap<BlockNumber, Ancestor>,
}

/// The hash of an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ancestor {
    pub(super) hash: B256,
    /// Whether its own header is in the witness. Its hash may be known from its child alone.
    pub(super) has_header: bool,
}

impl Ancestors {
    /// The ancestors in a list that is a chain as EIP-8025 wants it. The lists of the witness are within the EIP's
    /// sizes.
    pub(super) fn in_order(witness: &Witness, block: &Header) -> Result<Self, StatelessError> {
        let headers = &witness.headers;
        let count = headers.len();
        if count > HEADERS_MAX {
            return Err(StatelessError::TooManyHeaders { count });
        }
        check_sizes("header", headers, HEADER_BYTES_MAX)?;
        check_sizes("code", &witness.codes, CODE_BYTES_MAX)?;
        check_sizes("node", &witness.state, NODE_BYTES_MAX)?;
        let decoded = decode(headers)?;
        let listed: Vec<B256> = headers.iter().map(keccak256).collect();
        let parents = decoded
            .iter()
            .chain([block])
            .map(|header| header.parent_hash);
        for (index, (parent, before)) in (1..).zip(parents.skip(1).zip(&listed)) {
            if parent != *before {
                // The block's parent is not there at all.
                if index == count && !listed.contains(&parent) {
                    return Err(StatelessError::NoParent(parent));
                }
                return Err(StatelessError::HeaderOrder {
                    index,
                    count,
                    parent,
                    before: *before,
                });
            }
        }
        let parent = decoded.into_iter().next_back();
        let parent = parent.ok_or(StatelessError::NoParent(block.parent_hash))?;
        let numbers = (0..block.number).rev();
        let has_header = true;
        let newest_first = listed.into_iter().rev();
        let hashes = numbers.zip(newest_first.map(|hash| Ancestor { hash, has_header }));
        Ok(Self {
            parent,
            hashes: hashes.collect(),
        })
    }

    /// Links the headers of a list in any order, each the parent of another, down from the block's.
    pub(super) fn linked(headers: &[Bytes], block: &Header) -> Result<Self, StatelessError> {
        let listed = headers.iter().map(keccak256);
        let mut by_hash: HashMap<B256, Header> = listed.zip(decode(headers)?).collect();
        let parent = by_hash.get(&block.parent_hash).cloned();
        let parent = parent.ok_or(StatelessError::NoParent(block.parent_hash))?;
        let mut hashes = HashMap::default();
        let mut hash = block.parent_hash;
        // Removing headers prevents endless loops.
        for number in (0..block.number).rev() {
            let header = by_hash.remove(&hash);
            let has_header = header.is_some();
            hashes.insert(number, Ancestor { hash, has_header });
            match header {
                Some(header) => hash = header.parent_hash,
                None => break,
            }
        }
        Ok(Self { parent, hashes })
    }
}

fn check_sizes(what: &'static str, list: &[Bytes], max: usize) -> Result<(), StatelessError> {
    let mut sizes = list.iter().map(|item| item.len()).enumerate();
    match sizes.find(|(_, bytes)| *bytes > max) {
        None => Ok(()),
        Some((index, bytes)) => Err(StatelessError::TooLong {
            what,
            index,
            bytes,
            max,
        }),
    }
}

fn decode(headers: &[Bytes]) -> Result<Vec<Header>, StatelessError> {
    let decoded = headers.iter().enumerate().map(|(index, rlp)| {
        alloy_rlp::decode_exact(rlp).map_err(|source| StatelessError::Header { index, source })
    });
    decoded.collect()
}
