//! Blocks that are inserted without becoming the head, and heads that are chosen afterwards: as a
//! consensus client does.

use alloy_consensus::{
    Header, SignableTransaction,
    proofs::{calculate_receipt_root, calculate_transaction_root},
};
use alloy_primitives::{Address, B256, Bytes, Signature, U256, keccak256};
use alloy_rlp::Encodable;
use cambium_chain::{Block, BlockFault, BlockSource, Chain, ChainError, ChainSealer, Fork};
use cambium_evm::{BlockExecutor, ExecutorKind, Transaction};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{FaultyDisk, Options, StateError};
use cambium_workload::{BlockSealer, BlockSize, Workload, WorkloadParams};
use std::{sync::Arc, thread};

const BLOCKS: u64 = 6;

fn workload() -> Workload {
    Workload::new(WorkloadParams {
        fork: Fork::Prague,
        accounts: 40,
        senders: Some(10),
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(8),
        ..WorkloadParams::default()
    })
    .unwrap()
}

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        unfinalized_blocks: 16,
        ..Options::default()
    }
}

fn chain_on(disk: &FaultyDisk) -> Chain {
    workload()
        .init(Arc::new(disk.clone()), options(), &mut |_| {})
        .unwrap()
}

/// Seals drafts with another beneficiary from a height on.
struct Branch<'a> {
    sealer: ChainSealer<'a>,
    fork: u64,
    beneficiary: Address,
}

impl BlockSealer for Branch<'_> {
    type Error = ChainError;

    fn seal(&mut self, mut draft: Block) -> Result<Block, ChainError> {
        if draft.header.number > self.fork {
            draft.header.beneficiary = self.beneficiary;
        }
        self.sealer.seal(draft)
    }
}

/// The blocks of a branch that leaves the workload's chain after block `fork`.
fn branch(fork: u64, name: u8) -> Vec<Block> {
    let maker = chain_on(&FaultyDisk::new(1));
    let genesis = maker.block(0).unwrap().header;
    let mut blocks = Vec::new();
    let mut sealer = Branch {
        sealer: ChainSealer(&maker),
        fork,
        beneficiary: Address::repeat_byte(name),
    };
    workload()
        .generate(&genesis, &mut sealer, |block| {
            blocks.push(block.clone());
            Ok(())
        })
        .unwrap();
    blocks
}

fn rlp(block: &Block) -> Bytes {
    let mut rlp = Vec::new();
    block.encode(&mut rlp);
    rlp.into()
}

fn id(block: &Block) -> BlockId {
    BlockId::new(block.header.number, block.header.hash_slow())
}

fn hash(block: &Block) -> B256 {
    id(block).hash
}

fn insert_all(chain: &Chain, blocks: &[Block]) {
    for block in blocks {
        let inserted = chain.insert(rlp(block), None).unwrap();
        assert_eq!(inserted.id, id(block));
    }
}

/// Whether the beneficiary of a branch has a balance at `at`.
fn balance(chain: &Chain, at: BlockId, name: u8) -> bool {
    let view = chain.db().view_of(at).unwrap();
    let path = alloy_primitives::keccak256(Address::repeat_byte(name));
    view.account(&path).unwrap().is_some()
}

