//! States and blocks of plain accounts, made by number, for tests of the engine alone.

use crate::Random;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountChange, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Disk, FileSizes, Loader, Options, Sealed, StateError, View};
use cambium_store::lock_data_dir;
use std::{sync::Arc, thread, time::Duration};

/// Files so small that all that happens to files happens hundreds of times in a run.
pub const TINY_FILES: FileSizes = FileSizes {
    segment_bytes_max: 64 << 10,
    segment_buffer_bytes: 16 << 10,
    segments_max: 512,
    log_file_bytes_max: 64 << 10,
    log_extend_bytes: 16 << 10,
    log_spare_blocks: 4,
};

/// Options with [`TINY_FILES`], and memory for all that a test does.
pub fn tiny_options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        files: TINY_FILES,
        ..Options::default()
    }
}

/// The path of account `index`.
pub fn path(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

/// An account with a balance, and that nonce.
pub fn account(nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(1_000_000),
        ..Account::default()
    }
}

/// A change of the account's fields alone.
pub fn change(path: B256, account: AccountUpdate) -> AccountChange {
    AccountChange {
        path,
        account,
        wipe: false,
        slots: vec![],
    }
}

/// The account with that nonce.
pub fn put(path: B256, nonce: u64) -> AccountChange {
    change(path, AccountUpdate::Put(account(nonce)))
}

/// Changes of up to `count` of the first `accounts` accounts, drawn at random, to that nonce.
pub fn random_puts(
    random: &mut Random,
    count: u64,
    accounts: u64,
    nonce: u64,
) -> Vec<AccountChange> {
    let changed = (0..count).map(|_| put(path(random.below(accounts)), nonce));
    let mut changes: Vec<_> = changed.collect();
    changes.sort_by_key(|change| change.path);
    changes.dedup_by_key(|change| change.path);
    changes
}

/// The account and its storage, gone.
pub fn remove(path: B256) -> AccountChange {
    AccountChange {
        wipe: true,
        ..change(path, AccountUpdate::Delete)
    }
}

/// The first block of a database of that root.
pub fn first_block(state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root,
        body: Bytes::new(),
    }
}

/// A database of the first `accounts` accounts, each with as many slots as `slots_of` its index:
/// slot `at` has the value `at + 1`.
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

/// Seals a block on the state of `view` whose hash is that of `name`.
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

/// Commits a block on the head. Returns its root.
pub fn commit(db: &Db, changes: Vec<AccountChange>, codes: Vec<(B256, Bytes)>) -> B256 {
    let view = db.view().expect("a sound database");
    let sealed = seal(view, db.head().hash, Changes::new(changes), codes);
    let sealed = sealed.expect("a block on the head");
    let root = sealed.view().expect("a sound database").state_root();
    sealed.commit().expect("a disk that is whole");
    root
}

/// Waits until the threads of a dropped database have let go of it.
pub fn wait_until_closed(disk: &dyn Disk) {
    while lock_data_dir(disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
}
