//! Whole states: written as JSON, loaded again, counted, and listed slot by slot.

use crate::support;
use crate::support::{Fixture, Run};
use cambium::{Address, B256, U256, keccak256};
use cambium_workload::TOKEN;
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

const BLOCKS: u64 = 60;

/// A chain in a database with old states, made with so little memory that much is merged.
fn imported(more: &[&str]) -> Fixture {
    let fixture = Fixture::generate_with(500, BLOCKS, 20, &["--fork", "osaka"]);
    let small =
        "import --json --memory 2M --segment-size 64K --segment-buffer 16K --log-file-size 64K";
    let mut args: Vec<std::ffi::OsString> = small.split(' ').map(Into::into).collect();
    args.extend(more.iter().map(Into::into));
    args.extend(["--genesis".into(), fixture.genesis().into()]);
    args.extend(["-d".into(), fixture.db().into(), fixture.chain().into()]);
    support::cambium(args).done();
    fixture
}

fn dump(db: &Path, file: &Path, block: u64) -> Value {
    let block = block.to_string();
    cambium!("db", "dump", file, "--json", "--block", block, "-d", db)
        .done()
        .json()
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON")
}

fn load(file: &Path, db: &Path) -> Run {
    cambium!("db", "load", file, "--json", "-d", db)
}

fn root_at(db: &Path, block: &str) -> Value {
    let address = Address::ZERO.to_string();
    let got = cambium!("get", address, "--json", "--block", block, "-d", db).done();
    got.json()["state_root"].clone()
}

fn number(text: &Value) -> U256 {
    text.as_str().expect("text").parse().expect("a number")
}

/// The accounts of a genesis file as a dump has them.
fn hashed(alloc: &Value) -> Map<String, Value> {
    let alloc = alloc.as_object().expect("an object");
    let accounts = alloc.iter().map(|(address, account)| {
        let address: Address = address.parse().expect("an address");
        let mut hashed = json!({
            "balance": format!("{:#x}", number(&account["balance"])),
            "nonce": account.get("nonce").cloned().unwrap_or("0x0".into()),
        });
        if let Some(code) = account.get("code") {
            hashed["code"] = code.clone();
        }
        if let Some(storage) = account.get("storage") {
            let storage = storage.as_object().expect("an object");
            let slots = storage.iter().map(|(slot, value)| {
                let slot: B256 = slot.parse().expect("a slot");
                let value = format!("{:#x}", number(value));
                (keccak256(slot).to_string(), Value::from(value))
            });
            hashed["hashedStorage"] = Value::Object(slots.collect());
        }
        (keccak256(address).to_string(), hashed)
    });
    accounts.collect()
}

/// At the head, near it and at the first block: with a flat history, with none, and as the log restores it.
#[test]
fn a_dump_is_loaded_with_the_same_state_and_goes_on_after_its_block() {
    let fixture = imported(&["--history", "flat"]);
    let db = fixture.db();
    for block in [0, 1, BLOCKS / 2, BLOCKS - 1, BLOCKS] {
        let file = fixture.path(&format!("{block}.json"));
        let told = dump(&db, &file, block);
        assert_eq!(told["block_number"], format!("{block:#x}"));
        assert_eq!(told["loadable"], true);
        let written = read(&file);
        let alloc = written["alloc"].as_object().expect("an object");
        assert_eq!(told["accounts"], alloc.len());
        let slots = alloc.values().filter_map(|one| one.get("hashedStorage"));
        let slots: usize = slots.map(|slots| slots.as_object().unwrap().len()).sum();
        assert_eq!(told["slots"], slots);
        assert_eq!(told["missing_preimages"], alloc.len() + slots);
        if block == 0 {
            let genesis = read(&fixture.genesis());
            assert_eq!(alloc, &hashed(&genesis["alloc"]));
        }
        let there = fixture.path(&format!("loaded-{block}"));
        let loaded = load(&file, &there).done().json();
        assert_eq!(loaded["state_root"], root_at(&db, &block.to_string()));
        assert_eq!(loaded["genesis_hash"], told["block_hash"]);
        let checked = cambium!("db", "check", "--json", "-d", there).done().json();
        assert_eq!(checked["damage"], json!([]), "{checked}");
        // The same state again is the same file.
        let again = fixture.path("again.json");
        let force = cambium!("db", "dump", again, "--force", "-d", there).done();
        assert!(force.stderr.contains("are hashes"), "{}", force.stderr);
        assert_eq!(fs::read(&again).unwrap(), fs::read(&file).unwrap());
        if block == BLOCKS {
            continue;
        }
        // The chain goes on after the block.
        let rest = fixture.path(&format!("rest-{block}.rlp"));
        let from = (block + 1).to_string();
        cambium!("export", rest, "--from", from, "-d", db).done();
        let done = cambium!("import", "--json", "-d", there, rest)
            .done()
            .json();
        assert_eq!(done["head_number"], format!("{BLOCKS:#x}"));
        assert_eq!(done["state_root"], root_at(&db, "latest"));
    }
}

