//! Amsterdam as in release `bal@v5.7.0` of the public devnet fixtures.
//!
//! revm implements a later devnet, which includes EIP-2780, EIP-8038 and EIP-8246 and charges the
//! state gas of EIP-8037 at other places. [`prices`] overrides its gas parameters. Where a
//! parameter is not enough, [`instructions`] wraps instructions, [`frames`] settles the gas of
//! calls, [`settle`] that of destroyed contracts, and [`intrinsic`] computes intrinsic gas.
//! [`crate::state_gas`] holds the refunds of running frames. `docs/AMSTERDAM.md` lists the
//! differences.

mod prices;
mod intrinsic;
mod instructions;
mod frames;
mod settle;

pub(crate) use frames::{after_settling, before_settling};
pub(crate) use instructions::install;
pub(crate) use intrinsic::{add_state_gas, most_gas};
pub(crate) use prices::configure;
pub use prices::new_slot_gas;
pub(crate) use settle::{burn_logs, refund_destroyed};
