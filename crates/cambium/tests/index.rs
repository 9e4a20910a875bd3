//! Blocks, transactions, receipts and logs from the program: indexed by an import, made afterwards, damaged,
//! copied.

use crate::support;
use crate::support::{Fixture, Run};
use serde_json::{Value, json};
use std::{ffi::OsString, fs, path::Path};

const HEAD: u64 = 80;

fn import(fixture: &Fixture, db: &Path, more: &[&str]) -> Run {
    fixture.import_new(db, &format!("--json {}", more.join(" ")))
}

fn ask(db: &Path, args: &[&str]) -> Value {
    let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
    all.extend(["--json".into(), "--datadir".into(), db.into()]);
    support::cambium(all).done().json()
}

/// Everything that can be asked of some blocks.
fn answers(db: &Path) -> Value {
    let mut answers = Vec::new();
    for number in [1, 33, HEAD] {
        let number = number.to_string();
        let block = ask(db, &["block", &number]);
        let hash = block["hash"].as_str().expect("a hash");
        let by_hash = ask(db, &["block", hash]);
        assert_eq!(by_hash, block);
        let receipts = ask(db, &["receipts", &number]);
        let transactions = block["transactions"].as_array().expect("transactions");
        for (transaction, receipt) in transactions
            .iter()
            .zip(receipts["receipts"].as_array().unwrap())
        {
            let hash = transaction["hash"].as_str().expect("a hash");
            let found = ask(db, &["tx", hash]);
            assert_eq!(found["transaction"], *transaction);
            assert_eq!(transaction["blockHash"], block["hash"]);
            assert_eq!(found["receipt"], *receipt);
            for field in ["from", "to", "blockNumber", "transactionIndex"] {
                assert_eq!(receipt[field], transaction[field], "{field}");
            }
            assert_eq!(receipt["effectiveGasPrice"], transaction["gasPrice"]);
            assert_eq!(
                receipt["contractAddress"].is_null(),
                !receipt["to"].is_null()
            );
            answers.push(found);
        }
        answers.push(receipts);
    }
    let token = cambium_workload::TOKEN.to_string();
    let logs = ask(db, &["logs", "--address", &token, "--from", "10"]);
    let first = &logs["logs"][0];
    assert_eq!(
        first["address"].as_str().map(str::to_lowercase),
        Some(token.to_lowercase())
    );
    // The same log in the receipt of its transaction.
    let hash = first["transactionHash"].as_str().expect("a hash");
    let receipt = &ask(db, &["tx", hash])["receipt"];
    let of_receipt = receipt["logs"].as_array().expect("logs");
    assert!(of_receipt.contains(first), "{first} {of_receipt:?}");
    let topic = first["topics"][1].as_str().expect("a topic").to_owned();
    let of_one = ask(db, &["logs", "--topic1", &topic, "--to", "70"]);
    assert!(!of_one["logs"].as_array().unwrap().is_empty());
    let one = ask(db, &["logs", "--limit", "1"]);
    assert_eq!(
        (one["logs"].as_array().unwrap().len(), &one["more"]),
        (1, &json!(true))
    );
    answers.extend([logs, of_one]);
    answers.into()
}

#[test]
fn an_index_answers_the_same_however_it_was_made_and_wherever_it_is_copied() {
    let fixture = Fixture::generate(200, HEAD, 8);
    let (followed, built, copy) = (fixture.db(), fixture.path("built"), fixture.path("copy"));
    import(&fixture, &followed, &["--index"]).done();
    let expected = answers(&followed);
    import(&fixture, &built, &[]).done();
    let above = "4000000000";
    cambium!("index", "build", "-d", &built, "--from", above).fails(2, &["the head is block 80"]);
    assert!(!built.join("index").exists());
    let hash = expected[0]["transaction"]["hash"].as_str().unwrap();
    let words = ["has no index", "cambium index build"];
    cambium!("tx", hash, "--datadir", built).fails(1, &words);
    let made = ask(&built, &["index", "build"]);
    assert_eq!(made["blocks"], json!(HEAD + 1));
    assert_eq!(made["without_receipts"], json!(0));
    assert_eq!(answers(&built), expected);
    // Again: nothing is left to do.
    assert_eq!(
        ask(&built, &["index", "build"])["upto_number"],
        support::quantity(HEAD)
    );
    let checked = ask(&built, &["index", "check"]);
    assert_eq!(checked["blocks"], json!(HEAD + 1));
    assert_eq!(checked["transactions"], json!(HEAD * 8));
    assert_eq!(ask(&followed, &["index", "check"]), checked);
    let stats = ask(&followed, &["db", "stats"]);
    assert_eq!(stats["index"]["upto_number"], support::quantity(HEAD));
    let copied = cambium!(
        "db",
        "backup",
        "--json",
        "--datadir",
        followed,
        copy.clone()
    )
    .done();
    assert_eq!(copied.json()["index_upto_number"], support::quantity(HEAD));
    assert_eq!(answers(&copy), expected);
    assert_eq!(ask(&copy, &["index", "check"]), checked);
    // Wrong requests.
    let nothing = format!("0x{}", "77".repeat(32));
    cambium!("tx", nothing.clone(), "--datadir", followed).fails(1, &["no transaction", &nothing]);
    cambium!("tx", "0x1234", "--datadir", followed).fails(2, &["0x1234"]);
    cambium!("logs", "--from", "9", "--to", "3", "--datadir", followed)
        .fails(2, &["--from", "--to"]);
    cambium!("logs", "--address", nothing, "--datadir", followed).fails(2, &["--address"]);
}

