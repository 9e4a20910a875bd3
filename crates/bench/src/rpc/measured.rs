//! Figures of all rounds by what was measured, and their medians.

use super::server::Kind;
use crate::report::{Report, Target, median, object};
use serde_json::json;
use std::collections::BTreeMap;

/// Figures by name of the measurement, name of the figure, and server; one for each round.
#[derive(Default)]
pub(super) struct Measured {
    all: BTreeMap<(String, &'static str), BTreeMap<Kind, Vec<f64>>>,
    /// Measurements in the order in which they were made.
    order: Vec<(String, &'static str)>,
}

impl Measured {
    pub(super) fn add(&mut self, name: &str, figure: &'static str, kind: Kind, value: f64) {
        let key = (name.to_owned(), figure);
        if !self.all.contains_key(&key) {
            self.order.push(key.clone());
        }
        let of_kind = self.all.entry(key).or_default().entry(kind).or_default();
        of_kind.push(value);
    }

    /// The median of a figure, if it was measured.
    pub(super) fn median(&self, name: &str, figure: &'static str, kind: Kind) -> Option<f64> {
        let figures = self.all.get(&(name.to_owned(), figure))?.get(&kind)?;
        Some(median(figures.clone()))
    }

    /// Cambium's median over geth's.
    pub(super) fn ratio(&self, name: &str, figure: &'static str) -> Option<f64> {
        let of = |kind| self.median(name, figure, kind);
        Some(of(Kind::Cambium)? / of(Kind::Geth)?)
    }

    /// Adds a target for the ratio, if both servers were measured.
    pub(super) fn demand(
        &self,
        name: &str,
        figure: &'static str,
        bound: Bound,
        report: &mut Report,
    ) {
        if let Some(ratio) = self.ratio(name, figure) {
            let name = format!("{name}: {figure} against geth's");
            report.targets.push(bound.target(name, ratio, "x"));
        }
    }

    /// Adds all medians to a report, as results and as a table.
    pub(super) fn write(&self, report: &mut Report) {
        let columns = ["cambium", "geth", "ratio"].map(str::to_owned).to_vec();
        report
            .comparison
            .push(("medians of all rounds".to_owned(), columns));
        for (name, figure) in &self.order {
            let of = |kind| self.median(name, figure, kind);
            let (own, geth) = (of(Kind::Cambium), of(Kind::Geth));
            let ratio = self.ratio(name, figure);
            let result = object([
                ("measured", json!(name)),
                ("figure", json!(figure)),
                ("cambium", json!(own)),
                ("geth", json!(geth)),
                ("ratio", json!(ratio)),
            ]);
            report.results.push(result);
            let figures = [own, geth, ratio].map(|figure| figure.map_or("-".to_owned(), short));
            let row = (format!("{name}, {figure}"), figures.to_vec());
            report.comparison.push(row);
        }
    }
}

/// What a target demands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    pub(super) fn target(self, name: String, value: f64, unit: &'static str) -> Target {
        let (target, met) = match self {
            Self::AtMost(most) => (format!("at most {most:.2}"), value <= most),
            Self::AtLeast(least) => (format!("at least {least:.2}"), value >= least),
        };
        Target {
            name,
            value,
            unit,
            target,
            met,
        }
    }
}

/// A figure with three digits or more.
fn short(figure: f64) -> String {
    match figure.abs() {
        0.0..10.0 => format!("{figure:.3}"),
        10.0..100.0 => format!("{figure:.2}"),
        100.0..1000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_medians_and_is_missing_without_a_peer() {
        let mut measured = Measured::default();
        for (own, geth) in [(1.0, 8.0), (2.0, 4.0), (9.0, 4.0)] {
            measured.add("calls", "us", Kind::Cambium, own);
            measured.add("calls", "us", Kind::Geth, geth);
        }
        measured.add("proofs", "us", Kind::Cambium, 3.0);
        assert_eq!(measured.ratio("calls", "us"), Some(0.5));
        assert_eq!(measured.ratio("proofs", "us"), None);
        let mut report = Report::new("rpc");
        measured.demand("calls", "us", Bound::AtMost(0.33), &mut report);
        measured.demand("calls", "us", Bound::AtLeast(0.5), &mut report);
        measured.demand("proofs", "us", Bound::AtMost(1.0), &mut report);
        let met: Vec<_> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [false, true]);
    }
}
