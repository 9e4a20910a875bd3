//! Transactions one after another: the executor that all others must equal.

use crate::{
    BlockInput, ExecutionError, Outcome, Receipt, RootAfter, StateRead, TransactionFault,
    access_list::AccessListBuilder,
    create::BlockEvm,
    dao::{DRAINED, REFUND_CONTRACT},
    env,
    overlay::Overlay,
    system,
};
use alloy_consensus::{Eip658Value, Transaction as _};
use alloy_eips::eip4844::DATA_GAS_PER_BLOB;
use alloy_primitives::{Address, B256, U256};
use revm::{
    context::{
        ContextSetters,
        result::{EVMError, ExecutionResult},
    },
    handler::{EvmTr, Handler, MainnetHandler},
    primitives::hardfork::SpecId,
    state::EvmState,
};

/// Executes blocks. All executors give equal outcomes.
pub trait Executor {
    /// Executes a block on its parent's state. `roots` is asked for the state's root after each
    /// transaction if receipts hold it, so before Byzantium.
    fn execute<DB: StateRead>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        roots: Option<RootAfter<'_, DB::Error>>,
    ) -> Result<Outcome, ExecutionError<DB::Error>>;
}

/// Executes transactions one after another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequential;

impl Executor for Sequential {
    fn execute<DB: StateRead>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        roots: Option<RootAfter<'_, DB::Error>>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        let (senders, transactions) = (input.senders.len(), input.transactions.len());
        if senders != transactions {
            return Err(ExecutionError::SenderCount {
                senders,
                transactions,
            });
        }
        let roots = if input.rules.is(SpecId::BYZANTIUM) {
            None
        } else {
            roots
        };
        let record = input.rules.block_access_list;
        let mut run = Run {
            input,
            evm: BlockEvm(env::evm(input, Overlay::new(db, roots.is_some(), record))),
            roots,
            access_list: AccessListBuilder::default(),
            receipts: Vec::with_capacity(transactions),
            gas_used: 0,
            blob_gas_used: 0,
        };
        run.before()?;
        run.end_access_step();
        for index in 0..transactions {
            run.transaction(index)?;
            run.end_access_step();
        }
        run.finish()
    }
}

struct Run<'a, 'r, DB: StateRead> {
    input: &'a BlockInput<'a>,
    evm: BlockEvm<DB>,
    roots: Option<RootAfter<'r, DB::Error>>,
    access_list: AccessListBuilder,
    receipts: Vec<Receipt>,
    gas_used: u64,
    blob_gas_used: u64,
}

impl<DB: StateRead> Run<'_, '_, DB> {
    fn overlay(&mut self) -> &mut Overlay<DB> {
        self.evm.overlay()
    }

    fn end_access_step(&mut self) {
        if let Some(step) = self.overlay().end_access_step() {
            self.access_list.add(step);
        }
    }

    fn balance(&mut self, address: Address) -> Result<U256, ExecutionError<DB::Error>> {
        let account = self
            .overlay()
            .account(address)
            .map_err(ExecutionError::Database)?;
        Ok(account.map_or(U256::ZERO, |account| account.balance))
    }

    fn set_balance(
        &mut self,
        address: Address,
        balance: U256,
    ) -> Result<(), ExecutionError<DB::Error>> {
        let keep_empty = !self.input.rules.is(SpecId::SPURIOUS_DRAGON);
        let set = self.overlay().set_balance(address, balance, keep_empty);
        set.map_err(ExecutionError::Database)
    }

    fn add_balance(
        &mut self,
        address: Address,
        amount: U256,
    ) -> Result<(), ExecutionError<DB::Error>> {
        let balance = self.balance(address)?.saturating_add(amount);
        self.set_balance(address, balance)
    }

    fn before(&mut self) -> Result<(), ExecutionError<DB::Error>> {
        if self.input.rules.dao_change {
            for address in DRAINED {
                let balance = self.balance(address)?;
                self.set_balance(address, U256::ZERO)?;
                self.add_balance(REFUND_CONTRACT, balance)?;
            }
        }
        system::before_block(&mut self.evm, self.input)
    }

