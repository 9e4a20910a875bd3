//! Applying changes to trie shards, and reading through them, on all cores with nothing shared.

use super::shards::TrieShards;
use crate::tries::{base::Base, resolve::Resolver};
use alloy_primitives::B256;
use cambium_primitives::{AccountDiff, AccountUpdate, Path};
use cambium_snapshot::{
    CHUNK_KEYS, Counters, DirtyShard, HeldParts, IndexLookup, Key, PARALLEL_KEYS_MIN, PlacedPage,
    PrefetchedPages, ReadCause, Snapshot, StateError, hash_tries, hash_tries_on, pool, shard_of,
    shard_prefix, update_error,
};
use cambium_trie::{
    Alone, EntryProof, Link, Lookup, NodeKind, NodeView, PartialTrie, ProofTargets, Resolve,
    SHARDS, Spread, TopLevelsError,
};
use rayon::prelude::*;
use std::{ops::Range, time::Instant};

/// Shards that one task updates. The number is large, since hashing fills its lanes with nodes of
/// equal length, and small enough that all cores have work.
const SHARDS_PER_TASK: usize = 64;
/// Shards that one task reads from. The number is small enough that no reader waits long for the
/// last task.
const SHARDS_PER_READER: usize = 16;
/// Fewest changed accounts for which other threads are worth waking.
const PARALLEL_ACCOUNTS_MIN: usize = 32;

/// Where the pages that an update needs are expected to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagesAre {
    /// The changed leaves have just been read.
    InMemory,
    /// Some pages may not be in memory: they are read in one batch first.
    OnDisk,
}

/// Contribution of a shard to a proof.
enum ShardProof<T> {
    /// No key is in it.
    NotNeeded,
    Part(T),
    /// Its keys can't be proved without other shards.
    Impossible,
}

/// Adjacent shards, and the number of their group.
type Part<'a> = (usize, &'a mut [DirtyShard]);

impl TrieShards {
    /// Trie shards whose roots are the blinded nodes of `base`.
    pub(crate) fn on(base: &Base, counters: &Counters) -> Result<Self, StateError> {
        let shards = (0..SHARDS)
            .map(|shard| base.shard_root(shard).map(DirtyShard::new))
            .collect::<Result<_, _>>()?;
        let mut tries = Self {
            shards,
            top_levels: PartialTrie::new(Path::EMPTY),
        };
        tries.build_top_levels(base, counters)?;
        Ok(tries)
    }

