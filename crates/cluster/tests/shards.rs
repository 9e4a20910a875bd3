//! Shards hold the states of a tree of blocks, and refuse what is not of a block.

use crate::common::{Keys, State, check, pick};
use alloy_primitives::{B256, Bytes, U256};
use cambium_cluster::{
    ApplyError, NodeBag, ReadError, ReadRequest, Reader, Service, Shard, ShardLimits, ShardRange,
    Shards, TopError,
};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_seeds::{Random, seeds};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A tree of blocks: all shards have the states of all blocks that descend from the oldest one, and no others.
#[test]
fn shards_hold_a_tree_of_blocks() {
    for seed in seeds!(0..24) {
        let mut random = Random::new(seed);
        let count = pick(&mut random, &[1, 2, 4, 8, 16, 256]);
        let keys = Keys::new(&mut random, 10, 8);
        let mut genesis = State::genesis();
        for salt in 0..random.below(4) {
            let changes = keys.changes(&mut random, &genesis.model);
            genesis = genesis.child(&changes, salt);
        }
        let shards = genesis.shards(count);
        let (mut states, mut gone) = (vec![genesis], Vec::<State>::new());
        for salt in 0..30 {
            if random.percent(75) {
                let parent = random.below(states.len() as u64) as usize;
                let changes = keys.changes(&mut random, &states[parent].model);
                let child = states[parent].child(&changes, salt);
                let update = child.update(shards[0].range().depth());
                for shard in &shards {
                    shard.apply(child.id, &update).unwrap();
                    // Once more is nothing.
                    shard.apply(child.id, &update).unwrap();
                }
                states.push(child);
            } else {
                let finalized = random.below(states.len() as u64) as usize;
                let id = states[finalized].id;
                shards.iter().for_each(|shard| shard.finalize(id).unwrap());
                // What descends from it.
                let mut kept = vec![states.remove(finalized)];
                let mut at = 0;
                while at < kept.len() {
                    let hash = kept[at].id.hash;
                    let of = |state: &State| state.header.parent_hash == hash;
                    let (children, others) = states.into_iter().partition(of);
                    states = others;
                    kept.extend::<Vec<_>>(children);
                    at += 1;
                }
                gone.append(&mut states);
                states = kept;
            }
            for state in &states {
                shards.iter().for_each(|shard| check(shard, state, &keys));
            }
            let oldest = states
                .iter()
                .map(|state| state.id)
                .min_by_key(|id| id.number);
            let oldest = oldest.unwrap();
            for state in &gone {
                let account = keys.accounts[0];
                let shard = &shards[shards[0].range().owner(&account)];
                let error = shard.account(state.id, &account).unwrap_err();
                match state.id.number <= oldest.number {
                    true => assert_eq!(
                        error,
                        ReadError::Gone {
                            block: state.id,
                            oldest
                        }
                    ),
                    false => assert_eq!(error, ReadError::NotYet(state.id)),
                }
            }
            for shard in &shards {
                let stats = shard.stats();
                assert_eq!((stats.versions, stats.oldest), (states.len(), oldest));
            }
        }
        // Of a single version nothing else is left.
        let last = states.pop().unwrap();
        for shard in &shards {
            shard.finalize(last.id).unwrap();
            let alone = last.shard(shard.range(), ShardLimits::default());
            assert_eq!(shard.stats().nodes, alone.stats().nodes);
        }
    }
}

/// States of so few accounts that the root is empty, a leaf, an extension, or a branch with few children.
#[test]
fn states_whose_root_is_no_full_branch() {
    for seed in seeds!(0..40) {
        let mut random = Random::new(seed);
        for count in [1, 4, 16, 256] {
            let accounts = 1 + random.below(3) as usize;
            let keys = Keys::new(&mut random, accounts, 2);
            let mut state = State::genesis();
            let shards = state.shards(count);
            for salt in 0..6 {
                let changes = keys.changes(&mut random, &state.model);
                state = state.child(&changes, salt);
                let update = state.update(shards[0].range().depth());
                for shard in &shards {
                    shard.apply(state.id, &update).unwrap();
                }
                shards.iter().for_each(|shard| check(shard, &state, &keys));
                // A shard that starts from this state.
                let shards = state.shards(count);
                shards.iter().for_each(|shard| check(shard, &state, &keys));
            }
        }
    }
}

fn is_top(error: &ApplyError, is: impl Fn(&TopError) -> bool) -> bool {
    matches!(error, ApplyError::Top { source, .. } if is(source))
}

