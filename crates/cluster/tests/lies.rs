//! Shards that lie: a reader never has a wrong value, and goes on with an honest replica.

use crate::common::{Keys, State, pick, random_hash};
use alloy_primitives::{B256, Bytes, U256};
use cambium_chain::{ContractAt, StorageSource};
use cambium_cluster::{
    NodeBag, ReadError, ReadRequest, Reader, Service, Shard, ShardLimits, ShardRange, ShardStorage,
    Shards,
};
use cambium_primitives::{Account, AccountDiff, AccountUpdate};
use cambium_seeds::{Random, seeds};
use parking_lot::Mutex;
use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A shard that sometimes lies.
struct Liar {
    shard: Arc<Shard>,
    /// A shard of another chain, which answers with nodes of its own.
    other: Arc<Shard>,
    random: Mutex<Random>,
    lies: AtomicUsize,
}

impl Service for Liar {
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        let mut bag = self.shard.read(request)?;
        let mut random = self.random.lock();
        if random.percent(20) {
            return Ok(bag);
        }
        self.lies.fetch_add(1, Ordering::Relaxed);
        let nodes = bag.nodes.len() as u64;
        match random.below(7) {
            0 => bag = NodeBag::default(),
            1 if nodes > 0 => {
                let at = random.below(nodes) as usize;
                bag.nodes.remove(at);
            }
            2 if nodes > 0 => {
                let at = random.below(nodes) as usize;
                let mut node = bag.nodes[at].to_vec();
                let bit = random.below(8 * node.len() as u64) as usize;
                node[bit / 8] ^= 1 << (bit % 8);
                bag.nodes[at] = node.into();
            }
            3 => {
                // The state before.
                let oldest = self.shard.stats().oldest;
                let stale = ReadRequest {
                    block: oldest,
                    ..request.clone()
                };
                bag = self.shard.read(&stale)?;
            }
            4 => {
                let block = self.other.stats().oldest;
                let foreign = ReadRequest {
                    block,
                    codes: vec![],
                    ..request.clone()
                };
                bag = self.other.read(&foreign)?;
            }
            5 => bag.nodes.push(Bytes::from(vec![0xc0; 40])),
            _ => {
                return Err(ReadError::Unavailable {
                    index: 0,
                    what: "gone fishing".to_owned(),
                });
            }
        }
        Ok(bag)
    }
}

#[test]
fn a_lying_shard_costs_time_and_nothing_else() {
    let (mut lies, mut refused, mut read) = (0, 0, 0);
    for seed in seeds!(0..60) {
        let mut random = Random::new(seed);
        let keys = Keys::new(&mut random, 50, 10);
        let mut state = State::genesis();
        for salt in 0..20 {
            let changes = keys.changes(&mut random, &state.model);
            state = state.child(&changes, salt);
        }
        let count = pick(&mut random, &[1, 4, 16]);
        let shards = state.shards(count);
        let child = state.child(&keys.changes(&mut random, &state.model), 1);
        let update = child.update(1);
        shards
            .iter()
            .for_each(|shard| shard.apply(child.id, &update).unwrap());
        let others = state
            .child(&keys.changes(&mut random, &state.model), 2)
            .shards(count);
        let liars: Vec<_> = shards
            .iter()
            .zip(&others)
            .map(|(shard, other)| {
                Arc::new(Liar {
                    shard: Arc::clone(shard),
                    other: Arc::clone(other),
                    random: Mutex::new(Random::new(random.next())),
                    lies: AtomicUsize::new(0),
                })
            })
            .collect();
        let has_honest = random.percent(50);
        let replicas = liars.iter().zip(&shards).map(|(liar, shard)| {
            let mut replicas = vec![Arc::clone(liar) as Arc<dyn Service>];
            if has_honest {
                replicas.push(Arc::clone(shard) as Arc<dyn Service>);
            }
            replicas
        });
        let all = Shards::new(replicas.collect()).unwrap();
        let reader = Reader::new(all, &child.header, 1, 0);
        for _ in 0..20 {
            let account = pick(&mut random, &keys.accounts);
            let slot = pick(&mut random, &keys.slots);
            let expected = child.model.get(&account);
            match reader.account(&account) {
                Ok(found) => {
                    read += 1;
                    assert_eq!(found, expected.map(|it| it.0));
                }
                Err(error) => {
                    refused += 1;
                    assert!(!has_honest, "{error}");
                }
            }
            match reader.slot(&account, &slot) {
                Ok(value) => {
                    let expected = expected.and_then(|it| it.1.get(&slot).copied());
                    assert_eq!(value, expected.unwrap_or_default());
                }
                Err(error) => assert!(!has_honest, "{error}"),
            }
        }
        lies += liars
            .iter()
            .map(|liar| liar.lies.load(Ordering::Relaxed))
            .sum::<usize>();
    }
    assert!(
        lies > 200 && refused > 50 && read > 200,
        "{lies} {refused} {read}"
    );
}

