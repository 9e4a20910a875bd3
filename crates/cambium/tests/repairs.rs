//! Losses that a repair can't restore are reported until the data is there again, and the chain goes on.

use crate::support;
use crate::support::{Fixture, Run, copy_dir, number};
use cambium::{Chain, Options, StdDisk};
use serde_json::Value;
use std::{ffi::OsStr, fs, os::unix::fs::FileExt, path::Path, sync::Arc};

fn repair(db: &Path, option: &str) -> Run {
    let mut args = vec!["db", "repair", "--json", "-d", db.to_str().unwrap()];
    args.extend(option.split_whitespace());
    support::cambium(args)
}

/// Flips a bit of the log, at a part of the written bytes.
fn flip(log: &Path, part: usize) {
    let mut bytes = fs::read(log).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[written / part] ^= 1;
    fs::write(log, bytes).unwrap();
}

/// Flips a bit in the record of a canonical block in the first file of the log. The block index has its place.
fn flip_record(db: &Path, number: u64) {
    let index = fs::read(db.join("blocks.idx")).unwrap();
    let entry = 48 + 48 * number as usize;
    let place = u32::from_le_bytes(index[entry + 32..entry + 36].try_into().unwrap());
    let log = db.join("log/00000001.log");
    let log = fs::File::options()
        .read(true)
        .write(true)
        .open(log)
        .unwrap();
    let (at, mut byte) = (u64::from(place) + 200, [0]);
    log.read_exact_at(&mut byte, at).unwrap();
    log.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Merges all blocks, so that the snapshot is the head, and the block index has all of them.
fn merge(db: &Path) {
    let disk = Arc::new(StdDisk::new(db));
    let (chain, _) = Chain::open(disk, Options::default()).unwrap();
    chain.db().flush(0).unwrap();
}

/// Repairs a database until nothing is damaged, and returns the last report.
#[track_caller]
fn repair_fully(db: &Path) -> Value {
    assert_eq!(repair(db, "").code, 4);
    let again = repair(db, "");
    assert_eq!(again.code, 4, "{}{}", again.stdout, again.stderr);
    let report = again.json();
    assert_eq!(
        (&report["sound"], &report["whole"]),
        (&true.into(), &false.into())
    );
    report
}

/// The head has moved below the snapshot, and a record by which it did is lost.
#[test]
fn a_database_that_can_not_follow_its_head_down_opens_where_it_was() {
    let fixture = Fixture::generate(300, 60, 20);
    let whole = fixture.path("whole");
    fixture.import_new(&whole, "--memory 1M").done();
    merge(&whole);
    let to = 55;
    cambium!("unwind", "--to", to.to_string(), "-d", &whole).done();
    for lost in to - 1..=60 {
        let db = fixture.path("db");
        copy_dir(&whole, &db);
        flip_record(&db, lost);
        let report = repair_fully(&db);
        let expected = if lost < to { to } else { 60 };
        assert_eq!(
            number(&report["head_number"]),
            expected,
            "block {lost} is lost"
        );
        assert_eq!(report["lost_history"][0][0], support::quantity(lost));
        cambium!("unwind", "--to", (to - 1).to_string(), "-d", &db)
            .fails(4, &["has lost the record"]);
        fixture.import(&fixture.chain()).done();
        assert_eq!(fixture.head(), 60, "block {lost} is lost");
        fs::remove_dir_all(&db).unwrap();
    }
}

/// The newest blocks are lost, and nothing is behind them that waits for them.
#[test]
fn lost_blocks_at_the_end_are_told_until_others_follow() {
    let fixture = Fixture::generate(300, 60, 20);
    let db = fixture.db();
    fixture.import(&fixture.chain()).done();
    let path = db.join("log/00000001.log");
    let mut log = fs::read(&path).unwrap();
    let end = log.iter().rposition(|byte| *byte != 0).unwrap();
    log[end - 20_000..end - 60].fill(0);
    fs::write(path, log).unwrap();
    let report = repair_fully(&db);
    let head = number(&report["head_number"]);
    assert!(head < 60, "{report}");
    assert_eq!(report["import_from"], support::quantity(head + 1));
    fixture.import(&fixture.chain()).done();
    assert_eq!(fixture.head(), 60);
    assert_eq!(repair(&db, "").done().json()["whole"], true);
}

/// The block index is made again from a log that lacks a record.
#[test]
fn a_lost_record_is_told_when_the_block_index_is_lost_as_well() {
    let fixture = Fixture::generate(100, 200, 2);
    let db = fixture.db();
    fixture.import_new(&db, "--memory 1M").done();
    merge(&db);
    flip_record(&db, 15);
    let lost = repair_fully(&db)["lost_history"].clone();
    fs::remove_file(db.join("blocks.idx")).unwrap();
    let report = repair_fully(&db);
    assert_eq!(report["lost_history"], lost);
    cambium!("block", "15", "-d", &db).fails(4, &["has lost the record"]);
    for number in ["14", "16"] {
        cambium!("block", number, "-d", &db).done();
    }
}

/// Indexes and histories that are begun after a record was lost begin after it, and those that have the block have it
/// still.
#[test]
fn indexes_and_histories_go_on_without_a_lost_record() {
    let fixture = Fixture::generate(200, 80, 10);
    let address = "0xc01bBA5E00000000000000000000000000000000";
    for (mode, lost) in [("archive", 30), ("flat", 30), ("archive", 70), ("flat", 70)] {
        let db = fixture.db();
        let options = format!("--memory 1M --index --history {mode}");
        fixture.import_new(&db, &options).done();
        merge(&db);
        let get = |block: &str| cambium!("get", address, "--block", block, "-d", &db, "--json");
        let before = get("30").done().json();
        flip_record(&db, lost);
        repair(&db, "").fails(4, &[]);
        assert_eq!(get("30").done().json()["balance"], before["balance"]);
        cambium!("get", address, "-d", &db).done();
        cambium!(
            "db",
            "dump",
            fixture.path("dump"),
            "--block",
            "30",
            "--force",
            "-d",
            &db
        )
        .done();
        for what in ["index", "history"] {
            cambium!(what, "build", "-d", &db).done();
        }
        // As they are begun anew.
        if lost == 30 {
            for what in ["index", "history"] {
                fs::remove_dir_all(db.join(what)).unwrap();
            }
            cambium!("index", "build", "-d", &db).done();
            cambium!("history", "build", "--history", mode, "-d", &db).done();
            let checked = cambium!("db", "check", "--history", "--json", "-d", &db)
                .done()
                .json();
            assert_eq!(checked["first_number"], support::quantity(30), "{mode}");
            assert_eq!(checked["last_number"], support::quantity(80), "{mode}");
            cambium!("index", "check", "-d", &db).done();
            assert_eq!(get("30").done().json()["balance"], before["balance"]);
        }
        fs::remove_dir_all(&db).unwrap();
    }
}

/// The index and the history continue with the chain when the head's record is lost.
#[test]
fn followers_go_on_above_a_lost_head() {
    let fixture = Fixture::generate(200, 80, 10);
    let (whole, first) = (fixture.path("whole"), fixture.path("first.rlp"));
    let (genesis, rest) = (fixture.genesis(), fixture.path("rest.rlp"));
    fixture.import_new(&whole, "").done();
    cambium!("export", &first, "1", "60", "-d", &whole).done();
    cambium!("export", &rest, "60", "80", "-d", &whole).done();
    for mode in ["archive", "flat"] {
        let db = fixture.path(mode);
        cambium!("init", "--genesis", &genesis, "-d", &db).done();
        let options = ["import", "--index", "--history", mode];
        let places = ["-d".as_ref(), db.as_os_str(), first.as_os_str()];
        support::cambium(options.map(OsStr::new).into_iter().chain(places)).done();
        merge(&db);
        flip_record(&db, 60);
        let report = repair_fully(&db);
        assert_eq!(report["head_lost"], true, "{report}");
        assert_eq!(report["import_from"], report["head_number"]);
        cambium!("import", "-d", &db, &rest).done();
        let checked = cambium!("db", "check", "--history", "--json", "-d", &db).done();
        assert_eq!(
            checked.json()["last_number"],
            support::quantity(80),
            "{mode}"
        );
        cambium!("index", "check", "-d", &db).done();
    }
}

/// Under `layered`, a root needs the records of up to two intervals.
#[test]
fn a_layered_database_that_can_not_go_on_says_so() {
    let options = ["--commitment", "layered", "--merge-interval", "7"];
    let fixture = Fixture::generate_with(200, 60, 10, &options);
    let whole = fixture.path("whole");
    cambium!(
        "init",
        "--genesis",
        fixture.genesis(),
        "--commitment",
        "layered",
        "--merge-interval",
        "7",
        "-d",
        &whole
    )
    .done();
    cambium!("import", "--memory", "1M", "-d", &whole, fixture.chain()).done();
    merge(&whole);
    for (lost, is_needed) in [(20, false), (52, true)] {
        let db = fixture.path("db");
        copy_dir(&whole, &db);
        flip_record(&db, lost);
        repair(&db, "").fails(4, &[]);
        let again = cambium!("db", "repair", "-d", &db);
        assert_eq!(again.code, 4);
        let words = "no block can be added";
        assert_eq!(again.stdout.contains(words), is_needed, "{}", again.stdout);
        fs::remove_dir_all(&db).unwrap();
    }
}

/// Log messages to a reader that has gone end nothing.
#[test]
fn a_closed_standard_error_ends_no_command() {
    let fixture = Fixture::generate(100, 20, 5);
    let db = fixture.db();
    fixture.import(&fixture.chain()).done();
    let script = "exec 2> >(exec true); sleep 0.2; exec \"$0\" \"$@\"";
    let program = support::program().get_program().to_owned();
    let mut command = std::process::Command::new("bash");
    command.args(["-c", script]).arg(program);
    command
        .args(["--log", "debug", "db", "check", "-d"])
        .arg(&db);
    assert_eq!(Run::of(command.output().unwrap()).code, 0);
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
