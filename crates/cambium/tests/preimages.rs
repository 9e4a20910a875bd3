//! Addresses and slots behind the hashes, from the program: kept from the genesis on, shown, checked, copied, and damaged;
//! and through `kill -9`.

use crate::support;
use crate::support::{Fixture, Run, program, quantity, say};
use cambium::{B256, keccak256};
use cambium_seeds::is_long;
use cambium_workload::TOKEN;
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

const HEAD: u64 = 60;
/// So little memory and so small files that much is merged, and leaves the log.
const SMALL: &str =
    "--memory 2M --segment-size 64K --segment-buffer 16K --log-file-size 64K --keep-blocks 5";

fn with(args: &str, db: &Path, more: &[OsString]) -> Vec<OsString> {
    let mut all: Vec<OsString> = args.split(' ').map(Into::into).collect();
    all.extend(["-d".into(), db.into()]);
    all.extend(more.iter().cloned());
    all
}

fn ask(args: &str, db: &Path) -> Value {
    let args = format!("{args} --json");
    support::cambium(with(&args, db, &[])).done().json()
}

fn import(fixture: &Fixture, db: &Path, more: &str) -> Run {
    let args = format!("import --json {SMALL}{more}");
    support::cambium(with(&args, db, &[fixture.chain().into()]))
}

fn init(fixture: &Fixture, db: &Path) -> Run {
    let genesis = ["--genesis".into(), fixture.genesis().into()];
    support::cambium(with("init --preimages --json", db, &genesis))
}

/// A chain in a database that keeps preimages.
fn imported(fixture: &Fixture, db: &Path) {
    init(fixture, db).done();
    let done = import(fixture, db, "").done().json();
    assert_eq!(done["preimages_error"], Value::Null);
}

fn dump(db: &Path, file: PathBuf, block: &str) -> Value {
    let told = cambium!(
        "db",
        "dump",
        file.clone(),
        "--force",
        "--require-preimages",
        "--json",
        "--block",
        block,
        "-d",
        db
    );
    let told = told.done().json();
    assert_eq!(told["missing_preimages"], 0);
    let written: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(
        written["alloc"].as_object().unwrap().len(),
        told["accounts"]
    );
    written
}

