//! Every file of a database, damaged in every way: results of opening it and of a repair.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, FaultyDisk, Loader, repair};
use cambium_testkit::{
    Random, is_long,
    plain::{path, tiny_options},
    say,
};
use std::{collections::BTreeMap, sync::Arc};

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
    let opened = Db::open(Arc::new(disk.clone()), tiny_options());
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
        AccountDiff {
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
    let mut loader = Loader::new(Arc::new(disk.clone()), tiny_options()).unwrap();
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
        older: older.try_into().expect("two"),
        blocks,
        root,
    }
}

/// The manual's name for the kind of a file. From the last log file but one on the newest
/// checkpoint is replayed.
fn kind_of(name: &str, disk: &FaultyDisk) -> &'static str {
    let is_newest = |prefix: &str, count: usize| {
        let names: Vec<_> = disk
            .files()
            .into_iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        names.iter().rev().take(count).any(|other| other == name)
    };
    match name {
        "cambium.db" => "manifest",
        "blocks.idx" => "block index",
        "codes.dat" => "codes",
        name if name.starts_with("segments/") => "segment",
        name if name.starts_with("checkpoint-") => match is_newest("checkpoint-", 1) {
            true => "newest checkpoint",
            false => "older checkpoint",
        },
        name if name.starts_with("log/") => match is_newest("log/", 2) {
            true => "newest log files",
            false => "older log files",
        },
        other => panic!("a file that the manual does not know: {other}"),
    }
}

type Damage<'a> = (&'static str, Box<dyn Fn(&FaultyDisk) + 'a>);

fn replace(disk: &FaultyDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(name).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// All that is done to one file.
fn damages<'a>(story: &'a Story, name: &'a str, flips: usize) -> Vec<Damage<'a>> {
    let bytes = story.disk.contents(name).unwrap();
    // The extension of a log file is unused.
    let written = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    if written == 0 {
        return Vec::new();
    }
    let mut damages: Vec<Damage<'a>> = vec![
        ("missing", Box::new(|disk| disk.remove(name).unwrap())),
        (
            "truncated",
            Box::new(move |disk| {
                let file = disk.open(name).unwrap();
                file.set_len(written as u64 / 2).unwrap();
            }),
        ),
        (
            "unreadable",
            Box::new(move |disk| disk.spoil(name, written as u64 / 2, 1)),
        ),
        ("unreadable", Box::new(move |disk| disk.spoil(name, 0, 1))),
    ];
    for flip in 0..flips {
        let at = (written - 1) * flip / (flips - 1);
        let bit = (at % 8) as u8;
        damages.push((
            "flipped",
            Box::new(move |disk| disk.flip_bit(name, at as u64, bit)),
        ));
    }
    let mut older: Vec<_> = story
        .older
        .iter()
        .filter_map(|disk| disk.contents(name))
        .collect();
    for dir in ["checkpoint-", "segments/"] {
        // Content of another file of its kind, under its name.
        if name.starts_with(dir) {
            let mut files = story.disk.files().into_iter();
            let other = files.rfind(|other| other.starts_with(dir) && **other < *name);
            older.extend(other.and_then(|other| story.disk.contents(&other)));
        }
    }
    if name == "cambium.db" {
        older.truncate(1);
    } else {
        older.retain(|old| *old != bytes);
    }
    for old in older {
        damages.push(("older", Box::new(move |disk| replace(disk, name, &old))));
    }
    damages
}

/// The rows of the manual's table: possible results of a damage, on opening and after a repair.
fn manual() -> BTreeMap<(String, String), (Vec<String>, Vec<String>)> {
    let manual = include_str!("../../../docs/OPERATIONS.md");
    let list = |cell: &str| cell.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let rows = manual.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| ")?.split('|').map(str::trim).collect();
        let [file, damage, opening, repaired, ..] = cells[..] else {
            return None;
        };
        let known = ["missing", "truncated", "flipped", "older", "unreadable"];
        known.contains(&damage).then(|| {
            let key = (file.to_owned(), damage.to_owned());
            (key, (list(opening), list(repaired)))
        })
    });
    rows.collect()
}

/// Result of opening the disk.
fn opening(disk: &FaultyDisk, story: &Story, name: &str, what: &str) -> &'static str {
    match open(disk) {
        Ok((db, _)) if db.head().number < BLOCKS => "below",
        Ok((db, _)) => {
            assert_eq!(db.view().unwrap().state_root(), story.root, "{what}");
            let damage = db.check(&mut |_| {}).unwrap().damage;
            match damage.is_empty() {
                true => "at the head",
                false => {
                    let file = name.rsplit('/').next().unwrap();
                    let names_it =
                        |damage: &String| damage.contains(file) || damage.contains("code 0x");
                    assert!(damage.iter().any(names_it), "{what}: {damage:?}");
                    "but for it"
                }
            }
        }
        Err(error) => {
            assert!(error.contains(name), "{what}: {error}");
            assert!(error.contains("cambium db repair"), "{what}: {error}");
            "no"
        }
    }
}

