//! The process of a shard.

use super::{
    figures::{self, outcome},
    files,
    peers::{Answer, Peer},
    progress::Progress,
    shard_figures::{self, ShardFigures},
};
use crate::{
    range::ShardRange,
    replication::{
        BuilderKeys, Choice, Follower, FollowerState, Hole, Ignored, Journal, JournalError,
        JournalOptions, Missing, Record, SignedUpdate, StreamError, StreamItem, StreamPosition,
        Verdict,
    },
    rpc::{HostStatus, ShardHost, Wanted},
    shard::{ApplyError, Shard, ShardLimits},
    snapshot::{SnapshotError, SnapshotInfo},
};
use alloy_primitives::{B256, Bytes};
use cambium_disk::{Disk, DiskError, DiskLock, LockError};
use cambium_metrics::{LabelledMetrics, MetricsHost};
use cambium_primitives::BlockId;
use parking_lot::{Mutex, RwLock};
use std::{
    io::Read,
    sync::Arc,
    time::{Duration, Instant},
};

/// Name of the file that is locked while a process has the folder.
const LOCK: &str = "lock";

/// What a process is for, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Which part of the state.
    pub range: ShardRange,
    /// Limits of the shard.
    pub limits: ShardLimits,
    /// Sizes of the journal.
    pub journal: JournalOptions,
    /// Number of blocks that become final between two snapshots.
    pub snapshot_blocks: u64,
    /// How long to look for a block that nobody has, before the record that needs it is passed.
    pub patience: Duration,
}

/// Why a process can't go on.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Another process has the folder, or it can't be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The folder can't be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The journal fails.
    #[error(transparent)]
    Journal(#[from] Box<JournalError>),
    /// A snapshot can't be written.
    #[error(transparent)]
    Snapshot(#[from] Box<SnapshotError>),
    /// The stream can't be reached.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl From<JournalError> for ProcessError {
    fn from(error: JournalError) -> Self {
        Self::Journal(Box::new(error))
    }
}

impl From<SnapshotError> for ProcessError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(Box::new(error))
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was judged: the follower is behind it.
    Judged,
    /// A block is missing, which nobody has now. The record has to be given again.
    Waits(B256),
    /// The shard has no room before a block is final. The record has to be given again.
    Full,
}

/// A shard that follows the stream of updates, with its folder.
pub struct ShardProcess {
    pub(super) options: ProcessOptions,
    disk: Arc<dyn Disk>,
    peers: Vec<Box<dyn Peer>>,
    journal: Journal,
    pub(super) shard: RwLock<Option<Arc<Shard>>>,
    pub(super) following: Mutex<Following>,
    pub(super) shown: Mutex<Shown>,
    /// Held while a snapshot is written.
    writing: Mutex<()>,
    pub(super) figures: ShardFigures,
    _lock: DiskLock,
}

/// What changes with each record. One thread has it at a time.
pub(super) struct Following {
    pub(super) follower: Follower,
    progress: Progress,
    /// An update for which there was no room.
    waits: Option<(SignedUpdate, Bytes, FollowerState)>,
    /// Height of the newest snapshot in the folder.
    snapshot: u64,
}

/// What peers have of a block and those before it.
enum Fetched {
    /// All that is missing, parents first.
    Blocks(Vec<(SignedUpdate, Vec<u8>)>),
    /// The block does not descend from the oldest one.
    Lost,
    /// Nobody has all of them.
    Nothing,
}

/// What others see of the process, without waiting for whoever takes a record.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) state: FollowerState,
    head: Option<BlockId>,
    loading: String,
    pub(super) trouble: String,
    /// The newest snapshot in the folder: its block's number and timestamp.
    snapshot: Option<(u64, u64)>,
}

impl std::fmt::Debug for ShardProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShardProcess({:?})", self.options.range)
    }
}

