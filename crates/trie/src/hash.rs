//! Hashing what changed, bottom-up, level by level, over any number of tries at once.
//!
//! Nodes of one level have nothing to wait for from each other: the lanes of [`Batch`] stay
//! full. A level is the greatest number of unhashed nodes on the way down, not the depth: a
//! leaf at depth 3 is hashed together with one at depth 9.

use crate::{
    arena::{Link, Slot},
    node_ref::{EMPTY_ROOT, NodeRef},
    partial::PartialTrie,
    rlp,
};
use alloc::{vec, vec::Vec};
use alloy_primitives::B256;
use cambium_keccak::Batch;

/// Bytes of RLP after which a batch is hashed: enough for full lanes at every length, and well
/// within the second-level cache.
const BATCH_BYTES: usize = 256 << 10;

/// Unhashed nodes by height above the lowest of their subtrie: number of the trie, and node.
type Levels = Vec<Vec<(u32, Link)>>;

/// Gives every node that a root depends on its memo. Does only what is missing.
///
/// ```
/// use alloy_primitives::{B256, U256};
/// use cambium_keccak::Batch;
/// use cambium_primitives::{Account, AccountChange, AccountUpdate, Path};
/// use cambium_trie::{NoResolve, PartialTrie, commit};
///
/// let mut trie = PartialTrie::new(Path::EMPTY);
/// let rich = Account { balance: U256::from(1_000), ..Account::default() };
/// let change = AccountChange {
///     path: B256::repeat_byte(1),
///     account: AccountUpdate::Put(rich),
///     wipe: false,
///     slots: vec![],
/// };
/// trie.apply(&[change], &mut NoResolve).unwrap();
/// commit(&mut [&mut trie], &mut Batch::new());
/// println!("{}", trie.state_root().unwrap());
/// ```
pub fn commit(tries: &mut [&mut PartialTrie], batch: &mut Batch) -> usize {
    let mut levels = Levels::new();
    for (number, trie) in tries.iter_mut().enumerate() {
        trie.collect_unhashed(trie.root, number as u32, &mut levels);
    }
    hash_levels(tries, &levels, batch);
    levels.iter().map(Vec::len).sum()
}

fn hash_levels(tries: &mut [&mut PartialTrie], levels: &Levels, batch: &mut Batch) {
    let mut pending = Vec::new();
    for level in levels {
        batch.clear();
        for &(number, link) in level {
            let trie = &mut *tries[number as usize];
            let index = batch.push_with(|out| trie.encode_node(link, out));
            if let Some(inline) = NodeRef::inline(batch.input(index)) {
                batch.pop();
                trie.arena.set_memo(link, inline);
                continue;
            }
            pending.push((number, link));
            if batch.bytes_len() > BATCH_BYTES {
                hash_pending(tries, &mut pending, batch);
            }
        }
        hash_pending(tries, &mut pending, batch);
    }
}

fn hash_pending(tries: &mut [&mut PartialTrie], pending: &mut Vec<(u32, Link)>, batch: &mut Batch) {
    for ((number, link), hash) in pending.drain(..).zip(batch.run()) {
        tries[number as usize]
            .arena
            .set_memo(link, NodeRef::hash(*hash));
    }
    batch.clear();
}

impl PartialTrie {
    /// Adds the unhashed nodes from `link` down to `levels`; returns how many levels they fill.
    /// Recursion is bounded by the path's 128 nibbles.
    fn collect_unhashed(&mut self, link: Link, number: u32, levels: &mut Levels) -> usize {
        if link.is_empty() || !self.arena.memo(link).is_unknown() {
            return 0;
        }
        let height = match link.slot() {
            Slot::Branch(index) => {
                let node = &mut self.arena.branches[index];
                let (children, mut unhashed) = (node.children, core::mem::take(&mut node.unhashed));
                let mut height = 0;
                while unhashed != 0 {
                    let child = children[unhashed.trailing_zeros() as usize];
                    height = height.max(self.collect_unhashed(child, number, levels));
                    unhashed &= unhashed - 1;
                }
                height
            }
            Slot::Extension(index) => {
                self.collect_unhashed(self.arena.extensions[index].child, number, levels)
            }
            Slot::Account(index) => {
                self.collect_unhashed(self.arena.accounts[index].storage, number, levels)
            }
            Slot::Storage(_) => 0,
            Slot::Empty | Slot::Stub(_) => return 0,
        };
        if levels.len() <= height {
            levels.push(vec![]);
        }
        levels[height].push((number, link));
        height + 1
    }

    /// Gives the nodes at `links` their memos, and those below on which these depend.
    pub fn hash_nodes(&mut self, links: impl IntoIterator<Item = Link>, batch: &mut Batch) {
        let mut levels = Levels::new();
        for link in links {
            self.collect_unhashed(link, 0, &mut levels);
        }
        // A node that hangs below two of the links is listed, and hashed, twice: no harm.
        hash_levels(&mut [self], &levels, batch);
    }

    /// Gives whatever [`Self::graft_node`] stubs below the nodes at `links` its memo.
    pub(crate) fn hash_to_graft(&mut self, links: &[Link], batch: &mut Batch) {
        let mut below = Vec::new();
        for child in links.iter().flat_map(|link| self.children(*link)) {
            below.push(child);
            if let Slot::Account(index) = child.slot() {
                below.push(self.arena.accounts[index].storage);
            }
        }
        self.hash_nodes(below, batch);
    }

    /// Appends the RLP of an expanded node whose children are all hashed.
    pub(crate) fn encode_node(&self, link: Link, out: &mut Vec<u8>) {
        match link.slot() {
            Slot::Branch(index) => {
                let children = self.arena.branches[index].children.each_ref();
                let refs = children.map(|child| self.arena.memo(*child));
                rlp::put_branch(out, &refs, &[]);
            }
            Slot::Extension(index) => {
                let node = &self.arena.extensions[index];
                let (start, end) = (usize::from(node.start), usize::from(node.end));
                let (from, to) = (start - node.level(), end - node.level());
                rlp::put_extension_at(out, &node.key, from, to, self.arena.memo(node.child));
            }
            Slot::Account(index) => {
                let node = &self.arena.accounts[index];
                let root = self.storage_root_at(node.storage).unwrap_or(EMPTY_ROOT);
                let mut value = Vec::with_capacity(112);
                rlp::put_account(&mut value, &self.arena.account(index), &root);
                rlp::put_leaf(out, &node.key, node.depth.into(), 64, &value);
            }
            Slot::Storage(index) => {
                let node = &self.arena.slots[index];
                let mut value = Vec::with_capacity(33);
                rlp::put_slot(&mut value, &node.value);
                rlp::put_leaf(out, &node.key, node.depth.into(), 64, &value);
            }
            Slot::Empty | Slot::Stub(_) => panic!("{link:?} has no RLP here"),
        }
    }

    /// The root of the storage trie at `storage`, the link that an account's leaf holds. `None`
    /// if it is not hashed.
    pub fn storage_root_at(&self, storage: Link) -> Option<B256> {
        if storage.is_empty() {
            return Some(EMPTY_ROOT);
        }
        self.memo(storage).map(|node| node.root_hash())
    }

    /// The root of the trie: Keccak-256 of the root's RLP however short that is. `None` if it is
    /// not hashed; not a state root unless the trie is based at the empty path.
    pub fn state_root(&self) -> Option<B256> {
        self.storage_root_at(self.root)
    }
}
