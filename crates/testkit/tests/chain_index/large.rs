//! An index of many transactions: reads and time of a look-up.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_index::{ChainIndex, IndexFollower, IndexOptions, StoredBody};
use cambium_primitives::{BlockId, Changes};
use cambium_state::{BlockMeta, Disk, Loader, Options, StdDisk};
use cambium_testkit::{
    Random, is_long,
    plain::{path, put},
    say,
};
use std::{sync::Arc, time::Instant};

const TRANSACTIONS_OF_A_BLOCK: u64 = 5_000;

/// A transaction is a list of one number.
fn transaction(number: u64) -> Vec<u8> {
    let payload = alloy_rlp::encode(number);
    let mut out = vec![0xc0 + payload.len() as u8];
    out.extend_from_slice(&payload);
    out
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let payload = items.concat();
    let mut out = Vec::with_capacity(payload.len() + 9);
    alloy_rlp::Header {
        list: true,
        payload_length: payload.len(),
    }
    .encode(&mut out);
    out.extend_from_slice(&payload);
    out
}

/// The body of a block, and its hash.
fn block(number: u64, parent: B256) -> (Bytes, B256) {
    let first = number.saturating_sub(1) * TRANSACTIONS_OF_A_BLOCK;
    let transactions = match number {
        0 => Vec::new(),
        _ => (first..first + TRANSACTIONS_OF_A_BLOCK)
            .map(transaction)
            .collect(),
    };
    let header = list(&[alloy_rlp::encode(number), alloy_rlp::encode(parent)]);
    let hash = keccak256(&header);
    let rlp = list(&[header, list(&transactions), list(&[])]);
    (StoredBody::encode(U256::ZERO, &rlp, &[], None, None), hash)
}

#[test]
fn a_look_up_among_many_takes_two_reads() {
    let blocks: u64 = if is_long() { 20_000 } else { 200 };
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(folder.path()));
    let options = Options {
        memory_bytes: 256 << 20,
        keep_blocks: Some(64),
        ..Options::default()
    };
    let loaded = Loader::new(disk.clone(), options).unwrap();
    let loaded = loaded.finish(&mut |_| {}).unwrap();
    let (body, hash) = block(0, B256::ZERO);
    let genesis = BlockMeta {
        id: BlockId::new(0, hash),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body,
    };
    let db = loaded.create(genesis, vec![]).unwrap();
    let start = Instant::now();
    let options = IndexOptions {
        memory_bytes: if is_long() { 256 << 20 } else { 8 << 20 },
        ..IndexOptions::default()
    };
    let index = ChainIndex::create(disk.clone(), &db, 0, options).unwrap();
    let follower = IndexFollower::start(index, db.clone());
    for number in 1..=blocks {
        let parent = db.head();
        let (body, hash) = block(number, parent.hash);
        let changes = Changes::new(vec![put(path(number % 64), number)]);
        let staged = db
            .view()
            .unwrap()
            .session()
            .finish(changes, vec![])
            .unwrap();
        let meta = BlockMeta {
            id: BlockId::new(number, hash),
            parent: parent.hash,
            state_root: staged.root(),
            body,
        };
        staged.seal(meta).unwrap().commit().unwrap();
        // The follower has memory for some blocks.
        while follower
            .index()
            .stats()
            .upto
            .is_none_or(|upto| upto.number + 256 < number)
        {
            std::thread::yield_now();
        }
    }
    let index = follower.finish().unwrap();
    index.merge().unwrap();
    let built = start.elapsed();
    let before = index.stats();
    let count = blocks * TRANSACTIONS_OF_A_BLOCK;
    let mut random = Random::new(1);
    let (mut most, mut times) = (0, Vec::new());
    for _ in 0..2_000 {
        let number = random.below(count);
        let reads = index.stats().index_reads;
        let start = Instant::now();
        let found = index
            .find(&db, keccak256(transaction(number)))
            .unwrap()
            .unwrap();
        times.push(start.elapsed());
        assert_eq!(found.block.id.number, number / TRANSACTIONS_OF_A_BLOCK + 1);
        let at = number % TRANSACTIONS_OF_A_BLOCK;
        assert_eq!(found.transaction, Some(at as usize));
        most = most.max(index.stats().index_reads - reads);
    }
    times.sort_unstable();
    let after = index.stats();
    let found_reads = after.index_reads - before.index_reads;
    assert_eq!(after.data_reads - before.data_reads, 2_000);
    for number in 0..2_000 {
        let hash = keccak256(transaction(count + number));
        assert_eq!(index.find(&db, hash).unwrap(), None);
    }
    let missed_reads = index.stats().index_reads - after.index_reads;
    say(&format!(
        "{} entries in {} runs of {} MiB (data {} MiB, {} without filter, {} MiB of memory), made in \
         {:.1} s: 2,000 transactions found with {found_reads} reads of runs (at most {most}) and 2,000 of \
         blocks, median {:?}, 99 % {:?}; 2,000 others not found with {missed_reads}",
        after.hashes,
        after.runs,
        after.run_bytes >> 20,
        after.data_bytes >> 20,
        after.runs_without_filter,
        after.memory_bytes >> 20,
        built.as_secs_f64(),
        times[1_000],
        times[1_980],
    ));
    assert!(found_reads <= 2_200, "{found_reads}");
    // A run without its filter takes a read for each.
    let at_least = 2_000 * after.runs_without_filter;
    assert!(missed_reads <= at_least + 400, "{missed_reads}");
}
