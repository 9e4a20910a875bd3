//! Copying the files of a list, while another process merges them.

use crate::RunError;
use cambium_disk::{Access, Disk, DiskError, DiskFile, FileCopier};
use std::sync::Arc;

/// Attempts to get the files of a list beside a process that merges them. Each needs only what has been merged
/// since the one before.
pub const ATTEMPTS: usize = 64;

/// Repeats `attempt` up to `attempts` times while `is_missing` holds for its error: a file was removed.
///
/// # Errors
///
/// The error of the last attempt.
pub fn while_missing<T, E>(
    attempts: usize,
    is_missing: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..attempts {
        match attempt() {
            Err(error) if is_missing(&error) => {}
            done => return done,
        }
    }
    attempt()
}

/// A file of the original that can be removed there now.
pub enum HeldFile {
    /// It is linked already.
    Linked,
    /// It is open, and is going to be copied.
    Open(Arc<dyn DiskFile>),
}

/// Links an immutable file to the copy, or opens it if that is impossible.
///
/// # Errors
///
/// [`RunError::Missing`] if it was removed, and errors of the disks.
pub fn hold_file(
    from: &dyn Disk,
    copier: &mut FileCopier<'_>,
    name: &str,
) -> Result<HeldFile, RunError> {
    let held = match copier.link(name, name) {
        Ok(true) => Ok(HeldFile::Linked),
        Ok(false) => from.open_with(name, Access::Cached).map(HeldFile::Open),
        Err(error) => Err(error),
    };
    held.map_err(|error| missing_if_gone(from, name, error))
}

/// Links an immutable file to the copy, or copies it. With `len`, the file may be written to, and its first `len`
/// bytes are copied.
///
/// # Errors
///
/// [`RunError::Missing`] if it was removed, and errors of the disks.
pub fn share_file(
    from: &dyn Disk,
    copier: &mut FileCopier<'_>,
    name: &str,
    len: Option<u64>,
) -> Result<(), RunError> {
    let held = match len {
        None => hold_file(from, copier, name)?,
        Some(_) => HeldFile::Open(
            from.open_with(name, Access::Cached)
                .map_err(|error| missing_if_gone(from, name, error))?,
        ),
    };
    if let HeldFile::Open(file) = held {
        let len = match len {
            Some(len) => len,
            None => file.len()?,
        };
        copier.copy(&*file, name, len)?;
    }
    Ok(())
}

fn missing_if_gone(from: &dyn Disk, name: &str, error: DiskError) -> RunError {
    match error.is_not_found() {
        true => RunError::Missing {
            file: from.display_path(name),
        },
        false => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_disk::FaultyDisk;

    #[test]
    fn a_file_that_is_gone_is_looked_for_in_the_next_list() {
        let (from, to) = (FaultyDisk::new(1), FaultyDisk::new(2));
        from.create("merged").unwrap().write_at(b"run", 0).unwrap();
        let mut ignore = |_: &_| {};
        let mut copier = FileCopier::new(&from, &to, &mut ignore);
        let is_missing = |error: &RunError| matches!(error, RunError::Missing { .. });
        let mut lists = ["gone", "gone", "merged"].iter();
        let mut attempt = || share_file(&from, &mut copier, lists.next().unwrap(), None);
        while_missing(3, is_missing, &mut attempt).unwrap();
        assert_eq!(to.contents("merged").unwrap(), b"run");

        let mut attempts = 0;
        let ended = while_missing(5, is_missing, || {
            attempts += 1;
            share_file(&from, &mut copier, "gone", None)
        });
        assert!(matches!(ended, Err(RunError::Missing { file }) if file == "gone"));
        assert_eq!(attempts, 5);
        from.create("growing")
            .unwrap()
            .write_at(b"more", 0)
            .unwrap();
        share_file(&from, &mut copier, "growing", Some(2)).unwrap();
        assert_eq!(to.contents("growing").unwrap(), b"mo");
        assert_eq!(copier.sizes().copied_bytes, 5);
    }
}
