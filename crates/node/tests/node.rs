//! Questions of a chain whose old blocks have left the log, answered by what is beside it.

use alloy_primitives::B256;
use cambium_chain::{Chain, ChainError, ChainSealer, InitOptions};
use cambium_history::{History, HistoryError, HistoryOptions};
use cambium_index::{ChainIndex, IndexOptions};
use cambium_node::{BlockRef, Node, NodeError};
use cambium_primitives::BlockId;
use cambium_state::{Disk, FaultyDisk, FileSizes, Options, StateError, StdDisk};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

const BLOCKS: u64 = 40;
const OLD: u64 = 5;

fn workload() -> Workload {
    Workload::new(WorkloadParams {
        accounts: 300,
        senders: Some(20),
        blocks: BLOCKS,
        erc20_percent: 60,
        block_size: BlockSize::Transactions(12),
        ..WorkloadParams::default()
    })
    .unwrap()
}

/// So few blocks and so small files that old ones leave the log.
fn options() -> Options {
    Options {
        memory_bytes: 2 << 20,
        keep_blocks: Some(4),
        unfinalized_blocks: 4,
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 16 << 10,
            log_file_bytes_max: 16 << 10,
            log_extend_bytes: 16 << 10,
            log_spare_blocks: 0,
            ..FileSizes::default()
        },
        ..Options::default()
    }
}

fn init(disk: &Arc<dyn Disk>, options: impl Into<InitOptions>) -> Chain {
    let chain = workload().init(disk.clone(), options, &mut |_| {}).unwrap();
    let index = ChainIndex::create(disk.clone(), chain.db(), 0, IndexOptions::default()).unwrap();
    chain.with_index(index)
}

/// Seals all blocks. The index and the history get each of them before it leaves the log.
fn seal_all(chain: &Chain, history: &History) {
    let (db, genesis) = (chain.db(), chain.block(0).unwrap().header);
    let index = chain.index().unwrap();
    let sealed = workload().generate(&genesis, &mut ChainSealer(chain), |_| {
        db.flush(1)?;
        assert!(index.catch_up(db, None, &mut |_| true)?);
        history.catch_up(db, &mut |_| true)?;
        Ok(())
    });
    sealed.unwrap();
    index.flush().unwrap();
    history.flush().unwrap();
    db.flush(0).unwrap();
}

/// A chain with an index and a history of values.
fn chain_on(disk: &Arc<dyn Disk>) -> (Chain, History) {
    let chain = init(disk, options());
    let options = HistoryOptions::default();
    let history = History::create(disk.clone(), chain.db(), 0, None, options).unwrap();
    seal_all(&chain, &history);
    (chain, history)
}

/// Whether the error says that a state can't be read any more.
fn is_not_kept(error: &NodeError) -> bool {
    let NodeError::Chain(ChainError::State(error)) = error else {
        return false;
    };
    matches!(
        error,
        StateError::NotKept { .. } | StateError::TooFar { .. }
    )
}

#[test]
fn states_and_blocks_that_have_left_the_log_are_found_beside_it() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
    let (chain, history) = chain_on(&disk);
    let db = chain.db().clone();
    let alone = Node::of(db.clone());
    let node = Node::of_chain(chain).with_history(history);
    let old = BlockRef::Number(OLD);

    let error = alone.state_at(old).map(|state| state.block()).unwrap_err();
    assert!(is_not_kept(&error), "{error}");
    let state = node.state_at(old).unwrap();
    let id = state.block();
    assert_eq!(id.number, OLD);
    assert_eq!(node.state_root(&state).unwrap(), None, "not in the log");
    let error = node.provable_state_at(old).map(|state| state.block());
    assert!(is_not_kept(&error.unwrap_err()));
    let kept = node.kept_state_at(OLD).unwrap();
    assert!(matches!(kept.state_root(), Err(HistoryError::NoNodes)));

    // By its hash, which only the index has.
    let found = node.block(BlockRef::Hash(id.hash)).unwrap();
    assert_eq!((found.id, found.is_canonical), (id, true));
    let by_hash = node.state_at(BlockRef::Hash(id.hash)).unwrap();
    assert_eq!(by_hash.block(), id);
    assert!(alone.block(BlockRef::Hash(id.hash)).is_err());

    let head = node.block(BlockRef::Latest).unwrap();
    assert_eq!(head.id, db.head());
    let root = head.block.header.state_root;
    for state in [
        node.state_at(BlockRef::Latest).unwrap(),
        node.provable_state_at(BlockRef::Hash(head.id.hash))
            .unwrap(),
        node.kept_state_at(BLOCKS).unwrap(),
    ] {
        assert_eq!(state.state_root().unwrap(), root);
        assert_eq!(node.state_root(&state).unwrap(), Some(root));
    }
}

