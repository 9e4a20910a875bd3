//! Division of large storage tries: the subtries below the sixteen children of the root are
//! detached as tries of their own, which threads read, change and hash with nothing shared.
//!
//! ```text
//!             account                           account
//!                |                                 |
//!             branch                            branch  (no children)
//!           /  |  ..  \          detach
//!          a   b      p         ------->      a    b   ..   p     16 tries, each with its own nodes
//!         /\   /\     /\        <-------     /\   /\       /\
//!                                attach
//! ```
//!
//! **Parts.** Every node below child `n` of the root of a divided storage trie is in part `n` of the
//! arena's slabs, so that detaching moves chunks and no nodes. Loading and changing nodes put
//! new ones there; methods that let the caller link nodes end the division instead. A trie that is
//! divided anew moves the nodes that it already has, once.

use crate::{
    apply::{Context, Edit},
    arena::{Key, Link, NodeId, nibble},
    error::UpdateError,
    node_ref::NodeRef,
    partial::PartialTrie,
    resolve::Resolve,
    slab::PARTS,
    slots_job::SlotsJob,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};

/// The tries below the sixteen children of the root of one storage trie, detached. They must be
/// attached before the trie is used next.
pub struct DetachedStorage {
    account: B256,
    /// Index of the branch at the root of the storage trie.
    branch: u32,
    tries: Vec<PartialTrie>,
}

impl DetachedStorage {
    /// Returns the sixteen tries, by the first nibble of the paths of their slots. They are based at
    /// paths of 65 nibbles.
    pub fn tries(&mut self) -> &mut [PartialTrie] {
        &mut self.tries
    }
}

impl SlotsJob<'_> {
    /// Applies the changes.
    ///
    /// # Errors
    ///
    /// Returns an error if loading a subtrie fails.
    pub fn apply<R: Resolve>(&mut self, resolver: &mut R) -> Result<(), UpdateError<R::Error>> {
        let account = self.trie.base.account_part().unwrap_or_default();
        let mut cx = Context {
            resolver,
            account,
            spread: None,
        };
        let (root, depth) = (self.trie.root, self.trie.base.len() - ACCOUNT_NIBBLES);
        self.trie.root = self.trie.edit(&mut cx, root, depth, self.slots)?;
        Ok(())
    }
}

impl PartialTrie {
    /// Detaches the tries below the root of the storage trie of `account`. Loads the absent subtries
    /// on the path to that root, and the root. Returns `None` if there is no such account, or if
    /// the root of its storage trie is not a branch.
    ///
    /// # Errors
    ///
    /// Returns an error if loading fails. The trie stays valid.
    pub fn detach_storage<R: Resolve>(
        &mut self,
        account: &B256,
        resolver: &mut R,
    ) -> Result<Option<DetachedStorage>, UpdateError<R::Error>> {
        self.load_leaf(&Path::account(account), resolver)?;
        let NodeId::Account(index) = self.walk(self.root, &account.0, self.base.len()).0 else {
            return Ok(None);
        };
        let mut storage = self.arena.accounts[index].storage;
        if storage.is_stub() {
            storage = self.expand(storage, &Path::account(account), resolver)?;
            self.arena.accounts[index].storage = storage;
        }
        let NodeId::Branch(branch) = storage.id() else {
            return Ok(None);
        };
        Ok(Some(self.detach_children(account, branch)))
    }

    /// Puts back what [`Self::detach_storage`] took out. The tries may have loaded nodes, but must
    /// not have changed otherwise.
    pub fn attach_storage(&mut self, storage: DetachedStorage) {
        self.attach_children(storage, 0);
    }

    /// Detaches the children of the branch at `branch`, which is the root of the storage trie of
    /// `account`.
    fn detach_children(&mut self, account: &B256, branch: u32) -> DetachedStorage {
        self.divide(account, branch);
        let children = &mut self.arena.branches[branch].children;
        let children = core::mem::replace(children, [Link::EMPTY; PARTS]);
        let root = Path::account(account);
        let arenas = self.arena.detach().into_iter();
        let tries = arenas
            .zip(children)
            .zip(0..)
            .map(|((arena, root_of), at)| Self {
                base: root.child(at),
                root: root_of,
                arena,
                commitment: self.commitment,
            });
        DetachedStorage {
            account: *account,
            branch,
            tries: tries.collect(),
        }
    }

    /// Puts the tries of a storage trie back. `changed` has a bit for each of them that has changed.
    fn attach_children(&mut self, storage: DetachedStorage, changed: u16) {
        let roots: Vec<_> = storage.tries.iter().map(|trie| trie.root).collect();
        let arenas = storage.tries.into_iter().map(|trie| trie.arena);
        self.arena.attach(arenas.collect());
        let node = &mut self.arena.branches[storage.branch];
        node.children.copy_from_slice(&roots);
        node.unhashed |= changed;
        debug_assert!(self.arena.divided.contains(&storage.account.0));
    }

