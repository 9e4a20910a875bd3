//! What a shard does about each record of the stream: a state machine without I/O, clock or thread.
//!
//! Records are given in the order of their positions, and each gets a [`Verdict`]. The rules:
//!
//! - **Fence.** Once the record of an epoch was seen, every later update or choice of a lower epoch is ignored, by position
//!   alone. So a deposed builder that reads the tail first, and appends behind it, changes nothing. Epochs only go up, and
//!   within an epoch the choices' numbers.
//! - **Builder.** A configured builder opens an epoch with its own signature. If two open the same one, the first record
//!   counts. Updates and choices of the epoch count if that builder has signed them.
//! - **Damage.** A record that does not decode, or whose signature or digest is wrong, is reported by position and leaves a
//!   *hole*; so do positions that the stream skips. Updates after a hole are applied. A choice, or a record of a later epoch, waits
//!   until the hole is filled or given up: the hole may hide the record of an epoch. A block in a hole is
//!   found missing by its first child, and filled by hash.
//! - **Missing.** An update whose parent is unknown, and a choice of unknown blocks, wait as well: the verdict names the
//!   block. The caller gets it from a replica or a builder, and gives the same record again, or skips it.
//!
//! Whether a block is known is asked of the caller, since the shard knows it. What a shard refuses, because the root is another
//! one, stays unknown.

use super::record::{BuilderKeys, Choice, Epoch, Record, RecordError, SignedUpdate};
use crate::message::{is_all, list, unlisted};
use alloy_primitives::{Address, B256, Bytes, keccak256};
use alloy_rlp::Decodable;
use cambium_primitives::BlockId;
use std::{collections::BTreeMap, fmt};

/// Most holes that are remembered. When there is one more, the oldest is given up.
const HOLES_MAX: usize = 64;
/// Positions of a hole for which others are asked.
const HOLE_POSITIONS_MAX: u64 = 1_024;
/// An epoch is at most this much higher than the one before it: builders that win an epoch, and stop before they open it,
/// leave gaps.
const EPOCH_STEP_MAX: u64 = 1 << 20;

/// Position of a record in the stream, from 1. 0 is before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamPosition(pub u64);

impl StreamPosition {
    /// The position after this one.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for StreamPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record as the stream returns it, without having understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamItem {
    /// Its first position: a long record takes more than one.
    pub first: StreamPosition,
    /// Its last position, by which it is named.
    pub position: StreamPosition,
    /// Its bytes. `None` if the stream can't read it.
    pub record: Option<Bytes>,
}

impl StreamItem {
    /// A record that takes one position.
    pub const fn new(position: StreamPosition, record: Bytes) -> Self {
        Self {
            first: position,
            position,
            record: Some(record),
        }
    }
}

/// Positions of the stream whose records are damaged or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The first of them.
    pub first: StreamPosition,
    /// The last of them.
    pub last: StreamPosition,
    /// Epoch that was open before them.
    pub epoch: u64,
}

/// A record that can't be read, or is not signed by a builder.
#[derive(Debug)]
pub struct Damage {
    /// Its position.
    pub position: StreamPosition,
    /// What is wrong. `None` if the stream did not return the record.
    pub error: Option<RecordError>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of the stream is ", self.position)?;
        match &self.error {
            Some(error) => write!(f, "damaged: {error}")?,
            None => f.write_str("missing")?,
        }
        f.write_str("; a replica or a builder may have it")
    }
}

