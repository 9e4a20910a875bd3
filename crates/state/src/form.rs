//! Permanent form of a database: its commitment and the kind of its leaves, in the manifest.

use crate::{
    layered::intervals::Intervals,
    options::{LeafKind, Options},
};
use cambium_primitives::DecodeError;
use cambium_snapshot::{KeptStorage, StateError};
use cambium_store::Manifest;
use cambium_trie::{Blake3, Commitment, Sha256};

/// Property with the name of the commitment, if it is a binary one or that of a partial database. A database without it has
/// [`Commitment::Layered`] if it has intervals, and [`Commitment::Mpt`] otherwise.
pub(crate) const COMMITMENT: &str = "commitment";
/// Property with the kind of leaves. A database without it has accounts.
pub(crate) const LEAVES: &str = "leaves";
/// Property with the number of blocks of an interval, little-endian in eight bytes. A database
/// without it does not have the `layered` commitment.
pub(crate) const MERGE_INTERVAL: &str = "merge_interval_blocks";
/// Property with the contracts whose storage is kept, as [`KeptStorage::encode`] encodes them. It is in partial databases
/// alone, whose commitment is [`Commitment::PartialMpt`]. Programs that do not know partial databases refuse that one.
pub(crate) const KEPT_STORAGE: &str = "kept_storage";
const ENTRIES: &[u8] = b"entries";

/// Named commitments that every database of this library can be opened with.
const KNOWN: [Commitment; 3] = [
    Commitment::Binary(&Blake3),
    Commitment::Binary(&Sha256),
    Commitment::PartialMpt,
];

/// Returns the properties that the manifest of a new database needs.
pub(crate) fn properties(options: &Options) -> Vec<(String, Vec<u8>)> {
    let mut properties = Vec::new();
    if let Commitment::Binary(_) | Commitment::PartialMpt = options.commitment {
        let name = options.commitment.name().to_string();
        properties.push((COMMITMENT.to_owned(), name.into_bytes()));
    }
    if options.leaves == LeafKind::Entries {
        properties.push((LEAVES.to_owned(), ENTRIES.to_vec()));
    }
    if let Some(blocks) = options.merge_interval_blocks {
        properties.push((MERGE_INTERVAL.to_owned(), blocks.to_le_bytes().to_vec()));
    }
    properties
}

/// Returns `options` with the permanent form of the database.
///
/// # Errors
///
/// [`StateError::BadOptions`] if its commitment is neither known nor given in `options`, or if its
/// leaves are of an unknown kind.
pub(crate) fn of(manifest: &Manifest, options: Options) -> Result<Options, StateError> {
    let leaves = match manifest.property(LEAVES) {
        None => LeafKind::Accounts,
        Some(ENTRIES) => LeafKind::Entries,
        Some(other) => {
            let what = String::from_utf8_lossy(other);
            let what = format!("the database has leaves of the kind \"{what}\", which is unknown");
            return Err(StateError::BadOptions(what));
        }
    };
    let merge_interval_blocks = merge_interval(manifest)?;
    let commitment = match (manifest.property(COMMITMENT), merge_interval_blocks) {
        (None, None) => Commitment::Mpt,
        (None, Some(_)) => Commitment::Layered,
        (Some(_), Some(_)) => {
            return Err(damaged(
                "a merge interval beside another commitment than layered",
            ));
        }
        (Some(name), None) => {
            let is_it = |known: &Commitment| known.name().to_string().as_bytes() == name;
            let known = KNOWN.into_iter().chain([options.commitment]).find(is_it);
            known.ok_or_else(|| {
                let name = String::from_utf8_lossy(name);
                let what =
                    format!("the database has the commitment \"{name}\": open it with that one");
                StateError::BadOptions(what)
            })?
        }
    };
    Ok(Options {
        commitment,
        leaves,
        merge_interval_blocks,
        ..options
    })
}

/// The contracts whose storage is kept, if the database is partial.
///
/// # Errors
///
/// [`StateError::Damaged`] if the list can't be decoded, or is there if and only if it must not be.
pub(crate) fn kept_storage(
    manifest: &Manifest,
    options: &Options,
) -> Result<Option<KeptStorage>, StateError> {
    let is_partial = options.commitment == Commitment::PartialMpt;
    match (is_partial, manifest.property(KEPT_STORAGE)) {
        (false, None) => Ok(None),
        (true, Some(list)) => {
            let kept = KeptStorage::decode(list);
            let damaged = || damaged("a malformed list of contracts whose storage is kept");
            Ok(Some(kept.ok_or_else(damaged)?))
        }
        (true, None) => Err(damaged("no list of contracts whose storage is kept")),
        (false, Some(_)) => Err(damaged(
            "a list of contracts whose storage is kept, in a database that is not partial",
        )),
    }
}

/// The number of blocks of an interval, if the manifest has it.
fn merge_interval(manifest: &Manifest) -> Result<Option<u64>, StateError> {
    let Some(bytes) = manifest.property(MERGE_INTERVAL) else {
        return Ok(None);
    };
    let blocks = bytes.try_into().map(u64::from_le_bytes).ok();
    let blocks = blocks.filter(|blocks| Intervals::new(0, *blocks).is_some());
    let blocks = blocks.ok_or_else(|| damaged("a merge interval of no or too many blocks"))?;
    Ok(Some(blocks))
}

fn damaged(what: &'static str) -> StateError {
    StateError::Damaged {
        what: "the manifest".to_owned(),
        source: DecodeError { what, offset: 0 },
    }
}
