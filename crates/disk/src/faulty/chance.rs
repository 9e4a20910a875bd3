//! Random numbers, and the random severity of crashes.

/// Severity of a crash.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    AllKept,
    AllLost,
    Mixed,
}

impl Fate {
    pub(super) fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::AllKept,
            1 => Self::AllLost,
            _ => Self::Mixed,
        }
    }

    /// Draws whether a pending change of a name survives.
    pub(super) fn keeps(&self, random: &mut Random) -> bool {
        match self {
            Self::AllKept => true,
            Self::AllLost => false,
            Self::Mixed => random.below(2) == 0,
        }
    }
}

/// The generator SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
