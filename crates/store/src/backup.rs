//! A copy of a database's files, beside whoever writes to it.

use crate::{
    Checkpoint, LogPosition, Segments, StoreError, block_index, block_log, checkpoint, codes,
    files::{copy_range, open_if_exists},
    manifest,
    segments::SegmentFile,
};
use cambium_disk::{Access, Disk, DiskFile};
use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

/// So many files of the log are opened before anything large is copied.
const LOG_FILES_OPEN: usize = 128;

/// What a backup is of.
#[derive(Debug)]
pub struct BackupOf<'a> {
    /// Checkpoints, with all that they are on.
    pub checkpoints: &'a [u64],
    /// Where those are that are not on the disk itself: an index that was made again is in memory.
    pub made_again: &'a dyn Disk,
    /// The segments that the newest of them names, open.
    pub segments: &'a Segments,
    /// Where the log begins that these checkpoints need.
    pub log_start: LogPosition,
    /// Where it ends.
    pub log_end: LogPosition,
}

impl BackupOf<'_> {
    /// Numbers of the log's files.
    fn log_files(&self) -> RangeInclusive<u32> {
        self.log_start.file..=self.log_end.file
    }
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
    copy.checkpoints(of)?;
    // Whoever writes may let old ones go.
    let log = open_log(from, of)?;
    copy.segments(of.segments)?;
    copy.log(of, log)?;
    for name in [codes::NAME, block_index::NAME, manifest::NAME] {
        if let Some(file) = open_if_exists(from, name)? {
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

/// The oldest files of the log, open, by their numbers.
fn open_log(from: &dyn Disk, of: &BackupOf<'_>) -> Result<OpenLogFiles, StoreError> {
    let mut log = BTreeMap::new();
    for number in of.log_files().take(LOG_FILES_OPEN) {
        if !is_lost(from, of, number)? {
            log.insert(number, from.open(&block_log::name_of(number))?);
        }
    }
    Ok(log)
}

/// Whether a file of the log is missing that had to be there: those that leave do so in their order,
/// after a checkpoint that is newer than those which are copied.
fn is_lost(from: &dyn Disk, of: &BackupOf<'_>, number: u32) -> Result<bool, StoreError> {
    if number == of.log_end.file || from.exists(&block_log::name_of(number))? {
        return Ok(false);
    }
    let mut before = of.log_start.file..number;
    let is_any_before = before.any(|older| {
        let name = block_log::name_of(older);
        from.exists(&name).unwrap_or(false)
    });
    let newest = Checkpoint::newest(from)?;
    Ok(is_any_before || newest <= of.checkpoints.last().copied())
}

/// The error of a file that whoever writes has removed, or cut off, before it was copied.
fn behind_if_gone(from: &dyn Disk, name: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Disk(error) if error.is_end_of_file() || error.is_not_found() => {
            let what = from.display_path(name);
            StoreError::ReaderBehind { what }
        }
        error => error,
    }
}

/// The name of a checkpoint while the rest is copied.
fn staged(name: &str) -> String {
    format!("{name}.tmp")
}

type OpenLogFiles = BTreeMap<u32, Arc<dyn DiskFile>>;

struct Copy<'a> {
    from: &'a dyn Disk,
    to: &'a dyn Disk,
    sizes: BackupSizes,
    progress: &'a mut dyn FnMut(&BackupSizes),
}

impl Copy<'_> {
    /// The checkpoints, under other names until all else is there.
    fn checkpoints(&mut self, of: &BackupOf<'_>) -> Result<(), StoreError> {
        for sequence in of.checkpoints {
            // Before they can be gone.
            let name = checkpoint::name_of(*sequence);
            if self.from.exists(&name)? {
                self.share_as(&name, &staged(&name))?;
            } else {
                let file = of.made_again.open(&name)?;
                self.copy(&*file, &staged(&name), file.len()?)?;
            }
        }
        Ok(())
    }

    fn segments(&mut self, segments: &Segments) -> Result<(), StoreError> {
        self.to.create_dir("segments")?;
        let files = segments.files();
        let newest = files.iter().map(|one| one.stats.sequence).max();
        for SegmentFile {
            stats,
            name,
            file,
            bytes,
        } in files
        {
            // Whoever writes may append to the newest one, and remove any: it is open here.
            let is_newest = Some(stats.sequence) == newest;
            if is_newest || !self.link_if_exists(&name)? {
                let copied = self.copy(&*file, &name, bytes);
                copied.map_err(|error| behind_if_gone(self.from, &name, error))?;
            }
        }
        Ok(())
    }

    /// The files of the log, of which those in `open` are open.
    fn log(&mut self, of: &BackupOf<'_>, mut open: OpenLogFiles) -> Result<(), StoreError> {
        self.to.create_dir("log")?;
        for number in of.log_files() {
            let name = block_log::name_of(number);
            // One that is missing is missing in the copy.
            if !open.contains_key(&number) && is_lost(self.from, of, number)? {
                continue;
            }
            // Were the newest lost, a repair would go on with the one before.
            if number + 1 < of.log_end.file && self.link_if_exists(&name)? {
                continue;
            }
            let copied = self.log_file(of, number, open.remove(&number));
            copied.map_err(|error| behind_if_gone(self.from, &name, error))?;
        }
        Ok(())
    }

    fn log_file(
        &mut self,
        of: &BackupOf<'_>,
        number: u32,
        open: Option<Arc<dyn DiskFile>>,
    ) -> Result<(), StoreError> {
        let name = block_log::name_of(number);
        let file = match open {
            Some(file) => file,
            None => self.from.open(&name)?,
        };
        let len = match number == of.log_end.file {
            true => of.log_end.offset.into(),
            false => file.len()?,
        };
        match len {
            // Not even a header: it was cut off for those who are too far behind.
            0 => Err(StoreError::ReaderBehind {
                what: self.from.display_path(&name),
            }),
            len => self.copy(&*file, &name, len),
        }
    }

    /// As [`Self::link`], under the same name. False as well if there is no such file any more.
    fn link_if_exists(&mut self, name: &str) -> Result<bool, StoreError> {
        match self.link(name, name) {
            Err(StoreError::Disk(error)) if error.is_not_found() => Ok(false),
            linked => linked,
        }
    }

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
        copy_range(file, 0..len, &*to, 0, |bytes| {
            self.sizes.copied_bytes += bytes;
            (self.progress)(&self.sizes);
        })?;
        to.sync()?;
        self.sizes.copied_files += 1;
        Ok(())
    }
}
