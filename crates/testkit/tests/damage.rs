//! Every file of a database, damaged in every way: what opens, and what a repair brings back.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountChange, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, FaultyDisk, Loader, Options, repair};
use cambium_testkit::{Random, TINY_FILES, plain::path};
use std::{collections::BTreeMap, sync::Arc};

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        files: TINY_FILES,
        ..Options::default()
    }
}

fn slot(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

fn code(number: u64) -> (B256, Bytes) {
    let code = [number as u8; 300];
    (keccak256(code), Bytes::copy_from_slice(&code))
}

const BLOCKS: u64 = 60;
const ACCOUNTS: u64 = 300;

/// A block that can be made again.
struct Made {
    meta: BlockMeta,
    changes: Changes,
    codes: Vec<(B256, Bytes)>,
}

struct Story {
    disk: FaultyDisk,
    /// As it was at block 30, and at block 58.
    older: [FaultyDisk; 2],
    blocks: Vec<Made>,
    root: B256,
}

fn open(disk: &FaultyDisk) -> Result<(Db, Vec<String>), String> {
    let opened = Db::open(Arc::new(disk.clone()), options());
    let (db, recovery) = opened.map_err(|error| error.to_string())?;
    Ok((db, recovery.notes))
}

fn changes(random: &mut Random, number: u64) -> Changes {
    // The last ones are never changed.
    let mut changed: Vec<_> = (0..25).map(|_| random.below(ACCOUNTS - 60)).collect();
    changed.sort_unstable();
    changed.dedup();
    let change = |index: u64| {
        let slots = match index {
            0 => (0..200).map(|_| random.below(4000)).collect(),
            _ => vec![random.below(6), 7],
        };
        let mut slots: Vec<_> = slots.into_iter().map(slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let code_hash = match index % 7 {
            0 => code(number).0,
            _ => Account::default().code_hash,
        };
        let account = Account {
            nonce: number,
            balance: U256::from(index),
            code_hash,
        };
        AccountChange {
            path: path(index),
            account: AccountUpdate::Put(account),
            wipe: false,
            slots: slots
                .into_iter()
                .map(|slot| (slot, U256::from(number)))
                .collect(),
        }
    };
    Changes::new(changed.into_iter().map(change).collect())
}

impl Made {
    fn commit(&self, db: &Db) {
        let session = db.view().unwrap().session();
        let staged = session
            .finish(self.changes.clone(), self.codes.clone())
            .unwrap();
        staged.seal(self.meta.clone()).unwrap().commit().unwrap();
    }
}

fn story() -> Story {
    let disk = FaultyDisk::new(1);
    let mut loader = Loader::new(Arc::new(disk.clone()), options()).unwrap();
    let (hash, bytes) = code(0);
    loader.code(hash, &bytes).unwrap();
    for index in 0..ACCOUNTS {
        let account = Account {
            code_hash: match index % 50 {
                1 => hash,
                _ => Account::default().code_hash,
            },
            ..Account::default()
        };
        let slots = match index {
            0 => 4000,
            _ => index % 3,
        };
        let slots = (0..slots).map(|index| (slot(index), U256::from(index + 1)));
        loader.account(path(index), &account, slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let genesis = BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    let mut db = loaded.create(genesis.clone(), vec![]).unwrap();
    let mut random = Random::new(7);
    let mut parent = genesis.id;
    let mut blocks = Vec::new();
    let mut older = Vec::new();
    for number in 1..=BLOCKS {
        let changes = changes(&mut random, number);
        let codes = vec![code(number)];
        let session = db.view().unwrap().session();
        let staged = session.finish(changes.clone(), codes.clone()).unwrap();
        let meta = BlockMeta {
            id: BlockId::new(number, keccak256(parent.hash)),
            parent: parent.hash,
            state_root: staged.root(),
            body: Bytes::from(vec![number as u8; 2000]),
        };
        staged.seal(meta.clone()).unwrap().commit().unwrap();
        parent = meta.id;
        blocks.push(Made {
            meta,
            changes,
            codes,
        });
        if number % 7 == 0 {
            db.flush(0).unwrap();
        }
        if [30, 58].contains(&number) {
            older.push(disk.duplicate());
        }
        if number == 20 {
            drop(db);
            db = open(&disk).unwrap().0;
        }
    }
    let root = db.view().unwrap().state_root();
    drop(db);
    Story {
        disk: disk.duplicate(),
        older: older.try_into().ok().expect("two"),
        blocks,
        root,
    }
}

/// What kind of file it is, and which of them.
fn kind_of(name: &str, files: &[String]) -> String {
    for (dir, kind) in [
        ("log/", "log"),
        ("segments/", "segment"),
        ("checkpoint-", "checkpoint"),
    ] {
        if name.starts_with(dir) {
            let of_kind: Vec<_> = files.iter().filter(|name| name.starts_with(dir)).collect();
            let at = of_kind.iter().position(|other| *other == name).unwrap();
            let from_end = of_kind.len() - 1 - at;
            return match (kind, at, from_end) {
                (_, _, 0) => format!("{kind}, newest"),
                ("checkpoint", _, 1) => format!("{kind}, second newest"),
                ("checkpoint", 0, _) => format!("{kind}, whole"),
                ("log", _, 1) => format!("{kind}, second newest"),
                ("log", 0, _) => format!("{kind}, first"),
                _ => format!("{kind}, older"),
            };
        }
    }
    name.to_owned()
}

#[test]
fn look() {
    let story = story();
    let files = story.disk.files();
    println!("{files:?}");
    let mut table: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for name in &files {
        let bytes = story.disk.contents(name).unwrap();
        let written = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        if written == 0 {
            continue;
        }
        let mut cases: Vec<(String, Box<dyn Fn(&FaultyDisk)>)> = vec![
            (
                "missing".into(),
                Box::new(|disk: &FaultyDisk| disk.remove(name).unwrap()),
            ),
            (
                "truncated".into(),
                Box::new(move |disk: &FaultyDisk| {
                    disk.open(name)
                        .unwrap()
                        .set_len(written as u64 / 2)
                        .unwrap()
                }),
            ),
            (
                "unreadable".into(),
                Box::new(move |disk: &FaultyDisk| disk.spoil(name, written as u64 / 2, 1)),
            ),
        ];
        for part in 0..8 {
            let at = (written - 1) * part / 7;
            cases.push((
                "flipped".into(),
                Box::new(move |disk: &FaultyDisk| disk.flip_bit(name, at as u64, (at % 8) as u8)),
            ));
        }
        for older in &story.older {
            if let Some(old) = older.contents(name) {
                if old == bytes {
                    continue;
                }
                cases.push((
                    "older".into(),
                    Box::new(move |disk: &FaultyDisk| {
                        let file = disk.open(name).unwrap();
                        file.set_len(0).unwrap();
                        file.write_at(&old, 0).unwrap();
                    }),
                ));
            }
        }
        for (damage, make) in cases {
            let disk = story.disk.duplicate();
            make(&disk);
            let disk = disk.duplicate();
            let first = disk.duplicate();
            let opened = match open(&first) {
                Ok((db, notes)) => {
                    let head = db.head().number;
                    let damage = db.check(&mut |_| {}).unwrap().damage;
                    format!(
                        "opens at {head}, {} notes, {} damaged",
                        notes.len(),
                        damage.len()
                    )
                }
                Err(error) => format!("ERR {error}"),
            };
            let arc: Arc<dyn Disk> = Arc::new(disk.clone());
            let before: Vec<_> = disk
                .files()
                .iter()
                .map(|name| (name.clone(), disk.contents(name)))
                .collect();
            let trial = repair(&arc, options(), true, &mut |_| {});
            let after: Vec<_> = disk
                .files()
                .iter()
                .map(|name| (name.clone(), disk.contents(name)))
                .collect();
            for (b, a) in before.iter().zip(&after) {
                if b != a && b.0 != "cambium.lock" {
                    println!("TRIAL CHANGED {} {}", b.0, a.0);
                }
            }
            let real = repair(&arc, options(), false, &mut |_| {});
            let repaired = match (trial, real) {
                (Ok(trial), Ok(real)) => {
                    if (trial.head, &trial.findings) != (real.head, &real.findings) {
                        println!("TRIAL DIFFERS {name} {damage}: {trial:?} {real:?}");
                    }
                    let remedies: Vec<_> = real
                        .findings
                        .iter()
                        .map(|f| format!("{} {}", f.is_mended, f.remedy))
                        .collect();
                    let (db, _) = open(&disk).unwrap();
                    let head = db.head().number;
                    for made in &story.blocks {
                        if made.meta.id.number > db.head().number {
                            if db.has(made.meta.id).unwrap() {
                                db.set_head(made.meta.id).unwrap();
                            } else {
                                made.commit(&db);
                            }
                        }
                    }
                    let same = db.view().unwrap().state_root() == story.root;
                    let left = db.check(&mut |_| {}).unwrap().damage;
                    format!(
                        "repaired at {head}, missing {:?} lost {} history {:?}, {remedies:?}, after import {same}, {} damaged, copies {}",
                        real.missing,
                        real.lost_blocks,
                        real.lost_history,
                        left.len(),
                        real.copies.len()
                    )
                }
                (trial, real) => {
                    format!("REPAIR ERR {:?} {:?}", trial.map(|_| ()), real.map(|_| ()))
                }
            };
            let row = format!("{opened} | {repaired}");
            table
                .entry(kind_of(name, &files))
                .or_default()
                .entry(damage)
                .or_default()
                .push(format!("{name}: {row}"));
        }
    }
    for (kind, damages) in table {
        println!("== {kind}");
        for (damage, rows) in damages {
            println!("  -- {damage}");
            let mut seen = BTreeMap::new();
            for row in rows {
                let (n, r) = row.split_once(": ").unwrap();
                seen.entry(r.to_owned())
                    .or_insert_with(Vec::new)
                    .push(n.to_owned());
            }
            for (row, names) in seen {
                println!("     {}x {row}", names.len());
            }
        }
    }
}
