//! The revm types that all other modules build on.

use crate::state_gas::Refunds;
use revm::{
    Context,
    context::{BlockEnv, CfgEnv, Journal, TxEnv},
    handler::{EthFrame, EthPrecompiles, instructions::EthInstructions},
    interpreter::interpreter::EthInterpreter,
};

/// revm's context over a database. Its `chain` field holds the state gas refunds of Amsterdam.
pub(crate) type EvmContext<DB> = Context<BlockEnv, TxEnv, CfgEnv, DB, Journal<DB>, Refunds>;

/// revm's EVM over a database, with an inspector and precompiled contracts.
pub(crate) type Evm<DB, I = (), P = EthPrecompiles> = revm::context::Evm<
    EvmContext<DB>,
    I,
    EthInstructions<EthInterpreter, EvmContext<DB>>,
    P,
    EthFrame<EthInterpreter>,
>;
