//! The program on a chain of the `layered` commitment: generated, imported, unwound, checked, and commands that are
//! rejected there.

use crate::support;
use crate::support::Fixture;
use alloy_consensus::transaction::SignerRecoverable;
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

#[test]
fn a_chain_of_the_layered_commitment_is_generated_imported_unwound_and_checked() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (out, db, other) = (at("chain"), at("db"), at("other"));
    let (genesis, blocks) = (out.join("genesis.json"), out.join("chain.rlp"));
    let layered = |blocks: &'static str| ["--commitment", "layered", "--merge-interval", blocks];
    let [commitment, name, interval, three] = layered("3");
    let generated = cambium![
        "workload",
        "--out",
        out,
        commitment,
        name,
        interval,
        three,
        "--blocks",
        "14",
        "--accounts",
        "300",
        "--transactions",
        "20",
        "--json"
    ];
    let head = generated.done().json()["head_hash"].clone();
    let init = |db: &Path, blocks: &'static str| {
        let [commitment, name, interval, blocks] = layered(blocks);
        cambium![
            "init",
            "--genesis",
            genesis,
            "-d",
            db,
            commitment,
            name,
            interval,
            blocks,
            "--json"
        ]
    };
    init(&db, "3").done();
    let imported = cambium!["import", blocks, "-d", db, "--json"].done().json();
    assert_eq!(imported["head_hash"], head);
    assert_eq!(imported["counters"]["page_reads_trie"], 0);
    // Opening needs no option, and the head goes back over ends of intervals and up again.
    cambium!["unwind", "--to", "4", "-d", db].done();
    let imported = cambium!["import", blocks, "-d", db, "--json"].done().json();
    assert_eq!(imported["head_hash"], head);
    cambium!["db", "check", "-d", db].done();
    init(&db, "3").done();
    init(&db, "4").fails(1, &["--merge-interval 3"]);
    cambium!["init", "--genesis", genesis, "-d", db].fails(1, &["--commitment layered"]);
    // The interval is a parameter of the chain: with another one the roots differ.
    init(&other, "5").done();
    cambium!["import", blocks, "-d", other].fails(3, &["stateRoot"]);
    cambium!["prove-range", "-d", db].fails(1, &["`layered`"]);
    cambium!["import", blocks, "-d", db, "--history", "flat"].fails(1, &["`layered`"]);
    cambium![
        "init",
        "--genesis",
        genesis,
        "-d",
        at("third"),
        "--commitment",
        "layered"
    ]
    .fails(2, &["--merge-interval"]);
    cambium![
        "init",
        "--genesis",
        genesis,
        "-d",
        at("third"),
        "--merge-interval",
        "3"
    ]
    .fails(2, &["--commitment layered"]);
}

const BLOCKS: u64 = 11;

/// A chain of 11 blocks in intervals of 3, imported.
fn imported() -> Fixture {
    let layered = ["--commitment", "layered", "--merge-interval", "3"];
    let fixture = Fixture::generate_with(300, BLOCKS, 20, &layered);
    let args = ["--json", "--genesis"].map(Into::into);
    let args = args.into_iter().chain([fixture.genesis().into()]);
    let args = args.chain(["-d".into(), fixture.db().into()]);
    let layered = layered.map(std::ffi::OsString::from);
    support::cambium(["init".into()].into_iter().chain(args).chain(layered)).done();
    cambium!["import", fixture.chain(), "-d", fixture.db()].done();
    fixture
}

/// The state root after a block.
fn root_at(fixture: &Fixture, block: u64) -> String {
    let address = "0x0000000000000000000000000000000000000001";
    let block = block.to_string();
    let found = cambium![
        "get",
        address,
        "--block",
        block,
        "-d",
        fixture.db(),
        "--json"
    ];
    let root = found.done().json()["state_root"].clone();
    root.as_str().unwrap().to_owned()
}

fn prove(fixture: &Fixture, address: &str, slots: &[&str], block: u64) -> Value {
    let (db, block) = (fixture.db(), block.to_string());
    let args = [&["prove", address], slots, &["--json", "--block", &block]].concat();
    let args = args.into_iter().map(std::ffi::OsString::from);
    let args = args.chain(["-d".into(), db.into()]);
    support::cambium(args).done().json()
}

fn verify(fixture: &Fixture, proof: &Value, root: &str) -> support::Run {
    let file = fixture.write("proof.json", proof.to_string().as_bytes());
    cambium!["verify", file, "--root", root, "--json"]
}

