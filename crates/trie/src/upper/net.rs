//! Net changes of a block: its changes without those that set a value to what it was.
//!
//! The roots of upper tries depend on which keys a block changed, so two nodes must agree on them even if their
//! executors list different ones. A change is compared with the parent's state, which the block's reverts describe.

use crate::{commitment::Commitment, value_commitment::ValueCommitment};
use alloc::vec::Vec;
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue};

/// Returns the net changes of a block, sorted by path. `reverts` undo `changes`: for each changed
/// account they have its fields and the old values of the changed slots, and all old slots where
/// the storage is wiped. Returns `None` if they do not.
///
/// | in `changes` | net |
/// |---|---|
/// | fields that are the parent's | kept |
/// | an entry with a value to which a leaf commits as to the parent's | nothing, wherever it is stored |
/// | a deletion of an account or entry that did not exist | nothing |
/// | a wipe of an account without slots | no wipe |
/// | slots beside a wipe, or of an account that did not exist | those that are not zero |
/// | other slots | those whose value is not the parent's |
pub fn net_changes(changes: &Changes, reverts: &Changes) -> Option<Vec<AccountDiff>> {
    let mut net = Vec::with_capacity(changes.accounts().len());
    // Both are sorted by path.
    let mut olds = reverts.accounts().iter();
    for change in changes.accounts() {
        let old = olds.find(|old| old.path == change.path)?;
        let change = net_change(change, old)?;
        if change.wipe || !change.slots.is_empty() || change.account != AccountUpdate::Keep {
            net.push(change);
        }
    }
    Some(net)
}

fn net_change(change: &AccountDiff, before: &AccountDiff) -> Option<AccountDiff> {
    let existed = before.account != AccountUpdate::Delete;
    if change.account == AccountUpdate::Delete {
        return Some(AccountDiff {
            path: change.path,
            account: match existed {
                true => AccountUpdate::Delete,
                false => AccountUpdate::Keep,
            },
            wipe: existed,
            slots: Vec::new(),
        });
    }
    let mut net = change.clone();
    if are_equal(&net.account, &before.account) {
        net.account = AccountUpdate::Keep;
    }
    let had_slots = before.slots.iter().any(|(_, value)| !value.is_zero());
    net.wipe = change.wipe && existed && had_slots;
    if change.wipe || !existed {
        net.slots.retain(|(_, value)| !value.is_zero());
        return Some(net);
    }
    if net.slots.len() != before.slots.len() {
        return None;
    }
    let mut old = before.slots.iter();
    let mut fits = true;
    net.slots.retain(|(slot, value)| {
        let old = old.next().filter(|(path, _)| path == slot);
        fits &= old.is_some();
        old.is_some_and(|(_, old)| old != value)
    });
    fits.then_some(net)
}

/// Whether fields are equal. Values of entries are if leaves commit to them in the same way: where a
/// value is stored depends on the node.
fn are_equal(one: &AccountUpdate, other: &AccountUpdate) -> bool {
    let (AccountUpdate::Entry(one), AccountUpdate::Entry(other)) = (one, other) else {
        return one == other;
    };
    match (one, other) {
        (EntryValue::Inline(one), EntryValue::Inline(other)) => one == other,
        (EntryValue::Stored(one), EntryValue::Stored(other)) => {
            (one.len, one.hash) == (other.len, other.hash)
        }
        _ => {
            let committed = |value| ValueCommitment::of_entry(Commitment::Layered, value);
            one.value_len() == other.value_len() && committed(one) == committed(other)
        }
    }
}
