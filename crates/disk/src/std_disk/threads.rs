//! Threads that read, and batches of reads by them, the method that works on every system.
//!
//! A thread reads into memory of the batch, never into the caller's memory, so no unsafe code is
//! needed to extend lifetimes.

use super::file::StdFile;
use crate::ReadRequest;
use std::{
    collections::VecDeque,
    fmt, io, ptr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Maximum number of threads of one disk.
const THREADS_MAX: usize = 32;
/// Maximum number of reads whose bytes are held in memory at once.
const BATCH_READS_MAX: usize = 1024;

/// Work for a thread.
pub(super) trait Job: fmt::Debug + Send + Sync {
    /// Does the work, or returns at once if others have done it.
    fn run(&self);
}

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
    /// Offered jobs, in order. A job on which several threads can work is there several times.
    jobs: VecDeque<Arc<dyn Job>>,
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
        let useful = batch.reads.len() - 1; // The caller makes one read itself.
        let job: Arc<dyn Job> = batch.clone();
        self.offer(&job, useful.min(THREADS_MAX), useful);
        batch.run();
        let is_other = |other: &Arc<dyn Job>| !ptr::addr_eq(Arc::as_ptr(other), &*batch);
        self.queue.state().jobs.retain(is_other);
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

    /// Offers a job `times` times, after starting threads until there are `useful` ones or the
    /// maximum. Returns false if there are no threads.
    pub(super) fn offer(&self, job: &Arc<dyn Job>, times: usize, useful: usize) -> bool {
        let mut state = self.queue.state();
        while state.threads < useful.min(THREADS_MAX) {
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new()
                .name("disk-read".into())
                .stack_size(256 << 10);
            if thread.spawn(move || queue.serve()).is_err() {
                break; // Fewer threads, or the caller alone, do the same work.
            }
            state.threads += 1;
        }
        state.jobs.extend((0..times).map(|_| Arc::clone(job)));
        let has_threads = state.threads > 0;
        drop(state);
        for _ in 0..times {
            self.queue.work.notify_one();
        }
        has_threads
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
            let Some(job) = state.jobs.pop_front() else {
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            job.run();
            drop(job);
            state = self.state();
        }
    }
}

impl Job for Batch {
    /// Executes reads until all have been started.
    fn run(&self) {
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
}

impl Batch {
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
