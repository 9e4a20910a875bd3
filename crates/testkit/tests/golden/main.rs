//! Golden files: every file that three small databases write, byte for byte, and today's reader on the old bytes.
//!
//! A difference is a change of a format. An existing database would not be read any more, or be read by an
//! older version as something else: raise the format's number, read the older one or refuse it by name, and
//! make the golden files anew with `CAMBIUM_GOLDEN=write`. A backup has no format of its own: it has the same
//! files.

mod dump;
mod worlds;

use alloy_primitives::{B256, U256};
use cambium_history::History;
use cambium_index::{ChainIndex, LogFilter};
use cambium_preimages::{Preimages, PreimagesOptions};
use cambium_primitives::{Account, BlockId};
use cambium_state::{Db, Disk, FaultyDisk, Options};
use dump::Files;
use std::{collections::BTreeSet, env, fs, path::PathBuf, process::Command, sync::Arc};
use worlds::{ACCOUNTS, BLOCKS, SLOTS, account, block_hash, path, slot};

/// The variable that says how many threads merge.
const THREADS: &str = "RAYON_NUM_THREADS";

/// A golden file, and what makes its database.
type Golden = (&'static str, fn() -> FaultyDisk);

const GOLDEN: [Golden; 3] = [
    ("accounts", worlds::accounts),
    ("entries", worlds::entries),
    ("layered", worlds::layered),
];

/// Where files of each kind are, how they begin, and the offset and size of the format's number.
const KINDS: [(&str, &str, &[u8], usize, usize); 14] = [
    ("manifest", "cambium.db", b"Cambium\n", 8, 4),
    ("log", "log/", b"CambiLog", 8, 4),
    ("segments", "segments/", b"CambiSeg", 8, 4),
    // The first page of a segment follows its header of 32 bytes.
    ("pages", "segments/", b"CambiSeg", 32 + 12, 1),
    ("values", "values/", b"CambiVal", 8, 4),
    ("codes", "codes.dat", b"CambiCod", 8, 4),
    ("checkpoints", "checkpoint-", b"CambiCkp", 8, 4),
    ("block index", "blocks.idx", b"CambiIdx", 8, 4),
    ("history list", "history/runs.list", b"CamRuns\n", 8, 4),
    ("history runs", "history/0", b"CamHist\n", 8, 4),
    ("index list", "index/runs.list", b"CamIdxL\n", 8, 4),
    ("index runs", "index/0", b"CamIndx\n", 8, 4),
    ("preimages list", "preimages/runs.list", b"CamPreL\n", 8, 4),
    ("preimages runs", "preimages/0", b"CamPrei\n", 8, 4),
];

fn place_of(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    dir.join(name).with_extension("hex")
}

fn golden(name: &str) -> Files {
    let text = fs::read_to_string(place_of(name));
    dump::decode(&text.unwrap_or_else(|error| panic!("{}: {error}", place_of(name).display())))
}

/// Writes with one thread, in a process of its own: a complete checkpoint has the shards of the index in the
/// order in which threads have finished them. Readers take them in any order.
#[test]
fn every_file_is_written_as_it_was() {
    if env::var_os(THREADS).is_none_or(|threads| threads != "1") {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "every_file_is_written_as_it_was"]);
        let ended = test.env(THREADS, "1").output().unwrap();
        let output = String::from_utf8_lossy(&ended.stdout);
        assert!(output.contains("1 passed"), "{output}");
        return;
    }
    for (name, make) in GOLDEN {
        let written = dump::files_of(&make());
        if env::var("CAMBIUM_GOLDEN").is_ok_and(|value| value == "write") {
            fs::write(place_of(name), dump::encode(&written)).unwrap();
        }
        let differences = dump::differences(&golden(name), &written);
        assert!(
            differences.is_empty(),
            "the files of the database `{name}` are not those in {}. If a format has changed on purpose, \
             raise its number and run this test with CAMBIUM_GOLDEN=write.\n{}",
            place_of(name).display(),
            differences.join("\n")
        );
    }
}

#[test]
fn there_is_a_golden_file_of_each_kind_in_its_format() {
    let formats = [
        &cambium_store::FORMATS[..],
        &cambium_history::FORMATS,
        &cambium_index::FORMATS,
        &cambium_preimages::FORMATS,
    ]
    .concat();
    assert_eq!(formats.len(), KINDS.len());
    let files: Vec<_> = GOLDEN.iter().flat_map(|(name, _)| golden(name)).collect();
    let mut covered = BTreeSet::new();
    for (kind, format) in formats {
        let found = KINDS.iter().find(|(name, ..)| *name == kind);
        let (_, prefix, magic, at, size) = found.unwrap_or_else(|| panic!("{kind} is not covered"));
        for (_, bytes) in files.iter().filter(|(name, _)| name.starts_with(prefix)) {
            // A run has its head in the last block.
            let trailer = bytes.len().saturating_sub(4096);
            let head = [0, trailer]
                .into_iter()
                .find(|at| bytes[*at..].starts_with(magic));
            let Some(head) = head else { continue };
            let number = &bytes[head + at..][..*size];
            assert_eq!(number, &format.to_le_bytes()[..*size], "{kind}");
            covered.insert(kind);
        }
    }
    let all: BTreeSet<_> = KINDS.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(covered, all);
}

