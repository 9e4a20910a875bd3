//! Extraction of the partial trie that some leaves need, from which proofs and witnesses are made.

use crate::{
    engine::{parts::Engine, prover::Prover},
    past::trie::TrieReader,
    tries::{
        base::Base,
        delta::{Delta, as_bad_changes},
        shards::TrieShards,
    },
    view::state::View,
};
use alloy_primitives::{Address, B256, keccak256};
use cambium_primitives::{Changes, Path};
use cambium_snapshot::{ReadCause, StateError, restored_bytes_max, update_error};
use cambium_trie::{
    AccountProof, ExtractedRange, LeafRange, Link, Lookup, NoResolve, PartialTrie, ProofTargets,
    RangeProof, StorageKey, TrieError, UpdateError,
};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use std::{num::NonZeroUsize, sync::Arc};

/// The paths of accounts and slots.
fn leaves_of(keys: &ProofTargets) -> impl Iterator<Item = Path> {
    keys.accounts().iter().flat_map(|(account, slots)| {
        let slots = slots.iter().map(|slot| Path::slot(account, slot));
        std::iter::once(Path::account(account)).chain(slots)
    })
}

impl View {
    /// Extracts the nodes on the paths to `keys`, from the state root on. All other subtries are
    /// blinded.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails, an error that names the file if a page or a part of
    /// the index is damaged, and [`StateError::StorageNotKept`] for slots of a contract whose storage a partial database does
    /// not keep. Accounts can be proved in any database.
    pub fn extract(&self, keys: &ProofTargets) -> Result<PartialTrie, StateError> {
        self.inner.refuse_layered("a proof of nodes")?;
        self.inner.check_targets(keys)?;
        self.extract_state(keys)
    }

    /// Extracts the same from the trie of the view's state, whether or not its root is the state
    /// root.
    pub(crate) fn extract_state(&self, keys: &ProofTargets) -> Result<PartialTrie, StateError> {
        self.inner.with_tries(self, |tries, base| {
            let snapshot = &base.snapshot;
            snapshot.prefetch_pages(leaves_of(keys), ReadCause::Proof)?;
            let mut trie = tries.top_levels().clone();
            trie.extract(keys, &mut TrieReader::new(tries, base))
                .map_err(update_error)
        })
    }

    /// Reads the root of the storage trie of the account at keccak(address), in partial databases of any account; `None` if
    /// the account doesn't exist. [`View::prove_account`] proves it.
    ///
    /// # Errors
    ///
    /// As [`View::extract`].
    pub fn storage_root(&self, account: &B256) -> Result<Option<B256>, StateError> {
        let part = self.extract(&ProofTargets::new(vec![(*account, Vec::new())]))?;
        let path = Path::account(account);
        if part.lookup(&path) == Lookup::Absent {
            return Ok(None);
        }
        let storage = part.find(&path).unwrap_or(Link::EMPTY);
        let root = part.storage_root_at(storage);
        let broken = StateError::Broken {
            path,
            what: "the root of a storage",
        };
        root.map(Some).ok_or(broken)
    }

    /// Extracts the leaves of a range in the order of their paths, `limit` of them at most, and the nodes
    /// that prove that there are no others.
    ///
    /// # Errors
    ///
    /// As [`View::extract`], and an error if the range ends before it begins.
    pub fn extract_range(
        &self,
        range: &LeafRange,
        limit: NonZeroUsize,
    ) -> Result<ExtractedRange, StateError> {
        self.inner.refuse_layered("a proof of a range")?;
        if let Some(account) = &range.account {
            self.inner.check_storage_kept(account)?;
        }
        self.extract_state_range(range, limit)
    }

    /// Extracts the same from the trie of the view's state, whether or not its root is the state
    /// root.
    pub(crate) fn extract_state_range(
        &self,
        range: &LeafRange,
        limit: NonZeroUsize,
    ) -> Result<ExtractedRange, StateError> {
        self.inner.with_tries(self, |tries, base| {
            let mut trie = tries.top_levels().clone();
            trie.extract_range(range, limit, &mut TrieReader::new(tries, base))
                .map_err(update_error)
        })
    }

