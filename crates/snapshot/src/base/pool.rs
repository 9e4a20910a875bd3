//! The engine's own threads for work that splits.
//!
//! The engine waits for such work while it holds its locks. On a pool shared with its callers, a
//! thread that waits would be given their work meanwhile, which may want the same locks.

use cambium_trie::{HashJob, Spread};
use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};
use std::{
    sync::{
        LazyLock,
        mpsc::{self, Sender},
    },
    thread,
};

static POOL: LazyLock<ThreadPool> = LazyLock::new(|| {
    let named = |index| format!("cambium-state-{index}");
    let pool = ThreadPoolBuilder::new().thread_name(named).build();
    pool.expect("the system gives threads to the engine's pool")
});

/// For merges: threads of their own, since a root must not wait until a merge is through, and of
/// low priority. They wait for the disk for much of the time: as many as there are processors.
static BACKGROUND: LazyLock<ThreadPool> = LazyLock::new(|| {
    let pool = ThreadPoolBuilder::new()
        .num_threads(POOL.current_num_threads())
        .thread_name(|index| format!("cambium-merge-{index}"))
        .start_handler(|_| lower_priority());
    pool.build()
        .expect("the system gives threads to the engine's pool")
});

/// Niceness of threads that merge: beside one that computes a root, one of them gets a quarter of
/// a processor. With more, merges take so long that commits wait for them.
const NICENESS: i32 = 5;

/// For reading: twice as many threads as processors, so that some work on what they have read
/// while others wait for the disk.
static READERS: LazyLock<ThreadPool> = LazyLock::new(|| {
    let pool = ThreadPoolBuilder::new()
        .num_threads(2 * POOL.current_num_threads())
        .thread_name(|index| format!("cambium-read-{index}"));
    pool.build()
        .expect("the system gives threads to the engine's pool")
});

/// Where what takes long to free is freed.
static DROPPER: LazyLock<Sender<Box<dyn Send>>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel();
    let run = || {
        lower_priority();
        receiver.into_iter().for_each(drop)
    };
    let thread = thread::Builder::new().name("cambium-drop".to_owned());
    // Without the thread the channel is closed, and senders get back what they send.
    let _ = thread.spawn(run);
    sender
});

/// Frees `value` on a thread of low priority.
pub fn drop_later(value: impl Send + 'static) {
    let _ = DROPPER.send(Box::new(value));
}

/// Makes the calling thread one that gets what others leave, where the system knows of this.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    // Refused, it merges at the priority of all others.
    let _ = rustix::process::nice(NICENESS);
}

/// Runs `work`, whose parallel parts run on the engine's threads.
pub fn install<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    install_on(&POOL, work)
}

/// Runs `work`, whose parallel parts run on the threads for reading.
pub fn install_readers<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    install_on(&READERS, work)
}

/// Runs `work`, whose parallel parts run on the threads for merging.
pub fn install_in_background<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    install_on(&BACKGROUND, work)
}

fn install_on<T: Send>(pool: &ThreadPool, work: impl FnOnce() -> T + Send) -> T {
    let foreign = rayon::current_thread_index().is_some() && pool.current_thread_index().is_none();
    if !foreign {
        return pool.install(work);
    }
    // A thread of another pool would be given other work while it waits here, and so on without
    // end. A thread of its own waits in its place.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.install(work));
        waiting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Number of the engine's threads.
pub fn threads() -> usize {
    POOL.current_num_threads()
}

/// The engine's threads, for hashing what has changed in one large trie.
pub struct Threads;

impl Spread for Threads {
    fn threads(&self) -> usize {
        threads()
    }

    fn run(&self, jobs: &mut [HashJob<'_>]) {
        install(|| jobs.par_iter_mut().for_each(HashJob::run));
    }
}
