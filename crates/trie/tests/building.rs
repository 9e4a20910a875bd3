//! Building from leaves and storing: rejected input, the cost, and the bytes.

use crate::common;
use crate::common::{Random, hashed, steps, trie_of};
use alloy_primitives::{B256, U256, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, Path};
use cambium_trie::{
    LeafValue, Link, Lookup, NoResolve, NodeKind, NodeRef, NodeView, PartialTrie, Place, Stub,
    TrieError, UpdateError, commit,
};

fn graft(prefix: &Path, leaves: &[(Path, LeafValue)]) -> Result<Link, TrieError> {
    let mut trie = PartialTrie::new(Path::EMPTY);
    trie.graft_leaves(prefix, leaves.iter().cloned(), std::iter::empty())
}

#[test]
fn leaves_that_make_no_state_are_refused() {
    let [a, b] = [1, 2].map(B256::repeat_byte);
    let account = |key: &B256| (Path::account(key), LeafValue::Account(Account::default()));
    let slot = |key, slot, value| (Path::slot(key, slot), LeafValue::Slot(U256::from(value)));
    let elsewhere = LeafValue::Storage(Stub::bare(NodeRef::hash(B256::ZERO)));
    let storage = |key: &B256| (Path::account(key), elsewhere.clone());
    let whole = Path::EMPTY;

    let fine = [
        account(&a),
        slot(&a, &a, 1),
        slot(&a, &b, 1),
        account(&b),
        storage(&b),
    ];
    assert!(graft(&whole, &fine).is_ok());
    assert!(graft(&Path::account(&a), &fine[1..3]).is_ok());
    assert_eq!(graft(&whole, &[]), Ok(Link::EMPTY));

    let unsorted = |path| Err(TrieError::Unsorted { path });
    let orphan = |path| Err(TrieError::Orphan { path });
    assert_eq!(
        graft(&whole, &[account(&b), account(&a)]),
        unsorted(Path::account(&a))
    );
    assert_eq!(
        graft(&whole, &[account(&a), account(&a)]),
        unsorted(Path::account(&a))
    );
    let twice = [account(&a), slot(&a, &b, 1), slot(&a, &b, 1)];
    assert_eq!(graft(&whole, &twice), unsorted(Path::slot(&a, &b)));
    assert_eq!(
        graft(&whole, &[slot(&a, &b, 1)]),
        orphan(Path::slot(&a, &b))
    );
    assert_eq!(
        graft(&whole, &[account(&a), slot(&b, &a, 1)]),
        orphan(Path::slot(&b, &a))
    );
    assert_eq!(graft(&whole, &[storage(&a)]), unsorted(Path::account(&a)));
    let both = [account(&a), storage(&a), slot(&a, &b, 1)];
    assert_eq!(graft(&whole, &both), orphan(Path::slot(&a, &b)));
    let zero = graft(&whole, &[account(&a), slot(&a, &b, 0)]);
    assert_eq!(
        zero,
        Err(TrieError::ZeroSlot {
            path: Path::slot(&a, &b)
        })
    );
    for (prefix, leaf) in [
        (Path::account(&a), slot(&b, &b, 1)),
        (Path::account(&a), account(&a)),
        (Path::account(&a).prefix(3), account(&b)),
    ] {
        let outside = TrieError::Outside {
            path: leaf.0,
            under: Box::new(prefix),
        };
        assert_eq!(graft(&prefix, &[leaf]), Err(outside));
    }
}

/// The links of all nodes below `link` that are expanded, parents before children.
fn links_below(trie: &PartialTrie, link: Link, into: &mut Vec<Link>) {
    let below: Vec<Link> = match trie.visit(link) {
        NodeView::Empty | NodeView::Stub(_) => return,
        NodeView::Branch { children } => children.to_vec(),
        NodeView::Extension { child, .. } => vec![child],
        NodeView::Account { storage, .. } => vec![storage],
        NodeView::Slot { .. } | NodeView::Entry { .. } => vec![],
    };
    into.push(link);
    below
        .into_iter()
        .for_each(|link| links_below(trie, link, into));
}

