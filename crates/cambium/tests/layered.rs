//! The program on a chain of the `layered` commitment: generated, imported, unwound, checked, and
//! what it refuses there.

mod support;

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
    let address = "0x0000000000000000000000000000000000000001";
    cambium!["prove", address, "-d", db].fails(1, &["`layered`"]);
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
    .fails(1, &["--commitment layered"]);
}
