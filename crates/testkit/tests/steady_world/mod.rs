//! A state of constant size, and blocks that overwrite, remove and create equally much of it.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_testkit::{Model, Random};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Accounts that there may be; half of them are there at any time.
const ACCOUNTS: u64 = 16_000;
/// The first of these are never removed, and have most of the slots.
const LARGE: u64 = 4;
/// Slots that each large account may have; half of them are set at any time.
const LARGE_SLOTS: u64 = 4_000;
/// Slots that any other account may have; one of them is set.
const SMALL_SLOTS: u64 = 2;
/// Contract codes. Each is given with every block that creates an account of it.
pub(crate) const CODES: u64 = 16;
/// Blocks whose states the model knows, below the head.
const HISTORY_BLOCKS: u64 = 400;

pub(crate) fn address(account: u64) -> Address {
    Address::left_padding_from(&(account + 1).to_be_bytes())
}

pub(crate) fn path(account: u64) -> B256 {
    keccak256(address(account))
}

pub(crate) fn slot_path(slot: u64) -> B256 {
    keccak256(B256::from(U256::from(slot)))
}

pub(crate) const fn slots_of(account: u64) -> u64 {
    match account {
        0..LARGE => LARGE_SLOTS,
        _ => SMALL_SLOTS,
    }
}

pub(crate) fn code(index: u64) -> (B256, Bytes) {
    let code = Bytes::from(vec![index as u8; 200]);
    (keccak256(&code), code)
}

fn account(index: u64, nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(1_000_000_000 + index),
        code_hash: code(index % CODES).0,
    }
}

/// Holder of a value: an account its nonce, a slot its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cell {
    Account(u64),
    Slot(u64, u64),
}

/// The overwritten cells with their values; `None` if there was none.
type Overwritten = Vec<(Cell, Option<u64>)>;

