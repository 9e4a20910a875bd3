//! Reading records from the stream, in order, from a position on.
//!
//! A pull consumer without acknowledgements, which is made anew at the next position whenever it is lost, an answer stays away, or a
//! position is skipped. It is lost, too, where servers have made it and do not answer for it yet or any more, as around an election. If it is skipped again, the stream does not have it. So a reader survives lost connections and the
//! elections of leaders. It asks for a bounded number of bytes, when it has none left.
//!
//! A consumer that is made anew begins with the message that was read last. If that is another one now, the servers have lost what they
//! had acknowledged, and have appended something else there: that is an error, since the reader would pass what came instead.

use super::{
    super::{
        follower::{StreamItem, StreamPosition},
        record::RECORD_BYTES_MAX,
        stream::{StreamError, StreamReader},
    },
    connection::Nats,
    part::{PART, Part},
};
use alloy_primitives::{B256, Bytes, keccak256};
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
};
use futures_util::StreamExt;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Most messages that are asked for at a time.
const FETCH_MESSAGES: usize = 256;
/// Most bytes that are asked for at a time, if a message may not be longer.
const FETCH_BYTES: usize = 8 << 20;
/// How long a consumer stays without being asked.
const CONSUMER_IDLE: Duration = Duration::from_secs(60);
/// How long a reader waits before it makes another consumer in place of one that was lost.
const LOST_PAUSE: Duration = Duration::from_millis(50);

/// Parts of a record, as far as they were read.
#[derive(Debug)]
struct Partial {
    first: u64,
    next: Part,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct NatsReader {
    nats: Nats,
    stream: jetstream::stream::Stream,
    /// The next position to read.
    next: u64,
    /// Where the reader was to begin: a record of several positions that contains it is read from its first one on.
    from: u64,
    consumer: Option<PullConsumer>,
    /// The position that a consumer has skipped: asked for once more.
    skipped: Option<u64>,
    /// Position and hash of the message that was read last.
    last: Option<(u64, B256)>,
    partial: Option<Partial>,
    items: VecDeque<StreamItem>,
}

fn stream_error(error: impl std::fmt::Display) -> StreamError {
    StreamError {
        what: error.to_string(),
    }
}

impl NatsReader {
    pub(super) fn new(nats: Nats, stream: jetstream::stream::Stream, from: StreamPosition) -> Self {
        let next = from.0.max(1);
        Self {
            nats,
            stream,
            next,
            from: next,
            consumer: None,
            skipped: None,
            last: None,
            partial: None,
            items: VecDeque::new(),
        }
    }

    /// Asks for messages, and waits for the first one up to `wait`.
    async fn fetch(&mut self, wait: Duration) -> Result<(), StreamError> {
        let timeout = self.nats.options().timeout;
        let consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None => {
                let last = self.last.filter(|(last, _)| last + 1 == self.next);
                let config = pull::Config {
                    deliver_policy: DeliverPolicy::ByStartSequence {
                        start_sequence: last.map_or(self.next, |(last, _)| last),
                    },
                    ack_policy: AckPolicy::None,
                    inactive_threshold: CONSUMER_IDLE,
                    memory_storage: true,
                    num_replicas: 1,
                    ..pull::Config::default()
                };
                let made = tokio::time::timeout(timeout, self.stream.create_consumer(config));
                made.await.map_err(stream_error)?.map_err(stream_error)?
            }
        };
        // Until the end of this function the consumer is not kept: after an error, or without an answer, there will be another one.
        let bytes = FETCH_BYTES.max(2 * self.nats.options().message_bytes_max);
        let there = consumer
            .fetch()
            .max_messages(FETCH_MESSAGES)
            .max_bytes(bytes)
            .messages();
        let mut is_whole = self
            .take(there.await.map_err(stream_error)?, timeout)
            .await?;
        if is_whole && self.items.is_empty() && self.partial.is_none() && !wait.is_zero() {
            let next = consumer.batch().max_messages(1).expires(wait).messages();
            let next = next.await.map_err(stream_error)?;
            is_whole = self.take(next, wait + timeout).await?;
        }
        if is_whole {
            self.consumer = Some(consumer);
        }
        Ok(())
    }

