//! Files of a directory beside its data: the manifest, the lock, and the files that announce readers. With any damage
//! to them a writer goes on, and an opening changes nothing else.

use alloy_primitives::B256;
use cambium_hostile::{ByteChange, all_or, byte_changes};
use cambium_primitives::BlockId;
use cambium_state::{Db, Disk, FaultyDisk, Options, StateError, StdDisk, backup, repair};
use cambium_store::{Manifest, StoreError};
use cambium_testkit::{
    Random, TINY_FILES, is_long,
    plain::{self, commit, path, random_puts},
    say,
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
    sync::Arc,
};

const ACCOUNTS: u64 = 600;
const MANIFEST: &str = "cambium.db";

fn options() -> Options {
    Options {
        memory_bytes: 16 << 20,
        files: TINY_FILES,
        ..Options::default()
    }
}

fn make(disk: &Arc<dyn Disk>) -> Db {
    plain::make(disk.clone(), options(), ACCOUNTS, |index| index % 3)
}

/// A block that gives accounts its number.
fn step(db: &Db, random: &mut Random) {
    let changes = random_puts(random, 40, ACCOUNTS, db.head().number + 1);
    commit(db, changes, vec![]);
}

/// Makes blocks and merges them, so that segments come and go.
fn work(db: &Db, random: &mut Random) {
    for _ in 0..6 {
        (0..6).for_each(|_| step(db, random));
        db.flush(0).unwrap();
    }
}

fn root_of(db: &Db) -> B256 {
    db.view().unwrap().state_root()
}

/// All files of a disk but those in `readers/`, and what is in them.
fn contents(disk: &FaultyDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.files().into_iter();
    let of_data = names.filter(|name| !name.starts_with("readers/") && name != "cambium.lock");
    of_data
        .map(|name| {
            let bytes = disk.contents(&name).unwrap();
            (name, bytes)
        })
        .collect()
}

