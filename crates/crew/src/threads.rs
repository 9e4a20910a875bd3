//! How many threads to work on.

use std::{num::NonZeroUsize, sync::LazyLock, thread};

static THREADS: LazyLock<usize> = LazyLock::new(|| {
    let told = std::env::var("RAYON_NUM_THREADS");
    let told = told.ok().and_then(|told| told.parse().ok());
    told.or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get)
});

/// Number of threads for work that keeps processors busy, the thread that shares it included: what the variable
/// `RAYON_NUM_THREADS` says, as for rayon's pools, or else as many as processors.
pub fn threads() -> usize {
    *THREADS
}