#[test]
fn an_inserted_block_is_there_and_is_not_the_head() {
    let disk = FaultyDisk::new(2);
    let chain = chain_on(&disk);
    let genesis = chain.db().head();
    let blocks = branch(0, 0xaa);
    for block in &blocks {
        let inserted = chain.insert(rlp(block), None).unwrap();
        assert_eq!(inserted.id, id(block));
        assert_eq!(inserted.parent, block.header.parent_hash);
        assert_eq!(inserted.state_root, block.header.state_root);
        let outcome = inserted.outcome.unwrap();
        assert_eq!(outcome.receipts.len(), block.body.transactions.len());
        let root = calculate_receipt_root(&outcome.receipts);
        assert_eq!(root, block.header.receipts_root);
        assert_eq!(outcome.gas_used, block.header.gas_used);
        assert!(!outcome.changes.accounts().is_empty());
        // Again: it is known, and what it did is found by executing it.
        let again = chain.insert(rlp(block), None).unwrap();
        assert_eq!(again.outcome, None);
        assert_eq!(chain.outcome_of(again.id).unwrap(), outcome);
        // Readable at once, before it is canonical.
        let view = chain.db().view_of(inserted.id).unwrap();
        assert_eq!(view.state_root(), block.header.state_root);
        assert_eq!(chain.db().head(), genesis);
        assert_eq!(chain.db().block_id(block.header.number).unwrap(), None);
    }
    // Durable: opened again, it can be the head.
    drop(chain);
    let chain = Chain::open(Arc::new(disk.crash()), options()).unwrap().0;
    assert_eq!(chain.db().head(), genesis);
    let last = id(blocks.last().unwrap());
    chain.set_canonical(last.hash, None, None).unwrap();
    assert_eq!(chain.db().head(), last);
    assert_eq!(
        chain.finalized_view().unwrap().map(|view| view.block()),
        None
    );
}

#[test]
fn heads_are_chosen_and_finalized_blocks_free_other_branches() {
    let disk = FaultyDisk::new(3);
    let chain = chain_on(&disk);
    let (a, b) = (branch(0, 0xaa), branch(2, 0xbb));
    // Up to the fork both are the same chain only if the fork of `a` is later.
    let c = branch(3, 0xcc);
    insert_all(&chain, &a);
    insert_all(&chain, &b);
    insert_all(&chain, &c);
    assert_eq!(hash(&b[1]), hash(&c[1]));
    let last = BLOCKS as usize - 1;
    chain.set_canonical(hash(&a[last]), None, None).unwrap();
    assert!(balance(&chain, chain.db().head(), 0xaa));
    chain
        .set_canonical(hash(&b[last]), Some(hash(&b[1])), None)
        .unwrap();
    assert!(balance(&chain, chain.db().head(), 0xbb));
    assert_eq!(chain.db().finality().safe, Some(id(&b[1])));
    // Block 2 is on both `b` and `c`, and not on `a`.
    chain
        .set_canonical(hash(&c[last]), Some(hash(&c[4])), Some(hash(&c[1])))
        .unwrap();
    let finality = chain.db().finality();
    assert_eq!(finality.safe, Some(id(&c[4])));
    assert_eq!(finality.finalized, Some(id(&c[1])));
    assert_eq!(chain.finalized_view().unwrap().unwrap().block(), id(&c[1]));
    assert!(!chain.has(id(&a[last])).unwrap(), "a freed branch");
    assert!(
        chain.has(id(&b[last])).unwrap(),
        "a branch that may still win"
    );
    // It can.
    chain.set_canonical(hash(&b[last]), None, None).unwrap();
    assert_eq!(
        chain.db().finality().safe,
        Some(id(&c[1])),
        "the safe block was on the other branch"
    );
    // The finalized block can't be undone.
    let refused = chain.set_canonical(hash(&a[last]), None, None).unwrap_err();
    let is_unknown = matches!(refused, ChainError::State(StateError::UnknownBlock(_)));
    assert!(is_unknown, "{refused}");
    let below = chain.db().block_id(1).unwrap().unwrap();
    let refused = chain.set_canonical(below.hash, None, None).unwrap_err();
    let is_refused = matches!(
        refused,
        ChainError::State(StateError::NotOnFinalized { .. })
    );
    assert!(is_refused, "{refused}");
    let refused = chain.insert(rlp(&a[1]), None).unwrap_err();
    assert!(
        refused.to_string().contains("is not in the database")
            || refused.to_string().contains("finalized"),
        "{refused}"
    );
    // All of that survives a crash.
    drop(chain);
    let chain = Chain::open(Arc::new(disk.crash()), options()).unwrap().0;
    assert_eq!(chain.db().head(), id(&b[last]));
    assert_eq!(chain.db().finality().finalized, Some(id(&c[1])));
    assert!(!chain.has(id(&a[last])).unwrap(), "a freed branch");
}

