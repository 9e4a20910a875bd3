//! A database as people look at it: its layers, what the last merge wrote, its pages as a map, and the way of a read.

use crate::{
    db::{handle::Db, stats::Merging},
    engine::merging::LastMerge,
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, BlockId, BlockNumber};
use cambium_snapshot::{MapPage, ReadStep, StateError};
use cambium_store::SegmentStats;
use cambium_trie::SHARDS;

/// A block above the state that is in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerOfBlock {
    /// The block.
    pub block: BlockId,
    /// Accounts that it changed, or whose slots it did.
    pub accounts: usize,
    /// Slots that it changed.
    pub slots: usize,
    /// Memory of the layer without its tries, in bytes.
    pub bytes: usize,
}

/// The three layers of a state: blocks in memory, blocks that are being merged, pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Layering {
    /// The newest block of the canonical chain.
    pub head: BlockId,
    /// Blocks above the state that is being merged, or in pages: the newest first.
    pub layers: Vec<LayerOfBlock>,
    /// Whether there are more of them.
    pub has_more: bool,
    /// The merge under way, with the newest block that it merges.
    pub merging: Option<(BlockId, Merging)>,
    /// The newest block whose state is in pages.
    pub snapshot: BlockId,
    /// The last merge of this process.
    pub last_merge: Option<LastMerge>,
}

/// The way of a read at the head, whole: also what it leaves out since an earlier step has the value.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadWay<V> {
    /// Blocks in memory above the pages.
    pub layers: usize,
    /// The newest of them that changed the key.
    pub found_in: Option<BlockNumber>,
    /// What comes below the layers.
    pub steps: Vec<ReadStep>,
    /// The value at the head.
    pub value: V,
}

impl Db {
    /// The layers of the state: of the newest blocks `most`.
    pub fn layering(&self, most: usize) -> Layering {
        // Before the lock, which it takes as well.
        let merging = self.stats().ok().and_then(|stats| stats.merging);
        let current = self.inner.layers.current.read();
        let (tree, base) = (&current.tree, &current.base);
        let root = tree.root().id;
        let mut chain = tree.chain(tree.head().id).filter(|layer| layer.id != root);
        let layers = chain.by_ref().take(most).map(|layer| {
            let (accounts, slots) = layer.changes.counts();
            LayerOfBlock {
                block: layer.block,
                accounts,
                slots,
                bytes: layer.bytes(),
            }
        });
        let layers = layers.collect();
        let middle = base.intermediate.as_ref();
        Layering {
            head: tree.head().block,
            layers,
            has_more: chain.next().is_some(),
            merging: middle.and_then(|middle| Some((middle.block, merging?))),
            snapshot: base.snapshot.block,
            last_merge: self.inner.merging.last(),
        }
    }

    /// The number of pages in each of the 256 parts of the state: that of the keys that begin with a byte.
    pub fn pages_by_shard(&self) -> Vec<u64> {
        let base = self.inner.layers.current.read().base.clone();
        let index = &base.snapshot.index;
        (0..SHARDS).map(|shard| index.pages_of(shard)).collect()
    }

    /// The pages of one of these parts, in the order of their paths, at most `most`, and whether there are more.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index can't be read.
    ///
    /// # Panics
    ///
    /// If `shard` is over 255.
    pub fn pages_of_shard(
        &self,
        shard: usize,
        most: usize,
    ) -> Result<(Vec<MapPage>, bool), StateError> {
        assert!(shard < SHARDS, "there is no shard {shard}");
        let base = self.inner.layers.current.read().base.clone();
        base.snapshot.pages_of(shard, most)
    }

    /// The files of pages: how much is in each, and how much of that is in use.
    pub fn segments(&self) -> Vec<SegmentStats> {
        self.inner.store.pages.segments.live()
    }

    /// The way of a read of the account at keccak(address).
    ///
    /// # Errors
    ///
    /// As [`View::account`](crate::View::account).
    pub fn walk_account(&self, path: &B256) -> Result<ReadWay<Option<Account>>, StateError> {
        let view = self.view()?;
        let (steps, below) = view.base.snapshot.walk(path)?;
        let (layers, found_in) = self.newest_change(path, None);
        Ok(ReadWay {
            layers,
            found_in,
            steps,
            value: view.account_above(path).unwrap_or(below),
        })
    }

    /// The way of a read of the slot at keccak(slot) of the account at keccak(address).
    ///
    /// # Errors
    ///
    /// As [`View::slot`](crate::View::slot).
    pub fn walk_slot(&self, account: &B256, slot: &B256) -> Result<ReadWay<U256>, StateError> {
        let view = self.view()?;
        self.inner.check_storage_kept(account)?;
        let (steps, below) = view.base.snapshot.walk(&(*account, *slot))?;
        let (layers, found_in) = self.newest_change(account, Some(slot));
        Ok(ReadWay {
            layers,
            found_in,
            steps,
            value: view.slot_above(account, slot).unwrap_or(below),
        })
    }

    /// The number of layers that are not being merged, and the newest block among them that changed a key.
    fn newest_change(&self, account: &B256, slot: Option<&B256>) -> (usize, Option<BlockNumber>) {
        let current = self.inner.layers.current.read();
        let tree = &current.tree;
        let root = tree.root().id;
        let (mut count, mut found) = (0, None);
        for layer in tree.chain(tree.head().id).filter(|layer| layer.id != root) {
            count += 1;
            if found.is_some() {
                continue;
            }
            let accounts = layer.changes.accounts();
            let at = accounts.binary_search_by_key(account, |change| change.path);
            let change = at.ok().map(|at| &accounts[at]);
            let has_changed = change.is_some_and(|change| match slot {
                None => change.account != cambium_primitives::AccountUpdate::Keep,
                Some(slot) => change.wipe || change.slots.iter().any(|(key, _)| key == slot),
            });
            if has_changed {
                found = Some(layer.block.number);
            }
        }
        (count, found)
    }
}
