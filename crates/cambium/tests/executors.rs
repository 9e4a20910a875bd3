//! Which executor runs blocks, and options of `import` that can't have their effect.

use crate::support::{Fixture, Run, cambium};

/// Imports the chain into a new database, with its access lists if `lists`.
fn import(fixture: &Fixture, lists: bool, more: &[&str]) -> Run {
    let db = tempfile::tempdir().expect("a folder");
    let mut args: Vec<std::ffi::OsString> = vec!["import".into(), "--genesis".into()];
    args.extend([
        fixture.genesis().into(),
        "-d".into(),
        db.path().join("db").into(),
    ]);
    if lists {
        args.extend([
            "--access-lists".into(),
            fixture.path("access-lists.rlp").into(),
        ]);
    }
    args.extend(more.iter().map(|arg| (*arg).into()));
    args.push(fixture.chain().into());
    cambium(args).done()
}

fn executor(run: &Run) -> &str {
    let mut lines = run.stdout.lines().map(str::trim_start);
    let line = lines.find_map(|line| line.strip_prefix("executor"));
    line.expect("a line for the executor").trim()
}

#[test]
fn the_report_says_which_executor_ran_and_why() {
    let fixture = Fixture::generate_with(60, 3, 5, &["--access-lists"]);
    for (lists, more, expected) in [
        (true, &["--threads", "2"][..], "parallel: "),
        (
            false,
            &["--threads", "2"],
            "sequential: no access lists, and fewer than 4 threads",
        ),
        (
            false,
            &["--threads", "4"],
            "optimistic: no access lists, 4 threads; or sequential, whichever was faster",
        ),
        (true, &["--executor", "sequential"], "sequential: as told"),
        (
            false,
            &["--executor", "batched"],
            "sequential: no access lists",
        ),
        (
            true,
            &["--threads", "2", "--batch", "3"],
            "by access lists, 3 of 3 blocks at once with others",
        ),
    ] {
        let run = import(&fixture, lists, more);
        assert!(
            executor(&run).starts_with(expected),
            "{more:?}: {}",
            executor(&run)
        );
    }
}

#[test]
fn options_without_an_effect_are_told() {
    let fixture = Fixture::generate_with(60, 3, 5, &["--access-lists"]);
    let two_threads = ["--threads", "2", "--batch", "3"];
    let one_thread = ["--threads", "1", "--batch", "3"];
    let told = |lists, more: &[&str]| import(&fixture, lists, more).stderr;
    assert!(!told(true, &two_threads).contains("no effect"));
    assert!(!told(true, &["--apply", "--executor", "parallel"]).contains("no effect"));
    let without_lists = "had no effect: it needs access lists, and no block came with one";
    assert!(told(false, &two_threads).contains(&format!("--batch {without_lists}")));
    assert!(told(false, &["--apply"]).contains(&format!("--apply {without_lists}")));
    let parallel = told(false, &["--executor", "parallel"]);
    assert!(parallel.contains(&format!("--executor batched or parallel {without_lists}")));
    let applied = told(true, &["--apply", "--threads", "2", "--batch", "3"]);
    assert!(applied.contains("--batch had no effect: --apply executes no block"));
    let on_one = told(true, &one_thread);
    for on_one in [&on_one, &told(false, &one_thread)] {
        assert_eq!(on_one.matches("--batch").count(), 1, "{on_one}");
    }
    assert!(on_one.contains("--batch had no effect: on one thread, blocks are executed faster"));
}

#[test]
fn where_no_block_was_executed_no_executor_is_named() {
    let fixture = Fixture::generate_with(60, 3, 5, &["--access-lists"]);
    let applied = import(&fixture, true, &["--apply", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&applied.stdout).expect("JSON");
    assert_eq!(
        (&json["applied"], &json["executor"]),
        (&3.into(), &serde_json::Value::Null)
    );
    let db = tempfile::tempdir().expect("a folder");
    let again = || {
        let dir = db.path().join("db");
        let args: [std::ffi::OsString; 8] = [
            "import".into(),
            "--genesis".into(),
            fixture.genesis().into(),
            "-d".into(),
            dir.into(),
            "--batch=3".into(),
            "--json".into(),
            fixture.chain().into(),
        ];
        cambium(args).done()
    };
    again();
    let skipped = again();
    let json: serde_json::Value = serde_json::from_str(&skipped.stdout).expect("JSON");
    assert_eq!(
        (&json["skipped"], &json["executor"]),
        (&3.into(), &serde_json::Value::Null)
    );
    assert!(!skipped.stderr.contains("--batch"), "{}", skipped.stderr);
}
