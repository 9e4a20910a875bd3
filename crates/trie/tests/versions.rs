//! Versions that share nodes, and node bags made of them, against models.

use crate::common::{Model, Random, hashed, steps, trie_of};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, Path};
use cambium_trie::{
    Alone, BagLevels, BagMaker, BagNodes, Deletes, EMPTY_ROOT, HashedNodes, Lookup, NoResolve,
    NodeRef, NodesByHash, PartialTrie, ProofTargets, Stub, TrieError, UnfoldError, UpdateError,
    Version, VersionedTrie, commit,
};

fn root_of(trie: &VersionedTrie, version: &Version) -> B256 {
    let root = trie.at(version).root_ref();
    root.map_or(EMPTY_ROOT, |node| node.root_hash())
}

/// A version with its model, and its parent's index.
struct Known {
    version: Version,
    model: Model,
    parent: Option<usize>,
}

struct Tree {
    trie: VersionedTrie,
    known: Vec<Option<Known>>,
    oldest: usize,
}

impl Tree {
    fn alive(&self) -> Vec<usize> {
        let ids = 0..self.known.len();
        ids.filter(|id| self.known[*id].is_some()).collect()
    }

    fn children(&self, of: usize) -> Vec<usize> {
        let ids = self.alive().into_iter();
        ids.filter(|id| self.known[*id].as_ref().unwrap().parent == Some(of))
            .collect()
    }

    /// Removes a version and all above it.
    fn remove(&mut self, id: usize) {
        for child in self.children(id) {
            self.remove(child);
        }
        let known = self.known[id].take().unwrap();
        self.trie.remove(known.version);
    }

    /// Retires the oldest version, after all of its children but one are gone.
    fn retire(&mut self, random: &mut Random) {
        let children = self.children(self.oldest);
        if children.is_empty() {
            return;
        }
        let kept = random.pick(&children);
        for other in children {
            if other != kept {
                self.remove(other);
            }
        }
        let oldest = self.known[self.oldest].take().unwrap();
        let child = self.known[kept].as_mut().unwrap();
        self.trie.retire(oldest.version, &mut child.version);
        child.parent = None;
        self.oldest = kept;
    }

    fn check(&self, accounts: &[B256], slots: &[B256]) {
        for known in self.known.iter().flatten() {
            assert_eq!(root_of(&self.trie, &known.version), known.model.root());
            let view = self.trie.at(&known.version);
            let found = view.accounts(accounts);
            for (path, found) in accounts.iter().zip(found) {
                let expected = known.model.0.get(path);
                assert_eq!(found, view.account(path));
                assert_eq!(found.map(|(account, _)| account), expected.map(|it| it.0));
                let values = view.slots(path, slots);
                for (slot, value) in slots.iter().zip(values) {
                    let expected = expected.and_then(|it| it.1.get(slot));
                    assert_eq!(value, expected.copied().unwrap_or_default());
                }
            }
        }
    }
}

