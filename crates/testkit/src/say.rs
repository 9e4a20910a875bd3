//! Output of tests that pass.

use std::io::{self, Write};

/// Prints past the test harness, which keeps what passing tests print to itself.
pub fn say(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}
