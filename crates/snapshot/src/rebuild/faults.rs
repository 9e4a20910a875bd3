//! Errors of a rebuild.

use crate::base::error::StateError;
use cambium_primitives::{DecodeError, Path};

/// Returns the error of a rebuild that lacks information, or whose result is wrong.
pub(crate) fn damaged_index(what: &'static str) -> StateError {
    StateError::Damaged {
        what: "the index rebuilt from pages".to_owned(),
        source: DecodeError { what, offset: 0 },
    }
}

/// Returns the error for pages at `path` that can't be in the same trie.
pub(crate) fn conflicting_pages(path: &Path) -> StateError {
    StateError::Broken {
        path: *path,
        what: "a place among the pages",
    }
}
