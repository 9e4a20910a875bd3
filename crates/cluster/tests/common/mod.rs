//! A chain of states, as maps and as whole tries, and shards of it.
#![allow(unreachable_pub, reason = "each test takes what it needs of it")]

pub mod databases;
pub mod nats;
pub mod stream;

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use cambium_cluster::{
    BlockUpdate, Service, Shard, ShardLimits, ShardLoader, ShardRange, Shards, top_nodes,
};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes, Path};
use cambium_seeds::Random;
use cambium_trie::{Alone, EMPTY_ROOT, NoResolve, PartialTrie, commit_with};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

pub type Model = BTreeMap<B256, (Account, BTreeMap<B256, U256>)>;

pub fn random_hash(random: &mut Random) -> B256 {
    keccak256(random.next().to_be_bytes())
}

pub fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

/// A code that belongs to a number.
pub fn code_of(number: u64) -> Bytes {
    Bytes::from(vec![0x60, number as u8, 0x00])
}

/// A state after a block.
#[derive(Clone)]
pub struct State {
    pub header: Header,
    pub id: BlockId,
    pub model: Model,
    pub trie: PartialTrie,
    /// What led here from the parent.
    pub changes: Changes,
    pub codes: Vec<Bytes>,
}

impl State {
    pub fn genesis() -> Self {
        Self::new(&[], PartialTrie::new(Path::EMPTY), Model::new(), None)
    }

    fn new(
        changes: &[AccountDiff],
        mut trie: PartialTrie,
        mut model: Model,
        parent: Option<&Header>,
    ) -> Self {
        for change in changes {
            match change.account {
                AccountUpdate::Delete => {
                    model.remove(&change.path);
                    continue;
                }
                AccountUpdate::Put(account) => model.entry(change.path).or_default().0 = account,
                AccountUpdate::Keep => {}
                AccountUpdate::Entry(_) => unreachable!(),
            }
            let slots = &mut model.get_mut(&change.path).unwrap().1;
            if change.wipe {
                slots.clear();
            }
            for (slot, value) in &change.slots {
                match value.is_zero() {
                    true => slots.remove(slot),
                    false => slots.insert(*slot, *value),
                };
            }
        }
        trie.apply(changes, &mut NoResolve).unwrap();
        commit_with(&mut [&mut trie], &mut Default::default(), &Alone);
        let header = Header {
            state_root: trie.state_root().unwrap_or(EMPTY_ROOT),
            parent_hash: parent.map_or(B256::ZERO, Header::hash_slow),
            number: parent.map_or(7, |parent| parent.number + 1),
            ..Header::default()
        };
        let codes = changes
            .iter()
            .filter_map(|change| match &change.account {
                AccountUpdate::Put(account) if account.code_hash != KECCAK256_EMPTY => {
                    Some(code_of(account.nonce))
                }
                _ => None,
            })
            .collect();
        Self {
            id: BlockId::new(header.number, header.hash_slow()),
            header,
            model,
            trie,
            changes: Changes::new(changes.to_vec()),
            codes,
        }
    }

    /// The state after a block with these changes. `salt` tells it from others with the same ones.
    pub fn child(&self, changes: &[AccountDiff], salt: u64) -> Self {
        let mut child = Self::new(
            changes,
            self.trie.clone(),
            self.model.clone(),
            Some(&self.header),
        );
        child.header.timestamp = salt;
        child.id.hash = child.header.hash_slow();
        child
    }

    pub fn update(&self, depth: usize) -> BlockUpdate {
        BlockUpdate {
            header: self.header.clone(),
            changes: self.changes.clone(),
            codes: self.codes.clone(),
            storage_roots: Vec::new(),
            top: top_nodes(&self.trie, depth),
            body: Bytes::new(),
        }
    }

    /// All of the state as changes of an empty one.
    pub fn whole(&self) -> Vec<AccountDiff> {
        let accounts = self.model.iter();
        accounts
            .map(|(path, (account, slots))| AccountDiff {
                path: *path,
                account: AccountUpdate::Put(*account),
                wipe: false,
                slots: slots.iter().map(|(slot, value)| (*slot, *value)).collect(),
            })
            .collect()
    }

