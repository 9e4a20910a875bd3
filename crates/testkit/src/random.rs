//! Random numbers, paths, accounts and changes from a seed.

use crate::Model;
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, EntryValue};
use cambium_seeds::Random;
use cambium_state::LeafKind;
use std::collections::HashMap;

/// Storage of the large accounts is spread over pages of its own.
pub(crate) const LARGE_ACCOUNTS: u64 = 3;

/// The first state: `accounts` accounts, a few of them with storage, or as many entries.
pub(crate) fn genesis(random: &mut Random, leaves: LeafKind, accounts: u64) -> Changes {
    if leaves == LeafKind::Entries {
        let put = |index| entry_change(entry_key(index), Some(entry_value(random)));
        return Changes::new((0..accounts).map(put).collect());
    }
    let mut genesis = Vec::new();
    for index in 0..accounts {
        let slots = match index {
            0..LARGE_ACCOUNTS => 1500,
            _ if random.percent(10) => random.below(12),
            _ => 0,
        };
        genesis.push(AccountDiff {
            path: account_path(index),
            account: AccountUpdate::Put(random_account(random)),
            wipe: false,
            slots: (0..slots)
                .map(|slot| (slot_path(slot), U256::from(slot + 1)))
                .collect(),
        });
    }
    Changes::new(genesis)
}

/// One to `changes_max` random changes to the state `before`, and the state after them.
pub(crate) fn changes(
    random: &mut Random,
    leaves: LeafKind,
    before: &Model,
    accounts: u64,
    changes_max: u64,
) -> (Changes, Model) {
    let mut model = before.clone();
    let mut changes: HashMap<B256, AccountDiff> = HashMap::new();
    for _ in 0..random.below(changes_max) + 1 {
        if leaves == LeafKind::Entries {
            let key = entry_key(random.below(accounts * 5 / 4));
            let value = (!random.percent(33)).then(|| entry_value(random));
            changes.insert(key, entry_change(key, value));
            continue;
        }
        let path = any_account(random, accounts);
        let now = model.account(&path).map(|entry| entry.account);
        changes.insert(path, change(random, path, now));
    }
    let changes = Changes::new(changes.into_values().collect());
    model.apply(&changes);
    (changes, model)
}

fn any_account(random: &mut Random, accounts: u64) -> B256 {
    account_path(if random.percent(10) {
        random.below(LARGE_ACCOUNTS)
    } else {
        random.below(accounts * 5 / 4)
    })
}

fn change(random: &mut Random, path: B256, now: Option<Account>) -> AccountDiff {
    if now.is_some() && random.percent(12) {
        return AccountDiff {
            path,
            account: AccountUpdate::Delete,
            wipe: true,
            slots: vec![],
        };
    }
    let account = match now {
        Some(_) if random.percent(25) => AccountUpdate::Keep,
        _ => AccountUpdate::Put(random_account(random)),
    };
    let many = if random.percent(5) { 400 } else { 5 };
    let mut slots = HashMap::new();
    if random.percent(40) {
        for _ in 0..random.below(many) {
            let value = if random.percent(35) {
                0
            } else {
                random.below(1 << 40)
            };
            slots.insert(slot_path(random.below(40 * many)), U256::from(value));
        }
    }
    let wipe = random.percent(5);
    AccountDiff {
        path,
        account,
        wipe,
        slots: slots.into_iter().collect(),
    }
}

/// Spread like hashes, but for one account in eight: those share long prefixes; and for three in eight, which share the first
/// byte, so that one shard has several levels of pages with few accounts.
pub(crate) fn account_path(index: u64) -> B256 {
    if index % 8 == 7 {
        let mut path = B256::repeat_byte(0x5a);
        path.0[10..18].copy_from_slice(&(index / 16).to_be_bytes());
        path.0[20] = (index % 16) as u8;
        return path;
    }
    let mut path = keccak256(index.to_le_bytes());
    if index % 8 >= 4 {
        path.0[0] = 0xb7;
    }
    path
}

/// Whether a partial database of a test keeps the storage of the account at `path`: that of about half of them.
pub(crate) fn keeps_storage(path: &B256) -> bool {
    (path[17] ^ path[31]).is_multiple_of(2)
}

/// As [`account_path`]; but one key in eight differs from its neighbours in its last byte alone.
pub(crate) fn entry_key(index: u64) -> B256 {
    if index % 8 == 6 {
        let mut key = B256::repeat_byte(0xa5);
        key.0[8..16].copy_from_slice(&(index / 320).to_be_bytes());
        key.0[31] = (index / 8 % 40) as u8;
        return key;
    }
    account_path(index)
}

/// Of any length that a leaf takes.
fn entry_value(random: &mut Random) -> Bytes {
    let len = match random.below(8) {
        0 => 0,
        1 => 512,
        2 => 33,
        _ => random.below(120),
    };
    (0..len).map(|_| random.next() as u8).collect()
}

/// Sets an entry, or deletes it.
pub(crate) fn entry_change(path: B256, value: Option<Bytes>) -> AccountDiff {
    AccountDiff {
        path,
        wipe: value.is_none(),
        account: value.map_or(AccountUpdate::Delete, |value| {
            AccountUpdate::Entry(EntryValue::Inline(value))
        }),
        slots: vec![],
    }
}

pub(crate) fn slot_path(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

/// One account in five has code.
fn random_account(random: &mut Random) -> Account {
    let nonce = random.below(300);
    let code_hash = match nonce % 5 {
        0 => keccak256(code(nonce)),
        _ => Account::default().code_hash,
    };
    Account {
        nonce,
        balance: U256::from(random.next()),
        code_hash,
    }
}

/// The code of accounts that were made with that nonce.
pub(super) fn code(nonce: u64) -> Bytes {
    Bytes::from(vec![nonce as u8; 1 + nonce as usize * 11])
}

/// The codes of accounts that are put.
pub(crate) fn codes(changes: &Changes) -> Vec<(B256, Bytes)> {
    let accounts = changes
        .accounts()
        .iter()
        .filter_map(|change| match change.account {
            AccountUpdate::Put(account) if account.code_hash != KECCAK256_EMPTY => Some(account),
            _ => None,
        });
    let codes = accounts.map(|account| (account.code_hash, code(account.nonce)));
    codes.collect()
}

/// The hash of an account's code, if it has any.
pub(crate) fn code_of(account: Option<Account>) -> Option<B256> {
    let hash = account?.code_hash;
    (hash != KECCAK256_EMPTY).then_some(hash)
}
