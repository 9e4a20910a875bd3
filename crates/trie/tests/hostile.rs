//! Untrusted bytes: no input makes a reader panic, hang or allocate out of proportion.

use crate::common;
use crate::common::{Random, hashed, steps, trie_of};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{
    AccountProof, MultiProof, NoResolve, PartialTrie, Place, ProofTargets, StorageProof,
    verify_account_proof,
};

/// Bytes that look like RLP lists of strings now and then.
fn noise(random: &mut Random) -> Bytes {
    let len = random.below(80);
    let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    if len > 3 && random.one_in(2) {
        bytes[0] = if len < 57 { 0xc0 + len as u8 - 1 } else { 0xf8 };
        bytes[1] = random.pick(&[len as u8 - 2, 0x80, 0xa0, 0x20, 0x31, 0x00, 0xe1]);
        bytes[2] = random.pick(&[0x80, 0xa0, 0x20, 0x3f, 0xb8, 0xc2]);
    }
    bytes.into()
}

#[test]
fn noise_is_no_node() {
    let mut random = Random(17);
    for _ in 0..steps(100_000, 10_000_000) {
        let node = noise(&mut random);
        let root = keccak256(&node);
        let claim = StorageProof {
            key: B256::ZERO.into(),
            value: U256::ONE,
            proof: vec![node.clone()],
        };
        let proof = AccountProof {
            address: Address::ZERO,
            account_proof: vec![node.clone()],
            balance: U256::ZERO,
            code_hash: B256::ZERO,
            nonce: 0,
            storage_hash: B256::ZERO,
            storage_proof: vec![claim],
        };
        assert!(verify_account_proof(root, &proof).is_err());
        let nodes = vec![node];
        let _ = PartialTrie::from_witness(root, &nodes);
        let _ = MultiProof { nodes }.verify(
            root,
            &ProofTargets::new(vec![(B256::ZERO, vec![B256::ZERO])]),
        );
    }
}

/// A structure with every kind of node in it, as bytes.
fn encoded(random: &mut Random) -> Vec<u8> {
    let state = hashed(random, 30, 6);
    let mut trie = trie_of(&state.model);
    for at in 1..4 {
        let path = Path::account(&keccak256(state.addresses[at])).prefix(at - 1);
        let link = trie.find(&path);
        if at > 1 && link.is_some_and(|link| !link.is_stub()) {
            trie.replace_by_stub(&path, Place::new(at as u64))
                .expect("hashed");
        }
    }
    let mut bytes = vec![];
    trie.encode_to(&mut bytes);
    bytes
}

#[test]
fn a_structure_cut_or_flipped_anywhere_is_read_or_refused() {
    let mut random = Random(9);
    let mut read = 0;
    for _ in 0..steps(3, 100) {
        let bytes = encoded(&mut random);
        PartialTrie::decode(&bytes).expect("what was just encoded");
        for at in 0..bytes.len() {
            PartialTrie::decode(&bytes[..at]).expect_err("cut short");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << random.below(8);
            let Ok(trie) = PartialTrie::decode(&flipped) else {
                continue;
            };
            // A trie that was read is sound: writing it gives the same bytes.
            let mut again = vec![];
            trie.encode_to(&mut again);
            assert_eq!(again, flipped);
            read += 1;
        }
    }
    println!("{read} flips were read: in hashes, keys and values, of which nothing is known here");
    assert!(read > 0);
}

#[test]
fn changes_of_a_structure_cut_or_flipped_anywhere_are_read_or_refused() {
    let mut random = Random(41);
    let mut read = 0;
    for _ in 0..steps(5, 100) {
        let before = PartialTrie::decode(&encoded(&mut random)).expect("what was just encoded");
        let after = PartialTrie::decode(&encoded(&mut random)).expect("what was just encoded");
        let mut bytes = vec![];
        after.encode_changes_to(&before, &mut bytes);
        PartialTrie::decode_changes(&before, &bytes).expect("what was just encoded");
        for at in 0..bytes.len() {
            PartialTrie::decode_changes(&before, &bytes[..at]).expect_err("cut short");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << random.below(8);
            let Ok(trie) = PartialTrie::decode_changes(&before, &flipped) else {
                continue;
            };
            let (mut whole, mut again) = (vec![], vec![]);
            trie.encode_to(&mut whole);
            let same = PartialTrie::decode(&whole).expect("a sound structure");
            same.encode_to(&mut again);
            assert_eq!(again, whole);
            read += 1;
        }
    }
    assert!(read > 0);
}

