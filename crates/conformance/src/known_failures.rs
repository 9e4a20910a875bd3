//! Cases of a suite that are known to fail, each with a reason.

use crate::{Case, Suite, Verdict};
use std::path::{Path, PathBuf};

/// A case that is known to fail.
#[derive(Clone, Copy, Debug)]
pub struct KnownFailure {
    /// Name of the case, or the end of the name.
    pub name: &'static str,
    /// Why it fails, with a source. Printed when the case is skipped.
    pub reason: &'static str,
}

/// A suite with cases that are known to fail. They run and are reported as skipped. If one passes,
/// that is a failure.
pub struct KnownFailures<S> {
    suite: S,
    known: &'static [KnownFailure],
}

impl<S> KnownFailures<S> {
    /// Wraps `suite`, of which the cases in `known` must fail.
    pub const fn new(suite: S, known: &'static [KnownFailure]) -> Self {
        Self { suite, known }
    }
}

/// A case, which may be known to fail.
pub struct KnownCase<C> {
    case: C,
    known: Option<KnownFailure>,
}

impl<C: Case> Case for KnownCase<C> {
    fn name(&self) -> String {
        self.case.name()
    }

    fn run(&self) -> Verdict {
        match (self.case.run(), self.known) {
            (Verdict::Failed(_), Some(known)) => Verdict::Skipped(known.reason.to_owned()),
            (Verdict::Passed, Some(_)) => {
                Verdict::Failed("it passes: take it off the list of known failures".to_owned())
            }
            (verdict, _) => verdict,
        }
    }
}

impl<S: Suite> Suite for KnownFailures<S> {
    type Case = KnownCase<S::Case>;

    fn name(&self) -> String {
        self.suite.name()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.suite.files()
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        let cases = self.suite.cases(file)?.into_iter();
        let cases = cases.map(|case| {
            let name = case.name();
            let known = self.known.iter().find(|known| name.ends_with(known.name));
            KnownCase {
                case,
                known: known.copied(),
            }
        });
        Ok(cases.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static str, Verdict);

    impl Case for Fixed {
        fn name(&self) -> String {
            self.0.to_owned()
        }

        fn run(&self) -> Verdict {
            self.1.clone()
        }
    }

    struct Two;

    impl Suite for Two {
        type Case = Fixed;

        fn name(&self) -> String {
            "two".to_owned()
        }

        fn files(&self) -> Vec<PathBuf> {
            Vec::new()
        }

        fn cases(&self, _: &Path) -> Result<Vec<Fixed>, String> {
            let fails = Verdict::Failed("so".to_owned());
            Ok(vec![
                Fixed("a::passes", Verdict::Passed),
                Fixed("a::fails", fails),
            ])
        }
    }

    fn verdicts(known: &'static [KnownFailure]) -> Vec<Verdict> {
        let cases = KnownFailures::new(Two, known).cases(Path::new(""));
        let cases = cases.expect("they are fixed");
        cases.iter().map(Case::run).collect()
    }

    const fn known(name: &'static str) -> KnownFailure {
        let reason = "known";
        KnownFailure { name, reason }
    }

    #[test]
    fn a_known_failure_is_skipped_and_one_that_passes_fails() {
        let skipped = Verdict::Skipped("known".to_owned());
        assert_eq!(
            verdicts(const { &[known("::fails")] }),
            [Verdict::Passed, skipped]
        );
        let verdicts = verdicts(const { &[known("::passes")] });
        assert!(verdicts.iter().all(|v| matches!(v, Verdict::Failed(_))));
    }
}
