//! Location of public fixtures, and a runner for suites of them.
//!
//! A suite has a name and files, and each file has cases. Each case passes, fails, or is skipped
//! for a reason. The same cases run over every backend.

use cambium_testkit::say;
use rayon::prelude::*;
use std::{
    collections::BTreeMap,
    env, fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

/// Frames of the packs refer back this far: log2 of bytes.
const ZSTD_WINDOW_LOG: u32 = 27;

/// A pack of public fixtures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Pack {
    TrieGenesisEra,
    ExecutionApis,
    EthereumTests,
    Eest,
    Amsterdam,
    MainnetExec,
    MainnetProofs,
    MainnetAccess,
    AmsterdamDevnet,
}

impl Pack {
    /// Returns the name of the pack, which is its file name without `.tar.zst`.
    pub fn name(self) -> &'static str {
        match self {
            Self::TrieGenesisEra => "01-trie-genesis-era",
            Self::ExecutionApis => "02-execution-apis",
            Self::EthereumTests => "03-ethereum-tests",
            Self::Eest => "04-eest-v5.4.0",
            Self::Amsterdam => "05-eest-amsterdam-bal",
            Self::MainnetExec => "06-mainnet-exec",
            Self::MainnetProofs => "07-mainnet-proofs",
            Self::MainnetAccess => "08-mainnet-bal-rlp",
            Self::AmsterdamDevnet => "09-eest-amsterdam-devnet",
        }
    }

    /// Returns the folder that has these folders of the pack. If one is missing, prints that and
    /// returns `None`.
    ///
    /// # Panics
    ///
    /// Panics if a folder is missing and `CAMBIUM_DATA_REQUIRED` is set.
    pub fn open(self, folders: &[&str]) -> Option<PathBuf> {
        match self.look(folders) {
            Ok(root) => Some(root),
            Err(why) => {
                let is_required = env::var_os("CAMBIUM_DATA_REQUIRED").is_some();
                assert!(!is_required, "{why}, and CAMBIUM_DATA_REQUIRED is set");
                say(&format!("SKIPPED: {why}"));
                None
            }
        }
    }

    /// Returns the folder that has these folders of the pack, or `None` if one is missing.
    pub fn find(self, folders: &[&str]) -> Option<PathBuf> {
        self.look(folders).ok()
    }

    fn look(self, folders: &[&str]) -> Result<PathBuf, String> {
        let Some(root) = self.root() else {
            let name = self.name();
            return Err(format!(
                "no fixtures of {name}: set CAMBIUM_DATA (scripts/public-data fetches most)"
            ));
        };
        all_in(root, folders)
    }

    /// The folder named by `CAMBIUM_DATA`, which may lack some of the pack's content; else what is
    /// unpacked, once, from the pack beside the checkout. `None` if there is neither.
    fn root(self) -> Option<PathBuf> {
        if let Some(dir) = env::var_os("CAMBIUM_DATA") {
            return Some(dir.into());
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pack = workspace
            .join("../shared/data")
            .join(format!("{}.tar.zst", self.name()));
        if !pack.is_file() {
            return None;
        }
        match unpack(&pack, &workspace.join("target/fixtures")) {
            Ok(dir) => Some(dir),
            Err(error) => panic!("{} can't be unpacked: {error}", pack.display()),
        }
    }
}

/// The folder, if all of these are in it; else which of them is not.
fn all_in(root: PathBuf, folders: &[&str]) -> Result<PathBuf, String> {
    match folders.iter().find(|folder| !root.join(folder).exists()) {
        None => Ok(root),
        Some(missing) => Err(format!("{missing} is not in {}", root.display())),
    }
}

/// Unpacks into a folder of its own and gives it its name at the end, so that a folder of that name
/// is whole even if others unpack as well. The name has the pack's size: another pack, another
/// folder.
fn unpack(pack: &Path, cache: &Path) -> io::Result<PathBuf> {
    let name = pack.file_name().unwrap_or_default().to_string_lossy();
    let name = format!(
        "{}.{}",
        name.trim_end_matches(".tar.zst"),
        fs::metadata(pack)?.len()
    );
    let done = cache.join(&name);
    if done.is_dir() {
        return Ok(done);
    }
    fs::create_dir_all(cache)?;
    let partial = tempfile::Builder::new()
        .prefix(&name)
        .suffix(".partial")
        .tempdir_in(cache)?;
    let mut decoder = zstd::Decoder::new(fs::File::open(pack)?)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    tar::Archive::new(decoder).unpack(partial.path())?;
    let partial = partial.keep();
    if fs::rename(&partial, &done).is_err() {
        fs::remove_dir_all(&partial)?;
    }
    Ok(done)
}

/// Returns all files below `dir` whose names end in `.json`, sorted.
pub fn json_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The outcome is that of the fixture.
    Passed,
    /// The outcome differs from that of the fixture.
    Failed(String),
    /// The case did not run, for this reason.
    Skipped(String),
}

