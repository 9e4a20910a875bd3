//! Old states one after another: a view of one, and above it in memory what the next blocks changed, by the
//! block log. So states of many consecutive blocks take one restored state, not one each.

use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_chain::ChainError;
use cambium_evm::{StateRead, account_info};
use cambium_history::{HistoryError, StateAt};
use cambium_primitives::{Account, AccountUpdate, BlockId, BlockNumber, Changes, STORAGE_ROOT_KEY};
use cambium_state::{Db, View};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
};

/// Most accounts and slots in memory: above that, a view of a later block is begun with.
const CHANGED_MAX: usize = 1 << 20;

/// Changes of an account by blocks above the view.
#[derive(Default)]
struct Changed {
    /// `None` if its fields are those of the view.
    account: Option<Option<Account>>,
    /// Whether its slots in the view are gone.
    is_wiped: bool,
    slots: BTreeMap<B256, U256>,
}

/// The state after a block that moves up the chain.
pub(crate) struct Replay {
    db: Db,
    at: BlockId,
    view: StateAt,
    /// The state at the head, which has the codes of all blocks.
    head: View,
    changed: HashMap<B256, Changed>,
    count: usize,
}

impl Replay {
    /// The state after a canonical block, which `view` has.
    ///
    /// # Errors
    ///
    /// If the head has no state that can be read.
    pub(crate) fn on(db: &Db, block: BlockId, view: StateAt) -> Result<Self, ChainError> {
        Ok(Self {
            db: db.clone(),
            at: block,
            view,
            head: db.view()?,
            changed: HashMap::new(),
            count: 0,
        })
    }

    /// The block whose state it has.
    pub(crate) const fn block(&self) -> BlockId {
        self.at
    }

    /// Moves to the next canonical block. False if that is not a child, or too much has changed since the
    /// view: then it is to be begun anew.
    pub(crate) fn advance(&mut self) -> Result<bool, ChainError> {
        let Some(next) = self.db.committed_block(self.at.number + 1)? else {
            return Ok(false);
        };
        if next.meta.parent != self.at.hash || self.count > CHANGED_MAX {
            return Ok(false);
        }
        self.apply(&next.changes);
        self.at = next.meta.id;
        Ok(true)
    }

    fn apply(&mut self, changes: &Changes) {
        for change in changes.accounts() {
            let changed = self.changed.entry(change.path).or_default();
            match &change.account {
                AccountUpdate::Keep => {}
                AccountUpdate::Delete => {
                    changed.account = Some(None);
                    changed.is_wiped = true;
                    changed.slots.clear();
                }
                AccountUpdate::Put(account) => changed.account = Some(Some(*account)),
                // The state of a chain has none.
                AccountUpdate::Entry(_) => continue,
            }
            if change.wipe {
                changed.is_wiped = true;
                changed.slots.clear();
            }
            changed.slots.extend(change.slots.iter().copied());
            self.count += 1 + change.slots.len();
        }
    }
}

impl DatabaseRef for Replay {
    type Error = HistoryError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, HistoryError> {
        let path = keccak256(address);
        match self.changed.get(&path).and_then(|changed| changed.account) {
            Some(account) => Ok(account.map(account_info)),
            None => Ok(self.view.account(&path)?.map(account_info)),
        }
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, HistoryError> {
        Ok(self.head.code_by_hash_ref(code_hash)?)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, HistoryError> {
        let (path, slot) = (keccak256(address), keccak256(index.to_be_bytes::<32>()));
        if let Some(kept) = self.db.kept_storage() {
            let is_kept = kept.check(&path);
            is_kept.map_err(|error| error.at_address(address))?;
        }
        if let Some(changed) = self.changed.get(&path) {
            if let Some(value) = changed.slots.get(&slot) {
                return Ok(*value);
            }
            if changed.is_wiped {
                return Ok(U256::ZERO);
            }
        }
        self.view.slot(&path, &slot)
    }

    fn block_hash_ref(&self, number: BlockNumber) -> Result<B256, HistoryError> {
        let block = self.db.block_id(number)?;
        Ok(block.map(|block| block.hash).unwrap_or_default())
    }
}

impl StateRead for Replay {
    fn has_storage(&self, address: Address) -> Result<bool, HistoryError> {
        let path = keccak256(address);
        let Some(changed) = self.changed.get(&path) else {
            return self.view.has_storage(&path);
        };
        if changed.slots.values().any(|value| !value.is_zero()) {
            return Ok(true);
        }
        let is_partial = self.db.kept_storage().is_some();
        if is_partial && changed.slots.is_empty() && !changed.is_wiped {
            return self.view.has_storage(&path);
        }
        if is_partial && changed.slots.contains_key(&STORAGE_ROOT_KEY) {
            // The root of an empty storage.
            return Ok(false);
        }
        let mut has_one = false;
        if !changed.is_wiped {
            self.view.each_slot(&path, |slot, _| {
                has_one = !changed.slots.contains_key(&slot);
                match has_one {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
        }
        Ok(has_one)
    }
}
