//! Configuration files, and what the program says of itself: version, completions, manual pages.

use crate::support;
use crate::support::{Fixture, Run, number, program};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn a_configuration_file_comes_after_the_command_line_and_the_environment() {
    let fixture = Fixture::generate_with(60, 4, 8, &[]);
    fixture.import(&fixture.chain()).done();
    let key = "0x00000000000000000000000000000000000000ff";
    let dir = fixture.db().display().to_string();
    let text = format!(
        "datadir = {dir:?}\nmemory = '64M'\nblock = 2\n[db]\nmemory = '32Mi'\n[import]\nthreads = 0x2\n"
    );
    let file = fixture.write("cambium.toml", text.as_bytes());
    let got = cambium!("--config", file, "get", key, "--json")
        .done()
        .json();
    assert_eq!(got["block_number"], "0x2");
    // In the environment, and after the command.
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = program();
        command
            .env("CAMBIUM_CONFIG", &file)
            .args(args)
            .envs(variables.iter().copied());
        Run::of(command.output().unwrap())
    };
    let at = |run: Run| number(&run.done().json()["block_number"]);
    assert_eq!(at(run(&["get", key, "--json"], &[])), 2);
    assert_eq!(at(run(&["get", key, "--json", "--block", "3"], &[])), 3);
    run(&["db", "stats"], &[("CAMBIUM_DATADIR", "/nowhere/at/all")]).fails(1, &["/nowhere/at/all"]);
    run(
        &["db", "stats", "-d", &dir],
        &[("CAMBIUM_DATADIR", "/nowhere/at/all")],
    )
    .done();
    let told = run(&["config", "--json"], &[("CAMBIUM_DATADIR", "/x")])
        .done()
        .json();
    assert_eq!(told["file"], json!(file));
    let settings = told["settings"].as_array().unwrap();
    assert_eq!(
        settings[0],
        json!({"option": "datadir", "value": "/x", "from": "CAMBIUM_DATADIR"})
    );
    let threads = json!({"option": "import.threads", "value": "0x2", "line": 7});
    assert!(settings.contains(&threads), "{told}");
    let told = run(&["config"], &[]).done().stdout;
    assert!(
        told.contains("memory") && told.contains("64M  (line 2)"),
        "{told}"
    );

    for (text, code, words) in [
        (
            "memroy = 1",
            2,
            &["cambium.toml: line 1: memroy: no command has an option --memroy"][..],
        ),
        (
            "\n\nmemory = 'lots'",
            2,
            &["line 3: memory = \"lots\": a size is written"],
        ),
        (
            "[import]\nthreads = 0",
            2,
            &["line 2: threads = \"0\": between 1 and 1024"],
        ),
        (
            "quiet = 'yes'",
            2,
            &["line 1: quiet: the value is true or false"],
        ),
        (
            "log = 'loud'",
            2,
            &["line 1: log = \"loud\": the levels are"],
        ),
        (
            "[imports]\nthreads = 1",
            2,
            &["line 2: [imports]: there is no such command"],
        ),
        ("datadir", 2, &["line 1: this is no TOML"]),
    ] {
        fs::write(&file, text).unwrap();
        let run = cambium!("--config", file, "db", "stats", "--json").fails(code, words);
        assert_eq!(run.json()["exit_code"], code);
    }
    // Dependencies between options are checked, too.
    fs::write(&file, "commitment = 'layered'").unwrap();
    let (genesis, none) = (fixture.genesis(), fixture.path("none"));
    cambium!("--config", file, "init", "--genesis", genesis, "-d", none)
        .fails(2, &["--commitment layered needs --merge-interval"]);
    assert!(!none.exists());
    let missing = fixture.path("missing.toml");
    cambium!("--config", missing, "db", "stats").fails(1, &["missing.toml: can't be read"]);
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

/// The numbers of the formats of files, as the sources define them.
fn formats_of_sources() -> Vec<u64> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    let mut numbers = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            let found = text.lines().filter_map(|line| {
                let (_, rest) = line.split_once("const FORMAT: u")?;
                let number = rest.split_once("= ")?.1.trim_end_matches(';');
                Some(number.parse::<u64>().expect("a number"))
            });
            if path.extension().is_some_and(|extension| extension == "rs")
                && path.components().any(|part| part.as_os_str() == "src")
            {
                numbers.extend(found);
            }
        }
    }
    numbers
}

