//! Transactions: reads of one snapshot, and writes that only the transaction sees until it is committed.

use crate::{
    batch::CambiumBatch,
    commit::CambiumCommit,
    memory::{
        CambiumBytes, check_result, found_value, free, handle, handle_mut, read_key, read_keys,
        read_values, write, write_unless_null,
    },
    status::{CambiumError, CambiumStatus, Failure, run},
};
use cambium::{B256, Bytes};
use cambium_kv::Transaction;

/// A transaction. Threads may share it for reads; while one writes to it, commits it or aborts it, no
/// other may use it.
pub struct CambiumTransaction(pub(crate) Transaction);

/// Writes the commit whose entries the transaction reads, with the root, without its own writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_snapshot(
    transaction: *const CambiumTransaction,
    commit: *mut CambiumCommit,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        unsafe { write(commit, handle(transaction)?.0.snapshot().into()) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Reads the value at `key` (32 bytes): the transaction's own, if it has written one. Free it with
/// `cambium_bytes_free`. `CAMBIUM_STATUS_NOT_FOUND`, with null data, if there is no entry. The key counts as
/// read, present or not.
///
/// Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_get(
    transaction: *const CambiumTransaction,
    key: *const u8,
    value: *mut CambiumBytes,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(value)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let found = unsafe { handle(transaction)?.0.get(read_key(key)?)? };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { found_value(value, found) }
    })
}

/// Reads the values at `count` keys, 32 bytes each, one after the other, with all reads of the disk in
/// flight at once. Writes `count` values to `values`, in the order of the keys, with null data where
/// there is no entry. Free them with `cambium_bytes_free_many`. The keys count as read.
///
/// Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`; nothing is written to `values` then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_get_many(
    transaction: *const CambiumTransaction,
    keys: *const u8,
    count: usize,
    values: *mut CambiumBytes,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (transaction, keys) = unsafe { (handle(transaction)?, read_keys(keys, count)?) };
        check_results(values, count)?;
        let found = transaction.0.get_many(keys)?;
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write_many(values, found) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Refuses a null pointer to results before any work is done for them.
pub(crate) fn check_results(values: *mut CambiumBytes, count: usize) -> Result<(), Failure> {
    match count {
        0 => Ok(()),
        _ => check_result(values),
    }
}

/// Writes values to memory that may be uninitialised.
///
/// # Safety
///
/// `to` is null if there are no values, or has memory for all of them that nobody else uses.
pub(crate) unsafe fn write_many(
    to: *mut CambiumBytes,
    values: Vec<Option<Bytes>>,
) -> Result<(), Failure> {
    check_results(to, values.len())?;
    for (at, value) in values.into_iter().enumerate() {
        // SAFETY: within the memory that the caller promises.
        unsafe { to.add(at).write(CambiumBytes::of_option(value)) };
    }
    Ok(())
}

/// Sets the value at `key` (32 bytes) to the `value_len` bytes at `value`, which are copied. The empty
/// value is a value.
///
/// Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` above `cambium_value_bytes_max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_put(
    transaction: *mut CambiumTransaction,
    key: *const u8,
    value: *const u8,
    value_len: usize,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (transaction, key, value) = unsafe {
            (
                handle_mut(transaction)?,
                read_key(key)?,
                read_values(value, value_len)?,
            )
        };
        transaction.0.put(*key, Bytes::copy_from_slice(value))?;
        Ok(CambiumStatus::Ok)
    })
}

/// Removes the entry at `key` (32 bytes), if there is one. That it is there does not count as read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_delete(
    transaction: *mut CambiumTransaction,
    key: *const u8,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (transaction, key) = unsafe { (handle_mut(transaction)?, read_key(key)?) };
        transaction.0.delete(*key);
        Ok(CambiumStatus::Ok)
    })
}

/// Adds the writes of a batch to the transaction, and empties the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_write(
    transaction: *mut CambiumTransaction,
    batch: *mut CambiumBatch,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (transaction, batch) = unsafe { (handle_mut(transaction)?, handle_mut(batch)?) };
        transaction.0.write(std::mem::take(&mut batch.0));
        Ok(CambiumStatus::Ok)
    })
}

/// Commits the transaction, and frees it, whatever the outcome. When this returns `CAMBIUM_STATUS_OK`, the
/// commit survives a loss of power. A transaction without writes makes no commit, and writes its
/// snapshot. `commit` may be null.
///
/// Fails with `CAMBIUM_STATUS_CONFLICT` if what it read was written since, or if its snapshot is too old or was
/// rolled back: nothing of it was written, run it again. `CAMBIUM_STATUS_IO`: the store refuses further
/// commits until it is opened again. `CAMBIUM_STATUS_READ_ONLY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_commit(
    transaction: *mut CambiumTransaction,
    commit: *mut CambiumCommit,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(transaction)?;
        // SAFETY: not null, and from `cambium_store_begin`, as the header asks of the caller.
        let transaction = unsafe { Box::from_raw(transaction) };
        let done = transaction.0.commit()?;
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write_unless_null(commit, done.into()) }
    })
}

/// Aborts the transaction and frees it: nothing of it is written. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_abort(transaction: *mut CambiumTransaction) {
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { free(transaction) }
}

/// The range of keys of a call: from the first key on if `first` is null, and through the last one if
/// `last` is.
///
/// # Safety
///
/// Each is null, or has 32 bytes that nobody changes during the call.
pub(crate) unsafe fn read_range(
    first: *const u8,
    last: *const u8,
) -> Result<cambium_kv::KeyRange, Failure> {
    let all = cambium_kv::KeyRange::ALL;
    // SAFETY: as the caller promises.
    let (first, last) = unsafe { (first.cast::<B256>().as_ref(), last.cast::<B256>().as_ref()) };
    let first = first.copied().unwrap_or(all.from());
    let last = last.copied().unwrap_or(all.through());
    cambium_kv::KeyRange::new(first, last).ok_or_else(|| {
        Failure::argument(format!(
            "the range ends at {last:#x}, before it begins at {first:#x}"
        ))
    })
}
