//! Execution of several blocks at once, by their access lists.
//!
//! An access list contains every value that its block changes. So the pre-state of a block is known
//! before the blocks before it have run: the pre-state of the first block, with the last values of
//! all lists in between on top. The changes of earlier steps in the block's own list on top of that
//! are the pre-state of a step. So the steps of all blocks run at the same time, from one queue,
//! and no thread waits for the last step of a block.
//!
//! A block's outcome is correct if the lists of all blocks before it are correct: as for a block
//! alone ([`crate::Listed`]), by induction over its steps, each of which made exactly its listed
//! changes; and the pre-state of the block follows from the lists before it. The caller must
//! therefore verify outcomes in order, each against its block's list, before it trusts the next.

use crate::{
    BlockInput, Outcome, StateRead,
    listed::{BlockValues, Values, Work},
};
use alloy_primitives::B256;
use revm::primitives::hardfork::SpecId;
use std::{collections::BTreeMap, num::NonZeroUsize, sync::mpsc, thread, time::Duration};

/// A block of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchBlock<'a> {
    /// The block, with its access list.
    pub input: BlockInput<'a>,
    /// The block's hash, for BLOCKHASH in the blocks after it.
    pub hash: B256,
}

/// Executes consecutive blocks at the same time on up to `threads` threads. `db` is the pre-state
/// of the first block.
///
/// Calls `take` with each block's index, its outcome, and the time that its steps took on all
/// threads together, in order, while later blocks run. If `take` returns false, the rest of the
/// batch is dropped. An outcome includes the block's access list, and equals that of sequential
/// execution if the lists of all blocks before it are correct. It is `None` if the block fails,
/// differs from its list, or can't be executed by the lists: the caller then executes the block by
/// itself.
pub fn execute_batch<DB: StateRead + Sync>(
    blocks: &[BatchBlock<'_>],
    db: &DB,
    threads: NonZeroUsize,
    mut take: impl FnMut(usize, Option<Outcome>, Duration) -> bool,
) {
    let can_be = |block: &&BatchBlock<'_>| {
        let input = &block.input;
        input.access_list.is_some()
            && input.rules.is(SpecId::CANCUN)
            && input.senders.len() == input.transactions.len()
    };
    let listed = blocks.iter().take_while(can_be).map(|block| {
        let mut input = block.input;
        input.rules.block_access_list = true;
        input.pre_state = None;
        BlockValues::new(input, Some(block.hash))
    });
    let values = Values::new(listed.collect(), db);
    let work = Work::new(&values, threads.get(), None);
    let (sender, done) = mpsc::channel();
    let is_wanted = thread::scope(|scope| {
        let work = &work;
        // The only sender: this thread stops receiving when nobody works any more.
        let lead = move || work.lead(&sender, || work.work(0, &sender));
        if values.len() > 0 {
            // If the system refuses the thread, no block has an outcome.
            let _ = thread::Builder::new().spawn_scoped(scope, lead);
        } else {
            drop(lead);
        }
        // The steps of later blocks do not run if `take` panics.
        let mut stop = StopOnDrop {
            work,
            is_wanted: true,
        };
        let (mut waiting, mut expected) = (BTreeMap::new(), 0);
        for (index, outcome, elapsed) in done {
            waiting.insert(index, (outcome, elapsed));
            while let Some((outcome, elapsed)) = waiting.remove(&expected) {
                if !take(expected, outcome, elapsed) {
                    work.stop();
                    return None;
                }
                expected += 1;
            }
        }
        stop.is_wanted = false;
        Some(expected)
    });
    // Blocks from one without a list on, or with an impossible one.
    if let Some(expected) = is_wanted {
        (expected..blocks.len()).all(|index| take(index, None, Duration::ZERO));
    }
}

/// Stops the work when it is dropped, if that is wanted.
struct StopOnDrop<'w, 'v, 'b, DB: StateRead + Sync> {
    work: &'w Work<'v, 'b, DB>,
    is_wanted: bool,
}

impl<DB: StateRead + Sync> Drop for StopOnDrop<'_, '_, '_, DB> {
    fn drop(&mut self) {
        if self.is_wanted {
            self.work.stop();
        }
    }
}
