//! The import pipeline: seven stages that run concurrently.
//!
//! ```text
//!   announce  validate headers, in their order             Announced
//!   prepare   bodies and senders of many blocks in         PreparedBlock
//!             parallel
//!   ahead     read what the next blocks need               pages in the block's pin
//!   execute   validate and execute, block after block, on  Unverified, sealed
//!             the values of the one before                 with the claimed root
//!   check     gas, receipts, requests, access list against Checked
//!             the header; encode what is stored
//!   verify    compute state roots, in the same order       ExecutedBlock
//!   commit    append; one sync for all waiting blocks      durable
//! ```
//!
//! A block is executed before its parent is verified and durable. After an error all blocks before the bad one are
//! committed: a block is committed once it and all before are verified. Every stage goes through the blocks in their
//! order, so the first bad block is the one whose error comes from the last stage that has one.

use crate::{
    BlockFault, Chain, ChainError, ExecutedBlock, FileError, PreparedBlock, RawBlock, Timings,
    ahead::ReadingAhead,
    execute::Step,
    prepare::OnTheirWay,
    preparing,
    stages::{BlockSink, Checked, Unverified},
    unchecked::Unchecked,
};
use alloy_primitives::B256;
use cambium_evm::ExecutionCounts;
use cambium_primitives::BlockId;
use cambium_state::StateError;
use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};
use std::{
    collections::VecDeque,
    panic::resume_unwind,
    sync::Arc,
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// Number of blocks in a batch for preparation, so that even empty blocks keep all cores busy.
const PREPARE_BLOCKS: usize = 32;
/// Bytes after which a batch is full: one or two thousand transactions.
const PREPARE_BYTES: usize = 256 << 10;
/// A batch takes at most the engine's memory divided by this: decoded blocks are several times
/// larger than their bytes, and there are several batches in the pipeline.
const BATCH_SHARE: usize = 64;
/// Minimum number of announced headers that are kept: more than the pipeline can hold.
const HEADERS_MIN: usize = 512;
/// Batches' headers that are kept at least, if they are larger: more than the pipeline can hold.
const HEADERS_BATCHES: usize = 12;
/// Maximum number of batches that wait between two stages.
const QUEUE_BATCHES: usize = 2;
/// Maximum number of blocks that wait to be checked, and of those that wait for their state roots. They keep the pages
/// that they needed.
const UNVERIFIED_BLOCKS: usize = 8;
/// Maximum number of blocks that wait to be committed.
const QUEUE_BLOCKS: usize = 32;

/// Number of an import's newest blocks that are looked up when a block comes twice: more than the stages after
/// execution hold.
const OWN_BLOCKS: usize = 128;

/// Longest sleep of the stage that reads ahead while there is nothing to do.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImportProgress {
    /// Number of blocks skipped, because the database has them.
    pub skipped: u64,
    /// Number of blocks committed, without those skipped.
    pub blocks: u64,
    /// Number of transactions in these blocks.
    pub transactions: u64,
    /// Gas used in these blocks.
    pub gas: u64,
    /// Number of these blocks that came with access lists.
    pub listed: u64,
    /// Number of these blocks whose access lists were applied instead of executing them.
    pub applied: u64,
    /// Number of these blocks that were executed at once with others.
    pub batched: u64,
    /// Counts of parallel execution.
    pub parallel: ExecutionCounts,
    /// The head.
    pub head: BlockId,
}

/// Result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImportSummary {
    /// Counts at the end.
    pub done: ImportProgress,
    /// Wall time.
    pub elapsed: Duration,
    /// Time spent in each stage. Stages run concurrently, so the sum may exceed the wall time.
    pub timings: Timings,
    /// State root of the head.
    pub state_root: B256,
}

/// Starts a stage on a thread of its own, whose name profilers show.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    stage: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let thread = thread::Builder::new().name(name.to_owned());
    let started = thread.spawn_scoped(scope, stage);
    started.expect("the system gives threads for the stages of an import")
}

/// Blocks whose headers have been validated: at least one, or the error in its place. An error comes after its blocks.
struct Headed {
    blocks: Vec<Step<(BlockId, RawBlock)>>,
    failed: Option<ChainError>,
    taken: Duration,
}

/// Blocks that wait for execution: at least one, or the error in its place.
struct Batch {
    blocks: Vec<Result<Step<Arc<PreparedBlock>>, ChainError>>,
    recover: Duration,
}

