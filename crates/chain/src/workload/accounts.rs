//! A workload, and the accounts and pools that it is about.

use super::{
    TOKEN, WorkloadError, WorkloadParams,
    contracts::pair_address,
    keys::{Sender, derive_senders, hash},
};
use alloy_primitives::{Address, B256};

/// A chain in the making: see the module's description.
#[derive(Debug)]
pub struct Workload {
    params: WorkloadParams,
    senders: Vec<Sender>,
}

/// A pool to swap in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The token that it has beside [`TOKEN`].
    pub token: Address,
    /// The contract that holds its reserves of both.
    pub pair: Address,
}

impl Workload {
    /// Checks the parameters and derives the senders' keys, some 25 us of processor time each.
    pub fn new(params: WorkloadParams) -> Result<Self, WorkloadError> {
        params.check()?;
        let senders = derive_senders(params.seed, params.senders());
        Ok(Self { params, senders })
    }

    /// What this was made from.
    pub const fn params(&self) -> &WorkloadParams {
        &self.params
    }

    /// The accounts that have keys, by index.
    pub(super) fn senders(&self) -> &[Sender] {
        &self.senders
    }

    /// The address of account `index`, below [`WorkloadParams::accounts`].
    pub fn address(&self, index: u64) -> Address {
        let sender = usize::try_from(index)
            .ok()
            .and_then(|index| self.senders.get(index));
        sender.map_or_else(
            || Address::from_word(hash("account", self.params.seed, index)),
            |sender| sender.address,
        )
    }

    /// The secret key of account `index`, if it has one.
    pub fn secret(&self, index: u64) -> Option<B256> {
        let sender = self.senders.get(usize::try_from(index).ok()?)?;
        Some(B256::new(sender.secret.secret_bytes()))
    }

    /// Pool `index`, below [`WorkloadParams::pools`].
    pub fn pool(&self, index: u64) -> Pool {
        let token = Address::from_word(hash("token", self.params.seed, index));
        let pair = pair_address(&[TOKEN, token]);
        Pool { token, pair }
    }
}
