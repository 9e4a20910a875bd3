//! The program as its users run it: the main job from end to end.

use crate::support;
use crate::support::{Fixture, cambium, quantity};
use alloy_consensus::transaction::SignerRecoverable;
use cambium::{B256, chain::RawBlock, keccak256};
use serde_json::{Value, json};
use std::{ffi::OsString, fs, path::Path};

const TOKEN_ACCOUNTS: u64 = 400;
const BLOCKS: u64 = 12;
const TRANSACTIONS: u64 = 30;

fn imported() -> (Fixture, Value) {
    let fixture = Fixture::generate(TOKEN_ACCOUNTS, BLOCKS, TRANSACTIONS);
    let summary = fixture.import(&fixture.chain()).done().json();
    (fixture, summary)
}

#[test]
fn a_chain_is_imported_once_and_then_skipped() {
    let (fixture, summary) = imported();
    let last = fixture.blocks().pop().unwrap().decode().unwrap().header;
    assert_eq!(summary["blocks"], BLOCKS);
    assert_eq!(summary["transactions"], BLOCKS * TRANSACTIONS);
    assert_eq!(summary["skipped"], 0);
    assert_eq!(summary["head_number"], support::quantity(BLOCKS));
    assert_eq!(summary["head_hash"], json!(last.hash_slow()));
    assert_eq!(summary["state_root"], json!(last.state_root));
    assert!(support::number(&summary["gas"]) >= 21_000 * BLOCKS * TRANSACTIONS);
    assert!(summary["seconds"].as_f64().unwrap() > 0.0);
    for stage in ["recover", "read", "execute", "root", "commit"] {
        assert!(summary["timings"][stage].as_f64().unwrap() > 0.0, "{stage}");
    }
    assert_eq!(summary["counters"]["blocks_committed"], BLOCKS);
    assert!(summary["counters"]["log_bytes_written"].as_u64().unwrap() > 0);
    let latency = |name: &str| summary["commit_latency"][name].as_u64().unwrap();
    assert!(latency("count") > 0 && latency("p50_ns") > 0);
    assert!(latency("p50_ns") <= latency("p99_ns") && latency("p99_ns") <= latency("max_ns"));

    let again = fixture.import(&fixture.chain()).done().json();
    assert_eq!(
        (&again["blocks"], &again["skipped"]),
        (&json!(0), &json!(BLOCKS))
    );
    assert_eq!(again["head_hash"], summary["head_hash"]);
    assert_eq!(again["state_root"], summary["state_root"]);
}

#[test]
fn a_database_is_made_once() {
    let fixture = Fixture::generate(50, 1, 2);
    let init = || {
        cambium!(
            "init",
            "--json",
            "--genesis",
            fixture.genesis(),
            "-d",
            fixture.db()
        )
    };
    let made = init().done().json();
    assert_eq!(made["chain_id"], "0xffd");
    assert_eq!(made["head_number"], "0x0");
    assert_eq!(init().done().json(), made);
    let text = cambium!("init", "--genesis", fixture.genesis(), "-d", fixture.db()).done();
    assert!(text.stdout.contains("exists already"), "{}", text.stdout);
}

/// Verifies proofs that differ from `proof` in one part each.
fn assert_forged_proofs_fail(fixture: &Fixture, proof: &Value, root: &str) {
    let other = format!("0x{}", "11".repeat(32));
    for (field, forged) in [
        ("nonce", json!("0x7")),
        ("balance", json!("0x123")),
        ("codeHash", json!(other)),
        ("storageHash", json!(other)),
    ] {
        let mut proof = proof.clone();
        proof[field] = forged;
        let file = fixture.write("forged.json", proof.to_string().as_bytes());
        cambium!("verify", file, "--root", root).fails(5, &["does not hold", field]);
    }
    let mut forged = proof.clone();
    forged["storageProof"][0]["value"] = json!("0x1");
    let file = fixture.write("forged.json", forged.to_string().as_bytes());
    cambium!("verify", file, "--root", root).fails(5, &["does not hold", "value"]);
    let mut short = proof.clone();
    short["accountProof"].as_array_mut().unwrap().pop();
    let file = fixture.write("short.json", short.to_string().as_bytes());
    cambium!("verify", file, "--root", root).fails(5, &["does not hold", "is not there"]);
}

