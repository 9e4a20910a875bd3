//! The `layered` commitment against a model of three maps: roots at every block of random chains, unwinding, and
//! proofs, which can't be forged.

use crate::common::{Model, Random, Slots, account_rlp, steps, storage_root, trie_of};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_trie::{HashBuilder, Nibbles};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, Path};
use cambium_trie::{
    Alone, Batch, EMPTY_ROOT, LayeredProof, LayeredProofError, LayeredProver, LayeredRoots,
    NoResolve, PartialTrie, ProofTargets, UpperReverts, UpperTrie, commit, layered_root,
    net_changes,
};
use std::collections::BTreeMap;

/// The model of an upper trie.
#[derive(Clone, Default, PartialEq)]
struct Upper(BTreeMap<B256, UpperLeaf>);

#[derive(Clone, Default, PartialEq)]
struct UpperLeaf {
    /// `None` if the fields are kept, `Some(None)` if the account is deleted.
    fields: Option<Option<Account>>,
    wiped: bool,
    slots: BTreeMap<B256, U256>,
}

impl Upper {
    /// Merges what a block changed from the state `before` to the state `after`. `wiped` are the
    /// accounts whose storage the block wiped.
    fn merge(&mut self, before: &Model, after: &Model, wiped: &[B256]) {
        let mut paths: Vec<_> = before.0.keys().chain(after.0.keys()).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            let (old, new) = (before.0.get(path), after.0.get(path));
            let old_slots = old.map_or_else(Slots::new, |(_, slots)| slots.clone());
            let is_wiped = !old_slots.is_empty() && wiped.contains(path);
            let fields = match (old, new) {
                (Some((old, _)), Some((new, _))) if old == new => None,
                (None, None) => None,
                (_, new) => Some(new.map(|(account, _)| *account)),
            };
            let mut slots = Slots::new();
            if let Some((_, new)) = new {
                for slot in old_slots.keys().chain(new.keys()) {
                    let value = new.get(slot).copied().unwrap_or_default();
                    let same = old_slots.get(slot).copied().unwrap_or_default() == value;
                    if (!same && !is_wiped) || (is_wiped && !value.is_zero()) {
                        slots.insert(*slot, value);
                    }
                }
            }
            let is_gone = fields == Some(None);
            if fields.is_none() && !is_wiped && slots.is_empty() {
                continue;
            }
            let leaf = self.0.entry(*path).or_default();
            leaf.fields = fields.or(leaf.fields);
            if is_wiped || is_gone {
                leaf.wiped = true;
                leaf.slots.clear();
            }
            leaf.slots.extend(slots);
        }
    }

    fn root(&self) -> B256 {
        let mut builder = HashBuilder::default();
        for (path, leaf) in &self.0 {
            let root = match leaf.slots.is_empty() {
                true => EMPTY_ROOT,
                false => {
                    let mut slots = HashBuilder::default();
                    for (slot, value) in &leaf.slots {
                        slots.add_leaf(Nibbles::unpack(slot), &alloy_rlp::encode(value));
                    }
                    slots.root()
                }
            };
            let wiped = if leaf.wiped { 4 } else { 0 };
            let mut value = Vec::new();
            match leaf.fields {
                None => {
                    value.extend([0xc0 + 34, 1 + wiped, 0xa0]);
                    value.extend(root);
                }
                Some(None) => value.extend([0xc1, 3 + wiped]),
                Some(Some(account)) => {
                    // The list of an ordinary account, with the mark as its first item.
                    let plain = account_rlp(&account, root);
                    value.extend([0xf8, plain[1] + 1, 2 + wiped]);
                    value.extend(&plain[2..]);
                }
            }
            builder.add_leaf(Nibbles::unpack(path), &value);
        }
        match self.0.is_empty() {
            true => EMPTY_ROOT,
            false => builder.root(),
        }
    }
}

/// A block of the model: its changes, its reverts, and the state after it.
#[derive(Clone)]
struct Block {
    changes: Changes,
    reverts: Changes,
    wiped: Vec<B256>,
    after: Model,
}

