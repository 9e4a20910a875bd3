//! The blocks of which a shard has versions.

use crate::{bag::ReadError, top::Top};
use alloy_consensus::Header;
use alloy_primitives::{B256, map::HashMap};
use cambium_primitives::BlockId;
use cambium_trie::Version;

/// Versions of the subtries of one block.
pub(super) type Versions = Vec<Version>;

/// A block's version of each subtrie.
#[derive(Debug)]
pub(super) struct BlockVersion {
    pub(super) id: BlockId,
    pub(super) header: Header,
    pub(super) top: Top,
    pub(super) versions: Versions,
    /// Hashes of the codes of accounts that the block puts.
    pub(super) codes: Vec<B256>,
}

/// A tree of blocks. All descend from the oldest one.
#[derive(Debug)]
pub(super) struct Known {
    blocks: HashMap<B256, BlockVersion>,
    oldest: BlockId,
}

/// What a shard has, and what it has done since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardStats {
    /// The oldest block of which it has the state.
    pub oldest: BlockId,
    /// The block with the highest number; of several, the one with the lowest hash.
    pub newest: BlockId,
    /// Timestamp of the newest block, in seconds since 1970.
    pub newest_timestamp: u64,
    /// Number of blocks of which it has the state.
    pub versions: usize,
    /// Number of nodes of all versions.
    pub nodes: usize,
    /// Bytes of memory of nodes and lists.
    pub memory_bytes: usize,
    /// Of these, without memory that was freed and is used again: what the limit of bytes is about.
    pub live_bytes: usize,
    /// Number of codes, whose bytes are part of the memory.
    pub codes: usize,
    /// Updates applied, or known already.
    pub updates: u64,
    /// Updates refused.
    pub refused: u64,
    /// Requests answered.
    pub reads: u64,
    /// Accounts and slots that they asked for.
    pub keys: u64,
    /// Bytes of nodes and codes that they were answered with.
    pub bag_bytes: u64,
}

impl Known {
    pub(super) fn new(first: BlockVersion) -> Self {
        let oldest = first.id;
        Self {
            blocks: std::iter::once((oldest.hash, first)).collect(),
            oldest,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) const fn oldest(&self) -> BlockId {
        self.oldest
    }

    /// The block with the highest number, and its timestamp.
    pub(super) fn newest(&self) -> (BlockId, u64) {
        let blocks = self.blocks.values();
        let newest = blocks.max_by_key(|block| (block.id.number, std::cmp::Reverse(block.id.hash)));
        newest.map_or((self.oldest, 0), |block| (block.id, block.header.timestamp))
    }

    pub(super) fn get(&self, hash: &B256) -> Option<&BlockVersion> {
        self.blocks.get(hash)
    }

    /// The version that a read names.
    pub(super) fn find(&self, block: BlockId) -> Result<&BlockVersion, ReadError> {
        let oldest = self.oldest;
        match self.blocks.get(&block.hash) {
            Some(version) if version.id == block => Ok(version),
            _ if block.number <= oldest.number => Err(ReadError::Gone { block, oldest }),
            _ => Err(ReadError::NotYet(block)),
        }
    }

    pub(super) fn insert(&mut self, version: BlockVersion) {
        self.blocks.insert(version.id.hash, version);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let versions = self.blocks.values().flat_map(|block| &block.versions);
        versions.map(Version::memory_bytes).sum()
    }

    fn children(&self, hash: &B256) -> impl Iterator<Item = B256> {
        let blocks = self.blocks.values();
        blocks
            .filter(move |block| block.header.parent_hash == *hash)
            .map(|block| block.id.hash)
    }

    /// The hashes from the child of the oldest block to the block `hash`, which is known.
    pub(super) fn path_to(&self, hash: &B256) -> Vec<B256> {
        let mut path = Vec::new();
        let mut at = *hash;
        while at != self.oldest.hash {
            path.push(at);
            at = self.blocks[&at].header.parent_hash;
        }
        path.reverse();
        path
    }

    /// The children of the oldest block but this one.
    pub(super) fn children_but(&self, kept: &B256) -> Vec<B256> {
        let children = self.children(&self.oldest.hash);
        children.filter(|child| child != kept).collect()
    }

    /// Takes out a block and all that descend from it, parents first.
    pub(super) fn take_with_descendants(&mut self, hash: B256) -> Vec<BlockVersion> {
        let mut hashes = vec![hash];
        let mut next = 0;
        while let Some(hash) = hashes.get(next).copied() {
            hashes.extend(self.children(&hash));
            next += 1;
        }
        let taken = hashes.iter().filter_map(|hash| self.blocks.remove(hash));
        taken.collect()
    }

    /// Makes the only child of the oldest block the oldest one. Returns the versions of both.
    pub(super) fn retire(&mut self, child: &B256) -> (Versions, &mut Versions) {
        let before = self.blocks.remove(&self.oldest.hash);
        let before = before.expect("the oldest block is known");
        let child = self.blocks.get_mut(child).expect("its child is known");
        self.oldest = child.id;
        (before.versions, &mut child.versions)
    }
}

/// What keeps old versions.
#[derive(Debug, Default)]
pub(super) struct Pins {
    pub(super) count: usize,
    /// The newest block that was finalized meanwhile.
    pub(super) finalized: Option<BlockId>,
}

impl Pins {
    /// Whether a block that is known is the newest final one, or descends from it.
    pub(super) fn has(&self, known: &Known, hash: &B256) -> bool {
        self.finalized
            .is_none_or(|last| last.hash == *hash || known.path_to(hash).contains(&last.hash))
    }
}
