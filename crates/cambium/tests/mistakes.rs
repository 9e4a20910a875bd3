//! Mistakes that people make: each message says what is wrong, where, and what to do.

use crate::support;
use crate::support::{Fixture, Run, copy_dir};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

/// A chain, and files to be mistaken for each other.
struct Desk {
    fixture: Fixture,
    /// Another chain.
    other: Fixture,
    proof: PathBuf,
    range: PathBuf,
    witness: PathBuf,
    root: String,
}

fn desk() -> Desk {
    let fixture = Fixture::generate_with(60, 4, 8, &["--access-lists"]);
    fixture.import(&fixture.chain()).done();
    let other = Fixture::generate_with(50, 2, 5, &["--access-lists"]);
    let db = fixture.db();
    let account = "0x70ce000000000000000000000000000000000000";
    let proof = cambium!("prove", account, "0x1", "-d", db).done().stdout;
    let range = cambium!("prove-range", "--limit", "5", "-d", db)
        .done()
        .stdout;
    let witness = cambium!("witness", "2", "-d", db).done().stdout;
    cambium!("kv", "init", "-d", fixture.path("store")).done();
    fs::create_dir(fixture.path("papers")).unwrap();
    fixture.write("papers/letter", b"Dear all");
    let header = fixture.blocks()[3].decode().unwrap().header;
    Desk {
        other,
        proof: fixture.write("proof.json", proof.as_bytes()),
        range: fixture.write("range.json", range.as_bytes()),
        witness: fixture.write("witness.json", witness.as_bytes()),
        root: header.state_root.to_string(),
        fixture,
    }
}

/// Runs a command whose words are names of things on the desk, or themselves, and expects an exit code
/// and words of the message.
#[track_caller]
fn fails(desk: &Desk, command: &str, code: i32, words: &[&str]) -> Run {
    let fixture = &desk.fixture;
    let args: Vec<OsString> = command
        .split_whitespace()
        .map(|word| match word {
            "DB" => fixture.db().into(),
            "GENESIS" => fixture.genesis().into(),
            "CHAIN" => fixture.chain().into(),
            "LISTS" => fixture.path("access-lists.rlp").into(),
            "OTHER_GENESIS" => desk.other.genesis().into(),
            "OTHER_CHAIN" => desk.other.chain().into(),
            "OTHER_LISTS" => desk.other.path("access-lists.rlp").into(),
            "STORE" => fixture.path("store").into(),
            "PAPERS" => fixture.path("papers").into(),
            "LETTER" => fixture.path("papers/letter").into(),
            "PROGRAM" => fixture.path("program").into(),
            "NOWHERE" => fixture.path("nowhere").into(),
            "PROOF" => desk.proof.clone().into(),
            "RANGE" => desk.range.clone().into(),
            "WITNESS" => desk.witness.clone().into(),
            "ROOT" => (&desk.root).into(),
            "ONE" => format!("0x{:064}", 1).into(),
            "TOKEN" => "0x70ce000000000000000000000000000000000000".into(),
            word => word.into(),
        })
        .collect();
    support::cambium(args).fails(code, words)
}

