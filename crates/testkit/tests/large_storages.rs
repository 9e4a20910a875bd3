//! Blocks that change hundreds of slots of one contract, whose storage trie is divided over threads: roots as the model
//! has them, and the same work, with pools of 1, 2, 16 and 64 threads.

use alloy_primitives::{B256, U256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes};
use cambium_state::{Db, FaultyDisk, View};
use cambium_testkit::{
    Model, Random,
    plain::{account, make, path, put, random_puts, seal, tiny_options},
};
use std::{env, process::Command, sync::Arc};

/// The variable that says how many threads the engine's pools have.
const THREADS: &str = "RAYON_NUM_THREADS";

const ACCOUNTS: u64 = 300;
/// The first accounts are contracts of so many slots.
const CONTRACTS: u64 = 3;
const SLOTS: u64 = 2_500;

/// A chain of blocks with the model of the newest state.
struct Chain {
    view: View,
    model: Model,
    random: Random,
    blocks: u64,
}

impl Chain {
    /// Adds and commits a block with these changes of contracts, and with changes of accounts beside. Before, seals a
    /// sibling of it, from which the tries must come back.
    fn block(&mut self, db: &Db, mut changes: Vec<AccountDiff>) {
        self.blocks += 1;
        let nonce = self.blocks;
        for change in random_puts(&mut self.random, 40, ACCOUNTS, nonce) {
            if changes.iter().all(|other| other.path != change.path) {
                changes.push(change);
            }
        }
        changes.sort_by_key(|change| change.path);
        let changes = Changes::new(changes);
        if self.random.below(3) == 0 {
            let slots = self.slots(400, 2);
            let sibling = Changes::new(vec![of(0, slots)]);
            let mut model = self.model.clone();
            model.apply(&sibling);
            let name = format!("sibling {nonce}");
            let sealed = seal(self.view.clone(), name, sibling, vec![]).unwrap();
            assert_eq!(sealed.view().unwrap().state_root(), model.root());
        }
        self.model.apply(&changes);
        let sealed = seal(self.view.clone(), format!("block {nonce}"), changes, vec![]).unwrap();
        let root = sealed.view().unwrap().state_root();
        assert_eq!(root, self.model.root(), "block {nonce}");
        sealed.commit().unwrap();
        self.view = db.view().unwrap();
    }

    /// Draws about `count` changes of slots, of which one in `removed` removes its slot.
    fn slots(&mut self, count: u64, removed: u64) -> Vec<(B256, U256)> {
        let slots = (0..count).map(|_| {
            let slot = path(self.random.below(SLOTS + 500));
            let value = match self.random.below(removed) == 0 {
                true => U256::ZERO,
                false => U256::from(1 + self.random.below(1_000)),
            };
            (slot, value)
        });
        sorted(slots.collect())
    }

    /// The slots of a contract that `is_removed` says, set to zero.
    fn without(&self, contract: u64, is_removed: impl Fn(&B256) -> bool) -> Vec<(B256, U256)> {
        let slots = self
            .model
            .account(&path(contract))
            .map(|account| &account.slots);
        let slots = slots.into_iter().flatten().map(|(slot, _)| *slot);
        slots
            .filter(is_removed)
            .map(|slot| (slot, U256::ZERO))
            .collect()
    }
}

fn sorted(mut slots: Vec<(B256, U256)>) -> Vec<(B256, U256)> {
    slots.sort_by_key(|(slot, _)| *slot);
    slots.dedup_by_key(|(slot, _)| *slot);
    slots
}

fn of(contract: u64, slots: Vec<(B256, U256)>) -> AccountDiff {
    AccountDiff {
        slots,
        ..put(path(contract), 1)
    }
}

