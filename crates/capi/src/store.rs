//! The store: created, opened, closed, and what is done to all of it.

use crate::{
    batch::CambiumBatch,
    commit::CambiumCommit,
    memory::{
        CambiumBytes, check_result, found_value, free, handle, handle_mut, read_key, read_path,
        write, write_unless_null,
    },
    options::{CambiumOptions, number_of, of_new_store},
    status::{CambiumError, CambiumStatus, Failure, run},
    transaction::CambiumTransaction,
};
use cambium::{FaultyDisk, disk::existing_disk};
use cambium_kv::{KvError, KvOptions, Store, VALUE_BYTES_MAX};
use std::{
    ffi::{CStr, c_char},
    path::Path,
    sync::Arc,
};

/// An open store. Any number of threads may use one handle at the same time, until it is closed.
pub struct CambiumStore(pub(crate) Store);

/// Returns the version of the library, as `0.1.0`. The string is static. Any thread may call it.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    match CStr::from_bytes_with_nul(VERSION.as_bytes()) {
        Ok(version) => version.as_ptr(),
        Err(_) => c"".as_ptr(),
    }
}

/// Returns the length of the longest value, in bytes. Any thread may call it.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_value_bytes_max() -> usize {
    VALUE_BYTES_MAX
}

/// Creates an empty store in a directory, which must be empty or not exist, and opens it. `directory` is
/// UTF-8 with a NUL at its end. `options` may be null for the defaults. Close it with
/// `cambium_store_close`.
///
/// Fails with `CAMBIUM_STATUS_UNAVAILABLE` if there is a database already, and `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_create(
    directory: *const c_char,
    options: *const CambiumOptions,
    store: *mut *mut CambiumStore,
    error: *mut CambiumError,
) -> CambiumStatus {
    // SAFETY: the pointers are as the header asks of the caller.
    unsafe {
        opened(directory, options, store, error, |path, options| {
            Ok(Store::create(path, of_new_store(options)?)?)
        })
    }
}

/// Creates an empty store in memory: for tests, and for what need not last. Closing it loses it.
/// Otherwise as `cambium_store_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_create_in_memory(
    options: *const CambiumOptions,
    store: *mut *mut CambiumStore,
    error: *mut CambiumError,
) -> CambiumStatus {
    let create = |_: &Path, options| {
        let disk = Arc::new(FaultyDisk::new(1));
        Ok(Store::create(disk, of_new_store(options)?)?)
    };
    // SAFETY: the pointers are as the header asks of the caller, and the path is a literal.
    unsafe { opened(c"memory".as_ptr(), options, store, error, create) }
}

/// Opens the store in a directory for reading and writing, at its newest commit: one process at a time
/// may do so. `directory` is UTF-8 with a NUL at its end. `options` may be null for the defaults. Close it
/// with `cambium_store_close`.
///
/// Fails with `CAMBIUM_STATUS_UNAVAILABLE` if there is no store, if it is a chain's database, or if another
/// process has it open; `CAMBIUM_STATUS_DAMAGED`; `CAMBIUM_STATUS_IO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_open(
    directory: *const c_char,
    options: *const CambiumOptions,
    store: *mut *mut CambiumStore,
    error: *mut CambiumError,
) -> CambiumStatus {
    let open = |path: &Path, options| Ok(Store::open(existing_disk(path, false)?, options)?);
    // SAFETY: the pointers are as the header asks of the caller.
    unsafe { opened(directory, options, store, error, open) }
}

/// Opens the store in a directory for reading alone, at its newest commit, whether or not another
/// process writes to it. Commits fail with `CAMBIUM_STATUS_READ_ONLY`. Otherwise as `cambium_store_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_open_read_only(
    directory: *const c_char,
    options: *const CambiumOptions,
    store: *mut *mut CambiumStore,
    error: *mut CambiumError,
) -> CambiumStatus {
    let open =
        |path: &Path, options| Ok(Store::open_read_only(existing_disk(path, true)?, options)?);
    // SAFETY: the pointers are as the header asks of the caller.
    unsafe { opened(directory, options, store, error, open) }
}

