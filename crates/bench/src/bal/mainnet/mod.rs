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
//! Blocks are executed by `sequential` and `optimistic` from Byzantium on; from Cancun on by the
//! executors that take access lists, too. Before Byzantium receipts hold states' roots.

mod batch;
mod block;
mod single;

use super::Plan;
use crate::report::Report;
use block::RealBlock;
use cambium_testkit::{MainnetData, Pack};
use revm::primitives::hardfork::SpecId;
use std::error::Error;

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let Some(folder) = Pack::MainnetExec.find() else {
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
    single::run(plan, &data, report)?;
    batch::run(plan, &data, report)
}

/// Blocks as they were, one by one: those that there is something to execute in.
fn as_they_were<'a>(
    plan: &'a Plan,
    data: &'a MainnetData,
) -> impl Iterator<Item = Result<RealBlock, Box<dyn Error>>> + 'a {
    let blocks = data.blocks().map(|number| data.block(number));
    let executed = blocks.filter(|block| {
        block.as_ref().map_or(true, |block| {
            block.rules.is(SpecId::BYZANTIUM) && !block.transactions.is_empty()
        })
    });
    executed.map(|block| RealBlock::new(block?, &plan.data_dir))
}

/// Blocks replayed under Amsterdam's rules, one by one.
fn replays<'a>(
    plan: &'a Plan,
    data: &'a MainnetData,
) -> impl Iterator<Item = Result<RealBlock, Box<dyn Error>>> + 'a {
    let numbers = data.replays().into_iter();
    numbers.map(|number| RealBlock::new(data.replay(number)?, &plan.data_dir))
}
