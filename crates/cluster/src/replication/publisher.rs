//! How a builder appends its records: each once, behind a tail that it has read, and never after it was deposed.
//!
//! An append is guarded by the position of the stream's last record. Whatever the answer is but an acknowledgement, the
//! publisher looks: it reads what came after its tail, and finds its own record, the record of a higher epoch, or neither, and
//! only then decides. A builder that is deposed between its look and its append is stopped by the followers' fence.
//!
//! Several records may be on their way at once, each behind the position that the one before will have. The first that is not acknowledged,
//! and all behind it, are published one by one then, each looked for before it is appended again.

use super::{
    follower::StreamPosition,
    record::{BuilderKeys, Record},
    stream::{AppendError, Stream, StreamError},
};
use alloy_primitives::{B256, Bytes, keccak256, map::HashMap};
use cambium_metrics::{Count, LabelledMetrics, MetricsHost, Tally};
use cambium_snapshot::Histogram;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often an append is tried.
const ATTEMPTS_MAX: u32 = 12;
/// How long to wait for records that the stream is known to have.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// Why a record is not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The stream has the record of a higher epoch: this builder is deposed.
    #[error("this builder is of epoch {own}, and epoch {open} is open: it is deposed")]
    Deposed {
        /// The builder's epoch.
        own: u64,
        /// The epoch that is open.
        open: u64,
    },
    /// The stream has lost records that it had acknowledged. [`Publisher::read_again`] goes on behind what it has; the caller
    /// publishes what is missing again.
    #[error(
        "the stream ends at {last}, and had acknowledged records to {tail}: publish what is missing again"
    )]
    Lost {
        /// The stream's last position.
        last: StreamPosition,
        /// The position that was acknowledged.
        tail: StreamPosition,
    },
    /// The stream has no room.
    #[error(
        "the stream is full: {0}. It has room again when shards have taken snapshots and old records are removed"
    )]
    Full(String),
    /// The stream refuses the record.
    #[error("the stream refuses the record: {0}")]
    Refused(String),
    /// It is still not known whether the record was appended. Publish it again.
    #[error("after {attempts} attempts it is not known whether the record was appended: {last}")]
    Unknown {
        /// Number of attempts.
        attempts: u32,
        /// The last answer.
        last: String,
    },
    /// The stream can't be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl PublishError {
    const NAMES: [&'static str; 6] = ["deposed", "lost", "full", "refused", "unknown", "stream"];

    /// Name of the reason, for counters.
    const fn name(&self) -> &'static str {
        match self {
            Self::Deposed { .. } => "deposed",
            Self::Lost { .. } => "lost",
            Self::Full(_) => "full",
            Self::Refused(_) => "refused",
            Self::Unknown { .. } => "unknown",
            Self::Stream(_) => "stream",
        }
    }
}

/// What a publisher has appended, for collectors.
#[derive(Debug)]
pub struct PublisherFigures {
    epoch: u64,
    tail: Count,
    retries: Count,
    failures: Tally,
    acknowledged: Histogram,
}

impl MetricsHost for PublisherFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.gauges([
            (
                "publish_epoch",
                "Epoch in which this process publishes.",
                self.epoch,
            ),
            (
                "publish_tail_position",
                "Position of the last record of the stream that the publisher knows of.",
                self.tail.get(),
            ),
        ]);
        metrics.latency(
            "publish",
            "Time from the first append of a record to its acknowledgement.",
            &self.acknowledged.latency(),
        );
        metrics.counter(
            "publish_retries",
            "Appends that were tried again.",
            self.retries.get(),
        );
        let help = "Records that were not acknowledged, by reason. They are published later, or the process ends.";
        metrics.tally("publish_failures", help, "reason", &self.failures);
    }
}

/// Appends the records of one builder in one epoch.
#[derive(Debug)]
pub struct Publisher<S> {
    stream: S,
    keys: BuilderKeys,
    epoch: u64,
    tail: StreamPosition,
    figures: Arc<PublisherFigures>,
}

/// Records that were found behind the tail, by their hashes.
type Seen = HashMap<B256, StreamPosition>;

impl<S: Stream> Publisher<S> {
    /// A publisher for an epoch that was won, behind the stream's last record. Nothing before it is read. The first record to
    /// publish is that of the epoch.
    ///
    /// # Errors
    ///
    /// If the stream can't be reached.
    pub fn new(stream: S, keys: BuilderKeys, epoch: u64) -> Result<Self, StreamError> {
        let tail = stream.bounds()?.last;
        Ok(Self {
            stream,
            keys,
            epoch,
            tail,
            figures: Arc::new(PublisherFigures {
                epoch,
                tail: Count::new(tail.0),
                retries: Count::default(),
                failures: Tally::new(&PublishError::NAMES),
                acknowledged: Histogram::default(),
            }),
        })
    }

    /// Position of the last record that it knows of.
    pub const fn tail(&self) -> StreamPosition {
        self.tail
    }

    /// How often it had to try again.
    pub fn retries(&self) -> u64 {
        self.figures.retries.get()
    }

    /// What it has appended, for collectors.
    pub fn figures(&self) -> Arc<PublisherFigures> {
        Arc::clone(&self.figures)
    }

    /// Takes the stream's last record for the tail, after [`PublishError::Lost`].
    ///
    /// # Errors
    ///
    /// If the stream can't be reached.
    pub fn read_again(&mut self) -> Result<StreamPosition, StreamError> {
        self.tail = self.stream.bounds()?.last;
        Ok(self.tail)
    }

