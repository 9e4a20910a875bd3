//! Imports that read ahead of execution: the same states as without, at any depth, by every
//! executor, with failing reads, and while the head moves below them.

use cambium_chain::{Chain, ChainError, ChainSealer, RawBlock};
use cambium_evm::{BlockExecutor, ExecutorKind};
use cambium_primitives::BlockId;
use cambium_state::{Fault, FaultyDisk, FileSizes, Options, StateError};
use cambium_testkit::raw_block;
use cambium_workload::{BlockSize, Spread, Workload, WorkloadParams};
use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// A chain, and its genesis state on a disk.
struct Made {
    disk: FaultyDisk,
    blocks: Vec<RawBlock>,
    head: BlockId,
}

/// Segments and logs so small that files begin and are removed all the time.
fn options(memory_bytes: u64) -> Options {
    Options {
        memory_bytes,
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 8 << 10,
            log_file_bytes_max: 64 << 10,
            log_extend_bytes: 4 << 10,
            ..FileSizes::default()
        },
        ..Options::default()
    }
}

/// Memory so little that blocks are merged and read from pages again.
const LITTLE: u64 = 2 << 20;

impl Made {
    /// All kinds of transactions, among accounts of which `spread` uses some more than others.
    fn new(seed: u64, spread: Spread) -> Self {
        Self::of(WorkloadParams {
            seed,
            accounts: 8_000,
            senders: Some(1_500),
            holders: Some(4_000),
            pools: 20,
            slots: 4_000,
            blocks: 8,
            block_size: BlockSize::Transactions(80),
            erc20_percent: 40,
            swap_percent: 20,
            slot_read_percent: 5,
            slot_read_gas: 200_000,
            spread,
            pool_spread: spread,
            ..WorkloadParams::default()
        })
    }

    /// The chain that these parameters make.
    fn of(params: WorkloadParams) -> Self {
        let disk = FaultyDisk::new(params.seed);
        let workload = Workload::new(params).unwrap();
        let shared = Arc::new(disk.duplicate());
        let chain = workload.init(shared.clone(), options(64 << 20), &mut |_| {});
        let chain = chain.unwrap();
        let genesis = chain.block(0).unwrap().header;
        chain.db().flush(0).unwrap();
        let disk = shared.duplicate();
        let mut blocks = Vec::new();
        let head = workload.generate(&genesis, &mut ChainSealer(&chain), |block| {
            let number = block.header.number;
            blocks.push(raw_block(
                number,
                alloy_rlp::encode(block).into(),
                Some(chain.access_list(number)?.encode().into()),
            ));
            Ok::<_, ChainError>(())
        });
        head.unwrap();
        Self {
            disk,
            blocks,
            head: chain.db().head(),
        }
    }

    fn blocks(&self, with_lists: bool) -> Vec<RawBlock> {
        let mut blocks = self.blocks.clone();
        if !with_lists {
            blocks.iter_mut().for_each(|block| block.access_list = None);
        }
        blocks
    }

    fn open(&self, memory_bytes: u64) -> (Chain, Arc<FaultyDisk>) {
        let disk = Arc::new(self.disk.duplicate());
        let (chain, _) = Chain::open(disk.clone(), options(memory_bytes)).unwrap();
        (chain, disk)
    }
}

fn import(chain: &Chain, blocks: Vec<RawBlock>) -> Result<BlockId, ChainError> {
    let summary = chain.import(blocks.into_iter().map(Ok), &mut |_| {})?;
    Ok(summary.done.head)
}

fn executor(kind: ExecutorKind) -> BlockExecutor {
    let threads = NonZeroUsize::new(3).unwrap();
    BlockExecutor::new(kind)
        .with_threads(threads)
        .with_gas_min(0)
}

#[test]
fn every_executor_gets_the_same_states_at_any_depth() {
    let spreads = [Spread::Uniform, Spread::Zipf, Spread::Hot(60)];
    for (seed, spread) in (1..).zip(spreads) {
        let made = Made::new(seed, spread);
        // Executors meet other depths with each seed.
        let depths = [0, 1, 7, 128, 10_000].into_iter().cycle();
        let depths = depths.skip(seed as usize);
        for (kind, depth) in ExecutorKind::ALL.into_iter().zip(depths) {
            for with_lists in [false, true] {
                let (chain, _) = made.open(LITTLE);
                let chain = chain
                    .with_executor(executor(kind))
                    .with_batch(if seed == 2 { 3 } else { 1 })
                    .with_read_ahead(depth);
                let head = import(&chain, made.blocks(with_lists)).unwrap();
                assert_eq!(head, made.head, "{kind:?}, {depth} reads");
                let counters = chain.db().counters();
                assert!(depth > 0 || counters.page_reads_ahead == 0);
                let used = counters.pages_ahead_used + counters.pages_ahead_wasted;
                assert!(used <= counters.page_reads_ahead, "{counters:?}");
            }
        }
    }
}

#[test]
fn what_blocks_read_is_not_read_again_for_their_roots() {
    let made = Made::new(4, Spread::Uniform);
    // Without merges: these move pages that were read ahead, and were not to be read.
    let (chain, _) = made.open(64 << 20);
    import(&chain, made.blocks(false)).unwrap();
    let counters = chain.db().counters();
    let (ahead, value) = (counters.page_reads_ahead, counters.page_reads_value);
    // How many are read ahead depends on how fast execution is meanwhile.
    assert!(ahead > 0, "{ahead} pages");
    let again = counters.page_reads_trie;
    assert!(
        5 * again < ahead + value,
        "{again} pages besides {ahead} and {value}"
    );
    let used = counters.pages_ahead_used;
    assert!(2 * used > ahead, "{used} pages used of {ahead}");
}

