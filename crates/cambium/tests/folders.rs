//! Damaged folders in place of the index, the history or the preimages: the chain needs none of them, so all commands
//! that can do without them succeed, and report their part as undone.

use crate::support::{Fixture, Run, cambium, copy_dir, number, quantity, say};
use cambium::{
    BlockSource, Chain, ChainIndex, Db, Disk, FaultyDisk, History, HistoryOptions, IndexOptions,
    InitOptions, Options, StateError,
    db::{BackupParts, FileSizes, backup_with_parts},
    history::{HistoryFollower, WholeNodes},
    preimages::Preimages,
};
use serde_json::Value;
use std::sync::Arc;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

const HEAD: u64 = 120;
/// The block from which the odd thing is met.
const BEFORE: u64 = 100;

/// Damage to a folder. Some of it can't be detected.
struct Odd {
    name: &'static str,
    make: fn(&Path),
    is_told: bool,
}

const ODD: [Odd; 11] = [
    Odd {
        name: "a list with other bytes",
        make: |folder| {
            let list = folder.join("runs.list");
            let mut bytes = fs::read(&list).unwrap();
            bytes[..2].copy_from_slice(b"XX");
            fs::write(list, bytes).unwrap();
        },
        is_told: true,
    },
    Odd {
        name: "an empty list",
        make: |folder| fs::write(folder.join("runs.list"), "").unwrap(),
        is_told: true,
    },
    Odd {
        name: "a folder in place of the list",
        make: |folder| {
            fs::remove_file(folder.join("runs.list")).unwrap();
            fs::create_dir(folder.join("runs.list")).unwrap();
        },
        is_told: true,
    },
    Odd {
        name: "a list that is a link to itself",
        make: |folder| {
            fs::remove_file(folder.join("runs.list")).unwrap();
            symlink("runs.list", folder.join("runs.list")).unwrap();
        },
        is_told: true,
    },
    Odd {
        name: "a file in place of the folder",
        make: |folder| {
            fs::remove_dir_all(folder).unwrap();
            fs::write(folder, "x").unwrap();
        },
        is_told: true,
    },
    Odd {
        name: "a link to itself in place of the folder",
        make: |folder| {
            fs::remove_dir_all(folder).unwrap();
            symlink(folder.file_name().unwrap(), folder).unwrap();
        },
        is_told: true,
    },
    Odd {
        name: "a link to a disk that is not mounted in place of the folder",
        make: |folder| {
            fs::remove_dir_all(folder).unwrap();
            symlink("/not/mounted", folder).unwrap();
        },
        is_told: true,
    },
    Odd {
        name: "a list that is a link to nothing",
        make: |folder| {
            fs::remove_file(folder.join("runs.list")).unwrap();
            symlink("nothing", folder.join("runs.list")).unwrap();
        },
        is_told: true,
    },
    Odd {
        name: "a run is gone",
        make: |folder| fs::remove_file(a_run(folder)).unwrap(),
        is_told: true,
    },
    Odd {
        name: "no list",
        make: |folder| fs::remove_file(folder.join("runs.list")).unwrap(),
        is_told: true,
    },
    Odd {
        name: "an empty folder",
        make: |folder| {
            fs::remove_dir_all(folder).unwrap();
            fs::create_dir(folder).unwrap();
        },
        is_told: false,
    },
];

fn a_run(folder: &Path) -> PathBuf {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut runs: Vec<_> = names
        .filter(|path| path.extension() == Some("run".as_ref()))
        .collect();
    runs.sort();
    runs.swap_remove(0)
}

fn run(db: &Path, words: &str) -> Run {
    let mut args: Vec<&str> = words.split(' ').collect();
    args.extend(["--datadir", db.to_str().unwrap()]);
    cambium(args)
}

