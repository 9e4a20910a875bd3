//! Executors on real mainnet blocks, whose states are in memory.
//!
//! ```text
//!   public data    blocks as they were, and some replayed under Amsterdam's rules, each with
//!                  the part of the state that it touches
//!     -> engine    that part as the first state of a database of its own
//!     -> sequence  what the block gives, held against its header; its access list
//!     -> single    all executors by turns, many times: the blocks take a few milliseconds
//!     -> batch     the replays as consecutive blocks, with bridges between them, at once
//! ```
//!
//! All states are open at once, so that what else the machine does falls on all blocks alike.
//! `sequential` and `optimistic` execute blocks from Byzantium on (before it receipts hold states'
//! roots), executors that take access lists those from Cancun on. Blocks without transactions are
//! left out.

mod block;
mod single;
mod batch;

use super::plan::Plan;
use crate::report::Report;
use block::RealBlock;
use cambium_testkit::{MainnetData, Pack};
use revm::primitives::hardfork::SpecId;
use std::error::Error;

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
    let data = MainnetData::new(&folder)?;
    let mut blocks = Vec::new();
    for number in data.blocks() {
        let block = data.block(number)?;
        if block.rules.is(SpecId::BYZANTIUM) && !block.transactions.is_empty() {
            blocks.push(RealBlock::new(block, &plan.data_dir)?);
        }
    }
    let first_replay = blocks.len();
    for number in data.replays() {
        blocks.push(RealBlock::new(data.replay(number)?, &plan.data_dir)?);
    }
    single::run(plan, &blocks, report)?;
    batch::run(plan, &blocks[first_replay..], report)
}
