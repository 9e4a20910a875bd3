//! Tries of odd shapes: keys with long common prefixes, tries that vanish and come back.

use super::world::*;
use alloy_primitives::{B256, U256};
use cambium_history::{HistoryFollower, HistoryOptions, WholeNodes};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes};
use cambium_testkit::{
    plain::{self, account, path},
    say,
};
use cambium_trie::{LeafRange, ProofTargets};
use std::{collections::HashMap, num::NonZeroU32};

/// Paths that share all nibbles but the last, all but some of the last, or all but some within; and
/// others.
fn odd_path(at: u64) -> B256 {
    let mut key = [0; 32];
    match at % 4 {
        0 => key[31] = (at / 4) as u8,
        1 => {
            key[31] = ((at / 4) as u8) << 4;
            key[30] = (at / 16) as u8;
        }
        2 => {
            key = [0xff; 32];
            key[(at / 4 % 32) as usize] = 0xfe;
        }
        _ => return path(at),
    }
    B256::from(key)
}

struct Size {
    accounts: u64,
    slots: u64,
}

impl World {
    fn odd_changes(&mut self, size: &Size) -> Changes {
        let model = self.model().clone();
        let random = &mut self.random;
        let mut changes = HashMap::new();
        if random.percent(6) {
            // Everything goes.
            changes.extend(model.accounts().map(|(at, _)| (*at, plain::remove(*at))));
        }
        for _ in 0..random.below(5) {
            let at = odd_path(random.below(size.accounts));
            let before = model.account(&at);
            let (update, wipe) = match random.below(10) {
                0..=2 if before.is_some() => (AccountUpdate::Delete, true),
                3..=6 if before.is_some() => (AccountUpdate::Keep, random.percent(25)),
                _ => (
                    AccountUpdate::Put(account(random.below(3))),
                    random.percent(30),
                ),
            };
            let mut set = HashMap::new();
            if update != AccountUpdate::Delete {
                for _ in 0..random.below(7) {
                    let value = match random.percent(10) {
                        true => U256::MAX,
                        false => U256::from(random.below(3)),
                    };
                    set.insert(odd_path(random.below(size.slots)), value);
                }
                if random.percent(10) {
                    let slots = before.into_iter().flat_map(|account| account.slots.keys());
                    set.extend(slots.map(|slot| (*slot, U256::ZERO)));
                }
            }
            let diff = AccountDiff {
                path: at,
                account: update,
                wipe,
                slots: set.into_iter().collect(),
            };
            changes.insert(at, diff);
        }
        Changes::new(changes.into_values().collect())
    }

    fn odd_compare(&self, number: u64, size: &Size) {
        let id = self.db.block_id(number).unwrap().unwrap();
        let view = self.history.state_at(&self.db, number).unwrap();
        let model = &self.models[&id.hash];
        for at in (0..size.accounts).map(odd_path) {
            let expected = model.account(&at);
            let found = view.account(&at).unwrap();
            assert_eq!(found, expected.map(|a| a.account), "{at} at {id}");
            let slots = expected.map(|account| account.slots.iter());
            let slots: Vec<_> = slots.into_iter().flatten().map(|(k, v)| (*k, *v)).collect();
            assert_eq!(view.slots(&at).unwrap(), slots, "slots of {at} at {id}");
            assert_eq!(view.has_storage(&at).unwrap(), !slots.is_empty());
        }
        if self.history.has_nodes() {
            assert_eq!(view.state_root().unwrap(), model.root(), "{id}");
            let whole = (B256::ZERO, B256::repeat_byte(0xff));
            compare_range(&view, model, &LeafRange::accounts(whole.0, whole.1), 5);
            let (first, last) = (odd_path(number), odd_path(number / 2));
            let range = LeafRange::accounts(first.min(last), first.max(last));
            compare_range(&view, model, &range, 5);
            let account = odd_path(number % size.accounts);
            compare_range(
                &view,
                model,
                &LeafRange::slots(account, whole.0, whole.1),
                5,
            );
            let slots: Vec<_> = (0..size.slots + 4).map(odd_path).collect();
            let keys = (0..size.accounts + 6).map(|at| (odd_path(at), slots.clone()));
            compare_proof(&view, model, ProofTargets::new(keys.collect()));
            for at in 0..size.accounts + 2 {
                let slot = odd_path((at + number) % size.slots);
                let keys = ProofTargets::new(vec![(odd_path(at), vec![slot])]);
                compare_proof(&view, model, keys);
            }
        }
    }
}

#[test]
fn tries_of_odd_shapes_are_as_they_were() {
    let mut compared = 0;
    for seed in cambium_seeds::seeds!(0..10) {
        let one_of = NonZeroU32::new([1, 8, 1 << 30][seed as usize % 3]).unwrap();
        let nodes = (seed % 5 > 0).then_some(WholeNodes { one_of });
        let options = HistoryOptions {
            memory_bytes: [0, 2 << 10, 16 << 10, 1 << 20][seed as usize % 4],
            trie_bytes: [0, 1 << 10, 8 << 10, 1 << 20][seed as usize / 2 % 4],
            ..LITTLE
        };
        let (accounts, slots) = [(3, 8), (8, 16), (24, 40), (1, 60)][seed as usize / 3 % 4];
        let size = Size { accounts, slots };
        let mut world = World::with(nodes, seed).remade(0, nodes, options);
        let mut follower: Option<HistoryFollower> = None;
        for _ in 0..160 {
            match world.random.below(40) {
                0 | 1 => world.db.flush(seed as usize % 4).unwrap(),
                2 => world.history.flush().unwrap(),
                3 | 4 => world.history.merge().unwrap(),
                5 | 6 => {
                    let head = world.db.head().number;
                    let most = if world.random.percent(25) {
                        head
                    } else {
                        head.min(6)
                    };
                    world
                        .db
                        .unwind(head - world.random.below(most + 1))
                        .unwrap();
                }
                7 => match follower.take() {
                    Some(follower) => drop(follower.finish().unwrap()),
                    None => {
                        let (history, db) = (world.history.clone(), world.db.clone());
                        follower = Some(HistoryFollower::start(history, db));
                    }
                },
                8 if follower.is_none() => {
                    let first = world.random.below(world.db.head().number + 1);
                    world = world.remade(first, nodes, options);
                    if world.random.percent(70) {
                        world.catch_up();
                    }
                    world
                        .history
                        .extend_down(&world.db, 0, &mut |_| true)
                        .unwrap();
                }
                9..=11 => {
                    world.catch_up();
                    let head = world.db.head().number;
                    for number in [0, head, world.random.below(head + 1)] {
                        world.odd_compare(number, &size);
                        compared += 1;
                    }
                }
                _ => {
                    let changes = world.odd_changes(&size);
                    world.commit(changes);
                }
            }
        }
        drop(follower);
        world.catch_up();
        world.history.flush().unwrap();
        world.history.merge().unwrap();
        world.history.check().unwrap();
        for number in 0..=world.db.head().number {
            world.odd_compare(number, &size);
            compared += 1;
        }
    }
    say(&format!("{compared} states compared"));
    assert!(compared > 400);
}
