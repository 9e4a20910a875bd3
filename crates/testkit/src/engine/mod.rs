//! The state engine under random blocks, branches, unwinds, merges and crashes, beside the model.
//!
//! The driver knows for every block what the model says of it, and which blocks and heads were
//! acknowledged. After a crash the engine must be at the head acknowledged last, or at the one
//! that was being made when the power went; and it must have every acknowledged block of the
//! newest heights, whatever its branch.

mod checks;
mod faults;
mod mistakes;
mod operations;
pub(crate) mod random;

pub use faults::FaultKinds;
pub use random::Random;

use crate::Model;
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{AccountUpdate, BlockId};
use cambium_state::{
    BlockMeta, Db, FaultyDisk, FileSizes, Loader, Options, Recovery, Sealed, Session, StateError,
    StoreError, View,
};
use faults::is_of_the_disk;
pub(crate) use operations::is_near;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    thread,
    time::Duration,
};

/// How large a run's state is, and what befalls it.
#[derive(Clone, Copy, Debug)]
pub struct EngineParams {
    /// Seed of everything.
    pub seed: u64,
    /// Accounts at genesis.
    pub accounts: u64,
    /// Most accounts that a block changes.
    pub changes_max: u64,
    /// The engine's budget: a small one makes it merge often, beside everything else.
    pub memory_bytes: u64,
    /// The engine's memory for the index; `None` for its own choice.
    pub index_bytes_max: Option<u64>,
    /// How large files get.
    pub files: FileSizes,
    /// So many blocks below the head are kept; `None` for all.
    pub keep_blocks: Option<u64>,
    /// What befalls the disk.
    pub faults: FaultKinds,
}

/// Files so small that all that happens to files happens hundreds of times in a run.
pub const TINY_FILES: FileSizes = FileSizes {
    segment_bytes_max: 64 << 10,
    segment_buffer_bytes: 16 << 10,
    segments_max: 512,
    log_file_bytes_max: 64 << 10,
    log_extend_bytes: 16 << 10,
    log_spare_blocks: 4,
};

struct Known {
    id: BlockId,
    parent: B256,
    model: Arc<Model>,
    root: B256,
    /// It was committed, and that was acknowledged.
    durable: bool,
    /// It must be there if it is durable: no head was far from it since.
    kept: bool,
}

/// Blocks that are sealed and not committed, each on the one before.
type Ahead = Vec<Sealed>;

/// The engine and what must be true of it.
pub struct EngineDriver {
    params: EngineParams,
    random: Random,
    disk: FaultyDisk,
    db: Option<Db>,
    known: HashMap<B256, Known>,
    head: B256,
    /// What the head may be besides, if a failure came while it was being made.
    pending: Vec<B256>,
    next_hash: u64,
    /// The highest number that a head has had, or may have had.
    highest: u64,
    /// Views that are kept while others come and go.
    views: Vec<View>,
    /// A fault was asked for: an error is none of the engine's.
    is_faulty: bool,
    /// The operation under way.
    doing: &'static str,
    /// Operations done, by name, for reports.
    pub done: BTreeMap<&'static str, u64>,
}

/// What an operation ends in.
enum Failed {
    /// The disk failed in it.
    Disk,
    /// It would take more memory than there is, and nothing was done.
    Memory,
    /// It would take blocks that are not kept, and nothing was done.
    NotKept,
}

/// Heights below the head, and above it, whose blocks can be built upon.
const WINDOW: u64 = 8;
impl EngineDriver {
    /// A database of a random genesis state.
    pub fn new(params: EngineParams) -> Self {
        let mut random = Random::new(params.seed);
        let disk = FaultyDisk::new(params.seed);
        let mut model = Model::default();
        let genesis = random::genesis(&mut random, params.accounts);
        model.apply(&genesis);
        let codes = random::codes(&genesis);
        let mut loader =
            Loader::new(Arc::new(disk.clone()), options(&params)).expect("a loader on a new disk");
        for change in genesis.accounts() {
            if let AccountUpdate::Put(account) = change.account {
                let slots = change.slots.iter().copied();
                let taken = loader.account(change.path, &account, slots);
                taken.expect("an account is taken");
            }
        }
        for (hash, code) in &codes {
            loader.code(*hash, code).expect("code is taken");
        }
        model.add_codes(codes);
        let loaded = loader.finish(&mut |_| {}).expect("a state is loaded");
        let root = model.root();
        assert_eq!(loaded.root(), root, "genesis root");
        let id = BlockId::new(0, keccak256(params.seed.to_le_bytes()));
        let db = loaded
            .create(meta(id, B256::ZERO, root), vec![])
            .expect("a database is made");
        let known = Known {
            id,
            parent: B256::ZERO,
            model: Arc::new(model),
            root,
            durable: true,
            kept: true,
        };
        Self {
            params,
            random,
            disk,
            db: Some(db),
            head: id.hash,
            known: HashMap::from([(id.hash, known)]),
            pending: Vec::new(),
            next_hash: 0,
            highest: 0,
            views: Vec::new(),
            is_faulty: false,
            doing: "start",
            done: BTreeMap::new(),
        }
    }

    /// Does `steps` random operations, each followed by checks. Panics where engine and model
    /// differ, with seed and step.
    pub fn run(&mut self, steps: u64) {
        for step in 0..steps {
            self.maybe_fault();
            let at = format!("seed {} step {step}", self.params.seed);
            let done = self.operation(&at);
            if self.params.faults.lies && self.is_faulty {
                // What was lost is seen when the system is started again.
                if done.is_err() || self.random.percent(10) {
                    return self.reckon(&at);
                }
            }
            match done {
                Ok(()) => {}
                Err(Failed::Disk) if self.goes_on(&at) => {}
                Err(Failed::Disk) => self.recover(&at),
                Err(Failed::Memory) => {
                    self.count("refused for want of memory");
                    self.views.clear();
                    self.pending.clear();
                }
                Err(Failed::NotKept) => {
                    self.count("refused for blocks that are not kept");
                    self.pending.clear();
                }
            }
        }
    }

