//! Builders and records for the tests of the replication.

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use cambium_cluster::{
    BlockUpdate, BuilderKeys, Record, SignedUpdate, Signer, StreamFault, StreamItem, StreamPosition,
};
use cambium_primitives::{BlockId, Changes};
use cambium_seeds::Random;

pub const CHAIN: u64 = 1337;

pub fn signer(number: u8) -> Signer {
    Signer::new(CHAIN, [number; 32]).unwrap()
}

/// The keys of builders 1 and 2.
pub fn keys() -> BuilderKeys {
    BuilderKeys {
        chain_id: CHAIN,
        keys: vec![signer(1).address(), signer(2).address()],
    }
}

/// An update that changes nothing. `salt` tells it from others on the same parent.
pub fn bare_update(parent: BlockId, salt: u64) -> BlockUpdate {
    BlockUpdate {
        header: Header {
            parent_hash: parent.hash,
            number: parent.number + 1,
            timestamp: salt,
            ..Header::default()
        },
        changes: Changes::new(Vec::new()),
        codes: Vec::new(),
        storage_roots: Vec::new(),
        top: Vec::new(),
        body: Bytes::new(),
    }
}

/// The block on which bare updates begin.
pub fn first_block() -> BlockId {
    BlockId::new(100, B256::repeat_byte(7))
}

/// Updates, each on the one before.
pub fn chain_of(signer: &Signer, epoch: u64, parent: BlockId, length: u64) -> Vec<SignedUpdate> {
    let mut updates = Vec::<SignedUpdate>::new();
    for salt in 0..length {
        let parent = updates.last().map_or(parent, SignedUpdate::id);
        updates.push(signer.sign_update(epoch, bare_update(parent, salt)));
    }
    updates
}

pub fn bytes_of(update: &SignedUpdate) -> Bytes {
    Record::from(update.clone()).encode().into()
}

pub fn item(position: u64, record: impl Into<Bytes>) -> StreamItem {
    StreamItem::new(StreamPosition(position), record.into())
}

/// What an append meets, of `percent` of a hundred.
pub fn fault(random: &mut Random, percent: u64) -> Option<StreamFault> {
    random.percent(percent).then(|| match random.below(7) {
        0 => StreamFault::Lost,
        1 => StreamFault::NoAnswer,
        2 => StreamFault::FalseDuplicate,
        3 => StreamFault::AnsweredTwice,
        4 => StreamFault::Damaged(random.below(10_000) as usize),
        5 => StreamFault::Full,
        _ => StreamFault::Unreadable,
    })
}
