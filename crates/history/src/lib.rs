//! Old states: the value of any account and slot at any kept block.
//!
//! ```text
//! block log --> entries (key, block, old value) --> runs in memory --> runs in files, merged
//!                                                                       geometrically
//! ```
//!
//! A state at an old block differs from the newest one in what was changed since. The history has
//! an entry for each change: the key, the block, and the value *before* it. So the value of a key at
//! block N is that of its first entry above N, and the present one if there is none. A *run* has the
//! entries of consecutive blocks, sorted by key and block; a look-up reads one page of it, and none
//! of most runs that lack the key, since they have filters.
//!
//! The entries are made from the block log, whether the block was committed a moment ago or years
//! ago. So the history is never needed to open a database, and can be made again from the log.
//!
//! ```
//! use alloy_primitives::{B256, Bytes, U256};
//! use cambium_history::{History, HistoryOptions};
//! use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
//! use cambium_state::{BlockMeta, FaultyDisk, Loader, Options};
//! use std::sync::Arc;
//!
//! let disk = Arc::new(FaultyDisk::new(1));
//! let loaded = Loader::new(disk.clone(), Options::default())?.finish(&mut |_| {})?;
//! let meta = |number, root, parent| BlockMeta {
//!     id: BlockId::new(number, B256::with_last_byte(number as u8 + 1)),
//!     parent,
//!     state_root: root,
//!     body: Bytes::new(),
//! };
//! let mut parent = meta(0, loaded.root(), B256::ZERO);
//! let db = loaded.create(parent.clone(), vec![])?;
//! let alice = B256::repeat_byte(0xa1);
//! for number in 1..=3 {
//!     let account = Account { balance: U256::from(number), ..Account::default() };
//!     let changes = Changes::new(vec![AccountDiff {
//!         path: alice,
//!         account: AccountUpdate::Put(account),
//!         wipe: false,
//!         slots: vec![],
//!     }]);
//!     let staged = db.view()?.session().finish(changes, vec![])?;
//!     let block = meta(number, staged.root(), parent.id.hash);
//!     staged.seal(block.clone())?.commit()?;
//!     parent = block;
//! }
//! let history = History::create(disk, &db, 0, None, HistoryOptions::default())?;
//! history.catch_up(&db, &mut |_| true)?;
//! assert_eq!(history.state_at(&db, 2)?.account(&alice)?.unwrap().balance, U256::from(2));
//! assert_eq!(history.state_at(&db, 0)?.account(&alice)?, None);
//! # Ok::<(), cambium_history::HistoryError>(())
//! ```

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod error;
mod node;
mod entry;
mod memory_run;
mod run;
mod ahead;
mod runs;
mod merge;
mod old;
mod nodes;
mod rewind;
mod in_order;
mod state_at;
mod list;
mod span;
mod keeper;
mod upkeep;
mod extend;
mod history;
mod follower;
mod backup;

pub use backup::{HistoryCopy, HistoryPart, backup_with_history};
pub use error::HistoryError;
pub use follower::HistoryFollower;
pub use history::{CatchUp, CheckedHistory, History, HistoryStats};
pub use keeper::HistoryOptions;
pub use node::WholeNodes;
pub use state_at::{StateAt, StateNodes};

/// Number of the format of each kind of file that this version writes, by the name of the kind.
pub const FORMATS: [(&str, u32); 2] = [
    ("history list", list::FORMAT),
    ("history runs", run::format::FORMAT),
];
