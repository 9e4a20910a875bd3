//! The blocks above the base: their values, and the tree that they form.

pub(crate) mod overlay;
pub(crate) mod tree;
