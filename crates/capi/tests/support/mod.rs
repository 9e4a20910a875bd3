//! What the tests of foreign programs share: where the library is, and how programs are run.
#![allow(dead_code)] // Each test uses a part of it.

use std::{
    env,
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// The directory of the checkout, above `crates`.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The directory with the shared library that cargo has built for this test.
pub(crate) fn libraries() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let found = test.ancestors().skip(1).take(2);
    let found = found.map(Path::to_path_buf).find(|directory| {
        directory
            .join(format!(
                "{}cambium_capi{}",
                env::consts::DLL_PREFIX,
                env::consts::DLL_SUFFIX
            ))
            .exists()
    });
    found.expect("the shared library beside this test")
}

/// Says what is not run, past the capture of a test's output.
pub(crate) fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT RUN: {what}: {why}");
}

/// Whether a program can be started with these arguments, and succeeds.
pub(crate) fn works(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a program to its end. Returns what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("start the program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// The C compiler: `CC`, or `cc`; `None` if there is none.
pub(crate) fn c_compiler() -> Option<String> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    works(&compiler, &["--version"]).then_some(compiler)
}

/// Compiles a C program against the library, with warnings as errors.
pub(crate) fn compile(compiler: &str, source: &Path, program: &Path, flags: &[&str]) -> Command {
    let libraries = libraries();
    let mut command = Command::new(compiler);
    command
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .args(flags)
        .arg("-I")
        .arg(project().join("crates/capi/include"))
        .arg(source)
        .arg("-L")
        .arg(&libraries)
        .arg("-lcambium_capi")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(["-lpthread", "-o"])
        .arg(program);
    command
}
