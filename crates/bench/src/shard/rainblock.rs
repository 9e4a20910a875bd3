//! RainBlock's own trie in memory, a package for Node.js, which is driven round by round beside Cambium's.

use crate::report::data_dir;
use serde::Deserialize;
use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const SCRIPT: &str = include_str!("../../peers/rainblock.js");
/// Folder of the package, made by `./bench`, in that of the data of benchmarks.
const FOLDER: &str = "rainblock";
/// Gets of a round, and five times the puts.
const OPERATIONS: usize = 100_000;
/// Memory that Node.js may take, in MB.
const HEAP: &str = "--max-old-space-size=16000";

/// Operations a second of processor time.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Round {
    pub(super) gets: f64,
    pub(super) puts: f64,
    pub(super) roots: f64,
    pub(super) memory_mb: f64,
}

/// A process with a loaded trie. It ends with this.
pub(super) struct RainBlock {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for RainBlock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RainBlock {
    /// Loads a number of accounts.
    pub(super) fn load(accounts: usize) -> Result<Self, Box<dyn Error>> {
        let folder = data_dir()?.join(FOLDER);
        if !folder.join("node_modules").is_dir() {
            return Err(
                "RainBlock's package is not there: `./bench shard --peers rainblock` installs it"
                    .into(),
            );
        }
        eprintln!("RainBlock: loading {accounts} accounts");
        let script = folder.join("rainblock.js");
        fs::write(&script, SCRIPT)?;
        let mut child = Command::new("node")
            .arg(HEAP)
            .arg(&script)
            .args([accounts, OPERATIONS].map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = child.stdin.take().ok_or("no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut own = Self {
            child,
            ask,
            answers,
        };
        // It says so once it is loaded.
        own.line()?;
        Ok(own)
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err("RainBlock's process ended".into()),
            _ => Ok(line),
        }
    }

    pub(super) fn round(&mut self) -> Result<Round, Box<dyn Error>> {
        self.ask.write_all(b"round\n")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }
}
