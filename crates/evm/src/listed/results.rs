//! The results of a block's steps, gathered by the threads that run them.
//!
//! Whoever ends the last step of a chunk makes the receipts of the chunk, and whoever ends the last
//! chunk of a block makes its outcome.

use super::{given::Given, values::BlockValues};
use crate::{
    BlockInput, Outcome, Receipt,
    access_list::Unlisted,
    results::{BlockResults, Limits, receipts},
    step::{BlockGas, TransactionResult},
    system::ContractRequest,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccountChanges, AccountDiff, Changes};
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Number of consecutive steps in a chunk: enough to hash their blooms together, and few enough to
/// leave little to do when the last step ends.
const CHUNK_STEPS: usize = 16;

/// The result of a step besides its changes.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all steps are transactions"
)]
pub(super) enum StepResult {
    Before,
    Transaction(TransactionResult),
    After(Vec<ContractRequest>),
}

/// A step whose changes are all in the list.
pub(super) struct Step {
    pub(super) result: StepResult,
    /// Number of changes that it made.
    pub(super) changes: u64,
    /// Time that it took.
    pub(super) elapsed: Duration,
}

/// The changes that a part of a list claims.
#[derive(Default)]
pub(super) struct Claim {
    pub(super) changes: Vec<AccountDiff>,
    /// Number of changes of all steps.
    pub(super) count: u64,
    /// A copy of the part, if the outcome's list is expected to be another.
    pub(super) copy: Option<Vec<AccountChanges>>,
}

/// The state diff that a list claims, and the codes in the list.
pub(super) type ChangesAndCodes = (Changes, Vec<(B256, Bytes)>);

/// Results of a block's steps so far, and what its list claims.
pub(super) struct Results {
    /// Number of chunks and other parts that are missing.
    left: AtomicUsize,
    failed: AtomicBool,
    /// Gas of the transactions that have run, regular and state (EIP-8037).
    gas: [AtomicU64; 2],
    chunks: Box<[Mutex<Chunk>]>,
    contracts: OnceLock<Vec<ContractRequest>>,
    unlisted: Mutex<Vec<Unlisted>>,
    /// What the parts of the list claim.
    claims: Box<[Mutex<Claim>]>,
    changes: Mutex<Option<Arc<ChangesAndCodes>>>,
}

/// Consecutive steps of a block.
#[derive(Default)]
struct Chunk {
    /// Number of steps that have not ended.
    left: usize,
    /// Results of transactions without a receipt yet.
    results: Vec<Option<TransactionResult>>,
    /// The gas of each transaction that counts towards the block's.
    gas: Vec<BlockGas>,
    /// Receipts with the gas that transactions of the chunk have used.
    receipts: Vec<Receipt>,
    changes: u64,
    elapsed: Duration,
}