fn overwrite(disk: &FaultyDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(name).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// Something in `readers/`, or in the place of it.
type Clutter = (&'static str, fn(&Path));

fn in_readers(dir: &Path, name: impl AsRef<OsStr>) -> std::path::PathBuf {
    dir.join("readers").join(Path::new(name.as_ref()))
}

const CLUTTER: &[Clutter] = &[
    ("names that say nothing", |dir| {
        for name in [
            "note",
            "-",
            "--",
            "x-1-0",
            "00000001",
            "-1-0",
            " 3-1-0",
            "\u{e9}-1-0",
        ] {
            fs::write(in_readers(dir, name), "x").unwrap();
        }
    }),
    ("numbers that no checkpoint has", |dir| {
        for name in [
            "0-1-0",
            "+3-1-0",
            "18446744073709551615-1-0",
            "18446744073709551616-1-0",
            "99999999999999999999999999999999-1-0",
        ] {
            fs::write(in_readers(dir, name), "").unwrap();
        }
    }),
    ("names that are no text", |dir| {
        for name in [&b"00000001-\xff-0"[..], b"\xff\xfe-1-0", b"00000001-1-0\n"] {
            fs::write(in_readers(dir, OsStr::from_bytes(name)), "").unwrap();
        }
    }),
    ("contents that are no process", |dir| {
        for (number, content) in [
            &b"\0\0\0\0"[..],
            &[0xff; 9999],
            b"-1",
            b"99999999999999999999\n",
        ]
        .into_iter()
        .enumerate()
        {
            fs::write(in_readers(dir, format!("00000001-1-{number}")), content).unwrap();
        }
    }),
    ("directories in place of files", |dir| {
        fs::create_dir(in_readers(dir, "00000001-1-0")).unwrap();
        fs::create_dir_all(in_readers(dir, "00000001-2-0/00000001-1-0")).unwrap();
    }),
    ("a thousand readers that are gone", |dir| {
        for number in 0..1000 {
            fs::write(in_readers(dir, format!("00000001-1-{number}")), "1\n").unwrap();
        }
    }),
    ("links to nowhere and in circles", |dir| {
        symlink("nowhere", in_readers(dir, "00000001-1-0")).unwrap();
        symlink("00000001-1-1", in_readers(dir, "00000001-1-1")).unwrap();
        symlink("../readers", in_readers(dir, "00000001-1-2")).unwrap();
    }),
    ("links to the database's files", |dir| {
        for (number, name) in [MANIFEST, "codes.dat", "blocks.idx"]
            .into_iter()
            .enumerate()
        {
            let link = in_readers(dir, format!("00000001-1-{number}"));
            symlink(Path::new("..").join(name), link).unwrap();
        }
    }),
    ("nothing in the place of the directory", |dir| {
        fs::remove_dir_all(dir.join("readers")).unwrap();
    }),
    ("a file in the place of the directory", |dir| {
        fs::remove_dir_all(dir.join("readers")).unwrap();
        fs::write(dir.join("readers"), "x").unwrap();
    }),
    ("a link to nowhere in the place of the directory", |dir| {
        fs::remove_dir_all(dir.join("readers")).unwrap();
        symlink("nowhere", dir.join("readers")).unwrap();
    }),
    ("a link to itself in the place of the directory", |dir| {
        fs::remove_dir_all(dir.join("readers")).unwrap();
        symlink("readers", dir.join("readers")).unwrap();
    }),
    ("a link to another's directory in the place of it", |dir| {
        fs::remove_dir_all(dir.join("readers")).unwrap();
        fs::create_dir(dir.join(ANOTHERS)).unwrap();
        fs::write(dir.join(ANOTHERS).join("2026-11-27"), "a diary").unwrap();
        symlink(ANOTHERS, dir.join("readers")).unwrap();
    }),
];

/// A directory that is not the database's.
const ANOTHERS: &str = "anothers";

/// A writer that is open goes on and keeps no space for readers that there are not; it can be opened
/// again, and so can readers.
#[test]
fn whatever_stands_among_the_readers_stops_nobody() {
    for (name, clutter) in CLUTTER {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
        let mut random = Random::new(5);
        let writer = make(&disk);
        let manifest = fs::read(dir.path().join(MANIFEST)).unwrap();
        work(&writer, &mut random);
        clutter(dir.path());
        work(&writer, &mut random);
        let mut reader = Db::open_read_only(disk.clone(), options())
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .0;
        assert_eq!(reader.head(), writer.head(), "{name}");
        work(&writer, &mut random);
        reader
            .catch_up()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(root_of(&reader), root_of(&writer), "{name}");
        drop(reader);
        work(&writer, &mut random);
        assert_eq!(writer.stats().unwrap().reader_held_bytes, 0, "{name}");
        let head = writer.head();
        assert_eq!(
            fs::read(dir.path().join(MANIFEST)).unwrap(),
            manifest,
            "{name}"
        );
        let anothers = dir.path().join(ANOTHERS);
        if anothers.exists() {
            assert_eq!(fs::read_dir(&anothers).unwrap().count(), 1, "{name}");
            let diary = fs::read(anothers.join("2026-11-27"));
            assert_eq!(diary.unwrap(), b"a diary", "{name}");
        }
        writer.close().unwrap();

        let (writer, recovery) =
            Db::open(disk.clone(), options()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(recovery.notes.is_empty(), "{name}: {recovery:?}");
        assert_eq!(writer.head(), head, "{name}");
        work(&writer, &mut random);
        assert_eq!(writer.stats().unwrap().reader_held_bytes, 0, "{name}");
        let report = writer.check(&mut |_| {}).unwrap();
        assert!(report.damage.is_empty(), "{name}: {report:?}");
        let (reader, _) = Db::open_read_only(disk.clone(), options()).unwrap();
        assert_eq!(root_of(&reader), root_of(&writer), "{name}");
        assert_eq!(
            fs::read(dir.path().join(MANIFEST)).unwrap(),
            manifest,
            "{name}"
        );
    }
}

/// The content of a live reader's file is ignored: its lock counts.
#[test]
fn a_reader_whose_file_has_any_content_is_known_to_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
    let mut random = Random::new(5);
    let writer = make(&disk);
    work(&writer, &mut random);
    let (reader, _) = Db::open_read_only(disk.clone(), options()).unwrap();
    let entries = fs::read_dir(dir.path().join("readers")).unwrap();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else {
        panic!("{files:?}")
    };
    let good = fs::read(file).unwrap();
    assert_eq!(good, format!("{}\n", std::process::id()).as_bytes());
    let mut kept = 0;
    let long = [vec![b'9'; 1 << 20], vec![0xff; 40]];
    let changed = byte_changes(&good, 8, 3).map(|changed| changed.bytes);
    for bytes in changed.chain(long) {
        fs::write(file, bytes).unwrap();
        (0..6).for_each(|_| step(&writer, &mut random));
        writer.flush(0).unwrap();
        let lent = writer.stats().unwrap().reader_held_bytes;
        kept += usize::from(lent > 0);
        assert!(file.exists(), "it is the reader's");
    }
    assert!(kept > 0);
    assert!(reader.view().unwrap().account(&path(1)).is_ok());
    drop(reader);
    work(&writer, &mut random);
    assert_eq!(writer.stats().unwrap().reader_held_bytes, 0);
    assert!(!file.exists());
}

/// The lock is the kernel's: the content of its file, or a file in its place, is at most a message.
#[test]
fn a_lock_file_of_any_content_locks() {
    let contents: [&[u8]; 7] = [
        b"",
        b"\n",
        b"0",
        b"-5\n",
        b"99999999999999999999",
        &[0xff; 40],
        &[b'7'; 9999],
    ];
    for content in contents {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cambium.lock");
        let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
        make(&disk).close().unwrap();
        fs::write(&file, content).unwrap();
        let (writer, _) = Db::open(disk.clone(), options()).unwrap();
        let in_use = || match Db::open(disk.clone(), options()).map(|_| ()) {
            Err(StateError::Store(StoreError::InUse { pid, .. })) => pid,
            other => panic!("{content:02x?}: {other:?}"),
        };
        assert_eq!(in_use(), Some(std::process::id()));
        // The lock stays held with any content of the file.
        fs::write(&file, content).unwrap();
        in_use();
        step(&writer, &mut Random::new(1));
        writer.close().unwrap();
        Db::open(disk, options()).unwrap();
    }
}

#[test]
fn a_lock_file_that_is_a_link_or_a_directory_is_named_and_nothing_is_written_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, other) = (dir.path().join("data"), dir.path().join("other"));
    fs::create_dir(&data).unwrap();
    let file = data.join("cambium.lock");
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(&data));
    make(&disk).close().unwrap();
    for target in ["../other", MANIFEST] {
        fs::write(&other, "somebody else's").unwrap();
        let manifest = fs::read(data.join(MANIFEST)).unwrap();
        fs::remove_file(&file).unwrap();
        symlink(target, &file).unwrap();
        let error = Db::open(disk.clone(), options()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("cambium.lock"), "{error}");
        assert_eq!(fs::read(&other).unwrap(), b"somebody else's");
        assert_eq!(fs::read(data.join(MANIFEST)).unwrap(), manifest);
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = Db::open(disk.clone(), options()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("cambium.lock"), "{error}");
    // Readers need none.
    Db::open_read_only(disk.clone(), options()).unwrap();
    fs::remove_dir(&file).unwrap();
    Db::open(disk, options()).unwrap();
}

