//! Which executor runs blocks, and options of `import` that can't have their effect.

mod support;

use support::{Fixture, Run, cambium};

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
            "optimistic: no access lists, 4 threads",
        ),
        (true, &["--executor", "sequential"], "sequential: as told"),
        (
            false,
            &["--executor", "batched"],
            "sequential: no access lists",
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
    let on_one = told(true, &one_thread);
    assert!(on_one.contains("--batch had no effect: on one thread, blocks are executed faster"));
}
