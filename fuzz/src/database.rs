//! A small database in memory, of which targets replace a part.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_disk::FaultyDisk;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, FileSizes, Loader, Options, StateError};
use cambium_trie::ProofTargets;
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

const ACCOUNTS: u64 = 60;
/// Number of slots of account 0: enough for pages of their own.
const SLOTS: u64 = 300;
const BLOCKS: u64 = 6;
/// Number of the block of the newest checkpoint.
const FLUSHED: u64 = 4;

/// The expected state at the head.
pub(crate) type State = BTreeMap<B256, (Account, BTreeMap<B256, U256>)>;

/// A database whose newest checkpoint is complete, or is incremental.
pub(crate) struct Database {
    pub(crate) disk: FaultyDisk,
    pub(crate) state: State,
    pub(crate) root: B256,
    pub(crate) head: BlockId,
}

pub(crate) fn options(index_bytes_max: Option<u64>) -> Options {
    Options {
        memory_bytes: 4 << 20,
        index_bytes_max,
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 16 << 10,
            segments_max: 512,
            log_file_bytes_max: 64 << 10,
            log_extend_bytes: 0,
            log_spare_blocks: 1,
            value_segment_bytes_max: 64 << 10,
            log_reference_leaves: 12,
        },
        ..Options::default()
    }
}

pub(crate) fn open(disk: &FaultyDisk, options: Options) -> Result<(Db, Vec<String>), StateError> {
    let (db, recovery) = Db::open(Arc::new(disk.clone()), options)?;
    Ok((db, recovery.notes))
}

/// Returns the database with an incremental newest checkpoint, or with a complete one.
pub(crate) fn template(is_on: bool) -> &'static Database {
    static TEMPLATES: [OnceLock<Database>; 2] = [const { OnceLock::new() }; 2];
    TEMPLATES[usize::from(is_on)].get_or_init(|| make(is_on))
}

pub(crate) fn path(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

fn make(is_on: bool) -> Database {
    let disk = FaultyDisk::new(1);
    let mut state = State::new();
    let mut loader = Loader::new(Arc::new(disk.clone()), options(None)).expect("a disk that works");
    let code = Bytes::from_static(b"\x60\x00\x60\x00\xf3");
    let code_hash = keccak256(&code);
    loader.code(code_hash, &code).expect("a disk that works");
    for index in 0..ACCOUNTS {
        let account = Account {
            nonce: index,
            balance: U256::from(index) << index,
            code_hash: match index % 7 {
                1 => code_hash,
                _ => Account::default().code_hash,
            },
        };
        let slots = if index == 0 { SLOTS } else { index % 4 };
        let slots: Vec<_> = (0..slots)
            .map(|slot| (path(slot), U256::from(slot + 1)))
            .collect();
        loader
            .account(path(index), &account, slots.iter().copied())
            .expect("a disk that works");
        state.insert(path(index), (account, slots.into_iter().collect()));
    }
    let loaded = loader.finish(&mut |_| {}).expect("a disk that works");
    let genesis = meta(0, B256::ZERO, loaded.root());
    let db = loaded
        .create(genesis.clone(), vec![])
        .expect("a disk that works");
    let mut head = genesis.id;
    let mut root = genesis.state_root;
    for number in 1..=BLOCKS {
        let changes = changes_of(number);
        apply(&mut state, &changes);
        let staged = db.view().expect("sound").session().finish(changes, vec![]);
        let staged = staged.expect("a block on the head");
        root = staged.root();
        let block = meta(number, head.hash, root);
        head = block.id;
        let sealed = staged.seal(block).expect("a block on the head");
        sealed.commit().expect("a disk that works");
        if is_on && number == FLUSHED {
            db.flush(0).expect("a disk that works");
        }
    }
    drop(db);
    let disk = disk.duplicate();
    Database {
        disk,
        state,
        root,
        head,
    }
}

pub(crate) fn meta(number: u64, parent: B256, state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(number, keccak256(number.to_le_bytes())),
        parent,
        state_root,
        body: Bytes::from_static(b"what the chain keeps of a block"),
    }
}

