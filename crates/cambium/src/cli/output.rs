//! Output for people and for machines.

use super::error::{Exit, Failure, Told};
use cambium::B256;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    fmt::{Display, Write as _},
    io::{self, Write},
    path::Path,
    thread,
    time::Duration,
};

/// The result of a command, as text for people and as JSON for machines.
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) exit: Exit,
}

impl Report {
    pub(crate) const fn new(text: String, json: Value) -> Self {
        Self {
            text,
            json,
            exit: Exit::Done,
        }
    }

    /// A report whose text is the JSON.
    pub(crate) fn of_json(json: Value) -> Self {
        Self::new(format!("{json:#}"), json)
    }
}

/// Time between two lines of progress, where standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Steps of a bar over all accounts, in the order of their hashed keys.
pub(crate) const KEYS: u64 = 1 << 16;

/// How far a hashed key is on such a bar.
pub(crate) fn step(key: &B256) -> u64 {
    u64::from(u16::from_be_bytes([key[0], key[1]]))
}

pub(crate) const KEYS_BAR: &str = "{bar:30} {percent}%  {msg}  ETA {eta}";

/// Standard output and standard error.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    /// Neither progress nor notes.
    quiet: bool,
}

impl Output {
    pub(crate) const fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Whether the output is JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Whether neither progress nor notes are printed.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a report as text or JSON. `is_account` means that its text is an account of actions: a quiet command
    /// prints none, unless it reports damage.
    pub(crate) fn print(&self, report: &Report, is_account: bool) -> Result<Exit, Failure> {
        let is_silent = self.quiet && is_account && report.exit != Exit::Damaged;
        if self.json {
            write_line(&report.json)?;
        } else if !report.text.is_empty() && !is_silent {
            write_line(&report.text)?;
        }
        Ok(report.exit)
    }

    /// Prints a failure to standard error and, with `--json`, as an object to standard output.
    pub(crate) fn print_failure(&self, failure: &Failure) -> Exit {
        if failure.is_broken_pipe() {
            return Exit::Done;
        }
        eprint_line(&Told(failure));
        if self.json {
            let mut object = Map::new();
            object.insert("error".to_owned(), failure.to_string().into());
            object.insert("exit_code".to_owned(), (failure.exit() as u8).into());
            if let Some(head) = failure.head() {
                object.insert("head_number".to_owned(), quantity(head.number));
                object.insert("head_hash".to_owned(), json!(head.hash));
            }
            // Ignored: the exit code reports the failure even if standard output is closed.
            let _ = write_line(&Value::Object(object));
        }
        failure.exit()
    }

    /// Prints text ahead of the report, unless the output is JSON.
    pub(crate) fn say(&self, text: impl Display) -> Result<(), Failure> {
        if self.json { Ok(()) } else { write_line(&text) }
    }

    /// Prints a note to standard error.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.quiet {
            eprint_line(&format_args!("note: {text}"));
        }
    }

    /// Prints an error that does not end the command to standard error.
    pub(crate) fn error(&self, text: impl Display) {
        eprint_line(&format_args!("error: {text}"));
    }

    /// A progress bar of `total` steps on standard error, or lines of text if that is not a terminal. If `total` is 0,
    /// a spinner.
    pub(crate) fn bar(&self, total: u64, template: &str) -> ProgressBar {
        let target = match self.quiet {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(10),
        };
        let bar = ProgressBar::with_draw_target((total > 0).then_some(total), target);
        if !self.quiet && bar.is_hidden() {
            print_lines(&bar);
        }
        let template = if total > 0 {
            template
        } else {
            "{spinner} {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar
    }
}

/// A quantity of a chain in JSON, such as a block's number, a nonce or gas: hexadecimal digits, as in
/// Ethereum's JSON-RPC. Counts, times and rates are JSON numbers instead.
pub(crate) fn quantity(number: u64) -> Value {
    Value::String(format!("{number:#x}"))
}

