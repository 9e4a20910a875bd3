//! Witnesses: a block's changes give the same root from the witness alone.

use crate::common;
use crate::common::{Model, NodeByNode, Random, root_stub, steps, trie_of};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{
    EMPTY_ROOT, LeafRange, LeafValue, Lookup, NoResolve, NodeRef, PartialTrie, ProofTargets,
    UnfoldError, UpdateError, Witness, WitnessError, WitnessNodes, commit, encode_branch,
    encode_leaf,
};

#[test]
fn changes_that_cannot_be_applied_have_no_witness() {
    let mut random = Random(1);
    let (accounts, slots) = (random.close_keys(8), random.close_keys(4));
    let mut model = Model::default();
    while model.0.len() < 4 {
        let changes = random.changes(&model, &accounts, &slots);
        model.apply(&changes);
    }
    let mut trie = trie_of(&model);
    let absent = B256::repeat_byte(0x77);
    let change = |path, account| AccountDiff {
        path,
        account,
        wipe: false,
        slots: vec![(slots[0], U256::from(1))],
    };
    let put = AccountUpdate::Put(Account::default());
    let no_account = [change(absent, AccountUpdate::Keep)];
    let unsorted = [change(absent, put.clone()), change(B256::ZERO, put)];
    let none = ProofTargets::default();
    for (changes, what) in [(&no_account[..], "no account"), (&unsorted[..], "unsorted")] {
        let extracted = trie.extract_for_changes(&none, changes, &mut NoResolve);
        let error = extracted.map(|_| ()).expect_err(what);
        assert!(matches!(error, UpdateError::Trie(_)), "{what}: {error}");
    }
}

/// The root after changes, by unfolding what they need.
fn root_after(nodes: &WitnessNodes, changes: &[AccountDiff]) -> Result<B256, UnfoldError> {
    let mut trie = nodes.trie();
    let leaves = changes.iter().map(|change| 1 + change.slots.len());
    match trie.apply(changes, &mut nodes.unfolder(leaves.sum())) {
        Ok(()) => {}
        Err(UpdateError::Resolve(error)) => return Err(error),
        Err(UpdateError::Trie(error)) => panic!("{error}"),
    }
    commit(&mut [&mut trie], &mut Batch::new());
    Ok(trie.state_root().expect("it is hashed"))
}

