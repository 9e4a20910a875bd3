//! Why a genesis file can't be used.

use alloy_primitives::Address;
use std::{io, sync::Arc};

/// Why a genesis file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GenesisError {
    /// The file can't be opened.
    #[error("{file}: can't be opened: {source}")]
    Open {
        /// The file.
        file: Arc<str>,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is no JSON, or a field has a value that it can't have, or reading failed.
    #[error("{file}: {source}")]
    Parse {
        /// The file.
        file: Arc<str>,
        /// What is wrong, with field, line and column.
        source: serde_json::Error,
    },
    /// The file gives one account twice.
    #[error("{file}: alloc has account {address} twice")]
    Twice {
        /// The file.
        file: Arc<str>,
        /// The account.
        address: Address,
    },
    /// The file gives one slot of an account twice.
    #[error("{file}: alloc has a slot of account {address} twice")]
    SlotTwice {
        /// The file.
        file: Arc<str>,
        /// The account.
        address: Address,
    },
    /// The file's `config` has fields that make other rules.
    #[error(
        "{file}: config has {}: blocks of such a chain follow rules that are not known here",
        list(fields)
    )]
    OtherRules {
        /// The file.
        file: Arc<str>,
        /// The fields.
        fields: Vec<String>,
    },
    /// The file has no fork rules, and is of no chain whose rules are known.
    #[error("{file}: has no `config`, and is not the genesis of a public chain known here")]
    NoConfig {
        /// The file.
        file: Arc<str>,
    },
}

fn list(fields: &[String]) -> String {
    let quoted: Vec<_> = fields.iter().map(|field| format!("`{field}`")).collect();
    quoted.join(", ")
}
