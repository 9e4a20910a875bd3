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
mod single;
mod batch;

use super::plan::Plan;
use crate::report::Report;
use block::RealBlock;
use cambium_conformance::{MainnetData, Pack};
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
