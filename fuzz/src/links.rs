//! Trie nodes that refer to each other by hash, from bytes in which the hashes are not known yet.

use alloy_primitives::{B256, Bytes, keccak256};

/// Start of a mark, which stands for the hash of another node: these four bytes, 27 arbitrary ones,
/// and the number of the other node.
const MARK: [u8; 4] = [0xfe, 0xed, 0xfa, 0xce];

/// Returns the mark for the hash of node `number`.
pub(crate) fn mark(number: usize) -> B256 {
    let mut mark = B256::ZERO;
    mark[..4].copy_from_slice(&MARK);
    mark[31] = u8::try_from(number).expect("few nodes");
    mark
}

/// Replaces marks by hashes. A node can refer only to later ones.
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

/// The inverse of [`linked`], for seeds: replaces hashes by marks, and sorts the nodes so that each
/// refers to later ones only. The first one has the hash `root`.
pub(crate) fn unlinked(root: B256, nodes: &[Bytes]) -> Vec<Vec<u8>> {
    let mut order: Vec<(B256, Vec<u8>)> = Vec::new();
    let mut next = vec![root];
    // A node with several references comes after the last node that refers to it.
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
