//! Blocks of an import between their execution and their verification.
//!
//! The next block needs only the values that a block leaves. So it is executed on these while other threads verify
//! everything else of the block: its gas, receipts, requests and access list, and its state root.
//!
//! ```text
//!   execute   changes -> layer                                       Unverified
//!   check     outcome against header and list; the stored body       ExecutedBlock
//!   verify    state root
//! ```

use crate::{
    BlockFault, Chain, ChainError, ExecutedBlock, PreparedBlock, Timings, VerifyError,
    error::execution_error,
    execute::{Ready, Step},
    reads::TimedReads,
    stored::{KnownBlock, body, packed_receipts},
    verify_outcome, verify_state_root,
};
use alloy_primitives::U256;
use cambium_evm::{ExecutionCounts, Hooks, Outcome, listed_changes};
use cambium_primitives::BlockId;
use cambium_state::{Staged, StateError, WithoutBody};
use std::{sync::Arc, time::Instant};

/// A block that is executed on its parent and sealed, and of which nothing else is verified. Dropping it removes it, and
/// the blocks that are built on it.
pub(crate) struct Unverified {
    sealed: WithoutBody,
    prepared: Arc<PreparedBlock>,
    parent: BlockId,
    pub(crate) becomes_head: bool,
    total_difficulty: U256,
    /// What execution gave, without the changes. `None` if the block's access list was applied.
    outcome: Option<Outcome>,
    is_batched: bool,
    counts: ExecutionCounts,
    timings: Timings,
}

/// A block of which only the state root is not verified.
pub(crate) struct Checked {
    block: ExecutedBlock,
    /// Its pin keeps the pages that the root needs.
    prepared: Arc<PreparedBlock>,
}

/// Receives executed blocks, in their order.
pub(crate) trait BlockSink {
    /// The head once all blocks received so far are committed.
    fn tip(&self) -> BlockId;

    /// Receives a block. Returns false if no further one is wanted.
    fn send(&mut self, block: Step<Unverified>) -> Result<bool, ChainError>;
}

impl Unverified {
    /// Number and hash of the block.
    pub(crate) fn id(&self) -> BlockId {
        self.sealed.id()
    }

    /// Time spent on the block so far.
    pub(crate) const fn timings_mut(&mut self) -> &mut Timings {
        &mut self.timings
    }
}

impl Chain {
    /// Validates and executes a block on its parent, and seals it. `outcome` is its outcome if it is known already, from
    /// a batch. A block that comes into the database meanwhile is [`Step::Known`].
    pub(crate) fn execute_ahead(
        &self,
        prepared: &Arc<PreparedBlock>,
        tip: BlockId,
        mut outcome: Option<Outcome>,
    ) -> Result<Step<Unverified>, ChainError> {
        self.unless_known(|| self.execute_unverified(prepared, tip, outcome.take()))
    }

    fn execute_unverified(
        &self,
        prepared: &Arc<PreparedBlock>,
        tip: BlockId,
        outcome: Option<Outcome>,
    ) -> Result<Unverified, ChainError> {
        let PreparedBlock { id, block, .. } = &**prepared;
        let _span = tracing::debug_span!("execute", number = id.number, hash = %id.hash).entered();
        let ready = self.ready(prepared)?;
        let is_batched = outcome.is_some();
        let Values {
            staged,
            outcome,
            counts,
            mut timings,
        } = match self.apply_unverified(&ready)? {
            Some(applied) => applied,
            None => self.run_unverified(&ready, outcome)?,
        };
        let start = Instant::now();
        let header = &block.header;
        let known = KnownBlock::child_of(&ready.parent, block);
        let becomes_head = self.becomes_head(&known, ready.post_merge, tip)?;
        let sealed = staged.seal_without_body(*id, header.parent_hash, header.state_root)?;
        let total_difficulty = known.total_difficulty;
        self.remember(id.hash, known);
        timings.execute += ready.validated;
        timings.root += start.elapsed();
        Ok(Unverified {
            sealed,
            prepared: prepared.clone(),
            parent: ready.parent_id,
            becomes_head,
            total_difficulty,
            is_batched: is_batched && outcome.is_some(),
            outcome,
            counts,
            timings,
        })
    }

