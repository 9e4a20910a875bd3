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
    figures::{self, RecordFigures, outcome},
    note::{self, Noted},
    peers::{Answer, Peer},
    run::where_it_ends,
    shard_process::Taken,
};
use crate::{
    replication::{
        BuilderKeys, Choice, Follower, FollowerState, Hole, Ignored, Missing, Record, SignedUpdate,
        Stream, StreamBounds, StreamError, StreamItem, StreamPosition, Verdict,
    },
    rpc::Wanted,
};
use alloy_primitives::{B256, map::HashSet};
use cambium_chain::{Chain, ChainError, StateUpdate};
use cambium_disk::{Disk, DiskError};
use cambium_metrics::{Count, LabelledMetrics, MetricsHost};
use cambium_primitives::BlockId;
use cambium_state::{Db, StateError};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Most blocks that are got by hash for one record.
const FETCHED_MAX: usize = 1 << 20;
/// Bytes that are kept of them on the way back: others are asked for again.
const FETCHED_BYTES: usize = 64 << 20;
/// Most blocks that are remembered as refused, or as had by nobody.
const REMEMBERED_MAX: usize = 1 << 16;
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
    shown: Arc<FollowedFigures>,
    noted: FollowerState,
    /// Blocks whose updates are false, and those that descend from them.
    refused: HashSet<B256>,
    /// Blocks that nobody had, and those that descend from them.
    in_vain: HashSet<B256>,
}

/// What is shown of [`Followed`], and of the records.
#[derive(Debug)]
struct FollowedFigures {
    records: RecordFigures,
    blocks: Count,
    fetched: Count,
    choices: Count,
    refused: Count,
}

/// The figures of a database that follows, with those of the database itself ([`Db::report`]). It has a handle of the database, which
/// can't be closed meanwhile.
pub struct DatabaseFigures {
    db: Db,
    shown: Arc<FollowedFigures>,
}

impl std::fmt::Debug for DatabaseFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatabaseFigures({})", self.db.head())
    }
}

