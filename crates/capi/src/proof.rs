//! Proofs of entries and of ranges of them, verified against roots without a store.

use crate::{
    memory::{CambiumBytes, check_result, free, handle, read_key, read_keys, read_values, write},
    options::commitment,
    status::{CambiumError, CambiumStatus, Failure, run},
    transaction::{CambiumTransaction, read_range, write_many},
};
use cambium::{B256, Bytes};
use cambium_kv::{EntryProof, KeyRange, ProvedEntries, ProvedKeys, verify, verify_range};
use std::num::NonZeroUsize;

/// Proves the values at `count` keys (32 bytes each, one after the other) against the root of the
/// transaction's snapshot, or that there are none. Writes the proof, which is freed with
/// `cambium_bytes_free`, and `count` values as `cambium_transaction_get_many` does, unless `values` is
/// null. The keys count as read. The transaction's own writes have no root, and are not looked at.
///
/// Fails with `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_prove(
    transaction: *const CambiumTransaction,
    keys: *const u8,
    count: usize,
    values: *mut CambiumBytes,
    proof: *mut CambiumBytes,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(proof)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (transaction, keys) = unsafe { (handle(transaction)?, read_keys(keys, count)?) };
        let proved = transaction.0.prove(keys)?;
        let encoded = CambiumBytes::of(proved.proof.encode().into());
        // SAFETY: the pointers are as the header asks of the caller.
        unsafe {
            if !values.is_null() {
                let found = proved.values.into_iter().map(|(_, value)| value);
                write_many(values, found.collect())?;
            }
            write(proof, encoded)?;
        }
        Ok(CambiumStatus::Ok)
    })
}

/// Verifies that the entries of a root (32 bytes) have `values` at `count` keys (32 bytes each), where
/// null data claims that there is no entry. `commitment_number` is the store's `CambiumCommitment`.
/// Needs no store; any thread may call it.
///
/// Fails with `CAMBIUM_STATUS_BAD_PROOF` if the proof does not show that; the message says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_verify(
    root: *const u8,
    commitment_number: u32,
    keys: *const u8,
    values: *const CambiumBytes,
    count: usize,
    proof: *const u8,
    proof_len: usize,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (root, keys, values, proof) = unsafe {
            (
                read_key(root)?,
                read_keys(keys, count)?,
                claimed(values, count)?,
                read_proof(proof, proof_len)?,
            )
        };
        let values = keys.iter().copied().zip(values).collect();
        verify(
            *root,
            commitment(commitment_number)?,
            &ProvedKeys { values, proof },
        )?;
        Ok(CambiumStatus::Ok)
    })
}

/// Copies the values that a caller claims.
///
/// # Safety
///
/// As [`read_values`], and each has as many bytes as it says.
unsafe fn claimed(
    values: *const CambiumBytes,
    count: usize,
) -> Result<Vec<Option<Bytes>>, Failure> {
    // SAFETY: as the caller promises.
    let values = unsafe { read_values(values, count)? };
    let value = |value: &CambiumBytes| match value.data.is_null() {
        true => Ok(None),
        // SAFETY: as the caller promises.
        false => unsafe { read_values(value.data, value.len) }
            .map(|bytes| Some(Bytes::copy_from_slice(bytes))),
    };
    values.iter().map(value).collect()
}

/// # Safety
///
/// As [`read_values`].
unsafe fn read_proof(proof: *const u8, len: usize) -> Result<EntryProof, Failure> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { read_values(proof, len)? };
    EntryProof::decode(bytes)
        .map_err(|error| Failure::new(CambiumStatus::BadProof, format!("the proof: {error}")))
}

/// All entries of a range, with the proof that there are no others. It never changes: any number of
/// threads may read it.
pub struct CambiumRangeProof {
    proved: ProvedEntries,
    encoded: Bytes,
}

/// What a range proof shows.
#[repr(C)]
pub struct CambiumRangeSummary {
    /// First key of the range that is proved.
    pub first: [u8; 32],
    /// Last key of the range that is proved: less than what was asked for if the limit was reached.
    pub last: [u8; 32],
    /// Number of entries.
    pub count: usize,
    /// Whether there are further entries in what was asked for: ask again from the key after `last`.
    /// This is a hint, and not proved.
    pub more: bool,
    /// The proof. It is the range proof's, and freed with it.
    pub proof: CambiumBytes,
}

/// An entry of a range: to read, or to verify.
#[repr(C)]
pub struct CambiumEntry {
    /// The key of the entry, at which ranges begin and end.
    pub key: [u8; 32],
    /// The value. Not null.
    pub value: CambiumBytes,
}

