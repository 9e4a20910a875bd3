//! A data directory that is wrong, damaged, taken or full: an error that says what to do, and
//! never a wrong value.

use crate::support;
use crate::support::{Fixture, Run, copy_dir, program, say};
use cambium::{BlockSource, Chain, ChainError, Options, StateError, StdDisk, db::StoreError};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

#[test]
fn a_directory_that_is_no_database_is_told_from_one_that_is() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for datadir in [dir.path(), &missing] {
        for command in ["stats", "check", "repair"] {
            cambium!("db", command, "-d", datadir)
                .fails(1, &["there is no database in", "cambium init"]);
        }
    }
    assert!(!missing.exists());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    cambium!("db", "stats", "-d", file).fails(2, &["it is a file"]);
}

#[test]
fn a_directory_in_use_is_refused_with_the_pid_of_who_has_it() {
    let fixture = Fixture::generate(30, 2, 3);
    fixture.import(&fixture.chain()).done();
    let disk = Arc::new(StdDisk::new(fixture.db()));
    let (held, _) = Chain::open(disk, Options::default()).unwrap();
    let pid = format!("in use by another process (pid {})", std::process::id());
    fixture
        .import(&fixture.chain())
        .fails(1, &[&pid, "stop it"]);
    cambium!("db", "repair", "-d", fixture.db()).fails(1, &[&pid]);
    drop(held);
    fixture.import(&fixture.chain()).done();
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let fixture = Fixture::generate(30, 2, 3);
    fixture.import(&fixture.chain()).done();
    let manifest = fixture.db().join("cambium.db");
    let good = fs::read(&manifest).unwrap();
    let mut newer = good.clone();
    newer[8] = 9;
    fs::write(&manifest, &newer).unwrap();
    cambium!("db", "stats", "-d", fixture.db()).fails(4, &["cambium.db is damaged"]);
    let sum = xxhash_rust::xxh3::xxh3_64(&newer[..12]) as u32;
    newer[12..16].copy_from_slice(&sum.to_le_bytes());
    fs::write(&manifest, &newer).unwrap();
    let words = [
        "cambium.db was written by a newer Cambium",
        "format 9",
        "upgrade",
    ];
    cambium!("db", "stats", "-d", fixture.db()).fails(1, &words);
    fixture.import(&fixture.chain()).fails(1, &words);
    fs::write(&manifest, &good).unwrap();
    assert_eq!(fixture.head(), 2);
}

/// Runs the program as a user to whom permissions apply.
fn as_nobody(program_copy: &Path, args: &[&str]) -> Run {
    const NOBODY: u32 = 65_534;
    let mut command = std::process::Command::new(program_copy);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.args(args);
    // A process forked by another test may hold the fresh copy open for writing, for a moment.
    let busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
    for _ in 0..200 {
        match command.output() {
            Err(error) if busy(&error) => std::thread::sleep(std::time::Duration::from_millis(10)),
            output => return Run::of(output.expect("the program starts")),
        }
    }
    panic!("the copied program stays busy")
}

fn is_root() -> bool {
    fs::metadata("/proc/self")
        .map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        .unwrap_or(false)
}

#[test]
fn a_lack_of_permission_is_named_with_the_file() {
    let fixture = Fixture::generate(30, 2, 3);
    fixture.import(&fixture.chain()).done();
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(fixture.dir.path(), 0o755);
    let copy = fixture.path("program");
    fs::copy(program().get_program(), &copy).unwrap();
    let db = fixture.db();
    let stats = ["db", "stats", "-d", db.to_str().unwrap()];
    // Readable but not writable for others; then not even that.
    if !is_root() {
        set_mode(&db, 0o555);
        set_mode(&db.join("cambium.lock"), 0o444);
    }
    as_nobody(&copy, &stats).done();
    let unwind = ["unwind", "--to", "1", "-d", db.to_str().unwrap()];
    as_nobody(&copy, &unwind).fails(1, &["Permission denied", "check the owner and the mode"]);
    set_mode(&db, 0o000);
    as_nobody(&copy, &stats).fails(1, &["Permission denied", "check the owner and the mode"]);
    let into = fixture.path("other");
    let genesis = fixture.genesis();
    if !is_root() {
        set_mode(fixture.dir.path(), 0o555);
    }
    let init = [
        "init",
        "--genesis",
        genesis.to_str().unwrap(),
        "-d",
        into.to_str().unwrap(),
    ];
    as_nobody(&copy, &init).fails(1, &["Permission denied", "other"]);
    set_mode(fixture.dir.path(), 0o755);
    set_mode(&db, 0o755);
    if !is_root() {
        set_mode(&db.join("cambium.lock"), 0o644);
    }
    assert_eq!(fixture.head(), 2);
}

