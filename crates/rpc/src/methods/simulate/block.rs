//! Execution of a simulated block.

use super::{
    super::{
        call::{CallEnv, halted, inspect, system_call, transact},
        objects::{self, InBlock, TransactionObject},
    },
    call::{Defaults, check_nonce, invalid, transaction},
    plan::{Planned, parse},
    state::SimulatedState,
    transfers::Transfers,
};
use crate::{error::RpcError, table::Call};
use alloy_consensus::{
    BlockBody, Eip658Value, Header, ReceiptWithBloom, Transaction as _,
    proofs::calculate_transaction_root,
};
use alloy_eips::{
    eip2935::HISTORY_STORAGE_ADDRESS,
    eip4788::BEACON_ROOTS_ADDRESS,
    eip6110::DEPOSIT_REQUEST_TYPE,
    eip7002::{WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, WITHDRAWAL_REQUEST_TYPE},
    eip7251::{CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS, CONSOLIDATION_REQUEST_TYPE},
    eip7685::Requests,
};
use alloy_primitives::{Address, B256, Bytes, Log, U256, logs_bloom};
use alloy_rlp::Encodable;
use alloy_rpc_types_eth::{
    self as eth, TransactionRequest,
    simulate::{SimCallResult, SimulateError, SimulatedBlock},
};
use cambium_chain::{
    Block, ChainSpec, DraftAttributes, Outcome, Receipt, Rules, Transaction, complete_header,
    transaction_env,
};
use cambium_evm::{BlockGas, Called, StepAccessRecorder, deposits};
use cambium_primitives::{BlockId, Changes};
use revm::{
    context::{
        TxEnv,
        result::{ExecutionResult, ResultAndState},
    },
    context_interface::block::BlobExcessGasAndPrice,
    primitives::hardfork::SpecId,
};

/// Logs with their indices in the block.
type IndexedLogs = Vec<(u64, Log)>;

/// What holds for all blocks of a request.
pub(super) struct Options<'c> {
    pub(super) call: &'c Call<'c>,
    pub(super) spec: &'c ChainSpec,
    pub(super) traces_transfers: bool,
    pub(super) validates: bool,
    pub(super) whole: bool,
    /// What all calls together may still use.
    pub(super) gas_left: u64,
}

/// The block below.
pub(super) struct Parent {
    pub(super) hash: B256,
    pub(super) header: Header,
}

/// A block in execution.
struct Running<'r, 'c, 's> {
    options: &'r mut Options<'c>,
    state: &'r mut SimulatedState<'s>,
    header: Header,
    rules: Rules,
    env: CallEnv,
    transactions: Vec<Transaction>,
    senders: Vec<Address>,
    receipts: Vec<Receipt>,
    results: Vec<SimCallResult>,
    gas_used: u64,
    /// Gas that counts towards the block's.
    block_gas: BlockGas,
    blob_gas_used: u64,
    next_log: u64,
    accesses: StepAccessRecorder,
}

/// Executes a block. Returns it, and what the next one needs of it.
pub(super) fn simulate(
    options: &mut Options<'_>,
    state: &mut SimulatedState<'_>,
    parent: &Parent,
    planned: Planned<'_>,
) -> Result<(SimulatedBlock<eth::Block<TransactionObject>>, Parent), RpcError> {
    let header = header(options, parent, &planned)?;
    let rules = super::super::call::rules_of(options.spec, &header);
    let mut env = CallEnv::new(options.spec, &header);
    env.cfg.disable_nonce_check = !options.validates;
    env.cfg.disable_base_fee = false;
    env.count_gas_as_blocks();
    if let Some(price) = planned.overrides.blob_base_fee {
        env.block.blob_excess_gas_and_price = Some(BlobExcessGasAndPrice {
            excess_blob_gas: header.excess_blob_gas.unwrap_or_default(),
            blob_gasprice: price.saturating_to(),
        });
    }
    if let Some(hashes) = planned.overrides.block_hash {
        state.values.db.set_hashes(hashes);
    }
    state.change(&mut env.precompiles, planned.state)?;
    let mut running = Running {
        options,
        state,
        header,
        rules,
        env,
        transactions: Vec::new(),
        senders: Vec::new(),
        receipts: Vec::new(),
        results: Vec::new(),
        gas_used: 0,
        block_gas: BlockGas::default(),
        blob_gas_used: 0,
        next_log: 0,
        accesses: StepAccessRecorder::default(),
    };
    running.before()?;
    for raw in planned.calls {
        running.options.call.cancel.check()?;
        running.call(parse(raw)?)?;
    }
    let requests = running.after()?;
    let has_withdrawals = running.header.withdrawals_root.is_some();
    let withdrawals = match has_withdrawals {
        true => Some(planned.withdrawals.into()),
        false => None,
    };
    running.finish(requests, withdrawals)
}

