//! Executors on real mainnet blocks, with the state in memory.
//!
//! ```text
//!   public data    original blocks, and some replayed under Amsterdam's rules, each with the
//!                  part of the state that it touches
//!     -> engine    that part as the genesis state of a database of its own
//!     -> sequence  sequential outcome, compared with the header; access list
//!     -> single    rounds over all executors: many, since blocks take a few milliseconds
//!     -> batch     the replays as consecutive blocks with bridges between them, executed at once
//! ```
//!
//! All states stay open, so that other load on the machine affects all blocks alike. `sequential`
//! and `optimistic` execute blocks from Byzantium on, since earlier receipts contain state roots.
//! Executors by access list execute those from Cancun on. Blocks without transactions are left out.

mod block;
mod inserted;
mod single;
mod batch;

use super::plan::Plan;
use crate::report::Report;
use block::RealBlock;
use cambium_chain::BlockExecutor;
use cambium_conformance::{MainnetData, Pack};
use cambium_evm::ExecutionCounts;
use inserted::{Did, Inserted};
use revm::primitives::hardfork::SpecId;
use std::{error::Error, num::NonZeroUsize, path::Path};

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let Some(folder) = Pack::MainnetExec.find(&MainnetData::FOLDERS) else {
        let note = format!(
            "no real mainnet blocks were executed: there is no {}; CAMBIUM_DATA may name a folder \
             with its content",
            Pack::MainnetExec.name()
        );
        eprintln!("SKIPPED: {note}");
        report.notes.push(note);
        return Ok(());
    };
    let blocks = MainnetBlocks::read(&folder, &plan.data_dir)?;
    single::run(plan, &blocks.all, report)?;
    batch::run(plan, blocks.replays(), report)
}

/// Real blocks, with the states that they touch in databases of their own.
pub(crate) struct MainnetBlocks {
    /// The blocks as they were, then those that are replayed under Amsterdam.
    all: Vec<RealBlock>,
    first_replay: usize,
}

/// Real blocks past the merge, each on a chain of its own.
pub(crate) struct InsertedBlocks(Vec<Inserted>);

impl InsertedBlocks {
    /// Reads the blocks in `folder` and makes their chains in temporary directories below `parent`, with `others` accounts besides.
    /// Each block can be inserted so many times as `turns` says.
    pub(crate) fn read(
        folder: &Path,
        parent: &Path,
        others: u64,
        turns: u64,
        executor: BlockExecutor,
    ) -> Result<Self, Box<dyn Error>> {
        let data = MainnetData::new(folder)?;
        let blocks = data.blocks().map(|number| data.block(number));
        let replays = data.replays().into_iter().map(|number| data.replay(number));
        let mut all = Vec::new();
        for block in blocks.chain(replays) {
            let block = block?;
            if block.header.difficulty.is_zero() && !block.transactions.is_empty() {
                all.push(Inserted::new(&block, parent, others, turns, executor)?);
            }
        }
        Ok(Self(all))
    }

    /// Inserts each block once more.
    pub(crate) fn insert_each(&mut self) -> Result<Did, Box<dyn Error>> {
        let mut did = Did::default();
        for block in &mut self.0 {
            block.insert_next(&mut did)?;
        }
        Ok(did)
    }
}

impl MainnetBlocks {
    /// Reads the blocks in `folder`. Their databases are in temporary directories below `parent`.
    pub(crate) fn read(folder: &Path, parent: &Path) -> Result<Self, Box<dyn Error>> {
        let data = MainnetData::new(folder)?;
        let mut all = Vec::new();
        for number in data.blocks() {
            let block = data.block(number)?;
            if block.rules.is(SpecId::BYZANTIUM) && !block.transactions.is_empty() {
                all.push(RealBlock::new(block, parent)?);
            }
        }
        let first_replay = all.len();
        for number in data.replays() {
            all.push(RealBlock::new(data.replay(number)?, parent)?);
        }
        Ok(Self { all, first_replay })
    }

    fn replays(&self) -> &[RealBlock] {
        &self.all[self.first_replay..]
    }

    /// Executes each block that this kind of executor can execute. Returns their transactions and their gas.
    pub(crate) fn execute_each(
        &self,
        executor: &BlockExecutor,
    ) -> Result<(u64, u64), Box<dyn Error>> {
        let (mut transactions, mut gas) = (0, 0);
        let blocks = self.all.iter();
        for block in blocks.filter(|block| block.kinds().contains(&executor.kind)) {
            let executed = block.execute(executor, &mut ExecutionCounts::default())?;
            transactions += block.sparse.transactions.len() as u64;
            gas += executed.outcome.gas_used;
        }
        Ok((transactions, gas))
    }

    /// Executes all replayed blocks at once, `turns` times. Calls `did` after each turn with the number of their
    /// transactions and their gas.
    pub(crate) fn execute_at_once(
        &self,
        threads: NonZeroUsize,
        turns: usize,
        parent: &Path,
        did: &mut dyn FnMut(u64, u64) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let batch = batch::Replays::new(self.replays(), parent)?;
        let blocks = batch.blocks();
        let replays = self.replays().iter();
        let transactions = replays.map(|block| block.sparse.transactions.len() as u64);
        let transactions = transactions.sum();
        for _ in 0..turns {
            let (outcomes, _) = batch.at_once(&blocks, threads);
            let outcomes = outcomes.iter().flatten();
            did(transactions, outcomes.map(|outcome| outcome.gas_used).sum())?;
        }
        Ok(())
    }
}
