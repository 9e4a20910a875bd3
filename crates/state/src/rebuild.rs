//! temporary
use crate::{checkpoint, error::StateError, index::PartCache, options::Options};
use cambium_disk::Disk;
use cambium_primitives::DecodeError;
use cambium_store::Manifest;
use std::sync::Arc;
pub(crate) fn rebuild(
    _: &Arc<dyn Disk>,
    _: &Manifest,
    _: &Options,
    _: &Arc<PartCache>,
) -> Result<checkpoint::Read, StateError> {
    Err(StateError::Damaged {
        what: "x".into(),
        source: DecodeError {
            what: "x",
            offset: 0,
        },
    })
}
pub fn repair(_: &Arc<dyn Disk>) -> Result<Option<cambium_store::LogPosition>, StateError> {
    Ok(None)
}