#[test]
fn a_tree_of_versions_is_its_models_and_frees_what_nobody_has() {
    for seed in cambium_seeds::seeds!(0..steps(30, 2_000) as u64) {
        let mut random = Random(seed);
        let accounts = random.close_keys(12);
        let slots = random.close_keys(8);
        let mut model = Model::default();
        for _ in 0..random.below(4) {
            let changes = random.changes(&model, &accounts, &slots);
            model.apply(&changes);
        }
        let (trie, version) = VersionedTrie::new(trie_of(&model)).unwrap();
        let known = Known {
            version,
            model,
            parent: None,
        };
        let mut tree = Tree {
            trie,
            known: vec![Some(known)],
            oldest: 0,
        };
        for _ in 0..40 {
            match random.below(10) {
                0..6 => {
                    let parent = random.pick(&tree.alive());
                    let of = tree.known[parent].as_ref().unwrap();
                    let changes = random.changes(&of.model, &accounts, &slots);
                    let version = tree
                        .trie
                        .child(&of.version, changes.accounts(), &Alone)
                        .unwrap();
                    let mut model = of.model.clone();
                    model.apply(&changes);
                    tree.known.push(Some(Known {
                        version,
                        model,
                        parent: Some(parent),
                    }));
                }
                6 => {
                    // Slots of an account that is not there, among changes that are possible.
                    let parent = random.pick(&tree.alive());
                    let of = tree.known[parent].as_ref().unwrap();
                    let nodes = tree.trie.nodes();
                    let mut changes = random
                        .changes(&of.model, &accounts, &slots)
                        .accounts()
                        .to_vec();
                    let path = random.b256();
                    changes.push(AccountDiff {
                        path,
                        account: AccountUpdate::Keep,
                        wipe: false,
                        slots: vec![(slots[0].min(slots[1]), U256::ONE)],
                    });
                    changes.sort_by_key(|change| change.path);
                    let failed = tree.trie.child(&of.version, &changes, &Alone);
                    let path = Path::account(&path);
                    assert_eq!(failed.unwrap_err(), TrieError::NoAccount { path });
                    assert_eq!(tree.trie.nodes(), nodes);
                }
                7 => {
                    let alive = tree.alive();
                    let id = random.pick(&alive);
                    if id != tree.oldest {
                        tree.remove(id);
                    }
                }
                _ => tree.retire(&mut random),
            }
            tree.check(&accounts, &slots);
        }
        for id in tree.alive() {
            if id != tree.oldest && tree.known[id].is_some() {
                tree.remove(id);
            }
        }
        let last = tree.known[tree.oldest].as_ref().unwrap();
        let alone = trie_of(&last.model);
        assert_eq!(tree.trie.nodes(), alone.counts().0);
        let mut copy = tree.trie.at(&last.version).to_trie();
        assert_eq!(copy.counts(), alone.counts());
        commit(&mut [&mut copy], &mut Batch::new());
        assert_eq!(copy.state_root(), alone.state_root());
    }
}

/// A reader's trie at this root, with the nodes above the levels.
fn reader(whole: &PartialTrie, levels: BagLevels) -> PartialTrie {
    let mut trie = whole.clone();
    trie.prune(levels.accounts, levels.slots).unwrap();
    trie
}

#[test]
fn a_bag_has_what_its_reader_lacks_and_nothing_else() {
    let mut removed = 0;
    for seed in cambium_seeds::seeds!(0..steps(60, 3_000) as u64) {
        let mut random = Random(seed);
        let many = hashed(&mut random, 40, 12);
        let mut accounts: Vec<B256> = many.model.0.keys().copied().collect();
        accounts.extend((0..8).map(|_| random.b256()));
        let slots: Vec<B256> = many.slots.iter().map(keccak256).collect();
        let model = many.model;
        let whole = trie_of(&model);
        let (trie, version) = VersionedTrie::new(whole.clone()).unwrap();
        let deletes = random.pick(&[Deletes::Nothing, Deletes::Slots, Deletes::All]);
        let levels = BagLevels {
            accounts: random.below(5) as u8,
            // Of an account below the level, the reader has nothing.
            slots: 0,
            deletes,
        };
        let wanted: Vec<_> = (0..1 + random.below(6))
            .map(|_| {
                let slots = (0..random.below(4)).map(|_| random.pick(&slots)).collect();
                (random.pick(&accounts), slots)
            })
            .collect();
        let targets = ProofTargets::new(wanted);
        let mut maker = BagMaker::new(trie.at(&version), usize::MAX);
        maker.add(&targets, levels).unwrap();
        let bytes = maker.bytes();
        let nodes = maker.finish();
        assert_eq!(bytes, nodes.iter().map(|node| node.len()).sum::<usize>());
        let bag = BagNodes::new(&nodes);
        assert_eq!(bag.len(), nodes.len(), "each node once");

        let mut reads = reader(&whole, levels);
        reads.load(&targets, &mut bag.unfolder(100)).unwrap();
        for (account, slots) in targets.accounts() {
            let expected = model.0.get(account);
            match reads.lookup(&Path::account(account)) {
                Lookup::Account(found) => assert_eq!(Some(found), expected.map(|it| it.0)),
                Lookup::Absent => assert!(expected.is_none()),
                other => panic!("{other:?}"),
            }
            for slot in slots {
                let expected = expected.and_then(|it| it.1.get(slot));
                match reads.lookup(&Path::slot(account, slot)) {
                    Lookup::Slot(value) => assert_eq!(Some(&value), expected),
                    Lookup::Absent => assert!(expected.is_none()),
                    other => panic!("{other:?}"),
                }
            }
        }

        // Deleting any part of what was read leads to the root that the model has.
        let mut after = model.clone();
        let mut changes = Vec::new();
        for (account, slots) in targets.accounts() {
            let there = model.0.contains_key(account);
            let gone = deletes == Deletes::All && random.one_in(2);
            let value = |random: &mut Random| match deletes {
                Deletes::Nothing => U256::from(1 + random.below(9)),
                _ => random.value(),
            };
            let slots: Vec<_> = slots
                .iter()
                .filter(|_| there)
                .map(|slot| (*slot, value(&mut random)))
                .collect();
            changes.push(AccountDiff {
                path: *account,
                account: match (there, gone) {
                    (true, true) => AccountUpdate::Delete,
                    (true, false) => AccountUpdate::Keep,
                    (false, _) => AccountUpdate::Put(Account::default()),
                },
                wipe: false,
                slots: if gone { vec![] } else { slots },
            });
        }
        let changes = Changes::new(changes);
        after.apply(&changes);
        let mut written = reader(&whole, levels);
        let applied = written.apply(changes.accounts(), &mut bag.unfolder(100));
        applied.unwrap_or_else(|error| panic!("{levels:?}: {error}"));
        commit(&mut [&mut written], &mut Batch::new());
        assert_eq!(written.state_root(), Some(after.root()));

        // Without any one of its nodes, a read of all targets fails and names a hash: none was in vain. With
        // deletions in mind, a bag may have a sibling that reads do not need.
        if deletes == Deletes::Nothing {
            for lost in 0..nodes.len() {
                let mut less: Vec<Bytes> = nodes.clone();
                less.remove(lost);
                let bag = BagNodes::new(&less);
                let mut reads = reader(&whole, levels);
                let failed = reads.load(&targets, &mut bag.unfolder(100)).unwrap_err();
                assert!(
                    matches!(failed, UpdateError::Resolve(UnfoldError::Missing(_))),
                    "{failed}"
                );
                removed += 1;
            }
        }
        // A node that was tampered with has another hash.
        if let Some(node) = nodes.first() {
            let mut forged = node.to_vec();
            let at = random.below(forged.len());
            forged[at] ^= 1 << random.below(8);
            let mut lies = nodes.clone();
            lies[0] = forged.into();
            let mut reads = reader(&whole, levels);
            let bag = BagNodes::new(&lies);
            reads.load(&targets, &mut bag.unfolder(100)).unwrap_err();
        }
    }
    assert!(removed > 0);
}

