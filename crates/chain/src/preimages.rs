//! Preimages of a chain: the addresses and the keys of slots behind the hashes in its state.
//!
//! ```text
//!   execution   access list, changes and reverts  ──►  BlockPreimages, in the block's record
//!   follower    canonical blocks, in their order  ──►  Preimages, in sorted runs
//! ```
//!
//! The record of a block holds the preimages that the block created, so that a crash loses none. The follower reads the
//! records, and the log keeps the unread ones. A chain keeps preimages if its disk has a list of their runs: `init`
//! creates it, and each writer that opens the chain continues it.

use crate::ChainError;
use alloy_primitives::{Address, B256};
use cambium_index::{BlockPreimages, StoredBody};
use cambium_keccak::keccak256_each;
use cambium_preimages::{Preimages, PreimagesError, PreimagesOptions};
use cambium_primitives::{
    AccessList, AccountChanges, AccountDiff, AccountUpdate, BlockId, Changes,
};
use cambium_state::{
    Background, BlockMeta, ChainEvent, Db, Disk, StateError, StoreError, Subscription,
    follower_bytes, lower_priority,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Memory of a reader for preimages that the writer has not written to files, and for blocks that the writer's follower
/// has not read.
const READER_BYTES: u64 = 1 << 30;
/// Blocks after which those in memory go to a file, so that the log need not keep more than these.
const FLUSH_BLOCKS: u64 = 512;

/// Name of this reader of the log.
const LOG_READER: &str = "preimages";

/// Options of preimages beside an engine with `memory_bytes`.
pub(crate) fn options(memory_bytes: u64) -> PreimagesOptions {
    PreimagesOptions {
        memory_bytes: follower_bytes(memory_bytes),
    }
}

/// The addresses and keys of slots that are new in the state after a block. Its access list has all that it
/// changes.
pub(crate) fn created(list: &AccessList, changes: &Changes, reverts: &Changes) -> BlockPreimages {
    let is_put = |change: &AccountDiff| matches!(change.account, AccountUpdate::Put(_));
    let was_absent = |before: &AccountDiff| before.account == AccountUpdate::Delete;
    let is_new = |path: &B256| {
        changes.account(path).is_some_and(is_put) && reverts.account(path).is_some_and(was_absent)
    };
    let (changed, others): (Vec<&AccountChanges>, Vec<_>) = list
        .accounts()
        .iter()
        .partition(|listed| AccessList::is_changed(listed));
    let paths = keccak256_each(changed.iter().map(|listed| listed.address));
    let mut created = BlockPreimages::default();
    for (listed, path) in changed.into_iter().zip(paths) {
        if is_new(&path) {
            created.addresses.push(listed.address);
        }
        let before = reverts.account(&path);
        let slots = changes.account(&path).into_iter();
        let new_slots = slots
            .flat_map(|change| &change.slots)
            .filter(|(slot, value)| {
                !value.is_zero() && !before.is_some_and(|before| had_value(before, slot))
            });
        let new_slots: Vec<B256> = new_slots.map(|(slot, _)| *slot).collect();
        if new_slots.is_empty() {
            continue;
        }
        let keys = listed.storage_changes.iter();
        let keys = keys.map(|changed| B256::from(changed.slot));
        let hashes = keccak256_each(keys.clone());
        let new_keys = keys
            .zip(hashes)
            .filter(|(_, hash)| new_slots.binary_search(hash).is_ok());
        created.slots.extend(new_keys.map(|(key, _)| key));
    }
    // Before EIP-161 an account that was called was created, without a change of any field.
    let new = reverts
        .accounts()
        .iter()
        .filter(|before| was_absent(before));
    let new = new.filter(|before| changes.account(&before.path).is_some_and(is_put));
    if new.count() > created.addresses.len() {
        let paths = keccak256_each(others.iter().map(|listed| listed.address));
        let called = others.iter().zip(paths).filter(|(_, path)| is_new(path));
        created
            .addresses
            .extend(called.map(|(listed, _)| listed.address));
    }
    created
}

/// Whether the slot had a value before the block, by its reverts.
fn had_value(before: &AccountDiff, slot: &B256) -> bool {
    let found = before.slots.binary_search_by_key(slot, |(slot, _)| *slot);
    found.is_ok_and(|at| !before.slots[at].1.is_zero())
}

/// The preimages of the first state of a database, while that is made.
pub(crate) struct FirstPreimages {
    /// `None` if the database is to keep none.
    preimages: Option<Preimages>,
}

impl FirstPreimages {
    /// Begins, on a disk without a database. Removes the files of an earlier attempt.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        wanted: Option<PreimagesOptions>,
    ) -> Result<Self, PreimagesError> {
        Preimages::remove(&*disk)?;
        let create = |options| Preimages::create(disk, options);
        Ok(Self {
            preimages: wanted.map(create).transpose()?,
        })
    }

    pub(crate) const fn are_wanted(&self) -> bool {
        self.preimages.is_some()
    }

    pub(crate) fn add(
        &self,
        address: Option<Address>,
        slots: impl IntoIterator<Item = B256>,
    ) -> Result<(), PreimagesError> {
        match &self.preimages {
            Some(preimages) => preimages.add(address, slots),
            None => Ok(()),
        }
    }

    /// Makes the preimages durable, which happens before the database is: an interrupted attempt leaves no database.
    pub(crate) fn finish(self, first: BlockId) -> Result<(), PreimagesError> {
        match self.preimages {
            Some(preimages) => {
                preimages.advance(first);
                preimages.flush()
            }
            None => Ok(()),
        }
    }
}

