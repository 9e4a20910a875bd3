//! The database of a benchmark, and its histories.

use super::plan::{Failure, Plan, account, changes_of, make_empty, path};
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_history::{History, HistoryOptions, WholeNodes};
use cambium_primitives::BlockId;
use cambium_state::{BlockMeta, Db, Loader, Options, StdDisk};
use cambium_trie::ProofTargets;
use serde_json::{Map, Value, json};
use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

/// Accounts whose paths are extracted at once from the first state.
const EXTRACTED: usize = 10_000;

/// Takes the nodes of the trie that are new in a block.
pub(super) type TakeNodes<'a> = &'a mut dyn FnMut(Vec<Bytes>) -> Result<(), Failure>;

/// A database with its blocks, and the time of making these.
pub(super) struct Made {
    pub(super) db: Db,
    pub(super) elapsed: Duration,
}

/// Memory of the engine that takes imported blocks back, in bytes.
const REOPEN_BYTES: u64 = 1 << 30;

impl Plan {
    fn options(&self) -> Options {
        Options {
            memory_bytes: self.memory,
            ..Options::default()
        }
    }

    pub(super) fn history_options(&self) -> HistoryOptions {
        HistoryOptions {
            memory_bytes: self.history_memory,
            trie_bytes: self.trie_memory,
            cache_bytes: self.history_cache,
            ..HistoryOptions::default()
        }
    }

    /// Makes the database, and commits its blocks. `take` gets the nodes of the first state, then those
    /// of each block.
    pub(super) fn make(&self, mut take: Option<TakeNodes<'_>>) -> Result<Made, Failure> {
        let dir = self.database_dir();
        make_empty(&dir)?;
        let mut loader = Loader::new(Arc::new(StdDisk::new(&dir)), self.options())?;
        for index in 0..self.accounts {
            loader.account(path(index), &account(0), [])?;
        }
        let loaded = loader.finish(&mut |_| {})?;
        let first = BlockMeta {
            id: BlockId::new(0, keccak256("the first block")),
            parent: B256::ZERO,
            state_root: loaded.root(),
            body: Bytes::new(),
        };
        let mut roots = first.state_root.to_vec();
        let db = loaded.create(first, vec![])?;
        if let Some(take) = &mut take {
            let mut paths: Vec<_> = (0..self.accounts).map(path).collect();
            paths.sort_unstable();
            for paths in paths.chunks(EXTRACTED) {
                take(nodes_of(&db, paths.to_vec())?)?;
            }
        }
        let mut elapsed = Duration::ZERO;
        for (number, indices) in (1..).zip(self.all_changed_accounts()) {
            if number > self.blocks && take.is_none() {
                break;
            }
            let start = Instant::now();
            let root = commit(&db, &indices, "made")?;
            if number <= self.blocks {
                elapsed += start.elapsed();
                roots.extend_from_slice(root.as_slice());
            }
            if let Some(take) = &mut take {
                // No account comes or goes, so what is new is on the paths.
                take(nodes_of(&db, indices.into_iter().map(path).collect())?)?;
            }
        }
        // The blocks above are imported while accounts are read.
        if db.head().number > self.blocks {
            db.unwind(self.blocks)?;
        }
        fs::write(self.roots_file(), roots)?;
        Ok(Made { db, elapsed })
    }

    /// Number of parts in which the nodes of the first state are taken.
    #[cfg(feature = "leveldb")]
    pub(super) const fn first_parts(&self) -> u64 {
        self.accounts.div_ceil(EXTRACTED as u64)
    }

    /// Opens the database again, and takes back blocks that were imported while it was read. `elapsed` is the time that
    /// making it took.
    pub(super) fn reopen(&self, elapsed: Duration) -> Result<Made, Failure> {
        let disk = Arc::new(StdDisk::new(self.database_dir()));
        let roomy = Options {
            // Room to take merged blocks back as well.
            memory_bytes: REOPEN_BYTES,
            ..Options::default()
        };
        let (db, _) = Db::open(disk.clone(), roomy)?;
        if db.head().number > self.blocks {
            db.unwind(self.blocks)?;
            db.flush(0)?;
        }
        drop(db);
        let (db, _) = Db::open(disk, self.options())?;
        Ok(Made { db, elapsed })
    }

    /// Builds the history of all blocks.
    pub(super) fn build(
        &self,
        nodes: Option<WholeNodes>,
        made: &Made,
    ) -> Result<Map<String, Value>, Failure> {
        let Made { db, elapsed } = made;
        let options = self.history_options();
        let disk = Arc::new(StdDisk::new(self.database_dir()));
        let start = Instant::now();
        let history = match nodes {
            None => {
                let history = History::create(disk, db, 0, None, options)?;
                let mut merged = Ok(());
                history.catch_up(db, &mut |so_far| {
                    if so_far.at.is_multiple_of(256) {
                        merged = history.merge();
                    }
                    merged.is_ok()
                })?;
                merged?;
                history
            }
            nodes => {
                let history = History::create(disk, db, self.blocks, nodes, options)?;
                history.extend_down(db, 0, &mut |_| true)?;
                history
            }
        };
        history.flush()?;
        history.merge()?;
        let built = start.elapsed().as_secs_f64();
        let stats = history.stats();
        let changes: usize = self.changed_accounts().map(|indices| indices.len()).sum();
        let changes = changes.max(1) as f64;
        let figures = json!({
            "history_files": stats.files,
            "history_mib": stats.file_bytes as f64 / f64::from(1 << 20),
            "bytes_per_change": stats.file_bytes as f64 / changes,
            "write_amplification": stats.written_bytes as f64 / stats.file_bytes.max(1) as f64,
            "index_bytes_per_change": stats.index_bytes as f64 / changes,
            "blocks_made_per_second": self.blocks as f64 / elapsed.as_secs_f64(),
            "build_seconds": built,
            "build_us_per_change": 1e6 * built / changes,
            "build_against_making": elapsed.as_secs_f64() / built,
        });
        Ok(figures.as_object().cloned().unwrap_or_default())
    }
}

/// Commits the block after the head, which changes some accounts. Returns its state root. Blocks of
/// different labels have different hashes.
pub(super) fn commit(db: &Db, indices: &[u64], label: &str) -> Result<B256, Failure> {
    let view = db.view()?;
    let parent = view.block();
    let number = parent.number + 1;
    let staged = view.session().finish(changes_of(number, indices), vec![])?;
    let state_root = staged.root();
    let block = BlockMeta {
        id: BlockId::new(number, keccak256(format!("block {number}, {label}"))),
        parent: parent.hash,
        state_root,
        body: Bytes::new(),
    };
    staged.seal(block)?.commit()?;
    Ok(state_root)
}

/// The nodes on the paths to some accounts.
fn nodes_of(db: &Db, paths: Vec<B256>) -> Result<Vec<Bytes>, Failure> {
    let keys = ProofTargets::new(paths.into_iter().map(|path| (path, vec![])).collect());
    Ok(db.view()?.extract(&keys)?.witness_nodes())
}