impl MetricsHost for DatabaseFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.counters([
            (
                "database_blocks",
                "Blocks that the database has added since it follows.",
                self.shown.blocks.get(),
            ),
            (
                "database_blocks_fetched",
                "Of these, blocks that the stream did not have, and shards had.",
                self.shown.fetched.get(),
            ),
            (
                "database_choices",
                "Choices of the head that the database has followed.",
                self.shown.choices.get(),
            ),
            (
                "database_updates_refused",
                "Updates that the database has refused, since they are false.",
                self.shown.refused.get(),
            ),
        ]);
        self.shown.records.report(metrics);
        // It has no errors today, and without its figures the others are there.
        let _ = self.db.report(metrics);
    }

    fn ready(&self) -> Result<(), String> {
        self.shown.records.ready()
    }
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
        let (state, trouble) = match note::read(&*disk)? {
            Noted::Nothing => (FollowerState::default(), None),
            Noted::Damaged(trouble) => (FollowerState::default(), Some(trouble)),
            // What was not believed may be so now, and what the database had may be gone.
            Noted::Place {
                believed,
                head,
                state,
            } => {
                let is_of_this = believed == note::digest_of(&keys) && has_had(chain, head)?;
                (
                    if is_of_this {
                        state
                    } else {
                        FollowerState::default()
                    },
                    None,
                )
            }
        };
        let shown = Arc::new(FollowedFigures {
            records: RecordFigures::new(),
            blocks: Count::default(),
            fetched: Count::default(),
            choices: Count::default(),
            refused: Count::default(),
        });
        let follower = Follower::new(keys, state.clone());
        shown.records.show(&follower);
        Ok(Self {
            chain,
            follower,
            shown,
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

    /// Its figures, for collectors. They can be kept while it follows.
    pub fn figures(&self) -> DatabaseFigures {
        DatabaseFigures {
            db: self.chain.db().clone(),
            shown: Arc::clone(&self.shown),
        }
    }

    /// Shows what it has done.
    fn show(&self) {
        let Followed {
            blocks,
            fetched,
            choices,
            refused,
            passed: _,
            trouble: _,
        } = self.followed;
        self.shown.records.show(&self.follower);
        self.shown.blocks.set(blocks);
        self.shown.fetched.set(fetched);
        self.shown.choices.set(choices);
        self.shown.refused.set(refused);
    }

    /// Whether it has judged all that a stream has. False if that can't be reached.
    pub fn is_at_the_end(&self, stream: &dyn Stream) -> bool {
        let position = self.state().position;
        // An empty stream has nothing that is missing.
        let is_behind =
            |bounds: StreamBounds| position >= bounds.last || bounds.first > bounds.last;
        stream.bounds().is_ok_and(is_behind)
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
                    self.shown.records.failed();
                    self.shown.records.end.look(stream);
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
            self.shown.records.rewound();
            self.show();
            self.followed.trouble = Some(format!(
                "the stream is another one behind record {position}: it is read again"
            ));
        }
        let mut reader = stream.reader(self.follower.state().position.next())?;
        let mut taken = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            if self.shown.records.end.look(stream) {
                // A reader waits for positions that others will have.
                return Ok(true);
            }
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
                self.shown.records.end.look(stream);
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
        let taken = self.judge_until(item, stop);
        if let Ok(Taken::Waits(_)) = taken {
            self.shown.records.waits(figures::BLOCK);
        }
        self.show();
        taken
    }

    fn judge_until(&mut self, item: &StreamItem, stop: &AtomicBool) -> Result<Taken, FollowError> {
        let counted = Arc::clone(&self.shown);
        let counted = &counted.records;
        loop {
            let finalized = self.follower.state().finalized;
            let (verdict, failed) = self.judge(|follower, is_known| follower.step(item, is_known));
            failed?;
            match verdict {
                Verdict::Apply(update) => {
                    let id = update.id();
                    match self.insert(*update)? {
                        Inserted::Added | Inserted::Known => counted.judged(outcome::APPLIED),
                        Inserted::Lost => counted.judged(outcome::LOST),
                        Inserted::Bare => return Err(FollowError::NoBody(id)),
                        // Somebody may have a true one of the same block.
                        Inserted::Refused => {
                            counted.judged(outcome::REFUSED);
                            self.fetch(id.hash, stop)?;
                        }
                    }
                }
                Verdict::Choose(choice) => {
                    counted.judged(outcome::CHOSEN);
                    self.choose(&choice, finalized)?;
                }
                Verdict::Opened(_) => counted.judged(outcome::OPENED),
                Verdict::Ignore(reason) => {
                    counted.ignored(&reason);
                    if let Ignored::NotOpened { .. } | Ignored::OtherBuilder { .. } = reason {
                        self.followed.trouble = Some(format!("ignored: {reason}"));
                    }
                }
                Verdict::Damaged(damage) => {
                    counted.judged(outcome::DAMAGED);
                    self.followed.trouble = Some(damage.to_string());
                    if self.fill(damage.position, finalized)? {
                        self.followed.trouble = None;
                    }
                }
                Verdict::Missing(Missing::Block(hash)) => {
                    counted.missing(figures::BLOCK);
                    let fetched = match self.refused.contains(&hash) {
                        true => Fetched::Refused,
                        false => self.fetch(hash, stop)?,
                    };
                    match fetched {
                        Fetched::All => continue,
                        // False, or of a branch that has lost.
                        Fetched::Known | Fetched::Lost => {
                            counted.judged(outcome::LOST);
                            self.follower.skip(item);
                        }
                        Fetched::Refused => {
                            counted.judged(outcome::REFUSED);
                            if let Some(id) = block_of(item) {
                                remember(&mut self.refused, id.hash);
                            }
                            self.follower.skip(item);
                        }
                        Fetched::Nothing
                            if self.in_vain.contains(&hash) && !stop.load(Ordering::Relaxed) =>
                        {
                            self.pass(item);
                        }
                        Fetched::Nothing => return Ok(Taken::Waits(hash)),
                    }
                }
                Verdict::Missing(Missing::Records(hole)) => {
                    counted.missing(figures::RECORDS);
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
        self.shown.records.judged(outcome::PASSED);
        if let Some(id) = block_of(item) {
            remember(&mut self.in_vain, id.hash);
        }
        self.follower.skip(item);
        self.show();
    }

    /// Adds a block, if its update is true.
    fn insert(&mut self, update: SignedUpdate) -> Result<Inserted, FollowError> {
        let id = update.id();
        let parent = BlockId::new(id.number.saturating_sub(1), update.parent());
        let finalized = final_block(self.chain).number;
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
        let prepared = self.chain.prepare_with_update(rlp, update);
        let inserted = prepared.and_then(|prepared| {
            match self.chain.insert_prepared(&prepared) {
                // So many blocks are beside the head that their changes exceed the memory for them.
                Err(ChainError::State(StateError::TooFar { .. })) => {
                    self.chain.set_canonical(parent.hash, None, None)?;
                    self.chain.insert_prepared(&prepared)
                }
                inserted => inserted,
            }
        });
        match inserted {
            Ok(_) => {
                self.followed.blocks += 1;
                self.show();
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
        // What is below the final block, or the first one, is final anyway.
        let final_now = final_block(self.chain);
        let mark = |id: BlockId| (id.number > final_now.number).then_some(id.hash);
        // What was safe before does not stay so if the builder says that the final block alone is.
        let safe = mark(safe).or(mark(finalized)).unwrap_or(final_now.hash);
        let chosen = self
            .chain
            .set_canonical(head.hash, Some(safe), mark(finalized));
        match chosen {
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
        let finalized = final_block(self.chain).number;
        let before = self.followed.blocks;
        let (mut back, mut bytes, mut wanted) = (Vec::new(), 0, hash);
        loop {
            if stop.load(Ordering::Relaxed) || back.len() == FETCHED_MAX {
                return Ok(Fetched::Nothing);
            }
            let Some(Answer { update, record, .. }) = self.answer(0, wanted) else {
                return Ok(Fetched::Nothing);
            };
            let parent = BlockId::new(update.id().number.saturating_sub(1), update.parent());
            // It is kept as it was signed as well.
            bytes += 2 * record.len();
            back.push((wanted, (bytes <= FETCHED_BYTES).then(|| Box::new(update))));
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
        for (wanted, kept) in back.into_iter().rev() {
            match self.obtain(wanted, kept, stop)? {
                Fetched::All | Fetched::Known => {}
                other => return Ok(other),
            }
        }
        Ok(match self.followed.blocks > before {
            true => Fetched::All,
            false => Fetched::Known,
        })
    }

    /// Adds a block whose parent is there, from the first peer that has a true one. `kept` is one that a peer has returned before.
    fn obtain(
        &mut self,
        hash: B256,
        kept: Option<Box<SignedUpdate>>,
        stop: &AtomicBool,
    ) -> Result<Fetched, FollowError> {
        let (mut next, mut peer) = (kept, 0);
        let (mut outcome, mut bare) = (Fetched::Nothing, None);
        while !stop.load(Ordering::Relaxed) {
            let update = match next.take() {
                Some(update) => *update,
                None => match self.answer(peer, hash) {
                    Some(answer) => {
                        peer = answer.peer + 1;
                        answer.update
                    }
                    None => break,
                },
            };
            let id = update.id();
            match self.insert(update)? {
                Inserted::Added => {
                    self.followed.fetched += 1;
                    return Ok(Fetched::All);
                }
                Inserted::Known => return Ok(Fetched::Known),
                Inserted::Lost => return Ok(Fetched::Lost),
                Inserted::Refused => outcome = Fetched::Refused,
                Inserted::Bare => bare = Some(id),
            }
        }
        match (outcome, bare) {
            (Fetched::Nothing, Some(id)) => Err(FollowError::NoBody(id)),
            _ => Ok(outcome),
        }
    }

    fn answer(&self, from: usize, hash: B256) -> Option<Answer> {
        Answer::first(&self.peers, from, &self.follower, hash)
    }

    /// Fills a hole as far as shards have its records, and goes on without the rest. False if `stop` was set.
    fn fill_all(&mut self, hole: Hole, stop: &AtomicBool) -> Result<bool, FollowError> {
        for position in hole.last_positions() {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let finalized = self.follower.state().finalized;
            self.fill(position, finalized)?;
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
        let keys = self.follower.keys();
        note::write(&*self.disk, keys, self.chain.db().head(), state)?;
        self.noted = state.clone();
        Ok(())
    }
}

/// Whether the database has a block, or has had it: all are taken for such that are not above the final one.
fn has_had(chain: &Chain, id: BlockId) -> Result<bool, FollowError> {
    Ok(id.number <= final_block(chain).number || chain.has(id)?)
}

/// The final block, or the first one.
fn final_block(chain: &Chain) -> BlockId {
    let db = chain.db();
    db.finality().finalized.unwrap_or(db.genesis())
}

/// The block of an update's record.
fn block_of(item: &StreamItem) -> Option<BlockId> {
    match Record::decode(item.record.as_ref()?) {
        Ok(Record::Update(update)) => Some(update.id()),
        _ => None,
    }
}
