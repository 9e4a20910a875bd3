//! Division of work on the tries over threads, at the boundaries of shards. The number of portions follows the leaves.

use cambium_snapshot::{DirtyShard, pool::Workers};

/// Portions for each thread, if there is enough work: a thread that is late leaves its second portion
/// to others. With more, 16 threads hash smaller batches, in more processor time.
const PORTIONS_PER_THREAD: usize = 2;
/// Fewest leaves of a portion that is changed and hashed. They take 0.5 ms (AVX2): many times what it takes to
/// wake a thread.
pub(crate) const PORTION_LEAVES_MIN: usize = 128;
/// Number of portions for `items` items that have `leaves` leaves together, each of at least `leaves_min`.
pub(crate) fn count(
    workers: Workers,
    items: usize,
    leaves: impl FnOnce() -> usize,
    leaves_min: usize,
) -> usize {
    let most = PORTIONS_PER_THREAD * workers.threads();
    let leaves = match items {
        items if items >= most * leaves_min => items,
        _ => leaves(),
    };
    (leaves / leaves_min).clamp(1, most)
}

/// Adjacent shards, and the part of sorted items that belongs to them.
pub(crate) struct Portion<'s, 'i, T> {
    /// Number of the first shard.
    pub(crate) first: usize,
    pub(crate) shards: &'s mut [DirtyShard],
    pub(crate) items: &'i [T],
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

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_snapshot::shard_prefix;
    use cambium_trie::{PartialTrie, SHARDS};

    #[test]
    fn portions_have_all_items_each_with_its_shard() {
        let shard = |number| DirtyShard::new(PartialTrie::new(shard_prefix(number)));
        let mut shards: Vec<_> = (0..SHARDS).map(shard).collect();
        let mut seed = 1_u64;
        for round in 0..200 {
            let mut items: Vec<usize> = (0..round * 3)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Half of them are in few shards.
                    let random = (seed >> 33) as usize;
                    random / 2 % if random.is_multiple_of(2) { SHARDS } else { 3 }
                })
                .collect();
            items.sort_unstable();
            let count = 1 + round % 70;
            let portions = divide(&mut shards, &items, count, |item| *item);
            assert!(portions.len() <= count);
            let mut passed = 0;
            for portion in portions {
                let Portion {
                    first,
                    shards,
                    items: own,
                } = portion;
                assert!(own.len() >= items.len().div_ceil(count) || own.last() == items.last());
                assert_eq!(own, &items[passed..passed + own.len()]);
                passed += own.len();
                for item in own {
                    assert_eq!(shards[item - first].trie.base(), &shard_prefix(*item));
                }
            }
            assert_eq!(passed, items.len());
        }
    }
}
