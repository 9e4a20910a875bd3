//! Reading through the layers, from the top down: each target is looked up in a layer until one of
//! them says what its value is.

use super::{
    layer::UpperTrie,
    leaf::{AccountLeaf, Fields},
};
use crate::{
    arena::Link,
    error::{Missing, UpdateError},
    extract::ProofTargets,
    multiproof::ProvedAccount,
    partial::{Lookup, PartialTrie},
};
use alloc::vec::Vec;
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, Path};

/// A target that a blinded node hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) path: Path,
    pub(crate) depth: usize,
}

/// Targets of which some are not found yet.
pub(crate) struct Descent(Vec<Target>);

struct Target {
    path: B256,
    /// The account, `Some(None)` if it does not exist, and `None` while that is not known.
    account: Option<Option<Account>>,
    /// The slots, with their values once found.
    slots: Vec<(B256, Option<U256>)>,
}

impl Target {
    fn is_found(&self) -> bool {
        self.account.is_some() && self.slots.iter().all(|(_, value)| value.is_some())
    }

    /// The slots that are not found yet are zero.
    fn void_slots(&mut self) {
        for (_, value) in &mut self.slots {
            value.get_or_insert(U256::ZERO);
        }
    }
}

impl Descent {
    /// Starts a descent with no target found.
    pub(crate) fn new(targets: &ProofTargets) -> Self {
        let accounts = targets.accounts().iter().map(|(path, slots)| Target {
            path: *path,
            account: None,
            slots: slots.iter().map(|slot| (*slot, None)).collect(),
        });
        Self(accounts.collect())
    }

    /// Returns the targets to look up in the next layer.
    pub(crate) fn targets(&self) -> ProofTargets {
        let open = self.0.iter().filter(|target| !target.is_found());
        let open = open.map(|target| {
            let slots = target.slots.iter().filter(|(_, value)| value.is_none());
            (target.path, slots.map(|(slot, _)| *slot).collect())
        });
        ProofTargets::new(open.collect())
    }

    /// Looks the open targets up in an upper trie.
    ///
    /// # Errors
    ///
    /// An error for a target that a blinded node hides.
    pub(crate) fn pass_upper(&mut self, layer: &UpperTrie) -> Result<(), Hidden> {
        for target in self.0.iter_mut().filter(|target| !target.is_found()) {
            let path = target.path;
            let found = layer.find_account(&path).map_err(|depth| Hidden {
                path: Path::account(&path),
                depth,
            })?;
            if let Some((leaf, slots)) = found {
                target.pass_leaf(layer, &leaf, slots)?;
            }
        }
        Ok(())
    }

    /// Looks the open targets up in the trie of a state, where all of them end.
    ///
    /// # Errors
    ///
    /// An error for a target that a blinded node hides.
    pub(crate) fn pass_state(&mut self, state: &PartialTrie) -> Result<(), Hidden> {
        let find = |path: Path| match state.lookup(&path) {
            Lookup::Stub { depth, .. } => Err(Hidden { path, depth }),
            found => Ok(found),
        };
        for target in self.0.iter_mut().filter(|target| !target.is_found()) {
            let account = match find(Path::account(&target.path))? {
                Lookup::Account(account) => Some(account),
                _ => None,
            };
            target.account.get_or_insert(account);
            for (slot, value) in target.slots.iter_mut().filter(|(_, value)| value.is_none()) {
                *value = Some(match find(Path::slot(&target.path, slot))? {
                    Lookup::Slot(value) => value,
                    _ => U256::ZERO,
                });
            }
        }
        Ok(())
    }

    /// The values, in the order of the targets, once all are found.
    pub(crate) fn finish(self) -> Vec<ProvedAccount> {
        let found = self.0.into_iter().map(|target| ProvedAccount {
            path: target.path,
            account: target.account.flatten(),
            slots: target
                .slots
                .into_iter()
                .map(|(slot, value)| (slot, value.unwrap_or_default()))
                .collect(),
        });
        found.collect()
    }
}

impl Target {
    fn pass_leaf(
        &mut self,
        layer: &UpperTrie,
        leaf: &AccountLeaf,
        slots: Link,
    ) -> Result<(), Hidden> {
        let path = self.path;
        match leaf.fields() {
            Fields::Kept => {}
            Fields::Put(account) => {
                self.account.get_or_insert(Some(account));
            }
            Fields::Deleted => {
                self.account.get_or_insert(None);
                self.void_slots();
                return Ok(());
            }
        }
        for (slot, value) in self.slots.iter_mut().filter(|(_, value)| value.is_none()) {
            let found = layer.find_slot(slots, slot);
            *value = found.map_err(|depth| Hidden {
                path: Path::slot(&path, slot),
                depth,
            })?;
        }
        if leaf.is_wiped() {
            self.void_slots();
        }
        Ok(())
    }
}

/// The target that an extraction found hidden. Tries without blinded nodes hide nothing.
pub(crate) fn hidden_by(error: &UpdateError<Missing>) -> Hidden {
    match error {
        UpdateError::Resolve(Missing { path, .. }) => Hidden {
            path: *path,
            depth: path.len(),
        },
        UpdateError::Trie(_) => Hidden {
            path: Path::EMPTY,
            depth: 0,
        },
    }
}
