//! How a store is created or opened.

use crate::status::Failure;
use cambium_kv::{Blake3, Commitment, KvOptions, Sha256};

/// What roots commit to, and how entries are hashed into them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CambiumCommitment {
    /// A binary trie, hashed by BLAKE3.
    BinaryBlake3 = 0,
    /// A binary trie, hashed by SHA-256.
    BinarySha256 = 1,
    /// Ethereum's Merkle Patricia trie, hashed by Keccak-256.
    Mpt = 2,
    /// The root of three tries: recent changes, those before them, and an older state. It needs
    /// `merge_interval_commits`.
    Layered = 3,
}

/// Options of a store. All zero are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CambiumOptions {
    /// Memory budget of the whole store, in bytes; 0 for 1 GiB.
    pub memory_bytes: u64,
    /// Number of commits that can be rolled back and read; 0 for all.
    pub keep_commits: u64,
    /// Part of `memory_bytes` for the keys of the newest commits, in bytes; 0 for a sixteenth. A
    /// transaction that began before these is `CAMBIUM_STATUS_CONFLICT`.
    pub conflict_window_bytes: u64,
    /// A `CambiumCommitment` for a new store. An existing one keeps its own, whatever is said here.
    pub commitment: u32,
    /// Number of commits of an interval of a new store, if the commitment is
    /// `CAMBIUM_COMMITMENT_LAYERED`, and ignored if it is another one. An existing store keeps its own.
    pub merge_interval_commits: u32,
}

// Programs that were compiled before the last field hand over structs of the same size.
const _: () = assert!(size_of::<CambiumOptions>() == 32);

impl CambiumOptions {
    pub(crate) fn to_kv(self) -> Result<KvOptions, Failure> {
        let given = |bytes: u64| (bytes > 0).then_some(bytes);
        let defaults = KvOptions::default();
        let commitment = commitment(self.commitment)?;
        let interval = u64::from(self.merge_interval_commits);
        Ok(KvOptions {
            commitment,
            merge_interval_commits: (commitment == Commitment::Layered).then_some(interval),
            memory_bytes: given(self.memory_bytes).unwrap_or(defaults.memory_bytes),
            keep_commits: given(self.keep_commits),
            conflict_window_bytes: given(self.conflict_window_bytes),
            ..defaults
        })
    }
}

/// Options of a new store, which has an interval if its commitment needs one.
pub(crate) fn of_new_store(options: KvOptions) -> Result<KvOptions, Failure> {
    match options.merge_interval_commits {
        Some(0) => Err(Failure::argument(
            "the commitment layered needs merge_interval_commits",
        )),
        _ => Ok(options),
    }
}

/// The commitment of a number.
pub(crate) fn commitment(number: u32) -> Result<Commitment, Failure> {
    const BLAKE3: u32 = CambiumCommitment::BinaryBlake3 as u32;
    const SHA256: u32 = CambiumCommitment::BinarySha256 as u32;
    const MPT: u32 = CambiumCommitment::Mpt as u32;
    const LAYERED: u32 = CambiumCommitment::Layered as u32;
    match number {
        BLAKE3 => Ok(Commitment::Binary(&Blake3)),
        SHA256 => Ok(Commitment::Binary(&Sha256)),
        MPT => Ok(Commitment::Mpt),
        LAYERED => Ok(Commitment::Layered),
        other => Err(Failure::argument(format!(
            "{other} is no commitment: there are 0 to 3"
        ))),
    }
}

/// The number of a store's commitment.
pub(crate) fn number_of(of_store: Commitment) -> Result<u32, Failure> {
    (0..=3)
        .find(|number| commitment(*number).is_ok_and(|known| known == of_store))
        .ok_or_else(|| {
            let name = of_store.name();
            Failure::argument(format!("the commitment {name} has no number here"))
        })
}