#[test]
fn a_witness_alone_gives_the_reads_and_the_root_after() {
    let (mut needed, mut not_enough) = (0, 0);
    for seed in cambium_seeds::seeds!(0..steps(60, 5_000) as u64) {
        let mut random = Random(seed);
        let few = 2 + random.below(30);
        let (accounts, slots) = (random.close_keys(few), random.close_keys(12));
        let mut model = Model::default();
        for _ in 0..30 {
            let before = model.clone();
            let changes = random.changes(&model, &accounts, &slots);
            model.apply(&changes);
            if before.0.is_empty() {
                continue;
            }
            let mut trie = trie_of(&before);
            let read = (0..random.below(4)).map(|_| {
                let slots = (0..random.below(3))
                    .map(|_| random.pick(&slots))
                    .collect::<Vec<_>>();
                (random.pick(&accounts), slots)
            });
            let keys = ProofTargets::new(read.collect());
            let whole = trie.clone();
            let mut bare = root_stub(&whole);
            let extract = bare
                .extract_for_changes(&keys, changes.accounts(), &mut NodeByNode(&whole))
                .expect("the whole trie has all of it");
            let nodes = extract.witness_nodes();
            let same = trie.extract_for_changes(&keys, changes.accounts(), &mut NoResolve);
            assert_eq!(same.expect("all is here").witness_nodes(), nodes);

            let root = before.root();
            let (mut witness, unreached) = PartialTrie::from_witness(root, &nodes).expect("true");
            assert_eq!((unreached, witness.state_root()), (0, Some(root)));
            assert_eq!(witness.witness_nodes(), nodes);
            for (account, slots) in keys.accounts() {
                let held = before.0.get(account);
                let got = witness.lookup(&Path::account(account));
                assert_eq!(
                    got,
                    held.map_or(Lookup::Absent, |held| Lookup::Account(held.0))
                );
                for slot in slots {
                    let held = held.and_then(|(_, slots)| slots.get(slot));
                    let got = witness.lookup(&Path::slot(account, slot));
                    assert_eq!(
                        got,
                        held.map_or(Lookup::Absent, |value| Lookup::Slot(*value))
                    );
                }
            }
            // The same from hash to hash.
            let by_hash = WitnessNodes::new(root, &nodes).expect("true");
            assert_eq!(by_hash.unused(), 0);
            for (account, slots) in keys.accounts() {
                let held = before.0.get(account);
                assert_eq!(by_hash.account(account), Ok(held.map(|held| held.0)));
                for slot in slots {
                    let held = held.and_then(|(_, slots)| slots.get(slot).copied());
                    assert_eq!(by_hash.slot(account, slot), Ok(held.unwrap_or_default()));
                }
            }
            for change in changes.accounts() {
                let held = before.0.get(&change.path);
                let has = held.is_some_and(|(_, slots)| !slots.is_empty());
                assert_eq!(by_hash.has_storage(&change.path), Ok(has));
            }
            assert_eq!(root_after(&by_hash, changes.accounts()), Ok(model.root()));
            witness
                .apply(changes.accounts(), &mut NoResolve)
                .expect("nothing else is needed");
            commit(&mut [&mut witness], &mut Batch::new());
            assert_eq!(witness.state_root(), Some(model.root()), "seed {seed}");

            // Without one of the nodes it is an error, or the node was only there to be read.
            let without = random.below(nodes.len());
            let mut fewer = nodes.clone();
            fewer.remove(without);
            let by_hash = WitnessNodes::new(root, &fewer).expect("still true");
            let by_hash = root_after(&by_hash, changes.accounts());
            let (mut fewer, _) = PartialTrie::from_witness(root, &fewer).expect("still true");
            match fewer.apply(changes.accounts(), &mut NoResolve) {
                Err(UpdateError::Resolve(missing)) => {
                    assert_eq!(by_hash, Err(UnfoldError::Missing(missing)));
                    not_enough += 1;
                }
                Err(error) => panic!("{error}"),
                Ok(()) => {
                    commit(&mut [&mut fewer], &mut Batch::new());
                    assert_eq!(fewer.state_root(), Some(model.root()));
                    assert_eq!(by_hash, Ok(model.root()));
                }
            }
            needed += nodes.len();
        }
    }
    println!("{needed} nodes in witnesses; {not_enough} witnesses without a node were refused");
    assert!(not_enough > 0);
}

#[test]
fn nodes_in_any_order_and_beside_the_way_make_the_same_trie() {
    let state = common::hashed(&mut Random(4), 40, 5);
    let root = state.model.root();
    let mut nodes = trie_of(&state.model).witness_nodes();
    nodes.reverse();
    nodes.push(Bytes::from_static(b"no node at all"));
    nodes.push(nodes[0].clone());
    let (trie, unreached) = PartialTrie::from_witness(root, &nodes).expect("true");
    assert_eq!(
        (trie.state_root(), unreached, trie.counts().1),
        (Some(root), 2, 0)
    );
    let (empty, unreached) = PartialTrie::from_witness(EMPTY_ROOT, &nodes).expect("empty");
    assert!(empty.is_empty() && unreached == nodes.len());
    let (nothing, _) = PartialTrie::from_witness(root, &[]).expect("nothing is no lie");
    assert_eq!(
        (nothing.state_root(), nothing.counts()),
        (Some(root), (0, 1))
    );
}

