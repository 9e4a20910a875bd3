//! Division of `--memory` between the engine and what follows its chain.
//!
//! ```text
//!   | engine: what is left | history | index | preimages |
//! ```
//!
//! Each share is computed from the whole, so that none depends on which others there are, and every one of them is
//! enough to work with, however little the whole is.

use super::args::database::{DbArgs, WriteArgs};
use cambium::{HistoryOptions, IndexOptions, db::follower_bytes};

/// Followers of a chain while a command writes to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Followers {
    pub(crate) history: bool,
    pub(crate) index: bool,
    pub(crate) preimages: bool,
}

/// Options of the history of a database.
pub(crate) fn of_history(args: &DbArgs) -> HistoryOptions {
    HistoryOptions::beside(args.memory)
}

/// Options of the index of a database.
pub(crate) fn of_index(args: &DbArgs) -> IndexOptions {
    IndexOptions {
        memory_bytes: follower_bytes(args.memory),
        ..IndexOptions::default()
    }
}

impl Followers {
    /// The arguments for the database: with the memory that the followers leave.
    pub(crate) fn beside(self, mut args: WriteArgs) -> WriteArgs {
        args.db.memory = self.left_of(args.db.memory);
        args
    }

    fn left_of(self, memory: u64) -> u64 {
        let one = follower_bytes(memory);
        let shares = [
            (self.history, HistoryOptions::beside(memory).budget_bytes()),
            (self.index, one),
            (self.preimages, one),
        ];
        let taken = shares.iter().filter(|(is_there, _)| *is_there);
        memory.saturating_sub(taken.map(|(_, bytes)| bytes).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::numbers::MEMORY_BYTES_MIN;

    #[test]
    fn the_engine_has_most_of_any_memory() {
        let all = Followers {
            history: true,
            index: true,
            preimages: true,
        };
        for memory in [MEMORY_BYTES_MIN, 1_500_000, 2 << 20, 1 << 30, 1 << 40] {
            let left = all.left_of(memory);
            assert!(left > memory * 7 / 10 && left < memory, "{memory}: {left}");
            assert_eq!(Followers::default().left_of(memory), memory);
        }
    }
}
