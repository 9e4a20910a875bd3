//! Files whose checksums are right, and whose content is not: errors, no panics, and no wrong proof.

use super::world::*;
use cambium_history::{History, HistoryError, WholeNodes};
use cambium_state::{Db, Disk, FaultyDisk};
use cambium_testkit::{Random, plain::path, say};
use cambium_trie::ProofTargets;
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const LIST: &str = "history/runs.list";
/// Where the share of whole nodes stands in the list.
const NODES_AT: usize = 84;
/// The largest number, as LEB128.
const LARGEST: [u8; 10] = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];

fn replace(disk: &FaultyDisk, name: &str, bytes: &[u8]) {
    disk.remove(name).unwrap();
    let file = disk.create(name).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

/// Changes the list of runs, and makes its checksum right.
fn change_list(disk: &FaultyDisk, change: impl FnOnce(&mut Vec<u8>)) {
    let mut list = disk.contents(LIST).unwrap();
    list.truncate(list.len() - 8);
    change(&mut list);
    list.extend(xxh3_64(&list).to_le_bytes());
    replace(disk, LIST, &list);
}

/// Changes a number in the trailer of a run, and makes its checksum right.
fn change_trailer(disk: &FaultyDisk, name: &str, at: usize, number: u64) {
    let mut bytes = disk.contents(name).unwrap();
    let trailer = bytes.len() - 4096;
    bytes[trailer + at..][..8].copy_from_slice(&number.to_le_bytes());
    let sum = xxh3_64(&bytes[trailer..trailer + 112]);
    bytes[trailer + 112..][..8].copy_from_slice(&sum.to_le_bytes());
    replace(disk, name, &bytes);
}

fn runs(disk: &FaultyDisk) -> Vec<String> {
    let files = disk.files().into_iter();
    files.filter(|name| name.ends_with(".run")).collect()
}

/// A closed history in files.
fn closed(nodes: Option<WholeNodes>, blocks: u64) -> (FaultyDisk, Db) {
    let mut world = World::with(nodes, 40);
    (0..blocks).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    (world.disk, world.db)
}

fn open(disk: &FaultyDisk, db: &Db) -> Result<History, HistoryError> {
    History::open(Arc::new(disk.clone()), db, LITTLE)
}

#[test]
fn a_list_that_says_flat_history_has_nodes_is_refused_and_the_other_way_round() {
    for (nodes, told) in [
        (None, 8),
        (Some(WholeNodes::ALL), 0),
        (Some(WholeNodes::ALL), 8),
    ] {
        let (disk, db) = closed(nodes, 80);
        change_list(&disk, |list| list[NODES_AT] = told);
        let error = open(&disk, &db).err().unwrap();
        assert!(error.to_string().contains("has not the nodes"), "{error}");
    }
}

#[test]
fn numbers_that_no_history_has_are_refused() {
    let (disk, db) = closed(None, 3);
    let sound = disk.contents(LIST).unwrap();
    // nodes 0, keep 0, next 2, one run, its file 1, first 1, last 3.
    assert_eq!(sound[NODES_AT..NODES_AT + 7], [0, 0, 2, 1, 1, 1, 3]);
    change_list(&disk, |list| {
        list.splice(NODES_AT + 2..NODES_AT + 3, LARGEST);
    });
    let error = open(&disk, &db).err().unwrap().to_string();
    assert!(error.contains("number of the next file"), "{error}");
    let name = &runs(&disk)[0];
    replace(&disk, LIST, &sound);
    let run = disk.contents(name).unwrap();
    for (at, number) in [
        (32, u64::MAX),
        (40, u64::MAX),
        (40, u64::MAX / 2),
        (40, 0),
        (104, u64::MAX),
        (104, 1 << 40),
    ] {
        change_trailer(&disk, name, at, number);
        if at == 32 {
            change_list(&disk, |list| {
                list.splice(NODES_AT + 6..NODES_AT + 7, LARGEST);
            });
        }
        let error = open(&disk, &db).err().unwrap();
        assert!(error.to_string().contains("can't have"), "{at}: {error}");
        replace(&disk, LIST, &sound);
        replace(&disk, name, &run);
    }
    open(&disk, &db).unwrap().merge().unwrap();
}

/// Changes bytes of some pages, and makes their checksums right.
fn change_pages(disk: &FaultyDisk, name: &str, random: &mut Random) {
    let mut bytes = disk.contents(name).unwrap();
    let trailer = bytes.len() - 4096;
    let number = |at: usize| u64::from_le_bytes(bytes[trailer + at..][..8].try_into().unwrap());
    let (identity, pages) = (number(16), number(48));
    for _ in 0..1 + random.below(pages) {
        let page = random.below(pages);
        let bytes = &mut bytes[page as usize * 4096..][..4096];
        for _ in 0..1 + random.below(3) {
            let at = 8 + random.below(4088) as usize;
            bytes[at] = match random.below(3) {
                0 => bytes[at] ^ (1 << random.below(8)),
                1 => random.next() as u8,
                _ => bytes[at].wrapping_add(1),
            };
        }
        let seed = identity ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sum = xxh3_64_with_seed(&bytes[8..], seed);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
    }
    replace(disk, name, &bytes);
}

#[test]
fn changed_pages_make_no_wrong_proof() {
    let mut world = World::with(Some(WholeNodes::default()), 90);
    world.crowd();
    (0..60).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let runs = runs(&world.disk);
    let mut random = Random::new(91);
    let (mut errors, mut proofs) = (0, 0);
    for _ in 0..200 {
        let copy = world.disk.duplicate();
        let name = &runs[random.below(runs.len() as u64) as usize];
        change_pages(&copy, name, &mut random);
        let history = History::open_read_only(Arc::new(copy), &world.db, LITTLE).unwrap();
        _ = history.check();
        for number in [0, 1, 2, 20, 40, 58] {
            let view = history.state_at(&world.db, number).unwrap();
            let model = &world.models[&view.block().hash];
            let slots: Vec<_> = (0..SLOTS).step_by(3).map(path).collect();
            let keys = (0..ACCOUNTS + 30).map(|at| (path(at), slots.clone()));
            let keys = ProofTargets::new(keys.collect());
            match view.extract(&keys) {
                Ok(part) => {
                    assert_eq!(part.state_root(), Some(model.root()));
                    proofs += 1;
                }
                Err(_) => errors += 1,
            }
            if let Ok(root) = view.state_root() {
                assert_eq!(root, model.root());
            }
            for at in (0..ACCOUNTS).map(path) {
                _ = view.account(&at).and_then(|_| view.slots(&at));
            }
        }
    }
    say(&format!("{proofs} proofs, {errors} errors"));
    assert!(proofs > 200 && errors > 200);
}
