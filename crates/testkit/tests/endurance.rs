//! Blocks on a state of constant size for a chosen time: an hour in the long form, or `CAMBIUM_ENDURANCE_SECONDS`.
//! Everything but the history of the chain must stay as large as it was: files, descriptors, threads, memory.
//!
//! Blocks overwrite, remove and create accounts and slots at equal rates, on the system's own file
//! system, with files so small that they are begun, cleaned and removed thousands of times. All the
//! while a view is held for a stretch and then renewed, old views are made and dropped, accounts
//! are proved, and blocks are unwound. Values, proofs and roots are compared with a model.
//!
//! Sampled figures must not grow from the middle third to the last third; the first is for caches to fill. The block
//! log and its index grow with blocks, at a constant rate.

mod samples;
mod steady_world;

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::BlockId;
use cambium_state::{
    BlockMeta, Db, FileSizes, Loader, Options, StateError, StdDisk, StoreError, View,
};
use cambium_testkit::say;
use cambium_trie::{NoResolve, ProofTargets, StorageKey, verify_account_proof};
use samples::{Sample, assert_flat};
use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use steady_world::{CODES, Cell, World, address, code, path, slot_path, slots_of};

/// More blocks would only make the log longer.
const BLOCKS_A_SECOND_MAX: u64 = 150;

const OPTIONS: Options = Options {
    // So that a merge comes every few dozens of blocks: rings for reads take 8 MiB of it.
    memory_bytes: 40 << 20,
    commitment: cambium_trie::Commitment::Mpt,
    leaves: cambium_state::LeafKind::Accounts,
    merge_interval_blocks: None,
    unfinalized_blocks: 16,
    index_bytes_max: None,
    reader_lag: 16,
    room_wait: Duration::from_secs(10),
    keep_blocks: None,
    files: FileSizes {
        segment_bytes_max: 64 << 10,
        segment_buffer_bytes: 16 << 10,
        segments_max: 4_096,
        log_file_bytes_max: 512 << 10,
        log_extend_bytes: 64 << 10,
        log_reference_leaves: 12,
        log_spare_blocks: 256,
        value_segment_bytes_max: 64 << 10,
    },
};

#[test]
fn what_is_not_history_stays_as_large_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let span = span();
    let mut run = Run::new(dir.path());
    let samples = run.endure(span);
    let Run {
        db, pinned, world, ..
    } = run;
    drop(pinned);
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let head = db.head();
    assert_eq!(head.number, world.head());
    drop(db);
    let db = open(dir.path());
    assert_eq!(db.head(), head, "after opening again");
    assert_eq!(db.view().unwrap().state_root(), world.model().root());
    say(&format!(
        "endurance: {} blocks, {} of them unwound; {} values, {} old views, {} proofs, {} roots \
         equal; {} merges, {} MiB of pages written, {} pages moved; check clean, opened at the head",
        run.done.blocks,
        run.done.unwound,
        run.done.values,
        run.done.old_views,
        run.done.proofs,
        run.done.roots,
        run.done.merges,
        run.done.page_bytes >> 20,
        run.done.pages_moved,
    ));
    let Done {
        old_views, too_far, ..
    } = run.done;
    assert!(too_far * 10 <= old_views, "{too_far} of {old_views}");
    // The newest file of the log, and the one made ready.
    let log_bytes_ahead = 2 * u64::from(OPTIONS.files.log_file_bytes_max);
    assert_flat(&samples, span, log_bytes_ahead);
}

fn span() -> Duration {
    let seconds = std::env::var("CAMBIUM_ENDURANCE_SECONDS").ok();
    let is_long = cambium_seeds::is_long();
    Duration::from_secs(match seconds {
        Some(seconds) => seconds.parse().expect("a number of seconds"),
        None if is_long => 3600,
        None => 20,
    })
}

