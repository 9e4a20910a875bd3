//! The example in Go, through the C ABI.

mod support;

use std::process::Command;
use support::{c_compiler, libraries, project, run, skip, works};

#[test]
fn the_go_example_runs_as_it_says() {
    if !works("go", &["version"]) {
        skip("examples/go", "there is no Go");
        return;
    }
    if c_compiler().is_none() {
        skip("examples/go", "there is no C compiler");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("ledger");
    let (include, libraries) = (project().join("crates/capi/include"), libraries());
    let link = format!("-L{0} -lcambium_capi -Wl,-rpath,{0}", libraries.display());
    let mut build = Command::new("go");
    build
        .current_dir(project().join("examples/go"))
        .env("CGO_ENABLED", "1")
        .env(
            "CGO_CFLAGS",
            format!("-I{} -Wall -Werror", include.display()),
        )
        .env("CGO_LDFLAGS", link)
        // It uses nothing but the standard library.
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .args(["build", "-o"])
        .arg(&program);
    run(&mut build);
    // Pointers of Go that C must not keep are checked.
    let text = run(Command::new(&program)
        .env("GODEBUG", "cgocheck=1")
        .arg(directory.path().join("data")));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "alice has 70",
            "bob\0\0 has 30",
            "carol is known: false",
            "30 is proved: true"
        ]
    );
    assert!(lines[4].starts_with("31 is refused: the claim about the key"));
}
