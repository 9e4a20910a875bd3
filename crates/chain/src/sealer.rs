//! Building blocks: a draft, of which the transactions are chosen, is executed and gets its header.

use crate::{
    Block, Chain, ChainError, complete_header,
    error::execution_error,
    reads::TimedReads,
    stored::{KnownBlock, meta, packed_receipts},
};
use alloy_primitives::{B256, U256};
use alloy_rlp::Encodable;
use cambium_evm::{Executor, Hooks, Outcome, Sequential};
use cambium_primitives::{AccessList, BlockId};

/// Executes drafts on the chain's head and commits the finished blocks.
pub struct ChainSealer<'a>(pub &'a Chain);

impl ChainSealer<'_> {
    /// Executes `draft` on its parent and commits it as the head. Fills in the header's state root,
    /// receipts root, logs bloom, gas used, requests hash and access list's hash, each where the
    /// block's fork has it. The other fields are final.
    ///
    /// # Errors
    ///
    /// [`ChainError::Block`] if a transaction is invalid, [`ChainError::State`] if the state can't be
    /// read or written.
    pub fn seal(&self, draft: Block) -> Result<Block, ChainError> {
        let chain = self.0;
        let mut block = draft;
        let id = BlockId::new(block.header.number, block.header.hash_slow());
        let senders = chain.senders(&block);
        let senders = senders.map_err(|error| ChainError::invalid(id, error))?;
        let keeps_receipts = chain.keeps_receipts();
        let view = chain.db().view_of(chain.parent_of(&block.header))?;
        let session = view.clone().session();
        let mut input = chain.spec().input(&block, &senders, true);
        let is_listed = input.rules.block_access_list;
        // The list names what the block creates.
        input.rules.block_access_list |= chain.keeps_preimages();
        let outcome = Sequential.execute(&input, TimedReads::new(view), Hooks::default());
        let outcome = outcome.map_err(|error| execution_error(id, error))?;
        // The root follows below.
        complete_header(&mut block.header, &outcome, B256::ZERO);
        let Outcome {
            receipts,
            changes,
            codes,
            access_list,
            ..
        } = outcome;
        let staged = session.finish(changes, codes)?;
        let preimages = chain.created(access_list.as_ref(), staged.changes(), staged.reverts());
        let access_list = access_list.filter(|_| is_listed);
        block.header.state_root = staged.root();
        block.header.block_access_list_hash = access_list.as_ref().map(AccessList::hash);
        let receipts = keeps_receipts.then(|| packed_receipts(&receipts)).flatten();
        let hash = block.header.hash_slow();
        let mut rlp = Vec::new();
        block.encode(&mut rlp);
        // Total difficulty is not used past the merge.
        let known = KnownBlock::new(&block, U256::ZERO);
        staged
            .seal(meta(
                &known,
                hash,
                &rlp,
                access_list.as_ref(),
                receipts.as_deref(),
                preimages.as_deref(),
            ))?
            .commit()?;
        chain.remember(hash, known);
        debug_assert_eq!(chain.db().head(), BlockId::new(block.header.number, hash));
        Ok(block)
    }
}
