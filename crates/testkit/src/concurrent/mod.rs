//! Threads on one database, beside the model: one makes blocks, others read and prove states old and
//! new, and one merges, checks and asks for numbers. Faults come meanwhile.
//!
//! ```text
//!   writer    blocks, branches, unwinds  --> known blocks, each with its model --> readers
//!   keeper    flush, check, stats                                                  compare, prove,
//!   disk      failed reads, failures, panics                                       hold views
//! ```
//!
//! The seed decides what each thread does, and which faults are asked for. How threads take turns
//! is for the system to decide, so a failure need not repeat.
//!
//! The rule: a value that is read is the one of its block, or there is an error, which only a fault
//! that was asked for explains. Nobody waits for ever ([`Watchdog`]). After each round nothing is
//! held any more, and the database opens at the acknowledged head.

mod reader;
mod settle;
mod watchdog;
mod writer;

use crate::{
    Model, Random,
    engine::{is_near, meta, random},
};
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{AccountUpdate, BlockId};
use cambium_state::{Db, Fault, FaultyDisk, FileSizes, Loader, Options, StateError, StoreError};
use parking_lot::{Mutex, RwLock};
use reader::Reader;
use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use watchdog::Watchdog;
use writer::Writer;

/// What befalls the disk in the rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundFaults {
    /// Nothing.
    None,
    /// Reads and openings of files fail, a few times each.
    Reads,
    /// Writes and syncs fail, the disk is full, or power is lost: the engine stops.
    Failures,
    /// Some operation of the disk panics, whoever called it.
    Panics,
}

/// How large a run's state is, and what befalls it.
#[derive(Clone, Copy, Debug)]
pub struct ConcurrentParams {
    /// Seed of all decisions.
    pub seed: u64,
    /// Accounts at genesis.
    pub accounts: u64,
    /// Most accounts that a block changes.
    pub changes_max: u64,
    /// The engine's budget.
    pub memory_bytes: u64,
    /// The engine's memory for the index; `None` for its own choice.
    pub index_bytes_max: Option<u64>,
    /// How large files get.
    pub files: FileSizes,
    /// How many threads read beside the one that writes.
    pub readers: u64,
    /// Steps of the writer in a round.
    pub steps: u64,
    /// What befalls the disk.
    pub faults: RoundFaults,
}

/// Heights below the head, and above it, whose blocks can be built upon.
const WINDOW: u64 = 8;
/// Faults are asked for once in so many steps of the writer, about.
const STEPS_PER_FAULT: u64 = 25;

/// A block that was sealed.
struct Known {
    id: BlockId,
    parent: B256,
    model: Model,
    root: B256,
    /// It was committed, and that was acknowledged.
    durable: AtomicBool,
    /// It must be there if it is durable: no head was far from it since.
    kept: AtomicBool,
}

/// Blocks by hash, and in the order in which they were sealed.
#[derive(Default)]
struct KnownBlocks {
    by_hash: HashMap<B256, Arc<Known>>,
    in_order: Vec<Arc<Known>>,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// A fault that was asked for.
    Fault,
    /// It would take more memory than there is.
    Memory,
    /// There is no such block, or none any more.
    Unknown,
}

/// What the threads of a run share.
struct Shared {
    params: ConcurrentParams,
    blocks: RwLock<KnownBlocks>,
    /// A fault was asked for: an error is none of the engine's.
    is_faulty: AtomicBool,
    /// The threads of a round are to end.
    is_over: AtomicBool,
    /// What was done, and how often.
    done: Mutex<BTreeMap<&'static str, u64>>,
}

/// See the module's head.
pub struct ConcurrentDriver {
    shared: Arc<Shared>,
    disk: FaultyDisk,
    random: Random,
    writer: Writer,
    watchdog: Watchdog,
    db: Option<Db>,
}

impl ConcurrentDriver {
    /// A database of a random genesis state.
    pub fn new(params: ConcurrentParams) -> Self {
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
        let shared = Arc::new(Shared {
            params,
            blocks: RwLock::default(),
            is_faulty: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            done: Mutex::default(),
        });
        shared.know(Known {
            id,
            parent: B256::ZERO,
            model,
            root,
            durable: AtomicBool::new(true),
            kept: AtomicBool::new(true),
        });
        let writer = Writer::new(shared.clone(), Random::new(random.next()), id.hash);
        Self {
            shared,
            disk,
            random,
            writer,
            watchdog: Watchdog::new(format!("seed {}", params.seed)),
            db: Some(db),
        }
    }