#[test]
fn a_bag_ends_at_its_limit() {
    let many = hashed(&mut Random(1), 40, 4);
    let whole = trie_of(&many.model);
    let (trie, version) = VersionedTrie::new(whole).unwrap();
    let accounts = many.model.0.keys().map(|path| (*path, vec![])).collect();
    let targets = ProofTargets::new(accounts);
    let levels = BagLevels {
        accounts: 0,
        slots: 0,
        deletes: Deletes::Nothing,
    };
    let mut maker = BagMaker::new(trie.at(&version), 1_000);
    let error = maker.add(&targets, levels).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the nodes of a bag take more than 1000 bytes"
    );
}

#[test]
fn a_trie_with_blinded_nodes_has_no_versions() {
    let many = hashed(&mut Random(1), 40, 4);
    let mut whole = trie_of(&many.model);
    whole.prune(1, 0).unwrap();
    assert!(matches!(
        VersionedTrie::new(whole),
        Err(TrieError::NoNode { .. })
    ));
    let stub = PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(B256::ZERO)));
    assert!(VersionedTrie::new(stub).is_err());
}

#[test]
fn prune_at_any_level_and_go_on() {
    for seed in cambium_seeds::seeds!(0..steps(60, 3_000) as u64) {
        let mut random = Random(seed * 31 + 3);
        let (na, ns) = (2 + random.below(30), 2 + random.below(20));
        let accounts = random.close_keys(na);
        let slots = if random.one_in(2) {
            random.close_keys(ns)
        } else {
            (0..ns).map(|_| random.b256()).collect()
        };
        let mut model = Model::default();
        for _ in 0..6 {
            let c = random.changes(&model, &accounts, &slots);
            model.apply(&c);
        }
        let mut trie = trie_of(&model);
        for _ in 0..6 {
            let (a, s) = (levels(&mut random), levels(&mut random));
            let copy = trie.pruned(a, s);
            trie.prune(a, s)
                .unwrap_or_else(|e| panic!("{seed} {a} {s} {e}"));
            let (mut encoded, mut of_copy) = (Vec::new(), Vec::new());
            trie.encode_to(&mut encoded);
            copy.unwrap().encode_to(&mut of_copy);
            assert!(encoded == of_copy, "{seed} {a} {s}");
            assert_eq!(trie.state_root().unwrap(), model.root());
            let (versions, version) = VersionedTrie::new(trie_of(&model)).unwrap();
            let mut maker = BagMaker::new(versions.at(&version), usize::MAX);
            let targets = ProofTargets::new(accounts.iter().map(|x| (*x, slots.clone())).collect());
            maker
                .add(
                    &targets,
                    BagLevels {
                        accounts: 0,
                        slots: 0,
                        deletes: Deletes::All,
                    },
                )
                .unwrap();
            let nodes = maker.finish();
            let bag = BagNodes::new(&nodes);
            let c = random.changes(&model, &accounts, &slots);
            if random.one_in(2) {
                trie.load(&targets, &mut bag.unfolder(1000))
                    .unwrap_or_else(|e| panic!("{seed} {a} {s} load {e}"));
                for x in &accounts {
                    match trie.lookup(&Path::account(x)) {
                        Lookup::Account(f) => assert_eq!(Some(f), model.0.get(x).map(|m| m.0)),
                        Lookup::Absent => assert!(!model.0.contains_key(x)),
                        o => panic!("{seed} {o:?}"),
                    }
                    for y in &slots {
                        match trie.lookup(&Path::slot(x, y)) {
                            Lookup::Slot(v) => {
                                assert_eq!(Some(&v), model.0.get(x).and_then(|m| m.1.get(y)))
                            }
                            Lookup::Absent => {
                                assert!(model.0.get(x).and_then(|m| m.1.get(y)).is_none())
                            }
                            o => panic!("{seed} {o:?}"),
                        }
                    }
                }
            }
            trie.apply(c.accounts(), &mut bag.unfolder(1000))
                .unwrap_or_else(|e| panic!("{seed} {a} {s} apply {e}"));
            commit(&mut [&mut trie], &mut Batch::new());
            model.apply(&c);
            assert_eq!(trie.state_root().unwrap(), model.root(), "{seed} {a} {s}");
        }
    }
}

