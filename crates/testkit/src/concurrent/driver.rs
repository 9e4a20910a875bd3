//! The driver of concurrent tests: the engine, and state that lasts from round to round.

use super::{
    shared::{ConcurrentParams, Known, Shared},
    watchdog::Watchdog,
    writer::Writer,
};
use crate::{
    Random,
    engine::{FirstState, WINDOW},
};
use alloy_primitives::B256;
use cambium_state::{Db, FaultyDisk, Options};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
};

/// Runs concurrent tests of the engine, see the head of the module.
pub struct ConcurrentDriver {
    pub(super) shared: Arc<Shared>,
    pub(super) disk: FaultyDisk,
    pub(super) random: Random,
    pub(super) writer: Writer,
    pub(super) watchdog: Watchdog,
    pub(super) db: Option<Db>,
}

impl ConcurrentDriver {
    /// Creates a database with a random genesis state.
    pub fn new(params: ConcurrentParams) -> Self {
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

    /// Returns the number of operations by name.
    pub fn done(&self) -> BTreeMap<&'static str, u64> {
        self.shared.done.lock().clone()
    }
}

pub(super) fn options(params: &ConcurrentParams) -> Options {
    Options {
        memory_bytes: params.memory_bytes,
        unfinalized_blocks: WINDOW as usize,
        index_bytes_max: params.index_bytes_max,
        files: params.files,
        ..Options::default()
    }
}