fn block(before: &Model, changes: Changes) -> Block {
    let mut after = before.clone();
    after.apply(&changes);
    let reverts = changes.accounts().iter().map(|change| {
        let Some((account, slots)) = before.0.get(&change.path) else {
            return AccountDiff {
                path: change.path,
                account: AccountUpdate::Delete,
                wipe: true,
                slots: vec![],
            };
        };
        let value = |slot: &B256| slots.get(slot).copied().unwrap_or_default();
        AccountDiff {
            path: change.path,
            account: match change.account {
                AccountUpdate::Keep => AccountUpdate::Keep,
                _ => AccountUpdate::Put(*account),
            },
            wipe: change.wipe,
            slots: match change.wipe {
                true => slots.iter().map(|(slot, value)| (*slot, *value)).collect(),
                false => {
                    let slots = change.slots.iter();
                    slots.map(|(slot, _)| (*slot, value(slot))).collect()
                }
            },
        }
    });
    let wiped = changes.accounts().iter().filter(|change| change.wipe);
    Block {
        reverts: Changes::new(reverts.collect()),
        wiped: wiped.map(|change| change.path).collect(),
        after,
        changes,
    }
}

/// The three tries after block `n` of a chain, from scratch.
fn model_of(genesis: &Model, chain: &[Block], interval: usize, n: usize) -> (Upper, Upper, Model) {
    let state = |n: usize| match n {
        0 => genesis,
        n => &chain[n - 1].after,
    };
    let upper = |from: usize, to: usize| {
        let mut upper = Upper::default();
        for n in from + 1..=to {
            upper.merge(state(n - 1), state(n), &chain[n - 1].wiped);
        }
        upper
    };
    let q = n.saturating_sub(1) / interval;
    let below = q.saturating_sub(1) * interval;
    (
        upper(q * interval, n),
        upper(below, q * interval),
        state(below).clone(),
    )
}

fn hash(trie: &mut UpperTrie) -> B256 {
    trie.hash(&Alone)
}

/// Some accounts exist in no state, so that absence is proved too.
struct World {
    accounts: Vec<B256>,
    slots: Vec<B256>,
    genesis: Model,
}

fn world(random: &mut Random) -> World {
    let accounts = random.close_keys(14);
    let slots = random.close_keys(9);
    let mut genesis = Model::default();
    for path in &accounts[..7] {
        let set = random.below(slots.len());
        let set = slots[..set].iter().map(|slot| (*slot, U256::from(5)));
        genesis.0.insert(*path, (random.account(), set.collect()));
    }
    World {
        accounts,
        slots,
        genesis,
    }
}

fn add_block(world: &World, random: &mut Random, chain: &mut Vec<Block>) {
    let before = chain.last().map_or(&world.genesis, |block| &block.after);
    let changes = random.changes(before, &world.accounts, &world.slots);
    // Some values come back: a block undoes the one before it.
    let changes = match chain.last() {
        Some(last) if random.one_in(6) => last.reverts.clone(),
        _ => changes,
    };
    let next = block(before, changes);
    chain.push(next);
}

