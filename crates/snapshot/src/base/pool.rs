//! The engine's own threads: crews for what blocks wait for, one for state roots and one for
//! reads, and pools of rayon's for the rest: one for sorting and checks, one at low priority for merges. Another thread
//! drops large values.
//!
//! The engine holds its locks while it waits for parallel work. In a pool shared with the embedding
//! program, a waiting thread could steal the program's jobs, which may take the same locks.

use super::error::StateError;
use cambium_crew::Crew;
use cambium_trie::{HashJob, Spread};
use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};
use std::{
    cell::Cell,
    sync::{
        LazyLock,
        mpsc::{self, Sender},
    },
    thread,
};

/// Threads for sorting and for checks: as many as processors.
static POOL: LazyLock<ThreadPool> = LazyLock::new(|| {
    let named = |index| format!("cambium-pool-{index}");
    let pool = ThreadPoolBuilder::new().thread_name(named).build();
    pool.expect("the system gives threads to the engine's pool")
});

/// Threads for merges, at low priority, so that computing a root never waits for a merge. There are
/// as many as processors, since they often wait for the disk.
static BACKGROUND: LazyLock<ThreadPool> = LazyLock::new(|| {
    let pool = ThreadPoolBuilder::new()
        .num_threads(POOL.current_num_threads())
        .thread_name(|index| format!("cambium-merge-{index}"))
        .start_handler(|_| {
            lower_priority();
            IN_BACKGROUND.set(true);
        });
    pool.build()
        .expect("the system gives threads to the engine's pool")
});

/// Niceness of merge threads. Next to a thread that computes a root, one gets a quarter of a
/// processor. At a higher value, merges become so slow that sealing waits for them.
const NICENESS: i32 = 5;

/// Helpers for state roots, one fewer than processors, and for reads, one fewer than twice as many.
static CREWS: LazyLock<[Crew; 2]> = LazyLock::new(|| {
    [
        Crew::new("state", Workers::Computing.threads() - 1),
        Crew::new("read", Workers::Reading.threads() - 1),
    ]
});

/// Threads that share work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// As many as processors.
    Computing,
    /// Twice as many, since they may wait for the disk.
    Reading,
}

impl Workers {
    /// Number of threads, the one that shares its work included.
    pub fn threads(self) -> usize {
        match self {
            Self::Computing => threads(),
            Self::Reading => 2 * threads(),
        }
    }
}

/// Runs `task` on each of `parts`, this thread among those that take them, and on this thread alone if there is
/// only one. Within [`in_background`], and in the pool for merges, it runs in that pool. Returns the results in
/// the order of the parts.
///
/// # Errors
///
/// One of the errors of `task`. No further part is taken after it.
pub fn on_threads<P: Send, T: Send>(
    workers: Workers,
    parts: Vec<P>,
    task: impl Fn(P) -> Result<T, StateError> + Send + Sync,
) -> Result<Vec<T>, StateError> {
    if parts.len() > 1 && (IN_BACKGROUND.get() || IS_LOWERED.get()) {
        // A thread of low priority takes no part of what blocks wait for.
        let run = || {
            let parts = parts.into_par_iter().with_max_len(1);
            parts.map(task).collect()
        };
        return install(run);
    }
    CREWS[workers as usize].each(workers.threads() - 1, parts, task)
}

thread_local! {
    /// Whether the thread leaves parallel work to the pool for merges, whichever pool it asks for.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };

    /// Whether the thread has a low priority.
    static IS_LOWERED: Cell<bool> = const { Cell::new(false) };
}

/// Channel to the thread that drops large values.
static DROPPER: LazyLock<Sender<Box<dyn Send>>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel();
    let run = || {
        lower_priority();
        receiver.into_iter().for_each(drop)
    };
    let thread = thread::Builder::new().name("cambium-drop".to_owned());
    // If the thread can't be started, the channel is closed, and senders drop values themselves.
    let _ = thread.spawn(run);
    sender
});

/// Drops `value` on a background thread of low priority. Use it for values that take milliseconds
/// to free.
pub fn drop_later(value: impl Send + 'static) {
    let _ = DROPPER.send(Box::new(value));
}

/// Starts the threads that blocks wait for, with the priority of the calling one. If a merge did it, they would have its
/// low priority ever after.
pub fn start() {
    LazyLock::force(&POOL);
    CREWS.iter().for_each(Crew::start);
}

/// Lowers the priority of the calling thread. Does nothing on other systems than Linux.
pub fn lower_priority() {
    IS_LOWERED.set(true);
    #[cfg(target_os = "linux")]
    // If the system refuses, the thread keeps the normal priority.
    let _ = rustix::process::nice(NICENESS);
}

/// Runs `work` in the engine's pool: rayon jobs that it spawns run there. Within [`in_background`], and in
/// the pool for merges, it runs in that pool.
pub fn install<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let pool = match IN_BACKGROUND.get() {
        true => &BACKGROUND,
        false => &POOL,
    };
    install_on(pool, work)
}

/// Runs `work` on this thread, with all parallel work in the pool for merges: blocks that need the
/// other pools never wait for it there.
pub fn in_background<T>(work: impl FnOnce() -> T) -> T {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            IN_BACKGROUND.set(self.0);
        }
    }
    let _reset = Reset(IN_BACKGROUND.replace(true));
    work()
}

/// Runs `work` in the pool for merges, at low priority: rayon jobs that it spawns run there.
pub fn install_in_background<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    install_on(&BACKGROUND, work)
}

fn install_on<T: Send>(pool: &ThreadPool, work: impl FnOnce() -> T + Send) -> T {
    let foreign = rayon::current_thread_index().is_some() && pool.current_thread_index().is_none();
    if !foreign {
        return pool.install(work);
    }
    // A thread of another pool would steal that pool's jobs while it waits here, and recurse
    // without bound. A new thread waits in its place.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.install(work));
        waiting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Number of threads for what blocks wait for: that of processors, or what `RAYON_NUM_THREADS` says.
pub fn threads() -> usize {
    POOL.current_num_threads()
}

/// The crew for state roots as a [`Spread`], for hashing one large trie in parallel.
pub struct Threads;

impl Spread for Threads {
    fn threads(&self) -> usize {
        threads()
    }

    fn run(&self, jobs: &mut [HashJob<'_>]) {
        let jobs = jobs.iter_mut().collect();
        let run = |job: &mut HashJob<'_>| {
            job.run();
            Ok(())
        };
        on_threads(Workers::Computing, jobs, run).expect("hashing does not fail");
    }
}
