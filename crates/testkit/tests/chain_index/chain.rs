//! Receipts and logs of a real chain: stored with their blocks, made afterwards, or refused by name.

use super::world::LITTLE;
use alloy_consensus::proofs::calculate_receipt_root;
use alloy_primitives::{B256, Bytes, keccak256};
use alloy_rlp::Encodable;
use cambium_chain::{Block, Chain, ChainError, ChainSealer, Fork};
use cambium_history::{History, HistoryOptions};
use cambium_index::{ChainIndex, IndexError, IndexFollower, LogFilter};
use cambium_node::{BlockRef, FoundLog, Node, NodeError};
use cambium_state::{FaultyDisk, Options, StateError};
use cambium_testkit::{TINY_FILES, raw_block};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::sync::Arc;

const BLOCKS: u64 = 40;

fn workload(fork: Fork) -> Workload {
    Workload::new(WorkloadParams {
        fork,
        accounts: 60,
        senders: Some(20),
        holders: Some(30),
        erc20_percent: 60,
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(12),
        ..WorkloadParams::default()
    })
    .unwrap()
}

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        unfinalized_blocks: 8,
        files: TINY_FILES,
        ..Options::default()
    }
}

fn chain_on(disk: &FaultyDisk, fork: Fork, options: Options) -> Chain {
    workload(fork)
        .init(Arc::new(disk.clone()), options, &mut |_| {})
        .unwrap()
}

fn blocks(fork: Fork) -> Vec<Block> {
    let maker = chain_on(&FaultyDisk::new(1), fork, options());
    let genesis = maker.block(0).unwrap().header;
    let mut blocks = Vec::new();
    workload(fork)
        .generate(&genesis, &mut ChainSealer(&maker), |block| {
            blocks.push(block.clone());
            Ok(())
        })
        .unwrap();
    blocks
}

fn import(chain: &Chain, blocks: &[Block]) {
    let raw = blocks.iter().zip(0..).map(|(block, index)| {
        let mut rlp = Vec::new();
        block.encode(&mut rlp);
        let rlp: Bytes = rlp.into();
        Ok(raw_block(index, rlp, None))
    });
    chain.import(raw, &mut |_| {}).unwrap();
}

fn with_index(chain: Chain, disk: &FaultyDisk) -> Node {
    let index = ChainIndex::create(Arc::new(disk.clone()), chain.db(), 0, LITTLE).unwrap();
    Node::of_chain(chain.with_index(index))
}

fn logs(node: &Node, filter: &LogFilter, from: u64, to: u64) -> Result<Vec<FoundLog>, NodeError> {
    node.logs(filter, from..=to)?.collect()
}