#[test]
fn names_that_mean_no_block_are_errors() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(2));
    let node = Node::of_chain(init(&disk, Options::default()));
    let genesis = node.db().genesis();
    for (name, id) in [
        (BlockRef::Earliest, genesis),
        (BlockRef::Latest, genesis),
        (BlockRef::Number(0), genesis),
        (BlockRef::Hash(genesis.hash), genesis),
    ] {
        assert_eq!(node.canonical_id(name).unwrap(), id, "{name}");
    }
    for (name, what) in [(BlockRef::Safe, "safe"), (BlockRef::Finalized, "finalized")] {
        let error = node.id(name).unwrap_err();
        assert!(matches!(error, NodeError::NotMarked(found) if found == what));
    }
    let above = node.block(BlockRef::Number(1)).unwrap_err();
    assert_eq!(
        above.to_string(),
        format!("no block 1: the head is {genesis}")
    );
    let unknown = node.state_at(BlockRef::Hash(B256::repeat_byte(7)));
    let unknown = unknown.map(|state| state.block()).unwrap_err();
    assert!(matches!(
        unknown,
        NodeError::Chain(ChainError::State(StateError::UnknownBlock(_)))
    ));
}

#[test]
fn a_history_that_cannot_be_read_is_an_error_or_done_without() {
    let faulty = FaultyDisk::new(3);
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let (chain, history) = chain_on(&disk);
    drop(history);
    let files = faulty.files();
    for name in files.iter().filter(|name| name.starts_with("history/")) {
        faulty.spoil(name, 0, faulty.contents(name).unwrap().len());
    }
    let near = BlockRef::Number(BLOCKS - 1);
    let node = || {
        let node = Node::of(chain.db().clone());
        node.with_history_on(disk.clone(), HistoryOptions::default())
    };
    assert!(node().state_at(near).is_err());
    let reported = Arc::new(AtomicUsize::new(0));
    let reports = reported.clone();
    let node = node().without_unreadable(move |_| {
        reports.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(node.state_at(near).unwrap().block().number, BLOCKS - 1);
    assert_eq!(reported.load(Ordering::Relaxed), 1);
    assert!(node.state_at(BlockRef::Number(OLD)).is_err());
}

#[test]
fn a_reader_finds_what_the_writer_has_made_since() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(directory.path()));
    let chain = init(&disk, options());
    let mut reader = Node::open(directory.path(), 64 << 20).unwrap();
    assert_eq!(reader.head(), chain.db().genesis());
    let options = HistoryOptions::default();
    let history = History::create(disk.clone(), chain.db(), 0, None, options).unwrap();
    seal_all(&chain, &history);
    let head: BlockId = chain.db().head();
    assert_eq!(reader.head().number, 0);
    assert_eq!(reader.catch_up().unwrap(), head);

    let found = reader.block(BlockRef::Latest).unwrap();
    assert_eq!(found.id, head);
    let transaction = *found.block.body.transactions[0].hash();
    let found = reader.transaction(transaction).unwrap().unwrap();
    assert_eq!((found.block, found.index), (head, 0));
    let old = reader.state_at(BlockRef::Number(OLD)).unwrap();
    assert_eq!(old.block().number, OLD);
}
