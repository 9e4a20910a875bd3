//! The jobs, and the files that they need.

use crate::{
    bal::{dir_of, state_in},
    import::{Copied, Inputs},
    state::{
        Spread, Workload as Batches,
        stores::{Failure, Kind, Setup},
    },
};
use cambium_chain::{BlockExecutor, Chain, ExecutorKind, Fork};
use cambium_conformance::{MainnetData, Pack};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

/// Sizes of all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Size {
    /// For tests, which look at no figure.
    Tiny,
    Quick,
    Full,
}

impl Size {
    const fn pick<T: Copy>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// Times that an executor runs a block.
    pub(super) const fn turns(self) -> usize {
        self.pick(1, 2, 5)
    }

    /// Accounts beside those that a real block touches.
    pub(super) const fn others(self) -> u64 {
        self.pick(0, 10_000, 100_000)
    }

    /// Batches that are measured, and those before them.
    pub(super) const fn batches(self) -> (u64, u64) {
        self.pick((1, 1), (4, 1), (20, 3))
    }
}

/// Kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Case {
    Payments,
    Tokens,
    /// Swaps in this many pools.
    Swaps(u64),
}

/// How blocks are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    Sequential,
    Optimistic,
    /// As the chain chooses without being told.
    Auto,
    /// Each block in parallel by its access list.
    Parallel,
    /// With access lists, several blocks at once.
    Batch,
    /// Access lists are applied instead of executing blocks.
    Apply,
}

/// Blocks that executors run again and again on the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Blocks {
    /// A large block.
    Mega(Case),
    /// Real blocks, one after another.
    Mainnet,
    /// Real blocks under access lists, all at once.
    MainnetBatch,
}

/// Something whose speed is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Job {
    /// Blocks are imported: senders, execution, roots, durable commits.
    Import(Case, Way),
    /// Real blocks are inserted, each alone and by itself: senders, execution, root, durable commit.
    Insert(Way),
    /// Blocks are executed, and nothing else.
    Execute(Blocks, Kinds),
    /// Batches of transfers on accounts are read, made, and committed.
    State,
    /// The same on entries under a binary trie.
    Kv,
}

/// [`ExecutorKind`] in messages between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kinds {
    Sequential,
    Full,
    Batched,
    Parallel,
    Optimistic,
}

impl Kinds {
    const ALL: [Self; 5] = [
        Self::Sequential,
        Self::Full,
        Self::Batched,
        Self::Parallel,
        Self::Optimistic,
    ];

    pub(super) const fn executor(self) -> ExecutorKind {
        match self {
            Self::Sequential => ExecutorKind::Sequential,
            Self::Full => ExecutorKind::Full,
            Self::Batched => ExecutorKind::Batched,
            Self::Parallel => ExecutorKind::Parallel,
            Self::Optimistic => ExecutorKind::Optimistic,
        }
    }
}

const WAYS: [Way; 6] = [
    Way::Sequential,
    Way::Optimistic,
    Way::Auto,
    Way::Parallel,
    Way::Batch,
    Way::Apply,
];
const CASES: [Case; 4] = [
    Case::Payments,
    Case::Tokens,
    Case::Swaps(16),
    Case::Swaps(1_000),
];
const MEGA: [Case; 2] = [Case::Tokens, Case::Swaps(16)];
/// Gas of a mega-block.
const MEGA_GAS: u64 = 1_000_000_000;
/// Transfers in a batch.
const TRANSFERS: usize = 25_000;
/// Memory that holds every state here.
pub(super) const MEMORY_BYTES: u64 = 4 << 30;
/// Blocks of a batch in [`Way::Batch`].
const BATCH_BLOCKS: usize = 16;

