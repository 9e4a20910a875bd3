//! A shard: its part of the state at several blocks, in memory.
//!
//! ```text
//!   oldest (finalized)        each version shares the nodes that its block did not change
//!      |
//!      +---- A ---- B ---- C      an update names its parent, and is verified before its version is served
//!      |
//!      `---- A'                   competing children are ordinary updates
//! ```
//!
//! An update is verified without talking to others: the header hashes to the block's name, the top nodes to its state root,
//! and the shard's own subtries are the ones below them. A read names a block and gets that version, or none.

mod error;
mod codes;
mod leaves;
mod versions;

pub use error::ApplyError;
pub(crate) use leaves::Place;
pub use versions::ShardStats;

use crate::{
    bag::{NodeBag, ReadError, ReadRequest},
    range::ShardRange,
    top::Top,
    update::BlockUpdate,
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY, U256, keccak256, map::HashMap};
use cambium_crew::{Crew, threads};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Path};
use cambium_trie::{
    Alone, BagError, BagLevels, BagMaker, Batch, Deletes, NoResolve, PartialTrie, ProofTargets,
    TrieError, Version, VersionView, VersionedTrie, commit,
};
use codes::Codes;
use leaves::{first_below, leaf_count};
use parking_lot::{Mutex, RwLock};
use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};
use versions::{BlockVersion, Known, Pins};

/// Threads that apply an update to the subtries of a shard.
static HELPERS: LazyLock<Crew> = LazyLock::new(|| Crew::new("shard", threads() - 1));

/// Slots that a shard gives at once, at most.
pub(crate) const SLOTS_AT_ONCE: usize = 8192;

/// Limits of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLimits {
    /// Most versions. An update beyond it is refused until a block is finalized.
    pub versions: usize,
    /// Most bytes of all versions and codes. Memory that was freed, and is used again, does not count.
    pub bytes: usize,
    /// Most bytes of nodes and codes of an answer.
    pub bag_bytes: usize,
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self {
            versions: 256,
            bytes: 64 << 30,
            bag_bytes: 64 << 20,
        }
    }
}

/// What a shard has counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) updates: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) keys: AtomicU64,
    pub(crate) bag_bytes: AtomicU64,
}

fn count(counter: &AtomicU64, by: usize) {
    // Nothing else is told by the number.
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// The part of the state that a shard owns, at several blocks.
#[derive(Debug)]
pub struct Shard {
    range: ShardRange,
    limits: ShardLimits,
    /// One for each prefix of the range. A thread that holds several locks has taken `known` first.
    subtries: Vec<RwLock<VersionedTrie>>,
    codes: RwLock<Codes>,
    /// Held by whoever reads a version, so that it stays.
    known: RwLock<Known>,
    /// Held while versions are made and removed.
    changing: Mutex<()>,
    pins: Mutex<Pins>,
    counters: Counters,
}

/// Keeps the oldest version, and all after it, while it lives: blocks that are finalized become the oldest when the last one
/// is dropped.
#[derive(Debug)]
pub(crate) struct Pin<'s> {
    shard: &'s Shard,
    /// The oldest block.
    pub(crate) block: BlockId,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let _changing = self.shard.changing.lock();
        let mut pins = self.shard.pins.lock();
        pins.count -= 1;
        if pins.count == 0
            && let Some(id) = pins.finalized.take()
        {
            // A block that was finalized before is no longer there, and need not be.
            let _ = self.shard.make_oldest(id);
        }
    }
}

/// The first state of a shard, as it is loaded.
#[derive(Debug)]
pub struct ShardLoader {
    range: ShardRange,
    tries: Vec<PartialTrie>,
    codes: HashMap<B256, Bytes>,
    /// Codes that accounts have, each with one of these.
    wanted: HashMap<B256, B256>,
    /// The last account.
    last: Option<B256>,
}

impl ShardLoader {
    /// An empty state.
    pub fn new(range: ShardRange) -> Self {
        Self {
            range,
            tries: range.prefixes().map(PartialTrie::new).collect(),
            codes: HashMap::default(),
            wanted: HashMap::default(),
            last: None,
        }
    }

