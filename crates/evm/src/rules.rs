//! Fork rules for executing one block.

use alloy_eips::eip7840::BlobParams;
use alloy_primitives::{Address, U256};
use revm::primitives::hardfork::SpecId;

/// The fork rules for one block, derived from the chain's configuration. Execution itself knows no
/// fork blocks or times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// The fork in revm's terms. [`SpecId::AMSTERDAM`] stands for all EIPs of the fixture release;
    /// with access lists alone, Amsterdam is [`SpecId::OSAKA`].
    pub spec: SpecId,
    /// Whether EIP-1283 gas costs of storage writes apply: Constantinople without Petersburg, which
    /// revm has no fork for. `spec` is then [`SpecId::PETERSBURG`].
    pub eip1283: bool,
    /// Whether signatures may commit to a chain id (EIP-155).
    pub eip155: bool,
    /// Whether to record the block's access list (EIP-7928). Headers commit to it from Amsterdam
    /// on, but it can be recorded for blocks of any fork.
    pub block_access_list: bool,
    /// Blob gas target, maximum and price curve, from Cancun on.
    pub blobs: Option<BlobParams>,
    /// Block reward of the miner in wei, without the rewards for ommers; zero from the merge on.
    pub block_reward: U256,
    /// Whether the DAO's irregular state change (EIP-779) is applied at the start of this block.
    pub dao_change: bool,
    /// Address of the contract that logs deposits (EIP-6110).
    pub deposit_contract: Address,
}

impl Rules {
    /// Whether the rules of `fork` are in force.
    pub fn is(&self, fork: SpecId) -> bool {
        self.spec.is_enabled_in(fork)
    }
}