#[test]
fn accounts_are_read_proved_and_verified_at_any_block() {
    let (fixture, summary) = imported();
    let db = fixture.db();
    let first = fixture.blocks()[0].decode().unwrap();
    let sender = first.body.transactions[0]
        .recover_signer()
        .unwrap()
        .to_string();
    let token = cambium_workload::TOKEN.to_string();
    let slot = cambium_workload::token_balance_slot(&sender.parse().unwrap()).to_string();

    let get = |block: u64, what: &[&str]| {
        let block = block.to_string();
        let rest = [
            "--json",
            "--block",
            &block,
            "--datadir",
            db.to_str().unwrap(),
        ];
        cambium([&["get"], what, &rest].concat()).done().json()
    };
    let (before, after) = (get(0, &[&sender]), get(BLOCKS, &[&sender]));
    assert_eq!(
        (&before["exists"], &before["nonce"]),
        (&json!(true), &json!("0x0"))
    );
    assert!(support::number(&after["nonce"]) > 0);
    assert_ne!(before["balance"], after["balance"]);
    assert_eq!(after["state_root"], summary["state_root"]);
    let tokens = get(0, &[&token, &slot]);
    assert!(tokens["code_bytes"].as_u64().unwrap() > 0);
    assert_ne!(tokens["value"], "0x0");
    let nobody = get(BLOCKS, &["0x00000000000000000000000000000000000000ff"]);
    assert_eq!(
        (&nobody["exists"], &nobody["balance"]),
        (&json!(false), &json!("0x0"))
    );
    cambium!("get", sender, "--block", "99", "-d", db).fails(1, &["no block 99", "head is 12"]);

    for block in [0, 5, BLOCKS] {
        let root = get(block, &[&sender])["state_root"]
            .as_str()
            .unwrap()
            .to_owned();
        let value = get(block, &[&token, &slot])["value"].clone();
        let number = block.to_string();
        let proof = cambium!(
            "prove",
            token,
            slot,
            "7",
            "--block",
            number,
            "--json",
            "--datadir",
            db
        )
        .done();
        assert!(proof.stderr.contains(&root), "{}", proof.stderr);
        let file = fixture.write("proof.json", proof.stdout.as_bytes());
        let held = cambium!("verify", file, "--root", root, "--json")
            .done()
            .json();
        assert_eq!(held["holds"], true);
        assert_eq!(held["slots"][0]["value"], value);
        assert_eq!(held["slots"][1]["value"], "0x0");

        let response = json!({ "jsonrpc": "2.0", "id": 1, "result": proof.json() });
        let file = fixture.write("response.json", response.to_string().as_bytes());
        cambium!("verify", file, "--root", root).done();

        let other = format!("0x{}", "11".repeat(32));
        cambium!("verify", file, "--root", other).fails(5, &["does not hold", "node 0"]);
        assert_forged_proofs_fail(&fixture, &proof.json(), &root);
    }
    let file = fixture.write("no.json", b"{\"proof\": 1}");
    let root = format!("0x{}", "11".repeat(32));
    cambium!("verify", file, "--root", root).fails(5, &["no.json", "not a valid account proof"]);
    let file = fixture.write("binary.json", &[0xff, 0xfe, 0]);
    cambium!("verify", file, "--root", root).fails(5, &["binary.json"]);
    cambium!("verify", fixture.path("missing"), "--root", root).fails(1, &["missing", "read"]);
}