    /// Appends a record, once. Returns its position: the stream has acknowledged it, or it was read there.
    ///
    /// # Errors
    ///
    /// If the builder is deposed, or if the stream refuses or can't be reached.
    pub fn publish(&mut self, record: &Record) -> Result<StreamPosition, PublishError> {
        self.publish_encoded(
            &record.encode().into(),
            &id_of(record),
            &mut Seen::default(),
        )
    }

    /// Appends records in their order, each once, all of them on their way at once. Returns how many were appended, and the error
    /// of the next one, as [`Self::publish`].
    pub fn publish_all(&mut self, records: &[Record]) -> (usize, Result<(), PublishError>) {
        let encoded = records.iter();
        let encoded = encoded.map(|record| (Bytes::from(record.encode()), id_of(record)));
        let encoded: Vec<_> = encoded.collect();
        let started = Instant::now();
        let mut done = 0;
        if encoded.len() > 1 {
            for answer in self.stream.append_all(&encoded, self.tail) {
                let Ok(position) = answer else {
                    self.figures.retries.add(1);
                    break;
                };
                self.tail = position;
                self.figures.tail.set(position.0);
                self.figures.acknowledged.add(started.elapsed());
                done += 1;
            }
        }
        let mut seen = Seen::default();
        for (bytes, id) in &encoded[done..] {
            if let Err(error) = self.publish_encoded(bytes, id, &mut seen) {
                return (done, Err(error));
            }
            done += 1;
        }
        (done, Ok(()))
    }

    /// Appends a record unless it was seen already, and counts that.
    fn publish_encoded(
        &mut self,
        bytes: &Bytes,
        id: &str,
        seen: &mut Seen,
    ) -> Result<StreamPosition, PublishError> {
        let started = Instant::now();
        let published = self.append(bytes, id, seen);
        self.figures.tail.set(self.tail.0);
        match &published {
            Ok(_) => self.figures.acknowledged.add(started.elapsed()),
            Err(error) => self.figures.failures.add(error.name()),
        }
        published
    }

    fn append(
        &mut self,
        bytes: &Bytes,
        id: &str,
        seen: &mut Seen,
    ) -> Result<StreamPosition, PublishError> {
        let own = keccak256(bytes);
        if let Some(position) = seen.get(&own) {
            return Ok(*position);
        }
        let mut round = 0;
        let mut last = String::new();
        for attempt in 1..=ATTEMPTS_MAX {
            // The id of a record that was dropped as a duplicate is taken.
            let id = match round {
                0 => id.to_owned(),
                round => format!("{id}.{round}"),
            };
            let failed = match self.stream.append(bytes, &id, self.tail) {
                Ok(position) => {
                    self.tail = position;
                    return Ok(position);
                }
                Err(AppendError::Full(what)) => return Err(PublishError::Full(what)),
                Err(AppendError::Refused(what)) => return Err(PublishError::Refused(what)),
                Err(failed) => failed,
            };
            self.figures.retries.add(1);
            last = failed.to_string();
            if matches!(failed, AppendError::Unknown(_)) {
                self.stream.pause(attempt);
            }
            let open = match self.look(seen) {
                Ok(open) => open,
                Err(PublishError::Stream(error)) => {
                    last = error.to_string();
                    self.stream.pause(attempt);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(position) = seen.get(&own) {
                return Ok(*position);
            }
            if open > self.epoch {
                return Err(PublishError::Deposed {
                    own: self.epoch,
                    open,
                });
            }
            if matches!(failed, AppendError::Duplicate) {
                round += 1;
            }
        }
        Err(PublishError::Unknown {
            attempts: ATTEMPTS_MAX,
            last,
        })
    }

    /// Reads what came behind the tail, which becomes the stream's last record. Adds it to `seen`, and returns the highest epoch that was
    /// opened.
    fn look(&mut self, seen: &mut Seen) -> Result<u64, PublishError> {
        let last = self.stream.bounds()?.last;
        if last < self.tail {
            let tail = self.tail;
            return Err(PublishError::Lost { last, tail });
        }
        let mut open = 0;
        if last == self.tail {
            return Ok(open);
        }
        let mut reader = self.stream.reader(self.tail.next())?;
        let mut tail = self.tail;
        while tail < last {
            let Some(item) = reader.next(LOOK_WAIT)? else {
                let what = format!("records {} to {last} can't be read", tail.next());
                return Err(StreamError { what }.into());
            };
            tail = item.position;
            let Some(bytes) = &item.record else {
                continue;
            };
            // What comes behind the record of a higher epoch is ignored by all followers.
            if open <= self.epoch {
                seen.insert(keccak256(bytes), tail);
            }
            if let Ok(Record::Epoch(epoch)) = Record::decode(bytes)
                && self.keys.verify(&Record::Epoch(epoch.clone())).is_ok()
            {
                open = open.max(epoch.number);
            }
        }
        self.tail = tail;
        Ok(open)
    }
}

/// Id by which the stream knows a record again: two updates of one block in one epoch have the same.
fn id_of(record: &Record) -> String {
    match record {
        Record::Update(update) => format!("{}-{}", update.id().hash, update.epoch()),
        Record::Epoch(epoch) => format!("epoch-{}-{}", epoch.number, epoch.builder),
        Record::Choice(choice) => format!("choice-{}-{}", choice.epoch, choice.number),
    }
}
