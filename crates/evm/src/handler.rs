//! revm's transaction handler with two changes: it can withhold the beneficiary's fee, and it
//! follows the fixture release of Amsterdam ([`crate::amsterdam`]).
//!
//! Every transaction adds to the beneficiary's balance. As an ordinary write, that would make each
//! transaction depend on the one before.

use crate::{
    amsterdam,
    context::EvmContext,
    create::{EvmDatabase, RulesEvm},
};
use alloy_primitives::U256;
use revm::{
    Database, Inspector,
    context::result::{EVMError, ExecutionResult, HaltReason, ResultGas},
    context_interface::{
        Block, Cfg, ContextTr, LocalContextTr, Transaction, context::take_error,
        transaction::TransactionType,
    },
    handler::{
        EthPrecompiles, EvmTr, FrameResult, Handler, PrecompileProvider,
        handle_reservoir_remaining_gas, post_execution, pre_execution, validation,
    },
    inspector::InspectorHandler,
    interpreter::{GasTracker, InitialAndFloorGas, InterpreterResult, interpreter::EthInterpreter},
    primitives::hardfork::SpecId,
};
use std::{cell::Cell, marker::PhantomData};

/// The types of an EVM, of which the handler has no value.
type Evm<D, I, P> = PhantomData<fn() -> (D, I, P)>;

/// Handles one transaction.
pub(crate) struct TransactionHandler<D, I = (), P = EthPrecompiles> {
    fee_is_apart: bool,
    fee: Cell<U256>,
    intrinsic_gas: Cell<u64>,
    authorizations_refund: Cell<u64>,
    evm: Evm<D, I, P>,
}

impl<D, I, P> TransactionHandler<D, I, P> {
    /// `fee_is_apart`: whether to withhold the beneficiary's fee.
    pub(crate) fn new(fee_is_apart: bool) -> Self {
        Self {
            fee_is_apart,
            fee: Cell::default(),
            intrinsic_gas: Cell::default(),
            authorizations_refund: Cell::default(),
            evm: PhantomData,
        }
    }

    /// The beneficiary's fee in wei, if it was withheld.
    pub(crate) fn fee(&self) -> U256 {
        self.fee.get()
    }

    /// Regular intrinsic gas of the transaction.
    pub(crate) fn intrinsic_gas(&self) -> u64 {
        self.intrinsic_gas.get()
    }

    /// State gas refunded for authorizations by accounts that already exist. The block counts it as
    /// used (EIP-8037).
    pub(crate) fn authorizations_refund(&self) -> u64 {
        self.authorizations_refund.get()
    }
}

fn is_amsterdam<D: Database, I, P>(evm: &RulesEvm<D, I, P>) -> bool {
    evm.0.ctx.cfg().spec().is_enabled_in(SpecId::AMSTERDAM)
}

impl<D, I, P> InspectorHandler for TransactionHandler<D, I, P>
where
    D: EvmDatabase,
    I: Inspector<EvmContext<D>>,
    P: PrecompileProvider<EvmContext<D>, Output = InterpreterResult>,
{
    type IT = EthInterpreter;
}

