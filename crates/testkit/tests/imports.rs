//! Promises about imports, each of which was once broken: with any memory all blocks are imported, and blocks that
//! a repair has kept are used again, whichever thread comes first.

use crate::interleaving::{Gates, Step};
use alloy_consensus::Header;
use alloy_primitives::B256;
use alloy_rlp::Decodable;
use cambium_chain::{
    Block, Chain, ChainError, ChainSealer, FileError, Fork, ImportSummary, RawBlock,
};
use cambium_evm::{BlockExecutor, ExecutorKind};
use cambium_history::{History, HistoryFollower, HistoryOptions};
use cambium_index::{ChainIndex, IndexFollower, IndexOptions};
use cambium_primitives::BlockId;
use cambium_state::{FaultyDisk, FileSizes, Options, repair};
use cambium_store::lock_data_dir;
use cambium_testkit::{raw_block, say};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::{num::NonZeroUsize, sync::Arc, thread, time::Duration};

/// A chain, and its genesis state on a disk.
struct Made {
    disk: FaultyDisk,
    blocks: Vec<RawBlock>,
    head: BlockId,
}

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

impl Made {
    fn new(seed: u64, blocks: u64) -> Self {
        Self::under(Fork::Osaka, seed, blocks)
    }

    fn under(fork: Fork, seed: u64, blocks: u64) -> Self {
        let params = WorkloadParams {
            fork,
            seed,
            accounts: 500,
            senders: Some(100),
            blocks,
            block_size: BlockSize::Transactions(20),
            erc20_percent: 30,
            ..WorkloadParams::default()
        };
        let workload = Workload::new(params).unwrap();
        let shared = Arc::new(FaultyDisk::new(seed));
        let chain = workload.init(shared.clone(), options(64 << 20), &mut |_| {});
        let chain = chain.unwrap();
        let genesis = chain.block(0).unwrap().header;
        let disk = shared.duplicate();
        let mut blocks = Vec::new();
        let generated = workload.generate(&genesis, &mut ChainSealer(&chain), |block| {
            let number = block.header.number;
            blocks.push(raw_block(
                number,
                alloy_rlp::encode(block).into(),
                Some(chain.access_list(number)?.encode().into()),
            ));
            Ok::<_, ChainError>(())
        });
        generated.unwrap();
        let head = chain.db().head();
        Self { disk, blocks, head }
    }

    fn import(&self, chain: &Chain) -> Result<ImportSummary, ChainError> {
        chain.import(self.blocks.iter().cloned().map(Ok), &mut |_| {})
    }
}

fn close(chain: Chain, disk: &FaultyDisk) {
    drop(chain);
    while lock_data_dir(disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// "Imports blocks in order": with so little memory that each share of it is 0, beside all that follows a chain.
#[test]
fn with_any_memory_all_blocks_are_imported() {
    let made = Made::new(1, 40);
    for memory in [0, 1, 63, 64, 4 << 10, 1 << 20] {
        for batch in [1, 4] {
            let disk = Arc::new(made.disk.duplicate());
            let (chain, _) = Chain::open(disk.clone(), options(memory)).unwrap();
            let executor = BlockExecutor::new(ExecutorKind::Auto)
                .with_threads(NonZeroUsize::new(batch).unwrap());
            let chain = chain.with_executor(executor).with_batch(batch);
            let history_options = HistoryOptions {
                memory_bytes: memory / 16,
                trie_bytes: memory / 16,
                cache_bytes: memory / 64,
                ..HistoryOptions::default()
            };
            let genesis = chain.db().head().number;
            let history = History::create(
                disk.clone(),
                chain.db(),
                genesis,
                Some(Default::default()),
                history_options,
            );
            let history = HistoryFollower::start(history.unwrap(), chain.db().clone());
            let index_options = IndexOptions {
                memory_bytes: memory / 16,
                ..IndexOptions::default()
            };
            let index = ChainIndex::create(disk.clone(), chain.db(), 0, index_options).unwrap();
            let index_follower = IndexFollower::start(index.clone(), chain.db().clone());
            let chain = chain.with_index(index);
            let done = made.import(&chain).unwrap().done;
            let name = format!("{memory} bytes, {batch} at once");
            assert_eq!(
                (done.blocks, done.skipped, done.head),
                (40, 0, made.head),
                "{name}"
            );
            let history = history.finish().expect(&name);
            let index = index_follower.finish().expect(&name);
            assert_eq!(history.blocks().1, made.head, "{name}");
            assert_eq!(index.stats().upto, Some(made.head), "{name}");
            for number in 0..40 {
                let of_history = history.state_at(chain.db(), number).unwrap();
                let root = of_history.state_root().unwrap();
                assert_eq!(root, chain.block(number).unwrap().header.state_root);
            }
        }
    }
}

/// "Fails with `ChainError::File` if the source fails. All blocks before are committed": and nothing is asked of
/// a source that has ended or failed, which may go on from anywhere.
#[test]
fn a_source_is_asked_until_it_ends_or_fails_and_no_further() {
    struct Ends<'a> {
        blocks: std::slice::Iter<'a, RawBlock>,
        fails: bool,
        is_over: bool,
    }
    impl Iterator for Ends<'_> {
        type Item = Result<RawBlock, FileError>;

        fn next(&mut self) -> Option<Self::Item> {
            assert!(!self.is_over, "it was asked again");
            if let Some(block) = self.blocks.next() {
                return Some(Ok(block.clone()));
            }
            self.is_over = true;
            self.fails.then(|| {
                Err(FileError::BadFile {
                    file: "memory".into(),
                    what: "it ends".to_owned(),
                })
            })
        }
    }
    let made = Made::new(2, 8);
    for fails in [false, true] {
        for count in [0, 1, 5, 8] {
            let disk = Arc::new(made.disk.duplicate());
            let (chain, _) = Chain::open(disk, options(0)).unwrap();
            let blocks = made.blocks[..count].iter();
            let is_over = false;
            let source = Ends {
                blocks,
                fails,
                is_over,
            };
            let imported = chain.import(source, &mut |_| {});
            assert_eq!(
                matches!(imported, Err(ChainError::File(_))),
                fails,
                "{imported:?}"
            );
            assert_eq!(chain.db().head().number, count as u64);
        }
    }
}

