//! Steps put in order, as they come from threads.

use super::workers::{Step, StepDone, StepResult};
use crate::{results::BlockResults, step::ContractRequest};
use alloy_primitives::B256;
use cambium_primitives::AccessList;
use std::{collections::BTreeMap, convert::Infallible, sync::mpsc::Receiver};

/// Takes in all steps of a block, in order. `None` if one is missing, or breaks a limit of the
/// block, or if the list has changes that no step made.
pub(super) fn collect<'a>(
    mut results: BlockResults<'a>,
    done: Receiver<StepDone>,
    list: &AccessList,
) -> Option<(BlockResults<'a>, Vec<ContractRequest>)> {
    let mut waiting = BTreeMap::new();
    let (mut next, mut changes) = (0, 0);
    let mut contracts = None;
    for (at, step) in done {
        waiting.insert(at, step?);
        while let Some(step) = waiting.remove(&next) {
            let Step {
                result,
                accesses,
                changes: made,
            } = step;
            match result {
                StepResult::Before => {}
                StepResult::Transaction(result) => {
                    results.check_limits::<Infallible>().ok()?;
                    results.add(*result, B256::ZERO);
                }
                StepResult::After(requests) => contracts = Some(requests),
            }
            results.add_accesses(Some(accesses));
            changes += made;
            next += 1;
        }
    }
    let contracts = contracts?;
    (changes == list.counts().changes()).then_some((results, contracts))
}