fn open(dir: &Path) -> Db {
    let mut tries = 0;
    loop {
        match Db::open(Arc::new(StdDisk::new(dir)), OPTIONS) {
            // A merge that is under way holds it for a moment.
            Err(StateError::Store(StoreError::InUse { .. })) if tries < 1000 => {
                tries += 1;
                thread::sleep(Duration::from_millis(10));
            }
            opened => return opened.unwrap().0,
        }
    }
}

/// Number of operations of each kind.
#[derive(Default)]
struct Done {
    blocks: u64,
    unwound: u64,
    values: u64,
    old_views: u64,
    /// Old states that did not fit into their memory alone.
    too_far: u64,
    proofs: u64,
    roots: u64,
    merges: u64,
    page_bytes: u64,
    pages_moved: u64,
}

struct Run<'a> {
    dir: &'a Path,
    db: Db,
    world: World,
    done: Done,
    /// A view that is held, and the state that it must give.
    pinned: Option<(View, HashMap<Cell, u64>)>,
    old_views: VecDeque<View>,
}

impl<'a> Run<'a> {
    fn new(dir: &'a Path) -> Self {
        let world = World::new(1);
        let mut loader = Loader::new(Arc::new(StdDisk::new(dir)), OPTIONS).unwrap();
        for (hash, code) in (0..CODES).map(code) {
            loader.code(hash, &code).unwrap();
        }
        let genesis = world.model();
        for (path, account) in genesis.accounts() {
            let slots = account.slots.iter().map(|(slot, value)| (*slot, *value));
            loader.account(*path, &account.account, slots).unwrap();
        }
        let loaded = loader.finish(&mut |_| {}).unwrap();
        assert_eq!(loaded.root(), genesis.root());
        let meta = meta(world.id(), B256::ZERO, loaded.root());
        Self {
            dir,
            db: loaded.create(meta, vec![]).unwrap(),
            world,
            done: Done::default(),
            pinned: None,
            old_views: VecDeque::new(),
        }
    }

    /// Blocks and all else until the time is over. Returns samples from all of it.
    fn endure(&mut self, span: Duration) -> Vec<Sample> {
        let sample_every = (span / 180).max(Duration::from_millis(200));
        // Of blocks, so that what a view holds does not depend on how fast they come. Five or more in
        // each third.
        let held = (span.as_secs() * BLOCKS_A_SECOND_MAX / 36).max(80);
        let (start, mut samples) = (Instant::now(), Vec::new());
        while start.elapsed() < span {
            let ahead = self.done.blocks / BLOCKS_A_SECOND_MAX;
            thread::sleep(Duration::from_secs(ahead).saturating_sub(start.elapsed()));
            self.block();
            match self.done.blocks {
                n if n % 500 == 0 => self.unwind(),
                n if n % 40 == 20 => self.old_view(),
                n if n % 10 == 5 => self.prove(),
                _ => {}
            }
            match self.done.blocks % held {
                0 => self.pinned = None,
                n if n == held / 5 => {
                    self.pinned = Some((self.db.view().unwrap(), self.world.values.clone()));
                }
                _ => {}
            }
            if start.elapsed() > sample_every * samples.len() as u32 {
                self.compare();
                let blocks = self.done.blocks;
                let sample = Sample::take(self.dir, &self.db, start.elapsed(), blocks);
                if samples.is_empty() {
                    sample.print_names();
                }
                if samples.len() % 9 == 0 {
                    sample.print();
                }
                samples.push(sample);
                if samples.len() % 10 == 0 {
                    self.compare_root();
                }
            }
        }
        self.compare_root();
        let counters = self.db.counters();
        self.done.merges = counters.merges;
        self.done.page_bytes = counters.page_bytes_written;
        self.done.pages_moved = counters.pages_moved;
        self.old_views.clear();
        samples
    }

    fn block(&mut self) {
        let parent = self.world.id();
        let (changes, codes) = self.world.block();
        let session = self.db.view().unwrap().session();
        let staged = session.finish(changes, codes).unwrap();
        let meta = meta(self.world.id(), parent.hash, staged.root());
        staged.seal(meta).unwrap().commit().unwrap();
        self.done.blocks += 1;
    }