    /// Executes a block, unless its outcome is known. The state root remains to be computed, except before Byzantium,
    /// where receipts need it, and under the `layered` commitment.
    fn run_unverified(
        &self,
        ready: &Ready<'_>,
        outcome: Option<Outcome>,
    ) -> Result<Values, ChainError> {
        let id = ready.prepared.id;
        let senders = self.ready_senders(ready)?;
        let (input, _) = self.input_of(ready, &senders);
        let start = Instant::now();
        let mut session = ready.view.clone().session();
        let reads = TimedReads::new(ready.view.clone());
        let mut counts = ExecutionCounts::default();
        let mut outcome = match outcome {
            Some(outcome) => {
                counts.parallel += input.transactions.len() as u64;
                outcome
            }
            None => {
                let mut roots = |changes: &_| session.intermediate_root(changes);
                let hooks = Hooks {
                    roots: Some(&mut roots),
                    counts: Some(&mut counts),
                    ..Hooks::default()
                };
                let executed = self.execute_by_choice(&input, &reads, hooks);
                executed.map_err(|error| execution_error(id, error))?
            }
        };
        let execute = start.elapsed();
        let start = Instant::now();
        let changes = std::mem::take(&mut outcome.changes);
        let codes = std::mem::take(&mut outcome.codes);
        let header = input.header;
        let staged = session.finish_claimed(changes, codes, header.state_root)?;
        if let Err(error) = verify_state_root(header, staged.root()) {
            // Everything else is verified before the root.
            let verified = verify_outcome(header, &outcome, ready.given);
            let error = verified.err().unwrap_or(error);
            return Err(ChainError::invalid(id, BlockFault::from(error)));
        }
        Ok(Values {
            staged,
            outcome: Some(outcome),
            counts,
            timings: Timings {
                execute,
                read: reads.spent(),
                root: start.elapsed(),
                ..Timings::default()
            },
        })
    }

    /// Applies the changes of a block's access list, if lists are to be applied. `None` if the block must be executed.
    ///
    /// A list whose hash is in the header leads to another state root only if the block is invalid: its root is verified
    /// later. Any other list may be wrong while the block is valid, so its root is computed here.
    fn apply_unverified(&self, ready: &Ready<'_>) -> Result<Option<Values>, ChainError> {
        let Some(list) = self.list_to_apply(ready) else {
            return Ok(None);
        };
        let header = &ready.prepared.block.header;
        let reads = TimedReads::new(ready.view.clone());
        let start = Instant::now();
        let changes = listed_changes(list, &reads)?;
        let execute = start.elapsed();
        let start = Instant::now();
        let session = ready.view.clone().session();
        let staged = match header.block_access_list_hash {
            Some(_) => session.finish_claimed(changes, list.codes(), header.state_root)?,
            None => session.finish(changes, list.codes())?,
        };
        if staged.root() != header.state_root {
            return Ok(None);
        }
        Ok(Some(Values {
            staged,
            outcome: None,
            counts: ExecutionCounts::default(),
            timings: Timings {
                execute,
                read: reads.spent(),
                root: start.elapsed(),
                ..Timings::default()
            },
        }))
    }

    /// Verifies everything but the state root of an executed block, and makes the body that is stored with it.
    pub(crate) fn check(&self, block: Unverified) -> Result<Checked, ChainError> {
        let Unverified {
            sealed,
            prepared,
            parent,
            becomes_head,
            total_difficulty,
            outcome,
            is_batched,
            counts,
            timings,
        } = block;
        let PreparedBlock { id, block, rlp, .. } = &*prepared;
        let header = &block.header;
        // An invalid list has ended the execution of its block.
        let given = prepared.access_list.as_ref();
        let given = given.and_then(|list| list.as_ref().ok());
        let mut receipts = None;
        if let Some(outcome) = &outcome {
            let verified = verify_outcome(header, outcome, given);
            let _ = verified.map_err(|error| ChainError::invalid(*id, BlockFault::from(error)))?;
            if self.keeps_receipts() {
                receipts = packed_receipts(&outcome.receipts);
            }
        }
        let recorded = outcome.as_ref();
        let recorded = recorded.and_then(|outcome| outcome.access_list.as_ref());
        let list = recorded.or(given);
        let preimages = self.created(list, sealed.changes(), sealed.reverts());
        // A list whose hash is not in the header is not stored.
        let list = list.filter(|_| header.block_access_list_hash.is_some());
        let body = body(
            total_difficulty,
            rlp,
            list,
            receipts.as_deref(),
            preimages.as_deref(),
        );
        let block = ExecutedBlock {
            sealed: sealed.complete(body)?,
            parent,
            becomes_head,
            transactions: block.body.transactions.len() as u64,
            gas: header.gas_used,
            is_listed: given.is_some(),
            is_applied: outcome.is_none(),
            is_batched,
            outcome: None,
            counts,
            timings,
        };
        Ok(Checked { block, prepared })
    }

    /// Verifies the state root of a block.
    pub(crate) fn verify_root(&self, checked: Checked) -> Result<ExecutedBlock, ChainError> {
        let Checked {
            mut block,
            prepared,
        } = checked;
        let id = block.id();
        let (got, expected) = match block.sealed.verify() {
            Ok(()) => return Ok(block),
            // The engine expects the claimed root, a header the computed one.
            Err(StateError::WrongRoot { got, expected, .. }) => (expected, got),
            Err(error) => return Err(error.into()),
        };
        if block.is_applied {
            // Execution finds what is wrong, once the block is gone.
            let tip = block.parent;
            drop(block);
            self.execute_with(&prepared, tip, true)?;
        }
        let error = VerifyError::StateRoot { got, expected };
        Err(ChainError::invalid(id, BlockFault::from(error)))
    }
}

/// The state that a block leads to.
struct Values {
    staged: Staged,
    outcome: Option<Outcome>,
    counts: ExecutionCounts,
    timings: Timings,
}
