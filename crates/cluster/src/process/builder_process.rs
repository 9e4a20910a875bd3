//! The process of a builder: submissions in, signed blocks out.
//!
//! ```text
//!   submissions ---> waiting, bounded ---> Builder: revised, executed, root
//!                                             |
//!                 update and choice in the stream <---+---> block with its witness, kept for verifiers
//! ```
//!
//! Making a block and publishing it are two steps. One thread may make the next blocks while another one publishes those before: their records
//! are on their way at once, in order.

use super::builder_figures::{self, BuilderFigures, Room};
use crate::{
    builder::{BuildError, Builder, Built},
    reader::ReaderError,
    replication::{
        PublishError, Publisher, Record, SignedUpdate, Signer, Stream, StreamError, StreamPosition,
    },
    rpc::BuilderHost,
    submission::Submission,
};
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes};
use alloy_rlp::Encodable;
use cambium_chain::{BlockWitness, ChainSpec, DraftAttributes, WitnessForm};
use cambium_metrics::{LabelledMetrics, MetricsHost};
use cambium_primitives::BlockId;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

/// Limits of a builder, and what its blocks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuilderOptions {
    /// Who gets the fees.
    pub beneficiary: Address,
    /// The gas limit of blocks, towards which it goes.
    pub gas_limit: u64,
    /// Most submissions that wait.
    pub waiting: usize,
    /// Most bytes of nodes and codes of all that wait.
    pub waiting_bytes: usize,
    /// Number of blocks that are kept with their witnesses and updates.
    pub kept: usize,
    /// How far below the head blocks are final.
    pub final_below: u64,
    /// Most blocks by which the head may be ahead of a shard, as [`BuilderProcess::note_shards`] was told. Below `kept`: what no replica has
    /// yet is published again from there if the stream loses it.
    pub ahead_max: u64,
    /// Whether updates have the blocks' bodies. Shards don't need them; databases that follow the stream do.
    pub bodies: bool,
}

impl Default for BuilderOptions {
    fn default() -> Self {
        Self {
            beneficiary: Address::ZERO,
            gas_limit: 60_000_000,
            waiting: 100_000,
            waiting_bytes: 1 << 30,
            kept: 256,
            final_below: 64,
            ahead_max: 128,
            bodies: true,
        }
    }
}

/// A builder makes no more blocks until a shard has come nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "paused: no replica of shard {shard} is beyond block {newest}, and the head is {head}: at most {ahead_max} blocks are built ahead of a shard"
)]
pub struct Paused {
    /// The shard that is farthest behind.
    pub shard: usize,
    /// Number of the newest block that a replica of it has.
    pub newest: u64,
    /// Number of the builder's head.
    pub head: u64,
    /// The builder's limit.
    pub ahead_max: u64,
}

/// Why a block is not built, or not published.
#[derive(Debug, thiserror::Error)]
pub enum BuilderProcessError {
    /// It can't be built.
    #[error(transparent)]
    Build(#[from] Box<BuildError>),
    /// A shard is too far behind.
    #[error(transparent)]
    Paused(#[from] Paused),
    /// It can't be published: the next attempt publishes it first.
    #[error(transparent)]
    Publish(#[from] Box<PublishError>),
    /// The stream can't be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl BuilderProcessError {
    /// Whether another attempt may succeed without anybody doing something to this builder: shards, or the stream, can't be reached, or have
    /// no room.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Paused(_) | Self::Stream(_) => true,
            Self::Build(error) => matches!(**error, BuildError::Reader(ReaderError::Read(_))),
            Self::Publish(error) => matches!(
                **error,
                PublishError::Full(_) | PublishError::Unknown { .. } | PublishError::Stream(_)
            ),
        }
    }
}

impl From<PublishError> for BuilderProcessError {
    fn from(error: PublishError) -> Self {
        Self::Publish(Box::new(error))
    }
}

/// Submissions that wait.
#[derive(Debug, Default)]
struct Waiting {
    submissions: VecDeque<Submission>,
    bytes: usize,
}

/// A block that was built.
#[derive(Debug)]
struct Kept {
    update: SignedUpdate,
    witness: Arc<BlockWitness>,
}

/// A builder that publishes what it builds. A thread that holds several locks has taken them in the order of the fields.
#[derive(Debug)]
pub struct BuilderProcess<S> {
    options: BuilderOptions,
    spec: ChainSpec,
    signer: Signer,
    epoch: u64,
    waiting: Mutex<Waiting>,
    building: Mutex<Building>,
    publisher: Mutex<Publisher<S>>,
    /// Records that the stream does not have, or has lost, in order.
    unpublished: Mutex<VecDeque<Record>>,
    kept: Mutex<VecDeque<Kept>>,
    /// Where each shard is, as far as that is known.
    shards: Mutex<Shards>,
    figures: BuilderFigures,
}

/// Where a shard is, by the replica of it that has come farthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardProgress {
    /// Number of its newest block.
    pub newest: u64,
    /// Its position in the stream.
    pub position: StreamPosition,
}

