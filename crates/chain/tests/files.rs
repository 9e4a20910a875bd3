//! Chain files and era1 archives: real ones are read whole, broken ones end in an error.

use crate::support::data;
use alloy_consensus::{Header, proofs::calculate_transaction_root};
use alloy_primitives::{Bytes, U256};
use alloy_rlp::Encodable;
use cambium_chain::{
    Block, BlockSource, ChainReader, ChainWriter, Era1Reader, FileError, FileKind, RawBlock,
};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

fn chain() -> Option<PathBuf> {
    data("execution-apis/tests/chain.rlp")
}

fn era() -> Option<PathBuf> {
    data("trin/test_assets/era1/mainnet-00000-5ec1ffb8.era1")
}

fn write(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The message of the error in which reading `path` ends, after how many good blocks.
fn failure(path: &Path) -> (usize, String) {
    let mut blocks = 0;
    let source = match BlockSource::open(path) {
        Ok(source) => source,
        Err(error) => return (0, error.to_string()),
    };
    for block in source {
        match block.and_then(|block| block.decode()) {
            Ok(_) => blocks += 1,
            Err(error) => return (blocks, error.to_string()),
        }
    }
    panic!("{} was read without an error", path.display())
}

fn small_chain(blocks: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..blocks {
        let header = Header {
            number,
            ..Header::default()
        };
        Block {
            header,
            body: Default::default(),
        }
        .encode(&mut bytes);
    }
    bytes
}

#[test]
fn the_execution_apis_chain_is_read_and_written_back_to_the_byte() {
    let Some(path) = chain() else { return };
    let raw: Vec<RawBlock> = BlockSource::open(&path)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(raw.len(), 54);
    let dir = tempfile::tempdir().unwrap();
    for name in ["copy.rlp", "copy.rlp.gz"] {
        let copy = dir.path().join(name);
        let mut writer = ChainWriter::create(&copy).unwrap();
        let mut txs = 0;
        for (index, raw) in raw.iter().enumerate() {
            let block = raw.decode().unwrap();
            assert_eq!(Some(block.header.number), raw.number());
            assert_eq!(block.header.number, index as u64 + 1);
            txs += block.body.transactions.len();
            writer.write(&block).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), 54);
        assert_eq!(txs, 249);
        let mut source = BlockSource::open(&copy).unwrap();
        let kind = if name.ends_with("gz") {
            FileKind::RlpGzip
        } else {
            FileKind::Rlp
        };
        assert_eq!(source.kind(), kind);
        let again: Vec<Bytes> = source.by_ref().map(|block| block.unwrap().rlp).collect();
        assert!(again.iter().eq(raw.iter().map(|block| &block.rlp)));
        assert_eq!(
            source.progress().bytes_read(),
            source.progress().bytes_total()
        );
    }
    assert_eq!(
        std::fs::read(dir.path().join("copy.rlp")).unwrap(),
        std::fs::read(path).unwrap()
    );
}

#[test]
fn a_gzip_of_several_members_is_one_chain() {
    let bytes = small_chain(6);
    let (first, second) = bytes.split_at(bytes.len() / 3);
    let dir = tempfile::tempdir().unwrap();
    let path = write(
        &dir,
        "chain.bin",
        &[gzip(first), gzip(b""), gzip(second)].concat(),
    );
    let blocks: Vec<_> = ChainReader::open(path)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(blocks.len(), 6);
    assert_eq!(blocks[5].number(), Some(5));
}

#[test]
fn an_error_names_the_file_the_byte_and_the_block_before() {
    let bytes = small_chain(4);
    let one = bytes.len() / 4;
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "chain.rlp", &bytes[..bytes.len() - 7]);
    let name = path.display();
    let (offset, there) = (3 * one, one - 7);
    let expected = format!(
        "{name}: block at byte {offset} (after block 2): \
         cut short: its header claims {one} bytes, but the file has {there}"
    );
    assert_eq!(failure(&path), (3, expected));

    let path = write(&dir, "head.rlp", &bytes[..3 * one + 2]);
    assert!(
        failure(&path)
            .1
            .ends_with("cut short: its header claims 3 bytes, but the file has 2")
    );

    let path = write(&dir, "absent.rlp", b"");
    assert_eq!(BlockSource::open(path).unwrap().count(), 0);
    assert!(matches!(
        BlockSource::open(dir.path()),
        Err(FileError::Open { .. })
    ));
    assert!(matches!(
        BlockSource::open(dir.path().join("no")),
        Err(FileError::Open { .. })
    ));
}

