//! Calls: transactions outside of a block, by the rules of one. They take the gas that the executors of blocks charge.
//!
//! A caller that makes a block of its calls records what each of them touches ([`StepAccessRecorder`]), and has the access list of
//! that block. The rule of EIP-7610 is that of executors alone: no account that a call can create has storage.

use crate::{
    Rules,
    access_list::{AccessListBuilder, Left, StepRecorder},
    account::account,
    context::EvmContext,
    create::{EvmDatabase, RulesEvm},
    effects::ObserveBalance,
    env::install,
    handler::TransactionHandler,
    step::{BlockGas, block_gas},
};
use alloy_primitives::{Address, B256, Bytes, U256};
use cambium_primitives::{AccessList, Account};
use revm::{
    Database, Inspector, MainBuilder,
    bytecode::Bytecode,
    context::{
        BlockEnv, CfgEnv, ContextSetters, TxEnv,
        result::{EVMError, ExecutionResult, ResultAndState},
    },
    context_interface::JournalTr,
    database::Cache,
    handler::{Handler, MainnetHandler, PrecompileProvider, system_call::SystemCallTx},
    inspector::InspectorHandler,
    interpreter::InterpreterResult,
    state::AccountInfo,
};

/// What the steps of a block of calls touch, from which its access list is made (EIP-7928).
#[derive(Default)]
pub struct StepAccessRecorder {
    step: StepRecorder,
    list: AccessListBuilder,
}

impl StepAccessRecorder {
    /// Records that the step touches an account. `found` is what it was before the step.
    pub fn touch(&mut self, address: Address, found: Option<&AccountInfo>) {
        self.step
            .touch(address, found.map(account).unwrap_or_default());
    }

    /// Ends a step, whose changes `after` has, with all that it has read: the one before the transactions, then one for each
    /// transaction, then the one after them.
    pub fn end_step(&mut self, after: &Cache) {
        let step = self.step.end(&After(after));
        self.list.add(&step);
    }

    /// The access list of the steps.
    pub fn finish(self) -> AccessList {
        self.list.finish()
    }
}

/// The state after a step.
struct After<'a>(&'a Cache);

impl Left for After<'_> {
    fn account(&self, address: &Address) -> Account {
        let info = self.0.accounts.get(address).and_then(|own| own.info());
        info.as_ref().map(account).unwrap_or_default()
    }

    fn code(&self, account: &Account) -> Bytes {
        let code = self.0.contracts.get(&account.code_hash);
        code.map_or_else(Bytes::new, Bytecode::original_bytes)
    }

    fn slot(&self, address: &Address, slot: &U256) -> U256 {
        let account = self.0.accounts.get(address);
        let value = account.and_then(|own| own.storage.get(slot));
        value.copied().unwrap_or_default()
    }
}

/// A database under calls, which may record what they touch.
pub struct CallDatabase<'a, D> {
    db: D,
    accesses: Option<&'a mut StepAccessRecorder>,
}

impl<D: Database> Database for CallDatabase<'_, D> {
    type Error = D::Error;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, D::Error> {
        let found = self.db.basic(address)?;
        if let Some(accesses) = &mut self.accesses {
            accesses.touch(address, found.as_ref());
        }
        Ok(found)
    }

    fn code_by_hash(&mut self, hash: B256) -> Result<Bytecode, D::Error> {
        self.db.code_by_hash(hash)
    }

    fn storage(&mut self, address: Address, slot: U256) -> Result<U256, D::Error> {
        let found = self.db.storage(address, slot)?;
        if let Some(accesses) = &mut self.accesses {
            accesses.step.touch_slot(address, slot, found);
        }
        Ok(found)
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, D::Error> {
        self.db.block_hash(number)
    }
}

impl<D> ObserveBalance for CallDatabase<'_, D> {
    fn observe_balance(&mut self, _: Address) {}
}

impl<D: Database> EvmDatabase for CallDatabase<'_, D> {
    fn has_bare_storage(&mut self, _: Address) -> Result<bool, D::Error> {
        Ok(false)
    }

    fn feign_nonce(&mut self, _: Option<Address>) {}
}

