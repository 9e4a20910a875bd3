//! The `layered` commitment in the engine: nodes of different memory and speed, the reads and waits of a root, wipes in
//! each of three tries, and the rejected calls. `tests/engine.rs` has the cases that it shares with other commitments.

use alloy_primitives::{B256, U256};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, FaultyDisk, Loader, Options, StateError, StateTrie};
use cambium_testkit::{
    LayeredBlock, Model, Random, is_long, layered_model_root,
    plain::{
        account, commit, first_block, path, put, random_puts, remove, seal, tiny_options,
        wait_until_closed,
    },
    wiped_by,
};
use cambium_trie::ProofTargets;
use std::sync::Arc;

/// A database of the first `accounts` accounts, each with one slot, with intervals of `blocks`.
fn make(disk: &FaultyDisk, options: Options, accounts: u64, blocks: u64) -> Db {
    let mut loader = Loader::new(Arc::new(disk.clone()), options.layered(blocks)).unwrap();
    for index in 0..accounts {
        let slots = [(path(0), U256::from(1))];
        loader.account(path(index), &account(0), slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    loaded.create(meta, vec![]).unwrap()
}

fn random_blocks(random: &mut Random, count: u64, accounts: u64) -> Vec<Vec<AccountDiff>> {
    (0..count)
        .map(|nonce| {
            let mut changes = random_puts(random, 30, accounts, nonce + 1);
            if let Some(last) = changes.pop() {
                changes.push(match random.below(3) {
                    0 => remove(last.path),
                    1 => AccountDiff { wipe: true, ..last },
                    _ => AccountDiff {
                        slots: vec![(path(0), U256::from(random.below(2)))],
                        ..last
                    },
                });
            }
            changes
        })
        .collect()
}

/// The slow one merges whenever it can, with little memory, and is opened again and again; the other
/// one never merges.
#[test]
fn nodes_of_different_memory_and_speed_have_equal_roots_at_every_height() {
    for interval in [1, 3, 8] {
        let mut random = Random::new(interval);
        let blocks = random_blocks(&mut random, 60, 400);
        let (fast_disk, slow_disk) = (FaultyDisk::new(1), FaultyDisk::new(2));
        let fast = make(&fast_disk, tiny_options(), 400, interval);
        let slow_options = Options {
            memory_bytes: 4 << 20,
            ..tiny_options()
        };
        let mut slow = make(&slow_disk, slow_options, 400, interval);
        assert_eq!(
            fast.view().unwrap().state_root(),
            slow.view().unwrap().state_root()
        );
        for (at, changes) in blocks.into_iter().enumerate() {
            let root = commit(&fast, changes.clone(), vec![]);
            assert_eq!(commit(&slow, changes, vec![]), root, "block {}", at + 1);
            if random.percent(30) {
                slow.flush(random.below(3) as usize).unwrap();
            }
            if random.percent(20) {
                slow.close().unwrap();
                slow = Db::open(Arc::new(slow_disk.clone()), slow_options)
                    .unwrap()
                    .0;
            }
        }
        assert_eq!(fast.counters().merges, 0);
        assert!(fast.check(&mut |_| {}).unwrap().damage.is_empty());
        assert!(slow.check(&mut |_| {}).unwrap().damage.is_empty());
    }
}

/// Blocks that replay has left are merged by the first thread that needs a root below them, possibly the job that
/// computes the root of a snapshot.
#[test]
fn a_database_is_closed_once_a_merge_that_a_job_has_begun_has_ended() {
    let disk = FaultyDisk::new(1);
    let options = Options {
        memory_bytes: 4 << 20,
        ..tiny_options()
    };
    let mut random = Random::new(4);
    make(&disk, options, 400, 3).close().unwrap();
    for _ in 0..30 {
        wait_until_closed(&disk);
        let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
        for changes in random_blocks(&mut random, 4, 400) {
            commit(&db, changes, vec![]);
        }
        db.close().unwrap();
    }
}

#[test]
fn a_root_reads_nothing_from_the_device() {
    let disk = FaultyDisk::new(1);
    let db = make(&disk, tiny_options(), 5_000, 64);
    drop(db);
    wait_until_closed(&disk);
    let (db, _) = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap();
    let mut parent = db.head();
    let mut random = Random::new(1);
    for nonce in 1..40u64 {
        let changes = Changes::new(random_puts(&mut random, 100, 5_000, nonce));
        let session = db.view().unwrap().session();
        // Execution has read the keys that the block overwrites.
        let paths: Vec<_> = changes
            .accounts()
            .iter()
            .map(|change| change.path)
            .collect();
        session.accounts(&paths).unwrap();
        let before = db.counters();
        let staged = session.finish(changes, vec![]).unwrap();
        let after = db.counters();
        assert_eq!(after.disk_reads - before.disk_reads, 0, "block {nonce}");
        assert_eq!(after.page_reads() - before.page_reads(), 0, "block {nonce}");
        let meta = BlockMeta {
            id: BlockId::new(parent.number + 1, path(1000 + nonce)),
            parent: parent.hash,
            state_root: staged.root(),
            body: Default::default(),
        };
        parent = meta.id;
        staged.seal(meta).unwrap().commit().unwrap();
    }
    assert_eq!(db.counters().roots, 39);
    assert_eq!(db.counters().page_reads_trie, 0);
}

#[test]
fn a_late_root_of_a_snapshot_is_waited_for_and_counted_and_a_known_one_is_not() {
    let disk = FaultyDisk::new(1);
    let db = make(&disk, tiny_options(), 100, 4);
    for nonce in 1..20 {
        commit(&db, vec![put(path(nonce), nonce)], vec![]);
    }
    // The head is block 19, in the interval above block 16; its snapshot is block 12.
    drop(db);
    wait_until_closed(&disk);
    let (db, _) = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap();
    commit(&db, vec![put(path(1), 50)], vec![]);
    let first = db.counters().snapshot_root_waits;
    assert_eq!(
        first, 1,
        "block 12 is only in the log, so its root was not known"
    );
    db.flush(0).unwrap();
    db.close().unwrap();
    let (db, _) = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap();
    commit(&db, vec![put(path(1), 51)], vec![]);
    assert_eq!(
        db.counters().snapshot_root_waits,
        0,
        "the checkpoint has the roots"
    );
}

#[test]
fn an_interval_that_the_memory_cannot_hold_is_refused_with_the_figure() {
    let load = |memory_bytes, blocks| {
        let options = Options {
            memory_bytes,
            ..tiny_options()
        };
        let loader = Loader::new(Arc::new(FaultyDisk::new(1)), options.layered(blocks)).unwrap();
        let loaded = loader.finish(&mut |_| {}).unwrap();
        let meta = first_block(loaded.root());
        loaded.create(meta, vec![]).map(|_| ())
    };
    load(64 << 20, 2048).unwrap();
    let error = load(64 << 20, 2049).unwrap_err().to_string();
    assert!(
        error.contains("2049 blocks") && error.contains("16785408 bytes"),
        "{error}"
    );
    for blocks in [0, u64::MAX] {
        let error = load(64 << 20, blocks).unwrap_err();
        assert!(matches!(error, StateError::BadStart(_)), "{error}");
    }
    // A database that was made with more memory, and whose blocks change more than was thought.
    let disk = FaultyDisk::new(1);
    let db = make(&disk, tiny_options(), 100, 100);
    for nonce in 1..40 {
        let changes = (0..2000).map(|index| put(path(nonce * 2000 + index), 1));
        commit(&db, changes.collect(), vec![]);
    }
    drop(db);
    wait_until_closed(&disk);
    let little = Options {
        memory_bytes: 16 << 20,
        ..tiny_options()
    };
    let error = Db::open(Arc::new(disk.clone()), little)
        .map(|_| ())
        .unwrap_err();
    assert!(
        error.to_string().contains("merge interval is 100 blocks"),
        "{error}"
    );
    wait_until_closed(&disk);
    let (db, _) = Db::open(Arc::new(disk), tiny_options()).unwrap();
    assert_eq!(db.merge_interval(), Some(100));
    commit(&db, vec![put(path(0), 2)], vec![]);
}

#[test]
fn what_needs_the_root_of_mpt_is_refused_by_name() {
    let disk = FaultyDisk::new(1);
    let db = make(&disk, tiny_options(), 10, 4);
    let view = db.view().unwrap();
    let targets = ProofTargets::new(vec![(path(1), vec![])]);
    let none = Changes::default();
    let refused = [
        view.extract(&targets).map(|_| ()),
        view.extract_for_changes(&targets, &none).map(|_| ()),
        view.clone()
            .session()
            .extract_for_changes(&targets, &none)
            .map(|_| ()),
        StateTrie::of(&view).map(|_| ()),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("`layered`"), "{error}");
    }
    let proof = view.prove_layered(&targets).unwrap();
    let proved = proof.verify(view.state_root(), &targets).unwrap();
    assert_eq!(proved[0].account, Some(account(0)));
    // And the reverse.
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(2));
    let db = cambium_testkit::plain::make(disk, tiny_options(), 10, |_| 0);
    assert_eq!(db.merge_interval(), None);
    let error = db.view().unwrap().prove_layered(&targets).unwrap_err();
    assert!(error.to_string().contains("`layered`"), "{error}");
}