#[test]
fn siblings_of_any_reader_suffice() {
    for seed in cambium_seeds::seeds!(0..steps(60, 3_000) as u64) {
        let mut random = Random(seed * 13 + 1);
        let n = 1 + random.below(40);
        let many = hashed(&mut random, n, 12);
        let accounts: Vec<B256> = many.model.0.keys().copied().collect();
        let slots: Vec<B256> = many.slots.iter().map(keccak256).collect();
        let model = many.model;
        let (versions, version) = VersionedTrie::new(trie_of(&model)).unwrap();
        for above in [0u8, 1, 2, 3, 64, 255] {
            let mut part = versions.at(&version).to_trie_above(above);
            assert_eq!(part.state_root().unwrap(), model.root());
            let mut pruned = trie_of(&model);
            pruned.prune(above, 0).unwrap();
            assert_eq!(part.counts(), pruned.counts(), "{seed} above {above}");
            // Every version's bag fits it.
            let mut maker = BagMaker::new(versions.at(&version), usize::MAX);
            let targets = ProofTargets::new(accounts.iter().map(|x| (*x, slots.clone())).collect());
            maker
                .add(
                    &targets,
                    BagLevels {
                        accounts: above,
                        slots: 0,
                        deletes: Deletes::All,
                    },
                )
                .unwrap();
            let bag = BagNodes::new(&maker.finish());
            part.load(&targets, &mut bag.unfolder(1000)).unwrap();
            let c = random.changes(&model, &accounts, &slots);
            part.apply(c.accounts(), &mut bag.unfolder(1000)).unwrap();
            commit(&mut [&mut part], &mut Batch::new());
            let mut after = model.clone();
            after.apply(&c);
            assert_eq!(part.state_root().unwrap(), after.root());
        }
    }
}

