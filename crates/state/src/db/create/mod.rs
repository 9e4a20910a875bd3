//! Creating a database: the state of its first block, of any size, is written straight into pages.
//!
//! The memory stays within [`Options::memory_bytes`] for any number of accounts, and of slots of one account: see
//! [`LeafBuckets`]. Data that does not fit is spilled to the database's own disk.

mod loaded;

pub use loaded::Loaded;

use crate::db::leftovers::{refuse_database, remove_unfinished};
use crate::{
    db::{assemble, handle::Db, held},
    options::{LeafKind, Options},
    values::{LongValues, check_length, is_long},
};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_disk::Disk;
use cambium_primitives::{Account, EntryValue, StoredValue};
use cambium_snapshot::{
    Counters, IndexWriter, KeptStorage, LeafBuckets, LoadProgress, PartCache, RootLoader,
    StateError,
};
use cambium_store::{Codes, DataDirLock, Segments, StoreError};
use cambium_trie::Commitment;
use std::sync::Arc;

/// Collects the accounts of a database's first block, in any order, and builds its state.
///
/// ```
/// use alloy_primitives::{B256, U256};
/// use cambium_primitives::Account;
/// use cambium_state::{FaultyDisk, Loader, Options};
/// use std::sync::Arc;
///
/// let mut loader = Loader::new(Arc::new(FaultyDisk::new(1)), Options::default())?;
/// let slots = [(B256::repeat_byte(2), U256::from(3))];
/// loader.account(B256::repeat_byte(1), &Account::default(), slots)?;
/// let loaded = loader.finish(&mut |progress| println!("{progress:?}"))?;
/// println!("{}", loaded.root());
/// # Ok::<(), cambium_state::StateError>(())
/// ```
pub struct Loader {
    disk: Arc<dyn Disk>,
    lock: DataDirLock,
    options: Options,
    /// The contracts whose storage is kept, if the database is partial.
    kept: Option<KeptStorage>,
    buckets: LeafBuckets,
    /// Created when the first code is added.
    codes: Option<Codes>,
    /// `None` if the leaves are accounts.
    values: Option<LongValues>,
    salt: u64,
}

impl Loader {
    /// Begins a database on `disk`, which must not hold one. Remains of an unfinished creation are
    /// removed. The directory becomes a database when [`Loaded::create`] names its block.
    ///
    /// # Errors
    ///
    /// [`StateError::BadOptions`], and [`StateError::CheckpointsLost`] or a [`StateError::Store`]
    /// error if there is a database.
    pub fn new(disk: Arc<dyn Disk>, options: Options) -> Result<Self, StateError> {
        if options.commitment == Commitment::PartialMpt {
            let what = "a partial database needs the list of contracts whose storage it keeps";
            return Err(StateError::BadOptions(what.to_owned()));
        }
        Self::begin(disk, options, None)
    }

    /// Begins a partial database, as [`Loader::new`]: it has all accounts, and the slots of the contracts in `kept` alone. All
    /// slots are given to the loader, which computes from them the storage roots of the others.
    ///
    /// # Errors
    ///
    /// As [`Loader::new`], and [`StateError::BadOptions`] unless it is a database of accounts under `mpt`.
    pub fn partial(
        disk: Arc<dyn Disk>,
        options: Options,
        kept: KeptStorage,
    ) -> Result<Self, StateError> {
        let is_mpt = matches!(options.commitment, Commitment::Mpt | Commitment::PartialMpt);
        if !is_mpt || options.leaves == LeafKind::Entries {
            let what = "a partial database has accounts, and the commitment mpt";
            return Err(StateError::BadOptions(what.to_owned()));
        }
        let commitment = Commitment::PartialMpt;
        let options = Options {
            commitment,
            ..options
        };
        Self::begin(disk, options, Some(kept))
    }

    fn begin(
        disk: Arc<dyn Disk>,
        options: Options,
        kept: Option<KeptStorage>,
    ) -> Result<Self, StateError> {
        options.check()?;
        disk.create_dir("").map_err(StoreError::from)?;
        let lock = held::lock(&*disk)?;
        refuse_database(&disk)?;
        remove_unfinished(&*disk).map_err(StoreError::from)?;
        let salt = disk.new_salt();
        let values = match options.leaves {
            LeafKind::Accounts => None,
            LeafKind::Entries => {
                let sizes = options.files.values();
                let (values, _) = LongValues::open(disk.clone(), salt, sizes, &[])?;
                values.segments.settle()?;
                Some(values)
            }
        };
        let buckets = LeafBuckets::new(disk.clone(), options.memory_bytes, options.commitment);
        Ok(Self {
            buckets: match kept.clone() {
                Some(kept) => buckets.keeping(kept),
                None => buckets,
            },
            disk,
            lock,
            options,
            kept,
            codes: None,
            values,
            salt,
        })
    }

    /// Number of accounts added.
    pub const fn accounts(&self) -> u64 {
        self.buckets.accounts
    }

    /// Adds an account by keccak(address), with slots by keccak(slot), in any order. Slots with the
    /// value zero are ignored. [`Self::finish`] rejects keys that were added twice.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if accounts do not fit into memory and cannot be written to the disk.
    pub fn account(
        &mut self,
        path: B256,
        account: &Account,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.check_leaf(path, LeafKind::Accounts)?;
        self.buckets.account(&path, account, slots)
    }

