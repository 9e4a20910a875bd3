//! The driver of random tests: the engine, and the model of each of its blocks.

use super::{
    commitment::TestedCommitment,
    fault_kinds::{FaultKinds, is_of_the_disk},
    first_state::FirstState,
    heights::WINDOW,
    subscriber::Subscriber,
};
use crate::{LayeredBlock, Model, Random};
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use cambium_state::{
    Db, FaultyDisk, FileSizes, Finality, Options, Recovery, Sealed, Session, StateError,
    StoreError, View,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    thread,
    time::Duration,
};

/// Parameters of a run: sizes, options of the engine, and kinds of faults.
#[derive(Clone, Copy, Debug)]
pub struct EngineParams {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Commitment of the database, and its backend.
    pub commitment: TestedCommitment,
    /// Number of accounts, or entries, at genesis.
    pub accounts: u64,
    /// Maximum number of accounts, or entries, that a block changes.
    pub changes_max: u64,
    /// Memory budget of the engine in bytes. A small one causes frequent merges.
    pub memory_bytes: u64,
    /// Memory for the index in bytes, or `None` for the default of the engine.
    pub index_bytes_max: Option<u64>,
    /// Sizes of files.
    pub files: FileSizes,
    /// Number of blocks below the head that are kept, or `None` for all.
    pub keep_blocks: Option<u64>,
    /// Whether blocks are called safe and finalized.
    pub finalizes: bool,
    /// Kinds of faults of the disk.
    pub faults: FaultKinds,
}

pub(super) struct Known {
    pub(super) id: BlockId,
    pub(super) parent: B256,
    pub(super) model: Arc<Model>,
    pub(super) root: B256,
    /// Accounts whose storage it wiped.
    pub(super) wiped: Vec<B256>,
    /// Whether it was committed, and the commit was acknowledged.
    pub(super) durable: bool,
    /// Whether a durable block must still exist, because no head was far from it since.
    pub(super) kept: bool,
}

/// Sealed blocks that are not committed, each on the one before.
pub(super) type Ahead = Vec<Sealed>;

/// The engine under test, with its expected state.
pub struct EngineDriver {
    pub(super) params: EngineParams,
    pub(super) random: Random,
    pub(super) disk: FaultyDisk,
    pub(super) db: Option<Db>,
    pub(super) known: HashMap<B256, Known>,
    pub(super) head: B256,
    /// Other possible heads, after a failure during their commit.
    pub(super) pending: Vec<B256>,
    /// The safe and the finalized block.
    pub(super) finality: Finality,
    /// Other possible safe and finalized blocks after a failure.
    pub(super) pending_finality: Vec<Finality>,
    pub(super) next_hash: u64,
    /// The highest number of any head or possible head.
    pub(super) highest: u64,
    /// Subscribers that follow the chain by its events.
    pub(super) subscribers: Vec<Subscriber>,
    /// Views that are held for long.
    pub(super) views: Vec<View>,
    /// Whether a fault was injected, which may cause an error.
    pub(super) is_faulty: bool,
    /// Name of the current operation, for reports.
    pub(super) doing: &'static str,
    /// Number of operations by name, for reports.
    pub done: BTreeMap<&'static str, u64>,
}

/// Reason why an operation was not done.
pub(super) enum Failed {
    /// The disk failed.
    Disk,
    /// The operation needs more memory than the budget, and had no effect.
    Memory,
    /// The operation needs blocks that are not kept, and had no effect.
    NotKept,
}

impl EngineDriver {
    /// Creates a database with a random genesis state.
    pub fn new(params: EngineParams) -> Self {
        let mut random = Random::new(params.seed);
        let disk = FaultyDisk::new(params.seed);
        let first = FirstState::new(
            &disk,
            options(&params),
            params.seed,
            params.accounts,
            &mut random,
        );
        let FirstState {
            db,
            model,
            id,
            root,
        } = first;
        let known = Known {
            id,
            parent: B256::ZERO,
            model: Arc::new(model),
            root,
            wiped: Vec::new(),
            durable: true,
            kept: true,
        };
        Self {
            params,
            random,
            disk,
            subscribers: Subscriber::all(id, &params.commitment.seen(&known.model)),
            db: Some(db),
            head: id.hash,
            known: HashMap::from([(id.hash, known)]),
            pending: Vec::new(),
            finality: Finality::default(),
            pending_finality: Vec::new(),
            next_hash: 0,
            highest: 0,
            views: Vec::new(),
            is_faulty: false,
            doing: "start",
            done: BTreeMap::new(),
        }
    }

    pub(super) fn count(&mut self, name: &'static str) {
        self.doing = name;
        *self.done.entry(name).or_default() += 1;
    }

    pub(super) fn db(&self) -> Db {
        self.db.clone().expect("the database is open")
    }