#[test]
fn roots_are_those_of_three_maps_at_every_block_and_after_every_unwinding() {
    for seed in cambium_seeds::seeds!(0..steps(60, 3_000) as u64) {
        let mut random = Random(seed);
        let world = world(&mut random);
        let interval = 1 + random.below(5);
        let (mut chain, mut reverts): (Vec<Block>, Vec<UpperReverts>) = (vec![], vec![]);
        let (mut delta, mut intermediate) = (UpperTrie::new(), UpperTrie::new());
        for _ in 0..30 {
            if random.one_in(3) && !reverts.is_empty() {
                delta.revert(&reverts.pop().unwrap());
                chain.pop();
            } else {
                if chain.len() % interval == 0 && !chain.is_empty() && !reverts.is_empty() {
                    intermediate = std::mem::take(&mut delta);
                    reverts.clear();
                }
                add_block(&world, &mut random, &mut chain);
                let last = chain.last().unwrap();
                let net = net_changes(&last.changes, &last.reverts).unwrap();
                reverts.push(delta.apply(&net).unwrap());
            }
            if reverts.is_empty() {
                continue;
            }
            let (one, two, state) = model_of(&world.genesis, &chain, interval, chain.len());
            assert_eq!(hash(&mut delta), one.root(), "delta, seed {seed}");
            assert_eq!(
                hash(&mut intermediate),
                two.root(),
                "intermediate, seed {seed}"
            );
            for path in &world.accounts {
                let leaf = one.0.get(path);
                assert_eq!(delta.account(path), leaf.and_then(|leaf| leaf.fields));
                for slot in &world.slots {
                    let value = leaf.and_then(|leaf| {
                        let set = leaf.slots.get(slot).copied();
                        set.or(leaf.wiped.then_some(U256::ZERO))
                    });
                    assert_eq!(delta.slot(path, slot), value);
                }
            }
            assert!(delta.memory_bytes() > 0 && !state.0.is_empty());
        }
    }
}

/// A chain of a few intervals, with its tries at the last block.
struct Case {
    world: World,
    last: Model,
    delta: UpperTrie,
    intermediate: UpperTrie,
    snapshot: Model,
    root: B256,
}

fn upper_trie(blocks: &[Block]) -> UpperTrie {
    let mut trie = UpperTrie::new();
    for block in blocks {
        let net = net_changes(&block.changes, &block.reverts).unwrap();
        trie.apply(&net).unwrap();
    }
    trie
}

fn case(seed: u64) -> Case {
    let mut random = Random(seed);
    let world = world(&mut random);
    let interval = 1 + random.below(4);
    let mut chain = Vec::new();
    for _ in 0..random.below(4 * interval) + 1 {
        add_block(&world, &mut random, &mut chain);
    }
    let (n, q) = (chain.len(), (chain.len() - 1) / interval);
    let below = q.saturating_sub(1) * interval;
    let (one, two, snapshot) = model_of(&world.genesis, &chain, interval, n);
    let root = layered_root(one.root(), two.root(), snapshot.root());
    Case {
        delta: upper_trie(&chain[q * interval..]),
        intermediate: upper_trie(&chain[below..q * interval]),
        last: chain.last().unwrap().after.clone(),
        world,
        snapshot,
        root,
    }
}

impl Case {
    fn prove(&self, targets: &ProofTargets) -> LayeredProof {
        self.prove_with(self.delta.clone(), self.intermediate.clone(), targets)
    }

    fn prove_with(
        &self,
        mut delta: UpperTrie,
        mut intermediate: UpperTrie,
        targets: &ProofTargets,
    ) -> LayeredProof {
        let snapshot = |keys: &ProofTargets| trie_of(&self.snapshot).extract(keys, &mut NoResolve);
        LayeredProof::new(&mut delta, &mut intermediate, snapshot, targets).unwrap()
    }

    fn targets(&self, random: &mut Random) -> ProofTargets {
        let mut targets = vec![];
        for path in &self.world.accounts {
            if random.one_in(2) {
                let slots = self.world.slots.iter().filter(|_| random.one_in(3));
                targets.push((*path, slots.copied().collect()));
            }
        }
        ProofTargets::new(targets)
    }
}