#[test]
fn directories_of_other_things_are_told_apart() {
    let desk = desk();
    let fails = |command: &str, code, words: &[&str]| fails(&desk, command, code, words);
    let expected = ["it is a file", "the directory of a database was expected"];
    for command in [
        "import -d GENESIS CHAIN",
        "db check -d CHAIN",
        "kv list -d PROOF",
        "init --genesis GENESIS -d CHAIN",
    ] {
        fails(command, 2, &expected);
    }
    let none = [
        "there is no database in",
        "help: create one with `cambium init",
    ];
    for command in [
        "import -d NOWHERE CHAIN",
        "get TOKEN -d NOWHERE",
        "db check -d NOWHERE",
        "unwind --to 1 -d NOWHERE",
    ] {
        fails(command, 1, &none);
    }
    fails(
        "kv get alice -d NOWHERE",
        1,
        &["is not a key-value store", "cambium kv init"],
    );
    fails(
        "import --genesis GENESIS -d PAPERS CHAIN",
        1,
        &[
            "other things in it, such as letter",
            "empty or does not exist",
        ],
    );
    fails(
        "kv init -d PAPERS",
        1,
        &["other things in it, such as letter"],
    );
    let store = [
        "store is a key-value store, not the state of a chain",
        "cambium kv",
    ];
    for command in [
        "import -d STORE CHAIN",
        "get TOKEN -d STORE",
        "init --genesis GENESIS -d STORE",
        "export x -d STORE",
        "witness 1 -d STORE",
        "bal 1 -d STORE",
    ] {
        fails(command, 1, &store);
    }
    fails(
        "kv get alice -d DB",
        1,
        &["it is a chain's, and no key-value store"],
    );
    fails("kv init -d DB", 1, &["already holds a Cambium database"]);
    fails("db backup PAPERS -d DB", 1, &["papers is not empty"]);
    fails(
        "db backup CHAIN -d DB",
        1,
        &["chain.rlp is a file, and a directory was expected"],
    );
    let inside = desk.fixture.db().join("copy");
    cambium!("db", "backup", inside, "-d", desk.fixture.db())
        .fails(1, &["in the database's own directory", "help:"]);
    assert!(!inside.exists());
    fails(
        "workload --out CHAIN",
        1,
        &["chain.rlp is a file, and a directory was expected"],
    );
    fails(
        "man --out CHAIN",
        1,
        &["chain.rlp is a file, and a directory was expected"],
    );
    // A directory that can't be made is not damage.
    cambium!(
        "init",
        "--genesis",
        desk.fixture.genesis(),
        "-d",
        "/proc/none"
    )
    .fails(1, &["/proc/none: can't be made"]);
    // No database is named.
    fails("get TOKEN", 2, &["--datadir <DIR>", "CAMBIUM_DATADIR"]);
}

#[test]
fn files_of_another_kind_are_named_with_what_was_expected() {
    let desk = desk();
    let fails = |command: &str, code, words: &[&str]| fails(&desk, command, code, words);
    let blocks = "help: name a file of blocks";
    fails(
        "import -d DB GENESIS",
        2,
        &["genesis.json: it is JSON", blocks],
    );
    fails(
        "import -d DB WITNESS",
        2,
        &["witness.json: it is JSON", blocks],
    );
    fails(
        "import -d DB LISTS",
        2,
        &["access-lists.rlp: it begins with something else", blocks],
    );
    fails(
        "import -d DB PAPERS",
        2,
        &["papers is a directory, and none of its files is one of blocks"],
    );
    fails(
        "import -d DB missing.rlp",
        1,
        &["missing.rlp: can't be read"],
    );
    fails(
        "import -d DB --access-lists CHAIN CHAIN",
        2,
        &[
            "chain.rlp: it begins with something else, and access lists",
            "help: name a file of access lists",
        ],
    );
    fails(
        "import -d DB --access-lists GENESIS CHAIN",
        2,
        &[
            "genesis.json: it is JSON, and access lists were expected",
            "help: name a file of access lists",
        ],
    );
    fails(
        "import -d DB --genesis CHAIN CHAIN",
        1,
        &["chain.rlp: a genesis file is JSON, and this is not"],
    );
    fails(
        "init -d NOWHERE --genesis PROOF",
        1,
        &["proof.json: has no field `alloc`"],
    );
    fails(
        "init -d NOWHERE --genesis PAPERS",
        1,
        &["papers: Is a directory"],
    );
    fails(
        "verify RANGE --root ROOT",
        5,
        &[
            "range.json: not a valid account proof",
            "help: `cambium prove` prints one",
            "verify-range",
        ],
    );
    fails(
        "verify CHAIN --root ROOT",
        5,
        &["chain.rlp: not a valid account proof"],
    );
    fails(
        "verify-range PROOF --root ROOT",
        5,
        &[
            "proof.json: not a valid proof of a range",
            "help: `cambium prove-range`",
        ],
    );
    fails(
        "kv verify PROOF --root ROOT",
        5,
        &[
            "proof.json: not a valid proof of entries",
            "help: `cambium kv prove`",
        ],
    );
    fails(
        "stateless PROOF --genesis GENESIS",
        5,
        &["proof.json: not a valid witness", "help: `cambium witness`"],
    );
    fails("verify PAPERS --root ROOT", 1, &["papers: can't be read"]);
    fails(
        "kv load WITNESS -d STORE",
        1,
        &["witness.json: line 2: it begins with a space"],
    );
    fails(
        "--config GENESIS db stats -d DB",
        2,
        &["genesis.json: line 1: this is no TOML"],
    );
    let genesis = fs::read(desk.fixture.genesis()).unwrap();
    let cut = desk.fixture.write("cut.json", &genesis[..100]);
    cambium!("init", "--genesis", cut, "-d", desk.fixture.path("nowhere"))
        .fails(1, &["cut.json: it is cut short", "line"]);
}

