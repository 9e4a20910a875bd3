//! Threads that help builders.

use cambium_crew::Crew;
use std::{convert::Infallible, num::NonZeroUsize, sync::LazyLock};

/// Builders call as many as they are told to have. This many would be a mistake.
const THREADS_MAX: usize = 1024;

static HELPERS: LazyLock<Crew> = LazyLock::new(|| Crew::new("build", THREADS_MAX));

/// Runs `task` on each of `parts` on at most `threads` threads, this one among them. Returns the results in the order of the parts.
pub(crate) fn each<P: Send, T: Send>(
    threads: NonZeroUsize,
    parts: Vec<P>,
    task: impl Fn(P) -> T + Sync,
) -> Vec<T> {
    let results = HELPERS.each(threads.get() - 1, parts, |part| {
        Ok::<_, Infallible>(task(part))
    });
    results.unwrap_or_else(|never| match never {})
}
