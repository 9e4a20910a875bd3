//! Assembly of a block's outcome from the results of its steps, in order.

use crate::{
    BlockInput, ExecutionError, Outcome, Receipt, Transaction, TransactionFault,
    access_list::{AccessListBuilder, StepAccesses},
    amsterdam,
    step::{BlockGas, TransactionResult, set_blooms},
    system::{self, ContractRequest},
};
use alloy_consensus::{Eip658Value, ReceiptWithBloom, Transaction as _};
use alloy_eips::{eip4844::DATA_GAS_PER_BLOB, eip7685::Requests};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccessList, Changes};
use revm::primitives::hardfork::SpecId;

/// Number of receipts that are made together, so that their blooms are hashed in one batch.
const RECEIPTS_TOGETHER: usize = 64;

/// Collects the results of a block's steps in order, wherever they were executed.
pub(crate) struct BlockResults<'a> {
    input: &'a BlockInput<'a>,
    receipts: Vec<Receipt>,
    /// Results without a receipt yet, with the state root after each transaction.
    waiting: Vec<(TransactionResult, B256)>,
    gas_used: BlockGas,
    blob_gas_used: u64,
    access_list: AccessListBuilder,
    known_access_list: Option<AccessList>,
}

impl<'a> BlockResults<'a> {
    /// Starts with no results. Fails if the numbers of senders and transactions differ.
    pub(crate) fn new<E>(input: &'a BlockInput<'a>) -> Result<Self, ExecutionError<E>> {
        let (senders, transactions) = (input.senders.len(), input.transactions.len());
        if senders != transactions {
            return Err(ExecutionError::SenderCount {
                senders,
                transactions,
            });
        }
        Ok(Self {
            input,
            receipts: Vec::with_capacity(transactions),
            waiting: Vec::with_capacity(RECEIPTS_TOGETHER),
            gas_used: BlockGas::default(),
            blob_gas_used: 0,
            access_list: AccessListBuilder::default(),
            known_access_list: None,
        })
    }

    /// Checks of the next transaction what the EVM does not: the block's gas and blob gas limits,
    /// and whether its signature may have a chain id.
    pub(crate) fn check_limits<E>(&mut self) -> Result<(), ExecutionError<E>> {
        let index = self.receipts.len() + self.waiting.len();
        let transaction = &self.input.transactions[index];
        let fault = |reason| Err(ExecutionError::InvalidTransaction { index, reason });
        let rules = &self.input.rules;
        for (limit, used) in self.most_gas(transaction) {
            let left = self.input.header.gas_limit.saturating_sub(used);
            if limit > left {
                return fault(TransactionFault::BlockGas { limit, left });
            }
        }
        if !rules.eip155 && transaction.is_legacy() && transaction.chain_id().is_some() {
            return fault(TransactionFault::EarlyChainId);
        }
        let blobs = transaction.blob_versioned_hashes().map_or(0, <[_]>::len) as u64;
        let used = self.blob_gas_used + blobs * DATA_GAS_PER_BLOB;
        let max = rules
            .blobs
            .map_or(0, |blobs| blobs.max_blob_gas_per_block());
        if blobs > 0 && rules.blobs.is_some() && used > max {
            return fault(TransactionFault::BlobGas { used, max });
        }
        self.blob_gas_used = used;
        Ok(())
    }

    /// The most gas that a transaction can use and the gas that the block has used, in each
    /// dimension (EIP-8037). Before Amsterdam both are the same.
    fn most_gas(&self, transaction: &Transaction) -> [(u64, u64); 2] {
        let BlockGas { regular, state } = self.gas_used;
        if !self.input.rules.is(SpecId::AMSTERDAM) {
            return [(transaction.gas_limit(), regular); 2];
        }
        let most = amsterdam::most_gas(transaction, self.input.header.gas_limit);
        [(most.0, regular), (most.1, state)]
    }

    /// Adds the next transaction. `root` is the state root after it, which its receipt contains
    /// before Byzantium.
    pub(crate) fn add(&mut self, result: TransactionResult, root: B256) {
        self.gas_used.regular += result.block_gas.regular;
        self.gas_used.state += result.block_gas.state;
        self.waiting.push((result, root));
        if self.waiting.len() == RECEIPTS_TOGETHER {
            self.make_receipts();
        }
    }

    fn make_receipts(&mut self) {
        set_blooms(self.waiting.iter_mut().map(|(result, _)| result));
        for (result, root) in self.waiting.drain(..) {
            let transaction = &self.input.transactions[self.receipts.len()];
            let gas_before = self.receipts.last().map_or(0, Receipt::cumulative_gas_used);
            let status = match self.input.rules.is(SpecId::BYZANTIUM) {
                true => Eip658Value::Eip658(result.success),
                false => Eip658Value::PostState(root),
            };
            let receipt = ReceiptWithBloom {
                receipt: alloy_consensus::Receipt {
                    status,
                    cumulative_gas_used: gas_before + result.gas_used,
                    logs: result.logs,
                },
                logs_bloom: result.bloom.unwrap_or_default(),
            };
            let kind = transaction.tx_type();
            self.receipts.push(Receipt::from_typed(kind, receipt));
        }
    }

    /// Adds what the next step touched, if that is recorded.
    pub(crate) fn add_accesses(&mut self, step: Option<StepAccesses>) {
        if let Some(step) = step {
            self.access_list.add(step);
        }
    }

    /// Sets the access list as a whole, instead of step by step.
    pub(crate) fn set_access_list(&mut self, list: AccessList) {
        self.known_access_list = Some(list);
    }

    /// The deposit requests in the logs.
    pub(crate) fn deposits<E>(&mut self) -> Result<Bytes, ExecutionError<E>> {
        self.make_receipts();
        match self.input.rules.is(SpecId::PRAGUE) {
            true => system::deposits(self.input.rules.deposit_contract, &self.receipts),
            false => Ok(Bytes::new()),
        }
    }

    /// Builds the outcome. `complete`: whether receipts have their state roots, before Byzantium.
    pub(crate) fn finish(
        mut self,
        deposits: Bytes,
        contracts: Vec<ContractRequest>,
        (changes, codes): (Changes, Vec<(B256, Bytes)>),
        complete: bool,
    ) -> Outcome {
        self.make_receipts();
        let record = self.input.rules.block_access_list;
        let known = self.known_access_list;
        let access_list = record.then(|| known.unwrap_or_else(|| self.access_list.finish()));
        Outcome {
            receipts_complete: complete || self.receipts.is_empty(),
            receipts: self.receipts,
            gas_used: self.gas_used.regular.max(self.gas_used.state),
            blob_gas_used: self.blob_gas_used,
            requests: requests(deposits, contracts),
            changes,
            codes,
            access_list,
        }
    }
}

fn requests(deposits: Bytes, contracts: Vec<ContractRequest>) -> Requests {
    let mut requests = Requests::default();
    let all = [(system::DEPOSITS, deposits)].into_iter().chain(contracts);
    for (kind, bytes) in all {
        if !bytes.is_empty() {
            requests.push_request_with_type(kind, bytes);
        }
    }
    requests
}
