//! The state diff claimed by an access list, without execution.

use crate::{
    StateRead,
    account::account,
    cache::{BlockCache, Keys},
};
use cambium_primitives::{AccessList, Changes};

/// The state diff that an access list claims, relative to the parent's state `db`, which is read in
/// one batch. [`AccessList::changes`] says when this is the whole state diff of the block.
///
/// # Errors
///
/// If the state can't be read.
pub fn listed_changes<DB: StateRead>(list: &AccessList, db: &DB) -> Result<Changes, DB::Error> {
    let cache = BlockCache::new(db);
    cache.read(&Keys::for_changes(list))?;
    list.changes(
        |address| Ok(cache.account(address)?.as_ref().map(account)),
        |address, slot| cache.slot(address, slot),
    )
}
