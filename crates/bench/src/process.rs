//! Child processes of a benchmark: this program runs itself with a task, and reads events as lines
//! of JSON.
//!
//! A process of its own has its own memory to limit and measure, starts cold, and can be killed.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    error::Error,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Action after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// Kill the child at once. The page cache survives, unlike in a power cut.
    Kill,
}

/// Parameters of a child process.
pub(crate) struct Process<'a> {
    /// The hidden command of this program for the task.
    pub(crate) command: &'a str,
    /// File for its standard error.
    pub(crate) log: &'a Path,
    /// Time without an event after which it counts as hung.
    pub(crate) silence_max: Duration,
    /// Number of threads in each pool, or as many as the child may use processors.
    pub(crate) threads: Option<usize>,
}

impl Process<'_> {
    /// Runs a child until it ends, or until `on_event` has it killed. The error is the last line
    /// that the child wrote to standard error.
    pub(crate) fn run<E: DeserializeOwned>(
        &self,
        task: &impl Serialize,
        on_event: &mut dyn FnMut(E) -> Next,
    ) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let task_text = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let log = self.log;
        let errors = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = Command::new(program);
        if let Some(threads) = self.threads {
            command.env("RAYON_NUM_THREADS", threads.to_string());
        }
        let mut child = command
            .args([self.command, &task_text])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|error| error.to_string())?;
        let outcome = self.follow(&mut child, on_event);
        if !matches!(outcome, Ok(Next::GoOn)) {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        match outcome {
            Ok(Next::Kill) => Ok(()),
            Ok(Next::GoOn) if status.success() => Ok(()),
            Ok(Next::GoOn) => {
                let text = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<_> = text.lines().rev().take(3).collect();
                let last: Vec<_> = last.into_iter().rev().collect();
                Err(format!("{status}: {}", last.join(" / ")))
            }
            Err(error) => Err(error),
        }
    }

    /// Passes on the child's events until it ends or is to be killed.
    fn follow<E: DeserializeOwned>(
        &self,
        child: &mut Child,
        on_event: &mut dyn FnMut(E) -> Next,
    ) -> Result<Next, String> {
        let out = child.stdout.take().ok_or("no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        loop {
            match lines.recv_timeout(self.silence_max) {
                Ok(line) => {
                    let event = serde_json::from_str(&line)
                        .map_err(|error| format!("the child said {line:?}: {error}"))?;
                    if on_event(event) == Next::Kill {
                        return Ok(Next::Kill);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(Next::GoOn),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let seconds = self.silence_max.as_secs();
                    return Err(format!("hung: silent for {seconds} s"));
                }
            }
        }
    }
}

/// Sends an event to the parent.
pub(crate) fn tell(event: &impl Serialize) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, event)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
