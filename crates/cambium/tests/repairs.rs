//! What a repair could not bring back is told until it is there again, and the chain goes on.

use crate::support;
use crate::support::{Fixture, Run, copy_dir, number};
use std::{fs, path::Path};

fn repair(db: &Path, option: &str) -> Run {
    let mut args = vec!["db", "repair", "--json", "-d", db.to_str().unwrap()];
    args.extend(option.split_whitespace());
    support::cambium(args)
}

/// Flips a bit of the log, at a part of what is written.
fn flip(log: &Path, part: usize) {
    let mut bytes = fs::read(log).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[written / part] ^= 1;
    fs::write(log, bytes).unwrap();
}

/// Blocks that a repair could not bring back are still to be imported when it is asked again.
#[test]
fn a_repair_tells_of_missing_blocks_until_they_are_imported() {
    let fixture = Fixture::generate(200, 60, 40);
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    flip(&db.join("log/00000001.log"), 2);
    let first = repair(&db, "");
    assert_eq!(first.code, 4, "{}", first.stderr);
    let missing = first.json()["missing"].clone();
    assert!(missing.is_array(), "{}", first.stdout);
    for option in ["", "--dry-run", ""] {
        let again = repair(&db, option);
        assert_eq!(again.code, 4, "{}", again.stdout);
        let json = again.json();
        let found = (&json["missing"], &json["sound"], &json["whole"]);
        assert_eq!(found, (&missing, &true.into(), &false.into()));
        assert_eq!(json["import_from"], missing[0]);
    }
    let told = cambium!("db", "repair", "-d", &db);
    assert_eq!(told.code, 4);
    let words = "No file is damaged, but blocks are missing. Nothing was changed.";
    assert!(told.stdout.contains(words), "{}", told.stdout);
    assert!(told.stdout.contains("Import blocks"), "{}", told.stdout);
    fixture.import(&fixture.chain()).done();
    assert_eq!(fixture.head(), 60);
    let sound = repair(&db, "");
    assert_eq!(sound.code, 0, "{}", sound.stdout);
    assert!(sound.json()["missing"].is_null());
}

/// A block whose record is lost, far below the head: the state does not need it, and nothing brings it back.
#[test]
fn a_lost_record_of_an_old_block_is_told_by_each_repair_and_check() {
    let fixture = Fixture::generate(800, 120, 60);
    let db = fixture.db();
    fixture
        .import_new(&db, "--memory 1M --history archive")
        .done();
    flip(&db.join("log/00000001.log"), 8);
    let lost = |run: &Run| {
        assert_eq!(run.code, 4, "{}{}", run.stdout, run.stderr);
        let report = run.json();
        assert_eq!(report["whole"], false, "{}", run.stdout);
        let lost = report["lost_history"].as_array().unwrap().clone();
        assert_eq!(lost.len(), 1, "{}", run.stdout);
        lost
    };
    let first = lost(&repair(&db, ""));
    fixture.import(&fixture.chain()).done();
    for _ in 0..2 {
        assert_eq!(lost(&repair(&db, "--dry-run")), first);
        assert_eq!(lost(&repair(&db, "")), first);
    }
    let told = cambium!("db", "repair", "-d", &db);
    assert!(told.stdout.contains("are lost"), "{}", told.stdout);
    cambium!("db", "check", "-d", &db).fails(4, &[]);
    // The history has what it was made of.
    cambium!("db", "check", "--history", "-d", &db).done();
    assert_eq!(fixture.head(), 120);
}