fn database() -> (FaultyDisk, BlockId) {
    let disk = FaultyDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let db = make(&shared);
    let mut random = Random::new(5);
    work(&db, &mut random);
    (0..7).for_each(|_| step(&db, &mut random));
    let head = db.head();
    db.close().unwrap();
    (disk.duplicate(), head)
}

/// No opening takes it, none changes anything, and a repair brings it back as it was.
#[test]
fn a_manifest_with_any_byte_changed_is_told_and_repaired() {
    let (disk, head) = database();
    let good = disk.contents(MANIFEST).unwrap();
    let (mut tried, mut repaired) = (0, 0);
    // A reader that finds damage looks again for a while.
    let mut readers = 0;
    for changed in byte_changes(&good, all_or(500), 41) {
        tried += 1;
        let disk = disk.duplicate();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        overwrite(&disk, MANIFEST, &changed.bytes);
        let before = contents(&disk);
        let assert_told = |error: StateError| {
            let text = error.to_string();
            assert!(error.is_damage(), "{changed}: {text}");
            assert!(
                text.contains(MANIFEST) && text.contains("db repair"),
                "{changed}: {text}"
            );
        };
        assert_told(Db::open(shared.clone(), options()).map(|_| ()).unwrap_err());
        assert_eq!(contents(&disk), before, "{changed}");
        if tried % 50 == 0 {
            readers += 1;
            let reader = Db::open_read_only(shared.clone(), options());
            assert_told(reader.map(|_| ()).unwrap_err());
            let to = FaultyDisk::new(2);
            let onto: Arc<dyn Disk> = Arc::new(to.clone());
            let copied = backup(&shared, &onto, options(), &mut |_| {});
            assert_told(copied.unwrap_err());
            assert!(to.files().is_empty(), "{changed}: {:?}", to.files());
            assert_eq!(contents(&disk), before, "{changed}");
        }
        if tried % 4 == 0 {
            repaired += 1;
            let report = repair(&shared, options(), true, &mut |_| {}).unwrap();
            assert!(!report.findings.is_empty(), "{changed}");
            assert_eq!(contents(&disk), before, "{changed}: a dry run");
            repair(&shared, options(), false, &mut |_| {}).unwrap();
            assert_eq!(disk.contents(MANIFEST).unwrap(), good, "{changed}");
            let (db, _) = Db::open(shared, options()).unwrap();
            assert_eq!(db.head(), head, "{changed}");
        }
    }
    say(&format!(
        "{tried} changed manifests of {} bytes: {readers} shown to readers, {repaired} repaired",
        good.len()
    ));
    assert!(tried > 100 && readers > 1 && repaired > 20);
}

