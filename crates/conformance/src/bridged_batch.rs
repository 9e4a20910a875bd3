//! Blocks that are far apart on a chain, executed as one batch of consecutive blocks.
//!
//! ```text
//!   parent's state    each account and slot as the first block that touches it expects it
//!   block, bridge, block, bridge, block ..
//! ```
//!
//! A *bridge* is a block without transactions. Its access list claims the changes from the state
//! after the previous blocks to the pre-state of the next block, for every account and slot that
//! the next block touches (those of the history contracts included). The claims are false, so a
//! bridge's outcome is ignored. The outcomes of the real blocks depend on the claims only, and are
//! valid.
//!
//! A block reads the keys in its access list, codes by hash, hashes of earlier blocks, and whether
//! an account without code has storage. Bridges supply the keys. All codes are in the parent's
//! state or in the lists. The parent's state also has the hashes of earlier blocks; none of the
//! batch's own hashes is read, since its blocks are further apart than BLOCKHASH looks back. An
//! account has storage in the parent's state only if the first block that touches it expects the
//! account to exist.

use crate::SparseBlock;
use alloy_consensus::Header;
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_evm::{BatchBlock, BlockInput, Rules};
use cambium_primitives::{
    AccessList, AccessListLimits, Account, AccountChanges, AccountDiff, AccountUpdate,
    BalanceChange, BlockAccessIndex, Changes, CodeChange, NonceChange, SlotChanges, StorageChange,
};
use cambium_testkit::Model;
use revm::DatabaseRef;
use std::collections::BTreeMap;

/// A batch of real blocks with bridges between them.
#[derive(Clone, Debug)]
pub struct BridgedBatch<'a> {
    state: Model,
    steps: Vec<Step<'a>>,
}

#[derive(Clone, Debug)]
enum Step<'a> {
    Block(&'a SparseBlock, &'a AccessList),
    Bridge(Box<Bridge>),
}

#[derive(Clone, Debug)]
struct Bridge {
    rules: Rules,
    header: Header,
    list: AccessList,
}

/// Index of all changes in a bridge: before the transactions.
const INDEX: BlockAccessIndex = BlockAccessIndex(0);

impl<'a> BridgedBatch<'a> {
    /// Creates a batch of these blocks in this order, each with its access list.
    ///
    /// # Errors
    ///
    /// Returns an error if a block could read the hash of another one of the batch, if two blocks
    /// disagree about a block hash, or if a code is missing.
    pub fn new(
        blocks: impl IntoIterator<Item = (&'a SparseBlock, &'a AccessList)>,
    ) -> Result<Self, String> {
        let (mut known, mut steps) = (Known::default(), Vec::new());
        let mut numbers = Vec::new();
        for (block, list) in blocks {
            let hashes = block.state.block_hashes();
            if let Some(near) = numbers.iter().find(|number| hashes.contains_key(number)) {
                return Err(format!(
                    "block {near} is too near to {}",
                    block.header.number
                ));
            }
            numbers.push(block.header.number);
            let changes = known.bridge_to(block, list)?;
            if !changes.is_empty() {
                let any = AccessListLimits::of_transactions(0);
                let list = AccessList::new(changes, &any).map_err(|error| error.to_string())?;
                let header = Header {
                    // No block reads the hash of a bridge.
                    number: 0,
                    ..block.header.clone()
                };
                steps.push(Step::Bridge(Box::new(Bridge {
                    rules: block.rules,
                    header,
                    list,
                })));
            }
            known.pass(list);
            steps.push(Step::Block(block, list));
        }
        Ok(Self {
            state: known.into_parent(),
            steps,
        })
    }

    /// Returns the state on which the batch is executed.
    pub const fn state(&self) -> &Model {
        &self.state
    }

    /// Returns all blocks, including the bridges.
    pub fn blocks(&self) -> Vec<BatchBlock<'_>> {
        let steps = self.steps.iter().map(|step| match step {
            Step::Block(block, list) => BatchBlock {
                input: BlockInput {
                    access_list: Some(list),
                    ..block.input()
                },
                hash: block.header.hash_slow(),
            },
            Step::Bridge(bridge) => BatchBlock {
                input: bridge.input(),
                hash: B256::ZERO,
            },
        });
        steps.collect()
    }

    /// Returns the indices of the real blocks among all blocks.
    pub fn places(&self) -> Vec<usize> {
        let steps = self.steps.iter().enumerate();
        let real = steps.filter(|(_, step)| matches!(step, Step::Block(..)));
        real.map(|(place, _)| place).collect()
    }

    /// Returns the access lists of the bridges, in order.
    pub fn bridges(&self) -> impl Iterator<Item = &AccessList> {
        self.steps.iter().filter_map(|step| match step {
            Step::Block(..) => None,
            Step::Bridge(bridge) => Some(&bridge.list),
        })
    }
}

impl Bridge {
    const fn input(&self) -> BlockInput<'_> {
        BlockInput {
            access_list: Some(&self.list),
            ..BlockInput::new(self.rules, &self.header, &[], &[])
        }
    }
}