/// The preimages of a chain, which threads keep at its head if it is open for writing.
pub(crate) struct KeptPreimages {
    inner: Arc<Inner>,
    /// Ends before the last blocks are flushed.
    threads: Background<ChainError>,
}

struct Inner {
    db: Db,
    preimages: OnceLock<Preimages>,
    /// Where the canonical chain is followed. `None` before preimages are open. Locked while some are added.
    events: Mutex<Option<Subscription>>,
}

impl KeptPreimages {
    /// Those of a database, if it keeps any. A writer opens them at once, and a reader when they are asked for.
    pub(crate) fn of(db: &Db) -> Result<Option<Self>, ChainError> {
        // If that can't be determined, opening them returns the reason.
        if let Ok(false) = Preimages::exist(&**db.disk()) {
            return Ok(None);
        }
        let inner = Arc::new(Inner {
            db: db.clone(),
            preimages: OnceLock::new(),
            events: Mutex::default(),
        });
        let mut threads = Background::default();
        if !db.is_read_only() {
            // Blocks must stay in the log until the newest block with all preimages is known.
            let opened = inner.open(&mut inner.events()).cloned();
            match opened {
                Ok(preimages) => inner.keep_log(&preimages),
                // The log keeps all, so that none is lost when they can be opened again.
                Err(error) => {
                    tracing::warn!(%error, "the preimages of new blocks stay in the log");
                    inner.db.keep_log_above(LOG_READER, 0);
                    if !may_pass(&error) {
                        return Ok(Some(Self { inner, threads }));
                    }
                }
            }
            let (follower, merger) = (inner.clone(), inner.clone());
            threads.repeat("the preimages", may_pass, move |signal| {
                follower.catch_up(&|| !signal.is_over()).map(drop)
            });
            let mut is_lowered = false;
            let mut is_stopped = false;
            threads.repeat("merging of preimages", may_pass, move |_| {
                if !is_lowered {
                    lower_priority();
                    is_lowered = true;
                }
                let Some(preimages) = merger.preimages.get().filter(|_| !is_stopped) else {
                    return Ok(());
                };
                let merged = preimages.merge().map_err(ChainError::from);
                merged.or_else(|error| match may_pass(&error) {
                    true => Err(error),
                    // They are added and found all the same.
                    false => {
                        tracing::warn!(%error, "preimages are not merged any more");
                        is_stopped = true;
                        Ok(())
                    }
                })
            });
        }
        Ok(Some(Self { inner, threads }))
    }

    /// The preimages, with those of all blocks up to the head.
    pub(crate) fn up_to_head(&self) -> Result<Preimages, ChainError> {
        self.inner.catch_up(&|| true)
    }

