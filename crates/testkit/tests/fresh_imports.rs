//! Promises about imports whose blocks are executed before those below them are verified, tried from outside: the first
//! fault wins whatever later blocks have, nothing of what is unverified is seen, and an import that stops in any way
//! leaves the blocks before, and no others.

use alloy_consensus::{EthereumTxEnvelope, Signed, proofs::calculate_transaction_root};
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bytes, Signature, U256};
use alloy_rlp::Decodable;
use cambium_chain::{
    Block, BlockFault, Chain, ChainError, ChainSealer, FileError, Fork, ImportProgress,
    ImportSummary, RawBlock,
};
use cambium_evm::{BlockExecutor, ExecutorKind};
use cambium_primitives::BlockId;
use cambium_state::{ChainEvent, FaultyDisk, FileSizes, Options, StateError};
use cambium_store::lock_data_dir;
use cambium_testkit::{raw_block, say};
use cambium_workload::{BlockSealer, BlockSize, Workload, WorkloadParams};
use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// Transactions of a block: more than two of the parts in which senders are recovered.
const TRANSACTIONS: u64 = 36;

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
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

fn workload(fork: Fork, blocks: u64, transactions: u64) -> Workload {
    let params = WorkloadParams {
        fork,
        seed: 11,
        accounts: 200,
        senders: Some(60),
        blocks,
        block_size: BlockSize::Transactions(transactions),
        erc20_percent: 30,
        ..WorkloadParams::default()
    };
    Workload::new(params).unwrap()
}

/// Seals drafts with another beneficiary from a height on.
struct Branch<'a> {
    sealer: ChainSealer<'a>,
    from: u64,
    beneficiary: Address,
}

impl BlockSealer for Branch<'_> {
    type Error = ChainError;

    fn seal(&mut self, mut draft: Block) -> Result<Block, ChainError> {
        if draft.header.number > self.from {
            draft.header.beneficiary = self.beneficiary;
        }
        self.sealer.seal(draft)
    }
}

/// A genesis state on a disk, and branches of blocks on it.
struct Made {
    disk: FaultyDisk,
    fork: Fork,
    count: u64,
    transactions: u64,
}

impl Made {
    fn new(fork: Fork, count: u64, transactions: u64) -> Self {
        let shared = Arc::new(FaultyDisk::new(5));
        let chain =
            workload(fork, count, transactions).init(shared.clone(), options(), &mut |_| {});
        drop(chain.unwrap());
        while lock_data_dir(&*shared).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
        Self {
            disk: shared.duplicate(),
            fork,
            count,
            transactions,
        }
    }

    /// The blocks of a branch that leaves the chain after block `from`, with their lists.
    fn branch(&self, from: u64, name: u8) -> Vec<RawBlock> {
        let maker = self.open(&Arc::new(self.disk.duplicate()));
        let genesis = maker.block(0).unwrap().header;
        let mut sealer = Branch {
            sealer: ChainSealer(&maker),
            from,
            beneficiary: Address::repeat_byte(name),
        };
        let mut blocks = Vec::new();
        let workload = workload(self.fork, self.count, self.transactions);
        let generated = workload.generate(&genesis, &mut sealer, |block| {
            let number = block.header.number;
            blocks.push(raw_block(
                number,
                alloy_rlp::encode(block).into(),
                Some(maker.access_list(number)?.encode().into()),
            ));
            Ok::<_, ChainError>(())
        });
        generated.unwrap();
        blocks
    }

    fn open(&self, disk: &Arc<FaultyDisk>) -> Chain {
        Chain::open(disk.clone(), options()).unwrap().0
    }

    fn chain(&self) -> Chain {
        self.open(&Arc::new(self.disk.duplicate()))
    }
}

fn decoded(raw: &RawBlock) -> Block {
    Block::decode(&mut &raw.rlp[..]).unwrap()
}

fn id(raw: &RawBlock) -> BlockId {
    let header = raw.header().unwrap();
    BlockId::new(header.number, header.hash_slow())
}