    /// Adds accounts and slots, sorted by path. Those of other shards are left out. More slots of the last account may come with a
    /// change that keeps it.
    ///
    /// # Errors
    ///
    /// If they are unsorted, or come before others that were added.
    pub fn put(&mut self, accounts: &[AccountDiff]) -> Result<(), TrieError> {
        let Self { range, tries, .. } = self;
        for change in accounts {
            let goes_on = change.account == AccountUpdate::Keep && self.last == Some(change.path);
            if self.last.is_some_and(|last| last >= change.path) && !goes_on {
                let path = Path::account(&change.path);
                return Err(TrieError::Unsorted { path });
            }
            self.last = Some(change.path);
            if let AccountUpdate::Put(account) = &change.account
                && account.code_hash != KECCAK256_EMPTY
                && range.place(&change.path).is_some()
            {
                self.wanted.entry(account.code_hash).or_insert(change.path);
            }
        }
        for (place, own) in by_subtrie(*range, accounts) {
            tries[place].apply(own, &mut NoResolve)?;
        }
        Ok(())
    }

    /// Adds a code.
    pub fn put_code(&mut self, code: Bytes) {
        self.codes.insert(keccak256(&code), code);
    }

    /// The shard, once its state is verified to be that after the block with this header. `top` are the nodes above the
    /// shards.
    ///
    /// # Errors
    ///
    /// If the state is another one, or if a code is missing.
    pub fn finish(
        self,
        header: &Header,
        top: &[Bytes],
        limits: ShardLimits,
    ) -> Result<Shard, ApplyError> {
        let Self {
            range,
            tries,
            mut codes,
            wanted,
            ..
        } = self;
        let id = BlockId::new(header.number, header.hash_slow());
        // Those of nobody are dropped.
        codes.retain(|code, _| wanted.contains_key(code));
        codes.shrink_to_fit();
        for (code, account) in wanted {
            if !codes.contains_key(&code) {
                return Err(ApplyError::NoCode { id, account, code });
            }
        }
        let of_top = |error| ApplyError::top(id, error);
        let top = Top::new(header.state_root, top, range.depth()).map_err(of_top)?;
        let (mut subtries, mut versions) = (Vec::new(), Vec::new());
        let work: Vec<_> = tries.into_iter().zip(range.prefixes()).collect();
        let done = HELPERS.each(usize::MAX, work, |(mut trie, prefix)| {
            commit(&mut [&mut trie], &mut Batch::new());
            let (trie, version) =
                VersionedTrie::new(trie).map_err(|error| ApplyError::changes(id, error))?;
            let checked = top.check(&prefix, trie.at(&version));
            checked.map_err(|error| ApplyError::top(id, error))?;
            Ok((trie, version))
        })?;
        for (trie, version) in done {
            subtries.push(RwLock::new(trie));
            versions.push(version);
        }
        let first = BlockVersion {
            id,
            header: header.clone(),
            top,
            versions,
            codes: Vec::new(),
        };
        Ok(Shard {
            range,
            limits,
            subtries,
            codes: RwLock::new(Codes::of_first(codes)),
            known: RwLock::new(Known::new(first)),
            changing: Mutex::new(()),
            pins: Mutex::default(),
            counters: Counters::default(),
        })
    }
}

/// Groups sorted changes by the subtrie that they are in. Leaves out those of other shards.
fn by_subtrie(
    range: ShardRange,
    changes: &[AccountDiff],
) -> impl Iterator<Item = (usize, &[AccountDiff])> {
    let place = move |change: &AccountDiff| range.place(&change.path);
    let groups = changes.chunk_by(move |a, b| place(a) == place(b));
    groups.filter_map(move |group| Some((place(&group[0])?, group)))
}

impl Shard {
    /// Which part of the state it owns.
    pub const fn range(&self) -> ShardRange {
        self.range
    }

    /// Applies a block that is known by the name `id`, and verifies it. Does nothing if the shard has it.
    ///
    /// # Errors
    ///
    /// If the update is not that of the block, if its parent is not known, or if there is no room. The shard is as it was.
    pub fn apply(&self, id: BlockId, update: &BlockUpdate) -> Result<(), ApplyError> {
        let applied = self.apply_checked(id, update);
        let counter = match &applied {
            Ok(()) => &self.counters.updates,
            Err(_) => &self.counters.refused,
        };
        count(counter, 1);
        applied
    }