impl Results {
    /// The results of a block with this number of steps, of which all are missing, and of
    /// `other` jobs besides its chunks. The list has `claims` parts.
    pub(super) fn new(steps: usize, other: usize, claims: usize) -> Self {
        let starts = (0..steps).step_by(CHUNK_STEPS);
        let chunks = starts.map(|start| {
            Mutex::new(Chunk {
                left: CHUNK_STEPS.min(steps - start),
                ..Chunk::default()
            })
        });
        let chunks: Box<[_]> = chunks.collect();
        Self {
            left: AtomicUsize::new(chunks.len() + other),
            failed: AtomicBool::new(false),
            gas: Default::default(),
            chunks,
            contracts: OnceLock::new(),
            unlisted: Mutex::default(),
            claims: (0..claims).map(|_| Mutex::default()).collect(),
            changes: Mutex::default(),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Adds keys that steps touched and that are not listed.
    pub(super) fn add_unlisted(&self, keys: &[Unlisted]) {
        lock(&self.unlisted).extend_from_slice(keys);
    }

    /// Ends step `at`. `None`: it failed or differs from the list. Returns whether the block is
    /// complete.
    pub(super) fn end_step(&self, input: &BlockInput<'_>, at: usize, step: Option<Step>) -> bool {
        let number = at / CHUNK_STEPS;
        let first = transactions_before(number * CHUNK_STEPS, input);
        let mut chunk = lock(&self.chunks[number]);
        match step {
            None => self.failed.store(true, Ordering::Relaxed),
            Some(Step {
                result,
                changes,
                elapsed,
            }) => {
                chunk.changes += changes;
                chunk.elapsed += elapsed;
                match result {
                    StepResult::Before => {}
                    StepResult::After(requests) => {
                        let _ = self.contracts.set(requests);
                    }
                    StepResult::Transaction(result) => {
                        self.add_gas(result.block_gas, input.header.gas_limit);
                        let place = at - 1 - first;
                        if chunk.results.len() <= place {
                            chunk.results.resize_with(place + 1, || None);
                        }
                        chunk.results[place] = Some(result);
                    }
                }
            }
        }
        chunk.left -= 1;
        if chunk.left > 0 {
            return false;
        }
        if !self.has_failed() {
            let results = std::mem::take(&mut chunk.results).into_iter().flatten();
            let results: Vec<_> = results.map(|result| (result, B256::ZERO)).collect();
            chunk.gas = results.iter().map(|(result, _)| result.block_gas).collect();
            chunk.receipts = receipts(input, first, 0, results).collect();
        }
        drop(chunk);
        self.end_part()
    }

    /// A false list can make transactions use gas that no valid block has: no further step runs then.
    fn add_gas(&self, gas: BlockGas, limit: u64) {
        for (sum, gas) in self.gas.iter().zip([gas.regular, gas.state]) {
            let before = sum.fetch_add(gas, Ordering::Relaxed);
            if before.saturating_add(gas) > limit {
                self.failed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Adds what part number `part` of the list claims. `None`: the state could not be read.
    pub(super) fn add_claim(&self, part: usize, claim: Option<Claim>) {
        match claim {
            Some(claim) => *lock(&self.claims[part]) = claim,
            None => self.failed.store(true, Ordering::Relaxed),
        }
    }

    /// The claimed changes, of which all parts have been added. `None` if the block has failed.
    pub(super) fn claimed(&self, given: &Given<'_>) -> Option<ChangesAndCodes> {
        if self.has_failed() {
            return None;
        }
        let parts = self.claims.iter();
        let all = parts.flat_map(|part| std::mem::take(&mut lock(part).changes));
        Some((Changes::new(all.collect()), given.list().codes()))
    }

    /// Ends the claimed changes. `None`: the claim is incomplete. Returns whether the block is complete.
    pub(super) fn end_changes(&self, changes: Option<Arc<ChangesAndCodes>>) -> bool {
        match changes {
            Some(changes) => *lock(&self.changes) = Some(changes),
            None => self.failed.store(true, Ordering::Relaxed),
        }
        self.end_part()
    }

    /// Ends the reading of a portion of keys. Returns whether the block is complete.
    pub(super) fn end_reading(&self, is_correct: bool) -> bool {
        if !is_correct {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.end_part()
    }

    fn end_part(&self) -> bool {
        // The last part sees what all others have written.
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The time that all steps have taken together, if the block is complete.
    pub(super) fn elapsed(&self) -> Duration {
        self.chunks.iter().map(|chunk| lock(chunk).elapsed).sum()
    }

    /// Makes the outcome of a block that is complete. `None` if a step failed, differs from the
    /// list or exceeds a limit of the block, or if the list has a change that no step made.
    pub(super) fn outcome(&self, block: &BlockValues<'_>) -> Option<Outcome> {
        if self.has_failed() {
            return None;
        }
        let (input, given): (_, &Given<'_>) = (&block.input, block.given());
        let (mut limits, mut changes) = (Limits::default(), 0);
        let mut all = Vec::with_capacity(input.transactions.len());
        for chunk in &self.chunks {
            let chunk = std::mem::take(&mut *lock(chunk));
            for (index, gas) in (all.len()..).zip(chunk.gas) {
                limits.check::<Infallible>(input, index).ok()?;
                limits.add(gas);
            }
            let gas_before = all.last().map_or(0, Receipt::cumulative_gas_used);
            all.extend(chunk.receipts.into_iter().map(|mut receipt| {
                if let Some(receipt) = receipt.as_receipt_with_bloom_mut() {
                    receipt.receipt.cumulative_gas_used += gas_before;
                }
                receipt
            }));
            changes += chunk.changes;
        }
        let (mut listed, mut copy) = (0, Some(Vec::new()));
        for claim in &self.claims {
            let mut claim = lock(claim);
            listed += claim.count;
            copy = copy.zip(claim.copy.take()).map(|(mut all, mut some)| {
                all.append(&mut some);
                all
            });
        }
        if changes != listed {
            return None;
        }
        let contracts = self.contracts.get()?.clone();
        let mut results = BlockResults::of_receipts(input, all, limits);
        if input.rules.block_access_list {
            let unlisted = std::mem::take(&mut *lock(&self.unlisted));
            results.set_access_list(given.index().touched(unlisted, copy)?);
        }
        let deposits = results.deposits::<Infallible>().ok()?;
        let changes = Arc::unwrap_or_clone(lock(&self.changes).take()?);
        Some(results.finish(deposits, contracts, changes, true))
    }
}

/// Number of transactions before step `at`.
fn transactions_before(at: usize, input: &BlockInput<'_>) -> usize {
    at.saturating_sub(1).min(input.transactions.len())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_that_use_more_gas_than_a_block_may_have_end_it() {
        let gas = |regular, state| BlockGas { regular, state };
        for (gas, fails) in [
            ([gas(600, 0), gas(400, 1000)], false),
            ([gas(600, 0), gas(401, 0)], true),
            ([gas(1, 600), gas(1, 401)], true),
            ([gas(u64::MAX, 0), gas(u64::MAX, 0)], true),
        ] {
            let results = Results::new(4, 0, 0);
            gas.iter().for_each(|gas| results.add_gas(*gas, 1000));
            assert_eq!(results.has_failed(), fails, "{gas:?}");
        }
    }
}
