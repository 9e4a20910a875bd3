//! Promises about blocks that are sealed and may still turn out to be invalid, each of which was once broken: nobody
//! takes such a block for a valid one, and blocks are executed where their lists do not say all.

use alloy_consensus::proofs::calculate_withdrawals_root;
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::Decodable;
use cambium_chain::{
    Block, BlockFault, Chain, ChainError, ChainSealer, Fork, GenesisAccount, GenesisPart,
    ImportSummary, RawBlock, VerifyError,
};
use cambium_node::{BlockRef, Node};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{FaultyDisk, Options, StateError, WithoutBody};
use cambium_testkit::raw_block;
use cambium_workload::{BlockSealer, BlockSize, Workload, WorkloadParams};
use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

const BLOCKS: u64 = 4;
/// An account that exists and is empty.
const EMPTY: Address = Address::repeat_byte(0xee);

fn workload(fork: Fork) -> Workload {
    Workload::new(WorkloadParams {
        fork,
        accounts: 100,
        senders: Some(20),
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(10),
        ..WorkloadParams::default()
    })
    .unwrap()
}

/// A chain at its genesis, whose state has [`EMPTY`].
fn chain(fork: Fork) -> Chain {
    let (disk, workload) = (Arc::new(FaultyDisk::new(1)), workload(fork));
    let mut genesis = workload.genesis();
    genesis.accounts += 1;
    let for_each_part = |on_part: &mut dyn FnMut(GenesisPart) -> Result<(), ChainError>| {
        workload.for_each_part(&mut *on_part)?;
        on_part(GenesisPart::Account(EMPTY, GenesisAccount::default()))
    };
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    Chain::init_parts(disk, &genesis, 0, for_each_part, options, &mut |_| {}).unwrap()
}

/// Seals drafts in which no ether is withdrawn to an account.
struct PaysNothing<'a> {
    sealer: ChainSealer<'a>,
    to: Option<Address>,
}

impl BlockSealer for PaysNothing<'_> {
    type Error = ChainError;

    fn seal(&mut self, mut draft: Block) -> Result<Block, ChainError> {
        if let Some(address) = self.to {
            let withdrawal = Withdrawal {
                address,
                ..Withdrawal::default()
            };
            draft.header.withdrawals_root = Some(calculate_withdrawals_root(&[withdrawal]));
            draft.body.withdrawals = Some(vec![withdrawal].into());
        }
        self.sealer.seal(draft)
    }
}