/// Executes a block from its witness in the forms of other clients, with the block beside.
fn assert_other_forms_hold(fixture: &Fixture, number: &str, raw: &RawBlock) {
    let genesis = &fixture.genesis();
    let header = raw.decode().unwrap().header;
    for (form, as_hex) in [("reth", false), ("eip8025", true), ("geth", true)] {
        let witness = cambium!("witness", number, "--datadir", fixture.db(), "--form", form).done();
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": witness.json()});
        let file = fixture.write("other-form.json", answer.to_string().as_bytes());
        let block = match as_hex {
            true => fixture.write("block", format!("{}\n", raw.rlp).as_bytes()),
            false => fixture.write("block", &raw.rlp),
        };
        let held = cambium!(
            "stateless",
            file,
            "--block",
            block,
            "--json",
            "--genesis",
            genesis
        );
        assert_eq!(held.done().json()["hash"], json!(header.hash_slow()));
        cambium!(
            "stateless",
            file,
            "--block",
            block,
            "--strict",
            "--genesis",
            genesis
        )
        .done();
        let mut doubled = witness.json();
        let headers = doubled["headers"].as_array_mut().unwrap();
        headers.push(headers[0].clone());
        let twice = fixture.write("doubled.json", doubled.to_string().as_bytes());
        let held = |strict: &[&str]| {
            let mut args = vec!["stateless".into(), twice.clone().into()];
            args.extend(["--json".into(), "--block".into(), block.clone().into()]);
            args.extend(strict.iter().map(OsString::from));
            args.extend(["--genesis".into(), genesis.into()]);
            cambium(args)
        };
        let words = ["the headers of the witness are not a chain"];
        held(&["--strict"]).fails(5, &words);
        match form {
            "eip8025" => _ = held(&[]).fails(5, &words),
            _ => assert_eq!(held(&[]).done().json()["unused_headers"], 1),
        }
        cambium!("stateless", file, "--genesis", genesis).fails(5, &["does not include the block"]);
    }
}

/// Executes a block from witnesses that differ from `witness` in one part each.
fn assert_forged_witnesses_fail(fixture: &Fixture, witness: &Value, raw: &RawBlock) {
    let genesis = &fixture.genesis();
    let mut lacking = witness.clone();
    lacking["witness"]["state"]
        .as_array_mut()
        .unwrap()
        .remove(3);
    let file = fixture.write("lacking.json", lacking.to_string().as_bytes());
    cambium!("stateless", file, "--genesis", genesis).fails(5, &["the witness does not hold"]);

    let mut forged = witness.clone();
    let node = forged["witness"]["state"][0].as_str().unwrap().to_owned();
    let last = if node.ends_with('0') { '1' } else { '0' };
    forged["witness"]["state"][0] = json!(format!("{}{last}", &node[..node.len() - 1]));
    let file = fixture.write("forged.json", forged.to_string().as_bytes());
    cambium!("stateless", file, "--genesis", genesis).fails(5, &["the witness does not hold"]);

    let mut block = raw.decode().unwrap();
    block.header.gas_used += 1;
    let mut rlp = Vec::new();
    alloy_rlp::Encodable::encode(&block, &mut rlp);
    let mut other = witness.clone();
    other["block"] = json!(cambium::Bytes::from(rlp));
    let file = fixture.write("other.json", other.to_string().as_bytes());
    cambium!("stateless", file, "--genesis", genesis).fails(3, &["invalid", "gasUsed"]);
}

#[test]
fn blocks_are_executed_from_their_witness_alone() {
    let (fixture, _) = imported();
    let genesis = &fixture.genesis();
    for number in [1, 6, BLOCKS] {
        let raw = &fixture.blocks()[number as usize - 1];
        let header = raw.decode().unwrap().header;
        let number = number.to_string();
        let witness = cambium!("witness", number, "--datadir", fixture.db()).done();
        let file = fixture.write("witness.json", witness.stdout.as_bytes());
        let held = cambium!("stateless", file, "--json", "--genesis", genesis)
            .done()
            .json();
        assert_eq!(held["hash"], json!(header.hash_slow()));
        assert_eq!(held["state_root"], json!(header.state_root));
        assert_eq!(held["gas"], support::quantity(header.gas_used));
        assert_eq!(held["receipts_checked"], true);
        assert_eq!(held["parent"], json!(header.parent_hash));
        assert_eq!(held["parent_was_given"], false);
        let parent = header.parent_hash.to_string();
        let rules = ["--genesis", genesis.to_str().unwrap(), "--parent"];
        let held = cambium!(
            "stateless",
            file,
            "--json",
            rules[0],
            rules[1],
            rules[2],
            parent
        );
        assert_eq!(held.done().json()["parent_was_given"], true);
        // By the rules of another chain its transactions are signed for another chain.
        cambium!("stateless", file, "--chain", "mainnet").fails(3, &["invalid"]);
        let other = header.state_root.to_string();
        cambium!("stateless", file, rules[0], rules[1], rules[2], other)
            .fails(5, &["parent", &other]);
        cambium!(
            "stateless",
            file,
            rules[0],
            rules[1],
            "--gas-limit-max",
            "1000"
        )
        .fails(5, &["gas limit", "1000"]);
        cambium!("stateless", file).fails(2, &["--chain", "--genesis"]);

        assert_other_forms_hold(&fixture, &number, raw);
        assert_forged_witnesses_fail(&fixture, &witness.json(), raw);
    }
    cambium!("witness", "0", "-d", fixture.db()).fails(1, &["block 0 (0x", "not executed"]);
    cambium!("witness", "99", "-d", fixture.db()).fails(1, &["no block 99"]);
    let file = fixture.write("no.json", b"[]");
    cambium!("stateless", file, "--genesis", genesis).fails(5, &["no.json", "not a valid witness"]);
    // An answer's error is placed within the answer, and no message is longer than helps.
    let long =
        json!({"result": {"state": [], "codes": ["0x", format!("0x{}", "00".repeat(9999)), 7]}});
    let file = fixture.write("answer.json", long.to_string().as_bytes());
    let words = [
        "answer.json, in its `result`",
        "not a valid witness: codes: invalid type: integer `7`, expected bytes in hex at line 1 column 20",
    ];
    cambium!("stateless", file, "--genesis", genesis).fails(5, &words);
    let file = fixture.write("long.json", format!("\"{}\"", "0".repeat(9999)).as_bytes());
    let root = format!("0x{}", "11".repeat(32));
    for run in [
        cambium!("stateless", file, "--genesis", genesis),
        cambium!("verify", file, "--root", root),
    ] {
        let run = run.fails(5, &["long.json: not a valid ", "at line 1 column 10001"]);
        assert!(run.stderr.len() < 1000, "{}", run.stderr);
    }
}

