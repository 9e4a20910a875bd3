//! What a batch of uniformly random accounts costs, from the sizes of things.
//!
//! ```text
//!   keys ---> accounts a page ---> pages, index ---> memory that is left: layers, cached pages
//!                                                     |                        |
//!                        changes a merge <------------+                        +--> device reads a batch
//!                              |
//!                 pages written, moved, checkpoint, log: bytes a change
//! ```

use super::{
    figures::{Figures, Load, Machine},
    runs::Run,
};
use cambium_snapshot::{Budget, IndexMemory, MemoryInUse, split_above_bytes};
use serde::Serialize;

/// Dead bytes for each live byte of pages at which cleaning keeps up with changes.
const DEAD_TOLERATED: f64 = 1.5;
/// Bytes of an account's key and value, of which pages are divided by.
const LEAF_BYTES: f64 = 44.0;
/// Share of the memory up to which the index has room: two thirds of what it may take unless an option says otherwise.
const ROOM_SHARE: f64 = 2.0 / 9.0;
/// Memory of a cached page besides its own bytes: what it is parsed to, and the tables of the cache.
const CACHED_PAGE_BYTES: f64 = 216.0;
/// Processor time for reading a page, in microseconds, of any size: 16 Mi accounts with 1 and 3 GiB, 0.86 and 0.28 reads.
const READ_US: f64 = 8.0;
/// Processor time for what does not depend on pages, in microseconds: 1 Mi accounts in memory.
const CHANGE_US: f64 = 3.0;

/// Costs of one thing each, which do not depend on the size of the state: from the counters of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Costs {
    /// Bytes of a page for each account in it.
    page_bytes_an_account: f64,
    /// Bytes of index for each page.
    index_bytes_a_page: f64,
    /// Bytes of log for each change.
    log_bytes_a_change: f64,
    /// Bytes of checkpoints for each page that a merge has written.
    checkpoint_bytes_a_page: f64,
    /// Bytes of layers for each change that waits for a merge, its page not included.
    layer_bytes_a_change: f64,
    /// Nodes hashed for each change, besides those above pages that the change shares with others.
    hashes_a_change: f64,
    /// Processor time for each changed page, reading it and what [`CHANGE_US`] has apart, in microseconds.
    processor_us_a_page: f64,
    /// Time of all cores for each change between the last read and the durable commit, in microseconds.
    commit_us_a_change: f64,
}

/// How many of `places` equally likely ones `draws` of them meet.
fn distinct(places: f64, draws: f64) -> f64 {
    places * -(-draws / places).exp_m1()
}

/// Nodes above pages that are hashed for `changes` of a state whose pages are at a depth.
fn hashes_above(changes: f64, depth: i32) -> f64 {
    let nodes = (0..=depth).map(|level| 16f64.powi(level));
    nodes.map(|nodes| distinct(nodes, changes)).sum()
}

/// Bytes that cleaning moves for each byte of new pages, with random changes: segments with the fewest live bytes are cleaned,
/// and hold a share `s` of them when they are, with (s - 1) / ln s = the share of live bytes in all.
fn moved_share() -> f64 {
    let live = 1.0 / (1.0 + DEAD_TOLERATED);
    let (mut low, mut high) = (1e-9, live);
    for _ in 0..100 {
        let middle: f64 = (low + high) / 2.0;
        if (middle - 1.0) / middle.ln() < live {
            low = middle;
        } else {
            high = middle;
        }
    }
    low / (1.0 - low)
}

/// How keys are divided into pages, in the long run: into small ones as long as the index has room, into large ones beyond.
#[derive(Clone, Copy, Debug)]
struct Pages {
    /// Number of all pages.
    count: f64,
    /// Keys of the page that a key is in, on average.
    keys_a_changed_page: f64,
}

impl Pages {
    fn of(keys: f64, memory_bytes: f64, index_bytes_a_page: f64) -> Self {
        // While the index has room, and without.
        let split_above = [
            split_above_bytes(0, u64::MAX),
            split_above_bytes(u64::MAX, 0),
        ];
        let [small, large] = split_above.map(|split_above| {
            let mut subtrie = keys;
            while subtrie * LEAF_BYTES > split_above as f64 {
                subtrie /= 16.0;
            }
            subtrie
        });
        let (most, least) = (keys / small, keys / large);
        let room = memory_bytes * ROOM_SHARE / index_bytes_a_page;
        let count = room.clamp(least, most);
        let share_small = match most > least {
            true => (count - least) / (most - least),
            false => 1.0,
        };
        Self {
            count,
            keys_a_changed_page: share_small * small + (1.0 - share_small) * large,
        }
    }
}

/// The budget of a machine once the index has its share.
fn budget(machine: &Machine, index_bytes: f64) -> Budget {
    let index = IndexMemory {
        held: index_bytes as u64,
        replaced_max: index_bytes as u64,
    };
    let taken = MemoryInUse {
        index,
        ..MemoryInUse::default()
    };
    Budget::new(machine.memory_bytes as u64, taken)
}

