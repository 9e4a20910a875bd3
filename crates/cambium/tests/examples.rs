//! The examples run.

use std::{env, path::PathBuf, process::Command};

/// Where cargo puts examples, beside the programs of tests.
fn example(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the test's own program");
    let folder = test.parent().and_then(|deps| deps.parent());
    folder
        .expect("the folder of a profile")
        .join("examples")
        .join(name)
}

#[test]
fn a_rollup_inserts_chooses_and_finalizes() {
    let run = Command::new(example("rollup"))
        .output()
        .expect("it is built with the tests");
    let told = String::from_utf8(run.stdout).unwrap();
    assert!(
        run.status.success(),
        "{told}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(
        told.contains("Bob has 9 wei") && told.contains("refused"),
        "{told}"
    );
}
