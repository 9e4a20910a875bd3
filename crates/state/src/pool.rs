//! The engine's own threads for work that splits.
//!
//! The engine waits for such work while it holds its locks. On a pool shared with its callers, a
//! thread that waits would be given their work meanwhile, which may want the same locks.

use rayon::{ThreadPool, ThreadPoolBuilder};
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
