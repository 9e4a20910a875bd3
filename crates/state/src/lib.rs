//! The state engine: flat reads and Ethereum state roots over one partial trie and leaf pages.
//!
//! A database holds the state after each of a chain's newest blocks, of any branch, and after the older canonical
//! blocks in its log. Reads go through a [`View`]; a block goes through
//! `View -> Session -> Staged -> Sealed -> Committed`.
//!
//! ```
//! use alloy_primitives::{B256, Bytes, U256};
//! use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
//! use cambium_state::{BlockMeta, Db, FaultyDisk, Loader, Options};
//! use std::sync::Arc;
//!
//! // A disk in memory; a real one is `StdDisk`.
//! let disk = Arc::new(FaultyDisk::new(1));
//! let alice = B256::repeat_byte(0xa1);
//! let mut loader = Loader::new(disk, Options::default())?;
//! loader.account(alice, &Account { balance: U256::from(100), ..Default::default() }, [])?;
//! let loaded = loader.finish(&mut |_| {})?;
//! let meta = |number, root, parent| BlockMeta {
//!     id: BlockId::new(number, B256::with_last_byte(number as u8 + 1)),
//!     parent,
//!     state_root: root,
//!     body: Bytes::new(),
//! };
//! let genesis = meta(0, loaded.root(), B256::ZERO);
//! let db = loaded.create(genesis.clone(), vec![])?;
//!
//! let spent = Account { nonce: 1, balance: U256::from(90), ..Default::default() };
//! let changes = Changes::new(vec![AccountDiff {
//!     path: alice,
//!     account: AccountUpdate::Put(spent),
//!     wipe: false,
//!     slots: vec![],
//! }]);
//! let staged = db.view()?.session().finish(changes, vec![])?;
//! let block = meta(1, staged.root(), genesis.id.hash);
//! staged.seal(block)?.commit()?;
//! assert_eq!(db.view()?.account(&alice)?.unwrap().nonce, 1);
//! assert_eq!(db.view_at(0)?.account(&alice)?.unwrap().nonce, 0);
//! # Ok::<(), cambium_state::StateError>(())
//! ```
//!
//! Each module uses only modules above it in this table:
//!
//! | module | contents |
//! |---|---|
//! | `layered` | intervals, upper tries and roots of snapshots, for the `layered` commitment |
//! | `options` | memory budget, retention of old blocks, sizes of files |
//! | `form` | commitment and kind of leaves, in the manifest |
//! | `health` | fail-stop after a failed write or sync |
//! | `values` | values stored apart from their leaves: pins, accounting, cleaning, removal |
//! | `store` | pages, parts of the index, codes and values, with their caches |
//! | `log` | the block log: records, positions of blocks, block index, retention |
//! | `layers` | blocks above the base: their values by key, and the tree that they form |
//! | `tries` | the tries of these blocks, in shards, which compute state roots |
//! | `engine` | the parts of an open database, and the order of their locks |
//! | `view` | the state at one block: single and batch reads |
//! | `past` | states that are not in memory, restored from the log, and proofs of any state |
//! | `write` | sessions, roots, sealing, commits, moves of the head, merges |
//! | `db` | creating, opening, reading beside a writer, checking, backup |
//! | `follow` | committed, reverted and finalized blocks for subscribers, in order, from a cursor; files that are kept at the head |
//! | `repair` | damaged files restored from the others |
//! | `explore` | layers, pages and the way of a read, for people who look |

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod layered;
mod options;
mod form;
mod health;
mod values;
mod store;
mod log;
mod layers;
mod tries;
mod engine;
mod view;
mod past;
mod write;
mod db;
mod follow;
mod repair;
mod explore;

pub use cambium_disk::{
    BackupSizes, Disk, DiskDescription, DiskError, Fault, FaultyDisk, StdDisk, StdDiskOptions,
};
pub use cambium_runs::{Background, EndSignal};
pub use cambium_snapshot::{
    CheckProgress, CheckReport, CounterValues, KeptStorage, Latency, LoadProgress, MapPage,
    PagePin, ReadStep, RootLoader, StateError, bytecode, pool::lower_priority, root_of_slots,
    storage_root_of,
};
pub use cambium_store::{PageAddr, SegmentStats, StoreError, ValueStats};
pub use db::{
    backup::{BackupPart, BackupReport, backup, backup_with},
    create::{Loaded, Loader},
    handle::{CommittedBlock, Db},
    metrics::Metrics,
    recovery::Recovery,
    stats::{Merging, Stats},
};
pub use engine::merging::LastMerge;
pub use explore::{LayerOfBlock, Layering, ReadWay};
pub use follow::{
    ChainEvent, Subscription,
    derived::{Derived, DerivedFollower, Followers, follower_bytes},
};
pub use log::{blocks::SideBranch, finality::Finality, records::BlockMeta};
pub use options::{FileSizes, LeafKind, Options};
pub use past::trie::{StateTrie, TrieReader};
pub use repair::{RepairFinding, RepairProgress, RepairReport, repair};
pub use view::{
    ahead::ReadAhead,
    state::{View, account_info},
};
pub use write::{
    commit::Committed,
    sealed::{Sealed, WithoutBody},
    session::{Session, Staged},
};
