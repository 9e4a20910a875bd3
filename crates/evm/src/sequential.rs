//! Sequential execution: the reference for all other executors.

use crate::{
    BlockInput, ExecutionError, Executor, Hooks, Outcome, StateRead,
    overlay::{Overlay, OverlayMode},
    results::BlockResults,
    step::StepRunner,
};
use alloy_primitives::B256;
use revm::primitives::hardfork::SpecId;

/// Executes transactions one after another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequential;

impl Executor for Sequential {
    fn execute<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        let byzantium = input.rules.is(SpecId::BYZANTIUM);
        let mut roots = hooks.roots.filter(|_| !byzantium);
        let mode = OverlayMode {
            steps: roots.is_some(),
            ..OverlayMode::of(&input.rules)
        };
        let mut results = BlockResults::new(input)?;
        let mut steps = StepRunner::new(input, Overlay::new(db, mode));
        steps.before()?;
        results.add_accesses(steps.end());
        for index in 0..input.transactions.len() {
            results.check_limits()?;
            let result = steps.transaction(index)?;
            let root = match &mut roots {
                None => B256::ZERO,
                Some(roots) => {
                    let changes = steps.overlay().take_step();
                    roots(&changes).map_err(ExecutionError::Database)?
                }
            };
            results.add(result, root);
            results.add_accesses(steps.end());
        }
        let deposits = results.deposits()?;
        let contracts = steps.after()?;
        results.add_accesses(steps.end());
        let changes = steps.into_overlay().finish();
        let complete = byzantium || roots.is_some();
        Ok(results.finish(deposits, contracts, changes, complete))
    }
}
