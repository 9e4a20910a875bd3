//! Seeds of random tests.
//!
//! A random test runs its case once for each seed that [`seeds!`] returns. If a case panics, the command that runs this
//! test with this seed alone is printed; it sets [`VARIABLE`].
//!
//! ```
//! for seed in cambium_seeds::seeds!(0..100) {
//!     let mut random = cambium_seeds::Random::new(seed);
//!     assert!(random.below(6) < 6);
//! }
//! ```

use std::fmt::Display;
use std::str::FromStr;
use std::{env, thread};

/// The environment variable with the only seed to run.
pub const VARIABLE: &str = "CAMBIUM_SEED";

/// Returns the seeds of a test: all of an iterator, or the one of [`VARIABLE`] alone.
///
/// The seed that is set needs not be among those of the iterator, so that a test can be tried with others.
#[macro_export]
macro_rules! seeds {
    ($seeds:expr) => {
        $crate::Seeds::new(
            $seeds,
            $crate::Program {
                package: env!("CARGO_PKG_NAME"),
                target: env!("CARGO_CRATE_NAME"),
            },
        )
    };
}

/// The program that a test is part of.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The package's name.
    pub package: &'static str,
    /// The name of the library, for unit tests, or of the program in `tests/`.
    pub target: &'static str,
}

impl Program {
    /// Returns the command that runs `test` with `seed` alone. Without a name of the test it runs all of the program.
    pub fn command(&self, test: Option<&str>, seed: &dyn Display) -> String {
        let Self { package, target } = self;
        // All packages, as in ./test: another choice of them can have other features, and is compiled anew.
        let target = match *target == package.replace('-', "_") {
            true => "--lib".to_owned(),
            false => format!("--test {target}"),
        };
        let test = test.map(|test| format!(" -- --exact {test}"));
        let test = test.unwrap_or_default();
        format!("{VARIABLE}={seed} cargo test --locked {target}{test}")
    }
}

/// Seeds of a test, in order. Made by [`seeds!`].
///
/// Dropped by a panic of the test, it prints the command that repeats the seed it returned last.
#[derive(Debug)]
pub struct Seeds<I: Iterator<Item: Display>> {
    seeds: I,
    only: Option<I::Item>,
    is_only: bool,
    current: Option<I::Item>,
    program: Program,
}

impl<I: Iterator<Item: Copy + Display + FromStr>> Seeds<I> {
    /// Returns `seeds`, or the one that [`VARIABLE`] names.
    ///
    /// # Panics
    ///
    /// If the variable has no number.
    pub fn new(seeds: impl IntoIterator<IntoIter = I>, program: Program) -> Self {
        Self::with(seeds, env::var(VARIABLE).ok().as_deref(), program)
    }

    fn with(seeds: impl IntoIterator<IntoIter = I>, only: Option<&str>, program: Program) -> Self {
        let only: Option<I::Item> = only.map(|text| match text.parse() {
            Ok(seed) => seed,
            Err(_) => panic!("{VARIABLE}: {text:?} is not a seed"),
        });
        Self {
            seeds: seeds.into_iter(),
            is_only: only.is_some(),
            only,
            current: None,
            program,
        }
    }
}

impl<I: Iterator<Item: Copy + Display>> Iterator for Seeds<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.current = match self.is_only {
            true => self.only.take(),
            false => self.seeds.next(),
        };
        self.current
    }
}

impl<I: Iterator<Item: Display>> Drop for Seeds<I> {
    fn drop(&mut self) {
        if let Some(seed) = self.current.as_ref().filter(|_| thread::panicking()) {
            let thread = thread::current();
            let test = thread.name().filter(|name| *name != "main");
            eprintln!("To repeat: {}", self.program.command(test, seed));
        }
    }
}

/// Returns whether the long form of a test is wanted: `CAMBIUM_LONG` is set, as `./test --long` does.
pub fn is_long() -> bool {
    env::var_os("CAMBIUM_LONG").is_some()
}

/// A random number generator (SplitMix64; Steele, Lea, Flood 2014) with the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number of 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns true with a probability of `percent` in 100.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        package: "cambium-store",
        target: "suite",
    };

    #[test]
    fn all_seeds_or_the_one_that_is_set() {
        let all: Vec<u64> = Seeds::with(3..6, None, PROGRAM).collect();
        assert_eq!(all, [3, 4, 5]);
        let one: Vec<u64> = Seeds::with(3..6, Some("77"), PROGRAM).collect();
        assert_eq!(one, [77]);
        let refused = std::panic::catch_unwind(|| Seeds::with(0..1u64, Some("x"), PROGRAM));
        assert!(refused.is_err());
    }

    #[test]
    fn the_command_names_program_test_and_seed() {
        assert_eq!(
            PROGRAM.command(Some("crash::it_opens"), &17),
            "CAMBIUM_SEED=17 cargo test --locked --test suite -- --exact crash::it_opens"
        );
        let unit = Program {
            target: "cambium_store",
            ..PROGRAM
        };
        assert_eq!(
            unit.command(None, &5),
            "CAMBIUM_SEED=5 cargo test --locked --lib"
        );
        let here = seeds!(0..1).program;
        assert_eq!(
            (here.package, here.target),
            ("cambium-seeds", "cambium_seeds")
        );
    }
}
