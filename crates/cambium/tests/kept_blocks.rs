//! A database of which old blocks have left, as its operator meets it.

use crate::support;
use crate::support::Fixture;
use serde_json::Value;

const HEAD: u64 = 600;
const KEEP: u64 = 50;

/// Little memory and small files: merges, new files and removals all the time.
const SMALL: [&str; 8] = [
    "--memory",
    "2M",
    "--segment-size",
    "64K",
    "--segment-buffer",
    "16K",
    "--log-file-size",
    "64K",
];

fn stats(db: &std::path::Path) -> Value {
    cambium!("db", "stats", "--json", "--datadir", db)
        .done()
        .json()
}

#[test]
fn a_database_that_keeps_few_blocks_does_the_rest_and_names_what_it_can_not() {
    let fixture = Fixture::generate_with(300, HEAD, 20, &["--fork", "osaka"]);
    let (db, all) = (fixture.db(), fixture.path("all"));
    let import = |db: &std::path::Path, keep: &[&str]| {
        let mut args: Vec<std::ffi::OsString> = vec!["import".into(), "--json".into()];
        args.extend(SMALL.iter().chain(keep).map(std::ffi::OsString::from));
        args.extend(["--genesis".into(), fixture.genesis().into()]);
        args.extend(["--datadir".into(), db.into(), fixture.chain().into()]);
        support::cambium(args).done().json()
    };
    let whole = import(&all, &[]);
    let few = import(&db, &["--keep-blocks", &KEEP.to_string()]);
    assert_eq!(few["state_root"], whole["state_root"]);
    // Imported again nothing is missing, though the first blocks are not there.
    let again = import(&db, &["--keep-blocks", &KEEP.to_string()]);
    assert_eq!(
        (&again["blocks"], &again["skipped"]),
        (&0.into(), &HEAD.into())
    );
    cambium!("init", "--genesis", fixture.genesis(), "--datadir", db).done();
    // Nor when even their names are lost.
    std::fs::remove_file(db.join("blocks.idx")).expect("the block index");
    let again = import(&db, &["--keep-blocks", &KEEP.to_string()]);
    assert_eq!(
        (&again["blocks"], &again["skipped"]),
        (&0.into(), &HEAD.into())
    );

    let told = stats(&db);
    let kept_from = support::number(&told["kept_from"]);
    assert!((1..=HEAD - KEEP).contains(&kept_from), "{kept_from}");
    assert_eq!(stats(&all)["kept_from"], "0x0");
    let log_bytes = |db: &std::path::Path| -> u64 {
        let files = std::fs::read_dir(db.join("log")).expect("a folder");
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let (few_bytes, all_bytes) = (log_bytes(&db), log_bytes(&all));
    support::say(&format!(
        "log: {few_bytes} bytes, {all_bytes} where all is kept"
    ));
    assert!(few_bytes * 4 < all_bytes * 3);
    let text = cambium!("db", "stats", "--datadir", db).done().stdout;
    assert!(text.contains("blocks kept"), "{text}");

    let address = "0x0000000000000000000000000000000000000001";
    let (oldest, gone) = (kept_from.to_string(), "before block ".to_owned());
    let gone = [&*gone, &oldest, "--keep-blocks"];
    cambium!("get", "--datadir", db, "--block", oldest, address).done();
    cambium!("prove", "--datadir", db, "--block", oldest, address).done();
    cambium!("witness", "--datadir", db, HEAD.to_string()).done();
    cambium!("bal", "--datadir", db, oldest).done();
    cambium!("get", "--datadir", db, "--block", "1", address).fails(1, &gone);
    cambium!("prove", "--datadir", db, "--block", "1", address).fails(1, &gone);
    cambium!("witness", "--datadir", db, "1").fails(1, &gone);
    cambium!("bal", "--datadir", db, "1").fails(1, &gone);
    cambium!("unwind", "--datadir", db, "--to", "1").fails(1, &gone);
    let out = fixture.path("part.rlp");
    cambium!("export", "--datadir", db, out).fails(1, &gone);
    cambium!("export", "--force", "--datadir", db, "--from", oldest, out).done();

    cambium!("db", "check", "--datadir", db).done();
    let repaired = cambium!("db", "repair", "--json", "--datadir", db).done();
    assert_eq!(repaired.json()["findings"], serde_json::json!([]));
    let copy = fixture.path("copy");
    cambium!("db", "backup", "--datadir", db, copy).done();
    cambium!("db", "check", "--datadir", copy).done();

    cambium!("unwind", "--datadir", db, "--to", oldest).done();
    let back = import(&db, &[]);
    assert_eq!(back["state_root"], whole["state_root"]);
    assert_eq!(back["head_hash"], whole["head_hash"]);
    cambium!("db", "check", "--datadir", db).done();
}
