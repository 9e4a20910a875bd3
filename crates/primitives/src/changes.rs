//! State changes of blocks: sorted, unique and keyed by path.

use crate::{
    Account, EntryValue, SlotValue,
    account::uint,
    codec::{DecodeError, Reader, put_varint},
};
use alloc::vec::Vec;
use alloy_primitives::{B256, U256};

/// Change of the fields of an account, without its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum AccountUpdate {
    /// The fields do not change.
    Keep,
    /// The account is created, or its fields are replaced.
    Put(Account),
    /// The entry of a key-value database is created, or its value is replaced. Entries have no
    /// slots, and no database has both accounts and entries.
    Entry(EntryValue),
    /// The account is deleted with all of its slots, or the entry is deleted.
    Delete,
}

/// State change of one account, or of one entry of a key-value database.
///
/// The parts apply in the order `account`, `wipe`, `slots`. A deletion implies the wipe and has no
/// slots.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AccountDiff {
    /// Path of the account, `keccak(address)`, or the key of the entry.
    pub path: B256,
    /// Change of nonce, balance and code, or of the entry's value.
    pub account: AccountUpdate,
    /// Whether all previous slots are removed.
    pub wipe: bool,
    /// New values of slots by `keccak(slot)`, sorted and unique. Zero removes a slot.
    #[cfg_attr(feature = "serde", serde(with = "crate::json::slots"))]
    pub slots: Vec<(B256, U256)>,
}

/// State changes of one or several blocks, sorted by account path and unique.
///
/// Applying them to the pre-state produces the post-state. Reverts have the same type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Changes {
    accounts: Vec<AccountDiff>,
}

/// Bits of the first byte of an encoded account change.
const PUT: u8 = 1;
const DELETE: u8 = 2;
const WIPE: u8 = 4;
const ENTRY: u8 = 8;

/// Error of [`Changes::try_new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangesError {
    /// Two changes are of the same account.
    #[error("two changes of the account at {0}")]
    AccountTwice(B256),
    /// A change has two values for a slot.
    #[error("two values for the slot {slot} of the account at {account}")]
    SlotTwice {
        /// Path of the account, `keccak(address)`.
        account: B256,
        /// Path of the slot in the storage, `keccak(slot)`.
        slot: B256,
    },
    /// A deleted account has new values of slots.
    #[error("the account at {0} is deleted, and is given slots")]
    SlotsOfDeleted(B256),
    /// An entry of a key-value database has slots or a wipe.
    #[error("the entry at {0} is given slots")]
    SlotsOfEntry(B256),
}

impl Changes {
    /// Creates a change set from changes in any order, which the caller knows to be unique.
    ///
    /// # Panics
    ///
    /// Panics if [`Changes::try_new`] returns an error.
    pub fn new(accounts: Vec<AccountDiff>) -> Self {
        Self::try_new(accounts).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates a change set from changes in any order. Sets the wipe of deletions.
    ///
    /// # Errors
    ///
    /// Returns an error if an account or a slot occurs twice, or if a deleted account or an entry
    /// has slots.
    pub fn try_new(mut accounts: Vec<AccountDiff>) -> Result<Self, ChangesError> {
        accounts.sort_unstable_by_key(|change| change.path);
        for change in &mut accounts {
            change.slots.sort_unstable_by_key(|(slot, _)| *slot);
            if change.account == AccountUpdate::Delete {
                change.wipe = true;
            }
        }
        if let Some(twice) = accounts.windows(2).find(|two| two[0].path == two[1].path) {
            return Err(ChangesError::AccountTwice(twice[0].path));
        }
        for AccountDiff {
            path: account,
            account: update,
            wipe,
            slots,
        } in &accounts
        {
            if let Some(twice) = slots.windows(2).find(|two| two[0].0 == two[1].0) {
                let (account, slot) = (*account, twice[0].0);
                return Err(ChangesError::SlotTwice { account, slot });
            }
            if *update == AccountUpdate::Delete && !slots.is_empty() {
                return Err(ChangesError::SlotsOfDeleted(*account));
            }
            if matches!(update, AccountUpdate::Entry(_)) && (*wipe || !slots.is_empty()) {
                return Err(ChangesError::SlotsOfEntry(*account));
            }
        }
        Ok(Self { accounts })
    }

    /// Checks that changes are in the order of the encoding.
    fn check(&self) -> Result<(), &'static str> {
        if !self.accounts.is_sorted_by(|a, b| a.path < b.path) {
            return Err("accounts of a change set are not sorted and unique");
        }
        for change in &self.accounts {
            if !change.slots.is_sorted_by(|a, b| a.0 < b.0) {
                return Err("slots of a change set are not sorted and unique");
            }
            if change.account == AccountUpdate::Delete && !change.slots.is_empty() {
                return Err("a deleted account has slots");
            }
            let is_entry = matches!(change.account, AccountUpdate::Entry(_));
            if is_entry && (change.wipe || !change.slots.is_empty()) {
                return Err("an entry has slots");
            }
        }
        Ok(())
    }

