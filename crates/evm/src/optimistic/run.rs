//! The result of running a transaction, and what commits of transactions add up to.

use crate::{
    BlockInput, ExecutionCounts,
    access_list::StepAccesses,
    account::account,
    effects::{AccountRead, AccountWrite, Needs, Reads, Sender, Writes},
    results::Limits,
    step::TransactionResult,
};
use alloy_consensus::Transaction as _;
use alloy_eips::eip4844::DATA_GAS_PER_BLOB;
use alloy_primitives::{Address, B256, U256};
use revm::{bytecode::Bytecode, state::AccountInfo};

/// The result of running a transaction, besides its writes.
pub(super) struct Run {
    pub(super) result: TransactionResult,
    /// What the transaction read. Freed by the jobs that make receipts, not by the thread that commits.
    pub(super) reads: Reads,
    /// Its accesses, if they are recorded, without balances that are not known yet.
    pub(super) accesses: Option<StepAccesses>,
    pub(super) codes: Vec<(B256, Bytecode)>,
    /// What the beneficiary gets besides the fee, and the fee, if the transaction withheld it.
    pub(super) withheld: Withheld,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Withheld {
    amount: U256,
    fee: U256,
}

/// A write of the beneficiary's account.
pub(super) enum BeneficiaryWrite {
    Nothing,
    Add { balance: U256, nonce: u64 },
    Set(Option<AccountInfo>),
}

impl BeneficiaryWrite {
    /// Takes the write of the beneficiary from those of a step. A deletion of its slots stays.
    pub(super) fn take(writes: &mut Writes, beneficiary: Address) -> Self {
        let mut accounts = writes.accounts.iter();
        let Some(place) = accounts.position(|(address, _)| *address == beneficiary) else {
            return Self::Nothing;
        };
        match &writes.accounts[place].1 {
            AccountWrite::Add { balance, nonce } => {
                let add = Self::Add {
                    balance: *balance,
                    nonce: *nonce,
                };
                writes.accounts.swap_remove(place);
                add
            }
            AccountWrite::Set { now, wiped, .. } => {
                let set = Self::Set(now.clone());
                if !wiped {
                    writes.accounts.swap_remove(place);
                }
                set
            }
        }
    }
}

impl Run {
    /// A transaction that ran ahead. `None` if it depends on the beneficiary's balance, or on the
    /// whole account of its sender, whose nonce is a guess.
    pub(super) fn ahead(
        result: TransactionResult,
        fee: U256,
        mut accesses: Option<StepAccesses>,
        (reads, mut writes): (Reads, Writes),
        beneficiary: Address,
    ) -> Option<(Self, Writes)> {
        let is_known = |read: &AccountRead| read.address != beneficiary && !read.is_guess;
        let mut exact = reads.accounts.iter();
        if exact.any(|read| read.needs == Needs::Equal && !is_known(read)) {
            return None;
        }
        let amount = match BeneficiaryWrite::take(&mut writes, beneficiary) {
            BeneficiaryWrite::Nothing => U256::ZERO,
            BeneficiaryWrite::Add { balance, nonce: 0 } => balance,
            BeneficiaryWrite::Add { .. } | BeneficiaryWrite::Set(_) => return None,
        };
        remove_balances(&mut accesses, &writes, beneficiary);
        let run = Self {
            result,
            reads,
            accesses,
            codes: writes.codes.clone(),
            withheld: Withheld { amount, fee },
        };
        Some((run, writes))
    }