fn import(chain: &Chain, blocks: &[RawBlock]) -> Result<ImportSummary, ChainError> {
    chain.import(blocks.iter().cloned().map(Ok), &mut |_| {})
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Root,
    GasUsed,
    Receipts,
    /// The last transaction, which is not in the first part of which senders are recovered, has no signer.
    Signature,
    /// The last transaction comes twice.
    Nonce,
    /// A transaction is missing in the body.
    Body,
    Withdrawals,
    /// The bytes of its list are no list.
    List,
    /// Its list lacks an account.
    ShortList,
    Header,
}

impl Fault {
    const ALL: [Self; 10] = [
        Self::Root,
        Self::GasUsed,
        Self::Receipts,
        Self::Signature,
        Self::Nonce,
        Self::Body,
        Self::Withdrawals,
        Self::List,
        Self::ShortList,
        Self::Header,
    ];

    fn make(self, raw: &mut RawBlock, block: &mut Block) {
        let transactions = &mut block.body.transactions;
        match self {
            Self::Root => block.header.state_root = B256::repeat_byte(7),
            Self::GasUsed => block.header.gas_used += 1,
            Self::Receipts => block.header.receipts_root = B256::repeat_byte(7),
            Self::Signature => {
                let last = transactions.pop().unwrap();
                transactions.push(unsigned(last));
                block.header.transactions_root = calculate_transaction_root(transactions);
            }
            Self::Nonce => {
                let last = transactions.last().unwrap().clone();
                *transactions.last_mut().unwrap() = last.clone();
                let at = transactions.len() - 2;
                transactions[at] = last;
                block.header.transactions_root = calculate_transaction_root(transactions);
            }
            Self::Body => drop(transactions.pop()),
            Self::Withdrawals => {
                block.body.withdrawals = Some(vec![Withdrawal::default()].into());
            }
            Self::List => raw.access_list = Some(Bytes::from_static(&[0xc1, 0x07])),
            Self::ShortList => raw.access_list = Some(Bytes::from_static(&[0xc0])),
            Self::Header => block.header.gas_limit *= 3,
        }
    }

    /// Whether an error says so.
    fn is(self, fault: &BlockFault) -> bool {
        let text = fault.to_string();
        match self {
            Self::Root => matches!(fault, BlockFault::Verify(_)) && text.contains("0x0707"),
            Self::Receipts => matches!(fault, BlockFault::Verify(_)) && text.contains("0x0707"),
            Self::GasUsed => matches!(fault, BlockFault::Verify(_)),
            Self::Signature => matches!(fault, BlockFault::Signature(_)),
            Self::Nonce => matches!(fault, BlockFault::Execution(_)),
            Self::Body | Self::Withdrawals => matches!(fault, BlockFault::Body(_)),
            Self::List | Self::ShortList => {
                matches!(fault, BlockFault::Body(_) | BlockFault::Verify(_))
            }
            Self::Header => matches!(fault, BlockFault::Header(_)),
        }
    }
}

/// The transaction with a signature that nobody can have made.
fn unsigned<T: Clone>(transaction: EthereumTxEnvelope<T>) -> EthereumTxEnvelope<T> {
    let none = Signature::new(U256::ZERO, U256::ZERO, false);
    match transaction {
        EthereumTxEnvelope::Legacy(signed) => {
            EthereumTxEnvelope::Legacy(Signed::new_unhashed(signed.into_parts().0, none))
        }
        EthereumTxEnvelope::Eip1559(signed) => {
            EthereumTxEnvelope::Eip1559(Signed::new_unhashed(signed.into_parts().0, none))
        }
        _ => panic!("workloads have no other transactions"),
    }
}

/// The blocks with faults in some of them, and each on the one before. Faults are by number.
fn with_faults(blocks: &[RawBlock], faults: &[(u64, Fault)]) -> Vec<RawBlock> {
    let mut parent = None;
    let change = |raw: &RawBlock| {
        let mut raw = raw.clone();
        let mut block = decoded(&raw);
        if let Some(parent) = parent {
            block.header.parent_hash = parent;
        }
        let number = block.header.number;
        for (_, fault) in faults.iter().filter(|(of, _)| *of == number) {
            fault.make(&mut raw, &mut block);
        }
        parent = Some(block.header.hash_slow());
        raw.rlp = alloy_rlp::encode(block).into();
        raw
    };
    blocks.iter().map(change).collect()
}

