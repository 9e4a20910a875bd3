//! Numbers of cores and threads with which a job runs.

use serde::{Deserialize, Serialize};

/// Numbers of threads that are run on two cores.
const CROWDS: [usize; 2] = [16, 64];
/// Cores on which crowds of threads run.
pub(super) const CROWDED_CORES: usize = 2;

/// How many cores a process may use, and how many threads it starts in each of its pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) cores: usize,
    pub(super) threads: usize,
}

impl Setting {
    pub(super) const fn of(cores: usize) -> Self {
        Self {
            cores,
            threads: cores,
        }
    }

    pub(super) const fn is_crowded(self) -> bool {
        self.threads > self.cores
    }

    /// Column heading, and suffix of figures in JSON.
    pub(super) fn name(self) -> String {
        match self.is_crowded() {
            false => format!("{}", self.cores),
            true => format!("{}/{}", self.threads, self.cores),
        }
    }
}

/// Settings of a machine of this many cores: powers of two, and all of them; with `crowds` also 16 and 64 threads on
/// two cores.
pub(super) fn settings(cores: usize, crowds: bool) -> Vec<Setting> {
    let powers = std::iter::successors(Some(1), |cores| Some(2 * cores));
    let mut settings: Vec<_> = powers.take_while(|power| *power < cores).collect();
    settings.push(cores);
    let mut settings: Vec<_> = settings.into_iter().map(Setting::of).collect();
    if crowds && cores >= CROWDED_CORES {
        settings.extend(CROWDS.map(|threads| Setting {
            cores: CROWDED_CORES,
            threads,
        }));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(settings: &[Setting]) -> Vec<String> {
        settings.iter().map(|setting| setting.name()).collect()
    }

    #[test]
    fn settings_are_powers_of_two_all_cores_and_crowds() {
        assert_eq!(names(&settings(1, true)), ["1"]);
        assert_eq!(names(&settings(2, true)), ["1", "2", "16/2", "64/2"]);
        assert_eq!(names(&settings(12, false)), ["1", "2", "4", "8", "12"]);
    }
}
