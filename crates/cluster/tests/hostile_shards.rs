//! What a hostile reading of shards, snapshots and replicas attacked with programs.
#![allow(
    unused,
    clippy::all,
    reason = "they were written to break it, not to be kept"
)]

use crate::common::{Keys, Meddling, State, code_of, random_hash};
use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use cambium_cluster::*;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId};
use cambium_seeds::Random;
use cambium_trie::{BagLevels, Deletes, ProofTargets};
use parking_lot::Mutex;
use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

fn request(block: BlockId, accounts: &[B256]) -> ReadRequest {
    let mut accounts: Vec<_> = accounts.iter().map(|it| (*it, vec![])).collect();
    accounts.sort();
    ReadRequest {
        block,
        groups: vec![ReadGroup {
            targets: ProofTargets::new(accounts),
            levels: BagLevels {
                accounts: 0,
                slots: 0,
                deletes: Deletes::Nothing,
            },
        }],
        codes: vec![],
        slots_from: None,
    }
}

fn a_state() -> (State, Keys) {
    let mut random = Random::new(5);
    let keys = Keys::new(&mut random, 32, 4);
    let mut state = State::genesis();
    for salt in 0..20 {
        let changes = keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
    }
    (state, keys)
}

struct Never(Mutex<Vec<Answered>>);
impl Service for Never {
    fn read(&self, _: &ReadRequest) -> Result<NodeBag, ReadError> {
        loop {
            std::thread::sleep(Duration::from_secs(1))
        }
    }
    fn begin(&self, _: &ReadRequest, answered: Answered) -> Option<Answered> {
        self.0.lock().push(answered);
        None
    }
}

#[test]
fn the_next_replica_is_asked_when_the_first_takes_long() {
    let (state, keys) = a_state();
    let shard = state.shards(1).remove(0);
    let shards = Shards::new(vec![vec![Arc::new(Never(Default::default())), shard]]).unwrap();
    let request = request(state.id, &keys.accounts[..4]);
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = to.send(shards.read(&request, |_, _| Ok::<_, ReadError>(())));
    });
    let got = from.recv_timeout(Duration::from_secs(20));
    println!("{got:?}");
    assert!(got.is_ok(), "a healthy replica is never asked");
}

struct Big(AtomicU64);
impl Service for Big {
    fn read(&self, _: &ReadRequest) -> Result<NodeBag, ReadError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(ReadError::TooBig { bytes_max: 1 })
    }
}
struct Counting(Arc<Shard>, AtomicU64);
impl Service for Counting {
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(request)
    }
}

#[test]
fn a_replica_that_says_too_big() {
    let (state, keys) = a_state();
    let (big, good) = (
        Arc::new(Big(AtomicU64::new(0))),
        Arc::new(Counting(state.shards(1).remove(0), AtomicU64::new(0))),
    );
    let shards = Shards::new(vec![vec![big.clone(), good.clone()]]).unwrap();
    let request = request(state.id, &keys.accounts);
    for round in 1..=3 {
        let got = shards.read(&request, |_, _| Ok::<_, ReadError>(()));
        println!(
            "round {round}: {:?}, {} asked of the liar, {} of the other",
            got.is_ok(),
            big.0.load(Ordering::Relaxed),
            good.1.load(Ordering::Relaxed)
        );
    }
    assert!(
        big.0.load(Ordering::Relaxed) < 3 * 63,
        "the replica that never had a right answer stays the first"
    );
}

struct Drops;
impl Service for Drops {
    fn read(&self, _: &ReadRequest) -> Result<NodeBag, ReadError> {
        unreachable!()
    }
    fn begin(&self, _: &ReadRequest, answered: Answered) -> Option<Answered> {
        drop(answered);
        None
    }
}

#[test]
fn whose_answer_was_dropped() {
    let (state, keys) = a_state();
    let drops = || vec![Arc::new(Drops) as Arc<dyn Service>];
    let shards = Shards::new(vec![drops(), drops()]).unwrap();
    let account = *keys.accounts.iter().find(|it| it.0[0] >= 0x80).unwrap();
    let error = shards
        .read(
            &request(state.id, &[account]),
            |_, _| Ok::<_, ReadError>(()),
        )
        .unwrap_err();
    println!("{error}");
    assert!(
        matches!(error, ReadError::Unavailable { index: 1, .. }),
        "{error}"
    );
}

struct Panics;
impl Service for Panics {
    fn read(&self, _: &ReadRequest) -> Result<NodeBag, ReadError> {
        panic!("a replica panics")
    }
}

