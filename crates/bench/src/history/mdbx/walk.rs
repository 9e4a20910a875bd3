//! The state trie, put together from branches and accounts: the root, what changed, or a proof.
//!
//! A branch is kept only if there is a branch among its children, and the root is not. It has the hashes of
//! those children that are branches. So all sixteen branches below the root are read; below them,
//! a child that is a branch is its hash unless the path goes through it, and everything else is
//! hashed again, from the accounts below.

use crate::history::plan::Failure;
use alloy_primitives::B256;
use alloy_trie::{BranchNodeCompact, EMPTY_ROOT_HASH, HashBuilder, Nibbles, TrieAccount};
use cambium_primitives::Account;

/// A state, as it is kept.
pub(super) trait State {
    /// The branch with the first path that begins with a prefix, of those that are kept.
    fn first_node(&self, prefix: &Nibbles)
    -> Result<Option<(Nibbles, BranchNodeCompact)>, Failure>;

    /// Visits the accounts whose paths begin with a prefix, sorted.
    fn each_account(
        &self,
        prefix: &Nibbles,
        visit: &mut dyn FnMut(&B256, &Account),
    ) -> Result<(), Failure>;
}

/// Gives the trie of a state to `builder`. Branches on some paths, which are sorted, are made anew. Returns
/// the paths of those that were read and opened, sorted.
pub(super) fn walk(
    state: &impl State,
    paths: &[Nibbles],
    builder: &mut HashBuilder,
) -> Result<Vec<Nibbles>, Failure> {
    let mut walk = Walk {
        state,
        paths,
        builder,
        opened: Vec::new(),
    };
    for nibble in 0..16 {
        walk.visit_below(Nibbles::from_nibbles([nibble]))?;
    }
    Ok(walk.opened)
}

/// Adds an account without storage.
pub(super) fn add_account(builder: &mut HashBuilder, path: &B256, account: &Account) {
    let Account {
        nonce,
        balance,
        code_hash,
    } = *account;
    let leaf = TrieAccount::new(nonce, balance, EMPTY_ROOT_HASH, code_hash);
    builder.add_leaf(Nibbles::unpack(path), &alloy_rlp::encode(leaf));
}

/// The first path that begins with a prefix.
pub(super) fn first_path(prefix: &Nibbles) -> B256 {
    let mut path = B256::ZERO;
    let packed = prefix.pack();
    path[..packed.len()].copy_from_slice(&packed);
    path
}

struct Walk<'a, S> {
    state: &'a S,
    paths: &'a [Nibbles],
    builder: &'a mut HashBuilder,
    opened: Vec<Nibbles>,
}

impl<S: State> Walk<'_, S> {
    /// Visits a part of the trie in which branches may be kept.
    fn visit_below(&mut self, prefix: Nibbles) -> Result<(), Failure> {
        let Some((path, node)) = self.state.first_node(&prefix)? else {
            return self.add_accounts(&prefix);
        };
        self.opened.push(path);
        for nibble in node.state_mask.iter() {
            let mut child = path;
            child.push(nibble);
            let has_branches = node.tree_mask.is_bit_set(nibble);
            if node.hash_mask.is_bit_set(nibble) && !self.is_on_path(&child) {
                let hash = node.hash_for_nibble(nibble);
                self.builder.add_branch(child, hash, has_branches);
            } else if has_branches {
                self.visit_below(child)?;
            } else {
                self.add_accounts(&child)?;
            }
        }
        Ok(())
    }

    fn add_accounts(&mut self, prefix: &Nibbles) -> Result<(), Failure> {
        self.state.each_account(prefix, &mut |path, account| {
            add_account(self.builder, path, account);
        })
    }

    fn is_on_path(&self, prefix: &Nibbles) -> bool {
        let at = self.paths.partition_point(|path| path < prefix);
        self.paths
            .get(at)
            .is_some_and(|path| path.starts_with(prefix))
    }
}
