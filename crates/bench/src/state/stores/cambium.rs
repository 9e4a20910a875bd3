//! Cambium's own engine.

use super::{Committed, Failure, Setup, Store, WitnessMade, Write};
use crate::state::workload::Workload;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, Loader, Options, Recovery, Session, StdDisk, View};
use cambium_trie::ProofTargets;
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Instant};

/// Number of accounts whose keys are hashed at once while loading.
const LOAD_CHUNK: u64 = 1 << 16;
/// Percentage of the process's memory that is the engine's budget. The rest is for the program
/// itself, the batch, and overhead of the allocator.
const BUDGET_PERCENT: u64 = 85;
/// Numbers of batches that are never committed begin here.
const LONE_BATCHES: u64 = 1 << 30;

pub(super) fn options(setup: &Setup) -> Options {
    Options {
        memory_bytes: setup.memory_bytes / 100 * BUDGET_PERCENT,
        // A batch is as large as hundreds of blocks, and the other stores keep none to go back to.
        unfinalized_blocks: 1,
        ..Options::default()
    }
}

pub(super) fn disk(setup: &Setup) -> Arc<dyn Disk> {
    Arc::new(StdDisk::new(&setup.dir))
}

/// Returns the metadata of the block after this many batches.
pub(super) fn meta(batches: u64, state_root: B256) -> BlockMeta {
    let id =
        |number: u64| BlockId::new(number, B256::left_padding_from(&(number + 1).to_be_bytes()));
    BlockMeta {
        id: id(batches),
        parent: batches
            .checked_sub(1)
            .map_or(B256::ZERO, |parent| id(parent).hash),
        state_root,
        body: Bytes::new(),
    }
}

/// Creates a database of the commitment `mpt`, or of `layered` with intervals of `merge_interval_blocks`.
pub(super) fn load(setup: &Setup, merge_interval_blocks: Option<u64>) -> Result<(), Failure> {
    let options = options(setup);
    let options = merge_interval_blocks.map_or(options, |blocks| options.layered(blocks));
    let mut loader = Loader::new(disk(setup), options)?;
    let accounts = setup.workload.accounts;
    for start in (0..accounts).step_by(LOAD_CHUNK as usize) {
        for key in setup.workload.keys(start..accounts.min(start + LOAD_CHUNK)) {
            loader.account(key, &Workload::first_state(&key), [])?;
        }
    }
    let loaded = loader.finish(&mut |_| {})?;
    let meta = meta(0, loaded.root());
    loaded.create(meta, Vec::new())?;
    Ok(())
}

/// An open database.
pub(crate) struct CambiumStore {
    disk: Arc<dyn Disk>,
    db: Db,
    view: View,
    /// The session that read the batch, for its commit.
    session: Option<Session>,
    recovery: Recovery,
    options: Options,
    workload: Workload,
    /// Whether to measure a root beside which nothing runs.
    measures_root: bool,
}

impl CambiumStore {
    pub(crate) fn open(setup: &Setup) -> Result<Self, Failure> {
        let (disk, options) = (disk(setup), options(setup));
        let (db, recovery) = Db::open(disk.clone(), options)?;
        let view = db.view()?;
        Ok(Self {
            disk,
            db,
            view,
            session: None,
            recovery,
            options,
            workload: setup.workload,
            measures_root: setup.merge_interval.is_some(),
        })
    }

    pub(crate) const fn db(&self) -> &Db {
        &self.db
    }

    pub(crate) const fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the state after the newest batch.
    pub(crate) const fn view(&self) -> &View {
        &self.view
    }

    /// Computes the root of a batch that is read and then given up, beside which no merge and no job
    /// runs. Returns the device reads that it took, and its time in milliseconds.
    fn lone_root(&mut self, batch: u64) -> Result<(u64, f64), Failure> {
        self.db.flush(0)?;
        self.view = self.db.view()?;
        let batch = self.workload.batch(batch);
        let session = self.view.clone().session();
        let values = session.accounts(&batch.keys)?;
        let changes = changes(&batch.keys, &batch.execute(&values)?);
        let before = self.disk.stats().reads;
        let start = Instant::now();
        let staged = session.finish(changes, Vec::new())?;
        let milliseconds = 1e3 * start.elapsed().as_secs_f64();
        let reads = self.disk.stats().reads - before;
        drop(staged);
        Ok((reads, milliseconds))
    }

