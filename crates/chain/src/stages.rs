//! The stages of a block, from its parent's state to a sealed block.
//!
//! ```text
//!   execute   changes -> layer                                       Unverified
//!   check     outcome against header and list; the stored body       Checked
//!   verify    state root                                             ExecutedBlock
//! ```
//!
//! A block that is executed alone goes through them on one thread, and everything is verified before it is sealed. In an
//! import the next block needs only the values that a block leaves: it is executed on these while other threads check and
//! verify the block.

use crate::{
    Block, BlockFault, Chain, ChainError, ExecutedBlock, PreparedBlock, StateUpdate, Timings,
    VerifyError,
    error::execution_error,
    execute::{Ready, Step},
    reads::TimedReads,
    stored::{KnownBlock, body, packed_receipts},
    unchecked::{Room, Unchecked},
    verify_outcome, verify_state_root,
};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_evm::{ExecutionCounts, Hooks, ListedChanges, Outcome, listed_changes};
use cambium_primitives::{BlockId, Changes};
use cambium_state::{Session, Staged, StateError, WithoutBody};
use std::{
    borrow::Cow,
    ops::Deref,
    sync::Arc,
    time::{Duration, Instant},
};

/// How a block is executed.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// Everything of it is verified before it is sealed.
    Alone {
        /// Whether [`ExecutedBlock::outcome`] is wanted. Such a block is always executed, even if its access list could be
        /// applied.
        keeps_outcome: bool,
    },
    /// Its root is verified by [`Chain::verify_root`], except before Byzantium, where receipts need it, and under the
    /// `layered` commitment.
    Ahead,
}

/// A block that is executed and sealed, whose outcome is not verified, and whose root may be a claim: see [`Mode`].
/// Dropping it removes it, and the blocks that are built on it.
pub(crate) struct Unverified<P = Arc<PreparedBlock>> {
    sealed: WithoutBody,
    prepared: P,
    parent: BlockId,
    pub(crate) becomes_head: bool,
    total_difficulty: U256,
    /// What execution gave, without the changes. `None` if the block's access list was applied.
    outcome: Option<Outcome>,
    /// Whether the outcome is verified already.
    is_verified: bool,
    /// The whole outcome, if it is kept.
    kept: Option<Outcome>,
    is_batched: bool,
    counts: ExecutionCounts,
    timings: Timings,
    /// Held until the block is checked.
    room: Option<Room>,
}

/// A block whose outcome is verified. Its root may still be a claim.
pub(crate) struct Checked<P = Arc<PreparedBlock>> {
    block: ExecutedBlock,
    /// Its pin keeps the pages that the root needs.
    prepared: P,
}

/// Receives executed blocks, in their order.
pub(crate) trait BlockSink {
    /// The head once all blocks received so far are committed.
    fn tip(&self) -> BlockId;

    /// Receives a block. Returns false if no further one is wanted.
    fn send(&mut self, block: Step<Unverified>) -> Result<bool, ChainError>;
}

impl<P> Unverified<P> {
    /// Number and hash of the block.
    pub(crate) fn id(&self) -> BlockId {
        self.sealed.id()
    }

    /// Waits until so few outcomes wait to be checked that this one may, too.
    pub(crate) fn wait_for_room(&mut self, unchecked: &Arc<Unchecked>) {
        if let Some(outcome) = &self.outcome {
            self.room = Some(unchecked.room(outcome.gas_used));
        }
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
        self.unless_known(|| {
            self.execute_unverified(prepared.clone(), tip, outcome.take(), Mode::Ahead)
        })
    }

    /// As [`execute`](Self::execute). `keeps_outcome` is that of [`Mode::Alone`].
    pub(crate) fn execute_alone(
        &self,
        prepared: &PreparedBlock,
        tip: BlockId,
        keeps_outcome: bool,
    ) -> Result<ExecutedBlock, ChainError> {
        let mode = Mode::Alone { keeps_outcome };
        let block = self.execute_unverified(prepared, tip, None, mode)?;
        Ok(self.check(block)?.block)
    }