/// A process with the database open has read the manifest.
#[test]
fn a_manifest_that_is_damaged_or_gone_stops_no_writer() {
    for damage in [
        None,
        Some(&b""[..]),
        Some(b"no manifest"),
        Some(&[0xff; 9999]),
    ] {
        let disk = FaultyDisk::new(1);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let writer = make(&shared);
        let mut random = Random::new(5);
        work(&writer, &mut random);
        let (mut reader, _) = Db::open_read_only(shared.clone(), options()).unwrap();
        let good = disk.contents(MANIFEST).unwrap();
        match damage {
            None => disk.remove(MANIFEST).unwrap(),
            Some(bytes) => overwrite(&disk, MANIFEST, bytes),
        }
        (0..4).for_each(|_| step(&writer, &mut random));
        reader.catch_up().unwrap();
        assert_eq!(reader.head(), writer.head());
        work(&writer, &mut random);
        // A new checkpoint is opened anew, and so is the manifest.
        let error = reader.catch_up().map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(MANIFEST), "{error}");
        assert!(reader.view().unwrap().account(&path(1)).is_ok());
        let (head, root) = (writer.head(), root_of(&writer));
        drop(reader);
        writer.close().unwrap();
        assert!(Db::open(shared.clone(), options()).is_err());
        repair(&shared, options(), false, &mut |_| {}).unwrap();
        assert_eq!(disk.contents(MANIFEST).unwrap(), good);
        let (db, _) = Db::open(shared, options()).unwrap();
        assert_eq!((db.head(), root_of(&db)), (head, root));
    }
}

