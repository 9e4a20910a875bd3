//! A chain of a state that is given as changes to the empty state.

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use cambium_chain::{Chain, ChainError, ChainSpec};
use cambium_primitives::{AccountUpdate, Changes};
use cambium_state::{FaultyDisk, Loader, Options};
use std::sync::Arc;

/// Creates a chain with only its genesis block on a disk in memory. `changes` produce its state from the empty state.
///
/// # Errors
///
/// Those of [`Loader`] and [`Chain::create`], if the state root differs from the header's among them.
pub fn genesis_chain(
    disk: Arc<FaultyDisk>,
    spec: ChainSpec,
    genesis: Header,
    changes: &Changes,
    codes: &[(B256, Bytes)],
) -> Result<Chain, ChainError> {
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let mut loader = Loader::new(disk, options)?;
    for change in changes.accounts() {
        if let AccountUpdate::Put(account) = change.account {
            loader.account(change.path, &account, change.slots.iter().copied())?;
        }
    }
    for (hash, code) in codes {
        loader.code(*hash, code)?;
    }
    Chain::create(loader.finish(&mut |_| {})?, spec, genesis)
}
