//! Single reads by many threads, of new views and of such as are held over merges, beside blocks
//! and merges: each view has the state of its block.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, FaultyDisk, Loader, Options, View};
use cambium_testkit::{Model, Random, say};
use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

const ACCOUNTS: u64 = 600;
const SLOTS: u64 = 4;

fn path(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

/// The code that a block's accounts get.
fn code(number: u64) -> (B256, Bytes) {
    let code = number.to_le_bytes();
    (keccak256(code), Bytes::copy_from_slice(&code))
}

/// A block's changes: accounts, slots and codes that come, change and go.
fn changes(number: u64, count: usize, random: &mut Random) -> Changes {
    let mut changed: Vec<_> = (0..count).map(|_| random.below(ACCOUNTS)).collect();
    changed.sort_unstable();
    changed.dedup();
    let change = |index| {
        let (is_deleted, wipe) = (random.below(8) == 0, random.below(16) == 0);
        let put = Account {
            nonce: number,
            balance: U256::from(index) << (index % 200),
            code_hash: match index % 3 {
                0 => code(number).0,
                _ => Account::default().code_hash,
            },
        };
        let values = (0..SLOTS).filter_map(|slot| {
            let value = number * random.below(2);
            (!is_deleted && random.below(3) == 0).then(|| (path(slot), U256::from(value)))
        });
        AccountDiff {
            path: path(index),
            slots: values.collect(),
            account: match is_deleted {
                true => AccountUpdate::Delete,
                false => AccountUpdate::Put(put),
            },
            wipe,
        }
    };
    Changes::new(changed.into_iter().map(change).collect())
}

fn database(genesis: &Changes) -> Db {
    let options = Options {
        memory_bytes: 8 << 20,
        ..Options::default()
    };
    let mut loader = Loader::new(Arc::new(FaultyDisk::new(1)), options).unwrap();
    for change in genesis.accounts() {
        if let AccountUpdate::Put(account) = change.account {
            let slots = change.slots.iter().copied();
            let slots = slots.filter(|(_, value)| !value.is_zero());
            loader.account(change.path, &account, slots).unwrap();
        }
    }
    let (hash, code) = code(1);
    loader.code(hash, &code).unwrap();
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = BlockMeta {
        id: BlockId::new(0, path(0)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    loaded.create(meta, vec![]).unwrap()
}

fn commit(db: &Db, changes: Changes) {
    let head = db.head();
    let staged = db.view().unwrap().session();
    let staged = staged.finish(changes, vec![code(head.number + 1)]).unwrap();
    let meta = BlockMeta {
        id: BlockId::new(head.number + 1, path(head.number + 1)),
        parent: head.hash,
        state_root: staged.root(),
        body: Bytes::new(),
    };
    staged.seal(meta).unwrap().commit().unwrap();
}

fn compare(view: &View, model: &Model, random: &mut Random) {
    let block = view.block().number;
    for _ in 0..1 + random.below(400) {
        let (index, slot) = (random.below(ACCOUNTS), path(random.below(SLOTS)));
        let account = path(index);
        let expected = model.account(&account);
        match random.below(2) {
            0 => {
                let got = view.account(&account).unwrap();
                let expected = expected.map(|entry| entry.account);
                assert_eq!(got, expected, "account {index} at block {block}");
            }
            _ => {
                let got = view.slot(&account, &slot).unwrap();
                let expected = expected.and_then(|entry| entry.slots.get(&slot));
                let expected = expected.copied().unwrap_or_default();
                assert_eq!(
                    got, expected,
                    "slot {slot} of account {index} at block {block}"
                );
            }
        }
    }
}

#[test]
fn single_reads_beside_merges_see_the_state_of_their_block() {
    let mut random = Random::new(1);
    let mut genesis = changes(1, 2000, &mut random);
    genesis = Changes::new(
        genesis
            .accounts()
            .iter()
            .filter(|change| matches!(change.account, AccountUpdate::Put(_)))
            .cloned()
            .collect(),
    );
    let db = database(&genesis);
    let mut model = Model::default();
    model.apply(&genesis);
    // By the number of the block.
    let states = RwLock::new(vec![Arc::new(model.clone())]);
    let is_over = AtomicBool::new(false);
    let blocks = if cambium_seeds::is_long() {
        20_000
    } else {
        400
    };
    thread::scope(|scope| {
        let (db, states, is_over) = (&db, &states, &is_over);
        for seed in cambium_seeds::seeds!(2..5) {
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let view = db.view().unwrap();
                    let model = states.read().unwrap()[view.block().number as usize].clone();
                    for _ in 0..random.below(8) {
                        compare(&view, &model, &mut random);
                    }
                }
            });
        }
        for number in 1..=blocks {
            let changes = changes(number, 40, &mut random);
            model.apply(&changes);
            states.write().unwrap().push(Arc::new(model.clone()));
            commit(db, changes);
            if number % 4 == 0 {
                db.flush(random.below(3) as usize).unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let counters = db.counters();
    say(&format!(
        "{} reads, {} of them from layers and {} from the cache of entries, beside {} merges",
        counters.reads, counters.overlay_hits, counters.value_cache_hits, counters.merges
    ));
    assert!(counters.merges >= blocks / 4);
    assert!(counters.value_cache_hits > blocks && counters.value_cache_misses > blocks);
}
