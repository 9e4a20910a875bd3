//! The revm types that all other modules build on.

use crate::state_gas::Refunds;
use revm::{
    Context, MainnetEvm,
    context::{BlockEnv, CfgEnv, Journal, TxEnv},
};

/// revm's context over a database. Its `chain` field holds the state gas refunds of Amsterdam.
pub(crate) type EvmContext<DB> = Context<BlockEnv, TxEnv, CfgEnv, DB, Journal<DB>, Refunds>;

/// revm's EVM over a database.
pub(crate) type Evm<DB> = MainnetEvm<EvmContext<DB>>;