/// Why a record is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Its position was passed.
    #[error("position {0} was passed before")]
    Passed(StreamPosition),
    /// Its epoch is lower than the one that is open.
    #[error("a record of epoch {epoch} after epoch {open} was opened: its builder is deposed")]
    Fenced {
        /// Epoch of the record.
        epoch: u64,
        /// The epoch that is open.
        open: u64,
    },
    /// Its epoch was not opened.
    #[error("a record of epoch {epoch}, which no record has opened: epoch {open} is open")]
    NotOpened {
        /// Epoch of the record.
        epoch: u64,
        /// The epoch that is open.
        open: u64,
    },
    /// Another builder than that of the epoch has signed it.
    #[error(
        "a record of epoch {epoch} is signed by {signer}, and the epoch's builder is {builder}"
    )]
    OtherBuilder {
        /// Epoch of the record.
        epoch: u64,
        /// Who has signed it.
        signer: Address,
        /// Builder of the epoch.
        builder: Address,
    },
    /// The epoch, or a higher one, is open.
    #[error("epoch {number} is opened when epoch {open} is open")]
    OldEpoch {
        /// Number of the epoch.
        number: u64,
        /// The epoch that is open.
        open: u64,
    },
    /// The epoch's number is far too high.
    #[error("epoch {number} after epoch {open}: at most {EPOCH_STEP_MAX} epochs are left out")]
    EpochStep {
        /// Number of the epoch.
        number: u64,
        /// The epoch that is open.
        open: u64,
    },
    /// The block is known.
    #[error("block {0} is known")]
    Known(BlockId),
    /// A later choice was made before.
    #[error("choice {number} after choice {last} of the same epoch")]
    OldChoice {
        /// Number of the choice.
        number: u64,
        /// Number of the last one.
        last: u64,
    },
    /// The blocks of a choice do not follow each other.
    #[error(
        "a choice of head {head}, safe {safe} and finalized {finalized}: heights have to be in this order, and finalized is {was}"
    )]
    Order {
        /// Height of the head.
        head: u64,
        /// Height of the safe block.
        safe: u64,
        /// Height of the finalized block.
        finalized: u64,
        /// Height that was finalized before.
        was: u64,
    },
    /// The caller found none of the blocks that it needs.
    #[error("the record at position {0} was skipped: nobody has the blocks that it needs")]
    Skipped(StreamPosition),
}

impl Ignored {
    /// The names of all reasons.
    pub const NAMES: [&'static str; 10] = [
        "passed",
        "fenced",
        "epoch_not_opened",
        "other_builder",
        "old_epoch",
        "epoch_step",
        "known",
        "old_choice",
        "order",
        "skipped",
    ];

    /// Name of the reason, for counters.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Fenced { .. } => "fenced",
            Self::NotOpened { .. } => "epoch_not_opened",
            Self::OtherBuilder { .. } => "other_builder",
            Self::OldEpoch { .. } => "old_epoch",
            Self::EpochStep { .. } => "epoch_step",
            Self::Known(_) => "known",
            Self::OldChoice { .. } => "old_choice",
            Self::Order { .. } => "order",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// What the caller has to get before a record can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A block, by hash: the parent of an update, or a block of a choice.
    Block(B256),
    /// The records of a hole, by position. [`Follower::fill`] takes them, [`Follower::give_up`] goes on without.
    Records(Hole),
}

/// What to do about a record.
#[derive(Debug)]
pub enum Verdict {
    /// Apply the update: its parent is known. The shard verifies it.
    Apply(Box<SignedUpdate>),
    /// Follow this choice of the head.
    Choose(Box<Choice>),
    /// The epoch is open from here on.
    Opened(Epoch),
    /// Do nothing.
    Ignore(Ignored),
    /// The record can't be used. The follower has noted the hole, and goes on.
    Damaged(Damage),
    /// Get this first. The follower has not moved: give it the same record again.
    Missing(Missing),
}

/// The state of a follower, from which another one goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerState {
    /// Position of the last record that was judged.
    pub position: StreamPosition,
    /// Keccak-256 of that record, by which a stream that was replaced is noticed. Zero if it is not known.
    pub tail: B256,
    /// The epoch that is open. 0 if none was opened.
    pub epoch: u64,
    /// Builder of the epoch.
    pub builder: Address,
    /// Number of the last choice in the epoch.
    pub choice: u64,
    /// Height of the last finalized block.
    pub finalized: u64,
    /// Holes that are neither filled nor given up, in order.
    pub holes: Vec<Hole>,
}

/// A saved state of a follower is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The RLP of its fields is malformed.
    #[error("malformed state of a follower: {0}")]
    Rlp(#[from] alloy_rlp::Error),
    /// Its holes are too many, or not in order.
    #[error("a state of a follower with {0} holes that are too many, or not in order")]
    Holes(usize),
}

impl FollowerState {
    /// The state as RLP: a list of its fields, and of the holes, each with its three numbers.
    pub fn encode(&self) -> Vec<u8> {
        let holes = self.holes.iter();
        let holes: Vec<u64> = holes
            .flat_map(|hole| [hole.first.0, hole.last.0, hole.epoch])
            .collect();
        let mut out = Vec::new();
        list(
            &[
                &self.position.0,
                &self.tail,
                &self.epoch,
                &self.builder,
                &self.choice,
                &self.finalized,
                &holes,
            ],
            &mut out,
        );
        out
    }

