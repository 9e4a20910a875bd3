//! The state in the middle of a block: reads and writes so far, over the parent's state.
//!
//! [`Overlay::commit`] applies the writes of one transaction as a whole. [`Overlay::finish`]
//! returns the difference to the parent as [`Changes`]. Before EIP-161 an account may exist and be
//! empty; revm marks the accounts that stay so as created, so deleting every other touched empty
//! account is correct in all forks.

use crate::{
    Rules, StateRead,
    access_list::{Left, StepAccesses, StepRecorder},
    account::account,
    effects::{
        AccountRead, AccountWrite, Needs, ObserveBalance, Reads, Sender, SlotWrite, Writes,
        difference,
    },
};
use alloy_primitives::{
    Address, B256, Bytes, U256, keccak256,
    map::{AddressMap, B256Map, Entry as MapEntry, U256Map},
};
use cambium_keccak::keccak256_each;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};
use revm::{
    Database,
    bytecode::Bytecode,
    primitives::hardfork::SpecId,
    state::{Account as TouchedAccount, AccountInfo, EvmState},
};

/// A state with a block's writes on top.
pub(crate) struct Overlay<DB> {
    db: DB,
    accounts: AddressMap<Entry>,
    codes: B256Map<Bytecode>,
    /// Changes since the last [`Overlay::take_step`], if [`OverlayMode::steps`] is set.
    step: Option<Changes>,
    /// The account that the EVM sees with a nonce of one.
    feigned: Option<Address>,
    recorder: Option<StepRecorder>,
    /// Codes of the state below that have been read.
    loaded: B256Map<Bytecode>,
    mode: OverlayMode,
}

/// Optional records of an overlay beside the block's writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverlayMode {
    /// Keep the changes of each step, for [`Overlay::take_step`].
    pub(crate) steps: bool,
    /// Record what each step touches, for [`Overlay::end_access_step`].
    pub(crate) record: bool,
    /// Whether an account can lose its storage and still exist, which is so before Cancun. Later
    /// only an empty account (EIP-161) with storage could lose it and be created again.
    pub(crate) wipes: bool,
}

impl OverlayMode {
    /// The mode that a block's rules require.
    pub(crate) fn of(rules: &Rules) -> Self {
        Self {
            steps: false,
            record: rules.block_access_list,
            wipes: !rules.is(SpecId::CANCUN),
        }
    }
}

/// An account that the block has touched.
struct Entry {
    before: Option<AccountInfo>,
    now: Option<AccountInfo>,
    /// Whether the block deleted the storage that the account had before.
    wiped: bool,
    /// Whether a transaction depends on the account's balance, see [`ObserveBalance`].
    observed: bool,
    slots: U256Map<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    before: U256,
    now: U256,
}

impl Slot {
    /// A slot of the state below.
    const fn found(value: U256) -> Self {
        Self {
            before: value,
            now: value,
        }
    }
}

impl<DB: StateRead> Overlay<DB> {
    /// An overlay on `db` without any writes.
    pub(crate) fn new(db: DB, mode: OverlayMode) -> Self {
        Self {
            db,
            accounts: AddressMap::default(),
            codes: B256Map::default(),
            step: mode.steps.then(Changes::default),
            feigned: None,
            recorder: mode.record.then(StepRecorder::default),
            loaded: B256Map::default(),
            mode,
        }
    }

    /// Discards all writes and continues on `db`, a state of the same chain. Loaded codes are kept.
    pub(crate) fn begin_again(&mut self, db: DB) {
        self.db = db;
        self.accounts.clear();
        self.codes.clear();
        self.feigned = None;
        self.step = self.mode.steps.then(Changes::default);
        self.recorder = self.mode.record.then(StepRecorder::default);
    }

    /// The state below.
    pub(crate) const fn below(&self) -> &DB {
        &self.db
    }

    fn entry(&mut self, address: Address) -> Result<&mut Entry, DB::Error> {
        match self.accounts.entry(address) {
            MapEntry::Occupied(entry) => Ok(entry.into_mut()),
            MapEntry::Vacant(entry) => {
                let info = self.db.basic_ref(address)?;
                Ok(entry.insert(Entry::found(info)))
            }
        }
    }

    /// The account as it is now.
    pub(crate) fn account(&mut self, address: Address) -> Result<Option<&AccountInfo>, DB::Error> {
        Ok(self.entry(address)?.now.as_ref())
    }