#[test]
fn output_to_a_full_device_is_an_error() {
    let fixture = Fixture::generate(30, 2, 3);
    fixture.import(&fixture.chain()).done();
    if !Path::new("/dev/full").exists() {
        say("skipped: this system has no /dev/full");
        return;
    }
    cambium!("export", "/dev/full", "-d", fixture.db()).fails(1, &["/dev/full: can't be written"]);
}

#[test]
fn a_file_that_could_not_be_written_whole_is_not_left_behind() {
    let fixture = Fixture::generate(300, 60, 40);
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    let out = fixture.path("out");
    fs::create_dir(&out).unwrap();
    let path = |name: &str| out.join(name).display().to_string();
    let export = format!("export {} -d {}", path("chain.rlp"), db.display());
    let lists = format!("{export} --access-lists {}", path("lists.rlp"));
    let dump = format!("db dump {} -d {}", path("dump.json"), db.display());
    let workload = format!(
        "workload --out {} --accounts 300 --blocks 60",
        out.display()
    );
    for command in [&export, &lists, &dump, &workload] {
        // The largest file, in blocks of 512 bytes.
        let limited = Command::new("sh")
            .args(["-c", "ulimit -f $1; shift; exec \"$@\"", "sh", "40"])
            .arg(program().get_program())
            .args(command.split(' '))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&limited.stderr);
        assert!(!limited.status.success(), "{command}: {told}");
        assert!(told.contains("error: "), "{command}: {told}");
        let left: Vec<_> = fs::read_dir(&out).unwrap().collect();
        assert!(left.is_empty(), "{command}: {left:?}");
    }
    // Nor is one that a signal ended. The workload is far from its end; the others may be whole before.
    let long = format!("{workload}0000");
    let all_files = || {
        let files = fs::read_dir(&out).unwrap();
        let files = files.map(|entry| entry.unwrap().path());
        let read = files.map(|file| (file.clone(), fs::read(file).unwrap_or_default()));
        read.collect::<BTreeMap<_, _>>()
    };
    let remove_all = || {
        all_files()
            .keys()
            .for_each(|file| fs::remove_file(file).unwrap());
    };
    let whole = [&lists, &dump].map(|command| {
        support::cambium(command.split(' ')).done();
        let whole = all_files();
        remove_all();
        whole
    });
    let signals = [(Signal::INT, 130), (Signal::TERM, 143)];
    for (round, (signal, code)) in signals.into_iter().cycle().take(24).enumerate() {
        for command in [&lists, &dump, &long] {
            let mut started = program();
            started.args(command.split(' ')).stderr(Stdio::null());
            let mut started = started.stdout(Stdio::null()).spawn().unwrap();
            let is_long = command == &long;
            let chain = path("chain.rlp");
            while is_long && !Path::new(&chain).exists() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(round as u64));
            let pid = Pid::from_child(&started);
            _ = kill_process(pid, signal);
            let status = started.wait().unwrap();
            let left = all_files();
            let is_done = status.success() && !is_long;
            // Before it can catch signals they end it.
            let is_ended = status.code() == Some(code) || status.signal() == Some(signal.as_raw());
            assert!(is_done || is_ended, "{command}: {status}");
            let is_whole = whole.contains(&left);
            let names = left.keys();
            assert!(
                is_whole || !is_done && left.is_empty(),
                "{command}, {status}: {names:?}"
            );
            remove_all();
        }
    }
    // Two outputs are two files, however they are written.
    let same = [path("one.rlp"), format!("{}/./one.rlp", out.display())];
    for lists in &same {
        let twice = format!(
            "export {} --access-lists {lists} -d {}",
            same[0],
            db.display()
        );
        let refused = support::cambium(twice.split(' '));
        assert_eq!(refused.code, 2, "{lists}: {}", refused.stderr);
        assert!(!Path::new(&same[0]).exists(), "{lists}");
    }
    // An existing file that can't be opened for writing is kept.
    fs::write(path("chain.rlp"), "another's").unwrap();
    fs::set_permissions(path("chain.rlp"), fs::Permissions::from_mode(0o444)).unwrap();
    let refused = support::cambium(export.split(' '));
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert_eq!(fs::read(path("chain.rlp")).unwrap(), b"another's");
}

