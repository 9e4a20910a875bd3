//! The interface of chains that suites of fixtures run over.

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256};
use cambium_chain::ChainSpec;
use cambium_primitives::{Account, Changes};

/// A chain of blocks with branches. A parent is always added before its children.
pub trait Backend: Sized {
    /// What to call it.
    fn name() -> &'static str;

    /// A chain of its genesis block alone, whose state is `changes` to the empty state. An error
    /// if that state's root is not the header's.
    ///
    /// # Errors
    ///
    /// Returns why the genesis file is refused.
    fn new(
        spec: ChainSpec,
        genesis: Header,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
    ) -> Result<Self, String>;

    /// Checks a block in all ways and adds it. The head becomes, past the merge, every new block;
    /// before it, the one of the highest total difficulty, the first of equals. An error leaves
    /// the chain as it was. `access_list` is the RLP of the block's access list, if it comes with
    /// one.
    ///
    /// # Errors
    ///
    /// Returns why the block is refused.
    fn import(&mut self, rlp: &[u8], access_list: Option<&[u8]>) -> Result<(), String>;

    /// The hash of the head.
    fn head(&self) -> B256;

    /// The RLP of the access list that is kept with the head; empty if there is none.
    fn access_list(&self) -> Bytes;

    /// An account at the head.
    fn account(&self, address: Address) -> Option<Account>;

    /// A slot at the head.
    fn slot(&self, address: Address, slot: U256) -> U256;

    /// The root of the state at the head.
    fn state_root(&self) -> B256;
}
