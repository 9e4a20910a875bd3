//! The ordered stream of records, whatever engine replicates it, and one in memory for tests.

use super::follower::{StreamItem, StreamPosition};
use alloy_primitives::Bytes;
use parking_lot::Mutex;
use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Positions that a stream has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamBounds {
    /// The first one that is kept. After `last` if there is none.
    pub first: StreamPosition,
    /// The last one, or that before the first if there is none.
    pub last: StreamPosition,
}

/// The stream can't be reached, or refuses.
#[derive(Debug, thiserror::Error)]
#[error("stream of updates: {what}")]
pub struct StreamError {
    /// What is wrong.
    pub what: String,
}

/// Why a record was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The stream's last record is another one than expected: the race is lost, or the record itself is there already.
    #[error("the stream's last record is another one than expected")]
    OtherTail,
    /// A record with the same id was appended before, maybe with other content. This one was dropped.
    #[error("a record with the same id was appended before")]
    Duplicate,
    /// There is no answer, so that the record may be there or not.
    #[error("it is not known whether a record was appended: {0}")]
    Unknown(String),
    /// The stream has no room until old records are removed.
    #[error("the stream of updates is full: {0}")]
    Full(String),
    /// The stream refuses the record.
    #[error("the stream of updates refuses a record: {0}")]
    Refused(String),
}

/// An ordered, replicated log of records. It is transport, never truth: what it returns is verified, and what it has
/// acknowledged may be lost.
pub trait Stream: Send + Sync {
    /// The positions that it has.
    ///
    /// # Errors
    ///
    /// If it can't be reached.
    fn bounds(&self) -> Result<StreamBounds, StreamError>;

    /// Appends a record behind the position `after`, which has to be the last one. All of it becomes visible at once. `id` is
    /// another guard against repetition, for some minutes. Returns the record's position.
    ///
    /// # Errors
    ///
    /// [`AppendError`] says what may have become of the record.
    fn append(
        &self,
        record: &Bytes,
        id: &str,
        after: StreamPosition,
    ) -> Result<StreamPosition, AppendError>;

    /// Appends records, each with its id, one behind the other and the first behind the position `after`. All of them may be on their
    /// way at once. Returns an answer for each, in order, which ends early if others were not sent: a record is never behind one that
    /// was not appended.
    fn append_all(
        &self,
        records: &[(Bytes, String)],
        after: StreamPosition,
    ) -> Vec<Result<StreamPosition, AppendError>> {
        let (mut answers, mut tail) = (Vec::new(), after);
        for (record, id) in records {
            let answer = self.append(record, id, tail);
            match &answer {
                Ok(position) => tail = *position,
                Err(_) => {
                    answers.push(answer);
                    break;
                }
            }
            answers.push(answer);
        }
        answers
    }

    /// Reads records in order, from a position on.
    ///
    /// # Errors
    ///
    /// If it can't be reached.
    fn reader(&self, from: StreamPosition) -> Result<Box<dyn StreamReader>, StreamError>;

    /// Waits before the attempt with this number, from 1.
    fn pause(&self, attempt: u32);
}

/// Reads a stream in order.
pub trait StreamReader: Send {
    /// The next record. `None` if there is none after waiting for this long.
    ///
    /// # Errors
    ///
    /// If the stream can't be reached. A later call goes on where the last record was.
    fn next(&mut self, wait: Duration) -> Result<Option<StreamItem>, StreamError>;
}

/// A fault of the next append to a [`MemoryStream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// The record is lost, and there is no answer.
    Lost,
    /// The record is appended, and there is no answer. A crash may take it back.
    NoAnswer,
    /// The record is dropped, and the answer is that it is a duplicate.
    FalseDuplicate,
    /// The record is appended, and the answer is that the tail is another one, as for a retry of what has come through.
    AnsweredTwice,
    /// The record is appended and acknowledged, and damaged: one of its bytes, by this number, is changed.
    Damaged(usize),
    /// The record is appended and acknowledged, and can't be read.
    Unreadable,
    /// There is no room.
    Full,
}

/// A stream in memory, with faults that a test chooses.
#[derive(Clone, Debug, Default)]
pub struct MemoryStream {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<Stored>,
    /// Number of records that were removed before the first.
    removed: u64,
    ids: HashSet<String>,
    faults: VecDeque<Option<StreamFault>>,
}

#[derive(Clone, Debug)]
struct Stored {
    bytes: Option<Bytes>,
    id: String,
    is_acknowledged: bool,
}

impl MemoryStream {
    /// An empty stream without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the appends after those that are planned meet: a fault, or none.
    pub fn plan(&self, fault: Option<StreamFault>) {
        self.state.lock().faults.push_back(fault);
    }

    /// Loses the records at the end of which no writer has had an acknowledgement. Returns how many.
    pub fn lose_unacknowledged(&self) -> usize {
        let state = &mut *self.state.lock();
        let kept = state.records.iter().rposition(|it| it.is_acknowledged);
        let kept = kept.map_or(0, |last| last + 1);
        state.truncate(kept)
    }

