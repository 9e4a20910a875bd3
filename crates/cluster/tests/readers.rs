//! Readers see what the whole trie has, and move on from block to block.

use crate::common::{Keys, State, pick, random_hash, together};
use alloy_primitives::{B256, KECCAK256_EMPTY, U256};
use cambium_cluster::{Reader, ReaderError};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes};
use cambium_seeds::{Random, seeds};
use cambium_trie::{Deletes, ProofTargets};

fn check(reader: &Reader, state: &State, keys: &Keys, random: &mut Random) {
    for _ in 0..12 {
        let account = match random.percent(90) {
            true => pick(random, &keys.accounts),
            false => random_hash(random),
        };
        let expected = state.model.get(&account);
        let found = reader.account(&account).unwrap();
        assert_eq!(found, expected.map(|it| it.0));
        let slot = pick(random, &keys.slots);
        let expected = expected.and_then(|it| it.1.get(&slot).copied());
        assert_eq!(
            reader.slot(&account, &slot).unwrap(),
            expected.unwrap_or_default()
        );
    }
}

#[test]
fn a_reader_reads_and_follows_a_chain() {
    for seed in seeds!(0..40) {
        let mut random = Random::new(seed);
        let count = pick(&mut random, &[1, 4, 16, 256]);
        let keys = Keys::new(&mut random, 60, 12);
        let mut state = State::genesis();
        for salt in 0..20 {
            let changes = keys.changes(&mut random, &state.model);
            state = state.child(&changes, salt);
        }
        let shards = state.shards(count);
        let levels = (random.below(5) as u8, random.below(3) as u8);
        let mut reader = Reader::new(together(&shards), &state.header, levels.0, levels.1);
        for salt in 0..12 {
            check(&reader, &state, &keys, &mut random);
            let changes = keys.changes(&mut random, &state.model);
            let child = state.child(&changes, salt);
            let update = child.update(shards[0].range().depth());
            shards
                .iter()
                .for_each(|shard| shard.apply(child.id, &update).unwrap());
            let before = reader.counts().0;
            reader.advance(&child.header, &child.changes).unwrap();
            // The paths, and the siblings of what was there: each shard is asked twice at most.
            assert!(reader.counts().0 - before <= 2 * count as u64);
            assert_eq!(reader.block(), child.id);
            state = child;
        }
        check(&reader, &state, &keys, &mut random);
    }
}

/// A batch is one round of requests, whatever the number of keys.
#[test]
fn a_batch_is_asked_for_at_once() {
    let mut random = Random::new(3);
    let keys = Keys::new(&mut random, 200, 12);
    let mut state = State::genesis();
    for salt in 0..60 {
        let changes = keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
    }
    let shards = state.shards(4);
    let reader = Reader::new(together(&shards), &state.header, 2, 0);
    let targets = keys.accounts.iter().map(|path| (*path, keys.slots.clone()));
    let targets = ProofTargets::new(targets.collect());
    reader.load(&targets, Deletes::Nothing).unwrap();
    assert_eq!(reader.counts().0, 4);
    check(&reader, &state, &keys, &mut random);
    assert_eq!(reader.counts().0, 4, "all of it was here");
}

#[test]
fn changes_of_another_block_are_refused_and_the_reader_stays() {
    let mut random = Random::new(3);
    let keys = Keys::new(&mut random, 40, 6);
    let mut state = State::genesis();
    for salt in 0..30 {
        let changes = keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
    }
    let shards = state.shards(4);
    let mut reader = Reader::new(together(&shards), &state.header, 2, 0);
    let child = state.child(&keys.changes(&mut random, &state.model), 1);
    let grandchild = child.child(&[], 1);
    let error = reader
        .advance(&grandchild.header, &Changes::default())
        .unwrap_err();
    assert!(matches!(error, ReaderError::NotChild { .. }), "{error}");
    let mut lie = child.changes.accounts().to_vec();
    lie.push(AccountDiff {
        path: random_hash(&mut random),
        account: AccountUpdate::Put(Default::default()),
        wipe: false,
        slots: vec![],
    });
    let error = reader
        .advance(&child.header, &Changes::new(lie))
        .unwrap_err();
    assert!(matches!(error, ReaderError::Root { .. }), "{error}");
    let unfit = AccountDiff {
        path: random_hash(&mut random),
        account: AccountUpdate::Keep,
        wipe: false,
        slots: vec![(B256::ZERO, U256::ONE)],
    };
    let error = reader
        .advance(&child.header, &Changes::new(vec![unfit]))
        .unwrap_err();
    assert!(matches!(error, ReaderError::Changes { .. }), "{error}");
    assert_eq!(reader.block(), state.id);
    check(&reader, &state, &keys, &mut random);
    // The shards need not know the child for its own reader.
    reader.advance(&child.header, &child.changes).unwrap();
}

#[test]
fn codes_come_with_their_accounts() {
    use revm::DatabaseRef;
    let address = alloy_primitives::Address::repeat_byte(7);
    let path = alloy_primitives::keccak256(address);
    let code = crate::common::code_of(9);
    let put = AccountDiff {
        path,
        account: AccountUpdate::Put(cambium_primitives::Account {
            nonce: 9,
            code_hash: alloy_primitives::keccak256(&code),
            ..Default::default()
        }),
        wipe: false,
        slots: vec![],
    };
    let state = State::genesis().child(&[put], 1);
    let reader = Reader::new(together(&state.shards(16)), &state.header, 2, 0);
    let info = reader.basic_ref(address).unwrap().unwrap();
    assert_ne!(info.code_hash, KECCAK256_EMPTY);
    let found = reader.code_by_hash_ref(info.code_hash).unwrap();
    assert_eq!(found.original_bytes(), code);
    assert_eq!(
        reader.block_hash_ref(state.id.number).unwrap(),
        state.id.hash
    );
    let error = reader.block_hash_ref(1).unwrap_err();
    assert_eq!(error.to_string(), "the hash of block 1 is not known here");
}
