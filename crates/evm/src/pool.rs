//! Threads that transactions run on, kept from one block to the next: starting them anew, each
//! with memory of its own to be had from the system again, takes as long as a small block does.
//!
//! Tasks may wait for others of their block that run already, never for one that has not begun.
//! So blocks may share a pool, however many are executed at once.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// Pools by their number of threads.
static WORKERS: LazyLock<Mutex<BTreeMap<usize, Arc<ThreadPool>>>> = LazyLock::new(Mutex::default);

/// For what puts results in order: it waits for workers, and so is not to be one of them.
static COLLECTORS: LazyLock<ThreadPool> = LazyLock::new(|| started("collect", 1));

/// So many threads to run transactions on.
pub(crate) fn workers(threads: NonZeroUsize) -> Arc<ThreadPool> {
    let mut pools = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = pools
        .entry(threads.get())
        .or_insert_with(|| Arc::new(started("execute", threads.get())));
    pool.clone()
}

/// The thread that puts results in order.
pub(crate) fn collectors() -> &'static ThreadPool {
    &COLLECTORS
}

fn started(what: &'static str, threads: usize) -> ThreadPool {
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |index| format!("cambium-{what}-{index}"));
    pool.build().expect("the system gives threads to executors")
}