fn assert_fault(imported: Result<ImportSummary, ChainError>, of: BlockId, is: Fault, what: &str) {
    match imported {
        Err(ChainError::Block { id, fault }) => {
            assert_eq!(id, of, "{what}: {fault}");
            assert!(is.is(&fault), "{what}: {fault:?}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

/// "What is wrong ends the import at its block, whatever later blocks have given until then; nothing of them is durable":
/// later blocks are wrong as well, in what any stage looks at, those before preparation included.
#[test]
fn the_first_of_several_faults_is_named_whatever_the_later_ones_are() {
    const BLOCKS: u64 = 6;
    let made = Made::new(Fork::Osaka, BLOCKS, TRANSACTIONS);
    let right = made.branch(0, 0xaa);
    let last = id(&right[BLOCKS as usize - 1]);
    for batch in [1, 4] {
        for first in Fault::ALL {
            for later in Fault::ALL {
                let blocks = with_faults(&right, &[(3, first), (4, later), (5, later)]);
                let chain = made.chain().with_batch(batch);
                let what = format!("{first:?}, then {later:?}, {batch} at once");
                assert_fault(import(&chain, &blocks), id(&blocks[2]), first, &what);
                assert_eq!(chain.db().head(), id(&right[1]), "{what}");
                assert!(chain.db().side_branches().unwrap().is_empty(), "{what}");
                for block in &blocks[2..] {
                    assert!(!chain.has(id(block)).unwrap(), "{what}");
                    assert_eq!(chain.db().find(&id(block).hash), None, "{what}");
                }
                let done = import(&chain, &right).unwrap().done;
                assert_eq!((done.head, done.blocks), (last, BLOCKS - 2), "{what}");
            }
        }
    }
}

/// Holds a block that is sealed and not committed, as another caller does, and imports `blocks` meanwhile.
fn import_beside(
    chain: &Chain,
    held: &RawBlock,
    blocks: &[RawBlock],
    commits: bool,
) -> Result<ImportSummary, ChainError> {
    let prepared = chain.prepare(held.rlp.clone(), None).unwrap();
    let held = chain.execute(prepared, chain.db().head()).unwrap();
    thread::scope(|scope| {
        let import = scope.spawn(|| import(chain, blocks));
        thread::sleep(Duration::from_millis(300));
        match commits {
            true => drop(held.commit_side_branch().unwrap()),
            false => drop(held),
        }
        import.join().unwrap()
    })
}

/// "Others may import and insert blocks meanwhile": a block whose parent another caller commits a moment later is
/// imported, also if the one before it is on another branch.
#[test]
fn a_block_on_one_that_another_caller_commits_is_imported_whatever_comes_before() {
    let made = Made::new(Fork::Osaka, 3, 8);
    let (a, b) = (made.branch(0, 0xaa), made.branch(0, 0xbb));
    for batch in [1, 4] {
        for before in 0..3 {
            let chain = made.chain().with_batch(batch);
            let mut blocks = b[..before].to_vec();
            blocks.push(a[1].clone());
            let done = import_beside(&chain, &a[0], &blocks, true)
                .unwrap_or_else(|error| panic!("{before} before, {batch} at once: {error}"))
                .done;
            assert_eq!(done.head, id(&a[1]));
            assert_eq!(done.blocks, blocks.len() as u64);
        }
    }
}

/// "[`ChainError::Block`] for a block that is invalid [or whose parent is unknown] ... All blocks before are committed":
/// also if the parent is another caller's block, which that one drops.
#[test]
fn a_block_on_one_that_another_caller_drops_has_an_unknown_parent() {
    let made = Made::new(Fork::Osaka, 3, 8);
    let (a, b) = (made.branch(0, 0xaa), made.branch(0, 0xbb));
    for batch in [1, 4] {
        for before in 0..3 {
            let chain = made.chain().with_batch(batch);
            let mut blocks = b[..before].to_vec();
            blocks.extend_from_slice(&a[1..]);
            let what = format!("{before} before, {batch} at once");
            match import_beside(&chain, &a[0], &blocks, false) {
                Err(ChainError::Block { id: of, fault }) => {
                    assert_eq!(of, id(&a[1]), "{what}");
                    let is_unknown = matches!(*fault, BlockFault::UnknownParent(_));
                    assert!(is_unknown, "{what}: {fault}");
                }
                other => panic!("{what}: {other:?}"),
            }
            let head = chain.db().head();
            assert_eq!(head.number, before as u64, "{what}");
        }
    }
}

/// A block that is sealed and not committed can't be chosen, called safe or finalized, or looked at.
#[test]
fn nothing_takes_a_sealed_block_for_one_of_the_database() {
    let made = Made::new(Fork::Osaka, 3, 8);
    let a = made.branch(0, 0xaa);
    let chain = made.chain();
    import(&chain, &a[..1]).unwrap();
    let prepared = chain.prepare(a[1].rlp.clone(), None).unwrap();
    let held = chain.execute(prepared, chain.db().head()).unwrap();
    let (head, of) = (id(&a[0]), id(&a[1]));
    assert_eq!(held.id(), of);
    for (to, safe, finalized) in [
        (of.hash, None, None),
        (head.hash, Some(of.hash), None),
        (head.hash, None, Some(of.hash)),
    ] {
        let chosen = chain.set_canonical(to, safe, finalized);
        assert!(chosen.is_err(), "{safe:?} {finalized:?}");
        assert_eq!(chain.db().head(), head);
        assert_eq!(chain.db().finality().finalized, None);
        assert_eq!(chain.db().finality().safe, None);
    }
    assert!(chain.block_of(of).unwrap().is_none());
    assert!(chain.stored_of(of).unwrap().is_none());
    assert!(chain.outcome_of(of).is_err());
    assert_eq!(chain.db().block_id(2).unwrap(), None);
    assert!(chain.db().side_branches().unwrap().is_empty());
    drop(held);
    import(&chain, &a).unwrap();
}

/// Readers and subscribers that look all the time see nothing of a wrong block, nor of those after it.
#[test]
fn readers_and_subscribers_see_no_block_that_is_not_verified() {
    const BLOCKS: u64 = 12;
    const BAD: u64 = 6;
    let made = Made::new(Fork::Osaka, BLOCKS, TRANSACTIONS);
    let right = made.branch(0, 0xaa);
    for fault in [Fault::Root, Fault::GasUsed, Fault::Receipts] {
        for batch in [1, 4] {
            let blocks = with_faults(&right, &[(BAD, fault)]);
            let chain = made.chain().with_batch(batch);
            let (is_over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
            let mut subscription = chain.db().subscribe(chain.db().head());
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let head = chain.db().head();
                        assert!(head.number < BAD && head.number >= last);
                        last = head.number;
                        assert!(chain.db().view().unwrap().block().number < BAD);
                        for block in &blocks[BAD as usize - 1..] {
                            let of = id(block);
                            assert!(!chain.has(of).unwrap());
                            assert_eq!(chain.db().block_id(of.number).unwrap(), None);
                            assert!(chain.block_of(of).unwrap().is_none());
                            let chosen = chain.set_canonical(of.hash, None, None);
                            assert!(chosen.is_err(), "{of}");
                            if chain.db().find(&of.hash).is_some() {
                                seen.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
                scope.spawn(|| {
                    let mut next = 1;
                    while next < BAD {
                        match subscription.wait(Duration::from_secs(20)).unwrap() {
                            Some(ChainEvent::Committed(block)) => {
                                assert_eq!(block.meta.id, id(&blocks[next as usize - 1]));
                                next += 1;
                            }
                            other => panic!("{:?}", other.is_some()),
                        }
                    }
                });
                let imported = import(&chain, &blocks);
                assert_fault(
                    imported,
                    id(&blocks[BAD as usize - 1]),
                    fault,
                    "beside readers",
                );
                thread::sleep(Duration::from_millis(20));
                is_over.store(true, Ordering::Relaxed);
            });
            assert!(subscription.try_next().unwrap().is_none());
            say(&format!(
                "{fault:?}: sealed blocks found {} times",
                seen.into_inner()
            ));
        }
    }
}

/// Two callers import overlapping blocks of which one is wrong: both are told so, and blocks before are there.
#[test]
fn each_of_two_callers_is_told_of_the_wrong_block_that_both_import() {
    const BLOCKS: u64 = 8;
    const BAD: u64 = 5;
    let made = Made::new(Fork::Osaka, BLOCKS, 16);
    let right = made.branch(0, 0xaa);
    for (round, fault) in [Fault::Root, Fault::GasUsed, Fault::Root, Fault::Nonce]
        .into_iter()
        .cycle()
        .take(16)
        .enumerate()
    {
        let blocks = with_faults(&right, &[(BAD, fault)]);
        let chain = made.chain().with_batch(1 + round % 2 * 3);
        thread::scope(|scope| {
            for caller in 0..3 {
                let (chain, blocks) = (&chain, &blocks);
                scope.spawn(move || match caller {
                    2 => {
                        for block in blocks {
                            let of = id(block);
                            match chain.insert(block.rlp.clone(), None) {
                                Ok(_) => assert!(of.number < BAD, "{of}"),
                                Err(ChainError::Block { id, fault: why }) => {
                                    assert_eq!(id, of);
                                    let is_unknown = matches!(*why, BlockFault::UnknownParent(_));
                                    // A false claim of gas makes the base fee of its child wrong as well.
                                    let is_child =
                                        of.number > BAD && matches!(*why, BlockFault::Header(_));
                                    assert!(
                                        is_unknown || is_child || fault.is(&why),
                                        "{of}: {why}"
                                    );
                                }
                                Err(error) => panic!("{of}: {error}"),
                            }
                        }
                    }
                    _ => {
                        let bad = id(&blocks[BAD as usize - 1]);
                        assert_fault(import(chain, blocks), bad, fault, &format!("{round}"));
                    }
                });
            }
        });
        assert_eq!(chain.db().head(), id(&right[BAD as usize - 2]));
        import(&chain, &right).unwrap();
        assert_eq!(chain.db().head(), id(&right[BLOCKS as usize - 1]));
    }
}

/// Two callers import branches that compete: both have all their blocks, and one of the two tips is the head.
#[test]
fn two_callers_may_import_branches_of_one_chain() {
    const BLOCKS: u64 = 10;
    let made = Made::new(Fork::Osaka, BLOCKS, 8);
    let (a, b) = (made.branch(2, 0xaa), made.branch(0, 0xbb));
    for round in 0..8 {
        let chain = made.chain().with_batch(1 + round % 2 * 3);
        thread::scope(|scope| {
            for blocks in [&a, &b, &a] {
                let chain = &chain;
                scope.spawn(move || {
                    import(chain, blocks).unwrap();
                });
            }
        });
        for block in a.iter().chain(&b) {
            assert!(chain.has(id(block)).unwrap());
        }
        let head = chain.db().head();
        assert!(head == id(&a[9]) || head == id(&b[9]), "{head}");
    }
}

/// A source that repeats what it has given, in any order, is no fault: also of blocks that are kept no longer.
#[test]
fn a_source_may_repeat_blocks_that_have_left_the_log() {
    const BLOCKS: u64 = 60;
    let made = Made::new(Fork::Osaka, BLOCKS, 8);
    let a = made.branch(0, 0xaa);
    for (batch, memory_bytes) in [(1, 1 << 20), (4, 1 << 20), (1, 64 << 20)] {
        let disk = Arc::new(made.disk.duplicate());
        let mut options = options();
        options.memory_bytes = memory_bytes;
        options.unfinalized_blocks = 2;
        options.keep_blocks = Some(2);
        options.files.log_file_bytes_max = 16 << 10;
        let chain = Chain::open(disk, options).unwrap().0.with_batch(batch);
        let mut blocks = Vec::new();
        for (at, block) in a.iter().enumerate() {
            blocks.push(block.clone());
            blocks.push(a[at / 2].clone());
            blocks.push(a[at.saturating_sub(1)].clone());
            blocks.push(a[0].clone());
        }
        blocks.extend(a.iter().cloned());
        let done = import(&chain, &blocks).unwrap().done;
        assert_eq!(
            (done.blocks, done.head),
            (BLOCKS, id(&a[BLOCKS as usize - 1]))
        );
        assert_eq!(done.skipped, 4 * BLOCKS);
    }
}

/// A fork within one import: the last block that comes is the head, and blocks of the other branch are there.
#[test]
fn branches_may_alternate_within_an_import() {
    const BLOCKS: usize = 8;
    let made = Made::new(Fork::Osaka, BLOCKS as u64, 8);
    let (a, b, c) = (
        made.branch(0, 0xaa),
        made.branch(0, 0xbb),
        made.branch(3, 0xbb),
    );
    for batch in [1, 4] {
        for applies in [false, true] {
            let chain = made.chain().with_batch(batch).with_applying(applies);
            let mut blocks = Vec::new();
            for at in 0..BLOCKS {
                blocks.extend([a[at].clone(), b[at].clone(), c[at].clone(), a[at].clone()]);
            }
            blocks.push(b[BLOCKS - 1].clone());
            import(&chain, &blocks).unwrap();
            assert_eq!(chain.db().head(), id(&b[BLOCKS - 1]), "{batch} {applies}");
            for block in a.iter().chain(&b).chain(&c) {
                assert!(chain.has(id(block)).unwrap());
                let view = chain.db().view_of(id(block)).unwrap();
                assert_eq!(view.state_root(), block.header().unwrap().state_root);
            }
        }
    }
}

/// Blocks out of order: the one whose parent has not come is named, and those before are committed.
#[test]
fn a_block_before_its_parent_ends_an_import_there() {
    let made = Made::new(Fork::Osaka, 8, 8);
    let a = made.branch(0, 0xaa);
    for batch in [1, 4] {
        for at in 0..7 {
            let mut blocks = a.clone();
            blocks.swap(at, at + 1);
            let chain = made.chain().with_batch(batch);
            match import(&chain, &blocks) {
                Err(ChainError::Block { id: of, fault }) => {
                    assert_eq!(of, id(&a[at + 1]));
                    assert!(matches!(*fault, BlockFault::UnknownParent(_)), "{fault}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(chain.db().head().number, at as u64);
        }
    }
}

/// A caller that panics in its source or at a progress report gets its panic; what was reported is there, nothing is
/// left sealed, and the next import goes on.
#[test]
fn a_panic_of_the_caller_ends_an_import_and_leaves_the_blocks_before() {
    const BLOCKS: u64 = 12;
    let made = Made::new(Fork::Osaka, BLOCKS, 8);
    let a = made.branch(0, 0xaa);
    for in_source in [false, true] {
        for at in [0, 1, 5, 11] {
            let disk = Arc::new(made.disk.duplicate());
            let chain = made.open(&disk);
            let mut reported = chain.db().head();
            let source = a.iter().cloned().enumerate().map(|(index, block)| {
                assert!(!in_source || index < at, "asked for");
                Ok::<_, FileError>(block)
            });
            let progress = &mut |done: &ImportProgress| {
                reported = done.head;
                assert!(in_source || done.blocks < at as u64, "asked for");
            };
            let imported = catch_unwind(AssertUnwindSafe(|| chain.import(source, progress)));
            assert!(imported.is_err());
            let head = chain.db().head();
            assert_eq!(head, reported);
            assert!(!in_source || head.number <= at as u64);
            for block in &a[head.number as usize..] {
                assert_eq!(chain.db().find(&id(block).hash), None);
            }
            import(&chain, &a).unwrap();
            assert_eq!(chain.db().head(), id(&a[BLOCKS as usize - 1]));
        }
    }
}

/// The disk fails once, at any operation, or power is lost there: what was reported is there when the database is opened
/// again, on the chain, and the next import goes on.
#[test]
fn an_import_whose_disk_fails_anywhere_leaves_what_it_has_reported() {
    const BLOCKS: u64 = 10;
    let made = Made::new(Fork::Amsterdam, BLOCKS, 8);
    let a = made.branch(0, 0xaa);
    let last = id(&a[BLOCKS as usize - 1]);
    for (batch, applies) in [(1, false), (4, false), (1, true)] {
        for power in [false, true] {
            let mut at = 0;
            loop {
                let disk = Arc::new(made.disk.duplicate());
                let threads = NonZeroUsize::new(2).unwrap();
                let executor = BlockExecutor::new(ExecutorKind::Auto).with_threads(threads);
                let chain = made.open(&disk).with_executor(executor);
                let chain = chain.with_batch(batch).with_applying(applies);
                match power {
                    true => disk.lose_power_after(at),
                    false => disk.fail_call_after(at),
                }
                let mut reported = chain.db().head();
                let imported = chain.import(a.iter().cloned().map(Ok), &mut |done| {
                    assert!(done.head.number >= reported.number);
                    reported = done.head;
                });
                let what = format!("operation {at}, power {power}, {batch} at once, {applies}");
                let failed = match imported {
                    Ok(summary) => {
                        assert_eq!(summary.done.head, last, "{what}");
                        assert_eq!(reported, last, "{what}");
                        false
                    }
                    Err(ChainError::State(error)) => {
                        let is_known = matches!(
                            error,
                            StateError::UnknownBlock(_) | StateError::BlockExists(_)
                        );
                        assert!(!is_known, "{what}: {error}");
                        true
                    }
                    Err(error) => panic!("{what}: {error}"),
                };
                drop(chain);
                let was_off = disk.is_off();
                let disk = match power {
                    true => Arc::new(disk.crash()),
                    false => {
                        disk.clear_faults();
                        while lock_data_dir(&*disk).is_err() {
                            thread::sleep(Duration::from_millis(1));
                        }
                        disk
                    }
                };
                let chain = made.open(&disk);
                let head = chain.db().head();
                assert!(head.number >= reported.number, "{what}: {head}, {reported}");
                if head.number > 0 {
                    assert_eq!(head, id(&a[head.number as usize - 1]), "{what}");
                }
                let root = chain.db().view().unwrap().state_root();
                assert_eq!(
                    root,
                    chain.block(head.number).unwrap().header.state_root,
                    "{what}"
                );
                import(&chain, &a).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(chain.db().head(), last, "{what}");
                if !failed && !was_off && at > 60 {
                    break;
                }
                at += 1 + at / 8;
            }
            say(&format!(
                "up to operation {at}, power {power}, {batch} at once, {applies}"
            ));
        }
    }
}

/// A block becomes safe and finalized, and the head goes elsewhere, while an import is under way: it fails with no error,
/// and its last block is the head.
#[test]
fn heads_and_finality_may_move_during_an_import() {
    const BLOCKS: u64 = 24;
    let made = Made::new(Fork::Osaka, BLOCKS, 8);
    let a = made.branch(0, 0xaa);
    for batch in [1, 4] {
        let chain = made.chain().with_batch(batch);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut moved = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let head = chain.db().head();
                    if head.number > 2 && head.number < BLOCKS {
                        let of = |number: u64| id(&a[number as usize - 1]).hash;
                        let (safe, finalized) = (of(head.number - 1), of(head.number - 2));
                        // The head may be higher by now, and goes back to this one.
                        if let Err(error) =
                            chain.set_canonical(head.hash, Some(safe), Some(finalized))
                        {
                            panic!("{error}");
                        }
                        moved += 1;
                    }
                    thread::sleep(Duration::from_micros(300));
                }
                say(&format!("moved {moved} times"));
            });
            let imported = import(&chain, &a);
            is_over.store(true, Ordering::Relaxed);
            imported.unwrap();
        });
        let last = id(&a[BLOCKS as usize - 1]);
        assert!(chain.has(last).unwrap());
        // A set head that came last may have won.
        import(&chain, &a[BLOCKS as usize - 1..]).unwrap();
        assert_eq!(chain.db().head(), last);
    }
}
