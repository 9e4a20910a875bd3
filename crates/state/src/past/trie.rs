//! The state trie of a view, for callers that read single nodes.

use crate::{
    engine::parts::Engine,
    layers::overlay::LayerId,
    tries::{
        base::Base,
        delta::Delta,
        resolve::{Resolver, graft_hashed},
        shards::TrieShards,
    },
    view::state::View,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, Path};
use cambium_snapshot::{ReadCause, StateError, shard_of};
use cambium_trie::{Link, PartialTrie, Resolve, SHARD_NIBBLES, Stub};
use std::sync::Arc;

/// The state trie of a view. It never changes, and any number of threads read it without a lock.
/// Clones are cheap. It keeps the memory and the files that it needs, as a view does.
#[derive(Clone)]
pub struct StateTrie {
    block: BlockId,
    tries: Arc<TrieShards>,
    base: Arc<Base>,
}

impl StateTrie {
    /// The state trie of `view`. If layers above the snapshot have changes, they are applied once
    /// more.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn of(view: &View) -> Result<Self, StateError> {
        view.inner.refuse_layered("a trie of nodes")?;
        view.inner.refuse_partial("a trie of nodes")?;
        let mut apart: Option<Delta> = None;
        view.inner.prove_apart(view, &mut apart, |_, _| Ok(()))?;
        let mut delta = apart.ok_or(StateError::Broken {
            path: Path::EMPTY,
            what: "the tries of a view",
        })?;
        Ok(Self {
            block: view.block(),
            tries: delta.tries()?.clone(),
            base: delta.base().clone(),
        })
    }

    /// The block whose state this is.
    pub const fn block(&self) -> BlockId {
        self.block
    }

    /// The state root.
    pub fn root(&self) -> B256 {
        self.tries.root()
    }

    /// A resolver of nodes by their paths, for one thread. It keeps the page that it read last.
    pub fn reader(&self) -> TrieReader<'_> {
        TrieReader::new(&self.tries, &self.base)
    }

    /// Reads the pages that the paths of leaves need, in one batch. They stay in the cache.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn prefetch(&self, leaves: impl Iterator<Item = Path>) -> Result<(), StateError> {
        self.base.snapshot.prefetch_pages(leaves, ReadCause::Proof)
    }
}

/// Resolves blinded nodes by their paths: from trie shards, and from their base where the shards are
/// blinded too.
pub struct TrieReader<'a> {
    tries: &'a TrieShards,
    base: Resolver<'a>,
}

impl<'a> TrieReader<'a> {
    pub(crate) fn new(tries: &'a TrieShards, base: &'a Base) -> Self {
        let unread = tries.unread().map(|unread| &**unread);
        let base = Resolver::new(base, ReadCause::Proof).above(unread);
        Self { tries, base }
    }

    /// Whether a node is in the tries in memory.
    fn is_in_memory(&self, path: &Path) -> bool {
        path.len() < SHARD_NIBBLES || {
            let trie = self.tries.shard(shard_of(path));
            trie.find(path).is_some_and(|link| !link.is_stub())
        }
    }
}

impl Resolve for TrieReader<'_> {
    type Error = StateError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, StateError> {
        let top_levels = self.tries.top_levels();
        if path.len() <= SHARD_NIBBLES
            && let Some(link) = top_levels.find(path)
            && let Some(grafted) = graft_hashed(into, top_levels, link)?
        {
            return Ok(grafted);
        }
        if path.len() < SHARD_NIBBLES {
            return Err(StateError::Broken {
                path: *path,
                what: "a node in the top levels",
            });
        }
        let trie = self.tries.shard(shard_of(path));
        if let Some(link) = trie.find(path)
            && let Some(grafted) = graft_hashed(into, trie, link)?
        {
            return Ok(grafted);
        }
        self.base.resolve(path, stub, into)
    }

    fn read_ahead(&mut self, nodes: &[(Path, Stub)]) -> Result<(), StateError> {
        let absent = nodes.iter().filter(|(path, _)| !self.is_in_memory(path));
        self.base
            .prefetch(absent.map(|(path, _)| path.first_leaf()))
    }
}

impl Engine {
    /// Runs `work` on tries made of the view's own base and overlay, and leaves them in `prover`.
    pub(crate) fn prove_apart<T>(
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
}
