//! Files that `scripts/public-data` places and rejects, with a small repository in place of those that its own table
//! names.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Output},
};

const REPOSITORY: &str = "https://github.com/example/data";

/// A repository, a table of sources, and a folder to fetch into.
struct Place {
    dir: tempfile::TempDir,
    /// The repository's commits, oldest first.
    commits: Vec<String>,
}

/// Outcome of a run of the script.
struct Outcome {
    succeeded: bool,
    printed: String,
    told: String,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/public-data")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// All files in a folder, with names and content.
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            files.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    files.sort();
    files
}

fn names(dir: &Path) -> Vec<String> {
    files(dir).into_iter().map(|(name, _)| name).collect()
}

impl Place {
    /// `None`, with a loud line, if git is missing.
    fn new() -> Option<Self> {
        if Command::new("git").arg("--version").output().is_err() {
            let _ = writeln!(io::stdout().lock(), "SKIPPED: scripts/public-data: no git");
            return None;
        }
        let mut place = Self {
            dir: tempfile::tempdir().unwrap(),
            commits: Vec::new(),
        };
        fs::create_dir_all(place.at("home")).unwrap();
        // As GitHub serves: parts of a commit, and commits by their ids.
        let config = format!(
            "[url \"file://{}\"]\n\tinsteadOf = {REPOSITORY}\n[uploadpack]\n\tallowFilter = true\n\
             \tallowAnySHA1InWant = true\n[user]\n\tname = Nobody\n\temail = nobody@example.org\n\
             [core]\n\tautocrlf = true\n",
            place.at("repository").display()
        );
        fs::write(place.at("home/.gitconfig"), config).unwrap();
        place.git(&["init", "--quiet", "."]);
        place.write("LICENSE", "Do what you want.\n");
        place.write("suite/one.json", "[1]\n");
        place.write("suite/deep/two.json", "[2]\n");
        place.write("suite/large.json", "[3, 3, 3]\n");
        place.write("suite/static/four.json", "[4]\n");
        place.write("other.json", "[5]\n");
        place.write(".gitattributes", "*.json ident text eol=crlf\n");
        place.commit();
        place.write("suite/one.json", "[1, \"later\"]\n");
        fs::remove_file(place.at("repository/LICENSE")).unwrap();
        for name in 0..40 {
            place.write(&format!("many/{name}.json"), "[]\n");
        }
        place.commit();
        Some(place)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run_in(&self, dir: &str, program: &str, args: &[&str]) -> Output {
        fs::create_dir_all(self.at(dir)).unwrap();
        let done = Command::new(program)
            .args(args)
            .current_dir(self.at(dir))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.at("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
        done
    }

    fn git(&self, args: &[&str]) -> String {
        let done = self.run_in("repository", "git", args);
        text(&done.stdout).trim().to_owned()
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.at("repository").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn commit(&mut self) {
        self.git(&["-c", "core.autocrlf=false", "add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "More data"]);
        self.commits.push(self.git(&["rev-parse", "HEAD"]));
    }

    /// The checksum of a folder that holds these files, by the tools that the table names.
    fn checksum(&self, files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir_in(self.dir.path()).unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        let sums = format!("sha256sum {} | sha256sum", names.join(" "));
        let done = self.run_in(dir.path().to_str().unwrap(), "sh", &["-c", &sums]);
        text(&done.stdout)[..64].to_owned()
    }

    /// The table's lines for a folder with parts of the first commit.
    fn first(&self) -> String {
        let checksum = self.checksum(&[
            ("LICENSE", "Do what you want.\n"),
            ("suite/deep/two.json", "[2]\n"),
            ("suite/one.json", "[1]\n"),
        ]);
        let commit = &self.commits[0];
        format!(
            "source first {REPOSITORY} MIT\nholds 3 1 {checksum}\ncommit {commit}\ntake LICENSE\n\
             take suite\ndrop suite/static\ndrop suite/large.json\n\n"
        )
    }

    /// A folder with parts of both commits, under other names.
    fn second(&self) -> String {
        let checksum = self.checksum(&[
            ("1-one.json", "[1]\n"),
            ("deep/two.json", "[2]\n"),
            ("large.json", "[3, 3, 3]\n"),
            ("one.json", "[1, \"later\"]\n"),
            ("static/four.json", "[4]\n"),
        ]);
        let (old, new) = (&self.commits[0], &self.commits[1]);
        format!(
            "source second {REPOSITORY} CC0-1.0\nholds 5 1 {checksum}\ncommit {old}\n\
             take suite/one.json 1-one.json\ncommit {new}\ntake suite .\n\n"
        )
    }

    /// Runs the script with a table.
    fn fetch(&self, table: &str, args: &[&str]) -> Outcome {
        fs::write(self.at("table"), table).unwrap();
        let done = Command::new(script())
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.at("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            // As in a hook of git's.
            .env("GIT_DIR", self.at("nowhere"))
            .env("GIT_OBJECT_DIRECTORY", self.at("nowhere/objects"))
            .env("CAMBIUM_DATA_SOURCES", "table")
            .output()
            .unwrap();
        Outcome {
            succeeded: done.status.success(),
            printed: text(&done.stdout),
            told: text(&done.stderr),
        }
    }
}

impl Outcome {
    #[track_caller]
    fn says(&self, parts: &[&str]) {
        for part in parts {
            assert!(
                self.told.contains(part),
                "{part:?} is not in {:?}",
                self.told
            );
        }
    }
}

#[test]
fn folders_are_placed_whole_and_found_whole_without_the_repository() {
    let Some(place) = Place::new() else {
        return;
    };
    let table = place.first() + &place.second() + "absent third made by hand\n";
    let done = place.fetch(&table, &["data"]);
    assert!(done.succeeded, "{}", done.told);
    let line = "Not public, and not here: third: made by hand";
    done.says(&["[1/2] first: 1 MB from", "[2/2] second", line]);
    let expected = [
        ("first/LICENSE", "Do what you want.\n"),
        ("first/suite/deep/two.json", "[2]\n"),
        ("first/suite/one.json", "[1]\n"),
        ("second/1-one.json", "[1]\n"),
        ("second/deep/two.json", "[2]\n"),
        ("second/large.json", "[3, 3, 3]\n"),
        ("second/one.json", "[1, \"later\"]\n"),
        ("second/static/four.json", "[4]\n"),
    ];
    let expected = expected.map(|(name, content)| (name.to_owned(), content.to_owned()));
    assert_eq!(files(&place.at("data")), expected);
    let placed = fs::read_dir(place.at("data")).unwrap().count();
    assert_eq!(placed, 2, "something partial is left");
    assert!(!place.at("nowhere").exists(), "into the hook's repository");

    fs::remove_dir_all(place.at("repository")).unwrap();
    let done = place.fetch(&table, &["data"]);
    assert!(done.succeeded, "{}", done.told);
    done.says(&["first: there, and whole", "second: there, and whole"]);
    assert_eq!(files(&place.at("data")), expected);
}

#[test]
fn a_wrong_checksum_is_named_and_nothing_placed() {
    let Some(place) = Place::new() else {
        return;
    };
    let right = place.first();
    let checksum = place.checksum(&[("LICENSE", "Do what you want.\n")]);
    let wrong = format!(
        "source first {REPOSITORY} MIT\nholds 1 1 {checksum}\ncommit {}\ntake LICENSE\n\
         take other.json\n",
        place.commits[0]
    );
    let done = place.fetch(&wrong, &["data"]);
    assert!(!done.succeeded);
    let expected = format!("not 1 file of checksum {checksum}. Nothing of it is kept.");
    let gave = format!("first: {REPOSITORY} gave 2 files of checksum ");
    done.says(&[&gave, &expected]);
    let placed = fs::read_dir(place.at("data")).unwrap().count();
    assert_eq!(placed, 0, "{:?}", names(&place.at("data")));

    // Nor is what is there taken for whole, or touched, when it is not.
    assert!(place.fetch(&right, &["data"]).succeeded);
    fs::write(place.at("data/first/suite/one.json"), "[7]\n").unwrap();
    let done = place.fetch(&right, &["data"]);
    assert!(!done.succeeded);
    let there = place.at("data/first");
    let there = format!("first: {} holds 3 files of checksum ", there.display());
    done.says(&[&there, "Move it away, and run this again."]);
    let kept = fs::read_to_string(place.at("data/first/suite/one.json")).unwrap();
    assert_eq!(kept, "[7]\n");
    fs::remove_file(place.at("data/first/suite/one.json")).unwrap();
    let done = place.fetch(&right, &["data"]);
    assert!(!done.succeeded);
    done.says(&["holds 2 files of checksum ", ", not 3 files of checksum "]);
}

#[test]
fn what_can_not_be_had_is_named_and_the_rest_fetched() {
    let Some(place) = Place::new() else {
        return;
    };
    let gone = "0".repeat(40);
    let missing = place.first().replace("source first", "source gone");
    let missing = missing.replace(&place.commits[0], &gone);
    let table = missing + &place.second();
    let done = place.fetch(&table, &["data"]);
    assert!(!done.succeeded);
    done.says(&["Could not be fetched: gone. "]);
    let placed: Vec<_> = fs::read_dir(place.at("data")).unwrap().collect();
    assert_eq!(placed.len(), 1);
    assert!(place.at("data/second").is_dir());

    // Named folders alone.
    let done = place.fetch(&table, &["elsewhere", "second"]);
    assert!(done.succeeded, "{}", done.told);
    let done = place.fetch(&table, &["elsewhere", "fourth"]);
    assert!(!done.succeeded);
    done.says(&["No folder 'fourth' is in the table"]);
}

#[test]
fn a_sample_is_taken_by_the_hash_of_names() {
    let Some(place) = Place::new() else {
        return;
    };
    // The first digit of each name's hash, by another way.
    let hashes = "for n in many/*; do printf '%s' \"$n\" | sha1sum | cut -c 1; done";
    let digits = place.run_in("repository", "sh", &["-c", hashes]);
    let digits = text(&digits.stdout);
    let chosen: BTreeSet<_> = names(&place.at("repository/many"))
        .into_iter()
        .zip(digits.lines())
        .filter(|(_, digit)| ("0"..="6").contains(digit))
        .map(|(name, _)| name)
        .collect();
    assert!((5..35).contains(&chosen.len()), "{chosen:?}");
    let content: Vec<_> = chosen.iter().map(|name| (name.as_str(), "[]\n")).collect();
    let table = format!(
        "source many {REPOSITORY} MIT\nholds {} 1 {}\ncommit {}\ntake many .\nsample 0-6\n",
        chosen.len(),
        place.checksum(&content),
        place.commits[1]
    );
    let done = place.fetch(&table, &["data"]);
    assert!(done.succeeded, "{}", done.told);
    assert!(names(&place.at("data/many")).iter().eq(&chosen));
}

#[test]
fn help_and_the_list_of_sources_are_told() {
    let Some(place) = Place::new() else {
        return;
    };
    let table = place.first() + &place.second() + "absent third made by hand\n";
    let listed = place.fetch(&table, &["--list"]);
    assert!(listed.succeeded, "{}", listed.told);
    let (old, new) = (&place.commits[0], &place.commits[1]);
    let expected = format!(
        "first: 3 files, 1 MB, MIT\n  {REPOSITORY} at {old}\nsecond: 5 files, 1 MB, CC0-1.0\n  \
         {REPOSITORY} at {old}\n  {REPOSITORY} at {new}\nnot public: third: made by hand\n"
    );
    assert_eq!(listed.printed, expected);
    let help = place.fetch(&table, &["--help"]);
    assert!(help.succeeded && help.printed.contains("scripts/public-data --list"));
    let unknown = place.fetch(&table, &["--lists"]);
    assert!(!unknown.succeeded && unknown.told.contains("scripts/public-data --list"));
}

#[test]
fn each_source_of_the_table_says_all_that_it_takes_to_fetch_it() {
    let table = script().with_extension("sources");
    let table = fs::read_to_string(table).unwrap();
    let is_hash = |text: &str, digits| {
        text.len() == digits && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
    };
    let is_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number > 0);
    let mut folders = BTreeSet::new();
    // Kinds of lines and the kinds that may follow them.
    let mut before = "absent";
    for line in table.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<_> = line.split(' ').collect();
        let is_sound = match words[..] {
            ["source", folder, repository, _licence] => {
                let is_complete = ["absent", "take", "drop", "sample"].contains(&before);
                let is_new = folders.insert(folder);
                is_complete && is_new && repository.starts_with("https://github.com/")
            }
            ["holds", files, size, checksum] => {
                let are_numbers = is_number(files) && is_number(size);
                before == "source" && are_numbers && is_hash(checksum, 64)
            }
            ["commit", commit] => ["holds", "take"].contains(&before) && is_hash(commit, 40),
            ["take", _] | ["take", _, _] => ["commit", "take"].contains(&before),
            ["drop", _] | ["sample", _] => ["take", "drop", "sample"].contains(&before),
            ["absent", _, _, ..] => ["absent", "take", "drop", "sample"].contains(&before),
            _ => false,
        };
        assert!(is_sound, "{line:?} after {before:?}");
        before = words[0];
    }
    assert!(folders.len() > 10, "{folders:?}");
}