    /// Applies sorted changes and hashes the touched nodes. Returns the state root. After an error
    /// the shards are inconsistent and must be dropped.
    pub(crate) fn apply(
        &mut self,
        changes: &[AccountDiff],
        base: &Base,
        pages: PagesAre,
        counters: &Counters,
    ) -> Result<B256, StateError> {
        let leaves_of_all = leaves_of(changes);
        let task = |(number, shards): Part<'_>| -> Result<(), StateError> {
            let start = Instant::now();
            let first = number * SHARDS_PER_TASK;
            let mut touched = Vec::with_capacity(shards.len());
            let mut resolver = Resolver::new(base, ReadCause::Trie);
            let mut leaves = 0;
            for (at, shard) in shards.iter_mut().enumerate() {
                let own = changes_of(changes, first + at);
                if !own.is_empty() {
                    if pages == PagesAre::OnDisk {
                        let tries = std::slice::from_ref(&*shard);
                        let paths = || paths_of(own);
                        resolver.read_ahead(pages_ahead(tries, first + at, paths, base)?);
                    }
                    let DirtyShard { trie, held } = shard;
                    trie.apply(own, &mut resolver).map_err(update_error)?;
                    resolver
                        .taken()
                        .for_each(|(addr, page)| held.hold(addr, page));
                    touched.push(trie);
                    leaves += leaves_of(own);
                }
            }
            counters.apply_ns.add(start.elapsed().as_nanos() as u64);
            if !touched.is_empty() {
                // A task with far more than its share of leaves would leave the other threads idle.
                let alone = 2 * leaves * pool::threads() <= 3 * leaves_of_all;
                let spread: &dyn Spread = if alone { &Alone } else { &pool::Threads };
                hash_tries_on(&mut touched, spread, counters);
            }
            Ok(())
        };
        if changes.len() < PARALLEL_ACCOUNTS_MIN {
            self.parts(SHARDS_PER_TASK).try_for_each(task)?;
        } else {
            let tasks = self.par_parts(SHARDS_PER_TASK);
            pool::install(|| tasks.try_for_each(task))?;
        }
        self.build_top_levels(base, counters)?;
        Ok(self.root())
    }

    /// Reads leaves, sorted by their paths, and loads the nodes on the paths to them, so that
    /// changing them later reads no page. After an error the shards are unchanged, or have more
    /// nodes loaded.
    pub(crate) fn read<K: Key>(
        &mut self,
        keys: &[K],
        base: &Base,
    ) -> Result<Vec<K::Value>, StateError> {
        let task = |(number, shards): Part<'_>| {
            let first = number * SHARDS_PER_READER;
            let own = range_of(keys, first..first + shards.len(), |key| {
                shard_of(&key.path())
            });
            let mut values = Vec::with_capacity(own.len());
            let mut resolver = Resolver::new(base, ReadCause::Trie);
            for chunk in own.chunks(CHUNK_KEYS) {
                let paths = || chunk.iter().map(Key::path);
                resolver.read_ahead(pages_ahead(shards, first, paths, base)?);
                for key in chunk {
                    let path = key.path();
                    let DirtyShard { trie, .. } = &mut shards[shard_of(&path) - first];
                    let leaf = trie.load_leaf(&path, &mut resolver).map_err(update_error)?;
                    values.push(K::resident(&leaf));
                }
                hold(shards, first, resolver.taken());
            }
            Ok(values)
        };
        let values: Vec<_> = if keys.len() < PARALLEL_KEYS_MIN {
            let tasks = self.parts(SHARDS_PER_READER);
            tasks.map(task).collect::<Result<_, StateError>>()?
        } else {
            let tasks = self.par_parts(SHARDS_PER_READER);
            pool::install_readers(|| tasks.map(task).collect::<Result<_, StateError>>())?
        };
        Ok(values.into_iter().flatten().collect())
    }

    /// The nodes on the paths to sorted `keys`, from the state root on, and all nodes that applying
    /// `changes` to them needs. Missing nodes are loaded, and hashed where necessary.
    ///
    /// `None` if the top levels may change their form, because the state is small or `changes`
    /// delete much of it: the root of each shard must be a branch before and after `changes`.
    pub(crate) fn extract_for_changes(
        &mut self,
        keys: &[(B256, Vec<B256>)],
        changes: &[AccountDiff],
        base: &Base,
    ) -> Result<Option<PartialTrie>, StateError> {
        let is_branch =
            |DirtyShard { trie, .. }: &DirtyShard| trie.kind(trie.root()) == Some(NodeKind::Branch);
        if !self.shards.iter().all(is_branch) {
            return Ok(None);
        }
        let parts = self.prove_shards(base, |shard, trie, resolver| {
            let own = range_of(keys, shard..shard + 1, |(account, _)| account[0].into());
            if own.is_empty() {
                return Ok(ShardProof::NotNeeded);
            }
            let changes = changes_of(changes, shard);
            let own = ProofTargets::new(own.to_vec());
            let part = trie.extract_for_changes(&own, changes, resolver);
            let part = part.map_err(update_error)?;
            Ok(match stays_branch(&part, changes) {
                true => ShardProof::Part((shard, part)),
                false => ShardProof::Impossible,
            })
        })?;
        let Some(parts) = parts else {
            return Ok(None);
        };
        let mut whole = self.top_levels.clone();
        for nibble in 0..16 {
            let path = Path::from_nibbles(&[nibble]);
            let is_on_the_way =
                |(account, _): &(B256, _)| Path::account(account).starts_with(&path);
            if !keys.iter().any(is_on_the_way) {
                whole.replace_by_stub(&path, None)?;
            }
        }
        for (shard, part) in parts {
            let path = shard_prefix(shard);
            let places = (whole.find(&path.prefix(1)), whole.find_or_stub(&path));
            let (Some(parent), Some((stub, _))) = places else {
                let what = "a branch above it in the top levels";
                return Err(StateError::Broken { path, what });
            };
            let copy = whole.graft_subtrie(&part, part.root());
            whole.free(stub);
            whole.set_child(parent, path.nibble(1), copy);
        }
        Ok(Some(whole))
    }

    /// Proves entries of a binary trie by their sorted keys, each shard on its own. Missing nodes are
    /// loaded, and hashed where necessary.
    ///
    /// `None` under another commitment, or if a look-up may end in another shard than its key's, because
    /// the state is small: see [`PartialTrie::prove_entry_part`].
    pub(crate) fn prove_entries(
        &mut self,
        keys: &[B256],
        base: &Base,
    ) -> Result<Option<EntryProof>, StateError> {
        let parts = self.prove_shards(base, |shard, trie, resolver| {
            let own = range_of(keys, shard..shard + 1, |key| key[0].into());
            if own.is_empty() {
                return Ok(ShardProof::NotNeeded);
            }
            let part = trie.prove_entry_part(own, resolver);
            let part = part.map_err(update_error)?;
            Ok(part.map_or(ShardProof::Impossible, ShardProof::Part))
        })?;
        let Some(parts) = parts else {
            return Ok(None);
        };
        Ok(Some(self.top_levels.join_entry_parts(keys, parts)?))
    }

    /// Runs `prove` on each shard, on all cores. Returns what it returns for those that are needed, in
    /// their order, or `None` if one of them can't be proved by itself.
    fn prove_shards<T: Send>(
        &mut self,
        base: &Base,
        prove: impl Fn(usize, &mut PartialTrie, &mut Resolver<'_>) -> Result<ShardProof<T>, StateError>
        + Sync,
    ) -> Result<Option<Vec<T>>, StateError> {
        let task = |(number, shards): Part<'_>| {
            let first = number * SHARDS_PER_READER;
            let mut resolver = Resolver::new(base, ReadCause::Proof);
            let mut parts = Vec::new();
            for (at, DirtyShard { trie, .. }) in shards.iter_mut().enumerate() {
                match prove(first + at, trie, &mut resolver)? {
                    ShardProof::NotNeeded => {}
                    ShardProof::Part(part) => parts.push(part),
                    ShardProof::Impossible => return Ok(None),
                }
            }
            hold(shards, first, resolver.taken());
            Ok::<_, StateError>(Some(parts))
        };
        let tasks = self.par_parts(SHARDS_PER_READER);
        let parts = pool::install(|| tasks.map(task).collect::<Result<Vec<_>, _>>())?;
        let parts = parts.into_iter().collect::<Option<Vec<_>>>();
        Ok(parts.map(|parts| parts.into_iter().flatten().collect()))
    }

    /// The shards in groups of `shards`.
    fn parts(&mut self, shards: usize) -> impl Iterator<Item = Part<'_>> {
        self.shards.chunks_mut(shards).enumerate()
    }

    /// The shards in groups of `shards`, for several threads.
    fn par_parts(&mut self, shards: usize) -> impl IndexedParallelIterator<Item = Part<'_>> {
        self.shards.par_chunks_mut(shards).enumerate()
    }

    /// Builds the top levels from the roots of the shards, and hashes them.
    fn build_top_levels(&mut self, base: &Base, counters: &Counters) -> Result<(), StateError> {
        let mut hashed = None;
        loop {
            let shards: Vec<_> = self.shards.iter().map(|shard| &shard.trie).collect();
            match cambium_trie::top_levels(&shards) {
                Ok(top_levels) => {
                    counters.node_hashes.add(top_levels.counts().0 as u64);
                    self.top_levels = top_levels;
                    return Ok(());
                }
                // The only shard under its branch: its root must be loaded to be joined with a
                // prefix.
                Err(TopLevelsError::Unresolved { shard }) => {
                    self.load_root(usize::from(shard), base, counters)?
                }
                // The same shard, loaded by a read: nodes below its root may never have been hashed.
                Err(TopLevelsError::NotHashed { shard }) if hashed != Some(shard) => {
                    hashed = Some(shard);
                    let trie = &mut self.shards[usize::from(shard)].trie;
                    trie.hash_around_root();
                }
                Err(TopLevelsError::NotHashed { shard }) => {
                    let path = shard_prefix(usize::from(shard));
                    return Err(StateError::Broken {
                        path,
                        what: "a hashed root",
                    });
                }
            }
        }
    }

    /// Resolves the blinded root of a shard.
    fn load_root(
        &mut self,
        shard: usize,
        base: &Base,
        counters: &Counters,
    ) -> Result<(), StateError> {
        let (path, trie) = (shard_prefix(shard), &mut self.shards[shard].trie);
        let broken = StateError::Broken {
            path,
            what: "a stub at the root",
        };
        let stub = trie.as_stub(trie.root()).ok_or(broken)?;
        let link = Resolver::new(base, ReadCause::Trie).resolve(&path, &stub, trie)?;
        trie.set_root(link);
        // Hashes the children too: joining the root with a prefix needs their references.
        hash_tries(&mut [trie], counters);
        Ok(())
    }
}

