//! Distributions of accounts and pools over transactions.

use crate::keys::Random;
use std::{
    fmt::{self, Display},
    str::FromStr,
};

/// Distribution of the accounts or pools that transactions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Spread {
    /// All equally likely.
    #[default]
    Uniform,
    /// Approximately Zipf's law: number n is 1/n times as likely as the first.
    Zipf,
    /// The first with this percentage, so that transactions conflict; the others equally likely.
    /// Senders are uniform.
    Hot(u8),
    /// Each at most once in a block, so that its transactions are independent. Senders are not
    /// receivers.
    Distinct,
}

/// A text is not a [`Spread`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a spread is uniform, zipf, distinct, or hot:PCT with PCT from 0 to 100")]
pub struct NoSpread;

impl FromStr for Spread {
    type Err = NoSpread;

    fn from_str(text: &str) -> Result<Self, NoSpread> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "zipf" => Ok(Self::Zipf),
            "distinct" => Ok(Self::Distinct),
            _ => {
                let percent = text.strip_prefix("hot:").ok_or(NoSpread)?;
                let percent = percent.parse().map_err(|_| NoSpread)?;
                if percent > 100 {
                    return Err(NoSpread);
                }
                Ok(Self::Hot(percent))
            }
        }
    }
}

impl Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Zipf => write!(f, "zipf"),
            Self::Hot(percent) => write!(f, "hot:{percent}"),
            Self::Distinct => write!(f, "distinct"),
        }
    }
}

/// Chooses numbers below `count`, which must not be 0, within one block.
#[derive(Debug)]
pub(crate) struct Chooser {
    count: u64,
    spread: Spread,
    /// The next number for [`Spread::Distinct`].
    next: u64,
}

impl Chooser {
    pub(crate) fn new(count: u64, spread: Spread, random: &mut Random) -> Self {
        let next = match spread {
            Spread::Distinct => random.below(count),
            _ => 0,
        };
        Self {
            count,
            spread,
            next,
        }
    }

    pub(crate) fn choose(&mut self, random: &mut Random) -> u64 {
        match self.spread {
            Spread::Uniform => random.below(self.count),
            Spread::Hot(percent) if random.percent(percent) => 0,
            Spread::Hot(_) => random.below(self.count),
            // Each run [2^k - 1, 2^(k+1) - 1) is as likely as any other, which makes number n
            // likely as 1/n, to within a factor of two, without a logarithm.
            Spread::Zipf => {
                let runs = u64::from(self.count.ilog2()) + 1;
                let start = (1 << random.below(runs)) - 1;
                let end = (2 * start + 1).min(self.count);
                start + random.below(end - start)
            }
            Spread::Distinct => {
                let chosen = self.next;
                self.next = (chosen + 1) % self.count;
                chosen
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_reach_of_every_spread_and_the_first_is_hot_in_two() {
        for count in [1, 2, 3, 7, 8, 100] {
            for spread in [
                Spread::Uniform,
                Spread::Zipf,
                Spread::Hot(50),
                Spread::Distinct,
            ] {
                let mut random = Random::new(count);
                let mut hits = vec![0u32; count as usize];
                let mut chooser = Chooser::new(count, spread, &mut random);
                for _ in 0..100 * count {
                    hits[chooser.choose(&mut random) as usize] += 1;
                }
                assert!(
                    hits.iter().all(|&hits| hits > 0),
                    "{spread:?} of {count}: {hits:?}"
                );
                match spread {
                    Spread::Distinct => assert!(hits.iter().all(|&hits| hits == 100)),
                    Spread::Zipf if count == 100 => assert!(hits[0] > 20 * hits[99], "{hits:?}"),
                    Spread::Hot(_) if count == 100 => {
                        assert!((4_500..5_500).contains(&hits[0]), "{hits:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn spreads_are_read_as_they_are_written() {
        for spread in [
            Spread::Uniform,
            Spread::Zipf,
            Spread::Hot(30),
            Spread::Distinct,
        ] {
            assert_eq!(spread.to_string().parse(), Ok(spread));
        }
        for none in ["", "hot", "hot:", "hot:101", "hot:-1", "Zipf", "hot:1000"] {
            assert_eq!(none.parse::<Spread>(), Err(NoSpread), "{none}");
        }
    }
}