/// A block on its way from execution to the commit.
enum Executed<B> {
    /// In the database already, possibly on a side branch.
    Known {
        id: BlockId,
        becomes_head: bool,
    },
    New(Box<B>),
}

/// Sends executed blocks to be checked.
struct ToCheck<'a> {
    chain: &'a Chain,
    tip: BlockId,
    recover: Duration,
    done: &'a Sender<Option<BlockId>>,
    to_check: &'a Sender<Executed<Unverified>>,
    unchecked: Arc<Unchecked>,
}

impl BlockSink for ToCheck<'_> {
    fn tip(&self) -> BlockId {
        self.tip
    }

    fn send(&mut self, block: Step<Unverified>) -> Result<bool, ChainError> {
        let (id, becomes_head, sealed, executed) = match block {
            Step::Known(id) => {
                let becomes_head = self.chain.known_becomes_head(id, self.tip)?;
                (id, becomes_head, None, Executed::Known { id, becomes_head })
            }
            Step::New(mut block) => {
                let (id, becomes_head) = (block.id(), block.becomes_head);
                block.wait_for_room(&self.unchecked);
                (id, becomes_head, Some(id), Executed::New(Box::new(block)))
            }
        };
        if becomes_head {
            self.tip = id;
        }
        // The send fails if reading ahead has ended.
        let _ = self.done.send(sealed);
        Ok(self.to_check.send(executed).is_ok())
    }
}

/// Passes new blocks through a stage, and known ones by it. Ends at the first block that is wrong, or if the receiver is
/// dropped. Returns the time that the stage took.
fn pass_all<A, B>(
    blocks: &Receiver<Executed<A>>,
    to_next: &Sender<Executed<B>>,
    stage: impl Fn(A) -> Result<B, ChainError>,
) -> Result<Duration, ChainError> {
    let mut taken = Duration::ZERO;
    for block in blocks {
        let block = match block {
            Executed::Known { id, becomes_head } => Executed::Known { id, becomes_head },
            Executed::New(block) => {
                let start = Instant::now();
                let block = stage(*block)?;
                taken += start.elapsed();
                Executed::New(Box::new(block))
            }
        };
        if to_next.send(block).is_err() {
            break;
        }
    }
    Ok(taken)
}