#[test]
fn a_malformed_node_is_named() {
    let malformed = |rlp: Vec<u8>| {
        let hash = keccak256(&rlp);
        let nodes = [Bytes::from(rlp)];
        let unfolded = PartialTrie::from_witness(hash, &nodes).map(drop);
        let linked = WitnessNodes::new(hash, &nodes).map(drop);
        assert_eq!(unfolded, linked);
        match unfolded {
            Err(WitnessError::Malformed {
                hash: named, what, ..
            }) if named == hash => what,
            other => panic!("{other:?}"),
        }
    };
    let leaf = |nibbles: usize, value: &[u8]| {
        let mut rlp = vec![];
        encode_leaf(&Path::account(&B256::ZERO).prefix(nibbles), value, &mut rlp);
        rlp
    };
    assert_eq!(
        malformed(leaf(63, &[0x42; 40])),
        "a leaf whose path is not whole"
    );
    assert_eq!(
        malformed(leaf(64, &[0x42; 40])),
        "a string instead of a list"
    );
    assert_eq!(malformed(b"\xf8".to_vec()), "malformed RLP");
    let mut short = leaf(64, &[0x42; 40]);
    short.pop();
    assert_eq!(malformed(short), "malformed RLP");
    let mut one_child = [None; 16];
    one_child[3] = Some(NodeRef::hash(B256::ZERO));
    let mut rlp = vec![];
    encode_branch(&one_child, &[], &mut rlp);
    assert_eq!(malformed(rlp), "a branch with less than two children");
    let mut with_value = vec![];
    encode_branch(&[one_child[3]; 16], b"value", &mut with_value);
    assert_eq!(malformed(with_value), "a branch with a value");
}

#[test]
fn nodes_that_unfold_without_end_are_refused() {
    // Sixteen children all the same, ten levels deep: 16^10 leaves of eleven nodes.
    let mut nodes = vec![];
    let mut rlp = vec![];
    let account = common::account_rlp(&Default::default(), EMPTY_ROOT);
    encode_leaf(&Path::account(&B256::ZERO).prefix(54), &account, &mut rlp);
    for _ in 0..11 {
        let child = NodeRef::of_rlp(&rlp);
        nodes.push(Bytes::from(std::mem::take(&mut rlp)));
        encode_branch(&[Some(child); 16], &[], &mut rlp);
    }
    let root = keccak256(nodes.last().expect("eleven"));
    let error = PartialTrie::from_witness(root, &nodes).unwrap_err();
    assert!(matches!(error, WitnessError::TooBig { .. }), "{error}");
    // Nodes that belong to nothing raise no limit.
    let junk = (0..100_000u32).map(|number| Bytes::from(number.to_be_bytes().to_vec()));
    let mut with_junk = nodes.clone();
    with_junk.extend(junk);
    let again = PartialTrie::from_witness(root, &with_junk).unwrap_err();
    assert_eq!(again, error);

    // From hash to hash there is nothing to unfold: a leaf has no path of its own but the end of one.
    let range = LeafRange::accounts(B256::ZERO, B256::repeat_byte(0xff));
    let whole = WitnessNodes::new(root, &nodes).expect("well-formed");
    assert!(whole.account(&B256::ZERO).unwrap().is_some());
    assert_eq!(whole.leaves(&range, 1_000), Ok(None));
    // All leaves are blinded: look-ups end there, and changes unfold their own paths alone.
    let nodes = WitnessNodes::new(root, &nodes[1..]).expect("well-formed");
    assert_eq!(nodes.unused(), 0);
    let missing = nodes.account(&B256::ZERO).unwrap_err();
    assert_eq!(missing.path.len(), 10);
    let change = |index: u64| AccountDiff {
        path: keccak256(index.to_be_bytes()),
        account: AccountUpdate::Put(Account::default()),
        wipe: false,
        slots: vec![],
    };
    let mut changes: Vec<_> = (0..1000).map(change).collect();
    changes.sort_by_key(|change| change.path);
    let missing = root_after(&nodes, &changes).unwrap_err();
    assert!(matches!(missing, UnfoldError::Missing(_)), "{missing}");
    assert_eq!(nodes.leaves(&range, 10).unwrap_err().path.len(), 10);
}

