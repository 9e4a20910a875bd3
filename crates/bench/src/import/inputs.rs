//! Inputs of an import: a state, a file of blocks and their access lists, generated once and kept.

use crate::{state::stores::Failure, system};
use alloy_primitives::{Address, B256, U256};
use cambium_chain::{AccessListWriter, Chain, ChainError, ChainSealer, ChainWriter};
use cambium_primitives::AccessList;
use cambium_state::{Options, StdDisk};
use cambium_workload::{Workload, WorkloadParams};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use xxhash_rust::xxh3::xxh3_64;

/// Memory budget for making a state and its blocks.
const MAKING_BYTES: u64 = 2 << 30;

/// The files of a generated chain: state, blocks and access lists.
pub(crate) struct Inputs {
    pub(crate) params: WorkloadParams,
    pub(crate) facts: Facts,
    dir: PathBuf,
}

/// Figures of the generated files.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Size of the state's pages at genesis.
    pub(crate) state_bytes: u64,
    /// Number of slots at genesis.
    pub(crate) slots: u64,
    pub(crate) blocks: u64,
    pub(crate) transactions: u64,
    pub(crate) gas: u64,
    pub(crate) head: B256,
    /// Number of accounts and slots that the blocks touch, each counted once: none of them is in
    /// memory when an import begins.
    pub(crate) cold_accesses: u64,
    /// The same, counted once for each block that touches it.
    pub(crate) accesses: u64,
    /// Seconds of making the state.
    pub(crate) state_seconds: f64,
    /// Seconds of making the blocks.
    pub(crate) blocks_seconds: f64,
}

impl Inputs {
    /// Returns the files of a workload in `data`, and generates them if they are missing.
    pub(crate) fn of(data: &Path, name: &str, params: WorkloadParams) -> Result<Self, Failure> {
        let kind = xxh3_64(format!("{params:?}").as_bytes());
        let dir = data.join(format!("{name}-{}-{kind:016x}", params.accounts));
        let done = dir.join("facts.json");
        if done.exists() {
            let facts = serde_json::from_slice(&fs::read(&done)?)?;
            return Ok(Self { params, facts, dir });
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        eprintln!("making {} (once)", dir.display());
        let workload = Workload::new(params)?;
        let mut inputs = Self {
            params: workload.params().clone(),
            facts: Facts::default(),
            dir,
        };
        inputs.make_state(&workload)?;
        inputs.make_blocks(&workload)?;
        fs::write(done, serde_json::to_vec_pretty(&inputs.facts)?)?;
        let Facts {
            state_seconds,
            blocks_seconds,
            ..
        } = inputs.facts;
        eprintln!("made the state in {state_seconds:.0} s, the blocks in {blocks_seconds:.0} s");
        Ok(inputs)
    }

    /// The directory of the database at genesis.
    pub(crate) fn state(&self) -> PathBuf {
        self.place("state")
    }

    /// Where a file or directory that belongs to the workload is.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The file of blocks.
    pub(crate) fn blocks(&self) -> PathBuf {
        self.place("chain.rlp")
    }

    /// The file of the blocks' access lists.
    pub(crate) fn lists(&self) -> PathBuf {
        self.place("access-lists.rlp")
    }

    /// Returns the genesis file, and writes it if it is missing.
    pub(crate) fn genesis_file(&self) -> Result<PathBuf, Failure> {
        let file = self.place("genesis.json");
        if !file.exists() {
            eprintln!("making {} (once)", file.display());
            let partial = self.place("genesis.partial");
            let mut out = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
            Workload::new(self.params.clone())?.write_genesis(&mut out)?;
            out.flush()?;
            fs::rename(partial, &file)?;
        }
        Ok(file)
    }

    fn make_state(&mut self, workload: &Workload) -> Result<(), Failure> {
        let start = Instant::now();
        let disk = Arc::new(StdDisk::new(self.state()));
        let chain = workload.init(disk, options(MAKING_BYTES), &mut |_| {})?;
        self.facts.state_bytes = chain.db().stats()?.segment_bytes;
        self.facts.slots = workload.genesis_slots();
        drop(chain);
        self.facts.state_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Executes the blocks on a copy of the state, and writes them with their access lists.
    fn make_blocks(&mut self, workload: &Workload) -> Result<(), Failure> {
        let start = Instant::now();
        let scratch = tempfile::Builder::new()
            .prefix("scratch-")
            .tempdir_in(&self.dir)?;
        let db = scratch.path().join("state");
        system::copy_dir(&self.state(), &db)?;
        let disk = Arc::new(StdDisk::new(db));
        let (chain, _) = Chain::open(disk, options(MAKING_BYTES))?;
        let genesis = chain.block(0)?.header;
        let mut blocks = ChainWriter::create(self.blocks())?;
        let mut lists = AccessListWriter::create(self.lists())?;
        let mut touched = Touched::default();
        let facts = &mut self.facts;
        let last = workload.generate(&genesis, &mut ChainSealer(&chain), |block| {
            facts.blocks += 1;
            facts.transactions += block.body.transactions.len() as u64;
            facts.gas += block.header.gas_used;
            blocks.write(block)?;
            let id = chain.db().head();
            let list = chain.access_list(id.number)?;
            touched.add(&list);
            lists.write(id, &list.encode())?;
            Ok::<_, ChainError>(())
        })?;
        blocks.finish()?;
        lists.finish()?;
        facts.head = last.hash_slow();
        facts.cold_accesses = touched.once();
        facts.accesses = touched.accesses;
        facts.blocks_seconds = start.elapsed().as_secs_f64();
        Ok(())
    }
}

/// Options with this memory budget.
pub(crate) fn options(memory_bytes: u64) -> Options {
    Options {
        memory_bytes,
        ..Options::default()
    }
}

/// The accounts and slots that blocks touch.
#[derive(Default)]
struct Touched {
    accounts: HashSet<Address>,
    slots: HashSet<(Address, U256)>,
    accesses: u64,
}

impl Touched {
    fn add(&mut self, list: &AccessList) {
        for account in list.accounts() {
            let address = account.address;
            self.accounts.insert(address);
            let changed = account.storage_changes.iter().map(|change| change.slot);
            let slots = changed.chain(account.storage_reads.iter().copied());
            self.slots.extend(slots.map(|slot| (address, slot)));
            let slots = account.storage_changes.len() + account.storage_reads.len();
            self.accesses += 1 + slots as u64;
        }
    }

    fn once(&self) -> u64 {
        (self.accounts.len() + self.slots.len()) as u64
    }
}

/// A copy of a directory that is not in the page cache, removed on drop.
pub(crate) struct Copied(tempfile::TempDir);

impl Copied {
    pub(crate) fn of(from: &Path, data: &Path) -> Result<Self, String> {
        let place = tempfile::Builder::new().prefix("copy-").tempdir_in(data);
        let copy = Self(place.map_err(|error| format!("{}: {error}", data.display()))?);
        system::copy_dir(from, &copy.path())?;
        let dropped = system::drop_files(&copy.path());
        dropped.map_err(|error| format!("{}: {error}", copy.path().display()))?;
        Ok(copy)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("copy")
    }
}