#[test]
fn a_replica_panics() {
    let (state, keys) = a_state();
    let shard = state.shards(1).remove(0);
    let shards = Shards::new(vec![vec![Arc::new(Panics), shard]]).unwrap();
    let request = request(state.id, &keys.accounts[..4]);
    let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shards.read(&request, |_, _| Ok::<_, ReadError>(()))
    }));
    assert!(
        matches!(got, Ok(Ok(()))),
        "the next one is not asked: {:?}",
        got.is_err()
    );
}

#[test]
fn many_threads() {
    let (state, keys) = a_state();
    let shards = crate::common::together(&state.shards(16));
    let (to, from) = mpsc::channel();
    let started = Instant::now();
    for thread in 0..64 {
        let (shards, request, to) = (
            shards.clone(),
            request(state.id, &keys.accounts),
            to.clone(),
        );
        std::thread::spawn(move || {
            for _ in 0..20 {
                shards
                    .read(&request, |_, _| Ok::<_, ReadError>(()))
                    .unwrap();
            }
            let _ = to.send(());
        });
    }
    for _ in 0..64 {
        from.recv_timeout(Duration::from_secs(60))
            .expect("a deadlock");
    }
    println!("{:?}", started.elapsed());
}

fn put(path: B256, code: &Bytes) -> AccountDiff {
    AccountDiff {
        path,
        account: AccountUpdate::Put(Account {
            nonce: 1,
            balance: U256::ZERO,
            code_hash: keccak256(code),
        }),
        wipe: false,
        slots: vec![],
    }
}

#[test]
fn bytes_of_codes_of_an_update() {
    let (state, _) = a_state();
    let range = ShardRange::new(0, 1).unwrap();
    let now = state
        .shard(range, ShardLimits::default())
        .stats()
        .memory_bytes;
    let limits = ShardLimits {
        bytes: now + (64 << 10),
        ..Default::default()
    };
    let shard = state.shard(range, limits);
    let mut random = Random::new(8);
    let codes: Vec<Bytes> = (0..400_u32)
        .map(|n| {
            let mut c = vec![0x5b; 24_000];
            c[..4].copy_from_slice(&n.to_be_bytes());
            c.into()
        })
        .collect();
    let mut changes: Vec<_> = codes
        .iter()
        .map(|code| put(random_hash(&mut random), code))
        .collect();
    changes.sort_by_key(|it| it.path);
    let child = state.child(&changes[..100], 77);
    let mut update = child.update(1);
    update.codes = codes;
    let applied = shard.apply(child.id, &update);
    let has = shard.stats().memory_bytes;
    println!("limit {} has {has} {applied:?}", limits.bytes);
    assert!(
        has <= limits.bytes,
        "{has} bytes of at most {}",
        limits.bytes
    );
}

fn rss() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn codes_of_nobody_in_a_snapshot() {
    let (state, _) = a_state();
    let range = ShardRange::new(0, 1).unwrap();
    let top = top_nodes(&state.trie, 1);
    let mut writer = SnapshotWriter::new(Vec::new(), range, &state.header, &top, &[]).unwrap();
    for n in 0..=255 {
        writer.code(code_of(n)).unwrap();
    }
    for n in 0..2_000_000_u32 {
        writer
            .code(Bytes::copy_from_slice(&n.to_be_bytes()[1..]))
            .unwrap();
    }
    writer.accounts(state.whole()).unwrap();
    let bytes = writer.finish().unwrap();
    let limits = ShardLimits {
        bytes: bytes.len() + 1000,
        ..Default::default()
    };
    let before = rss();
    let loaded = Shard::read_snapshot(&bytes[..], range, limits);
    let after = rss();
    let codes = loaded.as_ref().map(|it| it.0.stats().codes).unwrap_or(0);
    println!(
        "snapshot of {} bytes, limit {}, {} codes, memory grew by {}, says {:?}",
        bytes.len(),
        limits.bytes,
        codes,
        after.saturating_sub(before),
        loaded.as_ref().map(|it| it.0.stats().memory_bytes).ok()
    );
    assert!(
        after.saturating_sub(before) < 2 * limits.bytes,
        "ShardLimits::bytes is no limit"
    );
}