#[test]
fn accounts_and_slots_of_a_layered_chain_are_proved_and_verified_at_any_block() {
    let fixture = imported();
    let db = fixture.db();
    let first = fixture.blocks()[0].decode().unwrap();
    let sender = first.body.transactions[0].recover_signer().unwrap();
    let slot = cambium_workload::token_balance_slot(&sender).to_string();
    let (sender, token) = (sender.to_string(), cambium_workload::TOKEN.to_string());
    let nobody = "0x00000000000000000000000000000000000000ff";
    for block in 0..=BLOCKS {
        let root = root_at(&fixture, block);
        let number = block.to_string();
        for (address, slots) in [
            (&*token, &[&*slot, "7", &*slot][..]),
            (&*sender, &[]),
            (nobody, &["1"]),
        ] {
            let proof = prove(&fixture, address, slots, block);
            assert_eq!(proof["commitment"], "layered");
            let held = verify(&fixture, &proof, &root).done().json();
            let there = cambium!["get", address, "--block", number, "-d", db, "--json"];
            let there = there.done().json();
            for field in ["exists", "nonce", "balance"] {
                assert_eq!(held[field], there[field], "block {block}, {address}");
            }
            assert_eq!(held["slots"].as_array().unwrap().len(), slots.len());
            for (at, slot) in slots.iter().enumerate() {
                let there = cambium!["get", address, slot, "--block", number, "-d", db, "--json"];
                assert_eq!(held["slots"][at]["value"], there.done().json()["value"]);
            }
            let response = json!({ "jsonrpc": "2.0", "id": 1, "result": proof });
            verify(&fixture, &response, &root).done();
        }
    }
    // And as text.
    let root = root_at(&fixture, BLOCKS);
    let text = fixture.write(
        "proof.json",
        prove(&fixture, &token, &[], BLOCKS).to_string().as_bytes(),
    );
    let told = cambium!["verify", text, "--root", root].done().stdout;
    assert!(told.contains("intermediate root"), "{told}");
}

#[test]
fn wrong_proofs_of_a_layered_chain_are_refused_with_what_is_wrong() {
    let fixture = imported();
    let token = cambium_workload::TOKEN.to_string();
    let root = root_at(&fixture, BLOCKS);
    let proof = prove(&fixture, &token, &["7"], BLOCKS);
    let other = format!("0x{}", "11".repeat(32));
    let forged = |path: &str, value: Value| {
        let mut proof = proof.clone();
        *proof.pointer_mut(path).unwrap() = value;
        proof
    };
    for (path, value, why) in [
        ("/roots/delta", json!(other), "roots"),
        ("/roots/intermediate", json!(other), "roots"),
        ("/roots/snapshot", json!(other), "roots"),
        ("/account/nonce", json!("0x7"), "nonce"),
        ("/account/nonce", json!("0x10000000000000001"), "nonce"),
        ("/account/balance", json!("0x1234567"), "balance"),
        ("/account/codeHash", json!(other), "codeHash"),
        ("/account", Value::Null, "the account exists"),
        ("/storage/0/value", json!("0x1"), "not 0x1"),
        ("/storage/0/key", json!("0x8"), "7"),
        ("/storage", json!([]), "more than its targets need"),
        (
            "/address",
            json!("0x00000000000000000000000000000000000000ff"),
            "proof",
        ),
        ("/proof", json!("0x"), "malformed"),
        ("/proof", json!("0x000000"), "the root"),
    ] {
        let run = verify(&fixture, &forged(path, value), &root);
        match path {
            // The proof of absence of another slot may be the same.
            "/storage/0/key" => assert!(run.code == 5 || run.json()["slots"][0]["value"] == "0x0"),
            _ => drop(run.fails(5, &["does not hold for state root", why])),
        }
    }
    verify(&fixture, &proof, &other).fails(5, &["does not hold", &other]);
    let before = root_at(&fixture, BLOCKS - 1);
    verify(&fixture, &proof, &before).fails(5, &["does not hold", &before]);
    // Input that is not a proof of this kind.
    for (path, value, why) in [
        ("/commitment", json!("mpt"), "unknown variant `mpt`"),
        ("/commitment", Value::Null, "missing field"),
        ("/proof", json!("0x1"), "valid hex"),
        ("/account", json!({ "nonce": "0x0" }), "missing field"),
        (
            "/storage/0",
            json!({ "key": "0x7", "value": "0x0", "more": 1 }),
            "unknown field",
        ),
    ] {
        verify(&fixture, &forged(path, value), &root).fails(5, &["account proof", why]);
    }
    // No byte of the proof is without meaning.
    let bytes: cambium::Bytes = proof["proof"].as_str().unwrap().parse().unwrap();
    for at in (0..bytes.len()).step_by(1 + bytes.len() / 40) {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let flipped = json!(cambium::Bytes::from(bytes));
        verify(&fixture, &forged("/proof", flipped), &root).fails(5, &["does not hold"]);
    }
    cambium!["prove", token, "--block", "99", "-d", fixture.db()].fails(1, &["no block 99"]);
}

