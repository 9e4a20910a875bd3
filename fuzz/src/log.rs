//! The block log: files with intact, torn, damaged and misplaced records.

use crate::{checkpoint::write, input::Input};
use cambium_disk::{Disk, FaultyDisk};
use cambium_store::{BlockLog, LogOptions, LogPosition, StoreError};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SALT: u64 = 0x5a17;
const OPTIONS: LogOptions = LogOptions {
    file_bytes_max: 1 << 20,
    extend_bytes: 0,
    salt: SALT,
};
const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 40;
const MARK: u8 = 0xf0;
const END: u8 = 0xf1;
const GAP: u8 = 0xf2;

/// A record that was written to a file for the log's user.
#[derive(Clone, Debug)]
struct Put {
    position: LogPosition,
    kind: u8,
    payload: Vec<u8>,
    is_whole: bool,
}

/// Input: up to three files. Each has a byte of flags for faults in its header and its end (with
/// two more bytes for a wrong length in the header), records, and a number of zeros that follow.
/// Each record has a kind, a kind of damage, the position up to which everything is durable, and a
/// payload. Checksums are correct unless the input says otherwise.
///
/// A log that opens has exactly the intact records before its end, none of them damaged, and can be
/// appended to, also after a crash. Otherwise the error names the file, and the log opens after a
/// repair.
pub fn log(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let disk = FaultyDisk::new(1);
    disk.create_dir("log").expect("a disk that works");
    let mut puts = Vec::new();
    let count = input.below(3) as u32 + 1;
    let (mut previous_bytes, mut lies) = (0, false);
    for number in 1..=count {
        let file = file_of(
            &mut input,
            number,
            count,
            previous_bytes,
            &mut puts,
            &mut lies,
        );
        previous_bytes = file.1;
        let name = format!("log/{number:08}.log");
        if let Some(bytes) = file.0 {
            write(&disk, &name, &bytes);
        }
    }
    let disk = disk.duplicate();
    match open(&disk, LogPosition::START) {
        Ok((log, end)) => {
            check_records(&log, &puts, end);
            drop(log);
            check_later_starts(&disk, &puts, end);
            go_on(disk, &puts, end);
        }
        Err(error) => {
            check_error(&error);
            if let Err(error) = repair(&disk) {
                return check_error(&error);
            }
            let (log, end) = match open(&disk, LogPosition::START) {
                Ok(opened) => opened,
                // A wrong length with a correct checksum can't be accidental.
                Err(error) if lies => return check_error(&error),
                Err(error) => panic!("after its repair: {error}"),
            };
            let found = records(&log);
            let is_known = |record: &(LogPosition, u8, Vec<u8>)| {
                puts.iter().any(|put| {
                    (put.position, put.kind, &put.payload) == (record.0, record.1, &record.2)
                })
            };
            assert!(found.iter().all(is_known), "a repair made up a record");
            drop(log);
            let whole = puts
                .iter()
                .filter(|put| found.iter().any(|it| it.0 == put.position));
            let whole: Vec<_> = whole.cloned().collect();
            go_on(disk, &whole, end);
        }
    }
}

fn open(disk: &FaultyDisk, from: LogPosition) -> Result<(BlockLog, LogPosition), StoreError> {
    let (log, recovery) = BlockLog::open(Arc::new(disk.clone()), OPTIONS, from)?;
    Ok((log, recovery.end))
}

fn records(log: &BlockLog) -> Vec<(LogPosition, u8, Vec<u8>)> {
    log.scan(LogPosition::START)
        .map(|record| {
            let (position, record) = record.expect("all before the end is whole");
            assert_eq!(log.read(position).as_ref().ok(), Some(&record));
            (position, record.kind, record.payload)
        })
        .collect()
}

fn check_error(error: &StoreError) {
    assert!(error.is_corruption(), "{error}");
    assert!(error.to_string().contains("log/0000000"), "{error}");
}

fn check_records(log: &BlockLog, puts: &[Put], end: LogPosition) {
    let before = puts.iter().filter(|put| put.position < end);
    let expected = before.clone().filter(|put| put.is_whole);
    let expected = expected.map(|put| (put.position, put.kind, put.payload.clone()));
    assert!(
        records(log).into_iter().eq(expected),
        "other records than were put"
    );
    let damaged = before.clone().find(|put| !put.is_whole);
    assert!(damaged.is_none(), "a damaged record passes: {damaged:?}");
}

/// Opens the log from each position that a checkpoint may have.
fn check_later_starts(disk: &FaultyDisk, puts: &[Put], end: LogPosition) {
    let whole = puts.iter().filter(|put| put.is_whole && put.position < end);
    for put in whole.take(3) {
        match open(disk, put.position) {
            Ok((_, other)) => assert_eq!(other, end, "another end from {:?}", put.position),
            Err(error) => check_error(&error),
        }
    }
}

/// Appends a record, and checks that it and all earlier ones are read.
fn go_on(disk: FaultyDisk, puts: &[Put], end: LogPosition) {
    let (log, _) = open(&disk, LogPosition::START).expect("it was open before");
    log.settle().expect("a disk that works");
    let position = log.append(9, &[b"new"]).expect("a disk that works");
    assert_eq!(position, end);
    log.sync().expect("a disk that works");
    drop(log);
    let disk = disk.crash();
    let (log, end) = open(&disk, LogPosition::START).expect("a log that was just written");
    let mut puts: Vec<_> = puts
        .iter()
        .filter(|put| put.position < position)
        .cloned()
        .collect();
    puts.push(Put {
        position,
        kind: 9,
        payload: b"new".to_vec(),
        is_whole: true,
    });
    check_records(&log, &puts, end);
}

