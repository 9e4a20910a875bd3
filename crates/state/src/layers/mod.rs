//! The layers: blocks above the base, with their values by key and the tree that they form.

pub(crate) mod overlay;
pub(crate) mod tree;
