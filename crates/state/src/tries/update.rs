//! Applying changes to trie shards, and reading through them, on all cores with nothing shared.

use super::shards::TrieShards;
use crate::tries::{
    base::Base,
    portions::{self, PORTION_LEAVES_MIN, Portion},
    resolve::Resolver,
    slots::{DIVIDED_SLOTS_MIN, PagesAre, SlotThreads, pages_ahead, read_divided},
};
use alloy_primitives::B256;
use cambium_primitives::{ACCOUNT_NIBBLES, AccountDiff, AccountUpdate, Path};
use cambium_snapshot::{
    CHUNK_KEYS, Counters, DirtyShard, Key, PORTION_FOUND_KEYS_MIN, PORTION_KEYS_MIN, PlacedPage,
    ReadCause, StateError, hash_tries, hash_tries_on,
    pool::{self, Workers, on_threads},
    shard_of, shard_prefix, update_error,
};
use cambium_trie::{
    Alone, EntryProof, Link, Lookup, NodeKind, NodeView, PartialTrie, ProofTargets, Resolve,
    SHARDS, Spread, TopLevelsError,
};
use std::time::Instant;

impl TrieShards {
    /// Trie shards whose roots are the blinded nodes of `base`.
    pub(crate) fn on(base: &Base, counters: &Counters) -> Result<Self, StateError> {
        let shards = (0..SHARDS)
            .map(|shard| base.shard_root(shard).map(DirtyShard::new))
            .collect::<Result<_, _>>()?;
        let mut tries = Self {
            shards,
            top_levels: PartialTrie::new(Path::EMPTY),
            unread: None,
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
        let count = portions::count(
            Workers::Computing,
            changes.len(),
            || leaves_of(changes),
            PORTION_LEAVES_MIN,
        );
        let share = changes.len().div_ceil(count);
        let unread = self.unread.clone();
        let portions = portions::divide(&mut self.shards, changes, count, |change| {
            change.path[0].into()
        });
        on_threads(Workers::Computing, portions, |portion| {
            let start = Instant::now();
            let Portion {
                first,
                shards,
                items,
            } = portion;
            let spread = SlotThreads { pages, counters };
            let mut resolver = Resolver::new(base, ReadCause::Trie).above(unread.as_deref());
            for own in by_shard(items) {
                let DirtyShard { trie, held } = &mut shards[usize::from(own[0].path[0]) - first];
                if pages == PagesAre::OnDisk {
                    let why = ReadCause::Trie;
                    resolver.read_ahead(pages_ahead(|_| trie, || paths_of(own), base, why)?);
                }
                let applied = trie.apply_with(own, &mut resolver, Some(&spread));
                applied.map_err(update_error)?;
                resolver
                    .taken()
                    .for_each(|(addr, page)| held.hold(addr, page));
            }
            let taken = start.elapsed().saturating_sub(resolver.shared());
            counters.apply_ns.add(taken.as_nanos() as u64);
            let numbers = by_shard(items).map(|own| usize::from(own[0].path[0]));
            let mut numbers = numbers.peekable();
            let touched = shards.iter_mut().zip(first..).filter_map(|(shard, at)| {
                let is_touched = numbers.next_if_eq(&at).is_some();
                is_touched.then_some(&mut shard.trie)
            });
            let mut touched: Vec<_> = touched.collect();
            // A portion with far more than its share would leave the other threads idle.
            let alone = 2 * items.len() <= 3 * share;
            let spread: &dyn Spread = if alone { &Alone } else { &pool::Threads };
            hash_tries_on(&mut touched, spread, counters);
            Ok(())
        })?;
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
        let shard = |key: &K| shard_of(&key.path());
        let keys_min = self.portion_keys_min(keys);
        let count = portions::count(Workers::Reading, keys.len(), || keys.len(), keys_min);
        let unread = self.unread.clone();
        let portions = portions::divide(&mut self.shards, keys, count, shard);
        let values = on_threads(Workers::Reading, portions, |portion| {
            let Portion {
                first,
                shards,
                items,
            } = portion;
            let mut values = Vec::with_capacity(items.len());
            let mut resolver = Resolver::new(base, ReadCause::Trie).above(unread.as_deref());
            for (keys, of_one_account) in large_runs(items) {
                if of_one_account {
                    let DirtyShard { trie, .. } = &mut shards[shard(&keys[0]) - first];
                    let read = read_divided(trie, keys, keys_min, &mut resolver)?;
                    hold(shards, first, resolver.taken());
                    if let Some(read) = read {
                        values.extend(read);
                        continue;
                    }
                }
                for chunk in keys.chunks(CHUNK_KEYS) {
                    let trie = |path: &Path| &shards[shard_of(path) - first].trie;
                    let paths = || chunk.iter().map(Key::path);
                    resolver.read_ahead(pages_ahead(trie, paths, base, ReadCause::Trie)?);
                    for key in chunk {
                        let path = key.path();
                        let DirtyShard { trie, .. } = &mut shards[shard_of(&path) - first];
                        let leaf = trie.load_leaf(&path, &mut resolver).map_err(update_error)?;
                        values.push(K::resident(&leaf));
                    }
                    hold(shards, first, resolver.taken());
                }
            }
            Ok(values)
        })?;
        Ok(values.into_iter().flatten().collect())
    }

    /// Fewest of these keys that are worth a thread, by whether some of them, picked evenly, are found in the
    /// tries.
    fn portion_keys_min<K: Key>(&self, keys: &[K]) -> usize {
        const PICKED: usize = 16;
        let is_absent = |at: &usize| {
            let path = keys[at * keys.len() / PICKED].path();
            matches!(
                self.shard(shard_of(&path)).lookup(&path),
                Lookup::Stub { .. }
            )
        };
        let picked = if keys.is_empty() { 0 } else { PICKED };
        match (0..picked).filter(is_absent).count() {
            0..2 => PORTION_FOUND_KEYS_MIN,
            _ => PORTION_KEYS_MIN,
        }
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
        let shard = |(account, _): &(B256, Vec<B256>)| account[0].into();
        let parts = self.prove_shards(base, keys, shard, |shard, own, trie, resolver| {
            let changes = changes_of(changes, shard);
            let own = ProofTargets::new(own.to_vec());
            let part = trie.extract_for_changes(&own, changes, resolver);
            let part = part.map_err(update_error)?;
            Ok(stays_branch(&part, changes).then_some((shard, part)))
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
        let shard = |key: &B256| key[0].into();
        let parts = self.prove_shards(base, keys, shard, |_, own, trie, resolver| {
            trie.prove_entry_part(own, resolver).map_err(update_error)
        })?;
        let Some(parts) = parts else {
            return Ok(None);
        };
        Ok(Some(self.top_levels.join_entry_parts(keys, parts)?))
    }

    /// Runs `prove` on each shard that has some of the sorted `keys`, on all cores. Returns what it returns, in
    /// the order of the shards, or `None` if one of them can't be proved by itself.
    fn prove_shards<K: Sync, T: Send>(
        &mut self,
        base: &Base,
        keys: &[K],
        shard: impl Fn(&K) -> usize + Sync,
        prove: impl Fn(
            usize,
            &[K],
            &mut PartialTrie,
            &mut Resolver<'_>,
        ) -> Result<Option<T>, StateError>
        + Sync,
    ) -> Result<Option<Vec<T>>, StateError> {
        let count = portions::count(
            Workers::Computing,
            keys.len(),
            || keys.len(),
            PORTION_KEYS_MIN,
        );
        let unread = self.unread.clone();
        let portions = portions::divide(&mut self.shards, keys, count, &shard);
        let parts = on_threads(Workers::Computing, portions, |portion| {
            let Portion {
                first,
                shards,
                items,
            } = portion;
            let mut resolver = Resolver::new(base, ReadCause::Proof).above(unread.as_deref());
            let mut parts = Vec::new();
            for own in items.chunk_by(|a, b| shard(a) == shard(b)) {
                let number = shard(&own[0]);
                let DirtyShard { trie, .. } = &mut shards[number - first];
                match prove(number, own, trie, &mut resolver)? {
                    Some(part) => parts.push(part),
                    None => return Ok(None),
                }
            }
            hold(shards, first, resolver.taken());
            Ok(Some(parts))
        })?;
        let parts = parts.into_iter().collect::<Option<Vec<_>>>();
        Ok(parts.map(|parts| parts.into_iter().flatten().collect()))
    }

    /// Builds the top levels from the roots of the shards, and hashes them.
    pub(super) fn build_top_levels(
        &mut self,
        base: &Base,
        counters: &Counters,
    ) -> Result<(), StateError> {
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
        let unread = self.unread.clone();
        let (path, trie) = (shard_prefix(shard), &mut self.shards[shard].trie);
        let broken = StateError::Broken {
            path,
            what: "a stub at the root",
        };
        let stub = trie.as_stub(trie.root()).ok_or(broken)?;
        let mut resolver = Resolver::new(base, ReadCause::Trie).above(unread.as_deref());
        let link = resolver.resolve(&path, &stub, trie)?;
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
pub(super) fn leaves_of(changes: &[AccountDiff]) -> usize {
    changes.iter().map(|change| 1 + change.slots.len()).sum()
}

/// Groups sorted changes by their shards.
pub(super) fn by_shard(changes: &[AccountDiff]) -> impl Iterator<Item = &[AccountDiff]> {
    changes.chunk_by(|a, b| a.path[0] == b.path[0])
}

/// The changes of one shard, out of sorted changes.
pub(super) fn changes_of(changes: &[AccountDiff], shard: usize) -> &[AccountDiff] {
    let from = changes.partition_point(|change| usize::from(change.path[0]) < shard);
    let len = changes[from..].partition_point(|change| usize::from(change.path[0]) == shard);
    &changes[from..from + len]
}

/// Makes each shard, of those from shard `first` on, hold its pages.
fn hold(shards: &mut [DirtyShard], first: usize, pages: impl Iterator<Item = PlacedPage>) {
    for (addr, page) in pages {
        shards[shard_of(&page.prefix()) - first]
            .held
            .hold(addr, page);
    }
}

/// The paths of sorted changes, in order, without the slots for which storage tries are divided.
pub(super) fn paths_of(changes: &[AccountDiff]) -> impl Iterator<Item = Path> {
    changes.iter().flat_map(|change| {
        let slots = change.slots.iter();
        let slots = slots.take(match change.slots.len() {
            DIVIDED_SLOTS_MIN.. => 0,
            slots => slots,
        });
        let slots = slots.map(|(slot, _)| Path::slot(&change.path, slot));
        std::iter::once(Path::account(&change.path)).chain(slots)
    })
}

/// Divides sorted keys into runs. Returns for each whether it is all keys of one account, and at least
/// [`DIVIDED_SLOTS_MIN`]; accounts of the other runs may have fewer.
fn large_runs<K: Key>(keys: &[K]) -> impl Iterator<Item = (&[K], bool)> {
    const STEP: usize = DIVIDED_SLOTS_MIN / 2;
    let account = |key: &K| key.path().prefix(ACCOUNT_NIBBLES);
    let mut rest = keys;
    let mut large = None;
    std::iter::from_fn(move || {
        let found = large.take().or_else(|| {
            // Among so many adjacent keys of one account are two in a row that are one step apart.
            let mut at = 0;
            while at + STEP < rest.len() {
                let of = account(&rest[at]);
                if of == account(&rest[at + STEP]) {
                    let start = rest[..at].partition_point(|key| account(key) < of);
                    let len = rest[start..].partition_point(|key| account(key) == of);
                    if len >= DIVIDED_SLOTS_MIN {
                        return Some((start, len));
                    }
                }
                at += STEP;
            }
            None
        });
        let (run, is_large) = match found {
            Some((0, len)) => (len, true),
            Some((start, len)) => {
                large = Some((0, len));
                (start, false)
            }
            None => (rest.len(), false),
        };
        let (run, others) = rest.split_at(run);
        rest = others;
        Some((run, is_large)).filter(|(run, _)| !run.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_runs_are_those_of_one_account_with_many_keys() {
        let lens = [1, 255, 256, 3, 1_000, 128, 300, 257, 127, 129];
        for count in 0..=lens.len() {
            for skipped in 0..count {
                let lens = &lens[skipped..count];
                let keys: Vec<_> = (0..)
                    .zip(lens)
                    .flat_map(|(account, len)| {
                        let slot = |at: u64| B256::left_padding_from(&at.to_be_bytes());
                        (0..*len).map(move |at| (B256::repeat_byte(account), slot(at)))
                    })
                    .collect();
                let mut joined = Vec::new();
                let mut large = Vec::new();
                for (run, is_large) in large_runs(&keys) {
                    joined.extend_from_slice(run);
                    if is_large {
                        assert!(run.iter().all(|key| key.0 == run[0].0));
                        large.push(run.len() as u64);
                    }
                }
                assert_eq!(joined, keys);
                let expected = lens.iter().copied().filter(|len| *len >= 256);
                assert_eq!(large, expected.collect::<Vec<_>>());
            }
        }
    }
}
