//! MDBX as a state provider.

use super::{
    pairs::Pairs,
    provider::{ProviderError, Values},
};
use crate::state::stores::{Failure, mdbx::open};
use cambium_primitives::DecodeError;
use signet_libmdbx::{Database, DatabaseFlags, Environment, tx::aliases::RoTxUnsync};
use std::{
    borrow::Cow,
    fmt::Display,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// Number of pairs per transaction while loading.
const LOAD_CHUNK: usize = 1 << 20;

/// Creates a database in `dir`.
pub(crate) fn load(dir: &Path, pairs: &Pairs) -> Result<(), Failure> {
    let env = open(dir)?;
    let mut pairs = pairs.iter().peekable();
    while pairs.peek().is_some() {
        let txn = env.begin_rw_sync()?;
        let db = txn.create_db(None, DatabaseFlags::empty())?;
        // Pairs are appended in order, so pages are full.
        for (key, value) in pairs.by_ref().take(LOAD_CHUNK) {
            txn.append(db, key, value)?;
        }
        txn.commit()?;
    }
    Ok(())
}

/// An open MDBX database.
pub(crate) struct MdbxValues {
    /// Read transactions that no thread uses. Beginning one for each read takes longer than
    /// fetching one from here.
    idle: Mutex<Vec<RoTxUnsync>>,
    env: Environment,
    db: Database,
}

impl MdbxValues {
    /// Opens the database. All its memory is page cache.
    pub(crate) fn open(dir: &Path) -> Result<Self, Failure> {
        let env = open(dir)?;
        let db = env.begin_ro_unsync()?.open_db(None)?;
        Ok(Self {
            idle: Mutex::default(),
            env,
            db,
        })
    }

    fn in_transaction<T>(
        &self,
        read: impl FnOnce(&RoTxUnsync) -> Result<T, ProviderError>,
    ) -> Result<T, ProviderError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let fetched = idle().pop();
        let transaction = match fetched {
            Some(transaction) => transaction,
            None => self.env.begin_ro_unsync().map_err(failed)?,
        };
        let result = read(&transaction);
        idle().push(transaction);
        result
    }
}

fn failed(error: impl Display) -> ProviderError {
    ProviderError::Store(error.to_string())
}

impl Values for MdbxValues {
    fn get<T>(
        &self,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, ProviderError> {
        self.in_transaction(|transaction| {
            let value = transaction.get(self.db.dbi(), key).map_err(failed)?;
            let value: Option<Cow<'_, [u8]>> = value;
            Ok(value.map(|value| take(&value)).transpose()?)
        })
    }

    fn has_longer(&self, prefix: &[u8]) -> Result<bool, ProviderError> {
        self.in_transaction(|transaction| {
            let mut cursor = transaction.cursor(self.db).map_err(failed)?;
            let next = cursor.set_range(&[prefix, &[0]].concat()).map_err(failed)?;
            let next: Option<(Cow<'_, [u8]>, ())> = next;
            Ok(next.is_some_and(|(key, ())| key.starts_with(prefix)))
        })
    }

    fn configuration(&self) -> String {
        "MDBX (signet-libmdbx 0.8.3), options as in `state`: no read-ahead, pages of 4096 bytes; \
         appended in order of keys; transactions from a pool"
            .to_owned()
    }
}
