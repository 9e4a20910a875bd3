//! An operator's commands: choosing the head, naming blocks, and stopping.

use crate::support;
use crate::support::{Fixture, Run, cambium, program};
use cambium::{Chain, Options, StdDisk};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    sync::Arc,
    thread,
    time::Duration,
};

const BLOCKS: u64 = 12;

fn imported() -> Fixture {
    let fixture = Fixture::generate(100, BLOCKS, 4);
    fixture.import(&fixture.chain()).done();
    fixture
}

fn set_head(fixture: &Fixture, args: &[&str]) -> Run {
    let db = fixture.db();
    let rest = ["-d", db.to_str().unwrap(), "--json"];
    cambium([&["set-head"], args, &rest].concat())
}

fn branches(fixture: &Fixture) -> Value {
    cambium!("db", "branches", "-d", fixture.db(), "--json")
        .done()
        .json()
}

fn hashes(fixture: &Fixture) -> Vec<String> {
    let blocks = fixture.blocks().into_iter();
    let hash =
        |block: cambium::chain::RawBlock| block.decode().unwrap().header.hash_slow().to_string();
    blocks.map(hash).collect()
}

#[test]
fn the_head_is_set_by_number_and_by_hash_and_blocks_are_finalized() {
    let fixture = imported();
    let hashes = hashes(&fixture);
    let hash = |number: u64| hashes[number as usize - 1].as_str();
    let told = set_head(&fixture, &["5"]).done().json();
    assert_eq!(told["head_number"], "0x5");
    assert_eq!(told["head_hash"], hash(5));
    assert_eq!(told["before_hash"], hash(12));
    assert_eq!(told["finalized"], Value::Null);
    // Blocks above the head are a branch until they are too old.
    let listed = branches(&fixture);
    assert_eq!(listed["branches"].as_array().unwrap().len(), 1);
    assert_eq!(listed["branches"][0]["tip"]["hash"], hash(12));
    assert_eq!(listed["branches"][0]["fork"]["hash"], hash(5));
    let text = cambium!("db", "branches", "-d", fixture.db()).done().stdout;
    assert!(text.contains("7 blocks after block 5"), "{text}");
    // Back, by the hash, with a finalized block.
    let told = set_head(&fixture, &[hash(12), "--safe", "0x9", "--finalized", "8"]);
    let told = told.done().json();
    assert_eq!(told["head_number"], "0xc");
    assert_eq!(told["safe"]["number"], "0x9");
    assert_eq!(told["finalized"]["hash"], hash(8));
    assert_eq!(branches(&fixture)["branches"], json!([]));
    assert_eq!(branches(&fixture)["finalized"]["hash"], hash(8));
    // It can't be undone by the way, and a mistake changes nothing.
    set_head(&fixture, &["7", "--safe", "6"]).fails(1, &["finalized block 8", "set the head"]);
    let above = set_head(&fixture, &["10", "--safe", hash(11)]);
    above.fails(1, &["safe block 11", "not an ancestor"]);
    set_head(&fixture, &["latest", "--finalized", "7"]).fails(1, &["finalized block 8"]);
    set_head(&fixture, &["10", "--safe", "11"]).fails(1, &["no block 11"]);
    set_head(&fixture, &["latest", "--safe", "3", "--finalized", "9"])
        .fails(1, &["safe block 3", "below"]);
    set_head(&fixture, &["13"]).fails(1, &["13"]);
    set_head(&fixture, &[&format!("0x{}", "12".repeat(32))]).fails(1, &["not in the database"]);
    set_head(&fixture, &["newest"]).fails(2, &["latest, earliest"]);
    set_head(&fixture, &["-1"]).fails(2, &[]);
    assert_eq!(fixture.head(), 12);
    // `set-head` moves the head there.
    let told = set_head(&fixture, &["earliest"]).done().json();
    assert_eq!(told["head_number"], "0x0");
    assert_eq!(told["finalized"], Value::Null);
}

