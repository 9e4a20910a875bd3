//! The state at an old block.

use crate::{
    HistoryError,
    entry::{Key, decode_account, decode_slot, key_of, number_of, slot_of_key, slots_prefix},
    merge::MergedRuns,
    runs::{LiveRun, Run, Runs},
};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, BlockId, BlockNumber, DecodeError, SlotValue};
use cambium_state::{View, account_info};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::{ops::ControlFlow, sync::Arc};

impl DBErrorMarker for HistoryError {}

/// The state after an old block. It never changes, holds no lock, and takes no memory for the
/// distance to the head.
#[derive(Clone)]
pub struct HistoryView {
    /// The state after the newest block of the runs, or the state itself.
    base: View,
    old: Option<Old>,
}

#[derive(Clone)]
struct Old {
    runs: Arc<Runs>,
    block: BlockId,
}

impl HistoryView {
    /// The state after `block`. `base` is that after the newest block of `runs`.
    pub(crate) const fn new(base: View, runs: Arc<Runs>, block: BlockId) -> Self {
        Self {
            base,
            old: Some(Old { runs, block }),
        }
    }

    /// The block whose state this is.
    pub fn block(&self) -> BlockId {
        match &self.old {
            Some(old) => old.block,
            None => self.base.block(),
        }
    }

    /// Reads the account at keccak(address); `None` if it didn't exist. Takes one device read in
    /// most cases, and one more of the present state if it has not changed since.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Damaged`] names a file whose bytes are not those that were written, and the
    /// errors of [`View::account`].
    pub fn account(&self, path: &B256) -> Result<Option<Account>, HistoryError> {
        if let Some(old) = &self.old
            && let Some(account) = old.find(&Key::account(path), decode_account)?
        {
            return Ok(account);
        }
        Ok(self.base.account(path)?)
    }

    /// Reads the slot at keccak(slot) of the account at keccak(address); zero if it was not set.
    ///
    /// # Errors
    ///
    /// As [`HistoryView::account`].
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, HistoryError> {
        if let Some(old) = &self.old
            && let Some(value) = old.find(&Key::slot(account, slot), decode_slot)?
        {
            return Ok(value);
        }
        Ok(self.base.slot(account, slot)?)
    }

    /// Reads the code with that hash. Codes are never removed.
    ///
    /// # Errors
    ///
    /// As [`View::code`].
    pub fn code(&self, hash: &B256) -> Result<Bytes, HistoryError> {
        Ok(self.base.code(hash)?)
    }

    /// Reads all non-zero slots of an account, by keccak(slot).
    ///
    /// # Errors
    ///
    /// As [`HistoryView::account`].
    pub fn slots(&self, account: &B256) -> Result<Vec<(B256, U256)>, HistoryError> {
        let mut slots = Vec::new();
        self.each_slot(account, |slot, value| {
            slots.push((slot, value));
            ControlFlow::Continue(())
        })?;
        Ok(slots)
    }

