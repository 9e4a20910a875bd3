//! Division of work on the tries over threads: by leaves, at the boundaries of shards.

use cambium_snapshot::{DirtyShard, StateError, pool};
use rayon::prelude::*;

/// Portions for each thread, if there is enough work: a thread that is late leaves the rest of its
/// portions to others.
const PORTIONS_PER_THREAD: usize = 4;
/// Fewest leaves of a portion.
pub(crate) const PORTION_LEAVES_MIN: usize = 64;

/// Adjacent shards, and the part of sorted items that belongs to them.
pub(crate) struct Portion<'s, 'i, T> {
    /// Number of the first shard.
    pub(crate) first: usize,
    pub(crate) shards: &'s mut [DirtyShard],
    pub(crate) items: &'i [T],
}

/// Number of portions for `items` items that have `leaves` leaves together.
pub(crate) fn count(items: usize, leaves: impl FnOnce() -> usize) -> usize {
    let most = PORTIONS_PER_THREAD * pool::threads();
    let leaves = match items {
        items if items >= most * PORTION_LEAVES_MIN => items,
        _ => leaves(),
    };
    (leaves / PORTION_LEAVES_MIN).clamp(1, most)
}

/// Divides items, sorted by `shard`, into at most `count` portions of about as many items. Leaves out
/// shards without items.
pub(crate) fn divide<'s, 'i, T>(
    mut shards: &'s mut [DirtyShard],
    items: &'i [T],
    count: usize,
    shard: impl Fn(&T) -> usize,
) -> Vec<Portion<'s, 'i, T>> {
    let mut portions = Vec::with_capacity(count);
    let (mut rest, mut passed) = (items, 0);
    let len = items.len().div_ceil(count);
    while let Some(first) = rest.first() {
        let (first, len) = (shard(first), len.min(rest.len()));
        let last = shard(&rest[len - 1]);
        let len = len + rest[len..].partition_point(|item| shard(item) <= last);
        let (own, others) = shards[first - passed..].split_at_mut(last + 1 - first);
        let (items, later) = rest.split_at(len);
        portions.push(Portion {
            first,
            shards: own,
            items,
        });
        (shards, passed, rest) = (others, last + 1, later);
    }
    portions
}

/// Threads that share work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workers {
    /// As many as processors.
    Computing,
    /// More, since they may wait for the disk.
    Reading,
}

/// Runs `task` on each of `parts`, on this thread if there is only one. Returns the results in the
/// order of the parts, or one of the errors.
pub(crate) fn on_threads<P: Send, T: Send>(
    workers: Workers,
    parts: Vec<P>,
    task: impl Fn(P) -> Result<T, StateError> + Send + Sync,
) -> Result<Vec<T>, StateError> {
    if parts.len() <= 1 {
        return parts.into_iter().map(task).collect();
    }
    let run = || {
        let parts = parts.into_par_iter().with_max_len(1);
        parts.map(task).collect()
    };
    match workers {
        Workers::Computing => pool::install(run),
        Workers::Reading => pool::install_readers(run),
    }
}