impl Chain {
    /// Imports blocks in order. Calls `progress` after each commit, on the caller's thread.
    ///
    /// Blocks that the database has are skipped. If such blocks are on a side branch, for example
    /// after an unwind, the head moves as if they were new.
    ///
    /// Others may import and insert blocks meanwhile, the same ones as well. But before the merge it is when a block is
    /// executed that its difficulty is compared with the head's: leave branches that compete to one caller.
    ///
    /// # Errors
    ///
    /// [`ChainError::Block`] for a block that is invalid, [`ChainError::File`] if `source` fails,
    /// [`ChainError::OtherGenesis`] for the first block of another chain, and [`ChainError::State`] if the
    /// database fails. All blocks before are committed.
    pub fn import(
        &self,
        source: impl Iterator<Item = Result<RawBlock, FileError>> + Send,
        progress: &mut dyn FnMut(&ImportProgress),
    ) -> Result<ImportSummary, ChainError> {
        let start = Instant::now();
        let mut source = source.fuse();
        let is_head_lost = self.is_head_lost()?;
        let (to_prepare, announced) = bounded::<Headed>(1);
        let (to_read_ahead, prepared) = bounded(QUEUE_BATCHES);
        let (to_execute, read_ahead) = unbounded();
        let (done, executed_ids) = unbounded();
        let (to_check, executed) = bounded(UNVERIFIED_BLOCKS);
        let (to_verify, checked) = bounded::<Executed<Checked>>(UNVERIFIED_BLOCKS);
        let (to_commit, verified) = bounded(QUEUE_BLOCKS);
        let mut summary = ImportSummary::default();
        let (run, checks, roots, committed) = thread::scope(|scope| {
            spawn(scope, "cambium-announce", move || {
                let mut on_their_way =
                    OnTheirWay::new(HEADERS_MIN.max(HEADERS_BATCHES * self.batch()));
                // The source alone says where the import ends: a batch has a block or an error.
                while let Some(first) = source.next() {
                    let announce =
                        &mut |raw| self.announce_raw(raw, &mut on_their_way, is_head_lost);
                    let batch = self.announce_batch(first, &mut source, announce);
                    let is_last = batch.failed.is_some();
                    if to_prepare.send(batch).is_err() || is_last {
                        return;
                    }
                }
            });
            spawn(scope, "cambium-prepare", move || {
                preparing::start();
                for batch in announced {
                    let start = Instant::now();
                    let mut blocks = self.prepare_all(batch.blocks);
                    blocks.extend(batch.failed.map(Err));
                    let recover = batch.taken + start.elapsed();
                    let is_last = blocks.iter().any(Result::is_err);
                    if to_read_ahead.send(Batch { blocks, recover }).is_err() || is_last {
                        return;
                    }
                }
            });
            spawn(scope, "cambium-ahead", move || {
                self.hand_on(&prepared, to_execute, &executed_ids);
            });
            let run = spawn(scope, "cambium-execute", move || {
                self.execute_all(&read_ahead, &done, &to_check)
            });
            let checks = spawn(scope, "cambium-check", move || {
                pass_all(&executed, &to_verify, |block| self.check(block))
            });
            let roots = spawn(scope, "cambium-verify", move || {
                pass_all(&checked, &to_commit, |block| self.verify_root(block))
            });
            let committed = self.commit_verified(&verified, &mut summary, progress);
            // Ends the other stages if this one failed.
            drop(verified);
            let run = run.join().unwrap_or_else(|panic| resume_unwind(panic));
            let checks = checks.join().unwrap_or_else(|panic| resume_unwind(panic));
            let roots = roots.join().unwrap_or_else(|panic| resume_unwind(panic));
            (run, checks, roots, committed)
        });
        committed?;
        // The later the stage, the earlier the block.
        let (roots, checks) = (roots?, checks?);
        summary.timings.recover = run?;
        summary.timings.root += roots;
        summary.timings.execute += checks;
        summary.elapsed = start.elapsed();
        let view = self.db().view()?;
        summary.done.head = view.block();
        summary.state_root = view.state_root();
        Ok(summary)
    }

