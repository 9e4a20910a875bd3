//! Helpers for stores that keep accounts as bytes and read keys one by one.

#[cfg(feature = "bytes")]
use super::Failure;
#[cfg(feature = "bytes")]
use alloy_primitives::B256;
use cambium_primitives::Account;
#[cfg(feature = "bytes")]
use std::{sync::OnceLock, thread};

/// Fewest threads that read from a store without batched reads, so that the disk has requests in flight.
#[cfg(feature = "bytes")]
const READ_THREADS_MIN: usize = 8;

/// The number of threads that was chosen for this process.
#[cfg(feature = "bytes")]
static READ_THREADS: OnceLock<usize> = OnceLock::new();

/// Chooses the number of threads that read from a store without batched reads, for the whole process.
#[cfg(feature = "bytes")]
pub(super) fn choose_read_threads(threads: usize) {
    READ_THREADS.get_or_init(|| threads);
}

/// Returns the number of threads that read from a store without batched reads. Unless it was chosen, they wait for
/// the disk about half of the time.
#[cfg(feature = "bytes")]
pub(super) fn read_threads() -> usize {
    let default = || READ_THREADS_MIN.max(2 * crate::system::cores());
    READ_THREADS.get().copied().unwrap_or_else(default)
}

/// Encodes an account in about a dozen bytes, in the same way for all stores.
pub(super) fn encode(account: &Account) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    account.encode_to(&mut bytes);
    bytes
}

/// Decodes an account encoded by [`encode`].
pub(super) fn decode(bytes: &[u8]) -> Result<Account, String> {
    Account::decode(bytes).map_err(|error| format!("a value is damaged: {error}"))
}

/// Returns all keys of the first state, sorted.
#[cfg(any(feature = "fjall", feature = "mdbx"))]
pub(super) fn sorted_keys(workload: &crate::state::workload::Workload) -> Vec<B256> {
    let mut keys = workload.keys(0..workload.accounts);
    keys.sort_unstable();
    keys
}

/// Returns keys with their new values, sorted by key.
#[cfg(feature = "mdbx")]
pub(super) fn sorted(write: &super::Write<'_>) -> Vec<(B256, Vec<u8>)> {
    let pairs = write.keys.iter().copied().zip(write.new.iter().map(encode));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    pairs
}

/// Splits `keys` into consecutive runs, and reads each on a thread of its own.
#[cfg(feature = "bytes")]
pub(super) fn read_on_threads<T: Clone + Send>(
    keys: &[B256],
    read: impl Fn(&[B256]) -> Result<Vec<T>, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let read = &read;
    let parts = thread::scope(|scope| {
        let parts: Vec<_> = keys
            .chunks(keys.len().div_ceil(read_threads()).max(1))
            .map(|part| scope.spawn(move || read(part)))
            .collect();
        let joined = parts.into_iter().map(|part| match part.join() {
            Ok(values) => values,
            Err(_) => Err("a reading thread panicked".into()),
        });
        joined.collect::<Result<Vec<_>, Failure>>()
    })?;
    Ok(parts.concat())
}

/// As [`read_on_threads`], with one read per key.
#[cfg(any(
    feature = "nomt",
    feature = "rocksdb",
    feature = "fjall",
    feature = "firewood"
))]
pub(super) fn read_each_on_threads<T: Clone + Send>(
    keys: &[B256],
    read: impl Fn(&B256) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    read_on_threads(keys, |keys| keys.iter().map(&read).collect())
}