/// A key's first write is unwound, and the key is not in the delta any more: the root is that of a
/// chain that never wrote it.
#[test]
fn unwinding_the_first_write_of_a_key_restores_the_root_of_a_chain_without_it() {
    for interval in [2, 3, 5] {
        let (one, other) = (FaultyDisk::new(1), FaultyDisk::new(2));
        let unwound = make(&one, tiny_options(), 50, interval);
        let straight = make(&other, tiny_options(), 50, interval);
        let mut named = 0u8;
        for nonce in 1..12 {
            let changes = vec![put(path(nonce), nonce)];
            // Written, wiped and taken back, with the old value at last.
            let number = unwound.head().number;
            let slot = |value: u64| AccountDiff {
                path: path(40),
                account: AccountUpdate::Keep,
                wipe: false,
                slots: vec![(path(0), U256::from(value))],
            };
            let mut on_head = |changes: Vec<AccountDiff>| {
                named += 1;
                let view = unwound.view().unwrap();
                let sealed = seal(view, [named], Changes::new(changes), vec![]).unwrap();
                let root = sealed.view().unwrap().state_root();
                sealed.commit().unwrap();
                root
            };
            on_head(vec![slot(0)]);
            let mut both = vec![remove(path(41)), slot(1)];
            both.sort_by_key(|change| change.path);
            on_head(both);
            unwound.unwind(number).unwrap();
            let root = on_head(changes.clone());
            assert_eq!(root, commit(&straight, changes, vec![]), "after {number}");
        }
    }
}

