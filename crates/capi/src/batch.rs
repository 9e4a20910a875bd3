//! Writes that are gathered first, and written together.

use crate::{
    memory::{free, handle, handle_mut, read_key, read_values},
    status::{CambiumError, CambiumStatus, run, run_infallible},
};
use cambium::Bytes;
use cambium_kv::WriteBatch;

/// Puts and deletions that are written together. Of several for one key the last counts. One thread at
/// a time may use a batch.
#[derive(Default)]
pub struct CambiumBatch(pub(crate) WriteBatch);

/// Creates an empty batch. Free it with `cambium_batch_free`. Null only if memory is exhausted.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_batch_new() -> *mut CambiumBatch {
    run_infallible(std::ptr::null_mut(), || {
        Box::into_raw(Box::<CambiumBatch>::default())
    })
}

/// Sets the value at `key` (32 bytes) to the `value_len` bytes at `value`, which are copied. The empty
/// value is a value.
///
/// Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` above `cambium_value_bytes_max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_put(
    batch: *mut CambiumBatch,
    key: *const u8,
    value: *const u8,
    value_len: usize,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (batch, key, value) = unsafe {
            (
                handle_mut(batch)?,
                read_key(key)?,
                read_values(value, value_len)?,
            )
        };
        batch.0.put(*key, Bytes::copy_from_slice(value))?;
        Ok(CambiumStatus::Ok)
    })
}

/// Removes the entry at `key` (32 bytes), if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_delete(
    batch: *mut CambiumBatch,
    key: *const u8,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (batch, key) = unsafe { (handle_mut(batch)?, read_key(key)?) };
        batch.0.delete(*key);
        Ok(CambiumStatus::Ok)
    })
}

/// Returns the number of keys that the batch writes; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_len(batch: *const CambiumBatch) -> usize {
    run_infallible(0, || {
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { handle(batch) }.map_or(0, |batch| batch.0.len())
    })
}

/// Removes all writes from the batch. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_clear(batch: *mut CambiumBatch) {
    run_infallible((), || {
        // SAFETY: the pointer is as the header asks of the caller.
        if let Ok(batch) = unsafe { handle_mut(batch) } {
            *batch = CambiumBatch::default();
        }
    });
}

/// Frees the batch, with writes that were not written. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_free(batch: *mut CambiumBatch) {
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { free(batch) }
}
