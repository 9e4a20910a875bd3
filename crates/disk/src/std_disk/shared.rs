//! State that a disk shares with its open files.

use crate::stats::Counters;
use std::{io, sync::OnceLock};

/// State that a disk shares with its open files.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) counters: Counters,
    /// Whether files may bypass the page cache.
    pub(super) wants_direct: bool,
    /// Set by the first file that bypasses the page cache.
    pub(super) is_direct: OnceLock<()>,
    /// Reason why a file opened for direct access does not bypass the page cache.
    pub(super) direct_refusal: OnceLock<String>,
}

impl Shared {
    /// Records that a file bypasses the page cache, or why it does not.
    pub(super) fn note_direct(&self, refusal: Option<&io::Error>) {
        let _ = match refusal {
            None => self.is_direct.set(()),
            Some(why) => self.direct_refusal.set(why.to_string()).map_err(|_| ()),
        };
    }
}
