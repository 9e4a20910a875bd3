//! The nodes on the paths to some leaves, one by one, as a history records them for a block.

use crate::{
    arena::{Link, NodeId},
    error::UpdateError,
    extract::{Name, ProofTargets, below, by_nibble, names_of},
    partial::PartialTrie,
    resolve::Resolve,
};
use alloc::vec::Vec;
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Path};

/// A branch on the path to a leaf, or the leaf of an account on the path to its slots.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// The path of the branch; 64 nibbles for an account, whose storage root hangs there.
    pub path: Path,
    /// The node.
    pub link: Link,
    /// Which children of a branch are on the paths, one bit for each, the lowest for the first.
    pub on_path: u16,
}

impl PartialTrie {
    /// Lists the branches on the paths of `keys`, and the accounts on the paths of their slots, in the
    /// order of their paths. Loads absent subtries, and computes the references of the children of all that
    /// it lists.
    ///
    /// # Errors
    ///
    /// Returns an error if a target is outside the trie or loading fails.
    pub fn trace<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        resolver: &mut R,
        batch: &mut Batch,
    ) -> Result<Vec<Traced>, UpdateError<R::Error>> {
        self.load(keys, resolver)?;
        let mut traced = Vec::new();
        let (root, depth) = (self.root, self.base.len());
        self.trace_names(root, &B256::ZERO, depth, keys.accounts(), &mut traced);
        let links: Vec<_> = traced.iter().map(|node| node.link).collect();
        self.hash_to_graft(&links, batch);
        Ok(traced)
    }

    fn trace_names<N: Name>(
        &self,
        link: Link,
        account: &B256,
        depth: usize,
        names: &[N],
        out: &mut Vec<Traced>,
    ) {
        let Some(first) = names.first() else { return };
        match link.id() {
            NodeId::Branch(index) => {
                let path = N::path(account, first.key(), depth);
                let own = out.len();
                out.push(Traced {
                    path,
                    link,
                    on_path: 0,
                });
                for (at, group) in by_nibble(names, depth) {
                    out[own].on_path |= 1 << at;
                    let child = self.arena.branches[index].children[at];
                    self.trace_names(child, account, depth + 1, group, out);
                }
            }
            NodeId::Extension(index) => {
                let node = &self.arena.extensions[index];
                let end = usize::from(node.end) - N::LEVEL;
                let names = below(names, &node.key, end);
                self.trace_names(node.child, account, end, names, out);
            }
            NodeId::Account(index) => {
                let node = &self.arena.accounts[index];
                let key = B256::from(node.key);
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                if !slots.is_empty() {
                    let path = Path::account(&key).prefix(ACCOUNT_NIBBLES);
                    out.push(Traced {
                        path,
                        link,
                        on_path: 0,
                    });
                    self.trace_names(node.storage, &key, 0, slots, out);
                }
            }
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => {}
        }
    }
}
