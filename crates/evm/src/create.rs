//! revm's EVM with three changes.
//!
//! - Creating a contract at an account that has storage fails (EIP-7610). revm checks for code and
//!   a nonce only, so during such a creation it sees a nonce of one.
//! - The database learns which accounts send value in calls and creations ([`crate::effects`]).
//! - In Amsterdam the gas of frames is settled as the fixture release does ([`crate::amsterdam`]).

use crate::{
    StateRead, amsterdam,
    context::{Evm, EvmContext},
    effects::ObserveBalance,
    overlay::Overlay,
};
use alloy_primitives::Address;
use revm::{
    Database, Inspector,
    context::FrameStack,
    context_interface::Cfg,
    handler::{
        EthFrame, EthPrecompiles, EvmTr, FrameInitOrResult, FrameResult, ItemOrResult,
        PrecompileProvider,
        evm::{ContextDbError, FrameInitResult, FrameTr},
        instructions::EthInstructions,
    },
    inspector::InspectorEvmTr,
    interpreter::{
        FrameInput, InterpreterResult, interpreter::EthInterpreter, interpreter_action::FrameInit,
    },
    primitives::hardfork::SpecId,
};

type Frame = EthFrame<EthInterpreter>;

/// The database of an EVM that executes transactions.
pub(crate) trait EvmDatabase: Database + ObserveBalance {
    /// Whether an account has storage, but neither code nor nonce.
    fn has_bare_storage(&mut self, address: Address) -> Result<bool, Self::Error>;

    /// Makes the EVM see a nonce of one for an account, or for none.
    fn feign_nonce(&mut self, address: Option<Address>);
}

impl<DB: StateRead> EvmDatabase for Overlay<DB> {
    fn has_bare_storage(&mut self, address: Address) -> Result<bool, DB::Error> {
        Self::has_bare_storage(self, address)
    }

    fn feign_nonce(&mut self, address: Option<Address>) {
        Self::feign_nonce(self, address);
    }
}

/// An EVM that executes transactions.
pub(crate) struct RulesEvm<D: Database, I = (), P = EthPrecompiles>(pub(crate) Evm<D, I, P>);

/// An EVM that executes a block's transactions.
pub(crate) type BlockEvm<DB> = RulesEvm<Overlay<DB>>;

impl<DB: StateRead> BlockEvm<DB> {
    pub(crate) fn overlay(&mut self) -> &mut Overlay<DB> {
        self.database()
    }
}

impl<D: EvmDatabase, I, P> RulesEvm<D, I, P> {
    fn database(&mut self) -> &mut D {
        &mut self.0.ctx.journaled_state.database
    }

    /// The address at which a frame is about to create a contract, if the account there has storage
    /// but neither code nor nonce.
    fn storage_in_the_way(&mut self, frame: &FrameInit) -> Result<Option<Address>, D::Error> {
        let FrameInput::Create(inputs) = &frame.frame_input else {
            return Ok(None);
        };
        let Some(caller) = self.0.ctx.journaled_state.state.get(&inputs.caller()) else {
            return Ok(None);
        };
        let address = inputs.created_address(caller.info.nonce);
        Ok(self
            .database()
            .has_bare_storage(address)?
            .then_some(address))
    }

    /// Notes that a frame depends on its caller's balance, if it sends value. That of the first
    /// frame was checked before.
    fn observe_value(&mut self, frame: &FrameInit) {
        let (caller, sends_value) = match &frame.frame_input {
            FrameInput::Call(inputs) => (inputs.caller, inputs.transfers_value()),
            FrameInput::Create(inputs) => (inputs.caller(), !inputs.value().is_zero()),
            FrameInput::Empty => return,
        };
        if frame.depth > 0 && sends_value {
            self.database().observe_balance(caller);
        }
    }

