//! Files of a disk as text, which shows what is where and which review tools compare line by line.
//!
//! ```text
//! file NAME LENGTH
//! OFFSET  up to 32 bytes     in hexadecimal; lines of zeros are left out, and so are zeros at the end of a line
//! ```

use alloy_primitives::hex;
use cambium_state::{Disk, FaultyDisk};
use std::{collections::BTreeMap, fmt::Write};

const LINE_BYTES: usize = 32;

/// Files by their names.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// All files of a disk but locks, which are empty.
pub(crate) fn files_of(disk: &FaultyDisk) -> Files {
    let names = disk.files().into_iter();
    let names = names.filter(|name| !name.to_lowercase().ends_with("lock"));
    let with_bytes = names.map(|name| {
        let bytes = disk.contents(&name).unwrap();
        (name, bytes)
    });
    with_bytes.collect()
}

/// A disk with these files.
pub(crate) fn disk_of(files: &Files) -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    for (name, bytes) in files {
        if let Some((dir, _)) = name.rsplit_once('/') {
            disk.create_dir(dir).unwrap();
        }
        let file = disk.create(name).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync().unwrap();
    }
    disk.duplicate()
}

pub(crate) fn encode(files: &Files) -> String {
    let mut out = String::new();
    for (name, bytes) in files {
        writeln!(out, "file {name} {}", bytes.len()).unwrap();
        for (line, bytes) in bytes.chunks(LINE_BYTES).enumerate() {
            let end = bytes.iter().rposition(|byte| *byte != 0);
            if let Some(end) = end {
                let offset = line * LINE_BYTES;
                writeln!(out, "{offset:06x}  {}", hex::encode(&bytes[..=end])).unwrap();
            }
        }
    }
    out
}

pub(crate) fn decode(text: &str) -> Files {
    let mut files = Files::new();
    let mut name = String::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().expect("a line with words");
        if first == "file" {
            words.next().expect("a name").clone_into(&mut name);
            let len = words.next().and_then(|len| len.parse().ok());
            files.insert(name.clone(), vec![0; len.expect("a length")]);
        } else {
            let offset = usize::from_str_radix(first, 16).expect("an offset");
            let bytes = hex::decode(words.next().expect("bytes")).expect("hexadecimal digits");
            let file = files.get_mut(&name).expect("a file before its bytes");
            file[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }
    files
}

/// Says where the files that are written now differ from the golden ones: file, offset and bytes.
pub(crate) fn differences(golden: &Files, written: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for name in golden.keys().filter(|name| !written.contains_key(*name)) {
        found.push(format!("{name} is not written any more"));
    }
    for (name, bytes) in written {
        let Some(old) = golden.get(name) else {
            found.push(format!("{name} is not among the golden files"));
            continue;
        };
        if old.len() != bytes.len() {
            found.push(format!(
                "{name} has {} bytes, its golden file {}",
                bytes.len(),
                old.len()
            ));
        }
        let first = old.iter().zip(bytes).position(|(old, new)| old != new);
        if let Some(at) = first {
            let (old, new) = (line_at(old, at), line_at(bytes, at));
            found.push(format!(
                "{name} differs from offset {at} ({at:#x}) on:\n  golden  {old}\n  written {new}"
            ));
        }
    }
    found
}

fn line_at(bytes: &[u8], at: usize) -> String {
    hex::encode(&bytes[at..bytes.len().min(at + LINE_BYTES)])
}
