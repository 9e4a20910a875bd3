//! Command line arguments by topic, with their help texts.

pub(crate) mod database;
pub(crate) mod accounts;
pub(crate) mod about;
pub(crate) mod blocks;
pub(crate) mod chain;
pub(crate) mod history;
pub(crate) mod index;
pub(crate) mod kv;
pub(crate) mod proof;
#[cfg(any(feature = "cluster", feature = "serve"))]
pub(crate) mod network;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod dump;
pub(crate) mod maintenance;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod import;
pub(crate) mod workload;
mod command;

pub(crate) use command::{Args, Command, LogFormat};
