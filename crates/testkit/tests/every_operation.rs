//! A script with merges, cleaning, checkpoints, new log files, unwinds and reopening, in which each
//! operation of the disk fails once, each is the one at which the disk is full, each the one at
//! which power is lost, and each the one in which the engine panics. After each the database opens
//! at what was acknowledged.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{
    BlockMeta, Db, FaultyDisk, FileSizes, Loader, Options, StateError, StoreError,
};
use cambium_testkit::{Model, Random, TINY_FILES, plain::path, say};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

fn options() -> Options {
    Options {
        memory_bytes: 16 << 20,
        unfinalized_blocks: 8,
        // At the end of the script old files leave the log.
        keep_blocks: Some(6),
        files: FileSizes {
            log_file_bytes_max: 8 << 10,
            log_extend_bytes: 4 << 10,
            log_spare_blocks: 0,
            log_reference_leaves: 12,
            ..TINY_FILES
        },
        ..Options::default()
    }
}

fn slot(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

fn code(number: u64) -> (B256, Bytes) {
    let code = [number as u8; 200];
    (keccak256(code), Bytes::copy_from_slice(&code))
}

/// Operations, one after the other.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Commits block `.0` on the head.
    Block(u64),
    /// Commits the block of the side branch, which is not made the head.
    Aside,
    Flush,
    Unwind(u64),
    /// Makes block `.0`, of the main branch, the head.
    Head(u64),
    Reopen,
    ReadOld(u64),
}

use Step::{Aside, Block, Flush, Head, ReadOld, Reopen, Unwind};

const SCRIPT: [Step; 32] = [
    Block(1),
    Block(2),
    Flush,
    Block(3),
    Aside,
    Block(4),
    Flush,
    ReadOld(1),
    Block(5),
    Reopen,
    Block(6),
    Unwind(5),
    Head(6),
    Flush,
    Block(7),
    Block(8),
    Flush,
    Block(9),
    Unwind(3),
    Flush,
    Head(9),
    Block(10),
    Flush,
    Reopen,
    Block(11),
    Flush,
    Block(12),
    Flush,
    Block(13),
    Flush,
    ReadOld(8),
    Block(14),
];

struct Made {
    meta: BlockMeta,
    changes: Changes,
    codes: Vec<(B256, Bytes)>,
}

struct Story {
    disk: FaultyDisk,
    genesis: BlockId,
    blocks: Vec<Made>,
    aside: Made,
}

const ACCOUNTS: u64 = 60;

fn changes(random: &mut Random, number: u64, count: u64) -> Changes {
    let mut changed: Vec<_> = (0..count).map(|_| random.below(ACCOUNTS)).collect();
    changed.push(0);
    changed.sort_unstable();
    changed.dedup();
    let change = |index: u64| {
        let slots = match index {
            0 => (0..150).map(|_| random.below(1500)).collect(),
            _ => vec![random.below(6), 7],
        };
        let mut slots: Vec<_> = slots.into_iter().map(slot).collect();
        slots.sort_unstable();
        slots.dedup();
        AccountDiff {
            path: path(index),
            account: AccountUpdate::Put(Account {
                nonce: number,
                balance: U256::from(index),
                code_hash: code(number).0,
            }),
            wipe: index % 9 == 8,
            slots: slots
                .into_iter()
                .map(|slot| (slot, U256::from(number % 4)))
                .collect(),
        }
    };
    Changes::new(changed.into_iter().map(change).collect())
}

