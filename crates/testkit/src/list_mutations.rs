//! Canonical access lists with one random change.

use crate::Random;
use alloy_primitives::{Address, Bytes, U256};
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BalanceChange, BlockAccessIndex, CodeChange,
    NonceChange, SlotChanges, StorageChange,
};

/// Returns `list` with one thing added, removed or changed at random. Returns `None` if the drawn
/// change is impossible or the result is not canonical.
pub fn mutated(
    random: &mut Random,
    list: &AccessList,
    limits: &AccessListLimits,
) -> Option<AccessList> {
    let mut accounts = list.accounts().to_vec();
    let at = random.below(accounts.len() as u64) as usize;
    let index = BlockAccessIndex(random.below(limits.index_max + 1));
    let small = random.below(3);
    match random.below(12) {
        0 => {
            accounts.remove(at);
        }
        1 => {
            let stranger = Address::repeat_byte(random.next() as u8);
            let place = accounts.partition_point(|account| account.address < stranger);
            accounts.insert(place, AccountChanges::new(stranger));
        }
        kind => change(random, &mut accounts[at], kind, index, small)?,
    }
    let made = AccessList::new(accounts, limits).ok()?;
    (made != *list).then_some(made)
}

fn change(
    random: &mut Random,
    account: &mut AccountChanges,
    kind: u64,
    index: BlockAccessIndex,
    small: u64,
) -> Option<()> {
    let value = U256::from(small);
    match kind {
        2 => {
            let place = pick(random, account.balance_changes.len())?;
            account.balance_changes[place].post_balance = value;
        }
        3 => {
            let place = pick(random, account.nonce_changes.len())?;
            account.nonce_changes[place].new_nonce ^= 1 + small;
        }
        4 => {
            let changes = &mut account.balance_changes;
            let place = changes.partition_point(|change| change.block_access_index < index);
            changes.insert(place, BalanceChange::new(index, value));
        }
        5 => {
            let changes = &mut account.nonce_changes;
            let place = changes.partition_point(|change| change.block_access_index < index);
            changes.insert(place, NonceChange::new(index, small));
        }
        6 => {
            let codes = [&[][..], &[0x5b, 0x00], &[0xef, 0x01, 0x00, 0x05]];
            let code = Bytes::from_static(codes[small as usize]);
            let changes = &mut account.code_changes;
            let place = changes.partition_point(|change| change.block_access_index < index);
            changes.insert(place, CodeChange::new(index, code));
        }
        7 => {
            let place = pick(random, account.storage_changes.len())?;
            let changes = &mut account.storage_changes[place].changes;
            let place = pick(random, changes.len())?;
            changes[place].new_value = value;
        }
        8 => {
            let slots = &mut account.storage_changes;
            let place = pick(random, slots.len())?;
            slots[place].changes.pop();
            if slots[place].changes.is_empty() {
                let slot = slots.remove(place).slot;
                let reads = &mut account.storage_reads;
                reads.insert(reads.partition_point(|read| *read < slot), slot);
            }
        }
        9 => {
            let place = pick(random, account.storage_reads.len())?;
            let slot = account.storage_reads.remove(place);
            let slots = &mut account.storage_changes;
            let place = slots.partition_point(|changed| changed.slot < slot);
            let changes = vec![StorageChange::new(index, value)];
            slots.insert(place, SlotChanges::new(slot, changes));
        }
        10 => {
            let place = pick(random, account.balance_changes.len())?;
            account.balance_changes[place].block_access_index = index;
        }
        _ => {
            let place = pick(random, account.nonce_changes.len())?;
            account.nonce_changes.remove(place);
        }
    }
    Some(())
}

fn pick(random: &mut Random, len: usize) -> Option<usize> {
    let place = random.below((len as u64).max(1)) as usize;
    (len > 0).then_some(place)
}
