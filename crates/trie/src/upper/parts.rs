//! Reading and writing through the parts of the three tries that a witness has.

use super::{
    descent::{Descent, Hidden},
    layer::{MergeError, UpperTrie, each_slot},
    leaf::UpperKind,
    net::net_changes,
    roots::{DELTA, INTERMEDIATE, LayeredRoots, SNAPSHOT},
};
use crate::{
    arena::{Link, NodeId},
    error::TrieError,
    extract::ProofTargets,
    hash::Alone,
    multiproof::ProvedAccount,
    partial::PartialTrie,
};
use alloc::{vec, vec::Vec};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, Path};

/// A node that the parts lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no node at depth {depth} of the {trie} on the way to {path}")]
pub struct LayeredGap {
    /// Which of the three tries.
    pub trie: &'static str,
    /// Path of the account or slot.
    pub path: Path,
    /// Depth of the missing node, in nibbles.
    pub depth: usize,
}

/// Error of [`LayeredParts::net_changes`] and [`LayeredParts::merge`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayeredUpdateError {
    /// The parts lack a node.
    #[error(transparent)]
    Gap(#[from] LayeredGap),
    /// The changes don't fit the state.
    #[error(transparent)]
    Trie(#[from] TrieError),
}

/// The parts of the three tries of a block that a proof has: see [`LayeredProof::parts`].
///
/// A key is looked up from the top down. A key that the parts lack is an error, never an absence.
///
/// [`LayeredProof::parts`]: crate::LayeredProof::parts
#[derive(Clone, Debug)]
pub struct LayeredParts {
    delta: UpperTrie,
    intermediate: UpperTrie,
    snapshot: PartialTrie,
    roots: LayeredRoots,
}

fn gap(trie: &'static str) -> impl Fn(Hidden) -> LayeredGap {
    move |Hidden { path, depth }| LayeredGap { trie, path, depth }
}

impl LayeredParts {
    pub(super) fn new(tries: [PartialTrie; 3], roots: LayeredRoots) -> Self {
        let [delta, intermediate, snapshot] = tries;
        Self {
            delta: UpperTrie::from_trie(delta, UpperKind::Accounts),
            intermediate: UpperTrie::from_trie(intermediate, UpperKind::Accounts),
            snapshot,
            roots,
        }
    }

    /// The roots of the tries as they were proved.
    pub const fn roots(&self) -> LayeredRoots {
        self.roots
    }

    fn find(&self, account: &B256, slots: Vec<B256>) -> Result<ProvedAccount, LayeredGap> {
        let mut descent = Descent::new(&ProofTargets::new(vec![(*account, slots)]));
        descent.pass_upper(&self.delta).map_err(gap(DELTA))?;
        let passed = descent.pass_upper(&self.intermediate);
        passed.map_err(gap(INTERMEDIATE))?;
        descent.pass_state(&self.snapshot).map_err(gap(SNAPSHOT))?;
        Ok(descent.finish().remove(0))
    }

    /// Returns the account at `path`; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// An error if a node is missing.
    pub fn account(&self, path: &B256) -> Result<Option<Account>, LayeredGap> {
        Ok(self.find(path, Vec::new())?.account)
    }

    /// Returns the value of a slot; zero if there is none.
    ///
    /// # Errors
    ///
    /// An error if a node is missing.
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, LayeredGap> {
        let found = self.find(account, vec![*slot])?;
        Ok(found.slots.first().map_or(U256::ZERO, |(_, value)| *value))
    }

    /// Returns whether an account has slots. One nonzero slot proves that it has; only all of its slots, in each of the
    /// tries that count, prove that it has none.
    ///
    /// # Errors
    ///
    /// An error if the parts show neither.
    pub fn has_storage(&self, path: &B256) -> Result<bool, LayeredGap> {
        let hidden = |trie, depth| {
            gap(trie)(Hidden {
                path: Path::account(path),
                depth,
            })
        };
        let mut visible = Vec::new();
        let mut first_gap = None;
        let mut is_void = false;
        for (name, layer) in [(DELTA, &self.delta), (INTERMEDIATE, &self.intermediate)] {
            let (leaf, slots) = match layer.find_account(path) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(depth) => {
                    first_gap.get_or_insert(hidden(name, depth));
                    continue;
                }
            };
            if !each_slot(layer.trie(), slots, &mut |slot, _| visible.push(slot)) {
                first_gap.get_or_insert(hidden(name, 64));
            }
            is_void = leaf.is_wiped();
            if is_void {
                break;
            }
        }
        if !is_void {
            let slots = match self.snapshot.walk(self.snapshot.root(), &path.0, 0) {
                (NodeId::Account(index), _) => self.snapshot.arena.accounts[index].storage,
                (NodeId::Stub(_), depth) => {
                    first_gap.get_or_insert(hidden(SNAPSHOT, depth));
                    Link::EMPTY
                }
                _ => Link::EMPTY,
            };
            if !each_slot(&self.snapshot, slots, &mut |slot, _| visible.push(slot)) {
                first_gap.get_or_insert(hidden(SNAPSHOT, 64));
            }
        }
        for slot in &visible {
            match self.slot(path, slot) {
                Ok(value) if !value.is_zero() => return Ok(true),
                Ok(_) => {}
                // The account itself, or what may void the slot above it, is not in the parts.
                Err(gap) => _ = first_gap.get_or_insert(gap),
            }
        }
        first_gap.map_or(Ok(false), Err)
    }

    /// Returns the net changes of a block: see [`net_changes`].
    ///
    /// # Errors
    ///
    /// An error if a node is missing.
    pub fn net_changes(&self, changes: &Changes) -> Result<Vec<AccountDiff>, LayeredUpdateError> {
        let before = changes.accounts().iter().map(|change| {
            let account = self.account(&change.path)?;
            let is_put = change.account != AccountUpdate::Keep;
            let slots = match (account, change.wipe) {
                (None, _) => Vec::new(),
                // Any slot stands for all: which they are is void.
                (Some(_), true) => match is_deleted(change) || !self.has_storage(&change.path)? {
                    true => Vec::new(),
                    false => vec![(B256::ZERO, U256::from(1))],
                },
                (Some(_), false) => {
                    let slots = change.slots.iter();
                    let slots = slots.map(|(slot, _)| Ok((*slot, self.slot(&change.path, slot)?)));
                    slots.collect::<Result<_, LayeredGap>>()?
                }
            };
            Ok(AccountDiff {
                path: change.path,
                account: match account {
                    Some(account) if is_put => AccountUpdate::Put(account),
                    Some(_) => AccountUpdate::Keep,
                    None => AccountUpdate::Delete,
                },
                wipe: change.wipe,
                slots,
            })
        });
        let before = before.collect::<Result<Vec<_>, LayeredGap>>()?;
        let net = net_changes(changes, &Changes::new(before));
        Ok(net.ok_or(TrieError::NoAccount { path: Path::EMPTY })?)
    }

    /// Merges net changes into the delta, and returns its root.
    ///
    /// # Errors
    ///
    /// An error if a node is missing, or the changes don't fit.
    pub fn merge(&mut self, net: &[AccountDiff]) -> Result<B256, LayeredUpdateError> {
        let merged = self.delta.merge(net);
        merged.map_err(|error| match error {
            MergeError::Hidden { path, depth } => gap(DELTA)(Hidden { path, depth }).into(),
            MergeError::Trie(error) => LayeredUpdateError::Trie(error),
        })?;
        Ok(self.delta.hash(&Alone))
    }
}

fn is_deleted(change: &AccountDiff) -> bool {
    change.account == AccountUpdate::Delete
}
