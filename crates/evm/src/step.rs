//! The steps of a block: the system calls before the transactions, each transaction, and the system
//! calls, withdrawals and rewards after them.
//!
//! A step depends on other steps only through the state below its overlay. So all steps may run in
//! order on one overlay, or each on an overlay of its own as soon as its state is known.
//!
//! The `alloy-evm` crate has the same steps, but only inside a block executor that runs them one
//! after another on revm's `State`. Its parts can't be taken alone, so rewards, system calls and
//! deposits ([`crate::system`]), the DAO's accounts ([`crate::dao`]) and revm's environment
//! ([`crate::env`]) are written out here.

use crate::{
    BlockInput, ExecutionError, StateRead, TransactionFault,
    access_list::StepAccesses,
    create::{BlockEvm, EvmDatabase, RulesEvm},
    dao::{DRAINED, REFUND_CONTRACT},
    env,
    handler::TransactionHandler,
    overlay::Overlay,
    system::{self, ContractRequest},
};
use alloy_primitives::{Address, Bloom, BloomInput, Log, U256};
use cambium_keccak::keccak256_each;
use revm::{
    context::{
        ContextSetters,
        result::{EVMError, ExecutionResult, HaltReason},
    },
    handler::{EvmTr, Handler},
    primitives::hardfork::SpecId,
    state::EvmState,
};
use std::{iter, ops::AddAssign};

/// The result of a transaction, from which its receipt is made.
pub(crate) struct TransactionResult {
    /// Gas used after refunds.
    pub(crate) gas_used: u64,
    /// Gas that counts towards the block's gas.
    pub(crate) block_gas: BlockGas,
    pub(crate) success: bool,
    pub(crate) logs: Vec<Log>,
    /// Bloom of `logs`, set by [`set_blooms`].
    pub(crate) bloom: Option<Bloom>,
}

/// Gas in its two dimensions (EIP-8037). Before Amsterdam all gas is regular.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockGas {
    /// Regular gas, in gas.
    pub regular: u64,
    /// State gas, in gas.
    pub state: u64,
}

impl BlockGas {
    /// The gas of a block whose transactions use this: the larger of both dimensions.
    pub fn of_block(&self) -> u64 {
        self.regular.max(self.state)
    }
}

impl AddAssign for BlockGas {
    fn add_assign(&mut self, more: Self) {
        self.regular = self.regular.saturating_add(more.regular);
        self.state = self.state.saturating_add(more.state);
    }
}

/// The gas of a transaction that counts towards the block's. From Amsterdam on refunds are not
/// subtracted (EIP-7778), and state gas is counted separately (EIP-8037).
pub(crate) fn block_gas<D: EvmDatabase, I, P>(
    evm: &RulesEvm<D, I, P>,
    result: &ExecutionResult,
    handler: &TransactionHandler<D, I, P>,
) -> BlockGas {
    let gas = result.gas();
    let context = &evm.0.ctx;
    if !context.cfg.spec.is_enabled_in(SpecId::AMSTERDAM) {
        return BlockGas {
            regular: gas.tx_gas_used(),
            state: 0,
        };
    }
    let state = gas.state_gas_spent_final();
    let regular = match result {
        // Gas burned by a collision is paid by the sender, but does not count for the block.
        ExecutionResult::Halt {
            reason: HaltReason::CreateCollision,
            ..
        } => handler.intrinsic_gas(),
        _ => {
            let paid = state.saturating_sub(handler.authorizations_refund());
            let lost = context.chain.lost();
            gas.total_gas_spent()
                .saturating_sub(paid.saturating_add(lost))
        }
    };
    BlockGas {
        regular: regular.max(gas.floor_gas()),
        state,
    }
}

/// Sets the blooms of results that have none yet, hashing all their inputs in one batch.
pub(crate) fn set_blooms<'a>(results: impl Iterator<Item = &'a mut TransactionResult>) {
    let mut without: Vec<_> = results.filter(|result| result.bloom.is_none()).collect();
    let logs = without.iter().flat_map(|result| &result.logs);
    let inputs = logs.flat_map(|log| {
        let topics = log.topics().iter().map(|topic| topic.as_slice());
        iter::once(log.address.as_slice()).chain(topics)
    });
    let mut hashes = keccak256_each(inputs).into_iter();
    for result in &mut without {
        let mut bloom = Bloom::ZERO;
        for log in &result.logs {
            for hash in hashes.by_ref().take(1 + log.topics().len()) {
                bloom.accrue(BloomInput::Hash(hash));
            }
        }
        result.bloom = Some(bloom);
    }
}

/// Runs steps of a block on an overlay.
pub(crate) struct StepRunner<'a, DB: StateRead> {
    input: &'a BlockInput<'a>,
    evm: BlockEvm<DB>,
}