/// One that is whole, and says what no database of ours does.
#[test]
fn a_manifest_that_says_something_else_is_refused() {
    let (disk, _) = database();
    let good = Manifest::open(&disk).unwrap();
    let genesis = |number: &[u8], hash: &[u8]| {
        vec![
            ("genesis_number".to_owned(), number.to_vec()),
            ("genesis_hash".to_owned(), hash.to_vec()),
        ]
    };
    let hash = good.property("genesis_hash").unwrap().to_vec();
    let number = good.property("genesis_number").unwrap().to_vec();
    let own = genesis(&number, &hash);
    for properties in [
        own.clone(),
        vec![],
        genesis(&number, &[]),
        genesis(&number, &hash[1..]),
        genesis(&[], &hash),
        genesis(&[0; 9], &hash),
        vec![("genesis_hash".to_owned(), hash.clone())],
        vec![("x".repeat(5000), vec![7; 5000]); 50],
    ] {
        for salt in [good.salt(), good.salt() ^ 1] {
            if properties == own && salt == good.salt() {
                continue;
            }
            let disk = disk.duplicate();
            disk.remove(MANIFEST).unwrap();
            Manifest::create(&disk, salt, properties.clone()).unwrap();
            let before = contents(&disk);
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let named: Vec<_> = properties
                .iter()
                .map(|(name, value)| (&name[..name.len().min(20)], &value[..value.len().min(32)]))
                .collect();
            let opened = Db::open(shared, options()).map(|_| ());
            let error = opened.expect_err(&format!("{named:?} is taken"));
            assert!(error.to_string().len() < 500, "{named:?}: {error}");
            assert_eq!(contents(&disk), before, "{named:?}: {error}");
        }
    }
}

/// A backup of a damaged database is none, or is as good as the original.
#[test]
fn a_backup_of_a_database_with_any_byte_changed_is_as_good_or_none() {
    let (disk, head) = database();
    let (mut whole, mut less, mut none) = (0, 0, 0);
    let count = if is_long() { 60 } else { 3 };
    for name in contents(&disk).into_keys() {
        let good = disk.contents(&name).unwrap();
        let written = good
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let changed = byte_changes(&good[..written], count, 43);
        // The extension of a file stays behind it, except where the file is cut.
        let rest = &good[written..];
        let changed = changed.map(|changed| {
            let is_cut = changed.change == ByteChange::Cut;
            let rest = if is_cut { &[] } else { rest };
            (changed.to_string(), Some([&changed.bytes, rest].concat()))
        });
        for (change, bytes) in changed.chain([("missing".to_owned(), None)]) {
            let case = format!("{name}: {change}");
            let from = disk.duplicate();
            match bytes {
                Some(bytes) => overwrite(&from, &name, &bytes),
                None => from.remove(&name).unwrap(),
            }
            let before = contents(&from);
            let shared: Arc<dyn Disk> = Arc::new(from.clone());
            let to = FaultyDisk::new(2);
            let onto: Arc<dyn Disk> = Arc::new(to.clone());
            let copied = backup(&shared, &onto, options(), &mut |_| {});
            assert_eq!(contents(&from), before, "{case}: the original is another");
            let report = match copied {
                Ok(report) => report,
                Err(error) => {
                    none += 1;
                    assert!(error.to_string().len() < 500, "{case}: {error}");
                    assert!(to.files().is_empty(), "{case}: {error}: {:?}", to.files());
                    let opened = Db::open_read_only(shared, options());
                    assert!(
                        opened.is_err(),
                        "{case}: it can be opened, and not copied: {error}"
                    );
                    continue;
                }
            };
            let (original, _) = Db::open_read_only(shared, options()).unwrap();
            let (copy, _) = Db::open(onto, options()).unwrap();
            assert_eq!(
                (report.head, copy.head()),
                (original.head(), original.head()),
                "{case}"
            );
            assert_eq!(root_of(&copy), root_of(&original), "{case}");
            let damage = |db: &Db| db.check(&mut |_| {}).unwrap().damage.len();
            let (ours, theirs) = (damage(&copy), damage(&original));
            assert!(
                ours <= theirs,
                "{case}: {ours} in the copy, {theirs} in the original"
            );
            match (original.head() == head, theirs) {
                (true, 0) => whole += 1,
                _ => less += 1,
            }
            // It is a database of its own where it can be read.
            if ours == 0 {
                step(&copy, &mut Random::new(9));
                copy.flush(0).unwrap();
            }
        }
    }
    say(&format!(
        "backups of databases with a changed byte: {whole} whole, {less} with the damage, {none} refused"
    ));
    assert!(whole > 0 && less > 0 && none > 0);
}
