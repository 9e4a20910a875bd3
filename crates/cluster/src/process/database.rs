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

use super::{
    peers::{Fetched, MissingBlocks, Peer},
    run::where_it_ends,
    shard_process::Taken,
};
use crate::{
    replication::{
        BuilderKeys, Choice, Follower, FollowerState, Hole, Ignored, Missing, SignedUpdate, Stream,
        StreamError, StreamItem, StreamPosition, Verdict,
    },
    rpc::Wanted,
};
use alloy_primitives::{B256, keccak256};
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
const FETCHED_MAX: usize = 4_096;
/// Positions of a hole of which peers are asked: beyond that, blocks are found missing by their children.
const HOLE_POSITIONS_MAX: usize = 1_024;
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
        let (state, trouble) = read_note(&*disk, &keys)?;
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
            while let Taken::Waits(hash) = self.take(&item)? {
                self.followed.trouble = Some(format!(
                    "record {} needs block {hash}, which no shard has any more",
                    item.position
                ));
                if is_enough(self, false) || stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                if started.elapsed() > self.patience {
                    self.followed.passed += 1;
                    self.follower.skip(&item);
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
        loop {
            let (verdict, failed) = self.judge(|follower, is_known| follower.step(item, is_known));
            failed?;
            match verdict {
                Verdict::Apply(update) => self.insert(*update)?,
                Verdict::Choose(choice) => self.choose(&choice)?,
                Verdict::Opened(_) => {}
                Verdict::Ignore(reason) => {
                    if let Ignored::NotOpened { .. } | Ignored::OtherBuilder { .. } = reason {
                        self.followed.trouble = Some(format!("ignored: {reason}"));
                    }
                }
                Verdict::Damaged(damage) => {
                    self.followed.trouble = Some(damage.to_string());
                    if self.fill(damage.position)? {
                        self.followed.trouble = None;
                    }
                }
                Verdict::Missing(Missing::Block(hash)) => match self.fetch(hash) {
                    Fetched::Blocks(chain) => {
                        let before = self.followed.blocks;
                        for (update, _) in chain {
                            self.insert(update)?;
                        }
                        let got = self.followed.blocks - before;
                        self.followed.fetched += got;
                        if got == 0 {
                            return Ok(Taken::Waits(hash));
                        }
                        continue;
                    }
                    // Of a branch that has lost.
                    Fetched::Lost => {
                        self.follower.skip(item);
                    }
                    Fetched::Nothing => return Ok(Taken::Waits(hash)),
                },
                Verdict::Missing(Missing::Records(hole)) => {
                    self.fill_all(hole)?;
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

    /// Adds a block, if its update is true.
    fn insert(&mut self, update: SignedUpdate) -> Result<(), FollowError> {
        let id = update.id();
        let parent = BlockId::new(id.number.saturating_sub(1), update.parent());
        // A block that does not descend from the final one has lost.
        let finalized = final_height(self.chain);
        if parent.number < finalized || parent.number == finalized && !self.chain.has(parent)? {
            return Ok(());
        }
        let update = update.into_update();
        let rlp = update.block_rlp().ok_or(FollowError::NoBody(id))?;
        let update = StateUpdate {
            changes: update.changes,
            codes: update.codes,
            storage_roots: update.storage_roots,
        };
        let prepared = self.chain.prepare_with_update(rlp, update);
        let inserted = prepared.and_then(|prepared| self.chain.insert_prepared(&prepared));
        match inserted {
            Ok(_) => {
                self.followed.blocks += 1;
                Ok(())
            }
            // The builder lies, or is mistaken. What descends from the block is missing a parent.
            Err(
                error @ (ChainError::Block { .. }
                | ChainError::NotABlock(_)
                | ChainError::FalseUpdate { .. }),
            ) => {
                self.followed.refused += 1;
                self.followed.trouble = Some(format!("refused: {error}"));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Follows a choice of the head, whose blocks are known.
    fn choose(&mut self, choice: &Choice) -> Result<(), FollowError> {
        let Choice {
            head,
            safe,
            finalized,
            ..
        } = *choice;
        let finalized_before = final_height(self.chain);
        // What is below the final block, or the first one, is final anyway.
        let mark = |id: BlockId| (id.number > finalized_before).then_some(id.hash);
        match self
            .chain
            .set_canonical(head.hash, mark(safe), mark(finalized))
        {
            Ok(()) => {
                self.followed.choices += 1;
                Ok(())
            }
            Err(
                error @ ChainError::State(
                    StateError::UnknownBlock { .. } | StateError::NotOnFinalized { .. },
                ),
            ) => {
                self.followed.trouble = Some(format!("choice {}: {error}", choice.number));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn fetch(&self, hash: B256) -> Fetched {
        let missing = MissingBlocks {
            is_known: &|id| has_had(self.chain, id).unwrap_or(false),
            oldest: final_height(self.chain),
            most: FETCHED_MAX,
        };
        missing.fetch(&self.peers, &self.follower, hash)
    }

    /// Fills a hole as far as shards have its records, and goes on without the rest.
    fn fill_all(&mut self, hole: Hole) -> Result<(), FollowError> {
        for position in (hole.first.0..=hole.last.0).take(HOLE_POSITIONS_MAX) {
            self.fill(StreamPosition(position))?;
        }
        self.follower.give_up(hole);
        Ok(())
    }

    /// Asks the peers for a record of a hole. False if none has one that is of use.
    fn fill(&mut self, position: StreamPosition) -> Result<bool, FollowError> {
        for peer in 0..self.peers.len() {
            let Ok(Some(record)) = self.peers[peer].record(Wanted::Position(position.0)) else {
                continue;
            };
            let (verdict, failed) =
                self.judge(|follower, is_known| follower.fill(position, &record, is_known));
            failed?;
            match verdict {
                Verdict::Apply(update) => {
                    let before = self.followed.blocks;
                    self.insert(*update)?;
                    self.followed.fetched += self.followed.blocks - before;
                }
                Verdict::Choose(choice) => self.choose(&choice)?,
                Verdict::Opened(_) | Verdict::Ignore(_) => {}
                Verdict::Damaged(_) | Verdict::Missing(_) => continue,
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

/// The note in a folder, or that of a follower that has read nothing, with what is wrong.
fn read_note(
    disk: &dyn Disk,
    keys: &BuilderKeys,
) -> Result<(FollowerState, Option<String>), DiskError> {
    if !disk.exists(NOTE)? {
        return Ok((FollowerState::default(), None));
    }
    let file = disk.open(NOTE)?;
    let length = file.len()?.min(NOTE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_at(&mut bytes, 0)?;
    let decode = || {
        let (rest, sum) = bytes.split_last_chunk::<8>()?;
        let is_whole = xxh3_64(rest).to_le_bytes() == *sum;
        let (digest, state) = rest.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
        let state = FollowerState::decode(state).ok()?;
        is_whole.then_some((B256::from(digest), state))
    };
    Ok(match decode() {
        // What was not believed may be so now.
        Some((digest, _)) if digest != digest_of(keys) => (FollowerState::default(), None),
        Some((_, state)) => (state, None),
        None => {
            let shown = disk.display_path(NOTE);
            let trouble = format!("{shown} is damaged: the stream is read from its beginning");
            (FollowerState::default(), Some(trouble))
        }
    })
}
