//! A workload with its accounts and pools.

use crate::{
    TOKEN, WorkloadError, WorkloadParams,
    contracts::pair_address,
    keys::{Sender, derive_senders, hash},
};
use alloy_primitives::{Address, B256};

/// A generated chain: its genesis state and its transactions.
#[derive(Debug)]
pub struct Workload {
    params: WorkloadParams,
    senders: Vec<Sender>,
}

/// A pool for swaps between [`TOKEN`] and a token of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Address of the pool's own token.
    pub token: Address,
    /// Address of the pair contract, which holds the reserves of both tokens.
    pub pair: Address,
}

impl Workload {
    /// Checks the parameters and derives the senders' keys, which takes about 25 us of processor
    /// time each.
    ///
    /// # Errors
    ///
    /// If a parameter is out of range.
    pub fn new(params: WorkloadParams) -> Result<Self, WorkloadError> {
        params.check()?;
        let senders = derive_senders(params.seed, params.senders());
        Ok(Self { params, senders })
    }

    /// The parameters of the workload.
    pub const fn params(&self) -> &WorkloadParams {
        &self.params
    }

    /// The accounts with keys, by index.
    pub(crate) fn senders(&self) -> &[Sender] {
        &self.senders
    }

    /// Address of account `index`, which is below [`WorkloadParams::accounts`].
    pub fn address(&self, index: u64) -> Address {
        let sender = usize::try_from(index)
            .ok()
            .and_then(|index| self.senders.get(index));
        sender.map_or_else(
            || Address::from_word(hash("account", self.params.seed, index)),
            |sender| sender.address,
        )
    }

    /// Secret key of account `index`, if it has one.
    pub fn secret(&self, index: u64) -> Option<B256> {
        let sender = self.senders.get(usize::try_from(index).ok()?)?;
        Some(B256::new(sender.secret.secret_bytes()))
    }

    /// Pool `index`, which is below [`WorkloadParams::pools`].
    pub fn pool(&self, index: u64) -> Pool {
        let token = Address::from_word(hash("token", self.params.seed, index));
        let pair = pair_address(&[TOKEN, token]);
        Pool { token, pair }
    }
}
