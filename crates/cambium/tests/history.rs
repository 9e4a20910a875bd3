//! Old states from the program: followed by an import, made afterwards, damaged.

use crate::support;
use crate::support::Fixture;
use serde_json::Value;
use std::{ffi::OsString, fs, path::Path, process::Stdio, thread, time::Duration};

const HEAD: u64 = 600;

/// Little memory and small files: merges, new files and removals all the time.
const SMALL: [&str; 8] = [
    "--memory",
    "3M",
    "--segment-size",
    "64K",
    "--segment-buffer",
    "16K",
    "--log-file-size",
    "64K",
];

fn import(fixture: &Fixture, db: &Path, file: &Path, more: &[&str]) -> support::Run {
    let mut args: Vec<OsString> = vec!["import".into(), "--json".into()];
    args.extend(SMALL.iter().chain(more).map(OsString::from));
    args.extend(["--genesis".into(), fixture.genesis().into()]);
    args.extend(["--datadir".into(), db.into(), file.into()]);
    support::cambium(args)
}

/// Output of `get` for an account, or for a slot of it, without the state root, which the log has.
fn get(db: &Path, key: &[String], block: u64) -> Value {
    let mut args: Vec<OsString> = vec!["get".into(), "--json".into()];
    args.extend(key.iter().map(OsString::from));
    args.extend(["--block".into(), block.to_string().into()]);
    args.extend(["--datadir".into(), db.into()]);
    let mut value = support::cambium(args).done().json();
    value["state_root"] = Value::Null;
    value
}

/// Some accounts of the genesis file, and balances of some of them in the token.
fn keys(fixture: &Fixture) -> Vec<Vec<String>> {
    let text = fs::read_to_string(fixture.genesis()).expect("a genesis file");
    let genesis: Value = serde_json::from_str(&text).expect("JSON");
    let accounts = genesis["alloc"].as_object().expect("accounts");
    let mut keys = Vec::new();
    for (address, account) in accounts.iter().step_by(accounts.len() / 4) {
        let address = format!("0x{}", address.trim_start_matches("0x"));
        if let Some(storage) = account["storage"].as_object() {
            for slot in storage.keys().step_by(1 + storage.len()) {
                keys.push(vec![address.clone(), slot.clone()]);
            }
        }
        keys.push(vec![address]);
    }
    let token = cambium_workload::TOKEN;
    if let Some(storage) = accounts
        .iter()
        .find(|(address, _)| address.to_lowercase().contains(&format!("{token:x}")))
        .and_then(|(_, account)| account["storage"].as_object())
    {
        for slot in storage.keys().step_by(1 + storage.len() / 4) {
            keys.push(vec![token.to_string(), slot.clone()]);
        }
    }
    keys
}

fn same(fixture: &Fixture, whole: &Path, other: &Path, blocks: &[u64]) {
    let keys = keys(fixture);
    assert!(keys.len() > 6, "{keys:?}");
    for key in &keys {
        for block in blocks {
            assert_eq!(get(other, key, *block), get(whole, key, *block));
        }
    }
}