fn open(disk: &FaultyDisk, options: Options) -> Db {
    let (db, recovery) = Db::open(Arc::new(disk.clone()), options).unwrap();
    assert_eq!(recovery.notes, Vec::<String>::new());
    assert_eq!(db.head(), BlockId::new(BLOCKS, block_hash(BLOCKS)));
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
    db
}

/// The account `index` after block `number`, for one of the first state.
fn expected(index: u64, number: u64) -> Account {
    account(index, worlds::changed_by(index, number))
}

#[test]
fn accounts_of_golden_files_are_read() {
    for name in ["accounts", "layered"] {
        let db = open(&dump::disk_of(&golden(name)), Options::default());
        let view = db.view().unwrap();
        for index in 0..ACCOUNTS {
            let found = view.account(&path(index)).unwrap();
            assert_eq!(found, Some(expected(index, BLOCKS)), "{index} of {name}");
        }
        assert_eq!(view.account(&path(ACCOUNTS + 4)).unwrap(), None);
        let first = |at| view.slot(&path(0), &slot(at)).unwrap();
        assert_eq!(first(BLOCKS), U256::from(BLOCKS) << 100);
        assert_eq!(first(50), U256::from(51));
        assert_eq!(first(51), U256::ZERO);
        let (hash, code) = worlds::code();
        assert_eq!(view.code(&hash).unwrap(), code);
    }
}

#[test]
fn entries_of_golden_files_are_read() {
    let db = open(
        &dump::disk_of(&golden("entries")),
        worlds::entries_options(),
    );
    let view = db.view().unwrap();
    for index in 0..ACCOUNTS {
        let value = worlds::value(index, worlds::changed_by(index, BLOCKS));
        assert_eq!(view.entry(&path(index)).unwrap(), Some(value), "{index}");
    }
    let old = db.view_at(5).unwrap();
    let value = worlds::value(10, worlds::changed_by(10, 5));
    assert_eq!(old.entry(&path(10)).unwrap(), Some(value));
}

#[test]
fn what_is_beside_the_state_is_read_from_golden_files() {
    let disk = dump::disk_of(&golden("accounts"));
    let db = open(&disk, Options::default());
    let shared: Arc<dyn Disk> = Arc::new(disk);

    let history = History::open(shared.clone(), &db, worlds::history_options()).unwrap();
    assert_eq!(history.durable().number, BLOCKS);
    history.check().unwrap();
    for number in 0..=BLOCKS {
        let view = history.state_at(&db, number).unwrap();
        let root = db.block(number).unwrap().unwrap().state_root;
        assert_eq!(view.state_root().unwrap(), root, "{number}");
        for index in 0..ACCOUNTS {
            let found = view.account(&path(index)).unwrap();
            assert_eq!(found, Some(expected(index, number)), "{index} at {number}");
        }
        assert!(history.check_nodes(&db, number).unwrap());
    }

    let index = ChainIndex::open(shared.clone(), &db, worlds::INDEX).unwrap();
    assert_eq!(index.durable().map(|id| id.number), Some(BLOCKS));
    index.check(&mut |_| {}).unwrap();
    for number in 1..=BLOCKS {
        let found = index.find(&db, worlds::transaction_hash(number)).unwrap();
        let found = found.expect("a transaction");
        assert_eq!(
            (found.block.id.number, found.transaction),
            (number, Some(0))
        );
        let stored = db.block(number).unwrap().unwrap().body;
        assert_eq!(
            found.block.body.rlp,
            cambium_index::StoredBody::decode(&stored).unwrap().rlp
        );
    }
    let filter = LogFilter {
        addresses: vec![worlds::log(4).address],
        ..LogFilter::default()
    };
    let found = index.log_blocks(&db, &filter, 0..=BLOCKS).unwrap();
    assert_eq!(found.blocks, [1, 4, 7, 10]);

    let genesis = db.genesis().hash;
    let preimages = Preimages::open(shared, genesis, PreimagesOptions::default()).unwrap();
    assert_eq!(preimages.durable(), Some(db.head()));
    let addresses = ACCOUNTS + BLOCKS;
    assert_eq!(
        preimages.check(&mut |_| {}).unwrap(),
        (addresses, SLOTS + BLOCKS)
    );
    let address = worlds::address(ACCOUNTS + 4);
    let hash = alloy_primitives::keccak256(address);
    assert_eq!(preimages.address_of(&hash).unwrap(), Some(address));
    let key = B256::from(U256::from(SLOTS + BLOCKS));
    assert_eq!(preimages.slot_of(&slot(SLOTS + BLOCKS)).unwrap(), Some(key));
}
