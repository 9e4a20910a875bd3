//! Why an index can't be made again.

use crate::base::error::StateError;
use cambium_primitives::{DecodeError, Path};

/// What is damaged.
pub(crate) fn damaged_index(what: &'static str) -> StateError {
    StateError::Damaged {
        what: "the index made again from pages".to_owned(),
        source: DecodeError { what, offset: 0 },
    }
}

/// What pages contradict.
pub(crate) fn conflicting_pages(path: &Path) -> StateError {
    StateError::Broken {
        path: *path,
        what: "a place among the pages",
    }
}
