//! The stores that the workload runs over, behind one interface.
//!
//! Each is set up as its own documentation recommends for speed with durable commits; the chosen
//! options are in [`Store::configuration`], and go into the report.

mod store;
mod bytes;
mod cambium;
mod entries;
#[cfg(feature = "firewood")]
mod firewood;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "mdbx")]
pub(crate) mod mdbx;
#[cfg(feature = "nomt")]
mod nomt;
#[cfg(feature = "qmdb")]
mod qmdb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_mpt;
mod kind;

pub(crate) use cambium::CambiumStore;
pub(crate) use kind::{Kind, kinds};
pub(crate) use store::{Committed, Failure, Setup, Store, WitnessMade, Write};
