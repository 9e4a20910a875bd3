//! States that have no layer, and what is proved of states.

pub(crate) mod restore;
pub(crate) mod proof;