#[test]
fn old_states_stay_when_their_blocks_leave_the_log() {
    let fixture = Fixture::generate_with(300, HEAD, 20, &[]);
    let (whole, few) = (fixture.path("whole"), fixture.db());
    import(&fixture, &whole, &fixture.chain(), &[]).done();
    // In two parts: the second one follows the history that the first one began.
    let half: Vec<u8> = fixture.blocks()[..HEAD as usize / 2]
        .iter()
        .flat_map(|block| block.rlp.to_vec())
        .collect();
    let half = fixture.write("half.rlp", &half);
    let keep = ["--keep-blocks", "20"];
    import(
        &fixture,
        &few,
        &half,
        &[&keep[..], &["--history", "flat"]].concat(),
    )
    .done();
    import(&fixture, &few, &fixture.chain(), &keep).done();
    let stats = cambium!("db", "stats", "--json", "--datadir", few).done();
    assert!(support::number(&stats.json()["kept_from"]) > HEAD / 2);
    let blocks = [0, 137, 299, 301, HEAD];
    same(&fixture, &whole, &few, &blocks);
    let checked = cambium!("db", "check", "--history", "--json", "--datadir", few).done();
    let checked = checked.json();
    assert_eq!(checked["last_number"], support::quantity(HEAD));
    assert!(
        checked["blocks_compared"].as_u64() < Some(HEAD),
        "{checked}"
    );
    assert!(checked["files"].as_u64() >= Some(1), "{checked}");

    // Made afterwards, it serves the same.
    let run = cambium!(
        "history",
        "build",
        "--json",
        "--from",
        "100",
        "--datadir",
        whole
    );
    let built = run.done().json();
    assert_eq!(
        (&built["first_number"], &built["blocks"]),
        (&"0x64".into(), &500.into())
    );
    let checked = cambium!("db", "check", "--history", "--json", "--datadir", whole).done();
    assert_eq!(checked.json()["blocks_compared"], 500);
    let run = cambium!(
        "history",
        "build",
        "--json",
        "--from",
        "7",
        "--datadir",
        whole
    );
    assert_eq!(run.done().json()["blocks"], 593);
    let checked = cambium!("db", "check", "--history", "--json", "--datadir", whole).done();
    assert_eq!(checked.json()["blocks_compared"], 593);
    let keys = keys(&fixture);
    assert_eq!(get(&whole, &keys[0], 99), get(&few, &keys[0], 99));
    assert_eq!(get(&whole, &keys[0], 101), get(&few, &keys[0], 101));
    // Without a number it goes to the end of the log.
    let run = cambium!("history", "build", "--json", "--datadir", whole);
    assert_eq!(run.done().json()["blocks"], HEAD);
    let run = cambium!(
        "history",
        "build",
        "--history",
        "archive",
        "--datadir",
        whole
    );
    run.fails(1, &["has values and no nodes", "--history archive"]);
}

/// Output of `prove` for an account and its slots.
fn prove(db: &Path, key: &[String], block: u64) -> Value {
    let mut args: Vec<OsString> = vec!["prove".into()];
    args.extend(key.iter().map(OsString::from));
    args.extend(["--block".into(), block.to_string().into()]);
    args.extend(["--datadir".into(), db.into()]);
    support::cambium(args).done().json()
}

/// How many leaves a proof of a range has.
fn leaves(range: &Value) -> usize {
    range["leaves"].as_array().expect("a list").len()
}

/// Proofs of ranges of seventy leaves that have all that there is at a block. Each is verified.
fn ranges(db: &Path, block: u64, more: &[&str]) -> Vec<Value> {
    let (mut ranges, mut from) = (Vec::new(), format!("{:#066x}", 0));
    loop {
        let mut args: Vec<OsString> = vec!["prove-range".into()];
        args.extend(more.iter().map(OsString::from));
        args.extend(["--limit".into(), "70".into(), "--from".into(), from.into()]);
        args.extend(["--block".into(), block.to_string().into()]);
        args.extend(["--datadir".into(), db.into()]);
        let range = support::cambium(args).done().json();
        verify_range(db, &range);
        let next = range["next"].as_str().map(str::to_owned);
        assert_eq!(
            next.is_some(),
            leaves(&range) == 70 && range["last"] != LAST
        );
        ranges.push(range);
        match next {
            Some(next) => from = next,
            None => return ranges,
        }
    }
}

const LAST: &str = "0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

