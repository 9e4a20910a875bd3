//! Files of blocks from other programs.

use crate::input::Input;
use alloy_primitives::keccak256;
use alloy_rlp::Encodable;
use cambium_chain::{
    AccessListReader, BlockSource, ChainReader, Era1Reader, FileError, FileKind, RawBlock,
    WithAccessLists,
};
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Number of blocks after which reading stops, since a small file can have many empty ones.
const BLOCKS_MAX: usize = 64;
const ERA1_BLOCKS_MAX: u64 = 8192;

/// A temporary file, in memory if there is such a file system. Removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(bytes: &[u8]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("cambium-fuzz-{}-{number}", std::process::id());
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a folder for temporary files");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn check_error(error: &FileError, path: &Path) {
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
}

/// Input: a byte of flags (bit 0: a file of access lists comes first, after two bytes with its
/// length; bit 1: gzip the files; bit 2: also read with a limit of 100 bytes for a block), then the
/// file.
///
/// Reading returns the content of the file, in order and without gaps. A block has one encoding.
pub fn block_file(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.u8();
    let lists = (how & 1 != 0).then(|| packed(how, input.piece()));
    let plain = input.rest();
    let file = Temporary::new(&packed(how, plain));
    if how & 4 != 0 {
        let reader = ChainReader::open(&file.0)
            .expect("it is there")
            .with_limit(100);
        for block in reader.take(BLOCKS_MAX).flatten() {
            assert!(block.rlp.len() <= 100, "a block over the limit");
        }
    }
    let source = match BlockSource::open(&file.0) {
        Ok(source) => source,
        Err(error) => return check_error(&error, &file.0),
    };
    if source.kind() == FileKind::Era1 {
        return source.take(BLOCKS_MAX).for_each(drop);
    }
    let is_plain = source.kind() == FileKind::Rlp || how & 2 != 0;
    let mut read = Vec::new();
    for block in source.take(BLOCKS_MAX) {
        match block {
            Ok(block) => {
                assert_eq!(block.place.offset as usize, read.len());
                read.extend_from_slice(&block.rlp);
                check_block(&block, &file.0);
            }
            Err(error) => check_error(&error, &file.0),
        }
    }
    assert!(
        !is_plain || plain.starts_with(&read),
        "other bytes than the file's"
    );
    if let Some(lists) = lists {
        check_lists(&file, &Temporary::new(&lists));
    }
}

