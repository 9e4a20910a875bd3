//! Injected faults, and those that have occurred.

use std::collections::BTreeMap;

/// Kind of an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A read fails with an I/O error.
    FailedRead,
    /// Opening a file fails, as with too many open files.
    FailedOpen,
    /// A write fails after a part of its bytes, or punching a hole fails without effect.
    FailedWrite,
    /// A sync fails, and unsynced writes may be lost permanently.
    FailedSync,
    /// A write reports success, and is lost.
    LostWrite,
    /// A write reports success, and goes to another place of the file.
    MisdirectedWrite,
}

/// Pending faults.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Maximum total size of files in bytes.
    pub(super) space_bytes: Option<u64>,
    /// Number of the call from which on the disk is full.
    pub(super) full_at_call: Option<u64>,
    /// Number of the call that fails.
    pub(super) failing_call: Option<u64>,
    /// Number of the call that panics.
    pub(super) panicking_call: Option<u64>,
    /// Number of the changing or syncing operation that panics.
    pub(super) panicking_operation: Option<u64>,
    /// Number of the operation during which power is lost.
    pub(super) power_lost_at: Option<u64>,
    /// Number of operations that fail, by prefix of names.
    injected: BTreeMap<(Fault, String), u32>,
    /// Faults that have occurred, each with the name of the file.
    pub(super) hits: Vec<(Fault, String)>,
}

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault, prefix: &str, count: u32) {
        self.injected.insert((fault, prefix.to_owned()), count);
    }

    /// Returns whether an operation on `path` fails in this way. Consumes one fault.
    pub(super) fn hit(&mut self, fault: Fault, path: &str) -> bool {
        let mut waiting = self.injected.iter_mut();
        let found = waiting.find(|((of, prefix), left)| {
            *of == fault && **left > 0 && path.starts_with(prefix.as_str())
        });
        let Some((_, left)) = found else {
            return false;
        };
        if *left != u32::MAX {
            *left -= 1;
        }
        self.hits.push((fault, path.to_owned()));
        true
    }
}