/// Compares everything that is found with the blocks and their receipts' roots.
fn compare(node: &Node, blocks: &[Block]) {
    let chain = node.chain().unwrap();
    let mut all = Vec::new();
    for block in blocks {
        let hash = block.header.hash_slow();
        let found = node.block(BlockRef::Hash(hash)).unwrap();
        assert_eq!((found.id.hash, &found.block), (hash, block));
        let (id, of_block) = (found.id, node.receipts_of(&found).unwrap());
        let receipts = chain.receipts(id).unwrap();
        assert_eq!(of_block.len(), receipts.len());
        assert_eq!(
            calculate_receipt_root(&receipts),
            block.header.receipts_root
        );
        let (mut gas, mut first_log) = (0, 0);
        for (at, (receipt, transaction)) in
            receipts.iter().zip(&block.body.transactions).enumerate()
        {
            let found = node.receipt(*transaction.hash()).unwrap().unwrap();
            assert_eq!(found, of_block[at]);
            assert_eq!(&found.receipt, receipt);
            assert_eq!((found.found.block, found.found.index), (id, at));
            assert_eq!(&found.found.transaction, transaction);
            assert_eq!(found.gas_used, receipt.cumulative_gas_used() - gas);
            assert_eq!(found.first_log, first_log);
            assert_eq!(
                node.transaction(*transaction.hash()).unwrap(),
                Some(found.found)
            );
            gas = receipt.cumulative_gas_used();
            for log in receipt.logs() {
                all.push(FoundLog {
                    block: id,
                    transaction: *transaction.hash(),
                    transaction_index: at,
                    log_index: first_log,
                    log: log.clone(),
                });
                first_log += 1;
            }
        }
    }
    assert!(all.len() > 100, "{} logs", all.len());
    let last = blocks.last().unwrap().header.number;
    let any = LogFilter::default();
    assert_eq!(logs(node, &any, 0, u64::MAX).unwrap(), all);
    // Each contract and each topic, and pairs of them.
    for log in all.iter().step_by(17) {
        let filter = LogFilter {
            addresses: vec![log.log.address],
            ..LogFilter::default()
        };
        let passing = |filter: &LogFilter, from: u64, to: u64| -> Vec<FoundLog> {
            let passing = all.iter().filter(|log| {
                (from..=to).contains(&log.block.number)
                    && filter.passes(&log.log.address, log.log.topics())
            });
            passing.cloned().collect()
        };
        assert_eq!(
            logs(node, &filter, 0, last).unwrap(),
            passing(&filter, 0, last)
        );
        for (at, topic) in log.log.topics().iter().enumerate() {
            let mut filter = filter.clone();
            filter.topics[at] = vec![keccak256(b"another"), *topic];
            let (from, to) = (log.block.number / 2, last - 1);
            let expected = passing(&filter, from, to);
            assert!(!expected.is_empty() || log.block.number > to);
            assert_eq!(logs(node, &filter, from, to).unwrap(), expected);
        }
    }
    let none = B256::repeat_byte(7);
    assert_eq!(node.transaction(none).unwrap(), None);
    let unknown = node.block(BlockRef::Hash(none)).unwrap_err();
    assert!(
        matches!(
            unknown,
            NodeError::Chain(ChainError::State(StateError::UnknownBlock(_)))
        ),
        "{unknown}"
    );
}

#[test]
fn receipts_and_logs_are_those_of_the_headers_however_they_came_to_be_known() {
    for fork in [Fork::Prague, Fork::Amsterdam] {
        let blocks = blocks(fork);
        // Stored as the blocks are imported.
        let disk = FaultyDisk::new(2);
        let node = with_index(chain_on(&disk, fork, options()), &disk);
        let index = node.index().unwrap().unwrap().clone();
        let follower = IndexFollower::start(index, node.db().clone());
        import(node.chain().unwrap(), &blocks);
        compare(&node, &blocks);
        drop(follower.finish().unwrap());
        compare(&node, &blocks);
        // Of blocks that were there before: made from states that can still be read.
        let disk = FaultyDisk::new(3);
        let chain = chain_on(&disk, fork, options());
        import(&chain, &blocks);
        let node = with_index(chain, &disk);
        let mut without = 0;
        let at_head = node.build_index(&mut |progress| {
            without += u64::from(!progress.has_receipts);
            true
        });
        assert!(at_head.unwrap());
        assert_eq!(without, 0);
        compare(&node, &blocks);
        // Opened again, after a loss of power, with little in its files.
        node.index().unwrap().unwrap().flush().unwrap();
        let (db, disk) = (node.db().clone(), disk.crash());
        drop((node, db));
        let (chain, _) = Chain::open(Arc::new(disk.clone()), options()).unwrap();
        let index = ChainIndex::open(Arc::new(disk), chain.db(), LITTLE).unwrap();
        compare(&Node::of_chain(chain.with_index(index)), &blocks);
    }
}