#[test]
fn an_index_on_disk_is_read_ahead_as_well() {
    let made = Made::new(7, Spread::Uniform);
    for depth in [1, 128] {
        let disk = Arc::new(made.disk.duplicate());
        let options = Options {
            index_bytes_max: Some(8 << 10),
            ..options(LITTLE)
        };
        let (chain, _) = Chain::open(disk, options).unwrap();
        let chain = chain.with_read_ahead(depth);
        assert_eq!(import(&chain, made.blocks(false)).unwrap(), made.head);
        let counters = chain.db().counters();
        assert!(counters.index_reads > 0 && counters.page_reads_ahead > 0);
    }
}

#[test]
fn failing_reads_change_no_state_and_lose_no_block() {
    let made = Made::new(5, Spread::Uniform);
    for (reads, depth) in [(1, 128), (3, 3), (20, 128), (200, 10)] {
        let (chain, disk) = made.open(LITTLE);
        let chain = chain.with_read_ahead(depth);
        disk.inject(Fault::FailedRead, "", reads);
        // Reads ahead that fail are tried again by execution, which meets the rest of the faults.
        let mut attempts = 0;
        loop {
            match import(&chain, made.blocks(false)) {
                Ok(head) => break assert_eq!(head, made.head),
                Err(ChainError::State(StateError::Store(_))) => attempts += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(attempts <= reads, "more errors than faults");
        }
        assert_eq!(disk.take_hits().len(), reads as usize);
    }
}

#[test]
fn the_head_may_move_while_blocks_are_read_ahead_for() {
    let made = Made::new(6, Spread::Zipf);
    let (chain, _) = made.open(LITTLE);
    let chain = chain.with_read_ahead(32);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let head = chain.db().head().number;
                // A block that is not committed any more can't be unwound to.
                let _ = chain.db().unwind(head.saturating_sub(2));
                thread::sleep(Duration::from_millis(3));
            }
        });
        for _ in 0..20 {
            // The unwound blocks are a stored branch, which becomes the head again.
            if let Err(error) = import(&chain, made.blocks(false)) {
                let unknown = matches!(error, ChainError::State(StateError::UnknownBlock(_)));
                assert!(unknown, "{error}");
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(import(&chain, made.blocks(false)).unwrap(), made.head);
}

#[test]
fn nothing_is_read_for_blocks_that_are_there() {
    let made = Made::new(8, Spread::Uniform);
    let disk = Arc::new(made.disk.duplicate());
    let options = Options {
        unfinalized_blocks: 1,
        ..options(LITTLE)
    };
    let (chain, _) = Chain::open(disk.clone(), options).unwrap();
    import(&chain, made.blocks(false)).unwrap();
    chain.db().flush(0).unwrap();
    let [without, with] = [0, 128].map(|depth| {
        let (chain, _) = Chain::open(Arc::new(disk.duplicate()), options).unwrap();
        let chain = chain.with_read_ahead(depth);
        let before = chain.db().counters().disk_reads;
        assert_eq!(import(&chain, made.blocks(false)).unwrap(), made.head);
        chain.db().counters().disk_reads - before
    });
    assert_eq!(with, without, "reads of the disk to skip blocks");
}

#[test]
fn only_a_merge_puts_other_pages_below_a_view() {
    let made = Made::new(8, Spread::Uniform);
    let (chain, _) = made.open(64 << 20);
    let before = chain.db().view().unwrap();
    import(&chain, made.blocks(false)).unwrap();
    let after = chain.db().view().unwrap();
    assert!(after.has_snapshot_of(&before));
    chain.db().flush(0).unwrap();
    assert!(!chain.db().view().unwrap().has_snapshot_of(&after));
}

/// Transactions that read thousands of slots each are scouted many at once: with their pages, pins
/// would have several times their limit.
#[test]
fn pins_keep_to_their_limit_whatever_scouts_read() {
    let made = Made::of(WorkloadParams {
        seed: 6,
        accounts: 2_000,
        senders: Some(1_500),
        holders: Some(1_500),
        pools: 2,
        slots: 300_000,
        blocks: 2,
        block_size: BlockSize::Transactions(100),
        erc20_percent: 0,
        swap_percent: 0,
        slot_read_percent: 100,
        slot_read_gas: 2_000_000,
        spread: Spread::Uniform,
        pool_spread: Spread::Uniform,
        ..WorkloadParams::default()
    });
    for with_lists in [false, true] {
        let (chain, _) = made.open(24 << 20);
        let done = AtomicBool::new(false);
        let peak = thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut peak = 0;
                while !done.load(Ordering::Relaxed) {
                    peak = peak.max(chain.db().pinned_pages().0);
                    thread::sleep(Duration::from_micros(100));
                }
                peak
            });
            let head = import(&chain, made.blocks(with_lists));
            done.store(true, Ordering::Relaxed);
            assert_eq!(head.unwrap(), made.head);
            sampler.join().unwrap()
        });
        let (_, limit) = chain.db().pinned_pages();
        let room = 2 * limit + (64 << 10);
        assert!(
            peak > limit / 2,
            "{peak} of {limit} bytes: too few for a test"
        );
        assert!(
            peak <= room,
            "{peak} bytes are pinned, and the limit is {limit}"
        );
    }
}

#[test]
fn as_many_blocks_at_once_as_one_likes() {
    let made = Made::new(7, Spread::Uniform);
    let (chain, _) = made.open(64 << 20);
    let executor = executor(ExecutorKind::Parallel);
    let chain = chain.with_executor(executor).with_batch(usize::MAX);
    assert_eq!(import(&chain, made.blocks(true)).unwrap(), made.head);
}
