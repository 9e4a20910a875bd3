//! Measured workload: accounts, blocks that change some of them at random, and reads at random.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};
use cambium_testkit::Random;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{
    error::Error,
    path::{Path, PathBuf},
};

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// The sizes of a benchmark. All that is random follows from its seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) accounts: u64,
    pub(super) blocks: u64,
    /// Blocks that are imported while accounts are read, and how many of them in a second.
    pub(super) imported: u64,
    pub(super) import_rate: u64,
    pub(super) changes: u64,
    pub(super) reads: u64,
    /// Memory of the engine, in bytes.
    pub(super) memory: u64,
    /// Memory of the history, in bytes.
    pub(super) history_memory: u64,
    /// Memory for pages of the history that were read, in bytes.
    pub(super) history_cache: u64,
    /// Memory of the trie from which nodes are made, in bytes.
    pub(super) trie_memory: u64,
    /// Memory of a process that reads, page cache included, in bytes.
    pub(super) process_memory: u64,
    pub(super) seed: u64,
    pub(super) dir: PathBuf,
}

impl Plan {
    /// The database and its history.
    pub(super) fn database_dir(&self) -> PathBuf {
        self.dir.join("cambium")
    }

    /// State roots, 32 bytes a block from block 0 on.
    pub(super) fn roots_file(&self) -> PathBuf {
        self.dir.join("roots")
    }

    /// The state roots, after the blocks have been made.
    pub(super) fn roots(&self) -> Result<Vec<B256>, Failure> {
        let bytes = std::fs::read(self.roots_file())?;
        Ok(bytes.chunks_exact(32).map(B256::from_slice).collect())
    }

    /// LevelDB's nodes of the blocks that are imported while accounts are read.
    #[cfg(feature = "leveldb")]
    pub(super) fn imported_nodes_file(&self) -> PathBuf {
        self.dir.join("imported-nodes")
    }

    /// Accounts that each block changes, from block 1 on, in ascending order.
    pub(super) fn changed_accounts(&self) -> impl Iterator<Item = Vec<u64>> {
        self.all_changed_accounts().take(self.blocks as usize)
    }

    /// The same, and after them those of the blocks that are imported while accounts are read.
    pub(super) fn all_changed_accounts(&self) -> impl Iterator<Item = Vec<u64>> {
        let mut random = Random::new(self.seed);
        let (accounts, changes) = (self.accounts, self.changes);
        (0..self.blocks + self.imported).map(move |_| {
            let mut indices: Vec<_> = (0..changes).map(|_| random.below(accounts)).collect();
            indices.sort_unstable();
            indices.dedup();
            indices
        })
    }

    /// The reads of a number of threads: accounts and blocks, both chosen uniformly.
    pub(super) fn reads(&self, seed: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut random = Random::new(self.seed ^ 0x5eed ^ (seed << 32));
        let (accounts, blocks) = (self.accounts, self.blocks);
        (0..self.reads).map(move |_| (random.below(accounts), random.below(blocks)))
    }

    pub(super) fn parameters(&self) -> Map<String, Value> {
        let parameters = json!({
            "accounts": self.accounts,
            "blocks": self.blocks,
            "imported": self.imported,
            "import_rate": self.import_rate,
            "changes": self.changes,
            "reads": self.reads,
            "memory_mib": self.memory >> 20,
            "history_memory_mib": self.history_memory >> 20,
            "history_cache_mib": self.history_cache >> 20,
            "trie_memory_mib": self.trie_memory >> 20,
            "process_memory_mib": self.process_memory >> 20,
            "seed": self.seed,
        });
        parameters.as_object().cloned().unwrap_or_default()
    }
}

/// The changes of block `number`.
pub(super) fn changes_of(number: u64, indices: &[u64]) -> Changes {
    let changes = indices.iter().map(|index| AccountDiff {
        path: path(*index),
        account: AccountUpdate::Put(account(number)),
        wipe: false,
        slots: vec![],
    });
    Changes::new(changes.collect())
}

/// The path of an account.
pub(super) fn path(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

/// An account that block `nonce` has changed; 0 if none has.
pub(super) fn account(nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(1_000_000_000_000_000_000u64) + U256::from(nonce),
        ..Account::default()
    }
}

/// The blocks at which each account changed, ascending.
pub(super) struct Truth {
    changed: Vec<Vec<u32>>,
}

impl Truth {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut changed = vec![Vec::new(); plan.accounts as usize];
        for (number, indices) in (1..).zip(plan.changed_accounts()) {
            for index in indices {
                changed[index as usize].push(number);
            }
        }
        Self { changed }
    }

    /// The nonce of an account after a block.
    pub(super) fn nonce(&self, index: u64, number: u64) -> u64 {
        let changed = &self.changed[index as usize];
        let last = changed.partition_point(|block| u64::from(*block) <= number);
        last.checked_sub(1).map_or(0, |at| changed[at].into())
    }
}

/// Empties a directory, or creates it.
pub(super) fn make_empty(dir: &Path) -> Result<(), Failure> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(std::fs::create_dir_all(dir)?)
}