/// A state with a few contracts, one of which has many slots, some of them with paths that begin alike.
fn with_contracts(random: &mut Random) -> (State, Vec<B256>) {
    let keys = Keys::new(random, 4, 300);
    let mut accounts = keys.accounts.clone();
    accounts.sort();
    accounts.dedup();
    let changes = accounts.iter().enumerate().map(|(at, path)| {
        let mut slots = keys.slots.clone();
        slots.sort();
        slots.dedup();
        // The last one has none.
        slots.retain(|_| at == 0 || at + 1 < accounts.len() && random.percent(20));
        AccountDiff {
            path: *path,
            account: AccountUpdate::Put(Account::default()),
            wipe: false,
            slots: slots
                .into_iter()
                .map(|slot| (slot, U256::from(random.next() | 1)))
                .collect(),
        }
    });
    let changes: Vec<_> = changes.collect();
    (State::genesis().child(&changes, 1), accounts)
}

#[test]
fn a_contract_is_read_whole_or_not_at_all() {
    let (mut refused, mut pages) = (0, 0);
    for seed in seeds!(0..60) {
        let mut random = Random::new(seed);
        let (state, accounts) = with_contracts(&mut random);
        let (other, _) = with_contracts(&mut random);
        let count = pick(&mut random, &[1, 4, 16]);
        let has_honest = random.percent(50);
        // A page has room for a few slots, or for all.
        let limits = ShardLimits {
            bag_bytes: pick(&mut random, &[6_000, 20_000, 1 << 20]),
            ..ShardLimits::default()
        };
        let ranges = ShardRange::all(count).unwrap().into_iter();
        let replicas = ranges.map(|range| {
            let shard = Arc::new(state.shard(range, limits));
            let mut replicas: Vec<Arc<dyn Service>> = vec![Arc::new(Liar {
                shard: Arc::clone(&shard),
                other: Arc::new(other.shard(range, ShardLimits::default())),
                random: Mutex::new(Random::new(random.next())),
                lies: AtomicUsize::new(0),
            })];
            if has_honest {
                replicas.push(shard);
            }
            replicas
        });
        let storage = ShardStorage::new(Shards::new(replicas.collect()).unwrap());
        for account in accounts {
            let contract = ContractAt {
                block: state.id,
                state_root: state.header.state_root,
                account,
            };
            let expected: Vec<_> = state.model[&account]
                .1
                .iter()
                .map(|(slot, value)| (*slot, *value))
                .collect();
            let mut got = Vec::new();
            let read = storage.slots(&contract, &mut |slot, value| {
                got.push((slot, value));
                ControlFlow::Continue(())
            });
            match read {
                Ok(()) => assert_eq!(got, expected),
                Err(error) => {
                    refused += 1;
                    assert!(!has_honest, "{error}");
                    // What came before is right.
                    assert_eq!(got, expected[..got.len()]);
                }
            }
            // Somewhere in the middle, page by page.
            let from = random_hash(&mut random);
            if let Ok(page) = storage.page(&contract, from) {
                pages += 1;
                let end = page.next.unwrap_or(B256::repeat_byte(u8::MAX));
                let within = |slot: &B256| *slot >= from && (page.next.is_none() || *slot < end);
                let expected = expected.into_iter().filter(|(slot, _)| within(slot));
                assert_eq!(page.values, expected.collect::<Vec<_>>());
                assert!(page.next.is_none_or(|next| next > from));
            }
        }
    }
    assert!(refused > 20 && pages > 100, "{refused} {pages}");
}

/// Says that a contract goes on after each slot.
struct Slow(Arc<Shard>);

impl Service for Slow {
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        let mut bag = self.0.read(request)?;
        bag.nodes.truncate(bag.nodes.len().div_ceil(2));
        Ok(bag)
    }
}

#[test]
fn a_gap_is_asked_for_again() {
    let mut random = Random::new(1);
    let (state, accounts) = with_contracts(&mut random);
    let shard = state.shards(1).remove(0);
    let storage = ShardStorage::new(Shards::new(vec![vec![Arc::new(Slow(shard))]]).unwrap());
    let contract = ContractAt {
        block: state.id,
        state_root: state.header.state_root,
        account: accounts[0],
    };
    let mut got = Vec::new();
    let read = storage.slots(&contract, &mut |slot, value| {
        got.push((slot, value));
        ControlFlow::Continue(())
    });
    // Half of the nodes lead to half of what is left, until they lead nowhere.
    let whole = &state.model[&accounts[0]].1;
    let error = read.unwrap_err();
    assert!(error.contains("no node at path"), "{error}");
    let expected: Vec<_> = whole
        .iter()
        .map(|(slot, value)| (*slot, *value))
        .take(got.len())
        .collect();
    assert!(got.len() > whole.len() / 2, "{}", got.len());
    assert_eq!(got, expected);
}

#[test]
fn a_request_for_a_contract_travels() {
    let mut random = Random::new(2);
    for slots_from in [None, Some((random_hash(&mut random), B256::ZERO))] {
        let request = ReadRequest {
            block: State::genesis().id,
            groups: vec![],
            codes: vec![(B256::ZERO, B256::ZERO)],
            slots_from,
        };
        let mut bytes = request.encode();
        assert_eq!(ReadRequest::decode(&bytes).unwrap(), request);
        bytes.push(0x80);
        ReadRequest::decode(&bytes).unwrap_err();
    }
}
