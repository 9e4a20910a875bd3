//! Queued reads by threads: those of a queue without a ring, and those that a ring left undone.

use super::{
    file::StdFile,
    threads::{Job, Threads},
};
use crate::{FinishedRead, QueuedRead};
use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// Reads that the threads of a disk execute for one queue, without counting those of its own files.
pub(super) struct BackgroundReads {
    reads: Arc<Reads>,
    /// The reads again, as the job that is offered for each of them.
    job: Arc<dyn Job>,
    /// Whether there is a thread. Otherwise polls execute the reads.
    has_threads: bool,
}

struct Reads {
    state: Mutex<State>,
    progress: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<QueuedRead>,
    /// Number of reads that a thread executes now.
    begun: usize,
    finished: Vec<FinishedRead>,
}

impl BackgroundReads {
    pub(super) fn new() -> Self {
        let reads = Arc::new(Reads {
            state: Mutex::default(),
            progress: Condvar::new(),
        });
        Self {
            job: reads.clone(),
            reads,
            has_threads: false,
        }
    }

    pub(super) fn submit(&mut self, read: QueuedRead, threads: &Threads) {
        let useful = {
            let mut state = self.reads.state();
            state.waiting.push_back(read);
            state.waiting.len() + state.begun
        };
        self.has_threads = threads.offer(&self.job, 1, useful);
    }

    /// Returns the number of reads that were not handed out.
    pub(super) fn in_flight(&self) -> usize {
        let state = self.reads.state();
        state.waiting.len() + state.begun + state.finished.len()
    }

    /// Appends finished reads to `finished`. With `wait`, returns only with at least one, unless
    /// none is in flight.
    pub(super) fn poll(&self, wait: bool, finished: &mut Vec<FinishedRead>) {
        let mut state = self.reads.state();
        loop {
            if !state.finished.is_empty() {
                finished.append(&mut state.finished);
                return;
            }
            if !state.waiting.is_empty() && (wait || !self.has_threads) {
                drop(state);
                self.reads.run();
                state = self.reads.state();
            } else if wait && state.begun > 0 {
                state = self
                    .reads
                    .progress
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            } else {
                return;
            }
        }
    }
}

impl Drop for BackgroundReads {
    fn drop(&mut self) {
        self.reads.state().waiting.clear();
    }
}

impl Reads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").finish_non_exhaustive()
    }
}

impl Job for Reads {
    /// Executes the next waiting read.
    fn run(&self) {
        let read = {
            let mut state = self.state();
            let Some(read) = state.waiting.pop_front() else {
                return;
            };
            state.begun += 1;
            read
        };
        let read = execute(read);
        let mut state = self.state();
        state.begun -= 1;
        state.finished.push(read);
        self.progress.notify_one();
    }
}

fn execute(mut read: QueuedRead) -> FinishedRead {
    let file = Arc::clone(&read.file);
    match (&*file as &dyn Any).downcast_ref::<StdFile>() {
        Some(file) => {
            let done = file.read_uncounted(&mut read.bytes, read.offset);
            let outcome = done.map_err(file.error_at("read", read.offset));
            read.finish(outcome)
        }
        None => read.execute(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, FaultyDisk};

    #[test]
    fn polls_execute_the_reads_if_no_thread_can_be_started() {
        let file = FaultyDisk::new(1).create("f").unwrap();
        file.write_at(b"012", 0).unwrap();
        let reads = BackgroundReads::new();
        for tag in 0..3 {
            reads.reads.state().waiting.push_back(QueuedRead {
                file: file.clone(),
                offset: tag,
                bytes: vec![0],
                tag,
            });
        }
        let mut finished = Vec::new();
        while reads.in_flight() > 0 {
            let before = finished.len();
            reads.poll(false, &mut finished);
            assert!(finished.len() > before, "no progress");
        }
        let bytes = finished.iter().flat_map(|read| &read.bytes);
        assert!(bytes.eq(b"012"));
    }
}
