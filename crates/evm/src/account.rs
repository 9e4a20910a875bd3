//! Conversions between the state's accounts and revm's.

use alloy_primitives::KECCAK256_EMPTY;
use cambium_primitives::Account;
use revm::state::AccountInfo;

/// Converts revm's account to the state's. revm may leave the code hash zero for an account without
/// code; the result then has the hash of empty code.
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

/// Converts an account of the state to revm's, without its code.
pub fn account_info(account: Account) -> AccountInfo {
    AccountInfo {
        nonce: account.nonce,
        balance: account.balance,
        code_hash: account.code_hash,
        code: None,
        ..AccountInfo::default()
    }
}
