//! RLP as a tree.

use alloc::vec::Vec;

/// An item of RLP.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Item(Vec<u8>),
    List(Vec<Node>),
}

impl Node {
    pub(super) fn parse(bytes: &mut &[u8]) -> Self {
        let header = alloy_rlp::Header::decode(bytes).expect("RLP");
        let (mut payload, rest) = bytes.split_at(header.payload_length);
        *bytes = rest;
        if !header.list {
            return Self::Item(payload.to_vec());
        }
        let mut items = Vec::new();
        while !payload.is_empty() {
            items.push(Self::parse(&mut payload));
        }
        Self::List(items)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Item(bytes) => alloy_rlp::encode(&bytes[..]),
            Self::List(items) => {
                let payload: Vec<u8> = items.iter().flat_map(Self::encode).collect();
                let header = alloy_rlp::Header {
                    list: true,
                    payload_length: payload.len(),
                };
                let mut out = Vec::new();
                header.encode(&mut out);
                out.extend(payload);
                out
            }
        }
    }

    /// How many lists there are, this one and in it.
    pub(super) fn lists(&self) -> usize {
        match self {
            Self::Item(_) => 0,
            Self::List(items) => 1 + items.iter().map(Self::lists).sum::<usize>(),
        }
    }

    /// The items of the list that has `left` lists before it.
    pub(super) fn list(&mut self, left: &mut usize) -> Option<&mut Vec<Node>> {
        let Self::List(items) = self else { return None };
        if *left == 0 {
            return Some(items);
        }
        *left -= 1;
        items.iter_mut().find_map(|item| item.list(left))
    }
}