#[test]
fn a_dump_goes_through_a_pipe_and_has_addresses_if_they_are_known() {
    let fixture = imported(&[]);
    let db = fixture.db();
    let piped = cambium!("db", "dump", "--quiet", "--block", "0", "-d", db).done();
    assert_eq!(piped.stderr, "");
    let mut written: Value = serde_json::from_str(&piped.stdout).expect("JSON");
    // As it would be with preimages: the accounts of the genesis file, by address.
    written["alloc"] = read(&fixture.genesis())["alloc"].clone();
    let file = fixture.write("addresses.json", written.to_string().as_bytes());
    let loaded = load(&file, &fixture.path("by-address")).done().json();
    assert_eq!(loaded["state_root"], root_at(&db, "0"));
    cambium!("db", "dump", "--json", "-d", db).fails(2, &["name a file"]);
    let there = fixture.write("there.json", b"{}");
    cambium!("db", "dump", there, "-d", db).fails(1, &["exists already", "--force"]);
}

fn refused(fixture: &Fixture, name: &str, bytes: &[u8], words: &[&str]) {
    let file = fixture.write(&format!("{name}.json"), bytes);
    let db: PathBuf = fixture.path(&format!("refused-{name}"));
    let named = format!("{name}.json");
    let words = [words, &[&*named]].concat();
    load(&file, &db).fails(3, &words);
    cambium!("db", "stats", "-d", db).fails(1, &["database"]);
}

