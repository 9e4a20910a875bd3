//! Copying a database while another process writes to it.

use crate::{
    Checkpoint, LogPosition, Segments, StoreError, Values, block_index, block_log, checkpoint,
    codes, files::open_if_exists, manifest, segments::SegmentFile, values,
};
use cambium_disk::{BackupSizes, Disk, DiskFile, FileCopier};
use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

/// Number of log files that are opened before large files are copied.
const LOG_FILES_OPEN: usize = 128;

/// Source of a backup.
#[derive(Debug)]
pub struct BackupSource<'a> {
    /// Sequence numbers of the checkpoints to copy, with all those on which they are based.
    pub checkpoints: &'a [u64],
    /// Disk with the checkpoints that are missing from the source, because an index was rebuilt in
    /// memory.
    pub rebuilt: &'a dyn Disk,
    /// The open segments that the newest of the checkpoints refers to.
    pub segments: &'a Segments,
    /// The open value segments, if the database has any. [`Values::refresh`] must have been called
    /// after the end of the log was determined.
    pub values: Option<&'a Values>,
    /// Start of the log that these checkpoints need.
    pub log_start: LogPosition,
    /// End of the log to copy.
    pub log_end: LogPosition,
}

impl BackupSource<'_> {
    /// Numbers of the log files to copy.
    fn log_files(&self) -> RangeInclusive<u32> {
        self.log_start.file..=self.log_end.file
    }
}

/// Copies a database from one disk to another, empty one. The copy is durable on return. Immutable
/// files are hard-linked if possible ([`Disk::link`]). The checkpoints get their names last, so
/// that an incomplete copy is not taken for a database. `progress` is called with the sizes so far.
///
/// # Errors
///
/// [`StoreError::ReaderBehind`] if the writer removed a file before it was copied, and
/// [`StoreError::Disk`] if a file can't be read or written.
pub fn copy_files(
    from: &dyn Disk,
    to: &dyn Disk,
    of: &BackupSource<'_>,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<BackupSizes, StoreError> {
    let files = FileCopier::new(from, to, progress);
    let mut copy = BackupCopy { from, to, files };
    copy.checkpoints(of)?;
    // Opened early, because the writer may remove old log files meanwhile.
    let log = open_log(from, of)?;
    copy.segments(of.segments)?;
    if let Some(values) = of.values {
        copy.values(values)?;
    }
    copy.log(of, log)?;
    for name in [codes::NAME, block_index::NAME, manifest::NAME] {
        if let Some(file) = open_if_exists(from, name)? {
            // The writer cuts off the block index where the chain has left it.
            let copied = copy.files.copy(&*file, name, file.len()?);
            copied.map_err(|error| behind_if_gone(from, name, error.into()))?;
        }
    }
    for dir in ["segments", "log"] {
        to.sync_dir(dir)?;
    }
    if of.values.is_some() {
        to.sync_dir(values::DIR)?;
    }
    let sizes = copy.files.sizes();
    for sequence in of.checkpoints {
        let name = checkpoint::name_of(*sequence);
        to.rename(&staged(&name), &name)?;
    }
    to.sync_dir("")?;
    Ok(sizes)
}

/// Opens the oldest log files of the source, by number.
fn open_log(from: &dyn Disk, of: &BackupSource<'_>) -> Result<OpenLogFiles, StoreError> {
    let mut log = BTreeMap::new();
    for number in of.log_files().take(LOG_FILES_OPEN) {
        if !is_lost(from, of, number)? {
            log.insert(number, from.open(&block_log::name_of(number))?);
        }
    }
    Ok(log)
}

/// Returns whether a missing log file was lost. Otherwise it was removed by retention: that takes
/// the oldest files first, after a checkpoint that is newer than those to copy.
fn is_lost(from: &dyn Disk, of: &BackupSource<'_>, number: u32) -> Result<bool, StoreError> {
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

/// Converts the error of a file that the writer removed or truncated before it was copied.
fn behind_if_gone(from: &dyn Disk, name: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Disk(error) if error.is_end_of_file() || error.is_not_found() => {
            let what = from.display_path(name);
            StoreError::ReaderBehind { what }
        }
        error => error,
    }
}

/// Name of a checkpoint until the copy is complete.
fn staged(name: &str) -> String {
    format!("{name}.tmp")
}

type OpenLogFiles = BTreeMap<u32, Arc<dyn DiskFile>>;

/// Copies the files of a database.
struct BackupCopy<'a> {
    from: &'a dyn Disk,
    to: &'a dyn Disk,
    files: FileCopier<'a>,
}

impl BackupCopy<'_> {
    /// Copies the checkpoints under temporary names.
    fn checkpoints(&mut self, of: &BackupSource<'_>) -> Result<(), StoreError> {
        for sequence in of.checkpoints {
            // They come first, because the writer may remove them.
            let name = checkpoint::name_of(*sequence);
            if self.from.exists(&name)? {
                self.share_as(&name, &staged(&name))?;
            } else {
                let file = of.rebuilt.open(&name)?;
                self.files.copy(&*file, &staged(&name), file.len()?)?;
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
            self.segment(&name, &*file, bytes, Some(stats.sequence) == newest)?;
        }
        Ok(())
    }

    fn values(&mut self, values: &Values) -> Result<(), StoreError> {
        self.to.create_dir(values::DIR)?;
        let files = values.files();
        let newest = files.iter().map(|one| one.number).max();
        for one in files {
            let is_newest = Some(one.number) == newest;
            self.segment(&one.name, &*one.file, one.bytes, is_newest)?;
        }
        Ok(())
    }

    /// Links or copies a segment. The writer may append to the newest one, and remove any. Removed
    /// ones are still open here.
    fn segment(
        &mut self,
        name: &str,
        file: &dyn DiskFile,
        bytes: u64,
        is_newest: bool,
    ) -> Result<(), StoreError> {
        if is_newest || !self.link_if_exists(name)? {
            let copied = self.files.copy(file, name, bytes);
            copied.map_err(|error| behind_if_gone(self.from, name, error.into()))?;
        }
        Ok(())
    }

    /// Copies the log files. Those in `open` are already open.
    fn log(&mut self, of: &BackupSource<'_>, mut open: OpenLogFiles) -> Result<(), StoreError> {
        self.to.create_dir("log")?;
        for number in of.log_files() {
            let name = block_log::name_of(number);
            // A lost file is missing from the copy, too.
            if !open.contains_key(&number) && is_lost(self.from, of, number)? {
                continue;
            }
            // The last two are copied, not linked: if the newest is lost, a repair continues in the
            // one before.
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
        of: &BackupSource<'_>,
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
            // Not even a header: the writer truncated the file because readers were too far behind.
            0 => Err(StoreError::ReaderBehind {
                what: self.from.display_path(&name),
            }),
            len => Ok(self.files.copy(&*file, &name, len)?),
        }
    }

    /// Links a file under the same name. Returns false also if the file does not exist.
    fn link_if_exists(&mut self, name: &str) -> Result<bool, StoreError> {
        match self.files.link(name, name) {
            Err(error) if error.is_not_found() => Ok(false),
            linked => Ok(linked?),
        }
    }

    /// Links an immutable file, or copies it if that is impossible.
    fn share_as(&mut self, name: &str, as_name: &str) -> Result<(), StoreError> {
        if !self.files.link(name, as_name)? {
            let file: Arc<dyn DiskFile> = self.from.open(name)?;
            self.files.copy(&*file, as_name, file.len()?)?;
        }
        Ok(())
    }
}