    fn execute_unverified<P: Deref<Target = PreparedBlock>>(
        &self,
        prepared: P,
        tip: BlockId,
        outcome: Option<Outcome>,
        mode: Mode,
    ) -> Result<Unverified<P>, ChainError> {
        let PreparedBlock { id, block, .. } = &*prepared;
        let _span = tracing::debug_span!("execute", number = id.number, hash = %id.hash).entered();
        let ready = self.ready(&prepared)?;
        let is_batched = outcome.is_some();
        let Values {
            staged,
            outcome,
            kept,
            counts,
            mut timings,
        } = match self.apply(&ready, mode)? {
            Some(applied) => applied,
            None => self.run(&ready, outcome, mode)?,
        };
        let start = Instant::now();
        let header = &block.header;
        let known = KnownBlock::child_of(&ready.parent, block);
        let becomes_head = self.becomes_head(&known, ready.post_merge, tip)?;
        let sealed = staged
            .seal_without_body(*id, header.parent_hash, header.state_root)
            .map_err(|error| not_sealed(*id, ready.parent_id, error))?;
        let total_difficulty = known.total_difficulty;
        self.remember(id.hash, known);
        timings.execute += ready.validated;
        timings.root += start.elapsed();
        Ok(Unverified {
            sealed,
            parent: ready.parent_id,
            prepared,
            becomes_head,
            total_difficulty,
            is_batched: is_batched && outcome.is_some(),
            outcome,
            is_verified: matches!(mode, Mode::Alone { .. }),
            kept,
            counts,
            timings,
            room: None,
        })
    }

    /// Executes a block, unless its outcome is known.
    fn run(
        &self,
        ready: &Ready<'_>,
        outcome: Option<Outcome>,
        mode: Mode,
    ) -> Result<Values, ChainError> {
        let id = ready.prepared.id;
        let recovered = match outcome.is_none() && ready.prepared.senders.is_none() {
            true => self.recovered_meanwhile(ready),
            false => None,
        };
        let senders = match recovered {
            Some(_) => Cow::default(),
            None => self.ready_senders(ready)?,
        };
        let (mut input, is_listed) = self.input_of(ready, &senders);
        input.recovered = recovered.as_ref();
        let start = Instant::now();
        let mut session = ready.view.clone().session();
        let is_early = ready.given.is_some() && matches!(mode, Mode::Alone { .. });
        let mut early = Early::new(is_early.then(|| ready.view.clone().session()));
        let reads = TimedReads::new(ready.view.clone());
        let mut counts = ExecutionCounts::default();
        let mut outcome = match outcome {
            Some(outcome) => {
                counts.parallel += input.transactions.len() as u64;
                outcome
            }
            None => {
                let mut roots = |changes: &_| session.intermediate_root(changes);
                let mut claimed = |changes: &_, codes: &_| early.stage(changes, codes);
                let hooks = Hooks {
                    roots: Some(&mut roots),
                    claimed: if is_early { Some(&mut claimed) } else { None },
                    counts: Some(&mut counts),
                    ..Hooks::default()
                };
                let execute = || {
                    let executed = self.execute_by_choice(&input, &reads, hooks);
                    executed.map_err(|error| execution_error(id, error))
                };
                let executed = match &recovered {
                    Some(recovered) => recovered.during(execute),
                    None => execute(),
                };
                // An invalid signature is the first fault of a block, whatever else there is.
                if let (Err(_), Some(recovered)) = (&executed, &recovered) {
                    let checked = recovered.check();
                    checked.map_err(|error| ChainError::invalid(id, error))?;
                }
                executed?
            }
        };
        let header = input.header;
        if matches!(mode, Mode::Alone { .. }) {
            let verified = verify_outcome(header, &outcome, ready.given);
            let _ = verified.map_err(|error| ChainError::invalid(id, error))?;
        }
        let (execute, hidden) = (start.elapsed(), early.elapsed);
        let start = Instant::now();
        let keeps_outcome = matches!(
            mode,
            Mode::Alone {
                keeps_outcome: true
            }
        );
        let kept = keeps_outcome.then(|| {
            let mut kept = outcome.clone();
            kept.access_list.take_if(|_| !is_listed);
            kept
        });
        let changes = std::mem::take(&mut outcome.changes);
        let codes = std::mem::take(&mut outcome.codes);
        let staged = match (mode, early.take(&changes, &codes)) {
            (_, Some(staged)) => staged,
            (Mode::Alone { .. }, None) => session.finish(changes, codes)?,
            (Mode::Ahead, None) => session.finish_claimed(changes, codes, header.state_root)?,
        };
        if let Err(error) = verify_state_root(header, staged.root()) {
            // Everything else is verified before the root.
            let verified = verify_outcome(header, &outcome, ready.given);
            let error = verified.err().unwrap_or(error);
            return Err(ChainError::invalid(id, BlockFault::from(error)));
        }
        Ok(Values {
            staged,
            outcome: Some(outcome),
            kept,
            counts,
            timings: Timings {
                execute,
                read: reads.spent(),
                root: start.elapsed() + hidden,
                ..Timings::default()
            },
        })
    }

