//! Additions to an account, by the transactions that make them.

use alloy_primitives::U256;

/// Additions in the order of their steps, with sums over all before some step. Sums are kept as far
/// as nothing before them changed, so a read of an account takes no time for each addition.
#[derive(Default)]
pub(super) struct Adds {
    adds: Vec<(usize, Amount)>,
    /// Sum of the first additions, one more in each place.
    sums: Vec<Amount>,
}

/// An amount that is added to balance and nonce. Balances wrap: those that are subtracted from are
/// added to modulo 2^256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) balance: U256,
    pub(super) nonce: u64,
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self {
            balance: self.balance.wrapping_add(other.balance),
            nonce: self.nonce.wrapping_add(other.nonce),
        }
    }
}

impl Adds {
    /// Number of additions of steps before `step`.
    fn before(&self, step: usize) -> usize {
        // Nearly all calls are for the last additions.
        match self.adds.last() {
            Some((last, _)) if *last < step => self.adds.len(),
            _ => self.adds.partition_point(|(at, _)| *at < step),
        }
    }

    /// Sets the addition of a step.
    pub(super) fn put(&mut self, step: usize, amount: Amount) {
        let place = self.before(step);
        match self.adds.get_mut(place) {
            Some((at, known)) if *at == step => {
                if *known == amount {
                    return;
                }
                *known = amount;
            }
            _ => self.adds.insert(place, (step, amount)),
        }
        self.sums.truncate(place);
    }

    pub(super) fn remove(&mut self, step: usize) {
        let place = self.before(step);
        if self.adds.get(place).is_some_and(|(at, _)| *at == step) {
            self.adds.remove(place);
            self.sums.truncate(place);
        }
    }

    /// The sum of all additions of steps before `end`, and from `start` on. `None` if there is none.
    pub(super) fn sum(&mut self, start: usize, end: usize) -> Option<Amount> {
        let (first, last) = (self.before(start), self.before(end));
        if first >= last {
            return None;
        }
        if first + 1 == last {
            // Most accounts have one.
            return Some(self.adds[first].1);
        }
        while self.sums.len() < last {
            let before = self.sums.last().copied().unwrap_or_default();
            let (_, amount) = self.adds[self.sums.len()];
            self.sums.push(before.plus(amount));
        }
        let sum = self.sums[last - 1];
        let Some(before) = first.checked_sub(1).map(|place| self.sums[place]) else {
            return Some(sum);
        };
        Some(Amount {
            balance: sum.balance.wrapping_sub(before.balance),
            nonce: sum.nonce.wrapping_sub(before.nonce),
        })
    }

    /// All additions, in order.
    pub(super) fn all(&self) -> &[(usize, Amount)] {
        &self.adds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(balance: u64) -> Amount {
        Amount {
            balance: U256::from(balance),
            nonce: 1,
        }
    }

    #[test]
    fn sums_follow_what_changes() {
        let mut adds = Adds::default();
        assert_eq!(adds.sum(0, 9), None);
        for (step, balance) in [(5, 50), (1, 10), (3, 30)] {
            adds.put(step, amount(balance));
        }
        let sum = |adds: &mut Adds, start, end| {
            let sum = adds.sum(start, end)?;
            Some((sum.balance.to::<u64>(), sum.nonce))
        };
        assert_eq!(sum(&mut adds, 0, 9), Some((90, 3)));
        assert_eq!(sum(&mut adds, 2, 5), Some((30, 1)));
        assert_eq!(sum(&mut adds, 4, 5), None);
        adds.put(3, amount(31));
        adds.put(2, amount(20));
        assert_eq!(sum(&mut adds, 0, 4), Some((61, 3)));
        adds.remove(1);
        adds.remove(4);
        assert_eq!(sum(&mut adds, 0, 9), Some((101, 3)));
    }
}