    /// Decodes a state.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut rest = bytes;
        let mut fields = unlisted(&mut rest)?;
        is_all(rest)?;
        let mut state = Self {
            position: StreamPosition(u64::decode(&mut fields)?),
            tail: B256::decode(&mut fields)?,
            epoch: u64::decode(&mut fields)?,
            builder: Address::decode(&mut fields)?,
            choice: u64::decode(&mut fields)?,
            finalized: u64::decode(&mut fields)?,
            holes: Vec::new(),
        };
        let mut holes = unlisted(&mut fields)?;
        is_all(fields)?;
        let mut before = StreamPosition(0);
        while !holes.is_empty() {
            let hole = Hole {
                first: StreamPosition(u64::decode(&mut holes)?),
                last: StreamPosition(u64::decode(&mut holes)?),
                epoch: u64::decode(&mut holes)?,
            };
            let in_order = before < hole.first && hole.first <= hole.last;
            if !in_order || hole.last > state.position || state.holes.len() == HOLES_MAX {
                return Err(StateError::Holes(state.holes.len() + 1));
            }
            before = hole.last;
            state.holes.push(hole);
        }
        Ok(state)
    }
}

/// What a follower has counted since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Updates that were to be applied.
    pub updates: u64,
    /// Choices that were to be followed.
    pub choices: u64,
    /// Epochs that were opened.
    pub epochs: u64,
    /// Records that were damaged or missing.
    pub damaged: u64,
    /// Positions of holes that were filled.
    pub filled: u64,
    /// Positions of holes that were given up.
    pub given_up: u64,
    /// Records that were ignored, by [`Ignored::name`].
    pub ignored: BTreeMap<&'static str, u64>,
}

/// Judges the records of a stream.
#[derive(Debug)]
pub struct Follower {
    keys: BuilderKeys,
    state: FollowerState,
    counts: Counts,
}

impl Follower {
    /// A follower that goes on from a state. [`FollowerState::default`] is before the first record.
    pub fn new(keys: BuilderKeys, state: FollowerState) -> Self {
        Self {
            keys,
            state,
            counts: Counts::default(),
        }
    }

    /// Whose records it believes.
    pub const fn keys(&self) -> &BuilderKeys {
        &self.keys
    }

    /// Its state, to be saved.
    pub const fn state(&self) -> &FollowerState {
        &self.state
    }

    /// What it has counted.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns whether the record at the follower's own position is the one that it has judged. If not, the stream was
    /// replaced, or has lost what it had acknowledged: see [`Follower::rewind`].
    pub fn is_same_stream(&self, record: Option<&[u8]>) -> bool {
        let is_known = self.state.position.0 > 0 && !self.state.tail.is_zero();
        match record {
            Some(bytes) => !is_known || keccak256(bytes) == self.state.tail,
            None => self.state.position.0 == 0,
        }
    }

    /// Goes back to a position of a stream that is not the one that was read before. The epoch stays, so that a deposed builder
    /// stays deposed; blocks that are known are ignored.
    pub fn rewind(&mut self, position: StreamPosition) {
        self.state.position = position;
        self.state.tail = B256::ZERO;
        self.state.holes.clear();
    }

    /// Judges the next record. `is_known` returns whether the shard has a block, or has had it.
    ///
    /// Records have to be given in order; positions left out become a hole.
    pub fn step(&mut self, item: &StreamItem, is_known: impl Fn(BlockId) -> bool) -> Verdict {
        let StreamItem {
            first, position, ..
        } = *item;
        if position <= self.state.position {
            return self.ignore(Ignored::Passed(position));
        }
        let skipped = self.state.position.next();
        if skipped < first {
            let last = StreamPosition(first.0 - 1);
            self.add_hole(skipped, last);
            self.counts.damaged += first.0 - skipped.0;
            (self.state.position, self.state.tail) = (last, B256::ZERO);
        }
        let verified = match &item.record {
            Some(bytes) => self.verified(bytes).map_err(Some),
            None => Err(None),
        };
        let verdict = match verified {
            Ok((record, signer)) => match self.judge(first, record, signer, &is_known) {
                Verdict::Missing(missing) => return Verdict::Missing(missing),
                verdict => {
                    self.state.tail = item.record.as_ref().map_or(B256::ZERO, keccak256);
                    verdict
                }
            },
            Err(error) => {
                self.add_hole(first, position);
                self.counts.damaged += 1;
                self.state.tail = B256::ZERO;
                Verdict::Damaged(Damage { position, error })
            }
        };
        self.state.position = position;
        verdict
    }

