//! The miner's fee, apart from all else that a transaction does.
//!
//! Every transaction adds to the beneficiary's balance. If that were a write like any other, each
//! transaction would depend on the one before.

use crate::{StateRead, create::BlockEvm};
use alloy_primitives::U256;
use revm::{
    context::result::{EVMError, HaltReason},
    context_interface::{Block, ContextTr, Transaction},
    handler::{EvmTr, FrameResult, Handler},
    primitives::hardfork::SpecId,
};
use std::{cell::Cell, marker::PhantomData};

/// Handles transactions as revm does, but that the beneficiary is not paid.
pub(crate) struct FeeApart<DB> {
    fee: Cell<U256>,
    db: PhantomData<fn() -> DB>,
}

impl<DB> FeeApart<DB> {
    /// What the last transaction would have paid the beneficiary.
    pub(crate) fn fee(&self) -> U256 {
        self.fee.get()
    }
}

impl<DB> Default for FeeApart<DB> {
    fn default() -> Self {
        Self {
            fee: Cell::default(),
            db: PhantomData,
        }
    }
}

impl<DB: StateRead> Handler for FeeApart<DB> {
    type Evm = BlockEvm<DB>;
    type Error = EVMError<DB::Error>;
    type HaltReason = HaltReason;

    /// The sum is revm's (`post_execution::reward_beneficiary`).
    fn reward_beneficiary(
        &self,
        evm: &mut Self::Evm,
        exec_result: &mut FrameResult,
    ) -> Result<(), Self::Error> {
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
}