/// A false claim in a header, of what one stage of an import or another verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// Compared with the parent's header while the block is prepared.
    GasLimit,
    /// Verified by the stage after execution.
    GasUsed,
    Receipts,
    Bloom,
    Requests,
    List,
    /// Verified by the last stage before the commit.
    Root,
}

impl Claim {
    const ALL: [Self; 7] = [
        Self::GasLimit,
        Self::GasUsed,
        Self::Receipts,
        Self::Bloom,
        Self::Requests,
        Self::List,
        Self::Root,
    ];

    /// Makes the header claim it. Returns what the error must contain.
    fn make(self, header: &mut Header) -> Vec<String> {
        let wrong = B256::repeat_byte(7);
        let both = |right: B256| vec![wrong.to_string(), right.to_string()];
        match self {
            Self::GasLimit => {
                header.gas_limit *= 3;
                vec![header.gas_limit.to_string()]
            }
            Self::GasUsed => {
                let right = header.gas_used;
                header.gas_used += 1;
                vec![right.to_string(), header.gas_used.to_string()]
            }
            Self::Receipts => both(std::mem::replace(&mut header.receipts_root, wrong)),
            Self::Bloom => {
                header.logs_bloom.0[3] ^= 1;
                vec!["logsBloom".to_owned()]
            }
            Self::Requests => both(header.requests_hash.replace(wrong).unwrap()),
            Self::List => both(header.block_access_list_hash.replace(wrong).unwrap()),
            Self::Root => both(std::mem::replace(&mut header.state_root, wrong)),
        }
    }
}

/// How blocks are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Blocks,
    Lists,
    /// Lists, by which several blocks are executed at once.
    Batches,
    /// Lists that are applied.
    Applied,
}

/// "A block is executed before its parent is verified and durable. After an error all blocks before the bad one are
/// committed": the first bad block is named, with what is wrong, also where a later one is found to be bad before.
#[test]
fn a_false_claim_ends_an_import_at_its_block_whatever_follows() {
    const BLOCKS: u64 = 12;
    for fork in [Fork::Osaka, Fork::Amsterdam] {
        let made = Made::under(fork, 7, BLOCKS);
        for claim in Claim::ALL {
            if claim == Claim::List && fork != Fork::Amsterdam {
                continue;
            }
            for given in [Given::Blocks, Given::Lists, Given::Batches, Given::Applied] {
                // Of an applied block nothing but the root is verified. A list whose hash is not in its header is
                // applied as well, if it leads to the right root.
                let is_seen =
                    given != Given::Applied || matches!(claim, Claim::GasLimit | Claim::Root);
                // A list with another hash than the header's is refused before the block is executed.
                if !is_seen || claim == Claim::List && given != Given::Blocks {
                    continue;
                }
                for (number, next) in [
                    (1, None),
                    (2, Some(Claim::GasLimit)),
                    (5, Some(Claim::GasUsed)),
                    (BLOCKS, None),
                ] {
                    made.import_with(claim, number, next, given);
                }
            }
        }
    }
}