/// Verifies a proof of a range, and that no leaf and no node may be missing.
fn verify_range(db: &Path, proof: &Value) {
    let file = db.with_extension("range.json");
    let root = proof["state_root"].as_str().expect("a root");
    let verify = |proof: &Value| {
        fs::write(&file, proof.to_string()).expect("a file");
        cambium!("verify-range", "--json", &file, "--root", root)
    };
    let verified = verify(proof).done().json();
    assert_eq!(verified["leaves"], proof["leaves"]);
    assert_eq!(verified["unused_nodes"], 0);
    let without = |list: &str| {
        let mut less = proof.clone();
        let list = less[list].as_array_mut().expect("a list");
        (!list.is_empty()).then(|| list.remove(list.len() / 2))?;
        Some(less)
    };
    if let Some(less) = without("nodes") {
        verify(&less).fails(5, &["the proof of the range does not hold"]);
    }
    if let Some(less) = without("leaves") {
        verify(&less).fails(5, &["is not what the nodes prove"]);
    }
    let mut beyond = proof.clone();
    (beyond["first"], beyond["last"]) = (LAST.into(), format!("{:#066x}", 0).into());
    verify(&beyond).fails(5, &["it ends before it begins"]);
}

#[test]
fn an_archive_proves_what_has_left_the_log() {
    let fixture = Fixture::generate_with(300, HEAD, 20, &[]);
    let (whole, few) = (fixture.path("whole"), fixture.db());
    import(&fixture, &whole, &fixture.chain(), &[]).done();
    // In three parts: the last one follows the archive by default.
    let blocks = fixture.blocks();
    let keep = ["--keep-blocks", "20"];
    for (part, more) in [
        (0..5, vec![]),
        (5..300, vec!["--history", "archive", "--nodes", "3"]),
        (300..HEAD as usize, vec![]),
    ] {
        let bytes: Vec<u8> = blocks[part]
            .iter()
            .flat_map(|block| block.rlp.to_vec())
            .collect();
        let part = fixture.write("part.rlp", &bytes);
        import(&fixture, &few, &part, &[&keep[..], &more].concat()).done();
    }
    let stats = cambium!("db", "stats", "--json", "--datadir", few).done();
    assert!(support::number(&stats.json()["kept_from"]) > HEAD / 2);
    let absent = "0x00000000000000000000000000000000000abc00".to_owned();
    let keys: Vec<_> = keys(&fixture).into_iter().chain([vec![absent]]).collect();
    for key in &keys {
        for block in [5, 6, 299, 301, 433, HEAD - 1, HEAD] {
            assert_eq!(
                prove(&few, key, block),
                prove(&whole, key, block),
                "{block}"
            );
        }
    }
    for block in [5, 433] {
        let ranges = ranges(&few, block, &[]);
        assert!(ranges.iter().map(leaves).sum::<usize>() > 20, "{block}");
        assert_eq!(ranges, self::ranges(&whole, block, &[]), "{block}");
        let (key, slots) = (&keys[0][0], ["--account", &keys[0][0]]);
        let ranges = self::ranges(&few, block, &slots);
        assert_eq!(
            ranges,
            self::ranges(&whole, block, &slots),
            "{key} at {block}"
        );
    }
    cambium!(
        "prove-range",
        "--from",
        LAST,
        "--to",
        format!("{:#066x}", 0),
        "--datadir",
        few
    )
    .fails(2, &["--to 0x00", "comes before --from 0xff"]);
    let key = &keys[0][0];
    cambium!("prove", key, "--block", "4", "--datadir", few).fails(1, &["not kept"]);
    let checked = cambium!("db", "check", "--history", "--json", "--datadir", few).done();
    assert_eq!(checked.json()["states_proved"], HEAD - 5);

    // Made afterwards: the same proofs, and witnesses that hold.
    let before = cambium!("witness", "137", "--datadir", whole).done();
    let run = cambium!(
        "history",
        "build",
        "--json",
        "--history",
        "archive",
        "--nodes",
        "whole",
        "--datadir",
        whole
    );
    let built = run.done().json();
    assert_eq!(
        (&built["first_number"], &built["proofs"]),
        (&"0x0".into(), &true.into())
    );
    let after = cambium!("witness", "137", "--datadir", whole).done();
    assert_eq!(before.stdout, after.stdout);
    for key in &keys {
        for block in [5, 299, 433] {
            assert_eq!(
                prove(&whole, key, block),
                prove(&few, key, block),
                "{block}"
            );
        }
    }
}