    /// Takes messages until the server says that there are no more. Returns whether the consumer can be asked again.
    async fn take(
        &mut self,
        mut messages: pull::Batch,
        timeout: Duration,
    ) -> Result<bool, StreamError> {
        loop {
            let Ok(message) = tokio::time::timeout(timeout, messages.next()).await else {
                return Ok(false);
            };
            let Some(message) = message else {
                return Ok(true);
            };
            let message = match message {
                Ok(message) => message,
                // The next message exceeds what is left of the bytes that were asked for.
                Err(error) if error.to_string().contains("MaxBytes") => return Ok(true),
                // No server answers for the consumer: the client tells that by nothing but this text.
                Err(error) if error.to_string().contains("the stream: 503") => return Ok(false),
                Err(error) => return Err(stream_error(error)),
            };
            let sequence = message.info().map_err(stream_error)?.stream_sequence;
            if sequence < self.next {
                if let Some((last, hash)) = self.last
                    && last == sequence
                    && keccak256(&message.payload) != hash
                {
                    // Said once: a caller that does not go back reads on.
                    self.last = None;
                    let what = format!("message {sequence} is another one than was read before");
                    return Err(StreamError { what });
                }
                continue;
            }
            if sequence > self.next && self.skipped != Some(self.next) {
                self.skipped = Some(self.next);
                return Ok(false);
            }
            self.last = Some((sequence, keccak256(&message.payload)));
            let headers = message.headers.as_ref();
            let part = headers.and_then(|headers| headers.get(PART));
            let part = part.map(|part| Part::decode(part.as_str()));
            if !self.put(sequence, part, Bytes(message.payload.clone())) {
                return Ok(false);
            }
        }
    }

    /// Takes the message at a position. `part` is what its header tells, if it is a part of a record. Returns false if the
    /// reader has to go back to the first part.
    fn put(&mut self, sequence: u64, part: Option<Option<Part>>, payload: Bytes) -> bool {
        let item = |first: u64, record| StreamItem {
            first: StreamPosition(first),
            position: StreamPosition(sequence),
            record,
        };
        let expected = std::mem::replace(&mut self.next, sequence + 1);
        let follows = |partial: &Partial| {
            expected == sequence && part == Some(Some(partial.next)) && {
                partial.bytes.len() + payload.len() <= RECORD_BYTES_MAX
            }
        };
        match (self.partial.take(), part) {
            (Some(mut partial), _) if follows(&partial) => {
                partial.bytes.extend_from_slice(&payload);
                partial.next.at += 1;
                if partial.next.at < partial.next.of {
                    self.partial = Some(partial);
                    return true;
                }
                let record = Bytes::from(partial.bytes);
                let is_whole = keccak256(&record) == partial.next.digest;
                self.items
                    .push_back(item(partial.first, is_whole.then_some(record)));
                return true;
            }
            (Some(partial), _) => self.items.push_back(StreamItem {
                first: StreamPosition(partial.first),
                position: StreamPosition(sequence - 1),
                record: None,
            }),
            (None, _) => {}
        }
        match part {
            None => self.items.push_back(item(sequence, Some(payload))),
            Some(Some(part)) if part.at == 0 && part.of > 1 => {
                self.partial = Some(Partial {
                    first: sequence,
                    next: Part { at: 1, ..part },
                    bytes: payload.to_vec(),
                });
            }
            // The reader began in the middle of a record.
            Some(Some(part)) if sequence == self.from && sequence > part.at.into() => {
                self.next = sequence - u64::from(part.at);
                self.from = 0;
                self.skipped = None;
                return false;
            }
            Some(_) => self.items.push_back(item(sequence, None)),
        }
        true
    }
}

impl StreamReader for NatsReader {
    fn next(&mut self, wait: Duration) -> Result<Option<StreamItem>, StreamError> {
        let nats = self.nats.clone();
        let start = Instant::now();
        let mut is_last = false;
        while self.items.is_empty() {
            // A consumer that was made anew, and the parts of a record, are worth another attempt.
            let before = (self.next, self.skipped);
            let left = wait.saturating_sub(start.elapsed());
            nats.wait(self.fetch(if is_last { left } else { Duration::ZERO }))?;
            let is_same = before == (self.next, self.skipped);
            if is_last && is_same {
                // Without a consumer nobody has waited for what may come.
                let left = wait.saturating_sub(start.elapsed());
                if self.consumer.is_some() || left.is_zero() {
                    break;
                }
                std::thread::sleep(LOST_PAUSE.min(left));
            }
            is_last = is_same;
        }
        Ok(self.items.pop_front())
    }
}
