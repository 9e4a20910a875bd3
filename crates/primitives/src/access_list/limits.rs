//! How much there is in an access list, and how much there may be.

/// Gas of the gas limit that one item of a list stands for.
pub const ACCESS_LIST_ITEM_GAS: u64 = 2_000;

/// What bounds a block's access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessListLimits {
    /// The highest block access index: one more than there are transactions.
    pub index_max: u64,
    /// Accounts and slots together, at most.
    pub items_max: u64,
}

/// How much there is in an access list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessListCounts {
    /// Accounts.
    pub accounts: u64,
    /// Accounts of which anything changes.
    pub accounts_changed: u64,
    /// Slots that change.
    pub slots_changed: u64,
    /// Slots that are only read.
    pub slots_read: u64,
    /// Changes of slots; a slot may change more than once.
    pub slot_changes: u64,
    /// Changes of balances.
    pub balance_changes: u64,
    /// Changes of nonces.
    pub nonce_changes: u64,
    /// Changes of code.
    pub code_changes: u64,
}

impl AccessListLimits {
    /// Nothing but what an index can be.
    pub const fn of_transactions(transactions: usize) -> Self {
        Self {
            index_max: transactions as u64 + 1,
            items_max: u64::MAX,
        }
    }

    /// What a block of that gas limit may have, from Amsterdam on.
    pub const fn of_block(transactions: usize, gas_limit: u64) -> Self {
        Self {
            items_max: gas_limit / ACCESS_LIST_ITEM_GAS,
            ..Self::of_transactions(transactions)
        }
    }
}

impl AccessListCounts {
    /// Accounts and slots together.
    pub const fn items(&self) -> u64 {
        self.accounts + self.slots_changed + self.slots_read
    }

    /// Changes of all fields together.
    pub const fn changes(&self) -> u64 {
        self.slot_changes + self.balance_changes + self.nonce_changes + self.code_changes
    }
}
