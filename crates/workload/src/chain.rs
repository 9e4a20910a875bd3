//! A workload on a chain: a database with its genesis state, and blocks sealed there.

use crate::{BlockSealer, Workload};
use cambium_chain::{Block, Chain, ChainError, ChainSealer, InitOptions, InitProgress};
use cambium_state::Disk;
use std::sync::Arc;

impl Workload {
    /// Initializes a database on `disk` with the genesis state, without a file.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] if there is a database already, or it can't be written.
    pub fn init(
        &self,
        disk: Arc<dyn Disk>,
        options: impl Into<InitOptions>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Chain, ChainError> {
        let genesis = self.genesis();
        let entries = genesis.accounts + self.genesis_slots();
        let for_each_part =
            |on_part: &mut dyn FnMut(_) -> Result<(), ChainError>| self.for_each_part(on_part);
        Chain::init_parts(disk, &genesis, entries, for_each_part, options, progress)
    }
}

impl BlockSealer for ChainSealer<'_> {
    type Error = ChainError;

    fn seal(&mut self, draft: Block) -> Result<Block, ChainError> {
        ChainSealer::seal(self, draft)
    }
}
