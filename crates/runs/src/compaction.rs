//! Which neighbouring runs become one.

use std::ops::Range;

/// Neighbours are merged when they have this many times the entries of the largest beside it.
const MERGE_RATIO: u64 = 3;
/// Largest sum of the files that are merged, in bytes.
const MERGED_BYTES_MAX: u64 = 1 << 40;

/// The size of a run in a file.
#[derive(Clone, Copy, Debug)]
pub struct RunSize {
    /// Number of entries.
    pub entries: u64,
    /// Size of its file.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// The runs to merge: of all neighbours the largest of which has at most a quarter of their entries,
/// those with the fewest entries. So each entry is written about as often as there are powers of four
/// between a new run and the whole, whether runs are added above or below.
#[must_use]
pub fn due_for_merge(sizes: &[RunSize], blocks_max: u64) -> Option<Range<usize>> {
    let mut due: Option<(u64, Range<usize>)> = None;
    for from in 0..sizes.len() {
        let (mut entries, mut largest, mut bytes, mut blocks) = (0, 0, 0, 0);
        for (at, size) in sizes.iter().enumerate().skip(from) {
            entries += size.entries;
            largest = largest.max(size.entries);
            bytes += size.bytes;
            blocks += size.blocks;
            if bytes > MERGED_BYTES_MAX || blocks > blocks_max {
                break;
            }
            if at > from && entries >= (MERGE_RATIO + 1) * largest {
                if due.as_ref().is_none_or(|(least, _)| entries < *least) {
                    due = Some((entries, from..at + 1));
                }
                break;
            }
        }
    }
    due.map(|(_, range)| range)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds runs of one entry, above or below, merges what is due, and returns the entries that were
    /// written for each.
    fn written_for_each(added: u64, below: bool, blocks_max: u64) -> (u64, usize) {
        let size = |entries| RunSize {
            entries,
            bytes: entries,
            blocks: entries,
        };
        let (mut sizes, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..added {
            let at = if below { 0 } else { sizes.len() };
            sizes.insert(at, size(1));
            while let Some(range) = due_for_merge(&sizes, blocks_max) {
                let entries = sizes[range.clone()].iter().map(|size| size.entries).sum();
                written += entries;
                sizes.splice(range, [size(entries)]);
            }
            most = most.max(sizes.len());
        }
        assert!(sizes.iter().all(|size| size.blocks <= blocks_max));
        (written / added, most)
    }

    #[test]
    fn an_entry_is_written_once_for_each_power_of_four() {
        for below in [false, true] {
            let (written, most) = written_for_each(4_096, below, u64::MAX);
            assert_eq!(written, 6);
            assert!(most <= 3 * 6 + 1, "{most} runs");
            let (written, most) = written_for_each(4_096, below, 64);
            assert_eq!(written, 3);
            assert!(most <= 64 + 9, "{most} runs");
        }
    }
}
