//! Validation of a block and the choice of its executor. [`crate::stages`] executes and seals it.

use crate::{
    Ancestor, Block, BlockFault, Chain, ChainError, OMMER_ANCESTORS, PreparedBlock,
    preimages::created, stored::KnownBlock, validate_body, validate_header, validate_ommers,
};
use alloy_primitives::{Address, B256, Bytes};
use cambium_evm::{
    BlockExecutor, BlockInput, ExecutionCounts, ExecutionError, Executor, ExecutorKind, Hooks,
    Outcome, RecoveredMeanwhile, StateRead,
};
use cambium_primitives::{AccessList, BlockId, Changes};
use cambium_state::{Sealed, StateError, View};
use revm::primitives::hardfork::SpecId;
use std::{
    borrow::Cow,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Time spent in the stages of importing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Decoding and recovering senders, which runs ahead of and in parallel to the other stages.
    pub recover: Duration,
    /// Validation, execution and, in an import, comparison with the header. Steps of a batch are summed over all
    /// threads.
    pub execute: Duration,
    /// The part of `execute` that is spent reading state, summed over threads. It may exceed
    /// `execute` if threads wait at the same time.
    pub read: Duration,
    /// Reading overwritten values, sealing, updating and hashing the trie. In an import it overlaps with the execution of
    /// later blocks.
    pub root: Duration,
    /// Appending to the block log and syncing it, in parallel to the other stages.
    pub commit: Duration,
}

impl std::ops::AddAssign for Timings {
    fn add_assign(&mut self, other: Self) {
        self.recover += other.recover;
        self.execute += other.execute;
        self.read += other.read;
        self.root += other.root;
        self.commit += other.commit;
    }
}

/// A block that is valid and sealed, but not durable yet. Dropping it removes it, and the blocks that
/// are built on it.
pub struct ExecutedBlock {
    pub(crate) sealed: Sealed,
    pub(crate) parent: BlockId,
    pub(crate) becomes_head: bool,
    /// Outcome of execution, if it is kept.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) transactions: u64,
    pub(crate) gas: u64,
    /// Whether it came with an access list.
    pub(crate) is_listed: bool,
    /// Whether its access list was applied instead of executing it.
    pub(crate) is_applied: bool,
    /// Whether it was executed at once with others.
    pub(crate) is_batched: bool,
    pub(crate) counts: ExecutionCounts,
    pub(crate) timings: Timings,
}

impl ExecutedBlock {
    /// Number and hash of the block.
    pub fn id(&self) -> BlockId {
        self.sealed.id()
    }

    /// Whether the block becomes the head by the rules of the chain: before the merge if its total
    /// difficulty is the highest, after it always.
    pub const fn becomes_head(&self) -> bool {
        self.becomes_head
    }

    /// Receipts, requests, access list, gas and state changes. `None` if the chain applies
    /// access lists ([`Chain::with_applying`]), even if this block was executed.
    pub const fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The state after the block.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if a block below it was dropped.
    pub fn view(&self) -> Result<View, StateError> {
        self.sealed.view()
    }

    /// Makes the block durable and the head.
    ///
    /// # Errors
    ///
    /// As [`Sealed::commit`].
    pub fn commit(self) -> Result<BlockId, StateError> {
        Ok(self.sealed.commit()?.id())
    }

    /// Makes the block durable. The head stays where it is.
    ///
    /// # Errors
    ///
    /// As [`Sealed::commit_side_branch`].
    pub fn commit_side_branch(self) -> Result<BlockId, StateError> {
        Ok(self.sealed.commit_side_branch()?.id())
    }
}

/// Longest time to wait for another caller to commit the block that it has sealed, since the head last moved, and time
/// between two looks. That caller may be an import that has to verify the blocks before.
const OTHER_CALLER_MAX: Duration = Duration::from_secs(30);
const OTHER_CALLER_PAUSE: Duration = Duration::from_millis(1);

/// How long a caller waits for another one.
struct Patience {
    head: BlockId,
    end: Instant,
}

impl Patience {
    fn new(chain: &Chain) -> Self {
        Self {
            head: chain.db().head(),
            end: Instant::now() + OTHER_CALLER_MAX,
        }
    }