#[test]
fn addresses_and_slots_are_known_from_the_genesis_to_the_head_and_in_copies() {
    let fixture = Fixture::generate_with(300, HEAD, 12, &["--fork", "osaka"]);
    let (db, copy) = (fixture.db(), fixture.path("copy"));
    imported(&fixture, &db);
    let checked = ask("db check --preimages", &db);
    assert_eq!(checked["whole"], true, "{checked}");
    assert_eq!(checked["missing_addresses"], 0);
    assert_eq!(checked["block_number"], quantity(HEAD));
    let stats = &ask("db stats", &db)["preimages"];
    assert_eq!(stats["upto_number"], quantity(HEAD));
    assert_eq!(stats["lost_blocks"], 0);
    assert_eq!(checked["addresses"], checked["state_accounts"]);

    // The first state is that of the genesis file, by address.
    let genesis: Value = serde_json::from_slice(&fs::read(fixture.genesis()).unwrap()).unwrap();
    let alone = fixture.path("alone");
    init(&fixture, &alone).done();
    let first = dump(&alone, fixture.path("first.json"), "latest");
    let expected = genesis["alloc"].as_object().unwrap();
    assert_eq!(first["alloc"].as_object().unwrap().len(), expected.len());
    for (address, account) in expected {
        let address = address.to_lowercase();
        let address = format!("0x{}", address.trim_start_matches("0x"));
        let found = &first["alloc"][&address];
        let slots = |account: &Value| {
            let storage = account.get("storage").and_then(Value::as_object);
            storage.map(|storage| storage.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(slots(found), slots(account), "{address}");
    }

    // A database of the head's dump knows them all, and goes on.
    let file = fixture.path("head.json");
    let written = dump(&db, file.clone(), "latest");
    let loaded = fixture.path("loaded");
    cambium!("db", "load", file, "--preimages", "-d", loaded.clone()).done();
    assert_eq!(ask("db check --preimages", &loaded)["whole"], true);
    let again = dump(&loaded, fixture.path("again.json"), "latest");
    assert_eq!(again, written);

    // Gzipped, and through a pipe.
    let plain = fs::read(fixture.path("head.json")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &plain).unwrap();
    let packed = fixture.write("head.json.gz", &packed.finish().unwrap());
    let unpacked = fixture.path("unpacked");
    cambium!("db", "load", packed.clone(), "-d", unpacked.clone()).done();
    assert_eq!(ask("db stats", &unpacked)["head_number"], quantity(HEAD));
    let cut = fs::read(&packed).unwrap();
    let cut = fixture.write("cut.json.gz", &cut[..cut.len() / 2]);
    cambium!("db", "load", cut, "-d", fixture.path("cut")).fails(3, &["cut.json.gz"]);

    // Each command that prints a hash prints its preimage.
    let token = TOKEN.to_string();
    let page = ask(&format!("get {token} --storage --limit 20"), &db);
    for slot in page["slots"].as_array().unwrap() {
        let key: B256 = slot["slot"].as_str().unwrap().parse().unwrap();
        assert_eq!(slot["path"], json!(keccak256(key)));
    }
    let text = cambium!("get", &token, "--storage", "-d", &db)
        .done()
        .stdout;
    assert!(!text.contains("keccak256 0x"), "{text}");
    let changed = ask(&format!("diff {} {HEAD}", HEAD - 5), &db);
    for account in changed["accounts"].as_array().unwrap() {
        assert!(account["address"].is_string(), "{account}");
        let (slots, keys) = (&account["slots"], &account["slotKeys"]);
        assert_eq!(
            slots.as_object().unwrap().len(),
            keys.as_object().unwrap().len()
        );
    }
    let largest = &ask("db inspect", &db)["largest"][0];
    assert_eq!(
        largest["address"].as_str().map(str::to_lowercase),
        Some(token.to_lowercase())
    );

    // Copies have them, unless they are left out.
    let told = cambium!("db", "backup", "--json", "-d", &db, &copy)
        .done()
        .json();
    assert_eq!(told["preimages"], true);
    assert_eq!(ask("db check --preimages", &copy), checked);
    let without = fixture.path("without");
    let told = cambium!(
        "db",
        "backup",
        "--json",
        "--no-preimages",
        "-d",
        &db,
        &without
    );
    assert_eq!(told.done().json()["preimages"], false);
    let words = ["has no preimages", "cambium init --preimages"];
    cambium!("db", "check", "--preimages", "-d", &without).fails(1, &words);
}

#[test]
fn what_was_made_without_stays_without_and_says_so() {
    let fixture = Fixture::generate(100, 10, 4);
    let db = fixture.db();
    fixture.import(&fixture.chain()).done();
    let genesis = fixture.genesis();
    cambium!("init", "--preimages", "--genesis", &genesis, "-d", &db)
        .fails(1, &["made without --preimages"]);
    let file = fixture.path("dump.json");
    let told = cambium!("db", "dump", &file, "--require-preimages", "-d", &db);
    told.fails(1, &["is known by its hash 0x", "cambium init --preimages"]);
    assert!(!file.exists());
    // A file that the dump did not create stays: it might be /dev/null.
    let (link, to) = (fixture.path("link"), fixture.write("to", b""));
    std::os::unix::fs::symlink(to, &link).unwrap();
    let told = cambium!(
        "db",
        "dump",
        &link,
        "--force",
        "--require-preimages",
        "-d",
        &db
    );
    told.fails(1, &["is known by its hash 0x"]);
    assert!(link.is_symlink());
    let told = cambium!("db", "dump", &file, "-d", &db).done();
    assert!(told.stderr.contains("are not known"), "{}", told.stderr);
    let loaded = fixture.path("loaded");
    cambium!("db", "load", &file, "--preimages", "-d", &loaded).fails(
        3,
        &["dump.json", "preimage is not known", "without preimages"],
    );
    let page = ask(&format!("get {TOKEN} --storage"), &db);
    assert_eq!(page["slots"][0]["slot"], Value::Null);
    let text = cambium!("get", TOKEN.to_string(), "--storage", "-d", &db).done();
    assert!(text.stdout.contains("keccak256 0x"), "{}", text.stdout);
    assert_eq!(ask("db stats", &db)["preimages"], Value::Null);
    cambium!("import", "--preimages", fixture.chain(), "-d", &db).fails(2, &["--genesis"]);
    // An import that makes the database can be asked for them, too.
    let made = fixture.path("made");
    let chain = fixture.chain();
    cambium!(
        "import",
        "--preimages",
        "--genesis",
        &genesis,
        "-d",
        &made,
        chain
    )
    .done();
    assert_eq!(ask("db check --preimages", &made)["whole"], true);
    // The database can be used further without the option.
    cambium!("init", "--genesis", &genesis, "-d", &made).done();
}

#[test]
fn damaged_preimages_are_named_and_the_chain_goes_on() {
    let fixture = Fixture::generate(200, HEAD, 8);
    let db = fixture.db();
    imported(&fixture, &db);
    let folder = db.join("preimages");
    let names = fs::read_dir(&folder).unwrap();
    let mut names = names.map(|entry| entry.unwrap().path());
    let run = names
        .find(|path| path.extension() == Some("run".as_ref()))
        .unwrap();
    let whole = fs::read(&run).unwrap();
    for at in [100, whole.len() - 20] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&run, bytes).unwrap();
        let name = run.file_name().unwrap().to_str().unwrap();
        let words = [name, "damaged", "from a backup"];
        cambium!("db", "check", "--preimages", "-d", &db).fails(4, &words);
        cambium!("unwind", "--to", (HEAD - 3).to_string(), "-d", &db).done();
        let again = import(&fixture, &db, "");
        let is_told = again.stderr.contains(name);
        assert_eq!(again.json()["head_number"], quantity(HEAD));
        assert_eq!(
            (again.code == 1, again.json()["preimages_error"].is_string()),
            (is_told, is_told)
        );
        // A dump has hashes where it must.
        let file = fixture.path("dump.json");
        let told = cambium!("db", "dump", &file, "--force", "-d", &db).done();
        assert!(told.stderr.contains(name), "{}", told.stderr);
        cambium!(
            "db",
            "dump",
            &file,
            "--force",
            "--require-preimages",
            "-d",
            &db
        )
        .fails(4, &words);
    }
    // A copy has only the files that the database needs.
    let (list, copy) = (folder.join("runs.list"), fixture.path("copy"));
    let listed = fs::read(&list).unwrap();
    fs::write(&list, &listed[..30]).unwrap();
    let told = cambium!("db", "backup", "--json", "-d", &db, &copy);
    assert!(
        told.stderr
            .contains("the copy is whole, but without preimages"),
        "{}",
        told.stderr
    );
    assert_eq!((told.code, &told.json()["preimages"]), (1, &json!(false)));
    assert_eq!(ask("db check", &copy)["sound"], true);
    fs::write(&list, listed).unwrap();
    fs::write(&run, whole).unwrap();
    import(&fixture, &db, "").done();
    assert_eq!(ask("db check --preimages", &db)["whole"], true);
    // Without the folder it goes on without them.
    fs::remove_dir_all(&folder).unwrap();
    cambium!("unwind", "--to", (HEAD - 3).to_string(), "-d", &db).done();
    import(&fixture, &db, "").done();
    assert_eq!(ask("db stats", &db)["preimages"], Value::Null);
}

