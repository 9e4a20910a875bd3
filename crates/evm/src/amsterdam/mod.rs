//! Amsterdam as the release `bal@v5.7.0` of the public devnet fixtures has it.
//!
//! revm implements a later devnet, in which EIP-2780, EIP-8038 and EIP-8246 have come and EIP-8037
//! charges state gas elsewhere. So [`prices`] sets its prices, and where a price is not enough,
//! [`instructions`] wraps its instructions, [`frames`] settles the gas of calls, [`settle`] that of
//! contracts that are destroyed, and [`intrinsic`] says what a transaction costs before it runs. What
//! comes back meanwhile is kept in [`crate::state_gas`]. `docs/AMSTERDAM.md` lists the differences.

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