    /// Proves the values, or the absence, of the account at `address` and of some of its slots, as
    /// `eth_getProof` does (EIP-1186). [`verify_account_proof`](cambium_trie::verify_account_proof)
    /// verifies the proof without a database.
    ///
    /// # Errors
    ///
    /// As [`View::extract`].
    pub fn prove_account(
        &self,
        address: Address,
        slots: &[StorageKey],
    ) -> Result<AccountProof, StateError> {
        let paths = slots.iter().map(|key| keccak256(key.slot)).collect();
        let targets = ProofTargets::new(vec![(keccak256(address), paths)]);
        // The extracted trie has all nodes of the proof, so there is nothing to resolve.
        self.extract(&targets)
            .map_err(|error| error.at_address(address))?
            .prove_account(address, slots, &mut NoResolve)
            .map_err(|error| {
                StateError::Trie(match error {
                    UpdateError::Trie(error) => error,
                    UpdateError::Resolve(missing) => TrieError::NoNode { path: missing.path },
                })
            })
    }

    /// As [`View::prove_account`], in alloy's type for the response of `eth_getProof`.
    ///
    /// # Errors
    ///
    /// As [`View::extract`].
    #[cfg(feature = "rpc")]
    pub fn prove(
        &self,
        address: Address,
        slots: &[B256],
    ) -> Result<cambium_trie::EIP1186AccountProofResponse, StateError> {
        let slots: Vec<_> = slots.iter().map(|slot| StorageKey::from(*slot)).collect();
        Ok(self.prove_account(address, &slots)?.into())
    }

    /// Proves a page of accounts: all of those from keccak(address) `from` on, in the order of
    /// keccak(address), `limit` at most. [`RangeProof::verify_accounts`] verifies the page without a
    /// database, and says where the next one begins.
    ///
    /// The page is in memory, with about as many nodes as it has accounts.
    ///
    /// # Errors
    ///
    /// As [`View::extract`].
    pub fn prove_accounts(
        &self,
        from: B256,
        limit: NonZeroUsize,
    ) -> Result<RangeProof, StateError> {
        let range = LeafRange::accounts(from, B256::repeat_byte(u8::MAX));
        Ok(RangeProof::new(None, &self.extract_range(&range, limit)?))
    }

    /// Proves a page of the slots of the account at `address`: all of those from keccak(slot) `from` on, in the
    /// order of keccak(slot), `limit` at most. [`RangeProof::verify_slots`] verifies it. Otherwise as
    /// [`View::prove_accounts`].
    ///
    /// # Errors
    ///
    /// As [`View::extract`].
    pub fn prove_slots(
        &self,
        address: Address,
        from: B256,
        limit: NonZeroUsize,
    ) -> Result<RangeProof, StateError> {
        let range = LeafRange::slots(keccak256(address), from, B256::repeat_byte(u8::MAX));
        let extracted = self.extract_range(&range, limit);
        let extracted = extracted.map_err(|error| error.at_address(address))?;
        Ok(RangeProof::new(Some(address), &extracted))
    }

    /// Extracts the nodes on the paths to `keys`, and all nodes that applying `changes` needs.
    ///
    /// # Errors
    ///
    /// As [`View::extract`]; [`StateError::BadChanges`] if `changes` contradict the state.
    pub fn extract_for_changes(
        &self,
        keys: &ProofTargets,
        changes: &Changes,
    ) -> Result<PartialTrie, StateError> {
        self.inner.refuse_layered("a witness of nodes")?;
        let changed = ProofTargets::of_changes(changes.accounts());
        self.inner.check_targets(keys)?;
        self.inner.check_targets(&changed)?;
        self.inner.with_tries(self, |tries, base| {
            let leaves = leaves_of(keys).chain(leaves_of(&changed));
            base.snapshot.prefetch_pages(leaves, ReadCause::Proof)?;
            let mut trie = tries.top_levels().clone();
            let mut resolver = TrieReader::new(tries, base);
            trie.extract_for_changes(keys, changes.accounts(), &mut resolver)
                .map_err(|error| as_bad_changes(update_error(error)))
        })
    }
}