    /// Whether an account has storage, but neither code nor nonce.
    pub(crate) fn has_bare_storage(&mut self, address: Address) -> Result<bool, DB::Error> {
        let entry = self.entry(address)?;
        let bare = |info: &AccountInfo| info.nonce == 0 && info.is_empty_code_hash();
        if !entry.now.as_ref().is_some_and(bare) {
            return Ok(false);
        }
        if entry.slots.values().any(|slot| !slot.now.is_zero()) {
            return Ok(true);
        }
        Ok(!entry.wiped && self.db.has_storage(address)?)
    }

    /// Sets the account for which [`Database::basic`] returns a nonce of one.
    pub(crate) fn feign_nonce(&mut self, address: Option<Address>) {
        self.feigned = address;
    }

    /// Sets a balance outside any transaction. `keep_empty`: whether an account that is left empty
    /// continues to exist (before EIP-161).
    pub(crate) fn set_balance(
        &mut self,
        address: Address,
        balance: U256,
        keep_empty: bool,
    ) -> Result<(), DB::Error> {
        self.touch(address)?;
        let entry = self.entry(address)?;
        let existed = entry.now.is_some();
        let info = entry.now.get_or_insert_default();
        info.balance = balance;
        let update = AccountUpdate::Put(account(info));
        if info.is_empty() && !keep_empty {
            entry.delete();
            if existed {
                self.record(address, AccountUpdate::Delete);
            }
        } else {
            self.record(address, update);
        }
        Ok(())
    }

    /// Applies the writes of one transaction or system call.
    pub(crate) fn commit(&mut self, state: EvmState) -> Result<(), DB::Error> {
        let mut step = Vec::new();
        let stepwise = self.step.is_some();
        for (address, touched) in state {
            self.touch(address)?;
            self.touch_slots(address, &touched);
            if !touched.is_touched() {
                continue;
            }
            let entry = self.entry(address)?;
            let existed = entry.now.is_some();
            let is_gone = is_gone(&touched);
            let mut change = AccountDiff {
                path: B256::ZERO,
                account: AccountUpdate::Delete,
                wipe: existed,
                slots: Vec::new(),
            };
            if is_gone {
                entry.delete();
                if !existed {
                    continue;
                }
            } else {
                let new_code = touched.info.code.as_ref().filter(|code| {
                    let known = entry
                        .now
                        .as_ref()
                        .is_some_and(|i| i.code_hash == touched.info.code_hash);
                    !known && !code.is_empty()
                });
                let new_code = new_code.map(|code| (touched.info.code_hash, code.clone()));
                change.wipe = existed && touched.is_created();
                let is_created = touched.is_created();
                if is_created {
                    entry.wiped = true;
                    entry.slots.clear();
                }
                entry.now = Some(touched.info);
                for (key, slot) in touched.storage {
                    let now = slot.present_value;
                    // In a state of several transactions it is the value before the last one.
                    let before = match is_created {
                        true => U256::ZERO,
                        false => slot.original_value,
                    };
                    match entry.slots.entry(key) {
                        MapEntry::Occupied(mut known) => known.get_mut().now = now,
                        MapEntry::Vacant(unknown) if now != before => {
                            unknown.insert(Slot { before, now });
                        }
                        MapEntry::Vacant(_) => {}
                    }
                    if stepwise && now != slot.original_value {
                        change
                            .slots
                            .push((keccak256(key.to_be_bytes::<32>()), slot.present_value));
                    }
                }
                change.account = AccountUpdate::Put(account(entry.now.as_ref().expect("just put")));
                if let Some((hash, code)) = new_code {
                    self.codes.insert(hash, code);
                }
            }
            if stepwise {
                change.path = keccak256(address);
                step.push(change);
            }
        }
        self.extend_step(step);
        Ok(())
    }

    fn record(&mut self, address: Address, account: AccountUpdate) {
        if self.step.is_none() {
            return;
        }
        let wipe = account == AccountUpdate::Delete;
        let path = keccak256(address);
        self.extend_step(vec![AccountDiff {
            path,
            account,
            wipe,
            slots: Vec::new(),
        }]);
    }

    fn extend_step(&mut self, changes: Vec<AccountDiff>) {
        if let Some(step) = self.step.take() {
            self.step = Some(step.then(Changes::new(changes)));
        }
    }