    /// Loses the last records, acknowledged or not. Returns how many.
    pub fn lose_last(&self, count: usize) -> usize {
        let state = &mut *self.state.lock();
        state.truncate(state.records.len().saturating_sub(count))
    }

    /// Removes the records before a position, as a limit of the stream does.
    pub fn remove_before(&self, position: StreamPosition) {
        let state = &mut *self.state.lock();
        let count = position.0.saturating_sub(state.removed + 1);
        let count = count.min(state.records.len() as u64);
        state.records.drain(..count as usize);
        state.removed += count;
    }

    /// Changes a byte of a record for good, or makes all of it unreadable. Does nothing if there is none.
    pub fn damage(&self, position: StreamPosition, at: Option<usize>) {
        let state = &mut *self.state.lock();
        let index = position.0.checked_sub(state.removed + 1);
        if let Some(stored) = index.and_then(|index| state.records.get_mut(index as usize)) {
            stored.bytes = at.and_then(|at| damaged(stored.bytes.as_ref()?, at));
        }
    }
}

fn damaged(bytes: &Bytes, at: usize) -> Option<Bytes> {
    let mut bytes = bytes.to_vec();
    let length = bytes.len();
    *bytes.get_mut(at.checked_rem(length)?)? ^= 0x10;
    Some(bytes.into())
}

impl State {
    fn last(&self) -> StreamPosition {
        StreamPosition(self.removed + self.records.len() as u64)
    }

    fn truncate(&mut self, kept: usize) -> usize {
        let lost = self.records.split_off(kept.min(self.records.len()));
        for stored in &lost {
            self.ids.remove(&stored.id);
        }
        lost.len()
    }

    fn push(&mut self, bytes: Option<Bytes>, id: &str, is_acknowledged: bool) -> StreamPosition {
        self.ids.insert(id.to_owned());
        if is_acknowledged {
            // A replica that has this one has those before it.
            self.records
                .iter_mut()
                .for_each(|it| it.is_acknowledged = true);
        }
        self.records.push(Stored {
            bytes,
            id: id.to_owned(),
            is_acknowledged,
        });
        self.last()
    }
}

impl Stream for MemoryStream {
    fn bounds(&self) -> Result<StreamBounds, StreamError> {
        let state = self.state.lock();
        Ok(StreamBounds {
            first: StreamPosition(state.removed + 1),
            last: state.last(),
        })
    }

    fn append(
        &self,
        record: &Bytes,
        id: &str,
        after: StreamPosition,
    ) -> Result<StreamPosition, AppendError> {
        let state = &mut *self.state.lock();
        let fault = state.faults.pop_front().flatten();
        let unknown = || AppendError::Unknown("no answer".to_owned());
        if fault == Some(StreamFault::Lost) {
            return Err(unknown());
        }
        if fault == Some(StreamFault::Full) {
            return Err(AppendError::Full("the test wants it".to_owned()));
        }
        if state.ids.contains(id) || fault == Some(StreamFault::FalseDuplicate) {
            return Err(AppendError::Duplicate);
        }
        if state.last() != after {
            return Err(AppendError::OtherTail);
        }
        let record = Some(record.clone());
        match fault {
            Some(StreamFault::NoAnswer) => {
                state.push(record, id, false);
                Err(unknown())
            }
            Some(StreamFault::AnsweredTwice) => {
                state.push(record, id, true);
                Err(AppendError::OtherTail)
            }
            Some(StreamFault::Damaged(at)) => {
                let record = record.and_then(|bytes| damaged(&bytes, at));
                Ok(state.push(record, id, true))
            }
            Some(StreamFault::Unreadable) => Ok(state.push(None, id, true)),
            _ => Ok(state.push(record, id, true)),
        }
    }

    fn reader(&self, from: StreamPosition) -> Result<Box<dyn StreamReader>, StreamError> {
        Ok(Box::new(MemoryReader {
            stream: self.clone(),
            next: from,
        }))
    }

    fn pause(&self, _: u32) {}
}

#[derive(Debug)]
struct MemoryReader {
    stream: MemoryStream,
    next: StreamPosition,
}

impl StreamReader for MemoryReader {
    fn next(&mut self, _: Duration) -> Result<Option<StreamItem>, StreamError> {
        let state = &mut *self.stream.state.lock();
        let position = self.next.max(StreamPosition(state.removed + 1));
        let index = (position.0 - state.removed - 1) as usize;
        let Some(read) = state.records.get_mut(..=index) else {
            return Ok(None);
        };
        // What a reader has had, a majority has.
        read.iter_mut().for_each(|it| it.is_acknowledged = true);
        let stored = &read[index];
        self.next = position.next();
        Ok(Some(StreamItem {
            first: position,
            position,
            record: stored.bytes.clone(),
        }))
    }
}
