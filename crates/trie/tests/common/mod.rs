//! Shared by all tests: a seeded source of numbers, keys that share long prefixes, and a model of
//! the state too simple to be wrong, whose roots alloy-trie computes.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test takes what it needs of it"
)]

pub mod entries;
pub mod history;

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, keccak256};
use alloy_rlp::Encodable;
use alloy_trie::{HashBuilder, Nibbles};
use cambium_keccak::Batch;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, Path};
use cambium_trie::{EMPTY_ROOT, LeafValue, Link, PartialTrie, Resolve, Stub, TrieError, commit};
use std::collections::BTreeMap;

/// SplitMix64: numbers by seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    pub fn b256(&mut self) -> B256 {
        let mut bytes = [0; 32];
        bytes
            .chunks_mut(8)
            .for_each(|word| word.copy_from_slice(&self.next().to_le_bytes()));
        B256::from(bytes)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Keys of which most share a prefix of any length, to 63 nibbles, with another.
    pub fn close_keys(&mut self, count: usize) -> Vec<B256> {
        let mut keys = vec![self.b256()];
        while keys.len() < count {
            let mut key = self.pick(&keys);
            if self.one_in(3) {
                key = self.b256();
            } else {
                let at = if self.one_in(2) {
                    63 - self.below(3)
                } else {
                    self.below(64)
                };
                let nibble = 1 + self.below(15) as u8;
                key[at / 2] ^= if at.is_multiple_of(2) {
                    nibble << 4
                } else {
                    nibble
                };
            }
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    pub fn account(&mut self) -> Account {
        let balance = match self.below(4) {
            0 => U256::ZERO,
            1 => U256::from(self.below(200)),
            2 => U256::from(self.next()),
            _ => U256::from_be_bytes(self.b256().0) >> self.below(256),
        };
        let code_hash = if self.one_in(3) {
            self.b256()
        } else {
            KECCAK256_EMPTY
        };
        let nonce = if self.one_in(2) {
            self.below(3) as u64
        } else {
            self.next()
        };
        Account {
            nonce,
            balance,
            code_hash,
        }
    }

    pub fn value(&mut self) -> U256 {
        match self.below(4) {
            0 => U256::ZERO,
            1 | 2 => U256::from(1 + self.below(300)),
            _ => U256::from_be_bytes(self.b256().0) >> self.below(256),
        }
    }

    /// Changes that fit `model`, to accounts and slots of those keys.
    pub fn changes(&mut self, model: &Model, accounts: &[B256], slots: &[B256]) -> Changes {
        let mut changes = BTreeMap::new();
        for _ in 0..1 + self.below(6) {
            let path = self.pick(accounts);
            let exists = model.0.contains_key(&path);
            let account = match self.below(6) {
                0 | 1 => AccountUpdate::Delete,
                2 | 3 if exists => AccountUpdate::Keep,
                _ => AccountUpdate::Put(self.account()),
            };
            let mut set = BTreeMap::new();
            if account != AccountUpdate::Delete {
                for _ in 0..self.below(6) {
                    set.insert(self.pick(slots), self.value());
                }
            }
            let wipe = self.one_in(8);
            let slots = set.into_iter().collect();
            changes.insert(
                path,
                AccountDiff {
                    path,
                    account,
                    wipe,
                    slots,
                },
            );
        }
        Changes::new(changes.into_values().collect())
    }
}

pub type Slots = BTreeMap<B256, U256>;

/// The state, flat.
#[derive(Clone, Default)]
pub struct Model(pub BTreeMap<B256, (Account, Slots)>);

impl Model {
    pub fn apply(&mut self, changes: &Changes) {
        for change in changes.accounts() {
            match change.account {
                AccountUpdate::Delete => {
                    self.0.remove(&change.path);
                    continue;
                }
                AccountUpdate::Put(account) => {
                    self.0.entry(change.path).or_default().0 = account;
                }
                AccountUpdate::Keep => {}
                AccountUpdate::Entry(_) => panic!("a state has no entries"),
            }
            let Some((_, slots)) = self.0.get_mut(&change.path) else {
                continue;
            };
            if change.wipe {
                slots.clear();
            }
            for (slot, value) in &change.slots {
                if value.is_zero() {
                    slots.remove(slot);
                } else {
                    slots.insert(*slot, *value);
                }
            }
        }
    }

    pub fn root(&self) -> B256 {
        let mut builder = HashBuilder::default();
        for (path, (account, slots)) in &self.0 {
            builder.add_leaf(
                Nibbles::unpack(path),
                &account_rlp(account, storage_root(slots)),
            );
        }
        builder.root()
    }

    /// All leaves below `prefix`, sorted.
    pub fn leaves(&self, prefix: &Path) -> Vec<(Path, LeafValue)> {
        let mut leaves = vec![];
        for (account, (fields, slots)) in &self.0 {
            let path = Path::account(account);
            if prefix.len() < 64 && path.starts_with(prefix) {
                leaves.push((path, LeafValue::Account(*fields)));
            }
            let slots = slots
                .iter()
                .map(|(slot, value)| (Path::slot(account, slot), *value));
            let below = slots.filter(|(path, _)| path.starts_with(prefix));
            leaves.extend(below.map(|(path, value)| (path, LeafValue::Slot(value))));
        }
        leaves
    }
}

pub fn account_rlp(account: &Account, storage_root: B256) -> Vec<u8> {
    let mut payload = vec![];
    account.nonce.encode(&mut payload);
    account.balance.encode(&mut payload);
    storage_root.encode(&mut payload);
    account.code_hash.encode(&mut payload);
    let mut out = vec![];
    alloy_rlp::Header {
        list: true,
        payload_length: payload.len(),
    }
    .encode(&mut out);
    out.extend(payload);
    out
}

pub fn storage_root(slots: &Slots) -> B256 {
    if slots.is_empty() {
        return EMPTY_ROOT;
    }
    let mut builder = HashBuilder::default();
    for (slot, value) in slots {
        builder.add_leaf(Nibbles::unpack(slot), &alloy_rlp::encode(value));
    }
    builder.root()
}

/// Steps to take: few in a short run, `long` with `CAMBIUM_LONG=1`.
pub fn steps(short: usize, long: usize) -> usize {
    if cambium_seeds::is_long() {
        long
    } else {
        short
    }
}

/// A state of real (hashed) addresses and slots, and some that are not in it.
pub struct Hashed {
    pub model: Model,
    pub addresses: Vec<Address>,
    pub slots: Vec<B256>,
}

pub fn hashed(random: &mut Random, accounts: usize, slots: usize) -> Hashed {
    let addresses: Vec<_> = (0..accounts * 2)
        .map(|_| Address::from_slice(&random.b256()[..20]))
        .collect();
    let slots: Vec<_> = (0..slots * 2).map(|_| shifted(random)).collect();
    let mut model = Model::default();
    for address in &addresses[..accounts] {
        let mut set = Slots::new();
        if random.one_in(2) {
            for slot in &slots[..random.below(slots.len() / 2 + 1)] {
                set.insert(keccak256(slot), random.value() + U256::ONE);
            }
        }
        model.0.insert(keccak256(address), (random.account(), set));
    }
    Hashed {
        model,
        addresses,
        slots,
    }
}

/// A number of any length as a slot.
fn shifted(random: &mut Random) -> B256 {
    B256::from((U256::from_be_bytes(random.b256().0) >> random.below(256)).to_be_bytes())
}

/// The whole trie of a model, hashed.
pub fn trie_of(model: &Model) -> PartialTrie {
    let mut trie = PartialTrie::new(Path::EMPTY);
    let leaves = model.leaves(&Path::EMPTY).into_iter();
    let root = trie
        .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
        .expect("sorted leaves");
    trie.set_root(root);
    commit(&mut [&mut trie], &mut Batch::new());
    assert_eq!(trie.state_root(), Some(model.root()));
    trie
}

/// Loads one node at a time from a whole, hashed trie.
pub struct NodeByNode<'a>(pub &'a PartialTrie);

impl Resolve for NodeByNode<'_> {
    type Error = TrieError;

    fn resolve(
        &mut self,
        path: &Path,
        _: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, TrieError> {
        into.graft_node(
            self.0,
            self.0.find(path).ok_or(TrieError::NoNode { path: *path })?,
        )
    }
}

/// The trie of which nothing but the root is there.
pub fn root_stub(trie: &PartialTrie) -> PartialTrie {
    let stub = trie
        .as_stub(trie.root())
        .expect("a hashed trie with leaves");
    PartialTrie::from_stub(Path::EMPTY, stub)
}