#[test]
fn a_dump_that_is_damaged_or_of_another_block_is_refused_by_name() {
    let fixture = imported(&[]);
    let db = fixture.db();
    let (file, other) = (fixture.path("whole.json"), fixture.path("other.json"));
    dump(&db, &file, BLOCKS);
    dump(&db, &other, BLOCKS - 1);
    let (text, whole) = (fs::read(&file).unwrap(), read(&file));
    let key = whole["alloc"].as_object().unwrap().keys().next().unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = whole.clone();
        change(&mut changed);
        changed.to_string().into_bytes()
    };
    let genesis = fs::read(fixture.genesis()).unwrap();
    refused(&fixture, "genesis", &genesis, &["not a dump"]);
    refused(&fixture, "empty", b"", &["EOF"]);
    refused(&fixture, "cut", &text[..text.len() / 2], &["EOF"]);
    let richer = with(&|dump| dump["alloc"][key]["balance"] = "0x1234".into());
    refused(
        &fixture,
        "richer",
        &richer,
        &["the state root of its accounts"],
    );
    let fewer = with(&|dump| {
        dump["alloc"].as_object_mut().unwrap().remove(key);
    });
    refused(
        &fixture,
        "fewer",
        &fewer,
        &["the state root of its accounts"],
    );
    let older = with(&|dump| dump["alloc"] = read(&other)["alloc"].clone());
    refused(
        &fixture,
        "older",
        &older,
        &["the state root of its accounts"],
    );
    let newer = with(&|dump| dump["cambiumDump"] = 2.into());
    refused(&fixture, "newer", &newer, &["a dump of form 2"]);
    let renamed = with(&|dump| dump["hash"] = B256::ZERO.to_string().into());
    refused(
        &fixture,
        "renamed",
        &renamed,
        &["hash: not that of the block"],
    );
    let blockless = with(&|dump| {
        dump.as_object_mut().unwrap().remove("block");
    });
    refused(&fixture, "blockless", &blockless, &["no field `block`"]);
    let broken = with(&|dump| dump["block"] = "0xc0".into());
    refused(&fixture, "broken", &broken, &["block: "]);
    let forks = with(&|dump| dump["rules"]["cancun_time"] = 0x7fff_ffffu32.into());
    refused(&fixture, "forks", &forks, &["rules: ", "comes before"]);
    let blobs = with(&|dump| {
        dump["rules"]["blob_schedule"]["osaka"]["baseFeeUpdateFraction"] = 0.into();
    });
    refused(&fixture, "blobs", &blobs, &["blob parameters"]);
    let unknown = with(&|dump| dump["alloc"][key]["extra"] = 1.into());
    refused(&fixture, "unknown", &unknown, &["unknown field `extra`"]);
    let odd = with(&|dump| dump["alloc"]["0x12"] = json!({}));
    refused(&fixture, "odd", &odd, &["neither an address nor a hash"]);
    let null = with(&|dump| dump["alloc"][key] = Value::Null);
    refused(&fixture, "null", &null, &["null"]);
    let account = whole["alloc"][key].to_string();
    let twice = String::from_utf8(text).unwrap();
    let twice = twice.replacen(
        "\"alloc\": {",
        &format!("\"alloc\": {{\n    \"{key}\": {account},"),
        1,
    );
    refused(&fixture, "twice", twice.as_bytes(), &["twice"]);
    // The failed load leaves nothing, and an existing database is not replaced.
    load(&file, &fixture.path("refused-twice")).done();
    load(&file, &db).fails(1, &["is a database already", "empty"]);
    load(&fixture.path("nowhere.json"), &fixture.path("x")).fails(1, &["nowhere.json"]);
}

