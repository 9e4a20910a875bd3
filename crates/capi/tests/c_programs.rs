//! C programs against the header and the library: the example, and one that tries every function with
//! right and wrong arguments. Each is run plainly, and with the sanitizers of addresses and of undefined
//! behaviour where the compiler has them.

mod support;

use cambium::{StdDisk, U256};
use cambium_testkit::plain::two_blocks;
use std::{path::Path, process::Command, sync::Arc};
use support::{c_compiler, compile, project, run, skip};

const SANITIZE: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Compiles a program plainly and with sanitizers, and runs each with a directory of its own.
fn run_all(source: &Path, prepare: impl Fn(&Path)) -> Vec<String> {
    let name = source.display();
    let Some(compiler) = c_compiler() else {
        skip(&name.to_string(), "there is no C compiler");
        return Vec::new();
    };
    let directory = tempfile::tempdir().expect("a directory");
    let mut printed = Vec::new();
    for (kind, flags) in [("plain", &["-std=c11"][..]), ("sanitized", &SANITIZE[..])] {
        let program = directory.path().join(format!("program-{kind}"));
        let mut build = compile(&compiler, source, &program, flags);
        if kind == "sanitized" && !links_sanitizers(&compiler, directory.path()) {
            skip(&format!("{name} with sanitizers"), "they don't link here");
            continue;
        }
        run(&mut build);
        let data = directory.path().join(format!("data-{kind}"));
        prepare(&data);
        printed.push(run(Command::new(program).arg(&data)));
    }
    printed
}

fn links_sanitizers(compiler: &str, directory: &Path) -> bool {
    let (source, program) = (directory.join("empty.c"), directory.join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("write a source");
    let built = Command::new(compiler)
        .args(SANITIZE)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    built.is_ok_and(|built| built.status.success()) && support::works(program, &[])
}

#[test]
fn the_example_has_at_most_a_hundred_lines_and_runs_as_it_says() {
    let source = project().join("examples/c/ledger.c");
    let lines = std::fs::read_to_string(&source).expect("the example");
    assert!(lines.lines().count() <= 100);
    for text in run_all(&source, |_| {}) {
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "commit 2: alice to bob, 1");
        assert!(lines[1].starts_with("once more: the transaction can't be committed"));
        assert_eq!(lines[2], "commit 3: alice to bob, 30");
        assert_eq!(lines[3..5], ["alice has 69", "bob has 31"]);
        assert!(lines[5].starts_with("proved to whoever knows the root"));
        assert_eq!(lines[6], "rolled back to commit 1");
    }
}

#[test]
fn every_function_does_what_the_header_says_and_refuses_what_is_wrong() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/all.c");
    let chain = |directory: &Path| {
        let disk = StdDisk::new(directory.join("chain"));
        two_blocks(Arc::new(disk), U256::from(1000));
    };
    for text in run_all(&source, chain) {
        assert_eq!(text, "all is well\n");
    }
}

#[test]
fn the_header_is_that_of_a_cpp_program_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("program.cpp");
    let text = "#include <cambium.h>\nint main() { return cambium_version()[0] == '0' ? 0 : 1; }\n";
    std::fs::write(&source, text).expect("write a source");
    if !support::works("c++", &["--version"]) {
        skip("the header in C++", "there is no C++ compiler");
        return;
    }
    let program = directory.path().join("program");
    let mut build = compile("c++", &source, &program, &["-std=c++11"]);
    run(&mut build);
    run(&mut Command::new(program));
}
