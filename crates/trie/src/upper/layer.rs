//! Upper tries: net changes of blocks are merged into them and taken out again.

use super::leaf::{AccountLeaf, Fields, Leaf, LeafEdit, SlotEdit, UpperKind};
use crate::{
    apply::Context,
    arena::{Link, NodeId},
    error::{Missing, TrieError, UpdateError},
    extract::ProofTargets,
    hash::{Spread, commit_with},
    partial::PartialTrie,
    range::LeafRange,
    resolve::NoResolve,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, U256};
use cambium_keccak::Batch;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, EntryValue, Path};
use core::num::NonZeroUsize;

/// The net changes of consecutive blocks, as a trie: the delta or the intermediate trie of the
/// `layered` commitment.
///
/// ```
/// use alloy_primitives::B256;
/// use cambium_primitives::{Account, AccountDiff, AccountUpdate};
/// use cambium_trie::{Alone, EMPTY_ROOT, UpperTrie};
///
/// let put = AccountDiff {
///     path: B256::repeat_byte(1),
///     account: AccountUpdate::Put(Account::default()),
///     wipe: false,
///     slots: vec![],
/// };
/// let mut delta = UpperTrie::new();
/// let reverts = delta.apply(&[put]).unwrap();
/// assert_ne!(delta.hash(&Alone), EMPTY_ROOT);
/// delta.revert(&reverts);
/// assert_eq!(delta.hash(&Alone), EMPTY_ROOT);
/// ```
#[derive(Clone, Debug)]
pub struct UpperTrie {
    trie: PartialTrie,
    kind: UpperKind,
}

/// Error of [`UpperTrie::merge`].
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum MergeError {
    /// A blinded node hides a changed leaf.
    #[error("no node at depth {depth} on the way to {path}")]
    Hidden { path: Path, depth: usize },
    /// The changes don't fit the trie.
    #[error(transparent)]
    Trie(#[from] TrieError),
}

/// The edit that merges a net change into a leaf, which becomes `after`.
fn merge_edit(change: &AccountDiff, after: Leaf) -> LeafEdit {
    let set = change.slots.iter();
    LeafEdit {
        path: change.path,
        leaf: Some(after),
        clear: change.wipe || change.account == AccountUpdate::Delete,
        slots: set.map(|(slot, value)| (*slot, Some(*value))).collect(),
    }
}

/// Takes the changes of a block out of an upper trie: see [`UpperTrie::apply`].
#[derive(Clone, Debug, Default)]
pub struct UpperReverts(Vec<LeafEdit>);

impl UpperReverts {
    /// Memory of the reverts, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let slots = self.0.iter().map(|edit| edit.slots.capacity());
        let values = self.0.iter().filter_map(|edit| edit.leaf.as_ref());
        self.0.capacity() * size_of::<LeafEdit>()
            + slots.sum::<usize>() * size_of::<SlotEdit>()
            + values.map(Leaf::value_bytes).sum::<usize>()
    }
}

impl Default for UpperTrie {
    fn default() -> Self {
        Self::new()
    }
}

impl UpperTrie {
    /// Creates the trie of no changes of accounts and slots.
    pub fn new() -> Self {
        Self::from_trie(PartialTrie::new(Path::EMPTY), UpperKind::Accounts)
    }

    /// Creates the trie of no changes of entries of a key-value database.
    pub fn of_entries() -> Self {
        Self::from_trie(PartialTrie::new(Path::EMPTY), UpperKind::Entries)
    }

    /// Creates the trie of no changes, with leaves of the same kind.
    #[must_use]
    pub fn new_like(&self) -> Self {
        Self::from_trie(PartialTrie::new(Path::EMPTY), self.kind)
    }

    /// An upper trie that may be blinded in part, whose leaves were checked.
    pub(crate) const fn from_trie(trie: PartialTrie, kind: UpperKind) -> Self {
        Self { trie, kind }
    }

    /// The trie.
    pub(crate) const fn trie(&self) -> &PartialTrie {
        &self.trie
    }

    /// Returns whether nothing has changed.
    pub const fn is_empty(&self) -> bool {
        self.trie.is_empty()
    }

