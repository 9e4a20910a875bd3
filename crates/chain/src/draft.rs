//! From a draft to a block: which of its transactions are kept, and the fields of its header that follow from execution.

use crate::{Block, ChainSpec, DryRunError, header::draft_header};
use alloy_consensus::{
    BlockBody, Header,
    proofs::{calculate_receipt_root, calculate_transaction_root, calculate_withdrawals_root},
};
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256};
use cambium_evm::{Chosen, Outcome, StateRead, execute_candidates};
use cambium_primitives::{AccessList, BlockId};

/// What a consensus client chooses of a block that is to be built (`PayloadAttributes` of the Engine API).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftAttributes {
    /// In seconds, after the parent's.
    pub timestamp: u64,
    /// Who gets the fees.
    pub beneficiary: Address,
    /// The random value of the beacon chain.
    pub prev_randao: B256,
    /// Withdrawals, from Shanghai on.
    pub withdrawals: Vec<Withdrawal>,
    /// Root of the parent's beacon block, from Cancun on.
    pub parent_beacon_block_root: B256,
    /// Number of the slot, where headers have it.
    pub slot_number: u64,
    /// The gas limit is this, or as near to it as the parent's allows.
    pub gas_limit: u64,
}

impl ChainSpec {
    /// An empty block past the merge on a parent. Its header has all fields that its fork wants; those that follow from transactions and
    /// execution are filled in afterwards ([`keep_transactions`], [`complete_header`]).
    pub fn draft(&self, parent: &Header, parent_hash: B256, attributes: &DraftAttributes) -> Block {
        let DraftAttributes {
            timestamp,
            gas_limit,
            ..
        } = *attributes;
        let mut header = draft_header(self, parent, parent_hash, timestamp, gas_limit);
        header.beneficiary = attributes.beneficiary;
        header.mix_hash = attributes.prev_randao;
        let withdrawals = &attributes.withdrawals;
        if let Some(root) = &mut header.withdrawals_root {
            *root = calculate_withdrawals_root(withdrawals);
        }
        if let Some(root) = &mut header.parent_beacon_block_root {
            *root = attributes.parent_beacon_block_root;
        }
        if let Some(slot) = &mut header.slot_number {
            *slot = attributes.slot_number;
        }
        let has_withdrawals = header.withdrawals_root.is_some();
        Block::new(
            header,
            BlockBody {
                transactions: Vec::new(),
                ommers: Vec::new(),
                withdrawals: has_withdrawals.then(|| withdrawals.clone().into()),
            },
        )
    }

    /// Executes the transactions of a draft, a block past the merge, in their order on its parent's state, and leaves out
    /// those that can't be executed: see [`Chosen`]. The outcome has an access list on every fork.
    ///
    /// # Errors
    ///
    /// If a step of the block fails that is not a transaction.
    pub fn choose<DB: StateRead>(
        &self,
        draft: &Block,
        senders: &[Address],
        state: DB,
    ) -> Result<Chosen<DB::Error>, DryRunError<DB::Error>> {
        let mut input = self.input(draft, senders, true);
        input.rules.block_access_list = true;
        execute_candidates(&input, state).map_err(|error| DryRunError {
            id: BlockId::new(draft.header.number, draft.header.hash_slow()),
            error,
        })
    }
}

/// Fills in the fields of a draft's header that follow from its execution: state root, receipts root, logs bloom, gas used,
/// requests hash and access list's hash, each where the draft has it. The other fields are final.
pub fn complete_header(header: &mut Header, outcome: &Outcome, state_root: B256) {
    header.receipts_root = calculate_receipt_root(&outcome.receipts);
    header.logs_bloom = outcome.logs_bloom();
    header.gas_used = outcome.gas_used;
    header.blob_gas_used = header.blob_gas_used.map(|_| outcome.blob_gas_used);
    header.requests_hash = header
        .requests_hash
        .map(|_| outcome.requests.requests_hash());
    let list = outcome.access_list.as_ref();
    header.block_access_list_hash = header
        .block_access_list_hash
        .and_then(|_| list.map(AccessList::hash));
    header.state_root = state_root;
}

/// Leaves the transactions of a draft with these indices, which are sorted, as [`Chosen::kept`] is.
pub fn keep_transactions(draft: &mut Block, kept: &[usize]) {
    let (mut index, mut kept) = (0.., kept.iter().peekable());
    draft.body.transactions.retain(|_| {
        let own = index.next();
        kept.next_if(|next| Some(**next) == own).is_some()
    });
    draft.header.transactions_root = calculate_transaction_root(&draft.body.transactions);
}