    /// Returns the changes since the previous call.
    pub(crate) fn take_step(&mut self) -> Changes {
        self.step.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn touch(&mut self, address: Address) -> Result<(), DB::Error> {
        if self.recorder.is_none() {
            return Ok(());
        }
        let found = self.entry(address)?.account();
        if let Some(recorder) = &mut self.recorder {
            recorder.touch(address, found);
        }
        Ok(())
    }

    fn touch_slots(&mut self, address: Address, touched: &TouchedAccount) {
        if let Some(recorder) = &mut self.recorder {
            for (slot, value) in &touched.storage {
                recorder.touch_slot(address, *slot, value.original_value);
            }
        }
    }

    /// Ends a step of the block and returns what it touched, if that is recorded.
    pub(crate) fn end_access_step(&mut self) -> Option<StepAccesses> {
        let mut recorder = self.recorder.take()?;
        let accesses = recorder.end(self);
        self.recorder = Some(recorder);
        Some(accesses)
    }

    /// Returns the accesses of a transaction with the writes `state`, if they are recorded. The
    /// transaction ran on this overlay, and its writes are not applied.
    pub(crate) fn accesses_of(
        &mut self,
        state: &EvmState,
    ) -> Result<Option<StepAccesses>, DB::Error> {
        for (address, touched) in state {
            self.touch(*address)?;
            self.touch_slots(*address, touched);
        }
        let accesses = self.recorder.as_mut().map(|recorder| {
            recorder.end(&After {
                before: &self.accounts,
                state,
            })
        });
        Ok(accesses)
    }

    /// Returns the reads and writes of a transaction that ran on this overlay and is not applied.
    /// The overlay is empty afterwards.
    pub(crate) fn take_effects(&mut self, state: EvmState, sender: Sender) -> (Reads, Writes) {
        let mut writes = Writes::default();
        let mut exact = Vec::new();
        for (address, touched) in state {
            let Some(entry) = self.accounts.get(&address).filter(|_| touched.is_touched()) else {
                continue;
            };
            let is_sender = address == sender.address;
            if !entry.add_writes(address, touched, is_sender, &mut writes) {
                exact.push(address);
            }
        }
        let mut slots = Vec::new();
        let accounts = self.accounts.drain().map(|(address, entry)| {
            let read = entry.slots.iter();
            slots.extend(read.map(|(slot, value)| (*slot, value.before)));
            let needs = match entry.observed || exact.contains(&address) {
                true => Needs::Equal,
                false if address == sender.address => Needs::Balance(sender.balance),
                false => Needs::Balance(U256::ZERO),
            };
            AccountRead {
                address,
                found: entry.before.as_ref().map(account),
                is_guess: sender.is_guess && address == sender.address,
                needs,
                slot_count: entry.slots.len(),
            }
        });
        let accounts = accounts.collect();
        (Reads { accounts, slots }, writes)
    }

    /// Takes all writes that were applied to the overlay, which is empty afterwards.
    pub(crate) fn take_writes(&mut self) -> Writes {
        let mut writes = Writes::default();
        for (address, entry) in self.accounts.drain() {
            for (slot, value) in &entry.slots {
                if value.now != value.before {
                    writes.slots.push(SlotWrite {
                        address,
                        slot: *slot,
                        before: value.before,
                        now: value.now,
                        created: entry.wiped,
                    });
                }
            }
            let before = entry.before.as_ref().map(account);
            if entry.wiped || entry.now.as_ref().map(account) != before {
                let write = AccountWrite::Set {
                    before,
                    now: entry.now,
                    wiped: entry.wiped,
                };
                writes.accounts.push((address, write));
            }
        }
        writes.codes.extend(self.codes.drain());
        writes
    }

    /// The difference to the parent's state, and the codes of created contracts, by hash.
    pub(crate) fn finish(self) -> (Changes, Vec<(B256, Bytes)>) {
        let changes = self.accounts.iter();
        let changes = changes.filter_map(|(address, entry)| {
            let change = entry.change(self.mode.wipes)?;
            Some((*address, change))
        });
        let changes = Changes::new(with_paths(changes.collect()));
        let mut codes: Vec<_> = self
            .codes
            .into_iter()
            .map(|(hash, code)| (hash, code.original_bytes()))
            .collect();
        codes.sort_unstable_by_key(|(hash, _)| *hash);
        (changes, codes)
    }
}

impl Entry {
    /// An account of the state below.
    fn found(account: Option<AccountInfo>) -> Self {
        Self {
            before: account.clone(),
            now: account,
            wiped: false,
            observed: false,
            slots: U256Map::default(),
        }
    }

