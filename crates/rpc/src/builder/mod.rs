//! Building blocks: a draft with transactions that are given or wait in the pool is executed on its parent's state, and
//! becomes a payload as consensus clients take it. Nothing is stored.

mod attributes;
mod build;
mod envelope;

pub use attributes::BuildOptions;
pub(crate) use attributes::draft_attributes;
pub(crate) use build::{BuiltBlock, Candidates, build};
pub(crate) use envelope::{PayloadVersion, envelope};