/// The log is in one file here, so that the head's own record goes with it.
#[test]
fn a_database_that_has_lost_its_log_goes_on_with_the_chain() {
    let fixture = Fixture::generate(300, 150, 10);
    let import =
        |db: &Path, memory: &str| fixture.import_new(db, &format!("--json --memory {memory}"));
    let mut heads = Vec::new();
    for memory in ["1M", "64M"] {
        let whole = fixture.path("whole");
        let expected = import(&whole, memory).done().json();
        let log = fs::read(whole.join("log/00000001.log")).unwrap();
        let written = log.iter().rposition(|byte| *byte != 0).unwrap();
        for left in [
            None,
            Some(0),
            Some(50),
            Some(written / 3),
            Some(written / 2),
        ] {
            let what = format!("{memory}, {left:?} bytes are left");
            let db = fixture.path("cut");
            copy_dir(&whole, &db);
            let file = db.join("log/00000001.log");
            match left {
                None => fs::remove_file(&file).unwrap(),
                Some(left) => fs::write(&file, &log[..left]).unwrap(),
            }
            let repaired = repair(&db, "");
            let report = repaired.json();
            // A log that ends early above the snapshot looks like one whose end was never durable.
            let is_told = repaired.code == 4;
            assert_eq!(report["whole"], !is_told, "{what}: {}", repaired.stderr);
            let head = number(&report["head_number"]);
            heads.push(head);
            // Without the block itself it is said what is needed, and nothing is lost.
            let rest = fixture.path("rest.rlp");
            let (from, to) = ((head + 1).to_string(), "150".to_owned());
            cambium!("export", "--force", &rest, from, to, "-d", &whole).done();
            let alone = cambium!("import", &rest, "-d", &db);
            let lost = report["lost_history"].as_array().unwrap();
            assert!(is_told || lost.is_empty() && head > 0, "{what}");
            if lost.is_empty() {
                alone.done();
            } else {
                let words = ["is lost", "import the chain from that block on"];
                alone.fails(4, &words);
                let told = cambium!("db", "repair", "-d", &db);
                let words = "until its block is given again";
                assert!(told.stdout.contains(words), "{what}: {}", told.stdout);
            }
            let again = import(&db, memory);
            assert_eq!(again.code, 0, "{what}: {}", again.stderr);
            for field in ["head_hash", "state_root"] {
                assert_eq!(again.json()[field], expected[field], "{what}");
            }
            cambium!("block", "latest", "-d", &db).done();
            fs::remove_dir_all(&db).unwrap();
        }
        fs::remove_dir_all(&whole).unwrap();
    }
    heads.sort_unstable();
    assert!(heads[0] == 0 && heads[9] > 10, "{heads:?}");
}

/// Codes of the genesis are in no other file.
#[test]
fn lost_codes_are_told_by_each_repair() {
    let fixture = Fixture::generate(60, 10, 8);
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    fs::remove_file(db.join("codes.dat")).unwrap();
    for option in ["", "--dry-run", "", ""] {
        let run = repair(&db, option);
        assert_eq!(run.code, 4, "{}", run.stdout);
        let report = run.json();
        assert_eq!(report["whole"], false);
        assert!(run.stdout.contains("codes are missing"), "{}", run.stdout);
    }
    cambium!("db", "check", "-d", &db).fails(4, &[]);
}

#[test]
fn damaged_long_values_are_told_by_a_repair() {
    let dir = tempfile::tempdir().unwrap();
    let (db, value) = (dir.path().join("store"), dir.path().join("value"));
    cambium!("kv", "init", "-d", &db).done();
    for n in 1..5u8 {
        fs::write(&value, vec![n; 3_000]).unwrap();
        let at = format!("@{}", value.display());
        cambium!("kv", "put", format!("key{n}"), at, "-d", &db).done();
    }
    cambium!("db", "repair", "-d", &db).done();
    let file = db.join("values/00000001.val");
    let mut bytes = fs::read(&file).unwrap();
    let third = bytes.windows(9).position(|bytes| bytes == [3; 9]).unwrap();
    bytes[third + 70] ^= 1;
    fs::write(&file, bytes).unwrap();
    for _ in 0..2 {
        let words = ["value", "put the value again"];
        let run = cambium!("db", "repair", "-d", &db);
        assert_eq!(run.code, 4, "{}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stdout.contains(word), "{}", run.stdout);
        }
    }
    fs::write(&value, vec![3; 3_000]).unwrap();
    let at = format!("@{}", value.display());
    cambium!("kv", "put", "key3", at, "-d", &db).done();
    cambium!("db", "repair", "-d", &db).done();
}
