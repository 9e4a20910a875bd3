//! Blocks that are staged with a claimed state root: others are built on them before the root is verified.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, FaultyDisk, Sealed, StateError, View};
use cambium_testkit::{
    Model, Random,
    plain::{account, make, path, random_changes, seal, tiny_options, wait_until_closed},
};
use std::{collections::HashMap, sync::Arc};

const ACCOUNTS: u64 = 60;
const SLOTS: u64 = 20;

fn meta(parent: BlockId, name: &str, state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(parent.number + 1, keccak256(name)),
        parent: parent.hash,
        state_root,
        body: Bytes::new(),
    }
}

fn claimed(view: View, name: &str, changes: Changes, root: B256) -> Result<Sealed, StateError> {
    let parent = view.block();
    let staged = view.session().finish_claimed(changes, vec![], root)?;
    assert_eq!(staged.root(), root);
    staged.seal(meta(parent, name, root))
}

/// The model of the first state that `make` writes.
fn first_model() -> Model {
    let mut model = Model::default();
    let accounts = (0..ACCOUNTS).map(|index| AccountDiff {
        path: path(index),
        account: AccountUpdate::Put(account(0)),
        wipe: false,
        slots: (0..index % 4)
            .map(|at| (path(at), U256::from(at + 1)))
            .collect(),
    });
    model.apply(&Changes::new(accounts.collect()));
    model
}

fn database(disk: &FaultyDisk) -> Db {
    make(Arc::new(disk.clone()), tiny_options(), ACCOUNTS, |index| {
        index % 4
    })
}