fn packed(how: u8, bytes: &[u8]) -> Vec<u8> {
    if how & 2 == 0 {
        return bytes.to_vec();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory to write to");
    encoder.finish().expect("memory to write to")
}

fn check_block(block: &RawBlock, path: &Path) {
    match block.decode() {
        Ok(decoded) => {
            let mut again = Vec::new();
            decoded.encode(&mut again);
            assert_eq!(again, block.rlp, "another encoding of the same block");
            assert_eq!(block.number(), Some(decoded.header.number));
        }
        Err(error) => check_error(&error, path),
    }
    match block.decode_receipts() {
        Ok(receipts) => assert_eq!(receipts.is_some(), block.receipts.is_some()),
        Err(error) => check_error(&error, path),
    }
}

fn check_lists(blocks: &Temporary, lists: &Temporary) {
    let opened = AccessListReader::open(&lists.0);
    let mut count = 0;
    for list in opened.expect("it is there").take(BLOCKS_MAX) {
        count += usize::from(
            list.inspect_err(|error| check_error(error, &lists.0))
                .is_ok(),
        );
    }
    let reader = AccessListReader::open(&lists.0).expect("it is there");
    let source = BlockSource::open(&blocks.0).expect("it was open before");
    let Ok(both) = WithAccessLists::new(source.take(BLOCKS_MAX), reader) else {
        return;
    };
    let given = both.flatten().filter(|block| block.access_list.is_some());
    assert!(given.count() <= count, "more lists than there are");
}

/// Input: for each of up to four blocks, a byte of flags for faults in its records, and their
/// content: header, body, receipts, total difficulty; then a byte of flags for faults in the file,
/// its first number, and what follows. Index and accumulator are correct unless a flag says
/// otherwise.
///
/// A file without faults is read to its end, and gives the blocks that it was made of.
pub fn era1(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut file = record(0x3265, &[]);
    let mut is_right = true;
    let mut starts = Vec::new();
    let mut leaves = Vec::new();
    for _ in 0..input.below(5) {
        let how = input.u8();
        let parts = [input.piece(), input.piece(), input.piece()];
        let total = input.piece();
        if how & 1 != 0 {
            file.extend(record(0x99, parts[0]));
        }
        starts.push(file.len() as i64);
        for (kind, part) in (3..).zip(parts) {
            let is_raw = how & 2 << kind >> 2 != 0;
            is_right &= !is_raw;
            file.extend(match is_raw {
                true => record(kind, part),
                false => record(kind, &snappy(part)),
            });
        }
        let mut padded = [0; 32];
        let len = total.len().min(32);
        padded[..len].copy_from_slice(&total[..len]);
        file.extend(record(6, &padded));
        leaves.push(sha(&keccak256(parts[0]).0, &padded));
    }
    let how = input.u8();
    let first = input.u64();
    let mut root = accumulator(&leaves);
    root[0] ^= how & 1;
    file.extend(record(7, &root));
    let start = file.len() as i64;
    let mut index = first.to_le_bytes().to_vec();
    for place in &starts {
        index.extend((place - start + i64::from(how >> 1 & 1)).to_le_bytes());
    }
    index.extend((starts.len() as u64 + u64::from(how >> 2 & 1)).to_le_bytes());
    file.extend(record(0x3266, &index));
    let surplus = input.rest();
    file.extend_from_slice(surplus);
    is_right &= how & 7 == 0 && surplus.is_empty();

    let file = Temporary::new(&file);
    let mut reader = match Era1Reader::open(&file.0) {
        Ok(reader) => reader,
        Err(error) => {
            let is_odd = starts.is_empty() || first.checked_add(starts.len() as u64).is_none();
            assert!(!is_right || is_odd, "{error}");
            return check_error(&error, &file.0);
        }
    };
    let reader_first = reader.first_number();
    let (mut blocks, mut is_whole) = (0, true);
    for block in &mut reader {
        match block {
            Ok(block) => {
                blocks += 1;
                check_block(&block, &file.0);
                let number = reader_first.checked_add(blocks - 1);
                assert_eq!(block.number(), number);
            }
            Err(error) => {
                is_whole = false;
                check_error(&error, &file.0);
            }
        }
    }
    assert_eq!(reader.accumulator().is_some(), is_whole);
    // Surplus bytes may happen to be an index.
    if is_whole && surplus.is_empty() {
        assert_eq!(how & 7, 0, "what is wrong is not found");
        assert_eq!(blocks, starts.len() as u64);
        assert_eq!(reader.accumulator().expect("checked"), root);
    }
}

fn record(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut record = kind.to_le_bytes().to_vec();
    record.extend((data.len() as u32).to_le_bytes());
    record.extend([0, 0]);
    record.extend_from_slice(data);
    record
}

fn snappy(data: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(data).expect("memory to write to");
    encoder.into_inner().expect("memory to write to")
}

fn sha(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new()
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

/// Computes SSZ's root of a list of at most 8,192 leaves.
fn accumulator(leaves: &[[u8; 32]]) -> [u8; 32] {
    let mut nodes = leaves.to_vec();
    let mut zero = [0; 32];
    for _ in 0..ERA1_BLOCKS_MAX.ilog2() {
        let pairs = nodes.chunks(2);
        nodes = pairs
            .map(|pair| sha(&pair[0], pair.get(1).unwrap_or(&zero)))
            .collect();
        zero = sha(&zero, &zero);
    }
    let mut len = [0; 32];
    len[..8].copy_from_slice(&(leaves.len() as u64).to_le_bytes());
    sha(nodes.first().unwrap_or(&zero), &len)
}