#[test]
fn states_are_read_at_blocks_named_in_any_way() {
    let fixture = imported();
    let hashes = hashes(&fixture);
    set_head(&fixture, &["latest", "--safe", "11", "--finalized", "10"]).done();
    let beneficiary = "0x0000000000000000000000000000000000000000";
    let root = |block: &str| {
        let got = cambium!(
            "get",
            beneficiary,
            "--block",
            block,
            "-d",
            fixture.db(),
            "--json"
        );
        got.done().json()["state_root"].clone()
    };
    let of_block = |number: u64| {
        let block = fixture.blocks()[number as usize - 1].decode().unwrap();
        json!(block.header.state_root)
    };
    assert_eq!(root("latest"), of_block(12));
    assert_eq!(root("safe"), of_block(11));
    assert_eq!(root("finalized"), of_block(10));
    assert_eq!(root("0x7"), of_block(7));
    assert_eq!(root(&hashes[2]), of_block(3));
    // On a branch that is not canonical.
    set_head(&fixture, &["4"]).done();
    assert_eq!(root(&hashes[8]), of_block(9));
    assert_eq!(root("latest"), of_block(4));
    cambium!("get", beneficiary, "--block", "9", "-d", fixture.db()).fails(1, &["9"]);
    cambium!("get", beneficiary, "--block", "safe", "-d", fixture.db())
        .fails(1, &["no block", "safe"]);
    cambium!(
        "prove",
        beneficiary,
        "--block",
        &hashes[8],
        "-d",
        fixture.db()
    )
    .done();
    // The directory may come from the environment.
    let mut from_environment = program();
    from_environment.env("CAMBIUM_DATADIR", fixture.db());
    let got = Run::of(
        from_environment
            .args(["get", beneficiary])
            .output()
            .unwrap(),
    );
    assert!(got.done().stdout.contains("block"));
}

#[test]
fn a_block_without_its_parent_is_not_called_invalid() {
    let fixture = imported();
    let later = fixture.blocks().split_off(6);
    let mut bytes = Vec::new();
    for block in &later {
        bytes.extend_from_slice(&block.rlp);
    }
    let file = fixture.write("later.rlp", &bytes);
    let other = fixture.path("other");
    cambium!("init", "--genesis", fixture.genesis(), "-d", &other).done();
    let told = cambium!("import", "-d", &other, file)
        .fails(1, &["parent", "in order", "of the chain of the database"]);
    assert!(!told.stderr.contains("invalid"), "{}", told.stderr);
}

#[test]
fn log_levels_are_checked_and_quiet_is_quiet() {
    let fixture = imported();
    let run = |level: &str, args: &[&str]| {
        let mut command = program();
        command
            .env("CAMBIUM_LOG", level)
            .args(args)
            .arg("-d")
            .arg(fixture.db());
        Run::of(command.output().unwrap())
    };
    run("loud", &["db", "stats"]).fails(2, &["CAMBIUM_LOG=loud", "debug"]);
    run("cambium_state=loud", &["db", "stats"]).fails(2, &["debug"]);
    let told = run("info", &["unwind", "--to", "3"]).done().stderr;
    assert!(
        told.contains("moving the head") && told.contains("opened"),
        "{told}"
    );
    assert!(!told.contains('\u{1b}'), "{told}");
    let told = run("cambium_state=debug", &["set-head", "1"]).done().stderr;
    assert!(
        told.contains("moving the head") && !told.contains("opened"),
        "{told}"
    );
    // A note that --quiet leaves out.
    let import = |db: &str, more: &[&str]| {
        let mut command = program();
        command.args(["import", "--batch", "4", "--threads", "2", "--genesis"]);
        command.arg(fixture.genesis()).args(more);
        command.arg("-d").arg(fixture.path(db)).arg(fixture.chain());
        Run::of(command.output().unwrap()).done().stderr
    };
    assert!(import("loud", &[]).contains("note:"));
    assert_eq!(import("quiet", &["--quiet"]), "");
}

/// Ctrl-C and SIGTERM while blocks arrive through a pipe, which never ends by itself.
#[test]
fn a_signal_ends_an_import_at_a_whole_block() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let fixture = Fixture::generate(100, BLOCKS, 4);
        let pipe = fixture.path("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let mut command = program();
        command
            .env("CAMBIUM_LOG", "info")
            .args(["import", "--json", "--genesis"])
            .arg(fixture.genesis())
            .arg("-d")
            .arg(fixture.db())
            .arg(&pipe)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It opens the pipe, so the database is there, and signals are caught.
        let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        let bytes = fs::read(fixture.chain()).unwrap();
        std::io::Write::write_all(&mut writer, &bytes).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        // It looks for the signal after each block, also one that it has already.
        let known = fixture.blocks().remove(0).rlp;
        while child.try_wait().unwrap().is_none() {
            let _ = std::io::Write::write_all(&mut writer, &known);
            thread::sleep(Duration::from_millis(10));
        }
        let status = child.wait().unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while lines.read_line(&mut told).unwrap() > 0 {}
        assert_eq!(status.code(), Some(code), "{told}");
        let json: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(json["stopped"], true);
        let head = fixture.head();
        assert_eq!(json["head_number"], support::quantity(head));
        // Again, and it goes on.
        let rest = fixture.import(&fixture.chain()).done().json();
        assert_eq!(rest["head_number"], support::quantity(BLOCKS));
        let disk = Arc::new(StdDisk::new(fixture.db()));
        let chain = Chain::open(disk, Options::default()).unwrap().0;
        assert!(chain.db().check(&mut |_| {}).unwrap().damage.is_empty());
    }
}

