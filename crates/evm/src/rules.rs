//! The fork rules in force for one block.

use alloy_eips::eip7840::BlobParams;
use alloy_primitives::{Address, U256};
use revm::primitives::hardfork::SpecId;

/// What executing a block needs to know of its chain's forks. The chain's configuration makes
/// one for each block; execution itself knows no block numbers and no times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// The fork, as revm names it; [`SpecId::AMSTERDAM`] if all EIPs of the fixtures' release are
    /// meant, not access lists alone.
    pub spec: SpecId,
    /// Constantinople without Petersburg: EIP-1283 prices of storage writes, which revm has no
    /// fork for. `spec` is then [`SpecId::PETERSBURG`].
    pub eip1283: bool,
    /// Whether a signature may be bound to the chain's id (EIP-155).
    pub eip155: bool,
    /// Whether to record the block's access list (EIP-7928). From Amsterdam on a header has its
    /// hash; of earlier blocks there is one just as well.
    pub block_access_list: bool,
    /// Blob gas target, maximum and price curve, from Cancun on.
    pub blobs: Option<BlobParams>,
    /// Wei paid to the miner, uncles and their inclusion aside; zero from the merge on.
    pub block_reward: U256,
    /// Whether the DAO's irregular state change happens at the start of this very block.
    pub dao_change: bool,
    /// Where deposit requests are logged (EIP-6110).
    pub deposit_contract: Address,
}

impl Rules {
    /// Whether `fork`'s rules are in force.
    pub fn is(&self, fork: SpecId) -> bool {
        self.spec.is_enabled_in(fork)
    }
}