/// The header, of which fields that follow from execution are missing.
fn header(
    options: &Options<'_>,
    parent: &Parent,
    planned: &Planned<'_>,
) -> Result<Header, RpcError> {
    let (spec, below, overrides) = (options.spec, &parent.header, &planned.overrides);
    let attributes = DraftAttributes {
        timestamp: planned.timestamp,
        beneficiary: overrides.coinbase.unwrap_or(below.beneficiary),
        prev_randao: overrides.random.unwrap_or_default(),
        withdrawals: planned.withdrawals.clone(),
        parent_beacon_block_root: overrides.beacon_root.unwrap_or_default(),
        slot_number: 0,
        gas_limit: below.gas_limit,
    };
    let mut header = spec.draft(below, parent.hash, &attributes).header;
    // It need not be near the parent's.
    header.gas_limit = overrides.gas_limit.unwrap_or(below.gas_limit);
    let is_merged =
        below.difficulty.is_zero() || spec.terminal_total_difficulty == Some(U256::ZERO);
    if is_merged && overrides.difficulty.is_some_and(|own| !own.is_zero()) {
        return Err(RpcError::params("a block past the merge has no difficulty"));
    }
    if !is_merged {
        header.difficulty = overrides.difficulty.unwrap_or(below.difficulty);
        if header.difficulty.is_zero() {
            return Err(RpcError::params(
                "a block before the merge has a difficulty",
            ));
        }
        let rules = spec.rules_at(header.number, header.timestamp, false);
        header.base_fee_per_gas = header.base_fee_per_gas.filter(|_| rules.is(SpecId::LONDON));
        header.withdrawals_root = None;
        header.blob_gas_used = None;
        header.excess_blob_gas = None;
        header.parent_beacon_block_root = None;
        header.requests_hash = None;
        header.block_access_list_hash = None;
        header.slot_number = None;
    }
    if let Some(fee) = &mut header.base_fee_per_gas {
        match overrides.base_fee {
            Some(own) => {
                let own = u64::try_from(own);
                *fee = own.map_err(|_| RpcError::params("baseFeePerGas is too high"))?;
            }
            // A call without a price would be below it.
            None if !options.validates => *fee = 0,
            None => {}
        }
    }
    debug_assert_eq!(header.number, planned.number);
    Ok(header)
}

