//! Execution of several blocks at once, by their access lists.

use crate::{
    Chain, ChainError, PreparedBlock, execute::Step, reads::TimedReads, stages::BlockSink,
    stored::KnownBlock, validate_header,
};
use alloy_consensus::Header;
use alloy_primitives::B256;
use cambium_evm::{BatchBlock, BlockInput, execute_batch};
use cambium_state::View;
use revm::primitives::hardfork::SpecId;
use std::{sync::Arc, time::Duration};

impl Chain {
    /// The number of leading blocks that can be executed at once, and the pre-state of the first
    /// one. Such blocks are consecutive, from Cancun on, and have access lists. Other faults are
    /// found when the blocks are verified one by one.
    pub(crate) fn batch_of(
        &self,
        blocks: &[&Arc<PreparedBlock>],
    ) -> Result<(usize, Option<View>), ChainError> {
        let none = (0, None);
        let Some(first) = blocks.first().filter(|_| !self.is_applying()) else {
            return Ok(none);
        };
        let header = &first.block.header;
        let parent = self.parent_of(header);
        let Some(KnownBlock {
            header: parent_header,
            ..
        }) = self.known(parent)?
        else {
            return Ok(none);
        };
        let Ok(view) = self.db().view_of(parent) else {
            return Ok(none);
        };
        let (mut parent, mut hash) = (&parent_header, header.parent_hash);
        let mut count = 0;
        for block in blocks.iter().take(self.batch()) {
            if !self.can_follow(block, parent, hash) {
                break;
            }
            (parent, hash) = (&block.block.header, block.id.hash);
            count += 1;
        }
        Ok((count, Some(view.pinned(first.pin.clone()))))
    }

    fn can_follow(&self, block: &PreparedBlock, parent: &Header, hash: B256) -> bool {
        let header = &block.block.header;
        let rules = self.spec().rules_at(header.number, header.timestamp, true);
        header.parent_hash == hash
            && rules.is(SpecId::CANCUN)
            && matches!(block.access_list, Some(Ok(_)))
            && matches!(block.senders, Some(Ok(_)))
            && validate_header(self.spec(), header, parent, hash, true).is_ok()
    }

    /// Executes the blocks that [`Self::batch_of`] selects at once. In order, each is sealed with the root that its header
    /// claims and sent to `sink`, which has it verified. Stops and returns false once that wants no more.
    pub(crate) fn execute_batch(
        &self,
        blocks: &[&Arc<PreparedBlock>],
        view: View,
        sink: &mut dyn BlockSink,
    ) -> Result<bool, ChainError> {
        let inputs = blocks.iter().filter_map(|block| {
            let senders = block.senders.as_ref()?.as_ref().ok()?;
            let list = block.access_list.as_ref()?.as_ref().ok()?;
            Some(BatchBlock {
                input: BlockInput {
                    access_list: Some(list),
                    ..self.spec().input(&block.block, senders, true)
                },
                hash: block.id.hash,
            })
        });
        let inputs: Vec<_> = inputs.collect();
        let mut sent = Ok(true);
        let threads = self.executor().threads;
        let reads = TimedReads::new(view);
        let mut told = Duration::ZERO;
        execute_batch(&inputs, &reads, threads, |index, outcome, elapsed| {
            let executed = self.execute_ahead(blocks[index], sink.tip(), outcome);
            sent = executed.and_then(|mut block| {
                if let Step::New(executed) = &mut block {
                    // Reads for later blocks since the last one count, too.
                    let spent = reads.spent();
                    let timings = executed.timings_mut();
                    timings.read += spent - std::mem::replace(&mut told, spent);
                    timings.execute += elapsed;
                }
                sink.send(block)
            });
            matches!(sent, Ok(true))
        });
        sent
    }
}