#[test]
fn a_block_on_an_ancestor_of_the_finalized_block_is_refused() {
    let chain = chain_on(&FaultyDisk::new(4));
    let (a, b) = (branch(0, 0xaa), branch(0, 0xbb));
    insert_all(&chain, &a);
    chain
        .set_canonical(hash(&a[3]), None, Some(hash(&a[2])))
        .unwrap();
    let refused = chain.insert(rlp(&b[0]), None).unwrap_err();
    let is_refused = matches!(
        refused,
        ChainError::State(StateError::NotOnFinalized { .. })
    );
    assert!(is_refused, "{refused}");
    let refused = chain.import_block(rlp(&b[0]), None).unwrap_err();
    let is_refused = matches!(
        refused,
        ChainError::State(StateError::NotOnFinalized { .. })
    );
    assert!(is_refused, "{refused}");
    assert_eq!(chain.db().head(), id(&a[3]));
    // An explicit unwind moves the head there first.
    chain.db().unwind(0).unwrap();
    assert_eq!(chain.db().finality().finalized, None);
    chain.insert(rlp(&b[0]), None).unwrap();
}

#[test]
fn an_invalid_block_is_refused_and_leaves_nothing() {
    let chain = chain_on(&FaultyDisk::new(5));
    let blocks = branch(0, 0xaa);
    let mut wrong = blocks[0].clone();
    wrong.header.state_root = B256::repeat_byte(1);
    let refused = chain.insert(rlp(&wrong), None).unwrap_err();
    assert!(matches!(refused, ChainError::Block { .. }), "{refused}");
    assert!(!chain.has(id(&wrong)).unwrap());
    // Its parent is not there yet.
    let refused = chain.insert(rlp(&blocks[1]), None).unwrap_err();
    let ChainError::Block { fault, .. } = &refused else {
        panic!("{refused}");
    };
    assert!(matches!(**fault, BlockFault::UnknownParent(_)), "{refused}");
    // A head that was never inserted.
    let refused = chain
        .set_canonical(hash(&blocks[1]), None, None)
        .unwrap_err();
    let is_unknown = matches!(refused, ChainError::State(StateError::UnknownBlock(_)));
    assert!(is_unknown, "{refused}");
    insert_all(&chain, &blocks[..2]);
    // A safe block above the head, and one below the finalized block.
    let head = hash(&blocks[0]);
    let refused = chain
        .set_canonical(head, Some(hash(&blocks[1])), None)
        .unwrap_err();
    let is_refused = matches!(refused, ChainError::State(StateError::NotAnAncestor { .. }));
    assert!(is_refused, "{refused}");
    let head = hash(&blocks[1]);
    let genesis = chain.db().genesis().hash;
    let refused = chain
        .set_canonical(head, Some(genesis), Some(hash(&blocks[0])))
        .unwrap_err();
    let is_refused = matches!(
        refused,
        ChainError::State(StateError::SafeBelowFinalized { .. })
    );
    assert!(is_refused, "{refused}");
    assert_eq!(chain.db().head().number, 0);
}