#[test]
fn proofs_tell_the_values_of_the_state_and_nothing_is_in_them_twice() {
    for seed in cambium_seeds::seeds!(0..steps(150, 5_000) as u64) {
        let case = case(seed);
        let targets = case.targets(&mut Random(seed));
        let proof = case.prove(&targets);
        let proved = proof.verify(case.root, &targets).unwrap();
        assert_eq!(proved.len(), targets.accounts().len());
        for (proved, (path, slots)) in proved.iter().zip(targets.accounts()) {
            let there = case.last.0.get(path);
            assert_eq!(proved.path, *path);
            assert_eq!(
                proved.account,
                there.map(|(account, _)| *account),
                "seed {seed}"
            );
            let value = |slot: &B256| there.and_then(|(_, slots)| slots.get(slot).copied());
            let expected = slots
                .iter()
                .map(|slot| (*slot, value(slot).unwrap_or_default()));
            assert_eq!(proved.slots, expected.collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn a_proof_with_any_byte_changed_cut_or_added_is_refused() {
    for seed in cambium_seeds::seeds!(0..steps(12, 300) as u64) {
        let case = case(seed);
        let targets = case.targets(&mut Random(seed));
        let proof = case.prove(&targets);
        let refused = |bytes: Vec<u8>| {
            let proof = LayeredProof {
                bytes: bytes.into(),
            };
            proof.verify(case.root, &targets).is_err()
        };
        for at in 0..proof.bytes.len() {
            for bit in 0..8 {
                let mut bytes = proof.bytes.to_vec();
                bytes[at] ^= 1 << bit;
                assert!(refused(bytes), "seed {seed}, byte {at}, bit {bit}");
            }
            assert!(refused(proof.bytes[..at].to_vec()));
            let mut more = proof.bytes.to_vec();
            more.insert(at, 0);
            assert!(refused(more));
        }
        let more = [&proof.bytes[..], &[0]].concat();
        assert!(refused(more));
    }
}

#[test]
fn a_proof_of_other_targets_is_refused() {
    let (mut missing, mut surplus) = (0, 0);
    for seed in cambium_seeds::seeds!(0..steps(150, 3_000) as u64) {
        let case = case(seed);
        let targets = case.targets(&mut Random(seed));
        let others = case.targets(&mut Random(seed + 77));
        let proof = case.prove(&targets);
        match proof.verify(case.root, &others) {
            Ok(proved) => assert_eq!(
                case.prove(&others),
                proof,
                "seed {seed}: {} targets proved by another proof",
                proved.len()
            ),
            Err(LayeredProofError::Incomplete { .. }) => missing += 1,
            Err(LayeredProofError::Surplus) => surplus += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(missing > 0 && surplus > 0);
}

/// Forged layers: a leaf or slot is left out, added or taken from another layer. The root of the proved values differs
/// in each case.
#[test]
fn forged_layers_have_another_root() {
    let mut forged = 0;
    for seed in cambium_seeds::seeds!(0..steps(100, 3_000) as u64) {
        let (case, mut random) = (case(seed), Random(seed));
        let targets = case.targets(&mut random);
        let path = random.pick(&case.world.accounts);
        let slot = random.pick(&case.world.slots);
        let change = |account, wipe, slots| AccountDiff {
            path,
            account,
            wipe,
            slots,
        };
        let lies = [
            change(AccountUpdate::Delete, true, vec![]),
            change(AccountUpdate::Keep, true, vec![]),
            change(AccountUpdate::Keep, false, vec![(slot, U256::ZERO)]),
            change(AccountUpdate::Keep, false, vec![(slot, U256::from(9))]),
            change(AccountUpdate::Put(random.account()), false, vec![]),
        ];
        for lie in lies {
            for below in [false, true] {
                let (mut delta, mut intermediate) = (case.delta.clone(), case.intermediate.clone());
                let layer = if below { &mut intermediate } else { &mut delta };
                let before = hash(layer);
                if layer.apply(std::slice::from_ref(&lie)).is_err() || hash(layer) == before {
                    continue;
                }
                let proof = case.prove_with(delta, intermediate, &targets);
                let refused = proof.verify(case.root, &targets);
                assert!(matches!(refused, Err(LayeredProofError::WrongRoot { .. })));
                forged += 1;
            }
        }
        // The layers in each other's place, and one of them left out.
        let empty = UpperTrie::new;
        let (delta, intermediate) = (case.delta.clone(), case.intermediate.clone());
        for (one, two) in [
            (intermediate.clone(), delta.clone()),
            (empty(), intermediate.clone()),
            (delta.clone(), empty()),
        ] {
            let same = hash(&mut one.clone()) == hash(&mut delta.clone())
                && hash(&mut two.clone()) == hash(&mut intermediate.clone());
            let proof = case.prove_with(one, two, &targets);
            assert_eq!(proof.verify(case.root, &targets).is_ok(), same);
        }
    }
    assert!(forged > 100);
}

/// A witness of a block: the parent's root and the parts alone determine the block's reads, its net changes, and the
/// root after it. A missing part is an error.
#[test]
fn the_delta_after_a_block_follows_from_the_parts_of_three_tries() {
    let (mut blocks, mut wipes, mut bare, mut gaps) = (0, 0, 0, 0);
    for seed in cambium_seeds::seeds!(0..steps(300, 6_000) as u64) {
        let (case, mut random) = (case(seed), Random(seed + 1_000_000));
        let mut chain = Vec::new();
        let changes = random.changes(&case.last, &case.world.accounts, &case.world.slots);
        chain.push(block(&case.last, changes));
        let next = &chain[0];
        let changes = next.changes.accounts();
        // Of wiped accounts it is asked whether they have slots: one shows it, or all that there are.
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for path in changes
            .iter()
            .filter(|change| change.wipe)
            .map(|change| change.path)
        {
            match case
                .last
                .0
                .get(&path)
                .and_then(|(_, slots)| slots.keys().next())
            {
                Some(slot) => with.push((path, vec![*slot])),
                None => without.push(path),
            }
        }
        wipes += with.len();
        bare += without.len();
        let read = case.targets(&mut random);
        let targets = read.clone().and(&ProofTargets::of_changes(changes));
        let targets = targets.and(&ProofTargets::new(with.clone()));
        let (mut delta, mut intermediate) = (case.delta.clone(), case.intermediate.clone());
        let prover = LayeredProver::for_witness(&mut delta, &mut intermediate, &targets, &without);
        let whole = prover.whole().iter().map(|path| {
            let slots = case
                .snapshot
                .0
                .get(path)
                .map(|(_, slots)| slots.keys().copied());
            (*path, slots.into_iter().flatten().collect())
        });
        let needed = prover
            .snapshot_targets()
            .and(&ProofTargets::new(whole.collect()));
        let part = trie_of(&case.snapshot).extract(&needed, &mut NoResolve);
        let proof = prover.finish(&part.unwrap());
        let mut parts = proof.parts(case.root).unwrap();
        for (path, slots) in read.accounts() {
            let there = case.last.0.get(path);
            assert_eq!(parts.account(path), Ok(there.map(|(account, _)| *account)));
            for slot in slots {
                let value = there.and_then(|(_, slots)| slots.get(slot).copied());
                assert_eq!(parts.slot(path, slot), Ok(value.unwrap_or_default()));
            }
            // It is known, or it is not said.
            match parts.has_storage(path) {
                Ok(has) => {
                    assert_eq!(has, there.is_some_and(|(_, slots)| !slots.is_empty()));
                }
                Err(_) => gaps += 1,
            }
        }
        for (path, has) in with
            .iter()
            .map(|(path, _)| (path, true))
            .chain(without.iter().map(|path| (path, false)))
        {
            assert_eq!(parts.has_storage(path), Ok(has), "seed {seed}");
        }
        let net = net_changes(&next.changes, &next.reverts).unwrap();
        assert_eq!(
            parts.net_changes(&next.changes),
            Ok(net.clone()),
            "seed {seed}"
        );
        let mut expected = case.delta.clone();
        expected.apply(&net).unwrap();
        assert_eq!(parts.merge(&net), Ok(hash(&mut expected)), "seed {seed}");
        blocks += 1;
        // Without what the block changes, no root follows.
        let less = case.prove(&ProofTargets::default());
        let mut less = less.parts(case.root).unwrap();
        assert!(net.is_empty() || case.delta.is_empty() || less.merge(&net).is_err());
    }
    assert!(blocks > 0 && wipes > 0 && bare > 0 && gaps > 0);
}

/// Two children of a branch are offered as one inlined node, so that all later ones would move by
/// one place. Nothing that hashes equally may be read in two ways.
#[test]
fn an_inlined_node_that_is_not_exactly_one_node_is_refused() {
    let path = |first: u8| {
        let mut path = B256::ZERO;
        path[0] = first;
        path
    };
    let account = |path| AccountDiff {
        path,
        account: AccountUpdate::Put(Account::default()),
        wipe: false,
        slots: vec![],
    };
    let mut delta = UpperTrie::new();
    delta
        .apply(&[account(path(0x10)), account(path(0x50))])
        .unwrap();
    let root = layered_root(hash(&mut delta), EMPTY_ROOT, EMPTY_ROOT);
    let nothing = ProofTargets::new(vec![(path(0x30), vec![])]);
    let snapshot = |_: &ProofTargets| Ok::<_, ()>(trie_of(&Model::default()));
    let honest = LayeredProof::new(&mut delta, &mut UpperTrie::new(), snapshot, &nothing).unwrap();
    assert!(honest.verify(root, &nothing).is_ok());
    // branch, mask of children 1 and 5, two hashes, then two empty tries
    let bytes = &honest.bytes;
    assert_eq!((bytes[0], bytes.len()), (1, 3 + 2 * 33 + 2));
    let hash_at_1 = &bytes[4..36];
    let first = [&[0xa0], &hash_at_1[..15]].concat();
    let second = &hash_at_1[15..];
    let mut forged = vec![1];
    // The hash as two children, 1 and 2, and the two empty ones after it as one, 3.
    forged.extend((0b10_1110u16).to_le_bytes());
    for child in [&first[..], second, &[0x80, 0x80]] {
        forged.extend([5, child.len() as u8]);
        forged.extend(child);
    }
    forged.extend(&bytes[36..]);
    let forged = LayeredProof {
        bytes: Bytes::from(forged),
    };
    let refused = forged.verify(root, &nothing);
    assert!(
        matches!(refused, Err(LayeredProofError::Malformed(_))),
        "{refused:?}"
    );
}

#[test]
fn changes_of_a_block_that_change_nothing_leave_no_trace() {
    let (path, slot) = (keccak256([1]), keccak256([2]));
    let account = Account {
        nonce: 7,
        ..Account::default()
    };
    let mut before = Model::default();
    before
        .0
        .insert(path, (account, [(slot, U256::from(3))].into()));
    let absent = keccak256([9]);
    let change = |path, account, wipe, slots: &[(B256, u64)]| AccountDiff {
        path,
        account,
        wipe,
        slots: slots
            .iter()
            .map(|(slot, value)| (*slot, U256::from(*value)))
            .collect(),
    };
    let nothing = [
        change(path, AccountUpdate::Keep, false, &[]),
        change(path, AccountUpdate::Put(account), false, &[]),
        change(path, AccountUpdate::Keep, false, &[(slot, 3)]),
        change(
            path,
            AccountUpdate::Put(account),
            false,
            &[(slot, 3), (keccak256([5]), 0)],
        ),
        change(absent, AccountUpdate::Delete, true, &[]),
    ];
    for change in nothing {
        let mut change = change;
        change.slots.sort();
        let block = block(&before, Changes::new(vec![change]));
        assert_eq!(net_changes(&block.changes, &block.reverts), Some(vec![]));
    }
    let created = change(absent, AccountUpdate::Put(account), true, &[(slot, 0)]);
    let created = block(&before, Changes::new(vec![created]));
    let net = net_changes(&created.changes, &created.reverts).unwrap();
    assert_eq!(
        net,
        [change(absent, AccountUpdate::Put(account), false, &[])]
    );
    // Reverts of another block are noticed.
    assert_eq!(net_changes(&created.changes, &Changes::default()), None);
}

/// Other nodes compute these roots, and read these proofs: changing either is an explicit act.
#[test]
fn the_root_and_the_proof_of_a_fixed_chain_have_golden_hashes() {
    let case = case(8);
    let all = case.world.accounts.iter();
    let targets = ProofTargets::new(all.map(|path| (*path, case.world.slots.clone())).collect());
    let proof = case.prove(&targets);
    let golden = [case.root, keccak256(&proof.bytes)].map(|hash| hash.to_string());
    assert_eq!(
        golden,
        [
            "0x214a722574f8a2e12bcb173ddc2831796cbc3259e7d6754bafc3b98cf19ce277",
            "0xa33e8bd5b6e04e8d477469090b5fc9dd894f98fa422d17a9d4085fca8992b454",
        ]
    );
}

#[test]
fn random_bytes_are_no_proof_and_make_no_panic() {
    let mut random = Random(3);
    let targets = ProofTargets::new(vec![(B256::ZERO, vec![B256::ZERO])]);
    for _ in 0..steps(20_000, 500_000) {
        let len = random.below(60);
        // Low numbers, which are kinds of nodes.
        let bytes: Vec<u8> = (0..len)
            .map(|_| (random.below(8) * random.below(3)) as u8)
            .collect();
        let proof = LayeredProof {
            bytes: bytes.into(),
        };
        assert!(proof.verify(B256::ZERO, &targets).is_err());
    }
    assert!(storage_root(&Slots::new()) == EMPTY_ROOT);
}

/// "A key that the parts lack is an error, never an absence": a slot that is set is in the delta, and the account's
/// fields are in a trie below, of which the parts have the hash alone.
#[test]
fn an_account_whose_fields_are_not_shown_is_not_without_slots() {
    let path = B256::repeat_byte(0xac);
    let (old, new) = (B256::repeat_byte(1), B256::repeat_byte(2));
    let put = |wei: u64| {
        AccountUpdate::Put(Account {
            balance: U256::from(wei),
            ..Account::default()
        })
    };
    let diff = |account, wipe, slots: &[(B256, u64)]| {
        let slots = slots
            .iter()
            .map(|(slot, value)| (*slot, U256::from(*value)));
        let slots = slots.collect();
        Changes::new(vec![AccountDiff {
            path,
            account,
            wipe,
            slots,
        }])
    };
    let mut snapshot = PartialTrie::new(Path::EMPTY);
    let first = diff(put(5), false, &[(old, 1)]);
    snapshot.apply(first.accounts(), &mut NoResolve).unwrap();
    commit(&mut [&mut snapshot], &mut Batch::new());
    // The balance changes; then all slots are removed and another one is set.
    let paid = net_changes(&diff(put(6), false, &[]), &diff(put(5), false, &[])).unwrap();
    let mut intermediate = UpperTrie::new();
    intermediate.apply(&paid).unwrap();
    let wiped = diff(put(6), true, &[(new, 57)]);
    let wiped = net_changes(&wiped, &diff(put(6), true, &[(old, 1)])).unwrap();
    let mut delta = UpperTrie::new();
    delta.apply(&wiped).unwrap();
    let roots = LayeredRoots {
        delta: hash(&mut delta),
        intermediate: hash(&mut intermediate),
        snapshot: snapshot.state_root().unwrap(),
    };

    let targets = ProofTargets::new(vec![(path, vec![new])]);
    let prover = LayeredProver::for_witness(&mut delta, &mut intermediate, &targets, &[]);
    let part = snapshot.extract(&prover.snapshot_targets(), &mut NoResolve);
    let parts = prover.finish(&part.unwrap()).parts(roots.root()).unwrap();
    assert_eq!(parts.has_storage(&path), Ok(true));

    // The same delta, with the other two tries by their hashes: each is a byte 4 and the hash.
    let (none, empty) = (PartialTrie::new(Path::EMPTY), &mut UpperTrie::new());
    let prover = LayeredProver::for_witness(&mut delta, empty, &targets, &[]);
    let alone = prover.finish(&none).bytes;
    let mut bytes = alone[..alone.len() - 2].to_vec();
    for root in [roots.intermediate, roots.snapshot] {
        bytes.push(4);
        bytes.extend(root);
    }
    let bytes = bytes.into();
    let parts = LayeredProof { bytes }.parts(roots.root()).unwrap();
    assert!(parts.slot(&path, &new).is_err());
    assert!(parts.has_storage(&path).is_err());
}