/// Whether the root of the shard from which `part` was extracted is a branch before and after
/// `changes`: at least two of its children are untouched, or get a leaf.
fn stays_branch(part: &PartialTrie, changes: &[AccountDiff]) -> bool {
    let NodeView::Branch { children } = part.visit(part.root()) else {
        return false;
    };
    let put = changes
        .iter()
        .filter(|change| change.account != AccountUpdate::Delete);
    let depth = part.base().len();
    let mut stays = children.map(Link::is_stub);
    for change in put {
        stays[usize::from(Path::account(&change.path).nibble(depth))] = true;
    }
    stays.into_iter().filter(|stays| *stays).count() > 1
}

/// Number of changed accounts and slots.
fn leaves_of(changes: &[AccountDiff]) -> usize {
    changes.iter().map(|change| 1 + change.slots.len()).sum()
}

/// The changes of one shard, out of sorted changes.
fn changes_of(changes: &[AccountDiff], shard: usize) -> &[AccountDiff] {
    range_of(changes, shard..shard + 1, |change| change.path[0].into())
}

/// The items of some shards, out of items that are sorted by shard.
fn range_of<T>(items: &[T], shards: Range<usize>, shard: impl Fn(&T) -> usize) -> &[T] {
    let from = items.partition_point(|item| shard(item) < shards.start);
    let len = items[from..].partition_point(|item| shard(item) < shards.end);
    &items[from..from + len]
}