#[test]
fn a_huge_claim_is_refused_before_it_costs_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = small_chain(1);
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    for (name, bytes) in [("a.rlp", bytes.clone()), ("a.gz", gzip(&bytes))] {
        let (blocks, message) = failure(&write(&dir, name, &bytes));
        assert_eq!(blocks, 1);
        assert!(message.ends_with("over the limit of 67108864"), "{message}");
    }
    // Below the limit, but longer than the file: the buffer grows with the bytes read.
    let path = write(&dir, "b.rlp", &[0xfb, 0x03, 0xff, 0xff, 0xfb, 1, 2, 3]);
    assert!(
        failure(&path)
            .1
            .ends_with("its header claims 67108864 bytes, but the file has 8")
    );
    let path = write(&dir, "c.rlp", &small_chain(1));
    let mut reader = ChainReader::open(path).unwrap().with_limit(100);
    assert!(matches!(
        reader.next(),
        Some(Err(FileError::TooLong { limit: 100, .. }))
    ));
    assert!(reader.next().is_none());
}

#[test]
fn a_truncated_or_corrupt_gzip_ends_in_an_error() {
    let whole = gzip(&small_chain(50));
    let dir = tempfile::tempdir().unwrap();
    for cut in [11, whole.len() / 2, whole.len() - 1] {
        let (_, message) = failure(&write(&dir, "cut.gz", &whole[..cut]));
        assert!(
            message.contains("cut.gz: block at unpacked byte"),
            "{message}"
        );
    }
    let mut flipped = whole.clone();
    let at = flipped.len() - 6;
    flipped[at] ^= 1;
    let (_, message) = failure(&write(&dir, "sum.gz", &flipped));
    assert!(message.contains("can't be read"), "{message}");
}

#[test]
fn only_the_canonical_encoding_of_a_block_is_decoded() {
    let Some(path) = chain() else { return };
    let raw: Vec<RawBlock> = BlockSource::open(path)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let typed = raw
        .iter()
        .find(|raw| {
            raw.decode()
                .unwrap()
                .body
                .transactions
                .iter()
                .any(|tx| !tx.is_legacy())
        })
        .unwrap();
    let block = typed.decode().unwrap();

    // The same block, its typed transactions without their string headers.
    let mut fields = Vec::new();
    block.header.encode(&mut fields);
    let mut txs = Vec::new();
    for tx in &block.body.transactions {
        alloy_eips::eip2718::Encodable2718::encode_2718(tx, &mut txs);
    }
    alloy_rlp::Header {
        list: true,
        payload_length: txs.len(),
    }
    .encode(&mut fields);
    fields.extend(txs);
    block.body.ommers.encode(&mut fields);
    if let Some(withdrawals) = &block.body.withdrawals {
        withdrawals.encode(&mut fields);
    }
    let mut rlp = Vec::new();
    alloy_rlp::Header {
        list: true,
        payload_length: fields.len(),
    }
    .encode(&mut rlp);
    rlp.extend(fields);
    assert_ne!(typed.rlp, rlp);
    let lax = RawBlock {
        rlp: rlp.into(),
        ..typed.clone()
    };
    assert!(lax.decode().unwrap_err().to_string().contains("canonical"));

    let surplus = RawBlock {
        rlp: [&typed.rlp[..], &[0]].concat().into(),
        ..typed.clone()
    };
    assert!(
        surplus
            .decode()
            .unwrap_err()
            .to_string()
            .contains("1 surplus bytes")
    );
}

