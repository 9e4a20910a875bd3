//! Runs in files: sorted entries of consecutive blocks, written once.

mod fences;
mod filter;
pub(crate) mod format;
pub(crate) mod writer;
pub(crate) mod reader;

pub(crate) use filter::Filter;
