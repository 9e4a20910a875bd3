//! The state diff claimed by an access list, without execution.

use crate::{
    StateRead,
    account::account,
    cache::{BlockCache, Keys},
};
use alloy_primitives::Address;
use cambium_primitives::{AccessList, Changes};

/// The state diff that an access list claims.
pub struct ListedChanges {
    /// The diff. [`AccessList::changes`] says when this is the whole state diff of the block.
    pub changes: Changes,
    /// Whether one of the accounts exists and is empty (EIP-161). Touching such an account deletes it, which no list
    /// says, so the diff of a valid block may lack that.
    pub has_empty_account: bool,
}

/// The state diff that an access list claims, relative to the parent's state `db`, which is read in
/// one batch. `others` are accounts that the block may touch and that need not be in its list.
///
/// # Errors
///
/// If the state can't be read.
pub fn listed_changes<DB: StateRead>(
    list: &AccessList,
    others: impl IntoIterator<Item = Address>,
    db: &DB,
) -> Result<ListedChanges, DB::Error> {
    let cache = BlockCache::new(db);
    let mut keys = Keys::for_changes(list);
    let unchanged = list.accounts().iter();
    let unchanged = unchanged.filter(|account| !AccessList::is_changed(account));
    keys.accounts
        .extend(unchanged.map(|account| account.address));
    keys.accounts.extend(others);
    cache.read(&keys)?;
    let changes = list.changes(
        |address| Ok(cache.account(address)?.as_ref().map(account)),
        |address, slot| cache.slot(address, slot),
    )?;
    Ok(ListedChanges {
        changes,
        has_empty_account: cache.has_empty_account(),
    })
}
