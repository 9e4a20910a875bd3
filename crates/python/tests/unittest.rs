//! Runs the tests in Python: makes a package of the module that cargo has built, and of the files
//! beside it, as maturin would.

use cambium::{StdDisk, U256};
use cambium_testkit::plain::two_blocks;
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// The shared library that cargo has built for this test.
fn library() -> PathBuf {
    let name = format!(
        "{}cambium_python{}",
        env::consts::DLL_PREFIX,
        env::consts::DLL_SUFFIX
    );
    let test = env::current_exe().expect("the path of this test");
    let directories = test.ancestors().skip(1).take(2);
    let mut found = directories.map(|directory| directory.join(&name));
    found
        .find(|path| path.exists())
        .expect("the module beside this test")
}

/// Puts a package together, of which Python can import `cambium`.
fn package(directory: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = directory.join("cambium");
    fs::create_dir(&package).expect("a directory");
    for name in ["__init__.py", "_native.pyi", "py.typed"] {
        let from = root.join("python/cambium").join(name);
        fs::copy(from, package.join(name)).expect("copy a file");
    }
    fs::copy(library(), package.join("_native.abi3.so")).expect("copy the module");
}

/// The interpreter: `PYTHON`, or `python3`; `None` unless it can load the module.
fn python() -> Option<String> {
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let new_enough = "import sys; sys.exit(sys.version_info < (3, 9))";
    let found = Command::new(&python).args(["-c", new_enough]).output();
    found
        .is_ok_and(|output| output.status.success())
        .then_some(python)
}

#[test]
fn the_tests_in_python_pass() {
    let Some(python) = python() else {
        // Past the capture of a test's output.
        let why = "NOT RUN: the tests in Python: there is no Python 3.9 or newer";
        let _ = writeln!(std::io::stderr(), "{why}");
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().expect("a directory");
    package(directory.path());
    let chain_directory = directory.path().join("chain");
    two_blocks(
        Arc::new(StdDisk::new(&*chain_directory)),
        U256::from(1) << 200,
    );
    let output = Command::new(python)
        .current_dir(directory.path())
        .env("PYTHONPATH", directory.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CAMBIUM_TEST_CHAIN", chain_directory)
        .env("CAMBIUM_EXAMPLES", root.join("../../examples/python"))
        .arg(root.join("tests/test_bindings.py"))
        .arg("-v")
        .output()
        .expect("start Python");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let skipped = text.lines().filter(|line| line.contains("... skipped"));
    assert_eq!(skipped.count(), 0, "{text}");
    let ran = text.lines().find(|line| line.starts_with("Ran "));
    let _ = writeln!(std::io::stderr(), "Python: {}", ran.unwrap_or("no summary"));
}