/// Where all shards are.
#[derive(Debug, Default)]
struct Shards {
    known: Vec<Option<ShardProgress>>,
    /// The newest block of a shard that has read all and lacks others, since when, and whether these were published again.
    lacking: Option<(u64, Instant, bool)>,
}

/// What one thread has that builds.
#[derive(Debug)]
struct Building {
    builder: Builder,
    /// The head.
    parent: Header,
    choices: u64,
    finalized: BlockId,
}

/// How long a shard has to lack blocks that it has read before they are published again.
const LACKING: Duration = Duration::from_secs(2);
/// How long until they are published once more.
const AGAIN: Duration = Duration::from_secs(120);
/// Most records that are on their way at once: of eight blocks.
const IN_FLIGHT: usize = 16;

impl<S: Stream> BuilderProcess<S> {
    /// A builder of an epoch that is open, at the block of `builder`, whose header is `parent`, and which is final.
    pub fn new(
        builder: Builder,
        parent: Header,
        spec: ChainSpec,
        signer: Signer,
        publisher: Publisher<S>,
        epoch: u64,
        options: BuilderOptions,
    ) -> Self {
        let finalized = builder.reader().block();
        let figures = BuilderFigures::new(publisher.figures(), &parent);
        Self {
            figures,
            options,
            spec,
            signer,
            epoch,
            waiting: Mutex::default(),
            building: Mutex::new(Building {
                builder,
                parent,
                choices: 0,
                finalized,
            }),
            publisher: Mutex::new(publisher),
            unpublished: Mutex::default(),
            kept: Mutex::default(),
            shards: Mutex::default(),
        }
    }

    /// The head, and how many submissions wait.
    pub fn status(&self) -> (BlockId, usize) {
        let waiting = self.waiting.lock().submissions.len();
        (self.building.lock().builder.reader().block(), waiting)
    }

    /// Notes where each shard is. `None` where no replica has answered; what was known of that shard counts on. Before the first call
    /// the builder does not pause.
    ///
    /// Blocks that a shard lacks although it has read the stream to its end were lost before any replica had read them: the next call of
    /// [`Self::publish`] publishes them again.
    pub fn note_shards(&self, progress: &[Option<ShardProgress>]) {
        let mut shards = self.shards.lock();
        let count = progress.len().max(shards.known.len());
        shards.known.resize(count, None);
        for (known, progress) in shards.known.iter_mut().zip(progress) {
            *known = progress.or(*known);
        }
        drop(shards);
        self.paused();
    }

    /// Why no block is built now: `None` if all shards are near enough.
    pub fn paused(&self) -> Option<Paused> {
        let head = self.figures.head();
        let known = self.shards.lock().known.clone();
        let known = known.iter().enumerate();
        let known = known.filter_map(|(shard, progress)| Some(((*progress)?.newest, shard)));
        let (newest, shard) = known.min()?;
        self.figures.ahead.set(head.saturating_sub(newest));
        let ahead_max = self.options.ahead_max;
        let paused = (head.saturating_sub(newest) >= ahead_max).then_some(Paused {
            shard,
            newest,
            head,
            ahead_max,
        });
        self.figures.pause(paused.is_some());
        paused
    }

    /// Builds a block of what waits, as far as its gas goes, and publishes it. Submissions that are left out are returned with the
    /// reasons.
    ///
    /// # Errors
    ///
    /// If the block can't be built or published. What was built is published by the next call.
    pub fn build(&self, timestamp: u64) -> Result<(Built, Vec<String>), BuilderProcessError> {
        self.publish()?;
        let made = self.make(timestamp)?;
        self.publish()?;
        Ok(made)
    }

    /// How many blocks the stream does not have yet.
    pub fn unpublished(&self) -> usize {
        let unpublished = self.unpublished.lock();
        let blocks = unpublished.iter();
        blocks.filter(|it| matches!(it, Record::Update(_))).count()
    }

