//! What an access list says that its block changes, without execution.

use crate::{
    StateRead,
    account::account,
    cache::{BlockCache, Keys},
};
use cambium_primitives::{AccessList, Changes};

/// The changes of a block by its access list, on its parent's state, of which all that matters is
/// read at once. See [`AccessList::changes`] for when that is all that the block changes.
pub fn listed_changes<DB: StateRead>(list: &AccessList, db: &DB) -> Result<Changes, DB::Error> {
    let cache = BlockCache::new(db);
    cache.read(&Keys::for_changes(list))?;
    list.changes(
        |address| Ok(cache.account(address)?.as_ref().map(account)),
        |address, slot| cache.slot(address, slot),
    )
}