/// The same transaction with a signature that nobody has made.
fn badly_signed(transaction: &Transaction) -> Transaction {
    let signature = Signature::new(U256::ZERO, U256::ONE, false);
    match transaction {
        Transaction::Legacy(signed) => signed.tx().clone().into_signed(signature).into(),
        Transaction::Eip1559(signed) => signed.tx().clone().into_signed(signature).into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn senders_that_are_recovered_during_execution_lead_to_the_same_faults() {
    let sequential = BlockExecutor::new(ExecutorKind::Sequential);
    let chain = chain_on(&FaultyDisk::new(6)).with_executor(sequential);
    let blocks = branch(0, 0xbb);
    let refused = |block: &Block| {
        let known = chain.insert(rlp(block), None).unwrap_err().to_string();
        let meanwhile = chain.insert_decoded(block.clone(), rlp(block), None);
        assert_eq!(meanwhile.unwrap_err().to_string(), known);
        assert!(!chain.has(id(block)).unwrap());
        known
    };
    let mut wrong = blocks[0].clone();
    let transactions = &mut wrong.body.transactions;
    // One that comes twice can't be executed twice.
    transactions.insert(0, transactions[1].clone());
    wrong.header.transactions_root = calculate_transaction_root(transactions);
    let reason = refused(&wrong);
    assert!(reason.contains("nonce"), "{reason}");
    let transactions = &mut wrong.body.transactions;
    let last = transactions.len() - 1;
    transactions[last] = badly_signed(&transactions[last]);
    wrong.header.transactions_root = calculate_transaction_root(transactions);
    let reason = refused(&wrong);
    let expected = format!("transaction {last} has an invalid signature");
    assert!(reason.contains(&expected), "{reason}");

    let other = chain_on(&FaultyDisk::new(7));
    insert_all(&other, &blocks);
    for block in &blocks {
        let inserted = chain
            .insert_decoded(block.clone(), rlp(block), None)
            .unwrap();
        let known = other.insert(rlp(block), None).unwrap();
        assert_eq!(
            (inserted.id, inserted.state_root),
            (known.id, known.state_root)
        );
    }
}

/// Imports blocks as a file of them.
fn import(chain: &Chain, blocks: &[Block]) -> Result<(), ChainError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blocks.rlp");
    let bytes: Vec<u8> = blocks
        .iter()
        .flat_map(|block| rlp(block).to_vec())
        .collect();
    std::fs::write(&path, bytes).unwrap();
    chain.import(BlockSource::open(&path).unwrap(), &mut |_| {})?;
    Ok(())
}

fn assert_not_on_finalized(refused: &ChainError) {
    let is_refused = matches!(
        refused,
        ChainError::State(StateError::NotOnFinalized { .. })
    );
    assert!(is_refused, "{refused}");
}

/// "imports fail for one that would undo the finalized block": also if the database knows it already, as
/// part of the branch to which the pages belong.
#[test]
fn an_import_of_known_blocks_does_not_undo_the_finalized_block() {
    let disk = FaultyDisk::new(6);
    let chain = chain_on(&disk);
    let (a, b) = (branch(2, 0xaa), branch(2, 0xbb));
    import(&chain, &b).unwrap();
    chain.db().flush(0).unwrap();
    insert_all(&chain, &a[2..]);
    let head = id(&a[5]);
    chain
        .set_canonical(head.hash, None, Some(hash(&a[3])))
        .unwrap();
    let check = |chain: &Chain| {
        assert_eq!(chain.db().head(), head);
        assert_eq!(chain.db().finality().finalized, Some(id(&a[3])));
    };
    let _ = import(&chain, &b);
    check(&chain);
    // Once no page is of the other branch, nothing of it is left, after any way of opening the database.
    chain.db().flush(0).unwrap();
    assert!(chain.db().side_branches().unwrap().is_empty());
    assert!(!chain.has(id(&b[5])).unwrap());
    drop(chain);
    let chain = Chain::open(Arc::new(disk.crash()), options()).unwrap().0;
    check(&chain);
    assert!(chain.db().side_branches().unwrap().is_empty());
    assert!(!chain.has(id(&b[5])).unwrap());
    import(&chain, &b[2..]).unwrap_err();
    check(&chain);
}

/// "All valid blocks before are committed."
#[test]
fn blocks_before_one_that_would_undo_the_finalized_block_are_imported() {
    for attempt in 0..5 {
        let chain = chain_on(&FaultyDisk::new(7 + attempt));
        let (a, b) = (branch(0, 0xaa), branch(0, 0xbb));
        import(&chain, &a[..3]).unwrap();
        chain
            .set_canonical(hash(&a[2]), None, Some(hash(&a[1])))
            .unwrap();
        let mut blocks = a[3..].to_vec();
        blocks.push(b[0].clone());
        let refused = import(&chain, &blocks).unwrap_err();
        assert_not_on_finalized(&refused);
        assert_eq!(chain.db().head(), id(&a[5]));
    }
}

#[test]
fn one_block_may_be_inserted_by_several_callers_at_once() {
    let chain = chain_on(&FaultyDisk::new(20));
    let blocks = branch(0, 0xaa);
    for block in &blocks {
        let executed = thread::scope(|scope| {
            let insert = || chain.insert(rlp(block), None).unwrap().outcome.is_some();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(insert)).collect();
            let executed = threads.into_iter().map(|thread| thread.join().unwrap());
            executed.filter(|executed| *executed).count()
        });
        assert_eq!(executed, 1);
    }
}

