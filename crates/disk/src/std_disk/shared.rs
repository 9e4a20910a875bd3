//! What a disk and its open files know of each other.

use crate::stats::Counters;
use std::{io, sync::OnceLock};

/// What a disk and its files have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) counters: Counters,
    /// Whether files may bypass the cache.
    pub(super) wants_direct: bool,
    /// Set by the first file that does.
    pub(super) is_direct: OnceLock<()>,
    /// Why some file does not although it was asked to.
    pub(super) direct_refusal: OnceLock<String>,
}

impl Shared {
    /// Notes that a file bypasses the cache, or why it does not.
    pub(super) fn note_direct(&self, refusal: Option<&io::Error>) {
        let _ = match refusal {
            None => self.is_direct.set(()),
            Some(why) => self.direct_refusal.set(why.to_string()).map_err(|_| ()),
        };
    }
}
