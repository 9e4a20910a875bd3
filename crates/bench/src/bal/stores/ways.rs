//! State providers, and ways of executing a block over them.

use super::child_block::ListGiven;
use cambium_chain::{BlockExecutor, ExecutorKind};
use serde::{Deserialize, Serialize};
use std::{fmt, num::NonZeroUsize};

/// Number of threads that read a batch from stores without batched reads.
const BATCH_THREADS: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// A state provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Provider {
    Cambium,
    Rocksdb,
    Mdbx,
    /// Memory, without a store.
    Memory,
}

impl Provider {
    pub(crate) const PEERS: [Self; 2] = [Self::Rocksdb, Self::Mdbx];

    /// Parses a list of names of peers, or `all` or `none`.
    pub(crate) fn peers(list: &str) -> Result<Vec<Self>, String> {
        let named = |name: &str| {
            let peer = Self::PEERS
                .into_iter()
                .find(|peer| peer.to_string() == name);
            peer.ok_or_else(|| format!("no peer {name:?}: there are rocksdb and mdbx"))
        };
        let mut peers = match list {
            "none" => Vec::new(),
            "all" => Self::PEERS.to_vec(),
            list => list.split(',').map(named).collect::<Result<_, _>>()?,
        };
        peers.sort_unstable();
        peers.dedup();
        match peers.iter().find(|peer| !peer.is_built()) {
            Some(peer) => Err(format!(
                "built without {peer}: `./bench bal --peers {peer}` builds it in"
            )),
            None => Ok(peers),
        }
    }

    pub(crate) const fn is_built(self) -> bool {
        match self {
            Self::Cambium | Self::Memory => true,
            Self::Rocksdb => cfg!(feature = "rocksdb"),
            Self::Mdbx => cfg!(feature = "mdbx"),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cambium => "cambium",
            Self::Rocksdb => "rocksdb",
            Self::Mdbx => "mdbx",
            Self::Memory => "no store",
        })
    }
}

/// A way of executing a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Way {
    Sequential,
    /// Given the changes of the list, on this many threads.
    Parallel(NonZeroUsize),
    /// Given the whole list: one batch of reads, then one thread per processor.
    Batched,
}

impl Way {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let threads = [1, 2, 4, 8, 16, 32]
            .into_iter()
            .filter_map(NonZeroUsize::new);
        [Self::Sequential]
            .into_iter()
            .chain(threads.map(Self::Parallel))
            .chain([Self::Batched])
    }

    pub(crate) const fn list(self) -> ListGiven {
        match self {
            Self::Sequential => ListGiven::None,
            Self::Parallel(_) => ListGiven::Changes,
            Self::Batched => ListGiven::Whole,
        }
    }

    /// Returns the number of threads that read for stores without batched reads.
    pub(crate) fn read_threads(self) -> NonZeroUsize {
        match self {
            Self::Sequential => NonZeroUsize::MIN,
            Self::Parallel(threads) => threads,
            Self::Batched => BATCH_THREADS,
        }
    }

    pub(crate) fn executor(self) -> BlockExecutor {
        match self {
            Self::Sequential => BlockExecutor::new(ExecutorKind::Sequential),
            Self::Parallel(threads) => {
                BlockExecutor::new(ExecutorKind::Parallel).with_threads(threads)
            }
            Self::Batched => BlockExecutor::new(ExecutorKind::Batched),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.write_str("sequential"),
            Self::Parallel(threads) => write!(f, "parallel_{threads}"),
            Self::Batched => f.write_str("batched"),
        }
    }
}
