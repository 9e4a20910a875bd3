//! A shard that is made of a snapshot is the one that it was made of; damage is named.

use crate::common::{self, Keys, State, pick};
use cambium_cluster::{ReadGroup, ReadRequest, Shard, ShardLimits, ShardRange, SnapshotError};
use cambium_seeds::{Random, seeds};
use cambium_trie::{BagLevels, Deletes, ProofTargets};
use std::{
    io::{self, Write},
    sync::Mutex,
};

/// A shard has a state, and its codes.
fn check(shard: &Shard, state: &State, keys: &Keys) {
    common::check(shard, state, keys);
    let own = keys.accounts.iter();
    for account in own.filter(|account| shard.range().place(account).is_some()) {
        let expected = state.model.get(account);
        if let Some((account_there, _)) = expected
            && account_there.code_hash != alloy_primitives::KECCAK256_EMPTY
        {
            let request = ReadRequest {
                block: state.id,
                groups: vec![ReadGroup {
                    targets: ProofTargets::new(vec![(*account, vec![])]),
                    levels: BagLevels {
                        accounts: 0,
                        slots: 0,
                        deletes: Deletes::Nothing,
                    },
                }],
                codes: vec![(account_there.code_hash, *account)],
                slots_from: None,
            };
            shard.read(&request).unwrap();
        }
    }
}

/// Makes a block while a snapshot is written, and finalizes it.
struct Meddling<'a> {
    out: Vec<u8>,
    at_each_write: Mutex<&'a mut dyn FnMut()>,
}

impl Write for Meddling<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.at_each_write.lock().unwrap())();
        self.out.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_snapshot_is_the_oldest_state_whatever_comes_meanwhile() {
    for seed in seeds!(0..24) {
        let mut random = Random::new(seed);
        let count = pick(&mut random, &[1, 2, 4, 8, 16, 256]);
        let keys = Keys::new(&mut random, 30, 8);
        let mut first = State::genesis();
        for salt in 0..random.below(30) {
            let changes = keys.changes(&mut random, &first.model);
            first = first.child(&changes, salt);
        }
        for shard in first.shards(count).into_iter().take(20) {
            let mut state = first.clone();
            let mut salt = 0;
            let mut meddle = || {
                let changes = keys.changes(&mut random, &state.model);
                salt += 1;
                state = state.child(&changes, salt);
                let update = state.update(shard.range().depth());
                shard.apply(state.id, &update).unwrap();
                shard.finalize(state.id).unwrap();
                // It has to wait.
                assert_eq!(shard.stats().oldest, first.id);
            };
            let out = Meddling {
                out: Vec::new(),
                at_each_write: Mutex::new(&mut meddle),
            };
            let bytes = shard.write_snapshot(out, b"a note").unwrap().out;
            let copy = Shard::read_snapshot(&bytes[..], shard.range(), ShardLimits::default());
            let (copy, note) = copy.unwrap();
            assert_eq!(note, b"a note");
            check(&copy, &first, &keys);
            assert_eq!(copy.stats().oldest, first.id);
            // What was finalized meanwhile is now, and nothing is left of the others.
            assert_eq!(shard.stats().oldest, state.id);
            assert_eq!(shard.stats().versions, 1);
            check(&shard, &state, &keys);
        }
    }
}

/// An account with more slots than a part has, and many accounts.
#[test]
fn large_accounts_are_divided() {
    use alloy_primitives::{B256, KECCAK256_EMPTY, U256, keccak256};
    use cambium_primitives::{Account, AccountDiff, AccountUpdate};
    let hash = |number: u64| keccak256(number.to_be_bytes());
    let diff = |number: u64, slots: u64| {
        let mut slots: Vec<(B256, U256)> = (0..slots)
            .map(|slot| (hash(slot), U256::from(slot + 1)))
            .collect();
        slots.sort();
        AccountDiff {
            path: hash(number),
            account: AccountUpdate::Put(Account {
                nonce: number,
                balance: U256::from(number),
                code_hash: KECCAK256_EMPTY,
            }),
            wipe: false,
            slots,
        }
    };
    let mut changes: Vec<_> = (0..25_000).map(|number| diff(number, 0)).collect();
    changes.extend((0..3).map(|large| diff(100_000 + large, 19_999 + large)));
    changes.sort_by_key(|change| change.path);
    let state = State::genesis().child(&changes, 0);
    for count in [1, 4] {
        for range in ShardRange::all(count).unwrap() {
            let shard = state.shard(range, ShardLimits::default());
            let bytes = shard.write_snapshot(Vec::new(), &[]).unwrap();
            let copy = Shard::read_snapshot(&bytes[..], range, ShardLimits::default());
            let (copy, _) = copy.unwrap();
            assert_eq!(copy.stats().nodes, shard.stats().nodes);
            assert_eq!(copy.write_snapshot(Vec::new(), &[]).unwrap(), bytes);
        }
    }
}

/// A changed byte, a missing end, more at the end, and a snapshot of something else.
#[test]
fn damage_is_named() {
    let mut random = Random::new(3);
    let keys = Keys::new(&mut random, 12, 6);
    let mut state = State::genesis();
    for salt in 0..12 {
        let changes = keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
    }
    let range = ShardRange::new(0, 1).unwrap();
    let limits = ShardLimits::default();
    let shard = state.shard(range, limits);
    let bytes = shard.write_snapshot(Vec::new(), &[]).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.below(8);
        let error = Shard::read_snapshot(&damaged[..], range, limits).unwrap_err();
        assert!(matches!(error, SnapshotError::Damaged { .. }), "{error}");
        let error = Shard::read_snapshot(&bytes[..at], range, limits).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains("it ends early"), "{shown}");
    }
    let other = ShardRange::new(1, 2).unwrap();
    let error = Shard::read_snapshot(&bytes[..], other, limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a snapshot of shard 0 of 1, and not of shard 1 of 2"
    );
    let small = ShardLimits {
        bytes: 100,
        ..limits
    };
    let error = Shard::read_snapshot(&bytes[..], range, small).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it is longer than the 100 bytes"),
        "{error}"
    );
}

/// A snapshot whose checksums are right and whose state is another one's.
#[test]
fn a_false_state_is_refused() {
    use cambium_cluster::SnapshotWriter;
    let mut random = Random::new(9);
    let keys = Keys::new(&mut random, 12, 6);
    let mut state = State::genesis();
    for salt in 0..12 {
        let changes = keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
    }
    let range = ShardRange::new(0, 1).unwrap();
    let top = cambium_cluster::top_nodes(&state.trie, range.depth());
    let mut accounts = state.whole();
    accounts.pop();
    let mut writer = SnapshotWriter::new(Vec::new(), range, &state.header, &top, &[]).unwrap();
    for number in 0..=255 {
        writer.code(crate::common::code_of(number)).unwrap();
    }
    writer.accounts(accounts).unwrap();
    let bytes = writer.finish().unwrap();
    let error = Shard::read_snapshot(&bytes[..], range, ShardLimits::default()).unwrap_err();
    assert!(matches!(error, SnapshotError::State(_)), "{error}");
}
