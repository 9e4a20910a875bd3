//! Collects the results of steps from worker threads, in order.

use super::{
    given::Given,
    workers::{Step, StepResult, StepsDone},
};
use crate::{results::BlockResults, system::ContractRequest};
use alloy_primitives::B256;
use std::{convert::Infallible, sync::mpsc::Receiver};

/// Collects the results of all `steps` of a block. `None` if a step is missing or exceeds a limit
/// of the block, or if the list has a change that no step made.
pub(super) fn collect<'a>(
    mut results: BlockResults<'a>,
    steps: usize,
    done: Receiver<StepsDone>,
    given: &Given<'_>,
) -> Option<(BlockResults<'a>, Vec<ContractRequest>)> {
    let mut waiting: Vec<Option<Step>> = Vec::new();
    waiting.resize_with(steps, || None);
    let (mut next, mut changes) = (0, 0);
    let (mut contracts, mut unlisted) = (None, Vec::new());
    for (at, step) in done.into_iter().flatten() {
        waiting[at] = Some(step?);
        while let Some(step) = waiting.get_mut(next).and_then(Option::take) {
            let Step {
                result,
                changes: made,
                unlisted: more,
            } = step;
            match result {
                StepResult::Before => {}
                StepResult::Transaction(result) => {
                    results.check_limits::<Infallible>().ok()?;
                    results.add(*result, B256::ZERO);
                }
                StepResult::After(requests) => contracts = Some(requests),
            }
            changes += made;
            unlisted.extend(more);
            next += 1;
        }
    }
    let contracts = contracts?;
    results.set_access_list(given.index().touched(changes, unlisted)?);
    Some((results, contracts))
}