    fn apply_checked(&self, id: BlockId, update: &BlockUpdate) -> Result<(), ApplyError> {
        let got = update.id();
        if got != id {
            return Err(ApplyError::OtherHeader { named: id, got });
        }
        let top = Top::new(update.header.state_root, &update.top, self.range.depth());
        let top = top.map_err(|error| ApplyError::top(id, error))?;
        let changes = update.changes.accounts();

        let _changing = self.changing.lock();
        // Codes come and go under that lock.
        let codes = self.codes_of(id, changes, &update.codes)?;
        let known = self.known.read();
        if known.get(&id.hash).is_some() {
            return Ok(());
        }
        let parent = update.header.parent_hash;
        let parent = known
            .get(&parent)
            .filter(|_| self.pins.lock().has(&known, &parent))
            .ok_or(ApplyError::NoParent { id, parent })?;
        if parent.id.number.checked_add(1) != Some(id.number) {
            let parent = parent.id;
            return Err(ApplyError::Number { id, parent });
        }
        let (versions, bytes) = (known.len(), self.live_bytes_of(&known));
        let full = |bytes| ApplyError::Full {
            id,
            versions,
            bytes,
        };
        if versions >= self.limits.versions || bytes >= self.limits.bytes {
            return Err(full(bytes));
        }
        // Every subtrie gets a version, most of them the same nodes.
        let mut own = vec![&changes[..0]; self.subtries.len()];
        by_subtrie(self.range, changes).for_each(|(place, group)| own[place] = group);
        let made = Mutex::new((0..self.subtries.len()).map(|_| None).collect::<Vec<_>>());
        let work: Vec<_> = own
            .into_iter()
            .zip(self.range.prefixes())
            .enumerate()
            .collect();
        let result = HELPERS.each(usize::MAX, work, |(place, (own, prefix))| {
            let mut subtrie = self.subtries[place].write();
            let child = subtrie.child(&parent.versions[place], own, &Alone);
            let child = child.map_err(|error| ApplyError::changes(id, error))?;
            let checked = top.check(&prefix, subtrie.at(&child));
            made.lock()[place] = Some(child);
            checked.map_err(|error| ApplyError::top(id, error))
        });
        let made = made.into_inner();
        let result = result.and_then(|_| {
            let own = made
                .iter()
                .flatten()
                .map(Version::memory_bytes)
                .sum::<usize>();
            let there = self.codes.read();
            let new = codes.iter().filter(|(hash, _)| there.get(hash).is_none());
            let new = new.map(|(_, code)| code.len()).sum::<usize>();
            drop(there);
            let bytes = self.live_bytes_of(&known) + own + new;
            match bytes > self.limits.bytes {
                true => Err(full(bytes)),
                false => Ok(()),
            }
        });
        if let Err(error) = result {
            for (version, subtrie) in made.into_iter().zip(&self.subtries) {
                if let Some(version) = version {
                    subtrie.write().remove(version);
                }
            }
            return Err(error);
        }
        let version = BlockVersion {
            id,
            header: update.header.clone(),
            top,
            versions: made.into_iter().flatten().collect(),
            codes: codes.keys().copied().collect(),
        };
        drop(known);
        self.codes.write().add(codes);
        self.known.write().insert(version);
        Ok(())
    }

    /// The codes of the accounts of this shard that an update puts, from it or from those that the shard has.
    fn codes_of(
        &self,
        id: BlockId,
        changes: &[AccountDiff],
        codes: &[Bytes],
    ) -> Result<HashMap<B256, Bytes>, ApplyError> {
        let mut given: Option<HashMap<B256, &Bytes>> = None;
        let mut own = HashMap::default();
        let known = self.codes.read();
        for change in by_subtrie(self.range, changes).flat_map(|(_, group)| group) {
            let AccountUpdate::Put(account) = &change.account else {
                continue;
            };
            let code = account.code_hash;
            if code == KECCAK256_EMPTY || own.contains_key(&code) {
                continue;
            }
            let bytes = match known.get(&code) {
                Some(bytes) => bytes,
                None => {
                    let given = given.get_or_insert_with(|| {
                        let codes = codes.iter();
                        codes.map(|code| (keccak256(code), code)).collect()
                    });
                    *given.get(&code).ok_or(ApplyError::NoCode {
                        id,
                        account: change.path,
                        code,
                    })?
                }
            };
            own.insert(code, bytes.clone());
        }
        Ok(own)
    }