#[test]
fn a_snapshot_larger_than_the_limit_in_memory() {
    let mut random = Random::new(9);
    let mut changes: Vec<_> = (0..20_000)
        .map(|_| AccountDiff {
            path: random_hash(&mut random),
            account: AccountUpdate::Put(Account {
                nonce: 1,
                balance: U256::from(1),
                code_hash: KECCAK256_EMPTY,
            }),
            wipe: false,
            slots: vec![],
        })
        .collect();
    changes.sort_by_key(|it| it.path);
    let state = State::genesis().child(&changes, 1);
    let range = ShardRange::new(0, 1).unwrap();
    let bytes = state
        .shard(range, ShardLimits::default())
        .write_snapshot(Vec::new(), &[])
        .unwrap();
    let limits = ShardLimits {
        bytes: bytes.len() + 1,
        ..Default::default()
    };
    match Shard::read_snapshot(&bytes[..], range, limits) {
        Ok((shard, _)) => {
            let has = shard.stats().memory_bytes;
            let child = state.child(&[], 3);
            println!(
                "limit {} memory {has}; next update: {:?}",
                limits.bytes,
                shard
                    .apply(child.id, &child.update(1))
                    .map_err(|error| error.to_string())
            );
            assert!(
                has <= limits.bytes,
                "a shard of {has} bytes of at most {}",
                limits.bytes
            );
        }
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn finalize_twice_while_pinned() {
    let first = State::genesis();
    let (a1, b1) = (first.child(&[], 1), first.child(&[], 2));
    let b2 = b1.child(&[], 3);
    let late = b2.child(&[], 4);
    let mut got = Vec::new();
    for pinned in [false, true] {
        let shard = first.shard(ShardRange::new(0, 1).unwrap(), ShardLimits::default());
        for state in [&a1, &b1, &b2] {
            shard.apply(state.id, &state.update(1)).unwrap();
        }
        let mut results = Vec::new();
        let mut meddle = || {
            results.push(shard.finalize(a1.id).is_ok());
            results.push(shard.apply(late.id, &late.update(1)).is_ok());
            results.push(shard.finalize(b2.id).is_ok());
        };
        match pinned {
            true => {
                shard
                    .write_snapshot(
                        Meddling {
                            out: vec![],
                            meddle: Some(meddle),
                        },
                        &[],
                    )
                    .unwrap();
            }
            false => meddle(),
        }
        println!(
            "pinned {pinned}: finalize a1, apply on b2, finalize b2: {results:?}; oldest is a1: {}",
            shard.stats().oldest == a1.id
        );
        got.push((results, shard.stats().oldest));
    }
    assert_eq!(got[0], got[1]);
}

/// Frames that are strange: a head alone many times, deletes, wipes, entries, slots before accounts.
#[test]
fn strange_frames() {
    let (state, _) = a_state();
    let range = ShardRange::new(0, 1).unwrap();
    let top = top_nodes(&state.trie, 1);
    let path = *state.model.keys().next().unwrap();
    let last = *state.model.keys().last().unwrap();
    let keep = |path, slots| AccountDiff {
        path,
        account: AccountUpdate::Keep,
        wipe: false,
        slots,
    };
    let strange: Vec<(&str, Vec<Vec<AccountDiff>>)> = vec![
        ("twice", vec![state.whole(), state.whole()]),
        (
            "slots first",
            vec![
                vec![keep(B256::ZERO, vec![(B256::ZERO, U256::from(1))])],
                state.whole(),
            ],
        ),
        (
            "delete nobody",
            vec![
                vec![AccountDiff {
                    path: B256::ZERO,
                    account: AccountUpdate::Delete,
                    wipe: false,
                    slots: vec![],
                }],
                state.whole(),
            ],
        ),
        (
            "wipe then keep",
            vec![
                state.whole(),
                vec![AccountDiff {
                    path: last,
                    account: AccountUpdate::Keep,
                    wipe: true,
                    slots: vec![],
                }],
            ],
        ),
        (
            "zero slot",
            vec![
                state.whole(),
                vec![keep(last, vec![(B256::repeat_byte(9), U256::ZERO)])],
            ],
        ),
        (
            "entry",
            vec![
                vec![AccountDiff {
                    path: B256::ZERO,
                    account: AccountUpdate::Entry(cambium_primitives::EntryValue::Inline(
                        vec![1, 2].into(),
                    )),
                    wipe: false,
                    slots: vec![],
                }],
                state.whole(),
            ],
        ),
        ("empty frames", vec![vec![], state.whole(), vec![]]),
    ];
    for (what, frames) in strange {
        let bytes = std::panic::catch_unwind(|| {
            let mut writer =
                SnapshotWriter::new(Vec::new(), range, &state.header, &top, &[]).unwrap();
            for n in 0..=255 {
                writer.code(code_of(n)).unwrap();
            }
            for frame in frames {
                writer.accounts(frame).unwrap();
            }
            writer.finish().unwrap()
        });
        let Ok(bytes) = bytes else {
            println!("{what}: the writer panics");
            continue;
        };
        let got = std::panic::catch_unwind(|| {
            Shard::read_snapshot(&bytes[..], range, ShardLimits::default())
                .map(|(shard, _)| {
                    // what the model says
                    for (path, (account, _)) in &state.model {
                        assert_eq!(
                            shard.account(state.id, path).unwrap().map(|it| it.0),
                            Some(*account)
                        );
                    }
                    shard.stats().nodes
                })
                .map_err(|error| error.to_string())
        });
        println!("{what}: {got:?}");
        assert!(got.is_ok(), "{what}: a panic");
    }
}
