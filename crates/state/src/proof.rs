//! The part of a block's state trie that some leaves need: what proofs and witnesses are made of.

use crate::{
    base::Base,
    db::Inner,
    delta::Delta,
    error::StateError,
    forest::{Forest, shard_of, update_error},
    pages::ReadFor,
    resolve::{Resolver, graft_hashed},
    view::View,
};
use cambium_primitives::{Changes, Path};
use cambium_trie::{Keys, Link, PartialTrie, Resolve, Stub};
use std::sync::Arc;

/// Finds nodes below the crown in a forest, and below that in its base.
struct ForestResolver<'a> {
    forest: &'a Forest,
    base: Resolver<'a>,
}

impl<'a> ForestResolver<'a> {
    fn new(forest: &'a Forest, base: &'a Base) -> Self {
        let base = Resolver::new(base, ReadFor::Proof);
        Self { forest, base }
    }
}

impl Resolve for ForestResolver<'_> {
    type Error = StateError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, StateError> {
        let trie = self.forest.shard(shard_of(path));
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
        self.inner.with_forest(self, |forest, base| {
            let snapshot = &base.snapshot;
            snapshot.bring_pages(leaves_of(keys), ReadFor::Proof)?;
            let mut trie = forest.crown().clone();
            trie.extract(keys, &mut ForestResolver::new(forest, base))
                .map_err(update_error)
        })
    }

    /// As [`View::extract`], with all that applying `changes` needs besides.
    pub fn extract_for_changes(
        &self,
        keys: &Keys,
        changes: &Changes,
    ) -> Result<PartialTrie, StateError> {
        self.inner.with_forest(self, |forest, base| {
            let changed = Keys::of_changes(changes.accounts());
            let leaves = leaves_of(keys).chain(leaves_of(&changed));
            base.snapshot.bring_pages(leaves, ReadFor::Proof)?;
            let mut trie = forest.crown().clone();
            let mut resolver = ForestResolver::new(forest, base);
            trie.extract_for_changes(keys, changes.accounts(), &mut resolver)
                .map_err(update_error)
        })
    }
}

impl Inner {
    /// Works on the tries of the state of `view`. They are a second set beside the one that roots
    /// are computed with, so that proofs and commits do not wait for each other.
    fn with_forest<T>(
        self: &Arc<Self>,
        view: &View,
        work: impl FnOnce(&Forest, &Base) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let mut prover = self.prover.lock();
        let (base, root, layer, way) = loop {
            // A view may have outlived its place in the tree: it is brought back.
            self.layer_of(view.block())?;
            let current = self.current.read();
            let tree = &current.tree;
            // The base may have moved in between.
            let Some(layer) = tree.by_hash(&view.block().hash) else {
                continue;
            };
            let layer = layer.id;
            prover.take_if(|prover| {
                !Arc::ptr_eq(prover.base(), &current.base) || tree.get(prover.at()).is_none()
            });
            let way = match &*prover {
                Some(prover) => prover.way_to(tree, layer),
                None => tree.way(tree.root().id, layer),
            };
            break (current.base.clone(), tree.root().id, layer, way);
        };
        let delta = match &mut *prover {
            Some(delta) => delta,
            none => none.insert(Delta::on(base, root, self.counters.clone())?),
        };
        delta.take_way(&way, layer)?;
        let done = work(delta.forest(), delta.base());
        if delta.forest().memory_bytes() > self.layer_limit.of_prover() {
            *prover = None;
        }
        done
    }
}
