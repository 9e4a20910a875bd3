//! Names of checkpoint files, and which of the files can be used.

use crate::StoreError;
use cambium_disk::Disk;

const PREFIX: &str = "checkpoint-";
pub(super) const TEMPORARY: &str = ".tmp";
pub(super) const DAMAGED: &str = ".damaged";

/// Returns the sequence numbers of the checkpoints from which the database can be opened, the
/// newest first. Only the last two qualify, because files that older ones need may be gone. A
/// checkpoint that was set aside since counts as one of the two.
pub(super) fn usable(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
    let aside = disk.list("")?.into_iter().filter_map(|name| {
        let (sequence, ending) = sequence_of(&name)?;
        (ending == DAMAGED).then_some(sequence)
    });
    let aside = aside.max().unwrap_or(0);
    let mut usable = sequences(disk)?;
    usable.reverse();
    let newest = usable.first().copied().unwrap_or(0);
    usable.truncate(if newest > aside { 2 } else { 1 });
    Ok(usable)
}

/// Returns the sequence numbers of all checkpoint files, in ascending order.
pub(super) fn sequences(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
    let names = disk.list("")?;
    let whole = names.iter().filter_map(|name| sequence_of(name));
    let mut sequences: Vec<u64> = whole
        .filter(|(_, ending)| ending.is_empty())
        .map(|(sequence, _)| sequence)
        .collect();
    sequences.sort_unstable();
    Ok(sequences)
}

/// Returns the name of the checkpoint with this sequence number.
pub(crate) fn name_of(sequence: u64) -> String {
    format!("{PREFIX}{sequence:08}")
}

/// Returns whether a file of this name is a checkpoint.
pub(crate) fn is_checkpoint(name: &str) -> bool {
    sequence_of(name).is_some_and(|(_, ending)| ending.is_empty())
}

/// Parses a file name into the sequence number and the suffix.
pub(super) fn sequence_of(name: &str) -> Option<(u64, &str)> {
    let number = name.strip_prefix(PREFIX)?;
    let digits = number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len());
    let sequence = number[..digits]
        .parse()
        .ok()
        .filter(|&sequence| sequence < u64::MAX)?;
    name.starts_with(&name_of(sequence))
        .then(|| (sequence, &number[digits..]))
}
