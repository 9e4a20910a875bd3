//! Runs in files: sorted entries of consecutive blocks, and where their data is. Written once.

pub(crate) mod page;
pub(crate) mod format;
pub(crate) mod writer;
pub(crate) mod reader;