/// A database that was made with the library alone has state, uninterpreted blocks, and no fork
/// rules: commands that need none of these work.
#[test]
fn a_database_of_the_library_is_not_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let address = cambium::Address::repeat_byte(7);
    let disk = std::sync::Arc::new(cambium::StdDisk::new(&path));
    let mut loader = cambium::Loader::new(disk, cambium::Options::default()).unwrap();
    let account = cambium::Account {
        nonce: 3,
        ..cambium::Account::default()
    };
    let slots = [(keccak256(B256::ZERO), cambium::U256::from(9))];
    loader.account(keccak256(address), &account, slots).unwrap();
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let root = loaded.root();
    let genesis = cambium::BlockMeta {
        id: cambium::BlockId::new(0, B256::repeat_byte(1)),
        parent: B256::ZERO,
        state_root: root,
        body: b"whatever".to_vec().into(),
    };
    drop(loaded.create(genesis, vec![]).unwrap());

    let account = address.to_string();
    let got = cambium!("get", account, "0x0", "-d", path, "--json")
        .done()
        .json();
    assert_eq!(
        (&got["nonce"], &got["value"]),
        (&json!("0x3"), &json!("0x9"))
    );
    let stats = cambium!("db", "stats", "-d", path, "--json").done().json();
    assert_eq!(
        (&stats["chain_id"], &stats["codes"]),
        (&json!(null), &json!(0))
    );
    let text = cambium!("db", "stats", "-d", path).done().stdout;
    assert!(text.contains("created with the library"), "{text}");
    let checked = cambium!("db", "check", "-d", path, "--json").done().json();
    assert_eq!(checked["damage"], json!([]));
    cambium!("db", "repair", "-d", path).done();
    let proof = cambium!("prove", account, "0x0", "-d", path).done();
    let proof = {
        let file = dir.path().join("proof.json");
        fs::write(&file, proof.stdout).unwrap();
        file
    };
    cambium!("verify", proof, "--root", root.to_string()).done();
    cambium!("unwind", "--to", "0", "-d", path).done();
    let file = dir.path().join("out.rlp");
    for command in [
        &["export", file.to_str().unwrap()][..],
        &["witness", "1"],
        &["import", file.to_str().unwrap()],
    ] {
        let args = command.iter().map(OsString::from);
        let args = args.chain(["-d".into(), path.clone().into()]);
        support::cambium(args).fails(1, &["no fork rules", "library"]);
    }
}

