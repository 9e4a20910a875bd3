//! Transactions that may become a block: those that are valid one after another are kept.

use crate::{
    BlockInput, ExecutionError, Outcome, StateRead,
    overlay::{Overlay, OverlayMode},
    results::{BlockResults, Limits, check_senders},
    step::StepRunner,
};
use alloy_primitives::B256;
use revm::primitives::hardfork::SpecId;
use std::borrow::Cow;

/// What became of candidates.
#[derive(Debug)]
pub struct Chosen<E> {
    /// Indices of the transactions that are kept, in order.
    pub kept: Vec<usize>,
    /// Indices of those that are left out, each with the reason: it is invalid after those before it, it is beyond a limit
    /// of the block, or the state that it reads can't be read.
    pub left_out: Vec<(usize, ExecutionError<E>)>,
    /// The outcome of the block of the transactions that are kept.
    pub outcome: Outcome,
}

/// Executes the transactions of `input` in their order, and leaves out those that can't be executed. The outcome is that of
/// [`Sequential`](crate::Sequential) for a block of the others.
///
/// # Errors
///
/// If a step of the block fails that is not a transaction. Before Byzantium receipts have state roots, which are not
/// computed here: [`ExecutionError::Header`].
pub fn execute_candidates<DB: StateRead>(
    input: &BlockInput<'_>,
    db: DB,
) -> Result<Chosen<DB::Error>, ExecutionError<DB::Error>> {
    check_senders(input)?;
    if !input.rules.is(SpecId::BYZANTIUM) {
        let reason = "blocks are not built before Byzantium";
        return Err(ExecutionError::Header(reason.to_owned()));
    }
    let mut steps = StepRunner::new(input, Overlay::new(db, OverlayMode::of(&input.rules)));
    steps.before()?;
    let before = steps.end();
    let mut limits = Limits::default();
    let (mut kept, mut left_out, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..input.transactions.len() {
        let mut after = limits;
        let ran = after
            .check(input, index)
            .and_then(|()| steps.transaction_state(index));
        let ran = ran.and_then(|(result, state)| {
            steps.commit(state)?;
            Ok(result)
        });
        let accesses = steps.end();
        match ran {
            Ok(result) => {
                after.add(result.block_gas);
                limits = after;
                kept.push(index);
                results.push((result, accesses));
            }
            Err(error) => left_out.push((index, error)),
        }
    }
    let transactions = of_kept(input.transactions, &kept);
    let senders = of_kept(input.senders, &kept);
    let of_block = BlockInput {
        transactions: &transactions,
        senders: &senders,
        ..*input
    };
    let mut block = BlockResults::new(&of_block)?;
    block.add_accesses(before);
    for (result, accesses) in results {
        block.check_limits()?;
        block.add(result, B256::ZERO);
        block.add_accesses(accesses);
    }
    let deposits = block.deposits()?;
    let contracts = steps.after()?;
    block.add_accesses(steps.end());
    let changes = steps.into_overlay().finish();
    let outcome = block.finish(deposits, contracts, changes, true);
    Ok(Chosen {
        kept,
        left_out,
        outcome,
    })
}

/// The items with these indices, not copied if they are all.
fn of_kept<'a, T: Clone>(items: &'a [T], kept: &[usize]) -> Cow<'a, [T]> {
    match kept.len() == items.len() {
        true => Cow::Borrowed(items),
        false => kept.iter().map(|index| items[*index].clone()).collect(),
    }
}
