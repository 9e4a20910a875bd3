//! Importing: three stages that run side by side, each handing its noun to the next.
//!
//! ```text
//!   prepare   headers one after the other; then bodies, and senders,  PreparedBlock
//!             of many blocks in parallel
//!   execute   validate, run, root, one block after another            ExecutedBlock
//!   commit    append, and one sync for all that is waiting            durable
//! ```
//!
//! Execution of a block does not wait for its parent to be durable. After an error all blocks
//! before the bad one are committed.

use crate::{
    Chain, ChainError, ExecutedBlock, FileError, PreparedBlock, RawBlock, Timings,
    prepare::OnTheirWay,
};
use alloy_primitives::B256;
use cambium_evm::ExecutionCounts;
use cambium_primitives::BlockId;
use cambium_state::StateError;
use crossbeam_channel::{Receiver, Sender, bounded};
use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};
use std::{
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

/// Blocks whose senders are recovered together, so that even empty blocks keep all cores busy.
const PREPARE_BLOCKS: usize = 32;
/// Bytes after which such a batch is full: of a thousand transactions or two.
const PREPARE_BYTES: usize = 256 << 10;
/// Such a share of the engine's memory may be taken by the bytes of a batch in any case: decoded
/// they are some times as many, and several batches are on their way.
const BATCH_SHARE: usize = 64;
/// Headers that are remembered of blocks on their way: of more than can be on it at once.
const HEADERS_MIN: usize = 512;
/// Batches that may wait for execution.
const QUEUE_BATCHES: usize = 2;
/// Blocks that may wait to be committed.
const QUEUE_BLOCKS: usize = 32;

/// How far an import has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImportProgress {
    /// Blocks that were there already.
    pub skipped: u64,
    /// Blocks executed and committed.
    pub blocks: u64,
    /// Transactions in them.
    pub transactions: u64,
    /// Gas used in them.
    pub gas: u64,
    /// How many of the blocks were not executed, since their access lists were believed.
    pub applied: u64,
    /// What executing the others in parallel came to.
    pub parallel: ExecutionCounts,
    /// The head.
    pub head: BlockId,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImportSummary {
    /// Counts.
    pub done: ImportProgress,
    /// Wall time.
    pub elapsed: Duration,
    /// Where it went. Stages run side by side: these may add up to more than the wall time.
    pub timings: Timings,
    /// The state root of the head.
    pub state_root: B256,
}

/// How much the threads that prepare blocks yield to those that execute them: everything waits
/// for execution, which would otherwise get half a core. With 500 payments a block on two cores it
/// raises nothing else's time, and takes a third off that of roots.
const PREPARE_NICENESS: i32 = 10;

/// Threads that prepare blocks: as many as there are cores, giving way to execution.
fn preparing_threads() -> ThreadPool {
    let pool = ThreadPoolBuilder::new()
        .thread_name(|index| format!("cambium-prepare-{index}"))
        .start_handler(|_| {
            // Where it is refused they run as all others do.
            let own = rustix::thread::gettid();
            let _ = rustix::process::setpriority_process(Some(own), PREPARE_NICENESS);
        });
    pool.build()
        .expect("the system gives threads for preparing blocks")
}

/// A block on its way: one that is in the database already is not executed again.
enum Step<B> {
    Known(BlockId),
    New(B),
}

/// Blocks on their way to execution.
struct Batch {
    blocks: Vec<Result<Step<PreparedBlock>, ChainError>>,
    recover: Duration,
}

/// Blocks on their way to be committed.
enum Executed {
    /// There already; perhaps on a branch that is not the canonical one.
    Known {
        id: BlockId,
        becomes_head: bool,
    },
    New(Box<ExecutedBlock>),
}

impl Chain {
    /// Imports blocks in order. `progress` is told after each commit, on this thread.
    ///
    /// Blocks that are there already are skipped; if they are on a side branch (unwound, say), the
    /// head goes where it would go if they came for the first time. The first bad block, or an
    /// error of the source, ends the import with all before it committed.
    pub fn import(
        &self,
        mut source: impl Iterator<Item = Result<RawBlock, FileError>> + Send,
        progress: &mut dyn FnMut(&ImportProgress),
    ) -> Result<ImportSummary, ChainError> {
        let start = Instant::now();
        let (to_execute, prepared) = bounded(QUEUE_BATCHES);
        let (to_commit, executed) = bounded(QUEUE_BLOCKS);
        let pool = preparing_threads();
        let mut summary = ImportSummary::default();
        let (run, committed) = thread::scope(|scope| {
            scope.spawn(move || {
                let mut on_their_way = OnTheirWay::new(HEADERS_MIN.max(8 * self.batch()));
                while let Some(batch) = self.prepare_batch(&mut source, &mut on_their_way, &pool) {
                    if to_execute.send(batch).is_err() {
                        return;
                    }
                }
            });
            let run = scope.spawn(move || self.execute_all(&prepared, &to_commit));
            let committed = self.commit_executed(&executed, &mut summary, progress);
            // Lets the other stages end if this one failed.
            drop(executed);
            (
                run.join().unwrap_or_else(|panic| resume_unwind(panic)),
                committed,
            )
        });
        committed?;
        let commit = summary.timings.commit;
        summary.timings = Timings { commit, ..run? };
        summary.elapsed = start.elapsed();
        let view = self.db().view()?;
        summary.done.head = view.block();
        summary.state_root = view.state_root();
        Ok(summary)
    }

    /// The next blocks of the source; an error is the last of them.
    fn prepare_batch(
        &self,
        source: &mut impl Iterator<Item = Result<RawBlock, FileError>>,
        on_their_way: &mut OnTheirWay,
        pool: &ThreadPool,
    ) -> Option<Batch> {
        let start = Instant::now();
        let mut steps = Vec::new();
        let (mut bytes, mut failed) = (0, None);
        // What is executed at once is prepared at once.
        while bytes < self.batch_bytes_max()
            && (steps.len() < self.batch() || steps.len() < PREPARE_BLOCKS && bytes < PREPARE_BYTES)
        {
            let Some(raw) = source.next() else { break };
            let announced = raw.map_err(ChainError::from).and_then(|raw| {
                bytes += raw.rlp.len() + raw.access_list.as_ref().map_or(0, |list| list.len());
                self.announce_raw(raw, on_their_way)
            });
            match announced {
                Ok(step) => steps.push(step),
                Err(error) => {
                    failed = Some(Err(error));
                    break;
                }
            }
        }
        if steps.is_empty() && failed.is_none() {
            return None;
        }
        // Only work without locks goes to other threads.
        let prepare = |step: Step<(BlockId, RawBlock)>| {
            Ok(match step {
                Step::Known(id) => Step::Known(id),
                Step::New((id, raw)) => {
                    let block = raw.decode()?;
                    let list = raw.access_list.as_deref();
                    Step::New(self.prepare_block(id, block, raw.rlp, list.map(AsRef::as_ref)))
                }
            })
        };
        let mut blocks: Vec<_> = pool.install(|| steps.into_par_iter().map(prepare).collect());
        blocks.extend(failed);
        Some(Batch {
            blocks,
            recover: start.elapsed(),
        })
    }

    /// Bytes of blocks and their access lists that are prepared together, unless one has more.
    fn batch_bytes_max(&self) -> usize {
        self.db().options().memory_bytes as usize / BATCH_SHARE
    }

    /// Looks at a block's header alone, unless the block is there already.
    fn announce_raw(
        &self,
        raw: RawBlock,
        on_their_way: &mut OnTheirWay,
    ) -> Result<Step<(BlockId, RawBlock)>, ChainError> {
        let header = raw.header()?;
        let id = BlockId::new(header.number, header.hash_slow());
        if self.is_there(id)? {
            return Ok(Step::Known(id));
        }
        let announced = self.announce(header, &raw.rlp, on_their_way)?;
        on_their_way.insert(announced);
        Ok(Step::New((id, raw)))
    }

    /// Whether a block can be skipped. An error if it is another chain's first.
    fn is_there(&self, id: BlockId) -> Result<bool, ChainError> {
        if id.number == self.db().genesis().number {
            self.check_genesis(id.hash)?;
        }
        match self.has(id) {
            // So old that its name is lost, too: the first that is kept tells which chain this is.
            Err(ChainError::State(StateError::NotKept { .. })) => Ok(true),
            there => there,
        }
    }

    fn execute_all(
        &self,
        prepared: &Receiver<Batch>,
        to_commit: &Sender<Executed>,
    ) -> Result<Timings, ChainError> {
        let mut tip = self.db().head();
        let mut timings = Timings::default();
        for batch in prepared {
            timings.recover += batch.recover;
            let mut blocks = batch.blocks.into_iter().peekable();
            while let Some(block) = blocks.next() {
                let mut send = |executed: ExecutedBlock| {
                    timings += executed.timings;
                    to_commit.send(Executed::New(Box::new(executed))).is_ok()
                };
                let (is_sent, next_tip) = match block? {
                    Step::Known(id) => {
                        let becomes_head = self.known_becomes_head(id, tip)?;
                        let known = Executed::Known { id, becomes_head };
                        let is_sent = to_commit.send(known).is_ok();
                        (is_sent, becomes_head.then_some(id))
                    }
                    Step::New(first) if self.batch() > 1 => {
                        let mut group = vec![first];
                        while group.len() < self.batch()
                            && let Some(Ok(Step::New(next))) =
                                blocks.next_if(|next| matches!(next, Ok(Step::New(_))))
                        {
                            group.push(next);
                        }
                        if !self.execute_group(&group, &mut tip, &mut send)? {
                            return Ok(timings);
                        }
                        (true, None)
                    }
                    Step::New(block) => {
                        let id = block.id;
                        let executed = self.execute(block, tip)?;
                        let becomes_head = executed.becomes_head;
                        (send(executed), becomes_head.then_some(id))
                    }
                };
                tip = next_tip.unwrap_or(tip);
                if !is_sent {
                    return Ok(timings);
                }
            }
        }
        Ok(timings)
    }

    /// Executes blocks, at once as far as that can be. False if nobody takes them any more.
    fn execute_group(
        &self,
        group: &[PreparedBlock],
        tip: &mut BlockId,
        send: &mut dyn FnMut(ExecutedBlock) -> bool,
    ) -> Result<bool, ChainError> {
        let mut is_sent = true;
        let mut left: Vec<_> = group.iter().collect();
        while !left.is_empty() && is_sent {
            let mut sink = |executed: ExecutedBlock| {
                is_sent = send(executed);
                is_sent
            };
            let (count, view) = self.batch_of(&left)?;
            if let Some(view) = view.filter(|_| count > 1) {
                let rest = left.split_off(count);
                self.execute_batch(&left, view, tip, &mut sink)?;
                left = rest;
                continue;
            }
            let block = left.remove(0);
            let executed = self.execute_with(block, *tip, None)?;
            if executed.becomes_head {
                *tip = block.id;
            }
            sink(executed);
        }
        Ok(is_sent)
    }

    fn commit_executed(
        &self,
        executed: &Receiver<Executed>,
        summary: &mut ImportSummary,
        progress: &mut dyn FnMut(&ImportProgress),
    ) -> Result<(), ChainError> {
        while let Ok(first) = executed.recv() {
            let start = Instant::now();
            let waiting = std::iter::once(first).chain(executed.try_iter());
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
                        done.applied += u64::from(block.is_applied);
                        done.parallel += block.counts;
                        if block.becomes_head {
                            group.push(block.sealed);
                        } else {
                            self.db().commit_all(std::mem::take(&mut group))?;
                            block.sealed.commit_aside()?;
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

    /// Makes a known block the head, unless it is an ancestor of the head, or the head itself.
    fn move_head(&self, to: Option<BlockId>) -> Result<(), ChainError> {
        if let Some(id) = to
            && self.db().block_id(id.number)? != Some(id)
            && self.has(id)?
        {
            self.db().set_head(id)?;
        }
        Ok(())
    }
}
