//! Shards that lie: a reader never has a wrong value, and goes on with an honest replica.

use crate::common::{Keys, State, pick};
use alloy_primitives::Bytes;
use cambium_cluster::{NodeBag, ReadError, ReadRequest, Reader, Service, Shard, Shards};
use cambium_seeds::{Random, seeds};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
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