impl Job {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let imports = CASES
            .into_iter()
            .flat_map(|case| WAYS.map(|way| Self::Import(case, way)));
        let mega = MEGA
            .into_iter()
            .flat_map(|case| Kinds::ALL.map(|kind| Self::Execute(Blocks::Mega(case), kind)));
        let real = Kinds::ALL.map(|kind| Self::Execute(Blocks::Mainnet, kind));
        let batch = Self::Execute(Blocks::MainnetBatch, Kinds::Batched);
        let inserts = [Way::Sequential, Way::Auto].map(Self::Insert);
        let rest = [batch, Self::State, Self::Kv];
        imports.chain(mega).chain(real).chain(inserts).chain(rest)
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Import(case, way) => {
                format!("import {}: {}", case.name(), way.name())
            }
            Self::Insert(way) => format!("insert mainnet: {}", way.name()),
            Self::Execute(Blocks::MainnetBatch, _) => "execute mainnet: at once".to_owned(),
            Self::Execute(blocks, kind) => {
                let blocks = match blocks {
                    Blocks::Mega(case) => format!("mega-block of {}", case.name()),
                    Blocks::Mainnet | Blocks::MainnetBatch => "mainnet".to_owned(),
                };
                format!("execute {blocks}: {}", format!("{kind:?}").to_lowercase())
            }
            Self::State => "batches of accounts".to_owned(),
            Self::Kv => "batches of entries".to_owned(),
        }
    }

    /// Whether the job needs public data, which may be missing.
    pub(super) const fn needs_data(self) -> bool {
        matches!(
            self,
            Self::Execute(Blocks::Mainnet | Blocks::MainnetBatch, _) | Self::Insert(_)
        )
    }

    /// Whether another core can make the job faster. A single thread that executes can't.
    pub(super) const fn is_parallel(self) -> bool {
        !matches!(self, Self::Execute(_, Kinds::Sequential))
    }

    /// Generates the job's files below `data`, unless they are there.
    pub(super) fn prepare(self, data: &Path, size: Size) -> Result<Prepared, Failure> {
        match self {
            Self::Import(case, way) => {
                let inputs = Inputs::of(data, &case.name(), case.chain(size, way.fork()))?;
                Ok(Prepared::Import(Box::new(inputs)))
            }
            Self::Execute(Blocks::Mega(case), _) => {
                let params = case.mega(size);
                let dir = dir_of(data, &params);
                let workload = Workload::new(params)?;
                state_in(&dir, &workload).map_err(|error| error.to_string())?;
                Ok(Prepared::State(dir))
            }
            Self::Execute(Blocks::Mainnet | Blocks::MainnetBatch, _) | Self::Insert(_) => {
                match mainnet() {
                    Some(_) => Ok(Prepared::State(data.to_owned())),
                    None => Err("the mainnet blocks are not there".into()),
                }
            }
            Self::State => prepare_batches(Kind::Cambium, data, size),
            Self::Kv => prepare_batches(Kind::Binary, data, size),
        }
    }
}

/// The folder of real mainnet blocks.
pub(super) fn mainnet() -> Option<PathBuf> {
    Pack::MainnetExec.find(&MainnetData::FOLDERS)
}

pub(super) fn has_data() -> bool {
    mainnet().is_some()
}

/// The store of a job of batches.
pub(super) fn setup(dir: PathBuf, size: Size) -> Setup {
    Setup {
        dir,
        workload: Batches {
            seed: 1,
            accounts: size.pick(1 << 12, 1 << 17, 1 << 20),
            transfers: TRANSFERS,
            spread: Spread::Uniform,
        },
        memory_bytes: MEMORY_BYTES,
        merge_interval: None,
        read_threads: None,
    }
}