/// Cuts out all damage, as a repair of a database does. It may reject what can't be accidental.
fn repair(disk: &FaultyDisk) -> Result<(), StoreError> {
    let mut all = Vec::new();
    for _ in 0..64 {
        let found = BlockLog::find_damage(disk, SALT, Some(LogPosition::START), &[])?;
        let new: Vec<_> = found
            .damage
            .into_iter()
            .filter(|one| !all.contains(one))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        for damage in new {
            let name = format!("copy-{}", all.len());
            let copy = disk.create(&name).expect("a new name");
            BlockLog::cut_out(disk, SALT, &[], &damage, &*copy)?;
            all.push(damage);
        }
    }
    panic!("a repair without an end");
}

/// Builds a file, unless it is missing, and returns the end of its records.
fn file_of(
    input: &mut Input<'_>,
    number: u32,
    last: u32,
    previous_bytes: u32,
    puts: &mut Vec<Put>,
    lies: &mut bool,
) -> (Option<Vec<u8>>, u32) {
    let how = input.u8();
    *lies |= how & 2 != 0;
    let claimed = match how & 2 {
        0 => previous_bytes,
        _ => input.u16().into(),
    };
    let mut file = header_of(number, claimed);
    if how & 1 != 0 {
        file[20] ^= 1;
    }
    let is_there = how & 0x10 == 0 || number == 1;
    for _ in 0..input.below(6) {
        let put = put_record(input, number, &mut file);
        puts.extend(put.map(|put| Put {
            is_whole: put.is_whole && is_there,
            ..put
        }));
    }
    let is_ended = (number < last) != (how & 4 != 0);
    if is_ended {
        put_frame(&mut file, number, END, u64::MAX, &[]);
    }
    // The next file has the length of this one, which has lost its end record.
    let len = file.len() + if is_ended { 0 } else { FRAME_BYTES };
    file.resize(file.len() + input.below(16) * 8, 0);
    if how & 8 != 0 {
        file[..HEADER_BYTES].fill(0);
    }
    (is_there.then_some(file), len as u32)
}

fn put_record(input: &mut Input<'_>, number: u32, file: &mut Vec<u8>) -> Option<Put> {
    let (kind, how, durable) = (input.u8(), input.u8(), input.u8());
    let payload = input.piece();
    let offset = file.len();
    let position = LogPosition {
        file: number,
        offset: offset as u32,
    };
    if how & 0x10 != 0 {
        file.extend_from_slice(payload);
        file.resize(file.len().next_multiple_of(8), 0);
        return None;
    }
    let durable_to = match durable {
        0 => 0,
        0xf0.. => u64::MAX,
        back => position.to_u64().saturating_sub(u64::from(back - 1) * 8),
    };
    let (kind, payload) = match kind {
        0xf8.. => (GAP, payload),
        MARK.. => (MARK, &[][..]),
        kind if payload.is_empty() => (kind, &b"-"[..]),
        kind => (kind, payload),
    };
    put_frame(file, number, kind, durable_to, payload);
    let whole = file[offset..].to_vec();
    let last = file.len() - 1;
    match how & 0xf {
        0..=7 => {}
        8 | 9 => file[offset + 24] ^= 1,
        10 | 11 => file[offset + FRAME_BYTES.min(last - offset)] ^= 0x80,
        // Nothing after it moves, since records contain their positions.
        12 => file[offset + FRAME_BYTES - 8..].fill(0),
        13 => file[offset..].fill(0),
        14 => file[offset] ^= 1,
        _ => file[last - 7..].fill(0),
    }
    let is_user = kind < MARK;
    is_user.then(|| Put {
        position,
        kind,
        payload: payload.to_vec(),
        is_whole: file[offset..] == whole,
    })
}

/// Appends a record. `durable_to` may claim that everything before it was durable.
fn put_frame(file: &mut Vec<u8>, number: u32, kind: u8, durable_to: u64, payload: &[u8]) {
    let start = file.len();
    let position = u64::from(number) << 32 | start as u64;
    file.extend([0; 8]);
    file.extend(b"CbRc");
    file.extend([kind, 0, 0, 0]);
    file.extend(position.to_le_bytes());
    file.extend(durable_to.min(position).to_le_bytes());
    file.extend((payload.len() as u32).to_le_bytes());
    let sum = xxh3_64_with_seed(&file[start + 8..], SALT) as u32;
    file.extend(sum.to_le_bytes());
    file.extend_from_slice(payload);
    let sum = xxh3_64_with_seed(&file[start + 8..], SALT);
    file[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    file.resize(file.len().next_multiple_of(8), 0);
}

fn header_of(number: u32, previous_bytes: u32) -> Vec<u8> {
    let mut header = b"CambiLog".to_vec();
    header.extend(2u32.to_le_bytes());
    header.extend(number.to_le_bytes());
    header.extend(u64::from(previous_bytes).to_le_bytes());
    let sum = xxh3_64_with_seed(&header, SALT);
    header.extend(sum.to_le_bytes());
    header
}
