//! Appending records to the stream.
//!
//! A record that fits into a message is one. A longer one is divided into the messages of an atomic batch (NATS ADR-50), which the
//! server stores all at once or not at all; each names its place, the number of messages and the digest of the record in a header.

use super::{
    super::{
        follower::StreamPosition,
        record::RECORD_BYTES_MAX,
        stream::{AppendError, Stream, StreamBounds, StreamError, StreamReader},
    },
    connection::{Nats, NatsError, request_error},
    part::{PART, PARTS_MAX, Part},
    read::NatsReader,
};
use alloy_primitives::{Bytes, keccak256};
use async_nats::{
    HeaderMap,
    client::{Request, RequestErrorKind},
    header::{
        NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL, NATS_BATCH_ID, NATS_BATCH_SEQUENCE,
        NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_ID,
    },
    jetstream::{
        self, ErrorCode,
        publish::PublishAck,
        response::Response,
        stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
    },
};
use futures_util::future::join_all;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// How long the servers remember the ids of messages.
const ID_WINDOW: Duration = Duration::from_secs(120);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The stream of records on NATS JetStream.
#[derive(Debug)]
pub struct NatsStream {
    pub(super) nats: Nats,
    pub(super) stream: jetstream::stream::Stream,
    batches: AtomicU64,
}

impl Nats {
    /// The stream of records. Makes it if there is none, and if the options say so.
    ///
    /// # Errors
    ///
    /// If it can't be made, or is there with another configuration.
    pub fn stream(&self) -> Result<NatsStream, NatsError> {
        let options = self.options();
        let config = Config {
            name: options.name.clone(),
            subjects: vec![subject_of(&options.name)],
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            num_replicas: options.replicas,
            max_bytes: options.stream_bytes_max as i64,
            max_messages: -1,
            max_messages_per_subject: -1,
            max_consumers: -1,
            // Nothing that was acknowledged makes room for what is new.
            discard: DiscardPolicy::New,
            duplicate_window: ID_WINDOW,
            allow_direct: true,
            allow_atomic_publish: true,
            deny_delete: false,
            ..Config::default()
        };
        let stream = match options.makes {
            true => {
                let made = self.wait(self.context().get_or_create_stream(config.clone()));
                made.map_err(request_error)?
            }
            false => {
                let look =
                    async |context: &jetstream::Context| context.get_stream(&config.name).await;
                self.wait(self.look_for(look))?
            }
        };
        let found = &stream.cached_info().config;
        let differs = |what: String| {
            let name = config.name.clone();
            Err(NatsError::Other { name, what })
        };
        if options.makes && found.num_replicas != config.num_replicas {
            let (found, own) = (found.num_replicas, config.num_replicas);
            return differs(format!("{found} replicas instead of {own}"));
        }
        if !found.allow_atomic_publish || found.discard != DiscardPolicy::New {
            return differs("no atomic batches, or old records that make room for new ones".into());
        }
        if found.storage != StorageType::File || found.subjects != config.subjects {
            return differs("records in memory, or other subjects".into());
        }
        Ok(NatsStream {
            nats: self.clone(),
            stream,
            batches: AtomicU64::new(0),
        })
    }
}

fn subject_of(name: &str) -> String {
    format!("{name}.records")
}

impl NatsStream {
    /// Removes the records before a position: every shard has a snapshot of what they led to.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached.
    pub fn remove_before(&self, position: StreamPosition) -> Result<(), NatsError> {
        let purge = self.stream.purge().sequence(position.0);
        let purged = self.nats.wait(async move { purge.await });
        purged.map(|_| ()).map_err(request_error)
    }

    /// Name of the server that leads the stream. `None` while one is elected.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached.
    pub fn leader(&self) -> Result<Option<String>, NatsError> {
        let info = self.nats.wait(self.stream.get_info());
        let cluster = info.map_err(request_error)?.cluster;
        Ok(cluster.and_then(|cluster| cluster.leader))
    }

    async fn send(&self, message: Bytes, headers: HeaderMap) -> Result<PublishAck, AppendError> {
        let answer = self.ask(message, headers).await?;
        let unknown = |what: String| AppendError::Unknown(what);
        let response = serde_json::from_slice::<Response<PublishAck>>(&answer);
        match response.map_err(|error| unknown(error.to_string()))? {
            Response::Ok(ack) => Ok(ack),
            Response::Err { error } => Err(append_error(&error)),
        }
    }

