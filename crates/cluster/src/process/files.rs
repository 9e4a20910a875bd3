//! Snapshots in a shard's folder. A new one is complete and durable before it has its name; the two newest are kept.

use alloy_primitives::B256;
use cambium_disk::{Disk, DiskError, DiskFile};
use cambium_primitives::BlockId;
use std::{
    io::{self, Read, Write},
    sync::Arc,
};

const UNFINISHED: &str = "state.tmp";
const PREFIX: &str = "state-";
const SUFFIX: &str = ".shard";
/// Number of snapshots that stay: if the newest is damaged, there is another one.
const KEPT: usize = 2;

/// The name of a block's snapshot. Names sort by the blocks' numbers.
fn name_of(block: BlockId) -> String {
    format!("{PREFIX}{:020}-{:x}{SUFFIX}", block.number, block.hash)
}

fn block_of(name: &str) -> Option<BlockId> {
    let (number, hash) = name
        .strip_prefix(PREFIX)?
        .strip_suffix(SUFFIX)?
        .split_once('-')?;
    let hash: B256 = hash.parse().ok()?;
    let block = BlockId::new(number.parse().ok()?, hash);
    (name_of(block) == name).then_some(block)
}

/// The snapshots of a folder, newest first, with their names.
pub(super) fn list(disk: &dyn Disk) -> Result<Vec<(BlockId, String)>, DiskError> {
    let names = disk.list("")?.into_iter();
    let mut snapshots: Vec<_> = names
        .filter_map(|name| Some((block_of(&name)?, name)))
        .collect();
    snapshots.sort_by(|a, b| b.1.cmp(&a.1));
    Ok(snapshots)
}

/// Reads a snapshot from its beginning.
pub(super) fn read(disk: &dyn Disk, name: &str) -> Result<impl Read + use<>, DiskError> {
    let file = disk.open(name)?;
    let length = file.len()?;
    Ok(io::BufReader::with_capacity(
        1 << 20,
        Reading {
            file,
            at: 0,
            length,
        },
    ))
}

/// Writes the snapshot of a block, and removes old ones.
pub(super) fn write<E: From<DiskError>>(
    disk: &dyn Disk,
    block: BlockId,
    content: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    if disk.exists(UNFINISHED)? {
        disk.remove(UNFINISHED)?;
    }
    let file = disk.create(UNFINISHED)?;
    let mut out = io::BufWriter::with_capacity(
        1 << 20,
        Writing {
            file: Arc::clone(&file),
            at: 0,
        },
    );
    content(&mut out)?;
    drop(out);
    file.sync()?;
    drop(file);
    disk.rename(UNFINISHED, &name_of(block))?;
    disk.sync_dir("")?;
    for (_, old) in list(disk)?.into_iter().skip(KEPT) {
        disk.remove(&old)?;
    }
    Ok(())
}

struct Reading {
    file: Arc<dyn DiskFile>,
    at: u64,
    length: u64,
}

impl Read for Reading {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.length - self.at;
        let count = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut out[..count], self.at);
        read.map_err(io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}

struct Writing {
    file: Arc<dyn DiskFile>,
    at: u64,
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at);
        written.map_err(io::Error::other)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
