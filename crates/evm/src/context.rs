//! revm's types over a database.

use crate::state_gas::Refunds;
use revm::{
    Context, MainnetEvm,
    context::{BlockEnv, CfgEnv, Journal, TxEnv},
};

/// revm's context over a database. Its chain is what Amsterdam keeps of a transaction's state gas.
pub(crate) type EvmContext<DB> = Context<BlockEnv, TxEnv, CfgEnv, DB, Journal<DB>, Refunds>;

/// revm over a database.
pub(crate) type Evm<DB> = MainnetEvm<EvmContext<DB>>;
