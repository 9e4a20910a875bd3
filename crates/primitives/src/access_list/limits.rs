//! Sizes of access lists, and their limits.

/// Part of the block gas limit that allows one item (account or slot) in an access list (EIP-7928).
pub const ACCESS_LIST_ITEM_GAS: u64 = 2_000;

/// Limits of the access list of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessListLimits {
    /// Maximum block access index: the number of transactions plus one.
    pub index_max: u64,
    /// Maximum number of accounts and slots together.
    pub items_max: u64,
}

/// Numbers of items and changes in an access list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessListCounts {
    /// Number of accounts.
    pub accounts: u64,
    /// Number of accounts with any change.
    pub accounts_changed: u64,
    /// Number of slots that change.
    pub slots_changed: u64,
    /// Number of slots that are only read.
    pub slots_read: u64,
    /// Number of changes of slots. A slot may change more than once.
    pub slot_changes: u64,
    /// Number of changes of balances.
    pub balance_changes: u64,
    /// Number of changes of nonces.
    pub nonce_changes: u64,
    /// Number of changes of code.
    pub code_changes: u64,
}

impl AccessListLimits {
    /// Returns limits for a block of that many transactions, without a limit on items.
    pub const fn of_transactions(transactions: usize) -> Self {
        Self {
            index_max: transactions as u64 + 1,
            items_max: u64::MAX,
        }
    }

    /// Returns the limits of EIP-7928 for a block of that many transactions and that gas limit.
    pub const fn of_block(transactions: usize, gas_limit: u64) -> Self {
        Self {
            items_max: gas_limit / ACCESS_LIST_ITEM_GAS,
            ..Self::of_transactions(transactions)
        }
    }
}

impl AccessListCounts {
    /// Returns the number of accounts and slots together.
    pub const fn items(&self) -> u64 {
        self.accounts + self.slots_changed + self.slots_read
    }

    /// Returns the number of changes of all fields together.
    pub const fn changes(&self) -> u64 {
        self.slot_changes + self.balance_changes + self.nonce_changes + self.code_changes
    }
}