    /// Returns the changes, sorted by account path.
    pub fn accounts(&self) -> &[AccountDiff] {
        &self.accounts
    }

    /// Returns the changes, sorted by account path.
    pub fn into_accounts(self) -> Vec<AccountDiff> {
        self.accounts
    }

    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Returns the number of accounts and the number of slots.
    pub fn counts(&self) -> (usize, usize) {
        (
            self.accounts.len(),
            self.accounts.iter().map(|change| change.slots.len()).sum(),
        )
    }

    /// Returns the size of the entries' values that are part of their leaves, in bytes.
    pub fn value_bytes(&self) -> usize {
        let values = self.accounts.iter().map(|change| match &change.account {
            AccountUpdate::Entry(EntryValue::Inline(bytes)) => bytes.len(),
            _ => 0,
        });
        values.sum()
    }

    /// Returns the change of the account at `path`, if there is one.
    pub fn account(&self, path: &B256) -> Option<&AccountDiff> {
        let at = self
            .accounts
            .binary_search_by_key(path, |change| change.path)
            .ok()?;
        Some(&self.accounts[at])
    }

    /// Returns the combined effect of these changes followed by `later`.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let mut merged = Vec::with_capacity(self.accounts.len() + later.accounts.len());
        let mut old = self.accounts.into_iter().peekable();
        for new in later.accounts {
            while let Some(before) = old.next_if(|before| before.path < new.path) {
                merged.push(before);
            }
            match old.next_if(|before| before.path == new.path) {
                Some(before) => merged.push(merge_account(before, new)),
                None => merged.push(new),
            }
        }
        merged.extend(old);
        Self { accounts: merged }
    }

    /// Encodes the changes.
    ///
    /// | size | meaning |
    /// |---|---|
    /// | 1-10 | number of accounts, LEB128 |
    /// | each account: 32 | path |
    /// | 1 | bit 0: put, bit 1: delete, bit 2: wipe, bit 3: entry |
    /// | | compact account, if put |
    /// | 1-10 | length L of the encoded value, LEB128, if entry |
    /// | L | value, as [`EntryValue::encode_to`] encodes it |
    /// | 1-10 | number of slots, LEB128 |
    /// | each slot: 32 | path |
    /// | 1 | length L of the value |
    /// | L | value, big-endian, no leading zero |
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.accounts.len() * 56);
        put_varint(&mut out, self.accounts.len() as u64);
        for change in &self.accounts {
            out.extend_from_slice(change.path.as_slice());
            let wipe = if change.wipe { WIPE } else { 0 };
            match &change.account {
                AccountUpdate::Keep => out.push(wipe),
                AccountUpdate::Delete => out.push(wipe | DELETE),
                AccountUpdate::Put(account) => {
                    out.push(wipe | PUT);
                    account.encode_to(&mut out);
                }
                AccountUpdate::Entry(value) => {
                    out.push(wipe | ENTRY);
                    put_varint(&mut out, value.encoded_len() as u64);
                    value.encode_to(&mut out);
                }
            }
            put_varint(&mut out, change.slots.len() as u64);
            for (slot, value) in &change.slots {
                out.extend_from_slice(slot.as_slice());
                let value = SlotValue::new(*value);
                out.push(value.as_bytes().len() as u8);
                out.extend_from_slice(value.as_bytes());
            }
        }
        out
    }

    /// Decodes changes from exactly `bytes`.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not a canonical encoding.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let count = reader.count(34)?;
        let mut accounts = Vec::with_capacity(count);
        for _ in 0..count {
            accounts.push(decode_account(&mut reader)?);
        }
        reader.finish()?;
        let changes = Self { accounts };
        changes.check().map_err(|what| reader.error(what))?;
        Ok(changes)
    }
}