impl<'a, DB: StateRead> StepRunner<'a, DB> {
    pub(crate) fn new(input: &'a BlockInput<'a>, overlay: Overlay<DB>) -> Self {
        let evm = RulesEvm(env::evm(input, overlay));
        Self { input, evm }
    }

    pub(crate) fn overlay(&mut self) -> &mut Overlay<DB> {
        self.evm.overlay()
    }

    /// Disables the checks of nonces and of senders' balances: the state below lacks earlier
    /// transactions.
    pub(crate) fn relax(&mut self) {
        let cfg = &mut self.evm.ctx().cfg;
        cfg.disable_nonce_check = true;
        cfg.disable_balance_check = true;
    }

    pub(crate) fn into_overlay(self) -> Overlay<DB> {
        self.evm.0.ctx.journaled_state.database
    }

    /// Ends a step and returns what it touched, if that is recorded.
    pub(crate) fn end(&mut self) -> Option<StepAccesses> {
        self.overlay().end_access_step()
    }

    /// Runs the step before the transactions.
    pub(crate) fn before(&mut self) -> Result<(), ExecutionError<DB::Error>> {
        if self.input.rules.dao_change {
            for address in DRAINED {
                let balance = self.balance(address)?;
                self.set_balance(address, U256::ZERO)?;
                self.add_balance(REFUND_CONTRACT, balance)?;
            }
        }
        system::before_block(&mut self.evm, self.input)
    }

    /// Runs a transaction. Does not check the limits of the block.
    pub(crate) fn transaction(
        &mut self,
        index: usize,
    ) -> Result<TransactionResult, ExecutionError<DB::Error>> {
        let (result, state) = self.transaction_state(index)?;
        self.commit(state)?;
        Ok(result)
    }

    /// Applies a transaction's writes to the overlay.
    pub(crate) fn commit(&mut self, state: EvmState) -> Result<(), ExecutionError<DB::Error>> {
        let committed = self.overlay().commit(state);
        committed.map_err(ExecutionError::Database)
    }

    /// Runs a transaction and returns its writes, without applying them.
    pub(crate) fn transaction_state(
        &mut self,
        index: usize,
    ) -> Result<(TransactionResult, EvmState), ExecutionError<DB::Error>> {
        self.run(index, &mut TransactionHandler::new(false))
    }

    /// As [`Self::transaction_state`], but withholds the beneficiary's fee and returns it.
    pub(crate) fn transaction_and_fee(
        &mut self,
        index: usize,
    ) -> Result<(TransactionResult, EvmState, U256), ExecutionError<DB::Error>> {
        let mut handler = TransactionHandler::new(true);
        let (result, state) = self.run(index, &mut handler)?;
        Ok((result, state, handler.fee()))
    }

    fn run(
        &mut self,
        index: usize,
        handler: &mut TransactionHandler<Overlay<DB>>,
    ) -> Result<(TransactionResult, EvmState), ExecutionError<DB::Error>> {
        let fault = |reason| ExecutionError::InvalidTransaction { index, reason };
        let transaction = &self.input.transactions[index];
        let sender = self
            .input
            .sender(index)
            .map_err(ExecutionError::Signature)?;
        let env = env::transaction_env(transaction, sender);
        self.evm.ctx().set_tx(env);
        let result: Result<ExecutionResult, _> = handler.run(&mut self.evm);
        let state = self.evm.ctx().journaled_state.finalize();
        let result = result.map_err(|error| match error {
            EVMError::Transaction(reason) => fault(TransactionFault::Evm(reason)),
            EVMError::Header(reason) => ExecutionError::Header(reason.to_string()),
            EVMError::Database(error) => ExecutionError::Database(error),
            EVMError::Custom(reason) => fault(TransactionFault::Fatal(reason)),
            EVMError::CustomAny(reason) => fault(TransactionFault::Fatal(reason.to_string())),
        })?;
        let gas = result.gas();
        let result = TransactionResult {
            gas_used: gas.tx_gas_used(),
            block_gas: block_gas(&self.evm, &result, handler),
            success: result.is_success(),
            logs: result.into_logs(),
            bloom: None,
        };
        Ok((result, state))
    }

    /// Runs the step after the transactions: withdrawals, contract requests, rewards.
    pub(crate) fn after(&mut self) -> Result<Vec<ContractRequest>, ExecutionError<DB::Error>> {
        for withdrawal in self.input.withdrawals {
            self.add_balance(withdrawal.address, withdrawal.amount_wei())?;
        }
        let requests = system::contract_requests(&mut self.evm, self.input)?;
        self.rewards()?;
        Ok(requests)
    }

    /// Pays the block rewards. An ommer's miner receives an eighth less for each block that the
    /// ommer is older, the block's miner a thirty-second more for each ommer.
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

    fn balance(&mut self, address: Address) -> Result<U256, ExecutionError<DB::Error>> {
        let account = self.overlay().account(address);
        let account = account.map_err(ExecutionError::Database)?;
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
}