    /// Sleeps until the next look. Returns false if it was too long since the head last moved.
    fn waits(&mut self, chain: &Chain) -> bool {
        let head = chain.db().head();
        if head != self.head {
            *self = Self::new(chain);
        }
        let waits = Instant::now() < self.end;
        if waits {
            thread::sleep(OTHER_CALLER_PAUSE);
        }
        waits
    }
}

/// A block, or that the database has it already.
pub(crate) enum Step<B> {
    /// The database has the block: it is not executed again.
    Known(BlockId),
    New(B),
}

/// A block whose header and body are valid, and what it is executed on.
pub(crate) struct Ready<'a> {
    pub(crate) prepared: &'a PreparedBlock,
    pub(crate) parent_id: BlockId,
    pub(crate) parent: KnownBlock,
    pub(crate) post_merge: bool,
    /// The access list that came with it.
    pub(crate) given: Option<&'a AccessList>,
    /// The state of its parent.
    pub(crate) view: View,
    /// Time spent on finding the parent and on validating header, body and list.
    pub(crate) validated: Duration,
}

impl Chain {
    /// Validates, executes and commits one block, given as RLP. `access_list` is the RLP of its
    /// access list, if that came with the block. Callers take turns.
    ///
    /// # Errors
    ///
    /// [`ChainError::NotABlock`] and [`ChainError::Block`] if the block is invalid or its parent is unknown:
    /// nothing is stored then. [`ChainError::State`] if the database fails, or if the block would undo the
    /// finalized one.
    pub fn import_block(
        &self,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<BlockId, ChainError> {
        let prepared = Arc::new(self.prepare(rlp, access_list)?);
        if self.read_ahead() > 0 {
            self.prefetch_known_keys(&prepared);
        }
        // Whether it becomes the head is decided by the head.
        let _alone = self.inserting.lock();
        self.await_commit(self.parent_of(&prepared.block().header))?;
        let executed = self.execute_alone(&prepared, self.db().head(), false)?;
        let id = executed.sealed.id();
        if executed.becomes_head {
            executed.sealed.commit()?;
        } else {
            executed.sealed.commit_side_branch()?;
        }
        Ok(id)
    }

    /// Validates and executes a block on its parent, on any branch, and seals it. `tip` is the head
    /// once all blocks executed before are committed. [`Chain::insert`] makes the block durable as well.
    ///
    /// # Errors
    ///
    /// As [`Chain::insert`].
    pub fn execute(
        &self,
        prepared: PreparedBlock,
        tip: BlockId,
    ) -> Result<ExecutedBlock, ChainError> {
        self.execute_alone(&prepared, tip, !self.is_applying())
    }

    /// Does `execute`, but a block that comes into the database meanwhile is [`Step::Known`]. Other callers may insert
    /// or import it, and the commit of a block whose record was lost brings its descendants back. A block that another
    /// caller has sealed is waited for, for a while.
    pub(crate) fn unless_known<B>(
        &self,
        mut execute: impl FnMut() -> Result<B, ChainError>,
    ) -> Result<Step<B>, ChainError> {
        let mut executed = execute();
        let mut patience = Patience::new(self);
        loop {
            let Err(ChainError::State(StateError::BlockExists(id))) = executed else {
                return Ok(Step::New(executed?));
            };
            if self.has(id)? {
                return Ok(Step::Known(id));
            }
            if self.db().find(&id.hash).is_none() {
                // It was dropped, and not committed.
                executed = execute();
                patience = Patience::new(self);
            } else if patience.waits(self) {
                executed = Err(StateError::BlockExists(id).into());
            } else {
                return Err(StateError::BlockExists(id).into());
            }
        }
    }

    /// Whether a block is in memory: sealed by whichever caller, or committed a short time ago.
    pub(crate) fn is_sealed(&self, id: BlockId) -> bool {
        self.db().find(&id.hash) == Some(id)
    }

    /// Waits, for a while, until another caller has committed a block that it has sealed.
    pub(crate) fn await_commit(&self, id: BlockId) -> Result<(), ChainError> {
        let mut patience = Patience::new(self);
        while !self.has(id)? && self.is_sealed(id) && patience.waits(self) {}
        Ok(())
    }

    /// Validates what does not need the state, and finds the state of the parent.
    pub(crate) fn ready<'a>(&self, prepared: &'a PreparedBlock) -> Result<Ready<'a>, ChainError> {
        let PreparedBlock { id, block, pin, .. } = prepared;
        let start = Instant::now();
        let invalid = |fault: BlockFault| ChainError::invalid(*id, fault);
        let header = &block.header;
        let unknown_parent = || invalid(BlockFault::UnknownParent(header.parent_hash));
        let parent_id = self.parent_of(header);
        let parent = match self.known(parent_id)? {
            // Another caller may have sealed it a moment ago.
            None => {
                self.await_commit(parent_id)?;
                self.known(parent_id)?
            }
            known => known,
        };
        let parent = parent.ok_or_else(unknown_parent)?;
        match self.db().check_buildable(parent_id) {
            // A block in memory has been dropped, because it or one below it is invalid.
            Err(StateError::UnknownBlock(_)) => return Err(unknown_parent()),
            buildable => buildable?,
        }
        let post_merge = self
            .spec()
            .is_post_merge(header.number, parent.total_difficulty);
        self.validate(block, &parent, post_merge)?
            .map_err(invalid)?;
        if let Some(Err(error)) = &prepared.senders {
            return Err(invalid((*error).into()));
        }
        let given = prepared.access_list.as_ref().map(Result::as_ref);
        let given = given.transpose();
        let given = given.map_err(|error| invalid(error.clone().into()))?;
        let validated = start.elapsed();
        let view = match self.db().view_of(parent_id) {
            Err(StateError::UnknownBlock(_)) => return Err(unknown_parent()),
            view => view?.pinned(pin.clone()),
        };
        Ok(Ready {
            prepared,
            parent_id,
            parent,
            post_merge,
            given,
            view,
            validated,
        })
    }

    /// The senders of a block's transactions, which are recovered here if they are not known.
    pub(crate) fn ready_senders<'a>(
        &self,
        ready: &Ready<'a>,
    ) -> Result<Cow<'a, [Address]>, ChainError> {
        let PreparedBlock {
            id, block, senders, ..
        } = ready.prepared;
        if let Some(Ok(senders)) = senders {
            return Ok(senders.into());
        }
        let recovered = self.senders(block);
        let recovered = recovered.map_err(|error| ChainError::invalid(*id, error))?;
        Ok(recovered.into())
    }

    /// Senders that are recovered while a block is executed; `None` if an executor needs all of them first.
    pub(crate) fn recovered_meanwhile<'a>(
        &self,
        ready: &Ready<'a>,
    ) -> Option<RecoveredMeanwhile<'a>> {
        let executor = self.executor();
        let kind = executor
            .kind
            .for_block(ready.given.is_some(), executor.threads.get());
        let block = &ready.prepared.block;
        let low = self.spec().has_low_signatures(&block.header);
        (kind == ExecutorKind::Sequential)
            .then(|| RecoveredMeanwhile::new(&block.body.transactions, low))
    }

    /// The executor's input, and whether the outcome's access list is wanted: by the fork's rules, or because a list came
    /// with the block. It is also recorded where preimages are kept.
    pub(crate) fn input_of<'a>(
        &self,
        ready: &Ready<'a>,
        senders: &'a [Address],
    ) -> (BlockInput<'a>, bool) {
        let block = &ready.prepared.block;
        let mut input = self.spec().input(block, senders, ready.post_merge);
        input.access_list = ready.given;
        let is_listed = input.rules.block_access_list || ready.given.is_some();
        // The list names what the block creates.
        input.rules.block_access_list = is_listed || self.keeps_preimages();
        (input, is_listed)
    }

    /// Executes a block. If the executor is `auto` and could run it speculatively, it does so if that
    /// was faster on the blocks before.
    pub(crate) fn execute_by_choice<S: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        state: S,
        hooks: Hooks<'_, S::Error>,
    ) -> Result<Outcome, ExecutionError<S::Error>> {
        let executor = self.executor();
        let is_open = executor.kind == ExecutorKind::Auto
            && executor.kind_for(input) == ExecutorKind::Optimistic;
        if !is_open {
            return executor.execute(input, state, hooks);
        }
        let kind = self.choice().next();
        let start = Instant::now();
        let outcome = BlockExecutor { kind, ..*executor }.execute(input, state, hooks)?;
        self.choice().add(kind, outcome.gas_used, start.elapsed());
        Ok(outcome)
    }

    /// The access list of a block, if lists are to be applied instead of executing blocks.
    pub(crate) fn list_to_apply<'a>(&self, ready: &Ready<'a>) -> Option<&'a AccessList> {
        let header = &ready.prepared.block.header;
        let rules = || {
            self.spec()
                .rules_at(header.number, header.timestamp, ready.post_merge)
        };
        ready
            .given
            .filter(|_| self.is_applying() && rules().is(SpecId::CANCUN))
    }

    /// Packs the addresses and slot keys created by a block, to be stored with it, if preimages are kept. `reverts`
    /// undo its changes.
    pub(crate) fn created(
        &self,
        list: Option<&AccessList>,
        changes: &Changes,
        reverts: &Changes,
    ) -> Option<Vec<u8>> {
        let list = list.filter(|_| self.keeps_preimages())?;
        Some(created(list, changes, reverts).pack())
    }

    /// Validates everything that does not need the state. The outer error is that of the database.
    fn validate(
        &self,
        block: &Block,
        parent: &KnownBlock,
        post_merge: bool,
    ) -> Result<Result<(), BlockFault>, ChainError> {
        let header = &block.header;
        let checks = || {
            validate_header(
                self.spec(),
                header,
                &parent.header,
                header.parent_hash,
                post_merge,
            )?;
            validate_body(self.spec(), block, post_merge)?;
            Ok(())
        };
        if let Err(fault) = checks() {
            return Ok(Err(fault));
        }
        if block.body.ommers.is_empty() {
            return Ok(Ok(()));
        }
        let ancestors = self.ancestors(parent, header.parent_hash)?;
        Ok(validate_ommers(self.spec(), block, &ancestors).map_err(Into::into))
    }

    /// Whether a valid block becomes the head. Before the merge the chain with the highest total
    /// difficulty wins, on a tie the first one seen. After the merge the consensus layer decides,
    /// and the caller is assumed to act for it.
    pub(crate) fn becomes_head(
        &self,
        block: &KnownBlock,
        post_merge: bool,
        tip: BlockId,
    ) -> Result<bool, ChainError> {
        if post_merge {
            return Ok(true);
        }
        let Some(tip) = self.known(tip)? else {
            return Ok(true);
        };
        let tip_post_merge = tip.header.difficulty.is_zero() && tip.header.number > 0;
        Ok(!tip_post_merge && block.total_difficulty > tip.total_difficulty)
    }

    /// Whether a block that is in the database becomes the head. While blocks wait to be committed
    /// this may be true of ancestors of the head; the caller must not make these the head.
    pub(crate) fn known_becomes_head(&self, id: BlockId, tip: BlockId) -> Result<bool, ChainError> {
        match self.kept_becomes_head(id, tip) {
            // A block that is no longer kept can't become the head.
            Err(ChainError::State(StateError::NotKept { .. })) => Ok(false),
            becomes => becomes,
        }
    }

    fn kept_becomes_head(&self, id: BlockId, tip: BlockId) -> Result<bool, ChainError> {
        let db = self.db();
        if tip == db.head() && db.block_id(id.number)? == Some(id) {
            return Ok(false);
        }
        let Some(block) = self.known(id)? else {
            return Ok(false);
        };
        let header = &block.header;
        let before = block.total_difficulty.saturating_sub(header.difficulty);
        let post_merge = self.spec().is_post_merge(header.number, before);
        self.becomes_head(&block, post_merge, tip)
    }

    fn ancestors(&self, parent: &KnownBlock, hash: B256) -> Result<Vec<Ancestor>, ChainError> {
        let (mut next, mut hash) = (Some(parent.clone()), hash);
        let mut ancestors = Vec::with_capacity(OMMER_ANCESTORS);
        while let Some(KnownBlock { header, ommers, .. }) = next
            && ancestors.len() < OMMER_ANCESTORS
        {
            let (number, parent) = (header.number, header.parent_hash);
            ancestors.push(Ancestor {
                hash,
                header,
                ommers,
            });
            hash = parent;
            next = match number {
                0 => None,
                _ => self.known(BlockId::new(number - 1, hash))?,
            };
        }
        Ok(ancestors)
    }
}