/// Report of a backup on the history, after the copy was found sound.
fn backup(db: &Path, copy: &Path) -> (u64, Value) {
    let report = cambium!("db", "backup", "--json", "--datadir", db, copy).done();
    let report = report.json();
    cambium!("db", "check", "--datadir", copy).done();
    let history = report["history"].clone();
    if !history.is_null() {
        cambium!("db", "check", "--history", "--datadir", copy).done();
        let files = fs::read_dir(copy.join("history")).expect("a folder");
        let bytes = files.map(|file| file.expect("a file").metadata().expect("a size").len());
        let bytes: u64 = bytes.sum();
        assert!(history["bytes"].as_u64() < Some(bytes), "{report}");
    }
    (support::number(&report["head_number"]), history)
}

/// The newest file of a run.
fn newest_run(db: &Path) -> Option<OsString> {
    let files = fs::read_dir(db.join("history")).into_iter().flatten();
    let names = files.map(|file| file.expect("a file").file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".run"))
        .max()
}

#[test]
fn a_backup_beside_an_import_has_the_history_and_goes_on() {
    let fixture = Fixture::generate_with(300, HEAD, 20, &[]);
    let db = fixture.db();
    cambium!("init", "--genesis", fixture.genesis(), "--datadir", db).done();
    let mut importing = support::program();
    importing
        .args(["import", "--history", "archive=200", "--keep-blocks", "20"])
        .args(SMALL)
        .arg("--datadir")
        .arg(&db)
        .arg(fixture.chain())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut importing = importing.spawn().expect("the program starts");
    let (mut copies, mut is_over, mut newest) = (Vec::new(), false, None);
    while !is_over {
        // When the history has another file, and once more when the import is through.
        while !is_over && (newest_run(&db) == newest || copies.len() == 4) {
            is_over = importing.try_wait().expect("its state").is_some();
            thread::sleep(Duration::from_millis(20));
        }
        newest = newest_run(&db);
        let copy = fixture.path(&format!("copy-{}", copies.len()));
        let (head, history) = backup(&db, &copy);
        copies.push((copy, head, history));
    }
    assert!(importing.wait().expect("its end").success());
    support::say(&format!("copies: {copies:?}"));
    let (last, head, history) = copies.pop().expect("a copy");
    assert_eq!(
        (head, &history["last_number"]),
        (HEAD, &support::quantity(HEAD))
    );
    let with_history = copies
        .iter()
        .filter(|(_, _, history)| history["files"].as_u64() > Some(0));
    let mut between = 0;
    for (copy, head, _) in with_history.take(2) {
        between += u64::from((1..HEAD).contains(head));
        import(&fixture, copy, &fixture.chain(), &["--keep-blocks", "20"]).done();
        let checked = cambium!("db", "check", "--history", "--json", "--datadir", copy).done();
        assert_eq!(checked.json()["last_number"], support::quantity(HEAD));
        for key in &keys(&fixture) {
            for block in [HEAD - 150, HEAD - 50] {
                assert_eq!(prove(copy, key, block), prove(&last, key, block), "{block}");
            }
        }
    }
    support::say(&format!(
        "{} copies, {between} amid the import",
        copies.len()
    ));
    assert!(between > 0);
    let alone = fixture.path("alone");
    let run = cambium!(
        "db",
        "backup",
        "--json",
        "--no-history",
        "--datadir",
        db,
        alone
    );
    assert!(run.done().json()["history"].is_null());
    assert!(!alone.join("history").exists());
    let shared = cambium!("db", "backup", "--datadir", db, fixture.path("shared")).done();
    let told = format!(
        "blocks {} to {HEAD}",
        support::number(&history["first_number"])
    );
    assert!(shared.stdout.contains(&told), "{}", shared.stdout);
}

