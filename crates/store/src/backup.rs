//! A copy of a database's files, beside whoever writes to it.

use crate::{
    LogPosition, Segments, StoreError, block_index, block_log, checkpoint, codes, manifest,
    segments::SegmentFile,
};
use cambium_disk::{Access, Disk, DiskFile};
use std::sync::Arc;

/// Bytes that are copied at a time: whole blocks.
const PIECE_BYTES: u64 = 1 << 20;

/// What a backup is of.
#[derive(Debug)]
pub struct BackupOf<'a> {
    /// Checkpoints, with all that they are on.
    pub checkpoints: &'a [u64],
    /// Where those are that are not on the disk itself: an index that was made again is in memory.
    pub made_again: &'a dyn Disk,
    /// The segments that the newest of them names, open.
    pub segments: &'a Segments,
    /// Where the log ends.
    pub log_end: LogPosition,
}

/// What a backup took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSizes {
    /// Files that the copy shares with the original: nobody writes to them any more.
    pub linked_files: u64,
    /// Bytes of these, which take no space of their own.
    pub linked_bytes: u64,
    /// Files of the copy's own.
    pub copied_files: u64,
    /// Bytes that were written for these.
    pub copied_bytes: u64,
}

/// Copies a database from one disk to another, which is empty, durably. What nobody writes to any
/// more gets a second name where that can be ([`Disk::link`]). The checkpoints come last, so that a
/// copy that was cut short is not taken for a database. `progress` is told the bytes done.
pub fn copy_files(
    from: &dyn Disk,
    to: &dyn Disk,
    of: &BackupOf<'_>,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<BackupSizes, StoreError> {
    let mut copy = Copy {
        from,
        to,
        sizes: BackupSizes::default(),
        progress,
    };
    for sequence in of.checkpoints {
        // Before they can be gone.
        let name = checkpoint::name_of(*sequence);
        if from.exists(&name)? {
            copy.share_as(&name, &staged(&name))?;
        } else {
            let file = of.made_again.open(&name)?;
            copy.copy(&*file, &staged(&name), file.len()?)?;
        }
    }
    to.create_dir("segments")?;
    let files = of.segments.files();
    let newest = files.iter().map(|one| one.stats.sequence).max();
    for SegmentFile {
        stats,
        name,
        file,
        bytes,
    } in files
    {
        // Whoever writes may append to the newest one, and remove any: it is open here.
        let is_linked = match Some(stats.sequence) != newest {
            false => Ok(false),
            true => copy.link(&name, &name),
        };
        let is_linked = match is_linked {
            Err(StoreError::Disk(error)) if error.is_not_found() => false,
            linked => linked?,
        };
        if !is_linked {
            let copied = copy.copy(&*file, &name, bytes);
            copied.map_err(|error| match error {
                StoreError::Disk(error) if error.is_end_of_file() => StoreError::ReaderBehind {
                    what: format!("a page of {}", from.display_path(&name)),
                },
                error => error,
            })?;
        }
    }
    to.create_dir("log")?;
    for number in 1..=of.log_end.file {
        let name = block_log::name_of(number);
        // One that is missing is missing in the copy.
        if number < of.log_end.file && !from.exists(&name)? {
            continue;
        }
        // Were the newest lost, a repair would go on with the one before.
        if number + 1 < of.log_end.file {
            copy.share_as(&name, &name)?;
            continue;
        }
        let file = from.open(&name)?;
        let len = match number == of.log_end.file {
            true => of.log_end.offset.into(),
            false => file.len()?,
        };
        copy.copy(&*file, &name, len)?;
    }
    for name in [codes::NAME, block_index::NAME, manifest::NAME] {
        if from.exists(name)? {
            let file = from.open(name)?;
            copy.copy(&*file, name, file.len()?)?;
        }
    }
    for dir in ["segments", "log"] {
        to.sync_dir(dir)?;
    }
    let sizes = copy.sizes;
    for sequence in of.checkpoints {
        let name = checkpoint::name_of(*sequence);
        to.rename(&staged(&name), &name)?;
    }
    to.sync_dir("")?;
    Ok(sizes)
}

/// The name of a checkpoint while the rest is copied.
fn staged(name: &str) -> String {
    format!("{name}.tmp")
}

struct Copy<'a> {
    from: &'a dyn Disk,
    to: &'a dyn Disk,
    sizes: BackupSizes,
    progress: &'a mut dyn FnMut(&BackupSizes),
}

impl Copy<'_> {
    /// Gives a file that nobody writes to a second name, if that can be.
    fn link(&mut self, name: &str, as_name: &str) -> Result<bool, StoreError> {
        let is_linked = self.to.link(self.from, name, as_name)?;
        if is_linked {
            self.sizes.linked_files += 1;
            self.sizes.linked_bytes += self.to.open(as_name)?.len()?;
            (self.progress)(&self.sizes);
        }
        Ok(is_linked)
    }

    /// A file that nobody writes to.
    fn share_as(&mut self, name: &str, as_name: &str) -> Result<(), StoreError> {
        if !self.link(name, as_name)? {
            let file: Arc<dyn DiskFile> = self.from.open(name)?;
            self.copy(&*file, as_name, file.len()?)?;
        }
        Ok(())
    }

    /// The first `len` bytes of a file.
    fn copy(&mut self, file: &dyn DiskFile, as_name: &str, len: u64) -> Result<(), StoreError> {
        let to = self.to.create_with(as_name, Access::Cached)?;
        let mut piece = vec![0; PIECE_BYTES.min(len) as usize];
        let mut at = 0;
        while at < len {
            let take = PIECE_BYTES.min(len - at) as usize;
            file.read_at(&mut piece[..take], at)?;
            to.write_at(&piece[..take], at)?;
            at += take as u64;
            self.sizes.copied_bytes += take as u64;
            (self.progress)(&self.sizes);
        }
        to.sync()?;
        self.sizes.copied_files += 1;
        Ok(())
    }
}