#[test]
fn every_kill_leaves_what_is_behind_each_hash() {
    let kills_wanted = if is_long() { 300 } else { 10 };
    let fixture = Fixture::generate(1_000, 150, 40);
    let make = |db: &str| init(&fixture, &fixture.path(db)).done();
    make("whole");
    let start = Instant::now();
    import(&fixture, &fixture.path("whole"), "").done();
    let whole = start.elapsed();
    let (mut kills, mut ended, mut checks, mut at) = (0u32, 0, 0, 1u64);
    let db = fixture.path("killed");
    make("killed");
    while kills < kills_wanted {
        let args = format!("import --json {SMALL}");
        let mut child = program();
        let child = child.args(with(&args, &db, &[fixture.chain().into()]));
        let child = child.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("the program starts");
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = (at >> 33) % 1_000;
        thread::sleep(whole / 20 + whole.mul_f64(share as f64 / 1_800.0));
        child.kill().expect("a signal");
        let output = child.wait_with_output().expect("its end");
        match output.status.code() {
            None => kills += 1,
            Some(0) => ended += 1,
            Some(code) => panic!(
                "exit code {code}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
        // The log has what is not in files; a reader adds it.
        let checked = ask("db check --preimages", &db);
        assert_eq!(checked["whole"], true, "{checked}");
        assert_eq!(checked["lost_blocks"], 0);
        checks += 1;
        if checked["block_number"] == quantity(150) {
            fs::remove_dir_all(&db).expect("the database");
            make("killed");
        }
    }
    assert!(checks >= kills);
    say(&format!(
        "preimages: {kills} kills, {ended} imports that ended before one, {checks} checks, in {:?}",
        Duration::from_secs(start.elapsed().as_secs())
    ));
}