/// Blocks with their lists.
fn blocks(fork: Fork, pays_nothing_to: Option<Address>) -> Vec<RawBlock> {
    let maker = chain(fork);
    let genesis = maker.block(0).unwrap().header;
    let mut sealer = PaysNothing {
        sealer: ChainSealer(&maker),
        to: pays_nothing_to,
    };
    let mut blocks = Vec::new();
    let generated = workload(fork).generate(&genesis, &mut sealer, |block| {
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

fn decoded(raw: &RawBlock) -> Block {
    Block::decode(&mut &raw.rlp[..]).unwrap()
}

fn id(block: &Block) -> BlockId {
    BlockId::new(block.header.number, block.header.hash_slow())
}

fn import(chain: &Chain, blocks: &[RawBlock]) -> Result<ImportSummary, ChainError> {
    chain.import(blocks.iter().cloned().map(Ok), &mut |_| {})
}

/// The block with another state root in its header.
fn with_wrong_root(raw: &RawBlock) -> RawBlock {
    let mut block = decoded(raw);
    block.header.state_root = B256::repeat_byte(7);
    RawBlock {
        rlp: alloy_rlp::encode(block).into(),
        access_list: None,
        update: None,
        ..raw.clone()
    }
}

/// Seals a block, without executing it, as a caller does that has not verified it yet.
fn sealed(chain: &Chain, raw: &RawBlock) -> WithoutBody {
    let block = decoded(raw);
    let header = &block.header;
    let view = chain.db().view_at(header.number - 1).unwrap();
    let session = view.session();
    let staged = session.finish_claimed(Changes::default(), Vec::new(), header.state_root);
    let id = id(&block);
    let sealed = staged
        .unwrap()
        .seal_without_body(id, header.parent_hash, header.state_root);
    sealed.unwrap()
}

/// "The error names the block": also where another caller has the block in memory when the import comes to it. A valid
/// block that another caller drops is imported.
#[test]
fn an_import_believes_no_block_that_another_caller_may_still_drop() {
    let blocks = blocks(Fork::Osaka, None);
    let (last, before) = blocks.split_last().unwrap();
    for batch in [1, 4] {
        for is_valid in [true, false] {
            let chain = chain(Fork::Osaka).with_batch(batch);
            import(&chain, before).unwrap();
            let last = match is_valid {
                true => last.clone(),
                false => with_wrong_root(last),
            };
            let of_another = sealed(&chain, &last);
            let imported = thread::scope(|scope| {
                let import = scope.spawn(|| import(&chain, std::slice::from_ref(&last)));
                thread::sleep(Duration::from_millis(100));
                drop(of_another);
                import.join().unwrap()
            });
            let last = decoded(&last);
            match imported {
                Ok(summary) if is_valid => {
                    assert_eq!((summary.done.blocks, summary.done.skipped), (1, 0));
                    assert_eq!(chain.db().head(), id(&last));
                }
                Err(ChainError::Block { id: of, fault }) if !is_valid => {
                    assert_eq!(of, id(&last));
                    let is_root =
                        matches!(*fault, BlockFault::Verify(VerifyError::StateRoot { .. }));
                    assert!(is_root, "{fault}");
                }
                other => panic!("{is_valid}: {other:?}"),
            }
        }
    }
}

/// "Its parent is unknown": so it is with a child of a block that was found to be invalid, where a block is finalized.
#[test]
fn the_parent_of_a_child_of_an_invalid_block_is_unknown() {
    let blocks = blocks(Fork::Osaka, None);
    let chain = chain(Fork::Osaka);
    import(&chain, &blocks[..2]).unwrap();
    let (finalized, head) = (chain.db().block_id(1).unwrap(), chain.db().head());
    let finalized = finalized.unwrap().hash;
    chain
        .set_canonical(head.hash, Some(finalized), Some(finalized))
        .unwrap();
    let bad = with_wrong_root(&blocks[2]);
    import(&chain, std::slice::from_ref(&bad)).unwrap_err();
    let mut child = decoded(&blocks[3]);
    child.header.parent_hash = id(&decoded(&bad)).hash;
    let rlp: Bytes = alloy_rlp::encode(&child).into();
    for inserted in [
        chain.insert(rlp.clone(), None).map(|_| ()),
        chain.import_block(rlp, None).map(|_| ()),
    ] {
        let is_unknown = |fault: &BlockFault| matches!(fault, BlockFault::UnknownParent(_));
        assert!(
            matches!(&inserted, Err(ChainError::Block { fault, .. }) if is_unknown(fault)),
            "{inserted:?}"
        );
    }
    assert_eq!(chain.db().head(), head);
}

/// No question is answered from a block that may turn out to be invalid.
#[test]
fn a_node_knows_no_block_that_is_not_committed() {
    let blocks = blocks(Fork::Osaka, None);
    let chain = chain(Fork::Osaka);
    import(&chain, &blocks[..1]).unwrap();
    let bad = with_wrong_root(&blocks[1]);
    let hash = id(&decoded(&bad)).hash;
    let held = sealed(&chain, &bad);
    assert_eq!(chain.db().find(&hash), Some(held.id()));
    let node = Node::of(chain.db().clone());
    assert!(node.state_at(BlockRef::Hash(hash)).is_err());
    assert!(node.id(BlockRef::Hash(hash)).is_err());
    let first = id(&decoded(&blocks[0]));
    assert_eq!(node.id(BlockRef::Hash(first.hash)).unwrap(), first);
}

/// "A block without a list, or whose list gives another root, is executed": as where a block touches an account that
/// exists and is empty, which deletes it, and no list says so (EIP-161).
#[test]
fn a_block_that_touches_an_empty_account_is_executed_where_lists_are_applied() {
    for fork in [Fork::Osaka, Fork::Amsterdam] {
        let blocks = blocks(fork, Some(EMPTY));
        for (count, batch) in [(1, 1), (BLOCKS as usize, 1), (BLOCKS as usize, 4)] {
            let chain = chain(fork).with_applying(true).with_batch(batch);
            let exists = |chain: &Chain| {
                let view = chain.db().view().unwrap();
                view.account(&keccak256(EMPTY)).unwrap().is_some()
            };
            assert!(exists(&chain));
            let done = import(&chain, &blocks[..count]).unwrap().done;
            assert_eq!(
                (done.blocks, done.applied),
                (count as u64, count as u64 - 1)
            );
            assert!(!exists(&chain), "{fork:?}");
            assert_eq!(done.head, id(&decoded(&blocks[count - 1])));
        }
    }
}

/// "[`StateError::BlockExists`] if the block is sealed or committed": also of callers that seal it at the same moment, some with
/// a root that they have computed and some with a claimed one.
#[test]
fn a_block_is_sealed_once_however_many_callers_seal_it() {
    const CALLERS: u64 = 4;
    let chain = chain(Fork::Osaka);
    let account = Account {
        balance: U256::from(7),
        ..Account::default()
    };
    let changes = Changes::new(vec![AccountDiff {
        path: keccak256(EMPTY),
        account: AccountUpdate::Put(account),
        wipe: false,
        slots: Vec::new(),
    }]);
    let parent = chain.db().head();
    let session = chain.db().view().unwrap().session();
    let root = session.finish(changes.clone(), Vec::new()).unwrap().root();
    for round in 0..200u64 {
        let id = BlockId::new(parent.number + 1, keccak256(round.to_be_bytes()));
        let (together, done) = (
            Barrier::new(CALLERS as usize),
            Barrier::new(CALLERS as usize),
        );
        let seal = |caller: u64| {
            let session = chain.db().view().unwrap().session();
            let staged = match caller % 2 {
                0 => session.finish(changes.clone(), Vec::new()),
                _ => session.finish_claimed(changes.clone(), Vec::new(), root),
            };
            let staged = staged.unwrap();
            together.wait();
            let sealed = staged.seal_without_body(id, parent.hash, root);
            // Nobody drops it before all have tried.
            done.wait();
            sealed.map(drop)
        };
        let sealed = thread::scope(|scope| {
            let callers = (0..CALLERS).map(|caller| {
                let seal = &seal;
                scope.spawn(move || seal(caller))
            });
            let callers: Vec<_> = callers.collect();
            let sealed = callers.into_iter().map(|caller| caller.join().unwrap());
            sealed.collect::<Vec<_>>()
        });
        let refused = sealed
            .iter()
            .filter(|it| matches!(it, Err(StateError::BlockExists(of)) if *of == id));
        assert_eq!(refused.count() as u64, CALLERS - 1, "{round}: {sealed:?}");
        assert_eq!(chain.db().find(&id.hash), None, "{round}");
    }
}