/// Runs the blocks, and returns the last root with the number of nodes that were hashed for it.
fn run(seed: u64) -> (B256, u64) {
    let disk = Arc::new(FaultyDisk::new(seed));
    let slots_of = |index| if index < CONTRACTS { SLOTS } else { index % 5 };
    let db = make(disk, tiny_options(), ACCOUNTS, slots_of);
    let mut model = Model::default();
    let first = (0..ACCOUNTS).map(|index| AccountDiff {
        path: path(index),
        account: AccountUpdate::Put(account(0)),
        wipe: false,
        slots: sorted(
            (0..slots_of(index))
                .map(|at| (path(at), U256::from(at + 1)))
                .collect(),
        ),
    });
    let mut first: Vec<_> = first.collect();
    first.sort_by_key(|change| change.path);
    model.apply(&Changes::new(first));
    let view = db.view().unwrap();
    let mut chain = Chain {
        view,
        model,
        random: Random::new(seed),
        blocks: 0,
    };
    assert_eq!(chain.view.state_root(), chain.model.root());
    for round in 0..3 {
        let slots = [chain.slots(1_500, 4), chain.slots(700, 3)];
        let [first, second] = slots;
        chain.block(&db, vec![of(0, first), of(1, second)]);
        // Few slots of a storage trie that is divided.
        let few = chain.slots(20, 3);
        chain.block(&db, vec![of(0, few)]);
        // Only the slots below one child of the root remain, and then a single slot.
        let nibble = chain.random.below(16) as u8;
        let others = chain.without(0, |slot| slot[0] >> 4 != nibble);
        chain.block(&db, vec![of(0, others)]);
        let remaining = chain.without(0, |slot| slot[0] >> 4 == nibble);
        chain.block(&db, vec![of(0, remaining[1..].to_vec())]);
        // From a single slot to many, and to none.
        let many = chain.slots(2_000, 50);
        chain.block(&db, vec![of(0, many)]);
        let all = chain.without(0, |_| true);
        chain.block(&db, vec![of(0, all)]);
        let many = chain.slots(900, 50);
        chain.block(&db, vec![of(0, many)]);
        // Wiped, deleted, and made anew.
        let after = chain.slots(600, 9);
        let wiped = AccountDiff {
            wipe: true,
            ..of(1, after)
        };
        let gone = AccountDiff {
            account: AccountUpdate::Delete,
            wipe: true,
            ..of(2, vec![])
        };
        chain.block(&db, vec![wiped, gone]);
        let anew = chain.slots(800, 9);
        chain.block(&db, vec![of(2, anew)]);
        if round == 1 {
            db.flush(0).unwrap();
            chain.view = db.view().unwrap();
        }
    }
    let view = &chain.view;
    for contract in 0..CONTRACTS {
        let slots: Vec<_> = (0..SLOTS + 500)
            .map(|at| (path(contract), path(at)))
            .collect();
        let expected = chain.model.account(&path(contract)).unwrap();
        let found = view.storage(&slots).unwrap();
        for ((_, slot), found) in slots.iter().zip(found) {
            let expected = expected.slots.get(slot).copied().unwrap_or_default();
            assert_eq!(found, expected, "slot {slot} of contract {contract}");
        }
    }
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
    (view.state_root(), db.counters().node_hashes)
}

#[test]
fn roots_of_large_storages_are_those_of_the_model() {
    for seed in cambium_seeds::seeds!(0..2) {
        let (root, hashed) = run(seed);
        println!("seed {seed}: {hashed} hashed, root {root}");
    }
}

#[test]
fn any_number_of_threads_gives_the_same_roots_by_the_same_hashes() {
    let mut results = Vec::new();
    for threads in ["1", "2", "16", "64"] {
        let mut test = Command::new(env::current_exe().unwrap());
        let name = "large_storages::roots_of_large_storages_are_those_of_the_model";
        test.args(["--exact", name, "--nocapture"]);
        let ended = test.env(THREADS, threads).output().unwrap();
        let output = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(output.contains("1 passed"), "{threads} threads: {output}");
        let lines = output.lines().filter(|line| line.starts_with("seed "));
        results.push(lines.map(str::to_owned).collect::<Vec<_>>());
    }
    assert!(!results[0].is_empty());
    for result in &results {
        assert_eq!(result, &results[0]);
    }
}
