//! What documentation promises, tried out.

use crate::common::{Keys, State, code_of, random_hash, together};
use alloy_primitives::{B256, KECCAK256_EMPTY, U256, keccak256};
use cambium_cluster::{
    ApplyError, BlockUpdate, ReadGroup, ReadRequest, Reader, ReaderError, ShardLimits, ShardLoader,
    ShardRange, top_nodes,
};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId};
use cambium_seeds::Random;
use cambium_trie::{BagLevels, Deletes, ProofTargets};
use std::sync::Arc;

fn put(path: B256, nonce: u64, code: bool, slots: Vec<(B256, U256)>) -> AccountDiff {
    AccountDiff {
        path,
        account: AccountUpdate::Put(Account {
            nonce,
            balance: U256::from(nonce),
            code_hash: if code {
                keccak256(code_of(nonce))
            } else {
                KECCAK256_EMPTY
            },
        }),
        wipe: false,
        slots,
    }
}

fn many(count: usize) -> State {
    let mut random = Random::new(3);
    let mut changes: Vec<_> = (0..count)
        .map(|_| put(random_hash(&mut random), 1, false, vec![]))
        .collect();
    changes.sort_by_key(|c| c.path);
    State::genesis().child(&changes, 1)
}

#[test]
fn a_state_without_a_code_is_refused() {
    let state = State::genesis().child(&[put(B256::repeat_byte(1), 9, true, vec![])], 1);
    let mut loader = ShardLoader::new(ShardRange::new(0, 1).unwrap());
    loader.put(&state.whole()).unwrap();
    let top = top_nodes(&state.trie, 1);
    let error = loader
        .finish(&state.header, &top, ShardLimits::default())
        .unwrap_err();
    assert!(matches!(error, ApplyError::NoCode { .. }), "{error}");
}

/// `NodeBag::nodes`: "Distinct nodes".
#[test]
fn nodes_of_a_bag_are_distinct() {
    let slots: Vec<_> = (1..40u8)
        .map(|at| (keccak256([at]), U256::from(at)))
        .collect();
    let mut slots = slots;
    slots.sort();
    let a = put(B256::repeat_byte(0x11), 1, false, slots.clone());
    let b = put(B256::repeat_byte(0x22), 1, false, slots.clone());
    let state = State::genesis().child(&[a.clone(), b.clone()], 1);
    let shard = state.shard(ShardRange::new(0, 1).unwrap(), ShardLimits::default());
    let all: Vec<_> = slots.iter().map(|s| s.0).collect();
    let request = ReadRequest {
        block: state.id,
        groups: vec![ReadGroup {
            targets: ProofTargets::new(vec![(a.path, all.clone()), (b.path, all)]),
            levels: BagLevels {
                accounts: 0,
                slots: 0,
                deletes: Deletes::Nothing,
            },
        }],
        codes: vec![],
        slots_from: None,
    };
    let bag = shard.read(&request).unwrap();
    let distinct: std::collections::BTreeSet<_> = bag.nodes.iter().collect();
    assert_eq!(distinct.len(), bag.nodes.len());
}

/// A reader whose blocks change more than an answer may hold.
#[test]
fn a_reader_follows_a_block_that_takes_more_than_one_answer() {
    let state = many(400);
    let limits = ShardLimits {
        bag_bytes: 20_000,
        ..ShardLimits::default()
    };
    let shards = vec![Arc::new(
        state.shard(ShardRange::new(0, 1).unwrap(), limits),
    )];
    let mut reader = Reader::new(together(&shards), &state.header, 1, 0);
    let changes: Vec<_> = state
        .model
        .keys()
        .map(|p| put(*p, 2, false, vec![]))
        .collect();
    let child = state.child(&changes, 2);
    reader.advance(&child.header, &child.changes).unwrap();
}