    /// Adds the writes of a transaction that touched this account, which it read as `self`. Returns
    /// whether they are additions.
    fn add_writes(
        &self,
        address: Address,
        touched: TouchedAccount,
        is_sender: bool,
        writes: &mut Writes,
    ) -> bool {
        let before = self.now.as_ref().map(account);
        if is_gone(&touched) {
            if before.is_none() {
                return true;
            }
            let write = AccountWrite::Set {
                before,
                now: None,
                wiped: true,
            };
            writes.accounts.push((address, write));
            return false;
        }
        let created = touched.is_created();
        let now = account(&touched.info);
        for (slot, value) in &touched.storage {
            let before = match created {
                true => U256::ZERO,
                false => value.original_value,
            };
            if value.present_value != before {
                writes.slots.push(SlotWrite {
                    address,
                    slot: *slot,
                    before,
                    now: value.present_value,
                    created,
                });
            }
        }
        if !created && before == Some(now) {
            return true;
        }
        let found = before.unwrap_or_default();
        let nonce = now.nonce.wrapping_sub(found.nonce);
        let is_plain = !created
            && !self.observed
            && now.code_hash == found.code_hash
            && nonce == u64::from(is_sender)
            && (is_sender || now.balance >= found.balance);
        let balance = difference(found.balance, now.balance).filter(|_| is_plain);
        if let Some(balance) = balance {
            let write = AccountWrite::Add { balance, nonce };
            writes.accounts.push((address, write));
            return true;
        }
        if found.code_hash != now.code_hash
            && let Some(code) = touched.info.code.as_ref().filter(|code| !code.is_empty())
        {
            writes.codes.push((now.code_hash, code.clone()));
        }
        let write = AccountWrite::Set {
            before,
            now: Some(touched.info),
            wiped: created,
        };
        writes.accounts.push((address, write));
        false
    }

    /// The value of a slot, unless it must be read from the state below.
    fn known(&self, slot: U256) -> Option<U256> {
        match self.slots.get(&slot) {
            Some(slot) => Some(slot.now),
            None => (self.wiped || self.now.is_none()).then_some(U256::ZERO),
        }
    }

    /// The account as it is now; the default account if it does not exist.
    fn account(&self) -> Account {
        self.now.as_ref().map_or_else(Account::default, account)
    }

    fn delete(&mut self) {
        self.now = None;
        self.wiped = true;
        self.slots.clear();
    }

    /// The difference to the parent, if there is one.
    fn change(&self, wipes: bool) -> Option<EntryChange> {
        let now = self.now.as_ref().map(account);
        let before = self.before.as_ref().map(account);
        let mut change = EntryChange::of_fields(before, now, self.wiped, wipes)?;
        if change.account == AccountUpdate::Delete {
            return Some(change);
        }
        let slots = self.slots.iter();
        let slots = slots.filter(|(_, slot)| match change.wipe {
            true => !slot.now.is_zero(),
            false => slot.now != slot.before,
        });
        change.slots = slots.map(|(key, slot)| (*key, slot.now)).collect();
        change.is_change().then_some(change)
    }
}

/// An [`AccountDiff`] before hashing, with slots by number.
pub(crate) struct EntryChange {
    pub(crate) account: AccountUpdate,
    pub(crate) wipe: bool,
    pub(crate) slots: Vec<(U256, U256)>,
}

impl EntryChange {
    /// The change of an account's fields, without slots: `Keep` if they are the same. `None` if the
    /// account existed neither before nor after. `wiped`: whether the block deleted the storage that
    /// the account had before; `wipes` as in [`OverlayMode`].
    pub(crate) fn of_fields(
        before: Option<Account>,
        now: Option<Account>,
        wiped: bool,
        wipes: bool,
    ) -> Option<Self> {
        let Some(now) = now else {
            return before.map(|_| Self::deletion());
        };
        // A contract is created only where there is no storage (EIP-7610).
        let wipe = wiped && before.is_some_and(|before| wipes || before.is_empty());
        let account = match before == Some(now) {
            true => AccountUpdate::Keep,
            false => AccountUpdate::Put(now),
        };
        Some(Self {
            account,
            wipe,
            slots: Vec::new(),
        })
    }

    /// Whether the account, its storage or a slot differs from the parent's state.
    pub(crate) fn is_change(&self) -> bool {
        self.account != AccountUpdate::Keep || self.wipe || !self.slots.is_empty()
    }

