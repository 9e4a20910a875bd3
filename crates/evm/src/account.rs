//! Accounts as the state has them, and as revm has them.

use alloy_primitives::KECCAK256_EMPTY;
use cambium_primitives::Account;
use revm::state::AccountInfo;

/// The account that revm describes by `info`. revm may leave the code hash zero where there is no code.
pub fn account(info: &AccountInfo) -> Account {
    let code_hash = match info.code_hash.is_zero() {
        true => KECCAK256_EMPTY,
        false => info.code_hash,
    };
    Account {
        nonce: info.nonce,
        balance: info.balance,
        code_hash,
    }
}

/// An account as revm takes it, without its code.
pub fn account_info(account: Account) -> AccountInfo {
    AccountInfo {
        nonce: account.nonce,
        balance: account.balance,
        code_hash: account.code_hash,
        code: None,
        ..AccountInfo::default()
    }
}