    /// Passes the next record, whose missing blocks are nowhere to be found.
    pub fn skip(&mut self, item: &StreamItem) -> Verdict {
        let position = item.position;
        if position <= self.state.position {
            return self.ignore(Ignored::Passed(position));
        }
        self.state.position = position;
        self.state.tail = item.record.as_ref().map_or(B256::ZERO, keccak256);
        self.ignore(Ignored::Skipped(position))
    }

    /// Judges a record of a hole, which a replica or a builder has returned. The hole stays if the record is damaged, or if a block is
    /// missing.
    pub fn fill(
        &mut self,
        position: StreamPosition,
        record: &[u8],
        is_known: impl Fn(BlockId) -> bool,
    ) -> Verdict {
        let holes = self.state.holes.iter();
        let hole = holes.copied().find(|hole| hole.contains(position));
        let Some(hole) = hole else {
            return self.ignore(Ignored::Passed(position));
        };
        let verdict = match self.verified(record) {
            // The fence came after it, so the epoch before the hole counts.
            Ok((Record::Update(update), _)) if update.epoch() >= hole.epoch => {
                self.judge_block(update, &is_known)
            }
            Ok((record, signer)) => self.judge(position, record, signer, &is_known),
            Err(error) => {
                let error = Some(error);
                return Verdict::Damaged(Damage { position, error });
            }
        };
        // Whoever answers may lie: a record that is of no use may not be the one that was there.
        if !matches!(verdict, Verdict::Missing(_) | Verdict::Ignore(_)) {
            self.counts.filled += 1;
            self.close(position, position);
        }
        verdict
    }

    /// Takes back what the last choice has made final, since whoever follows it refuses it.
    pub fn take_back_finality(&mut self, before: u64) {
        self.state.finalized = before;
    }

    /// Goes on without the records of a hole. Blocks among them are found missing by their children.
    pub fn give_up(&mut self, hole: Hole) {
        self.counts.given_up += self.close(hole.first, hole.last);
    }

    /// Decodes and verifies a block that was missing, as a replica or a builder returns it: any configured builder may have
    /// signed it, in any epoch, since a block that counts names it.
    ///
    /// # Errors
    ///
    /// If it is no valid record. `Ok(None)` if it is not the block with this hash.
    pub fn verify_block(
        &self,
        hash: B256,
        record: &[u8],
    ) -> Result<Option<SignedUpdate>, RecordError> {
        Ok(match self.verified(record)? {
            (Record::Update(update), _) if update.id().hash == hash => Some(*update),
            _ => None,
        })
    }

    fn verified(&self, bytes: &[u8]) -> Result<(Record, Address), RecordError> {
        let record = Record::decode(bytes)?;
        let signer = self.keys.verify(&record)?;
        Ok((record, signer))
    }

    /// Judges a valid record, of which `at` is the first position.
    fn judge(
        &mut self,
        at: StreamPosition,
        record: Record,
        signer: Address,
        is_known: &impl Fn(BlockId) -> bool,
    ) -> Verdict {
        let record = match record {
            Record::Epoch(epoch) => return self.judge_epoch(epoch),
            record => record,
        };
        // What has opened the first epoch is gone from the stream: whoever publishes in it has won it.
        if self.state.epoch == 0 && self.state.holes.is_empty() {
            (self.state.epoch, self.state.builder) = (record.epoch(), signer);
        }
        let (epoch, open) = (record.epoch(), self.state.epoch);
        if epoch < open {
            return self.ignore(Ignored::Fenced { epoch, open });
        }
        let is_choice = matches!(record, Record::Choice(_));
        let before = self.state.holes.first().filter(|hole| hole.first < at);
        if (epoch > open || is_choice)
            && let Some(hole) = before
        {
            return Verdict::Missing(Missing::Records(*hole));
        }
        if epoch > open {
            return self.ignore(Ignored::NotOpened { epoch, open });
        }
        let builder = self.state.builder;
        if signer != builder {
            return self.ignore(Ignored::OtherBuilder {
                epoch,
                signer,
                builder,
            });
        }
        match record {
            Record::Update(update) => self.judge_block(update, is_known),
            Record::Choice(choice) => self.judge_choice(choice, is_known),
            Record::Epoch(epoch) => self.judge_epoch(epoch),
        }
    }

