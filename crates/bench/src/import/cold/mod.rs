//! Imports of blocks whose state is not in memory.
//!
//! ```text
//!   inputs   state, blocks and access lists, generated once      case.rs, ../inputs.rs
//!   rounds   way after way: a copy of the state, and a process    way.rs, child.rs, rounds.rs
//!            with limited memory that imports the blocks
//!   report   figures for each way, and targets                    summary.rs
//!   growth   with --growth: several states, equal memory          growth.rs
//!   sweep    with --memory: resident memory at several budgets    sweep.rs
//!   geth     with --peers geth: the same blocks, by geth          geth.rs
//! ```
//!
//! The budget of memory is a tenth of the state's size. Senders and receivers are uniform over
//! many accounts, so nearly every access is the first one to its account or slot.

mod case;
mod way;
mod child;
mod rounds;
mod summary;
mod growth;
mod sweep;
mod geth;

use crate::{
    geth::{Program, VERSION},
    import::Inputs,
    report::{Notes, Report, data_dir},
    state::stores::Failure,
};
use clap::ValueEnum as _;
use rounds::{Plan, Setup, memory_for};
use serde_json::json;
use std::{error::Error, fs};

pub(crate) use case::CaseKind;
pub(crate) use child::run as child;
pub(crate) use sweep::Budget;

/// Parameters from the command line.
pub(super) struct ColdArgs<'a> {
    pub(super) rounds: Option<u64>,
    pub(super) spare_mib: u64,
    pub(super) accounts: Option<u64>,
    /// The cases, or none for all.
    pub(super) cases: &'a [CaseKind],
    pub(super) budgets: Option<&'a [Budget]>,
    /// Numbers of accounts of the states to compare, with equal memory.
    pub(super) growth: Option<&'a [u64]>,
    /// Memory budget of every import on these states.
    pub(super) budget: Budget,
    pub(super) has_geth: bool,
}

pub(super) fn run(args: &ColdArgs<'_>, quick: bool) -> Result<Report, Box<dyn Error>> {
    let data = data_dir()?.join("import-cold");
    fs::create_dir_all(&data)?;
    let plan = Plan {
        data,
        rounds: args.rounds.unwrap_or(if quick { 1 } else { 3 }),
        spare_bytes: args.spare_mib << 20,
        quick,
    };
    let mut report = Report::new("import");
    report.parameters.insert("mode".into(), json!("cold"));
    report
        .parameters
        .insert("rounds".into(), json!(plan.rounds));
    report
        .parameters
        .insert("spare_mib".into(), json!(args.spare_mib));
    let mut notes = Notes::default();
    let kinds = match args.cases {
        [] => CaseKind::value_variants(),
        given => given,
    };
    let done = match (args.budgets, args.growth) {
        (Some(budgets), _) => sweep::run(&plan, budgets, &mut report, &mut notes),
        (None, Some(_)) if args.has_geth => Err("--growth is of Cambium alone".into()),
        (None, Some(accounts)) => {
            let sizes = growth::Sizes::of(accounts, args.budget.bytes(), quick);
            growth::run(&plan, kinds, &sizes, &mut report, &mut notes)
        }
        (None, None) => cases(&plan, kinds, args, &mut report, &mut notes),
    };
    done.map_err(|error| error as Box<dyn Error>)?;
    report.notes.extend(notes.into_lines());
    Ok(report)
}

fn cases(
    plan: &Plan,
    kinds: &[CaseKind],
    args: &ColdArgs<'_>,
    report: &mut Report,
    notes: &mut Notes,
) -> Result<(), Failure> {
    let accounts = if plan.quick { 200_000 } else { 10_000_000 };
    let geth = args.has_geth.then(|| Program::build(VERSION));
    let geth = geth.transpose()?;
    for kind in kinds {
        let params = kind.params(args.accounts.unwrap_or(accounts), plan.quick);
        let inputs = Inputs::of(&plan.data, kind.name(), params)?;
        let setup = Setup {
            inputs: &inputs,
            memory_bytes: memory_for(&inputs),
            fill: None,
        };
        let mut measured = rounds::run(plan, kind.name(), &setup, notes);
        if let Some(geth) = &geth {
            match geth.measure(plan, &setup, notes) {
                Ok(figures) => {
                    measured.peers.insert(Program::name(), figures);
                }
                Err(error) => notes.add(format!("{}: no figures of geth: {error}", kind.name())),
            }
        }
        summary::add(*kind, &setup, &measured, report);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::Copied,
        child::{Fill, Task, import},
        way::Way,
        *,
    };
    use cambium_workload::WorkloadParams;

    #[test]
    fn every_way_imports_the_same_blocks() {
        let data = tempfile::tempdir().unwrap();
        for kind in CaseKind::value_variants() {
            let params = WorkloadParams {
                accounts: 2_000,
                senders: Some(500),
                holders: Some(2_000),
                pools: 3,
                blocks: 2,
                ..kind.params(2_000, true)
            };
            let inputs = Inputs::of(data.path(), kind.name(), params).unwrap();
            let facts = inputs.facts;
            assert_eq!((facts.blocks, facts.transactions), (2, 1_000), "{kind:?}");
            assert!(facts.cold_accesses > 1_000 && facts.cold_accesses < facts.accesses);
            for way in Way::ALL {
                let copy = Copied::of(&inputs.state(), data.path()).unwrap();
                let task = Task {
                    state: copy.path(),
                    blocks: inputs.blocks(),
                    lists: inputs.lists(),
                    way,
                    memory_bytes: memory_for(&inputs),
                    fill: Some(Fill {
                        first: 500,
                        end: 2_000,
                    }),
                    cgroup: None,
                };
                let imported = import(&task).unwrap();
                assert_eq!(imported.head, facts.head, "{kind:?}, {way:?}");
                assert!(imported.figures["counter_blocks_committed"] == 2.0);
            }
        }
    }

    #[test]
    fn generated_files_are_used_again() {
        let data = tempfile::tempdir().unwrap();
        let params = WorkloadParams {
            blocks: 1,
            ..CaseKind::Payments.params(1_000, true)
        };
        let made = Inputs::of(data.path(), "payments", params.clone()).unwrap();
        std::fs::write(made.blocks(), "kept").unwrap();
        let again = Inputs::of(data.path(), "payments", params).unwrap();
        assert_eq!(again.facts.head, made.facts.head);
        assert_eq!(std::fs::read(again.blocks()).unwrap(), b"kept");
    }
}