    /// Makes a block the oldest one: removes all that do not descend from it. While a snapshot is being made, this waits for its
    /// end, and the versions count until then.
    ///
    /// # Errors
    ///
    /// [`ApplyError::Unknown`] if the shard does not have it.
    pub fn finalize(&self, id: BlockId) -> Result<(), ApplyError> {
        let _changing = self.changing.lock();
        let mut pins = self.pins.lock();
        if pins.count > 0 {
            let known = self.known.read();
            let is_known = known.get(&id.hash).is_some_and(|version| version.id == id);
            // What is beside a final block, or before it, is as if it had gone.
            if !is_known || !pins.has(&known, &id.hash) {
                return Err(ApplyError::Unknown(id));
            }
            pins.finalized = Some(id);
            return Ok(());
        }
        self.make_oldest(id)
    }

    /// The oldest version, kept while the result lives.
    pub(crate) fn pin(&self) -> Pin<'_> {
        let _changing = self.changing.lock();
        self.pins.lock().count += 1;
        let block = self.known.read().oldest();
        Pin { shard: self, block }
    }

    /// Accounts and slots at one block, from a place on, until these are `leaves_max` leaves. Returns where to go on; `None` at
    /// the end.
    ///
    /// # Errors
    ///
    /// If there is no such version.
    pub(crate) fn leaves(
        &self,
        block: BlockId,
        from: Place,
        leaves_max: usize,
    ) -> Result<(Vec<AccountDiff>, Option<Place>), ReadError> {
        let known = self.known.read();
        let version = known.find(block)?;
        let mut out = Vec::new();
        let first = self.range.place(&from.account()).unwrap_or(0);
        let mut from = from;
        for (at, prefix) in self.range.prefixes().enumerate().skip(first) {
            if at > first {
                from = Place::at(first_below(&prefix));
            }
            let subtrie = self.subtries[at].read();
            let view = subtrie.at(&version.versions[at]);
            let left = leaves_max.saturating_sub(leaf_count(&out));
            if let Some(next) = leaves::leaves(&view, from, left, &mut out) {
                return Ok((out, Some(next)));
            }
        }
        Ok((out, None))
    }

    /// Where the leaves of the shard begin.
    pub(crate) fn first_place(&self) -> Place {
        let first = self.range.prefixes().next();
        Place::at(first.map_or(B256::ZERO, |prefix| first_below(&prefix)))
    }

    /// The header of a block, and the nodes above the shards.
    ///
    /// # Errors
    ///
    /// If there is no such version.
    pub fn header(&self, block: BlockId) -> Result<(Header, Vec<Bytes>), ReadError> {
        let known = self.known.read();
        let version = known.find(block)?;
        let top = version.top.nodes_from(0).cloned().collect();
        Ok((version.header.clone(), top))
    }

    /// The oldest block of which it has the state.
    pub fn oldest(&self) -> BlockId {
        self.known.read().oldest()
    }

    /// Whether the shard has the state after a block.
    pub fn has(&self, block: BlockId) -> bool {
        self.known.read().find(block).is_ok()
    }

    /// Whether the shard has the state after the block with this hash.
    pub fn knows(&self, hash: &B256) -> bool {
        self.known.read().get(hash).is_some()
    }

    /// The hashes of all codes that accounts have or had.
    pub(crate) fn code_hashes(&self) -> Vec<B256> {
        self.codes.read().hashes().collect()
    }

    /// A code that an account of the shard has or had.
    pub(crate) fn code(&self, hash: &B256) -> Option<Bytes> {
        self.codes.read().get(hash).cloned()
    }

    fn make_oldest(&self, id: BlockId) -> Result<(), ApplyError> {
        let mut known = self.known.write();
        if known.get(&id.hash).is_none_or(|version| version.id != id) {
            return Err(ApplyError::Unknown(id));
        }
        let path = known.path_to(&id.hash);
        for hash in path {
            for lost in known.children_but(&hash) {
                self.remove(&mut known, lost);
            }
            let (oldest, child) = known.retire(&hash);
            for ((subtrie, oldest), child) in self.subtries.iter().zip(oldest).zip(child) {
                subtrie.write().retire(oldest, child);
            }
        }
        Ok(())
    }

    /// Removes a version and all that descend from it.
    fn remove(&self, known: &mut Known, hash: B256) {
        // Children come after their parents.
        for version in known.take_with_descendants(hash).into_iter().rev() {
            self.codes.write().remove(&version.codes);
            for (subtrie, version) in self.subtries.iter().zip(version.versions) {
                subtrie.write().remove(version);
            }
        }
    }

    /// Answers a request.
    ///
    /// # Errors
    ///
    /// [`ReadError`] says why there is no answer.
    pub fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        request.check()?;
        let known = self.known.read();
        let version = known.find(request.block)?;
        let mut bag = NodeBag::default();
        let least = request.groups.iter().map(|group| group.levels.accounts);
        let whole = request.slots_from.map(|_| 0);
        if let Some(least) = least.chain(whole).min()
            && usize::from(least) < self.range.depth()
        {
            bag.nodes.extend(version.top.nodes_from(least).cloned());
        }
        let bytes_max = self.limits.bag_bytes;
        let mut makers: Vec<Option<Vec<usize>>> = vec![None; self.subtries.len()];
        for (at, group) in request.groups.iter().enumerate() {
            for (account, _) in group.targets.accounts() {
                let place = self.place(account)?;
                let groups = makers[place].get_or_insert_with(Vec::new);
                if groups.last() != Some(&at) {
                    groups.push(at);
                }
            }
        }
        // All of them at once, since a node that two of them have is in the bag once.
        let subtries: Vec<_> = self.subtries.iter().map(RwLock::read).collect();
        let first = subtries[0].at(&version.versions[0]);
        let mut maker = BagMaker::new(first, bytes_max);
        for (place, groups) in makers.into_iter().enumerate() {
            let Some(groups) = groups else { continue };
            maker = maker.on(subtries[place].at(&version.versions[place]));
            for at in groups {
                let group = &request.groups[at];
                let added = maker.add(&group.targets, group.levels);
                added.map_err(|error| self.no_bag(error))?;
            }
        }
        let mut nodes = maker.finish();
        if let Some((account, from)) = request.slots_from {
            let place = self.place(&account)?;
            let view = subtries[place].at(&version.versions[place]);
            let room = bytes_max.saturating_sub(bag.bytes());
            nodes.extend(self.slots_from(view, account, from, room)?);
        }
        bag.nodes.extend(nodes);
        let mut bytes = bag.bytes();
        drop(subtries);
        let check = |bytes: usize| match bytes > bytes_max {
            true => Err(ReadError::TooBig { bytes_max }),
            false => Ok(()),
        };
        // The top nodes are not the maker's.
        check(bytes)?;
        let codes = self.codes.read();
        for (hash, _) in &request.codes {
            let code = codes.get(hash).ok_or(ReadError::NoCode(*hash))?;
            bytes += code.len();
            check(bytes)?;
            bag.codes.push(code.clone());
        }
        count(&self.counters.reads, 1);
        count(&self.counters.keys, request.keys());
        count(&self.counters.bag_bytes, bytes);
        Ok(bag)
    }

    /// The nodes on the paths of an account and of its slots from one on, as many as there is room for.
    fn slots_from(
        &self,
        view: VersionView<'_>,
        account: B256,
        from: B256,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, ReadError> {
        let levels = BagLevels {
            accounts: 0,
            slots: 0,
            deletes: Deletes::Nothing,
        };
        let mut slots_max = SLOTS_AT_ONCE;
        loop {
            let (slots, beyond) = leaves::slots(&view, &account, from, slots_max);
            let mut keys: Vec<_> = slots.into_iter().map(|(slot, _)| slot).collect();
            // What proves that nothing comes before the first one, and after the last.
            keys.push(from);
            if beyond.is_none() {
                keys.push(B256::repeat_byte(u8::MAX));
            }
            let mut maker = BagMaker::new(view, bytes_max);
            match maker.add(&ProofTargets::new(vec![(account, keys)]), levels) {
                Ok(()) => return Ok(maker.finish()),
                Err(BagError::TooBig { .. }) if slots_max > 1 => slots_max /= 2,
                Err(error) => return Err(self.no_bag(error)),
            }
        }
    }

    fn no_bag(&self, error: BagError) -> ReadError {
        match error {
            BagError::TooBig { .. } => ReadError::TooBig {
                bytes_max: self.limits.bag_bytes,
            },
            BagError::Missing(missing) => ReadError::Unavailable {
                index: self.range.index(),
                what: missing.to_string(),
            },
        }
    }

    /// Calls `read` with the subtrie of an account at one block.
    fn with_version<T>(
        &self,
        block: BlockId,
        account: &B256,
        read: impl FnOnce(VersionView<'_>) -> T,
    ) -> Result<T, ReadError> {
        let known = self.known.read();
        let version = known.find(block)?;
        let place = self.place(account)?;
        let subtrie = self.subtries[place].read();
        Ok(read(subtrie.at(&version.versions[place])))
    }

    /// An account and its storage root at one block, for whoever trusts this process.
    ///
    /// # Errors
    ///
    /// If there is no such version, or if the account is another shard's.
    pub fn account(
        &self,
        block: BlockId,
        account: &B256,
    ) -> Result<Option<(Account, B256)>, ReadError> {
        self.with_version(block, account, |view| view.account(account))
    }

    /// Many accounts at one block, in the order of `accounts`, for whoever trusts this process. Their look-ups wait for memory
    /// together.
    ///
    /// # Errors
    ///
    /// As [`Self::account`].
    pub fn accounts(
        &self,
        block: BlockId,
        accounts: &[B256],
    ) -> Result<Vec<Option<(Account, B256)>>, ReadError> {
        let known = self.known.read();
        let version = known.find(block)?;
        let mut places = vec![Vec::new(); self.subtries.len()];
        for (at, account) in accounts.iter().enumerate() {
            places[self.place(account)?].push(at);
        }
        let mut found = vec![None; accounts.len()];
        let mut own = Vec::new();
        for (place, places) in places.into_iter().enumerate() {
            own.clear();
            own.extend(places.iter().map(|at| accounts[*at]));
            let subtrie = self.subtries[place].read();
            let values = subtrie.at(&version.versions[place]).accounts(&own);
            places
                .into_iter()
                .zip(values)
                .for_each(|(at, value)| found[at] = value);
        }
        Ok(found)
    }

    fn place(&self, account: &B256) -> Result<usize, ReadError> {
        self.range.place(account).ok_or(ReadError::OtherShard {
            account: *account,
            index: self.range.index(),
            count: self.range.count(),
        })
    }

    /// A slot at one block, for whoever trusts this process.
    ///
    /// # Errors
    ///
    /// As [`Self::account`].
    pub fn slot(&self, block: BlockId, account: &B256, slot: &B256) -> Result<U256, ReadError> {
        self.with_version(block, account, |view| view.slot(account, slot))
    }

    fn memory_bytes_of(&self, known: &Known) -> usize {
        let tries = self.subtries.iter().map(|trie| trie.read().memory_bytes());
        tries.sum::<usize>() + known.memory_bytes() + self.codes.read().bytes()
    }

    /// As [`Self::memory_bytes_of`], without memory that was freed and is used again.
    fn live_bytes_of(&self, known: &Known) -> usize {
        let tries = self.subtries.iter().map(|trie| trie.read().live_bytes());
        tries.sum::<usize>() + known.memory_bytes() + self.codes.read().bytes()
    }

    /// What the shard has, and what it has done.
    pub fn stats(&self) -> ShardStats {
        let known = self.known.read();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (newest, newest_timestamp) = known.newest();
        ShardStats {
            oldest: known.oldest(),
            newest,
            newest_timestamp,
            versions: known.len(),
            nodes: self.subtries.iter().map(|trie| trie.read().nodes()).sum(),
            memory_bytes: self.memory_bytes_of(&known),
            live_bytes: self.live_bytes_of(&known),
            codes: self.codes.read().len(),
            updates: get(&self.counters.updates),
            refused: get(&self.counters.refused),
            reads: get(&self.counters.reads),
            keys: get(&self.counters.keys),
            bag_bytes: get(&self.counters.bag_bytes),
        }
    }

    /// Paths of the subtries that the shard owns.
    pub fn prefixes(&self) -> impl Iterator<Item = Path> {
        self.range.prefixes()
    }
}
