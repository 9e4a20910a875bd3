//! A database that follows the stream: a full or partial node, as one more consumer.
//!
//! ```text
//!   update   block with its state update ---> validated, applied, state root verified ---> durable, on a branch of its own
//!            a block that is missing comes from a shard, by hash
//!   choice   head, safe, finalized ---> the chain's
//!   note     where the follower is in the stream, and whom it believes: a file of its own, which may be lost
//! ```
//!
//! Nothing is believed but signatures of the configured builders, and these only for gas and receipts: without execution a state root
//! proves the state alone. A note that is lost, or behind, costs reading records again whose blocks are known.

use super::{peers::Peer, run::where_it_ends, shard_process::Taken};
use crate::{
    replication::{
        BuilderKeys, Choice, Follower, FollowerState, Hole, Ignored, Missing, Record, SignedUpdate,
        Stream, StreamError, StreamItem, StreamPosition, Verdict,
    },
    rpc::Wanted,
};
use alloy_primitives::{B256, keccak256, map::HashSet};
use cambium_chain::{Chain, ChainError, StateUpdate};
use cambium_disk::{Disk, DiskError};
use cambium_primitives::BlockId;
use cambium_state::StateError;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use xxhash_rust::xxh3::xxh3_64;

/// The file of the note, and what it begins with.
const NOTE: &str = "follower";
const UNFINISHED: &str = "follower.tmp";
const MAGIC: &[u8; 8] = b"cambnote";
/// A note has at most so many bytes.
const NOTE_BYTES_MAX: u64 = 1 << 16;
/// Most blocks that are got by hash for one record.
const FETCHED_MAX: usize = 1 << 20;
/// Bytes of their records that are kept on the way back: others are asked for again.
const FETCHED_BYTES: usize = 64 << 20;
/// Most blocks that are remembered as refused, or as had by nobody.
const REMEMBERED_MAX: usize = 1 << 16;
/// Positions of a hole of which peers are asked, the last ones: beyond that, blocks are found missing by their children.
const HOLE_POSITIONS_MAX: u64 = 1_024;
/// Records after which the note is written although more of them wait.
const RECORDS: u64 = 1_024;
/// How long to wait for a record before looking whether to stop.
const WAIT: Duration = Duration::from_millis(200);
/// Pause before what has failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// Why a database can't follow any more.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The database fails.
    #[error(transparent)]
    Chain(#[from] Box<ChainError>),
    /// The note can't be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The builder leaves out what a database needs.
    #[error(
        "block {0} is in the stream without its transactions: `cambium cluster feed` and `cambium builder` leave them out with \
         --no-bodies"
    )]
    NoBody(BlockId),
    /// The stream can't be reached.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl From<ChainError> for FollowError {
    fn from(error: ChainError) -> Self {
        Self::Chain(Box::new(error))
    }
}

impl From<StateError> for FollowError {
    fn from(error: StateError) -> Self {
        ChainError::from(error).into()
    }
}

/// What a database has done since it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Blocks that it has added.
    pub blocks: u64,
    /// Of these, blocks that the stream did not have, and shards had.
    pub fetched: u64,
    /// Choices of the head that it has followed.
    pub choices: u64,
    /// Updates that it has refused, since they are false.
    pub refused: u64,
    /// Records that it has passed, since nobody has a block that they need.
    pub passed: u64,
    /// What went wrong last.
    pub trouble: Option<String>,
}

/// A database that follows the stream of updates.
pub struct FollowingDatabase<'c> {
    chain: &'c Chain,
    follower: Follower,
    peers: Vec<Box<dyn Peer>>,
    disk: Arc<dyn Disk>,
    patience: Duration,
    followed: Followed,
    noted: FollowerState,
    /// Blocks whose updates are false, and those that descend from them.
    refused: HashSet<B256>,
    /// Blocks that nobody had, and those that descend from them.
    in_vain: HashSet<B256>,
}

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inserted {
    Added,
    /// The database had it.
    Known,
    /// It does not descend from the final block.
    Lost,
    /// Its update is false.
    Refused,
    /// It came without its body.
    Bare,
}

