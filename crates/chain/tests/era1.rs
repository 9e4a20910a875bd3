//! Era1 files put together record by record, for cases that the one real file of the fixtures, all of empty blocks,
//! does not have.

use alloy_consensus::{Eip658Value, Header, Receipt, ReceiptEnvelope, ReceiptWithBloom, TxReceipt};
use alloy_primitives::{Address, B256, Bytes, Log, U256, keccak256};
use alloy_rlp::Encodable;
use cambium_chain::{Block, BlockSource, ERA1_BLOCKS_MAX, Era1Reader, FileError, RawBlock};
use sha2::{Digest, Sha256};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

const FIRST: u64 = 1_000_000;
const TOTAL_BEFORE: u64 = 77;

fn record(kind: u16, data: &[u8]) -> Vec<u8> {
    let head = [
        &kind.to_le_bytes()[..],
        &(data.len() as u32).to_le_bytes(),
        &[0, 0],
    ]
    .concat();
    [&head, data].concat()
}

fn snappy(data: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(data).unwrap();
    encoder.into_inner().unwrap()
}

fn sha(left: &[u8], right: &[u8]) -> Vec<u8> {
    Sha256::digest([left, right].concat()).to_vec()
}

/// The accumulator as SSZ defines it: all 8,192 leaves, then the length.
fn accumulator(records: &[(B256, U256)]) -> Vec<u8> {
    let mut nodes: Vec<Vec<u8>> = records
        .iter()
        .map(|(hash, total)| sha(hash.as_slice(), &total.to_le_bytes::<32>()))
        .collect();
    nodes.resize(ERA1_BLOCKS_MAX, vec![0; 32]);
    while nodes.len() > 1 {
        nodes = nodes
            .chunks(2)
            .map(|pair| sha(&pair[0], &pair[1]))
            .collect();
    }
    let mut length = [0; 32];
    length[..8].copy_from_slice(&(records.len() as u64).to_le_bytes());
    sha(&nodes[0], &length)
}

fn receipts() -> Vec<ReceiptEnvelope> {
    let receipt = |status, gas| {
        let log = Log::new_unchecked(
            Address::ZERO,
            vec![keccak256("x")],
            Bytes::from_static(b"y"),
        );
        ReceiptWithBloom::from(Receipt {
            status,
            cumulative_gas_used: gas,
            logs: vec![log],
        })
    };
    vec![
        ReceiptEnvelope::Legacy(receipt(Eip658Value::PostState(B256::repeat_byte(3)), 1)),
        ReceiptEnvelope::Legacy(receipt(true.into(), 2)),
        ReceiptEnvelope::Eip2930(receipt(false.into(), 3)),
        ReceiptEnvelope::Eip1559(receipt(true.into(), 4)),
    ]
}

/// An era1 file to be, as it should be unless a test changes it.
struct Era {
    blocks: Vec<[Vec<u8>; 4]>,
    between: Vec<u8>,
    records: Vec<(B256, U256)>,
    first: u64,
    shift: i64,
}

impl Era {
    fn new(count: u64) -> Self {
        let mut era = Self {
            blocks: Vec::new(),
            between: Vec::new(),
            records: Vec::new(),
            first: FIRST,
            shift: 0,
        };
        let mut total = U256::from(TOTAL_BEFORE);
        for number in FIRST..FIRST + count {
            let header = Header {
                number,
                difficulty: U256::from(number),
                ..Header::default()
            };
            total += header.difficulty;
            era.records.push((header.hash_slow(), total));
            let body: alloy_consensus::BlockBody<cambium_chain::Transaction> = Default::default();
            let rlp = |value: &dyn Encodable| {
                let mut out = Vec::new();
                value.encode(&mut out);
                out
            };
            era.blocks.push([
                record(3, &snappy(&rlp(&header))),
                record(4, &snappy(&rlp(&body))),
                record(5, &snappy(&rlp(&receipts()))),
                record(6, &total.to_le_bytes::<32>()),
            ]);
        }
        era
    }