impl Engine {
    /// Fails with [`StateError::NotUnderLayered`] if the chain has the `layered` commitment.
    pub(crate) const fn refuse_layered(&self, what: &'static str) -> Result<(), StateError> {
        match self.layered {
            None => Ok(()),
            Some(_) => Err(StateError::NotUnderLayered(what)),
        }
    }

    /// Runs `work` on the tries at the state of `view`. These are a second set beside the tries
    /// that compute roots, so that proofs and commits don't wait for each other. Proofs at one block run at the same time. A view whose
    /// state has no layer gets tries of its own.
    pub(crate) fn with_tries<T>(
        self: &Arc<Self>,
        view: &View,
        work: impl FnOnce(&TrieShards, &Base) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let _span = tracing::debug_span!("prove", block = %view.block()).entered();
        if let Some(past) = &view.past {
            let mut prover = past.prover.lock();
            let done = self.prove_apart(view, &mut prover, work);
            past.count_prover(
                &mut prover,
                restored_bytes_max(self.options.memory_bytes) as usize,
            );
            return done;
        }
        let prover = self.prover.read();
        let prover = match self.is_at(&prover, view) {
            true => Some(prover),
            false => {
                drop(prover);
                self.move_prover(view)?
            }
        };
        // The view may have outlived its place in the tree.
        let Some(prover) = prover else {
            return self.prove_apart(view, &mut None, work);
        };
        let found = prover.as_ref().and_then(Prover::tries);
        let (tries, base) = found.expect("moved there");
        let done = work(tries, base);
        let is_large = prover.as_ref().is_some_and(|prover| prover.is_large);
        let is_old = !Arc::ptr_eq(base, &self.layers.current.read().base);
        drop(prover);
        if is_large || is_old {
            self.forget_prover();
        }
        done
    }

    /// Whether the tries for proofs are at the state of `view`.
    fn is_at(&self, prover: &Option<Prover>, view: &View) -> bool {
        let current = self.layers.current.read();
        let layer = current.tree.by_hash(&view.block().hash);
        // A dropped block is not the layer of the same hash that came later.
        let layer = layer.filter(|_| view.check_alive().is_ok());
        match (prover, layer) {
            (Some(prover), Some(layer)) => prover.is_at(layer.id, &current.base),
            _ => false,
        }
    }

    /// Moves the tries for proofs to the state of `view`, once no proof reads them. Returns `None` if the state has no layer.
    fn move_prover(
        &self,
        view: &View,
    ) -> Result<Option<RwLockReadGuard<'_, Option<Prover>>>, StateError> {
        let mut prover = self.prover.write();
        let found = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            let layer = tree.by_hash(&view.block().hash);
            let layer = layer.filter(|_| view.check_alive().is_ok());
            layer.map(|layer| {
                prover.take_if(|prover| {
                    let delta = prover.delta();
                    let is_current = Arc::ptr_eq(delta.base(), &current.base);
                    !is_current || tree.get(delta.at()).is_none()
                });
                let path = match &*prover {
                    Some(prover) => prover.delta().path_to(tree, layer.id),
                    None => tree.changes_between(tree.root().id, layer.id),
                };
                (current.base.clone(), tree.root().id, layer.id, path)
            })
        };
        let Some((base, root, layer, path)) = found else {
            return Ok(None);
        };
        let moved = match &mut *prover {
            Some(prover) => prover,
            none => {
                let delta = Delta::on(base, root, self.store.counters.clone())?;
                none.insert(Prover::new(delta))
            }
        };
        // A reader has no tries for roots, in whose place these are.
        let limit = &self.merging.limit;
        let bytes_max = match self.journal.is_read_only() {
            true => limit.get(),
            false => limit.prover_bytes_max(),
        };
        moved.move_along(&path, layer, bytes_max)?;
        Ok(Some(RwLockWriteGuard::downgrade(prover)))
    }

    /// Drops the tries for proofs, since their snapshot is not the newest any more, or they are too large. If a proof is
    /// at work on them, it drops them when it ends.
    pub(crate) fn forget_prover(&self) {
        if let Some(mut prover) = self.prover.try_write() {
            *prover = None;
        }
    }
}