fn story() -> Story {
    let disk = FaultyDisk::new(1);
    let mut loader = Loader::new(Arc::new(disk.clone()), options()).unwrap();
    let mut model = Model::default();
    let mut genesis = Vec::new();
    for index in 0..ACCOUNTS {
        let account = Account {
            nonce: index,
            ..Account::default()
        };
        let slots = match index {
            0 => 1500,
            _ => index % 3,
        };
        let slots: Vec<_> = (0..slots)
            .map(|index| (slot(index), U256::from(index + 1)))
            .collect();
        loader
            .account(path(index), &account, slots.iter().copied())
            .unwrap();
        genesis.push(AccountDiff {
            path: path(index),
            account: AccountUpdate::Put(account),
            wipe: false,
            slots,
        });
    }
    model.apply(&Changes::new(genesis));
    let loaded = loader.finish(&mut |_| {}).unwrap();
    assert_eq!(loaded.root(), model.root());
    let meta = |number: u64, name: u64, parent: B256, state_root: B256| BlockMeta {
        id: BlockId::new(number, keccak256((number * 1000 + name).to_le_bytes())),
        parent,
        state_root,
        body: Bytes::from(vec![number as u8; 4000]),
    };
    let first = meta(0, 0, B256::ZERO, loaded.root());
    drop(loaded.create(first.clone(), vec![]).unwrap());
    let mut random = Random::new(3);
    let (mut blocks, mut aside, mut parent) = (Vec::new(), None, first.id.hash);
    for number in 1..=14 {
        if number == 3 {
            let changes = changes(&mut random, 50, 5);
            let mut model = model.clone();
            model.apply(&changes);
            aside = Some(Made {
                meta: meta(3, 1, parent, model.root()),
                changes,
                codes: vec![code(50)],
            });
        }
        let changes = changes(&mut random, number, 12);
        model.apply(&changes);
        let meta = meta(number, 0, parent, model.root());
        parent = meta.id.hash;
        blocks.push(Made {
            meta,
            changes,
            codes: vec![code(number)],
        });
    }
    Story {
        disk: disk.duplicate(),
        genesis: first.id,
        blocks,
        aside: aside.expect("block 3"),
    }
}

/// The script on one disk.
struct Run<'a> {
    story: &'a Story,
    disk: FaultyDisk,
    db: Option<Db>,
    /// The next step.
    at: usize,
    /// Acknowledged, and what may have been reached besides when something failed.
    head: BlockId,
    attempted: Option<BlockId>,
    /// Whether the side block was acknowledged.
    has_aside: bool,
}

impl<'a> Run<'a> {
    fn new(story: &'a Story) -> Self {
        Self {
            story,
            disk: story.disk.duplicate(),
            db: None,
            at: 0,
            head: story.genesis,
            attempted: None,
            has_aside: false,
        }
    }

    fn id(&self, number: u64) -> BlockId {
        match number {
            0 => self.story.genesis,
            number => self.story.blocks[number as usize - 1].meta.id,
        }
    }

    fn root(&self, id: BlockId) -> Option<B256> {
        let made = self.story.blocks.iter().chain([&self.story.aside]);
        made.map(|made| &made.meta)
            .find(|meta| meta.id == id)
            .map(|meta| meta.state_root)
    }

    /// Opens the database, once a merge that may be under way has released its lock.
    fn open(&mut self) -> Result<Db, StateError> {
        if let Some(db) = &self.db {
            return Ok(db.clone());
        }
        loop {
            match Db::open(Arc::new(self.disk.clone()), options()) {
                Err(StateError::Store(StoreError::InUse { .. })) => {
                    thread::sleep(Duration::from_millis(1));
                }
                opened => {
                    let (db, _) = opened?;
                    self.db = Some(db.clone());
                    return Ok(db);
                }
            }
        }
    }

    fn commit(&mut self, made: &Made, aside: bool) -> Result<(), StateError> {
        let db = self.open()?;
        if db.has(made.meta.id)? {
            // It was durable although it failed.
            return match aside {
                true => Ok(()),
                false => db.set_head(made.meta.id).map(drop),
            };
        }
        let parent = BlockId::new(made.meta.id.number - 1, made.meta.parent);
        let session = db.view_of(parent)?.session();
        let staged = session.finish(made.changes.clone(), made.codes.clone())?;
        assert_eq!(
            staged.root(),
            made.meta.state_root,
            "root of {}",
            made.meta.id
        );
        let sealed = staged.seal(made.meta.clone())?;
        match aside {
            true => sealed.commit_side_branch().map(drop),
            false => sealed.commit().map(drop),
        }
    }

    fn step(&mut self) -> Result<(), StateError> {
        let story = self.story;
        match SCRIPT[self.at] {
            Block(number) => {
                self.attempted = Some(self.id(number));
                self.commit(&story.blocks[number as usize - 1], false)?;
                self.head = self.id(number);
            }
            Aside => {
                self.commit(&story.aside, true)?;
                self.has_aside = true;
            }
            Flush => self.open()?.flush(0)?,
            Unwind(number) | Head(number) => {
                let id = self.id(number);
                self.attempted = Some(id);
                self.open()?.set_head(id)?;
                self.head = id;
            }
            Reopen => {
                self.db = None;
                self.open()?;
            }
            ReadOld(number) => {
                let view = self.open()?.view_at(number)?;
                view.account(&path(1))?;
            }
        }
        self.attempted = None;
        self.at += 1;
        Ok(())
    }