    /// What was done, and how often.
    pub fn done(&self) -> BTreeMap<&'static str, u64> {
        self.shared.done.lock().clone()
    }

    /// Runs `rounds` rounds: in each all threads are at work, and then the database is closed and
    /// opened again. Panics where the engine is not what it must be.
    pub fn run(&mut self, rounds: u64) {
        for round in 0..rounds {
            let at = format!("seed {} round {round}", self.shared.params.seed);
            let is_sound = self.round(&at);
            self.end_round(is_sound, &at);
        }
    }

    /// All threads at work. Returns whether the engine is sound afterwards.
    fn round(&mut self, at: &str) -> bool {
        let db = self.db.take().expect("the database is open");
        let shared = &self.shared;
        shared.is_over.store(false, Ordering::SeqCst);
        let steps = shared.params.steps;
        let (disk, random, writer) = (&self.disk, &mut self.random, &mut self.writer);
        let is_sound = thread::scope(|scope| {
            let _over = Over(&shared.is_over);
            for reader in 0..shared.params.readers {
                let mut reader = Reader::new(
                    shared.clone(),
                    db.clone(),
                    Random::new(random.next()),
                    self.watchdog.slot(&format!("reader {reader}")),
                    at,
                );
                scope.spawn(move || {
                    let _over = Over(&shared.is_over);
                    reader.run();
                });
            }
            let keeper = (db.clone(), Random::new(random.next()));
            let slot = self.watchdog.slot("keeper");
            scope.spawn(move || {
                let _over = Over(&shared.is_over);
                let (db, mut random) = keeper;
                while !shared.is_over.load(Ordering::SeqCst) {
                    slot.doing("keeping");
                    let _ = shared.guarded("panics in the keeper", || {
                        keep(shared, &db, &mut random, at)
                    });
                    slot.idle();
                    thread::sleep(Duration::from_micros(random.below(8000)));
                }
            });
            let slot = self.watchdog.slot("writer");
            let mut is_sound = true;
            for step in 0..steps {
                if shared.is_over.load(Ordering::SeqCst) {
                    break;
                }
                if random.below(STEPS_PER_FAULT) == 0 {
                    ask_for_fault(shared, disk, random);
                }
                slot.doing("writing");
                let at = format!("{at} step {step}");
                let done = shared.guarded(IN_UPDATE, || writer.step(&db, &at));
                if done == Err(Refused::Fault) && !writer.goes_on(&db, &at) {
                    is_sound = false;
                    writer.nothing_is_committed(&db, &at);
                    break;
                }
                slot.idle();
            }
            if !is_sound {
                // Readers meet an engine that has stopped.
                thread::sleep(Duration::from_millis(random.below(30)));
            }
            is_sound
        });
        self.db = Some(db);
        is_sound
    }
}

impl Shared {
    fn count(&self, name: &'static str, by: u64) {
        *self.done.lock().entry(name).or_default() += by;
    }

    fn know(&self, known: Known) {
        let known = Arc::new(known);
        let blocks = &mut *self.blocks.write();
        blocks.by_hash.insert(known.id.hash, known.clone());
        blocks.in_order.push(known);
    }

    fn known(&self, hash: &B256) -> Arc<Known> {
        let blocks = self.blocks.read();
        let known = blocks.by_hash.get(hash).cloned();
        known.unwrap_or_else(|| panic!("a block that nobody made: {hash}"))
    }

    /// The block `depth` blocks below another one, or genesis.
    fn ancestor(&self, of: &B256, depth: u64) -> Arc<Known> {
        let mut known = self.known(of);
        for _ in 0..depth.min(known.id.number) {
            known = self.known(&known.parent);
        }
        known
    }

    /// Height of the newest common ancestor of two blocks.
    fn fork(&self, one: B256, other: B256) -> u64 {
        let (mut one, mut other) = (self.known(&one), self.known(&other));
        while one.id.hash != other.id.hash {
            match one.id.number >= other.id.number {
                true => one = self.known(&one.parent),
                false => other = self.known(&other.parent),
            }
        }
        one.id.number
    }

