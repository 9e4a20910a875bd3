//! Runs in files: sorted entries of consecutive blocks, written once.

mod fences;
pub(crate) mod format;
mod pages;
pub(crate) mod writer;
pub(crate) mod reader;

pub(crate) use pages::{PageReads, PagesAhead, Place};