    pub fn shard(&self, range: ShardRange, limits: ShardLimits) -> Shard {
        let mut loader = ShardLoader::new(range);
        loader.put(&self.whole()).unwrap();
        for (account, _) in self.model.values() {
            if account.code_hash != KECCAK256_EMPTY {
                loader.put_code(code_of(account.nonce));
            }
        }
        let top = top_nodes(&self.trie, range.depth());
        loader.finish(&self.header, &top, limits).unwrap()
    }

    pub fn shards(&self, count: usize) -> Vec<Arc<Shard>> {
        let ranges = ShardRange::all(count).unwrap().into_iter();
        ranges
            .map(|range| Arc::new(self.shard(range, ShardLimits::default())))
            .collect()
    }
}

/// A shard has the values of a state: of all keys that are its own.
pub fn check(shard: &Shard, state: &State, keys: &Keys) {
    let own = keys.accounts.iter();
    for account in own.filter(|account| shard.range().place(account).is_some()) {
        let expected = state.model.get(account);
        let found = shard.account(state.id, account).unwrap();
        assert_eq!(found.map(|(account, _)| account), expected.map(|it| it.0));
        for slot in &keys.slots {
            let expected = expected.and_then(|it| it.1.get(slot).copied());
            let value = shard.slot(state.id, account, slot).unwrap();
            assert_eq!(value, expected.unwrap_or_default());
        }
    }
}

pub fn together(shards: &[Arc<Shard>]) -> Shards {
    let services = shards
        .iter()
        .map(|shard| vec![Arc::clone(shard) as Arc<dyn Service>]);
    Shards::new(services.collect()).unwrap()
}

/// Keys that changes choose from: some of them share many nibbles.
pub struct Keys {
    pub accounts: Vec<B256>,
    pub slots: Vec<B256>,
}

impl Keys {
    pub fn new(random: &mut Random, accounts: usize, slots: usize) -> Self {
        let mut keys = |count: usize| {
            let mut keys = vec![random_hash(random)];
            while keys.len() < count {
                let mut key = random_hash(random);
                if random.percent(40) {
                    // A relative of another key: the first nibbles are the same.
                    let other = pick(random, &keys);
                    let shared = random.below(20) as usize;
                    key.0[..shared].copy_from_slice(&other.0[..shared]);
                }
                keys.push(key);
            }
            keys
        };
        Self {
            accounts: keys(accounts),
            slots: keys(slots),
        }
    }

    /// Changes that fit a state.
    pub fn changes(&self, random: &mut Random, model: &Model) -> Vec<AccountDiff> {
        let mut changes = BTreeMap::new();
        for _ in 0..1 + random.below(6) {
            let path = pick(random, &self.accounts);
            let there = model.get(&path);
            let put = AccountUpdate::Put({
                let nonce = random.below(200);
                let has_code = there.map_or(random.percent(30), |(account, _)| {
                    account.code_hash != KECCAK256_EMPTY
                });
                let nonce = there.map_or(nonce, |(account, _)| match has_code {
                    true => account.nonce,
                    false => nonce,
                });
                Account {
                    nonce,
                    balance: U256::from(random.below(1_000)),
                    code_hash: match has_code {
                        true => keccak256(code_of(nonce)),
                        false => KECCAK256_EMPTY,
                    },
                }
            });
            let account = match there {
                Some(_) if random.percent(20) => AccountUpdate::Delete,
                Some(_) if random.percent(50) => AccountUpdate::Keep,
                _ => put,
            };
            let mut slots = BTreeMap::new();
            if account != AccountUpdate::Delete {
                for _ in 0..random.below(6) {
                    let value = U256::from(random.below(3) * random.below(100));
                    slots.insert(pick(random, &self.slots), value);
                }
            }
            changes.insert(
                path,
                AccountDiff {
                    path,
                    wipe: account != AccountUpdate::Delete && random.percent(10),
                    account,
                    slots: slots.into_iter().collect(),
                },
            );
        }
        changes.into_values().collect()
    }
}

/// Takes what is written, and does something at the first write.
pub struct Meddling<F: FnMut()> {
    pub out: Vec<u8>,
    pub meddle: Option<F>,
}

impl<F: FnMut()> Write for Meddling<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(mut meddle) = self.meddle.take() {
            meddle();
        }
        self.out.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