    /// A transaction that ran at its commit position.
    pub(super) fn in_order(
        result: TransactionResult,
        accesses: Option<StepAccesses>,
        writes: &Writes,
    ) -> Self {
        Self {
            result,
            reads: Reads::default(),
            accesses,
            codes: writes.codes.clone(),
            withheld: Withheld::default(),
        }
    }
}

/// Removes balances from recorded accesses that are found by adding up, at the end of the block.
pub(super) fn remove_balances(
    accesses: &mut Option<StepAccesses>,
    writes: &Writes,
    beneficiary: Address,
) {
    if let Some(accesses) = accesses {
        accesses.remove_balances(|address| {
            let is_add = |(written, write): &(Address, AccountWrite)| {
                written == address && matches!(write, AccountWrite::Add { .. })
            };
            *address == beneficiary || writes.accounts.iter().any(is_add)
        });
    }
}

/// The sender of a transaction, and the balance that it needs.
pub(super) fn sender(input: &BlockInput<'_>, index: usize, is_guess: bool) -> Sender {
    let transaction = &input.transactions[index];
    let gas = U256::from(transaction.gas_limit());
    let price = U256::from(transaction.max_fee_per_gas());
    let blobs = transaction.blob_versioned_hashes().map_or(0, <[_]>::len) as u64;
    let blob_gas = U256::from(blobs * DATA_GAS_PER_BLOB);
    let blob_price = U256::from(transaction.max_fee_per_blob_gas().unwrap_or_default());
    let fees = (gas * price).saturating_add(blob_gas * blob_price);
    Sender {
        address: input.senders[index],
        balance: fees.saturating_add(transaction.value()),
        is_guess,
    }
}

/// What the transactions before the commit position add up to.
#[derive(Default)]
pub(super) struct Committed {
    pub(super) limits: Limits,
    pub(super) counts: ExecutionCounts,
    /// The beneficiary as it is now.
    pub(super) beneficiary: Option<AccountInfo>,
    /// Whether the beneficiary did not exist in between.
    pub(super) was_beneficiary_gone: bool,
    /// Whether a transaction withheld its fee.
    pub(super) has_withheld: bool,
    /// Gas that each transaction and those before it have used after refunds.
    pub(super) gas_used: Vec<u64>,
    /// The beneficiary's balance after each step that changed it.
    pub(super) balances: Vec<(u64, U256)>,
}

impl Committed {
    /// Whether the beneficiary is as a transaction needs it.
    pub(super) fn agrees_with(&self, reads: &Reads, beneficiary: Address) -> bool {
        let mut read = reads.accounts.iter();
        let read = read.find(|read| read.address == beneficiary);
        let now = self.beneficiary.as_ref().map(account);
        read.is_none_or(|read| read.agrees_with(now.as_ref()))
    }

    /// Adds the gas of the next transaction.
    pub(super) fn add_gas(&mut self, result: &TransactionResult) {
        self.limits.add(result.block_gas);
        let before = self.gas_used.last().copied().unwrap_or_default();
        self.gas_used.push(before + result.gas_used);
    }

    /// Pays the beneficiary what a transaction withheld.
    pub(super) fn pay(&mut self, step: usize, withheld: Withheld) {
        self.has_withheld = true;
        let Withheld { amount, fee } = withheld;
        if amount.is_zero() && fee.is_zero() {
            let is_empty = self.beneficiary.as_ref().is_some_and(AccountInfo::is_empty);
            if is_empty {
                self.set_beneficiary(step, None);
            }
            return;
        }
        let balance = &mut self.beneficiary.get_or_insert_default().balance;
        let before = *balance;
        let paid = before.wrapping_add(amount);
        // As in the EVM, a fee that overflows the balance is not paid.
        *balance = paid.checked_add(fee).unwrap_or(paid);
        if *balance != before {
            self.balances.push((step as u64, *balance));
        }
    }

    /// Applies a write of the beneficiary by a step that ran in order.
    pub(super) fn apply(&mut self, step: usize, write: BeneficiaryWrite) {
        match write {
            BeneficiaryWrite::Nothing => {}
            BeneficiaryWrite::Set(now) => self.set_beneficiary(step, now),
            BeneficiaryWrite::Add { balance, nonce } => {
                let mut now = self.beneficiary.clone().unwrap_or_default();
                now.balance = now.balance.wrapping_add(balance);
                now.nonce += nonce;
                self.set_beneficiary(step, Some(now));
            }
        }
    }

    fn set_beneficiary(&mut self, step: usize, now: Option<AccountInfo>) {
        let balance = |account: &Option<AccountInfo>| match account {
            Some(account) => account.balance,
            None => U256::ZERO,
        };
        let after = balance(&now);
        if balance(&self.beneficiary) != after {
            self.balances.push((step as u64, after));
        }
        self.was_beneficiary_gone |= self.beneficiary.is_some() && now.is_none();
        self.beneficiary = now;
    }
}