#[test]
fn other_chains_and_wrong_values_are_named() {
    let desk = desk();
    let fails = |command: &str, code, words: &[&str]| fails(&desk, command, code, words);
    fails(
        "import -d DB OTHER_CHAIN",
        1,
        &[
            "its parent 0x",
            "is not in the database",
            "help: import the file",
        ],
    );
    fails(
        "import -d DB --genesis OTHER_GENESIS CHAIN",
        1,
        &["the database is of the chain with genesis 0x"],
    );
    fails(
        "import -d DB --access-lists OTHER_LISTS CHAIN",
        1,
        &["the lists are of other blocks"],
    );
    fails(
        "verify PROOF --root ONE",
        5,
        &[
            "the proof does not hold for state root 0x00",
            "account 0x70cE",
        ],
    );
    fails(
        "verify PROOF --root 0x12",
        2,
        &["--root <ROOT>", "64 digits after 0x, and not 2"],
    );
    fails(
        "verify PROOF --root alice",
        2,
        &["a hash is hexadecimal, and 'l'"],
    );
    fails(
        "stateless WITNESS --genesis GENESIS --parent ONE",
        5,
        &["the block's parent is 0x"],
    );
    fails("stateless WITNESS --chain foo", 2, &["mainnet, sepolia"]);
    fails(
        "stateless WITNESS",
        2,
        &["--chain <NAME>", "--genesis <FILE>"],
    );
    fails("get alice -d DB", 2, &["an address is hexadecimal"]);
    fails(
        "get TOKEN --block newest -d DB",
        2,
        &["latest, earliest, safe, finalized"],
    );
    fails(
        "get TOKEN --block safe -d DB",
        1,
        &[
            "no block of the database was called safe",
            "help: `cambium set-head",
        ],
    );
    fails(
        "get TOKEN --block ROOT -d DB",
        1,
        &["is not in the database"],
    );
    fails(
        "export x --from 4 --to 2 -d DB",
        2,
        &["block 4 comes after block 2"],
    );
    fails("diff 4 2 -d DB", 2, &["give the older one first"]);
    fails(
        "export GENESIS -d DB",
        1,
        &["genesis.json exists already", "--force"],
    );
    fails("unwind --to 9 -d DB", 1, &["no block 9: the head is 4"]);
    fails("set-head ONE -d DB", 1, &["is not in the database"]);
    fails(
        "import x --history foo -d DB",
        2,
        &["the kinds are none, flat, archive"],
    );
    fails(
        "kv get alice --commit 9 -d STORE",
        1,
        &["no commit 9: the newest is 0"],
    );
    fails(
        "kv root --commit 9 -d STORE",
        1,
        &["no commit 9: the newest is 0"],
    );
    fails(
        "kv rollback 9 -d STORE",
        1,
        &["can't roll back 9 commits: the newest commit is 0"],
    );
    fails(
        "kv get alice --root ONE -d STORE",
        1,
        &["has the root 0x00"],
    );
    fails("kv put alice -d STORE", 2, &["only 1 was provided"]);
    fails(
        "workload --out NOWHERE --transactions 1G",
        2,
        &["transactions in a block is 1000000000", "from 0 to"],
    );
    fails(
        "imprt CHAIN",
        2,
        &["unrecognized subcommand 'imprt'", "import"],
    );
}

