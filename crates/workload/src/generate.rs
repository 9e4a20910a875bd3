//! Generation of blocks from a workload's transactions.

use crate::{
    Workload,
    genesis::{COINBASE, EXTRA_DATA},
    keys::hash,
};
use alloy_consensus::{
    BlockBody, Header,
    constants::{EMPTY_WITHDRAWALS, GWEI_TO_WEI},
    proofs::calculate_transaction_root,
};
use alloy_eips::{
    eip1559::{BaseFeeParams, calc_next_block_base_fee},
    eip7685::EMPTY_REQUESTS_HASH,
};
use alloy_primitives::Bytes;
use cambium_chain::{Block, Fork, Transaction};
use cambium_primitives::AccessList;

const BLOCK_SECONDS: u64 = 12;
/// Number of blocks whose transactions are signed ahead of execution.
const SIGNED_AHEAD_BLOCKS: usize = 2;

/// Executes drafts of blocks and completes their headers.
pub trait BlockSealer {
    /// Error of executing a draft.
    type Error;

    /// Executes `draft` on the previous block. Fills in the header's state root, receipts root,
    /// logs bloom, gas used and requests hash and, in Amsterdam, the access list's hash. The other
    /// fields are final. Keeps the state for the next draft.
    ///
    /// # Errors
    ///
    /// If the draft can't be executed.
    fn seal(&mut self, draft: Block) -> Result<Block, Self::Error>;
}

impl Workload {
    /// Drafts the child of `parent`, without the fields that follow from execution.
    fn draft(&self, parent: &Header, transactions: Vec<Transaction>) -> Block {
        let number = parent.number + 1;
        let base_fee = calc_next_block_base_fee(
            parent.gas_used,
            parent.gas_limit,
            parent.base_fee_per_gas.unwrap_or(GWEI_TO_WEI),
            BaseFeeParams::ethereum(),
        );
        let header = Header {
            parent_hash: parent.hash_slow(),
            beneficiary: COINBASE,
            transactions_root: calculate_transaction_root(&transactions),
            number,
            gas_limit: parent.gas_limit,
            timestamp: parent.timestamp + BLOCK_SECONDS,
            extra_data: Bytes::from_static(EXTRA_DATA),
            mix_hash: hash("randao", self.params().seed, number),
            base_fee_per_gas: Some(base_fee),
            withdrawals_root: Some(EMPTY_WITHDRAWALS),
            blob_gas_used: Some(0),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(hash("beacon root", self.params().seed, number)),
            requests_hash: Some(EMPTY_REQUESTS_HASH),
            block_access_list_hash: (self.params().fork >= Fork::Amsterdam)
                .then(|| AccessList::default().hash()),
            slot_number: parent.slot_number.map(|slot| slot + 1),
            ..Header::default()
        };
        let withdrawals = Some(Vec::new().into());
        Block::new(
            header,
            BlockBody {
                transactions,
                ommers: Vec::new(),
                withdrawals,
            },
        )
    }

    /// Generates the chain on `genesis`, the header of the workload's genesis block. `sealer`
    /// executes each block, which is then passed to `on_block`. Transactions are signed on all
    /// cores while earlier blocks execute. Returns the header of the last block.
    ///
    /// # Errors
    ///
    /// If `sealer` or `on_block` fails, which ends the generation.
    pub fn generate<S: BlockSealer>(
        &self,
        genesis: &Header,
        sealer: &mut S,
        mut on_block: impl FnMut(&Block) -> Result<(), S::Error>,
    ) -> Result<Header, S::Error> {
        let blocks = usize::try_from(self.params().blocks).unwrap_or(usize::MAX);
        let (signed, to_execute) = crossbeam_channel::bounded(SIGNED_AHEAD_BLOCKS);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for transactions in self.transactions().take(blocks) {
                    if signed.send(transactions).is_err() {
                        break;
                    }
                }
            });
            let mut parent = genesis.clone();
            // Owned by this closure, so that an early return closes the channel.
            let to_execute = to_execute;
            for transactions in to_execute.iter() {
                let block = sealer.seal(self.draft(&parent, transactions))?;
                on_block(&block)?;
                parent = block.header;
            }
            Ok(parent)
        })
    }
}