impl Costs {
    /// Takes the costs from the counters of a run.
    pub(super) fn of(run: &Run) -> Self {
        let measured = run.figures();
        let accounts_a_page = measured.accounts_a_page;
        let page_bytes = run.page_bytes / run.pages;
        let index_bytes_a_page = run.index_bytes / run.pages;
        let layer_bytes = budget(&run.machine, run.index_bytes).layer_bytes as f64;
        let depth = depth_of(run.load.keys, accounts_a_page);
        let above = hashes_above(run.load.changes, depth) / run.load.changes;
        let pages_us =
            measured.processor_us_a_change - CHANGE_US - READ_US * measured.reads_a_change;
        Self {
            page_bytes_an_account: page_bytes / accounts_a_page,
            index_bytes_a_page,
            log_bytes_a_change: run.log_bytes / run.changes,
            checkpoint_bytes_a_page: run.checkpoint_bytes / run.pages_changed,
            layer_bytes_a_change: (layer_bytes / 2.0 / (run.changes / run.merges) - page_bytes)
                .max(0.0),
            hashes_a_change: measured.hashes_a_change - above,
            processor_us_a_page: pages_us.max(0.0) * run.changes / run.pages_changed,
            commit_us_a_change: 1e3 * run.commit_ms * run.machine.cores / run.load.changes,
        }
    }

    /// Predicts what a batch costs.
    pub(super) fn predict(&self, load: &Load, machine: &Machine) -> Figures {
        let divided = Pages::of(load.keys, machine.memory_bytes, self.index_bytes_a_page);
        let pages = divided.count;
        let accounts_a_page = load.keys / pages;
        let page_bytes = self.page_bytes_an_account * divided.keys_a_changed_page;
        let all_bytes = load.keys * self.page_bytes_an_account + pages * CACHED_PAGE_BYTES;
        let index_bytes = self.index_bytes_a_page * pages;
        let budget = budget(machine, index_bytes);
        let cached_share = (budget.cache_bytes as f64 / all_bytes).min(1.0);
        let reads = distinct(pages, load.changes) * (1.0 - cached_share);
        // Merges take half of what layers hold, and a whole batch at least.
        let held = budget.layer_bytes as f64 / (self.layer_bytes_a_change + page_bytes);
        let merged = (held / 2.0).max(load.changes);
        let pages_changed = distinct(pages, merged) / merged;
        let bytes_written = self.log_bytes_a_change
            + pages_changed * (page_bytes * (1.0 + moved_share()) + self.checkpoint_bytes_a_page);
        let above = hashes_above(load.changes, depth_of(load.keys, accounts_a_page));
        let reads_a_change = reads / load.changes;
        let processor_us =
            CHANGE_US + READ_US * reads_a_change + self.processor_us_a_page * pages_changed;
        let reading_ms = 1e3 * reads / machine.reads_per_second;
        let commit_ms = self.commit_us_a_change * load.changes / machine.cores / 1e3;
        let processing_ms = processor_us * load.changes / machine.cores / 1e3;
        Figures {
            accounts_a_page,
            index_bytes,
            cached_share,
            reads_a_change,
            bytes_written_a_change: bytes_written,
            hashes_a_change: self.hashes_a_change + above / load.changes,
            processor_us_a_change: processor_us,
            batch_ms: (reading_ms + commit_ms).max(processing_ms),
        }
    }
}

/// The depth at which pages of so many accounts are.
fn depth_of(keys: f64, accounts_a_page: f64) -> i32 {
    (keys / accounts_a_page).log(16.0).round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_bytes_follow_from_the_dead_space_that_is_tolerated() {
        let share = moved_share();
        assert!((0.1..0.14).contains(&share), "{share}");
    }

    #[test]
    fn pages_are_as_large_as_the_memory_wants_them() {
        let pages = |keys: u64, gib: f64| Pages::of(keys as f64, gib * f64::from(1 << 30), 45.0);
        let accounts = |keys: u64, gib: f64| (keys as f64 / pages(keys, gib).count).round() as u64;
        assert_eq!(accounts(1 << 20, 1.0), 16);
        assert_eq!(accounts(1 << 22, 1.0), 4);
        assert_eq!(accounts(1 << 24, 1.0), 16);
        // Some of the pages are small.
        assert_eq!(accounts(1 << 26, 1.0), 13);
        let mixed = pages(1 << 26, 1.0).keys_a_changed_page;
        assert!((40.0..50.0).contains(&mixed), "{mixed}");
        assert_eq!(accounts(1 << 26, 4.0), 4);
        assert_eq!(accounts(1 << 27, 4.0), 8);
    }

    #[test]
    fn few_draws_meet_as_many_places_and_many_draws_all() {
        assert!((distinct(1e9, 100.0) - 100.0).abs() < 0.01);
        assert!((distinct(100.0, 1e6) - 100.0).abs() < 1e-9);
        assert!((distinct(1000.0, 1000.0) - 632.12).abs() < 0.01);
    }
}