#[test]
fn a_chain_is_unwound_imported_again_and_exported_as_it_was() {
    let (fixture, summary) = imported();
    let db = fixture.db();
    let unwound = cambium!("unwind", "--to", "4", "--json", "--datadir", db)
        .done()
        .json();
    let fourth = fixture.blocks()[3].decode().unwrap().header;
    assert_eq!(
        (&unwound["head_number"], &unwound["blocks"]),
        (&json!("0x4"), &json!(BLOCKS - 4))
    );
    assert_eq!(unwound["state_root"], json!(fourth.state_root));
    assert_eq!(fixture.head(), 4);
    cambium!("unwind", "--to", "5", "-d", db).fails(1, &["no block 5", "head is 4"]);

    let again = fixture.import(&fixture.chain()).done().json();
    assert_eq!(again["head_hash"], summary["head_hash"]);
    assert_eq!(again["state_root"], summary["state_root"]);

    let (plain, gzip) = (fixture.path("out.rlp"), fixture.path("out.rlp.gz"));
    let wrote = cambium!("export", plain, "--json", "--datadir", db)
        .done()
        .json();
    assert_eq!(wrote["blocks"], BLOCKS);
    assert_eq!(
        fs::read(&plain).unwrap(),
        fs::read(fixture.chain()).unwrap()
    );
    cambium!("export", plain, "-d", db).fails(1, &["exists already", "--force"]);
    cambium!(
        "export", plain, "--force", "--from", "3", "--to", "5", "-d", db
    )
    .done();
    let part: Vec<u8> = fixture.blocks()[2..5]
        .iter()
        .flat_map(|raw| raw.rlp.to_vec())
        .collect();
    assert_eq!(fs::read(&plain).unwrap(), part);
    let beyond = fixture.path("beyond.rlp");
    cambium!("export", beyond, "--to", "99", "-d", db).fails(1, &["no block 99"]);
    assert!(!beyond.exists());

    cambium!("export", gzip, "-d", db).done();
    assert!(fs::read(&gzip).unwrap().starts_with(&[0x1f, 0x8b]));
    cambium!(
        "import",
        "--genesis",
        fixture.genesis(),
        "--datadir",
        fixture.path("second"),
        gzip
    )
    .done();
    let check = cambium!("db", "check", "--json", "--datadir", fixture.path("second"));
    assert_eq!(check.done().json()["sound"], true);
}