    /// Announces the block that the source has returned, and those after it that fit into a batch.
    fn announce_batch(
        &self,
        first: Result<RawBlock, FileError>,
        source: &mut impl Iterator<Item = Result<RawBlock, FileError>>,
        announce: &mut dyn FnMut(RawBlock) -> Result<Step<(BlockId, RawBlock)>, ChainError>,
    ) -> Headed {
        let start = Instant::now();
        let mut blocks = Vec::new();
        let (mut bytes, mut failed) = (0, None);
        let mut next = Some(first);
        while let Some(raw) = next {
            let announced = raw.map_err(ChainError::from).and_then(|raw| {
                let beside = [&raw.access_list, &raw.update].into_iter().flatten();
                bytes += raw.rlp.len() + beside.map(|bytes| bytes.len()).sum::<usize>();
                announce(raw)
            });
            match announced {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            // Blocks that can be executed at once go into one batch.
            let count = blocks.len();
            let is_wanted = count < self.batch() || count < PREPARE_BLOCKS && bytes < PREPARE_BYTES;
            let has_room = is_wanted && bytes < self.batch_bytes_max();
            next = if has_room { source.next() } else { None };
        }
        Headed {
            blocks,
            failed,
            taken: start.elapsed(),
        }
    }

    /// Bytes of blocks and access lists above which no further block joins a batch. It may be 0: a batch of
    /// one block may exceed it.
    fn batch_bytes_max(&self) -> usize {
        self.db().options().memory_bytes as usize / BATCH_SHARE
    }

    /// Validates a block's header, unless the database has the block. If `recalls`, data that the database has lost of
    /// it is restored from `raw`.
    fn announce_raw(
        &self,
        raw: RawBlock,
        on_their_way: &mut OnTheirWay,
        recalls: bool,
    ) -> Result<Step<(BlockId, RawBlock)>, ChainError> {
        let header = raw.header()?;
        let id = BlockId::new(header.number, header.hash_slow());
        if self.is_there(id)? {
            if recalls {
                self.recall(id, &raw)?;
            }
            return Ok(Step::Known(id));
        }
        let announced = self.announce(header, &raw.rlp, on_their_way)?;
        on_their_way.insert(announced);
        Ok(Step::New((id, raw)))
    }

    /// Whether the database has a block. Fails for the genesis block of another chain.
    fn is_there(&self, id: BlockId) -> Result<bool, ChainError> {
        if id.number == self.db().genesis().number {
            self.check_genesis(id.hash)?;
        }
        match self.has(id) {
            // Too old to be known by hash. The oldest block that is kept shows which chain this is.
            Err(ChainError::State(StateError::NotKept { .. })) => Ok(true),
            there => there,
        }
    }

    /// Hands batches on to execution, and reads ahead for their blocks until they are executed. `executed` receives a
    /// message for each executed block: its id if it was sealed, and `None` if the database had it. The state of such a
    /// block may be old and expensive to restore.
    fn hand_on(
        &self,
        prepared: &Receiver<Batch>,
        to_execute: Sender<Batch>,
        executed: &Receiver<Option<BlockId>>,
    ) {
        // Reading ahead is best effort: its failure must not stop execution.
        let mut ahead = match self.read_ahead() {
            0 => None,
            depth => ReadingAhead::new(self, depth).ok(),
        };
        let mut to_execute = Some(to_execute);
        // Numbers of blocks that are left of the batches in execution.
        let mut batches: VecDeque<usize> = VecDeque::new();
        let nothing = never();
        loop {
            let is_busy = ahead.as_mut().is_some_and(ReadingAhead::work_or_wait);
            let pause = if is_busy { Duration::ZERO } else { IDLE_MAX };
            let is_open = to_execute.is_some() && batches.len() <= QUEUE_BATCHES;
            select! {
                recv(if is_open { prepared } else { &nothing }) -> batch => match batch {
                    Ok(batch) => {
                        for block in batch.blocks.iter().flatten() {
                            if let (Step::New(block), Some(ahead)) = (block, &mut ahead) {
                                ahead.add(block);
                            }
                        }
                        batches.push_back(batch.blocks.len());
                        if to_execute.as_ref().is_none_or(|to| to.send(batch).is_err()) {
                            break;
                        }
                    }
                    // Execution ends after the batches that it has.
                    Err(_) => to_execute = None,
                },
                recv(executed) -> sealed => match sealed {
                    Ok(sealed) => {
                        if let Some(left) = batches.front_mut() {
                            *left -= 1;
                        }
                        batches.pop_front_if(|left| *left == 0);
                        if let (Some(ahead), Some(id)) = (&mut ahead, sealed) {
                            ahead.sealed(id);
                        }
                    }
                    Err(_) => break,
                },
                default(pause) => {}
            }
        }
        if let Some(ahead) = ahead {
            ahead.stop();
        }
    }

    /// Executes batches until there are no more, and sends the blocks on. Ends early if the receiver is dropped.
    /// Returns the time that their preparation took.
    fn execute_all(
        &self,
        prepared: &Receiver<Batch>,
        done: &Sender<Option<BlockId>>,
        to_check: &Sender<Executed<Unverified>>,
    ) -> Result<Duration, ChainError> {
        let mut out = ToCheck {
            chain: self,
            tip: self.db().head(),
            recover: Duration::ZERO,
            done,
            to_check,
            unchecked: Arc::default(),
        };
        // Blocks of this import that may still wait to be committed.
        let mut own: VecDeque<BlockId> = VecDeque::with_capacity(OWN_BLOCKS);
        for batch in prepared {
            out.recover += batch.recover;
            let mut blocks = batch.blocks.into_iter().peekable();
            while let Some(block) = blocks.next() {
                let is_sent = match block? {
                    Step::Known(id) => out.send(Step::Known(id))?,
                    // The same block has come just before. Everything of it is verified before this one is committed.
                    Step::New(block) if own.contains(&block.id) => {
                        out.send(Step::Known(block.id))?
                    }
                    Step::New(block) if self.is_sealed(block.id) => {
                        // Another caller's block may turn out to be invalid.
                        self.await_commit(block.id)?;
                        let executed = match self.has(block.id)? {
                            true => Step::Known(block.id),
                            false => self.execute_ahead(&block, out.tip, None)?,
                        };
                        note(&mut own, &[block]);
                        out.send(executed)?
                    }
                    Step::New(first) if self.batch() > 1 => {
                        let mut group = vec![first];
                        while group.len() < self.batch()
                            && let Some(Ok(Step::New(next))) = blocks.next_if(|next| {
                                let in_group = |id| group.iter().any(|block| block.id == id);
                                matches!(next, Ok(Step::New(next))
                                    if !self.is_sealed(next.id) && !in_group(next.id))
                            })
                        {
                            group.push(next);
                        }
                        note(&mut own, &group);
                        self.execute_group(&group, &mut out)?
                    }
                    Step::New(block) => {
                        let executed = self.execute_ahead(&block, out.tip, None)?;
                        note(&mut own, &[block]);
                        out.send(executed)?
                    }
                };
                if !is_sent {
                    return Ok(out.recover);
                }
            }
        }
        Ok(out.recover)
    }

    /// Executes blocks, as many at once as possible. Returns false if the receiver is dropped.
    fn execute_group(
        &self,
        group: &[Arc<PreparedBlock>],
        out: &mut ToCheck<'_>,
    ) -> Result<bool, ChainError> {
        let mut left: Vec<&Arc<PreparedBlock>> = group.iter().collect();
        while !left.is_empty() {
            let (count, view) = self.batch_of(&left)?;
            let is_sent = match view.filter(|_| count > 1) {
                Some(view) => {
                    let rest = left.split_off(count);
                    let is_sent = self.execute_batch(&left, view, out)?;
                    left = rest;
                    is_sent
                }
                None => {
                    let block = left.remove(0);
                    let executed = self.execute_ahead(block, out.tip, None)?;
                    out.send(executed)?
                }
            };
            if !is_sent {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn commit_verified(
        &self,
        verified: &Receiver<Executed<ExecutedBlock>>,
        summary: &mut ImportSummary,
        progress: &mut dyn FnMut(&ImportProgress),
    ) -> Result<(), ChainError> {
        while let Ok(first) = verified.recv() {
            let start = Instant::now();
            let waiting = std::iter::once(first).chain(verified.try_iter());
            let mut group = Vec::new();
            let mut head = None;
            let done = &mut summary.done;
            for block in waiting {
                match block {
                    Executed::Known { id, becomes_head } => {
                        done.skipped += 1;
                        if becomes_head {
                            self.db().commit_all(std::mem::take(&mut group))?;
                            head = Some(id);
                        }
                    }
                    Executed::New(block) => {
                        self.move_head(head.take())?;
                        done.blocks += 1;
                        done.transactions += block.transactions;
                        done.gas += block.gas;
                        done.listed += u64::from(block.is_listed);
                        done.applied += u64::from(block.is_applied);
                        done.batched += u64::from(block.is_batched);
                        done.parallel += block.counts;
                        summary.timings += block.timings;
                        if !block.becomes_head {
                            self.db().commit_all(std::mem::take(&mut group))?;
                        }
                        let is_next = group.iter().rev().any(|it| it.id() == block.parent);
                        if !is_next && !self.has(block.parent)? {
                            // Another caller has sealed it.
                            self.db().commit_all(std::mem::take(&mut group))?;
                            self.await_commit(block.parent)?;
                            if !self.has(block.parent)? {
                                let fault = BlockFault::UnknownParent(block.parent.hash);
                                return Err(ChainError::invalid(block.id(), fault));
                            }
                        }
                        match block.becomes_head {
                            true => group.push(block.sealed),
                            false => drop(block.sealed.commit_side_branch()?),
                        }
                    }
                }
            }
            self.db().commit_all(group)?;
            self.move_head(head)?;
            done.head = self.db().head();
            summary.timings.commit += start.elapsed();
            progress(&summary.done);
        }
        Ok(())
    }

    /// Makes a block in the database the head, unless it is canonical.
    fn move_head(&self, to: Option<BlockId>) -> Result<(), ChainError> {
        if let Some(id) = to {
            self.await_commit(id)?;
        }
        if let Some(id) = to
            && self.db().block_id(id.number)? != Some(id)
            && self.has(id)?
        {
            // Not `set_head`, which would undo the finalized block.
            self.db().set_canonical(id, None, None)?;
        }
        Ok(())
    }
}

/// Adds blocks to the newest ones of an import.
fn note(own: &mut VecDeque<BlockId>, blocks: &[Arc<PreparedBlock>]) {
    for block in blocks {
        if own.len() == OWN_BLOCKS {
            own.pop_front();
        }
        own.push_back(block.id);
    }
}