#[test]
fn inspect_counts_what_a_dump_has_and_get_lists_slots_in_pages() {
    let fixture = imported(&["--history", "archive"]);
    let db = fixture.db();
    for block in ["0", "30", "latest"] {
        let file = fixture.path("dump.json");
        cambium!("db", "dump", file, "--force", "--block", block, "-d", db).done();
        let written = read(&file);
        let alloc = written["alloc"].as_object().unwrap();
        let counted = cambium!("db", "inspect", "--json", "--block", block, "-d", db).done();
        let counted = counted.json();
        assert_eq!(counted["accounts"], alloc.len());
        let codes = alloc.values().filter(|one| one.get("code").is_some());
        assert_eq!(counted["contracts"], codes.count());
        let mut slots: Vec<(usize, &String)> = alloc
            .iter()
            .filter_map(|(path, one)| Some((one.get("hashedStorage")?.as_object()?.len(), path)))
            .collect();
        slots.sort_by(|a, b| b.cmp(a));
        let total: usize = slots.iter().map(|(slots, _)| slots).sum();
        assert_eq!(counted["slots"], total);
        assert_eq!(counted["accounts_with_storage"], slots.len());
        let largest = counted["largest"].as_array().unwrap();
        let largest: Vec<_> = largest
            .iter()
            .map(|one| {
                (
                    one["slots"].as_u64().unwrap() as usize,
                    one["path"].as_str().unwrap(),
                )
            })
            .collect();
        let expected = slots.iter().take(20);
        let expected: Vec<_> = expected.map(|(slots, path)| (*slots, &***path)).collect();
        assert_eq!(largest, expected);
        let one = cambium!(
            "db", "inspect", "--top", "1", "--json", "--block", block, "-d", db
        );
        assert_eq!(one.done().json()["largest"].as_array().unwrap().len(), 1);

        let token = keccak256(TOKEN).to_string();
        let expected = alloc[&token]["hashedStorage"].as_object().unwrap();
        let (mut found, mut from) = (Map::new(), B256::ZERO.to_string());
        let mut pages = 0;
        loop {
            let page = cambium!(
                "get",
                TOKEN.to_string(),
                "--storage",
                "--from",
                from,
                "--limit",
                "37",
                "--json",
                "--block",
                block,
                "-d",
                db
            );
            let page = page.done().json();
            let slots = page["slots"].as_array().unwrap();
            assert!(slots.len() <= 37);
            for slot in slots {
                let path = slot["path"].as_str().unwrap().to_owned();
                assert!(found.insert(path, slot["value"].clone()).is_none());
            }
            pages += 1;
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut from),
                None => break,
            }
        }
        assert_eq!(&found, expected);
        assert!(pages > 1);
    }
    let text = cambium!(
        "get",
        TOKEN.to_string(),
        "--storage",
        "--limit",
        "2",
        "-d",
        db
    );
    let text = text.done().stdout;
    assert!(text.contains("go on with --from 0x"), "{text}");
    let nobody = Address::repeat_byte(0x99).to_string();
    let text = cambium!("get", nobody, "--storage", "-d", db).done().stdout;
    assert!(text.contains("does not exist"), "{text}");
    cambium!("get", nobody, "--limit", "2", "-d", db).fails(2, &["--storage"]);
    let text = cambium!("db", "inspect", "-d", db).done().stdout;
    assert!(text.contains("with the most slots"), "{text}");
}

/// Under `layered` a root depends on earlier blocks, and a block that has left the log is not in the dump.
#[test]
fn a_dump_that_can_not_be_loaded_says_so_when_it_is_written() {
    let layered = ["--commitment", "layered", "--merge-interval", "8"];
    let fixture = Fixture::generate_with(200, 20, 10, &layered);
    let db = fixture.db();
    let mut args = vec!["init", "--genesis"]
        .into_iter()
        .map(Into::into)
        .collect::<Vec<std::ffi::OsString>>();
    args.extend([fixture.genesis().into(), "-d".into(), db.clone().into()]);
    args.extend(layered.iter().map(Into::into));
    support::cambium(args).done();
    cambium!("import", fixture.chain(), "-d", db).done();
    let file = fixture.path("layered.json");
    let told = cambium!("db", "dump", file, "--json", "-d", db).done();
    assert!(told.stderr.contains("`layered`"), "{}", told.stderr);
    assert_eq!(told.json()["loadable"], false);
    load(&file, &fixture.path("loaded")).fails(3, &["the state root of its accounts"]);
}

/// A process that was killed while it loaded leaves no database, and nothing in the way of another attempt.
#[test]
fn an_interrupted_load_is_begun_again() {
    let fixture = imported(&[]);
    let (db, file) = (fixture.db(), fixture.path("dump.json"));
    dump(&db, &file, BLOCKS);
    let there = fixture.path("there");
    load(&file, &there).done();
    // As it is before the first checkpoint has its name.
    let mut checkpoints = 0;
    for entry in fs::read_dir(&there).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("checkpoint-") {
            checkpoints += 1;
            fs::rename(&path, there.join(format!("{name}.tmp"))).unwrap();
        }
    }
    assert!(checkpoints > 0);
    let loaded = load(&file, &there).done().json();
    assert_eq!(loaded["state_root"], root_at(&db, "latest"));
    load(&file, &there).fails(1, &["is a database already"]);
}
