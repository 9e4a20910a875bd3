//! A queue of reads that are late and in any order.

use super::chance::Random;
use crate::{FinishedRead, QueuedRead, ReadQueue};

/// Limit of the polls that a read is late by (exclusive).
const POLLS_END: u64 = 4;

pub(super) struct FaultyQueue {
    random: Random,
    /// In the order in which those that are ready at once are handed out.
    late: Vec<Late>,
}

struct Late {
    read: Progress,
    /// Number of polls before the one that hands out the read.
    polls: u64,
}

/// A device may execute a read at any time between its submission and its end.
enum Progress {
    Waiting(QueuedRead),
    Executed(FinishedRead),
}

impl FaultyQueue {
    pub(super) fn new(random: Random) -> Self {
        Self {
            random,
            late: Vec::new(),
        }
    }
}

impl ReadQueue for FaultyQueue {
    fn submit(&mut self, read: QueuedRead) {
        let at = self.random.below(self.late.len() as u64 + 1) as usize;
        let polls = self.random.below(POLLS_END);
        let read = match self.random.below(2) {
            0 => Progress::Waiting(read),
            _ => Progress::Executed(read.execute()),
        };
        self.late.insert(at, Late { read, polls });
    }

    fn in_flight(&self) -> usize {
        self.late.len()
    }

    fn poll(&mut self, wait: bool, finished: &mut Vec<FinishedRead>) {
        let earliest = self.late.iter().map(|late| late.polls).min();
        let skipped = earliest.filter(|_| wait).unwrap_or(0);
        let ready = self.late.extract_if(.., |late| late.polls <= skipped);
        finished.extend(ready.map(|late| match late.read {
            Progress::Waiting(read) => read.execute(),
            Progress::Executed(read) => read,
        }));
        for late in &mut self.late {
            late.polls -= skipped + 1;
        }
    }
}
