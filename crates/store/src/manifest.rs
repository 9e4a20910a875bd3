//! The manifest: what a data directory is, and the lock on it.

use crate::StoreError;
use cambium_disk::{Disk, DiskLock};

/// What a data directory is: written once, when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    salt: u64,
    properties: Vec<(String, Vec<u8>)>,
}

impl Manifest {
    /// Makes an empty directory a database with these properties (the genesis hash, the kind of
    /// commitment), durably. An error if there is one already.
    pub fn create(
        disk: &dyn Disk,
        properties: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<Self, StoreError> {
        _ = (disk, properties.into_iter());
        unimplemented!()
    }

    /// Reads the manifest. Missing, of a newer format, and damaged are errors of their own.
    pub fn open(disk: &dyn Disk) -> Result<Self, StoreError> {
        _ = disk;
        unimplemented!()
    }

    /// Whether the directory holds a manifest, be it good or bad.
    pub fn exists(disk: &dyn Disk) -> Result<bool, StoreError> {
        _ = disk;
        unimplemented!()
    }

    /// The property `name`.
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        self.properties
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| &**value)
    }

    /// A random number that this database does not share with others: mixed into checksums so that
    /// nobody can prepare bytes that look like records.
    pub const fn salt(&self) -> u64 {
        self.salt
    }
}

/// The right to use a data directory, until dropped or the process ends.
#[derive(Debug)]
pub struct DataDirLock {
    _lock: DiskLock,
}

/// Takes the data directory for this process. The directory must exist.
pub fn lock_data_dir(disk: &dyn Disk) -> Result<DataDirLock, StoreError> {
    _ = disk;
    unimplemented!()
}