/// A pipe without a writer in place of a file: opening it would block for ever.
#[test]
fn a_pipe_in_place_of_a_file_is_named_and_not_waited_for() {
    let fixture = Fixture::generate(200, 20, 20);
    let db = fixture.db();
    fixture.import_new(&db, "--index").done();
    let aside = fixture.path("aside");
    let put_pipe = |file: &Path| {
        fs::rename(file, &aside).unwrap();
        let (fifo, mode) = (
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
        );
        rustix::fs::mknodat(rustix::fs::CWD, file, fifo, mode, 0).unwrap();
    };
    for (name, is_needed) in [
        ("index/runs.list", false),
        ("log/00000001.log", true),
        ("cambium.db", true),
        ("codes.dat", true),
        ("blocks.idx", true),
    ] {
        let file = db.join(name);
        put_pipe(&file);
        let read = cambium!("block", "20", "-d", &db);
        assert_eq!(read.code == 0, !is_needed, "{name}: {}", read.stderr);
        if is_needed {
            assert!(read.stderr.contains("it is a pipe"), "{}", read.stderr);
            for option in ["--dry-run", "--json"] {
                let repair = cambium!("db", "repair", option, "-d", &db);
                assert_ne!(repair.code, 0, "{name}: {}", repair.stdout);
            }
        }
        fs::rename(&aside, &file).unwrap();
        cambium!("db", "check", "-d", &db).done();
    }
}

#[test]
fn a_copy_whose_backup_was_interrupted_is_told_from_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::generate(30, 2, 3);
    let mark = dir.path().join("backup.unfinished");
    fs::write(&mark, "").unwrap();
    let told = |run: Run| run.fails(1, &["a copy that was not finished", "Remove the directory"]);
    for command in ["stats", "check", "repair", "branches"] {
        told(cambium!("db", command, "-d", dir.path()));
    }
    let genesis = fixture.genesis();
    told(cambium!("init", &genesis, "-d", dir.path()));
    let import = cambium!(
        "import",
        "--genesis",
        &genesis,
        fixture.chain(),
        "-d",
        dir.path()
    );
    told(import);
    told(cambium!("kv", "init", "-d", dir.path()));
    told(cambium!("kv", "get", "a", "-d", dir.path()));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// A part of a database that is on another disk: when that is not mounted, nothing is damaged, and nothing is repaired.