impl<D, I, P> Handler for TransactionHandler<D, I, P>
where
    D: EvmDatabase,
    P: PrecompileProvider<EvmContext<D>, Output = InterpreterResult>,
{
    type Evm = RulesEvm<D, I, P>;
    type Error = EVMError<D::Error>;
    type HaltReason = HaltReason;

    /// As in revm, except that from Amsterdam on a transaction's gas limit may exceed the block's,
    /// since a part of it is state gas. `BlockResults::check_limits` checks that it fits.
    fn validate_env(&self, evm: &mut Self::Evm) -> Result<(), Self::Error> {
        if !is_amsterdam(evm) {
            return validation::validate_env(evm.ctx());
        }
        let limit = std::mem::replace(&mut evm.ctx().block.gas_limit, u64::MAX);
        let validated = validation::validate_env(evm.ctx());
        evm.ctx().block.gas_limit = limit;
        validated
    }

    fn validate_initial_tx_gas(
        &self,
        evm: &mut Self::Evm,
    ) -> Result<InitialAndFloorGas, Self::Error> {
        let context = evm.ctx_ref();
        let (cfg, tx) = (context.cfg(), context.tx());
        let mut gas = validation::validate_initial_tx_gas_with_gas_params(
            tx,
            *cfg.spec(),
            cfg.gas_params(),
            cfg.is_eip7623_disabled(),
            cfg.is_amsterdam_eip8037_enabled(),
            cfg.tx_gas_limit_cap(),
            None,
        )?;
        if is_amsterdam(evm) {
            amsterdam::add_state_gas(
                &mut gas,
                cfg.gas_params(),
                tx.kind().is_create(),
                tx.authorization_list_len() as u64,
                tx.gas_limit(),
            )?;
        }
        self.intrinsic_gas.set(gas.initial_regular_gas());
        Ok(gas)
    }

    fn apply_eip7702_auth_list(
        &self,
        evm: &mut Self::Evm,
        gas: &mut GasTracker,
    ) -> Result<Option<u64>, Self::Error> {
        if !is_amsterdam(evm) {
            return pre_execution::apply_eip7702_auth_list(evm.ctx_mut(), gas);
        }
        let context = evm.ctx_mut();
        if context.tx().tx_type() != TransactionType::Eip7702 {
            return Ok(Some(0));
        }
        let (chain_id, account) = {
            let cfg = context.cfg();
            (cfg.chain_id(), cfg.gas_params().new_account_state_gas())
        };
        let (tx, journal) = context.tx_journal_mut();
        let existed: u64 = pre_execution::apply_auth_list::<_, Self::Error>(
            chain_id,
            tx.authorization_list(),
            journal,
        )?;
        let refund = account.saturating_mul(existed);
        gas.set_reservoir(gas.reservoir().saturating_add(refund));
        self.authorizations_refund.set(refund);
        Ok(Some(0))
    }

    /// As in revm, except that state gas returns to the reservoir wherever it was taken from.
    fn last_frame_result(
        &mut self,
        evm: &mut Self::Evm,
        frame_result: &mut FrameResult,
        parent_gas: &mut GasTracker,
    ) -> Result<(), Self::Error> {
        let result = frame_result.instruction_result();
        let tracker = frame_result.gas_mut().tracker_mut();
        if is_amsterdam(evm) {
            tracker.set_state_gas_spilled(0);
        }
        parent_gas.spend_all();
        handle_reservoir_remaining_gas(result, parent_gas, tracker);
        *tracker = *parent_gas;
        Ok(())
    }

    fn refund(
        &self,
        evm: &mut Self::Evm,
        exec_result: &mut FrameResult,
        eip7702_refund: i64,
    ) -> Result<(), Self::Error> {
        if is_amsterdam(evm) && exec_result.instruction_result().is_ok() {
            amsterdam::refund_destroyed(evm.ctx(), exec_result.gas_mut().tracker_mut());
        }
        let params = evm.ctx_ref().cfg().gas_params();
        post_execution::refund(params, exec_result.gas_mut(), eip7702_refund);
        Ok(())
    }

    /// Computes the fee as revm's `post_execution::reward_beneficiary` does.
    fn reward_beneficiary(
        &self,
        evm: &mut Self::Evm,
        exec_result: &mut FrameResult,
    ) -> Result<(), Self::Error> {
        if !self.fee_is_apart {
            let paid = post_execution::reward_beneficiary(evm.ctx(), exec_result.gas());
            return paid.map_err(From::from);
        }
        let context = evm.ctx_ref();
        let base_fee = u128::from(context.block().basefee());
        let price = context.tx().effective_gas_price(base_fee);
        let price = match context.cfg().spec().is_enabled_in(SpecId::LONDON) {
            true => price.saturating_sub(base_fee),
            false => price,
        };
        let gas = exec_result.gas();
        let used = gas.used().saturating_sub(gas.reservoir());
        self.fee.set(U256::from(price * u128::from(used)));
        Ok(())
    }

    /// As in revm, with logs for burned ether added.
    fn execution_result(
        &mut self,
        evm: &mut Self::Evm,
        result: FrameResult,
        result_gas: ResultGas,
    ) -> Result<ExecutionResult<Self::HaltReason>, Self::Error> {
        take_error::<Self::Error, _>(evm.ctx().error())?;
        if is_amsterdam(evm) {
            amsterdam::burn_logs(evm.ctx());
        }
        let result = post_execution::output(evm.ctx(), result, result_gas);
        evm.ctx().journal_mut().commit_tx();
        evm.ctx().local_mut().clear();
        evm.frame_stack().clear();
        Ok(result)
    }
}