    fn transaction(&mut self, index: usize) -> Result<(), ExecutionError<DB::Error>> {
        let fault = |reason| ExecutionError::InvalidTransaction { index, reason };
        self.check_limits(index).map_err(fault)?;
        let transaction = &self.input.transactions[index];
        let env = env::transaction(transaction, self.input.senders[index]);
        self.evm.ctx().set_tx(env);
        let result: Result<_, EVMError<DB::Error>> = MainnetHandler::default().run(&mut self.evm);
        let state = self.evm.ctx().journaled_state.finalize();
        let result = result.map_err(|error| match error {
            EVMError::Transaction(reason) => fault(TransactionFault::Evm(reason)),
            EVMError::Header(reason) => ExecutionError::Header(reason.to_string()),
            EVMError::Database(error) => ExecutionError::Database(error),
            EVMError::Custom(reason) => fault(TransactionFault::Fatal(reason)),
            EVMError::CustomAny(reason) => fault(TransactionFault::Fatal(reason.to_string())),
        })?;
        self.commit(index, result, state)
    }

    /// What the EVM does not check: limits of the block, and of the signature's form.
    fn check_limits(&mut self, index: usize) -> Result<(), TransactionFault> {
        let transaction = &self.input.transactions[index];
        let rules = &self.input.rules;
        let left = self.input.header.gas_limit.saturating_sub(self.gas_used);
        let limit = transaction.gas_limit();
        if limit > left {
            return Err(TransactionFault::BlockGas { limit, left });
        }
        if !rules.eip155 && transaction.is_legacy() && transaction.chain_id().is_some() {
            return Err(TransactionFault::EarlyChainId);
        }
        let blobs = transaction.blob_versioned_hashes().map_or(0, <[_]>::len) as u64;
        let used = self.blob_gas_used + blobs * DATA_GAS_PER_BLOB;
        let max = rules
            .blobs
            .map_or(0, |blobs| blobs.max_blob_gas_per_block());
        if blobs > 0 && rules.blobs.is_some() && used > max {
            return Err(TransactionFault::BlobGas { used, max });
        }
        self.blob_gas_used = used;
        Ok(())
    }

    fn commit(
        &mut self,
        index: usize,
        result: ExecutionResult,
        state: EvmState,
    ) -> Result<(), ExecutionError<DB::Error>> {
        self.gas_used += result.tx_gas_used();
        self.overlay()
            .commit(state)
            .map_err(ExecutionError::Database)?;
        let status = if self.input.rules.is(SpecId::BYZANTIUM) {
            Eip658Value::Eip658(result.is_success())
        } else {
            Eip658Value::PostState(self.root_now()?)
        };
        let receipt = alloy_consensus::Receipt {
            status,
            cumulative_gas_used: self.gas_used,
            logs: result.into_logs(),
        };
        let tx_type = self.input.transactions[index].tx_type();
        self.receipts
            .push(Receipt::from_typed(tx_type, receipt.with_bloom()));
        Ok(())
    }

    fn root_now(&mut self) -> Result<B256, ExecutionError<DB::Error>> {
        let Some(roots) = self.roots.take() else {
            return Ok(B256::ZERO);
        };
        let step = self.overlay().take_step();
        let root = roots(&step).map_err(ExecutionError::Database);
        self.roots = Some(roots);
        root
    }

    /// Uncles and the miner get an eighth less for each block that the uncle is late, and a
    /// thirty-second for each uncle.
    fn rewards(&mut self) -> Result<(), ExecutionError<DB::Error>> {
        let (header, reward) = (self.input.header, self.input.rules.block_reward);
        if reward.is_zero() {
            return Ok(());
        }
        for ommer in self.input.ommers {
            let share = ommer
                .number
                .saturating_add(8)
                .saturating_sub(header.number)
                .min(8);
            self.add_balance(
                ommer.beneficiary,
                reward * U256::from(share) / U256::from(8),
            )?;
        }
        let for_ommers = reward / U256::from(32) * U256::from(self.input.ommers.len());
        self.add_balance(header.beneficiary, reward + for_ommers)
    }

    fn finish(mut self) -> Result<Outcome, ExecutionError<DB::Error>> {
        for withdrawal in self.input.withdrawals {
            self.add_balance(withdrawal.address, withdrawal.amount_wei())?;
        }
        let requests = system::requests(&mut self.evm, self.input, &self.receipts)?;
        self.rewards()?;
        self.end_access_step();
        let record = self.input.rules.block_access_list;
        let access_list = record.then(|| self.access_list.finish());
        let receipts_complete = self.input.rules.is(SpecId::BYZANTIUM)
            || self.roots.is_some()
            || self.receipts.is_empty();
        let (changes, codes) = self.evm.0.ctx.journaled_state.database.finish();
        Ok(Outcome {
            receipts: self.receipts,
            receipts_complete,
            gas_used: self.gas_used,
            blob_gas_used: self.blob_gas_used,
            requests,
            changes,
            codes,
            access_list,
        })
    }
}