/// What became of a block that was missing, and of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetched {
    /// They are there now.
    All,
    /// They were there: what names them has another number.
    Known,
    /// The block does not descend from the final one.
    Lost,
    /// One of them is false, whoever has it.
    Refused,
    /// Nobody has all of them now.
    Nothing,
}

/// Adds a block to those that are remembered. False if it is among them.
fn remember(blocks: &mut HashSet<B256>, hash: B256) -> bool {
    if blocks.len() >= REMEMBERED_MAX {
        blocks.clear();
    }
    blocks.insert(hash)
}

impl std::fmt::Debug for FollowingDatabase<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FollowingDatabase({})", self.chain.db().head())
    }
}

impl<'c> FollowingDatabase<'c> {
    /// A database, with the folder of its note. `patience` is how long to look for a block that nobody has, before the record that needs
    /// it is passed.
    ///
    /// # Errors
    ///
    /// If the folder can't be made or read. A note that is damaged is as good as none.
    pub fn new(
        chain: &'c Chain,
        disk: Arc<dyn Disk>,
        keys: BuilderKeys,
        peers: Vec<Box<dyn Peer>>,
        patience: Duration,
    ) -> Result<Self, FollowError> {
        disk.create_dir("")?;
        let (state, trouble) = read_note(&*disk, &keys, chain)?;
        Ok(Self {
            chain,
            follower: Follower::new(keys, state.clone()),
            peers,
            disk,
            patience,
            followed: Followed {
                trouble,
                ..Followed::default()
            },
            noted: state,
            refused: HashSet::default(),
            in_vain: HashSet::default(),
        })
    }