    /// Ends the threads, and writes what is in memory to a file. Without a file, the log has it still.
    pub(crate) fn end(&mut self) -> Result<(), ChainError> {
        let followed = self.threads.end(|| {
            let cause = "a panic".to_owned();
            PreimagesError::Poisoned { cause }.into()
        });
        match self.inner.preimages.get() {
            Some(preimages) if !self.inner.db.is_read_only() => preimages.flush()?,
            _ => {}
        }
        followed
    }
}

impl Drop for KeptPreimages {
    fn drop(&mut self) {
        // The error that ended a thread was logged then.
        if let Err(error) = self.end() {
            tracing::debug!(%error, "preimages of the newest blocks are read from the log again");
        }
    }
}

fn may_pass(error: &ChainError) -> bool {
    match error {
        ChainError::Preimages(error) => {
            // An earlier handle of this chain still holds the preimages, and is going to be dropped.
            let is_in_use = matches!(**error, PreimagesError::Store(StoreError::InUse { .. }));
            error.is_of_disk() || is_in_use
        }
        ChainError::State(error) => matches!(error, StateError::Store(StoreError::Disk(_))),
        _ => false,
    }
}

impl Inner {
    fn events(&self) -> MutexGuard<'_, Option<Subscription>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the preimages, if they are not open.
    fn open(&self, events: &mut Option<Subscription>) -> Result<&Preimages, ChainError> {
        if let Some(preimages) = self.preimages.get() {
            return Ok(preimages);
        }
        let (disk, genesis) = (self.db.disk().clone(), self.db.genesis());
        let own = options(self.db.options().memory_bytes);
        let preimages = match self.db.is_read_only() {
            false => Preimages::open(disk, genesis.hash, own)?,
            true => {
                let memory_bytes = READER_BYTES.max(own.memory_bytes);
                Preimages::open_read_only(disk, genesis.hash, PreimagesOptions { memory_bytes })?
            }
        };
        *events = Some(self.db.subscribe(preimages.upto().unwrap_or(genesis)));
        Ok(self.preimages.get_or_init(|| preimages))
    }

    /// Adds those of new blocks, as long as `goes_on`.
    fn catch_up(&self, goes_on: &dyn Fn() -> bool) -> Result<Preimages, ChainError> {
        let mut events = self.events();
        let preimages = self.open(&mut events)?;
        if self.db.is_read_only() {
            preimages.reload()?;
        }
        let reached = preimages.upto().unwrap_or(self.db.genesis());
        let events = match &mut *events {
            // Another process had more.
            Some(events) if events.cursor() != reached => {
                *events = self.db.subscribe(reached);
                events
            }
            events => events.get_or_insert_with(|| self.db.subscribe(reached)),
        };
        if self.is_ahead(reached)? {
            return Ok(preimages.clone());
        }
        while events.cursor() != self.db.head() && goes_on() {
            let before = events.cursor();
            match events.try_next() {
                Ok(None) => break,
                Ok(Some(ChainEvent::Committed(block))) => {
                    self.flush_if_left(preimages, before)?;
                    match add(preimages, &block.meta) {
                        Err(error @ PreimagesError::ReaderFull) => {
                            tracing::warn!(%error, "the preimages of the newest blocks are left out");
                            break;
                        }
                        added => added?,
                    }
                }
                Ok(Some(_)) => preimages.advance(events.cursor()),
                Err(StateError::CannotFollow { oldest, .. }) => {
                    self.begin_again(preimages, events, oldest)?;
                }
                Err(error) => self.step_over(preimages, events, error)?,
            }
            self.flush_if_due(preimages, events.cursor())?;
        }
        Ok(preimages.clone())
    }

    /// Whether those up to `reached`, which another process has added, are more than this reader needs: its head is an
    /// ancestor of that block.
    fn is_ahead(&self, reached: BlockId) -> Result<bool, ChainError> {
        let (db, head) = (&self.db, self.db.head());
        if !db.is_read_only() || reached.number <= head.number || db.has(reached)? {
            return Ok(false);
        }
        let (newest, _) = Db::open_read_only(db.disk().clone(), *db.options())?;
        Ok(newest.is_canonical(reached)? && newest.is_canonical(head)?)
    }

