//! What a block tells the shards.

use crate::{
    message::{NODE_BYTES_MIN, RequestError, decode_items},
    top::NODES_MAX,
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use alloy_rlp::{Decodable, Encodable, Header as RlpHeader};
use cambium_primitives::{BlockId, Changes};

/// Most bytes of an encoded update: a block of a billion gas changes less.
pub(crate) const UPDATE_BYTES_MAX: usize = 256 << 20;

/// A block's header, with all that it changes. Whoever applies it verifies changes and top nodes against the header, that against
/// the name by which the block is known, and codes against the accounts that have them. A code that no account has is not
/// looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUpdate {
    /// The block's header.
    pub header: Header,
    /// Accounts and slots that the block changes.
    pub changes: Changes,
    /// Codes that accounts have from this block on, in any order.
    pub codes: Vec<Bytes>,
    /// New storage roots of accounts whose slots change, sorted by path: for those who do not keep these slots, and verify them
    /// against the accounts. Shards compute their own.
    pub storage_roots: Vec<(B256, B256)>,
    /// The nodes of the state trie after the block that are above the shards, parents first.
    pub top: Vec<Bytes>,
    /// What the block's RLP has after its header: transactions, ommers, withdrawals. Empty if the builder leaves it out. Shards pass it
    /// on; a database that follows the stream verifies it against the header and keeps it.
    pub body: Bytes,
}

/// An encoded update is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// It is longer than any update.
    #[error("an update of {0} bytes: at most {UPDATE_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// The RLP of its parts is malformed.
    #[error("malformed update: {0}")]
    Rlp(#[from] alloy_rlp::Error),
    /// It has more of something than there can be.
    #[error("an update: {0}")]
    Items(#[from] RequestError),
    /// Its changes are malformed.
    #[error("malformed changes in an update: {0}")]
    Changes(String),
}

impl BlockUpdate {
    /// Number and hash of the block.
    pub fn id(&self) -> BlockId {
        BlockId::new(self.header.number, self.header.hash_slow())
    }

    /// The update as RLP: a list of the header, the changes as in the block log, the codes, the storage roots, one after
    /// another with their accounts, the top nodes, and the body.
    pub fn encode(&self) -> Vec<u8> {
        let changes = Bytes::from(self.changes.encode());
        let roots: Vec<B256> = self
            .storage_roots
            .iter()
            .flat_map(|(account, root)| [*account, *root])
            .collect();
        let length = self.header.length()
            + changes.length()
            + self.codes.length()
            + roots.length()
            + self.top.length()
            + self.body.length();
        let mut out = Vec::with_capacity(length + 9);
        RlpHeader {
            list: true,
            payload_length: length,
        }
        .encode(&mut out);
        self.header.encode(&mut out);
        changes.encode(&mut out);
        self.codes.encode(&mut out);
        roots.encode(&mut out);
        self.top.encode(&mut out);
        self.body.encode(&mut out);
        out
    }

    /// The whole block as RLP, if the update has its body.
    pub fn block_rlp(&self) -> Option<Bytes> {
        if self.body.is_empty() {
            return None;
        }
        let mut out = Vec::new();
        RlpHeader {
            list: true,
            payload_length: self.header.length() + self.body.len(),
        }
        .encode(&mut out);
        self.header.encode(&mut out);
        out.extend_from_slice(&self.body);
        Some(out.into())
    }

    /// Decodes an update, which is untrusted.
    ///
    /// # Errors
    ///
    /// If it is malformed or too long.
    pub fn decode(bytes: &[u8]) -> Result<Self, UpdateError> {
        if bytes.len() > UPDATE_BYTES_MAX {
            return Err(UpdateError::TooLong(bytes.len()));
        }
        let mut rest = bytes;
        let mut parts = RlpHeader::decode_bytes(&mut rest, true)?;
        if !rest.is_empty() {
            return Err(alloy_rlp::Error::UnexpectedLength.into());
        }
        let header = Header::decode(&mut parts)?;
        let changes = RlpHeader::decode_bytes(&mut parts, false)?;
        let changes =
            Changes::decode(changes).map_err(|error| UpdateError::Changes(error.to_string()))?;
        let codes = decode_items(&mut parts, "codes", 1, changes.accounts().len())?;
        let roots = Vec::<B256>::decode(&mut parts)?;
        let top = decode_items(
            &mut parts,
            "nodes above the shards",
            NODE_BYTES_MIN,
            NODES_MAX,
        )?;
        let body = Bytes::decode(&mut parts)?;
        if !parts.is_empty() || !roots.len().is_multiple_of(2) {
            return Err(alloy_rlp::Error::UnexpectedLength.into());
        }
        Ok(Self {
            header,
            changes,
            codes,
            storage_roots: roots
                .chunks_exact(2)
                .map(|pair| (pair[0], pair[1]))
                .collect(),
            top,
            body,
        })
    }
}

/// What a block's RLP has after its header.
pub(crate) fn body_of(block_rlp: &[u8]) -> Result<Bytes, alloy_rlp::Error> {
    let mut rest = block_rlp;
    let mut parts = RlpHeader::decode_bytes(&mut rest, true)?;
    RlpHeader::decode_bytes(&mut parts, true)?;
    Ok(Bytes::copy_from_slice(parts))
}
