//! Blinding a subtrie under a new reference: the subtrie has changed, and only its reference is known yet.

use crate::{
    arena::NodeId,
    error::{TrieError, UpdateError},
    node_ref::Stub,
    partial::PartialTrie,
    resolve::Resolve,
};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};

impl PartialTrie {
    /// Replaces the subtrie whose root is exactly at `path` by the blinded node `stub`, which may have another reference. Loads
    /// the absent nodes above, and clears their cached references. Returns false, and changes nothing but
    /// nodes that it has loaded, if no node is exactly at `path`.
    ///
    /// The kind of `stub` must be that of the node it stands for: a branch that is left with this child alone
    /// relies on it.
    ///
    /// # Errors
    ///
    /// Returns an error if loading a node fails. The trie stays valid.
    pub fn blind<R: Resolve>(
        &mut self,
        path: &Path,
        stub: Stub,
        resolver: &mut R,
    ) -> Result<bool, UpdateError<R::Error>> {
        loop {
            match self.find_or_stub(path) {
                None => return Ok(false),
                Some((_, depth)) if depth < path.len() => {
                    self.load_node(&path.prefix(depth), resolver)?;
                }
                Some(_) => break,
            }
        }
        let found = self.find_parent(self.root, self.base.len(), path);
        let (parent, old) = found.ok_or(TrieError::NoNode { path: *path })?;
        let new = self.push_stub(stub);
        self.arena.divided.clear();
        self.hang(parent, path, new);
        self.free(old);
        self.clear_refs_above(path);
        Ok(true)
    }

    /// Clears the cached references of the nodes above the one that is exactly at `path`.
    fn clear_refs_above(&mut self, path: &Path) {
        let (mut link, mut depth) = (self.root, self.base.len());
        // An account's leaf may be as deep as the root of its storage.
        while depth < path.len()
            || depth == ACCOUNT_NIBBLES && matches!(link.id(), NodeId::Account(_))
        {
            match link.id() {
                NodeId::Branch(index) => {
                    let at = usize::from(path.nibble(depth));
                    let node = &mut self.arena.branches[index];
                    node.unhashed |= 1 << at;
                    self.clear_cached_ref(link);
                    (link, depth) = (self.arena.branches[index].children[at], depth + 1);
                }
                NodeId::Extension(index) => {
                    self.clear_cached_ref(link);
                    let node = &self.arena.extensions[index];
                    (link, depth) = (node.child, node.end.into());
                }
                NodeId::Account(index) => {
                    self.clear_cached_ref(link);
                    let storage = self.arena.accounts[index].storage;
                    (link, depth) = (storage, ACCOUNT_NIBBLES);
                }
                NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Batch, NoResolve, NodeKind, NodeRef, PartialTrie, Stub, commit};
    use alloc::vec::Vec;
    use alloy_primitives::{B256, U256, keccak256};
    use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};

    fn put(index: u64, nonce: u64, slots: u64) -> AccountDiff {
        let mut slots: Vec<_> = (0..slots)
            .map(|slot| (keccak256(slot.to_be_bytes()), U256::from(nonce + 1)))
            .collect();
        slots.sort_unstable();
        AccountDiff {
            path: keccak256(index.to_be_bytes()),
            account: AccountUpdate::Put(Account {
                nonce,
                ..Account::default()
            }),
            wipe: false,
            slots,
        }
    }

    fn trie(nonce: u64) -> PartialTrie {
        let mut changes: Vec<_> = (0..300)
            .map(|index| put(index, nonce, if index == 7 { 200 } else { 0 }))
            .collect();
        changes.sort_unstable_by_key(|change| change.path);
        let mut trie = PartialTrie::new(Path::EMPTY);
        trie.apply(&changes, &mut NoResolve).unwrap();
        commit(&mut [&mut trie], &mut Batch::new());
        trie
    }

    /// Two tries with the same paths, of other values: each subtrie of one in turn is given the reference that it has
    /// in the other, until the roots are equal.
    #[test]
    fn subtries_that_are_blinded_under_their_new_references_make_the_new_root() {
        let (mut old, new) = (trie(0), trie(1));
        let storage = Path::account(&put(7, 0, 0).path);
        let mut paths: Vec<_> = (0..16).map(|nibble| storage.child(nibble)).collect();
        // All accounts but the one whose storage is replaced beneath it.
        let beside = storage.prefix(1);
        paths.extend(
            (0..16)
                .map(|nibble| Path::EMPTY.child(nibble))
                .filter(|path| *path != beside),
        );
        paths.extend(
            (0..16)
                .map(|nibble| beside.child(nibble))
                .filter(|path| !storage.starts_with(path)),
        );
        for path in &paths {
            let Some(link) = new.find(path) else {
                assert!(
                    !old.blind(path, Stub::bare(NodeRef::UNKNOWN), &mut NoResolve)
                        .unwrap()
                );
                continue;
            };
            let stub = new.as_stub(link).unwrap();
            assert!(old.blind(path, stub, &mut NoResolve).unwrap(), "{path}");
        }
        // What is left: the account itself and those beside it.
        let mut rest: Vec<_> = (0..300)
            .map(|index| put(index, 1, 0))
            .filter(|change| Path::account(&change.path).starts_with(&storage.prefix(2)))
            .collect();
        rest.sort_unstable_by_key(|change| change.path);
        old.apply(&rest, &mut NoResolve).unwrap();
        commit(&mut [&mut old], &mut Batch::new());
        assert_eq!(old.state_root(), new.state_root());
    }

    #[test]
    fn no_node_exactly_there_is_reported() {
        let mut trie = trie(0);
        let root = trie.state_root();
        let stub = Stub {
            node: NodeRef::hash(B256::repeat_byte(1)),
            kind: Some(NodeKind::Branch),
            place: None,
        };
        let leaf = Path::account(&put(3, 0, 0).path);
        assert!(!trie.blind(&leaf.prefix(63), stub, &mut NoResolve).unwrap());
        assert_eq!(trie.state_root(), root);
    }
}