impl ShardProcess {
    /// Opens a folder: loads its newest snapshot that is whole, and replays its journal. There may be neither: then
    /// [`Self::adopt`] or [`Self::load`] gives it a state.
    ///
    /// # Errors
    ///
    /// If another process has the folder, or if it can't be read. A snapshot that is damaged is put aside, as `damaged-state-*`, and is
    /// part of the status.
    pub fn open(
        disk: Arc<dyn Disk>,
        keys: BuilderKeys,
        peers: Vec<Box<dyn Peer>>,
        options: ProcessOptions,
    ) -> Result<Self, ProcessError> {
        disk.create_dir("")?;
        let lock = disk.lock(LOCK)?;
        let (journal, recovery) = Journal::open(Arc::clone(&disk), options.journal.clone())?;
        let mut troubles: Vec<String> = recovery
            .damage
            .iter()
            .map(|damage| format!("journal: {damage}"))
            .collect();
        let (mut loaded, mut snapshots_damaged) = (None, 0);
        for (block, name) in files::list(&*disk)? {
            let source = files::read(&*disk, &name)?;
            match Shard::read_snapshot(source, options.range, options.limits) {
                Ok((shard, note)) => {
                    loaded = Some((shard, note));
                    break;
                }
                Err(error) => {
                    snapshots_damaged += 1;
                    let number = block.number;
                    let aside = format!("damaged-{name}");
                    // So that it is not one of the two that are kept.
                    disk.rename(&name, &aside)?;
                    let shown = disk.display_path(&aside);
                    troubles.push(format!("{shown}, of block {number}, is passed: {error}"));
                }
            }
        }
        let process = Self {
            following: Mutex::new(Following {
                follower: Follower::new(keys, FollowerState::default()),
                progress: Progress::default(),
                waits: None,
                snapshot: 0,
            }),
            shown: Mutex::new(Shown {
                loading: "it has no snapshot yet".to_owned(),
                trouble: troubles.join("; "),
                ..Shown::default()
            }),
            options,
            disk,
            peers,
            journal,
            shard: RwLock::new(None),
            writing: Mutex::new(()),
            figures: ShardFigures::new(recovery.damage.len() as u64, snapshots_damaged),
            _lock: lock,
        };
        if let Some((shard, note)) = loaded {
            process.begin(Arc::new(shard), &note, &recovery.state)?;
        }
        Ok(process)
    }

    /// Whether it has a state to serve.
    pub fn is_loaded(&self) -> bool {
        self.shard.read().is_some()
    }