fn prepare_batches(kind: Kind, data: &Path, size: Size) -> Result<Prepared, Failure> {
    let dir = data.join(format!("{kind}-{size:?}"));
    let done = dir.with_extension("done");
    if !done.exists() {
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        eprintln!("making {} (once)", dir.display());
        kind.load(&setup(dir.clone(), size))?;
        fs::write(done, "")?;
    }
    Ok(Prepared::Batches(dir))
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Payments => "payments".to_owned(),
            Self::Tokens => "tokens".to_owned(),
            Self::Swaps(pools) => format!("swaps in {pools} pools"),
        }
    }

    /// Sets which transactions a workload has.
    fn of(self, base: WorkloadParams) -> WorkloadParams {
        let base = WorkloadParams {
            erc20_percent: 0,
            ..base
        };
        match self {
            Self::Payments => base,
            Self::Tokens => WorkloadParams {
                erc20_percent: 100,
                holders: Some(base.accounts),
                ..base
            },
            // Each sender has a balance and an allowance in the token of each pool.
            Self::Swaps(pools) => WorkloadParams {
                swap_percent: 100,
                pools,
                ..base
            },
        }
    }

    /// The chain of an import.
    fn chain(self, size: Size, fork: Fork) -> WorkloadParams {
        let pick = |tiny, quick, full| size.pick(tiny, quick, full);
        let (accounts, senders, transactions, blocks) = match self {
            Self::Payments => (
                pick(1_000, 50_000, 1_000_000),
                pick(1_000, 50_000, 50_000),
                pick(50, 1_000, 1_000),
                pick(4, 16, 150),
            ),
            Self::Tokens => (
                pick(1_000, 20_000, 200_000),
                pick(1_000, 20_000, 20_000),
                pick(50, 1_000, 1_000),
                pick(4, 8, 75),
            ),
            Self::Swaps(pools) => {
                let senders = if pools > 100 { 1_000 } else { 5_000 };
                let senders = pick(20, senders, senders);
                (
                    pick(200, 6_000, 20_000),
                    senders,
                    pick(20, 500, 500),
                    pick(4, 6, 50),
                )
            }
        };
        self.of(WorkloadParams {
            fork,
            accounts,
            senders: Some(senders),
            blocks,
            block_size: BlockSize::Transactions(transactions),
            ..WorkloadParams::default()
        })
    }

    /// The chain whose first block is a mega-block.
    pub(super) fn mega(self, size: Size) -> WorkloadParams {
        let part = size.pick(200, 10, 1);
        self.of(WorkloadParams {
            fork: Fork::Amsterdam,
            blocks: 1,
            // Under EIP-8037 a new account or slot costs more, the higher the gas limit.
            fresh_percent: 0,
            accounts: 200_000 / part,
            senders: Some(50_000 / part),
            block_size: BlockSize::Gas(MEGA_GAS / part),
            ..WorkloadParams::default()
        })
    }
}

impl Way {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Sets how blocks are executed.
    pub(super) fn executor(self, threads: NonZeroUsize) -> BlockExecutor {
        let kind = match self {
            Self::Sequential => ExecutorKind::Sequential,
            Self::Optimistic => ExecutorKind::Optimistic,
            Self::Auto | Self::Apply => ExecutorKind::Auto,
            Self::Parallel => ExecutorKind::Parallel,
            Self::Batch => ExecutorKind::Batched,
        };
        BlockExecutor::new(kind).with_threads(threads)
    }

    /// Fork of the chain. From Amsterdam on the header has the list's hash, so that the root of a list that is applied is verified
    /// while the next one is.
    const fn fork(self) -> Fork {
        match self.has_lists() {
            true => Fork::Amsterdam,
            false => Fork::Osaka,
        }
    }

    /// Whether the import is given access lists.
    pub(super) const fn has_lists(self) -> bool {
        matches!(self, Self::Parallel | Self::Batch | Self::Apply)
    }

    /// Sets how a chain imports blocks.
    pub(super) fn set(self, chain: Chain, threads: NonZeroUsize) -> Chain {
        let chain = chain.with_executor(self.executor(threads));
        match self {
            Self::Batch => chain.with_batch(BATCH_BLOCKS),
            Self::Apply => chain.with_applying(true),
            _ => chain,
        }
    }
}

/// Files that a job reads.
pub(super) enum Prepared {
    Import(Box<Inputs>),
    State(PathBuf),
    Batches(PathBuf),
}

/// Where a job's files are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Files {
    pub(super) state: PathBuf,
    /// Blocks and their access lists, for an import.
    pub(super) blocks: PathBuf,
    pub(super) lists: PathBuf,
}

impl Prepared {
    /// A copy of the state for a job that changes it.
    pub(super) fn copy(&self, data: &Path) -> Result<Option<Copied>, String> {
        match self {
            Self::Import(inputs) => Copied::of(&inputs.state(), data).map(Some),
            Self::Batches(dir) => Copied::of(dir, data).map(Some),
            Self::State(_) => Ok(None),
        }
    }

    /// The files, with the copied state if there is one.
    pub(super) fn files(&self, copy: Option<&Copied>) -> Files {
        let (state, blocks, lists) = match self {
            Self::Import(inputs) => (inputs.state(), inputs.blocks(), inputs.lists()),
            Self::State(dir) | Self::Batches(dir) => (dir.clone(), PathBuf::new(), PathBuf::new()),
        };
        Files {
            state: copy.map_or(state, Copied::path),
            blocks,
            lists,
        }
    }
}
