//! A benchmark's child: this program in a process of its own, which tells events as JSON lines.
//!
//! A process of its own has memory of its own to limit and to measure, starts cold, and may be
//! killed.

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

/// What to do after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// Kill the child at once, as a power cut would.
    Kill,
}

/// How to run a child.
pub(crate) struct Process<'a> {
    /// The hidden command of this program that does a task.
    pub(crate) command: &'a str,
    /// Where its standard error goes.
    pub(crate) log: &'a Path,
    /// How long it may say nothing before it counts as hung.
    pub(crate) silence_max: Duration,
}

impl Process<'_> {
    /// Runs a child to its end, or until `on_event` has it killed. The error is the last that it
    /// wrote.
    pub(crate) fn run<E: DeserializeOwned>(
        &self,
        task: &impl Serialize,
        on_event: &mut dyn FnMut(E) -> Next,
    ) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let task_text = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let log = self.log;
        let errors = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut child = Command::new(program)
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

    /// Hands on what the child says, until it has nothing more to say or is to be killed.
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

/// Tells an event to the parent.
pub(crate) fn tell(event: &impl Serialize) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, event)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