/// The list without copies has the nodes of the copy, of a whole trie and of its parts, whatever is deleted.
#[test]
fn nodes_for_changes_are_those_of_the_extract() {
    for seed in cambium_seeds::seeds!(0..steps(200, 10_000) as u64) {
        let mut random = Random(seed * 7 + 5);
        let (na, ns) = (1 + random.below(40), 1 + random.below(12));
        let accounts = match random.one_in(2) {
            true => random.close_keys(na),
            false => (0..na).map(|_| random.b256()).collect(),
        };
        let slots = random.close_keys(ns);
        let mut model = Model::default();
        for _ in 0..3 {
            let changes = random.changes(&model, &accounts, &slots);
            model.apply(&changes);
        }
        let changes = random.changes(&model, &accounts, &slots);
        let reads = (0..random.below(6)).map(|_| {
            let slots = (0..random.below(3)).map(|_| random.pick(&slots)).collect();
            (random.pick(&accounts), slots)
        });
        let keys = ProofTargets::new(reads.collect());
        let keys = keys.and(&ProofTargets::of_changes(changes.accounts()));
        let mut whole = trie_of(&model);
        let extract = whole.extract_for_changes(&keys, changes.accounts(), &mut NoResolve);
        let expected = extract.unwrap().witness_nodes();
        let listed = whole.nodes_for_changes(&keys, changes.accounts(), &mut NoResolve);
        let listed = listed.unwrap();
        for (hash, node) in &listed {
            assert_eq!(keccak256(node), *hash);
        }
        let nodes: Vec<_> = listed.iter().map(|(_, node)| node.clone()).collect();
        assert_eq!(nodes, expected, "{seed}");
        // Without the node of one of them, no list is made.
        let mut pruned = trie_of(&model);
        pruned.prune(1, 0).unwrap();
        if nodes.len() > 1 && !keys.accounts().is_empty() {
            let failed = pruned.nodes_for_changes(&keys, changes.accounts(), &mut NoResolve);
            assert!(failed.is_err(), "{seed}");
        }
    }
}

#[test]
fn bags_hashed_in_groups_are_as_one() {
    let many = hashed(&mut Random(3), 60, 4);
    let whole = trie_of(&many.model);
    let keys = many.model.0.keys().map(|path| (*path, vec![])).collect();
    let targets = ProofTargets::new(keys);
    let mut maker = BagMaker::of_trie(&whole, usize::MAX);
    let levels = BagLevels {
        accounts: 0,
        slots: 0,
        deletes: Deletes::Nothing,
    };
    maker.add(&targets, levels).unwrap();
    let nodes = maker.finish();
    let one = BagNodes::new(&nodes);
    for groups in [1, 2, 3, 16, 300] {
        let hashed: Vec<_> = nodes
            .chunks(7)
            .map(|part| HashedNodes::new(part, groups))
            .collect();
        let collect = |group| NodesByHash::collect(&hashed, group);
        let mut bag = BagNodes::of_groups((0..groups).map(collect).collect());
        assert_eq!((bag.len(), bag.bytes()), (one.len(), one.bytes()));
        bag.extend(one.clone());
        assert_eq!(bag.len(), nodes.len());
        let root = whole.state_root().unwrap();
        let mut trie = PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(root)));
        trie.load(&targets, &mut bag.unfolder(60)).unwrap();
        for (path, (account, _)) in &many.model.0 {
            let found = trie.lookup(&Path::account(path));
            assert_eq!(found, Lookup::Account(*account));
        }
    }
}

fn levels(random: &mut Random) -> u8 {
    match random.below(4) {
        0 => random.below(4) as u8,
        1 => 60 + random.below(8) as u8,
        2 => random.below(66) as u8,
        _ => 255,
    }
}

/// A draft that is forgotten instead of dropped.
#[test]
fn a_forgotten_draft_takes_memory_and_nothing_else() {
    let mut random = Random(9);
    let many = hashed(&mut random, 30, 4);
    let (mut trie, first) = VersionedTrie::new(trie_of(&many.model)).unwrap();
    let paths: Vec<B256> = many.model.0.keys().copied().collect();
    let change = |path, nonce| AccountDiff {
        path,
        account: AccountUpdate::Put(Account {
            nonce,
            ..Default::default()
        }),
        wipe: false,
        slots: vec![],
    };
    let mut draft = trie.draft(&first);
    draft.put(&[change(paths[0], 77)]).unwrap();
    let _forgotten = std::mem::ManuallyDrop::new(draft);
    let mut second = trie.child(&first, &[change(paths[29], 1)], &Alone).unwrap();
    trie.retire(first, &mut second);
    for nonce in 2..6 {
        let _leaked = trie
            .child(&second, &[change(paths[29], nonce)], &Alone)
            .unwrap();
    }
    for path in &paths[..29] {
        assert_eq!(
            trie.at(&second).account(path).map(|a| a.0),
            many.model.0.get(path).map(|a| a.0)
        );
    }
}
