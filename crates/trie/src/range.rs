//! Leaves in the order of their paths, and proofs that they are all that there are.
//!
//! A proof of a range is a partial trie in which nothing within the range is blinded. A verifier builds it from its
//! nodes and compares the root; then it can list the leaves, and knows that none is missing.

use crate::{
    arena::Link,
    error::{Missing, TrieError, UpdateError},
    extract::ProofTargets,
    graft::LeafValue,
    node_ref::Stub,
    partial::{Lookup, NodeView, PartialTrie},
    resolve::Resolve,
};
use alloc::{vec, vec::Vec};
use alloy_primitives::B256;
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use core::{num::NonZeroUsize, ops::ControlFlow};

/// Blinded nodes that are loaded at once, at most.
const NODES_AT_ONCE: usize = 1_024;
/// Number of further leaves, for each leaf found, that are expected to be as dense.
const DENSITY_TRUST: usize = 8;

/// Accounts from one path to another, or slots of one account, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRange {
    /// The account whose slots these are; `None` for accounts.
    pub account: Option<B256>,
    /// First path, keccak(address) or keccak(slot).
    pub first: B256,
    /// Last path, which belongs to the range.
    pub last: B256,
}

impl LeafRange {
    /// Accounts from one path to another.
    pub const fn accounts(first: B256, last: B256) -> Self {
        Self {
            account: None,
            first,
            last,
        }
    }

    /// Slots of the account at keccak(address).
    pub const fn slots(account: B256, first: B256, last: B256) -> Self {
        Self {
            account: Some(account),
            first,
            last,
        }
    }

    /// The path of a leaf in the state trie.
    fn path(&self, key: &B256) -> Path {
        match &self.account {
            None => Path::account(key),
            Some(account) => Path::slot(account, key),
        }
    }

    /// Whether it has leaves below a path.
    pub(crate) fn reaches(&self, path: &Path) -> bool {
        let (first, last) = (self.path(&self.first), self.path(&self.last));
        (first.prefix(path.len())..=last.prefix(path.len())).contains(path)
    }

    /// The key at which the leaves below a path of the range's trie begin.
    pub(crate) fn first_below(&self, path: &Path) -> B256 {
        let leaf = path.first_leaf();
        let key = match self.account {
            None => leaf.account_part(),
            Some(_) => leaf.slot_part(),
        };
        key.unwrap_or(self.first)
    }

    /// The part that begins at `from` and probably has `wanted` more leaves, if the part before has `found`.
    fn ahead(&self, from: B256, found: usize, wanted: usize) -> Self {
        // The density of a few leaves is a poor estimate.
        let wanted = wanted.min(DENSITY_TRUST * found);
        let lead = |key: &B256| u64::from_be_bytes(key[..8].try_into().expect("eight bytes"));
        let before = u128::from(lead(&from).saturating_sub(lead(&self.first)));
        let ahead = before * wanted as u128 / found.max(1) as u128;
        let last = u128::from(lead(&from)) + ahead + ahead / 4;
        let mut end = B256::repeat_byte(u8::MAX);
        end[..8].copy_from_slice(&u64::try_from(last).unwrap_or(u64::MAX).to_be_bytes());
        Self {
            first: from,
            last: match found {
                0 => from,
                _ => end.min(self.last),
            },
            ..*self
        }
    }

    fn targets(&self, mut keys: Vec<B256>) -> ProofTargets {
        keys.push(self.first);
        keys.push(self.last);
        ProofTargets::new(match self.account {
            None => keys.into_iter().map(|key| (key, vec![])).collect(),
            Some(account) => vec![(account, keys)],
        })
    }
}

/// A part of a trie that has all leaves of a range.
#[derive(Clone, Debug)]
pub struct ExtractedRange {
    /// The nodes on the paths to the leaves, and to both ends of the range.
    pub trie: PartialTrie,
    /// The extracted range: the range that was asked for, or the part of it within the limit.
    pub range: LeafRange,
    /// The first leaf beyond, within what was asked for: `None` if there is none.
    pub next: Option<B256>,
}