#[test]
fn the_program_says_what_it_is_and_completes_its_commands() {
    let version = support::cambium(["--version"]).done().stdout;
    for line in [
        "cambium 0.",
        "\ncommit    ",
        "\nfeatures  ",
        "\nformats   manifest 2, log 2",
        "preimages list 1",
    ] {
        assert!(version.contains(line), "{line}: {version}");
    }
    let version = support::cambium(["--version", "--json"]).done().json();
    assert_eq!(version["formats"]["manifest"], 2);
    assert!(version["features"].is_array());
    let listed = version["formats"].as_object().expect("formats").values();
    let listed: Vec<_> = listed
        .map(|number| number.as_u64().expect("a number"))
        .collect();
    assert_eq!(sorted(listed), sorted(formats_of_sources()));
    // One line for scripts.
    assert_eq!(support::cambium(["-V"]).done().stdout.lines().count(), 1);
    for (shell, words) in [
        ("bash", &["_cambium()", "verify-range", "--keep-blocks"][..]),
        ("zsh", &["#compdef cambium", "--keep-blocks"]),
        ("fish", &["complete -c cambium", "keep-blocks"]),
        ("elvish", &["cambium"]),
        ("powershell", &["cambium"]),
    ] {
        let script = support::cambium(["completions", shell]).done().stdout;
        for word in words {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    support::cambium(["completions", "tcsh"]).fails(2, &["bash", "zsh", "fish"]);
    let page = support::cambium(["man"]).done().stdout;
    assert!(
        page.contains(".TH cambium 1") && page.contains("Exit codes"),
        "{page}"
    );
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("man1");
    cambium!("man", "--out", out).done();
    for name in [
        "cambium.1",
        "cambium-import.1",
        "cambium-db-check.1",
        "cambium-kv-put.1",
    ] {
        let page = fs::read_to_string(out.join(name)).unwrap();
        assert!(
            page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"),
            "{name}"
        );
    }
}

/// A file of the repository.
fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

#[test]
fn the_page_of_formats_lists_the_numbers_and_the_magics_of_the_sources() {
    let page = fs::read_to_string(repository("docs/FORMATS.md")).expect("the page");
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| kind | number |"));
    let rows: Vec<Vec<&str>> = rows
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), cambium::db::FORMATS.len());
    for ((kind, number), row) in cambium::db::FORMATS.iter().zip(rows) {
        let &[listed, format, magic, _, source] = &row[..] else {
            panic!("{kind}: a row of five columns: {row:?}");
        };
        assert_eq!((listed, format), (*kind, number.to_string().as_str()));
        let source = fs::read_to_string(repository(source.trim_matches('`'))).expect(kind);
        let magic = magic.trim_matches('`');
        let is_there = source.contains(&format!("b\"{magic}\""));
        assert_eq!(is_there, magic != "none", "{kind}: {magic}");
        assert!(source.contains("const FORMAT: u"), "{kind}: {source}");
    }
}

#[test]
fn the_page_of_the_program_is_its_help() {
    let made = Command::new(repository("scripts/cli-doc"))
        .arg(env!("CARGO_BIN_EXE_cambium"))
        .output()
        .expect("a shell");
    let error = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{error}");
    let page = fs::read_to_string(repository("docs/CLI.md")).expect("the page");
    let made = String::from_utf8(made.stdout).expect("a text");
    let differs = made
        .lines()
        .zip(page.lines())
        .find(|(made, page)| made != page);
    assert_eq!(differs, None, "run scripts/cli-doc > docs/CLI.md");
    assert_eq!(made.len(), page.len(), "run scripts/cli-doc > docs/CLI.md");
}

#[test]
fn an_endless_configuration_file_ends() {
    cambium!("config", "--config", "/dev/zero").fails(2, &["/dev/zero", "1 MiB"]);
}
