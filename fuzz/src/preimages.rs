//! The files of preimages: the list of runs, and runs.

use crate::input::Input;
use alloy_primitives::{Address, B256, keccak256};
use cambium_disk::{Disk, FaultyDisk};
use cambium_preimages::{Preimages, PreimagesError, PreimagesOptions};
use cambium_primitives::BlockId;
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const PAGE: usize = 4096;
/// Size of the summed part of a trailer.
const TRAILER: usize = 48;
const FIRST: BlockId = BlockId::new(0, B256::repeat_byte(7));
const OPTIONS: PreimagesOptions = PreimagesOptions {
    memory_bytes: 1 << 20,
};
/// Preimages of each kind in each of the two runs.
const EACH: u64 = 300;

fn address(number: u64) -> Address {
    Address::from_word(keccak256(number.to_le_bytes()))
}

fn slot(number: u64) -> B256 {
    B256::left_padding_from(&number.to_be_bytes())
}

/// Two runs, with some preimages in both.
fn template() -> &'static FaultyDisk {
    static TEMPLATE: OnceLock<FaultyDisk> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let disk = FaultyDisk::new(1);
        let preimages = Preimages::create(Arc::new(disk.clone()), OPTIONS);
        let preimages = preimages.expect("a disk that works");
        for run in 0..2 {
            let numbers = run * EACH / 2..run * EACH / 2 + EACH;
            let added = preimages.add(numbers.clone().map(address), numbers.map(slot));
            added.expect("memory");
            preimages.advance(FIRST);
            preimages.flush().expect("a disk that works");
        }
        disk
    })
}

/// Input: a byte of flags (bit 0: fix the checksums of changed bytes); then any number of edits, each with the number
/// of a file, the kind of edit (overwrite at an offset, cut there, append), the offset from the front or the end, and
/// bytes.
///
/// The preimages open, or the error names a file of theirs. With any bytes, a found preimage is that of the requested
/// hash.
pub fn preimages(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let keeps_sums = input.u8() & 1 != 0;
    let disk = template().duplicate();
    let names = names(&disk);
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        let name = &names[input.below(names.len())];
        let (how, offset, piece) = (input.u8(), usize::from(input.u16()), input.piece());
        let mut contents = disk.contents(name).expect("a file");
        let offset = offset.min(contents.len());
        let at = match how & 4 {
            0 => offset,
            _ => contents.len() - offset,
        };
        match how % 4 {
            0 | 1 => {
                let end = (at + piece.len()).min(contents.len());
                contents[at..end].copy_from_slice(&piece[..end - at]);
            }
            2 => contents.truncate(at),
            _ => contents.extend_from_slice(piece),
        }
        if !keeps_sums {
            correct(&mut contents, name.ends_with(".list"));
        }
        disk.remove(name).expect("a disk that works");
        let file = disk.create(name).expect("a disk that works");
        file.write_at(&contents, 0).expect("a disk that works");
    }
    match Preimages::open(Arc::new(disk), FIRST.hash, OPTIONS) {
        Err(error) => check_error(&error),
        Ok(preimages) => use_all(&preimages),
    }
}

fn names(disk: &FaultyDisk) -> Vec<String> {
    let files = disk.files().into_iter();
    files
        .filter(|name| name.ends_with(".run") || name.ends_with(".list"))
        .collect()
}

/// Corrects the checksums of a list, or of a run.
fn correct(bytes: &mut [u8], is_list: bool) {
    if is_list {
        if let Some((summed, sum)) = bytes.split_last_chunk_mut::<8>() {
            *sum = xxh3_64(summed).to_le_bytes();
        }
        return;
    }
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let Some(trailer_at) = bytes.len().checked_sub(PAGE) else {
        return;
    };
    let trailer = &bytes[trailer_at..];
    let (identity, addresses, slots) = (
        number(trailer, 16),
        number(trailer, 24),
        number(trailer, 32),
    );
    let pages = addresses.div_ceil(204).saturating_add(slots.div_ceil(127)) as usize;
    if pages <= trailer_at / PAGE {
        for page in 0..pages {
            let seed = identity ^ (page as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let page = &mut bytes[page * PAGE..(page + 1) * PAGE];
            let sum = xxh3_64_with_seed(&page[..PAGE - 8], seed);
            page[PAGE - 8..].copy_from_slice(&sum.to_le_bytes());
        }
        let fences = bytes.get(pages * PAGE..pages * (PAGE + 8));
        let sum = fences.map_or(0, xxh3_64);
        bytes[trailer_at + 40..trailer_at + TRAILER].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = xxh3_64(&bytes[trailer_at..trailer_at + TRAILER]);
    bytes[trailer_at + TRAILER..trailer_at + TRAILER + 8].copy_from_slice(&sum.to_le_bytes());
}

fn use_all(preimages: &Preimages) {
    let mut lookup = preimages.lookup();
    for number in (0..2 * EACH).step_by(7) {
        let hash = keccak256(address(number));
        match lookup.address_of(&hash) {
            Ok(found) => assert!(found.is_none_or(|found| keccak256(found) == hash)),
            Err(error) => check_error(&error),
        }
        let hash = keccak256(slot(number));
        match lookup.slot_of(&hash) {
            Ok(found) => assert!(found.is_none_or(|found| keccak256(found) == hash)),
            Err(error) => check_error(&error),
        }
    }
    let stats = preimages.stats();
    match preimages.check(&mut |_| {}) {
        Ok((addresses, slots)) => {
            assert!(addresses <= stats.addresses && slots <= stats.slots);
        }
        Err(error) => check_error(&error),
    }
    // It can be added to with any content.
    preimages.add([address(9_999)], []).expect("memory");
    for done in [preimages.flush(), preimages.merge()] {
        _ = done.inspect_err(check_error);
    }
    let found = preimages.address_of(&keccak256(address(9_999)));
    let found = found.inspect_err(check_error);
    assert!(found.is_err() || found.is_ok_and(|found| found == Some(address(9_999))));
}

/// An error names what is damaged.
fn check_error(error: &PreimagesError) {
    match error {
        PreimagesError::Damaged { file, .. }
        | PreimagesError::Missing { file }
        | PreimagesError::Unfinished { file }
        | PreimagesError::NewerFormat { file, .. }
        | PreimagesError::OtherDatabase { file, .. } => {
            assert!(file.starts_with("preimages/"), "{error}");
        }
        error => panic!("{error}"),
    }
}