#[test]
fn every_byte_of_a_chain_file_matters() {
    let Some(path) = chain() else { return };
    let blocks = BlockSource::open(path)
        .unwrap()
        .take(14)
        .map(|block| block.unwrap().rlp);
    let bytes = &blocks.collect::<Vec<_>>().concat();
    let dir = tempfile::tempdir().unwrap();
    let hashes = |path: &Path| -> Vec<_> {
        BlockSource::open(path)
            .unwrap()
            .map_while(|block| block.and_then(|block| block.decode()).ok())
            .map(|block| {
                (
                    block.header.hash_slow(),
                    calculate_transaction_root(&block.body.transactions),
                    block.body.ommers,
                )
            })
            .collect()
    };
    let good = hashes(&write(&dir, "good.rlp", bytes));
    for at in (0..bytes.len()).step_by(97) {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        let bad = hashes(&write(&dir, "flipped.rlp", &flipped));
        assert!(good != bad, "flipped at {at}");
    }
}

#[test]
fn the_first_mainnet_era_is_read_whole_and_its_accumulator_is_right() {
    let Some(path) = era() else { return };
    let start = Instant::now();
    let mut reader = Era1Reader::open(&path).unwrap();
    assert_eq!((reader.first_number(), reader.blocks()), (0, 8192));
    let mut parent = None;
    let mut total = U256::ZERO;
    for (number, raw) in (0..).zip(reader.by_ref()) {
        let raw = raw.unwrap();
        let block = raw.decode().unwrap();
        assert_eq!(block.header.number, number);
        assert_eq!(block.header.parent_hash, parent.unwrap_or_default());
        assert_eq!(block.body.calculate_ommers_root(), block.header.ommers_hash);
        let receipts = raw.decode_receipts().unwrap().unwrap();
        assert_eq!(receipts.len(), block.body.transactions.len());
        total += block.header.difficulty;
        assert_eq!(raw.total_difficulty, Some(total));
        parent = Some(block.header.hash_slow());
    }
    assert_eq!(
        reader.progress().bytes_read(),
        reader.progress().bytes_total()
    );
    let root = reader.accumulator().unwrap().to_string();
    assert!(root.starts_with("0x5ec1ffb8"), "{root}");
    eprintln!("8,192 era1 blocks in {:?}", start.elapsed());
    assert_eq!(BlockSource::open(path).unwrap().kind(), FileKind::Era1);
}

#[test]
fn a_flipped_byte_in_an_era1_file_never_passes() {
    let Some(path) = era() else { return };
    let whole = std::fs::read(path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flipped.era1");
    let tail = 8 + 16 + 8 * 8192;
    let content = |path: &Path| -> Result<Vec<_>, FileError> {
        BlockSource::open(path)?
            .map(|block| block.map(|block| (block.rlp, block.receipts, block.total_difficulty)))
            .collect()
    };
    std::fs::write(&path, &whole).unwrap();
    let good = content(&path).unwrap();
    // Within the first blocks, the accumulator and the index: both ends of the file.
    let ends = (0..3000)
        .step_by(31)
        .chain((whole.len() - tail - 60..whole.len()).step_by(3571));
    for at in ends {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        match content(&path) {
            // Packing isn't unique: a run of zeros can be copied from anywhere in it.
            Ok(blocks) => assert!(blocks == good, "flipped at {at}"),
            Err(error) => assert!(error.to_string().contains("flipped.era1"), "{error}"),
        }
    }
    for cut in [0, 1, 2, 7, 20, 5000, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(cut < 2 || BlockSource::open(&path).is_err(), "cut at {cut}");
        assert!(Era1Reader::open(&path).is_err(), "cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_bytes_never_panic(
        kind in 0usize..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        index in 1u64..20,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let bytes = match kind {
            0 => bytes,
            1 => gzip(&bytes),
            2 => [&[0x1f, 0x8b, 8, 0][..], &bytes].concat(),
            // An era1 file in its frame alone.
            _ => {
                let tail = (16 + 8 * index) as usize;
                let mut era = vec![0x65, 0x32, 0, 0, 0, 0, 0, 0];
                era.extend(&bytes);
                era.extend([0x66, 0x32, tail as u8, 0, 0, 0, 0, 0]);
                era.resize(era.len() + tail - 8, 0xff);
                era.extend(index.to_le_bytes());
                era
            }
        };
        if let Ok(source) = BlockSource::open(write(&dir, "random", &bytes)) {
            for block in source.flatten() {
                let _ = (block.number(), block.decode(), block.decode_receipts());
            }
        }
    }
}