/// The expected state, with its past of some blocks.
pub(crate) struct World {
    pub(crate) random: Random,
    /// Expected values at the head.
    pub(crate) values: HashMap<Cell, u64>,
    /// The newest blocks, the newest last, with the cells that each overwrote.
    blocks: VecDeque<(BlockId, Overwritten)>,
    hashes: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut values = HashMap::new();
        for account in 0..ACCOUNTS {
            if account >= LARGE && account % 2 == 0 {
                continue;
            }
            values.insert(Cell::Account(account), 1);
            let slots = match account {
                0..LARGE => (0..LARGE_SLOTS).step_by(2).collect(),
                _ => vec![account % SMALL_SLOTS],
            };
            for slot in slots {
                values.insert(Cell::Slot(account, slot), slot + 1);
            }
        }
        Self {
            random: Random::new(seed),
            values,
            blocks: [(BlockId::new(0, keccak256("first")), vec![])].into(),
            hashes: 0,
        }
    }

    pub(crate) fn id(&self) -> BlockId {
        self.blocks.back().expect("a block").0
    }

    pub(crate) fn head(&self) -> u64 {
        self.id().number
    }

    /// A block that overwrites, removes and creates equally many accounts, and slots.
    pub(crate) fn block(&mut self) -> (Changes, Vec<(B256, Bytes)>) {
        let mut changed = HashMap::<u64, AccountDiff>::new();
        let (mut codes, mut before) = (BTreeMap::new(), Vec::new());
        let nonce = self.head() + 2;
        for turn in 0..9 {
            // Some account that is there, or, for every third change, one that is not.
            let is_new = turn % 3 == 0;
            let at = loop {
                let at = LARGE + self.random.below(ACCOUNTS - LARGE);
                let is_there = self.values.contains_key(&Cell::Account(at));
                if is_there != is_new && !changed.contains_key(&at) {
                    break at;
                }
            };
            let is_removed = turn % 3 == 1;
            let mut slots = vec![];
            let value = (!is_removed).then_some(nonce);
            let slot = at % SMALL_SLOTS;
            self.set(Cell::Slot(at, slot), value, &mut before);
            if !is_removed {
                slots.push((slot_path(slot), U256::from(nonce)));
            }
            let update = match is_removed {
                true => AccountUpdate::Delete,
                false => AccountUpdate::Put(account(at, nonce)),
            };
            if is_new {
                codes.extend([code(at % CODES)]);
            }
            self.set(Cell::Account(at), value, &mut before);
            changed.insert(at, change(at, update, slots));
        }
        for turn in 0..18 {
            // One of each kind after another, of the same account.
            let at = turn / 3 % LARGE;
            let is_new = turn % 3 == 0;
            let entry = changed.entry(at);
            let entry = entry.or_insert_with(|| change(at, AccountUpdate::Keep, vec![]));
            let (slot, slot_path) = loop {
                let slot = self.random.below(LARGE_SLOTS);
                let is_there = self.values.contains_key(&Cell::Slot(at, slot));
                let path = slot_path(slot);
                if is_there != is_new && entry.slots.iter().all(|(taken, _)| *taken != path) {
                    break (slot, path);
                }
            };
            let value = (turn % 3 != 1).then_some(nonce);
            entry
                .slots
                .push((slot_path, U256::from(value.unwrap_or(0))));
            self.set(Cell::Slot(at, slot), value, &mut before);
        }
        self.hashes += 1;
        let id = BlockId::new(self.head() + 1, keccak256(self.hashes.to_be_bytes()));
        self.blocks.push_back((id, before));
        if self.blocks.len() as u64 > HISTORY_BLOCKS {
            self.blocks.pop_front();
        }
        let changes = changed.into_values().collect();
        (Changes::new(changes), codes.into_iter().collect())
    }

    fn set(&mut self, cell: Cell, value: Option<u64>, before: &mut Overwritten) {
        let old = match value {
            Some(value) => self.values.insert(cell, value),
            None => self.values.remove(&cell),
        };
        before.push((cell, old));
    }

    pub(crate) fn unwind(&mut self, to: u64) {
        while self.head() > to {
            let (_, before) = self.blocks.pop_back().expect("a block");
            for (cell, old) in before.into_iter().rev() {
                self.set(cell, old, &mut vec![]);
            }
        }
    }

    /// A value as it was after an earlier block.
    pub(crate) fn at(&self, cell: Cell, number: u64) -> Option<u64> {
        let later = self.blocks.iter().rev();
        let later = later.take_while(|(id, _)| id.number > number);
        let mut value = self.values.get(&cell).copied();
        for (_, before) in later {
            if let Some((_, old)) = before.iter().find(|(changed, _)| *changed == cell) {
                value = *old;
            }
        }
        value
    }

    pub(crate) fn any_account(&mut self) -> u64 {
        match self.random.percent(30) {
            true => self.random.below(LARGE),
            false => self.random.below(ACCOUNTS),
        }
    }

    pub(crate) fn any_cell(&mut self) -> Cell {
        let account = self.any_account();
        match self.random.percent(50) {
            true => Cell::Account(account),
            false => Cell::Slot(account, self.random.below(slots_of(account))),
        }
    }

    /// All of it, as a state whose root can be computed.
    pub(crate) fn model(&self) -> Model {
        let mut changes = HashMap::<u64, AccountDiff>::new();
        for (cell, value) in &self.values {
            let (Cell::Account(at) | Cell::Slot(at, _)) = *cell;
            let entry = changes.entry(at);
            let entry = entry.or_insert_with(|| change(at, AccountUpdate::Keep, vec![]));
            match *cell {
                Cell::Account(_) => entry.account = AccountUpdate::Put(account(at, *value)),
                Cell::Slot(_, slot) => {
                    entry.slots.push((slot_path(slot), U256::from(*value)));
                }
            }
        }
        let mut model = Model::default();
        model.apply(&Changes::new(changes.into_values().collect()));
        model
    }
}

fn change(at: u64, account: AccountUpdate, slots: Vec<(B256, U256)>) -> AccountDiff {
    AccountDiff {
        path: path(at),
        wipe: account == AccountUpdate::Delete,
        account,
        slots,
    }
}
