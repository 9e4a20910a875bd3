//! Where a database is in the stream: a file of its own, which may be lost.

use crate::replication::{BuilderKeys, FollowerState};
use alloy_primitives::{B256, keccak256};
use cambium_disk::{Disk, DiskError};
use cambium_primitives::BlockId;
use xxhash_rust::xxh3::xxh3_64;

const NAME: &str = "follower";
const UNFINISHED: &str = "follower.tmp";
const MAGIC: &[u8; 8] = b"cambnote";
/// A note has at most so many bytes.
const BYTES_MAX: u64 = 1 << 16;

/// What a folder says.
pub(super) enum Noted {
    /// There is no note.
    Nothing,
    /// It is damaged: what is wrong.
    Damaged(String),
    Place {
        /// [`digest_of`] whose records were believed.
        believed: B256,
        /// Head of the database at that place.
        head: BlockId,
        state: FollowerState,
    },
}

/// Keccak-256 of whose records of which chain are believed, in whatever order they are given.
pub(super) fn digest_of(keys: &BuilderKeys) -> B256 {
    let mut builders = keys.keys.clone();
    builders.sort_unstable();
    let mut bytes = keys.chain_id.to_be_bytes().to_vec();
    for builder in builders {
        bytes.extend(builder);
    }
    keccak256(bytes)
}

/// Writes a note in place of the one before.
pub(super) fn write(
    disk: &dyn Disk,
    keys: &BuilderKeys,
    head: BlockId,
    state: &FollowerState,
) -> Result<(), DiskError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(digest_of(keys));
    bytes.extend(head.number.to_be_bytes());
    bytes.extend(head.hash);
    bytes.extend(state.encode());
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    if disk.exists(UNFINISHED)? {
        disk.remove(UNFINISHED)?;
    }
    let file = disk.create(UNFINISHED)?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    drop(file);
    disk.rename(UNFINISHED, NAME)?;
    disk.sync_dir("")
}

/// Reads the note of a folder.
pub(super) fn read(disk: &dyn Disk) -> Result<Noted, DiskError> {
    if !disk.exists(NAME)? {
        return Ok(Noted::Nothing);
    }
    let bytes = match read_bytes(disk) {
        Err(error) if error.is_unreadable() => Vec::new(),
        bytes => bytes?,
    };
    Ok(decode(&bytes).unwrap_or_else(|| {
        let shown = disk.display_path(NAME);
        Noted::Damaged(format!(
            "{shown} is damaged: the stream is read from its beginning"
        ))
    }))
}

fn read_bytes(disk: &dyn Disk) -> Result<Vec<u8>, DiskError> {
    let file = disk.open(NAME)?;
    let length = file.len()?.min(BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Option<Noted> {
    let (rest, sum) = bytes.split_last_chunk::<8>()?;
    if xxh3_64(rest).to_le_bytes() != *sum {
        return None;
    }
    let (believed, rest) = rest.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (hash, state) = rest.split_first_chunk::<32>()?;
    Some(Noted::Place {
        believed: B256::from(believed),
        head: BlockId::new(u64::from_be_bytes(*number), B256::from(hash)),
        state: FollowerState::decode(state).ok()?,
    })
}