fn two_blocks() -> (State, State) {
    let mut random = Random::new(1);
    let keys = Keys::new(&mut random, 60, 8);
    let mut state = State::genesis();
    for salt in 0..40 {
        let changes = keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
    }
    let path = *state.model.keys().next().unwrap();
    let put = AccountDiff {
        path,
        account: AccountUpdate::Put(state.model[&path].0),
        wipe: false,
        slots: vec![(B256::repeat_byte(3), U256::from(5))],
    };
    let child = state.child(&[put], 99);
    (state, child)
}

#[test]
fn an_update_that_is_not_of_its_block_is_refused_and_changes_nothing() {
    let (state, child) = two_blocks();
    let shard = state.shard(ShardRange::new(0, 1).unwrap(), ShardLimits::default());
    let before = shard.stats();
    let good = child.update(1);

    let other = BlockId::new(child.id.number, B256::ZERO);
    let error = shard.apply(other, &good).unwrap_err();
    assert!(matches!(error, ApplyError::OtherHeader { .. }), "{error}");

    let mut bad = good.clone();
    let mut changes = good.changes.accounts().to_vec();
    changes[0].slots[0].1 += U256::ONE;
    bad.changes = Changes::new(changes);
    let error = shard.apply(child.id, &bad).unwrap_err();
    assert!(
        is_top(&error, |error| matches!(error, TopError::Root(_))),
        "{error}"
    );

    // A change left out.
    let mut bad = good.clone();
    bad.changes = Changes::default();
    let error = shard.apply(child.id, &bad).unwrap_err();
    assert!(
        error.to_string().contains("and the block's state root has"),
        "{error}"
    );

    // Top nodes of another state.
    let mut bad = good.clone();
    bad.top = state.update(1).top;
    let error = shard.apply(child.id, &bad).unwrap_err();
    assert!(
        is_top(&error, |error| matches!(error, TopError::Missing(_))),
        "{error}"
    );
    bad.top = vec![Bytes::new(); 18];
    let error = shard.apply(child.id, &bad).unwrap_err();
    assert!(
        error.to_string().contains("18 nodes above the shards"),
        "{error}"
    );

    // Slots of an account that is not there, among changes that fit.
    let mut bad = good.clone();
    let mut changes = good.changes.accounts().to_vec();
    changes.push(AccountDiff {
        path: B256::repeat_byte(0xf7),
        account: AccountUpdate::Keep,
        wipe: false,
        slots: vec![(B256::ZERO, U256::ONE)],
    });
    bad.changes = Changes::new(changes);
    let error = shard.apply(child.id, &bad).unwrap_err();
    assert!(matches!(error, ApplyError::Changes { .. }), "{error}");

    // Blocks without their parents.
    let grandchild = child.child(&[], 3);
    let error = shard
        .apply(grandchild.id, &grandchild.update(1))
        .unwrap_err();
    assert!(matches!(error, ApplyError::NoParent { .. }), "{error}");
    let mut skipped = state.child(&[], 3);
    skipped.header.number += 1;
    skipped.id = BlockId::new(skipped.header.number, skipped.header.hash_slow());
    let error = shard.apply(skipped.id, &skipped.update(1)).unwrap_err();
    assert!(matches!(error, ApplyError::Number { .. }), "{error}");
    let error = shard.finalize(child.id).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("block {} is not known here", child.id)
    );

    let after = shard.stats();
    assert_eq!(after.nodes, before.nodes);
    assert_eq!((after.versions, after.refused, after.updates), (1, 8, 0));
    shard.apply(child.id, &good).unwrap();
    assert_eq!(shard.stats().versions, 2);
}

#[test]
fn a_code_comes_with_the_update_that_needs_it() {
    let (state, _) = two_blocks();
    let mut random = Random::new(5);
    let path = crate::common::random_hash(&mut random);
    let nonce = 201;
    let put = AccountDiff {
        path,
        account: AccountUpdate::Put(cambium_primitives::Account {
            nonce,
            code_hash: alloy_primitives::keccak256(crate::common::code_of(nonce)),
            ..Default::default()
        }),
        wipe: false,
        slots: vec![],
    };
    let child = state.child(&[put], 1);
    let shards = state.shards(4);
    let mut update = child.update(1);
    let codes = std::mem::take(&mut update.codes);
    let owner = shards[0].range().owner(&path);
    for (at, shard) in shards.iter().enumerate() {
        match shard.apply(child.id, &update) {
            Ok(()) => assert_ne!(at, owner),
            Err(error) => {
                assert!(matches!(error, ApplyError::NoCode { .. }), "{error}");
                assert_eq!(at, owner);
            }
        }
    }
    update.codes = codes;
    shards[owner].apply(child.id, &update).unwrap();
}