    /// Applies the changes of a block's access list, if lists are to be applied. `None` if the block must be executed.
    ///
    /// A list whose hash is in the header leads to another state root only if the block is invalid, or if it touches an
    /// account that exists and is empty: without such an account its root is verified later in an import. Any other list
    /// may be wrong while the block is valid, so its root is computed here. No other field of the header is verified.
    fn apply(&self, ready: &Ready<'_>, mode: Mode) -> Result<Option<Values>, ChainError> {
        if let Some(update) = &ready.prepared.update {
            return self.apply_update(ready, update).map(Some);
        }
        if self.db().kept_storage().is_some() {
            return Err(ChainError::NoUpdate(ready.prepared.id));
        }
        let list = match mode {
            Mode::Alone {
                keeps_outcome: true,
            } => None,
            Mode::Alone { .. } | Mode::Ahead => self.list_to_apply(ready),
        };
        let Some(list) = list else {
            return Ok(None);
        };
        let Block { header, body, .. } = &ready.prepared.block;
        let reads = TimedReads::new(ready.view.clone());
        let start = Instant::now();
        let paid = body.withdrawals.iter().flat_map(|paid| paid.iter());
        let others = paid.map(|paid| paid.address).chain([header.beneficiary]);
        let ListedChanges {
            changes,
            has_empty_account,
        } = listed_changes(list, others, &reads)?;
        let execute = start.elapsed();
        let start = Instant::now();
        let session = ready.view.clone().session();
        let staged = match (mode, header.block_access_list_hash) {
            (Mode::Ahead, Some(_)) if !has_empty_account => {
                session.finish_claimed(changes, list.codes(), header.state_root)?
            }
            _ => session.finish(changes, list.codes())?,
        };
        if staged.root() != header.state_root {
            return Ok(None);
        }
        Ok(Some(Values {
            staged,
            outcome: None,
            kept: None,
            counts: ExecutionCounts::default(),
            timings: Timings {
                execute,
                read: reads.spent(),
                root: start.elapsed(),
                ..Timings::default()
            },
        }))
    }

    /// Applies the state update that came with a block. Its state root is computed here, and proves the update. No other field of
    /// the header is verified that depends on execution.
    fn apply_update(
        &self,
        ready: &Ready<'_>,
        update: &Result<StateUpdate, String>,
    ) -> Result<Values, ChainError> {
        let PreparedBlock { id, block, .. } = ready.prepared;
        let wrong = |why: String| ChainError::FalseUpdate { id: *id, why };
        let update = update.as_ref().map_err(|why| wrong(why.clone()))?;
        if self.keeps_preimages() {
            return Err(ChainError::NoPreimagesInUpdate(*id));
        }
        let start = Instant::now();
        let codes = update.codes.iter();
        let codes = codes.map(|code| (keccak256(code), code.clone())).collect();
        let session = ready.view.clone().session();
        let changes = update.changes.clone();
        let staged = session.finish_with_storage_roots(changes, codes, &update.storage_roots);
        let staged = staged.map_err(|error| match error {
            StateError::StorageRoot { .. }
            | StateError::WrongStorageRoot { .. }
            | StateError::BadChanges(_)
            | StateError::WrongLeaf { .. }
            | StateError::UnknownCode { .. } => wrong(error.to_string()),
            error => error.into(),
        })?;
        let (got, expected) = (staged.root(), block.header.state_root);
        if got != expected {
            let why = format!("it leads to the state root {got}, and the header has {expected}");
            return Err(wrong(why));
        }
        Ok(Values {
            staged,
            outcome: None,
            kept: None,
            counts: ExecutionCounts::default(),
            timings: Timings {
                root: start.elapsed(),
                ..Timings::default()
            },
        })
    }

