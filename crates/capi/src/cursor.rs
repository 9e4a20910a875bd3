//! Entries in the order of their keys.

use crate::{
    memory::{CambiumBytes, check_result, free, handle, handle_mut, results, write},
    status::{CambiumError, CambiumStatus, Failure, run},
    transaction::{CambiumTransaction, read_range},
};
use cambium_kv::Cursor;

/// A position in a range of a transaction's entries. One thread at a time may use a cursor. It does not
/// keep its transaction: that may be written to, committed or aborted before the cursor is freed.
pub struct CambiumCursor(Cursor);

/// Creates a cursor before the entries from `first` through `last` (32 bytes each), both included; null
/// begins at the first key, or ends at the last. Free it with `cambium_cursor_free`.
///
/// Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` if the range ends before it begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_cursor_new(
    transaction: *const CambiumTransaction,
    first: *const u8,
    last: *const u8,
    cursor: *mut *mut CambiumCursor,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(cursor)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (transaction, range) = unsafe { (handle(transaction)?, read_range(first, last)?) };
        let new = CambiumCursor(transaction.0.cursor(range.from()..=range.through()));
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(cursor, Box::into_raw(Box::new(new))) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Moves to the next entry, and writes its key (32 bytes) and its value; `CAMBIUM_STATUS_NOT_FOUND`, with null
/// data, after the last one. Free the value with `cambium_bytes_free`. The transaction must be the one
/// of the cursor, or one of the same snapshot. What it has written ahead of the cursor is visited, too.
/// Up to the entry the range counts as read: one that another transaction adds there is a conflict.
///
/// Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` for a transaction of another snapshot, `CAMBIUM_STATUS_IO` or
/// `CAMBIUM_STATUS_DAMAGED`; there are no more entries after the last two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_cursor_next(
    cursor: *mut CambiumCursor,
    transaction: *const CambiumTransaction,
    key: *mut u8,
    value: *mut CambiumBytes,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(value)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (cursor, transaction, to) =
            unsafe { (handle_mut(cursor)?, handle(transaction)?, results(key, 32)?) };
        let (of_cursor, of_transaction) = (cursor.0.snapshot(), transaction.0.snapshot().id);
        if of_cursor != of_transaction {
            return Err(Failure::argument(format!(
                "the cursor is at commit {of_cursor}, and the transaction at {of_transaction}"
            )));
        }
        let (next, status) = match cursor.0.next(&transaction.0)? {
            Some((key, next)) => {
                to.copy_from_slice(key.as_slice());
                (Some(next), CambiumStatus::Ok)
            }
            None => (None, CambiumStatus::NotFound),
        };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(value, CambiumBytes::of_option(next)) }?;
        Ok(status)
    })
}

/// Frees the cursor. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_cursor_free(cursor: *mut CambiumCursor) {
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { free(cursor) }
}
