//! Programs that the two commands install on machines of all kinds, with stand-ins for the
//! installers and for the installed programs.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

/// Programs of the system that the script may use as they are.
const TOOLS: [&str; 9] = [
    "bash", "sh", "sed", "sort", "head", "env", "cat", "chmod", "grep",
];

/// A machine before the script is run on it.
#[derive(Clone, Copy)]
struct Machine {
    is_root: bool,
    has_sudo: bool,
    has_apt: bool,
    /// Whether the archive has rustup: Debian 13 and Ubuntu 24.04 do, Debian 12 and Ubuntu 22.04
    /// don't.
    has_package: bool,
    has_cc: bool,
    has_curl: bool,
    is_offline: bool,
    rust: Rust,
}

#[derive(Clone, Copy, PartialEq)]
enum Rust {
    None,
    /// The archive's own, and too old.
    OldOfArchive,
    /// rustup's, and too old.
    OldOfRustup,
    /// rustup's, where a shell of its owner finds it and this one does not.
    NotInPath,
    New,
}

const FRESH: Machine = Machine {
    is_root: true,
    has_sudo: false,
    has_apt: true,
    has_package: true,
    has_cc: false,
    has_curl: false,
    is_offline: false,
    rust: Rust::None,
};

/// Outcome of a run.
struct Outcome {
    succeeded: bool,
    /// The programs called that install something, in order.
    calls: Vec<String>,
    told: String,
    /// The compiler that building would use.
    rustc: String,
}

fn program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A compiler and its cargo.
fn rust(bin: &Path, version: &str) {
    program(&bin.join("rustc"), &format!("echo 'rustc {version} (abc)'"));
    program(&bin.join("cargo"), &format!("echo 'cargo {version}'"));
}

/// A rustup whose compiler is `version`, or none, until the stable toolchain is asked for.
fn rustup(bin: &Path, state: &Path, version: &str) {
    let default = state.join("default");
    fs::write(&default, version).unwrap();
    let default = default.display();
    let stable = state.join("stable");
    let stable = stable.display();
    program(
        &bin.join("rustup"),
        &format!("echo \"rustup $*\" >> \"$CALLS\"; echo 1.99.0 > {stable}"),
    );
    let of = format!(
        "if [ \"$RUSTUP_TOOLCHAIN\" = stable ]; then version=$(cat {stable}); else version=$(cat \
         {default}); fi; [ -n \"$version\" ] || exit 1"
    );
    for name in ["rustc", "cargo"] {
        let script = format!("{of}; echo \"{name} $version (abc)\"");
        program(&bin.join(name), &script);
    }
}

/// The archive's programs, which take what they install from `spare`.
fn apt(machine: &Machine, bin: &Path, spare: &Path) {
    let install = format!(
        "case \"$1\" in update) exit 0;; esac; echo \"apt-get $*\" >> \"$CALLS\"
         for package in \"$@\"; do case $package in
           build-essential) /bin/cp {spare}/cc {bin}/;;
           curl) /bin/cp {spare}/curl {bin}/;;
           rustup) {has_package} || exit 100
             for one in rustup rustc cargo; do /bin/cp {spare}/$one {bin}/; done;;
         esac; done",
        spare = spare.display(),
        bin = bin.display(),
        has_package = machine.has_package,
    );
    program(&bin.join("apt-get"), &install);
    let candidate = if machine.has_package {
        "1.27.1"
    } else {
        "(none)"
    };
    let policy = format!("echo \"$2:\"; echo '  Candidate: {candidate}'");
    program(&bin.join("apt-cache"), &policy);
}

fn run(machine: Machine) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (bin, home, spare) = (at("bin"), at("home"), at("spare"));
    let cargo_bin = home.join(".cargo/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&home).unwrap();
    for tool in TOOLS {
        let of_system = ["/usr/bin", "/bin"].map(|dir| PathBuf::from(dir).join(tool));
        let of_system = of_system.iter().find(|path| path.exists()).unwrap();
        symlink(of_system, bin.join(tool)).unwrap();
    }
    let user = if machine.is_root { 0 } else { 1000 };
    program(&bin.join("id"), &format!("echo {user}"));
    if machine.has_sudo {
        program(&bin.join("sudo"), "echo sudo >> \"$CALLS\"; exec \"$@\"");
    }
    // Installations copy from `spare`.
    rustup(&spare, dir.path(), "");
    program(&spare.join("cc"), ":");
    let installer = format!(
        "mkdir() {{ /bin/mkdir \"$@\"; }}; mkdir -p {to}; for one in rustup rustc cargo; do /bin/cp \
         {from}/$one {to}/; done; echo \"installer $*\" >> \"$CALLS\"",
        to = cargo_bin.display(),
        from = spare.display(),
    );
    program(&spare.join("installer"), &installer);
    let get = match machine.is_offline {
        true => "echo 'could not resolve host' >&2; exit 6".to_owned(),
        false => format!(
            "echo \"curl $*\" >> \"$CALLS\"; cat {}",
            spare.join("installer").display()
        ),
    };
    program(&spare.join("curl"), &get);
    if machine.has_cc {
        program(&bin.join("cc"), ":");
    }
    if machine.has_curl {
        fs::copy(spare.join("curl"), bin.join("curl")).unwrap();
    }
    if machine.has_apt {
        apt(&machine, &bin, &spare);
    }
    match machine.rust {
        Rust::None => {}
        Rust::OldOfArchive => rust(&bin, "1.63.0"),
        Rust::OldOfRustup => rustup(&bin, &home, "1.70.0"),
        Rust::NotInPath => rust(&cargo_bin, "1.99.0"),
        Rust::New => rust(&bin, "1.99.0"),
    }
    let calls = at("calls");
    fs::write(&calls, "").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = Command::new(bin.join("bash"))
        .args([
            "-euo",
            "pipefail",
            "-c",
            ". scripts/setup.sh; rustc --version",
        ])
        .current_dir(root)
        .env_clear()
        .envs([
            ("PATH", bin.as_os_str()),
            ("HOME", home.as_os_str()),
            ("CALLS", calls.as_os_str()),
        ])
        .output()
        .unwrap();
    let calls = fs::read_to_string(&calls).unwrap();
    Outcome {
        succeeded: done.status.success(),
        calls: calls.lines().map(str::to_owned).collect(),
        told: String::from_utf8(done.stderr).unwrap(),
        rustc: String::from_utf8(done.stdout).unwrap().trim().to_owned(),
    }
}

