//! Broken inputs for whatever reads files of others: each byte changed in every way, each JSON value
//! replaced, and a watchdog for a reader that hangs.

mod bytes;
mod headers;
mod json;
mod watchdog;

pub use bytes::{ByteChange, ChangedBytes, byte_changes};
pub use headers::mend_header;
pub use json::{ChangedJson, Json, json_changes};
pub use watchdog::Watchdog;

/// Whether tests run in their long form.
pub fn is_long() -> bool {
    std::env::var_os("CAMBIUM_LONG").is_some()
}

/// How many changes of an input are tried: about `count`, or all of them in the long form of tests.
pub fn all_or(count: usize) -> usize {
    match is_long() {
        true => usize::MAX,
        false => count,
    }
}