    fn operation(&mut self, at: &str) -> Result<(), Failed> {
        match self.random.below(100) {
            0..46 => self.block(at)?,
            46..48 => self.twin(at)?,
            48..50 => self.mistake(at)?,
            50..56 => self.blocks_ahead(at)?,
            56..60 => self.side_blocks_ahead(at)?,
            60..64 => self.drop_block(at)?,
            64..70 => self.change_head(at)?,
            70..75 => self.unwind(at)?,
            75..82 => self.flush(at)?,
            82..86 => self.read_back(at)?,
            86..89 => self.read_kept_views(at)?,
            89..92 if self.params.faults.rot => self.rot(at)?,
            89..92 => self.reopen(at)?,
            92..94 => self.check_all(at)?,
            94..97 => self.check_numbers(at)?,
            _ => self.prove(at)?,
        }
        self.check_head(at)
    }

    fn count(&mut self, name: &'static str) {
        self.doing = name;
        *self.done.entry(name).or_default() += 1;
    }

    fn db(&self) -> Db {
        self.db.clone().expect("the database is open")
    }

    /// An error of the disk means that a fault was asked for, or else the test fails.
    fn outcome<T>(&self, result: Result<T, StateError>, at: &str) -> Result<T, Failed> {
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

    /// Whether blocks below that one may have left the log.
    fn may_have_left(&self, oldest: u64) -> bool {
        let keep = self.params.keep_blocks;
        keep.is_some_and(|keep| oldest + keep <= self.highest)
    }

    /// As [`Self::outcome`], of something that needs the blocks down to where the branch of `target`
    /// leaves the head's: it must not be refused for others.
    fn outcome_at<T>(
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

    /// Number of the newest block that `target` and the head have in common.
    fn fork_of(&self, target: B256) -> u64 {
        let (mut one, mut other) = (&self.known[&target], &self.known[&self.head]);
        while one.id != other.id {
            match one.id.number > other.id.number {
                true => one = &self.known[&one.parent],
                false => other = &self.known[&other.parent],
            }
        }
        one.id.number
    }

    fn session(&self, parent: B256, at: &str) -> Result<Session, Failed> {
        let view = self.db().view_of(self.known[&parent].id);
        Ok(self.outcome_at(parent, view, at)?.session())
    }

    fn reopen(&mut self, at: &str) -> Result<(), Failed> {
        self.count("reopen");
        self.close();
        let db = self.outcome(self.open(), at)?;
        self.db = Some(db);
        self.check_durable(at)
    }

    fn close(&mut self) {
        self.views.clear();
        self.db = None;
    }

    fn open(&self) -> Result<Db, StateError> {
        self.open_told().map(|(db, _)| db)
    }

    /// Opens the database, once a merge that may be under way has let go of it.
    fn open_told(&self) -> Result<(Db, Recovery), StateError> {
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

    /// The disk works again: after a power failure, or as it was left.
    fn recover(&mut self, at: &str) {
        self.close();
        if self.disk.is_off() || self.random.percent(50) {
            self.count("crash");
            self.disk = self.disk.crash();
            self.is_faulty = false;
        } else {
            self.count("failure");
            self.disk.clear_faults();
            self.is_faulty = false;
        }
        let (db, recovery) = match self.open_told() {
            Ok(db) => db,
            Err(_) if self.is_faulty => return self.recover(at),
            Err(error) => panic!("{at}: after a failure: {error}"),
        };
        let head = db.head().hash;
        let pending = std::mem::take(&mut self.pending);
        assert!(
            head == self.head || pending.contains(&head),
            "{at}: after a failure the head is {}, acknowledged was {}",
            db.head(),
            self.known[&self.head].id
        );
        self.head = head;
        for known in self.known.values_mut() {
            // Not acknowledged, but there: it must not go away any more.
            known.durable |= db
                .has(known.id)
                .unwrap_or_else(|error| panic!("{at}: {} {error} {:?}", known.id, recovery));
        }
        self.db = Some(db);
        let checked = self.check_durable(at).and_then(|()| self.check_all(at));
        if let Err(Failed::Disk) = checked.and_then(|()| self.check_head(at)) {
            self.recover(at);
        }
    }

    /// The ancestor of the head `depth` blocks below it, or genesis.
    fn ancestor(&self, depth: u64) -> B256 {
        let mut hash = self.head;
        for _ in 0..depth {
            let known = &self.known[&hash];
            if known.id.number > 0 {
                hash = known.parent;
            }
        }
        hash
    }

    /// A block that can be built upon: an ancestor of the head, or of one of the newest heights.
    fn recent(&mut self) -> B256 {
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

fn options(params: &EngineParams) -> Options {
    Options {
        memory_bytes: params.memory_bytes,
        unfinalized_blocks: WINDOW as usize,
        index_bytes_max: params.index_bytes_max,
        files: params.files,
        keep_blocks: params.keep_blocks,
        ..Options::default()
    }
}

pub(crate) fn meta(id: BlockId, parent: B256, state_root: B256) -> BlockMeta {
    BlockMeta {
        id,
        parent,
        state_root,
        body: Bytes::from_static(b"body"),
    }
}