/// An account is wiped, and created again, in each of the three tries, in every combination.
#[test]
fn wipes_and_new_creations_in_each_of_three_tries_have_the_roots_of_the_model() {
    let change = |kind: u64, value: u64| {
        let slots = vec![(path(value), U256::from(value + 1)), (path(9), U256::ZERO)];
        let mut slots = slots;
        slots.sort();
        match kind {
            0 => vec![],
            1 => vec![remove(path(1))],
            2 => vec![AccountDiff {
                wipe: true,
                slots,
                ..put(path(1), value)
            }],
            _ => vec![AccountDiff {
                slots,
                ..put(path(1), value)
            }],
        }
    };
    for case in 0..4u64.pow(5) {
        // Thinned out, unless there is time.
        if !is_long() && case % 7 != 3 {
            continue;
        }
        let disk = FaultyDisk::new(case);
        let db = make(&disk, tiny_options(), 3, 2);
        let mut models = vec![Model::default()];
        let genesis = (0..3).map(|index| AccountDiff {
            slots: vec![(path(0), U256::from(1))],
            ..put(path(index), 0)
        });
        models[0].apply(&Changes::new(genesis.collect()));
        let mut wiped: Vec<Vec<B256>> = vec![];
        for at in 0..5u32 {
            let changes = Changes::new(change(case / 4u64.pow(at) % 4, u64::from(at) + 1));
            let mut model = models[models.len() - 1].clone();
            model.apply(&changes);
            models.push(model);
            wiped.push(wiped_by(&changes));
            let root = commit(&db, changes.into_accounts(), vec![]);
            let blocks: Vec<_> = (0..wiped.len())
                .map(|block| LayeredBlock {
                    before: &models[block],
                    after: &models[block + 1],
                    wiped: &wiped[block],
                })
                .collect();
            let height = blocks.len() as u64;
            let expected = layered_model_root(2, height, &blocks, &models[0]);
            assert_eq!(root, expected, "case {case}, block {height}");
            let targets = ProofTargets::new(vec![(path(1), (0..10).map(path).collect())]);
            let proof = db.view().unwrap().prove_layered(&targets).unwrap();
            let proved = &proof.verify(root, &targets).unwrap()[0];
            let there = models[models.len() - 1].account(&path(1));
            assert_eq!(proved.account, there.map(|there| there.account));
            for (slot, value) in &proved.slots {
                let there = there.and_then(|there| there.slots.get(slot).copied());
                assert_eq!(*value, there.unwrap_or_default(), "case {case}");
            }
        }
    }
}