/// The known state between two blocks, and the parent's state collected so far.
#[derive(Default)]
struct Known {
    accounts: BTreeMap<Address, KnownAccount>,
    codes: BTreeMap<B256, Bytes>,
    block_hashes: BTreeMap<u64, B256>,
}

struct KnownAccount {
    now: Account,
    slots: BTreeMap<U256, U256>,
    /// `None` if the account is absent in the parent's state.
    in_parent: Option<AccountDiff>,
}

impl KnownAccount {
    /// Creates an account that no earlier block touched.
    fn new(address: Address, account: Account) -> Self {
        let change = AccountDiff {
            path: keccak256(address),
            account: AccountUpdate::Put(account),
            wipe: false,
            slots: Vec::new(),
        };
        Self {
            now: account,
            slots: BTreeMap::new(),
            in_parent: (!account.is_empty()).then_some(change),
        }
    }

    /// Returns the current value of a slot. If no earlier block touched it, it gets the value
    /// `found` in the parent's state, or zero if the account is absent there.
    fn slot(&mut self, slot: U256, found: U256) -> U256 {
        let parent = &mut self.in_parent;
        let first = || match parent {
            None => U256::ZERO,
            Some(change) => {
                let path = keccak256(slot.to_be_bytes::<32>());
                change.slots.push((path, found));
                found
            }
        };
        *self.slots.entry(slot).or_insert_with(first)
    }

    /// Applies an account's last listed changes.
    fn leave(&mut self, changes: &AccountChanges) {
        if let Some(last) = changes.balance_changes.last() {
            self.now.balance = last.post_balance;
        }
        if let Some(last) = changes.nonce_changes.last() {
            self.now.nonce = last.new_nonce;
        }
        if let Some(last) = changes.code_changes.last() {
            self.now.code_hash = keccak256(&last.new_code);
        }
        for changed in &changes.storage_changes {
            if let Some(last) = changed.changes.last() {
                self.slots.insert(changed.slot, last.new_value);
            }
        }
    }
}

impl Known {
    /// Returns the changes by which a bridge produces the pre-state of `block`, and applies them.
    fn bridge_to(
        &mut self,
        block: &SparseBlock,
        list: &AccessList,
    ) -> Result<Vec<AccountChanges>, String> {
        for (number, hash) in block.state.block_hashes() {
            let known = self.block_hashes.entry(*number).or_insert(*hash);
            if known != hash {
                return Err(format!("block {number} has two hashes"));
            }
        }
        let mut bridge = Vec::new();
        for listed in list.accounts() {
            let changes = self.account(block, listed)?;
            if AccessList::is_changed(&changes) {
                bridge.push(changes);
            }
        }
        Ok(bridge)
    }

    fn account(
        &mut self,
        block: &SparseBlock,
        listed: &AccountChanges,
    ) -> Result<AccountChanges, String> {
        let (state, address) = (&block.state, listed.address);
        let found = state.account(&keccak256(address));
        let found = found.map(|found| found.account).unwrap_or_default();
        let code = match found.code_hash {
            KECCAK256_EMPTY => Bytes::new(),
            hash => {
                let code = state.code(&hash).cloned();
                let code = code.ok_or_else(|| format!("no code of hash {hash}"))?;
                self.codes.insert(hash, code.clone());
                code
            }
        };
        let new = || KnownAccount::new(address, found);
        let known = self.accounts.entry(address).or_insert_with(new);
        let mut changes = AccountChanges::new(address);
        if known.now.balance != found.balance {
            let change = BalanceChange::new(INDEX, found.balance);
            changes.balance_changes.push(change);
        }
        if known.now.nonce != found.nonce {
            let change = NonceChange::new(INDEX, found.nonce);
            changes.nonce_changes.push(change);
        }
        if known.now.code_hash != found.code_hash {
            let change = CodeChange::new(INDEX, code);
            changes.code_changes.push(change);
        }
        let mut slots: Vec<_> = listed.storage_slots().collect();
        slots.sort_unstable();
        for slot in slots {
            let value = state.storage_ref(address, slot);
            let value = value.map_err(|error| error.to_string())?;
            if known.slot(slot, value) != value {
                let change = StorageChange::new(INDEX, value);
                let change = SlotChanges::new(slot, vec![change]);
                changes.storage_changes.push(change);
            }
        }
        known.leave(&changes);
        Ok(changes)
    }

    /// Applies the changes in a block's list.
    fn pass(&mut self, list: &AccessList) {
        for listed in list.accounts() {
            if let Some(known) = self.accounts.get_mut(&listed.address) {
                known.leave(listed);
            }
        }
    }

    fn into_parent(self) -> Model {
        let mut state = Model::default();
        let accounts = self.accounts.into_values();
        let accounts = accounts.filter_map(|known| known.in_parent);
        state.apply(&Changes::new(accounts.collect()));
        state.add_codes(self.codes);
        for (number, hash) in self.block_hashes {
            state.add_block_hash(number, hash);
        }
        state
    }
}