    /// Builds a block as [`Self::build`], and leaves publishing it to [`Self::publish`], which another thread may be at.
    ///
    /// # Errors
    ///
    /// If the block can't be built, or if a shard is too far behind.
    pub fn make(&self, timestamp: u64) -> Result<(Built, Vec<String>), BuilderProcessError> {
        if let Some(paused) = self.paused() {
            return Err(paused.into());
        }
        let mut building = self.building.lock();
        let made = self.make_next(&mut building, timestamp);
        if made.is_err() {
            self.figures.failures.add(builder_figures::BUILD);
        }
        made
    }

    fn make_next(
        &self,
        building: &mut Building,
        timestamp: u64,
    ) -> Result<(Built, Vec<String>), BuilderProcessError> {
        let head = building.builder.reader().block();
        let attributes = DraftAttributes {
            timestamp: timestamp.max(building.parent.timestamp + 1),
            beneficiary: self.options.beneficiary,
            gas_limit: self.options.gas_limit,
            ..DraftAttributes::default()
        };
        let draft = self.spec.draft(&building.parent, head.hash, &attributes);
        let submissions = self.take(draft.header.gas_limit);
        let built = match building.builder.build(draft, &submissions) {
            Ok(built) => built,
            Err(error) => {
                // They may fit another time.
                self.give_back(submissions);
                return Err(Box::new(error).into());
            }
        };
        let left_out = built.left_out.iter().map(|(at, reason)| {
            let hash = submissions.get(*at).map(|it| *it.transaction.tx_hash());
            format!(
                "transaction {} is left out: {reason}",
                hash.unwrap_or_default()
            )
        });
        let left_out = left_out.collect();
        let mut parent = Vec::new();
        building.parent.encode(&mut parent);
        let witness = Arc::new(built.witness(parent.into()));
        let mut update = built.update.clone();
        if !self.options.bodies {
            update.body = Bytes::new();
        }
        let update = self.signer.sign_update(self.epoch, update);
        building.parent = built.block.header.clone();
        self.figures.built(&built);
        let mut kept = self.kept.lock();
        kept.push_back(Kept {
            update: update.clone(),
            witness,
        });
        while kept.len() > self.options.kept.max(1) {
            kept.pop_front();
        }
        let final_at = built.id.number.saturating_sub(self.options.final_below);
        let newly = kept.iter().map(|it| it.update.id());
        if let Some(id) = newly.filter(|id| id.number <= final_at).last() {
            building.finalized = id;
            self.figures.finalized.set(id.number);
        }
        self.figures.kept.set(kept.len() as u64);
        drop(kept);
        building.choices += 1;
        let (number, finalized) = (building.choices, building.finalized);
        let choice = self
            .signer
            .choose(self.epoch, number, built.id, finalized, finalized);
        let records = [Record::from(update), Record::from(choice)];
        self.with_unpublished(|unpublished| unpublished.extend(records));
        Ok((built, left_out))
    }

    /// Publishes what the stream does not have. If it has lost what it had acknowledged, the epoch is opened again, and all that is kept is
    /// published again: shards ignore what they know.
    ///
    /// # Errors
    ///
    /// If something can't be published: it is by the next call.
    pub fn publish(&self) -> Result<(), BuilderProcessError> {
        let published = self.publish_next(&mut self.publisher.lock());
        if published.is_err() {
            self.figures.failures.add(builder_figures::PUBLISH);
        }
        published
    }

    /// Lets something be done with the records that the stream does not have, and shows how many are left.
    fn with_unpublished<T>(&self, act: impl FnOnce(&mut VecDeque<Record>) -> T) -> T {
        let mut unpublished = self.unpublished.lock();
        let done = act(&mut unpublished);
        let updates = unpublished.iter();
        let updates = updates.filter(|it| matches!(it, Record::Update(_)));
        self.figures.unpublished.set(updates.count() as u64);
        done
    }