#[test]
fn a_link_that_leads_to_nothing_is_named_and_nothing_is_changed() {
    let fixture = Fixture::generate(2_000, 40, 150);
    let db = fixture.db();
    fixture.import_new(&db, "--memory 1M").done();
    let words = ["leads to nothing", "mounted"];
    for part in ["log", "segments", "cambium.db", "codes.dat", "blocks.idx"] {
        let (place, elsewhere) = (db.join(part), fixture.path("elsewhere"));
        fs::rename(&place, &elsewhere).unwrap();
        symlink(&elsewhere, &place).unwrap();
        cambium!("db", "check", "-d", &db).done();
        fs::rename(&elsewhere, fixture.path("unmounted")).unwrap();
        let names = || {
            let names = fs::read_dir(&db).unwrap();
            let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let repair = cambium!("db", "repair", "-d", &db).fails(1, &words);
        assert!(repair.stderr.contains(part), "{}", repair.stderr);
        fixture.import(&fixture.chain()).fails(1, &words);
        assert_eq!(names(), before, "{part}");
        fs::rename(fixture.path("unmounted"), &elsewhere).unwrap();
        cambium!("db", "check", "-d", &db).done();
        fs::remove_file(&place).unwrap();
        fs::rename(&elsewhere, &place).unwrap();
    }
    assert_eq!(fixture.head(), 40);
}

/// The log on another device, whose folder is missing, empty or another database's.
#[test]
fn a_log_that_is_placed_elsewhere_is_found_and_its_absence_named() {
    let fixture = Fixture::generate(300, 40, 50);
    let (db, place) = (fixture.db(), fixture.path("device").join("log"));
    let import = |log: &Path| {
        cambium!(
            "import",
            "--genesis",
            fixture.genesis(),
            "--log-dir",
            log,
            "-d",
            &db,
            fixture.chain()
        )
    };
    let full = fixture.path("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("notes"), "").unwrap();
    import(&full).fails(1, &["notes", "empty directory"]);
    // Files of the log there would be taken for others of the database.
    let linked = fixture.path("linked");
    symlink(&db, &linked).unwrap();
    for inside in [&db, &db.join("log"), &linked, &linked.join("device")] {
        import(inside).fails(1, &["a directory elsewhere"]);
    }
    import(&db.join("../device/log")).done();
    assert!(place.join("00000001.log").is_file() && db.join("log").is_symlink());
    import(&place).done();
    cambium!("db", "check", "-d", &db).done();
    import(&fixture.path("elsewhere")).fails(1, &["it is at", "not at"]);
    assert_eq!(fixture.head(), 40);

    let aside = fixture.path("aside");
    fs::rename(&place, &aside).unwrap();
    cambium!("db", "check", "-d", &db).fails(1, &["leads to nothing", "mounted"]);
    let link = db.join("log");
    fs::rename(&link, fixture.path("link")).unwrap();
    import(&fixture.path("new")).fails(4, &["cannot find", "log"]);
    assert!(
        !link.is_symlink() && !fixture.path("new").exists(),
        "nothing is made in its place"
    );
    fs::rename(fixture.path("link"), &link).unwrap();
    fs::create_dir(&place).unwrap();
    let none = fixture.import(&fixture.chain());
    assert!(none.code != 0 && none.stderr.contains("is the disk of the log mounted?"));
    let other = fixture.path("other");
    cambium!("init", fixture.genesis(), "-d", &other).done();
    fs::remove_dir(&place).unwrap();
    symlink(other.join("log"), &place).unwrap();
    let others = fixture.import(&fixture.chain());
    assert!(others.code != 0 && others.stderr.contains("another database's"));
    fs::remove_file(&place).unwrap();
    fs::rename(&aside, &place).unwrap();
    cambium!("db", "check", "-d", &db).done();
    assert_eq!(fixture.head(), 40);
}

/// Flips a bit of each file of a database, here and there, and lets the program say what it finds.
#[test]
fn a_flipped_bit_in_any_file_is_found_or_does_no_harm() {
    // Little memory: many merges, so that there are segments, checkpoints and a log of some size.
    let fixture = Fixture::generate(2_000, 40, 150);
    let import = |db: &Path| fixture.import_new(db, "--json --memory 1M");
    let good = import(&fixture.db()).done().json();
    assert!(good["counters"]["merges"].as_u64().unwrap() > 1);
    let files = files_of(&fixture.db());
    let flips = if cambium_seeds::is_long() { 200 } else { 10 };
    let (mut found, mut harmless, mut recovered, mut lost) = (0, 0, 0, 0);
    for (file, len) in &files {
        // Preallocated logs end in zeros, which have no content: only bytes before them are flipped.
        let bytes = fs::read(fixture.db().join(file)).unwrap();
        let written = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at as u64 + 1);
        assert!(written <= *len);
        for flip in 0..flips.min(written) {
            let at = flip * written / flips.min(written);
            let db = fixture.path("flipped");
            let _ = fs::remove_dir_all(&db);
            copy_dir(&fixture.db(), &db);
            let mut bytes = bytes.clone();
            bytes[at as usize] ^= 1 << (flip % 8);
            fs::write(db.join(file), bytes).unwrap();
            let place = format!("{} at byte {at}", file.display());
            match after_a_flip(&db, &good, file, &place) {
                Outcome::Harmless => harmless += 1,
                Outcome::Recovered => recovered += 1,
                Outcome::Found => {
                    found += 1;
                    let planned = cambium!("db", "repair", "--dry-run", "--json", "-d", db);
                    assert_eq!(planned.code, 4, "{place}: {}", planned.stdout);
                    let repair = cambium!("db", "repair", "--json", "-d", db);
                    let (planned, report) = (planned.json(), repair.json());
                    assert_eq!(planned["findings"], report["findings"], "{place}");
                    assert_eq!(planned["head_hash"], report["head_hash"], "{place}");
                    let again = import(&db).done().json();
                    assert_eq!(again["head_hash"], good["head_hash"], "{place}");
                    assert_eq!(again["state_root"], good["state_root"], "{place}");
                    let check = cambium!("db", "check", "--json", "-d", db).json();
                    let history = report["lost_history"].as_array().unwrap();
                    match report["whole"] == true || check["sound"] == true {
                        true => assert_eq!(check["sound"], true, "{place}: {check}"),
                        false => {
                            let told = repair.stdout;
                            assert!(repair.code == 4, "{place}: {told}");
                            let says = told.contains("import the chain, from its first block");
                            assert!(says || !history.is_empty(), "{place}: {told}");
                            lost += 1;
                        }
                    }
                }
            }
        }
    }
    say(&format!(
        "{} files: {found} flips found, of {lost} something stays lost, {recovered} recovered from \
         with a note, {harmless} harmless",
        files.len()
    ));
    assert!(found > 0 && recovered > 0 && lost < found);
}

enum Outcome {
    /// The byte was not needed.
    Harmless,
    /// A note described the recovery.
    Recovered,
    /// Reported as damage, with a repair as advice.
    Found,
}

fn after_a_flip(db: &Path, good: &Value, file: &Path, place: &str) -> Outcome {
    let check = cambium!("db", "check", "--json", "-d", db);
    let name = file.file_name().unwrap().to_str().unwrap();
    match check.code {
        0 => {
            let stats = cambium!("db", "stats", "--json", "-d", db).done().json();
            assert_eq!(
                stats["head_hash"], good["head_hash"],
                "{place}: {}",
                check.stderr
            );
            assert_eq!(check.json()["sound"], true, "{place}");
            if check.stderr.contains("note: ") {
                assert!(check.stderr.contains(name), "{place}: {}", check.stderr);
                Outcome::Recovered
            } else {
                Outcome::Harmless
            }
        }
        4 => {
            let told = format!("{}{}", check.stderr, check.stdout);
            assert!(told.contains(name), "{place}: {told}");
            assert!(told.contains("db repair"), "{place}: {told}");
            Outcome::Found
        }
        code => panic!(
            "{place}: exit code {code}: {}{}",
            check.stdout, check.stderr
        ),
    }
}

fn files_of(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.file_name().is_some_and(|name| name != "cambium.lock") {
                let len = path.metadata().unwrap().len();
                files.push((path.strip_prefix(dir).unwrap().to_owned(), len));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn a_file_that_is_gone_is_named() {
    let fixture = Fixture::generate(300, 10, 50);
    fixture.import(&fixture.chain()).done();
    for (file, _) in files_of(&fixture.db()) {
        let db = fixture.path("without");
        let _ = fs::remove_dir_all(&db);
        copy_dir(&fixture.db(), &db);
        fs::remove_file(db.join(&file)).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        let check = cambium!("db", "check", "-d", db);
        let told = format!("{}{}", check.stderr, check.stdout);
        match name {
            // The last two checkpoints stand in for each other, and the log for the index of blocks.
            "blocks.idx" => assert_eq!(check.code, 0, "{told}"),
            name if name.starts_with("checkpoint") => assert_eq!(check.code, 0, "{told}"),
            name => {
                assert_eq!(check.code, 4, "{name}: {told}");
                assert!(told.contains(name), "{name}: {told}");
                assert!(told.contains("db repair"), "{name}: {told}");
            }
        }
    }
    // All checkpoints are too much. The blocks are not thrown away for that.
    let db = fixture.path("without");
    let _ = fs::remove_dir_all(&db);
    copy_dir(&fixture.db(), &db);
    for (file, _) in files_of(&db) {
        if file.to_str().unwrap().starts_with("checkpoint-") {
            fs::remove_file(db.join(file)).unwrap();
        }
    }
    cambium!("db", "check", "-d", db).fails(4, &["`checkpoint-*` were lost"]);
    cambium!("db", "repair", "-d", db).fails(4, &["`checkpoint-*` were lost", "import the chain"]);
    let (genesis, log) = (fixture.genesis(), db.join("log/00000001.log"));
    let before = fs::read(&log).unwrap();
    cambium!("init", "-d", db, "--genesis", genesis).fails(4, &["were lost"]);
    assert!(before == fs::read(&log).unwrap());
}

/// A full disk as the engine sees it: without privileges a real one can't be made here.
#[test]
fn a_full_disk_stops_an_import_at_a_good_block_and_room_lets_it_go_on() {
    let fixture = Fixture::generate(500, 30, 100);
    let options = Options {
        memory_bytes: 1 << 20,
        ..Options::default()
    };
    let blocks = fixture.blocks();
    let headers: Vec<_> = blocks
        .iter()
        .map(|raw| raw.decode().unwrap().header)
        .collect();
    let mut stopped_at = Vec::new();
    for room in (0..40).map(|step: u64| step * 64 * 1024) {
        let disk = cambium::FaultyDisk::new(room);
        let chain = Chain::init(
            Arc::new(disk.clone()),
            fixture.genesis(),
            options,
            &mut |_| {},
        )
        .unwrap();
        let used: u64 = disk
            .files()
            .iter()
            .map(|file| disk.contents(file).unwrap().len() as u64)
            .sum();
        disk.limit_space(Some(used + room));
        let import = |chain: &Chain| chain.import(BlockSource::open(fixture.chain())?, &mut |_| {});
        let Err(error) = import(&chain) else { break };
        let told = error.to_string();
        assert!(
            told.contains("disk full: free some space") || told.contains("No space"),
            "{told}"
        );
        let head = chain.db().head();
        stopped_at.push(head.number);
        drop(chain);

        // The next start, with some room.
        let disk = disk.crash();
        let (chain, _) = Chain::open(Arc::new(disk), options).unwrap();
        let reopened = chain.db().head();
        assert!(reopened.number >= head.number, "{head} was committed");
        if reopened.number > 0 {
            let header = &headers[reopened.number as usize - 1];
            assert_eq!(reopened.hash, header.hash_slow());
            assert_eq!(chain.db().view().unwrap().state_root(), header.state_root);
        }
        let summary = import(&chain).unwrap();
        assert_eq!(summary.done.head.number, headers.len() as u64);
        assert!(chain.db().check(&mut |_| {}).unwrap().damage.is_empty());
    }
    say(&format!(
        "full disks stopped imports at blocks {stopped_at:?}"
    ));
    assert!(!stopped_at.is_empty());
}

/// After a failed write the engine stops: its state in memory may not be on the disk.
#[test]
fn a_failed_sync_stops_the_engine_until_it_is_opened_again() {
    let fixture = Fixture::generate(100, 6, 10);
    let disk = cambium::FaultyDisk::new(3);
    let chain = Chain::init(
        Arc::new(disk.clone()),
        fixture.genesis(),
        Options::default(),
        &mut |_| {},
    )
    .unwrap();
    disk.inject(cambium::disk::Fault::FailedSync, "log", 1);
    let import = |chain: &Chain| chain.import(BlockSource::open(fixture.chain())?, &mut |_| {});
    assert!(matches!(import(&chain), Err(ChainError::State(_))));
    let again = import(&chain);
    assert!(
        matches!(
            again,
            Err(ChainError::State(
                StateError::Poisoned(_) | StateError::Store(StoreError::Poisoned { .. })
            ))
        ),
        "it goes on after a failed sync"
    );
    drop(chain);
    let (chain, _) = Chain::open(Arc::new(disk.crash()), Options::default()).unwrap();
    assert_eq!(import(&chain).unwrap().done.head.number, 6);
}