fn changes_of(number: u64) -> Changes {
    let change = |index: u64, account| AccountDiff {
        path: path(index),
        account,
        wipe: false,
        slots: vec![],
    };
    let put = |nonce| {
        AccountUpdate::Put(Account {
            nonce,
            ..Account::default()
        })
    };
    Changes::new(vec![
        AccountDiff {
            slots: vec![
                (path(number), U256::from(number << 20)),
                (path(SLOTS - 1), U256::ZERO),
            ],
            ..change(0, AccountUpdate::Keep)
        },
        change(10 + number, AccountUpdate::Delete),
        change(1000 + number, put(number)),
        AccountDiff {
            wipe: true,
            slots: vec![(path(1), U256::from(number))],
            ..change(3, put(number))
        },
    ])
}

fn apply(state: &mut State, changes: &Changes) {
    for change in changes.accounts() {
        match change.account {
            AccountUpdate::Delete => {
                state.remove(&change.path);
                continue;
            }
            AccountUpdate::Put(account) => state.entry(change.path).or_default().0 = account,
            AccountUpdate::Keep => {}
            AccountUpdate::Entry(_) => unreachable!("these changes have accounts"),
        }
        let slots = &mut state.get_mut(&change.path).expect("it is there").1;
        if change.wipe {
            slots.clear();
        }
        for (slot, value) in &change.slots {
            match value.is_zero() {
                true => slots.remove(slot),
                false => slots.insert(*slot, *value),
            };
        }
    }
}

/// Makes every kind of request to an open database, and commits another block, which is merged
/// unless bit 3 of `how` is set. The database may be forged with correct checksums, so a request
/// may return a wrong result or an error of damage. If a check of the whole database finds nothing
/// and its root is the true one, all results must be true.
pub(crate) fn use_all(db: &Db, template: &Database, how: u8) {
    let view = match db.view() {
        Ok(view) => view,
        Err(error) => return check_error(&error),
    };
    let is_sound = db
        .check(&mut |_| {})
        .inspect_err(check_error)
        .is_ok_and(|report| report.damage.is_empty());
    let is_true = is_sound && view.state_root() == template.root;
    let accounts = template.state.iter();
    for (path, (account, slots)) in accounts {
        let found = view.account(path).inspect_err(check_error);
        assert!(!is_true || found.is_ok_and(|found| found == Some(*account)));
        for (slot, value) in slots.iter().take(4) {
            let found = view.slot(path, slot).inspect_err(check_error);
            assert!(!is_true || found.is_ok_and(|found| found == *value));
        }
    }
    let absent = view.account(&path(11)).inspect_err(check_error);
    assert!(!is_true || absent.is_ok_and(|found| found.is_none()));
    let keys = ProofTargets::new(vec![
        (path(0), vec![path(1), path(9999)]),
        (path(77), vec![]),
    ]);
    let part = view.extract(&keys).inspect_err(check_error);
    assert!(!is_true || part.is_ok_and(|part| part.state_root() == Some(template.root)));
    let mut slots = 0;
    let counted = view.each_slot(&path(0), |_, _| {
        slots += 1;
        ControlFlow::Continue(())
    });
    let _ = counted.inspect_err(check_error);

    let changes = changes_of(BLOCKS + 1 + u64::from(how >> 4 & 3));
    let head = db.head();
    let number = match head.number.checked_add(1) {
        Some(number) => number,
        None => return,
    };
    let staged = match view.session().finish(changes, vec![]) {
        Ok(staged) => staged,
        Err(error) => {
            assert!(!is_true, "{error}");
            return check_error(&error);
        }
    };
    let block = BlockMeta {
        id: BlockId::new(number, B256::repeat_byte(0xb1)),
        ..meta(number, head.hash, staged.root())
    };
    let committed = staged.seal(block).and_then(|sealed| sealed.commit());
    let flushed = committed.and_then(|_| match how & 8 {
        0 => db.flush(0),
        _ => Ok(()),
    });
    match flushed {
        Ok(()) => {}
        Err(StateError::Poisoned(_)) => assert!(!is_true),
        Err(error) => {
            assert!(!is_true, "{error}");
            check_error(&error);
        }
    }
}

/// Checks that an error is one of damage.
pub(crate) fn check_error(error: &StateError) {
    assert!(error.is_damage(), "{error}: {error:?}");
}
