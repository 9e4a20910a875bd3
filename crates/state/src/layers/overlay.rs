//! Values newer than the snapshot: each key's versions, by the layer that wrote them.
//!
//! Blocks above the base form a tree, and each block is a *layer*. An overlay holds the values
//! of many layers in one map from key to versions. A read does not walk the layers: it looks its
//! key up once and takes the newest version that an ancestor wrote.
//!
//! ```text
//!   key -> [(layer 7, value), (layer 9, value), (layer 12, value)]
//!                                    ^ a view at layer 10 takes this one
//! ```
//!
//! Layer ids grow, and a child's id is greater than its parent's. So "an ancestor of layer L" is
//! "id at most L, and not one of the few on other branches" ([`AncestorSet`]).

use alloy_primitives::{B256, U256, map::B256Map};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, EntryValue};
use cambium_snapshot::MergedChange;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::{
    collections::{BTreeSet, BinaryHeap},
    ops::{Bound, RangeBounds},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Id of a layer. Ids grow in the order in which layers are added, are unique within a process, and
/// are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LayerId(pub(crate) u64);

/// The layers that a view sees: a layer and its ancestors.
#[derive(Clone, Debug)]
pub(crate) struct AncestorSet {
    /// The newest layer of the set.
    pub(crate) newest: LayerId,
    /// Layers with lower ids that are on other branches, sorted. Nearly always empty.
    pub(crate) others: Arc<[LayerId]>,
}

impl AncestorSet {
    /// Whether the set contains `layer`.
    fn contains(&self, layer: LayerId) -> bool {
        layer <= self.newest && self.others.binary_search(&layer).is_err()
    }
}

/// The versions of one value, in the order of their layers.
type Versions<T> = SmallVec<[(LayerId, T); 1]>;

/// Content of a leaf of 64 nibbles: the fields of an account, or the value of an entry.
#[derive(Clone, Debug)]
enum Leaf {
    Account(Account),
    Entry(EntryValue),
}

/// All versions of one account and of its slots, or of one entry of a key-value database.
#[derive(Default)]
struct Entry {
    leaf: Versions<Option<Leaf>>,
    storage: Option<Box<Storage>>,
}

/// All versions of one account's slots.
#[derive(Default)]
struct Storage {
    slots: B256Map<Versions<U256>>,
    /// Layers that cleared the storage before they set slots.
    wipes: SmallVec<[LayerId; 1]>,
}

impl Storage {
    /// The newest visible layer that cleared the storage.
    fn newest_wipe(&self, seen: &AncestorSet) -> Option<LayerId> {
        self.wipes
            .iter()
            .rev()
            .copied()
            .find(|id| seen.contains(*id))
    }

    /// The slots that visible layers wrote since the newest visible wipe, and the layer of that
    /// wipe.
    fn visible(&self, seen: &AncestorSet) -> (impl Iterator<Item = (B256, U256)>, Option<LayerId>) {
        let wipe = self.newest_wipe(seen);
        let slots = self.slots.iter().filter_map(move |(slot, versions)| {
            let (at, value) = newest(versions, seen)?;
            wipe.is_none_or(|wipe| at >= wipe)
                .then_some((*slot, *value))
        });
        (slots, wipe)
    }
}

/// An entry that a layer wrote, or deleted.
pub(crate) type EntryAbove = (B256, Option<EntryValue>);

/// An account whose fields a layer wrote, or that it deleted.
pub(crate) type AccountAbove = (B256, Option<Account>);

/// The part of the map behind one lock, by account.
type Shard = B256Map<Entry>;

/// The values of many layers, by key.
pub(crate) struct Overlay {
    shards: Box<[RwLock<Shard>]>,
    /// Keys of all entries in the shards, in order, and of accounts that a layer deleted. Locked after a
    /// shard, never before one.
    keys: RwLock<BTreeSet<B256>>,
    bytes: AtomicUsize,
}

/// Number of locks over which accounts are spread.
const SHARDS: usize = 64;
/// Memory of one version, in bytes: its share of the map, spare capacity included, and of the
/// layer's changes and reverts.
const ACCOUNT_BYTES: usize = 224 + 2 * size_of::<AccountDiff>();
const SLOT_BYTES: usize = 144 + 2 * size_of::<(B256, U256)>();

impl Overlay {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            keys: RwLock::default(),
            bytes: AtomicUsize::new(0),
        }
    }

    fn shard(&self, account: &B256) -> &RwLock<Shard> {
        &self.shards[usize::from(account[31]) % SHARDS]
    }

    /// Estimated memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether no layer has values that a view could see. The values of a layer are counted before
    /// there are views of it.
    fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Adds the values that `layer` wrote. Layers are added in the order of their ids. `extra` are
    /// the bytes that the layer takes besides its values.
    pub(crate) fn insert(&self, layer: LayerId, changes: &Changes, extra: usize) {
        for change in changes.accounts() {
            let mut shard = self.shard(&change.path).write();
            let entry = shard.entry(change.path).or_default();
            match &change.account {
                AccountUpdate::Keep => {}
                AccountUpdate::Put(account) => {
                    entry.leaf.push((layer, Some(Leaf::Account(*account))));
                }
                AccountUpdate::Entry(value) => {
                    entry.leaf.push((layer, Some(Leaf::Entry(value.clone()))));
                    self.keys.write().insert(change.path);
                }
                AccountUpdate::Delete => {
                    entry.leaf.push((layer, None));
                    self.keys.write().insert(change.path);
                }
            }
            if change.wipe || !change.slots.is_empty() {
                let storage = entry.storage.get_or_insert_default();
                if change.wipe {
                    storage.wipes.push(layer);
                }
                for (slot, value) in &change.slots {
                    storage
                        .slots
                        .entry(*slot)
                        .or_default()
                        .push((layer, *value));
                }
            }
        }
        self.bytes
            .fetch_add(size_of_changes(changes) + extra, Ordering::Relaxed);
    }

    /// Removes the values of `layer`, with the arguments with which they were added.
    pub(crate) fn remove(&self, layer: LayerId, changes: &Changes, extra: usize) {
        for change in changes.accounts() {
            let mut shard = self.shard(&change.path).write();
            let Some(entry) = shard.get_mut(&change.path) else {
                continue;
            };
            entry.leaf.retain(|(id, _)| *id != layer);
            if let Some(storage) = &mut entry.storage {
                storage.wipes.retain(|id| *id != layer);
                for (slot, _) in &change.slots {
                    if let Some(versions) = storage.slots.get_mut(slot) {
                        versions.retain(|(id, _)| *id != layer);
                        if versions.is_empty() {
                            storage.slots.remove(slot);
                        }
                    }
                }
                if storage.slots.is_empty() && storage.wipes.is_empty() {
                    entry.storage = None;
                }
            }
            if entry.leaf.is_empty() && !matches!(change.account, AccountUpdate::Keep) {
                self.keys.write().remove(&change.path);
            }
            if entry.leaf.is_empty() && entry.storage.is_none() {
                shard.remove(&change.path);
            }
        }
        self.bytes
            .fetch_sub(size_of_changes(changes) + extra, Ordering::Relaxed);
    }

    /// The account as the newest visible layer left it; `None` if no visible layer wrote it, and
    /// `Some(None)` if it was deleted.
    pub(crate) fn account(&self, path: &B256, seen: &AncestorSet) -> Option<Option<Account>> {
        if self.is_empty() {
            return None;
        }
        let shard = self.shard(path).read();
        let (_, leaf) = newest(&shard.get(path)?.leaf, seen)?;
        Some(match leaf {
            Some(Leaf::Account(account)) => Some(*account),
            Some(Leaf::Entry(_)) | None => None,
        })
    }

    /// The value of the entry as the newest visible layer left it; `None` if no visible layer wrote
    /// it, and `Some(None)` if it was deleted.
    pub(crate) fn entry(&self, key: &B256, seen: &AncestorSet) -> Option<Option<EntryValue>> {
        if self.is_empty() {
            return None;
        }
        let shard = self.shard(key).read();
        let (_, leaf) = newest(&shard.get(key)?.leaf, seen)?;
        Some(match leaf {
            Some(Leaf::Entry(value)) => Some(value.clone()),
            Some(Leaf::Account(_)) | None => None,
        })
    }

    /// The entries among the first `count` keys from `from` on, as the newest visible layers left them,
    /// in the order of their keys; deleted ones are `None`. Returns the last of these keys as well, or
    /// `None` if there are no further ones.
    pub(crate) fn entries_from(
        &self,
        from: Bound<B256>,
        count: usize,
        seen: &AncestorSet,
    ) -> (Vec<EntryAbove>, Option<B256>) {
        let range = (from, Bound::Unbounded);
        let keys: Vec<_> = self.keys.read().range(range).take(count).copied().collect();
        let last = (keys.len() == count)
            .then(|| keys.last().copied())
            .flatten();
        let visible = |key: B256| Some((key, self.entry(&key, seen)?));
        (keys.into_iter().filter_map(visible).collect(), last)
    }

    /// Of the accounts from `from` on of which any layer wrote something, the first `count`: as the newest
    /// visible layers left their fields, `None` where deleted, without those whose fields no visible layer
    /// wrote. Returns the last of these accounts as well, or `None` if there are no further ones. All
    /// accounts in the layers are looked at, since they are kept in no order.
    pub(crate) fn accounts_from(
        &self,
        from: Bound<B256>,
        count: usize,
        seen: &AncestorSet,
    ) -> (Vec<AccountAbove>, Option<B256>) {
        let range = (from, Bound::Unbounded);
        let mut first = BinaryHeap::with_capacity(count + 1);
        for shard in &self.shards {
            for path in shard.read().keys().filter(|path| range.contains(*path)) {
                if first.len() < count {
                    first.push(*path);
                } else if let Some(mut last) = first.peek_mut()
                    && *path < *last
                {
                    *last = *path;
                }
            }
        }
        let last = (first.len() == count).then(|| first.peek().copied());
        let paths = first.into_sorted_vec().into_iter();
        let visible = |path: B256| Some((path, self.account(&path, seen)?));
        (paths.filter_map(visible).collect(), last.flatten())
    }

    /// The slot as the newest visible layer left it, wipes of the account's storage included;
    /// `None` if no visible layer wrote it.
    pub(crate) fn slot(&self, account: &B256, slot: &B256, seen: &AncestorSet) -> Option<U256> {
        if self.is_empty() {
            return None;
        }
        let shard = self.shard(account).read();
        let storage = shard.get(account)?.storage.as_ref()?;
        let wipe = storage.newest_wipe(seen);
        match storage
            .slots
            .get(slot)
            .and_then(|versions| newest(versions, seen))
        {
            Some((at, value)) if wipe.is_none_or(|wipe| at >= wipe) => Some(*value),
            _ => wipe.map(|_| U256::ZERO),
        }
    }

    /// All slots of an account that visible layers wrote, zeros included, and whether a visible
    /// layer wiped the slots below the layers.
    pub(crate) fn slots_of(&self, account: &B256, seen: &AncestorSet) -> (Vec<(B256, U256)>, bool) {
        let shard = self.shard(account).read();
        let Some(storage) = shard.get(account).and_then(|entry| entry.storage.as_ref()) else {
            return (Vec::new(), false);
        };
        let (slots, wipe) = storage.visible(seen);
        (slots.collect(), wipe.is_some())
    }

    /// The changes from the state below the layers to the state that `seen` sees.
    pub(crate) fn changes(&self, seen: &AncestorSet) -> Changes {
        let mut accounts: B256Map<AccountDiff> = B256Map::default();
        let change = |path| AccountDiff {
            path,
            account: AccountUpdate::Keep,
            wipe: false,
            slots: Vec::new(),
        };
        self.each(seen, &mut |written| match written {
            MergedChange::Account(path, account) => {
                let change = accounts.entry(path).or_insert_with(|| change(path));
                change.account = match account {
                    Some(account) => AccountUpdate::Put(account),
                    None => AccountUpdate::Delete,
                };
            }
            MergedChange::Entry(key, value) => {
                let change = accounts.entry(key).or_insert_with(|| change(key));
                change.account = match value {
                    Some(value) => AccountUpdate::Entry(value),
                    None => AccountUpdate::Delete,
                };
            }
            MergedChange::Slot(path, slot, value) => {
                let change = accounts.entry(path).or_insert_with(|| change(path));
                change.slots.push((slot, value));
            }
            MergedChange::Wipe(path) => {
                accounts.entry(path).or_insert_with(|| change(path)).wipe = true;
            }
        });
        let accounts = accounts.into_values().map(|mut change| {
            match change.account {
                AccountUpdate::Delete => change.slots.clear(),
                // An earlier layer deleted the entry, and with it slots that it never had.
                AccountUpdate::Entry(_) => change.wipe = false,
                AccountUpdate::Keep | AccountUpdate::Put(_) => {}
            }
            change
        });
        Changes::new(accounts.collect())
    }

    /// Visits everything that visible layers wrote, in no particular order.
    pub(crate) fn each(&self, seen: &AncestorSet, visit: &mut dyn FnMut(MergedChange)) {
        for shard in &self.shards {
            for (path, entry) in &*shard.read() {
                match newest(&entry.leaf, seen) {
                    Some((_, Some(Leaf::Entry(value)))) => {
                        visit(MergedChange::Entry(*path, Some(value.clone())));
                    }
                    Some((_, Some(Leaf::Account(account)))) => {
                        visit(MergedChange::Account(*path, Some(*account)));
                    }
                    // The same key and value in the cache for both kinds of leaf.
                    Some((_, None)) => visit(MergedChange::Account(*path, None)),
                    None => {}
                }
                let Some(storage) = &entry.storage else {
                    continue;
                };
                let (slots, wipe) = storage.visible(seen);
                if wipe.is_some() {
                    visit(MergedChange::Wipe(*path));
                }
                for (slot, value) in slots {
                    visit(MergedChange::Slot(*path, slot, value));
                }
            }
        }
    }
}

