//! Nodes on their way: hashes that the receiver can compute, or knows, are left out.
//!
//! A node is a sequence of pieces. The hash of a node that comes later in the bag, which is a child as a rule, is the
//! distance to that node; the root of an empty trie and the hash of no code are one byte. The receiver decodes the last node first,
//! hashes it, and so has the hashes for its parents.
//!
//! ```text
//!   bag     number of nodes: varint; of each node its pieces
//!   piece   literal: varint n * 4, n bytes | node: varint distance * 4 + 1 | constant: 2 or 6 | end: 3
//! ```

use crate::message::{NODE_BYTES_MIN, RequestError};
use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY, keccak256, map::HashMap};
use cambium_primitives::{Reader, put_varint};
use cambium_trie::EMPTY_ROOT;

/// RLP prefix of a string of 32 bytes.
const HASH_PREFIX: u8 = 0xa0;
/// Most bytes of a node: a branch has 532.
const NODE_BYTES_MAX: usize = 1 << 10;
/// The nodes take at most this many times the bytes of their encoding.
const GROWTH_MAX: usize = 8;

const LITERAL: u64 = 0;
const NODE: u64 = 1;
const CONSTANT: u64 = 2;
const END: u64 = 3;

const CONSTANTS: [B256; 2] = [EMPTY_ROOT, KECCAK256_EMPTY];

/// Appends the nodes.
pub(crate) fn encode(nodes: &[Bytes], out: &mut Vec<u8>) {
    let later: HashMap<B256, usize> = nodes.iter().map(keccak256).zip(0..).collect();
    put_varint(out, nodes.len() as u64);
    for (at, node) in nodes.iter().enumerate() {
        let (mut from, mut next) = (0, 0);
        while next < node.len() {
            let hash = match node[next] {
                HASH_PREFIX => node.get(next + 1..next + 33).map(B256::from_slice),
                _ => None,
            };
            let piece = hash.and_then(|hash| {
                let constant = CONSTANTS.iter().position(|constant| *constant == hash);
                let node = later.get(&hash).and_then(|to| to.checked_sub(at + 1));
                match (constant, node) {
                    (Some(which), _) => Some((which as u64) << 2 | CONSTANT),
                    (None, Some(distance)) => Some((distance as u64) << 2 | NODE),
                    (None, None) => None,
                }
            });
            let Some(piece) = piece else {
                next += 1;
                continue;
            };
            // With the prefix of the hash.
            put_literal(&node[from..=next], out);
            put_varint(out, piece);
            next += 33;
            from = next;
        }
        put_literal(&node[from..], out);
        put_varint(out, END);
    }
}

fn put_literal(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        put_varint(out, (bytes.len() as u64) << 2 | LITERAL);
        out.extend_from_slice(bytes);
    }
}

/// A piece of a node.
enum Piece<'a> {
    Literal(&'a [u8]),
    Node(usize),
    Constant(&'static B256),
}

/// Decodes nodes, which are untrusted.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Bytes>, RequestError> {
    let malformed = |what| RequestError::Rlp(alloy_rlp::Error::Custom(what));
    let mut reader = Reader::new(bytes);
    let broken = |_| malformed("a bag that is cut off");
    let count = reader.varint().map_err(broken)?;
    // Each node takes two bytes or more.
    if count > bytes.len() as u64 / 2 {
        return Err(malformed("more nodes than fit"));
    }
    let mut nodes = Vec::new();
    for _ in 0..count {
        let mut pieces = Vec::new();
        loop {
            let tag = reader.varint().map_err(broken)?;
            let rest = usize::try_from(tag >> 2).map_err(|_| malformed("a long piece"))?;
            pieces.push(match tag & 3 {
                LITERAL => Piece::Literal(reader.take(rest).map_err(broken)?),
                NODE => Piece::Node(rest),
                CONSTANT => {
                    let constant = CONSTANTS.get(rest);
                    Piece::Constant(constant.ok_or_else(|| malformed("no such constant"))?)
                }
                _ if rest == 0 => break,
                _ => return Err(malformed("no such piece")),
            });
        }
        nodes.push(pieces);
    }
    let end = reader.finish();
    end.map_err(|_| malformed("bytes after the last node"))?;
    let mut left = GROWTH_MAX * bytes.len();
    // The last one first.
    let mut decoded: Vec<(Bytes, B256)> = Vec::with_capacity(nodes.len());
    for pieces in nodes.into_iter().rev() {
        let mut node = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Literal(bytes) => node.extend_from_slice(bytes),
                Piece::Constant(hash) => node.extend_from_slice(&hash.0),
                Piece::Node(distance) => {
                    let at = decoded.len().checked_sub(distance + 1);
                    let (_, hash) = &decoded[at.ok_or_else(|| malformed("no such node"))?];
                    node.extend_from_slice(&hash.0);
                }
            }
            if node.len() > NODE_BYTES_MAX {
                return Err(malformed("a long node"));
            }
        }
        if node.len() < NODE_BYTES_MIN {
            return Err(malformed("a node that is inside its parent"));
        }
        left = left
            .checked_sub(node.len())
            .ok_or_else(|| malformed("nodes of far more bytes than their encoding"))?;
        let hash = keccak256(&node);
        decoded.push((node.into(), hash));
    }
    Ok(decoded.into_iter().rev().map(|(node, _)| node).collect())
}