    /// Converts the result of an operation. Panics at an error of the disk without an injected
    /// fault.
    pub(super) fn outcome<T>(&self, result: Result<T, StateError>, at: &str) -> Result<T, Failed> {
        match result {
            Ok(value) => Ok(value),
            Err(error) if self.is_faulty && is_of_the_disk(&error, self.params.faults) => {
                Err(Failed::Disk)
            }
            Err(StateError::TooFar { .. } | StateError::NoRoom { .. }) => Err(Failed::Memory),
            Err(StateError::NotKept { oldest }) if self.may_have_left(oldest) => {
                Err(Failed::NotKept)
            }
            Err(error) => panic!("{at}, {}: {error}", self.doing),
        }
    }

    /// Returns whether blocks below this one may have been removed from the log.
    pub(super) fn may_have_left(&self, oldest: u64) -> bool {
        let keep = self.params.keep_blocks;
        keep.is_some_and(|keep| oldest + keep <= self.highest)
    }

    /// As [`Self::outcome`], for an operation that needs the blocks down to the fork of `target`
    /// from the head's branch. It must not fail for lack of other blocks.
    pub(super) fn outcome_at<T>(
        &self,
        target: B256,
        result: Result<T, StateError>,
        at: &str,
    ) -> Result<T, Failed> {
        if let Err(StateError::NotKept { oldest }) = &result {
            let fork = self.fork_of(target);
            let target = self.known[&target].id;
            assert!(
                fork < *oldest,
                "{at}, {}: block {target} leaves the head's chain at {fork}, and all from {oldest} on \
                 is kept: {:?}",
                self.doing,
                self.db().stats()
            );
        }
        self.outcome(result, at)
    }

    /// Returns the number of the newest common ancestor of `target` and the head.
    pub(super) fn fork_of(&self, target: B256) -> u64 {
        let (mut one, mut other) = (&self.known[&target], &self.known[&self.head]);
        while one.id != other.id {
            match one.id.number > other.id.number {
                true => one = &self.known[&one.parent],
                false => other = &self.known[&other.parent],
            }
        }
        one.id.number
    }

    /// The state root after a block on `parent` that leads to `after` and wipes the storage of the
    /// accounts `wiped`.
    pub(super) fn root_after(&self, parent: B256, after: &Model, wiped: &[B256]) -> B256 {
        let commitment = self.params.commitment;
        let mut known = &self.known[&parent];
        let height = known.id.number + 1;
        let mut blocks = vec![LayeredBlock {
            before: &known.model,
            after,
            wiped,
        }];
        while known.id.number > 0 && (blocks.len() as u64) < commitment.blocks() {
            let below = &self.known[&known.parent];
            blocks.push(LayeredBlock {
                before: &below.model,
                after: &known.model,
                wiped: &known.wiped,
            });
            known = below;
        }
        blocks.reverse();
        commitment.root(height, &blocks, after)
    }

    pub(super) fn session(&self, parent: B256, at: &str) -> Result<Session, Failed> {
        let view = self.db().view_of(self.known[&parent].id);
        Ok(self.outcome_at(parent, view, at)?.session())
    }

    pub(super) fn close(&mut self) {
        self.views.clear();
        self.subscribers.iter_mut().for_each(Subscriber::close);
        self.db = None;
    }

    pub(super) fn open(&self) -> Result<Db, StateError> {
        self.open_told().map(|(db, _)| db)
    }

    /// Opens the database, after waiting for a merge that still holds the lock.
    pub(super) fn open_told(&self) -> Result<(Db, Recovery), StateError> {
        let mut tries = 0;
        loop {
            match Db::open(Arc::new(self.disk.clone()), options(&self.params)) {
                Err(StateError::Store(StoreError::InUse { .. })) if tries < 1000 => {
                    tries += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                opened => return opened,
            }
        }
    }

    /// Returns the ancestor `depth` blocks below the head, or genesis.
    pub(super) fn ancestor(&self, depth: u64) -> B256 {
        self.ancestor_of(self.head, depth)
    }

    /// Returns the ancestor `depth` blocks below a block, or genesis.
    pub(super) fn ancestor_of(&self, mut hash: B256, depth: u64) -> B256 {
        for _ in 0..depth {
            let known = &self.known[&hash];
            if known.id.number > 0 {
                hash = known.parent;
            }
        }
        hash
    }

    /// Returns a block on which others can be built: an ancestor of the head, or a block of the
    /// newest heights.
    pub(super) fn recent(&mut self) -> B256 {
        let depth = self.random.below(12);
        let low = self.ancestor(depth);
        if self.random.percent(30) {
            return low;
        }
        let known = self.known.values();
        let mut branches: Vec<_> = known
            .filter(|known| known.durable && known.kept)
            .map(|known| known.id.hash)
            .collect();
        branches.sort_unstable();
        match branches.len() {
            0 => low,
            len => branches[self.random.below(len as u64) as usize],
        }
    }
}

pub(super) fn options(params: &EngineParams) -> Options {
    params.commitment.options(Options {
        memory_bytes: params.memory_bytes,
        unfinalized_blocks: WINDOW as usize,
        index_bytes_max: params.index_bytes_max,
        files: params.files,
        keep_blocks: params.keep_blocks,
        // No other thread commits.
        room_wait: Duration::from_millis(20),
        ..Options::default()
    })
}
