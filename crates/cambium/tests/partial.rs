//! Partial databases: made with a list of contracts, and kept at the head by state updates.

use crate::support::{self, Fixture};
use cambium::{Address, B256};
use cambium_workload::{SLOT_READER, TOKEN, token_balance_slot};
use std::{
    fs,
    path::{Path, PathBuf},
};

const BLOCKS: u64 = 40;

/// A chain in a full database, with a file of its updates.
fn exported() -> (Fixture, PathBuf) {
    let fixture = Fixture::generate_with(400, BLOCKS, 20, &["--fork", "osaka"]);
    fixture.import(&fixture.chain()).done();
    let (blocks, updates) = (fixture.path("again.rlp"), fixture.path("updates.gz"));
    let made = cambium!(
        "export",
        &blocks,
        "--updates",
        &updates,
        "--json",
        "-d",
        fixture.db()
    )
    .done();
    assert_eq!(made.json()["updates"], BLOCKS);
    assert_eq!(
        fs::read(&blocks).unwrap(),
        fs::read(fixture.chain()).unwrap()
    );
    (fixture, updates)
}

fn init(fixture: &Fixture, list: &Path, db: &Path) -> support::Run {
    cambium!(
        "init",
        fixture.genesis(),
        "--storage-of",
        list,
        "--json",
        "-d",
        db
    )
}

fn import(fixture: &Fixture, updates: &Path, db: &Path) -> support::Run {
    cambium!(
        "import",
        fixture.chain(),
        "--updates",
        updates,
        "--json",
        "-d",
        db
    )
}

#[test]
fn a_partial_database_follows_by_updates_and_answers_for_what_it_keeps() {
    let (fixture, updates) = exported();
    let list = format!("# the token\n\n  {TOKEN} # and no other\n");
    let list = fixture.write("list", list.as_bytes());
    let db = fixture.path("partial");
    let made = init(&fixture, &list, &db).done().json();
    assert_eq!(made["storage_kept_of"], 1);
    let done = import(&fixture, &updates, &db).done().json();
    assert_eq!(
        (&done["blocks"], &done["applied"]),
        (&BLOCKS.into(), &BLOCKS.into())
    );
    let head =
        |db: &Path| cambium!("db", "stats", "--json", "-d", db).done().json()["head_hash"].clone();
    assert_eq!(head(&db), head(&fixture.db()));
    cambium!("db", "check", "-d", &db).done();
    // A slot of the token, and its proof.
    let holder = Address::from_slice(&keccak(TOKEN)[12..]);
    let slot = B256::from(token_balance_slot(&holder)).to_string();
    let get = |db: &Path, address: Address, slot: &str| {
        cambium!("get", address.to_string(), slot, "--json", "-d", db)
    };
    let prove = |db: &Path, address: Address, slot: &str| {
        cambium!("prove", address.to_string(), slot, "-d", db)
    };
    let expected = get(&fixture.db(), TOKEN, &slot).done();
    assert_eq!(
        get(&db, TOKEN, &slot).done().json()["value"],
        expected.json()["value"]
    );
    assert_eq!(
        prove(&db, TOKEN, &slot).done().stdout,
        prove(&fixture.db(), TOKEN, &slot).done().stdout
    );
    // The account of another contract, and none of its slots.
    let account = |db: &Path| {
        cambium!("get", SLOT_READER.to_string(), "--json", "-d", db)
            .done()
            .json()
    };
    assert_eq!(account(&db), account(&fixture.db()));
    let names = ["is not kept", "partial"];
    get(&db, SLOT_READER, "0x0").fails(1, &names);
    let named = SLOT_READER.to_string();
    prove(&db, SLOT_READER, "0x0").fails(1, &["is not kept", &named]);
    let file = fixture.path("dump.json");
    cambium!("db", "dump", &file, "-d", &db).fails(1, &names);
    let more = ["partial database can't execute", "--updates"];
    // Blocks that it has need no updates to become canonical again.
    cambium!("unwind", "--to", "30", "-d", &db).done();
    let again = cambium!("import", fixture.chain(), "--json", "-d", &db);
    assert_eq!(again.done().json()["skipped"], BLOCKS);
    assert_eq!(head(&db), head(&fixture.db()));
    let other = fixture.path("other");
    init(&fixture, &list, &other).done();
    cambium!("import", fixture.chain(), "-d", &other).fails(1, &more);
    assert_eq!(
        import(&fixture, &updates, &other).done().json()["blocks"],
        BLOCKS
    );
    cambium!(
        "export",
        fixture.path("x"),
        "--updates",
        fixture.path("y"),
        "-d",
        &db
    )
    .fails(1, &["making state updates"]);
}

fn keccak(address: Address) -> B256 {
    cambium::keccak256(address)
}

#[test]
fn a_bad_list_is_named_by_its_line_and_another_list_is_refused() {
    let (fixture, updates) = exported();
    let db = fixture.path("partial");
    let hex = "0x".to_owned() + &"ab".repeat(20);
    for (text, words) in [
        (
            format!("# one\n{hex}\n0x12\n"),
            ["line 3", "`0x12` is not an address"],
        ),
        (format!("{hex} {hex}\n"), ["line 1", "is not an address"]),
        ("\n\nTOKEN".to_owned(), ["line 3", "`TOKEN`"]),
        (format!("{}\n", "a".repeat(5000)), ["line 1", "longer"]),
    ] {
        let list = fixture.write("bad", text.as_bytes());
        init(&fixture, &list, &db).fails(1, &words);
        assert!(!db.join("cambium.db").exists());
    }
    let list = fixture.write("list", hex.as_bytes());
    init(&fixture, &list, &db).done();
    init(&fixture, &list, &db).done();
    let other = fixture.write("other", TOKEN.to_string().as_bytes());
    init(&fixture, &other, &db).fails(1, &["exists already", "not the 1 in the list"]);
    init(&fixture, &other, &fixture.db()).fails(1, &["keeps the storage of all"]);
    // What is no file of updates.
    let words = ["state updates"];
    import(&fixture, &fixture.chain(), &db).fails(2, &words);
    import(&fixture, &list, &db).fails(2, &words);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(
        &mut flate2::read::GzDecoder::new(fs::File::open(&updates).unwrap()),
        &mut bytes,
    )
    .unwrap();
    let cut = fixture.write("cut", &bytes[..bytes.len() / 2]);
    import(&fixture, &cut, &db).fails(3, &["cut short"]);
}
