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

/// Returns the number of changes of an input to try: `count`, or all in the long form of tests.
pub fn all_or(count: usize) -> usize {
    match cambium_seeds::is_long() {
        true => usize::MAX,
        false => count,
    }
}