/// A value of a chain in JSON, as in Ethereum's JSON-RPC.
pub(crate) fn rpc(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// Prints a line of progress now and then, until the bar is finished or dropped.
fn print_lines(bar: &ProgressBar) {
    let bar = bar.downgrade();
    let run = move || {
        loop {
            thread::sleep(LINE_EVERY);
            let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) else {
                return;
            };
            eprint_line(&line(&bar));
        }
    };
    // Without the thread the work is done, but no lines are printed.
    let _ = thread::Builder::new()
        .name("progress".to_owned())
        .spawn(run);
}

/// Text of a bar, without its drawing.
fn line(bar: &ProgressBar) -> String {
    let message = bar.message();
    match bar.length().filter(|length| *length > 0) {
        None => message,
        Some(length) => {
            let percent = 100 * bar.position().min(length) / length;
            let left = seconds(bar.eta());
            let told = if message.is_empty() { "" } else { "  " };
            format!("{percent}%{told}{message}  ETA {left}")
        }
    }
}

fn write_line(text: &dyn Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(Failure::io(Path::new("standard output"), "written"))
}

fn eprint_line(text: &dyn Display) {
    // Ignored: there is no way to report that standard error is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// A table of names and values in two columns, with headings.
#[derive(Default)]
pub(crate) struct Table(Vec<(String, Option<String>)>);

impl Table {
    /// Starts a section with a heading.
    pub(crate) fn section(mut self, title: &str) -> Self {
        self.0.push((title.to_owned(), None));
        self
    }

    pub(crate) fn row(mut self, name: impl Display, value: impl Display) -> Self {
        self.0.push((name.to_string(), Some(value.to_string())));
        self
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows = self.0.iter().filter(|(_, value)| value.is_some());
        let width = rows.map(|(name, _)| name.len()).max().unwrap_or(0);
        for (index, (name, value)) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            match value {
                Some(value) => write!(f, "{end}  {name:width$}  {value}")?,
                None => write!(f, "{end}{name}")?,
            }
        }
        Ok(())
    }
}

/// Formats 1234567 as 1,234,567.
pub(crate) fn count(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats bytes in the largest unit that gives a number of at least 1.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        if number >> shift > 0 {
            return format!("{:.1} {unit}", number as f64 / (1u64 << shift) as f64);
        }
    }
    format!("{number} B")
}

pub(crate) fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match seconds {
        ..0.001 => write!(text, "{:.0} us", seconds * 1e6),
        0.001..1.0 => write!(text, "{:.0} ms", seconds * 1e3),
        1.0..120.0 => write!(text, "{seconds:.1} s"),
        _ => write!(
            text,
            "{:.0} min {:02.0} s",
            (seconds / 60.0).floor(),
            seconds % 60.0
        ),
    };
    text
}

/// `amount` per second.
pub(crate) fn rate(amount: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        amount as f64 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(0u64), "0");
        assert_eq!(count(999u64), "999");
        assert_eq!(count(1_234_567u64), "1,234,567");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
        assert_eq!(seconds(Duration::from_micros(15)), "15 us");
        assert_eq!(seconds(Duration::from_millis(15)), "15 ms");
        assert_eq!(seconds(Duration::from_millis(1_540)), "1.5 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 05 s");
    }

    #[test]
    fn progress_has_a_line_without_escape_codes() {
        let bar = ProgressBar::hidden();
        bar.set_message("reading");
        assert_eq!(line(&bar), "reading");
        bar.set_length(200);
        bar.set_position(50);
        let text = line(&bar);
        assert!(text.starts_with("25%  reading  ETA "), "{text}");
        assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_table_has_two_columns() {
        let table = Table::default().row("a", 1).row("long", "x");
        assert_eq!(table.to_string(), "  a     1\n  long  x");
        let table = table.section("A longer heading").row("b", 2);
        let parts = "  a     1\n  long  x\nA longer heading\n  b     2";
        assert_eq!(table.to_string(), parts);
    }
}