fn stateless(fixture: &Fixture, witness: &Value, interval: &str) -> support::Run {
    let file = fixture.write("witness.json", witness.to_string().as_bytes());
    let genesis = fixture.genesis();
    cambium![
        "stateless",
        file,
        "--genesis",
        genesis,
        "--merge-interval",
        interval,
        "--json"
    ]
}

fn witness(fixture: &Fixture, block: u64) -> Value {
    cambium!["witness", block.to_string(), "-d", fixture.db(), "--json"]
        .done()
        .json()
}

/// The first blocks of intervals of 3 are 4, 7 and 10. The snapshot of block 4 is the first state, as
/// that of block 3 is; those of blocks 7 and 10 are states after blocks 3 and 6.
#[test]
fn blocks_of_a_layered_chain_are_executed_from_witnesses_alone() {
    let fixture = imported();
    for block in 1..=BLOCKS {
        let witness = witness(&fixture, block);
        let report = stateless(&fixture, &witness, "3").done().json();
        assert_eq!(report["state_root"], root_at(&fixture, block));
        assert_eq!(report["pre_root"], root_at(&fixture, block - 1));
        let snapshot = &report["unproved_snapshot_root"];
        match block {
            7 | 10 => assert_eq!(*snapshot, witness["layered"]["nextSnapshot"]),
            _ => assert!(snapshot.is_null(), "block {block}"),
        }
    }
}

#[test]
fn wrong_witnesses_of_a_layered_chain_are_refused_with_what_is_wrong() {
    let fixture = imported();
    let (first, inner) = (witness(&fixture, 7), witness(&fixture, 8));
    let forged = |witness: &Value, path: &str, value: Value| {
        let mut witness = witness.clone();
        *witness.pointer_mut(path).unwrap() = value;
        witness
    };
    let other = json!(format!("0x{}", "11".repeat(32)));
    let snapshot = "/layered/nextSnapshot";
    let lie = forged(&first, snapshot, other.clone());
    stateless(&fixture, &lie, "3").fails(3, &["block 7", "state"]);
    let none = forged(&first, snapshot, Value::Null);
    stateless(&fixture, &none, "3").fails(5, &["lacks the root of the interval's snapshot"]);
    // Within an interval the snapshot stays, and a claimed one is ignored.
    stateless(&fixture, &forged(&inner, snapshot, other), "3").done();
    let tries = inner["layered"]["tries"].clone();
    let of_another = forged(&first, "/layered/tries", tries.clone());
    stateless(&fixture, &of_another, "3").fails(5, &["the proof has the root"]);
    let bytes: cambium::Bytes = tries.as_str().unwrap().parse().unwrap();
    for at in (0..bytes.len()).step_by(1 + bytes.len() / 30) {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let bytes = json!(cambium::Bytes::from(bytes));
        let flipped = forged(&inner, "/layered/tries", bytes);
        stateless(&fixture, &flipped, "3").fails(5, &["the witness's state"]);
    }
    let nothing = forged(&inner, "/layered/tries", json!("0x"));
    stateless(&fixture, &nothing, "3").fails(5, &["malformed"]);
    // The interval is the verifier's, and so is the commitment.
    stateless(&fixture, &inner, "7").fails(5, &["lacks the root of the interval's snapshot"]);
    stateless(&fixture, &first, "4").fails(3, &["block 7", "state"]);
    let file = fixture.write("witness.json", inner.to_string().as_bytes());
    let genesis = fixture.genesis();
    cambium!["stateless", file, "--genesis", genesis].fails(5, &["`layered`"]);
    let mut plain = inner.clone();
    plain.as_object_mut().unwrap().remove("layered");
    stateless(&fixture, &plain, "3").fails(5, &["`layered`"]);
    cambium!["witness", "8", "--form", "reth", "-d", fixture.db()].fails(1, &["`layered`"]);
}