    /// The deletion of an account.
    pub(crate) const fn deletion() -> Self {
        Self {
            account: AccountUpdate::Delete,
            wipe: true,
            slots: Vec::new(),
        }
    }
}

/// Converts changes to changes by path, hashing all keys in one batch.
pub(crate) fn with_paths(changes: Vec<(Address, EntryChange)>) -> Vec<AccountDiff> {
    let paths = keccak256_each(changes.iter().map(|(address, _)| address));
    let slots = changes.iter().flat_map(|(_, change)| &change.slots);
    let slots = keccak256_each(slots.map(|(slot, _)| slot.to_be_bytes::<32>()));
    let mut slots = slots.into_iter();
    let with_path = |((_, change), path): ((_, EntryChange), _)| {
        let values = change.slots.into_iter().map(|(_, value)| value);
        AccountDiff {
            path,
            account: change.account,
            wipe: change.wipe,
            // The values come first: their number decides how many paths are taken.
            slots: values
                .zip(&mut slots)
                .map(|(value, slot)| (slot, value))
                .collect(),
        }
    };
    changes.into_iter().zip(paths).map(with_path).collect()
}

/// Whether an account that a transaction touched no longer exists: destroyed, or empty (EIP-161).
pub(crate) fn is_gone(touched: &TouchedAccount) -> bool {
    touched.is_selfdestructed() || touched.is_empty() && !touched.is_created()
}

/// The state after a transaction whose writes are not applied.
struct After<'a> {
    before: &'a AddressMap<Entry>,
    state: &'a EvmState,
}

impl After<'_> {
    fn written(&self, address: &Address) -> Option<&TouchedAccount> {
        let written = self.state.get(address);
        written.filter(|written| written.is_touched())
    }
}

impl Left for After<'_> {
    fn account(&self, address: &Address) -> Account {
        match self.written(address) {
            Some(written) if is_gone(written) => Account::default(),
            Some(written) => account(&written.info),
            None => self.before.account(address),
        }
    }

    fn code(&self, account: &Account) -> Bytes {
        let written = self.state.values().map(|written| &written.info);
        let mut same = written.filter(|info| info.code_hash == account.code_hash);
        same.find_map(|info| info.code.as_ref().filter(|code| !code.is_empty()))
            .map_or_else(Bytes::new, Bytecode::original_bytes)
    }

    fn slot(&self, address: &Address, slot: &U256) -> U256 {
        match self.written(address) {
            Some(written) if is_gone(written) => U256::ZERO,
            Some(written) => {
                let slot = written.storage.get(slot);
                slot.map_or(U256::ZERO, |slot| slot.present_value)
            }
            None => self.before.slot(address, slot),
        }
    }
}

/// Values of accounts that were touched.
trait Values {
    fn account(&self, address: &Address) -> Account;
    fn slot(&self, address: &Address, slot: &U256) -> U256;
}

impl Values for AddressMap<Entry> {
    fn account(&self, address: &Address) -> Account {
        self.get(address)
            .map_or_else(Account::default, Entry::account)
    }

    fn slot(&self, address: &Address, slot: &U256) -> U256 {
        let slot = self.get(address).and_then(|entry| entry.slots.get(slot));
        slot.map_or(U256::ZERO, |slot| slot.now)
    }
}

impl<DB> Left for Overlay<DB> {
    fn account(&self, address: &Address) -> Account {
        self.accounts.account(address)
    }

    fn code(&self, account: &Account) -> Bytes {
        self.codes
            .get(&account.code_hash)
            .map_or_else(Bytes::new, Bytecode::original_bytes)
    }

    fn slot(&self, address: &Address, slot: &U256) -> U256 {
        self.accounts.slot(address, slot)
    }
}

impl<DB: StateRead> ObserveBalance for Overlay<DB> {
    fn observe_balance(&mut self, address: Address) {
        if let Some(entry) = self.accounts.get_mut(&address) {
            entry.observed = true;
        }
    }
}

impl<DB: StateRead> Database for Overlay<DB> {
    type Error = DB::Error;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, DB::Error> {
        let mut info = self.entry(address)?.now.clone();
        if self.feigned == Some(address) {
            info.get_or_insert_default().nonce = 1;
        }
        Ok(info)
    }

    fn code_by_hash(&mut self, hash: B256) -> Result<Bytecode, DB::Error> {
        if let Some(code) = self.codes.get(&hash) {
            return Ok(code.clone());
        }
        match self.loaded.entry(hash) {
            MapEntry::Occupied(code) => Ok(code.get().clone()),
            MapEntry::Vacant(entry) => Ok(entry.insert(self.db.code_by_hash_ref(hash)?).clone()),
        }
    }

    fn storage(&mut self, address: Address, key: U256) -> Result<U256, DB::Error> {
        if let Some(value) = self.entry(address)?.known(key) {
            return Ok(value);
        }
        let value = self.db.storage_ref(address, key)?;
        if let Some(entry) = self.accounts.get_mut(&address) {
            entry.slots.insert(key, Slot::found(value));
        }
        Ok(value)
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, DB::Error> {
        self.db.block_hash_ref(number)
    }
}
