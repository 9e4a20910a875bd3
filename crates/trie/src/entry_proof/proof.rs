//! A proof of entries, and its encoding.

use crate::{binary_proof::BinaryProof, multiproof::MultiProof, upper::LayeredRoots};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::Bytes;
use cambium_keccak::Batch;
use cambium_primitives::{DecodeError, Reader, put_varint};

/// Largest encoded proof, in bytes.
pub const ENTRY_PROOF_BYTES_MAX: usize = 1 << 30;

/// A proof of entries of a key-value database, of a range of them, or of reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryProof {
    /// Nodes of a Merkle Patricia trie.
    Mpt(MultiProof),
    /// Part of a binary trie.
    Binary(BinaryProof),
    /// Nodes of the three tries of the `layered` commitment.
    Layered(Box<LayeredEntryProof>),
}

/// A proof of entries under the `layered` commitment: nodes of three Merkle Patricia tries. A trie in
/// which nothing has to be looked up has no nodes here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayeredEntryProof {
    /// The roots of the tries, to which the root of the database commits.
    pub roots: LayeredRoots,
    /// Nodes of the delta, on the paths of all keys.
    pub delta: MultiProof,
    /// Nodes of the intermediate trie, on the paths of keys that the delta does not have. Of a range, all are on paths
    /// of all tries.
    pub intermediate: MultiProof,
    /// Nodes of the snapshot, on the paths of the rest.
    pub snapshot: MultiProof,
}

/// First byte of an encoded proof.
const MPT: u8 = 1;
const BINARY: u8 = 2;
const LAYERED: u8 = 3;
/// Nodes that are hashed at once to check their order.
const BATCH_NODES: usize = 512;

impl EntryProof {
    /// Returns the encoding.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | 1: nodes of a Merkle Patricia trie |
    /// | 1 | V | number of nodes, LEB128 |
    /// | ... | V + L each | length in LEB128, and RLP, of each node; sorted by Keccak-256 hash, unique |
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | 2: part of a binary trie |
    /// | 1 | L | the part, as [`BinaryProof::encode_to`] encodes it |
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | 3: nodes of the three tries of `layered` |
    /// | 1 | 96 | roots of delta, intermediate trie and snapshot |
    /// | 97 | N | nodes of the delta: number, and each node, as above |
    /// | ... | N | nodes of the intermediate trie |
    /// | ... | N | nodes of the snapshot |
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Mpt(proof) => {
                out.push(MPT);
                encode_nodes(proof, &mut out);
            }
            Self::Binary(proof) => {
                out.push(BINARY);
                proof.encode_to(&mut out);
            }
            Self::Layered(proof) => {
                out.push(LAYERED);
                let LayeredRoots {
                    delta,
                    intermediate,
                    snapshot,
                } = proof.roots;
                for root in [delta, intermediate, snapshot] {
                    out.extend_from_slice(root.as_slice());
                }
                for nodes in [&proof.delta, &proof.intermediate, &proof.snapshot] {
                    encode_nodes(nodes, &mut out);
                }
            }
        }
        out
    }

    /// Decodes a proof from exactly `bytes`, which are untrusted.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not the encoding of a proof, or are over [`ENTRY_PROOF_BYTES_MAX`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if bytes.len() > ENTRY_PROOF_BYTES_MAX {
            return Err(reader.error("a proof over 1 GiB"));
        }
        match reader.u8()? {
            MPT => {
                let nodes = decode_nodes(&mut reader)?;
                reader.finish()?;
                Ok(Self::Mpt(MultiProof { nodes }))
            }
            BINARY => BinaryProof::decode(&bytes[1..])
                .map(Self::Binary)
                .map_err(|error| DecodeError {
                    offset: error.offset + 1,
                    ..error
                }),
            LAYERED => {
                let roots = LayeredRoots {
                    delta: reader.b256()?,
                    intermediate: reader.b256()?,
                    snapshot: reader.b256()?,
                };
                let mut nodes = || decode_nodes(&mut reader).map(|nodes| MultiProof { nodes });
                let proof = LayeredEntryProof {
                    roots,
                    delta: nodes()?,
                    intermediate: nodes()?,
                    snapshot: nodes()?,
                };
                reader.finish()?;
                Ok(Self::Layered(Box::new(proof)))
            }
            _ => Err(reader.error("unknown kind of proof")),
        }
    }

    /// Returns `mpt`, `binary` or `layered`.
    pub(super) const fn commitment_name(&self) -> &'static str {
        match self {
            Self::Mpt(_) => "mpt",
            Self::Binary(_) => "binary",
            Self::Layered(_) => "layered",
        }
    }
}

/// Least number of bytes of a node that its parent refers to by its hash.
const MIN_NODE_BYTES: usize = 32;

fn encode_nodes(proof: &MultiProof, out: &mut Vec<u8>) {
    put_varint(out, proof.nodes.len() as u64);
    for node in &proof.nodes {
        put_varint(out, node.len() as u64);
        out.extend_from_slice(node);
    }
}

/// Reads nodes. They are checked in groups, so that the memory for the nodes after a wrong one is not taken.
fn decode_nodes(reader: &mut Reader<'_>) -> Result<Vec<Bytes>, DecodeError> {
    let count = reader.count(2)?;
    // A node of under 32 bytes is a part of its parent, unless it is the root.
    let mut nodes = Vec::with_capacity(count.min(reader.remaining() / (MIN_NODE_BYTES + 1) + 1));
    let (mut batch, mut before, mut short) = (Batch::new(), None, 0);
    while nodes.len() < count {
        batch.clear();
        for _ in nodes.len()..count.min(nodes.len() + BATCH_NODES) {
            let len = reader.count(1)?;
            if len == 0 {
                return Err(reader.error("a node without bytes"));
            }
            short += usize::from(len < MIN_NODE_BYTES);
            if short > 1 {
                return Err(reader.error("a node that is a part of its parent"));
            }
            let node = reader.take(len)?;
            batch.push(node);
            nodes.push(Bytes::copy_from_slice(node));
        }
        for hash in batch.run() {
            if before >= Some(*hash) {
                return Err(reader.error("nodes are not sorted by hash and unique"));
            }
            before = Some(*hash);
        }
    }
    Ok(nodes)
}
