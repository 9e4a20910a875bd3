//! Leaves of upper tries, of accounts or of entries, and edits of them: a leaf or a slot is set or
//! removed exactly as an edit says. Merging a block's change into a leaf, and undoing that, are both such edits.

use crate::{
    apply::{Context, Edit},
    arena::{Key, Link, NodeId},
    error::UpdateError,
    node_ref::NodeRef,
    partial::PartialTrie,
    resolve::Resolve,
    rlp::{MARK_DELETED, MARK_KEPT, MARK_PUT, MARK_WIPED},
};
use alloc::vec::Vec;
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, AccountDiff, AccountUpdate, EntryValue, Path};

/// Which leaves an upper trie has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpperKind {
    /// Leaves are accounts, with slots below them.
    Accounts,
    /// Entries of a key-value database.
    Entries,
}

/// A leaf of an upper trie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// A layer's change of an account, without its slots.
    Account(AccountLeaf),
    /// Leaf of an entry; `None` for a tombstone, which marks the entry as deleted.
    Entry(Option<EntryValue>),
}

impl Leaf {
    /// The leaf after a net change: `before` is the leaf that there was. `None` if the change sets
    /// slots of an account that does not exist, or is one of another kind.
    pub(crate) fn after(
        kind: UpperKind,
        before: Option<&Self>,
        change: &AccountDiff,
    ) -> Option<Self> {
        match (kind, before) {
            (UpperKind::Accounts, None) => AccountLeaf::after(None, change).map(Self::Account),
            (UpperKind::Accounts, Some(Self::Account(before))) => {
                AccountLeaf::after(Some(before), change).map(Self::Account)
            }
            (UpperKind::Entries, None | Some(Self::Entry(_))) => match &change.account {
                AccountUpdate::Entry(value) => Some(Self::Entry(Some(value.clone()))),
                AccountUpdate::Delete => Some(Self::Entry(None)),
                AccountUpdate::Put(_) | AccountUpdate::Keep => None,
            },
            _ => None,
        }
    }

    /// Bytes that its value takes beside the leaf.
    pub(crate) fn value_bytes(&self) -> usize {
        match self {
            Self::Entry(Some(EntryValue::Inline(bytes))) => bytes.len(),
            _ => 0,
        }
    }
}

/// An account's leaf in an upper trie, without its slots. The fields are those of an empty account
/// unless the leaf is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccountLeaf {
    mark: u8,
    account: Account,
}

/// A layer's change of the fields of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fields {
    Kept,
    Put(Account),
    Deleted,
}

impl AccountLeaf {
    /// A leaf with these fields; a deleted one is always wiped.
    pub(crate) fn new(fields: Fields, wiped: bool) -> Self {
        let (mark, account) = match fields {
            Fields::Kept => (MARK_KEPT, Account::default()),
            Fields::Put(account) => (MARK_PUT, account),
            Fields::Deleted => (MARK_DELETED | MARK_WIPED, Account::default()),
        };
        let wiped = if wiped { MARK_WIPED } else { 0 };
        Self {
            mark: mark | wiped,
            account,
        }
    }

    /// The leaf of the account at `index` of the arena.
    pub(crate) fn at(trie: &PartialTrie, index: u32) -> Self {
        Self {
            mark: trie.arena.accounts[index].mark,
            account: trie.arena.account(index),
        }
    }

    /// The leaf with this mark, of which only a put one has fields; `None` for an unknown mark.
    pub(crate) fn of_mark(mark: u8, fields: impl FnOnce() -> Option<Account>) -> Option<Self> {
        let account = match mark & !MARK_WIPED {
            MARK_KEPT => Account::default(),
            MARK_PUT => fields()?,
            MARK_DELETED if mark & MARK_WIPED != 0 => Account::default(),
            _ => return None,
        };
        Some(Self { mark, account })
    }

    pub(crate) const fn mark(&self) -> u8 {
        self.mark
    }

    /// Returns the layer's change of the account's fields.
    pub(crate) const fn fields(&self) -> Fields {
        match self.mark & !MARK_WIPED {
            MARK_KEPT => Fields::Kept,
            MARK_PUT => Fields::Put(self.account),
            _ => Fields::Deleted,
        }
    }

    /// Whether the slots of lower layers are void.
    pub(crate) const fn is_wiped(&self) -> bool {
        self.mark & MARK_WIPED != 0
    }

