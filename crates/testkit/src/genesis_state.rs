//! States of genesis files as changes.

use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, keccak256};
use cambium_chain::GenesisAccount;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};

/// Returns the state in a genesis file as changes to the empty state, and its codes by hash.
pub fn genesis_state(
    accounts: impl IntoIterator<Item = (Address, GenesisAccount)>,
) -> (Changes, Vec<(B256, Bytes)>) {
    let mut codes = Vec::new();
    let changes = accounts.into_iter().map(|(address, account)| {
        let code_hash = match account.code.is_empty() {
            true => KECCAK256_EMPTY,
            false => keccak256(&account.code),
        };
        if !account.code.is_empty() {
            codes.push((code_hash, account.code));
        }
        let slots = account.storage.iter().filter(|(_, value)| !value.is_zero());
        AccountDiff {
            path: keccak256(address),
            account: AccountUpdate::Put(Account {
                nonce: account.nonce,
                balance: account.balance,
                code_hash,
            }),
            wipe: false,
            slots: slots
                .map(|(slot, value)| (keccak256(slot), *value))
                .collect(),
        }
    });
    let changes = Changes::new(changes.collect());
    (changes, codes)
}
