//! Files of blocks that are meant to take memory or time: refused from the outside in, before what
//! they claim is decoded.

use crate::ALONE;
use alloy_consensus::Header;
use alloy_primitives::{Bytes, U256};
use alloy_rlp::Encodable;
use cambium_chain::{
    AccessListReader, AccessListWriter, Block, BlockFault, BlockSource, BodyError, Chain,
    ChainError, ChainSealer, ChainWriter, Fork, WithAccessLists,
};
use cambium_primitives::BlockId;
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{most_during, say};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use flate2::{Compression, write::GzEncoder};
use std::{fs::File, io::Write, sync::Arc};

const BLOCK_BYTES: usize = 64 << 20;
const BLOCKS: usize = 32;

fn chain(fork: Fork) -> (Workload, Chain) {
    let workload = Workload::new(WorkloadParams {
        fork,
        accounts: 40,
        senders: Some(10),
        blocks: BLOCKS as u64,
        block_size: BlockSize::Transactions(8),
        ..WorkloadParams::default()
    })
    .unwrap();
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = workload.init(disk, options, &mut |_| {}).unwrap();
    (workload, chain)
}

/// Blocks of the workload.
fn blocks(workload: &Workload) -> Vec<Block> {
    let (_, maker) = chain(workload.params().fork);
    let genesis = maker.block(0).unwrap().header;
    let mut made = Vec::new();
    let keep = |block: &Block| -> Result<(), ChainError> {
        made.push(block.clone());
        Ok(())
    };
    workload
        .generate(&genesis, &mut ChainSealer(&maker), keep)
        .unwrap();
    made
}

/// A block's RLP with any bytes for a list of transactions.
fn with_transactions(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut inner = Vec::new();
    header.encode(&mut inner);
    list(payload.len(), &mut inner);
    inner.extend(payload);
    // Uncles and withdrawals.
    inner.extend([0xc0, 0xc0]);
    let mut block = Vec::new();
    list(inner.len(), &mut block);
    block.extend(inner);
    block
}

fn list(payload_length: usize, out: &mut Vec<u8>) {
    alloy_rlp::Header {
        list: true,
        payload_length,
    }
    .encode(out);
}

/// The error of an import of such blocks, and the peak of its memory.
fn refused(fork: Fork, name: &str, block: &[u8]) -> (ChainError, usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chain.rlp.gz");
    let mut file = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
    for _ in 0..BLOCKS {
        file.write_all(block).unwrap();
    }
    file.finish().unwrap();
    let (_, chain) = chain(fork);
    let source = BlockSource::open(&path).unwrap();
    let (imported, most) = most_during(|| chain.import(source, &mut |_| {}));
    let error = imported.unwrap_err();
    assert_eq!(chain.db().head(), chain.db().genesis());
    say(&format!(
        "{BLOCKS} {name} of {} MiB: at most {} MiB held: {error}",
        block.len() >> 20,
        most >> 20
    ));
    (error, most)
}

#[test]
fn large_blocks_are_refused_by_what_is_outside() {
    let _alone = ALONE.lock();
    let fork = Fork::Prague;
    let (workload, _) = chain(fork);
    let good = &blocks(&workload)[0].header;

    // A block that is nothing but zeros.
    let mut zeros = Vec::new();
    list(BLOCK_BYTES - 8, &mut zeros);
    zeros.resize(zeros.len() + BLOCK_BYTES - 8, 0);
    let (error, most) = refused(fork, "blocks of zeros", &zeros);
    assert!(matches!(error, ChainError::File(_)), "{error}");
    // One block as it is read, and no more.
    assert!(most < 3 * BLOCK_BYTES, "{most}");

    // A header that is too long.
    let mut long = good.clone();
    long.extra_data = vec![0; BLOCK_BYTES - (1 << 20)].into();
    let (error, most) = refused(
        fork,
        "blocks of long headers",
        &with_transactions(&long, &[]),
    );
    assert!(
        error.to_string().contains("invalid header: it has"),
        "{error}"
    );
    assert!(most < 3 * BLOCK_BYTES, "{most}");

    // A good header, and more bytes than its gas limit pays for.
    let zeros = vec![0; BLOCK_BYTES - (1 << 20)];
    let (error, most) = refused(
        fork,
        "blocks of one-byte transactions",
        &with_transactions(good, &zeros),
    );
    assert!(
        matches!(&error, ChainError::Block { fault, .. }
            if matches!(**fault, BlockFault::Body(BodyError::UnpaidBytes { .. }))),
        "{error}"
    );
    assert!(most < 3 * BLOCK_BYTES, "{most}");
    let (workload, _) = chain(Fork::Osaka);
    let of_osaka = with_transactions(&blocks(&workload)[0].header, &zeros);
    let (error, _) = refused(Fork::Osaka, "blocks of Osaka", &of_osaka);
    assert!(
        error.to_string().contains("over the limit of 8388608"),
        "{error}"
    );

    // As many bytes as it pays for, of far too many transactions.
    let zeros = vec![0; 1 << 20];
    let (error, most) = refused(
        fork,
        "blocks of one-byte transactions",
        &with_transactions(good, &zeros),
    );
    assert!(
        matches!(&error, ChainError::Block { fault, .. }
            if matches!(**fault, BlockFault::Body(BodyError::UnpaidTransactions { .. }))),
        "{error}"
    );
    assert!(most < 32 << 20, "{most}");
}