impl Made {
    /// Imports the blocks with a false claim in block `number`, and in the one after it.
    fn import_with(&self, claim: Claim, number: u64, next: Option<Claim>, given: Given) {
        let mut blocks = self.blocks.clone();
        let (mut parent, mut bad, mut texts) = (None, B256::ZERO, Vec::new());
        for at in number..=blocks.len() as u64 {
            let raw = &mut blocks[at as usize - 1];
            let mut block = Block::decode(&mut &raw.rlp[..]).unwrap();
            match parent {
                None => texts = claim.make(&mut block.header),
                Some(parent) => block.header.parent_hash = parent,
            }
            if let Some(next) = next.filter(|_| at == number + 1) {
                next.make(&mut block.header);
            }
            let hash = block.header.hash_slow();
            if parent.replace(hash).is_none() {
                bad = hash;
            }
            raw.rlp = alloy_rlp::encode(block).into();
        }
        if given == Given::Blocks {
            blocks.iter_mut().for_each(|block| block.access_list = None);
        }
        let disk = Arc::new(self.disk.duplicate());
        let (chain, _) = Chain::open(disk, options(64 << 20)).unwrap();
        let chain = chain
            .with_batch(if given == Given::Batches { 8 } else { 1 })
            .with_applying(given == Given::Applied);
        let what = format!("{claim:?} in block {number}, then {next:?}, {given:?}");
        match chain.import(blocks.into_iter().map(Ok), &mut |_| {}) {
            Err(ChainError::Block { id, fault }) => {
                assert_eq!(id, BlockId::new(number, bad), "{what}: {fault}");
                let text = fault.to_string();
                let all = texts.iter().all(|part| text.contains(part));
                assert!(all, "{what}: {text}");
            }
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(chain.db().head().number, number - 1, "{what}");
        // It goes on with the right blocks.
        let rest = self.blocks.iter().cloned().map(Ok);
        chain.import(rest, &mut |_| {}).unwrap();
        assert_eq!(chain.db().head(), self.head, "{what}");
    }
}

/// Changes a byte in the log's record of a block.
fn damage(disk: &FaultyDisk, block: &RawBlock) {
    let rlp = &block.rlp[..128];
    for name in disk.files().iter().filter(|name| name.starts_with("log/")) {
        let bytes = disk.contents(name).unwrap();
        if let Some(at) = bytes.windows(rlp.len()).position(|bytes| bytes == rlp) {
            return disk.flip_bit(name, at as u64 + 64, 3);
        }
    }
    panic!("the log has no such block");
}

/// "When they are imported, blocks after them that were not lost are used again, and all is as it was": at the first
/// try, wherever the missing block's commit comes between the steps of those after it.
#[test]
fn the_first_import_after_a_repair_uses_the_blocks_that_were_kept() {
    const BLOCKS: u64 = 10;
    const LOST: u64 = 4;
    let made = Made::new(3, BLOCKS);
    let disk = Arc::new(made.disk.duplicate());
    let (chain, _) = Chain::open(disk.clone(), options(64 << 20)).unwrap();
    made.import(&chain).unwrap();
    close(chain, &disk);
    damage(&disk, &made.blocks[LOST as usize - 1]);
    let shared: Arc<dyn cambium_state::Disk> = disk.clone();
    let report = repair(&shared, options(64 << 20), false, &mut |_| {}).unwrap();
    say(&format!("{report:?}"));
    let gates = Gates::install();
    let mut orders = vec![("as it comes".to_owned(), vec![])];
    for later in LOST + 1..=BLOCKS {
        let begin = Step::Begin("execute", later);
        // The lost block is committed alone: it is sent before the next one is executed.
        let newest = LOST;
        orders.push((
            format!("committed while block {later} is executed"),
            vec![
                (Step::Begin("commit", newest), begin),
                (begin, Step::End("commit", newest)),
            ],
        ));
        orders.push((
            format!("committed after block {later} is sealed"),
            vec![(Step::Begin("commit", newest), Step::End("execute", later))],
        ));
    }
    let mut driven = 0;
    for batch in [1, 3] {
        for (name, order) in &orders {
            let disk = Arc::new(disk.duplicate());
            let (chain, _) = Chain::open(disk.clone(), options(64 << 20)).unwrap();
            let orphans = chain.db().stats().unwrap().orphan_blocks as u64;
            assert_eq!(orphans, BLOCKS - LOST);
            let threads = NonZeroUsize::new(batch).unwrap();
            let executor = BlockExecutor::new(ExecutorKind::Auto).with_threads(threads);
            let chain = chain.with_executor(executor).with_batch(batch);
            gates.order(order.clone());
            let done = made
                .import(&chain)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let (kept, given_up) = gates.waits();
            gates.order(vec![]);
            let done = done.done;
            assert_eq!(done.head, made.head, "{name}");
            assert_eq!(done.blocks + done.skipped, BLOCKS, "{name}");
            say(&format!(
                "{batch} at once, {name}: {} executed, {} used again, {kept} waits kept, {given_up} given up",
                done.blocks,
                done.skipped + 1 - LOST,
            ));
            driven += kept;
            assert_eq!(chain.db().stats().unwrap().orphan_blocks, 0, "{name}");
            for number in 0..=BLOCKS {
                let root = chain.db().view_at(number).unwrap().state_root();
                assert_eq!(root, chain.block(number).unwrap().header.state_root);
            }
            close(chain, &disk);
            let (chain, _) = Chain::open(disk, options(64 << 20)).unwrap();
            assert_eq!(chain.db().head(), made.head, "{name}");
        }
    }
    // The orders are possible, at least where blocks are executed one by one.
    assert!(driven >= 3 * (BLOCKS - LOST) as usize, "{driven}");
}