#[test]
fn blocks_without_receipts_are_executed_again_or_named() {
    let blocks = blocks(Fork::Prague);
    let few = Options {
        keep_blocks: Some(6),
        ..options()
    };
    let disk = FaultyDisk::new(4);
    let chain = with_index(chain_on(&disk, Fork::Prague, few), &disk);
    // Not with receipts: as if each had been applied without execution.
    let node = Node::of_chain(chain.into_chain().unwrap().with_receipts(false));
    let (chain, index) = (node.chain().unwrap(), node.index().unwrap().unwrap());
    for block in &blocks {
        import(chain, std::slice::from_ref(block));
        chain.db().flush(1).unwrap();
        let all = index.catch_up(chain.db(), None, &mut |_| true);
        assert!(all.unwrap());
    }
    let last = blocks.last().unwrap();
    let id = chain.db().head();
    let receipts = chain.receipts(id).unwrap();
    assert_eq!(calculate_receipt_root(&receipts), last.header.receipts_root);
    let old = chain.db().view_at(5);
    assert!(old.is_err(), "the state of block 5 can't be read any more");
    let hash = *blocks[4].body.transactions[0].hash();
    assert!(node.transaction(hash).unwrap().is_some());
    assert!(node.receipt(hash).is_err());
    // A search does not leave such a block out in silence.
    let error = logs(&node, &LogFilter::default(), 1, id.number).unwrap_err();
    let NodeError::Chain(ChainError::Index(error)) = error else {
        panic!("{error}");
    };
    assert!(
        matches!(*error, IndexError::NoReceipts { block } if block.number == 1),
        "{error}"
    );
    assert!(
        !logs(&node, &LogFilter::default(), id.number, id.number)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_history_gives_the_states_from_which_receipts_are_made() {
    let blocks = blocks(Fork::Prague);
    let disk = FaultyDisk::new(5);
    // Of which few can be restored from the log.
    let chain = chain_on(&disk, Fork::Prague, options());
    let shared: Arc<FaultyDisk> = Arc::new(disk.clone());
    let history = History::create(shared, chain.db(), 0, None, HistoryOptions::default()).unwrap();
    import(&chain, &blocks);
    chain.db().flush(0).unwrap();
    history.catch_up(chain.db(), &mut |_| true).unwrap();
    let node = with_index(chain, &disk).with_history(history);
    node.build_index(&mut |_| true).unwrap();
    compare(&node, &blocks);
}

#[test]
fn an_index_that_cannot_be_read_takes_no_block_from_the_log() {
    let blocks = blocks(Fork::Prague);
    let few = Options {
        keep_blocks: Some(10),
        ..options()
    };
    let disk = FaultyDisk::new(6);
    let node = with_index(chain_on(&disk, Fork::Prague, few), &disk);
    let (chain, index) = (node.chain().unwrap(), node.index().unwrap().unwrap());
    for block in &blocks {
        import(chain, std::slice::from_ref(block));
        chain.db().flush(1).unwrap();
        node.build_index(&mut |_| true).unwrap();
    }
    index.flush().unwrap();
    let data = disk.files().into_iter();
    let data: Vec<String> = data.filter(|name| name.ends_with(".blocks")).collect();
    for name in &data {
        disk.spoil(name, 0, disk.contents(name).unwrap().len());
    }
    let last = blocks.last().unwrap();
    assert_eq!(&chain.block(BLOCKS).unwrap(), last);
    let receipts = chain.receipts(chain.db().head()).unwrap();
    assert_eq!(calculate_receipt_root(&receipts), last.header.receipts_root);
    // A block that has left the log is in the damaged file, which is named.
    let error = chain.block(3).unwrap_err().to_string();
    assert!(
        data.iter().any(|name| error.contains(name.as_str())),
        "{error}"
    );
}

#[test]
fn a_search_for_logs_does_not_mix_branches() {
    let blocks = blocks(Fork::Prague);
    let disk = FaultyDisk::new(7);
    let node = with_index(chain_on(&disk, Fork::Prague, options()), &disk);
    import(node.chain().unwrap(), &blocks);
    let head = node.head();
    let filter = LogFilter::default();
    let mut logs = node.logs(&filter, 1..=BLOCKS).unwrap();
    assert_eq!(logs.next().unwrap().unwrap().block.number, 1);
    node.db().unwind(BLOCKS / 2).unwrap();
    let mut rest = logs.by_ref().skip_while(|log| {
        let log = log.as_ref();
        log.is_ok_and(|log| log.block.number == 1)
    });
    let error = rest.next().unwrap().unwrap_err();
    assert!(logs.next().is_none(), "the search is over");
    let NodeError::Chain(ChainError::Index(error)) = error else {
        panic!("{error}");
    };
    assert!(
        matches!(*error, IndexError::HeadMoved { block } if block == head),
        "{error}"
    );
}
