//! Expectations of access lists: the state changes that they imply, and lists that are false.

use crate::Model;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{
    AccessList, AccessListLimits, Account, AccountChanges, AccountDiff, AccountUpdate,
    BalanceChange, BlockAccessIndex, Changes, CodeChange, NonceChange, SlotChanges, StorageChange,
};

/// Returns the state changes that a block's access list implies in the state `before` it: the last
/// value of each changed field. Accounts that end empty are deleted (EIP-161).
pub fn changes_of_list(list: &AccessList, before: &Model) -> Changes {
    let changes = list.accounts().iter().filter_map(|listed| {
        let path = keccak256(listed.address);
        let old = before.account(&path).map(|account| account.account);
        let mut account = old.unwrap_or_default();
        if let Some(last) = listed.balance_changes.last() {
            account.balance = last.post_balance;
        }
        if let Some(last) = listed.nonce_changes.last() {
            account.nonce = last.new_nonce;
        }
        if let Some(last) = listed.code_changes.last() {
            account.code_hash = keccak256(&last.new_code);
        }
        let slots = listed.storage_changes.iter();
        let slots: Vec<_> = slots
            .map(|changed| {
                let slot = keccak256(changed.slot.to_be_bytes::<32>());
                let last = changed.changes.last().expect("a changed slot has a change");
                (slot, last.new_value)
            })
            .collect();
        change(path, old, account, slots)
    });
    Changes::new(changes.collect())
}

fn change(
    path: B256,
    old: Option<Account>,
    new: Account,
    slots: Vec<(B256, U256)>,
) -> Option<AccountDiff> {
    let is_gone = new.is_empty();
    let account = match (old, is_gone) {
        (None, true) => return None,
        (Some(_), true) => AccountUpdate::Delete,
        (old, false) if old == Some(new) => AccountUpdate::Keep,
        (_, false) => AccountUpdate::Put(new),
    };
    if account == AccountUpdate::Keep && slots.is_empty() {
        return None;
    }
    Some(AccountDiff {
        path,
        account,
        wipe: is_gone,
        slots: if is_gone { Vec::new() } else { slots },
    })
}

/// A false access list of a block.
#[derive(Clone, Debug)]
pub struct FalseList {
    /// Change to the true list.
    pub fault: &'static str,
    /// Its RLP.
    pub rlp: Vec<u8>,
    /// Expected error message.
    pub message: String,
}

/// Returns false lists of every kind that can be derived from the true list. `limits` are those of
/// the block.
pub fn false_lists(list: &AccessList, limits: &AccessListLimits) -> Vec<FalseList> {
    let maker = Maker { list, limits };
    let all = [
        maker.accounts(),
        maker.order(),
        maker.slots_read(),
        maker.slots_changed(),
        maker.fields(),
        maker.bounds(),
    ];
    all.into_iter().flatten().collect()
}

struct Maker<'a> {
    list: &'a AccessList,
    limits: &'a AccessListLimits,
}

fn index(index: u64) -> BlockAccessIndex {
    BlockAccessIndex(index)
}