#[test]
fn a_damaged_history_is_named_and_harms_nothing_else() {
    let fixture = Fixture::generate_with(200, 60, 10, &[]);
    let db = fixture.db();
    import(&fixture, &db, &fixture.chain(), &["--history", "flat"]).done();
    let run = fs::read_dir(db.join("history"))
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .find(|path| path.extension().is_some_and(|ending| ending == "run"))
        .expect("a run");
    let whole = fs::read(&run).expect("a run");
    let name = run
        .file_name()
        .expect("a name")
        .to_str()
        .expect("text")
        .to_owned();
    let damage = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&run, bytes).expect("a run");
    };
    damage(100);
    let words = [&name[..], "history build"];
    cambium!("db", "check", "--history", "--datadir", db).fails(4, &words);
    // The trailer: a default follower is left out, with an error.
    damage(whole.len() - 4096 + 30);
    let followed = import(&fixture, &db, &fixture.chain(), &[]).fails(1, &[&name]);
    assert!(followed.json()["history_error"].is_string());
    import(&fixture, &db, &fixture.chain(), &["--history", "flat"]).fails(4, &words);
    let key = keys(&fixture).remove(0);
    assert_eq!(
        get(&db, &key, 30)["block_number"],
        "0x1e",
        "by the block log"
    );
    let witness = cambium!("witness", "31", "--datadir", db).done();
    assert!(witness.stderr.contains(&name), "{}", witness.stderr);
    fs::remove_dir_all(db.join("history")).expect("a folder");
    cambium!("history", "build", "--datadir", db).done();
    cambium!("db", "check", "--history", "--datadir", db).done();
    cambium!("db", "check", "--datadir", db).done();
}

#[test]
fn a_history_is_checked_up_to_where_the_chain_has_left_it() {
    let fixture = Fixture::generate_with(200, 80, 10, &[]);
    for mode in ["flat", "archive"] {
        let db = fixture.path(mode);
        import(&fixture, &db, &fixture.chain(), &["--history", mode]).done();
        cambium!("unwind", "--to", "50", "--datadir", db).done();
        let checked = cambium!("db", "check", "--history", "--json", "--datadir", db).done();
        assert_eq!(checked.json()["last_number"], "0x32", "{mode}");
        assert_eq!(checked.json()["blocks_compared"], 50, "{mode}");
        // Blocks of a branch that it has not followed yet.
        import(&fixture, &db, &fixture.chain(), &["--history", "none"]).done();
        let checked = cambium!("db", "check", "--history", "--json", "--datadir", db).done();
        assert_eq!(checked.json()["last_number"], "0x50", "{mode}");
    }
}

#[test]
fn without_a_history_the_log_grows_to_a_size_and_no_further() {
    let fixture = Fixture::generate_with(50, 3_000, 3, &[]);
    let db = fixture.db();
    let blocks = fixture.blocks();
    let mut sizes = Vec::new();
    for part in blocks.chunks(500) {
        let part: Vec<u8> = part.iter().flat_map(|block| block.rlp.to_vec()).collect();
        let part = fixture.write("part.rlp", &part);
        import(&fixture, &db, &part, &["--history", "none"]).done();
        let files = fs::read_dir(db.join("log")).expect("a folder");
        let sizes_of = files.map(|file| file.expect("a file").metadata().expect("a size").len());
        sizes.push(sizes_of.sum::<u64>());
    }
    support::say(&format!(
        "bytes of the log after each 500 blocks: {sizes:?}"
    ));
    assert!(sizes[1] > sizes[0] * 3 / 2, "{sizes:?}");
    assert!(sizes[5] < sizes[3] * 6 / 5, "{sizes:?}");
}
