//! Names and parsing of a checkpoint's sections. The formats are described at
//! [`IndexWriter::finish`](super::IndexWriter::finish).

use crate::base::error::StateError;
use cambium_primitives::{DecodeError, Reader};
use cambium_store::Checkpoint;

/// Maximum size of a part with its checksum, in bytes: one device read, about as fast as that of a
/// single block. Larger subtries are split at their topmost branch. In an evenly distributed state,
/// parts have at least a sixteenth of this size, and tops take at most a tenth of the index.
pub(super) const PART_BYTES_MAX: usize = 8 * 1024;

/// Section with the parts of a whole index. Without it, the parts that `tops` names are in the segments.
pub(super) const INDEX: &str = "index";
/// Section with the tops of a whole index.
pub(super) const TOPS: &str = "tops";
/// Section with the changes of each shard.
pub(super) const CHANGES: &str = "changes";
/// Section with the position of each shard's changes.
pub(super) const CHANGED: &str = "changed";

/// Reads the section named `section`, which `parse` must consume entirely.
///
/// # Errors
///
/// [`StateError::Store`] if the section can't be read, and [`StateError::Damaged`] if `parse` fails
/// or leaves bytes.
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

/// Returns the error for a section that can't be decoded, naming section and checkpoint.
pub fn damaged_section(checkpoint: &Checkpoint, section: &str, source: DecodeError) -> StateError {
    let sequence = checkpoint.sequence();
    StateError::Damaged {
        what: format!("section {section} of checkpoint {sequence}"),
        source,
    }
}