impl Maker<'_> {
    /// Returns the false list that `change` makes of the true one, and the message it is rejected
    /// with.
    fn make(
        &self,
        fault: &'static str,
        message: impl Into<String>,
        change: impl FnOnce(&mut Vec<AccountChanges>),
    ) -> FalseList {
        let mut accounts = self.list.accounts().to_vec();
        change(&mut accounts);
        let mut rlp = Vec::new();
        alloy_rlp::encode_list(&accounts, &mut rlp);
        FalseList {
            fault,
            rlp,
            message: message.into(),
        }
    }

    /// Returns the first account for which `is` returns true, with its index.
    fn find(&self, is: impl Fn(&AccountChanges) -> bool) -> Option<(usize, &AccountChanges)> {
        let at = self.list.accounts().iter().position(is)?;
        Some((at, &self.list.accounts()[at]))
    }

    fn accounts(&self) -> Vec<FalseList> {
        let accounts = self.list.accounts();
        let mut made = Vec::new();
        let (first, last) = (0, accounts.len() - 1);
        for at in [first, last / 2, last] {
            let address = accounts[at].address;
            made.push(self.make(
                "missing account",
                format!("access list: account {address} is not listed, but touched by execution"),
                |accounts| {
                    accounts.remove(at);
                },
            ));
        }
        let surplus = Address::repeat_byte(0x5a);
        made.push(self.make(
            "surplus account",
            format!("access list: account {surplus} is listed, but not touched by execution"),
            |accounts| {
                let at = accounts.partition_point(|account| account.address < surplus);
                accounts.insert(at, AccountChanges::new(surplus));
            },
        ));
        made
    }

    fn order(&self) -> Vec<FalseList> {
        let accounts = self.list.accounts();
        let (one, two) = (accounts[0].address, accounts[1].address);
        let mut made = vec![
            self.make(
                "accounts in wrong order",
                format!("access list: account {one} is listed after {two}, but goes before it"),
                |accounts| accounts.swap(0, 1),
            ),
            self.make(
                "an account twice",
                format!("access list: account {one} is listed twice"),
                |accounts| accounts.insert(1, accounts[0].clone()),
            ),
        ];
        if let Some((at, account)) = self.find(|account| account.storage_reads.len() > 1) {
            let (address, slots) = (account.address, &account.storage_reads);
            let (one, two) = (slots[0], slots[1]);
            made.push(self.make(
                "slots read in wrong order",
                format!(
                    "access list: account {address}: slot {one:#x} is listed after {two:#x}, \
                     but goes before it"
                ),
                |accounts| accounts[at].storage_reads.swap(0, 1),
            ));
        }
        if let Some((at, account)) = self.find(|account| account.balance_changes.len() > 1) {
            let (address, changes) = (account.address, &account.balance_changes);
            let (one, two) = (changes[0].block_access_index, changes[1].block_access_index);
            made.push(self.make(
                "changes in wrong order",
                format!(
                    "access list: account {address}: balance changes at index {two}, \
                     and after that at {one}"
                ),
                |accounts| accounts[at].balance_changes.swap(0, 1),
            ));
        }
        made
    }

    fn slots_read(&self) -> Vec<FalseList> {
        let mut made = Vec::new();
        if let Some((at, account)) = self.find(|account| !account.storage_reads.is_empty()) {
            let (address, slot) = (account.address, account.storage_reads[0]);
            made.push(self.make(
                "missing slot",
                format!(
                    "access list: account {address}: slot {slot:#x} is not listed, \
                     but read by execution"
                ),
                |accounts| {
                    accounts[at].storage_reads.remove(0);
                },
            ));
            made.push(self.make(
                "a slot read listed as changed",
                format!(
                    "access list: account {address}: slot {slot:#x} at index 1 is 0x7 in the \
                     list, not changed by execution"
                ),
                |accounts| {
                    let account = &mut accounts[at];
                    account.storage_reads.remove(0);
                    insert_change(account, slot, StorageChange::new(index(1), U256::from(7)));
                },
            ));
        }
        let (at, account) = (0, &self.list.accounts()[0]);
        let (address, slot) = (account.address, U256::from(0x5a5a5a));
        made.push(self.make(
            "surplus slot",
            format!(
                "access list: account {address}: slot {slot:#x} is listed, \
                 but not read by execution"
            ),
            |accounts| {
                let reads = &mut accounts[at].storage_reads;
                reads.insert(reads.partition_point(|read| *read < slot), slot);
            },
        ));
        made
    }

    fn slots_changed(&self) -> Vec<FalseList> {
        let Some((at, account)) = self.find(|account| !account.storage_changes.is_empty()) else {
            return Vec::new();
        };
        let (address, slot) = (account.address, account.storage_changes[0].slot);
        let change = &account.storage_changes[0].changes[0];
        let (first, value) = (change.block_access_index, change.new_value);
        let place = format!("access list: account {address}: slot {slot:#x} at index {first}");
        let not_listed = format!("{place} is not changed in the list, {value:#x} by execution");
        let wrong = value.wrapping_add(U256::ONE);
        let mut made = vec![
            self.make("missing changed slot", not_listed.clone(), |accounts| {
                accounts[at].storage_changes.remove(0);
            }),
            self.make("a changed slot listed as read", not_listed, |accounts| {
                let account = &mut accounts[at];
                account.storage_changes.remove(0);
                let reads = &mut account.storage_reads;
                reads.insert(reads.partition_point(|read| *read < slot), slot);
            }),
            self.make(
                "wrong value of a slot",
                format!("{place} is {wrong:#x} in the list, {value:#x} by execution"),
                |accounts| accounts[at].storage_changes[0].changes[0].new_value = wrong,
            ),
            self.make(
                "a slot twice",
                format!(
                    "access list: account {address}: slot {slot:#x} is listed as read \
                     and as changed"
                ),
                |accounts| {
                    let reads = &mut accounts[at].storage_reads;
                    reads.insert(reads.partition_point(|read| *read < slot), slot);
                },
            ),
            self.make(
                "a changed slot without a change",
                format!(
                    "access list: account {address}: slot {slot:#x} is listed as changed, \
                     without a change"
                ),
                |accounts| accounts[at].storage_changes[0].changes.clear(),
            ),
        ];
        // An untouched slot, sorted before or after all slots of the account.
        let surplus = U256::from(0x5a5a5a);
        made.push(self.make(
            "surplus changed slot",
            format!(
                "access list: account {address}: slot {surplus:#x} at index 2 is 0x9 in the list, \
                 not changed by execution"
            ),
            |accounts| {
                let change = StorageChange::new(index(2), U256::from(9));
                insert_change(&mut accounts[at], surplus, change);
            },
        ));
        made
    }

    fn fields(&self) -> Vec<FalseList> {
        let mut made = Vec::new();
        if let Some((at, account)) = self.find(|account| !account.balance_changes.is_empty()) {
            let address = account.address;
            let change = &account.balance_changes[0];
            let (first, balance) = (change.block_access_index, change.post_balance);
            let place = format!("access list: account {address}: balance at index {first}");
            let wrong = balance + U256::ONE;
            made.push(self.make(
                "wrong balance",
                format!("{place} is {wrong} wei in the list, {balance} wei by execution"),
                |accounts| accounts[at].balance_changes[0].post_balance = wrong,
            ));
            made.push(self.make(
                "missing balance",
                format!("{place} is not changed in the list, {balance} wei by execution"),
                |accounts| {
                    accounts[at].balance_changes.remove(0);
                },
            ));
        }
        if let Some((at, account)) = self.find(|account| account.balance_changes.is_empty()) {
            let address = account.address;
            made.push(self.make(
                "surplus balance",
                format!(
                    "access list: account {address}: balance at index 1 is 5 wei in the list, \
                     not changed by execution"
                ),
                |accounts| {
                    let change = BalanceChange::new(index(1), U256::from(5));
                    accounts[at].balance_changes.push(change);
                },
            ));
        }
        if let Some((at, account)) = self.find(|account| !account.nonce_changes.is_empty()) {
            let (address, change) = (account.address, &account.nonce_changes[0]);
            let (first, nonce) = (change.block_access_index, change.new_nonce);
            made.push(self.make(
                "wrong nonce",
                format!(
                    "access list: account {address}: nonce at index {first} is {} in the list, \
                     {nonce} by execution",
                    nonce + 1
                ),
                |accounts| accounts[at].nonce_changes[0].new_nonce += 1,
            ));
        }
        made.extend(self.codes());
        made
    }

    fn codes(&self) -> Vec<FalseList> {
        let wrong = Bytes::from_static(&[0x5b; 3]);
        let said = format!("3 bytes of hash {}", keccak256(&wrong));
        if let Some((at, account)) = self.find(|account| !account.code_changes.is_empty()) {
            let (address, change) = (account.address, &account.code_changes[0]);
            let (first, code) = (change.block_access_index, &change.new_code);
            let (bytes, hash) = (code.len(), keccak256(code));
            return vec![self.make(
                "wrong code",
                format!(
                    "access list: account {address}: code at index {first} is {said} in the \
                     list, {bytes} bytes of hash {hash} by execution"
                ),
                |accounts| accounts[at].code_changes[0].new_code = wrong,
            )];
        }
        let address = self.list.accounts()[0].address;
        vec![self.make(
            "surplus code",
            format!(
                "access list: account {address}: code at index 1 is {said} in the list, \
                 not changed by execution"
            ),
            |accounts| {
                accounts[0]
                    .code_changes
                    .push(CodeChange::new(index(1), wrong))
            },
        )]
    }

    fn bounds(&self) -> Vec<FalseList> {
        let AccessListLimits {
            index_max,
            items_max,
        } = *self.limits;
        let account = self
            .list
            .accounts()
            .last()
            .expect("a block touches something");
        let (address, at) = (account.address, self.list.accounts().len() - 1);
        let beyond = index_max + 1;
        let mut made = vec![self.make(
            "an index beyond the last",
            format!(
                "access list: account {address}: nonce changes at index {beyond}, \
                 but the block's last is {index_max}"
            ),
            |accounts| {
                let change = NonceChange::new(index(beyond), 1);
                accounts[at].nonce_changes.push(change);
            },
        )];
        if items_max < u64::MAX {
            made.push(self.make(
                "too many items",
                format!(
                    "access list: more than the {items_max} accounts and slots that \
                     the gas limit allows"
                ),
                |accounts| {
                    let start = U256::MAX - U256::from(items_max) - U256::ONE;
                    let surplus = (0..=items_max).map(|slot| start + U256::from(slot));
                    accounts[at].storage_reads.extend(surplus);
                },
            ));
        }
        made
    }
}

fn insert_change(account: &mut AccountChanges, slot: U256, change: StorageChange) {
    let slots = &mut account.storage_changes;
    let at = slots.partition_point(|changed| changed.slot < slot);
    slots.insert(at, SlotChanges::new(slot, vec![change]));
}