impl PartialTrie {
    /// Visits the leaves of a range in the order of their paths, until `visit` breaks.
    ///
    /// # Errors
    ///
    /// [`Missing`] if a node within the range is blinded.
    pub fn visit_range(
        &self,
        range: &LeafRange,
        visit: &mut dyn FnMut(&B256, LeafValue) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Missing> {
        self.visit_range_from(self.root, range, visit)
    }

    /// As [`PartialTrie::visit_range`], in the trie with the root `root`.
    pub(crate) fn visit_range_from(
        &self,
        root: Link,
        range: &LeafRange,
        visit: &mut dyn FnMut(&B256, LeafValue) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Missing> {
        let Some(account) = &range.account else {
            return self.visit_below(root, self.base, range, visit);
        };
        let path = Path::account(account);
        if !path.starts_with(&self.base) {
            return Ok(ControlFlow::Continue(()));
        }
        match self.lookup_from(root, &path) {
            Lookup::Stub { depth, stub } => Err(Missing {
                path: path.prefix(depth),
                node: stub.node,
            }),
            Lookup::Account(_) => {
                let storage = self.find_from(root, self.base.len(), &path);
                self.visit_below(storage.unwrap_or(Link::EMPTY), path, range, visit)
            }
            Lookup::Absent | Lookup::Slot(_) | Lookup::Entry(_) => Ok(ControlFlow::Continue(())),
        }
    }

    /// The leaves of a range, in the order of their paths.
    ///
    /// # Errors
    ///
    /// As [`PartialTrie::visit_range`].
    pub fn leaves(&self, range: &LeafRange) -> Result<Vec<(B256, LeafValue)>, Missing> {
        let mut leaves = Vec::new();
        _ = self.visit_range(range, &mut |key, value| {
            leaves.push((*key, value));
            ControlFlow::Continue(())
        })?;
        Ok(leaves)
    }

    fn visit_below(
        &self,
        link: Link,
        path: Path,
        range: &LeafRange,
        visit: &mut dyn FnMut(&B256, LeafValue) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Missing> {
        if !range.reaches(&path) {
            return Ok(ControlFlow::Continue(()));
        }
        let (key, value) = match self.visit(link) {
            NodeView::Empty => return Ok(ControlFlow::Continue(())),
            NodeView::Stub(stub) => {
                return Err(Missing {
                    path,
                    node: stub.node,
                });
            }
            NodeView::Extension { path: own, child } => {
                return self.visit_below(child, path.join(&own), range, visit);
            }
            NodeView::Branch { children } => {
                for (nibble, child) in (0..).zip(children) {
                    let outcome = self.visit_below(*child, path.child(nibble), range, visit)?;
                    if outcome.is_break() {
                        return Ok(outcome);
                    }
                }
                return Ok(ControlFlow::Continue(()));
            }
            NodeView::Account { key, account, .. } => (key, LeafValue::Account(account)),
            NodeView::Slot { key, value, .. } => (key, LeafValue::Slot(value)),
            NodeView::Entry { key, value, .. } => (key, LeafValue::Entry(value.clone())),
        };
        Ok(match (range.first..=range.last).contains(&key) {
            true => visit(&key, value),
            false => ControlFlow::Continue(()),
        })
    }

    /// Lists the blinded nodes of a range that nodes above are known of, in the order of their paths, up to
    /// `max`.
    fn absent(
        &self,
        link: Link,
        path: Path,
        range: &LeafRange,
        max: usize,
        out: &mut Vec<(Path, Stub)>,
    ) {
        if out.len() == max || !range.reaches(&path) {
            return;
        }
        match self.visit(link) {
            NodeView::Stub(stub) => out.push((path, *stub)),
            NodeView::Extension { path: own, child } => {
                self.absent(child, path.join(&own), range, max, out);
            }
            NodeView::Branch { children } => {
                for (nibble, child) in (0..).zip(children) {
                    self.absent(*child, path.child(nibble), range, max, out);
                }
            }
            NodeView::Empty
            | NodeView::Account { .. }
            | NodeView::Entry { .. }
            | NodeView::Slot { .. } => {}
        }
    }

    /// Loads the blinded nodes of a range whose parents are there, up to `max`.
    fn load_absent<R: Resolve>(
        &mut self,
        range: &LeafRange,
        max: usize,
        resolver: &mut R,
    ) -> Result<(), UpdateError<R::Error>> {
        let (root, path) = match &range.account {
            None => (self.root, self.base),
            Some(account) => {
                let path = Path::account(account);
                (self.find(&path).unwrap_or(Link::EMPTY), path)
            }
        };
        let mut nodes = Vec::new();
        self.absent(root, path, range, max, &mut nodes);
        resolver.read_ahead(&nodes).map_err(UpdateError::Resolve)?;
        for (path, _) in &nodes {
            _ = self.load_node(path, resolver)?;
        }
        Ok(())
    }

    /// Extracts the leaves of a range, `limit` of them at most, and the nodes that prove the absence of others. Loads
    /// absent subtries level by level, up to where the leaves probably end.
    ///
    /// # Errors
    ///
    /// [`TrieError::Unsorted`] if the range ends before it begins, and an error if it is outside the trie
    /// or loading fails.
    pub fn extract_range<R: Resolve>(
        &mut self,
        range: &LeafRange,
        limit: NonZeroUsize,
        resolver: &mut R,
    ) -> Result<ExtractedRange, UpdateError<R::Error>> {
        if range.first > range.last {
            let path = range.path(&range.last);
            return Err(TrieError::Unsorted { path }.into());
        }
        let (mut keys, mut rest) = (Vec::new(), *range);
        let next = loop {
            let mut next = None;
            let outcome = self.visit_range(&rest, &mut |key, _| {
                if keys.len() == limit.get() {
                    next = Some(*key);
                    return ControlFlow::Break(());
                }
                keys.push(*key);
                ControlFlow::Continue(())
            });
            let missing = match outcome {
                Ok(_) => break next,
                Err(missing) => missing.path,
            };
            if let Some(above) = keys.last().and_then(successor) {
                rest.first = above;
            }
            match (&range.account, missing.len() < ACCOUNT_NIBBLES) {
                (Some(account), true) => {
                    _ = self.load_leaf(&Path::account(account), resolver)?;
                }
                _ => {
                    let from = range.first_below(&missing).max(rest.first);
                    let wanted = limit.get() - keys.len();
                    let ahead = range.ahead(from, keys.len(), wanted.saturating_add(1));
                    let max = wanted.saturating_add(1).min(NODES_AT_ONCE);
                    self.load_absent(&ahead, max, resolver)?;
                }
            }
        };
        let extracted = match next {
            None => *range,
            Some(_) => LeafRange {
                last: keys.last().copied().unwrap_or(range.last),
                ..*range
            },
        };
        Ok(ExtractedRange {
            trie: self.extract(&extracted.targets(keys), resolver)?,
            range: extracted,
            next,
        })
    }
}

/// The path after another; `None` after the last one.
pub(crate) fn successor(path: &B256) -> Option<B256> {
    let mut next = *path;
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_successor_is_the_next_path() {
        assert_eq!(
            successor(&B256::with_last_byte(7)),
            Some(B256::with_last_byte(8))
        );
        let mut carried = B256::ZERO;
        carried[30] = 1;
        assert_eq!(successor(&B256::with_last_byte(255)), Some(carried));
        assert_eq!(successor(&B256::repeat_byte(255)), None);
    }
}
