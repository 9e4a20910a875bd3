//! The precompiled contracts of a call, of which a caller may move some.

use crate::error::RpcError;
use alloy_primitives::{
    Address,
    map::{AddressMap, AddressSet},
};
use alloy_rpc_types_eth::state::AccountOverride;
use revm::{
    context_interface::{Cfg, ContextTr},
    handler::{EthPrecompiles, PrecompileProvider},
    interpreter::{CallInputs, InterpreterResult},
    primitives::hardfork::SpecId,
};
use std::sync::Arc;

/// The precompiled contracts of a fork, with changes that a caller wants to see.
#[derive(Clone, Debug)]
pub(crate) struct CallPrecompiles {
    own: EthPrecompiles,
    /// By address: whose contract runs there now. `None`: the account's code runs.
    changed: Arc<AddressMap<Option<Address>>>,
}

impl CallPrecompiles {
    pub(crate) fn new(spec: SpecId) -> Self {
        Self {
            own: EthPrecompiles::new(spec),
            changed: Arc::default(),
        }
    }

    /// The address that the fork has for the contract at `address`, if there is one.
    fn at(&self, address: &Address) -> Option<Address> {
        match self.changed.get(address) {
            Some(changed) => *changed,
            None => self.own.contains(address).then_some(*address),
        }
    }

    /// Moves contracts, and removes those whose accounts are changed: their code runs instead. `changes` are sorted.
    ///
    /// # Errors
    ///
    /// If there is nothing to move, or if what is moved would hide another change.
    pub(crate) fn change(
        &mut self,
        changes: &[(Address, AccountOverride)],
    ) -> Result<(), RpcError> {
        let is_changed = |to: &Address| changes.binary_search_by_key(to, |(own, _)| *own).is_ok();
        for (address, change) in changes {
            let found = self.at(address);
            if let Some(to) = change.move_precompile_to {
                let Some(contract) = found else {
                    let what = format!("account {address} is not a precompile");
                    return Err(RpcError::server(what));
                };
                if to == *address {
                    let what = format!("the precompile {address} is moved to itself");
                    return Err(RpcError::new(RpcError::MOVED_TO_ITSELF, what));
                }
                if is_changed(&to) {
                    let what = format!("account {to} is already overridden");
                    return Err(RpcError::server(what));
                }
                Arc::make_mut(&mut self.changed).insert(to, Some(contract));
            }
            if found.is_some() {
                Arc::make_mut(&mut self.changed).insert(*address, None);
            }
        }
        Ok(())
    }
}

impl<C: ContextTr> PrecompileProvider<C> for CallPrecompiles {
    type Output = InterpreterResult;

    fn set_spec(&mut self, spec: <C::Cfg as Cfg>::Spec) -> bool {
        PrecompileProvider::<C>::set_spec(&mut self.own, spec)
    }

    fn run(
        &mut self,
        context: &mut C,
        inputs: &CallInputs,
    ) -> Result<Option<InterpreterResult>, String> {
        match self.changed.get(&inputs.bytecode_address) {
            None => self.own.run(context, inputs),
            Some(None) => Ok(None),
            Some(Some(contract)) => {
                let mut inputs = inputs.clone();
                inputs.bytecode_address = *contract;
                self.own.run(context, &inputs)
            }
        }
    }

    /// Those of the fork, as EIP-2929 has them, also where they are moved.
    fn warm_addresses(&self) -> &AddressSet {
        self.own.warm_addresses()
    }

    fn contains(&self, address: &Address) -> bool {
        self.at(address).is_some()
    }
}