    fn is_faulty(&self) -> bool {
        self.is_faulty.load(Ordering::SeqCst)
    }

    /// An error of the disk means that a fault was asked for, or else the test fails.
    fn outcome<T>(&self, result: Result<T, StateError>, at: &str) -> Result<T, Refused> {
        match result {
            Ok(value) => Ok(value),
            Err(
                StateError::Store(StoreError::Disk(_) | StoreError::Poisoned { .. })
                | StateError::Poisoned(_),
            ) if self.is_faulty() => Err(Refused::Fault),
            Err(StateError::TooFar { .. } | StateError::NoRoom { .. }) => Err(Refused::Memory),
            Err(StateError::UnknownBlock(_) | StateError::NoSuchBlock { .. }) => {
                Err(Refused::Unknown)
            }
            Err(error) => panic!("{at}: {error}"),
        }
    }

    /// Does what may be stopped by a panic that was asked for, which is counted under that name.
    fn guarded<T>(
        &self,
        panics: &'static str,
        work: impl FnOnce() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let is_asked = panic.downcast_ref() == Some(&ASKED_PANIC) && self.is_faulty();
            if !is_asked {
                resume_unwind(panic);
            }
            self.count(panics, 1);
            Err(Refused::Fault)
        })
    }
}

/// With what the disk panics.
const ASKED_PANIC: &str = "a panic that was asked for";
/// Counts panics of whoever makes blocks.
const IN_UPDATE: &str = "panics in an update";

/// Ends the round when a thread is done, by a panic or otherwise.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One thing that whoever runs a database does now and then.
fn keep(shared: &Shared, db: &Db, random: &mut Random, at: &str) -> Result<(), Refused> {
    match random.below(100) {
        0..60 => {
            shared.count("flushes", 1);
            let keep = random.below(5) as usize;
            shared.outcome(db.flush(keep), at)
        }
        60..95 => {
            let stats = shared.outcome(db.stats(), at)?;
            let known = shared.known(&stats.snapshot.hash);
            assert_eq!(known.id, stats.snapshot, "{at}");
            assert!(stats.segment_live_bytes <= stats.segment_bytes, "{at}");
            Ok(())
        }
        _ => {
            shared.count("checks", 1);
            let report = shared.outcome(db.check(&mut |_| {}), at)?;
            if !shared.is_faulty() {
                assert!(report.damage.is_empty(), "{at}: {:?}", report.damage);
            }
            Ok(())
        }
    }
}

/// The files that faults are asked for.
const FILES: [&str; 5] = [
    "log/",
    "segments/",
    "checkpoint-",
    "blocks.idx",
    "codes.dat",
];

fn ask_for_fault(shared: &Shared, disk: &FaultyDisk, random: &mut Random) {
    if shared.params.faults == RoundFaults::None {
        return;
    }
    shared.is_faulty.store(true, Ordering::SeqCst);
    let file = FILES[random.below(FILES.len() as u64) as usize];
    let count = random.below(4) as u32 + 1;
    match (shared.params.faults, random.below(8)) {
        (RoundFaults::None, _) => {}
        (RoundFaults::Reads, 0..2) => disk.inject(Fault::FailedOpen, file, count),
        (RoundFaults::Reads, 2..5) => disk.inject(Fault::FailedRead, file, count),
        (RoundFaults::Reads, _) => disk.inject(Fault::FailedRead, "", count),
        (RoundFaults::Failures, 0..3) => disk.lose_power_after(random.below(100)),
        (RoundFaults::Failures, 3) => disk.inject(Fault::FailedSync, file, 1),
        (RoundFaults::Failures, 4) => disk.inject(Fault::FailedWrite, file, 1),
        (RoundFaults::Failures, 5) => disk.fill_after(random.below(200)),
        (RoundFaults::Failures, _) => disk.fail_call_after(random.below(400)),
        (RoundFaults::Panics, 0..3) => disk.panic_call_after(random.below(400)),
        (RoundFaults::Panics, _) => disk.panic_operation_after(random.below(100)),
    }
}

fn options(params: &ConcurrentParams) -> Options {
    Options {
        memory_bytes: params.memory_bytes,
        unfinalized_blocks: WINDOW as usize,
        index_bytes_max: params.index_bytes_max,
        files: params.files,
        ..Options::default()
    }
}