/// `finalize`: "Unknown if the shard does not have it".
#[test]
fn finalize_of_another_number() {
    let state = many(10);
    let shard = state.shard(ShardRange::new(0, 1).unwrap(), ShardLimits::default());
    let child = state.child(&[], 2);
    shard.apply(child.id, &child.update(1)).unwrap();
    assert!(
        shard
            .finalize(BlockId::new(1_000_000, child.id.hash))
            .is_err()
    );
}

/// `ShardLoader::put`: error if unsorted.
#[test]
fn loader_refuses_unsorted() {
    let mut loader = ShardLoader::new(ShardRange::new(0, 1).unwrap());
    let p = |b| put(B256::repeat_byte(b), 1, false, vec![]);
    assert!(loader.put(&[p(0x11), p(0x22), p(0x10)]).is_err());
}

/// Numbers near the end.
#[test]
fn reader_at_the_last_blocks() {
    let mut state = many(10);
    state.header.number = u64::MAX - 3;
    state.id = BlockId::new(state.header.number, state.header.hash_slow());
    let shards = state.shards(1);
    let mut reader = Reader::new(together(&shards), &state.header, 1, 0);
    let child = state.child(&[], 1);
    reader.advance(&child.header, &child.changes).unwrap();
}

/// Entries in changes.
#[test]
fn entries_are_refused() {
    let state = many(10);
    let shard = state.shard(ShardRange::new(0, 1).unwrap(), ShardLimits::default());
    let path = *state.model.keys().next().unwrap();
    for len in [0usize, 1, 32, 33, 70, 512] {
        let e = AccountDiff {
            path,
            account: AccountUpdate::Entry(cambium_primitives::EntryValue::Inline(
                vec![7; len].into(),
            )),
            wipe: false,
            slots: vec![],
        };
        let child = state.child(&[], 2);
        let mut update = child.update(1);
        update.changes = cambium_primitives::Changes::new(vec![e.clone()]);
        let nodes = shard.stats().nodes;
        assert!(shard.apply(child.id, &update).is_err());
        assert_eq!(nodes, shard.stats().nodes);
        let shards = state.shards(1);
        let mut reader = Reader::new(together(&shards), &state.header, 1, 0);
        assert!(reader.advance(&child.header, &update.changes).is_err());
        assert!(reader.account(&path).unwrap().is_some());
    }
}
/// Code that begins like a delegation and is none, as before London (EIP-3541).
#[test]
fn old_codes_can_be_read() {
    use revm::DatabaseRef;
    let address = alloy_primitives::Address::repeat_byte(7);
    let code = alloy_primitives::Bytes::from_static(&[0xef, 0x01, 0x00, 0x01]);
    let change = AccountDiff {
        path: keccak256(address),
        account: AccountUpdate::Put(Account {
            nonce: 1,
            code_hash: keccak256(&code),
            ..Default::default()
        }),
        wipe: false,
        slots: vec![],
    };
    let mut state = State::genesis().child(&[change], 1);
    state.codes = vec![code];
    let genesis = State::genesis();
    let shards = genesis.shards(1);
    shards[0].apply(state.id, &state.update(1)).unwrap();
    let reader = Reader::new(together(&shards), &state.header, 1, 0);
    let info = reader.basic_ref(address).unwrap().unwrap();
    reader.code_by_hash_ref(info.code_hash).unwrap();
}

/// One bag for shards of 16 and the update of a cluster of 256: top nodes twice.
#[test]
fn deeper_top_nodes_are_not_sent_twice() {
    let state = many(400);
    let shard = {
        let mut loader = ShardLoader::new(ShardRange::new(0, 1).unwrap());
        loader.put(&state.whole()).unwrap();
        loader
            .finish(
                &state.header,
                &top_nodes(&state.trie, 2),
                ShardLimits::default(),
            )
            .unwrap()
    };
    let path = *state.model.keys().next().unwrap();
    let request = ReadRequest {
        block: state.id,
        codes: vec![],
        groups: vec![ReadGroup {
            targets: ProofTargets::new(vec![(path, vec![])]),
            levels: BagLevels {
                accounts: 0,
                slots: 0,
                deletes: Deletes::Nothing,
            },
        }],
        slots_from: None,
    };
    let bag = shard.read(&request).unwrap();
    let distinct: std::collections::BTreeSet<_> = bag.nodes.iter().collect();
    assert_eq!(distinct.len(), bag.nodes.len());
}

