//! The program reads a database that another process of it writes.

use crate::support;
use crate::support::{Fixture, program, say};
use serde_json::Value;
use std::{process::Stdio, time::Instant};

#[test]
fn commands_that_read_work_beside_an_import() {
    let fixture = Fixture::generate_with(500, 300, 40, &["--fork", "osaka"]);
    let db = fixture.db();
    cambium!("init", "--genesis", fixture.genesis(), "--datadir", db).done();
    let mut import = program();
    // Little memory and small files: merges, new files and removals all the time.
    import
        .args(["import", "--memory", "2M", "--segment-size", "64K"])
        .args(["--segment-buffer", "16K", "--log-file-size", "64K"])
        .arg("--datadir")
        .arg(&db)
        .arg(fixture.chain())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let mut import = import.spawn().expect("the program starts");
    let (mut heads, mut rounds) = (Vec::new(), 0);
    let out = fixture.path("part.rlp");
    let mut is_over = false;
    while !is_over {
        // Once more when it is through.
        is_over = import.try_wait().expect("its state").is_some();
        rounds += 1;
        let stats: Value = cambium!("db", "stats", "--json", "--datadir", db)
            .done()
            .json();
        let head = support::number(&stats["head_number"]);
        heads.push(head);
        let address = "0x0000000000000000000000000000000000000001";
        cambium!("get", "--json", "--datadir", db, address).done();
        cambium!("prove", "--json", "--datadir", db, address).done();
        if head > 0 {
            let number = head.to_string();
            cambium!("bal", "--json", "--datadir", db, number).done();
            let (from, to) = (head.saturating_sub(20).max(1).to_string(), number);
            cambium!(
                "export",
                "--force",
                "--datadir",
                db,
                "--from",
                from,
                "--to",
                to,
                out
            )
            .done();
        }
        if rounds % 4 == 1 {
            let copy = fixture.path(&format!("copy-{rounds}"));
            cambium!("db", "backup", "--json", "--datadir", db, copy).done();
            cambium!("db", "check", "--json", "--datadir", copy).done();
            // Continuing with the copy leaves shared files unchanged.
            if head > 0 {
                cambium!("unwind", "--datadir", copy, "--to", (head - 1).to_string()).done();
            }
        }
        if rounds % 4 == 0 {
            // On a busy machine the writer may get further ahead than it waits for readers: opening again goes on.
            let check = || cambium!("db", "check", "--json", "--datadir", db);
            let is_behind =
                |run: &support::Run| run.stderr.contains("catch up, or open the database again");
            let mut tries = (0..8).map(|_| check());
            tries
                .find(|run| !is_behind(run))
                .expect("a check that keeps up")
                .done();
        }
    }
    assert!(import.wait().expect("its end").success());
    assert!(heads.is_sorted(), "{heads:?}");
    assert_eq!(heads.last(), Some(&300));
    let between = heads.iter().filter(|head| (1..300).contains(*head)).count();
    say(&format!(
        "{rounds} rounds in {:.1} s, of which {between} in the middle of the import",
        start.elapsed().as_secs_f64()
    ));
    assert!(between > 0, "{heads:?}");
    let left = fixture.db().join("readers");
    assert!(std::fs::read_dir(left).expect("a folder").next().is_none());
}

/// The write lock is what a command that changes something waits for in vain.
#[test]
fn commands_that_write_are_refused_beside_a_writer_and_a_reader_is_not() {
    let fixture = Fixture::generate(100, 3, 5);
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    let open = cambium::StdDisk::new(&db);
    let opened = cambium::Chain::open(std::sync::Arc::new(open), cambium::Options::default());
    let (chain, _) = opened.expect("a database");
    cambium!("unwind", "--datadir", db, "--to", "1").fails(1, &["in use by"]);
    cambium!("db", "stats", "--datadir", db).done();
    drop(chain);
}