    /// Visits the non-zero slots of an account in the order of keccak(slot), until `visit` breaks.
    /// Some pages of each run are in memory at a time.
    ///
    /// # Errors
    ///
    /// As [`HistoryView::account`].
    pub fn each_slot(
        &self,
        account: &B256,
        mut visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), HistoryError> {
        let Some(old) = &self.old else {
            return Ok(self.base.each_slot(account, visit)?);
        };
        let mut changed = OldSlots::new(old, account)?;
        let (mut is_over, mut failure) = (false, None);
        self.base.each_slot(account, |slot, value| {
            match changed.visit_before(Some(slot), &mut visit) {
                Ok(ControlFlow::Continue(is_changed)) => {
                    if !is_changed && visit(slot, value).is_break() {
                        is_over = true;
                    }
                }
                Ok(ControlFlow::Break(())) => is_over = true,
                Err(error) => failure = Some(error),
            }
            match is_over || failure.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        match failure {
            Some(error) => Err(error),
            None if is_over => Ok(()),
            None => changed.visit_before(None, &mut visit).map(|_| ()),
        }
    }

    /// The hash of this block or of an ancestor: as [`View::block_hash`].
    ///
    /// # Errors
    ///
    /// As [`View::block_hash`].
    pub fn block_hash(&self, number: BlockNumber) -> Result<Option<B256>, HistoryError> {
        match number > self.block().number {
            true => Ok(None),
            false => Ok(self.base.block_hash(number)?),
        }
    }
}

impl HistoryView {
    /// The value of a key, as entries have it.
    pub(crate) fn encoded(&self, key: &Key) -> Result<Vec<u8>, HistoryError> {
        let mut value = Vec::new();
        let (account, slot) = key.paths();
        match slot {
            None => {
                if let Some(account) = self.account(&account)? {
                    account.encode_to(&mut value);
                }
            }
            Some(slot) => {
                let slot = SlotValue::new(self.slot(&account, &slot)?);
                value.extend_from_slice(slot.as_bytes());
            }
        }
        Ok(value)
    }
}

impl Old {
    /// The runs that have blocks above this one, oldest first.
    fn runs(&self) -> impl Iterator<Item = LiveRun> {
        let number = self.block.number;
        self.runs.all().filter(move |run| run.last > number)
    }

    /// The value of a key, if it has changed since.
    fn find<T>(
        &self,
        key: &Key,
        decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, HistoryError> {
        let from = self.block.number + 1;
        for LiveRun { run, .. } in self.runs() {
            // An entry of a block that is not canonical any more tells the value at the fork, which is
            // the value here, too: had it changed between, that entry would come first.
            match &run {
                Run::Memory(run) => {
                    if let Some(value) = run.find(key, from) {
                        let value = decode(value).map(Some);
                        return value.map_err(|error| bad_value(None, &error));
                    }
                }
                Run::File(run) => {
                    if let Some(value) = run.find(key, from)? {
                        let value = decode(&value).map(Some);
                        return value.map_err(|error| bad_value(Some(run.path()), &error));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// The error for a value that is none, in a page whose checksum is right.
fn bad_value(file: Option<&str>, error: &DecodeError) -> HistoryError {
    HistoryError::Damaged {
        file: file.unwrap_or("a run in memory").to_owned(),
        offset: 0,
        what: error.what.to_owned(),
    }
}

/// The slots of an account that have changed since a block, in their order.
struct OldSlots {
    entries: MergedRuns,
    prefix: [u8; 33],
    above: BlockNumber,
    /// The slot that was visited last.
    last: Option<B256>,
}

impl OldSlots {
    fn new(old: &Old, account: &B256) -> Result<Self, HistoryError> {
        let prefix = slots_prefix(account);
        let runs: Vec<_> = old.runs().collect();
        Ok(Self {
            entries: MergedRuns::new(&runs, &prefix)?,
            prefix,
            above: old.block.number,
            last: None,
        })
    }

    /// Visits the old values of slots before `slot`, and of `slot` itself if it has changed: then
    /// continues with true.
    fn visit_before(
        &mut self,
        slot: Option<B256>,
        visit: &mut impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<ControlFlow<(), bool>, HistoryError> {
        while let Some(entry) = self.entries.entry() {
            let key = key_of(entry.position);
            let Some(changed) = slot_of_key(key).filter(|_| key.starts_with(&self.prefix)) else {
                break;
            };
            if slot.is_some_and(|slot| changed > slot) {
                break;
            }
            let is_first = self.last != Some(changed);
            if is_first && number_of(entry.position) > self.above {
                let value = decode_slot(entry.value);
                let value = value.map_err(|error| bad_value(None, &error))?;
                self.last = Some(changed);
                if !value.is_zero() && visit(changed, value).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            self.entries.advance()?;
        }
        Ok(ControlFlow::Continue(slot.is_some() && self.last == slot))
    }
}

impl From<View> for HistoryView {
    /// The state that a view of the database has.
    fn from(base: View) -> Self {
        Self { base, old: None }
    }
}

/// revm reads by address and slot number, whose hashes are the keys of the state.
impl DatabaseRef for HistoryView {
    type Error = HistoryError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, HistoryError> {
        let account = self.account(&keccak256(address))?;
        Ok(account.map(account_info))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, HistoryError> {
        Ok(self.base.code_by_hash_ref(code_hash)?)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, HistoryError> {
        self.slot(&keccak256(address), &keccak256(index.to_be_bytes::<32>()))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, HistoryError> {
        Ok(self.block_hash(number)?.unwrap_or_default())
    }
}