    /// Adds slots of an account, before or after the account itself.
    ///
    /// # Errors
    ///
    /// As [`Loader::account`].
    pub fn slots(
        &mut self,
        account: B256,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.buckets.slots(&account, slots)
    }

    /// Adds the storage root of an account in place of its slots, in a partial database that does not keep them.
    ///
    /// # Errors
    ///
    /// [`StateError::StorageRoot`] if the database keeps the slots of the account, or if the root is zero, and as
    /// [`Loader::account`]. [`Loader::finish`] refuses an account of which slots are added as well.
    pub fn storage_root(&mut self, account: B256, root: B256) -> Result<(), StateError> {
        self.buckets.storage_root(&account, root)
    }

    /// Makes the value of an entry, for [`Loader::entry`]. Up to
    /// [`INLINE_VALUE_BYTES_MAX`](cambium_primitives::INLINE_VALUE_BYTES_MAX) bytes are part of the
    /// leaf; a longer value is written at once.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongLeaf`] for a long value if the database is one of accounts, and
    /// [`StateError::Store`] for a value of more than 16 MiB, and if it can't be written.
    pub fn value(&self, key: &B256, value: Bytes) -> Result<EntryValue, StateError> {
        match &self.values {
            Some(values) if is_long(&value) => {
                let hash = self.options.commitment.value_hash(&value);
                Ok(EntryValue::Stored(StoredValue {
                    hash,
                    len: value.len() as u32,
                    place: values.segments.append(key, &value)?,
                }))
            }
            None if is_long(&value) => Err(StateError::WrongLeaf {
                path: *key,
                leaves: "accounts",
            }),
            _ => Ok(EntryValue::Inline(value)),
        }
    }

    /// Adds an entry of a key-value database ([`LeafKind::Entries`]), in any order of keys.
    /// [`Self::finish`] rejects keys that were added twice.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongLeaf`] if the database is one of accounts, [`StateError::LongValue`] for an
    /// inline value that is too long, [`StateError::MissingValue`] for a stored value that this
    /// loader has not written, and as [`Loader::account`].
    pub fn entry(&mut self, key: B256, value: &EntryValue) -> Result<(), StateError> {
        self.check_leaf(key, LeafKind::Entries)?;
        check_length(&key, value)?;
        if let (Some(values), EntryValue::Stored(stored)) = (&self.values, value) {
            values.check_place(stored)?;
            values.segments.refer(stored.place, stored.len);
        }
        self.buckets.entry(&key, value)
    }

    /// Rejects a leaf of another kind than the database's.
    fn check_leaf(&self, path: B256, kind: LeafKind) -> Result<(), StateError> {
        let leaves = match self.options.leaves {
            own if own == kind => return Ok(()),
            LeafKind::Accounts => "accounts",
            LeafKind::Entries => "entries",
        };
        Err(StateError::WrongLeaf { path, leaves })
    }

    /// Adds the code of an account.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongCode`] if it has another hash.
    pub fn code(&mut self, hash: B256, code: &[u8]) -> Result<(), StateError> {
        let codes = match self.codes.take() {
            Some(codes) => codes,
            None => new_codes(&self.disk, self.salt)?,
        };
        let codes = self.codes.insert(codes);
        let got = keccak256(code);
        if got != hash {
            let expected = hash;
            return Err(StateError::WrongCode { expected, got });
        }
        codes.put(hash, code)?;
        Ok(())
    }

    /// Builds the state on the disk.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownCode`] if the code of an account was not added, and an error for
    /// accounts or slots that were added twice, or slots of an account that was not added.
    pub fn finish(self, progress: &mut dyn FnMut(LoadProgress)) -> Result<Loaded, StateError> {
        let disk = self.disk;
        let codes = match self.codes {
            Some(codes) => codes,
            None => new_codes(&disk, self.salt)?,
        };
        let counters = Arc::new(Counters::default());
        let sizes = self.options.files.segments();
        let (segments, _) = Segments::open(disk.clone(), sizes, self.salt, None, &[])?;
        segments.settle()?;
        let pages = assemble::pages(segments, &self.options, &counters);
        let parts = PartCache::new(
            self.options.index_bytes_max(),
            self.options.commitment,
            counters.clone(),
        );
        let parts = Arc::new(parts);
        let index = IndexWriter::whole(disk.clone(), Arc::default(), parts.clone(), None, false)?;
        let to = Some((&*pages, &index));
        let root = self.buckets.build(to, Some(&codes), &counters, progress)?;
        Ok(Loaded {
            disk,
            lock: self.lock,
            options: self.options,
            kept: self.kept,
            counters,
            pages,
            parts,
            index: index.finish()?,
            codes,
            values: self.values,
            salt: self.salt,
            root,
        })
    }
}

/// Creates the database's file of codes.
fn new_codes(disk: &Arc<dyn Disk>, salt: u64) -> Result<Codes, StateError> {
    let (codes, _) = Codes::open(disk.clone(), salt, 0)?;
    codes.settle()?;
    Ok(codes)
}

impl Db {
    /// A loader that computes the root of other accounts, for comparison with this database, which
    /// does not change. It takes up to a quarter of the memory budget, in addition to the
    /// database's own memory.
    pub fn root_loader(&self) -> RootLoader {
        let memory_bytes = self.inner.options.memory_bytes / 4;
        RootLoader::new(self.inner.store.disk.clone(), memory_bytes)
    }
}
