//! What goes wrong on demand, and what did.

use std::collections::BTreeMap;

/// A way in which an operation on a file goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A read fails: an input or output error.
    FailedRead,
    /// A file can't be opened: the process has too many open.
    FailedOpen,
    /// A write fails after a part of its bytes, and a hole without any.
    FailedWrite,
    /// A sync fails, and unsynced writes may be lost for good.
    FailedSync,
    /// A write is reported as done, and never happens.
    LostWrite,
    /// A write is reported as done, and happens in another place of the file.
    MisdirectedWrite,
}

/// Faults that are to come.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Bytes of all files at most.
    pub(super) space_bytes: Option<u64>,
    /// The call from which on no file grows.
    pub(super) full_at_call: Option<u64>,
    /// The call that fails.
    pub(super) failing_call: Option<u64>,
    /// The call that panics.
    pub(super) panicking_call: Option<u64>,
    /// The operation that panics, of those that change or sync something.
    pub(super) panicking_operation: Option<u64>,
    /// The operation during which power is lost.
    pub(super) power_lost_at: Option<u64>,
    /// By the beginning of names, how many operations go wrong.
    injected: BTreeMap<(Fault, String), u32>,
    /// What came, and on which name.
    pub(super) hits: Vec<(Fault, String)>,
}

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault, prefix: &str, count: u32) {
        self.injected.insert((fault, prefix.to_owned()), count);
    }

    /// Whether an operation on `path` goes wrong in this way. Uses up one fault.
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
