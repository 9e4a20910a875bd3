//! States and blocks of plain accounts, made by number, for tests of the engine alone.

use crate::{Model, Random};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, FileSizes, Loader, Options, Sealed, StateError, View};
use cambium_store::{StoreError, lock_data_dir};
use std::{collections::HashMap, sync::Arc, thread, time::Duration};

/// File sizes so small that files begin, are cleaned and go hundreds of times in a run.
pub const TINY_FILES: FileSizes = FileSizes {
    segment_bytes_max: 64 << 10,
    segment_buffer_bytes: 16 << 10,
    segments_max: 512,
    log_file_bytes_max: 64 << 10,
    log_extend_bytes: 16 << 10,
    log_reference_leaves: 0,
    log_spare_blocks: 4,
    value_segment_bytes_max: 64 << 10,
};

/// Returns options with [`TINY_FILES`] and enough memory for small tests.
pub fn tiny_options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        files: TINY_FILES,
        ..Options::default()
    }
}

/// Returns the path of account `index`.
pub fn path(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

/// Returns an account with a fixed balance and this nonce.
pub fn account(nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(1_000_000),
        ..Account::default()
    }
}

/// Returns a change of an account without its storage.
pub fn change(path: B256, account: AccountUpdate) -> AccountDiff {
    AccountDiff {
        path,
        account,
        wipe: false,
        slots: vec![],
    }
}

/// Returns a change that sets the account at `path` to [`account`] with this nonce.
pub fn put(path: B256, nonce: u64) -> AccountDiff {
    change(path, AccountUpdate::Put(account(nonce)))
}

/// Returns changes that set up to `count` of the first `accounts` accounts, drawn at random, to
/// this nonce.
pub fn random_puts(random: &mut Random, count: u64, accounts: u64, nonce: u64) -> Vec<AccountDiff> {
    let changed = (0..count).map(|_| put(path(random.below(accounts)), nonce));
    let mut changes: Vec<_> = changed.collect();
    changes.sort_by_key(|change| change.path);
    changes.dedup_by_key(|change| change.path);
    changes
}

/// Returns the deletion of an account with its storage.
pub fn remove(path: B256) -> AccountDiff {
    AccountDiff {
        wipe: true,
        ..change(path, AccountUpdate::Delete)
    }
}

/// Returns the first block of a database with this state root.
pub fn first_block(state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root,
        body: Bytes::new(),
    }
}

/// Creates a database of the first `accounts` accounts. Account `index` has `slots_of(index)`
/// slots; slot `at` has the value `at + 1`.
///
/// # Panics
///
/// Panics if the disk fails or has a database.
pub fn make(
    disk: Arc<dyn Disk>,
    options: Options,
    accounts: u64,
    slots_of: impl Fn(u64) -> u64,
) -> Db {
    let mut loader = Loader::new(disk, options).expect("a disk without a database");
    for index in 0..accounts {
        let slots = (0..slots_of(index)).map(|at| (path(at), U256::from(at + 1)));
        let taken = loader.account(path(index), &account(0), slots);
        taken.expect("an account of its own");
    }
    let loaded = loader.finish(&mut |_| {}).expect("a disk that is whole");
    let meta = first_block(loaded.root());
    loaded.create(meta, vec![]).expect("a first block")
}

/// Executes `changes` on `view`, and seals them as a block with the hash `keccak(name)`.
///
/// # Errors
///
/// Returns an error if the engine rejects the changes or the block.
pub fn seal(
    view: View,
    name: impl AsRef<[u8]>,
    changes: Changes,
    codes: Vec<(B256, Bytes)>,
) -> Result<Sealed, StateError> {
    let parent = view.block();
    let staged = view.session().finish(changes, codes)?;
    let meta = BlockMeta {
        id: BlockId::new(parent.number + 1, keccak256(name)),
        parent: parent.hash,
        state_root: staged.root(),
        body: Bytes::new(),
    };
    staged.seal(meta)
}

/// Commits a block on the head. Returns its state root.
///
/// # Panics
///
/// Panics if the engine returns an error.
pub fn commit(db: &Db, changes: Vec<AccountDiff>, codes: Vec<(B256, Bytes)>) -> B256 {
    let view = db.view().expect("a sound database");
    let sealed = seal(view, db.head().hash, Changes::new(changes), codes);
    let sealed = sealed.expect("a block on the head");
    let root = sealed.view().expect("a sound database").state_root();
    sealed.commit().expect("a disk that is whole");
    root
}

/// Waits until the threads of a dropped database have released its lock. Returns at once if the disk fails, as one does
/// that has lost power: it can't be locked any more.
pub fn wait_until_closed(disk: &dyn Disk) {
    while let Err(StoreError::InUse { .. }) = lock_data_dir(disk) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Makes the database of a chain of two blocks. Its account, at the address of 20 bytes `0xa1`, has this
/// balance, a code of two bytes and 5 in slot 0. Its nonce is 7, and 8 after the second block.
///
/// # Panics
///
/// If the disk fails.
pub fn two_blocks(disk: Arc<dyn Disk>, balance: U256) {
    let mut loader = Loader::new(disk, Options::default()).expect("a loader");
    let code = Bytes::from_static(&[0x60, 0x00]);
    let account = Account {
        nonce: 7,
        balance,
        code_hash: keccak256(&code),
    };
    let slot = (keccak256([0; 32]), U256::from(5));
    let path = keccak256([0xa1; 20]);
    loader.account(path, &account, [slot]).expect("an account");
    loader.code(account.code_hash, &code).expect("a code");
    let loaded = loader.finish(&mut |_| {}).expect("a state");
    let meta = |number: u64, parent, state_root| BlockMeta {
        id: BlockId::new(number, keccak256(number.to_be_bytes())),
        parent,
        state_root,
        body: Bytes::new(),
    };
    let first = meta(0, B256::ZERO, loaded.root());
    let db = loaded.create(first.clone(), vec![]).expect("a database");
    let spent = Account {
        nonce: 8,
        ..account
    };
    let change = AccountDiff {
        path,
        account: AccountUpdate::Put(spent),
        wipe: false,
        slots: vec![],
    };
    let session = db.view().expect("a view").session();
    let staged = session.finish(Changes::new(vec![change]), vec![]);
    let staged = staged.expect("a root");
    let second = meta(1, first.id.hash, staged.root());
    let sealed = staged.seal(second).expect("a block");
    sealed.commit().expect("a commit");
}

/// Draws changes of the state of `model`: new, changed, wiped, deleted and recreated accounts among the first `accounts`
/// of [`path`], with values of their first `slots_max` slots.
pub fn random_changes(
    random: &mut Random,
    model: &Model,
    accounts: u64,
    slots_max: u64,
) -> Changes {
    let mut changes = HashMap::new();
    for _ in 0..random.below(8) {
        let at = path(random.below(accounts));
        let exists = model.account(&at).is_some();
        let kind = random.below(10);
        let (update, wipe) = match kind {
            0 if exists => (AccountUpdate::Delete, true),
            1..=4 if exists => (AccountUpdate::Keep, kind == 1),
            _ => (AccountUpdate::Put(account(random.next())), kind == 5),
        };
        let mut slots = HashMap::new();
        if update != AccountUpdate::Delete && random.percent(70) {
            for _ in 0..random.below(12) {
                let value = U256::from(random.below(4));
                slots.insert(path(random.below(slots_max)), value);
            }
        }
        changes.insert(
            at,
            AccountDiff {
                path: at,
                account: update,
                wipe,
                slots: slots.into_iter().collect(),
            },
        );
    }
    Changes::new(changes.into_values().collect())
}
