//! Malformed inputs for readers of bytes that strangers write: each byte changed, each JSON value replaced, witnesses
//! with a part changed, and a watchdog for readers that hang. For Cambium's own tests.

mod bytes;
mod headers;
mod json;
mod watchdog;
mod witnesses;

pub use bytes::{ByteChange, ChangedBytes, byte_changes};
pub use headers::mend_header;
pub use json::{ChangedJson, Json, json_changes};
pub use watchdog::Watchdog;
pub use witnesses::{Tampering, execute_from_json, tamper};

/// Returns the number of changes of an input to try: `count`, or all in the long form of tests.
pub fn all_or(count: usize) -> usize {
    match cambium_seeds::is_long() {
        true => usize::MAX,
        false => count,
    }
}