/// # Safety
///
/// The pointers are as the header asks of the caller.
unsafe fn opened(
    directory: *const c_char,
    options: *const CambiumOptions,
    store: *mut *mut CambiumStore,
    error: *mut CambiumError,
    open: impl FnOnce(&Path, KvOptions) -> Result<Store, Failure>,
) -> CambiumStatus {
    run(error, || {
        check_result(store)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (path, options) = unsafe { (read_path(directory)?, options.as_ref()) };
        let options = options.copied().unwrap_or_default().to_kv()?;
        let opened = CambiumStore(open(path, options)?);
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(store, Box::into_raw(Box::new(opened))) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Closes the store. Transactions and bytes of it stay valid; its files are released with the last of
/// them. Null is ignored. No thread may use the handle during the call or after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_close(store: *mut CambiumStore) {
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { free(store) }
}

/// Writes the number of the store's `CambiumCommitment`.
///
/// Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` if it was created from Rust with a hash function of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_commitment(
    store: *const CambiumStore,
    commitment: *mut u32,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        unsafe { write(commitment, number_of(handle(store)?.0.commitment())?) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Writes the newest commit, with the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_newest(
    store: *const CambiumStore,
    commit: *mut CambiumCommit,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        unsafe { write(commit, handle(store)?.0.newest()?.into()) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Finds the newest commit whose root is `root` (32 bytes), looking back as far as commits are kept.
///
/// Fails with `CAMBIUM_STATUS_NOT_KEPT` if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_commit_with_root(
    store: *const CambiumStore,
    root: *const u8,
    commit: *mut CambiumCommit,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        unsafe {
            let found = handle(store)?.0.commit_with_root(*read_key(root)?)?;
            write(commit, found.into())?;
        }
        Ok(CambiumStatus::Ok)
    })
}

/// Reads the value at `key` (32 bytes) at the newest commit. Free it with `cambium_bytes_free`.
/// `CAMBIUM_STATUS_NOT_FOUND`, with null data, if there is no entry.
///
/// Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_get(
    store: *const CambiumStore,
    key: *const u8,
    value: *mut CambiumBytes,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(value)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let found = unsafe { handle(store)?.0.get(read_key(key)?)? };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { found_value(value, found) }
    })
}

/// Writes the batch as one commit, whatever was there before, and empties it. When this returns, the
/// commit survives a loss of power. An empty batch makes no commit. `commit` may be null.
///
/// Fails with `CAMBIUM_STATUS_IO`, after which the store refuses further commits until it is opened again, or
/// with `CAMBIUM_STATUS_READ_ONLY`. The batch is empty then, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_write(
    store: *const CambiumStore,
    batch: *mut CambiumBatch,
    commit: *mut CambiumCommit,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (store, batch) = unsafe { (handle(store)?, handle_mut(batch)?) };
        let done = store.0.write(std::mem::take(&mut batch.0))?;
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write_unless_null(commit, done.into()) }
    })
}

/// Takes the newest `commits` commits back, durably, and writes what is the newest then. Transactions
/// that began on what is gone can still read it. `commit` may be null.
///
/// Fails with `CAMBIUM_STATUS_NOT_KEPT` if there are fewer, or if they are not kept; `CAMBIUM_STATUS_IO`;
/// `CAMBIUM_STATUS_READ_ONLY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_roll_back(
    store: *const CambiumStore,
    commits: u64,
    commit: *mut CambiumCommit,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let newest = unsafe { handle(store)? }.0.roll_back(commits)?;
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write_unless_null(commit, newest.into()) }
    })
}

/// Merges all commits into pages, and waits until that is durable: the next opening has nothing to
/// replay then. Commits are durable without it.
///
/// Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_READ_ONLY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_flush(
    store: *const CambiumStore,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { handle(store)? }.0.flush()?;
        Ok(CambiumStatus::Ok)
    })
}

/// Begins a transaction at the newest commit. End it with `cambium_transaction_commit` or
/// `cambium_transaction_abort`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_begin(
    store: *const CambiumStore,
    transaction: *mut *mut CambiumTransaction,
    error: *mut CambiumError,
) -> CambiumStatus {
    // SAFETY: the pointers are as the header asks of the caller.
    unsafe { begun(store, transaction, error, Store::begin) }
}

/// Begins a transaction at the commit of this number: to read what was there, or to write if nothing
/// that it reads has changed since. Otherwise as `cambium_store_begin`.
///
/// Fails with `CAMBIUM_STATUS_NOT_KEPT` if there is no such commit, or if it is not kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_store_begin_at(
    store: *const CambiumStore,
    number: u64,
    transaction: *mut *mut CambiumTransaction,
    error: *mut CambiumError,
) -> CambiumStatus {
    // SAFETY: the pointers are as the header asks of the caller.
    unsafe { begun(store, transaction, error, |store| store.begin_at(number)) }
}

/// # Safety
///
/// The pointers are as the header asks of the caller.
unsafe fn begun(
    store: *const CambiumStore,
    transaction: *mut *mut CambiumTransaction,
    error: *mut CambiumError,
    begin: impl FnOnce(&Store) -> Result<cambium_kv::Transaction, KvError>,
) -> CambiumStatus {
    run(error, || {
        check_result(transaction)?;
        // SAFETY: the pointer is as the header asks of the caller.
        let begun = CambiumTransaction(begin(&unsafe { handle(store)? }.0)?);
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(transaction, Box::into_raw(Box::new(begun))) }?;
        Ok(CambiumStatus::Ok)
    })
}