/// revm's context of a call.
pub type CallContext<'a, D> = EvmContext<CallDatabase<'a, D>>;

/// What a call does.
#[derive(Clone, Debug)]
pub struct Called {
    /// Its result, and its changes to the state.
    pub done: ResultAndState,
    /// The gas that would count towards a block's.
    pub block_gas: BlockGas,
}

/// Where calls run: the rules of a block and its values.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'c, P> {
    /// Rules of the block.
    pub rules: &'c Rules,
    /// revm's configuration, which may have checks disabled.
    pub cfg: &'c CfgEnv,
    /// revm's environment of the block.
    pub block: &'c BlockEnv,
    /// Precompiled contracts.
    pub precompiles: &'c P,
}

impl<P: Clone> Calls<'_, P> {
    /// Runs a call on a database, which stays as it is. `accesses` gets what the call touches.
    ///
    /// # Errors
    ///
    /// If the call is no valid transaction, or the database fails.
    pub fn transact<'a, D: Database>(
        &self,
        db: D,
        call: TxEnv,
        accesses: Option<&'a mut StepAccessRecorder>,
    ) -> Result<Called, EVMError<D::Error>>
    where
        P: PrecompileProvider<CallContext<'a, D>, Output = InterpreterResult>,
    {
        let mut evm = self.evm(db, (), accesses);
        evm.0.ctx.set_tx(call);
        let mut handler = TransactionHandler::new(false);
        let result = handler.run(&mut evm)?;
        Ok(called(&mut evm, result, &handler))
    }

    /// As [`Calls::transact`], under the eyes of an inspector, which is returned in any case.
    pub fn inspect<'a, D: Database, I: Inspector<CallContext<'a, D>>>(
        &self,
        db: D,
        call: TxEnv,
        inspector: I,
        accesses: Option<&'a mut StepAccessRecorder>,
    ) -> (Result<Called, EVMError<D::Error>>, I)
    where
        P: PrecompileProvider<CallContext<'a, D>, Output = InterpreterResult>,
    {
        let mut evm = self.evm(db, inspector, accesses);
        evm.0.ctx.set_tx(call);
        let mut handler = TransactionHandler::new(false);
        let result = handler.inspect_run(&mut evm);
        let called = result.map(|result| called(&mut evm, result, &handler));
        (called, evm.0.inspector)
    }

    /// Runs what a block itself calls, before and after its transactions.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn system_call<'a, D: Database>(
        &self,
        db: D,
        contract: Address,
        data: Bytes,
        accesses: Option<&'a mut StepAccessRecorder>,
    ) -> Result<ResultAndState, EVMError<D::Error>>
    where
        P: PrecompileProvider<CallContext<'a, D>, Output = InterpreterResult>,
    {
        let mut evm = self.evm(db, (), accesses);
        evm.0.ctx.set_tx(TxEnv::new_system_tx(contract, data));
        let result: Result<_, EVMError<D::Error>> =
            MainnetHandler::default().run_system_call(&mut evm);
        let result = result?;
        let state = evm.0.ctx.journaled_state.finalize();
        Ok(ResultAndState { result, state })
    }

    fn evm<'a, D: Database, I>(
        &self,
        db: D,
        inspector: I,
        accesses: Option<&'a mut StepAccessRecorder>,
    ) -> RulesEvm<CallDatabase<'a, D>, I, P> {
        let context = EvmContext::new(CallDatabase { db, accesses }, self.rules.spec)
            .with_cfg(self.cfg.clone())
            .with_block(self.block.clone());
        let evm = context.build_mainnet_with_inspector(inspector);
        let mut evm = evm.with_precompiles(self.precompiles.clone());
        install(&mut evm.instruction, self.rules);
        RulesEvm(evm)
    }
}

fn called<D: EvmDatabase, I, P>(
    evm: &mut RulesEvm<D, I, P>,
    result: ExecutionResult,
    handler: &TransactionHandler<D, I, P>,
) -> Called {
    let block_gas = block_gas(evm, &result, handler);
    let state = evm.0.ctx.journaled_state.finalize();
    Called {
        done: ResultAndState { result, state },
        block_gas,
    }
}