    /// Takes a state from elsewhere, with the state of the follower that it came with, and writes a snapshot of it.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn adopt(&self, shard: Shard, note: &[u8]) -> Result<(), ProcessError> {
        let shard = Arc::new(shard);
        self.write(&shard, Some(note))?;
        self.begin(shard, note, &FollowerState::default())
    }

    /// Takes a snapshot from a stream of bytes, as [`Self::adopt`].
    ///
    /// # Errors
    ///
    /// If it is damaged, or can't be written.
    pub fn load(&self, source: impl Read) -> Result<(), ProcessError> {
        let (shard, note) = Shard::read_snapshot(source, self.options.range, self.options.limits)?;
        self.adopt(shard, &note)
    }

    /// Takes the state of the first peer that has one. False if none has.
    ///
    /// # Errors
    ///
    /// If the snapshot can't be written.
    pub fn load_from_peers(&self) -> Result<bool, ProcessError> {
        self.load_from_peers_if(|_| true)
    }

    /// As [`Self::load_from_peers`], if the oldest block of the state is wanted.
    pub(super) fn load_from_peers_if(
        &self,
        is_wanted: impl Fn(BlockId) -> bool,
    ) -> Result<bool, ProcessError> {
        for peer in &self.peers {
            match peer.snapshot(self.options.range, self.options.limits) {
                Ok((shard, _)) if !is_wanted(shard.oldest()) => {}
                Ok((shard, note)) => {
                    let note = of_peer(&note, &shard);
                    self.adopt(shard, &note)?;
                    return Ok(true);
                }
                Err(error) => {
                    self.shown.lock().loading = format!("{}: {error}", peer.name());
                }
            }
        }
        Ok(false)
    }

    /// Serves a state, after what the journal has from there on.
    fn begin(
        &self,
        shard: Arc<Shard>,
        note: &[u8],
        last: &FollowerState,
    ) -> Result<(), ProcessError> {
        let mut following = self.following.lock();
        // Of the two, the one that has read more. An unreadable note is one that has read nothing.
        let noted = FollowerState::decode(note).unwrap_or_default();
        let oldest = shard.oldest();
        following.snapshot = oldest.number;
        self.show_snapshot(&shard, oldest);
        following.progress = Progress::default();
        following.waits = None;
        following.follower = Follower::new(following.follower.keys().clone(), noted.clone());
        let (mut before, mut has_gap) = (noted.clone(), false);
        for entry in self.journal.entries() {
            let entry = entry?;
            match Record::decode(&entry.record) {
                Ok(Record::Update(update)) => {
                    let id = update.id();
                    let is_new = id.number > shard.oldest().number && !shard.has(id);
                    if is_new {
                        let at = (entry.position, &before);
                        let applied = self.apply(&shard, &mut following, at, &update);
                        has_gap |= applied.is_err();
                    }
                }
                Ok(Record::Choice(choice)) => self.follow(&shard, &mut following, &choice),
                Ok(Record::Epoch(_)) | Err(_) => {}
            }
            before = entry.state;
        }
        // What the journal lacks may be in the stream.
        let state = match last.position > noted.position && !has_gap {
            true => last.clone(),
            false => noted,
        };
        following.follower = Follower::new(following.follower.keys().clone(), state);
        self.show(&following.follower);
        self.shown.lock().loading.clear();
        *self.shard.write() = Some(shard);
        Ok(())
    }

    /// Applies an update of the journal, with blocks before it that are missing, if somebody has them. `at` is where it was in the
    /// stream, with the state of the follower before it.
    fn apply(
        &self,
        shard: &Shard,
        following: &mut Following,
        at: (StreamPosition, &FollowerState),
        update: &SignedUpdate,
    ) -> Result<(), ApplyError> {
        let (position, before) = at;
        let mut put = |update: &SignedUpdate| {
            shard.apply(update.id(), update.update())?;
            let progress = &mut following.progress;
            progress.add(position, update.id(), before.clone());
            Ok(())
        };
        let applied = put(update);
        let Err(ApplyError::NoParent { parent, .. }) = applied else {
            return applied;
        };
        match self.fetch(shard, &following.follower, parent) {
            Fetched::Blocks(chain) => {
                chain.iter().try_for_each(|(missing, _)| put(missing))?;
                put(update)
            }
            Fetched::Lost | Fetched::Nothing => applied,
        }
    }

    /// Judges the next record of the stream, and does what follows from it. Records have to be given in order. A record that was
    /// [not judged](Taken) has to be given again; [`Self::pass`] goes on without.
    ///
    /// # Errors
    ///
    /// If the folder can't be written. The process has to be opened again.
    ///
    /// # Panics
    ///
    /// Panics if there is no state.
    pub fn take(&self, item: &StreamItem) -> Result<Taken, ProcessError> {
        let shard = self.shard.read().clone();
        let shard = shard.expect("a process that takes records has a state");
        let mut following = self.following.lock();
        let following = &mut *following;
        if let Some((update, record, before)) = following.waits.take() {
            return self.put(&shard, following, update, record, before);
        }
        let record = item.record.clone().unwrap_or_default();
        loop {
            let before = following.follower.state().clone();
            let is_known = |id: BlockId| shard.knows(&id.hash);
            let counted = &self.figures.records;
            match following.follower.step(item, is_known) {
                Verdict::Apply(update) => {
                    return self.put(&shard, following, *update, record, before);
                }
                Verdict::Choose(choice) => {
                    counted.judged(outcome::CHOSEN);
                    self.follow(&shard, following, &choice);
                    self.note(following, None, &record)?;
                }
                Verdict::Opened(_) => {
                    counted.judged(outcome::OPENED);
                    self.note(following, None, &record)?;
                }
                Verdict::Ignore(reason) => {
                    counted.ignored(&reason);
                    if let Ignored::NotOpened { .. } | Ignored::OtherBuilder { .. } = reason {
                        self.shown.lock().trouble = format!("ignored: {reason}");
                    }
                }
                Verdict::Damaged(damage) => {
                    counted.judged(outcome::DAMAGED);
                    self.shown.lock().trouble = damage.to_string();
                    for peer in &self.peers {
                        if self.fill(&shard, following, &**peer, damage.position)? {
                            self.shown.lock().trouble.clear();
                            break;
                        }
                    }
                }
                Verdict::Missing(Missing::Block(hash)) => {
                    if is_of_the_past(&record, shard.oldest()) {
                        counted.judged(outcome::LOST);
                        following.follower.skip(item);
                        break;
                    }
                    counted.missing(figures::BLOCK);
                    let chain = match self.fetch(&shard, &following.follower, hash) {
                        Fetched::Blocks(chain) => chain,
                        // Of a branch that has lost.
                        Fetched::Lost => {
                            counted.judged(outcome::LOST);
                            following.follower.skip(item);
                            break;
                        }
                        Fetched::Nothing => return Ok(self.waits(hash)),
                    };
                    for (update, bytes) in chain {
                        let id = update.id();
                        match shard.apply(id, update.update()) {
                            Ok(()) => self.figures.fetched.add(1),
                            Err(ApplyError::Full { .. }) => {
                                counted.waits(figures::ROOM);
                                return Ok(Taken::Full);
                            }
                            Err(_) => return Ok(self.waits(hash)),
                        };
                        let state = following.follower.state();
                        following.progress.add(item.position, id, state.clone());
                        let (position, block) = (item.position, id.hash);
                        self.journal.append_filled(position, state, block, &bytes)?;
                    }
                    continue;
                }
                Verdict::Missing(Missing::Records(hole)) => {
                    counted.missing(figures::RECORDS);
                    self.fill_all(&shard, following, hole)?;
                    continue;
                }
            }
            break;
        }
        self.show(&following.follower);
        Ok(Taken::Judged)
    }

    fn waits(&self, hash: B256) -> Taken {
        self.figures.records.waits(figures::BLOCK);
        Taken::Waits(hash)
    }

    /// Passes a record for which a block is missing that nobody has. If it comes to light later, the next block that needs it fetches it.
    pub fn pass(&self, item: &StreamItem) {
        let mut following = self.following.lock();
        following.waits = None;
        self.figures.records.judged(outcome::PASSED);
        following.follower.skip(item);
        self.show(&following.follower);
    }

    /// Applies an update whose parent is there, and journals it.
    fn put(
        &self,
        shard: &Shard,
        following: &mut Following,
        update: SignedUpdate,
        record: Bytes,
        before: FollowerState,
    ) -> Result<Taken, ProcessError> {
        let id = update.id();
        match shard.apply(id, update.update()) {
            Ok(()) => {
                self.figures.records.judged(outcome::APPLIED);
                let at = following.follower.state().position;
                following.progress.add(at, id, before);
                self.note(following, Some(id.hash), &record)?;
            }
            Err(error @ ApplyError::Full { .. }) => {
                self.figures.records.waits(figures::ROOM);
                self.shown.lock().trouble = error.to_string();
                following.waits = Some((update, record, before));
                return Ok(Taken::Full);
            }
            // The builder lies, or is mistaken. What descends from the block is missing a parent.
            Err(error) => {
                self.figures.records.judged(outcome::REFUSED);
                self.figures.refused.add(error.name());
                self.shown.lock().trouble = format!("refused: {error}");
            }
        }
        self.show(&following.follower);
        Ok(Taken::Judged)
    }

    fn note(
        &self,
        following: &Following,
        block: Option<B256>,
        record: &[u8],
    ) -> Result<(), ProcessError> {
        let state = following.follower.state();
        Ok(self.journal.append(state, block, record)?)
    }

    /// Follows a choice of the head. Its blocks are known.
    fn follow(&self, shard: &Shard, following: &mut Following, choice: &Choice) {
        // A block that was final before it was known is so by the next choice.
        if shard.finalize(choice.finalized).is_ok() {
            // While a snapshot is written, an older block stays the oldest one.
            following.progress.finalize(shard.oldest().number);
        }
        // A head beside the final block is none.
        if shard.knows(&choice.head.hash) {
            self.shown.lock().head = Some(choice.head);
        }
    }

    /// A block and those before it that are missing, from peers.
    fn fetch(&self, shard: &Shard, follower: &Follower, hash: B256) -> Fetched {
        let (mut chain, mut wanted) = (Vec::new(), hash);
        let oldest = shard.oldest().number;
        while !shard.knows(&wanted) {
            let Some(answer) = Answer::first(&self.peers, 0, follower, wanted) else {
                return Fetched::Nothing;
            };
            if answer.update.id().number <= oldest {
                return Fetched::Lost;
            }
            if chain.len() == self.options.limits.versions {
                return Fetched::Nothing;
            }
            wanted = answer.update.parent();
            chain.push((answer.update, answer.record));
        }
        chain.reverse();
        Fetched::Blocks(chain)
    }

    /// Fills a hole as far as peers have its records, and goes on without the rest.
    fn fill_all(
        &self,
        shard: &Shard,
        following: &mut Following,
        hole: Hole,
    ) -> Result<(), ProcessError> {
        for position in hole.last_positions() {
            for peer in &self.peers {
                if self.fill(shard, following, &**peer, position)? {
                    break;
                }
            }
        }
        following.follower.give_up(hole);
        Ok(())
    }

    /// Asks a peer for a record of a hole. False if it does not have it, or if it is of no use.
    fn fill(
        &self,
        shard: &Shard,
        following: &mut Following,
        peer: &dyn Peer,
        position: StreamPosition,
    ) -> Result<bool, ProcessError> {
        let Ok(Some(record)) = peer.record(Wanted::Position(position.0)) else {
            return Ok(false);
        };
        let is_known = |id: BlockId| shard.knows(&id.hash);
        let before = following.follower.state().clone();
        Ok(match following.follower.fill(position, &record, is_known) {
            Verdict::Apply(update) => {
                let id = update.id();
                if shard.apply(id, update.update()).is_ok() {
                    following.progress.add(position, id, before);
                    let state = following.follower.state();
                    self.journal
                        .append_filled(position, state, id.hash, &record)?;
                }
                true
            }
            Verdict::Choose(choice) => {
                self.follow(shard, following, &choice);
                true
            }
            Verdict::Opened(_) => true,
            Verdict::Ignore(_) | Verdict::Damaged(_) | Verdict::Missing(_) => false,
        })
    }

    /// Makes what was taken durable.
    ///
    /// # Errors
    ///
    /// If the folder can't be written. The process has to be opened again.
    pub fn sync(&self) -> Result<(), ProcessError> {
        Ok(self.journal.sync()?)
    }

    /// The newest snapshot in the folder: what it is of, and its bytes.
    ///
    /// # Errors
    ///
    /// If the folder can't be read, or the snapshot's beginning is damaged.
    pub fn newest_snapshot(
        &self,
    ) -> Result<Option<(SnapshotInfo, impl Read + Send)>, ProcessError> {
        let newest = files::list(&*self.disk)?.into_iter().next();
        let open = |(_, name): (BlockId, String)| {
            let info = SnapshotInfo::read(files::read(&*self.disk, &name)?)?;
            Ok((info, files::read(&*self.disk, &name)?))
        };
        newest.map(open).transpose()
    }

    /// Whether so many blocks are final since the last snapshot that another one is due: any number if the journal is nearly full.
    pub fn is_snapshot_due(&self) -> bool {
        let shard = self.shard.read().clone();
        let last = self.following.lock().snapshot;
        let blocks = match self.journal.is_nearly_full() {
            true => 1,
            false => self.options.snapshot_blocks,
        };
        shard.is_some_and(|shard| shard.oldest().number >= last.saturating_add(blocks))
    }

    /// Writes a snapshot of the oldest block's state, and removes what the journal has of blocks before. Records may be taken
    /// meanwhile. Returns the block, if there is a state.
    ///
    /// # Errors
    ///
    /// If the folder can't be written.
    pub fn write_snapshot(&self) -> Result<Option<BlockId>, ProcessError> {
        let Some(shard) = self.shard.read().clone() else {
            return Ok(None);
        };
        self.write(&shard, None).map(Some)
    }

    /// Writes a snapshot, with a note or that of this process.
    fn write(&self, shard: &Shard, note: Option<&[u8]>) -> Result<BlockId, ProcessError> {
        let _writing = self.writing.lock();
        let started = Instant::now();
        let pin = shard.pin();
        let block = pin.block;
        let own = || self.state_for(block).encode();
        let note = note.map_or_else(own, <[u8]>::to_vec);
        files::write(&*self.disk, block, |out| {
            let out = shard.write_pinned(&pin, out, &note)?;
            out.flush()
                .map_err(|source| ProcessError::from(SnapshotError::Io { at: 0, source }))
        })?;
        self.show_snapshot(shard, block);
        self.figures.snapshots.add(started.elapsed());
        drop(pin);
        // If the newest snapshot turns out to be damaged, the one before goes on with the journal from there on.
        let oldest = files::list(&*self.disk)?.pop();
        let oldest = oldest.map(|(_, name)| files::read(&*self.disk, &name));
        let info = oldest
            .transpose()?
            .and_then(|it| SnapshotInfo::read(it).ok());
        let state = info.and_then(|info| FollowerState::decode(&info.note).ok());
        let position = state.map(|state| state.position);
        self.journal.remove_before(position.unwrap_or_default())?;
        let mut following = self.following.lock();
        following.snapshot = following.snapshot.max(block.number);
        Ok(block)
    }

    /// The state from which a follower sees all that comes after a block that is final.
    fn state_for(&self, block: BlockId) -> FollowerState {
        let following = self.following.lock();
        let waiting = following.waits.as_ref().map(|(_, _, before)| before);
        let state = following.progress.state_for(block.number).or(waiting);
        state.unwrap_or(following.follower.state()).clone()
    }

    /// Shows the newest snapshot, which is of a block that the shard has.
    fn show_snapshot(&self, shard: &Shard, block: BlockId) {
        let header = shard.header(block);
        let timestamp = header.map_or(0, |(header, _)| header.timestamp);
        let mut shown = self.shown.lock();
        if shown
            .snapshot
            .is_none_or(|(number, _)| number <= block.number)
        {
            shown.snapshot = Some((block.number, timestamp));
        }
    }

    pub(super) fn show(&self, follower: &Follower) {
        self.figures.records.show(follower);
        self.shown.lock().state = follower.state().clone();
    }

    /// The head that the builder has chosen last.
    pub fn head(&self) -> Option<BlockId> {
        self.shown.lock().head
    }
}

