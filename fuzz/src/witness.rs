//! The nodes of a witness or of a multiproof.

use crate::{input::Input, links::linked};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{Lookup, MultiProof, NoResolve, PartialTrie, ProofTargets, Witness, commit};

/// Input: nodes with marks in place of hashes, the first of which is the root; then changes to
/// apply.
///
/// A trie from a witness is bound to its root: the nodes of the trie give the same trie, and a
/// multiproof returns the same leaves. Changes that can be applied give the same root from a
/// witness with only the nodes that they need.
pub fn witness(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let nodes = linked(input.pieces(32));
    let Some(root) = nodes.first().map(keccak256) else {
        return json(input.rest());
    };
    let Ok((trie, unused)) = PartialTrie::from_witness(root, &nodes) else {
        return;
    };
    assert_eq!(trie.state_root(), Some(root));
    if trie.counts().0 > 1 << 14 {
        return;
    }
    let listed = trie.witness_nodes();
    let (again, none) = PartialTrie::from_witness(root, &listed).expect("nodes of a trie");
    assert_eq!((encoded(&again), none), (encoded(&trie), 0));
    assert!(
        listed.iter().all(|node| nodes.contains(node)),
        "a node from nowhere"
    );
    let read = PartialTrie::decode(&encoded(&trie)).expect("what was just encoded");
    assert_eq!(encoded(&read), encoded(&trie));

    let changes = changes_of(&mut input);
    let keys = ProofTargets::of_changes(&changes);
    check_proofs(&trie, root, &nodes, &keys, unused);
    check_changes(trie, root, &changes);
}

fn encoded(trie: &PartialTrie) -> Vec<u8> {
    let mut bytes = Vec::new();
    trie.encode_to(&mut bytes);
    bytes
}

fn check_proofs(
    trie: &PartialTrie,
    root: B256,
    nodes: &[Bytes],
    keys: &ProofTargets,
    unused: usize,
) {
    let all = MultiProof {
        nodes: nodes.to_vec(),
    };
    if let Ok(proved) = all.verify(root, keys) {
        assert_eq!(unused, 0, "a multiproof with nodes to spare");
        let needed = trie.clone().prove_many(keys, &mut NoResolve);
        let needed = needed.expect("proved already");
        let mut sorted = nodes.to_vec();
        sorted.sort_by_key(|node| keccak256(node));
        assert_eq!(needed.nodes, sorted);
        for account in proved {
            let found = match trie.lookup(&Path::account(&account.path)) {
                Lookup::Account(fields) => Some(fields),
                _ => None,
            };
            assert_eq!(account.account, found);
        }
    }
    if let Ok(least) = trie.clone().prove_many(keys, &mut NoResolve) {
        let proved = least
            .verify(root, keys)
            .expect("a proof that was just made");
        assert_eq!(proved.len(), keys.accounts().len());
    }
}

fn check_changes(mut trie: PartialTrie, root: B256, changes: &[AccountDiff]) {
    let part = trie
        .clone()
        .extract_for_changes(&ProofTargets::default(), changes, &mut NoResolve);
    let applied = trie.apply(changes, &mut NoResolve);
    if applied.is_err() {
        return;
    }
    commit(&mut [&mut trie], &mut Default::default());
    let after = trie.state_root().expect("hashed");
    let part = match part {
        Ok(part) => part,
        // Slots below a wiped storage are among the targets, but are not needed.
        Err(_) if changes.iter().any(|change| change.wipe) => return,
        Err(error) => panic!("what applies can be extracted for: {error:?}"),
    };
    let nodes = part.witness_nodes();
    let (mut least, unused) = PartialTrie::from_witness(root, &nodes).expect("nodes of a trie");
    assert_eq!(unused, 0);
    least
        .apply(changes, &mut NoResolve)
        .expect("all that is needed");
    commit(&mut [&mut least], &mut Default::default());
    assert_eq!(
        least.state_root(),
        Some(after),
        "another root with fewer nodes"
    );
}

/// Draws changes of accounts and slots: at hashes of small numbers, which seeds have, or at any
/// path.
fn changes_of(input: &mut Input<'_>) -> Vec<AccountDiff> {
    let mut changes = Vec::new();
    for _ in 0..input.below(5) {
        let (path, head) = (path_of(input), input.u8());
        let account = match head & 3 {
            0 => AccountUpdate::Keep,
            1 => AccountUpdate::Delete,
            _ => AccountUpdate::Put(Account {
                nonce: input.u8().into(),
                ..Account::default()
            }),
        };
        let mut slots: Vec<_> = (0..input.below(4))
            .map(|_| (path_of(input), U256::from(input.below(3))))
            .collect();
        slots.sort_by_key(|(slot, _)| *slot);
        slots.dedup_by_key(|(slot, _)| *slot);
        if account == AccountUpdate::Delete {
            slots.clear();
        }
        changes.push(AccountDiff {
            path,
            wipe: head & 4 != 0 || account == AccountUpdate::Delete,
            account,
            slots,
        });
    }
    changes.sort_by_key(|change| change.path);
    changes.dedup_by_key(|change| change.path);
    changes
}

fn path_of(input: &mut Input<'_>) -> B256 {
    match input.u8() {
        number @ ..=0xf0 => number_path(number),
        _ => B256::right_padding_from(input.take(2)),
    }
}

/// Returns the path of account or slot `number` of a seed.
pub(crate) fn number_path(number: u8) -> B256 {
    keccak256([number])
}

/// Reads a witness from JSON.
fn json(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<Witness>(bytes) else {
        return;
    };
    let text = serde_json::to_string(&read).expect("a witness has its form");
    assert_eq!(
        serde_json::from_str::<Witness>(&text).expect("its form"),
        read
    );
}
