//! Records of the block log that the engine writes: blocks, and moves of the head.

use crate::{
    database::{open, options, template, use_all},
    input::Input,
};
use cambium_disk::Disk;
use cambium_store::{BlockLog, LogOptions, LogPosition, Manifest};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const KIND_BLOCK: u8 = 1;
/// Length of the part of a block's head that the checksum covers, in bytes.
pub(crate) const HEAD_BYTES: usize = 105;

/// Input: a byte whose bit 0 selects the database, and whose other bits select what is done with
/// it; then up to three records, each with a kind, a byte of flags (bit 0: link it to the head or
/// to the previous record; bit 1: keep the checksum of its head) and a payload. The records are
/// appended to the log of the database in its own way.
///
/// The database opens in any case, and skips records that make no sense. A block that it has is as
/// in its record. All other answers are true, or errors of damage.
pub fn block_record(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.u8();
    let template = template(how & 1 != 0);
    let disk = template.disk.duplicate();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let salt = Manifest::open(&*shared).expect("a sound one").salt();
    let log_options = LogOptions {
        extend_bytes: 0,
        salt,
        ..LogOptions::default()
    };
    let (log, _) = BlockLog::open(shared, log_options, LogPosition::START).expect("a sound one");
    log.settle().expect("a disk that works");
    let (mut number, mut parent) = (template.head.number, template.head.hash);
    let mut payloads = Vec::new();
    for _ in 0..3 {
        if input.is_empty() {
            break;
        }
        let (kind, how) = (input.u8(), input.u8());
        let mut payload = input.piece().to_vec();
        if kind >= 0xf0 || payload.is_empty() {
            continue;
        }
        if kind == KIND_BLOCK && payload.len() >= HEAD_BYTES + 8 {
            if how & 1 != 0 {
                number += 1;
                payload[1..9].copy_from_slice(&number.to_le_bytes());
                payload[41..73].copy_from_slice(parent.as_slice());
                parent.copy_from_slice(&payload[9..41]);
            }
            if how & 2 == 0 {
                let sum = xxh3_64(&payload[..HEAD_BYTES]);
                payload[HEAD_BYTES..HEAD_BYTES + 8].copy_from_slice(&sum.to_le_bytes());
            }
        }
        log.append(kind, &[&payload]).expect("a disk that works");
        payloads.push(payload);
    }
    log.sync().expect("a disk that works");
    drop(log);

    let (db, notes) = open(&disk, options(None)).expect("no record keeps it from opening");
    let head = db.head();
    if head != template.head {
        let hash = head.hash.as_slice();
        let of_head = |payload: &&Vec<u8>| payload.len() > HEAD_BYTES && &payload[9..41] == hash;
        if let Some(payload) = payloads.iter().find(of_head) {
            check_block(&db, head.number, payload);
        }
    } else if payloads.is_empty() {
        assert!(notes.is_empty(), "{notes:?}");
    }
    use_all(&db, template, how);
}

/// Checks that a block from the log equals its record, byte for byte.
fn check_block(db: &cambium_state::Db, number: u64, payload: &[u8]) {
    let block = db.block(number).expect("a record that was replayed");
    let block = block.expect("the head is there");
    assert_eq!(block.parent.as_slice(), &payload[41..73]);
    assert_eq!(block.state_root.as_slice(), &payload[73..105]);
    let changes = db
        .block_changes(number)
        .expect("a record that was replayed");
    let (changes, reverts) = changes.expect("the head is there");
    let mut expected = Vec::new();
    for part in [&block.body[..], &changes.encode(), &reverts.encode()] {
        cambium_primitives::put_varint(&mut expected, part.len() as u64);
        expected.extend_from_slice(part);
    }
    assert!(
        payload[HEAD_BYTES + 8..].starts_with(&expected),
        "another encoding of the block"
    );
}