/// One case of a suite.
pub trait Case: Sync {
    /// Name of the case.
    fn name(&self) -> String;
    /// Runs it.
    fn run(&self) -> Verdict;
}

/// A suite: files with cases.
pub trait Suite: Sync {
    /// Cases of a file.
    type Case: Case;
    /// Name of the suite, its backend included.
    fn name(&self) -> String;
    /// The files.
    fn files(&self) -> Vec<PathBuf>;
    /// The cases of one file; an error skips the whole file.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the file.
    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String>;
}

/// Outcome of a suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    name: String,
    passed: usize,
    failed: Vec<(String, String)>,
    skipped: BTreeMap<String, Vec<String>>,
}

impl Report {
    fn add(&mut self, name: String, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(why) => self.failed.push((name, why)),
            Verdict::Skipped(why) => self.skipped.entry(why).or_default().push(name),
        }
    }

    fn join(mut self, other: Self) -> Self {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        for (why, names) in other.skipped {
            self.skipped.entry(why).or_default().extend(names);
        }
        self
    }

    /// Returns the number of cases that ran.
    pub fn run_count(&self) -> usize {
        self.passed + self.failed.len()
    }

    /// Prints the counts, every skipped case and every failure.
    ///
    /// # Panics
    ///
    /// Panics if a case failed, or if fewer than `at_least` ran.
    pub fn conclude(self, at_least: usize) {
        say(&self.to_string());
        let (failed, run) = (self.failed.len(), self.run_count());
        assert!(failed == 0, "{failed} of {run} cases of {} fail", self.name);
        assert!(
            run >= at_least,
            "{run} cases of {}, {at_least} expected",
            self.name
        );
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped: usize = self.skipped.values().map(Vec::len).sum();
        let (run, failed) = (self.run_count(), self.failed.len());
        write!(
            f,
            "suite {}: {run} cases run, {failed} failed, {skipped} skipped",
            self.name
        )?;
        for (why, names) in &self.skipped {
            write!(f, "\n  skipped ({why}): {}", names.len())?;
            for name in names {
                write!(f, "\n    {name}")?;
            }
        }
        for (name, why) in &self.failed {
            write!(f, "\n  FAILED {name}: {why}")?;
        }
        Ok(())
    }
}

/// Runs all cases of a suite on all cores. A case that panics fails.
pub fn run_suite<S: Suite>(suite: &S) -> Report {
    let report = suite
        .files()
        .par_iter()
        .map(|file| run_file(suite, file))
        .reduce(Report::default, Report::join);
    Report {
        name: suite.name(),
        ..report
    }
}

fn run_file<S: Suite>(suite: &S, file: &Path) -> Report {
    let mut report = Report::default();
    let cases = match suite.cases(file) {
        Ok(cases) => cases,
        Err(why) => {
            let name = file
                .file_name()
                .unwrap_or(file.as_os_str())
                .to_string_lossy();
            report.add(name.into_owned(), Verdict::Skipped(why));
            return report;
        }
    };
    let verdicts: Vec<_> = cases
        .par_iter()
        .map(|case| {
            let run = catch_unwind(AssertUnwindSafe(|| case.run()));
            (
                case.name(),
                run.unwrap_or_else(|_| Verdict::Failed("it panics".into())),
            )
        })
        .collect();
    for (name, verdict) in verdicts {
        report.add(name, verdict);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_missing_among_others_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        fs::create_dir_all(root.join("zeth/blocks")).unwrap();
        assert_eq!(all_in(root.clone(), &["zeth"]), Ok(root.clone()));
        assert_eq!(all_in(root.clone(), &["zeth/blocks"]), Ok(root.clone()));
        for folders in [["zeth", "keth"], ["keth", "zeth"]] {
            let missing = format!("keth is not in {}", root.display());
            assert_eq!(all_in(root.clone(), &folders), Err(missing));
        }
    }

    #[test]
    fn a_pack_is_unpacked_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let pack = dir.path().join("00-small.tar.zst");
        let mut archive =
            tar::Builder::new(zstd::Encoder::new(fs::File::create(&pack).unwrap(), 1).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, "suite/case.json", &b"hello"[..])
            .unwrap();
        archive.into_inner().unwrap().finish().unwrap();

        let cache = dir.path().join("cache");
        let unpacked = unpack(&pack, &cache).unwrap();
        assert_eq!(json_files(&unpacked), [unpacked.join("suite/case.json")]);
        fs::write(unpacked.join("mark"), "").unwrap();
        assert_eq!(unpack(&pack, &cache).unwrap(), unpacked);
        assert!(unpacked.join("mark").is_file(), "unpacked again");
        assert_eq!(
            fs::read_dir(&cache).unwrap().count(),
            1,
            "something partial is left"
        );
    }
}
