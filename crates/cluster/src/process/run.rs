//! How the process of a shard follows a stream.

use super::shard_process::{ProcessError, ShardProcess, Taken};
use crate::replication::{Follower, Stream, StreamError, StreamPosition};
use cambium_primitives::BlockId;
use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// Bytes of records after which the journal is synced although more of them wait.
const SYNC_BYTES: usize = 8 << 20;
/// How long to wait for a record before looking whether to stop.
const WAIT: Duration = Duration::from_millis(200);
/// How long to wait for a record that is there.
const ANSWER: Duration = Duration::from_secs(5);
/// Records after which it is looked whether a snapshot is due.
const RECORDS_BETWEEN: u64 = 64;
/// Pause before what has failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// The outcome of writing a snapshot.
fn written<T>(thread: ScopedJoinHandle<'_, Result<T, ProcessError>>) -> Result<(), ProcessError> {
    let written = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    written.map(drop)
}

impl ShardProcess {
    /// Follows a stream until `stop` is set. What fails is tried again, and is part of the status.
    ///
    /// # Errors
    ///
    /// If the folder can't be written. The process has to be opened again.
    pub fn run(&self, stream: &dyn Stream, stop: &AtomicBool) -> Result<(), ProcessError> {
        thread::scope(|scope| {
            let mut snapshot: Option<thread::ScopedJoinHandle<'_, _>> = None;
            while !stop.load(Ordering::Relaxed) {
                let followed = self.follow_stream(stream, stop, &mut || {
                    if let Some(thread) = snapshot.take_if(|thread| thread.is_finished()) {
                        written(thread)?;
                    }
                    if snapshot.is_none() && self.is_snapshot_due() {
                        snapshot = Some(scope.spawn(|| self.write_snapshot()));
                    }
                    Ok(())
                });
                match followed {
                    Err(ProcessError::Stream(error)) => {
                        self.figures.records.failed();
                        self.figures.records.end.look(stream);
                        self.shown.lock().trouble = error.to_string();
                        thread::sleep(PAUSE);
                    }
                    followed => followed?,
                }
            }
            snapshot.map_or(Ok(()), written)?;
            self.sync()
        })
    }

    fn follow_stream(
        &self,
        stream: &dyn Stream,
        stop: &AtomicBool,
        between: &mut dyn FnMut() -> Result<(), ProcessError>,
    ) -> Result<(), ProcessError> {
        self.look_whether_it_is_the_same(stream)?;
        let position = self.shown.lock().state.position;
        let mut reader = stream.reader(position.next())?;
        let (mut unsynced, mut taken) = (0, 0_u64);
        while !stop.load(Ordering::Relaxed) {
            if self.figures.records.end.look(stream) {
                // A reader waits for positions that others will have.
                return self.sync();
            }
            let wait = if unsynced > 0 { Duration::ZERO } else { WAIT };
            let Some(item) = reader.next(wait)? else {
                if unsynced > 0 {
                    self.sync()?;
                    unsynced = 0;
                }
                between()?;
                continue;
            };
            let started = Instant::now();
            loop {
                match self.take(&item)? {
                    Taken::Judged => break,
                    Taken::Waits(hash) => {
                        self.shown.lock().trouble = format!(
                            "record {} needs block {hash}, which nobody has",
                            item.position
                        );
                    }
                    Taken::Full => {}
                }
                if started.elapsed() > self.options.patience {
                    // What is between has left all journals.
                    let own = self.shard.read().as_ref().map(|shard| shard.stats().newest);
                    let is_ahead =
                        |oldest: BlockId| own.is_none_or(|own| oldest.number > own.number);
                    if self.load_from_peers_if(is_ahead)? {
                        return Ok(());
                    }
                    // If it counts, a later record needs it, and asks for it by hash: there may be room by then.
                    self.pass(&item);
                    break;
                }
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.figures.records.end.look(stream);
                thread::sleep(PAUSE);
            }
            taken += 1;
            if taken % RECORDS_BETWEEN == 0 {
                between()?;
            }
            unsynced += item.record.as_ref().map_or(1, |record| record.len());
            if unsynced > SYNC_BYTES {
                self.sync()?;
                unsynced = 0;
            }
        }
        Ok(())
    }

    /// Goes back if the stream is another one than was read before, or has lost its end.
    fn look_whether_it_is_the_same(&self, stream: &dyn Stream) -> Result<(), ProcessError> {
        let mut following = self.following.lock();
        if let Some(before) = where_it_ends(stream, &following.follower)? {
            let position = following.follower.state().position;
            following.follower.rewind(before);
            self.figures.records.rewound();
            self.show(&following.follower);
            self.shown.lock().trouble =
                format!("the stream is another one behind record {position}: it is read again");
        }
        Ok(())
    }
}

/// Where to begin again, if a stream is another one than the follower has read, or has lost its end.
pub(super) fn where_it_ends(
    stream: &dyn Stream,
    follower: &Follower,
) -> Result<Option<StreamPosition>, StreamError> {
    let bounds = stream.bounds()?;
    let position = follower.state().position;
    // What was removed from its beginning says nothing.
    if position.0 == 0 || position.next() < bounds.first {
        return Ok(None);
    }
    let record = match position < bounds.first || position > bounds.last {
        true => None,
        false => {
            let item = stream.reader(position)?.next(ANSWER)?;
            let item = item.ok_or_else(|| StreamError {
                what: format!("no answer about record {position}"),
            })?;
            match (item.record, follower.state().tail.is_zero()) {
                // What can't be read was not read before either.
                (None, true) => return Ok(None),
                (record, _) => record,
            }
        }
    };
    let is_before = position.next() == bounds.first && position <= bounds.last;
    let is_same = is_before || follower.is_same_stream(record.as_ref().map(|record| &record[..]));
    Ok((!is_same).then_some(StreamPosition(bounds.first.0.saturating_sub(1))))
}
