//! Blocks on a state of constant size for as long as one likes: an hour in the long form, or
//! `CAMBIUM_ENDURANCE_SECONDS`. Whatever is not the history of the chain must stay as large as it
//! was: files, descriptors, threads, memory.
//!
//! Blocks overwrite, remove and create accounts and slots at equal rates, on the system's own file
//! system, with files so small that they are begun, cleaned and removed thousands of times. All the
//! while a view is held for a stretch and then renewed, old views are made and dropped, accounts
//! are proved, and blocks are unwound. Values, proofs and roots are compared with a model.
//!
//! What is sampled must not grow from the middle third to the last third; the first is for caches to
//! fill. The block log and its index grow with blocks, at a constant rate.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountChange, AccountUpdate, BlockId, Changes};
use cambium_state::{
    BlockMeta, Db, FileSizes, Loader, Options, StateError, StdDisk, StoreError, View,
};
use cambium_testkit::{Model, Random, say};
use cambium_trie::{Keys, NoResolve, StorageKey, verify_account_proof};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Accounts that there may be; half of them are there at any time.
const ACCOUNTS: u64 = 16_000;
/// The first of these are never removed, and have most of the slots.
const LARGE: u64 = 4;
/// Slots that each large account may have; half of them are set at any time.
const LARGE_SLOTS: u64 = 4_000;
/// Slots that any other account may have; one of them is set.
const SMALL_SLOTS: u64 = 2;
/// Contract codes. Each is given with every block that creates an account of it.
const CODES: u64 = 16;
/// Blocks whose states the model knows, below the head.
const HISTORY_BLOCKS: u64 = 400;
/// More blocks would only make the log longer.
const BLOCKS_A_SECOND_MAX: u64 = 150;

const OPTIONS: Options = Options {
    memory_bytes: 12 << 20,
    unfinalized_blocks: 16,
    index_bytes_max: None,
    files: FileSizes {
        segment_bytes_max: 64 << 10,
        segment_buffer_bytes: 16 << 10,
        segments_max: 4_096,
        log_file_bytes_max: 512 << 10,
        log_extend_bytes: 64 << 10,
    },
};

#[test]
fn what_is_not_history_stays_as_large_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let span = span();
    let mut run = Run::new(dir.path());
    let samples = run.endure(span);
    print_table(&samples);
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
    assert_flat(&samples, span);
}