/// Estimated memory of one layer's values, in bytes.
pub(crate) fn size_of_changes(changes: &Changes) -> usize {
    let (accounts, slots) = changes.counts();
    accounts * ACCOUNT_BYTES + slots * SLOT_BYTES + 2 * changes.value_bytes()
}

/// The newest version that a layer of `seen` wrote.
fn newest<'a, T>(versions: &'a Versions<T>, seen: &AncestorSet) -> Option<(LayerId, &'a T)> {
    versions
        .iter()
        .rev()
        .find(|(id, _)| seen.contains(*id))
        .map(|(id, value)| (*id, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ancestors(newest: u64, others: &[u64]) -> AncestorSet {
        AncestorSet {
            newest: LayerId(newest),
            others: others.iter().copied().map(LayerId).collect(),
        }
    }

    fn slot_change(value: u64, wipe: bool) -> Changes {
        Changes::new(vec![AccountDiff {
            path: B256::ZERO,
            account: AccountUpdate::Keep,
            wipe,
            slots: vec![(B256::ZERO, U256::from(value))],
        }])
    }

    #[test]
    fn a_view_sees_its_ancestors_and_no_other_branch() {
        let overlay = Overlay::new();
        for (layer, value) in [(1, 10), (2, 20), (3, 30)] {
            overlay.insert(LayerId(layer), &slot_change(value, false), 0);
        }
        let read = |seen: &AncestorSet| overlay.slot(&B256::ZERO, &B256::ZERO, seen);
        assert_eq!(read(&ancestors(0, &[])), None);
        assert_eq!(read(&ancestors(2, &[])), Some(U256::from(20)));
        assert_eq!(read(&ancestors(3, &[2])), Some(U256::from(30)));
        assert_eq!(read(&ancestors(4, &[2, 3])), Some(U256::from(10)));
    }

    #[test]
    fn entries_are_listed_in_pieces_in_the_order_of_keys_as_far_as_a_view_sees_them() {
        let overlay = Overlay::new();
        let key = |byte| B256::repeat_byte(byte);
        let change = |byte, value: Option<u8>| AccountDiff {
            path: key(byte),
            account: match value {
                Some(value) => AccountUpdate::Entry(EntryValue::Inline(vec![value].into())),
                None => AccountUpdate::Delete,
            },
            wipe: false,
            slots: vec![],
        };
        let first = Changes::new((1..=9).map(|byte| change(byte, Some(byte))).collect());
        let second = Changes::new(vec![
            change(2, None),
            change(3, Some(30)),
            change(10, Some(1)),
        ]);
        overlay.insert(LayerId(1), &first, 0);
        overlay.insert(LayerId(2), &second, 0);
        let all = |newest, count| {
            let (mut from, mut all) = (Bound::Unbounded, Vec::new());
            loop {
                let (found, last) = overlay.entries_from(from, count, &ancestors(newest, &[]));
                all.extend(found);
                match last {
                    Some(last) => from = Bound::Excluded(last),
                    None => return all,
                }
            }
        };
        let listed = |byte, value: Option<u8>| {
            let value = value.map(|value| EntryValue::Inline(vec![value].into()));
            (key(byte), value)
        };
        let of_first: Vec<_> = (1..=9).map(|byte| listed(byte, Some(byte))).collect();
        let mut of_both = of_first.clone();
        of_both[1].1 = None;
        of_both[2] = listed(3, Some(30));
        of_both.push(listed(10, Some(1)));
        for count in [1, 2, 3, 5, 9, 10, 100] {
            assert_eq!(all(1, count), of_first, "pieces of {count}");
            assert_eq!(all(2, count), of_both, "pieces of {count}");
        }
        overlay.remove(LayerId(2), &second, 0);
        assert_eq!(all(2, 3), of_first);
        assert_eq!(overlay.keys.read().len(), 9);
        overlay.remove(LayerId(1), &first, 0);
        assert!(overlay.keys.read().is_empty());
    }

    #[test]
    fn a_wipe_hides_older_slots_but_not_those_set_with_it() {
        let overlay = Overlay::new();
        overlay.insert(LayerId(1), &slot_change(10, false), 0);
        let wipe = Changes::new(vec![AccountDiff {
            path: B256::ZERO,
            account: AccountUpdate::Delete,
            wipe: true,
            slots: vec![],
        }]);
        overlay.insert(LayerId(2), &wipe, 0);
        overlay.insert(LayerId(3), &slot_change(30, true), 0);
        let read = |newest| overlay.slot(&B256::ZERO, &B256::ZERO, &ancestors(newest, &[]));
        assert_eq!(read(1), Some(U256::from(10)));
        assert_eq!(read(2), Some(U256::ZERO));
        assert_eq!(read(3), Some(U256::from(30)));
        let seen = |newest| overlay.changes(&ancestors(newest, &[]));
        assert_eq!(seen(1), slot_change(10, false));
        assert_eq!(seen(2), wipe);
        overlay.remove(LayerId(2), &wipe, 0);
        overlay.remove(LayerId(3), &slot_change(30, true), 0);
        assert_eq!(read(3), Some(U256::from(10)));
    }
}
