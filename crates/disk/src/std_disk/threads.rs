//! Batches of reads by threads, the method that works on every system.
//!
//! A thread reads into memory of the batch, never into the caller's memory, so no unsafe code is
//! needed to extend lifetimes.

use super::file::StdFile;
use crate::ReadRequest;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Maximum number of threads of one disk.
const THREADS_MAX: usize = 32;
/// Maximum number of reads whose bytes are held in memory at once.
const BATCH_READS_MAX: usize = 1024;

/// Threads that read. They are started on demand, and end when this value is dropped.
#[derive(Debug, Default)]
pub(super) struct Threads {
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Arc<Batch>>,
    threads: usize,
    closed: bool,
}

#[derive(Debug)]
struct Batch {
    reads: Vec<Read>,
    /// Index of the first read that no thread has started.
    next: AtomicUsize,
    unfinished: Mutex<usize>,
    finished: Condvar,
}

#[derive(Debug)]
struct Read {
    file: StdFile,
    offset: u64,
    len: usize,
    outcome: OnceLock<io::Result<Vec<u8>>>,
}

impl Threads {
    /// Executes `requests`, each on the file beside it, without counting them.
    pub(super) fn read(&self, requests: &mut [(&StdFile, &mut ReadRequest<'_>)]) {
        if let [(file, request)] = requests {
            let read = file.read_uncounted(request.buf, request.offset);
            request.outcome = read.map_err(file.error_at("read", request.offset));
            return;
        }
        for requests in requests.chunks_mut(BATCH_READS_MAX) {
            self.read_together(requests);
        }
    }

    fn read_together(&self, requests: &mut [(&StdFile, &mut ReadRequest<'_>)]) {
        let reads = requests.iter().map(|(file, request)| Read {
            file: (*file).clone(),
            offset: request.offset,
            len: request.buf.len(),
            outcome: OnceLock::new(),
        });
        let batch = Arc::new(Batch {
            reads: reads.collect(),
            next: AtomicUsize::new(0),
            unfinished: Mutex::new(requests.len()),
            finished: Condvar::new(),
        });
        self.offer(&batch);
        batch.work();
        // The threads do this too, but there may be none.
        let is_other = |other: &Arc<Batch>| !Arc::ptr_eq(other, &batch);
        self.queue.state().batches.retain(is_other);
        batch.wait();
        for (read, (file, request)) in batch.reads.iter().zip(requests) {
            let outcome = read.outcome.get().expect("all reads are over");
            request.outcome = match outcome {
                Ok(bytes) => {
                    request.buf.copy_from_slice(bytes);
                    Ok(())
                }
                // An error can't be cloned, so the read is repeated for an error of its own.
                Err(_) => file
                    .read_uncounted(request.buf, request.offset)
                    .map_err(file.error_at("read", request.offset)),
            };
        }
    }

    /// Offers a batch to the threads, after starting as many as it can use.
    fn offer(&self, batch: &Arc<Batch>) {
        let mut state = self.queue.state();
        let useful = batch.reads.len() - 1; // The caller makes one read itself.
        while state.threads < useful.min(THREADS_MAX) {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new()
                .name("disk-read".into())
                .stack_size(256 << 10);
            if thread.spawn(move || queue.serve()).is_err() {
                break; // Fewer threads, or the caller alone, come to the same end.
            }
            state.threads += 1;
        }
        state.batches.push_back(Arc::clone(batch));
        drop(state);
        for _ in 0..useful.min(THREADS_MAX) {
            self.queue.work.notify_one();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.state().closed = true;
        self.queue.work.notify_all();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Main loop of a thread.
    fn serve(&self) {
        let mut state = self.state();
        while !state.closed {
            let Some(batch) = state.batches.front().cloned() else {
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if batch.is_begun() {
                state.batches.pop_front();
                continue;
            }
            drop(state);
            batch.work();
            state = self.state();
        }
    }
}

impl Batch {
    /// Whether all reads have been started.
    fn is_begun(&self) -> bool {
        self.next.load(Relaxed) >= self.reads.len()
    }

    /// Executes reads until all have been started.
    fn work(&self) {
        let mut done = 0;
        while let Some(read) = self.reads.get(self.next.fetch_add(1, Relaxed)) {
            let mut bytes = vec![0; read.len];
            let outcome = read.file.read_uncounted(&mut bytes, read.offset);
            let set = read.outcome.set(outcome.map(|()| bytes));
            assert!(set.is_ok(), "each read is begun once");
            done += 1;
        }
        let mut unfinished = self
            .unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *unfinished -= done;
        if *unfinished == 0 {
            self.finished.notify_all();
        }
    }

    fn wait(&self) {
        let mut unfinished = self
            .unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while *unfinished > 0 {
            unfinished = self
                .finished
                .wait(unfinished)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