#[test]
fn a_false_claim_is_found_before_anything_of_it_is_durable() {
    let disk = FaultyDisk::new(1);
    let db = database(&disk);
    let genesis = db.head();
    let mut random = Random::new(1);
    for commits_first in [false, true] {
        let changes = random_changes(&mut random, &first_model(), ACCOUNTS + 20, SLOTS);
        let mut model = first_model();
        model.apply(&changes);
        let wrong = B256::repeat_byte(7);
        let mut sealed = claimed(db.view().unwrap(), "wrong", changes, wrong).unwrap();
        let child = claimed(sealed.view().unwrap(), "child", Changes::default(), wrong).unwrap();
        let found = match commits_first {
            true => sealed.commit().err(),
            false => {
                let found = sealed.verify().err();
                // It is found each time.
                assert!(matches!(sealed.verify(), Err(StateError::WrongRoot { .. })));
                drop(sealed);
                found
            }
        };
        match found {
            Some(StateError::WrongRoot {
                block,
                got,
                expected,
            }) => {
                assert_eq!((block.number, got, expected), (1, model.root(), wrong));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(child.view(), Err(StateError::UnknownBlock(_))));
        assert!(matches!(child.commit(), Err(StateError::UnknownBlock(_))));
        assert_eq!(db.head(), genesis);
        assert!(db.find(&keccak256("wrong")).is_none());
    }
    // The database goes on.
    let changes = random_changes(&mut random, &first_model(), ACCOUNTS + 20, SLOTS);
    let mut model = first_model();
    model.apply(&changes);
    let sealed = claimed(db.view().unwrap(), "right", changes, model.root()).unwrap();
    assert_eq!(sealed.commit().unwrap().id(), db.head());
    drop(db);
    wait_until_closed(&disk);
    let (db, _) = Db::open(Arc::new(disk), tiny_options()).unwrap();
    assert_eq!(db.view().unwrap().state_root(), model.root());
}

#[test]
fn slots_of_an_account_that_does_not_exist_are_refused_at_once() {
    let db = database(&FaultyDisk::new(2));
    let changes = Changes::new(vec![AccountDiff {
        path: path(ACCOUNTS + 1),
        account: AccountUpdate::Keep,
        wipe: false,
        slots: vec![(path(1), U256::from(1))],
    }]);
    let staged = db
        .view()
        .unwrap()
        .session()
        .finish_claimed(changes, vec![], B256::ZERO);
    assert!(matches!(staged.err(), Some(StateError::BadChanges(_))));
}

/// A sealed block that is not committed, with the model after it.
struct Waiting {
    sealed: Sealed,
    model: Model,
}

#[test]
fn claimed_and_computed_roots_mix_in_any_order_with_branches_merges_and_crashes() {
    let (mut verified, mut dropped, mut unwound, mut crashes) = (0, 0, 0, 0);
    for seed in cambium_seeds::seeds!(0..24) {
        let mut disk = FaultyDisk::new(seed);
        let mut db = database(&disk);
        let mut random = Random::new(seed);
        let mut models = HashMap::from([(db.head().hash, first_model())]);
        let mut waiting: Vec<Waiting> = Vec::new();
        for name in 0..300 {
            match random.below(20) {
                // A block on the newest waiting one, on any waiting one, or on a canonical one.
                0..=9 => {
                    let on = match random.below(8) {
                        0..=4 if !waiting.is_empty() => Some(waiting.len() - 1),
                        5 if !waiting.is_empty() => {
                            Some(random.below(waiting.len() as u64) as usize)
                        }
                        _ => None,
                    };
                    let (view, mut model) = match on {
                        Some(at) => {
                            let below = &waiting[at];
                            (below.sealed.view().unwrap(), below.model.clone())
                        }
                        None => {
                            let head = db.head().number;
                            let number = head - random.below(3).min(head);
                            let view = db.view_at(number).unwrap();
                            let model = models[&view.block().hash].clone();
                            (view, model)
                        }
                    };
                    let changes = random_changes(&mut random, &model, ACCOUNTS + 20, SLOTS);
                    model.apply(&changes);
                    let block = format!("{seed} {name}");
                    let sealed = match random.percent(70) {
                        true => claimed(view, &block, changes, model.root()).unwrap(),
                        false => seal(view, &block, changes, vec![]).unwrap(),
                    };
                    let state = sealed.view().unwrap();
                    let at = path(random.below(ACCOUNTS));
                    let expected = model.account(&at).map(|account| account.account);
                    assert_eq!(state.account(&at).unwrap(), expected);
                    models.insert(sealed.id().hash, model.clone());
                    waiting.push(Waiting { sealed, model });
                }
                10..=12 if !waiting.is_empty() => {
                    let at = random.below(waiting.len() as u64) as usize;
                    waiting[at].sealed.verify().unwrap();
                    verified += 1;
                }
                13..=15 if !waiting.is_empty() => {
                    // The oldest, whose parent is committed or was left by the head.
                    let first = waiting.remove(0).sealed;
                    let id = first.id();
                    match random.percent(80) {
                        true => drop(first.commit().unwrap()),
                        false => drop(first.commit_side_branch().unwrap()),
                    }
                    let there = db.block_by_id(id).unwrap().unwrap();
                    assert_eq!(there.state_root, models[&id.hash].root());
                    waiting.retain(|waiting| waiting.sealed.view().is_ok());
                }
                16 if !waiting.is_empty() => {
                    let at = random.below(waiting.len() as u64) as usize;
                    drop(waiting.remove(at));
                    waiting.retain(|waiting| waiting.sealed.view().is_ok());
                    dropped += 1;
                }
                17 => {
                    db.flush(random.below(3) as usize).unwrap();
                    waiting.retain(|waiting| waiting.sealed.view().is_ok());
                }
                18 => {
                    let head = db.head().number;
                    db.unwind(head - random.below(3).min(head)).unwrap();
                    waiting.retain(|waiting| waiting.sealed.view().is_ok());
                    unwound += 1;
                }
                19 if random.percent(20) => {
                    let head = db.head();
                    waiting.clear();
                    drop(db);
                    wait_until_closed(&disk);
                    disk = disk.crash();
                    db = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap().0;
                    assert_eq!(db.head(), head);
                    crashes += 1;
                }
                _ => {}
            }
            let head = db.view().unwrap();
            assert_eq!(
                head.state_root(),
                models[&head.block().hash].root(),
                "seed {seed}"
            );
        }
        // What undoes a block is right as well.
        let head = db.head().number;
        for number in head.saturating_sub(6)..=head {
            let view = db.view_at(number).unwrap();
            let model = &models[&view.block().hash];
            for at in (0..ACCOUNTS + 20).map(path) {
                let expected = model.account(&at);
                let slots = expected
                    .map(|account| account.slots.clone())
                    .unwrap_or_default();
                assert_eq!(view.account(&at).unwrap(), expected.map(|one| one.account));
                assert_eq!(
                    view.slots(&at).unwrap(),
                    slots.into_iter().collect::<Vec<_>>()
                );
            }
        }
        let report = db.check(&mut |_| {}).unwrap();
        assert!(report.damage.is_empty(), "seed {seed}: {:?}", report.damage);
    }
    assert!(verified > 100 && dropped > 50 && unwound > 50 && crashes > 10);
}