/// Codes of blocks that are gone.
#[test]
fn codes_of_lost_forks_go() {
    let state = many(4);
    let shard = state.shard(ShardRange::new(0, 1).unwrap(), ShardLimits::default());
    let kept = state.child(&[], 1000);
    shard.apply(kept.id, &kept.update(1)).unwrap();
    for nonce in 2..50 {
        let fork = state.child(
            &[put(B256::repeat_byte(nonce as u8), nonce, true, vec![])],
            nonce,
        );
        shard.apply(fork.id, &fork.update(1)).unwrap();
    }
    shard.finalize(kept.id).unwrap();
    assert_eq!(shard.stats().codes, 0);
}

/// A lost fork leaves no memory that counts, and an update that would take too much is refused.
#[test]
fn a_full_shard_has_room_once_a_block_is_final() {
    let state = many(20);
    let mut random = Random::new(8);
    let mut big: Vec<_> = (0..3000)
        .map(|_| put(random_hash(&mut random), 1, false, vec![]))
        .collect();
    big.sort_by_key(|change| change.path);
    let (fork, kept) = (state.child(&big, 1), state.child(&[], 2));
    let range = ShardRange::new(0, 1).unwrap();
    let with = |bytes| ShardLimits {
        bytes,
        ..ShardLimits::default()
    };
    let small = state.shard(range, with(100_000));
    let error = small.apply(fork.id, &fork.update(1)).unwrap_err();
    assert!(matches!(error, ApplyError::Full { .. }), "{error}");
    small.apply(kept.id, &kept.update(1)).unwrap();

    let shard = state.shard(range, with(700_000));
    shard.apply(kept.id, &kept.update(1)).unwrap();
    shard.apply(fork.id, &fork.update(1)).unwrap();
    let other = state.child(&big, 3);
    let error = shard.apply(other.id, &other.update(1)).unwrap_err();
    assert!(matches!(error, ApplyError::Full { .. }), "{error}");
    shard.finalize(kept.id).unwrap();
    let next = kept.child(&big, 3);
    shard.apply(next.id, &next.update(1)).unwrap();
}

/// Memory of a decoded message, before anything of it is verified.
#[test]
fn a_short_message_takes_little_memory() {
    let state = many(3);
    let mut update = state.update(1);
    update.codes = vec![alloy_primitives::Bytes::new(); 1 << 20];
    let bytes = update.encode();
    BlockUpdate::decode(&bytes).unwrap_err();
    // Codes that no account can have.
    update.codes = vec![vec![1].into(); 1 << 20];
    let error = BlockUpdate::decode(&update.encode()).unwrap_err();
    assert!(error.to_string().contains("codes: at most"), "{error}");
}

/// A retention level over 64.
#[test]
fn levels_of_255() {
    let state = many(60);
    let shards = state.shards(4);
    let mut reader = Reader::new(together(&shards), &state.header, 255, 255);
    let mut state = state;
    for nonce in 2..6 {
        let changes: Vec<_> = state
            .model
            .keys()
            .map(|p| {
                put(
                    *p,
                    nonce,
                    false,
                    vec![
                        (B256::repeat_byte(1), U256::from(nonce)),
                        (B256::repeat_byte(nonce as u8), U256::from(1)),
                    ],
                )
            })
            .collect();
        let child = state.child(&changes, nonce);
        shards
            .iter()
            .for_each(|s| s.apply(child.id, &child.update(1)).unwrap());
        reader.advance(&child.header, &child.changes).unwrap();
        state = child;
    }
    for (p, (a, slots)) in &state.model {
        assert_eq!(reader.account(p).unwrap(), Some(*a));
        for (s, v) in slots {
            assert_eq!(reader.slot(p, s).unwrap(), *v);
        }
    }
}

