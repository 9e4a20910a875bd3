//! States and blocks of plain accounts, made by number, for tests of the engine alone.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountChange, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db};

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

/// Commits a block on the head. Returns its root.
pub fn commit(db: &Db, changes: Vec<AccountChange>, codes: Vec<(B256, Bytes)>) -> B256 {
    let head = db.head();
    let session = db.view().expect("a sound database").session();
    let staged = session
        .finish(Changes::new(changes), codes)
        .expect("a block on the head");
    let root = staged.root();
    let meta = BlockMeta {
        id: BlockId::new(head.number + 1, keccak256(head.hash)),
        parent: head.hash,
        state_root: root,
        body: Bytes::new(),
    };
    let sealed = staged.seal(meta).expect("its root");
    sealed.commit().expect("a disk that is whole");
    root
}
