//! Keys that a block touches for certain, or nearly so: they follow from the block alone.

use crate::{BlockInput, Transaction};
use alloy_consensus::Transaction as _;
use alloy_eips::{
    eip2935::{HISTORY_SERVE_WINDOW, HISTORY_STORAGE_ADDRESS},
    eip4788::BEACON_ROOTS_ADDRESS,
};
use alloy_primitives::{Address, TxKind, U256};
use cambium_primitives::AccountChanges;
use revm::primitives::hardfork::SpecId;

/// Number of slots in each of the two rings of the beacon roots contract.
const BEACON_ROOTS_WINDOW: u64 = 8191;
/// Gas of a payment to an account without code, which runs nothing.
const PAYMENT_GAS: u64 = 21_000;

/// Accounts and slots that a block touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownKeys {
    /// Addresses of accounts. An address may occur several times.
    pub accounts: Vec<Address>,
    /// Slots, each with its account's address.
    pub slots: Vec<(Address, U256)>,
}

impl KnownKeys {
    /// All keys of some accounts in an access list.
    pub fn of_list(accounts: &[AccountChanges]) -> Self {
        let slots = |account: &AccountChanges| {
            let address = account.address;
            let slots = account.storage_slots().map(move |slot| (address, slot));
            slots.collect::<Vec<_>>()
        };
        Self {
            accounts: accounts.iter().map(|account| account.address).collect(),
            slots: accounts.iter().flat_map(slots).collect(),
        }
    }

    /// Adds the keys of `other`.
    pub fn append(&mut self, other: Self) {
        self.accounts.extend(other.accounts);
        self.slots.extend(other.slots);
    }

    /// Adds the keys of one transaction: its sender, its recipient or the contract that it creates,
    /// the entries of its access list (EIP-2930), and its authorities (EIP-7702).
    pub fn add_transaction(&mut self, transaction: &Transaction, sender: Address) {
        let to = match transaction.kind() {
            TxKind::Call(to) => to,
            TxKind::Create => sender.create(transaction.nonce()),
        };
        self.accounts.extend([sender, to]);
        for item in transaction
            .access_list()
            .into_iter()
            .flat_map(|list| list.iter())
        {
            self.accounts.push(item.address);
            let slots = item.storage_keys.iter();
            self.slots
                .extend(slots.map(|slot| (item.address, U256::from_be_bytes(slot.0))));
        }
        let authorizations = transaction.authorization_list().unwrap_or_default().iter();
        let authorities = authorizations.filter_map(|one| one.recover_authority().ok());
        self.accounts.extend(authorities);
    }

    /// The keys of a block besides those of its transactions: its beneficiary and withdrawals, and
    /// the slots that its system calls write.
    pub fn of_block(input: &BlockInput<'_>) -> Self {
        let header = input.header;
        let mut keys = Self::default();
        keys.accounts.push(header.beneficiary);
        let withdrawals = input.withdrawals.iter();
        keys.accounts.extend(withdrawals.map(|one| one.address));
        keys.accounts
            .extend(input.ommers.iter().map(|one| one.beneficiary));
        if input.rules.is(SpecId::CANCUN) {
            let ring = header.timestamp % BEACON_ROOTS_WINDOW;
            for slot in [ring, ring + BEACON_ROOTS_WINDOW] {
                keys.slots.push((BEACON_ROOTS_ADDRESS, U256::from(slot)));
            }
        }
        if input.rules.is(SpecId::PRAGUE) {
            let slot = header.number.wrapping_sub(1) % HISTORY_SERVE_WINDOW as u64;
            keys.slots.push((HISTORY_STORAGE_ADDRESS, U256::from(slot)));
        }
        keys
    }
}

/// Whether a transaction can run code, so that it reads more than its known keys.
pub fn may_run_code(transaction: &Transaction) -> bool {
    transaction.is_create() || transaction.gas_limit() > PAYMENT_GAS
}
