//! Malformed inputs for readers of untrusted files: each byte changed, each JSON value replaced,
//! and a watchdog for readers that hang.

mod bytes;
mod headers;
mod json;
mod watchdog;

pub use bytes::{ByteChange, ChangedBytes, byte_changes};
pub use headers::mend_header;
pub use json::{ChangedJson, Json, json_changes};
pub use watchdog::Watchdog;

/// Returns whether tests run in their long form.
pub fn is_long() -> bool {
    std::env::var_os("CAMBIUM_LONG").is_some()
}

/// Returns the number of changes of an input to try: `count`, or all in the long form of tests.
pub fn all_or(count: usize) -> usize {
    match is_long() {
        true => usize::MAX,
        false => count,
    }
}
