//! Sections of checkpoints.

use crate::base::error::StateError;
use cambium_primitives::{DecodeError, Reader};
use cambium_store::Checkpoint;

/// Names of the checkpoint's sections.
pub(super) const INDEX: &str = "index";
pub(super) const TOPS: &str = "tops";
pub(super) const CHANGES: &str = "changes";
pub(super) const CHANGED: &str = "changed";

/// Reads a section all of which `parse` takes.
pub fn parse_section<T>(
    checkpoint: &Checkpoint,
    section: &str,
    parse: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, StateError> {
    let bytes = checkpoint.read_section(section)?;
    let mut reader = Reader::new(&bytes);
    let parsed = parse(&mut reader).and_then(|parsed| reader.finish().map(|()| parsed));
    parsed.map_err(|source| damaged_section(checkpoint, section, source))
}

/// The error of a section that is not what it should be.
pub fn damaged_section(checkpoint: &Checkpoint, section: &str, source: DecodeError) -> StateError {
    let sequence = checkpoint.sequence();
    StateError::Damaged {
        what: format!("section {section} of checkpoint {sequence}"),
        source,
    }
}