    async fn ask(&self, message: Bytes, headers: HeaderMap) -> Result<Bytes, AppendError> {
        let options = self.nats.options();
        let request = Request::new()
            .payload(message.0)
            .headers(headers)
            .timeout(Some(options.timeout));
        let client = self.nats.context().client();
        let answer = client
            .send_request(subject_of(&options.name), request)
            .await;
        match answer {
            Ok(answer) => Ok(Bytes(answer.payload)),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                    AppendError::Refused(error.to_string())
                }
                // Nobody serves the stream while its leader is elected, and there is no answer when the leader is lost.
                _ => AppendError::Unknown(error.to_string()),
            }),
        }
    }

    /// Number of a record's messages, each of which has a position.
    fn count_of(&self, record: &Bytes) -> usize {
        record.len().div_ceil(self.nats.options().message_bytes_max)
    }

    /// Sends all of a record but its last message, with which it is appended.
    async fn stage(
        &self,
        record: &Bytes,
        id: &str,
        after: StreamPosition,
    ) -> Result<(Bytes, HeaderMap), AppendError> {
        if record.len() > RECORD_BYTES_MAX {
            let length = record.len();
            return Err(AppendError::Refused(format!(
                "{length} bytes: at most {RECORD_BYTES_MAX} are allowed"
            )));
        }
        let options = self.nats.options();
        let count = self.count_of(record);
        if count <= 1 {
            let mut headers = HeaderMap::new();
            headers.insert(NATS_MESSAGE_ID, id);
            headers.insert(NATS_EXPECTED_LAST_SEQUENCE, after.0.to_string());
            return Ok((record.clone(), headers));
        }
        let digest = keccak256(record);
        if count > PARTS_MAX {
            let (length, max) = (record.len(), options.message_bytes_max);
            return Err(AppendError::Refused(format!(
                "{length} bytes take more than {PARTS_MAX} messages of {max} bytes"
            )));
        }
        // Each attempt is a batch of its own: half of the one before may have come through.
        let number = self.batches.fetch_add(1, Ordering::Relaxed);
        let batch = format!(
            "{}-{number}",
            &self.nats.context().client().new_inbox()[7..]
        );
        let client = self.nats.context().client();
        for at in 0..count {
            let from = at * options.message_bytes_max;
            let to = record.len().min(from + options.message_bytes_max);
            let part = Part {
                at: at as u32,
                of: count as u32,
                digest,
            };
            let message = record.slice(from..to);
            let mut headers = HeaderMap::new();
            headers.insert(PART, part.encode());
            headers.insert(NATS_BATCH_ID, batch.as_str());
            headers.insert(NATS_BATCH_SEQUENCE, (at + 1).to_string());
            if at == 0 {
                headers.insert(NATS_EXPECTED_LAST_SEQUENCE, after.0.to_string());
            }
            if at + 1 == count {
                headers.insert(NATS_MESSAGE_ID, id);
                headers.insert(NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL);
                return Ok((message, headers));
            }
            // The first and every sixteenth wait for an answer, so that what is on its way is bounded. It is empty but for an error.
            if at % 16 == 0 {
                let answer = self.ask(message, headers).await?;
                if answer.is_empty() {
                    continue;
                }
                let response = serde_json::from_slice::<Response<PublishAck>>(&answer);
                return Err(match response {
                    Ok(Response::Err { error }) => append_error(&error),
                    Ok(Response::Ok(ack)) => AppendError::Unknown(format!(
                        "a part is acknowledged as message {}",
                        ack.sequence
                    )),
                    Err(error) => AppendError::Unknown(error.to_string()),
                });
            }
            let sent = client
                .publish_with_headers(subject_of(&options.name), headers, message.0)
                .await;
            sent.map_err(|error| AppendError::Unknown(error.to_string()))?;
        }
        Err(AppendError::Refused("an empty record".to_owned()))
    }
}

/// The position of what was acknowledged.
fn position_of(ack: PublishAck) -> Result<StreamPosition, AppendError> {
    match ack.duplicate {
        true => Err(AppendError::Duplicate),
        false => Ok(StreamPosition(ack.sequence)),
    }
}

/// What an error of the servers means for a record.
fn append_error(error: &jetstream::Error) -> AppendError {
    let what = error.to_string();
    match error.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE => AppendError::OtherTail,
        ErrorCode::ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE => AppendError::Duplicate,
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED => AppendError::Full(what),
        ErrorCode::ATOMIC_PUBLISH_DISABLED
        | ErrorCode::ATOMIC_PUBLISH_UNSUPPORTED_HEADER
        | ErrorCode::ATOMIC_PUBLISH_TOO_LARGE_BATCH => AppendError::Refused(what),
        // Among them 10158, the same id on its way, and 10176, a batch whose beginning was lost with a leader.
        _ => AppendError::Unknown(what),
    }
}

impl Stream for NatsStream {
    fn bounds(&self) -> Result<StreamBounds, StreamError> {
        let info = self.nats.wait(self.stream.get_info());
        let state = info
            .map_err(|error| StreamError {
                what: error.to_string(),
            })?
            .state;
        Ok(StreamBounds {
            first: StreamPosition(state.first_sequence.max(1)),
            last: StreamPosition(state.last_sequence),
        })
    }

    fn append(
        &self,
        record: &Bytes,
        id: &str,
        after: StreamPosition,
    ) -> Result<StreamPosition, AppendError> {
        self.nats.wait(async {
            let (message, headers) = self.stage(record, id, after).await?;
            self.send(message, headers).await.and_then(position_of)
        })
    }

    /// All parts are sent at once, and then the last message of each record, in order, behind the positions that the records before
    /// will have.
    fn append_all(
        &self,
        records: &[(Bytes, String)],
        after: StreamPosition,
    ) -> Vec<Result<StreamPosition, AppendError>> {
        self.nats.wait(async {
            let mut tail = after;
            let staged = records.iter().map(|(record, id)| {
                let staged = self.stage(record, id, tail);
                tail.0 += self.count_of(record) as u64;
                staged
            });
            let (mut sends, mut failed) = (Vec::new(), None);
            for staged in join_all(staged.collect::<Vec<_>>()).await {
                match staged {
                    Ok((message, headers)) => sends.push(self.send(message, headers)),
                    Err(error) => {
                        failed = Some(Err(error));
                        break;
                    }
                }
            }
            // They are polled in order, and so they are sent.
            let answers = join_all(sends).await.into_iter();
            let answers = answers.map(|answer| answer.and_then(position_of));
            answers.chain(failed).collect()
        })
    }

    fn reader(&self, from: StreamPosition) -> Result<Box<dyn StreamReader>, StreamError> {
        let (nats, stream) = (self.nats.clone(), self.stream.clone());
        Ok(Box::new(NatsReader::new(nats, stream, from)))
    }

    fn pause(&self, attempt: u32) {
        let pause = Duration::from_millis(25 << attempt.min(7));
        thread::sleep(pause.min(PAUSE_MAX));
    }
}