/// Proves the entries from `first` through `last` (32 bytes each, or null for the ends) against the root
/// of the transaction's snapshot, `limit` of them at most, and that there are no others. Free the range
/// proof with `cambium_range_proof_free`. What is proved counts as read. The transaction's own writes
/// have no root, and are not looked at.
///
/// Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` for a limit of 0 or a range that ends before it begins,
/// `CAMBIUM_STATUS_IO` or `CAMBIUM_STATUS_DAMAGED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_prove_range(
    transaction: *const CambiumTransaction,
    first: *const u8,
    last: *const u8,
    limit: usize,
    range_proof: *mut *mut CambiumRangeProof,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        check_result(range_proof)?;
        // SAFETY: the pointers are as the header asks of the caller.
        let (transaction, range) = unsafe { (handle(transaction)?, read_range(first, last)?) };
        let limit = NonZeroUsize::new(limit).ok_or_else(|| Failure::argument("the limit is 0"))?;
        let proved = transaction.0.prove_range(range, limit)?;
        let encoded = proved.proof.encode().into();
        let new = CambiumRangeProof { proved, encoded };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(range_proof, Box::into_raw(Box::new(new))) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Writes what the range proof shows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_range_proof_summary(
    range_proof: *const CambiumRangeProof,
    summary: *mut CambiumRangeSummary,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointer is as the header asks of the caller.
        let CambiumRangeProof { proved, encoded } = unsafe { handle(range_proof)? };
        let found = CambiumRangeSummary {
            first: proved.range.from().0,
            last: proved.range.through().0,
            count: proved.entries.len(),
            more: proved.next.is_some(),
            proof: borrowed(encoded),
        };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(summary, found) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Writes the entry at a position below `count`, in the order of keys. Its value is the range proof's,
/// and freed with it.
///
/// Fails with `CAMBIUM_STATUS_INVALID_ARGUMENT` for a position that is too large.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_range_proof_entry(
    range_proof: *const CambiumRangeProof,
    position: usize,
    entry: *mut CambiumEntry,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointer is as the header asks of the caller.
        let entries = &unsafe { handle(range_proof)? }.proved.entries;
        let (key, value) = entries.get(position).ok_or_else(|| {
            let count = entries.len();
            Failure::argument(format!("there is no entry {position}: there are {count}"))
        })?;
        let found = CambiumEntry {
            key: key.0,
            value: borrowed(value),
        };
        // SAFETY: the pointer is as the header asks of the caller.
        unsafe { write(entry, found) }?;
        Ok(CambiumStatus::Ok)
    })
}

/// Bytes that something else keeps.
fn borrowed(bytes: &Bytes) -> CambiumBytes {
    CambiumBytes {
        data: bytes.as_ptr(),
        len: bytes.len(),
        owner: std::ptr::null_mut(),
    }
}

/// Frees the range proof. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_range_proof_free(range_proof: *mut CambiumRangeProof) {
    // SAFETY: the pointer is as the header asks of the caller.
    unsafe { free(range_proof) }
}

/// Verifies that a root (32 bytes) has the `count` entries from `first` through `last` (32 bytes each,
/// or null for the ends), and no others. `commitment_number` is the store's `CambiumCommitment`. Needs
/// no store; any thread may call it.
///
/// Fails with `CAMBIUM_STATUS_BAD_PROOF` if the proof does not show that; the message says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_verify_range(
    root: *const u8,
    commitment_number: u32,
    first: *const u8,
    last: *const u8,
    entries: *const CambiumEntry,
    count: usize,
    proof: *const u8,
    proof_len: usize,
    error: *mut CambiumError,
) -> CambiumStatus {
    run(error, || {
        // SAFETY: the pointers are as the header asks of the caller.
        let (root, range, entries, proof) = unsafe {
            (
                read_key(root)?,
                read_range(first, last)?,
                claimed_entries(entries, count)?,
                read_proof(proof, proof_len)?,
            )
        };
        let proved = proved_entries(range, entries, proof);
        verify_range(*root, commitment(commitment_number)?, &proved)?;
        Ok(CambiumStatus::Ok)
    })
}

/// Copies the entries that a caller claims.
///
/// # Safety
///
/// As [`read_values`], and each value has as many bytes as it says.
unsafe fn claimed_entries(
    entries: *const CambiumEntry,
    count: usize,
) -> Result<Vec<(B256, Bytes)>, Failure> {
    // SAFETY: as the caller promises.
    let entries = unsafe { read_values(entries, count)? };
    let entry = |entry: &CambiumEntry| {
        // SAFETY: as the caller promises.
        let value = unsafe { read_values(entry.value.data, entry.value.len)? };
        Ok((B256::new(entry.key), Bytes::copy_from_slice(value)))
    };
    entries.iter().map(entry).collect()
}

fn proved_entries(
    range: KeyRange,
    entries: Vec<(B256, Bytes)>,
    proof: EntryProof,
) -> ProvedEntries {
    ProvedEntries {
        range,
        entries,
        next: None,
        proof,
    }
}
