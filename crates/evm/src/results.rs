//! Assembly of a block's outcome from the results of its steps, in order.

use crate::{
    BlockInput, ExecutionError, Outcome, Receipt, RecoveredMeanwhile, Transaction,
    TransactionFault,
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

/// What the transactions of a block have used of its limits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    gas_used: BlockGas,
    blob_gas_used: u64,
}

impl Limits {
    /// Checks of the next transaction what the EVM does not: the block's gas and blob gas limits,
    /// and whether its signature may have a chain id.
    pub(crate) fn check<E>(
        &mut self,
        input: &BlockInput<'_>,
        index: usize,
    ) -> Result<(), ExecutionError<E>> {
        let transaction = &input.transactions[index];
        let fault = |reason| Err(ExecutionError::InvalidTransaction { index, reason });
        let rules = &input.rules;
        for (limit, used) in self.most_gas(input, transaction) {
            let left = input.header.gas_limit.saturating_sub(used);
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
    fn most_gas(&self, input: &BlockInput<'_>, transaction: &Transaction) -> [(u64, u64); 2] {
        let BlockGas { regular, state } = self.gas_used;
        if !input.rules.is(SpecId::AMSTERDAM) {
            return [(transaction.gas_limit(), regular); 2];
        }
        let most = amsterdam::most_gas(transaction, input.header.gas_limit);
        [(most.0, regular), (most.1, state)]
    }

    /// Adds the gas of a transaction.
    pub(crate) fn add(&mut self, gas: BlockGas) {
        self.gas_used += gas;
    }
}

/// Fails if the numbers of senders and transactions differ.
pub(crate) fn check_senders<E>(input: &BlockInput<'_>) -> Result<(), ExecutionError<E>> {
    let recovered = input.recovered.map(RecoveredMeanwhile::len);
    let senders = recovered.unwrap_or(input.senders.len());
    let transactions = input.transactions.len();
    if senders != transactions {
        return Err(ExecutionError::SenderCount {
            senders,
            transactions,
        });
    }
    Ok(())
}

/// Makes the receipts of consecutive transactions from the results with the state root after each.
/// `first`: index of the first transaction; `gas_before`: gas that those before it used.
pub(crate) fn receipts(
    input: &BlockInput<'_>,
    first: usize,
    gas_before: u64,
    mut results: Vec<(TransactionResult, B256)>,
) -> impl Iterator<Item = Receipt> {
    set_blooms(results.iter_mut().map(|(result, _)| result));
    let byzantium = input.rules.is(SpecId::BYZANTIUM);
    let mut cumulative_gas_used = gas_before;
    let transactions = input.transactions[first..].iter();
    let results = transactions.zip(results);
    results.map(move |(transaction, (result, root))| {
        cumulative_gas_used += result.gas_used;
        let status = match byzantium {
            true => Eip658Value::Eip658(result.success),
            false => Eip658Value::PostState(root),
        };
        let receipt = ReceiptWithBloom {
            receipt: alloy_consensus::Receipt {
                status,
                cumulative_gas_used,
                logs: result.logs,
            },
            logs_bloom: result.bloom.unwrap_or_default(),
        };
        Receipt::from_typed(transaction.tx_type(), receipt)
    })
}

/// Collects the results of a block's steps in order, wherever they were executed.
pub(crate) struct BlockResults<'a> {
    input: &'a BlockInput<'a>,
    receipts: Vec<Receipt>,
    /// Results without a receipt yet, with the state root after each transaction.
    waiting: Vec<(TransactionResult, B256)>,
    limits: Limits,
    access_list: AccessListBuilder,
    known_access_list: Option<AccessList>,
}

impl<'a> BlockResults<'a> {
    /// Starts with no results. Fails if the numbers of senders and transactions differ.
    pub(crate) fn new<E>(input: &'a BlockInput<'a>) -> Result<Self, ExecutionError<E>> {
        check_senders(input)?;
        let receipts = Vec::with_capacity(input.transactions.len());
        Ok(Self::of_receipts(input, receipts, Limits::default()))
    }

    /// The results of transactions that have these receipts.
    pub(crate) fn of_receipts(
        input: &'a BlockInput<'a>,
        receipts: Vec<Receipt>,
        limits: Limits,
    ) -> Self {
        Self {
            input,
            receipts,
            waiting: Vec::with_capacity(RECEIPTS_TOGETHER),
            limits,
            access_list: AccessListBuilder::default(),
            known_access_list: None,
        }
    }

    /// Checks the next transaction as [`Limits::check`].
    pub(crate) fn check_limits<E>(&mut self) -> Result<(), ExecutionError<E>> {
        let index = self.receipts.len() + self.waiting.len();
        self.limits.check(self.input, index)
    }

    /// Adds the next transaction. `root` is the state root after it, which its receipt contains
    /// before Byzantium.
    pub(crate) fn add(&mut self, result: TransactionResult, root: B256) {
        self.limits.add(result.block_gas);
        self.waiting.push((result, root));
        if self.waiting.len() == RECEIPTS_TOGETHER {
            self.make_receipts();
        }
    }

    fn make_receipts(&mut self) {
        let waiting = self.waiting.split_off(0);
        let gas_before = self.receipts.last().map_or(0, Receipt::cumulative_gas_used);
        let made = receipts(self.input, self.receipts.len(), gas_before, waiting);
        self.receipts.extend(made);
    }

    /// Adds what the next step touched, if that is recorded.
    pub(crate) fn add_accesses(&mut self, step: Option<StepAccesses>) {
        if let Some(step) = step {
            self.access_list.add(&step);
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
        let Limits {
            gas_used,
            blob_gas_used,
        } = self.limits;
        let record = self.input.rules.block_access_list;
        let known = self.known_access_list;
        let access_list = record.then(|| known.unwrap_or_else(|| self.access_list.finish()));
        Outcome {
            receipts_complete: complete || self.receipts.is_empty(),
            receipts: self.receipts,
            gas_used: gas_used.of_block(),
            blob_gas_used,
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
