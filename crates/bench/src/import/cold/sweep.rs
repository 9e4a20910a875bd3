//! Resident memory at several budgets, each smaller than the state and filled before the import.

use super::{
    case::payments,
    child::Fill,
    rounds::{Figures, Plan, Setup, import},
    summary::RESIDENT_PERCENT,
    way::Way,
};
use crate::{
    import::Inputs,
    report::{Notes, Report, Target},
    state::stores::Failure,
};
use serde_json::{Map, json};

const MIB: f64 = (1 << 20) as f64;
/// Number of accounts in the states to choose from.
const ACCOUNTS: [u64; 3] = [10_000_000, 30_000_000, 70_000_000];
const ACCOUNTS_QUICK: [u64; 1] = [1_000_000];
/// Bytes of pages for each account, rounded down.
const ACCOUNT_BYTES: u64 = 60;
const BLOCKS: u64 = 100;
const BLOCKS_QUICK: u64 = 8;

/// A budget of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget(u64);

impl Budget {
    pub(super) const fn bytes(self) -> u64 {
        self.0
    }

    /// Parses a number of bytes with the unit M or G.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} is no size such as 512M or 3G");
        let (number, shift) = match text.strip_suffix('G') {
            Some(number) => (number, 30),
            None => (text.strip_suffix('M').ok_or_else(error)?, 20),
        };
        let number: u64 = number.parse().map_err(|_| error())?;
        match number {
            1..=1_048_576 => Ok(Self(number << shift)),
            _ => Err(error()),
        }
    }
}

/// Imports payments with each budget, in sequence, reading ahead.
pub(super) fn run(
    plan: &Plan,
    budgets: &[Budget],
    report: &mut Report,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let mut rows = [
        ("memory told, MiB", "memory_mib"),
        ("resident, MiB", "rss_peak_mib"),
        ("resident, % of memory told", "rss_percent_of_memory"),
        ("cgroup, MiB", "cgroup_peak_mib"),
        ("accounts", "accounts"),
        ("state, MiB", "state_mib"),
        ("transactions a second", "transactions_per_second"),
    ]
    .map(|(heading, name)| (heading, name, Vec::new()));
    for Budget(memory_bytes) in budgets {
        let params = payments(
            accounts_for(*memory_bytes, plan.quick),
            if plan.quick { BLOCKS_QUICK } else { BLOCKS },
        );
        let inputs = Inputs::of(&plan.data, "payments", params)?;
        let (params, facts) = (&inputs.params, &inputs.facts);
        let mib = memory_bytes >> 20;
        if facts.state_bytes < *memory_bytes {
            let state = facts.state_bytes >> 20;
            return Err(format!("a state of {state} MiB does not fill {mib} MiB").into());
        }
        let setup = Setup {
            inputs: &inputs,
            memory_bytes: *memory_bytes,
            fill: Some(Fill {
                first: params.senders(),
                end: params.accounts,
            }),
        };
        let mut figures = Figures::default();
        for round in 1..=plan.rounds {
            eprintln!("payments, {mib} MiB: round {round} of {}", plan.rounds);
            figures.add(import(plan, &setup, Way::Ahead, notes)?);
        }
        let mut result: Map<_, _> = figures
            .medians()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let mut add = |name: &str, value: f64| result.insert(name.to_owned(), json!(value));
        add("memory_mib", *memory_bytes as f64 / MIB);
        add("state_mib", facts.state_bytes as f64 / MIB);
        add("accounts", params.accounts as f64);
        for (_, name, cells) in &mut rows {
            let value = result.get(*name).and_then(|value| value.as_f64());
            cells.push(value.map_or("-".to_owned(), |value| format!("{value:.0}")));
        }
        report.targets.extend(target(mib, &figures));
        report.results.push(result);
    }
    let rows = rows.into_iter();
    report
        .comparison
        .extend(rows.map(|(heading, _, cells)| (heading.to_owned(), cells)));
    Ok(())
}

/// Returns the number of accounts of the smallest state that is a tenth larger than a budget, or
/// of the largest.
fn accounts_for(memory_bytes: u64, quick: bool) -> u64 {
    let all: &[u64] = if quick { &ACCOUNTS_QUICK } else { &ACCOUNTS };
    let mut fitting = all.iter();
    let found = fitting.find(|accounts| *accounts * ACCOUNT_BYTES > memory_bytes / 10 * 11);
    *found.unwrap_or(&all[all.len() - 1])
}

fn target(mib: u64, figures: &Figures) -> Option<Target> {
    let value = figures.median("rss_percent_of_memory")?;
    Some(Target {
        name: format!("resident memory, told {mib} MiB"),
        value,
        unit: "% of memory told",
        target: RESIDENT_PERCENT.describe(),
        met: RESIDENT_PERCENT.contains(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_with_their_units() {
        assert_eq!(Budget::parse("256M"), Ok(Budget(256 << 20)));
        assert_eq!(Budget::parse("3G"), Ok(Budget(3 << 30)));
        for wrong in ["", "3", "G", "0M", "-1M", "1T", "99999999999G"] {
            assert!(Budget::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_state_is_larger_than_its_budget() {
        for (mib, accounts) in [(256, 10_000_000), (512, 10_000_000), (1024, 30_000_000)] {
            assert_eq!(accounts_for(mib << 20, false), accounts);
        }
        assert_eq!(accounts_for(3 << 30, false), 70_000_000);
    }
}
