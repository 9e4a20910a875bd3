//! The commitment of the database under test, and the model of its roots.

use crate::{LayeredBlock, Model, layered_model_root, random};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::Path;
use cambium_state::{LeafKind, Options};
use cambium_trie::{Commitment, NoResolve, PartialTrie, commit};
use std::sync::Arc;

/// Commitment of a database under test, and its backend: all cases of the suite run with each.
#[derive(Clone, Copy, Debug)]
pub enum TestedCommitment {
    /// Accounts and slots, under `mpt`.
    Mpt,
    /// Accounts, and the slots of about half of them, under `mpt`: a partial database.
    Partial,
    /// Accounts and slots, under `layered`.
    Layered {
        /// Blocks of an interval.
        interval: u64,
    },
    /// Entries of a key-value database, under `mpt` or a binary commitment.
    Entries(Commitment),
    /// Entries of a key-value database, under `layered`.
    LayeredEntries {
        /// Blocks of an interval.
        interval: u64,
    },
}

impl TestedCommitment {
    /// The commitment of a database with these options.
    pub(crate) const fn of(options: &Options) -> Self {
        match (options.leaves, options.merge_interval_blocks) {
            (LeafKind::Entries, Some(interval)) => Self::LayeredEntries { interval },
            (LeafKind::Entries, None) => Self::Entries(options.commitment),
            (_, Some(interval)) => Self::Layered { interval },
            _ if matches!(options.commitment, Commitment::PartialMpt) => Self::Partial,
            _ => Self::Mpt,
        }
    }

    /// `options` for a database of this commitment.
    pub(super) const fn options(self, options: Options) -> Options {
        match self {
            Self::Mpt => options,
            Self::Partial => Options {
                commitment: Commitment::PartialMpt,
                ..options
            },
            Self::Layered { interval } => options.layered(interval),
            Self::LayeredEntries { interval } => Options {
                leaves: LeafKind::Entries,
                ..options.layered(interval)
            },
            Self::Entries(commitment) => Options {
                commitment,
                leaves: LeafKind::Entries,
                ..options
            },
        }
    }

    /// Whether the database has the slots of the account at `path`.
    pub(super) fn keeps(self, path: &B256) -> bool {
        !matches!(self, Self::Partial) || random::keeps_storage(path)
    }

    /// The state that changes of the database's blocks lead to: with storage roots in place of slots that are not kept.
    pub(super) fn seen(self, model: &Arc<Model>) -> Arc<Model> {
        match self {
            Self::Partial => Arc::new(model.keeping(random::keeps_storage)),
            _ => model.clone(),
        }
    }

    /// Kind of the database's leaves.
    pub(super) const fn leaves(self) -> LeafKind {
        match self {
            Self::Entries(_) | Self::LayeredEntries { .. } => LeafKind::Entries,
            Self::Mpt | Self::Partial | Self::Layered { .. } => LeafKind::Accounts,
        }
    }

    /// Number of newest blocks that a root depends on, besides the states before and after.
    pub(super) const fn blocks(self) -> u64 {
        match self {
            Self::Layered { interval } | Self::LayeredEntries { interval } => 2 * interval,
            Self::Mpt | Self::Partial | Self::Entries(_) => 0,
        }
    }

    /// The root of a first state.
    pub(crate) fn first_root(self, first: &Model) -> B256 {
        self.root(0, &[], first)
    }

    /// The root of the state `state` after the last of `blocks`, the newest [`Self::blocks`] of a
    /// chain, which has the height `height` above the first state.
    pub(super) fn root(self, height: u64, blocks: &[LayeredBlock<'_>], state: &Model) -> B256 {
        match self {
            Self::Mpt | Self::Partial => state.root(),
            Self::Layered { interval } | Self::LayeredEntries { interval } => {
                layered_model_root(interval, height, blocks, state)
            }
            Self::Entries(commitment) => entries_root(commitment, state),
        }
    }
}

/// The root of a trie that is built from nothing. `crates/trie/tests/entries.rs` compares such tries
/// with those of nomt-core and alloy-trie.
fn entries_root(commitment: Commitment, state: &Model) -> B256 {
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    let entries = state.entries().iter();
    let entries: Vec<_> = entries
        .map(|(key, value)| crate::random::entry_change(*key, Some(value.clone())))
        .collect();
    let applied = trie.apply(&entries, &mut NoResolve);
    applied.expect("a trie with nothing blinded");
    commit(&mut [&mut trie], &mut Batch::new());
    trie.state_root().expect("a hashed trie")
}