#[test]
fn noise_is_no_structure() {
    let mut random = Random(29);
    for _ in 0..steps(100_000, 10_000_000) {
        let mut bytes = noise(&mut random).to_vec();
        bytes.splice(..0, [1, 0]);
        if let Ok(trie) = PartialTrie::decode(&bytes) {
            let mut again = vec![];
            trie.encode_to(&mut again);
            assert_eq!(again, bytes);
        }
    }
}

#[test]
fn the_deepest_structure_is_read_and_written() {
    // Branches all the way down to depth 64, and from there to depth 128.
    let (account, slot) = (B256::repeat_byte(0x11), B256::repeat_byte(0x22));
    let mut trie = PartialTrie::new(Path::EMPTY);
    let mut model = common::Model::default();
    let beside = |key: &B256, at: usize| {
        let mut key = *key;
        key[at / 2] ^= if at.is_multiple_of(2) { 0x50 } else { 0x05 };
        key
    };
    let slots = (0..64).map(|at| (beside(&slot, at), U256::from(at + 1)));
    let slots: common::Slots = slots.chain([(slot, U256::MAX)]).collect();
    for at in 0..64 {
        model.0.insert(beside(&account, at), Default::default());
    }
    model.0.insert(account, (Default::default(), slots));
    let leaves = model.leaves(&Path::EMPTY).into_iter();
    let root = trie
        .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
        .expect("sorted");
    trie.set_root(root);
    let stubless = trie.counts();
    let mut bytes = vec![];
    trie.encode_to(&mut bytes);
    let mut trie = PartialTrie::decode(&bytes).expect("what was just encoded");
    assert_eq!(trie.counts(), stubless);
    cambium_trie::commit(&mut [&mut trie], &mut cambium_keccak::Batch::new());
    assert_eq!(trie.state_root(), Some(model.root()));
    assert_eq!(
        trie.lookup(&Path::slot(&account, &slot)),
        cambium_trie::Lookup::Slot(U256::MAX)
    );
    let nodes = trie.witness_nodes();
    let (unfolded, unreached) = PartialTrie::from_witness(model.root(), &nodes).expect("true");
    assert_eq!((unfolded.counts(), unreached), (stubless, 0));

    // The same by changes, and away again, each slot and account on its own.
    let mut changed = PartialTrie::new(Path::EMPTY);
    let put = |(path, (fields, slots)): (&B256, &(Account, common::Slots))| AccountDiff {
        path: *path,
        account: AccountUpdate::Put(*fields),
        wipe: false,
        slots: slots.iter().map(|(slot, value)| (*slot, *value)).collect(),
    };
    let changes: Vec<_> = model.0.iter().map(put).collect();
    changed
        .apply(&changes, &mut NoResolve)
        .expect("nothing is absent");
    cambium_trie::commit(&mut [&mut changed], &mut cambium_keccak::Batch::new());
    assert_eq!(changed.state_root(), Some(model.root()));
    for mut change in changes {
        change.account = AccountUpdate::Keep;
        change
            .slots
            .iter_mut()
            .for_each(|(_, value)| *value = U256::ZERO);
        changed
            .apply(&[change.clone()], &mut NoResolve)
            .expect("there");
        (change.account, change.slots) = (AccountUpdate::Delete, vec![]);
        changed.apply(&[change], &mut NoResolve).expect("there");
    }
    assert_eq!((changed.is_empty(), changed.counts()), (true, (0, 0)));
}