#[test]
fn the_first_block_has_an_access_list_that_is_called_empty() {
    let desk = desk();
    let told = cambium!("bal", "0", "-d", desk.fixture.db()).done().stdout;
    assert!(told.contains("is made, not executed"), "{told}");
}

/// A copy of a database whose file `name` in `folder` has other bytes from `at` on.
fn damaged(db: &Path, copy: PathBuf, folder: &str, at: usize) -> PathBuf {
    copy_dir(db, &copy);
    let file = fs::read_dir(copy.join(folder))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = fs::read(&file).unwrap();
    bytes[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::write(file, bytes).unwrap();
    copy
}

#[test]
fn the_same_damage_is_told_once() {
    let desk = desk();
    let fixture = &desk.fixture;
    let db = damaged(&fixture.db(), fixture.path("page"), "segments", 6_000);
    let check = cambium!("db", "check", "--json", "-d", db);
    let damage = check.json()["damage"].as_array().unwrap().clone();
    assert_eq!((check.code, damage.len()), (4, 1), "{damage:?}");
    let text = cambium!("db", "check", "-d", db);
    assert!(
        text.stdout
            .starts_with("The database is DAMAGED in 1 place:\n"),
        "{}",
        text.stdout
    );
    assert_eq!(
        text.stdout.matches("cambium db repair").count(),
        1,
        "{}",
        text.stdout
    );
    assert_eq!(text.stderr, "", "the report has it");
    // One line of an error, on standard error alone.
    let db = damaged(&fixture.db(), fixture.path("log"), "log", 3_000);
    let check = cambium!("db", "check", "-d", db);
    assert_eq!((check.code, check.stdout.as_str()), (4, ""));
    assert_eq!(
        check.stderr.matches("is damaged at byte").count(),
        1,
        "{}",
        check.stderr
    );
}

/// JSON with one field changed, or removed if the value is none.
fn with(json: &Value, field: &str, value: Option<Value>) -> Value {
    let mut changed = json.clone();
    let fields = changed.as_object_mut().unwrap();
    match value {
        Some(value) => _ = fields.insert(field.to_owned(), value),
        None => _ = fields.remove(field),
    }
    changed
}

/// Verifies changed proofs of a kind: each is refused with words, or holds.
#[track_caller]
fn verify_each(desk: &Desk, command: &[&str], root: &str, cases: &[(Value, Result<(), &str>)]) {
    for (json, expected) in cases {
        let file = desk
            .fixture
            .write("changed.json", json.to_string().as_bytes());
        let mut args: Vec<OsString> = command.iter().map(OsString::from).collect();
        args.extend([file.into(), "--root".into(), root.into(), "--json".into()]);
        let run = support::cambium(args);
        match expected {
            Ok(()) => _ = run.done(),
            Err(words) => _ = run.fails(5, &[words]),
        }
    }
}

#[test]
fn what_stands_beside_a_proof_is_of_its_form_and_fits_it() {
    let desk = desk();
    let range: Value = serde_json::from_slice(&fs::read(&desk.range).unwrap()).unwrap();
    let last = range["last"].clone();
    let number = "a number is 0x and 1 to 64 hex digits";
    let mut cases = vec![
        (range.clone(), Ok(())),
        (with(&range, "next", Some(Value::Null)), Ok(())),
    ];
    let text = |text: &str| Some(json!(text));
    for (field, value, words) in [
        ("block", text("0x"), number),
        ("block", text("7"), number),
        ("block", Some(json!(7)), "invalid type: integer"),
        ("block", text("0xg"), number),
        ("block", None, "it has the block's hash and not its number"),
        ("hash", None, "it has the block's number and not its hash"),
        ("hash", text("0x"), "hash"),
        ("hash", text("0x12"), "hash"),
        ("hash", Some(json!(5)), "hash"),
        ("state_root", text("0x"), "state_root"),
        (
            "state_root",
            Some(last.clone()),
            "it says that the state root is",
        ),
        ("next", text("0x"), "next"),
        ("next", text("0x1234"), "next"),
        ("next", Some(last.clone()), "is not beyond the range"),
        (
            "next",
            text(&format!("0x{:064}", 1)),
            "is not beyond the range",
        ),
    ] {
        let words = match words {
            "hash" | "state_root" | "next" => "not a valid proof of a range",
            words => words,
        };
        cases.push((with(&range, field, value), Err(words)));
    }
    for field in ["state_root", "next", "leaves"] {
        cases.push((with(&range, field, None), Ok(())));
    }
    let alone = with(&with(&range, "hash", None), "block", None);
    cases.push((alone, Ok(())));
    let mut leaf = range.clone();
    leaf["leaves"][0]["balance"] = json!("0x");
    cases.push((leaf, Err("not a valid proof of a range")));
    verify_each(&desk, &["verify-range"], &desk.root, &cases);
    // The next page begins where the proof says; fields beside it are ignored.
    let held = cambium!("verify-range", "--json", &desk.range, "--root", &desk.root)
        .done()
        .json();
    let next = held["next"].as_str().unwrap();
    assert!(
        next > last.as_str().unwrap() && next <= range["next"].as_str().unwrap(),
        "{held}"
    );
    assert_eq!(held["not_covered"]["next"], range["next"]);
    assert_eq!(held["not_covered"]["block"], range["block"]);

    // Account proofs: a number has digits.
    let proof: Value = serde_json::from_slice(&fs::read(&desk.proof).unwrap()).unwrap();
    let mut cases = vec![(proof.clone(), Ok(()))];
    for field in ["balance", "nonce"] {
        cases.push((with(&proof, field, text("0x")), Err(number)));
        cases.push((with(&proof, field, text("")), Err(number)));
    }
    let mut value = proof.clone();
    value["storageProof"][0]["value"] = json!("0x");
    cases.push((value, Err(number)));
    verify_each(&desk, &["verify"], &desk.root, &cases);

    // Entries.
    let store = desk.fixture.path("store");
    for pair in [["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"]] {
        cambium!("kv", "put", pair[0], pair[1], "-d", &store).done();
    }
    let range = cambium!("kv", "prove", "--range", "--limit", "2", "-d", &store)
        .done()
        .json();
    let keys = cambium!("kv", "prove", "a", "x", "-d", &store)
        .done()
        .json();
    let root = keys["root"].as_str().unwrap().to_owned();
    let mut cases = vec![(range.clone(), Ok(())), (keys.clone(), Ok(()))];
    for json in [&range, &keys] {
        for (field, value, words) in [
            ("number", text("0x"), "not a valid proof of entries"),
            ("number", Some(json!(-1)), "not a valid proof of entries"),
            ("root", text("0x"), "not a valid proof of entries"),
            ("root", Some(last.clone()), "it says that the root is"),
            ("next", text("0x"), "not a valid proof of entries"),
            ("next", text("0x12"), "not a valid proof of entries"),
        ] {
            cases.push((with(json, field, value), Err(words)));
        }
        for field in ["number", "root", "next"] {
            cases.push((with(json, field, None), Ok(())));
        }
    }
    let own_last = Some(range["last"].clone());
    cases.push((
        with(&range, "next", own_last.clone()),
        Err("is not beyond the last one of the range"),
    ));
    cases.push((
        with(&keys, "next", own_last),
        Err("it has a next key and is of no range"),
    ));
    verify_each(&desk, &["kv", "verify"], &root, &cases);
    let file = desk
        .fixture
        .write("kv-range.json", range.to_string().as_bytes());
    let held = cambium!("kv", "verify", "--json", file, "--root", &root)
        .done()
        .json();
    assert_eq!(held["not_covered"]["next"], range["next"]);
    assert!(held["next"].as_str().unwrap() > range["last"].as_str().unwrap());
}

#[test]
fn those_who_come_from_other_clients_are_told_what_it_is_called_here() {
    let desk = desk();
    for (command, words) in [
        ("import CHAIN --cache 4096 -d DB", "`--memory 4G`"),
        (
            "logs --topic ONE -d DB",
            "`--topic0` is the event's signature",
        ),
        ("import CHAIN --gcmode archive -d DB", "--history archive"),
        ("dump -d DB", "`cambium db dump FILE`"),
        ("attach -d DB", "there is no console"),
        ("version", "`cambium --version`"),
        ("db import CHAIN -d DB", "`cambium import FILE`"),
        ("db get TOKEN -d DB", "`cambium get ADDRESS`"),
        ("removedb -d DB", "remove the directory"),
    ] {
        fails(&desk, command, 2, &["tip: ", words]);
    }
    // Unknown words have the parser's guess.
    fails(&desk, "import CHAIN --bacth 4 -d DB", 2, &["'--batch'"]);
    fails(&desk, "exprot x -d DB", 2, &["'export'"]);
    // As other clients take it.
    let fixture = &desk.fixture;
    let (some, other) = (fixture.path("some.rlp"), fixture.path("other.rlp"));
    cambium!("export", &some, "2", "3", "-d", fixture.db()).done();
    cambium!(
        "export",
        &other,
        "--from",
        "2",
        "--to",
        "3",
        "-d",
        fixture.db()
    )
    .done();
    assert_eq!(fs::read(some).unwrap(), fs::read(&other).unwrap());
    cambium!("export", &other, "2", "--from", "2", "-d", fixture.db()).fails(2, &["--from"]);
    let new = fixture.path("new");
    cambium!("init", fixture.genesis(), "-d", &new).done();
    cambium!("init", "--genesis", fixture.genesis(), "-d", &new).done();
    cambium!("init", "-d", &new).fails(2, &["a genesis file is needed", "cambium init FILE"]);
}

#[test]
fn a_wrong_file_is_usage_and_a_directory_stands_for_its_files() {
    let desk = desk();
    let fixture = &desk.fixture;
    let told = |command: &str, words: &str| {
        let run = fails(&desk, command, 2, &[words, "help: name a file of blocks"]);
        assert!(!run.stderr.contains("committed"), "{}", run.stderr);
    };
    told(
        "import GENESIS -d DB",
        "genesis.json: it is JSON, and blocks were expected",
    );
    told(
        "import LETTER -d DB",
        "letter: it is text, and blocks were expected",
    );
    fixture.write("program", b"\x7fELF\x02");
    told("import PROGRAM -d DB", "program: it begins with 0x7f45");
    // A packed file is as wrong as what is in it.
    let pack = |name: &str, bytes: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).unwrap();
        fixture.write(name, &packed.finish().unwrap());
    };
    let mut archive = b"chain.rlp".to_vec();
    archive.resize(1_024, 0);
    pack("genesis.json.gz", &fs::read(fixture.genesis()).unwrap());
    pack("chain.tar.gz", &archive);
    pack(
        "lists.gz",
        &fs::read(fixture.path("access-lists.rlp")).unwrap(),
    );
    for name in ["genesis.json.gz", "chain.tar.gz", "lists.gz"] {
        let words = format!("{name}: unpacked, it begins with something else, and blocks");
        cambium!("import", fixture.path(name), "-d", fixture.db()).fails(2, &[&words]);
    }
    // The error includes the progress so far.
    let new = fixture.path("new");
    cambium!("init", fixture.genesis(), "-d", &new).done();
    cambium!("import", fixture.chain(), fixture.genesis(), "-d", &new).fails(
        2,
        &["genesis.json: it is JSON", "The database is at block 4"],
    );

    // Blocks in files whose names are in their order, beside others.
    let dir = fixture.path("files");
    fs::create_dir(&dir).unwrap();
    for (name, from, to) in [("b.rlp.gz", "3", "4"), ("a.rlp", "1", "2")] {
        cambium!("export", dir.join(name), from, to, "-d", fixture.db()).done();
    }
    fs::write(dir.join("readme.txt"), "Blocks").unwrap();
    fs::copy(fixture.path("access-lists.rlp"), dir.join("lists.rlp")).unwrap();
    fs::copy(fixture.genesis(), dir.join("genesis.rlp")).unwrap();
    fs::create_dir(dir.join("inner.rlp")).unwrap();
    for name in ["genesis.json.gz", "chain.tar.gz"] {
        fs::copy(fixture.path(name), dir.join(name)).unwrap();
    }
    // It has no writer, and opening it blocks for ever.
    let (pipe, mode) = (dir.join("pipe.rlp"), rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let fresh = fixture.path("fresh");
    let run = cambium!(
        "import",
        "--json",
        "--genesis",
        fixture.genesis(),
        "-d",
        &fresh,
        &dir
    )
    .done();
    assert_eq!(run.json()["blocks"], 4, "{}", run.stdout);
    for skipped in [
        "lists.rlp: it ",
        "genesis.rlp: it ",
        "genesis.json.gz: unpacked, it ",
        "chain.tar.gz: unpacked, it ",
        "pipe.rlp is not a file",
    ] {
        assert!(run.stderr.contains(skipped), "{skipped}: {}", run.stderr);
    }
    cambium!("import", fixture.path("papers"), "-d", &fresh).fails(
        2,
        &[
            "papers is a directory, and none of its files is one of blocks",
            ".era1",
        ],
    );
}