fn contents(disk: &FaultyDisk) -> BTreeMap<String, Option<Vec<u8>>> {
    let names = disk
        .files()
        .into_iter()
        .filter(|name| name != "cambium.lock");
    names
        .map(|name| (name.clone(), disk.contents(&name)))
        .collect()
}

/// Repairs the disk, and imports what is said to be missing. Returns what came of it.
fn repaired(disk: &FaultyDisk, story: &Story, what: &str) -> &'static str {
    let arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let before = contents(disk);
    let planned = repair(&arc, tiny_options(), true, &mut |_| {});
    let planned = planned.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        contents(disk) == before,
        "{what}: a dry run changed something"
    );
    let done = repair(&arc, tiny_options(), false, &mut |_| {});
    let done = done.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(planned.findings, done.findings, "{what}");
    assert_eq!(planned.head, done.head, "{what}");
    assert_eq!(planned.missing, done.missing, "{what}");
    for copy in &done.copies {
        assert!(disk.exists(copy).unwrap(), "{what}: {copy}");
    }
    let again = repair(&arc, tiny_options(), false, &mut |_| {});
    let again = again.unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert_eq!(again.head, done.head, "{what}");
    assert!(
        again.findings.iter().all(|left| !left.is_repaired),
        "{what}: {again:?}"
    );

    let (db, _) = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(db.head(), done.head, "{what}");
    let is_below = done.head.number < BLOCKS;
    if is_below && !done.is_sound() {
        assert!(done.lost_blocks, "{what}: {done:?}");
    }
    let missing = done
        .missing
        .clone()
        .unwrap_or(done.head.number + 1..=BLOCKS);
    for made in &story.blocks {
        let id = made.meta.id;
        if missing.contains(&id.number) {
            made.commit(&db);
        } else if id.number > *missing.end() {
            assert!(db.has(id).unwrap(), "{what}: block {id} should be there");
            db.set_head(id).unwrap();
        }
    }
    assert_eq!(db.head().number, BLOCKS, "{what}");
    let view = db.view().unwrap();
    assert_eq!(view.state_root(), story.root, "{what}");
    drop(view);
    let left = db.check(&mut |_| {}).unwrap().damage;
    let is_told = !done.is_whole() || !done.lost_history.is_empty();
    assert!(left.is_empty() || is_told, "{what}: {left:?} but {done:?}");
    // It goes on, unless what is lost is needed for it.
    if let Err(error) = db.flush(0) {
        let error = error.to_string();
        assert!(
            !done.is_whole() && error.contains(".seg"),
            "{what}: {error}"
        );
    }
    match (left.is_empty(), is_below) {
        (false, _) => "but for it",
        (true, true) => "after import",
        (true, false) => "whole",
    }
}

/// Results by kind of file and of damage.
type Seen = BTreeMap<(String, String), BTreeMap<&'static str, u64>>;

#[test]
fn every_file_damaged_in_every_way_is_as_the_manual_says() {
    let story = story();
    let manual = manual();
    let flips = if is_long() { 400 } else { 4 };
    let (mut opened, mut mended) = (Seen::new(), Seen::new());
    for name in story.disk.files() {
        if name == "cambium.lock" {
            continue;
        }
        let kind = kind_of(&name, &story.disk);
        for (at, (damage, make)) in damages(&story, &name, flips).into_iter().enumerate() {
            let what = format!("{name} ({kind}), {damage} ({at})");
            let key = (kind.to_owned(), damage.to_owned());
            let (openings, repairs) = manual
                .get(&key)
                .unwrap_or_else(|| panic!("the manual has no row for {what}"));
            let disk = story.disk.duplicate();
            make(&disk);
            let outcome = opening(&disk.duplicate(), &story, &name, &what);
            assert!(
                openings.iter().any(|allowed| allowed == outcome),
                "{what}: opens {outcome}, by the manual {openings:?}"
            );
            *opened
                .entry(key.clone())
                .or_default()
                .entry(outcome)
                .or_default() += 1;
            let outcome = repaired(&disk.duplicate(), &story, &what);
            assert!(
                repairs.iter().any(|allowed| allowed == outcome),
                "{what}: repaired {outcome}, by the manual {repairs:?}"
            );
            *mended.entry(key).or_default().entry(outcome).or_default() += 1;
        }
    }
    for (key, (openings, _)) in &manual {
        let seen = opened
            .get(key)
            .unwrap_or_else(|| panic!("nothing was done for {key:?}"));
        say(&format!(
            "{key:?}: opening {seen:?}, repaired {:?}",
            mended[key]
        ));
        assert!(!openings.is_empty());
    }
}