    /// Moves the nodes below the branch, which is the root of the storage trie of `account`, to
    /// their parts, if they aren't there.
    fn divide(&mut self, account: &B256, branch: u32) {
        if self.is_divided(&account.0) {
            return;
        }
        let children = self.arena.branches[branch].children;
        for (at, child) in children.into_iter().enumerate() {
            self.arena.enter(Some(at));
            let child = self.move_here(child);
            self.arena.branches[branch].children[at] = child;
        }
        self.arena.enter(None);
        self.arena.divided.push(account.0);
    }

    /// Moves a subtrie of slots to the place of new nodes. Recursion is bounded by the path's 128
    /// nibbles.
    fn move_here(&mut self, link: Link) -> Link {
        let moved = match link.id() {
            NodeId::Branch(index) => {
                let mut node = self.arena.branches[index];
                for child in &mut node.children {
                    *child = self.move_here(*child);
                }
                Link::branch(self.arena.branches.insert(node))
            }
            NodeId::Extension(index) => {
                let mut node = self.arena.extensions[index];
                node.child = self.move_here(node.child);
                Link::extension(self.arena.extensions.insert(node))
            }
            NodeId::Storage(index) => self.arena.copy_slot(index),
            NodeId::Stub(index) => self.arena.add_stub(self.arena.stubs[index]),
            NodeId::Empty => return link,
            NodeId::Account(_) | NodeId::Entry(_) => unreachable!("{link:?} below an account"),
        };
        self.arena.free_node(link);
        moved
    }

    /// Returns whether the storage trie of an account is divided.
    pub(crate) fn is_divided(&self, account: &Key) -> bool {
        self.arena.divided.contains(account)
    }

    /// Ends the division of an account's storage trie.
    pub(crate) fn end_division(&mut self, account: &Key) {
        if !self.arena.divided.is_empty() {
            self.arena.divided.retain(|divided| divided != account);
        }
    }

    /// Applies changes of slots to the storage trie at `storage` of the account of `cx`. Divides it if there are
    /// enough changes.
    pub(crate) fn edit_storage<R: Resolve>(
        &mut self,
        cx: &mut Context<'_, R>,
        mut storage: Link,
        slots: &[(B256, U256)],
    ) -> Result<Link, UpdateError<R::Error>> {
        let spread = cx.spread.filter(|spread| slots.len() >= spread.slots_min());
        if spread.is_none() && !self.is_divided(&cx.account.0) {
            return self.edit(cx, storage, 0, slots);
        }
        if storage.is_stub() {
            storage = self.expand(storage, &Path::account(&cx.account), cx.resolver)?;
        }
        if storage.is_empty() {
            storage = self.arena.add_branch([Link::EMPTY; PARTS]);
        }
        let NodeId::Branch(branch) = storage.id() else {
            return self.edit(cx, storage, 0, slots);
        };
        self.arena.branches[branch].memo = NodeRef::UNKNOWN;
        match spread {
            Some(spread) => {
                let account = cx.account;
                let mut detached = self.detach_children(&account, branch);
                let (mut jobs, mut changed) = (Vec::with_capacity(PARTS), 0);
                let mut groups = by_first_nibble(slots).peekable();
                for (at, trie) in detached.tries.iter_mut().enumerate() {
                    if let Some((_, slots)) = groups.next_if(|(nibble, _)| *nibble == at) {
                        jobs.push(SlotsJob { trie, slots });
                        changed |= 1 << at;
                    }
                }
                spread.run(&mut jobs, cx.resolver)?;
                self.attach_children(detached, changed);
            }
            None => {
                for (at, group) in by_first_nibble(slots) {
                    let child = self.arena.branches[branch].children[at];
                    self.arena.enter(Some(at));
                    let child = self.edit(cx, child, 1, group);
                    self.arena.enter(None);
                    let child = child?;
                    let node = &mut self.arena.branches[branch];
                    node.children[at] = child;
                    node.unhashed |= 1 << at;
                }
            }
        }
        let root = self.collapse::<(B256, U256), R>(cx, branch, 0, slots[0].key())?;
        if root != storage {
            let account = cx.account;
            self.end_division(&account.0);
        }
        Ok(root)
    }
}

/// Groups changes, sorted by path, by the first nibble.
fn by_first_nibble(slots: &[(B256, U256)]) -> impl Iterator<Item = (usize, &[(B256, U256)])> {
    let of = |slot: &(B256, U256)| nibble(slot.key(), 0);
    slots
        .chunk_by(move |a, b| of(a) == of(b))
        .map(move |group| (of(&group[0]), group))
}