    /// Moves the list of runs back to a canonical block before others are added on it. Otherwise a crash would leave a
    /// list that ends on a branch of which the log keeps nothing.
    fn flush_if_left(&self, preimages: &Preimages, on: BlockId) -> Result<(), ChainError> {
        let is_left = |durable: BlockId| durable.number > on.number;
        if !self.db.is_read_only() && preimages.durable().is_some_and(is_left) {
            preimages.flush()?;
        }
        Ok(())
    }

    /// Goes on with the oldest block of the log: the block that was reached is unknown, or those after it have left
    /// the log. Where it is not known from which block on some are missing, it may be from the first on.
    fn begin_again(
        &self,
        preimages: &Preimages,
        events: &mut Subscription,
        oldest: u64,
    ) -> Result<(), ChainError> {
        let (db, reached) = (&self.db, events.cursor());
        let first = oldest.max(db.genesis().number + 1);
        let from = match db.block(first) {
            // It has left the log meanwhile: the next step says which one is the oldest now.
            Err(StateError::NotKept { oldest: now }) if now > first => return Ok(()),
            block => match block? {
                Some(block) => BlockId::new(first - 1, block.parent),
                None => db.head(),
            },
        };
        if from == reached {
            return Err(StateError::NotKept { oldest }.into());
        }
        let known = match db.is_canonical(reached)? {
            true => reached.number,
            // The database has lost blocks, or is a copy of before: it was on their chain.
            false if reached.number > db.head().number => first - 1,
            false => db.genesis().number,
        };
        let lost = (first - 1).saturating_sub(known);
        match lost {
            0 => tracing::info!(%reached, %from, "preimages are read from the log again"),
            lost => tracing::warn!(
                %reached,
                lost,
                "blocks have left the log before their preimages were read"
            ),
        }
        preimages.skip(lost, from);
        *events = db.subscribe(from);
        Ok(())
    }

    /// Goes on behind a block whose record can't be read: damaged, or cut out by a repair. An error that may pass, or that
    /// is of another kind, is returned.
    fn step_over(
        &self,
        preimages: &Preimages,
        events: &mut Subscription,
        error: StateError,
    ) -> Result<(), ChainError> {
        let (db, reached) = (&self.db, events.cursor());
        let is_of_record = match &error {
            StateError::Damaged { .. } => true,
            StateError::Store(error) => error.is_corruption(),
            _ => false,
        };
        if !is_of_record || !db.is_canonical(reached)? {
            return Err(error.into());
        }
        let Some(next) = db.block_id(reached.number + 1)? else {
            return Err(error.into());
        };
        tracing::warn!(block = %next, %error, "a block whose record can't be read has no preimages");
        preimages.skip(1, next);
        *events = db.subscribe(next);
        Ok(())
    }

    fn flush_if_due(&self, preimages: &Preimages, reached: BlockId) -> Result<(), ChainError> {
        if self.db.is_read_only() {
            return Ok(());
        }
        let durable = preimages.durable().map_or(0, |durable| durable.number);
        if reached.number.abs_diff(durable) >= FLUSH_BLOCKS {
            preimages.flush()?;
        }
        self.keep_log(preimages);
        Ok(())
    }

    /// The log keeps the blocks that a crash would take from the preimages.
    fn keep_log(&self, preimages: &Preimages) {
        let durable = preimages.durable().unwrap_or(self.db.genesis());
        // From here on the database itself keeps more when the chain leaves that block.
        self.db.keep_log_above(LOG_READER, durable.number);
        if !self.db.is_canonical(durable).unwrap_or_default() {
            // It is not known where the branches part.
            self.db.keep_log_above(LOG_READER, 0);
        }
    }
}

/// Adds those of a block.
fn add(preimages: &Preimages, block: &BlockMeta) -> Result<(), PreimagesError> {
    let created = StoredBody::decode(&block.body).and_then(|body| body.preimages());
    match created {
        Ok(Some(BlockPreimages { addresses, slots })) => {
            preimages.add(addresses, slots)?;
            preimages.advance(block.id);
        }
        // It was executed while the folder was away, or by another program.
        Ok(None) => lost(preimages, block, "it was stored without"),
        Err(error) => lost(preimages, block, &error.to_string()),
    }
    Ok(())
}

fn lost(preimages: &Preimages, block: &BlockMeta, why: &str) {
    tracing::warn!(block = %block.id, why, "a block has no preimages");
    preimages.skip(1, block.id);
}