    fn bytes(&self) -> Vec<u8> {
        let mut file = record(0x3265, &[]);
        let mut starts = Vec::new();
        for block in &self.blocks {
            starts.push(file.len() as i64);
            file.extend(block.concat());
            file.extend(&self.between);
        }
        file.extend(record(7, &accumulator(&self.records)));
        let index = file.len() as i64;
        let mut data = self.first.to_le_bytes().to_vec();
        for start in &starts {
            data.extend((start - index + self.shift).to_le_bytes());
        }
        data.extend((starts.len() as u64).to_le_bytes());
        file.extend(record(0x3266, &data));
        file
    }

    /// How many blocks are good, and the error after them.
    fn failure(&self) -> (usize, String) {
        let (_dir, path) = written(&self.bytes());
        let mut good = 0;
        let source = match BlockSource::open(path) {
            Ok(source) => source,
            Err(error) => return (0, error.to_string()),
        };
        for block in source {
            match block {
                Ok(_) => good += 1,
                Err(error) => return (good, error.to_string()),
            }
        }
        panic!("read without an error")
    }
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.era1");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn assert_failure(era: &Era, good: usize, expected: &str) {
    let (blocks, message) = era.failure();
    assert!(
        message.contains("test.era1: ") && message.contains(expected),
        "{message}"
    );
    assert_eq!(blocks, good, "{message}");
}

#[test]
fn blocks_receipts_of_every_type_and_totals_come_out_as_they_went_in() {
    for between in [Vec::new(), record(0x99, b"of a kind that is not known")] {
        let (_dir, path) = written(
            &Era {
                between,
                ..Era::new(5)
            }
            .bytes(),
        );
        let mut reader = Era1Reader::open(&path).unwrap();
        assert_eq!((reader.first_number(), reader.blocks()), (FIRST, 5));
        assert_eq!(reader.accumulator(), None);
        let raw: Vec<RawBlock> = reader.by_ref().map(Result::unwrap).collect();
        assert!(reader.accumulator().is_some());
        for (number, raw) in (FIRST..).zip(&raw) {
            let block: Block = raw.decode().unwrap();
            assert_eq!((block.header.number, raw.number()), (number, Some(number)));
            assert_eq!(raw.decode_receipts().unwrap().unwrap(), receipts());
        }
        assert_eq!(raw.len(), 5);
        assert_eq!(raw[4].place.after, Some(FIRST + 3));
        let total = U256::from(TOTAL_BEFORE + FIRST);
        assert_eq!(raw[0].total_difficulty, Some(total));
        assert!(receipts()[0].status_or_post_state().is_post_state());
    }
}

#[test]
fn a_file_that_contradicts_itself_is_refused() {
    let mut era = Era::new(3);
    era.records[1].0 = B256::ZERO;
    assert_failure(&era, 3, "its accumulator root is 0x");

    let mut era = Era::new(3);
    era.records[2].1 = U256::MAX;
    era.blocks[2][3] = record(6, &U256::MAX.to_le_bytes::<32>());
    assert_failure(
        &era,
        2,
        "block 1000002 has difficulty 1000002, but the total goes from ",
    );

    let era = Era {
        first: FIRST + 1,
        ..Era::new(3)
    };
    assert_failure(&era, 0, "the header has number 1000000, expected 1000001");
    assert_failure(
        &Era {
            first: u64::MAX,
            ..Era::new(3)
        },
        0,
        "its index begins at block",
    );
    assert_failure(
        &Era {
            shift: 8,
            ..Era::new(3)
        },
        0,
        "block 1000000 is at byte 8, but the index has it at 16",
    );
    assert_failure(
        &Era {
            shift: i64::MIN / 2,
            ..Era::new(3)
        },
        0,
        "outside the file",
    );
    assert_failure(
        &Era {
            shift: 1 << 40,
            ..Era::new(3)
        },
        0,
        "outside the file",
    );
    assert_failure(&Era::new(0), 0, "it does not end with a block index");
}

