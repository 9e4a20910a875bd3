//! The fields of an account that an access list can change.

use alloy_primitives::U256;
use core::fmt;

/// Field of an account that a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessField {
    /// The value of a slot, by its number.
    Slot(U256),
    /// The balance.
    Balance,
    /// The nonce.
    Nonce,
    /// The code.
    Code,
}

impl fmt::Display for AccessField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(f, "slot {slot:#x}"),
            Self::Balance => f.write_str("balance"),
            Self::Nonce => f.write_str("nonce"),
            Self::Code => f.write_str("code"),
        }
    }
}