fn span() -> Duration {
    let seconds = std::env::var("CAMBIUM_ENDURANCE_SECONDS").ok();
    let is_long = std::env::var_os("CAMBIUM_LONG").is_some();
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

/// What was done, and how often.
#[derive(Default)]
struct Done {
    blocks: u64,
    unwound: u64,
    values: u64,
    old_views: u64,
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
        // Held for five stretches in each third, and not held for a while in between.
        let stretch = span / 18;
        let (start, mut samples) = (Instant::now(), Vec::new());
        let mut stretches = 0;
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
            if start.elapsed() > stretch * stretches {
                stretches += 1;
                self.pinned = None;
            } else if self.pinned.is_none()
                && start.elapsed() > stretch * stretches - stretch * 4 / 5
            {
                self.pinned = Some((self.db.view().unwrap(), self.world.values.clone()));
            }
            if start.elapsed() > sample_every * samples.len() as u32 {
                self.compare();
                samples.push(Sample::take(
                    self.dir,
                    &self.db,
                    start.elapsed(),
                    self.done.blocks,
                ));
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
        let view = self.db.view_at(number).unwrap();
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
        let keys = Keys::new(vec![(path(account), vec![keccak256(slot)])]);
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

fn address(account: u64) -> Address {
    Address::left_padding_from(&(account + 1).to_be_bytes())
}

fn path(account: u64) -> B256 {
    keccak256(address(account))
}

fn slot_path(slot: u64) -> B256 {
    keccak256(B256::from(U256::from(slot)))
}

const fn slots_of(account: u64) -> u64 {
    match account {
        0..LARGE => LARGE_SLOTS,
        _ => SMALL_SLOTS,
    }
}

fn code(index: u64) -> (B256, Bytes) {
    let code = Bytes::from(vec![index as u8; 200]);
    (keccak256(&code), code)
}

fn account(index: u64, nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(1_000_000_000 + index),
        code_hash: code(index % CODES).0,
    }
}

/// What has a value: an account its nonce, a slot its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Account(u64),
    Slot(u64, u64),
}

/// The state as it must be, with what it was some blocks ago.
struct World {
    random: Random,
    values: HashMap<Cell, u64>,
    /// The newest blocks, the newest last, with what each overwrote.
    blocks: VecDeque<(BlockId, Vec<(Cell, Option<u64>)>)>,
    hashes: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut values = HashMap::new();
        for account in 0..ACCOUNTS {
            if account >= LARGE && account % 2 == 0 {
                continue;
            }
            values.insert(Cell::Account(account), 1);
            let slots = match account {
                0..LARGE => (0..LARGE_SLOTS).step_by(2).collect(),
                _ => vec![account % SMALL_SLOTS],
            };
            for slot in slots {
                values.insert(Cell::Slot(account, slot), slot + 1);
            }
        }
        Self {
            random: Random::new(seed),
            values,
            blocks: [(BlockId::new(0, keccak256("first")), vec![])].into(),
            hashes: 0,
        }
    }

    fn id(&self) -> BlockId {
        self.blocks.back().expect("a block").0
    }

    fn head(&self) -> u64 {
        self.id().number
    }

    /// A block that overwrites, removes and creates equally many accounts, and slots.
    fn block(&mut self) -> (Changes, Vec<(B256, Bytes)>) {
        let mut changed = HashMap::<u64, AccountChange>::new();
        let (mut codes, mut before) = (BTreeMap::new(), Vec::new());
        let nonce = self.head() + 2;
        for turn in 0..9 {
            // Some account that is there, or, for every third change, one that is not.
            let is_new = turn % 3 == 0;
            let at = loop {
                let at = LARGE + self.random.below(ACCOUNTS - LARGE);
                let is_there = self.values.contains_key(&Cell::Account(at));
                if is_there != is_new && !changed.contains_key(&at) {
                    break at;
                }
            };
            let is_removed = turn % 3 == 1;
            let mut slots = vec![];
            let value = (!is_removed).then_some(nonce);
            let slot = at % SMALL_SLOTS;
            self.set(Cell::Slot(at, slot), value, &mut before);
            if !is_removed {
                slots.push((slot_path(slot), U256::from(nonce)));
            }
            let update = match is_removed {
                true => AccountUpdate::Delete,
                false => AccountUpdate::Put(account(at, nonce)),
            };
            if is_new {
                codes.extend([code(at % CODES)]);
            }
            self.set(Cell::Account(at), value, &mut before);
            changed.insert(at, change(at, update, slots));
        }
        for turn in 0..18 {
            let at = turn % LARGE;
            let is_new = turn % 3 == 0;
            let entry = changed.entry(at);
            let entry = entry.or_insert_with(|| change(at, AccountUpdate::Keep, vec![]));
            let (slot, slot_path) = loop {
                let slot = self.random.below(LARGE_SLOTS);
                let is_there = self.values.contains_key(&Cell::Slot(at, slot));
                let path = slot_path(slot);
                if is_there != is_new && entry.slots.iter().all(|(taken, _)| *taken != path) {
                    break (slot, path);
                }
            };
            let value = (turn % 3 != 1).then_some(nonce);
            entry
                .slots
                .push((slot_path, U256::from(value.unwrap_or(0))));
            self.set(Cell::Slot(at, slot), value, &mut before);
        }
        self.hashes += 1;
        let id = BlockId::new(self.head() + 1, keccak256(self.hashes.to_be_bytes()));
        self.blocks.push_back((id, before));
        if self.blocks.len() as u64 > HISTORY_BLOCKS {
            self.blocks.pop_front();
        }
        let changes = changed.into_values().collect();
        (Changes::new(changes), codes.into_iter().collect())
    }

    fn set(&mut self, cell: Cell, value: Option<u64>, before: &mut Vec<(Cell, Option<u64>)>) {
        let old = match value {
            Some(value) => self.values.insert(cell, value),
            None => self.values.remove(&cell),
        };
        before.push((cell, old));
    }

    fn unwind(&mut self, to: u64) {
        while self.head() > to {
            let (_, before) = self.blocks.pop_back().expect("a block");
            for (cell, old) in before.into_iter().rev() {
                self.set(cell, old, &mut vec![]);
            }
        }
    }

    /// A value as it was after an earlier block.
    fn at(&self, cell: Cell, number: u64) -> Option<u64> {
        let later = self.blocks.iter().rev();
        let later = later.take_while(|(id, _)| id.number > number);
        let mut value = self.values.get(&cell).copied();
        for (_, before) in later {
            if let Some((_, old)) = before.iter().find(|(changed, _)| *changed == cell) {
                value = *old;
            }
        }
        value
    }

    fn any_account(&mut self) -> u64 {
        match self.random.percent(30) {
            true => self.random.below(LARGE),
            false => self.random.below(ACCOUNTS),
        }
    }

    fn any_cell(&mut self) -> Cell {
        let account = self.any_account();
        match self.random.percent(50) {
            true => Cell::Account(account),
            false => Cell::Slot(account, self.random.below(slots_of(account))),
        }
    }

    /// All of it, as a state whose root can be computed.
    fn model(&self) -> Model {
        let mut changes = HashMap::<u64, AccountChange>::new();
        for (cell, value) in &self.values {
            let (Cell::Account(at) | Cell::Slot(at, _)) = *cell;
            let entry = changes.entry(at);
            let entry = entry.or_insert_with(|| change(at, AccountUpdate::Keep, vec![]));
            match *cell {
                Cell::Account(_) => entry.account = AccountUpdate::Put(account(at, *value)),
                Cell::Slot(_, slot) => {
                    entry.slots.push((slot_path(slot), U256::from(*value)));
                }
            }
        }
        let mut model = Model::default();
        model.apply(&Changes::new(changes.into_values().collect()));
        model
    }
}