    fn publish_next(&self, publisher: &mut Publisher<S>) -> Result<(), BuilderProcessError> {
        loop {
            let records: Vec<_> = {
                let unpublished = self.unpublished.lock();
                unpublished.iter().take(IN_FLIGHT).cloned().collect()
            };
            if records.is_empty() {
                if self.publish_again(publisher.tail()) {
                    continue;
                }
                return Ok(());
            }
            let (count, published) = publisher.publish_all(&records);
            // Meanwhile others came behind them.
            self.with_unpublished(|unpublished| drop(unpublished.drain(..count)));
            match published {
                Ok(()) => {}
                Err(PublishError::Lost { .. }) => {
                    self.with_unpublished(|unpublished| {
                        let choices = unpublished.drain(..);
                        let choices = choices.filter(|it| matches!(it, Record::Choice(_)));
                        let choices: Vec<_> = choices.collect();
                        let kept = self.kept.lock();
                        let updates = kept.iter().map(|it| Record::from(it.update.clone()));
                        // Without its record nothing of the epoch counts.
                        let epoch = Record::from(self.signer.open_epoch(self.epoch));
                        *unpublished = [epoch].into_iter().chain(updates).chain(choices).collect();
                    });
                    publisher.read_again()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Has blocks published again that a shard lacks which has read all that was published. Returns false if there are none.
    fn publish_again(&self, tail: StreamPosition) -> bool {
        let head = self.figures.head();
        let mut shards = self.shards.lock();
        let read_all = shards.known.iter().flatten();
        let lacking = read_all.filter(|it| it.position >= tail && it.newest < head);
        let Some(newest) = lacking.map(|it| it.newest).min() else {
            shards.lacking = None;
            return false;
        };
        let (since, was_published) = match shards.lacking {
            Some((known, since, was_published)) if known == newest => (since, was_published),
            _ => (Instant::now(), false),
        };
        let due = if was_published { AGAIN } else { LACKING };
        let is_due = since.elapsed() >= due;
        let since = if is_due { Instant::now() } else { since };
        shards.lacking = Some((newest, since, was_published || is_due));
        drop(shards);
        if is_due {
            self.with_unpublished(|unpublished| {
                let kept = self.kept.lock();
                let updates = kept.iter().filter(|it| it.update.id().number > newest);
                let updates = updates.map(|it| Record::from(it.update.clone()));
                let epoch = Record::from(self.signer.open_epoch(self.epoch));
                unpublished.push_back(epoch);
                unpublished.extend(updates);
            });
        }
        is_due
    }

    /// What waits, in order, as long as the gas limits of all fit into a block.
    fn take(&self, gas_limit: u64) -> Vec<Submission> {
        use alloy_consensus::Transaction as _;
        let mut waiting = self.waiting.lock();
        let (mut taken, mut left) = (Vec::new(), gas_limit);
        while let Some(next) = waiting.submissions.front() {
            let gas = next.transaction.gas_limit();
            if gas > left && gas <= gas_limit {
                break;
            }
            left = left.saturating_sub(gas);
            let next = waiting.submissions.pop_front();
            taken.extend(next);
        }
        waiting.bytes -= taken.iter().map(|it| it.bag.bytes()).sum::<usize>();
        taken
    }

    fn room(&self, waiting: &Waiting) -> Room {
        Room {
            submissions: waiting.submissions.len(),
            submissions_max: self.options.waiting,
            bytes: waiting.bytes,
            bytes_max: self.options.waiting_bytes,
        }
    }

    fn give_back(&self, submissions: Vec<Submission>) {
        let mut waiting = self.waiting.lock();
        waiting.bytes += submissions.iter().map(|it| it.bag.bytes()).sum::<usize>();
        for submission in submissions.into_iter().rev() {
            waiting.submissions.push_front(submission);
        }
    }
}

impl<S: Stream + 'static> BuilderHost for BuilderProcess<S> {
    fn submit(&self, submission: Submission) -> Result<(), String> {
        let mut waiting = self.waiting.lock();
        let BuilderOptions {
            waiting: most,
            waiting_bytes,
            ..
        } = self.options;
        let bytes = waiting.bytes + submission.bag.bytes();
        if waiting.submissions.len() >= most || bytes > waiting_bytes {
            let count = waiting.submissions.len();
            self.figures.submissions.add(builder_figures::REFUSED);
            return Err(format!("{count} submissions wait: submit it later"));
        }
        waiting.bytes = bytes;
        waiting.submissions.push_back(submission);
        self.figures.submissions.add(builder_figures::TAKEN);
        Ok(())
    }

    fn witness(&self, block: &B256) -> Option<prost::bytes::Bytes> {
        let kept = self.kept.lock();
        let found = kept.iter().find(|it| it.update.id().hash == *block)?;
        let witness = Arc::clone(&found.witness);
        drop(kept);
        Some(witness.to_json(WitnessForm::Own).to_string().into())
    }
}

impl<S: Stream + 'static> MetricsHost for BuilderProcess<S> {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        let room = self.room(&self.waiting.lock());
        self.figures.report(&room, metrics);
    }

    fn ready(&self) -> Result<(), String> {
        let room = self.room(&self.waiting.lock());
        if room.is_full() {
            let count = room.submissions;
            return Err(format!(
                "{count} submissions wait: there is no room for more"
            ));
        }
        if let Some(paused) = self.paused() {
            return Err(paused.to_string());
        }
        match self.figures.unpublished.get() {
            0 => Ok(()),
            count => Err(format!("{count} blocks are not published yet")),
        }
    }
}
