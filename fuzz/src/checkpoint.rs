//! Checkpoint files as the store reads them: directory and sections.

use crate::input::Input;
use cambium_disk::{Disk, FaultyDisk};
use cambium_store::{Checkpoint, CheckpointWriter, StoreError};
use std::{collections::BTreeSet, sync::Arc};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const NAME: &str = "checkpoint-00000002";
const HEADER_BYTES: usize = 24;
const TRAILER_BYTES: usize = 24;
const FORMAT: u32 = 5;

/// Input: a byte whose bit 0 keeps the checksums of sections, then the file of checkpoint 2, whose
/// header and other checksums are corrected.
///
/// If the checkpoint opens, its sections are read, whole and in pieces, as they are in the file,
/// and writing them gives the same file. Otherwise the error is one of damage, and names the file.
pub fn checkpoint(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let seals_sections = input.u8() & 1 == 0;
    let file = sealed(input.rest(), seals_sections);
    let disk = disk_with_first();
    write(&disk, NAME, &file);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let checkpoint = match Checkpoint::open(&disk, 2) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return check_error(&error, &file),
    };
    let names: Vec<_> = checkpoint.sections().map(str::to_owned).collect();
    let unique: BTreeSet<_> = names.iter().collect();
    let mut contents = Vec::new();
    for name in &unique {
        let len = checkpoint
            .section_len(name)
            .expect("a section that is named");
        let section = checkpoint.read_section(name);
        let pieces = checkpoint
            .read_pieces(name)
            .expect("a section that is named");
        let piece = pieces.read(0, len).expect("all of a section");
        assert!(pieces.read(1, len).is_err(), "more than a section has");
        assert_eq!(section.is_ok(), checkpoint.verify_section(name).is_ok());
        match section {
            Ok(section) => assert_eq!(section, piece),
            Err(error) => check_error(&error, &file),
        }
        assert!(!seals_sections || checkpoint.verify_section(name).is_ok());
        contents.push(piece);
    }
    let verified = checkpoint.verify();
    if let Err(error) = &verified {
        assert!(error.is_corruption(), "{error}");
    }
    let before = checkpoint.id().before();
    let is_on_first = matches!(before, None | Some(1));
    if !seals_sections || unique.len() < names.len() || !is_on_first || verified.is_err() {
        return;
    }
    let disk = disk_with_first();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = match before {
        None => CheckpointWriter::create(shared, None),
        Some(_) => {
            let first = Checkpoint::open(&shared, 1).expect("the first");
            CheckpointWriter::create_incremental(shared, first.id())
        }
    }
    .expect("an empty disk");
    let contents: Vec<_> = unique.into_iter().zip(contents).collect();
    for name in names
        .iter()
        .filter(|name| before.is_none() || *name != "on")
    {
        let (_, content) = contents
            .iter()
            .find(|(other, _)| *other == name)
            .expect("read before");
        writer.section(name).expect("an empty disk");
        writer.write(content).expect("an empty disk");
    }
    writer.finish().expect("an empty disk");
    let is_on_at = names.iter().position(|name| name == "on");
    if is_on_at.is_none_or(|at| at == 0) {
        let again = disk.contents(NAME).expect("just written");
        assert_eq!(again, file, "another file of the same sections");
    }
}

fn check_error(error: &StoreError, file: &[u8]) {
    let format = file
        .get(8..12)
        .map(|bytes| bytes.try_into().expect("4 bytes"));
    let format = format.map_or(0, u32::from_le_bytes);
    match error {
        StoreError::NewerFormat { file, found, .. } => {
            assert!(*found == format && format > FORMAT && file.contains(NAME));
        }
        StoreError::OlderFormat { file, found, .. } => {
            assert!(*found == format && format < FORMAT && file.contains(NAME));
        }
        error => {
            assert!(error.is_corruption(), "{error}");
            assert!(error.to_string().contains(NAME), "{error}");
        }
    }
}

/// Creates a disk with checkpoint 1, which can be the base of others.
fn disk_with_first() -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    let writer = CheckpointWriter::create(Arc::new(disk.clone()), None);
    let mut writer = writer.expect("an empty disk");
    writer.section("index").expect("an empty disk");
    writer
        .write(b"what the first one has")
        .expect("an empty disk");
    writer.finish().expect("an empty disk");
    disk
}

/// Writes a file, and replaces an existing one.
pub(crate) fn write(disk: &FaultyDisk, name: &str, bytes: &[u8]) {
    if disk.exists(name).expect("a disk that works") {
        disk.remove(name).expect("a disk that works");
    }
    let file = disk.create(name).expect("a disk that works");
    file.write_at(bytes, 0).expect("a disk that works");
}

/// Returns the file with a correct header and checksums.
fn sealed(bytes: &[u8], seals_sections: bool) -> Vec<u8> {
    let mut file = bytes.to_vec();
    let Some(directory_end) = file.len().checked_sub(TRAILER_BYTES) else {
        return file;
    };
    if directory_end < HEADER_BYTES {
        return file;
    }
    file[..8].copy_from_slice(b"CambiCkp");
    file[12..24].copy_from_slice(&[0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let start = file[directory_end..directory_end + 8].try_into();
    let start = u64::from_le_bytes(start.expect("8 bytes"));
    let Ok(start) = usize::try_from(start) else {
        return file;
    };
    if !(HEADER_BYTES..=directory_end).contains(&start) {
        return file;
    }
    if seals_sections {
        seal_sections(&mut file, start, directory_end);
    }
    let mut hasher = Xxh3::new();
    hasher.update(&file[..HEADER_BYTES]);
    hasher.update(&file[start..directory_end + 16]);
    let sum = hasher.digest();
    file[directory_end + 16..].copy_from_slice(&sum.to_le_bytes());
    file
}

fn seal_sections(file: &mut [u8], start: usize, directory_end: usize) {
    let (mut at, mut offset) = (start, HEADER_BYTES);
    while at < directory_end {
        let len_at = at + 1 + usize::from(file[at]);
        if len_at + 16 > directory_end {
            return;
        }
        let len = file[len_at..len_at + 8].try_into().expect("8 bytes");
        let Ok(len) = usize::try_from(u64::from_le_bytes(len)) else {
            return;
        };
        let Some(section) = file.get(offset..offset.saturating_add(len)) else {
            return;
        };
        let sum = xxh3_64(section);
        file[len_at + 8..len_at + 16].copy_from_slice(&sum.to_le_bytes());
        (at, offset) = (len_at + 16, offset + len);
    }
}