fn change(at: u64, account: AccountUpdate, slots: Vec<(B256, U256)>) -> AccountChange {
    AccountChange {
        path: path(at),
        wipe: account == AccountUpdate::Delete,
        account,
        slots,
    }
}

/// Figures by name.
struct Sample {
    seconds: f64,
    blocks: u64,
    /// Bytes of the block log and its index on disk: these grow.
    log_bytes: u64,
    block_index_bytes: u64,
    /// What stays as large as it is.
    flat: Vec<(&'static str, u64)>,
}

impl Sample {
    fn take(dir: &Path, db: &Db, elapsed: Duration, blocks: u64) -> Self {
        let stats = db.stats().unwrap();
        let on_disk = |names: &[&str]| -> u64 {
            names
                .iter()
                .map(|name| disk_bytes(&dir.join(name)).unwrap())
                .sum()
        };
        let log_bytes = on_disk(&["log"]);
        let block_index_bytes = on_disk(&["blocks.idx"]);
        let all = on_disk(&[""]);
        let flat = vec![
            ("disk", all.saturating_sub(log_bytes + block_index_bytes)),
            ("files", entries(dir) + entries(&dir.join("segments"))),
            ("descriptors", entries(Path::new("/proc/self/fd"))),
            ("threads", entries(Path::new("/proc/self/task"))),
            ("rss", resident_bytes()),
            ("segments", stats.segments as u64),
            ("seg_bytes", stats.segment_bytes),
            ("live_bytes", stats.segment_live_bytes),
            ("overlay", stats.overlay_bytes as u64),
            ("delta", stats.delta_bytes as u64),
            ("pinned", stats.pinned_bytes as u64),
            ("index", stats.index_bytes as u64),
            ("pages", stats.pages),
            ("caches", stats.page_cache_bytes + stats.code_cache_bytes),
            ("entries", stats.entry_cache_bytes as u64),
            ("held", stats.held_snapshots as u64),
            ("old_states", stats.old_states as u64),
            ("codes", stats.codes as u64),
        ];
        Self {
            seconds: elapsed.as_secs_f64(),
            blocks,
            log_bytes,
            block_index_bytes,
            flat,
        }
    }
}

/// What a file or a directory with all in it takes of the disk.
fn disk_bytes(path: &Path) -> io::Result<u64> {
    let own = match fs::symlink_metadata(path) {
        // Files come and go while they are counted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        own => own?,
    };
    let mut bytes = own.blocks() * 512;
    if own.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

fn entries(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().count() as u64
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}

fn print_table(samples: &[Sample]) {
    let names: Vec<_> = samples[0].flat.iter().map(|(name, _)| *name).collect();
    let mut table = format!(
        "{:>7} {:>8} {:>11} {:>11}",
        "seconds", "blocks", "log", "blocks.idx"
    );
    for name in &names {
        table += &format!(" {name:>11}");
    }
    for sample in samples.iter().step_by(samples.len().div_ceil(20)) {
        table += &format!(
            "\n{:>7.1} {:>8} {:>11} {:>11}",
            sample.seconds, sample.blocks, sample.log_bytes, sample.block_index_bytes
        );
        for (_, value) in &sample.flat {
            table += &format!(" {value:>11}");
        }
    }
    say(&table);
}

/// How much may be added from the middle third to the last, as a share: in the short form caches
/// are still filling, and there are few samples of what comes and goes.
const fn allowance(is_long: bool) -> f64 {
    match is_long {
        true => 0.08,
        false => 0.50,
    }
}

/// And as a number: of small counts one more is many per cent.
const COUNT_ALLOWED: f64 = 3.0;

/// By so much the log is longer than its records: files are made ready before they are begun.
const LOG_BYTES_AHEAD: u64 = 2 * OPTIONS.files.log_file_bytes_max as u64;

fn assert_flat(samples: &[Sample], span: Duration) {
    let third = samples.len() / 3;
    let (middle, last) = (&samples[third..2 * third], &samples[2 * third..]);
    let is_long = span >= Duration::from_secs(600);
    let mut grown = Vec::new();
    let mut told = String::from("endurance: middle third -> last third, median and 9th tenth:");
    for (at, (name, _)) in samples[0].flat.iter().enumerate() {
        let of = |samples: &[Sample], part: f64| {
            let mut values: Vec<_> = samples.iter().map(|sample| sample.flat[at].1).collect();
            values.sort_unstable();
            values[(values.len() as f64 * part) as usize] as f64
        };
        for part in [0.5, 0.9] {
            let (before, after) = (of(middle, part), of(last, part));
            told += &format!("\n  {name:>11} {before:>12} -> {after:>12}");
            if after > before * (1.0 + allowance(is_long)) + COUNT_ALLOWED {
                grown.push(format!("{name}: {before} -> {after}"));
            }
        }
    }
    let rate = |samples: &[Sample], of: fn(&Sample) -> u64| {
        let (first, last) = (&samples[0], &samples[samples.len() - 1]);
        (of(last) - of(first)) as f64 / (last.blocks - first.blocks) as f64
    };
    for (name, of) in [
        (
            "log",
            (|sample: &Sample| sample.log_bytes) as fn(&Sample) -> u64,
        ),
        ("blocks.idx", |sample: &Sample| sample.block_index_bytes),
    ] {
        let (before, after) = (rate(middle, of), rate(last, of));
        told += &format!("\n  {name:>11} {before:>12.1} -> {after:>12.1} bytes a block");
        let blocks = last[last.len() - 1].blocks - last[0].blocks;
        let ahead = LOG_BYTES_AHEAD as f64 / blocks as f64;
        if after > before * (1.0 + allowance(is_long)) + ahead {
            grown.push(format!("{name}: {before:.1} -> {after:.1} bytes a block"));
        }
    }
    say(&told);
    assert!(grown.is_empty(), "these grow: {grown:#?}");
}