impl Outcome {
    /// Asserts success after `calls`, in order, each given by its beginning.
    #[track_caller]
    fn is_ready_after(&self, calls: &[&str]) {
        assert!(self.succeeded, "{}", self.told);
        assert!(self.rustc.contains("1.99.0"), "{}", self.rustc);
        let as_expected = self.calls.len() == calls.len()
            && self
                .calls
                .iter()
                .zip(calls)
                .all(|(call, start)| call.starts_with(start));
        assert!(as_expected, "{:?}, not {calls:?}", self.calls);
    }

    /// Ended with one sentence that has all these parts, and nothing installed but `calls`.
    #[track_caller]
    fn says(&self, parts: &[&str], calls: usize) {
        assert!(!self.succeeded, "{}", self.told);
        let last = self.told.trim_end().lines().last().unwrap_or_default();
        for part in parts {
            assert!(last.contains(part), "{part:?} is not in {last:?}");
        }
        assert_eq!(self.calls.len(), calls, "{:?}", self.calls);
    }
}

const TOOLCHAIN: &str = "rustup toolchain install stable";

#[test]
fn a_machine_that_has_all_gets_nothing() {
    let ready = Machine {
        has_cc: true,
        rust: Rust::New,
        ..FRESH
    };
    run(ready).is_ready_after(&[]);
    run(Machine {
        rust: Rust::NotInPath,
        ..ready
    })
    .is_ready_after(&[]);
    // Without root, sudo, an archive, a network.
    run(Machine {
        is_root: false,
        has_apt: false,
        is_offline: true,
        ..ready
    })
    .is_ready_after(&[]);
}

#[test]
fn a_fresh_system_whose_archive_has_rustup() {
    let build = "apt-get install -y -qq build-essential";
    let from_archive = "apt-get install -y -qq rustup";
    run(FRESH).is_ready_after(&[build, from_archive, TOOLCHAIN]);
    run(Machine {
        is_root: false,
        has_sudo: true,
        ..FRESH
    })
    .is_ready_after(&["sudo", "sudo", build, "sudo", from_archive, TOOLCHAIN]);
}

#[test]
fn a_fresh_system_whose_archive_has_none() {
    let build = "apt-get install -y -qq build-essential";
    let curl = "apt-get install -y -qq curl ca-certificates";
    let get = "curl --proto =https --tlsv1.2";
    let fresh = Machine {
        has_package: false,
        ..FRESH
    };
    let done = run(fresh);
    done.is_ready_after(&[build, curl, get, "installer -y", TOOLCHAIN]);
    assert!(
        done.told.contains("its own installer, over HTTPS"),
        "{}",
        done.told
    );
    run(Machine {
        has_curl: true,
        has_cc: true,
        is_root: false,
        ..fresh
    })
    .is_ready_after(&[get, "installer -y", TOOLCHAIN]);
}

#[test]
fn an_older_rust_is_left_alone_and_a_newer_one_used() {
    let with_cc = Machine {
        has_cc: true,
        has_curl: true,
        ..FRESH
    };
    let get = "curl --proto =https --tlsv1.2";
    // The archive's rustup can't be installed beside the archive's compiler.
    run(Machine {
        rust: Rust::OldOfArchive,
        ..with_cc
    })
    .is_ready_after(&[get, "installer -y", TOOLCHAIN]);
    let done = run(Machine {
        rust: Rust::OldOfRustup,
        ..with_cc
    });
    done.is_ready_after(&[TOOLCHAIN]);
    assert!(done.told.contains("found: 1.70.0"), "{}", done.told);
}

#[test]
fn what_can_not_be_installed_is_said_in_a_sentence() {
    run(Machine {
        is_root: false,
        ..FRESH
    })
    .says(&["Run as root", "apt-get install -y build-essential"], 0);
    run(Machine {
        is_root: false,
        has_cc: true,
        has_package: false,
        ..FRESH
    })
    .says(
        &["Run as root", "apt-get install -y curl ca-certificates"],
        0,
    );
    run(Machine {
        has_apt: false,
        ..FRESH
    })
    .says(&["no apt-get", "build-essential"], 0);
    run(Machine {
        has_cc: true,
        has_curl: true,
        has_package: false,
        is_offline: true,
        ..FRESH
    })
    .says(&["install Rust 1.", "https://rustup.rs"], 0);
}