#[test]
fn a_record_out_of_order_or_of_another_form_is_refused() {
    let mut era = Era::new(3);
    era.blocks[1].swap(1, 2);
    assert_failure(
        &era,
        1,
        "(after block 1000000): a record of type 0x05, not a body",
    );

    let mut era = Era::new(3);
    era.blocks[1][3] = record(6, &[0; 31]);
    assert_failure(&era, 1, "total difficulty of 31 bytes, not 32");

    let mut era = Era::new(3);
    era.blocks[1][1] = record(4, &snappy(b"\x80"));
    assert_failure(&era, 1, "the body is not an RLP list");

    let mut era = Era::new(3);
    era.blocks[1][0] = record(3, b"not snappy");
    assert_failure(&era, 1, "header can't be unpacked");

    let mut era = Era::new(3);
    era.blocks[1][0] = record(3, &snappy(&[0xc0]));
    assert_failure(&era, 1, "invalid header");

    let mut era = Era::new(3);
    era.blocks[0][0][6] = 1;
    assert_failure(&era, 0, "its reserved bytes are not zero");
}

#[test]
fn a_record_that_unpacks_to_more_than_the_limit_is_refused() {
    // 100 MB of zeros, in 5 MB.
    let mut era = Era::new(2);
    era.blocks[1][1] = record(4, &snappy(&vec![0; 100 << 20]));
    assert_failure(&era, 1, "over the limit of 67108864");

    let mut era = Era::new(2);
    era.blocks[1][0] = record(3, &snappy(&vec![0; 1 << 20]));
    assert_failure(&era, 1, "over the limit of 65536");

    // A claim of 4 GiB that isn't there.
    let mut era = Era::new(2);
    era.blocks[1][2][2..6].fill(0xff);
    let (_dir, path) = written(&era.bytes());
    let error = BlockSource::open(path)
        .unwrap()
        .find_map(Result::err)
        .unwrap();
    assert!(
        matches!(
            error,
            FileError::TooLong {
                claimed: 0xffff_ffff,
                ..
            }
        ),
        "{error}"
    );
}

/// Snappy has checksums, the rest is bound by headers, index and accumulator: so nothing is read that
/// was not written.
#[test]
fn any_byte_of_a_file_that_is_another_is_noticed() {
    type Content = Vec<(Bytes, Option<Bytes>, Option<U256>)>;
    let read = |path: &Path| -> (Content, Option<String>) {
        let source = match Era1Reader::open(path) {
            Ok(source) => source,
            Err(error) => return (vec![], Some(error.to_string())),
        };
        let mut content = Vec::new();
        for block in source {
            match block {
                Ok(block) => content.push((block.rlp, block.receipts, block.total_difficulty)),
                Err(error) => return (content, Some(error.to_string())),
            }
        }
        (content, None)
    };
    let good = Era::new(3).bytes();
    let (dir, path) = written(&good);
    let (expected, none) = read(&path);
    assert_eq!((expected.len(), none), (3, None));
    let (mut tried, mut same) = (0, 0);
    let mut try_file = |case: &str, bytes: &[u8]| {
        // A file that is emptied and written again is written to the device by some file systems.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let (content, error) = read(&path);
        tried += 1;
        // The first total is known to be right, or not, at the accumulator.
        for (got, expected) in content.iter().zip(&expected) {
            assert_eq!((&got.0, &got.1), (&expected.0, &expected.1), "{case}");
        }
        match error {
            Some(error) => {
                assert!(error.contains("test.era1: "), "{case}: {error}");
                assert!(error.len() < 500, "{case}: {error}");
            }
            None => {
                assert_eq!(content, expected, "{case}: without an error");
                same += 1;
            }
        }
    };
    for at in 0..good.len() {
        let mut changed = good.clone();
        for bit in 0..8 {
            changed[at] = good[at] ^ (1 << bit);
            try_file(&format!("bit {bit} of byte {at} flipped"), &changed);
        }
        changed.remove(at);
        try_file(&format!("byte {at} removed"), &changed);
        changed.splice(at..at, [good[at]; 2]);
        try_file(&format!("byte {at} doubled"), &changed);
        // An empty file is one of no blocks.
        if at > 0 {
            try_file(&format!("cut at byte {at}"), &good[..at]);
        }
    }
    drop(dir);
    println!("{tried} changed files, {same} of which say the same");
}