/// Makes each shard, of those from shard `first` on, hold its pages.
fn hold(shards: &mut [DirtyShard], first: usize, pages: impl Iterator<Item = PlacedPage>) {
    for (addr, page) in pages {
        shards[shard_of(page.prefix()) - first]
            .held
            .hold(addr, page);
    }
}

/// The paths of sorted changes, in order.
fn paths_of(changes: &[AccountDiff]) -> impl Iterator<Item = Path> {
    changes.iter().flat_map(|change| {
        let slots = change.slots.iter();
        let slots = slots.map(|(slot, _)| Path::slot(&change.path, slot));
        std::iter::once(Path::account(&change.path)).chain(slots)
    })
}

/// Reads the pages of the base that the sorted paths need, in one batch, and the parts of the index
/// above these pages. `tries` are the shards from shard `first` on.
fn pages_ahead<I: Iterator<Item = Path>>(
    tries: &[DirtyShard],
    first: usize,
    paths: impl Fn() -> I,
    base: &Base,
) -> Result<(PrefetchedPages, HeldParts), StateError> {
    let Snapshot { index, pages, .. } = &*base.snapshot;
    let is_in = |trie: &PartialTrie, path: &Path| !matches!(trie.lookup(path), Lookup::Stub { .. });
    let middle = base.intermediate.as_ref();
    let below = |path: &Path| {
        let shard = shard_of(path);
        !is_in(&tries[shard - first].trie, path)
            && !middle.is_some_and(|middle| is_in(middle.tries.shard(shard), path))
    };
    let paths = || paths().filter(below);
    let mut held = index.prefetch_parts(paths())?;
    let mut found = Vec::new();
    let mut before = None;
    for path in paths() {
        let IndexLookup::Page { stub, depth } = index.look_up(&path, &mut held)? else {
            continue;
        };
        if before.replace(stub.place) != Some(stub.place) {
            let prefix = path.prefix(depth);
            found.push((stub, prefix, pages.cached(&stub, &prefix)?));
        }
    }
    Ok((pages.prefetch(found, ReadCause::Trie)?, held))
}
