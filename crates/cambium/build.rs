//! Passes the commit that it is built from to the program, for `cambium --version`. Without git, or outside a checkout,
//! it passes none.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (name, variable) in [("CAMBIUM_TARGET", "TARGET"), ("CAMBIUM_PROFILE", "PROFILE")] {
        let value = env::var(variable).unwrap_or_default();
        println!("cargo::rustc-env={name}={value}");
    }
    println!("cargo::rustc-env=CAMBIUM_FEATURES={}", features());
    // HEAD changes with the branch, and one of the others with the commit of the branch. A file that is
    // not there would count as changed each time.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let names = ["HEAD", "logs/HEAD", "packed-refs"].map(str::to_owned);
    for name in names.into_iter().chain(branch) {
        let path = git(&["rev-parse", "--git-path", &name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // Sources that were copied into a checkout of something else have no commit of their own.
    let is_own = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| is_own) {
        println!("cargo::rustc-env=CAMBIUM_COMMIT={commit}");
    }
}

/// The features of the crate that are on.
fn features() -> String {
    let names = env::vars().filter_map(|(name, _)| {
        let name = name.strip_prefix("CARGO_FEATURE_")?.to_ascii_lowercase();
        (name != "default").then_some(name)
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.join(",")
}

/// Returns the output of git, if it succeeds.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