    /// Memory of the trie, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.trie.memory_bytes()
    }

    /// Merges the net changes of the next block, which are sorted by path: see
    /// [`net_changes`](crate::net_changes). Returns what takes them out again.
    ///
    /// # Errors
    ///
    /// An error if the changes are not sorted and unique, set slots of an account that the layer has
    /// deleted, or are of the other kind of leaves. The trie is unchanged.
    ///
    /// # Panics
    ///
    /// If a part of the trie is blinded.
    pub fn apply(&mut self, net: &[AccountDiff]) -> Result<UpperReverts, TrieError> {
        self.trie.check_changes(net)?;
        let mut edits = Vec::with_capacity(net.len());
        let mut reverts = Vec::with_capacity(net.len());
        for change in net {
            let found = self.leaf(&change.path);
            let (before, slots) =
                found.map_or((None, Link::EMPTY), |(leaf, slots)| (Some(leaf), slots));
            let after =
                Leaf::after(self.kind, before.as_ref(), change).ok_or(TrieError::NoAccount {
                    path: Path::account(&change.path),
                })?;
            let clear = change.wipe || change.account == AccountUpdate::Delete;
            let old_slots = match (&before, clear) {
                (None, _) => Vec::new(),
                (Some(_), true) => self.slots_at(slots),
                (Some(_), false) => {
                    let old = |slot: &B256| (*slot, self.slot_at(slots, slot));
                    change.slots.iter().map(|(slot, _)| old(slot)).collect()
                }
            };
            reverts.push(LeafEdit {
                path: change.path,
                leaf: before,
                clear,
                slots: old_slots,
            });
            edits.push(merge_edit(change, after));
        }
        self.edit(&edits);
        Ok(UpperReverts(reverts))
    }

    /// Merges the same into a trie that may be blinded in part, and can't be taken out again.
    pub(crate) fn merge(&mut self, net: &[AccountDiff]) -> Result<(), MergeError> {
        self.trie.check_changes(net)?;
        let mut edits = Vec::with_capacity(net.len());
        for change in net {
            let path = Path::account(&change.path);
            let found = self.find_leaf(&change.path);
            let found = found.map_err(|depth| MergeError::Hidden { path, depth })?;
            let clear = change.wipe || change.account == AccountUpdate::Delete;
            if let Some((_, slots)) = &found
                && !clear
            {
                for (slot, _) in &change.slots {
                    let path = Path::slot(&change.path, slot);
                    let slot = self.find_slot(*slots, slot);
                    slot.map_err(|depth| MergeError::Hidden { path, depth })?;
                }
            }
            let before = found.map(|(leaf, _)| leaf);
            let after = Leaf::after(self.kind, before.as_ref(), change);
            edits.push(merge_edit(
                change,
                after.ok_or(TrieError::NoAccount { path })?,
            ));
        }
        // The edits delete no leaf, and every leaf that they set was found or found absent.
        self.edit(&edits);
        Ok(())
    }

    /// Takes the changes of the block that was merged last out of the trie. Leaves and slots that
    /// the block added leave the trie.
    pub fn revert(&mut self, reverts: &UpperReverts) {
        self.edit(&reverts.0);
    }

    fn edit(&mut self, edits: &[LeafEdit]) {
        let Some(first) = edits.first() else {
            return;
        };
        let mut cx = Context {
            resolver: &mut NoResolve,
            account: first.path,
            spread: None,
        };
        let root = self.trie.root;
        let edited = self.trie.edit(&mut cx, root, 0, edits);
        self.trie.root = edited.expect("a trie without blinded nodes, and sorted edits");
    }

    /// Hashes what has changed, on the threads of `spread`, and returns the root: that of an empty
    /// trie if there are no changes.
    pub fn hash(&mut self, spread: &dyn Spread) -> B256 {
        self.commit(spread);
        self.trie.state_root().expect("just hashed")
    }

    /// Does the same as [`Self::hash`], and returns the number of nodes hashed.
    pub fn commit(&mut self, spread: &dyn Spread) -> usize {
        commit_with(&mut [&mut self.trie], &mut Batch::new(), spread)
    }

    /// Returns a copy without the memory of freed nodes, if that is more than that of all others.
    pub fn compacted(&self) -> Option<Self> {
        let compacted = self.trie.compacted();
        compacted.map(|trie| Self::from_trie(trie, self.kind))
    }

    /// Returns what the layer says about the fields of an account: `None` if nothing,
    /// `Some(None)` if the account does not exist.
    ///
    /// # Panics
    ///
    /// If that part of the trie is blinded.
    pub fn account(&self, path: &B256) -> Option<Option<Account>> {
        match self.account_leaf(path)?.0.fields() {
            Fields::Kept => None,
            Fields::Put(account) => Some(Some(account)),
            Fields::Deleted => Some(None),
        }
    }

    /// Returns the layer's change of an entry: `None` if it has none, `Some(None)` if it deletes the entry. The place
    /// of a stored value is the one that it had when it was merged.
    ///
    /// # Panics
    ///
    /// If that part of the trie is blinded.
    pub fn entry(&self, key: &B256) -> Option<Option<EntryValue>> {
        let found = self.find_entry(key);
        found.expect("a trie without blinded nodes")
    }

    /// Returns what the layer says about a slot: `None` if nothing. Tombstones, and slots of an
    /// account whose storage was wiped, are zero.
    ///
    /// # Panics
    ///
    /// If that part of the trie is blinded.
    pub fn slot(&self, account: &B256, slot: &B256) -> Option<U256> {
        let (leaf, slots) = self.account_leaf(account)?;
        let set = self.slot_at(slots, slot);
        set.or_else(|| leaf.is_wiped().then_some(U256::ZERO))
    }

    /// All slots that the layer has of an account.
    pub(crate) fn slots_of(&self, path: &B256) -> Vec<B256> {
        let leaf = self.account_leaf(path);
        let slots = leaf.map(|(_, slots)| self.slots_at(slots));
        let slots = slots.unwrap_or_default().into_iter();
        slots.map(|(slot, _)| slot).collect()
    }

    /// Whether the layer voids the slots that lower layers have of an account.
    pub(crate) fn is_wiped(&self, path: &B256) -> bool {
        let leaf = self.account_leaf(path);
        leaf.is_some_and(|(leaf, _)| leaf.is_wiped())
    }

    /// The leaf at a path, with the link of its slots.
    fn leaf(&self, path: &B256) -> Option<(Leaf, Link)> {
        let found = self.find_leaf(path);
        found.expect("a trie without blinded nodes")
    }

    /// The leaf of an account, with the link of its slots.
    fn account_leaf(&self, path: &B256) -> Option<(AccountLeaf, Link)> {
        let found = self.find_account(path);
        found.expect("a trie without blinded nodes")
    }

    fn slot_at(&self, slots: Link, slot: &B256) -> Option<U256> {
        let found = self.find_slot(slots, slot);
        found.expect("a trie without blinded nodes")
    }

    /// The leaf at a path, with the link of its slots. Fails with the depth of the blinded node that
    /// hides it.
    fn find_leaf(&self, path: &B256) -> Result<Option<(Leaf, Link)>, usize> {
        Ok(match self.kind {
            UpperKind::Accounts => {
                let found = self.find_account(path)?;
                found.map(|(leaf, slots)| (Leaf::Account(leaf), slots))
            }
            UpperKind::Entries => {
                let found = self.find_entry(path)?;
                found.map(|value| (Leaf::Entry(value), Link::EMPTY))
            }
        })
    }

    /// The leaf of an account, with the link of its slots: see [`UpperTrie::find_leaf`].
    pub(crate) fn find_account(&self, path: &B256) -> Result<Option<(AccountLeaf, Link)>, usize> {
        match self.trie.walk(self.trie.root, &path.0, 0) {
            (NodeId::Account(index), _) => {
                let slots = self.trie.arena.accounts[index].storage;
                Ok(Some((AccountLeaf::at(&self.trie, index), slots)))
            }
            (NodeId::Stub(_), depth) => Err(depth),
            _ => Ok(None),
        }
    }

    /// The layer's change of an entry: see [`UpperTrie::find_leaf`].
    pub(crate) fn find_entry(&self, key: &B256) -> Result<Option<Option<EntryValue>>, usize> {
        match self.trie.walk(self.trie.root, &key.0, 0) {
            (NodeId::Entry(index), _) => {
                let node = &self.trie.arena.entries[index];
                Ok(Some((!node.is_tombstone).then(|| node.value.clone())))
            }
            (NodeId::Stub(_), depth) => Err(depth),
            _ => Ok(None),
        }
    }

    /// The slot in the storage at `slots`: see [`UpperTrie::find_leaf`].
    pub(crate) fn find_slot(&self, slots: Link, slot: &B256) -> Result<Option<U256>, usize> {
        match self.trie.walk(slots, &slot.0, 0) {
            (NodeId::Storage(index), _) => {
                let value = self.trie.arena.slots[index].value;
                Ok(Some(U256::from_be_bytes(value)))
            }
            (NodeId::Stub(_), depth) => Err(64 + depth),
            _ => Ok(None),
        }
    }

    /// All slots of the storage at `slots`, in the order of their paths.
    fn slots_at(&self, slots: Link) -> Vec<SlotEdit> {
        let mut all = Vec::new();
        let is_whole = each_slot(&self.trie, slots, &mut |slot, value| {
            all.push((slot, Some(value)));
        });
        assert!(is_whole, "a trie without blinded nodes");
        all
    }

    /// Returns the part with all leaves of a range, with everything else blinded.
    pub(crate) fn extract_range(
        &mut self,
        range: &LeafRange,
    ) -> Result<PartialTrie, UpdateError<Missing>> {
        let part = self
            .trie
            .extract_range(range, NonZeroUsize::MAX, &mut NoResolve)?;
        Ok(part.trie)
    }

    /// Returns the part on the paths to `keys`, with everything else blinded.
    pub(crate) fn extract(&mut self, keys: &ProofTargets) -> Result<Self, UpdateError<Missing>> {
        let part = self.trie.extract(keys, &mut NoResolve)?;
        Ok(Self::from_trie(part, self.kind))
    }
}

/// Visits the slots of the storage at `link`, in the order of their paths. Returns whether none is
/// hidden by a blinded node. Recursion is bounded by the 64 nibbles of a slot's path.
pub(crate) fn each_slot(
    trie: &PartialTrie,
    link: Link,
    visit: &mut impl FnMut(B256, U256),
) -> bool {
    match link.id() {
        NodeId::Storage(index) => {
            let node = &trie.arena.slots[index];
            visit(node.key.into(), U256::from_be_bytes(node.value));
            true
        }
        NodeId::Empty => true,
        NodeId::Stub(_) => false,
        _ => {
            let mut is_whole = true;
            for child in trie.children(link) {
                is_whole &= each_slot(trie, child, visit);
            }
            is_whole
        }
    }
}