/// Reads, updates, stats and finality at once, in more threads than processors.
#[test]
fn all_at_once() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let mut random = Random::new(11);
    let keys = Keys::new(&mut random, 200, 8);
    let mut states = vec![many(200)];
    for salt in 0..120 {
        let last = states.last().unwrap();
        let changes = keys.changes(&mut random, &last.model);
        states.push(last.child(&changes, salt));
    }
    let limits = ShardLimits {
        versions: 12,
        ..ShardLimits::default()
    };
    let shards: Vec<_> = ShardRange::all(4)
        .unwrap()
        .into_iter()
        .map(|r| Arc::new(states[0].shard(r, limits)))
        .collect();
    let at = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for shard in &shards {
            scope.spawn(|| {
                for (n, state) in states.iter().enumerate().skip(1) {
                    let update = state.update(1);
                    loop {
                        match shard.apply(state.id, &update) {
                            Ok(()) => break,
                            Err(ApplyError::Full { .. }) => {
                                let _ = shard.finalize(states[n.saturating_sub(5)].id);
                            }
                            Err(e) => panic!("{e}"),
                        }
                    }
                    // A fork beside.
                    let fork = states[n - 1]
                        .child(&[put(B256::repeat_byte(n as u8), 3, true, vec![])], 999);
                    let _ = shard.apply(fork.id, &fork.update(1));
                    at.fetch_max(n, Ordering::SeqCst);
                }
            });
        }
        for t in 0..4 {
            let (shards, states, at, over, keys) = (&shards, &states, &at, &over, &keys);
            scope.spawn(move || {
                let mut random = Random::new(t);
                let (mut ok, mut gone) = (0, 0);
                while !over.load(Ordering::SeqCst) {
                    let n = at.load(Ordering::SeqCst);
                    let state = &states[n];
                    let reader = Reader::new(together(shards), &state.header, 1, 0);
                    let targets = ProofTargets::new(
                        (0..20)
                            .map(|_| {
                                (
                                    keys.accounts[random.below(200) as usize],
                                    keys.slots.clone(),
                                )
                            })
                            .collect(),
                    );
                    match reader.load(&targets, Deletes::All) {
                        Ok(()) => {
                            ok += 1;
                            for (p, _) in targets.accounts() {
                                assert_eq!(
                                    reader.account(p).unwrap(),
                                    state.model.get(p).map(|m| m.0)
                                );
                            }
                        }
                        Err(ReaderError::Read(_)) => gone += 1,
                        Err(e) => panic!("{e}"),
                    }
                    shards.iter().for_each(|s| {
                        s.stats();
                    });
                }
                assert!(ok + gone > 0);
            });
        }
        scope.spawn(|| {
            while at.load(Ordering::SeqCst) < 120 && started.elapsed().as_secs() < 60 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            over.store(true, Ordering::SeqCst);
        });
    });
    assert!(started.elapsed().as_secs() < 60);
}

/// A batch with codes: requests.
#[test]
fn read_all_asks_for_codes_together() {
    use cambium_evm::StateRead;
    let addresses: Vec<_> = (0..100u8)
        .map(alloy_primitives::Address::repeat_byte)
        .collect();
    let mut changes: Vec<_> = addresses
        .iter()
        .zip(1..)
        .map(|(a, nonce)| put(keccak256(a), nonce, true, vec![]))
        .collect();
    changes.sort_by_key(|c| c.path);
    let state = State::genesis().child(&changes, 1);
    let reader = Reader::new(together(&state.shards(4)), &state.header, 1, 0);
    reader.read_all(&addresses, &[]).unwrap();
    assert!(reader.counts().0 <= 8, "{} requests", reader.counts().0);
}
