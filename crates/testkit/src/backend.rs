//! The interface of the chains that fixture suites run on.

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256};
use cambium_chain::ChainSpec;
use cambium_primitives::{Account, Changes};

/// A chain of blocks with branches. Every block is added after its parent.
pub trait Backend: Sized {
    /// Returns the backend's name, for reports.
    fn name() -> &'static str;

    /// Creates a chain with only its genesis block. `changes` produce the genesis state from the
    /// empty state.
    ///
    /// # Errors
    ///
    /// Returns an error if the state root differs from the header's, or if the backend rejects the
    /// genesis block.
    fn new(
        spec: ChainSpec,
        genesis: Header,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
    ) -> Result<Self, String>;

    /// Validates a block and adds it. The new block becomes the head if it is past the merge, or if
    /// its total difficulty is higher than the head's. An invalid block leaves the chain unchanged.
    /// `access_list` is the RLP of the access list that came with the block, if one did.
    ///
    /// # Errors
    ///
    /// Returns why the block is invalid.
    fn import(&mut self, rlp: &[u8], access_list: Option<&[u8]>) -> Result<(), String>;

    /// Returns the hash of the head.
    fn head(&self) -> B256;

    /// Returns the RLP of the access list stored with the head, or no bytes if there is none.
    fn access_list(&self) -> Bytes;

    /// Returns an account at the head.
    fn account(&self, address: Address) -> Option<Account>;

    /// Returns the value of a slot at the head.
    fn slot(&self, address: Address, slot: U256) -> U256;

    /// Returns the state root of the head.
    fn state_root(&self) -> B256;
}