#[test]
fn nodes_are_hashed_right_in_whatever_order_they_are_listed() {
    let mut random = Random(14);
    let mut changes = Vec::new();
    for account in 0..300u64 {
        let slots = if account % 7 == 0 {
            random.below(40)
        } else {
            0
        };
        changes.push(AccountDiff {
            path: keccak256(account.to_le_bytes()),
            account: AccountUpdate::Put(Account::default()),
            wipe: false,
            // Few of the values are large, so that some nodes are inlined.
            slots: (0..slots)
                .map(|slot| (keccak256(slot.to_be_bytes()), U256::from(slot % 3 + 1)))
                .collect(),
        });
    }
    let changes = Changes::new(changes);
    let mut unhashed = PartialTrie::new(Path::EMPTY);
    unhashed.apply(changes.accounts(), &mut NoResolve).unwrap();
    let mut expected = unhashed.clone();
    commit(&mut [&mut expected], &mut Batch::new());
    let mut links = Vec::new();
    links_below(&unhashed, unhashed.root(), &mut links);
    assert!(links.len() > 1_500, "{} nodes", links.len());
    for round in 0..20 {
        match round {
            0 => {}
            // Children before parents, as a merge lists them.
            1 => links.reverse(),
            _ => (1..links.len()).rev().for_each(|at| {
                let other = random.below(at + 1);
                links.swap(at, other);
            }),
        }
        let mut trie = unhashed.clone();
        // The same node may be listed twice, too.
        let listed = links.iter().chain(&links[..10]).copied();
        let hashed = trie.hash_nodes(listed, &mut Batch::new());
        assert_eq!(hashed, links.len(), "each node once");
        assert_eq!(trie.state_root(), expected.state_root(), "round {round}");
        for link in &links {
            assert_eq!(
                trie.cached_ref(*link),
                expected.cached_ref(*link),
                "{link:?}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "is not hashed, and its parent is to be")]
fn a_parent_is_never_hashed_without_a_child_that_is_not_hashed() {
    let [a, b] = [1, 2].map(|byte| B256::repeat_byte(byte << 4));
    let put = |path| AccountDiff {
        path,
        account: AccountUpdate::Put(Account::default()),
        wipe: false,
        slots: vec![],
    };
    let mut trie = PartialTrie::new(Path::EMPTY);
    trie.apply(&[put(a), put(b)], &mut NoResolve).unwrap();
    // The root is said to be hashed, and its children are not: its RLP would leave them out.
    let NodeView::Branch { .. } = trie.visit(trie.root()) else {
        panic!("two accounts below a branch");
    };
    trie.set_cached_ref(trie.root(), NodeRef::hash(B256::ZERO));
    let _ = trie.witness_nodes();
}

#[test]
fn a_digest_belongs_to_a_node_that_is_there() {
    let mut state = hashed(&mut Random(8), 20, 4);
    let (account, (_, slots)) = state.model.0.iter_mut().next().expect("twenty");
    slots.insert(B256::ZERO, U256::ONE);
    let account = Path::account(account);
    let mut trie = PartialTrie::new(Path::EMPTY);
    let memo = NodeRef::hash(B256::repeat_byte(9));
    let mut graft = |at: Path| {
        let leaves = state.model.leaves(&Path::EMPTY).into_iter();
        let root = trie.graft_leaves(&Path::EMPTY, leaves, [(at, memo)].into_iter())?;
        trie.set_root(root);
        Ok(trie.find(&at).and_then(|link| trie.cached_ref(link)))
    };
    assert_eq!(graft(Path::EMPTY), Ok(Some(memo)));
    assert_eq!(graft(account), Ok(Some(memo)));
    let nowhere = account.prefix(40);
    assert_eq!(graft(nowhere), Err(TrieError::NoNode { path: nowhere }));
}

#[test]
fn changes_that_fit_no_state_are_refused_and_leave_nothing_to_read() {
    let change = |path, account, slots| AccountDiff {
        path,
        account,
        wipe: false,
        slots,
    };
    let (a, b) = (B256::repeat_byte(1), B256::repeat_byte(2));
    let put = || AccountUpdate::Put(Account::default());
    let mut trie = PartialTrie::new(Path::account(&a).prefix(2));
    trie.apply(&[change(a, put(), vec![])], &mut NoResolve)
        .expect("nothing is absent");

    let outside = trie.apply(&[change(b, put(), vec![])], &mut NoResolve);
    let under = Box::new(*trie.base());
    let path = Path::account(&b);
    assert_eq!(
        outside,
        Err(UpdateError::Trie(TrieError::Outside { path, under }))
    );
    let unsorted = trie.apply(
        &[change(a, put(), vec![(b, U256::ONE), (a, U256::ONE)])],
        &mut NoResolve,
    );
    let path = Path::slot(&a, &a);
    assert_eq!(
        unsorted,
        Err(UpdateError::Trie(TrieError::Unsorted { path }))
    );
    // Neither touched the trie.
    assert_eq!(
        trie.lookup(&Path::account(&a)),
        Lookup::Account(Account::default())
    );

    // To keep what is not there is nothing, unless slots are to be set on it.
    let mut other = a;
    other[31] = 0xff;
    let zero = change(other, AccountUpdate::Keep, vec![(a, U256::ZERO)]);
    trie.apply(&[zero], &mut NoResolve).expect("nothing to do");
    let keep = change(other, AccountUpdate::Keep, vec![(a, U256::ONE)]);
    let path = Path::account(&other);
    let error = trie.apply(&[keep], &mut NoResolve).unwrap_err();
    assert_eq!(error, UpdateError::Trie(TrieError::NoAccount { path }));
    assert!(matches!(
        trie.lookup(&Path::account(&a)),
        Lookup::Stub { .. }
    ));
    assert_eq!(trie.state_root(), None);
}

#[test]
fn an_index_of_sixteen_million_keys_takes_under_four_bytes_a_key() {
    // Depth 5 of 2^24 random keys: 2^20 pages of 16 keys, below 69,905 branches; here one of the
    // 256 tries of it.
    let mut trie = PartialTrie::new(Path::from_nibbles(&[0, 0]));
    let stub = |number: u64| Stub {
        node: NodeRef::hash(B256::repeat_byte(number as u8)),
        kind: Some(NodeKind::Branch),
        place: Place::new(number + 1),
    };
    let mut level: Vec<_> = (0..4096)
        .map(|number| trie.push_stub(stub(number)))
        .collect();
    while level.len() > 1 {
        let groups = level
            .chunks(16)
            .map(|children| children.try_into().expect("sixteen"));
        level = groups
            .collect::<Vec<_>>()
            .into_iter()
            .map(|it| trie.push_branch(it))
            .collect();
    }
    trie.set_root(level[0]);
    trie.shrink_to_fit();
    let each = trie.memory_bytes() as f64 / 65536.0;
    println!("{each:.2} bytes a key");
    assert!(each < 4.0);
}

#[test]
fn the_form_on_disk_is_the_one_that_older_databases_have() {
    let state = hashed(&mut Random(1), 50, 6);
    let mut trie = trie_of(&state.model);
    let path = Path::account(&keccak256(state.addresses[0]));
    let at = (1..)
        .map(|len| path.prefix(len))
        .find(|path| trie.find(path).is_some());
    let at = at.expect("a node on the way");
    trie.replace_by_stub(&at, Place::new(0x0102_0304_0506))
        .expect("hashed");
    let mut bytes = vec![];
    trie.encode_to(&mut bytes);
    let golden = "0x2dfa6370a782c3e4ba9f506a1a03ad4d06ae4c13d4ff83b68c4257fa60359154";
    assert_eq!(
        keccak256(&bytes).to_string(),
        golden,
        "{} bytes",
        bytes.len()
    );
}

#[test]
fn changes_lead_from_any_trie_to_any_other_and_the_same_takes_a_byte() {
    let mut random = Random(3);
    let (accounts, slots) = (random.close_keys(40), random.close_keys(30));
    let mut model = common::Model::default();
    for _ in 0..40 {
        model.apply(&random.changes(&model, &accounts, &slots));
    }
    let mut tries: Vec<PartialTrie> = vec![PartialTrie::new(Path::EMPTY), trie_of(&model)];
    for round in 0..steps(60, 2000) {
        model.apply(&random.changes(&model, &accounts, &slots));
        let mut trie = trie_of(&model);
        // Some of it elsewhere: places must not be lost.
        for key in model.0.keys().step_by(7) {
            let path = Path::account(key).prefix(1 + round % 3);
            if trie.find(&path).is_some_and(|link| !link.is_stub()) {
                let place = Place::new(1 + random.below(3) as u64);
                trie.replace_by_stub(&path, place).expect("hashed");
            }
        }
        let other = random.below(tries.len());
        let mut longest = vec![];
        trie.encode_to(&mut longest);
        for before in [&tries[other], tries.last().expect("the one before")] {
            let (mut bytes, mut whole) = (vec![], vec![]);
            trie.encode_changes_to(before, &mut bytes);
            assert!(bytes.len() <= longest.len());
            let again = PartialTrie::decode_changes(before, &bytes).expect("just encoded");
            again.encode_to(&mut whole);
            assert_eq!(whole, longest, "round {round}");
        }
        let mut nothing = vec![];
        trie.encode_changes_to(&trie, &mut nothing);
        assert_eq!(nothing, [1, 0, 6]);
        tries.push(trie);
    }
}

#[test]
fn changes_are_as_few_as_what_changed() {
    let mut random = Random(4);
    let mut state = hashed(&mut random, 3000, 0);
    let before = trie_of(&state.model);
    let keys: Vec<_> = state.model.0.keys().copied().collect();
    for key in keys.iter().step_by(100) {
        state.model.0.get_mut(key).expect("there").0.nonce += 1;
    }
    let after = trie_of(&state.model);
    let (mut all, mut changes) = (vec![], vec![]);
    after.encode_to(&mut all);
    after.encode_changes_to(&before, &mut changes);
    println!("{} of {} bytes", changes.len(), all.len());
    assert!(changes.len() * 10 < all.len());
}

#[test]
fn a_subtrie_is_kept_by_itself_and_put_back_where_it_was() {
    let state = hashed(&mut Random(2), 60, 40);
    let whole = trie_of(&state.model);
    let (mut in_accounts, mut in_storage) = (0, 0);
    for (key, (_, slots)) in &state.model.0 {
        let leaf = slots.keys().next().map(|slot| Path::slot(key, slot));
        let leaf = leaf.unwrap_or(Path::account(key));
        let nodes = (1..leaf.len())
            .map(|len| leaf.prefix(len))
            .filter_map(|path| Some((path, whole.find(&path)?)));
        for (path, link) in nodes {
            let mut bytes = vec![1, 2, 3];
            assert!(whole.encode_subtrie_to(link, &path, usize::MAX, &mut bytes));
            let len = bytes.len() - 3;
            let mut again = vec![];
            assert!(!whole.encode_subtrie_to(link, &path, len - 1, &mut again));
            assert!(again.is_empty());
            assert!(whole.encode_subtrie_to(link, &path, len, &mut again));
            assert_eq!(again, bytes[3..]);

            // It can be read alone.
            let alone = PartialTrie::decode(&again).expect("what was just encoded");
            assert_eq!(alone.base(), &path);
            assert_eq!(alone.lookup(&leaf), whole.lookup(&leaf));
            let below = leaf.prefix(leaf.len().min(path.len() + 1));
            let depth = |trie: &PartialTrie| trie.find_or_stub(&below).map(|(_, depth)| depth);
            assert_eq!(depth(&alone), depth(&whole));

            // Another trie takes it where it was, and nowhere else.
            let mut other = PartialTrie::new(Path::EMPTY);
            let elsewhere = path.child(0);
            assert!(other.graft_encoded(&elsewhere, &again).is_err());
            let copy = other.graft_encoded(&path, &again).expect("its place");
            let mut copied = vec![];
            assert!(other.encode_subtrie_to(copy, &path, usize::MAX, &mut copied));
            assert_eq!(copied, again);
            match path.len() {
                0..64 => in_accounts += 1,
                _ => in_storage += 1,
            }
        }
    }
    assert!(
        in_accounts > 60 && in_storage > 60,
        "{in_accounts}, {in_storage}"
    );
}
