//! The engine's own threads for work that splits.
//!
//! The engine waits for such work while it holds its locks. On a pool shared with its callers, a
//! thread that waits would be given their work meanwhile, which may want the same locks.

use cambium_trie::{HashJob, Spread};
use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};
use std::sync::LazyLock;

static POOL: LazyLock<ThreadPool> = LazyLock::new(|| {
    let named = |index| format!("cambium-state-{index}");
    let pool = ThreadPoolBuilder::new().thread_name(named).build();
    pool.expect("the system gives threads to the engine's pool")
});

/// Runs `work`, whose parallel parts run on the engine's threads.
pub(crate) fn install<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let foreign = rayon::current_thread_index().is_some() && POOL.current_thread_index().is_none();
    if !foreign {
        return POOL.install(work);
    }
    // A thread of another pool would be given other work while it waits here, and so on without
    // end. A thread of its own waits in its place.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| POOL.install(work));
        waiting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Number of the engine's threads.
pub(crate) fn threads() -> usize {
    POOL.current_num_threads()
}

/// The engine's threads, for hashing what has changed in one large trie.
pub(crate) struct Threads;

impl Spread for Threads {
    fn threads(&self) -> usize {
        threads()
    }

    fn run(&self, jobs: &mut [HashJob<'_>]) {
        install(|| jobs.par_iter_mut().for_each(HashJob::run));
    }
}