/// Accounts of equal storage share its nodes: a witness has them once, and the trie has them as often as there are
/// accounts.
#[test]
fn accounts_of_equal_storage_are_read_and_changed_however_many_they_are() {
    const ACCOUNTS: u64 = 2_500;
    const SLOTS: u64 = 500;
    let slots: Vec<_> = {
        let slots = (0..SLOTS).map(|slot| (keccak256(slot.to_be_bytes()), U256::from(slot + 1)));
        let mut slots: Vec<_> = slots.collect();
        slots.sort();
        slots
    };
    let change = |index: u64, slots: &[(B256, U256)]| AccountDiff {
        path: keccak256(B256::from(U256::from(index))),
        account: AccountUpdate::Put(Account {
            nonce: 1,
            ..Account::default()
        }),
        wipe: false,
        slots: slots.to_vec(),
    };
    let mut all: Vec<_> = (0..ACCOUNTS).map(|index| change(index, &slots)).collect();
    all.sort_by_key(|change| change.path);
    let mut trie = PartialTrie::new(Path::EMPTY);
    trie.apply(&all, &mut NoResolve).unwrap();
    commit(&mut [&mut trie], &mut Batch::new());
    let root = trie.state_root().unwrap();
    // One account is read whole, and one slot of each is changed.
    let targets = |change: &AccountDiff| {
        let whole = change.path == all[7].path;
        let slots = change.slots.iter().map(|(slot, _)| *slot);
        (change.path, slots.filter(|_| whole).collect())
    };
    let targets = ProofTargets::new(all.iter().map(targets).collect());
    let changes: Vec<_> = all
        .iter()
        .map(|change| AccountDiff {
            slots: vec![(slots[3].0, U256::from(7))],
            account: AccountUpdate::Keep,
            ..change.clone()
        })
        .collect();
    let extract = trie
        .extract_for_changes(&targets, &changes, &mut NoResolve)
        .unwrap();
    let nodes = extract.witness_nodes();
    assert!(
        nodes.len() < 3 * (ACCOUNTS + SLOTS) as usize,
        "{}",
        nodes.len()
    );
    let unfolded = PartialTrie::from_witness(root, &nodes);
    assert!(matches!(unfolded, Err(WitnessError::TooBig { .. })));

    let by_hash = WitnessNodes::new(root, &nodes).unwrap();
    assert_eq!(by_hash.unused(), 0);
    for (slot, value) in &slots {
        for change in [&all[0], &all[7], &all[1_000]] {
            assert_eq!(by_hash.slot(&change.path, slot), Ok(*value));
        }
    }
    let expected = {
        trie.apply(&changes, &mut NoResolve).unwrap();
        commit(&mut [&mut trie], &mut Batch::new());
        trie.state_root().unwrap()
    };
    assert_eq!(root_after(&by_hash, &changes), Ok(expected));

    // A multiproof of them, and the slots of one as a range.
    let mut before = PartialTrie::new(Path::EMPTY);
    before.apply(&all, &mut NoResolve).unwrap();
    commit(&mut [&mut before], &mut Batch::new());
    let proof = before.prove_many(&targets, &mut NoResolve).unwrap();
    let proved = proof.verify(root, &targets).unwrap();
    assert_eq!(proved.len(), ACCOUNTS as usize);
    let read: usize = proved.iter().map(|account| account.slots.len()).sum();
    assert_eq!(read, SLOTS as usize);
    let range = LeafRange::slots(all[7].path, B256::ZERO, B256::repeat_byte(0xff));
    let found = by_hash.leaves(&range, slots.len()).unwrap().unwrap();
    let expected = slots
        .iter()
        .map(|(slot, value)| (*slot, LeafValue::Slot(*value)));
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert_eq!(by_hash.leaves(&range, slots.len() - 1), Ok(None));
}

#[cfg(feature = "serde")]
#[test]
fn a_witness_has_the_json_form_of_debug_execution_witness() {
    let witness = Witness {
        state: vec![Bytes::from_static(&[1, 2])],
        ..Witness::default()
    };
    let json = serde_json::to_string(&witness).expect("JSON");
    assert_eq!(
        json,
        r#"{"state":["0x0102"],"codes":[],"keys":[],"headers":[]}"#
    );
    assert_eq!(
        serde_json::from_str::<Witness>(&json).expect("back"),
        witness
    );
}

#[cfg(not(feature = "serde"))]
#[test]
fn a_witness_starts_empty() {
    assert!(Witness::default().state.is_empty());
}