#[test]
fn old_blocks_stay_when_they_leave_the_log_and_an_unwound_chain_has_no_others() {
    let fixture = Fixture::generate(200, HEAD, 8);
    let db = fixture.db();
    let few = [
        "--index",
        "--keep-blocks",
        "5",
        "--memory",
        "3M",
        "--segment-size",
        "64K",
    ];
    let few = [
        &few[..],
        &["--segment-buffer", "16K", "--log-file-size", "64K"],
    ]
    .concat();
    import(&fixture, &db, &few).done();
    let expected = answers(&db);
    let hash = ask(&db, &["block", "80"])["transactions"][0]["hash"].clone();
    let hash = hash.as_str().unwrap().to_owned();
    cambium!("unwind", "--to", "78", "--datadir", db.clone()).done();
    cambium!("tx", hash.clone(), "--datadir", db.clone()).fails(1, &["no transaction"]);
    import(&fixture, &db, &[]).done();
    assert_eq!(
        ask(&db, &["tx", &hash])["transaction"]["hash"].as_str(),
        Some(&*hash)
    );
    assert_eq!(answers(&db), expected);
}

#[test]
fn a_damaged_index_is_named_and_the_rest_goes_on_without_it() {
    let fixture = Fixture::generate(100, 20, 4);
    let db = fixture.db();
    import(&fixture, &db, &["--index"]).done();
    let folder = db.join("index");
    let names = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let run = names
        .into_iter()
        .find(|path| path.extension() == Some("run".as_ref()))
        .unwrap();
    let mut bytes = fs::read(&run).unwrap();
    let middle = bytes.len() - 4_000;
    bytes[middle] ^= 4;
    fs::write(&run, bytes).unwrap();
    let name = run.file_name().unwrap().to_str().unwrap();
    let words = [name, "damaged", "cambium index build"];
    cambium!("index", "check", "--datadir", db.clone()).fails(4, &words);
    // A block is there without it, and it is said why the index was not asked.
    let block = cambium!("receipts", "20", "--datadir", db.clone()).done();
    assert!(block.stderr.contains(name), "{}", block.stderr);
    let again = import(&fixture, &db, &[]).fails(1, &[name]);
    assert!(again.json()["index_error"].is_string());
    fs::remove_dir_all(&folder).unwrap();
    ask(&db, &["index", "build"]);
    ask(&db, &["index", "check"]);
    // A file of blocks is looked for before anything is added.
    let names = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let blocks = names
        .into_iter()
        .find(|path| path.extension() == Some("blocks".as_ref()))
        .unwrap();
    fs::remove_file(&blocks).unwrap();
    let name = blocks.file_name().unwrap().to_str().unwrap();
    cambium!("index", "build", "--datadir", db.clone()).fails(4, &[name, "is missing"]);
    import(&fixture, &db, &[]).fails(1, &[name, "is missing"]);
}

#[test]
fn logs_of_a_loaded_database_are_searched_after_its_first_block() {
    let fixture = Fixture::generate(100, 20, 4);
    let (db, loaded) = (fixture.db(), fixture.path("loaded"));
    import(&fixture, &db, &["--index"]).done();
    let (dump, rest) = (fixture.path("dump.json"), fixture.path("rest.rlp"));
    cambium!("db", "dump", &dump, "--block", "10", "-d", &db).done();
    cambium!("db", "load", &dump, "-d", &loaded).done();
    cambium!("export", &rest, "--from", "11", "-d", &db).done();
    cambium!("import", "--index", "-d", &loaded, &rest).done();
    let found = cambium!("logs", "--json", "-d", &loaded).done();
    assert!(found.stderr.contains("block 10 "), "{}", found.stderr);
    let expected = ask(&db, &["logs", "--from", "11"]);
    assert_eq!(found.json(), expected);
    // Asked for, it is named.
    cambium!("logs", "--from", "10", "-d", &loaded).fails(1, &["block 10 ", "receipts"]);
}