impl Running<'_, '_, '_> {
    /// What the block itself does before its transactions (EIP-2935, EIP-4788).
    fn before(&mut self) -> Result<(), RpcError> {
        if self.rules.is(SpecId::PRAGUE) {
            let parent = self.header.parent_hash;
            self.system_call(HISTORY_STORAGE_ADDRESS, parent.into())?;
        }
        if self.rules.is(SpecId::CANCUN)
            && let Some(root) = self.header.parent_beacon_block_root
        {
            self.system_call(BEACON_ROOTS_ADDRESS, root.into())?;
        }
        self.end_step();
        Ok(())
    }

    fn end_step(&mut self) {
        self.accesses.end_step(&self.state.values.cache);
    }

    fn system_call(&mut self, to: Address, data: Bytes) -> Result<Bytes, RpcError> {
        let accesses = Some(&mut self.accesses);
        let done = system_call(&mut self.state.values, &self.env, to, data, accesses);
        let ResultAndState { result, state } = done.map_err(invalid)?;
        match result {
            ExecutionResult::Success { output, .. } => {
                self.state.commit(state)?;
                Ok(output.into_data())
            }
            _ => Ok(Bytes::new()),
        }
    }

    /// Executes a call as the next transaction.
    fn call(&mut self, request: TransactionRequest) -> Result<(), RpcError> {
        let sender = request.from.unwrap_or_default();
        let nonce = self.state.account(sender)?.nonce;
        let own = self.transaction(request, nonce)?;
        if self.options.validates {
            check_nonce(sender, own.nonce(), nonce)?;
        }
        let mut env = transaction_env(&own, sender);
        if !self.options.validates {
            // revm refuses the highest nonce even where it compares none.
            env.nonce = if nonce == u64::MAX { 0 } else { nonce };
        }
        let (called, logs) = self.execute(env)?;
        let ResultAndState {
            result,
            state: mut changes,
        } = called.done;
        if !self.options.validates
            && nonce == u64::MAX
            && own.to().is_some()
            && let Some(sender) = changes.get_mut(&sender)
        {
            // Without checks a nonce starts again, as in other clients. revm leaves it.
            sender.info.nonce = 0;
        }
        self.state.commit(changes)?;
        self.end_step();
        self.block_gas += called.block_gas;
        let gas = *result.gas();
        let used = gas.tx_gas_used();
        self.gas_used += used;
        self.options.gas_left = self.options.gas_left.saturating_sub(used);
        self.blob_gas_used += own.blob_gas_used().unwrap_or_default();
        let status = match self.rules.is(SpecId::BYZANTIUM) {
            true => Eip658Value::Eip658(result.is_success()),
            false => Eip658Value::PostState(self.state.root()?),
        };
        let own_logs = result.logs().to_vec();
        let receipt = ReceiptWithBloom {
            logs_bloom: logs_bloom(&own_logs),
            receipt: alloy_consensus::Receipt {
                status,
                cumulative_gas_used: self.gas_used,
                logs: own_logs,
            },
        };
        self.receipts
            .push(Receipt::from_typed(own.tx_type(), receipt));
        let hash = *own.hash();
        let logs = self.logs(logs, hash);
        self.results.push(SimCallResult {
            logs,
            gas_used: used,
            max_used_gas: Some(gas.total_gas_spent().max(gas.floor_gas())),
            status: result.is_success(),
            error: error_of(&result),
            return_data: match result {
                ExecutionResult::Success { output, .. } => output.into_data(),
                _ => Bytes::new(),
            },
        });
        self.transactions.push(own);
        self.senders.push(sender);
        Ok(())
    }

    /// The transaction of a request, with the gas that is left if it names none.
    fn transaction(
        &mut self,
        request: TransactionRequest,
        nonce: u64,
    ) -> Result<Transaction, RpcError> {
        let limit = self.header.gas_limit;
        let left = limit.saturating_sub(self.block_gas.of_block());
        let gas = request.gas.unwrap_or(left);
        if gas > left {
            let what = format!("block gas limit reached: {gas} of gas, {left} are left");
            return Err(RpcError::new(RpcError::BLOCK_GAS, what));
        }
        if self.options.gas_left == 0 {
            let most = self.options.call.limits().call_gas;
            let what = format!("the calls use more than {most} of gas, the limit of this server");
            return Err(RpcError::new(RpcError::SIMULATION, what));
        }
        let defaults = Defaults {
            chain_id: self.env.cfg.chain_id,
            nonce: request.nonce.unwrap_or(nonce),
            gas_limit: gas.min(self.options.gas_left),
            has_base_fee: self.header.base_fee_per_gas.is_some(),
        };
        transaction(request, &defaults)
    }

    /// Runs a transaction. Returns what it changes, and its logs with those of transfers, if they are traced.
    fn execute(&mut self, own: TxEnv) -> Result<(Called, IndexedLogs), RpcError> {
        let is_free = own.gas_price == 0 && own.gas_priority_fee.unwrap_or_default() == 0;
        // The price of gas need not be met by a call that has none; contracts see it all the same.
        self.env.cfg.disable_base_fee = is_free && !self.options.validates;
        let price = self.env.block.blob_excess_gas_and_price;
        if !self.options.validates
            && own.max_fee_per_blob_gas == 0
            && let Some(price) = &mut self.env.block.blob_excess_gas_and_price
        {
            price.blob_gasprice = 0;
        }
        let values = &mut self.state.values;
        let accesses = Some(&mut self.accesses);
        let (called, transfers) = match self.options.traces_transfers {
            false => (transact(values, &self.env, own, accesses), None),
            true => {
                let transfers = Transfers::after(self.next_log);
                let (called, transfers) = inspect(values, &self.env, own, transfers, accesses);
                (called, Some(transfers))
            }
        };
        self.env.block.blob_excess_gas_and_price = price;
        let called = called.map_err(invalid)?;
        let (logs, next) = match transfers {
            Some(transfers) => transfers.into_logs(),
            None => {
                let own = called.done.result.logs();
                let logs = (self.next_log..).zip(own.iter().cloned());
                (logs.collect(), self.next_log + own.len() as u64)
            }
        };
        self.next_log = next;
        Ok((called, logs))
    }

    /// Logs of the next transaction. The block's hash is not known yet.
    fn logs(&self, logs: IndexedLogs, hash: B256) -> Vec<eth::Log> {
        let logs = logs.into_iter().map(|(index, inner)| eth::Log {
            inner,
            block_hash: None,
            block_number: Some(self.header.number),
            block_timestamp: Some(self.header.timestamp),
            transaction_hash: Some(hash),
            transaction_index: Some(self.transactions.len() as u64),
            log_index: Some(index),
            removed: false,
        });
        logs.collect()
    }

    /// What the block itself does after its transactions: requests to the consensus layer (EIP-7685).
    fn after(&mut self) -> Result<Requests, RpcError> {
        let mut requests = Requests::default();
        if !self.rules.is(SpecId::PRAGUE) {
            return Ok(requests);
        }
        let contract = self.rules.deposit_contract;
        let made = deposits::<std::convert::Infallible>(contract, &self.receipts);
        let made = made.map_err(RpcError::server)?;
        let mut all = vec![(DEPOSIT_REQUEST_TYPE, made)];
        for (kind, contract) in [
            (
                WITHDRAWAL_REQUEST_TYPE,
                WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
            ),
            (
                CONSOLIDATION_REQUEST_TYPE,
                CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
            ),
        ] {
            all.push((kind, self.system_call(contract, Bytes::new())?));
        }
        for (kind, made) in all {
            if !made.is_empty() {
                requests.push_request_with_type(kind, made);
            }
        }
        Ok(requests)
    }

    /// Pays withdrawals and rewards, and completes the block.
    fn finish(
        self,
        requests: Requests,
        withdrawals: Option<alloy_eips::eip4895::Withdrawals>,
    ) -> Result<(SimulatedBlock<eth::Block<TransactionObject>>, Parent), RpcError> {
        let Self {
            options,
            state,
            mut header,
            rules,
            transactions,
            senders,
            receipts,
            mut results,
            block_gas,
            blob_gas_used,
            mut accesses,
            ..
        } = self;
        for withdrawal in withdrawals.iter().flat_map(|all| all.iter()) {
            let address = withdrawal.address;
            accesses.touch(address, Some(&state.account(address)?));
            state.add_balance(address, withdrawal.amount_wei())?;
        }
        if !rules.block_reward.is_zero() {
            state.add_balance(header.beneficiary, rules.block_reward)?;
        }
        accesses.end_step(&state.values.cache);
        let outcome = Outcome {
            receipts,
            receipts_complete: true,
            gas_used: block_gas.of_block(),
            blob_gas_used,
            requests,
            changes: Changes::default(),
            codes: Vec::new(),
            access_list: Some(accesses.finish()),
        };
        complete_header(&mut header, &outcome, state.root()?);
        header.transactions_root = calculate_transaction_root(&transactions);
        let hash = header.hash_slow();
        let id = BlockId::new(header.number, hash);
        for log in results.iter_mut().flat_map(|result| &mut result.logs) {
            log.block_hash = Some(hash);
        }
        state.values.db.set_hashes([(id.number, hash)].into());
        let block = Block::new(
            header.clone(),
            BlockBody {
                transactions,
                ommers: Vec::new(),
                withdrawals,
            },
        );
        let size = block.length();
        let own = block.body.transactions;
        let transactions = match options.whole {
            false => eth::BlockTransactions::Hashes(own.iter().map(|own| *own.hash()).collect()),
            true => {
                let own = own.into_iter().zip(senders).enumerate();
                let own = own.map(|(index, (own, sender))| {
                    let at = InBlock {
                        block: id,
                        header: &header,
                        index,
                    };
                    objects::transaction(own, sender, at)
                });
                eth::BlockTransactions::Full(own.collect())
            }
        };
        let simulated = SimulatedBlock {
            inner: eth::Block {
                header: objects::header(id, header.clone(), Some(size)),
                uncles: Vec::new(),
                transactions,
                withdrawals: block.body.withdrawals,
            },
            calls: results,
        };
        Ok((simulated, Parent { hash, header }))
    }
}

/// The error of a call that ran and did not succeed.
fn error_of(result: &ExecutionResult) -> Option<SimulateError> {
    let (code, message, data) = match result {
        ExecutionResult::Success { .. } => return None,
        ExecutionResult::Revert { output, .. } => {
            let error = RpcError::revert(output);
            (error.code, error.message, Some(output.clone()))
        }
        ExecutionResult::Halt { reason, .. } => (RpcError::EXECUTION, halted(reason), None),
    };
    Some(SimulateError {
        code: code as i32,
        message,
        data,
    })
}