/// Files that overlap, such that a block comes again while it waits to be committed.
#[test]
fn the_same_blocks_may_be_imported_and_inserted_by_several_callers_at_once() {
    for round in 0..12 {
        let chain = chain_on(&FaultyDisk::new(60 + round)).with_batch(1 + round as usize % 2 * 3);
        let a = branch(0, 0xaa);
        thread::scope(|scope| {
            for caller in 0..4u64 {
                let (chain, a) = (&chain, &a);
                scope.spawn(move || match caller {
                    0 => a.iter().for_each(|block| {
                        // Its parent may not be there yet.
                        let _ = chain.insert(rlp(block), None);
                    }),
                    _ => import(chain, a).unwrap(),
                });
            }
        });
        assert_eq!(chain.db().head(), id(&a[5]), "{round}");
    }
}

/// An empty block of proof-of-work on the first one.
fn mined(chain: &Chain, beneficiary: Address, seconds: u64, difficulty: u64) -> Block {
    const REWARD: u64 = 3_000_000_000_000_000_000;
    let parent = chain.block(0).unwrap().header;
    let account = Account {
        balance: U256::from(REWARD),
        ..Account::default()
    };
    let change = AccountDiff {
        path: keccak256(beneficiary),
        account: AccountUpdate::Put(account),
        wipe: false,
        slots: vec![],
    };
    let session = chain.db().view_at(0).unwrap().session();
    let staged = session.finish(Changes::new(vec![change]), vec![]).unwrap();
    Block {
        header: Header {
            parent_hash: parent.hash_slow(),
            beneficiary,
            state_root: staged.root(),
            difficulty: U256::from(difficulty),
            number: 1,
            gas_limit: parent.gas_limit,
            timestamp: parent.timestamp + seconds,
            ..Header::default()
        },
        body: Default::default(),
    }
}

#[test]
fn of_siblings_that_are_imported_at_once_the_heavier_is_the_head() {
    const DIFFICULTY: u64 = 0x20_0000;
    let genesis = r#"{
        "config": {"chainId": 1337, "homesteadBlock": 0, "eip150Block": 0, "eip155Block": 0,
            "eip158Block": 0, "byzantiumBlock": 0},
        "difficulty": "0x200000", "gasLimit": "0x1000000", "timestamp": "0x10",
        "alloc": {"0x00000000000000000000000000000000000000aa": {"balance": "0x1"}}
    }"#;
    let genesis: alloy_genesis::Genesis = serde_json::from_str(genesis).unwrap();
    let unit = DIFFICULTY / 2048;
    for round in 0..80 {
        let disk = Arc::new(FaultyDisk::new(round));
        let chain = Chain::init_genesis(disk, &genesis, options(), &mut |_| {}).unwrap();
        let light = mined(&chain, Address::repeat_byte(1), 20, DIFFICULTY - unit);
        let heavy = mined(&chain, Address::repeat_byte(2), 5, DIFFICULTY + unit);
        thread::scope(|scope| {
            for block in [&light, &heavy] {
                let chain = &chain;
                scope.spawn(move || chain.import_block(rlp(block), None).unwrap());
            }
        });
        assert_eq!(chain.db().head(), id(&heavy), "{round}");
    }
}

#[test]
fn a_block_that_comes_twice_at_once_is_imported_once() {
    for (attempt, batch) in [(0, 1), (1, 1), (2, 1), (3, 4)] {
        let chain = chain_on(&FaultyDisk::new(40 + attempt)).with_batch(batch);
        let a = branch(0, 0xaa);
        let mut blocks = a.clone();
        for block in &a {
            blocks.extend([block.clone(), block.clone()]);
        }
        import(&chain, &blocks).unwrap();
        assert_eq!(chain.db().head(), id(&a[5]));
    }
}