#[test]
fn a_quiet_command_prints_what_was_asked_for_and_errors() {
    let desk = desk();
    let fixture = &desk.fixture;
    let db = fixture.path("quiet");
    let quiet = |run: Run| {
        let run = run.done();
        assert_eq!((&*run.stdout, &*run.stderr), ("", ""));
    };
    quiet(cambium!("init", "-q", fixture.genesis(), "-d", &db));
    quiet(cambium!(
        "import",
        "-q",
        "--index",
        fixture.chain(),
        "-d",
        &db
    ));
    quiet(cambium!("export", "-q", fixture.path("out.rlp"), "-d", &db));
    quiet(cambium!("unwind", "-q", "--to", "2", "-d", &db));
    quiet(cambium!("set-head", "-q", "1", "-d", &db));
    quiet(cambium!("history", "build", "-q", "-d", &db));
    quiet(cambium!(
        "db",
        "backup",
        "-q",
        fixture.path("copy"),
        "-d",
        &db
    ));
    quiet(cambium!("db", "repair", "-q", "-d", &db));
    let store = fixture.path("quiet-store");
    quiet(cambium!("kv", "init", "-q", "-d", &store));
    quiet(cambium!("kv", "put", "-q", "a", "1", "-d", &store));
    for asked in [
        cambium!(
            "get",
            "-q",
            "0x70ce000000000000000000000000000000000000",
            "-d",
            &db
        ),
        cambium!("db", "stats", "-q", "-d", &db),
        cambium!("db", "check", "-q", "-d", &db),
        cambium!("db", "repair", "-q", "--dry-run", "-d", &db),
        cambium!("kv", "root", "-q", "-d", &store),
        cambium!("unwind", "-q", "--to", "1", "--json", "-d", &db),
    ] {
        assert!(!asked.done().stdout.is_empty());
    }
    let run = cambium!("import", "-q", fixture.genesis(), "-d", &db).fails(2, &["error: "]);
    assert_eq!(run.stdout, "");
    // Success except for a part is reported as an error.
    fs::write(db.join("index/runs.list"), "").unwrap();
    for run in [
        cambium!("import", "-q", fixture.chain(), "-d", &db),
        cambium!("db", "backup", "-q", fixture.path("part"), "-d", &db),
    ] {
        let run = run.fails(1, &["error: ", "index/runs.list"]);
        assert_eq!(run.stdout, "");
    }
}
