//! State that the threads of a run share: parameters and known blocks.

use crate::Model;
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use cambium_state::{FileSizes, StateError, StoreError};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Kind of faults in the rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundFaults {
    /// No faults.
    None,
    /// Reads and openings of files fail, a few times each.
    Reads,
    /// Writes and syncs fail, the disk is full, or power is lost: the engine stops.
    Failures,
    /// Some operation of the disk panics, for any caller.
    Panics,
}

/// Parameters of a run: sizes, options of the engine, and kinds of faults.
#[derive(Clone, Copy, Debug)]
pub struct ConcurrentParams {
    /// Seed of all decisions.
    pub seed: u64,
    /// Number of accounts at genesis.
    pub accounts: u64,
    /// Maximum number of accounts that a block changes.
    pub changes_max: u64,
    /// Memory budget of the engine in bytes.
    pub memory_bytes: u64,
    /// Memory for the index in bytes, or `None` for the default of the engine.
    pub index_bytes_max: Option<u64>,
    /// Sizes of files.
    pub files: FileSizes,
    /// Number of reading threads.
    pub readers: u64,
    /// Number of steps of the writer in a round.
    pub steps: u64,
    /// Kind of faults of the disk.
    pub faults: RoundFaults,
}

/// A block that was sealed.
pub(super) struct Known {
    pub(super) id: BlockId,
    pub(super) parent: B256,
    pub(super) model: Model,
    pub(super) root: B256,
    /// Whether it was committed, and the commit was acknowledged.
    pub(super) durable: AtomicBool,
    /// Whether a durable block must still exist, because no head was far from it since.
    pub(super) kept: AtomicBool,
}

/// Blocks by hash, and in the order of sealing.
#[derive(Default)]
pub(super) struct KnownBlocks {
    pub(super) by_hash: HashMap<B256, Arc<Known>>,
    pub(super) in_order: Vec<Arc<Known>>,
}

/// Reason why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// An injected fault.
    Fault,
    /// The operation needs more memory than the budget.
    Memory,
    /// The block is unknown or no longer kept.
    Unknown,
}

/// State shared by the threads of a run.
pub(super) struct Shared {
    pub(super) params: ConcurrentParams,
    pub(super) blocks: RwLock<KnownBlocks>,
    /// Whether a fault was injected, which may cause an error.
    pub(super) is_faulty: AtomicBool,
    /// Whether the threads of the round must end.
    pub(super) is_over: AtomicBool,
    /// Number of operations by name.
    pub(super) done: Mutex<BTreeMap<&'static str, u64>>,
}

/// Message of injected panics.
const ASKED_PANIC: &str = "a panic that was asked for";
/// Name under which panics of a thread that commits blocks are counted.
pub(super) const IN_UPDATE: &str = "panics in an update";

impl Shared {
    pub(super) fn count(&self, name: &'static str, by: u64) {
        *self.done.lock().entry(name).or_default() += by;
    }

    pub(super) fn know(&self, known: Known) {
        let known = Arc::new(known);
        let blocks = &mut *self.blocks.write();
        blocks.by_hash.insert(known.id.hash, known.clone());
        blocks.in_order.push(known);
    }

    pub(super) fn known(&self, hash: &B256) -> Arc<Known> {
        let blocks = self.blocks.read();
        let known = blocks.by_hash.get(hash).cloned();
        known.unwrap_or_else(|| panic!("a block that nobody made: {hash}"))
    }

    /// Returns the block `depth` blocks below another one, or genesis.
    pub(super) fn ancestor(&self, of: &B256, depth: u64) -> Arc<Known> {
        let mut known = self.known(of);
        for _ in 0..depth.min(known.id.number) {
            known = self.known(&known.parent);
        }
        known
    }

    /// Returns the height of the newest common ancestor of two blocks.
    pub(super) fn fork(&self, one: B256, other: B256) -> u64 {
        let (mut one, mut other) = (self.known(&one), self.known(&other));
        while one.id.hash != other.id.hash {
            match one.id.number >= other.id.number {
                true => one = self.known(&one.parent),
                false => other = self.known(&other.parent),
            }
        }
        one.id.number
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.is_faulty.load(Ordering::SeqCst)
    }

    /// Converts the result of an operation. Panics at an error of the disk without an injected
    /// fault.
    pub(super) fn outcome<T>(&self, result: Result<T, StateError>, at: &str) -> Result<T, Refused> {
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

    /// Runs an operation that an injected panic may end, and counts such panics under `name`.
    pub(super) fn guarded<T>(
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
