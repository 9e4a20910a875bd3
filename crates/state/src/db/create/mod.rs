//! Making a database: the state of its first block, of any size, straight into pages.
//!
//! Memory stays within [`Options::memory_bytes`], whatever the number of accounts and of an
//! account's slots: see [`Buckets`]. What does not fit is spilled to the database's own disk.

mod loaded;

pub use loaded::Loaded;

use crate::db::leftovers::{refuse_database, remove_unfinished};
use crate::{
    db::{assemble, handle::Db},
    options::Options,
};
use alloy_primitives::{B256, U256, keccak256};
use cambium_disk::Disk;
use cambium_primitives::Account;
use cambium_snapshot::{
    Buckets, Counters, IndexWriter, LoadProgress, PartCache, RootLoader, StateError,
};
use cambium_store::{Codes, DataDirLock, Manifest, Segments, StoreError, lock_data_dir};
use std::sync::Arc;

/// Collects the accounts of a database's first block, in any order, and makes its state.
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
    buckets: Buckets,
    /// Opened for the first code.
    codes: Option<Codes>,
    salt: u64,
}

impl Loader {
    /// Begins a database on `disk`, which must hold none. What an attempt that was cut short left
    /// there is removed. It is none until [`Loaded::create`] names its block.
    pub fn new(disk: Arc<dyn Disk>, options: Options) -> Result<Self, StateError> {
        options.check()?;
        disk.create_dir("").map_err(StoreError::from)?;
        let lock = lock_data_dir(&*disk)?;
        refuse_database(&disk)?;
        remove_unfinished(&*disk).map_err(StoreError::from)?;
        Ok(Self {
            buckets: Buckets::new(disk.clone(), options.memory_bytes),
            disk,
            lock,
            options,
            codes: None,
            salt: Manifest::new_salt(),
        })
    }

    /// Number of accounts taken.
    pub const fn accounts(&self) -> u64 {
        self.buckets.accounts
    }

    /// Takes an account by keccak(address), with slots by keccak(slot), in any order. Slots of
    /// zero are left out. Whatever is given twice, [`Self::finish`] finds.
    pub fn account(
        &mut self,
        path: B256,
        account: &Account,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.buckets.account(&path, account, slots)
    }

    /// Takes more slots of an account, which itself may come before or after.
    pub fn slots(
        &mut self,
        account: B256,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.buckets.slots(&account, slots)
    }

    /// Takes the code of an account. Refused if it has another hash.
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

    /// Builds the state on the disk. Refused if an account's code was not given.
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
        let parts = PartCache::new(self.options.index_bytes_max(), counters.clone());
        let parts = Arc::new(parts);
        let index = IndexWriter::whole(disk.clone(), Arc::default(), parts.clone(), None, false)?;
        let to = Some((&*pages, &index));
        let root = self.buckets.build(to, Some(&codes), &counters, progress)?;
        Ok(Loaded {
            disk,
            lock: self.lock,
            options: self.options,
            counters,
            pages,
            parts,
            index: index.finish()?,
            codes,
            salt: self.salt,
            root,
        })
    }
}

fn new_codes(disk: &Arc<dyn Disk>, salt: u64) -> Result<Codes, StateError> {
    let (codes, _) = Codes::open(disk.clone(), salt, 0)?;
    codes.settle()?;
    Ok(codes)
}

impl Db {
    /// Collects accounts to compare them with a state of this database, which they do not change.
    /// They take up to a quarter of the memory budget, besides what the database takes.
    pub fn root_loader(&self) -> RootLoader {
        let memory_bytes = self.inner.options.memory_bytes / 4;
        RootLoader::new(self.inner.store.disk.clone(), memory_bytes)
    }
}
