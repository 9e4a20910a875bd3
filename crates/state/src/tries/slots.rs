//! Many slots of one account, read or changed by all threads: its storage trie is divided at the
//! children of its root.

use crate::tries::{base::Base, portions::PORTION_LEAVES_MIN, resolve::Resolver};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use cambium_snapshot::{
    CHUNK_KEYS, Counters, HeldParts, IndexLookup, Key, PrefetchedPages, ReadCause, Snapshot,
    StateError, hash_tries,
    pool::{Workers, on_threads},
    shard_of, update_error,
};
use cambium_trie::{Lookup, PartialTrie, SlotsJob, SpreadSlots, UpdateError};
use std::time::Instant;

/// Fewest slots of one account, read or changed together, for which its storage trie is divided.
/// The number does not depend on the threads, since the division changes the memory of the tries.
pub(crate) const DIVIDED_SLOTS_MIN: usize = 256;

/// Where the pages that an update needs are expected to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagesAre {
    /// The changed leaves have just been read.
    InMemory,
    /// Some pages may not be in memory: they are read in one batch first.
    OnDisk,
}

/// The engine's threads, which change and hash the parts of large storage tries.
pub(crate) struct SlotThreads<'a> {
    pub(crate) pages: PagesAre,
    pub(crate) counters: &'a Counters,
}

impl<'b> SpreadSlots<Resolver<'b>> for SlotThreads<'_> {
    fn slots_min(&self) -> usize {
        DIVIDED_SLOTS_MIN
    }

    fn run(
        &self,
        jobs: &mut [SlotsJob<'_>],
        resolver: &mut Resolver<'b>,
    ) -> Result<(), UpdateError<StateError>> {
        let begun = Instant::now();
        let (base, unread) = (resolver.base(), resolver.unread());
        let task = |jobs: &mut [SlotsJob<'_>]| {
            let start = Instant::now();
            let mut resolver = Resolver::new(base, ReadCause::Trie).above(unread);
            for job in &mut *jobs {
                if self.pages == PagesAre::OnDisk {
                    let trie = &*job.trie;
                    let why = ReadCause::Trie;
                    resolver.read_ahead(pages_ahead(|_| trie, || job.paths(), base, why)?);
                }
                job.apply(&mut resolver).map_err(update_error)?;
            }
            self.counters
                .apply_ns
                .add(start.elapsed().as_nanos() as u64);
            let mut tries: Vec<_> = jobs.iter_mut().map(|job| &mut *job.trie).collect();
            hash_tries(&mut tries, self.counters);
            Ok(resolver.into_taken())
        };
        let mut groups = Vec::new();
        let mut rest = jobs;
        while !rest.is_empty() {
            let mut slots = 0;
            let enough = |job: &SlotsJob<'_>| {
                slots += job.slots();
                slots >= PORTION_LEAVES_MIN
            };
            let len = rest.iter().position(enough).map_or(rest.len(), |at| at + 1);
            let (group, others) = rest.split_at_mut(len);
            groups.push(group);
            rest = others;
        }
        let done = on_threads(Workers::Computing, groups, task).map_err(UpdateError::Resolve)?;
        resolver.extend_taken(done, begun.elapsed());
        Ok(())
    }
}

/// Reads slots of one account, sorted, and loads the nodes on the paths to them, on all threads, of which each
/// reads `keys_min` or more. Returns `None` if its storage trie can't be divided.
pub(crate) fn read_divided<K: Key>(
    trie: &mut PartialTrie,
    keys: &[K],
    keys_min: usize,
    resolver: &mut Resolver<'_>,
) -> Result<Option<Vec<K::Value>>, StateError> {
    let account = keys.first().and_then(|key| key.path().account_part());
    let Some(account) = account else {
        return Ok(None);
    };
    let detached = trie.detach_storage(&account, resolver);
    let Some(mut detached) = detached.map_err(update_error)? else {
        return Ok(None);
    };
    let (base, unread) = (resolver.base(), resolver.unread());
    let task = |jobs: Vec<(&mut PartialTrie, &[K])>| {
        let mut resolver = Resolver::new(base, ReadCause::Trie).above(unread);
        let mut values = Vec::new();
        for (part, keys) in jobs {
            values.reserve(keys.len());
            for keys in keys.chunks(CHUNK_KEYS) {
                let paths = || keys.iter().map(Key::path);
                resolver.read_ahead(pages_ahead(|_| part, paths, base, ReadCause::Trie)?);
                for key in keys {
                    let leaf = part.load_leaf(&key.path(), &mut resolver);
                    values.push(K::resident(&leaf.map_err(update_error)?));
                }
            }
        }
        Ok((values, resolver.into_taken()))
    };
    let nibble = |key: &K| key.path().nibble(ACCOUNT_NIBBLES);
    let mut rest = keys;
    let (mut jobs, mut enough) = (vec![Vec::new()], 0);
    for (at, part) in (0..).zip(detached.tries()) {
        let len = rest.partition_point(|key| nibble(key) <= at);
        let (own, others) = rest.split_at(len);
        if !own.is_empty() {
            if enough >= keys_min {
                jobs.push(Vec::new());
                enough = 0;
            }
            enough += own.len();
            jobs.last_mut().expect("one or more").push((part, own));
        }
        rest = others;
    }
    let done = on_threads(Workers::Reading, jobs, task);
    trie.attach_storage(detached);
    let mut values = Vec::with_capacity(keys.len());
    for (own, taken) in done? {
        values.extend(own);
        resolver.extend_taken([taken], Default::default());
    }
    Ok(Some(values))
}

/// Reads the pages of the base that the sorted paths need, in one batch, and the parts of the index
/// above these pages. `trie` returns the trie that has the nodes of a path. The reads are counted under `why`.
pub(crate) fn pages_ahead<'t, I: Iterator<Item = Path>>(
    trie: impl Fn(&Path) -> &'t PartialTrie,
    paths: impl Fn() -> I,
    base: &Base,
    why: ReadCause,
) -> Result<(PrefetchedPages, HeldParts), StateError> {
    let Snapshot { index, pages, .. } = &*base.snapshot;
    let is_in = |trie: &PartialTrie, path: &Path| !matches!(trie.lookup(path), Lookup::Stub { .. });
    let middle = base.intermediate.as_ref();
    let below = |path: &Path| {
        !is_in(trie(path), path)
            && !middle.is_some_and(|middle| is_in(middle.tries.shard(shard_of(path)), path))
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
    Ok((pages.prefetch(found, why)?, held))
}