#[test]
fn the_chain_goes_on_without_an_index_a_history_or_preimages_that_it_cannot_have() {
    let fixture = Fixture::generate(100, HEAD, 6);
    let db = fixture.db();
    let chain = fixture.chain().display().to_string();
    let genesis = fixture.genesis().display().to_string();
    run(
        &db,
        &format!(
            "import --genesis {genesis} --preimages --index --history flat --keep-blocks 8 {chain}"
        ),
    )
    .done();
    run(&db, &format!("unwind --to {BEFORE}")).done();
    for folder in ["index", "history", "preimages"] {
        for Odd {
            name,
            make,
            is_told,
        } in &ODD
        {
            let what = format!("{name}, {folder}");
            let (odd, copy) = (fixture.path("odd"), fixture.path("copy"));
            copy_dir(&db, &odd);
            make(&odd.join(folder));
            for words in ["block 99", "receipts 99", "witness 99 --json", "db check"] {
                let told = run(&odd, words);
                assert_eq!(told.code, 0, "{what}, {words}: {}", told.stderr);
            }
            let stats = run(&odd, "db stats --json").done().json();
            assert_eq!(stats["head_number"], quantity(BEFORE), "{what}");
            let backup = run(&odd, &format!("db backup {} --json", copy.display()));
            match folder {
                // A copy without its history would not be what was asked for.
                "history" if *is_told => {
                    assert!(backup.code > 0, "{what}");
                    // The error names the original, not a copy that is removed.
                    let (message, place) = (&backup.stderr, copy.to_str().unwrap());
                    assert!(!message.contains(place), "{what}: {message}");
                    assert!(message.contains("--no-history"), "{what}: {message}");
                    let without = format!("db backup {} --no-history", copy.display());
                    run(&odd, &without).done();
                }
                _ => {
                    let expected = i32::from(*is_told);
                    assert_eq!(backup.code, expected, "{what}: {}", backup.stderr);
                    let names_copy = backup.stderr.contains(copy.to_str().unwrap());
                    assert!(!names_copy, "{what}: {}", backup.stderr);
                    let is_there = copy.join(folder).join("runs.list").exists();
                    assert!(!is_there, "{what}");
                }
            }
            let of_copy = run(&copy, "db check");
            assert_eq!(of_copy.code, 0, "{what}: {}", of_copy.stderr);
            // A quiet import does all that it can, says what it can't, and loses nothing that would be needed.
            let imported = run(&odd, &format!("import -q --json --keep-blocks 8 {chain}"));
            let report = imported.json();
            assert_eq!(report["head_number"], quantity(HEAD), "{what}");
            let error = &report[format!("{folder}_error")];
            let expected = (i32::from(*is_told), *is_told);
            let found = (imported.code, error.is_string());
            assert_eq!(found, expected, "{what}: {}", imported.stderr);
            assert_eq!(!imported.stderr.is_empty(), *is_told, "{what}");
            for other in ["index", "history", "preimages"] {
                let error = &report[format!("{other}_error")];
                assert!(other == folder || error.is_null(), "{what}: {error}");
            }
            if *is_told {
                let stats = run(&odd, "db stats --json").done().json();
                let kept_from = number(&stats["kept_from"]);
                assert!(kept_from <= BEFORE, "{what}: the log begins at {kept_from}");
                let error = &stats[format!("{folder}_error")];
                assert!(folder == "history" || error.is_string(), "{what}: {stats}");
            }
            fs::remove_dir_all(&odd).unwrap();
            fs::remove_dir_all(&copy).unwrap();
        }
    }
    // A requested follower that can't be opened stops the import before it begins.
    let before = run(&db, "db stats --json").done().json();
    let asked = [("index", "--index"), ("history", "--history flat")];
    for ((folder, option), is_gone) in asked.into_iter().cycle().zip([true, true, false, false]) {
        let odd = fixture.path("odd");
        copy_dir(&db, &odd);
        let list = odd.join(folder).join("runs.list");
        match is_gone {
            true => fs::remove_file(list).unwrap(),
            false => fs::write(list, "").unwrap(),
        }
        let refused = run(&odd, &format!("import --json {option} {chain}"));
        assert!(refused.code > 0 && refused.stderr.contains("runs.list"));
        let after = run(&odd, "db stats --json").done().json();
        assert_eq!(after["head_number"], before["head_number"]);
        assert_ne!(after["head_number"], Value::Null);
        fs::remove_dir_all(&odd).unwrap();
    }
}

/// The index and the preimages need not be there in the copy, but then the backup has said so.
#[test]
fn a_copy_that_ends_with_the_power_is_none_or_has_all_that_was_beside_the_database() {
    let fixture = Fixture::generate(60, 40, 4);
    let options = Options {
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 16 << 10,
            log_file_bytes_max: 64 << 10,
            log_extend_bytes: 16 << 10,
            ..FileSizes::default()
        },
        ..Options::default()
    };
    let from: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
    let init = InitOptions {
        db: options,
        preimages: true,
        ..InitOptions::default()
    };
    let chain = Chain::init(from.clone(), fixture.genesis(), init, &mut |_| {}).unwrap();
    let index = ChainIndex::create(from.clone(), chain.db(), 0, IndexOptions::default()).unwrap();
    let chain = chain.with_index(index.clone());
    let history = History::create(
        from.clone(),
        chain.db(),
        0,
        Some(WholeNodes::default()),
        HistoryOptions::default(),
    );
    let follower = HistoryFollower::start(history.unwrap(), chain.db().clone());
    let blocks = BlockSource::open(fixture.chain()).unwrap();
    chain.import(blocks, &mut |_| {}).unwrap();
    follower.finish().unwrap();
    index.catch_up(chain.db(), None, &mut |_| true).unwrap();
    index.flush().unwrap();
    chain.preimages().unwrap().unwrap().flush().unwrap();
    let copy = |to: &FaultyDisk| {
        let to: Arc<dyn Disk> = Arc::new(to.clone());
        backup_with_parts(&from, &to, options, BackupParts::ALL, &mut |_| {})
    };
    let whole = FaultyDisk::new(2);
    let copied = copy(&whole).unwrap();
    assert!(copied.history.is_some() && copied.preimages.unwrap());
    assert_eq!(copied.index.unwrap().unwrap().upto, Some(chain.db().head()));
    let (mut opened, mut unfinished) = (0, 0);
    for operations in 0..=whole.operations() {
        let to = FaultyDisk::new(operations);
        to.lose_power_after(operations);
        _ = copy(&to);
        let to: Arc<dyn Disk> = Arc::new(to.crash());
        match Db::open_read_only(to.clone(), options) {
            Ok((db, _)) => {
                opened += 1;
                assert_eq!(db.head(), chain.db().head());
                assert!(History::exists(&*to).unwrap(), "{operations}");
                assert!(ChainIndex::exists(&*to).unwrap(), "{operations}");
                assert!(Preimages::exist(&*to).unwrap(), "{operations}");
            }
            Err(StateError::UnfinishedBackup { .. }) => unfinished += 1,
            Err(StateError::Store(cambium::db::StoreError::NotADatabase { .. })) => {}
            Err(error) => panic!("{operations}: {error}"),
        }
    }
    say(&format!(
        "{opened} copies are whole, {unfinished} not finished"
    ));
    assert!(opened > 0 && unfinished > 50, "{opened}, {unfinished}");
}