fn decode_account(reader: &mut Reader<'_>) -> Result<AccountDiff, DecodeError> {
    let path = reader.b256()?;
    let head = reader.u8()?;
    let account = match head & !WIPE {
        0 => AccountUpdate::Keep,
        PUT => AccountUpdate::Put(Account::decode_from(reader)?),
        DELETE => AccountUpdate::Delete,
        ENTRY => {
            let len = reader.count(1)?;
            let value = EntryValue::decode(reader.take(len)?);
            AccountUpdate::Entry(value.map_err(|error| reader.error(error.what))?)
        }
        _ => return Err(reader.error("unknown kind of account change")),
    };
    let wipe = head & WIPE != 0;
    if account == AccountUpdate::Delete && !wipe {
        return Err(reader.error("a deletion without a wipe"));
    }
    let count = reader.count(33)?;
    let mut slots = Vec::with_capacity(count);
    for _ in 0..count {
        let slot = reader.b256()?;
        let len = reader.u8()?;
        slots.push((slot, uint(reader, usize::from(len))?));
    }
    Ok(AccountDiff {
        path,
        account,
        wipe,
        slots,
    })
}

fn merge_account(old: AccountDiff, new: AccountDiff) -> AccountDiff {
    let account = match new.account {
        AccountUpdate::Keep => old.account,
        update => update,
    };
    // A deleted account has no slots, even if the later changes set some.
    if account == AccountUpdate::Delete {
        return AccountDiff {
            path: new.path,
            account,
            wipe: true,
            slots: Vec::new(),
        };
    }
    if matches!(account, AccountUpdate::Entry(_)) {
        return AccountDiff {
            path: new.path,
            account,
            wipe: false,
            slots: Vec::new(),
        };
    }
    if new.wipe {
        return AccountDiff {
            account,
            wipe: true,
            ..new
        };
    }
    let mut slots = Vec::with_capacity(old.slots.len() + new.slots.len());
    let mut before = old.slots.into_iter().peekable();
    for slot in new.slots {
        while let Some(kept) = before.next_if(|kept| kept.0 < slot.0) {
            slots.push(kept);
        }
        before.next_if(|kept| kept.0 == slot.0);
        slots.push(slot);
    }
    slots.extend(before);
    AccountDiff {
        path: new.path,
        account,
        wipe: old.wipe,
        slots,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    type Model = BTreeMap<u8, (u64, BTreeMap<u8, u64>)>;

    /// A change set over at most four accounts with at most four slots each.
    fn changes() -> impl Strategy<Value = Changes> {
        let slots = proptest::collection::btree_map(0u8..4, 0u64..3, 0..4);
        let change = (0u8..4, any::<bool>(), slots);
        proptest::collection::btree_map(0u8..4, change, 0..4).prop_map(|accounts| {
            let list = accounts.into_iter().map(|(path, (kind, wipe, slots))| {
                let account = match kind {
                    0 => AccountUpdate::Delete,
                    nonce => AccountUpdate::Put(Account {
                        nonce: nonce.into(),
                        ..Default::default()
                    }),
                };
                let slots = match account {
                    AccountUpdate::Delete => Vec::new(),
                    _ => slots
                        .iter()
                        .map(|(s, v)| (B256::repeat_byte(*s), U256::from(*v)))
                        .collect(),
                };
                AccountDiff {
                    path: B256::repeat_byte(path),
                    account,
                    wipe,
                    slots,
                }
            });
            Changes::new(list.collect())
        })
    }

    fn apply(model: &mut Model, changes: &Changes) {
        for change in changes.accounts() {
            let key = change.path[0];
            match change.account {
                AccountUpdate::Delete => {
                    model.remove(&key);
                    continue;
                }
                AccountUpdate::Put(account) => model.entry(key).or_default().0 = account.nonce,
                AccountUpdate::Keep | AccountUpdate::Entry(_) => {}
            }
            let slots = &mut model.entry(key).or_default().1;
            if change.wipe {
                slots.clear();
            }
            for (slot, value) in &change.slots {
                match value.to::<u64>() {
                    0 => slots.remove(&slot[0]),
                    value => slots.insert(slot[0], value),
                };
            }
        }
    }

    proptest! {
        #[test]
        fn two_change_sets_as_one_do_what_both_do(a in changes(), b in changes(), c in changes()) {
            let (mut apart, mut together) = (Model::new(), Model::new());
            for set in [&a, &b, &c] {
                apply(&mut apart, set);
            }
            apply(&mut together, &a);
            apply(&mut together, &b.then(c));
            prop_assert_eq!(apart, together);
        }

        #[test]
        fn encoding_is_exact_and_every_cut_is_refused(changes in changes()) {
            let bytes = changes.encode();
            prop_assert_eq!(Changes::decode(&bytes).unwrap(), changes);
            for end in 0..bytes.len() {
                prop_assert!(Changes::decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Changes::decode(&bytes);
            let _ = Account::decode(&bytes);
        }
    }

    #[test]
    fn entries_are_encoded_and_merged_like_accounts() {
        let put = |key, value: &[u8]| AccountDiff {
            path: B256::repeat_byte(key),
            account: AccountUpdate::Entry(EntryValue::Inline(value.to_vec().into())),
            wipe: false,
            slots: vec![],
        };
        let delete = |key| AccountDiff {
            account: AccountUpdate::Delete,
            wipe: true,
            ..put(key, b"")
        };
        let first = Changes::new(vec![put(1, b"one"), put(2, b""), delete(3)]);
        let bytes = first.encode();
        assert_eq!(Changes::decode(&bytes).as_ref(), Ok(&first));
        for end in 0..bytes.len() {
            assert!(Changes::decode(&bytes[..end]).is_err());
        }
        let second = Changes::new(vec![delete(1), put(2, b"two"), put(3, b"three")]);
        assert_eq!(first.clone().then(second.clone()).encode(), {
            // After a deletion an entry is put without a wipe: it has nothing to be wiped.
            second.encode()
        });
        let mut with_slots = put(1, b"x");
        with_slots.slots = vec![(B256::ZERO, U256::from(1))];
        let refused = Err(ChangesError::SlotsOfEntry(B256::repeat_byte(1)));
        assert_eq!(Changes::try_new(vec![with_slots]), refused);
    }

    #[test]
    fn what_makes_no_change_set_is_refused_by_name() {
        let [a, b] = [1, 2].map(B256::repeat_byte);
        let change = |path, account, slots: &[B256]| AccountDiff {
            path,
            account,
            wipe: false,
            slots: slots.iter().map(|slot| (*slot, U256::from(1))).collect(),
        };
        let keep = || AccountUpdate::Keep;
        let twice = vec![
            change(a, keep(), &[]),
            change(b, keep(), &[]),
            change(a, keep(), &[b]),
        ];
        assert_eq!(Changes::try_new(twice), Err(ChangesError::AccountTwice(a)));
        let twice = vec![change(b, keep(), &[b, a, b])];
        let expected = ChangesError::SlotTwice {
            account: b,
            slot: b,
        };
        assert_eq!(Changes::try_new(twice), Err(expected));
        let deleted = vec![change(a, AccountUpdate::Delete, &[b])];
        assert_eq!(
            Changes::try_new(deleted),
            Err(ChangesError::SlotsOfDeleted(a))
        );
        let fine = vec![
            change(b, keep(), &[b, a]),
            change(a, AccountUpdate::Delete, &[]),
        ];
        let fine = Changes::try_new(fine).unwrap();
        assert_eq!(
            (fine.accounts()[0].path, fine.accounts()[0].wipe),
            (a, true)
        );
        assert_eq!(fine.accounts()[1].slots[0].0, a);
    }

    #[test]
    fn a_deletion_and_slots_after_it_are_a_deletion() {
        let change = |account, wipe, slots| AccountDiff {
            path: B256::ZERO,
            account,
            wipe,
            slots,
        };
        let deleted = Changes::new(vec![change(AccountUpdate::Delete, true, vec![])]);
        for wipe in [false, true] {
            let slots = vec![(B256::ZERO, U256::from(1))];
            let later = Changes::new(vec![change(AccountUpdate::Keep, wipe, slots)]);
            let both = deleted.clone().then(later);
            assert_eq!(both, deleted);
            assert_eq!(Changes::decode(&both.encode()), Ok(both));
        }
    }

    #[test]
    fn an_account_survives_its_compact_form() {
        for nonce in [0, 127, 128, u64::MAX] {
            for balance in [U256::ZERO, U256::from(255), U256::MAX] {
                for code_hash in [alloy_primitives::KECCAK256_EMPTY, B256::repeat_byte(9)] {
                    let account = Account {
                        nonce,
                        balance,
                        code_hash,
                    };
                    let mut bytes = Vec::new();
                    account.encode_to(&mut bytes);
                    assert_eq!(Account::decode(&bytes), Ok(account));
                }
            }
        }
    }
}