    /// Does all that is left to do, up to an error.
    fn go(&mut self) -> Result<(), StateError> {
        while self.at < SCRIPT.len() {
            self.step()?;
        }
        self.db = None;
        Ok(())
    }

    /// Checks the invariants after a failure, with a disk that works.
    fn look(&mut self, what: &str) {
        self.db = None;
        let db = self
            .open()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let head = db.head();
        assert!(
            head == self.head || Some(head) == self.attempted,
            "{what}: the head is {head}, acknowledged was {}, attempted {:?}",
            self.head,
            self.attempted
        );
        self.head = head;
        let view = db.view().unwrap();
        if let Some(root) = self.root(head) {
            assert_eq!(view.state_root(), root, "{what}");
        }
        drop(view);
        if self.has_aside && head.number < 11 {
            assert!(
                db.has(self.story.aside.meta.id).unwrap(),
                "{what}: the side block"
            );
        }
        let damage = db.check(&mut |_| {}).unwrap().damage;
        assert_eq!(damage, Vec::<String>::new(), "{what}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Fails,
    Full,
    PowerIsLost,
    Panics,
}

/// Runs the script with a fault at operation `at`. Returns whether it came.
fn run(story: &Story, kind: Kind, at: u64) -> bool {
    let what = format!("{kind:?} at {at}");
    let mut run = Run::new(story);
    match kind {
        Kind::Fails => run.disk.fail_call_after(at),
        Kind::Full => run.disk.fill_after(at),
        Kind::PowerIsLost => run.disk.lose_power_after(at),
        Kind::Panics => run.disk.panic_call_after(at),
    }
    let mut panicked = false;
    let done = loop {
        match catch_unwind(AssertUnwindSafe(|| run.go())) {
            Ok(done) => break done,
            // The caller that catches it can continue with the engine, which is sound, or reports
            // that it is not.
            Err(_) => panicked = true,
        }
    };
    let step = run.at.min(SCRIPT.len() - 1);
    let what = format!("{what}, in {:?} ({step})", SCRIPT[step]);
    run.db = None;
    let failed = match done {
        Ok(()) => false,
        Err(
            StateError::Store(StoreError::Disk(_) | StoreError::Poisoned { .. })
            | StateError::Poisoned(_),
        ) => true,
        Err(error) => panic!("{what}: {error}"),
    };
    let is_off = run.disk.is_off();
    run.disk.clear_faults();
    if is_off {
        run.disk = run.disk.crash();
    }
    run.look(&what);
    // The rest of the script, and no trace of the failure.
    run.go()
        .unwrap_or_else(|error| panic!("{what}, going on: {error}"));
    run.look(&format!("{what}, at the end"));
    assert_eq!(run.head, run.id(14), "{what}");
    failed || is_off || panicked
}

/// Silences injected panics.
fn quiet_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let asked = panic.payload_as_str() == Some("a panic that was asked for");
        if !asked {
            loud(panic);
        }
    }));
}

#[test]
fn any_one_operation_can_fail_or_fill_the_disk_or_lose_power_or_panic() {
    let story = story();
    let mut whole = Run::new(&story);
    let before = (whole.disk.calls(), whole.disk.operations());
    whole.go().unwrap();
    let calls = whole.disk.calls() - before.0;
    let operations = whole.disk.operations() - before.1;
    let is_log = |name: &String| name.starts_with("log/");
    let oldest = whole.disk.files().into_iter().find(is_log);
    assert_ne!(oldest.as_deref(), Some("log/00000001.log"));
    let every = if cambium_seeds::is_long() { 1 } else { 11 };
    let kinds = [
        (Kind::Fails, calls),
        (Kind::Full, calls),
        (Kind::PowerIsLost, operations),
        (Kind::Panics, calls),
    ];
    quiet_panics();
    for (kind, count) in kinds {
        let runs = (0..count).step_by(every);
        let came = runs.clone().filter(|at| run(&story, kind, *at)).count();
        say(&format!(
            "{kind:?}: {} runs over {count} operations, the fault was told in {came}; all opened at \
             what was acknowledged",
            runs.count()
        ));
        assert!(came > 0);
    }
}
