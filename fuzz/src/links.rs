//! Nodes that name each other by hash, out of bytes that don't know the hashes yet.

use alloy_primitives::{B256, Bytes, keccak256};

/// What stands in a node for the hash of another: these four bytes, 27 of any kind, and the other's
/// number.
const MARK: [u8; 4] = [0xfe, 0xed, 0xfa, 0xce];

/// What stands for the hash of node `number`.
pub(crate) fn mark(number: usize) -> B256 {
    let mut mark = B256::ZERO;
    mark[..4].copy_from_slice(&MARK);
    mark[31] = u8::try_from(number).expect("few nodes");
    mark
}

/// Puts hashes where marks are. A node can name only those that come after it.
pub(crate) fn linked(mut nodes: Vec<Vec<u8>>) -> Vec<Bytes> {
    let mut hashes = vec![B256::ZERO; nodes.len()];
    for number in (0..nodes.len()).rev() {
        let node = &mut nodes[number];
        let mut at = 0;
        while at + 32 <= node.len() {
            let named = usize::from(node[at + 31]);
            if node[at..at + 4] == MARK && named > number && named < hashes.len() {
                node[at..at + 32].copy_from_slice(hashes[named].as_slice());
                at += 32;
            } else {
                at += 1;
            }
        }
        hashes[number] = keccak256(node);
    }
    nodes.into_iter().map(Bytes::from).collect()
}

/// The other way round, for seeds: nodes in an order in which each names only later ones, the first
/// of them the one of hash `root`.
pub(crate) fn unlinked(root: B256, nodes: &[Bytes]) -> Vec<Vec<u8>> {
    let mut order: Vec<(B256, Vec<u8>)> = Vec::new();
    let mut next = vec![root];
    // A node that is named twice comes after the last that names it.
    while let Some(hash) = next.pop() {
        let Some(node) = nodes.iter().find(|node| keccak256(node) == hash) else {
            continue;
        };
        order.retain(|(other, _)| *other != hash);
        order.push((hash, node.to_vec()));
        let named = |other: &&Bytes| {
            let hash = keccak256(other);
            node.windows(32).any(|window| window == hash.as_slice())
        };
        next.extend(nodes.iter().filter(named).map(keccak256));
    }
    let hashes: Vec<_> = order.iter().map(|(hash, _)| *hash).collect();
    let mut unlinked: Vec<_> = order.into_iter().map(|(_, node)| node).collect();
    for (number, node) in unlinked.iter_mut().enumerate() {
        for at in 0..node.len().saturating_sub(31) {
            let found = hashes.iter().position(|hash| hash[..] == node[at..at + 32]);
            if let Some(named) = found.filter(|named| *named > number) {
                node[at..at + 32].copy_from_slice(mark(named).as_slice());
            }
        }
    }
    unlinked
}