#[test]
fn a_full_shard_refuses_updates_until_a_block_is_final() {
    let (state, child) = two_blocks();
    let limits = ShardLimits {
        versions: 3,
        ..ShardLimits::default()
    };
    let shard = state.shard(ShardRange::new(0, 1).unwrap(), limits);
    let mut head = child.clone();
    shard.apply(head.id, &head.update(1)).unwrap();
    for salt in 0..2 {
        let next = head.child(&[], salt);
        match salt {
            0 => shard.apply(next.id, &next.update(1)).unwrap(),
            _ => {
                let error = shard.apply(next.id, &next.update(1)).unwrap_err();
                assert!(
                    matches!(error, ApplyError::Full { versions: 3, .. }),
                    "{error}"
                );
                shard.finalize(child.id).unwrap();
                shard.apply(next.id, &next.update(1)).unwrap();
            }
        }
        head = next;
    }
    let limits = ShardLimits {
        bytes: 1,
        ..ShardLimits::default()
    };
    let shard = state.shard(ShardRange::new(0, 1).unwrap(), limits);
    let error = shard.apply(child.id, &child.update(1)).unwrap_err();
    assert!(matches!(error, ApplyError::Full { .. }), "{error}");
}

/// A replica that can leave.
struct Leaving {
    shard: Arc<Shard>,
    asked: AtomicUsize,
    /// Waited for before it says that it is gone.
    gone: Option<Barrier>,
}

impl Leaving {
    fn new(shard: &Arc<Shard>, gone: Option<Barrier>) -> Arc<Self> {
        Arc::new(Self {
            shard: Arc::clone(shard),
            asked: AtomicUsize::new(0),
            gone,
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Service for Leaving {
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let Some(gone) = &self.gone else {
            return self.shard.read(request);
        };
        // The test has seen the request, and then the replicas are others.
        gone.wait();
        gone.wait();
        Err(ReadError::Unavailable {
            index: 0,
            what: "it has left".to_owned(),
        })
    }
}

#[test]
fn replicas_that_join_and_leave_are_taken_up_by_readers_that_run() {
    let mut random = Random::new(3);
    let keys = Keys::new(&mut random, 30, 4);
    let mut state = State::genesis();
    for salt in 0..10 {
        let changes = keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
    }
    let shard = &state.shards(1)[0];
    let replicas = |all: &[&Arc<Leaving>]| -> Vec<Arc<dyn Service>> {
        all.iter().map(|it| Arc::clone(it) as _).collect()
    };
    let [a, b, c] = [(); 3].map(|()| Leaving::new(shard, None));
    let shards = Shards::new(vec![replicas(&[&a])]).unwrap();
    // Made before anything changes. Each reader has read nothing yet, so that it asks.
    let clone = shards.clone();
    let path = &keys.accounts[0];
    let account = || Reader::new(clone.clone(), &state.header, 0, 0).account(path);
    let read = || {
        let expected = state.model.get(path).map(|it| it.0);
        assert_eq!(account().unwrap(), expected);
    };
    read();
    assert_eq!((a.asked(), b.asked()), (1, 0));
    // One joins: who was right last is asked first, wherever it is in the list.
    shards.replace(0, replicas(&[&b, &a])).unwrap();
    read();
    assert_eq!((a.asked(), b.asked()), (2, 0));
    // It leaves.
    shards.replace(0, replicas(&[&b, &c])).unwrap();
    read();
    assert_eq!((a.asked(), b.asked(), c.asked()), (2, 1, 0));
    // A request that is under way when all replicas leave goes on with those that have joined.
    let last = Leaving::new(shard, Some(Barrier::new(2)));
    shards.replace(0, replicas(&[&last])).unwrap();
    thread::scope(|scope| {
        let reading = scope.spawn(read);
        let gone = last.gone.as_ref().unwrap();
        gone.wait();
        shards.replace(0, replicas(&[&c])).unwrap();
        gone.wait();
        reading.join().unwrap();
    });
    assert_eq!((last.asked(), c.asked()), (1, 1));
    // None is left: then it says so, and goes on with one that joins.
    shards.replace(0, Vec::new()).unwrap();
    let error = account().unwrap_err();
    assert!(error.to_string().contains("no replica"), "{error}");
    shards.replace(0, replicas(&[&a])).unwrap();
    read();
    assert!(shards.replace(1, Vec::new()).is_err());
}