    /// Makes the EVM see a nonce of one for an account, or undoes that.
    fn feign_nonce(&mut self, address: Address, feign: bool) {
        self.database().feign_nonce(feign.then_some(address));
        if let Some(account) = self.0.ctx.journaled_state.state.get_mut(&address) {
            account.info.nonce = feign.into();
            account.original_info_mut().nonce = 0;
        }
    }
}

impl<D, I, P> EvmTr for RulesEvm<D, I, P>
where
    D: EvmDatabase,
    P: PrecompileProvider<EvmContext<D>, Output = InterpreterResult>,
{
    type Context = EvmContext<D>;
    type Instructions = EthInstructions<EthInterpreter, EvmContext<D>>;
    type Precompiles = P;
    type Frame = Frame;

    fn all(
        &self,
    ) -> (
        &Self::Context,
        &Self::Instructions,
        &Self::Precompiles,
        &FrameStack<Frame>,
    ) {
        self.0.all()
    }

    fn all_mut(
        &mut self,
    ) -> (
        &mut Self::Context,
        &mut Self::Instructions,
        &mut Self::Precompiles,
        &mut FrameStack<Frame>,
    ) {
        self.0.all_mut()
    }

    fn frame_init(
        &mut self,
        frame: FrameInit,
    ) -> Result<FrameInitResult<'_, Frame>, ContextDbError<Self::Context>> {
        self.0.ctx.chain.begin(frame.depth);
        self.observe_value(&frame);
        let Some(address) = self.storage_in_the_way(&frame)? else {
            return self.0.frame_init(frame);
        };
        self.feign_nonce(address, true);
        let refused = match self.0.frame_init(frame) {
            Ok(ItemOrResult::Result(result)) => Ok(ItemOrResult::Result(result)),
            Ok(ItemOrResult::Item(_)) => unreachable!("a contract created over a nonce"),
            Err(error) => Err(error),
        };
        self.feign_nonce(address, false);
        refused
    }

    fn frame_run(&mut self) -> Result<FrameInitOrResult<Frame>, ContextDbError<Self::Context>> {
        self.0.frame_run()
    }

    fn frame_return_result(
        &mut self,
        mut result: <Frame as FrameTr>::FrameResult,
    ) -> Result<Option<FrameResult>, ContextDbError<Self::Context>> {
        let evm = &mut self.0;
        if evm.frame_stack.get().is_finished() {
            evm.frame_stack.pop();
        }
        if evm.frame_stack.index().is_none() {
            return Ok(Some(result));
        }
        let caller = evm.frame_stack.get();
        if !evm.ctx.cfg.spec.is_enabled_in(SpecId::AMSTERDAM) {
            caller.return_result::<_, ContextDbError<Self::Context>>(&mut evm.ctx, result)?;
            return Ok(None);
        }
        let depth = caller.depth;
        let gas = caller.interpreter.gas.tracker_mut();
        let (refunds, params) = (&mut evm.ctx.chain, evm.ctx.cfg.gas_params());
        let amount = amsterdam::before_settling(&mut result, gas, refunds, depth + 1, params);
        caller.return_result::<_, ContextDbError<Self::Context>>(&mut evm.ctx, result)?;
        let gas = caller.interpreter.gas.tracker_mut();
        amsterdam::after_settling(gas, &mut evm.ctx.chain, depth, amount);
        Ok(None)
    }
}

impl<D, I, P> InspectorEvmTr for RulesEvm<D, I, P>
where
    D: EvmDatabase,
    I: Inspector<EvmContext<D>>,
    P: PrecompileProvider<EvmContext<D>, Output = InterpreterResult>,
{
    type Inspector = I;

    fn all_inspector(
        &self,
    ) -> (
        &Self::Context,
        &Self::Instructions,
        &P,
        &FrameStack<Frame>,
        &I,
    ) {
        self.0.all_inspector()
    }

    fn all_mut_inspector(
        &mut self,
    ) -> (
        &mut Self::Context,
        &mut Self::Instructions,
        &mut P,
        &mut FrameStack<Frame>,
        &mut I,
    ) {
        self.0.all_mut_inspector()
    }
}