    /// The database.
    pub const fn chain(&self) -> &'c Chain {
        self.chain
    }

    /// What it has done.
    pub const fn followed(&self) -> &Followed {
        &self.followed
    }

    /// Where it is in the stream.
    pub const fn state(&self) -> &FollowerState {
        self.follower.state()
    }

    /// Follows a stream until `stop` is set, or until `is_enough` says so, which is asked after each record and whenever none is
    /// there. A stream that can't be reached is tried again.
    ///
    /// # Errors
    ///
    /// If the database can't go on.
    pub fn run(
        &mut self,
        stream: &dyn Stream,
        stop: &AtomicBool,
        is_enough: &mut dyn FnMut(&Self, bool) -> bool,
    ) -> Result<(), FollowError> {
        let mut goes_on = true;
        while goes_on && !stop.load(Ordering::Relaxed) {
            match self.follow(stream, stop, is_enough) {
                Ok(more) => goes_on = more,
                Err(FollowError::Stream(error)) => {
                    self.followed.trouble = Some(error.to_string());
                    goes_on = !is_enough(self, false);
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        self.note()
    }

    /// Follows the stream. False once it is enough.
    fn follow(
        &mut self,
        stream: &dyn Stream,
        stop: &AtomicBool,
        is_enough: &mut dyn FnMut(&Self, bool) -> bool,
    ) -> Result<bool, FollowError> {
        let position = self.follower.state().position;
        if let Some(before) = where_it_ends(stream, &self.follower)? {
            self.follower.rewind(before);
            self.followed.trouble = Some(format!(
                "the stream is another one behind record {position}: it is read again"
            ));
        }
        let mut reader = stream.reader(self.follower.state().position.next())?;
        let mut taken = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let wait = match self.noted == *self.follower.state() {
                true => WAIT,
                false => Duration::ZERO,
            };
            let Some(item) = reader.next(wait)? else {
                self.note()?;
                if is_enough(self, true) {
                    return Ok(false);
                }
                continue;
            };
            let started = Instant::now();
            while let Taken::Waits(hash) = self.take_until(&item, stop)? {
                if stop.load(Ordering::Relaxed) || is_enough(self, false) {
                    return Ok(false);
                }
                self.followed.trouble = Some(format!(
                    "record {} needs block {hash}, which no shard has any more",
                    item.position
                ));
                if started.elapsed() > self.patience {
                    remember(&mut self.in_vain, hash);
                    self.pass(&item);
                    break;
                }
                thread::sleep(PAUSE);
            }
            taken += 1;
            if taken.is_multiple_of(RECORDS) {
                self.note()?;
            }
            if is_enough(self, false) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Judges the next record, and does what follows from it. Records have to be given in order. One that [waits](Taken::Waits) has to be
    /// given again.
    ///
    /// # Errors
    ///
    /// If the database can't go on.
    pub fn take(&mut self, item: &StreamItem) -> Result<Taken, FollowError> {
        self.take_until(item, &AtomicBool::new(false))
    }

    /// As [`Self::take`], until `stop` is set: then the record waits.
    fn take_until(&mut self, item: &StreamItem, stop: &AtomicBool) -> Result<Taken, FollowError> {
        loop {
            let finalized = self.follower.state().finalized;
            let (verdict, failed) = self.judge(|follower, is_known| follower.step(item, is_known));
            failed?;
            match verdict {
                Verdict::Apply(update) => {
                    let id = update.id();
                    match self.insert(*update)? {
                        Inserted::Added | Inserted::Known | Inserted::Lost => {}
                        Inserted::Bare => return Err(FollowError::NoBody(id)),
                        // Somebody may have a true one of the same block.
                        Inserted::Refused => {
                            self.fetch(id.hash, stop)?;
                        }
                    }
                }
                Verdict::Choose(choice) => self.choose(&choice, finalized)?,
                Verdict::Opened(_) => {}
                Verdict::Ignore(reason) => {
                    if let Ignored::NotOpened { .. } | Ignored::OtherBuilder { .. } = reason {
                        self.followed.trouble = Some(format!("ignored: {reason}"));
                    }
                }
                Verdict::Damaged(damage) => {
                    self.followed.trouble = Some(damage.to_string());
                    if self.fill(damage.position, finalized)? {
                        self.followed.trouble = None;
                    }
                }
                Verdict::Missing(Missing::Block(hash)) => {
                    let fetched = match self.refused.contains(&hash) {
                        true => Fetched::Refused,
                        false => self.fetch(hash, stop)?,
                    };
                    match fetched {
                        Fetched::All => continue,
                        // False, or of a branch that has lost.
                        Fetched::Known | Fetched::Lost => {
                            self.follower.skip(item);
                        }
                        Fetched::Refused => {
                            if let Some(id) = block_of(item) {
                                remember(&mut self.refused, id.hash);
                            }
                            self.follower.skip(item);
                        }
                        Fetched::Nothing if self.in_vain.contains(&hash) => self.pass(item),
                        Fetched::Nothing => return Ok(Taken::Waits(hash)),
                    }
                }
                Verdict::Missing(Missing::Records(hole)) => {
                    if !self.fill_all(hole, stop)? {
                        return Ok(Taken::Waits(B256::ZERO));
                    }
                    continue;
                }
            }
            return Ok(Taken::Judged);
        }
    }

    /// Lets the follower judge by what the database has. An error of the database is beside the verdict.
    fn judge(
        &mut self,
        by: impl FnOnce(&mut Follower, &dyn Fn(BlockId) -> bool) -> Verdict,
    ) -> (Verdict, Result<(), FollowError>) {
        let failed = std::cell::RefCell::new(Ok(()));
        let chain = self.chain;
        let is_known = |id: BlockId| match has_had(chain, id) {
            Ok(known) => known,
            Err(error) => {
                *failed.borrow_mut() = Err(error);
                true
            }
        };
        let verdict = by(&mut self.follower, &is_known);
        (verdict, failed.into_inner())
    }

    /// Passes a record for which nobody has a block.
    fn pass(&mut self, item: &StreamItem) {
        self.followed.passed += 1;
        if let Some(id) = block_of(item) {
            remember(&mut self.in_vain, id.hash);
        }
        self.follower.skip(item);
    }

    /// Adds a block, if its update is true.
    fn insert(&mut self, update: SignedUpdate) -> Result<Inserted, FollowError> {
        let id = update.id();
        let parent = BlockId::new(id.number.saturating_sub(1), update.parent());
        let finalized = final_height(self.chain);
        if parent.number < finalized || parent.number == finalized && !self.chain.has(parent)? {
            return Ok(Inserted::Lost);
        }
        // A record that names it by another number is false, and nothing comes of it.
        if self.chain.has(id)? {
            return Ok(Inserted::Known);
        }
        let update = update.into_update();
        let Some(rlp) = update.block_rlp() else {
            return Ok(Inserted::Bare);
        };
        let update = StateUpdate {
            changes: update.changes,
            codes: update.codes,
            storage_roots: update.storage_roots,
        };
        let insert = |rlp, update| {
            let prepared = self.chain.prepare_with_update(rlp, update)?;
            self.chain.insert_prepared(&prepared)
        };
        let mut inserted = insert(rlp.clone(), update.clone());
        if let Err(ChainError::State(StateError::TooFar { .. })) = &inserted {
            // So many blocks are beside the head that their changes exceed the memory for them.
            self.chain.set_canonical(parent.hash, None, None)?;
            inserted = insert(rlp, update);
        }
        match inserted {
            Ok(_) => {
                self.followed.blocks += 1;
                self.refused.remove(&id.hash);
                self.in_vain.remove(&id.hash);
                Ok(Inserted::Added)
            }
            // Its branch was freed, or its parent is not kept any more.
            Err(ChainError::State(
                StateError::NotKept { .. } | StateError::NotOnFinalized { .. },
            )) => Ok(Inserted::Lost),
            // The builder lies, or is mistaken. What descends from the block is missing a parent.
            Err(
                error @ (ChainError::Block { .. }
                | ChainError::NotABlock(_)
                | ChainError::FalseUpdate { .. }),
            ) => {
                if remember(&mut self.refused, id.hash) {
                    self.followed.refused += 1;
                    self.followed.trouble = Some(format!("refused: {error}"));
                }
                Ok(Inserted::Refused)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Follows a choice of the head, whose blocks are known.
    fn choose(&mut self, choice: &Choice, finalized_before: u64) -> Result<(), FollowError> {
        let Choice {
            head,
            safe,
            finalized,
            ..
        } = *choice;
        let final_now = final_height(self.chain);
        // What is below the final block, or the first one, is final anyway.
        let mark = |id: BlockId| (id.number > final_now).then_some(id.hash);
        // What was safe before does not stay so if the builder says that the final block alone is.
        let final_one = || {
            let db = self.chain.db();
            db.finality().finalized.unwrap_or(db.genesis()).hash
        };
        let safe = mark(safe).or_else(|| Some(mark(finalized).unwrap_or_else(final_one)));
        match self.chain.set_canonical(head.hash, safe, mark(finalized)) {
            Ok(()) => {
                self.followed.choices += 1;
                Ok(())
            }
            Err(
                error @ ChainError::State(
                    StateError::UnknownBlock { .. }
                    | StateError::NotOnFinalized { .. }
                    | StateError::NotAnAncestor { .. }
                    | StateError::SafeBelowFinalized { .. }
                    | StateError::NotKept { .. },
                ),
            ) => {
                self.follower.take_back_finality(finalized_before);
                self.followed.trouble = Some(format!("choice {}: {error}", choice.number));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gets a block that is missing, and those before it that are: back by their hashes to one that is there, then forward, one after
    /// another.
    fn fetch(&mut self, hash: B256, stop: &AtomicBool) -> Result<Fetched, FollowError> {
        let finalized = final_height(self.chain);
        let before = self.followed.blocks;
        let (mut back, mut bytes, mut wanted) = (Vec::new(), 0, hash);
        loop {
            if stop.load(Ordering::Relaxed) || back.len() == FETCHED_MAX {
                return Ok(Fetched::Nothing);
            }
            let mut found = (0..self.peers.len()).filter_map(|peer| self.ask(peer, wanted));
            let Some((update, length)) = found.next() else {
                return Ok(Fetched::Nothing);
            };
            let parent = BlockId::new(update.id().number.saturating_sub(1), update.parent());
            bytes += length;
            back.push((wanted, (bytes <= FETCHED_BYTES).then_some(update)));
            if self.chain.has(parent)? {
                break;
            }
            if parent.number <= finalized {
                let first = self.chain.db().genesis();
                if parent.number == first.number {
                    self.followed.trouble = Some(format!(
                        "the cluster's chain begins with block {parent}, and the database with {first}: it is of another chain"
                    ));
                }
                return Ok(Fetched::Lost);
            }
            wanted = parent.hash;
        }
        for (wanted, mut kept) in back.into_iter().rev() {
            let (mut worst, mut peer) = (Fetched::Nothing, 0);
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Ok(Fetched::Nothing);
                }
                let update = match kept.take() {
                    Some(update) => Some(update),
                    None if peer == self.peers.len() => break,
                    None => {
                        peer += 1;
                        self.ask(peer - 1, wanted).map(|(update, _)| update)
                    }
                };
                let Some(update) = update else {
                    continue;
                };
                let id = update.id();
                match self.insert(update)? {
                    Inserted::Added => {
                        self.followed.fetched += 1;
                        worst = Fetched::All;
                        break;
                    }
                    Inserted::Known => {
                        worst = Fetched::All;
                        break;
                    }
                    Inserted::Lost => return Ok(Fetched::Lost),
                    Inserted::Refused => worst = Fetched::Refused,
                    Inserted::Bare if peer == self.peers.len() && worst == Fetched::Nothing => {
                        return Err(FollowError::NoBody(id));
                    }
                    Inserted::Bare => {}
                }
            }
            if worst != Fetched::All {
                return Ok(worst);
            }
        }
        Ok(match self.followed.blocks > before {
            true => Fetched::All,
            false => Fetched::Known,
        })
    }

    /// A block that a peer has, and the length of its record.
    fn ask(&self, peer: usize, hash: B256) -> Option<(SignedUpdate, usize)> {
        let record = self.peers[peer]
            .record(Wanted::Block(hash))
            .ok()
            .flatten()?;
        let update = self.follower.verify_block(hash, &record).ok().flatten()?;
        Some((update, record.len()))
    }

    /// Fills a hole as far as shards have its records, and goes on without the rest. False if `stop` was set.
    fn fill_all(&mut self, hole: Hole, stop: &AtomicBool) -> Result<bool, FollowError> {
        let first = hole
            .first
            .0
            .max(hole.last.0.saturating_sub(HOLE_POSITIONS_MAX - 1));
        for position in first..=hole.last.0 {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let finalized = self.follower.state().finalized;
            self.fill(StreamPosition(position), finalized)?;
        }
        self.follower.give_up(hole);
        Ok(true)
    }

    /// Asks the peers for a record of a hole. False if none has one that is of use.
    fn fill(&mut self, position: StreamPosition, finalized: u64) -> Result<bool, FollowError> {
        for peer in 0..self.peers.len() {
            let Ok(Some(record)) = self.peers[peer].record(Wanted::Position(position.0)) else {
                continue;
            };
            let (verdict, failed) =
                self.judge(|follower, is_known| follower.fill(position, &record, is_known));
            failed?;
            match verdict {
                Verdict::Apply(update) => {
                    if self.insert(*update)? == Inserted::Added {
                        self.followed.fetched += 1;
                    }
                }
                Verdict::Choose(choice) => self.choose(&choice, finalized)?,
                Verdict::Opened(_) => {}
                // Another one may have the record that was there.
                Verdict::Ignore(_) | Verdict::Damaged(_) | Verdict::Missing(_) => continue,
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes down where it is in the stream. All blocks before are durable.
    fn note(&mut self) -> Result<(), FollowError> {
        let state = self.follower.state();
        if *state == self.noted {
            return Ok(());
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(digest_of(self.follower.keys()));
        let head = self.chain.db().head();
        bytes.extend(head.number.to_be_bytes());
        bytes.extend(head.hash);
        bytes.extend(state.encode());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        let disk = &*self.disk;
        if disk.exists(UNFINISHED)? {
            disk.remove(UNFINISHED)?;
        }
        let file = disk.create(UNFINISHED)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        drop(file);
        disk.rename(UNFINISHED, NOTE)?;
        disk.sync_dir("")?;
        self.noted = state.clone();
        Ok(())
    }
}

/// Whether the database has a block, or has had it: all are taken for such that are not above the final one.
fn has_had(chain: &Chain, id: BlockId) -> Result<bool, FollowError> {
    Ok(id.number <= final_height(chain) || chain.has(id)?)
}

/// Height of the final block, or of the first one.
fn final_height(chain: &Chain) -> u64 {
    let db = chain.db();
    db.finality().finalized.unwrap_or(db.genesis()).number
}

/// Keccak-256 of whose records of which chain are believed, in whatever order they are given.
fn digest_of(keys: &BuilderKeys) -> B256 {
    let mut builders = keys.keys.clone();
    builders.sort_unstable();
    let mut bytes = keys.chain_id.to_be_bytes().to_vec();
    for builder in builders {
        bytes.extend(builder);
    }
    keccak256(bytes)
}

/// The block of an update's record.
fn block_of(item: &StreamItem) -> Option<BlockId> {
    match Record::decode(item.record.as_ref()?) {
        Ok(Record::Update(update)) => Some(update.id()),
        _ => None,
    }
}

/// The note in a folder, or that of a follower that has read nothing, with what is wrong.
fn read_note(
    disk: &dyn Disk,
    keys: &BuilderKeys,
    chain: &Chain,
) -> Result<(FollowerState, Option<String>), FollowError> {
    let nothing = FollowerState::default();
    if !disk.exists(NOTE)? {
        return Ok((nothing, None));
    }
    let read = || {
        let file = disk.open(NOTE)?;
        let length = file.len()?.min(NOTE_BYTES_MAX);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_at(&mut bytes, 0)?;
        Ok::<_, DiskError>(bytes)
    };
    let bytes = match read() {
        Err(error) if error.is_unreadable() => Vec::new(),
        bytes => bytes?,
    };
    let decode = || {
        let (rest, sum) = bytes.split_last_chunk::<8>()?;
        let is_whole = xxh3_64(rest).to_le_bytes() == *sum;
        let (digest, rest) = rest.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (hash, state) = rest.split_first_chunk::<32>()?;
        let head = BlockId::new(u64::from_be_bytes(*number), B256::from(hash));
        let state = FollowerState::decode(state).ok()?;
        is_whole.then_some((B256::from(digest), head, state))
    };
    let Some((digest, head, state)) = decode() else {
        let shown = disk.display_path(NOTE);
        let trouble = format!("{shown} is damaged: the stream is read from its beginning");
        return Ok((nothing, Some(trouble)));
    };
    // What was not believed may be so now, and what the database had may be gone.
    let is_of_this = digest == digest_of(keys) && has_had(chain, head)?;
    Ok((if is_of_this { state } else { nothing }, None))
}
