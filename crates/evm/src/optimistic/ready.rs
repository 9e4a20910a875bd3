//! A set of transactions that may run, from which threads take the first one without a lock.
//!
//! A tree of words: a bit of the lowest level is a transaction, a bit of any other level a word
//! below that may not be empty. Taking and adding look at one word of each level.

use super::sync::{AtomicU64, Ordering};

/// Bits in a word.
const BITS: usize = u64::BITS as usize;

pub(super) struct Ready {
    /// The transactions, then the levels above, up to a single word.
    levels: Vec<Box<[AtomicU64]>>,
}

impl Ready {
    /// An empty set of indices below `count`.
    pub(super) fn new(count: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = count;
        loop {
            words = words.div_ceil(BITS).max(1);
            levels.push((0..words).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>());
            if words == 1 {
                return Self { levels };
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels
            .last()
            .is_none_or(|top| top[0].load(Ordering::SeqCst) == 0)
    }

    pub(super) fn insert(&self, index: usize) {
        let mut at = index;
        for level in &self.levels {
            let bit = 1 << (at % BITS);
            at /= BITS;
            // All levels are set even if this one was: a thread that found the word empty may be
            // about to clear the bit above.
            level[at].fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Takes the first index, or nearly the first one if others are inserted meanwhile.
    pub(super) fn pop(&self) -> Option<usize> {
        'again: loop {
            let (top, below) = self.levels.split_last()?;
            let mut at = first(&top[0])?;
            for (depth, level) in below.iter().enumerate().rev() {
                match first(&level[at]) {
                    Some(bit) => at = at * BITS + bit,
                    None => {
                        self.clear_above(depth, at);
                        continue 'again;
                    }
                }
            }
            let (word, bit) = (&self.levels[0][at / BITS], 1 << (at % BITS));
            if word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                if word.load(Ordering::SeqCst) == 0 {
                    self.clear_above(0, at / BITS);
                }
                return Some(at);
            }
        }
    }

    /// Clears the bit for word `at` of a level, which was found empty, and those above likewise. If
    /// the word has got a bit since, sets them again.
    fn clear_above(&self, depth: usize, at: usize) {
        let (mut depth, mut at) = (depth, at);
        while let Some(level) = self.levels.get(depth + 1) {
            let (word, bit) = (&level[at / BITS], 1 << (at % BITS));
            word.fetch_and(!bit, Ordering::SeqCst);
            if self.levels[depth][at].load(Ordering::SeqCst) != 0 {
                self.set_above(depth, at);
                return;
            }
            if word.load(Ordering::SeqCst) != 0 {
                return;
            }
            (depth, at) = (depth + 1, at / BITS);
        }
    }

    fn set_above(&self, depth: usize, at: usize) {
        let mut at = at;
        for level in &self.levels[depth + 1..] {
            let bit = 1 << (at % BITS);
            at /= BITS;
            level[at].fetch_or(bit, Ordering::SeqCst);
        }
    }
}

/// The lowest bit of a word.
fn first(word: &AtomicU64) -> Option<usize> {
    match word.load(Ordering::SeqCst) {
        0 => None,
        bits => Some(bits.trailing_zeros() as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sync::one_thread, *};

    #[test]
    fn the_first_comes_first() {
        one_thread(|| {
            for count in [1, 64, 65, 5000, 300_000] {
                let ready = Ready::new(count);
                assert!(ready.is_empty() && ready.pop().is_none());
                let some: Vec<_> = (0..count).filter(|index| index % 37 == 0).collect();
                for index in some.iter().rev() {
                    ready.insert(*index);
                    ready.insert(*index);
                }
                assert!(!ready.is_empty());
                let taken: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
                assert_eq!(taken, some);
                assert!(ready.is_empty());
            }
        });
    }
}
