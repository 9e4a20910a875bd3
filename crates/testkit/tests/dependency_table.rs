//! The table of crates in `docs/ARCHITECTURE.md` is the map that the layers are kept by: there is a
//! row for each crate, and it lists exactly the crates that the manifest uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::Path,
};

type Table = BTreeMap<String, BTreeSet<String>>;

/// The rows below the heading `Crates`: first column the crate, third what it uses.
fn documented(text: &str) -> Table {
    let section = text
        .split("\n## Crates\n")
        .nth(1)
        .expect("a heading `Crates`");
    let section = section.split("\n## ").next().unwrap_or_default();
    let names = |cell: &str| -> BTreeSet<String> {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let [name, _, uses] = cells[..] else {
            panic!("three columns in {row:?}")
        };
        let name = names(name).pop_first().expect("a name in the first column");
        (name, names(uses))
    })
    .collect()
}

/// The crates of the workspace that a manifest's `[dependencies]` name.
fn used(manifest: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut uses = BTreeSet::new();
    for line in manifest.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
        }
        let name = if section == "[dependencies]" {
            line.split(['.', '=', ' ']).next()
        } else {
            section
                .strip_prefix("[dependencies.")
                .and_then(|rest| rest.strip_suffix(']'))
        };
        // The facade is called `cambium`.
        let own = |name: &'_ str| match name.strip_prefix("cambium-") {
            None if name == "cambium" => Some(name.to_owned()),
            rest => rest.map(str::to_owned),
        };
        uses.extend(name.and_then(own));
    }
    uses
}

/// Dependencies in the manifests, by the name of each crate without `cambium-`.
fn declared(crates: &Path) -> Table {
    let folders = fs::read_dir(crates)
        .expect("the crates")
        .map(|entry| entry.expect("a crate"));
    let folders = folders.filter(|entry| entry.path().join("Cargo.toml").exists());
    folders
        .map(|entry| {
            let manifest = entry.path().join("Cargo.toml");
            let manifest = fs::read_to_string(manifest).expect("a manifest");
            (
                entry.file_name().to_string_lossy().into_owned(),
                used(&manifest),
            )
        })
        .collect()
}

/// Dependencies in a row but not in the manifest, and the reverse, crate by crate.
fn differences(documented: &Table, declared: &Table) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, uses) in declared {
        let listed = &documented[name];
        for unlisted in uses.difference(listed) {
            differences.push(format!(
                "{name} uses {unlisted}, which its row does not list"
            ));
        }
        for stale in listed.difference(uses) {
            differences.push(format!(
                "the row of {name} lists {stale}, which it does not use"
            ));
        }
    }
    differences
}

#[test]
fn each_crate_uses_exactly_what_the_table_lists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).expect("the architecture");
    let (documented, declared) = (documented(&text), declared(&root.join("crates")));
    assert!(declared.len() > 8, "{declared:?}");
    let names = |table: &Table| table.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&declared), "a row for each crate");
    let differences = differences(&documented, &declared);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn the_table_has_no_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).expect("the architecture");
    let mut left = documented(&text);
    while !left.is_empty() {
        let names: BTreeSet<_> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, uses| !uses.is_disjoint(&names));
        assert!(left.len() < before, "these use each other: {names:?}");
    }
}

#[test]
fn rows_that_list_too_little_or_too_much_are_found() {
    let table = |uses: &[&str]| {
        let uses = uses.iter().map(|&name| name.to_owned()).collect();
        Table::from([("x".to_owned(), uses)])
    };
    assert_eq!(
        differences(&table(&["a", "b"]), &table(&["b", "c"])),
        [
            "x uses c, which its row does not list",
            "the row of x lists a, which it does not use"
        ]
    );
    assert!(differences(&table(&["a"]), &table(&["a"])).is_empty());
}

#[test]
fn manifests_and_rows_are_read_whole() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\ncambium-a.workspace = true\n\
                    cambium = { path = \"../cambium\" }\n\
                    cambium-b = { workspace = true }\nserde = \"1\"\n[dependencies.cambium-c]\n\
                    path = \"c\"\n[dev-dependencies]\ncambium-d.workspace = true\n";
    let expected = ["a", "b", "c", "cambium"];
    assert_eq!(used(manifest), expected.map(str::to_owned).into());
    let text = "# X\n\n## Crates\n\n| crate | for | uses |\n|---|---|---|\n| `x` | all | `a`, `b` |\n\
                | `a` | - | - |\n\n## More\n\n| `y` | z | `w` |\n";
    let table = documented(text);
    assert_eq!(table.len(), 2);
    assert_eq!(table["x"], ["a", "b"].map(str::to_owned).into());
    assert!(table["a"].is_empty());
}

#[test]
fn every_crate_is_tested_and_linted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("a file");
    let manifest = read("Cargo.toml");
    let defaults = manifest
        .split("default-members = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next())
        .expect("default members");
    let mut not_tested = BTreeSet::<String>::new();
    for entry in fs::read_dir(root.join("crates")).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("a name");
        if !defaults.contains(&format!("\"crates/{name}\"")) {
            not_tested.insert(name.to_owned());
        }
    }
    assert!(not_tested.is_empty(), "{not_tested:?}");
}

/// A crate that is not named there is compiled like a dependency: slowly, and without lines in its backtraces.
#[test]
fn every_crate_is_named_in_the_profile_of_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
    let named = manifest.split("[profile.dev.package]\n").nth(1);
    let named = named.and_then(|rest| rest.split("\n[").next());
    let named = named.expect("a profile");
    for entry in fs::read_dir(root.join("crates")).expect("a folder") {
        let path = entry.expect("an entry").path().join("Cargo.toml");
        let manifest = fs::read_to_string(path).expect("a manifest");
        let name = manifest.split('"').nth(1).expect("its name");
        assert!(
            named.contains(&format!("\n{name} = {{")) || named.starts_with(&format!("{name} = {{")),
            "{name}"
        );
    }
}

/// Where a crate's suites are merged, cargo looks for no others: a file that is not named would never run.
#[test]
fn every_file_of_tests_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut merged = 0;
    for entry in fs::read_dir(&root).expect("a folder") {
        let folder = entry.expect("an entry").path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        if !manifest.contains("\nautotests = false\n") {
            continue;
        }
        merged += 1;
        let mut declared = String::new();
        let mut names = BTreeSet::new();
        for file in fs::read_dir(folder.join("tests")).expect("tests") {
            let path = file.expect("a file").path();
            let name = path.file_stem().and_then(OsStr::to_str).expect("a name");
            match path.extension() {
                Some(_) => declared += &fs::read_to_string(&path).expect("a suite"),
                None if path.join("main.rs").exists() => {}
                None if !path.join("mod.rs").exists() => continue,
                None => {}
            }
            names.insert(name.to_owned());
        }
        for name in names {
            let paths = [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")];
            let is_program = paths
                .iter()
                .any(|path| manifest.contains(&format!("path = \"{path}\"")));
            let is_module = declared.lines().any(|line| line == format!("mod {name};"));
            assert!(is_program || is_module, "{name} of {folder:?} is never run");
        }
    }
    assert!(merged >= 6, "{merged} crates");
}
