//! `kill -9` at random moments of an import: every restart is at a committed block with the right
//! root, and nothing is ever imported twice.

mod support;

use cambium::{Chain, Db, History, HistoryOptions, Options, StdDisk, db::FileSizes};
use cambium_seeds::is_long;
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use support::{Fixture, program, say};

/// Xorshift: a random enough row of moments.
struct Moments(u64);

impl Moments {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Little memory and small files, so that merges, checkpoints, new files of the log and the removal
/// of segments are interrupted as well.
fn options() -> Options {
    Options {
        memory_bytes: 2 << 20,
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 16 << 10,
            log_file_bytes_max: 64 << 10,
            log_extend_bytes: 64 << 10,
            ..FileSizes::default()
        },
        ..Options::default()
    }
}

/// An import of the fixture's chain with these [`options`].
fn import(fixture: &Fixture, db: &str) -> Command {
    let mut command = program();
    command
        .args(["import", "--memory", "2M", "--segment-size", "64K"])
        .args(["--segment-buffer", "16K", "--log-file-size", "64K"])
        .args(["--history", "archive"])
        .arg("--genesis")
        .arg(fixture.genesis())
        .arg("--datadir")
        .arg(fixture.path(db))
        .arg(fixture.chain())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Whether there is a history; if so, brings it to the head, and compares what it has of some blocks
/// with the log.
fn follow(db: &Db, dir: PathBuf, moments: &mut Moments) -> bool {
    let disk = Arc::new(StdDisk::new(dir));
    if !History::exists(&*disk).expect("a look") {
        return false;
    }
    let options = HistoryOptions {
        memory_bytes: 256 << 10,
        buffer_bytes: 16 << 10,
        ..HistoryOptions::default()
    };
    let history = History::open(disk, db, options).expect("a history that is whole");
    let upto = history.catch_up(db, &mut |_| true).expect("its blocks");
    assert_eq!(upto, db.head());
    history.check().expect("files that are whole");
    for _ in 0..3 {
        let number = 1 + moments.below(upto.number.max(1));
        history.check_block(db, number).expect("the log's values");
        let is_proved = history.check_nodes(db, number - 1).expect("nodes");
        assert!(is_proved, "an archive");
    }
    true
}

#[test]
fn every_restart_is_at_a_committed_block_with_the_right_root() {
    let kills_wanted = if is_long() { 1000 } else { 12 };
    let fixture = Fixture::generate(2_000, 120, 100);
    let headers: Vec<_> = fixture
        .blocks()
        .iter()
        .map(|raw| raw.decode().expect("a block").header)
        .collect();
    let import = |db: &str| import(&fixture, db);
    // How long a whole import takes here and now.
    let start = Instant::now();
    assert!(import("whole").status().expect("a run").success());
    let whole = start.elapsed();

    let mut moments = Moments(0x9e37_79b9_7f4a_7c15);
    let (mut kills, mut rounds, mut ended, mut replayed) = (0, 0, 0, 0);
    let (mut before, mut checks, mut followed) = (0, 0, 0);
    let mut heads = std::collections::BTreeSet::new();
    while kills < kills_wanted {
        let mut child = import("killed").spawn().expect("the program starts");
        let micros = whole.as_micros() as u64;
        thread::sleep(Duration::from_micros(
            micros / 10 + moments.below(2 * micros / 3),
        ));
        child.kill().expect("a signal");
        let output = child.wait_with_output().expect("its end");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("panicked"), "{told}");
        match output.status.code() {
            None => kills += 1,
            // It was done, or just before its end.
            Some(0) => ended += 1,
            Some(code) => panic!("exit code {code} after {kills} kills: {told}"),
        }

        let disk = Arc::new(StdDisk::new(fixture.path("killed")));
        if !cambium::Db::exists(&*disk).expect("a look") {
            continue;
        }
        let (chain, recovery) = match Chain::open(disk, options()) {
            Ok(opened) => opened,
            // Killed while it was made: the next import makes it again.
            Err(cambium::ChainError::State(cambium::StateError::Unfinished)) => continue,
            Err(error) => panic!("after {kills} kills: {error}"),
        };
        replayed += recovery.replayed_blocks;
        let view = chain.db().view().expect("the head's state");
        let head = view.block();
        assert!(
            head.number >= before,
            "{head} comes after block {before} was committed"
        );
        before = head.number;
        heads.insert(head.number);
        if head.number > 0 {
            let header = &headers[head.number as usize - 1];
            assert_eq!(head.hash, header.hash_slow(), "after {kills} kills");
            assert_eq!(view.state_root(), header.state_root, "after {kills} kills");
        }
        if head.number == headers.len() as u64 || kills % 4 == 0 {
            let check = chain.db().check(&mut |_| {}).expect("a check");
            assert_eq!(check.damage, Vec::<String>::new(), "after {kills} kills");
            checks += 1;
        }
        if follow(chain.db(), fixture.path("killed"), &mut moments) {
            followed += 1;
        }
        if head.number == headers.len() as u64 {
            drop((view, chain));
            std::fs::remove_dir_all(fixture.path("killed")).expect("room for the next round");
            (rounds, before) = (rounds + 1, 0);
        }
    }
    say(&format!(
        "{kills} kills ({ended} imports ended before theirs), {rounds} chains imported whole, \
         {} different heads, {replayed} blocks replayed, {checks} full checks, no damage, {followed} histories followed",
        heads.len()
    ));
    assert!(followed >= kills_wanted / 2, "{followed}");
    assert!(heads.len() as u64 >= kills_wanted.min(32) / 4, "{heads:?}");
    assert!(import("killed").status().expect("a run").success());
}
