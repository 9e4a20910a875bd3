//! Helpers that these tests share.
#![allow(
    dead_code,
    reason = "each test file is a crate of its own and uses a part of this"
)]

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, keccak256};
use alloy_trie::{
    TrieAccount,
    root::{state_root_unhashed, storage_root_unhashed},
};
use cambium_chain::GenesisAccount;
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// The unpacked fixture data, or `None`, said aloud.
pub(crate) fn data(path: &str) -> Option<PathBuf> {
    let found = std::env::var_os("CAMBIUM_DATA").map(|root| Path::new(&root).join(path));
    let found = found.filter(|path| path.exists());
    if found.is_none() {
        let is_required = std::env::var_os("CAMBIUM_DATA_REQUIRED").is_some();
        assert!(!is_required, "{path} is not under CAMBIUM_DATA");
        // Past the test harness, which keeps what passing tests print to itself.
        let line = format!("SKIPPED: {path} is not under CAMBIUM_DATA\n");
        let _ = std::io::stdout().write_all(line.as_bytes());
    }
    found
}

/// The state root of `accounts`, by alloy-trie.
pub(crate) fn state_root(accounts: &[(Address, GenesisAccount)]) -> B256 {
    let code_hash = |code: &[u8]| {
        if code.is_empty() {
            KECCAK256_EMPTY
        } else {
            keccak256(code)
        }
    };
    state_root_unhashed(accounts.iter().map(|(address, account)| {
        let slots = account
            .storage
            .iter()
            .copied()
            .filter(|(_, value)| *value != U256::ZERO);
        let account = TrieAccount {
            nonce: account.nonce,
            balance: account.balance,
            storage_root: storage_root_unhashed(slots),
            code_hash: code_hash(&account.code),
        };
        (*address, account)
    }))
}