    /// Takes back some blocks: of the newest heights, or below them.
    fn unwind(&mut self) {
        let blocks = self.world.random.below(60) + 1;
        let to = self.world.head().saturating_sub(blocks);
        self.world.unwind(to);
        assert_eq!(self.db.unwind(to).unwrap(), self.world.id());
        self.done.unwound += blocks;
    }

    /// A view of a block some hundred below the head, held until two others came.
    fn old_view(&mut self) {
        let (head, depth) = (self.world.head(), 100 + self.world.random.below(150));
        let Some(number) = head.checked_sub(depth) else {
            return;
        };
        // Old states have a limit of memory, which those that are held take a part of.
        let view = loop {
            match self.db.view_at(number) {
                Err(StateError::TooFar { .. }) if !self.old_views.is_empty() => {
                    self.old_views.clear();
                }
                Err(StateError::TooFar { .. }) => {
                    self.done.too_far += 1;
                    return;
                }
                view => break view.unwrap(),
            }
        };
        for _ in 0..20 {
            let cell = self.world.any_cell();
            let expected = self.world.at(cell, number);
            assert_eq!(read(&view, cell), expected, "{cell:?} at block {number}");
            self.done.values += 1;
        }
        self.old_views.push_back(view);
        if self.old_views.len() > 2 {
            self.old_views.pop_front();
        }
        self.done.old_views += 1;
    }

    /// Proves an account and a slot, at the head or some blocks below.
    fn prove(&mut self) {
        let head = self.world.head();
        let number = head.saturating_sub(self.world.random.below(100));
        let view = self.db.view_at(number).unwrap();
        let account = self.world.any_account();
        let index = self.world.random.below(slots_of(account));
        let slot = B256::from(U256::from(index));
        let keys = ProofTargets::new(vec![(path(account), vec![keccak256(slot)])]);
        let mut part = view.extract(&keys).unwrap();
        let slots = [StorageKey::from(slot)];
        let proof = part.prove_account(address(account), &slots, &mut NoResolve);
        let proof = proof.unwrap();
        verify_account_proof(view.state_root(), &proof).unwrap();
        let expected = self.world.at(Cell::Account(account), number);
        assert_eq!(proof.nonce, expected.unwrap_or_default());
        let expected = self.world.at(Cell::Slot(account, index), number);
        let value = proof.storage_proof[0].value;
        assert_eq!(value, U256::from(expected.unwrap_or_default()));
        self.done.proofs += 1;
    }

    /// Values at the head, and of the view that is held.
    fn compare(&mut self) {
        let view = self.db.view().unwrap();
        for _ in 0..100 {
            let cell = self.world.any_cell();
            let expected = self.world.values.get(&cell).copied();
            assert_eq!(read(&view, cell), expected, "{cell:?} at the head");
            if let Some((view, values)) = &self.pinned {
                let block = view.block();
                let expected = values.get(&cell).copied();
                assert_eq!(read(view, cell), expected, "{cell:?} at {block}, held");
            }
            self.done.values += 2;
        }
    }

    fn compare_root(&mut self) {
        let root = self.db.view().unwrap().state_root();
        assert_eq!(root, self.world.model().root(), "block {}", self.world.id());
        self.done.roots += 1;
    }
}

fn meta(id: BlockId, parent: B256, state_root: B256) -> BlockMeta {
    BlockMeta {
        id,
        parent,
        state_root,
        body: Bytes::new(),
    }
}

fn read(view: &View, cell: Cell) -> Option<u64> {
    match cell {
        Cell::Account(account) => {
            let account = view.account(&path(account)).unwrap();
            account.map(|account| account.nonce)
        }
        Cell::Slot(account, slot) => {
            let value = view.slot(&path(account), &slot_path(slot)).unwrap();
            (!value.is_zero()).then(|| value.to())
        }
    }
}