    /// Verifies everything but the state root of an executed block, and makes the body that is stored with it.
    pub(crate) fn check<P: Deref<Target = PreparedBlock>>(
        &self,
        block: Unverified<P>,
    ) -> Result<Checked<P>, ChainError> {
        let Unverified {
            sealed,
            prepared,
            parent,
            becomes_head,
            total_difficulty,
            outcome,
            is_verified,
            kept,
            is_batched,
            counts,
            timings,
            room,
        } = block;
        let PreparedBlock { id, block, rlp, .. } = &*prepared;
        let header = &block.header;
        // An invalid list has ended the execution of its block.
        let given = prepared.access_list.as_ref();
        let given = given.and_then(|list| list.as_ref().ok());
        let mut receipts = None;
        if let Some(outcome) = &outcome {
            if !is_verified {
                let verified = verify_outcome(header, outcome, given);
                let _ =
                    verified.map_err(|error| ChainError::invalid(*id, BlockFault::from(error)))?;
            }
            if self.keeps_receipts() {
                receipts = packed_receipts(&outcome.receipts);
            }
        }
        let is_applied = outcome.is_none();
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
        drop((outcome, room));
        let sealed = sealed.complete(body);
        let block = ExecutedBlock {
            sealed: sealed.map_err(|error| not_sealed(*id, parent, error))?,
            parent,
            becomes_head,
            transactions: block.body.transactions.len() as u64,
            gas: header.gas_used,
            is_listed: given.is_some(),
            is_applied,
            is_batched,
            outcome: kept,
            counts,
            timings,
        };
        Ok(Checked { block, prepared })
    }

    /// Verifies the state root of a block.
    pub(crate) fn verify_root<P: Deref<Target = PreparedBlock>>(
        &self,
        checked: Checked<P>,
    ) -> Result<ExecutedBlock, ChainError> {
        let Checked {
            mut block,
            prepared,
        } = checked;
        let id = block.id();
        let (got, expected) = match block.sealed.verify() {
            Ok(()) => return Ok(block),
            // The engine expects the claimed root, a header the computed one.
            Err(StateError::WrongRoot { got, expected, .. }) => (expected, got),
            Err(error) => return Err(not_sealed(id, block.parent, error)),
        };
        if block.is_applied {
            // Execution finds what is wrong, once the block is gone.
            let tip = block.parent;
            drop(block);
            self.execute_alone(&prepared, tip, true)?;
        }
        let error = VerifyError::StateRoot { got, expected };
        Err(ChainError::invalid(id, BlockFault::from(error)))
    }
}

/// Why a block is not in memory any more, or can't be: if it is not known, one below it was dropped by whoever has found it invalid.
fn not_sealed(id: BlockId, parent: BlockId, error: StateError) -> ChainError {
    match error {
        StateError::UnknownBlock(_) => {
            ChainError::invalid(id, BlockFault::UnknownParent(parent.hash))
        }
        error => error.into(),
    }
}

/// The state that a block leads to.
struct Values {
    staged: Staged,
    outcome: Option<Outcome>,
    kept: Option<Outcome>,
    counts: ExecutionCounts,
    timings: Timings,
}

/// The state root of a block, computed from its access list while its transactions run. The list is
/// untrusted: the root is used only if execution gives the same changes.
struct Early {
    session: Option<Session>,
    staged: Option<Result<Staged, StateError>>,
    codes: Vec<(B256, Bytes)>,
    elapsed: Duration,
}

impl Early {
    const fn new(session: Option<Session>) -> Self {
        Self {
            session,
            staged: None,
            codes: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    fn stage(&mut self, changes: &Changes, codes: &[(B256, Bytes)]) {
        let start = Instant::now();
        self.codes = codes.to_vec();
        if let Some(session) = self.session.take() {
            self.staged = Some(session.finish(changes.clone(), codes.to_vec()));
        }
        self.elapsed = start.elapsed();
    }

    /// The staged block, if it has the changes and codes of execution.
    fn take(self, changes: &Changes, codes: &[(B256, Bytes)]) -> Option<Staged> {
        // An error that is not caused by the list recurs when the block is staged again.
        let staged = self.staged?.ok()?;
        (staged.changes() == changes && self.codes == codes).then_some(staged)
    }
}
