//! The part of a block's state trie that some leaves need: what proofs and witnesses are made of.

use crate::{
    engine::parts::Engine,
    layers::overlay::LayerId,
    tries::{
        base::Base,
        delta::{Delta, as_bad_changes},
        resolve::{Resolver, graft_hashed},
        shards::TrieShards,
    },
    view::state::View,
};
use cambium_primitives::{Changes, Path};
use cambium_snapshot::{ReadFor, StateError, past_bytes, shard_of, update_error};
use cambium_trie::{Keys, Link, PartialTrie, Resolve, Stub};
use std::sync::Arc;

/// Finds nodes below the crown in a forest, and below that in its base.
struct ShardsResolver<'a> {
    tries: &'a TrieShards,
    base: Resolver<'a>,
}

impl<'a> ShardsResolver<'a> {
    fn new(tries: &'a TrieShards, base: &'a Base) -> Self {
        let base = Resolver::new(base, ReadFor::Proof);
        Self { tries, base }
    }
}

impl Resolve for ShardsResolver<'_> {
    type Error = StateError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, StateError> {
        let trie = self.tries.shard(shard_of(path));
        if let Some(link) = trie.find(path)
            && let Some(grafted) = graft_hashed(into, trie, link)?
        {
            return Ok(grafted);
        }
        self.base.resolve(path, stub, into)
    }
}

/// The paths of accounts and slots.
fn leaves_of(keys: &Keys) -> impl Iterator<Item = Path> {
    keys.accounts().iter().flat_map(|(account, slots)| {
        let slots = slots.iter().map(|slot| Path::slot(account, slot));
        std::iter::once(Path::account(account)).chain(slots)
    })
}

impl View {
    /// The nodes on the way to `keys`, from the root on; all else are stubs. Has the state root.
    pub fn extract(&self, keys: &Keys) -> Result<PartialTrie, StateError> {
        self.inner.with_tries(self, |tries, base| {
            let snapshot = &base.snapshot;
            snapshot.bring_pages(leaves_of(keys), ReadFor::Proof)?;
            let mut trie = tries.top_levels().clone();
            trie.extract(keys, &mut ShardsResolver::new(tries, base))
                .map_err(update_error)
        })
    }

    /// As [`View::extract`], with all that applying `changes` needs besides.
    pub fn extract_for_changes(
        &self,
        keys: &Keys,
        changes: &Changes,
    ) -> Result<PartialTrie, StateError> {
        self.inner.with_tries(self, |tries, base| {
            let changed = Keys::of_changes(changes.accounts());
            let leaves = leaves_of(keys).chain(leaves_of(&changed));
            base.snapshot.bring_pages(leaves, ReadFor::Proof)?;
            let mut trie = tries.top_levels().clone();
            let mut resolver = ShardsResolver::new(tries, base);
            trie.extract_for_changes(keys, changes.accounts(), &mut resolver)
                .map_err(|error| as_bad_changes(update_error(error)))
        })
    }
}

impl Engine {
    /// Works on the tries of the state of `view`. They are a second set beside the one that roots
    /// are computed with, so that proofs and commits do not wait for each other. A view of a state
    /// that no layer has gets tries of its own.
    fn with_tries<T>(
        self: &Arc<Self>,
        view: &View,
        work: impl FnOnce(&TrieShards, &Base) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        if let Some(past) = &view.past {
            let mut prover = past.prover.lock();
            let done = self.prove_apart(view, &mut prover, work);
            past.count_prover(&mut prover, past_bytes(self.options.memory_bytes) as usize);
            return done;
        }
        let mut prover = self.prover.lock();
        let found = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            let layer = tree.by_hash(&view.block().hash);
            // Another block of the name of one that was given up is not it.
            let layer = layer.filter(|_| view.check_alive().is_ok());
            layer.map(|layer| {
                prover.take_if(|prover| {
                    let is_current = Arc::ptr_eq(prover.base(), &current.base);
                    !is_current || tree.get(prover.at()).is_none()
                });
                let path = match &*prover {
                    Some(prover) => prover.path_to(tree, layer.id),
                    None => tree.changes_between(tree.root().id, layer.id),
                };
                (current.base.clone(), tree.root().id, layer.id, path)
            })
        };
        // The view may have outlived its place in the tree.
        let Some((base, root, layer, path)) = found else {
            drop(prover);
            return self.prove_apart(view, &mut None, work);
        };
        let delta = match &mut *prover {
            Some(delta) => delta,
            none => none.insert(Delta::on(base, root, self.store.counters.clone())?),
        };
        delta.move_along(&path, layer)?;
        let base = delta.base().clone();
        let done = work(delta.tries()?, &base);
        let is_large = delta.memory_bytes() > self.merging.limit.prover_bytes_max();
        // Nobody keeps an older snapshot for proofs that may come.
        if is_large || !Arc::ptr_eq(&base, &self.layers.current.read().base) {
            *prover = None;
        }
        done
    }

    /// Works on tries made of what `view` itself has. They are left in `prover`.
    fn prove_apart<T>(
        &self,
        view: &View,
        prover: &mut Option<Delta>,
        work: impl FnOnce(&TrieShards, &Base) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let delta = match prover {
            Some(delta) => delta,
            none => {
                let (base, root) = (view.base.clone(), LayerId(0));
                none.insert(Delta::on(base, root, self.store.counters.clone())?)
            }
        };
        if delta.at() != view.layer.id {
            let changes = view.overlay.changes(&view.layer.ancestors);
            delta.move_along(&changes, view.layer.id)?;
        }
        let base = delta.base().clone();
        work(delta.tries()?, &base)
    }

    /// Lets go of the tries for proofs, which are of an older snapshot now. Whoever is at work on
    /// them does so afterwards.
    pub(crate) fn forget_prover(&self) {
        if let Some(mut prover) = self.prover.try_lock() {
            *prover = None;
        }
    }
}