#[test]
fn blocks_receipts_and_differences_are_printed() {
    let fixture = imported();
    let db = fixture.db();
    let hashes = hashes(&fixture);
    let block = fixture.blocks()[4].decode().unwrap();
    let by_number = cambium!("block", "5", "-d", &db, "--json").done().json();
    let by_hash = cambium!("block", &hashes[4], "-d", &db, "--json")
        .done()
        .json();
    assert_eq!(by_number, by_hash);
    assert_eq!(by_number["number"], "0x5");
    assert_eq!(by_number["hash"], hashes[4].as_str());
    assert_eq!(by_number["stateRoot"], json!(block.header.state_root));
    assert_eq!(by_number["canonical"], true);
    let listed = by_number["transactions"].as_array().unwrap();
    assert_eq!(listed.len(), block.body.transactions.len());
    let text = cambium!("block", "5", "-d", &db).done().stdout;
    assert!(
        text.contains(&block.body.transactions[0].hash().to_string()),
        "{text}"
    );

    let receipts = cambium!("receipts", "5", "-d", &db, "--json").done().json();
    let listed = receipts["receipts"].as_array().unwrap();
    assert_eq!(listed.len(), block.body.transactions.len());
    let gas = |receipt: &Value| {
        let text = receipt["gasUsed"]
            .as_str()
            .unwrap()
            .trim_start_matches("0x");
        u64::from_str_radix(text, 16).unwrap()
    };
    let all: u64 = listed.iter().map(gas).sum();
    assert_eq!(all, block.header.gas_used);
    assert_eq!(listed[0]["status"], "0x1");
    assert_eq!(receipts["block_hash"], hashes[4].as_str());
    cambium!("receipts", "0", "-d", &db).done();

    let diff = cambium!("diff", "4", "5", "-d", &db, "--json")
        .done()
        .json();
    let changed = diff["accounts"].as_array().unwrap();
    assert_eq!(diff["changed_accounts"], changed.len());
    assert!(!changed.is_empty());
    let same = cambium!("diff", "latest", "-d", &db, "--json")
        .done()
        .json();
    assert_eq!(same["changed_accounts"], 0);
    let whole = cambium!("diff", "earliest", "-d", &db, "--json")
        .done()
        .json();
    assert!(whole["changed_accounts"].as_u64() >= diff["changed_accounts"].as_u64());
    cambium!("diff", "5", "4", "-d", &db).fails(2, &["comes after"]);
    // On another branch.
    set_head(&fixture, &["4"]).done();
    let aside = cambium!("block", &hashes[4], "-d", &db, "--json")
        .done()
        .json();
    assert_eq!(aside["canonical"], false);
    let again = cambium!("receipts", &hashes[4], "-d", &db, "--json")
        .done()
        .json();
    assert_eq!(again["receipts"], receipts["receipts"]);
    cambium!("diff", "3", &hashes[4], "-d", &db).fails(1, &["not canonical"]);
}

#[test]
fn code_is_printed_and_mistakes_are_named() {
    let fixture = imported();
    let db = fixture.db();
    let token = cambium_workload::TOKEN.to_string();
    let code = cambium!("get", &token, "--code", "-d", &db).done().stdout;
    let json = cambium!("get", &token, "--code", "-d", &db, "--json")
        .done()
        .json();
    assert_eq!(json["code"], code.trim());
    assert_eq!(json["code_bytes"], (code.trim().len() - 2) / 2);
    cambium!("get", "0x1234", "-d", &db).fails(2, &["20 bytes", "40 digits", "4"]);
    cambium!("get", "alice", "-d", &db).fails(2, &["hexadecimal"]);
    // A directory with other things in it stays as it is.
    let other = fixture.path("papers");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter.txt"), "dear").unwrap();
    let init = || cambium!("init", "--genesis", fixture.genesis(), "-d", &other);
    init().fails(1, &["other things", "letter.txt", "empty"]);
    cambium!(
        "init",
        "--genesis",
        fixture.chain(),
        "-d",
        fixture.path("new")
    )
    .fails(1, &["chain.rlp", "is JSON"]);
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    fs::remove_file(other.join("letter.txt")).unwrap();
    init().done();
}