    /// Computes the root of a batch and makes it durable.
    pub(super) fn commit_session(
        &mut self,
        session: Session,
        changes: Changes,
        witness: Option<WitnessMade>,
    ) -> Result<Committed, Failure> {
        let start = Instant::now();
        let number = self.view.block().number + 1;
        let staged = session.finish(changes, Vec::new())?;
        let root = staged.root();
        let root_time = start.elapsed();
        staged.seal(meta(number, root))?.commit()?;
        self.view = self.db.view()?;
        Ok(Committed {
            root: Some(root),
            root_time: Some(root_time),
            witness,
        })
    }
}

pub(super) fn changes(keys: &[B256], new: &[Account]) -> Changes {
    let put = |(path, account): (&B256, &Account)| AccountDiff {
        path: *path,
        account: AccountUpdate::Put(*account),
        wipe: false,
        slots: Vec::new(),
    };
    Changes::new(keys.iter().zip(new).map(put).collect())
}

impl Store for CambiumStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        let session = self.view.clone().session();
        let values = session.accounts(keys)?;
        self.session = Some(session);
        Ok(values)
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let changes = changes(write.keys, write.new);
        let session = self.session.take();
        let session = session.unwrap_or_else(|| self.view.clone().session());
        let witness = write.witness.then(Instant::now);
        let witness = witness
            .map(|start| {
                let read =
                    ProofTargets::new(write.keys.iter().map(|key| (*key, Vec::new())).collect());
                let part = session.extract_for_changes(&read, &changes)?;
                let nodes = part.witness_nodes();
                Ok::<_, Failure>(WitnessMade {
                    time: Some(start.elapsed()),
                    bytes: nodes.iter().map(|node| node.len() as u64).sum(),
                })
            })
            .transpose()?;
        self.commit_session(session, changes, witness)
    }

    fn settle(&mut self) -> Result<(), Failure> {
        Ok(self.db.flush(0)?)
    }

    fn configuration(&self) -> String {
        format!(
            "told {} MiB ({BUDGET_PERCENT} % of the limit); {}; block log synced for each batch; \
             merges on threads of low priority",
            self.options.memory_bytes >> 20,
            self.disk.describe()
        )
    }

    fn device_reads(&self) -> Option<u64> {
        Some(self.disk.stats().reads)
    }

    fn figures(&mut self) -> Result<Map<String, Value>, Failure> {
        let stats = self.db.stats()?;
        let mut figures = Map::new();
        let mut add = |name: &str, value: u64| figures.insert(name.to_owned(), json!(value));
        add("memory_told_bytes", self.options.memory_bytes);
        add("overlay_bytes", stats.overlay_bytes as u64);
        add("delta_bytes", stats.delta_bytes as u64);
        add("index_bytes", stats.index_bytes as u64);
        add("index_bytes_on_disk", stats.index_bytes_on_disk);
        add("pages", stats.pages);
        add("value_cache_bytes", stats.value_cache_bytes as u64);
        add("page_cache_bytes", stats.page_cache_bytes);
        add("segments", stats.segments as u64);
        add("segment_bytes", stats.segment_bytes);
        add("segment_live_bytes", stats.segment_live_bytes);
        add("replayed_blocks", self.recovery.replayed_blocks as u64);
        let disk = self.disk.stats();
        add("disk_reads", disk.reads);
        add("disk_bytes_read", disk.bytes_read);
        add("disk_writes", disk.writes);
        add("disk_bytes_written", disk.bytes_written);
        add("disk_syncs", disk.syncs);
        for (name, value) in self.db.counters().named() {
            add(&format!("counter_{name}"), value);
        }
        if self.measures_root {
            // The first may begin the job of an interval, which reads; it has ended before the second.
            self.lone_root(LONE_BATCHES)?;
            let (reads, milliseconds) = self.lone_root(LONE_BATCHES + 1)?;
            figures.insert("lone_root_device_reads".to_owned(), json!(reads));
            figures.insert("lone_root_ms".to_owned(), json!(milliseconds));
        }
        Ok(figures)
    }
}
