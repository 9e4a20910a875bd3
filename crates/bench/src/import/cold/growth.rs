//! How much slower imports are on larger states, with equal memory.

use super::{
    case::CaseKind,
    rounds::{Figures, Plan, Setup, import},
    summary::Range,
    way::Way,
};
use crate::{
    import::Inputs,
    report::{Notes, Report, Target},
    state::stores::Failure,
};
use serde_json::{Map, json};

/// The ways that are compared: those that read ahead.
const WAYS: [Way; 2] = [Way::Ahead, Way::Lists];
/// Target of the fall from the first size to the last, in percent.
const FALL_PERCENT: Range = Range::AtMost(15.0);

/// Numbers of accounts to compare, if none are given.
const ACCOUNTS: [u64; 2] = [1_000_000, 20_000_000];
const ACCOUNTS_QUICK: [u64; 2] = [100_000, 400_000];

/// The states to compare.
pub(super) struct Sizes {
    /// Numbers of accounts, the smallest first.
    accounts: Vec<u64>,
    memory_bytes: u64,
}

impl Sizes {
    /// States of these numbers of accounts, in any order, or of the usual ones if there are none.
    pub(super) fn of(accounts: &[u64], memory_bytes: u64, quick: bool) -> Self {
        let mut accounts = accounts.to_vec();
        if accounts.is_empty() {
            accounts.extend(if quick { ACCOUNTS_QUICK } else { ACCOUNTS });
        }
        accounts.sort_unstable();
        Self {
            accounts,
            memory_bytes,
        }
    }
}

/// Imports chains of each kind on states of all sizes, in every round one after the other. Each begins with nothing of its
/// state in memory.
pub(super) fn run(
    plan: &Plan,
    kinds: &[CaseKind],
    sizes: &Sizes,
    report: &mut Report,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let mib = (sizes.memory_bytes >> 20) as f64;
    report.parameters.insert("memory_mib".into(), json!(mib));
    let millions = |size: &u64| format!("{} M", *size as f64 / 1e6);
    let headings = sizes.accounts.iter().map(millions);
    let headings = headings.chain(["fall, %".to_owned()]).collect();
    let heading = "transactions a second, by accounts".to_owned();
    report.comparison.push((heading, headings));
    for kind in kinds {
        let inputs = sizes.accounts.iter().map(|accounts| {
            let params = kind.params(*accounts, plan.quick);
            Inputs::of(&plan.data, kind.name(), params)
        });
        let inputs: Vec<_> = inputs.collect::<Result<_, _>>()?;
        for way in WAYS {
            match rounds(plan, (*kind, way), &inputs, sizes, notes) {
                Ok(measured) => add((*kind, way), &inputs, &measured, report),
                Err(error) => {
                    let error = format!("{}, {}: {error}", kind.name(), way.name());
                    report.errors.push(error);
                }
            }
        }
    }
    Ok(())
}

/// Returns the figures on each state.
fn rounds(
    plan: &Plan,
    (kind, way): (CaseKind, Way),
    inputs: &[Inputs],
    sizes: &Sizes,
    notes: &mut Notes,
) -> Result<Vec<Figures>, Failure> {
    let mut measured: Vec<_> = inputs.iter().map(|_| Figures::default()).collect();
    for round in 1..=plan.rounds {
        for (inputs, figures) in inputs.iter().zip(&mut measured) {
            let accounts = inputs.params.accounts;
            eprintln!(
                "{}, {}, {accounts} accounts: round {round} of {}",
                kind.name(),
                way.name(),
                plan.rounds
            );
            let setup = Setup {
                inputs,
                memory_bytes: sizes.memory_bytes,
                fill: None,
            };
            figures.add(import(plan, &setup, way, notes)?);
        }
    }
    Ok(measured)
}

fn add((kind, way): (CaseKind, Way), inputs: &[Inputs], measured: &[Figures], report: &mut Report) {
    let name = format!("{}, {}", kind.name(), way.name());
    let mut speeds = Vec::new();
    for (inputs, figures) in inputs.iter().zip(measured) {
        let mut result: Map<_, _> = figures
            .medians()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let facts = [
            ("workload", json!(kind.name())),
            ("way", json!(way.name())),
            ("accounts", json!(inputs.params.accounts)),
            ("slots", json!(inputs.facts.slots)),
            ("state_mib", json!(inputs.facts.state_bytes >> 20)),
        ];
        result.extend(facts.map(|(name, value)| (name.to_owned(), value)));
        report.results.push(result);
        speeds.extend(figures.median("transactions_per_second"));
    }
    let fall = fall_percent(&speeds);
    let cells = speeds.iter().map(|speed| format!("{speed:.0}"));
    let cells = cells.chain(fall.map(|fall| format!("{fall:.0}")));
    report.comparison.push((name.clone(), cells.collect()));
    report.targets.extend(fall.map(|fall| Target {
        name: format!("fall of transactions a second with the size of the state: {name}"),
        value: fall,
        unit: "%",
        target: FALL_PERCENT.describe(),
        met: FALL_PERCENT.contains(fall),
    }));
}

/// Returns by how many percent the last speed is below the first. `None` without two of them.
fn fall_percent(speeds: &[f64]) -> Option<f64> {
    let [first, .., last] = speeds else {
        return None;
    };
    Some(100.0 * (1.0 - last / first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fall_is_that_from_the_first_speed_to_the_last() {
        assert_eq!(fall_percent(&[200.0, 180.0, 150.0]), Some(25.0));
        assert_eq!(fall_percent(&[100.0, 125.0]), Some(-25.0));
        assert_eq!(fall_percent(&[200.0]), None);
    }

    #[test]
    fn the_smallest_state_comes_first() {
        assert_eq!(Sizes::of(&[500, 200], 1, false).accounts, [200, 500]);
        assert_eq!(Sizes::of(&[], 1, false).accounts, ACCOUNTS);
        assert_eq!(Sizes::of(&[], 1, true).accounts, ACCOUNTS_QUICK);
    }
}
