//! Choice between two executors by their speed on the blocks before.

use crate::ExecutorKind;
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Share of the time that may be spent on trying the slower executor.
const SHARE: f64 = 0.01;
/// Number of blocks after which the slower executor is tried again at the earliest and at the latest.
const GAP: (f64, f64) = (10.0, 1000.0);
/// Number of last blocks of which the median counts.
const BLOCKS: usize = 9;

/// Chooses for each block the executor that has been faster on the blocks before. It tries the
/// slower one now and then, the rarer the slower it is, since the blocks of a chain change.
#[derive(Debug, Default)]
pub struct MeasuredChoice(Mutex<Measured>);

#[derive(Debug, Default)]
struct Measured {
    /// Nanoseconds for one gas, of the last blocks by each of [`KINDS`].
    rates: [VecDeque<f64>; 2],
    /// Number of blocks since the slower executor was tried.
    since: u32,
}

/// The executors, in the order in which they are tried first.
const KINDS: [ExecutorKind; 2] = [ExecutorKind::Optimistic, ExecutorKind::Sequential];

impl MeasuredChoice {
    /// The executor for the next block that both can execute.
    pub fn next(&self) -> ExecutorKind {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        KINDS[measured.next()]
    }

    /// Adds the time that a block with this much gas took. Other executors are ignored.
    pub fn add(&self, kind: ExecutorKind, gas: u64, elapsed: Duration) {
        let Some(place) = KINDS.iter().position(|it| *it == kind) else {
            return;
        };
        if gas == 0 {
            return;
        }
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        measured.add(place, elapsed.as_nanos() as f64 / gas as f64);
    }
}

impl Measured {
    fn next(&mut self) -> usize {
        let rates = [0, 1].map(|place| self.rate(place));
        let [Some(first), Some(second)] = rates else {
            return usize::from(rates[0].is_some());
        };
        let faster = usize::from(second < first);
        let loss = first.max(second) / first.min(second) - 1.0;
        let gap = (loss / SHARE).clamp(GAP.0, GAP.1);
        if f64::from(self.since) < gap {
            self.since += 1;
            return faster;
        }
        self.since = 0;
        1 - faster
    }

    fn rate(&self, place: usize) -> Option<f64> {
        let mut rates: Vec<_> = self.rates[place].iter().copied().collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }

    fn add(&mut self, place: usize, rate: f64) {
        let rates = &mut self.rates[place];
        if rates.len() == BLOCKS {
            rates.pop_front();
        }
        rates.push_back(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of blocks by the measured choice, as against always the better executor. The first
    /// block of each executor is left out. `cost`: time of a block by an executor.
    fn loss(blocks: usize, mut cost: impl FnMut(usize) -> [f64; 2]) -> f64 {
        let mut measured = Measured::default();
        let (mut spent, mut each) = (0.0, [0.0; 2]);
        for block in 0..blocks + 2 {
            let costs = cost(block);
            let place = measured.next();
            measured.add(place, costs[place]);
            if block < 2 {
                assert_eq!(place, block, "each is tried once");
                continue;
            }
            spent += costs[place];
            (0..2).for_each(|place| each[place] += costs[place]);
        }
        spent / each[0].min(each[1]) - 1.0
    }

    #[test]
    fn it_is_as_fast_as_the_better_one() {
        for ratio in [0.1, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0] {
            let lost = loss(100, |_| [ratio, 1.0]);
            assert!(lost < 0.03, "{lost} at {ratio}");
        }
    }

    #[test]
    fn blocks_that_differ_do_not_mislead_it() {
        // Costs of blocks between a half and one and a half.
        let mut random = 1_u64;
        let mut size = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            0.5 + (random >> 40) as f64 / (1_u64 << 24) as f64
        };
        for ratio in [0.3, 0.7, 1.4, 3.0] {
            let losses: Vec<_> = (0..40)
                .map(|_| {
                    loss(100, |_| {
                        let size = size();
                        [ratio * size, size]
                    })
                })
                .collect();
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            assert!(mean < 0.03, "{mean} at {ratio}");
        }
    }

    #[test]
    fn it_changes_when_the_blocks_do() {
        let before = |block| if block < 300 { [0.5, 1.0] } else { [2.0, 1.0] };
        let mut measured = Measured::default();
        let mut last = [0; 2];
        for block in 0..600 {
            let place = measured.next();
            measured.add(place, before(block)[place]);
            if block >= 500 {
                last[place] += 1;
            }
        }
        assert!(last[1] >= 98, "{last:?}");
    }
}
