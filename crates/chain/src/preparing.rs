//! Threads that prepare the blocks of imports: decoding, and the senders of transactions.

use crate::{Chain, ChainError, PreparedBlock, RawBlock, execute::Step, prepare::Decoded};
use cambium_crew::{Crew, threads};
use cambium_evm::recover_part;
use cambium_primitives::BlockId;
use std::{
    convert::Infallible,
    sync::{Arc, LazyLock},
};

/// Niceness of the threads that prepare blocks. Everything waits for execution, which would
/// otherwise get half a core. With blocks of 500 payments on two cores this makes no stage slower,
/// and computing roots a third faster.
const NICENESS: i32 = 10;

/// Number of transactions whose senders are recovered as one part, in half a millisecond.
const TRANSACTIONS: usize = 16;

/// One fewer than processors: the stage of an import that has blocks to prepare takes parts as well.
static CREW: LazyLock<Crew> = LazyLock::new(|| Crew::new("prep", threads() - 1));

/// Lowers the priority of the calling thread, and starts those that prepare blocks with it, which have the same.
pub(crate) fn start() {
    // If this is not permitted, they run at normal priority.
    let own = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(own), NICENESS);
    CREW.start();
}

/// Runs `task` on each of `parts`, by all threads.
fn on_all<P: Send, T: Send>(parts: Vec<P>, task: impl Fn(P) -> T + Sync) -> Vec<T> {
    let done = CREW.each(threads() - 1, parts, |part| Ok::<_, Infallible>(task(part)));
    done.unwrap_or_else(|never| match never {})
}

impl Chain {
    /// Prepares blocks whose headers are announced. First all are decoded, then the transactions of all have their senders
    /// recovered: so a block with many is divided as well.
    pub(crate) fn prepare_all(
        &self,
        blocks: Vec<Step<(BlockId, RawBlock)>>,
    ) -> Vec<Result<Step<Arc<PreparedBlock>>, ChainError>> {
        let decoded = on_all(blocks, |block| {
            Ok(match block {
                Step::Known(id) => Step::Known(id),
                Step::New((id, raw)) => {
                    let block = raw.decode()?;
                    let list = raw.access_list.as_deref().map(AsRef::as_ref);
                    let update = raw.update.as_deref().map(AsRef::as_ref);
                    Step::New(self.decoded(id, block, raw.rlp, list, update))
                }
            })
        });
        let mut parts = Vec::new();
        for (at, block) in decoded.iter().enumerate() {
            if let Ok(Step::New(block)) = block
                && block.needs_senders
            {
                let low = self.spec().has_low_signatures(&block.block.header);
                let chunks = block.block.body.transactions.chunks(TRANSACTIONS);
                parts.extend(
                    chunks
                        .enumerate()
                        .map(|(chunk, part)| (at, chunk, part, low)),
                );
            }
        }
        let recovered = on_all(parts, |(at, chunk, transactions, low)| {
            (at, recover_part(chunk * TRANSACTIONS, transactions, low))
        });
        let mut recovered = recovered.into_iter().peekable();
        let prepare = |(at, block): (usize, Result<Step<Decoded>, ChainError>)| {
            Ok(match block? {
                Step::Known(id) => Step::Known(id),
                Step::New(block) => {
                    let mut senders = Ok(Vec::with_capacity(block.block.body.transactions.len()));
                    while let Some((_, part)) = recovered.next_if(|(of, _)| *of == at) {
                        // The first error counts.
                        if let Ok(all) = &mut senders {
                            match part {
                                Ok(part) => all.extend(part),
                                Err(error) => senders = Err(error),
                            }
                        }
                    }
                    Step::New(Arc::new(block.with_senders(senders)))
                }
            })
        };
        decoded.into_iter().enumerate().map(prepare).collect()
    }
}