/// The state of a peer's follower, as far as it is believed: where it is in the stream, and which epoch is open there. That nobody can verify.
fn of_peer(note: &[u8], shard: &Shard) -> Vec<u8> {
    let state = FollowerState::decode(note).unwrap_or_default();
    let state = FollowerState {
        choice: 0,
        finalized: shard.oldest().number,
        ..state
    };
    state.encode()
}

/// Whether a record is about blocks that are final or have lost.
fn is_of_the_past(record: &[u8], oldest: BlockId) -> bool {
    match Record::decode(record) {
        Ok(Record::Update(update)) => update.id().number <= oldest.number,
        Ok(Record::Choice(choice)) => choice.finalized.number < oldest.number,
        _ => false,
    }
}

impl ShardHost for ShardProcess {
    fn shard(&self) -> Option<Arc<Shard>> {
        self.shard.read().clone()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Bytes>, String> {
        let entry = match wanted {
            Wanted::Block(hash) => self.journal.block(&hash),
            Wanted::Position(position) => self.journal.at(StreamPosition(position)),
        };
        let entry = entry.map_err(|error| error.to_string())?;
        Ok(entry.map(|entry| entry.record))
    }

    fn note(&self) -> Vec<u8> {
        let Some(shard) = self.shard.read().clone() else {
            return Vec::new();
        };
        // A block that becomes final meanwhile only makes the follower read more than it needs.
        self.state_for(shard.oldest()).encode()
    }

    fn status(&self) -> HostStatus {
        let Shown {
            state,
            loading,
            trouble,
            ..
        } = self.shown.lock().clone();
        HostStatus {
            range: self.options.range,
            loading,
            position: state.position.0,
            epoch: state.epoch,
            trouble,
        }
    }
}

impl MetricsHost for ShardProcess {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        let Shown { head, snapshot, .. } = self.shown.lock().clone();
        let (range, limits) = (self.options.range, self.options.limits);
        let shard = self.shard.read().clone();
        metrics.gauges([
            (
                "shard_index",
                "Number of the shard, from 0.",
                range.index() as u64,
            ),
            (
                "shard_count",
                "Number of shards of the state.",
                range.count() as u64,
            ),
            (
                "shard_loaded",
                "1 once the shard has a state to serve.",
                shard.is_some().into(),
            ),
            (
                "shard_versions_max",
                "Most blocks of which the shard may have the state.",
                limits.versions as u64,
            ),
            (
                "shard_bytes_max",
                "Most bytes of all versions and codes.",
                limits.bytes as u64,
            ),
        ]);
        if let Some(shard) = shard {
            shard_figures::report(&shard.stats(), metrics);
        }
        if let Some(head) = head {
            metrics.gauge(
                "shard_head_block",
                "The head that the builder has chosen last.",
                head.number,
            );
        }
        if let Some((number, timestamp)) = snapshot {
            metrics.gauges([
                (
                    "shard_snapshot_block",
                    "Block of the newest snapshot in the folder.",
                    number,
                ),
                (
                    "shard_snapshot_timestamp_seconds",
                    "Timestamp of that block, in seconds since 1970.",
                    timestamp,
                ),
            ]);
        }
        self.figures.report(metrics);
        self.journal.report(metrics);
        self.figures.records.report(metrics);
    }

    fn ready(&self) -> Result<(), String> {
        if !self.is_loaded() {
            let loading = self.shown.lock().loading.clone();
            return Err(format!("the shard has no state yet: {loading}"));
        }
        self.figures.records.ready()
    }
}