    fn judge_epoch(&mut self, epoch: Epoch) -> Verdict {
        let (number, open) = (epoch.number, self.state.epoch);
        if number <= open {
            return self.ignore(Ignored::OldEpoch { number, open });
        }
        // The first epoch that a follower sees may have any number.
        if open > 0 && number - open > EPOCH_STEP_MAX {
            return self.ignore(Ignored::EpochStep { number, open });
        }
        self.state.epoch = number;
        self.state.builder = epoch.builder;
        self.state.choice = 0;
        self.counts.epochs += 1;
        Verdict::Opened(epoch)
    }

    fn judge_block(
        &mut self,
        update: Box<SignedUpdate>,
        is_known: &impl Fn(BlockId) -> bool,
    ) -> Verdict {
        let id = update.id();
        if is_known(id) {
            return self.ignore(Ignored::Known(id));
        }
        let parent = BlockId::new(id.number.saturating_sub(1), update.parent());
        if !is_known(parent) {
            return Verdict::Missing(Missing::Block(parent.hash));
        }
        self.counts.updates += 1;
        Verdict::Apply(update)
    }

    fn judge_choice(&mut self, choice: Choice, is_known: &impl Fn(BlockId) -> bool) -> Verdict {
        let Choice {
            number,
            head,
            safe,
            finalized,
            ..
        } = choice;
        let (last, was) = (self.state.choice, self.state.finalized);
        if number <= last {
            return self.ignore(Ignored::OldChoice { number, last });
        }
        if finalized.number < was || safe.number < finalized.number || head.number < safe.number {
            return self.ignore(Ignored::Order {
                head: head.number,
                safe: safe.number,
                finalized: finalized.number,
                was,
            });
        }
        for block in [head, safe, finalized] {
            if !is_known(block) {
                return Verdict::Missing(Missing::Block(block.hash));
            }
        }
        self.state.choice = number;
        self.state.finalized = finalized.number;
        self.counts.choices += 1;
        Verdict::Choose(Box::new(choice))
    }

    fn ignore(&mut self, reason: Ignored) -> Verdict {
        *self.counts.ignored.entry(reason.name()).or_default() += 1;
        Verdict::Ignore(reason)
    }

    fn add_hole(&mut self, first: StreamPosition, last: StreamPosition) {
        let (holes, epoch) = (&mut self.state.holes, self.state.epoch);
        if let Some(before) = holes.last_mut()
            && before.last.next() == first
            && before.epoch == epoch
        {
            before.last = last;
            return;
        }
        if holes.len() == HOLES_MAX {
            let oldest = holes.remove(0);
            self.counts.given_up += oldest.positions();
        }
        holes.push(Hole { first, last, epoch });
    }

    /// Removes positions from the holes. Returns how many of them were in holes.
    fn close(&mut self, first: StreamPosition, last: StreamPosition) -> u64 {
        let mut closed = 0;
        let mut left = Vec::new();
        for hole in std::mem::take(&mut self.state.holes) {
            let (from, to) = (first.max(hole.first), last.min(hole.last));
            if from > to {
                left.push(hole);
                continue;
            }
            closed += to.0 - from.0 + 1;
            if hole.first < from {
                let last = StreamPosition(from.0 - 1);
                left.push(Hole { last, ..hole });
            }
            if to < hole.last {
                let first = to.next();
                left.push(Hole { first, ..hole });
            }
        }
        while left.len() > HOLES_MAX {
            let oldest = left.remove(0);
            self.counts.given_up += oldest.positions();
        }
        self.state.holes = left;
        closed
    }
}

impl Hole {
    /// Returns whether a position is in the hole.
    pub fn contains(&self, position: StreamPosition) -> bool {
        (self.first..=self.last).contains(&position)
    }

    /// Its last positions, as many as others are asked for: blocks before them are found missing by their children.
    pub(crate) fn last_positions(&self) -> impl Iterator<Item = StreamPosition> + use<> {
        let first = self.last.0.saturating_sub(HOLE_POSITIONS_MAX - 1);
        (self.first.0.max(first)..=self.last.0).map(StreamPosition)
    }

    const fn positions(&self) -> u64 {
        self.last.0 - self.first.0 + 1
    }
}
