//! The table of crates in `docs/ARCHITECTURE.md` is the map that the layers are kept by: a crate
//! may use what its row lists, and there is a row for each crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

type Table = BTreeMap<String, BTreeSet<String>>;

/// The rows below the heading `Crates`: first column the crate, third what it may use.
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
        uses.extend(
            name.and_then(|name| name.strip_prefix("cambium-"))
                .map(str::to_owned),
        );
    }
    uses
}

/// What the manifests say, by the name of each crate without `cambium-`.
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

#[test]
fn each_crate_uses_only_what_the_table_lists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).expect("the architecture");
    let (documented, declared) = (documented(&text), declared(&root.join("crates")));
    assert!(declared.len() > 8, "{declared:?}");
    let names = |table: &Table| table.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&declared), "a row for each crate");
    for (name, uses) in &declared {
        let unlisted: Vec<_> = uses.difference(&documented[name]).collect();
        assert!(
            unlisted.is_empty(),
            "{name} uses {unlisted:?}, which its row does not list"
        );
    }
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
fn a_crate_that_is_not_listed_is_found() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\ncambium-a.workspace = true\n\
                    cambium-b = { workspace = true }\nserde = \"1\"\n[dependencies.cambium-c]\n\
                    path = \"c\"\n[dev-dependencies]\ncambium-d.workspace = true\n";
    assert_eq!(used(manifest), ["a", "b", "c"].map(str::to_owned).into());
    let text = "# X\n\n## Crates\n\n| crate | for | uses |\n|---|---|---|\n| `x` | all | `a`, `b` |\n\
                | `a` | - | - |\n\n## More\n\n| `y` | z | `w` |\n";
    let table = documented(text);
    assert_eq!(table.len(), 2);
    assert_eq!(table["x"], ["a", "b"].map(str::to_owned).into());
    assert!(table["a"].is_empty());
}