#[test]
fn what_is_stored_of_a_block_is_what_was_executed() {
    let _alone = ALONE.lock();
    let (workload, chain) = chain(Fork::Osaka);
    let blocks = blocks(&workload);
    let rlps: Vec<Bytes> = blocks
        .iter()
        .map(|block| alloy_rlp::encode(block).into())
        .collect();
    // A block whose parent is not there, and bytes that are another encoding of a good one.
    let orphan = chain.import_block(rlps[1].clone(), None).unwrap_err();
    assert!(matches!(orphan, ChainError::Block { .. }), "{orphan}");
    let mut longer = rlps[0].to_vec();
    longer.push(0);
    let error = chain.import_block(longer.into(), None).unwrap_err();
    assert!(matches!(error, ChainError::NotABlock(_)), "{error}");
    for cut in [0, 1, 5, rlps[0].len() / 2, rlps[0].len() - 1] {
        let error = chain.import_block(rlps[0].slice(..cut), None).unwrap_err();
        assert!(matches!(error, ChainError::NotABlock(_)), "{cut}: {error}");
    }
    // The body of another block under a good header.
    let mut swapped = blocks[0].clone();
    swapped.body = blocks[1].body.clone();
    let rlp = alloy_rlp::encode(&swapped);
    let error = chain.import_block(rlp.into(), None).unwrap_err();
    assert!(error.to_string().contains("transactionsRoot"), "{error}");
    for (number, rlp) in (1..).zip(&rlps) {
        chain.import_block(rlp.clone(), None).unwrap();
        assert_eq!(chain.block_rlp(number).unwrap(), *rlp);
    }
    assert_eq!(chain.total_difficulty(3).unwrap(), U256::ZERO);
}

#[test]
fn large_access_lists_do_not_wait_beside_each_other() {
    const LIST_BYTES: usize = 16 << 20;
    let _alone = ALONE.lock();
    let (workload, chain) = chain(Fork::Osaka);
    let dir = tempfile::tempdir().unwrap();
    let (chain_file, list_file) = (
        dir.path().join("chain.rlp"),
        dir.path().join("lists.rlp.gz"),
    );
    let mut writer = ChainWriter::create(&chain_file).unwrap();
    let mut lists = AccessListWriter::create(&list_file).unwrap();
    let mut zeros = Vec::new();
    list(LIST_BYTES, &mut zeros);
    zeros.resize(zeros.len() + LIST_BYTES, 0);
    for block in blocks(&workload) {
        writer.write(&block).unwrap();
        let id = BlockId::new(block.header.number, block.header.hash_slow());
        lists.write(id, &zeros).unwrap();
    }
    drop(zeros);
    writer.finish().unwrap();
    lists.finish().unwrap();
    let source = BlockSource::open(&chain_file).unwrap();
    let lists = AccessListReader::open(&list_file).unwrap();
    let (imported, most) = most_during(|| {
        let source = WithAccessLists::new(source, lists).unwrap();
        chain.import(source, &mut |_| {})
    });
    let error = imported.unwrap_err();
    say(&format!(
        "{BLOCKS} lists of 16 MiB: at most {} MiB held: {error}",
        most >> 20
    ));
    assert!(error.to_string().contains("access list"), "{error}");
    assert!(most < 12 * LIST_BYTES, "{most}");
}