    /// Adds the leaf at depth `depth`, that no node links to yet.
    pub(crate) fn push(&self, trie: &mut PartialTrie, depth: usize, key: Key, slots: Link) -> Link {
        let link = trie.arena.add_account(depth, key, &self.account, slots);
        trie.arena.marked(link, self.mark)
    }

    /// The leaf after a net change of the account: `before` is the leaf that there was. `None` if
    /// the change sets slots of an account that does not exist, or an entry.
    fn after(before: Option<&Self>, change: &AccountDiff) -> Option<Self> {
        let wiped = change.wipe || before.is_some_and(Self::is_wiped);
        let fields = match &change.account {
            AccountUpdate::Put(account) => Fields::Put(*account),
            AccountUpdate::Delete => Fields::Deleted,
            AccountUpdate::Entry(_) => return None,
            AccountUpdate::Keep => match before.map(Self::fields) {
                Some(Fields::Deleted) => return None,
                Some(fields) => fields,
                None => Fields::Kept,
            },
        };
        Some(Self::new(fields, wiped))
    }
}

/// Sets or removes one leaf, and slots of it.
#[derive(Clone, Debug)]
pub(crate) struct LeafEdit {
    pub(crate) path: B256,
    /// The leaf; `None` to remove it with all of its slots.
    pub(crate) leaf: Option<Leaf>,
    /// Whether all slots are removed before `slots` are set.
    pub(crate) clear: bool,
    /// Slots with their values, zero for a tombstone, and `None` for slots that are removed from the
    /// trie. Sorted and unique.
    pub(crate) slots: Vec<SlotEdit>,
}

/// A slot and its value in the trie: see [`LeafEdit::slots`].
pub(crate) type SlotEdit = (B256, Option<U256>);

impl Edit for SlotEdit {
    const LEVEL: usize = ACCOUNT_NIBBLES;

    fn key(&self) -> &Key {
        &self.0.0
    }

    fn path(account: &B256, key: &Key, depth: usize) -> Path {
        Path::slot(account, &B256::from(*key)).prefix(ACCOUNT_NIBBLES + depth)
    }

    fn settle<R: Resolve>(
        &self,
        trie: &mut PartialTrie,
        _cx: &mut Context<'_, R>,
        leaf: Link,
        depth: usize,
    ) -> Result<Link, UpdateError<R::Error>> {
        trie.arena.free_node(leaf);
        Ok(match self.1 {
            Some(value) => trie.arena.add_slot(depth, self.0.0, value),
            None => Link::EMPTY,
        })
    }
}

impl Edit for LeafEdit {
    const LEVEL: usize = 0;

    fn key(&self) -> &Key {
        &self.path.0
    }

    fn path(_account: &B256, key: &Key, depth: usize) -> Path {
        Path::account(&B256::from(*key)).prefix(depth)
    }

    fn settle<R: Resolve>(
        &self,
        trie: &mut PartialTrie,
        cx: &mut Context<'_, R>,
        link: Link,
        depth: usize,
    ) -> Result<Link, UpdateError<R::Error>> {
        let leaf = match &self.leaf {
            None => {
                trie.arena.free_subtrie(link);
                return Ok(Link::EMPTY);
            }
            Some(Leaf::Entry(value)) => {
                trie.arena.free_node(link);
                return Ok(match value {
                    Some(value) => trie.arena.add_entry(depth, self.path.0, value.clone()),
                    None => trie.arena.add_tombstone(depth, self.path.0),
                });
            }
            Some(Leaf::Account(leaf)) => leaf,
        };
        let link = match link.id() {
            NodeId::Account(index) => {
                trie.arena.set_account(index, &leaf.account);
                trie.arena.marked(link, leaf.mark)
            }
            _ => leaf.push(trie, depth, self.path.0, Link::EMPTY),
        };
        let NodeId::Account(index) = link.id() else {
            unreachable!("an account was added")
        };
        let node = &mut trie.arena.accounts[index];
        node.memo = NodeRef::UNKNOWN;
        let mut storage = node.storage;
        if self.clear {
            trie.arena.free_subtrie(storage);
            storage = Link::EMPTY;
        }
        if !self.slots.is_empty() {
            cx.account = self.path;
            storage = trie.edit(cx, storage, 0, &self.slots)?;
        }
        trie.arena.accounts[index].storage = storage;
        Ok(link)
    }
}