#[test]
fn a_database_tells_its_sizes_and_passes_its_check() {
    let (fixture, _) = imported();
    let stats = cambium!("db", "stats", "--json", "--datadir", fixture.db())
        .done()
        .json();
    assert_eq!(stats["head_number"], support::quantity(BLOCKS));
    assert_eq!(stats["genesis_number"], "0x0");
    assert!(stats["segment_live_ratio"].as_f64().unwrap() > 0.0);
    // Which of these, the machine decides; and opening has read.
    let batch_reads = stats["disk"]["batch_reads"].as_str().unwrap();
    assert!(["io_uring", "threads"].contains(&batch_reads));
    assert!(stats["disk"]["is_direct"].is_boolean());
    assert!(stats["counters"]["disk_reads"].as_u64().unwrap() > 0);
    let text = cambium!("db", "stats", "--datadir", fixture.db()).done();
    for part in [
        "input and output  batches by",
        "On disk",
        "disk  ",
        " syncs",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let check = cambium!("db", "check", "--json", "--datadir", fixture.db())
        .done()
        .json();
    assert_eq!(check["sound"], true);
    assert_eq!(check["blocks"], BLOCKS + 1);
    assert_eq!(check["damage"], json!([]));
    let text = cambium!("db", "check", "--datadir", fixture.db()).done();
    assert!(
        text.stdout.starts_with("The database is sound"),
        "{}",
        text.stdout
    );
    let repair = cambium!("db", "repair", "--json", "--datadir", fixture.db())
        .done()
        .json();
    assert_eq!(
        (&repair["sound"], &repair["dry_run"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn a_chain_merged_many_times_with_little_memory_is_the_same() {
    let fixture = Fixture::generate(3_000, 40, 150);
    let import = |memory, db: &str| {
        cambium!(
            "import",
            "--json",
            "--memory",
            memory,
            "--genesis",
            fixture.genesis(),
            "--datadir",
            fixture.path(db),
            fixture.chain()
        )
        .done()
        .json()
    };
    let (small, large) = (import("1M", "small"), import("1G", "large"));
    assert!(small["counters"]["merges"].as_u64().unwrap() > 1, "{small}");
    assert_eq!(small["head_hash"], large["head_hash"]);
    let check = cambium!(
        "db",
        "check",
        "--json",
        "--memory",
        "1M",
        "--datadir",
        fixture.path("small")
    );
    assert_eq!(check.done().json()["sound"], true);
    // Deep below what is kept in memory.
    let unwind = cambium!(
        "unwind",
        "--to",
        "2",
        "--json",
        "--memory",
        "1M",
        "--datadir",
        fixture.path("small")
    );
    let second = fixture.blocks()[1].decode().unwrap().header;
    assert_eq!(unwind.done().json()["state_root"], json!(second.state_root));
    assert_eq!(import("1M", "small")["head_hash"], large["head_hash"]);
    let check = cambium!("db", "check", "--json", "--datadir", fixture.path("small"));
    assert_eq!(check.done().json()["sound"], true);
}

#[test]
fn with_the_least_memory_a_chain_is_imported_with_all_that_follows_it() {
    let fixture = Fixture::generate(500, 30, 20);
    for (at, (memory, preimages)) in [("1M", true), ("1500k", false), ("2M", false)]
        .into_iter()
        .enumerate()
    {
        let db = fixture.path(&at.to_string());
        let mut args = vec!["import", "--json", "--index", "--history", "archive"];
        args.extend(["--memory", memory]);
        args.extend(preimages.then_some("--preimages"));
        let mut args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
        args.extend(["--genesis".into(), fixture.genesis().into()]);
        args.extend(["-d".into(), db.clone().into(), fixture.chain().into()]);
        let imported = support::cambium(args).done().json();
        assert_eq!(imported["blocks"], 30, "{imported}");
        assert_eq!(imported["head_number"], quantity(30), "{imported}");
        cambium!("db", "check", "--memory", memory, "-d", &db).done();
        cambium!("db", "check", "--history", "--memory", memory, "-d", &db).done();
        let checked = cambium!("index", "check", "--json", "--memory", memory, "-d", &db);
        assert_eq!(checked.done().json()["blocks"], 31);
        if preimages {
            cambium!("db", "check", "--preimages", "-d", &db).done();
            assert_all_files_are_documented(&db);
        }
    }
    let store = fixture.path("store");
    cambium!("kv", "init", "-d", &store).done();
    cambium!("kv", "put", "long", "x".repeat(600), "-d", &store).done();
    assert_all_files_are_documented(&store);
}

/// Each file of a directory is in the table of `docs/OPERATIONS.md`.
fn assert_all_files_are_documented(db: &Path) {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/OPERATIONS.md");
    let text = fs::read_to_string(text).expect("the page");
    let table = text.split("## What is in a directory").nth(1).unwrap();
    let table = table.split("\n\nFiles").next().unwrap();
    let patterns: Vec<_> = table
        .lines()
        .filter_map(|row| row.split('`').nth(1))
        .collect();
    let is_like = |name: &str, pattern: &str| match pattern.split_once('*') {
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
        None => name == pattern,
    };
    let mut folders = vec![db.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(db).unwrap().to_str().unwrap();
            let is_there = patterns.iter().any(|pattern| is_like(name, pattern));
            assert!(is_there, "{name} is not in {patterns:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_files_and_none_is_written_over() {
    let (one, two) = (Fixture::generate(60, 3, 10), Fixture::generate(60, 3, 10));
    for name in ["genesis.json", "chain.rlp"] {
        assert_eq!(
            fs::read(one.path(name)).unwrap(),
            fs::read(two.path(name)).unwrap(),
            "{name}"
        );
    }
    let left = fs::read_dir(one.dir.path()).unwrap().count();
    assert_eq!(left, 2, "nothing but the two files is left behind");
    let again = |args: &[&str]| {
        let fixed = [
            "workload",
            "--out",
            one.dir.path().to_str().unwrap(),
            "--accounts",
            "60",
        ];
        cambium([&fixed, args].concat())
    };
    again(&[]).fails(1, &["genesis.json exists already", "--force"]);
    again(&["--force", "--blocks", "1"]).done();
    again(&["--force", "--senders", "61"]).fails(2, &["senders is 61", "from 1 to 60"]);
}

#[test]
fn a_workload_of_all_kinds_is_imported_with_its_access_lists() {
    let more = "--swaps 30 --pools 3 --pool-spread zipf --slot-reads 10 --slots 2000 \
                --slot-read-gas 1M --spread hot:20 --holders 50 --access-lists";
    let more: Vec<_> = more.split_whitespace().collect();
    let fixture = Fixture::generate_with(60, 4, 20, &[&more[..], &["--senders", "30"]].concat());
    let lists = fixture.path("access-lists.rlp");
    let (genesis, db) = (fixture.genesis(), fixture.db());
    let import = |lists: &std::path::Path| {
        let (chain, list) = (fixture.chain(), "--access-lists");
        cambium!(
            "import",
            "--genesis",
            genesis,
            "-d",
            db,
            list,
            lists,
            chain,
            "--json"
        )
    };
    assert_eq!(import(&lists).done().json()["blocks"], 4);
    let shown = cambium!("bal", "3", "--json", "-d", db).done().json();
    assert!(shown["counts"]["slots_read"].as_u64().unwrap() > 400);
    let of = |address: cambium::Address| {
        let accounts = shown["access_list"].as_array().unwrap();
        accounts.iter().any(|a| a["address"] == json!(address))
    };
    assert!(
        of(cambium_workload::ROUTER)
            && of(cambium_workload::SLOT_READER)
            && of(cambium_workload::TOKEN)
    );

    let out = fixture.path("other");
    let workload = |args: &[&str]| {
        let fixed = ["workload", "--out", out.to_str().unwrap()];
        cambium([&fixed, args].concat())
    };
    workload(&["--spread", "hot:101"]).fails(2, &["hot:101", "uniform, zipf, distinct"]);
    workload(&["--gas", "1M", "--transactions", "2"]).fails(2, &["--gas", "--transactions"]);
    workload(&["--spread", "distinct", "--senders", "9900"])
        .fails(2, &["200 transactions", "100 accounts that do not send"]);
    workload(&["--swaps", "60", "--slot-reads", "41"]).fails(2, &["together", "is 101"]);
    let made = workload(&["--gas", "2M", "--blocks", "2", "--json"])
        .done()
        .json();
    assert_eq!(
        (&made["access_lists"], &made["slots"]),
        (&json!(null), &json!(10_001))
    );
    let gas = support::number(&made["gas"]);
    assert!((3_600_000..4_400_000).contains(&gas), "{gas}");
}

#[test]
fn the_demonstration_runs_and_keeps_what_it_is_told_to_keep() {
    let dir = tempfile::tempdir().unwrap();
    let run = cambium!(
        "demo",
        "--accounts",
        "300",
        "--blocks",
        "4",
        "--dir",
        dir.path()
    )
    .done();
    for step in [
        "1. Generate",
        "2. Import",
        "3. Prove",
        "4. Execute",
        "5. Merge",
        "it is rejected",
    ] {
        assert!(run.stdout.contains(step), "{step}: {}", run.stdout);
    }
    let db = dir.path().join("db");
    let stats = cambium!("db", "stats", "--json", "--datadir", db)
        .done()
        .json();
    assert_eq!(stats["head_number"], "0x4");
    cambium!("demo", "--dir", dir.path()).fails(1, &["exists already"]);
    let run = cambium!("demo", "--json", "--accounts", "300", "--blocks", "2")
        .done()
        .json();
    assert_eq!(run["import"]["blocks"], 2);
}

#[test]
fn wrong_usage_is_told_apart_from_failure() {
    for args in [
        &["frobnicate"][..],
        &["import", "--datadir", "x"],
        &["get", "0x12", "--datadir", "x"],
        &["get", "0x00000000000000000000000000000000000000ff"],
        &[
            "get",
            "0x00000000000000000000000000000000000000ff",
            "1_0",
            "--datadir",
            "x",
        ],
        &["db", "stats", "--datadir", "x", "--memory", "12Q"],
        &["verify", "x", "--root", "0x12"],
    ] {
        let run = cambium(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{args:?}: {}", run.stdout);
    }
    let help = cambium(["--help"]).done();
    for word in [
        "Exit codes",
        "5  a proof or a witness does not hold",
        "CAMBIUM_LOG",
    ] {
        assert!(help.stdout.contains(word), "{word}");
    }
    assert!(
        cambium(["--version"])
            .done()
            .stdout
            .starts_with("cambium 0.")
    );
}

#[test]
fn an_access_list_is_shown_with_its_counts_and_changes() {
    let fixture = Fixture::generate_with(60, 3, 8, &["--fork", "amsterdam"]);
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    let shown = cambium!("bal", "2", "--json", "-d", &db).done().json();
    let block = fixture.blocks()[1].decode().unwrap();
    assert_eq!(shown["number"], "0x2");
    assert_eq!(shown["kept"], true);
    let hash = block.header.block_access_list_hash.unwrap();
    assert_eq!(shown["access_list_hash"], json!(hash));
    let accounts = shown["access_list"].as_array().unwrap();
    assert_eq!(shown["counts"]["accounts"], accounts.len());
    assert_eq!(shown["items_max"], block.header.gas_limit / 2_000);
    let size = |variant: &str| shown["bytes"][variant].as_u64().unwrap();
    assert!(size("parallel") < size("batched") && size("batched") < size("full"));
    let sender = block.body.transactions[0].recover_signer().unwrap();
    let listed = accounts.iter().find(|a| a["address"] == json!(sender));
    let listed = listed.expect("the sender is in the list");
    assert_eq!(listed["balanceChanges"][0]["index"], "0x1");
    assert_eq!(listed["nonceChanges"][0]["value"], "0x1");
    // Where the protocol calls a contract before the transactions: one slot and its value.
    let history = json!("0x0000f90827f1c53a10cb7a02335b175320002935");
    let history = accounts.iter().find(|a| a["address"] == history);
    let parent = json!([{ "index": "0x0", "value": block.header.parent_hash }]);
    let slot = json!([{ "key": format!("{:#066x}", 1), "changes": parent }]);
    assert_eq!(history.expect("it is called")["storageChanges"], slot);
    let text = cambium!("bal", "2", "-d", &db).done().stdout;
    for words in [
        &sender.to_string(),
        "changes alone",
        "balance     1  ",
        " read",
        "stored with",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    cambium!("bal", "9", "-d", &db).fails(1, &["no block 9"]);
}

#[test]
fn access_lists_are_exported_and_verified_when_they_are_imported() {
    let fixture = Fixture::generate_with(60, 3, 8, &["--fork", "amsterdam"]);
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    let (blocks, lists) = (fixture.path("out.rlp"), fixture.path("out.bal"));
    let lists_to = format!("--access-lists={}", lists.display());
    let written = cambium!("export", &blocks, &lists_to, "--json", "-d", &db).done();
    assert_eq!(written.json()["access_lists"], 3);
    cambium!("export", fixture.path("other.rlp"), &lists_to, "-d", &db)
        .fails(1, &["out.bal exists already"]);
    let import = |db: &str| {
        let db = fixture.path(db);
        cambium!(
            "import",
            "--json",
            "--genesis",
            fixture.genesis(),
            "-d",
            db,
            &lists_to,
            &blocks
        )
    };
    assert_eq!(import("again").done().json()["blocks"], 3);
    for executor in ["batched", "parallel", "optimistic"] {
        let db = fixture.path(executor);
        let done = cambium!(
            "import",
            "--json",
            "--executor",
            executor,
            "--threads=2",
            "--genesis",
            fixture.genesis(),
            "-d",
            db,
            &lists_to,
            &blocks
        );
        assert_eq!(done.done().json()["blocks"], 3);
    }
    let at_once = cambium!(
        "import",
        "--json",
        "--batch=3",
        "--genesis",
        fixture.genesis(),
        "-d",
        fixture.path("at-once"),
        &lists_to,
        &blocks
    );
    assert!(at_once.done().json()["parallel"].as_u64() > Some(0));
    let applied = cambium!(
        "import",
        "--json",
        "--apply",
        "--genesis",
        fixture.genesis(),
        "-d",
        fixture.path("applied"),
        &lists_to,
        &blocks
    );
    assert_eq!(applied.done().json()["applied"], 3);
    cambium!("import", "--threads=0", "-d", &db, &blocks)
        .fails(2, &["--threads", "between 1 and 1024"]);
    // One byte of a balance in the last list.
    let mut bytes = fs::read(&lists).unwrap();
    let at = bytes.len() - 8;
    bytes[at] ^= 1;
    fs::write(&lists, bytes).unwrap();
    import("false").fails(3, &["block 3 ", "blockAccessListHash is", "at block 2"]);
}
