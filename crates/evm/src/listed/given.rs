//! A block's access list with its codes decoded, from which steps take their pre-state.

use crate::access_list::{ListIndex, SlotPlace};
use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256, map::HashMap};
use cambium_primitives::{AccessList, BlockAccessIndex};
use revm::{bytecode::Bytecode, state::AccountInfo};

/// The access list of a block, which is untrusted.
pub(crate) struct Given<'a> {
    index: ListIndex<'a>,
    /// The codes in the list, by account, in the order of its changes.
    codes: HashMap<Address, Vec<(B256, Bytecode)>>,
    by_hash: HashMap<B256, Bytecode>,
}

impl<'a> Given<'a> {
    /// Indexes a list. `None` if it has a code that the EVM rejects, which no block can create.
    pub(crate) fn new(list: &'a AccessList) -> Option<Self> {
        let (mut codes, mut by_hash) = (HashMap::default(), HashMap::default());
        for account in list.accounts() {
            let mut changes = Vec::with_capacity(account.code_changes.len());
            for change in &account.code_changes {
                let (hash, code) = decoded(&change.new_code)?;
                by_hash.insert(hash, code.clone());
                changes.push((hash, code));
            }
            if !changes.is_empty() {
                codes.insert(account.address, changes);
            }
        }
        Some(Self {
            index: ListIndex::new(list),
            codes,
            by_hash,
        })
    }

    pub(crate) const fn index(&self) -> &ListIndex<'a> {
        &self.index
    }

    pub(crate) const fn list(&self) -> &'a AccessList {
        self.index.list()
    }

    /// The code with this hash, if the list has it.
    pub(crate) fn code(&self, hash: &B256) -> Option<&Bytecode> {
        self.by_hash.get(hash)
    }

    /// The account at position `place` before step `at`. `parent` is the account in the parent's
    /// state.
    pub(crate) fn account(
        &self,
        place: usize,
        at: u64,
        parent: Option<AccountInfo>,
    ) -> Option<AccountInfo> {
        let listed = &self.list().accounts()[place];
        let balance = before(&listed.balance_changes, at, |c| c.block_access_index);
        let nonce = before(&listed.nonce_changes, at, |c| c.block_access_index);
        let code = before(&listed.code_changes, at, |c| c.block_access_index);
        if balance.is_none() && nonce.is_none() && code.is_none() {
            return parent;
        }
        let mut info = parent.unwrap_or_default();
        if let Some(balance) = balance {
            info.balance = listed.balance_changes[balance].post_balance;
        }
        if let Some(nonce) = nonce {
            info.nonce = listed.nonce_changes[nonce].new_nonce;
        }
        if let Some(code) = code {
            let (hash, code) = self.codes[&listed.address][code].clone();
            info.set_code_and_hash(code, hash);
        }
        (!info.is_empty()).then_some(info)
    }

    /// The value of a slot before step `at`; `None` if no step before it changes the slot.
    pub(crate) fn slot(&self, place: SlotPlace, at: u64) -> Option<U256> {
        let changes = self.index.changes(place);
        let newest = before(changes, at, |c| c.block_access_index)?;
        Some(changes[newest].new_value)
    }

    /// Whether a step before `at` changes a slot of the account.
    pub(crate) fn has_slot_before(&self, address: &Address, at: u64) -> bool {
        let Some(place) = self.index.account(address) else {
            return false;
        };
        let mut slots = self.list().accounts()[place].storage_changes.iter();
        slots.any(|slot| before(&slot.changes, at, |c| c.block_access_index).is_some())
    }
}

/// Position of the newest change before step `at`.
fn before<C>(changes: &[C], at: u64, index: impl Fn(&C) -> BlockAccessIndex) -> Option<usize> {
    changes
        .partition_point(|change| index(change).get() < at)
        .checked_sub(1)
}

fn decoded(code: &Bytes) -> Option<(B256, Bytecode)> {
    if code.is_empty() {
        return Some((KECCAK256_EMPTY, Bytecode::default()));
    }
    let decoded = Bytecode::new_raw_checked(code.clone()).ok()?;
    Some((keccak256(code), decoded))
}
