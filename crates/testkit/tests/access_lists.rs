//! Blocks with access lists, true and false.

use alloy_primitives::{B256, keccak256};
use alloy_rlp::Encodable;
use cambium_chain::{
    AccessListReader, AccessListWriter, Block, BlockSource, Chain, ChainError, ChainSealer,
    ChainWriter, FileError, Fork, RawBlock, WithAccessLists,
};
use cambium_evm::{BlockExecutor, ExecutorKind};
use cambium_primitives::{AccessListLimits, BlockId};
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::false_lists;
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::{fs, path::Path, sync::Arc};

const BLOCKS: u64 = 3;

fn workload(fork: Fork) -> Workload {
    let params = WorkloadParams {
        fork,
        accounts: 200,
        senders: Some(20),
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(10),
        erc20_percent: 50,
        ..WorkloadParams::default()
    };
    Workload::new(params).unwrap()
}

fn empty(workload: &Workload, disk: &FaultyDisk) -> Chain {
    let disk = Arc::new(disk.clone());
    workload.init(disk, options(), &mut |_| {}).unwrap()
}

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    }
}

/// A chain, the blocks in it, and the RLP of their lists.
struct Made {
    workload: Workload,
    chain: Chain,
    blocks: Vec<(Block, Vec<u8>)>,
}

impl Made {
    fn new(fork: Fork) -> Self {
        let workload = workload(fork);
        let chain = empty(&workload, &FaultyDisk::new(1));
        let genesis = chain.block(0).unwrap().header;
        let mut blocks = Vec::new();
        let keep = |block: &Block| {
            let list = chain.access_list(block.header.number)?;
            blocks.push((block.clone(), list.encode()));
            Ok(())
        };
        workload
            .generate(&genesis, &mut ChainSealer(&chain), keep)
            .unwrap();
        Self {
            workload,
            chain,
            blocks,
        }
    }

    fn id(&self, number: u64) -> BlockId {
        self.chain.db().block_id(number).unwrap().unwrap()
    }

    /// Writes the blocks, and the lists of `listed`, into a folder.
    fn write(&self, dir: &Path, listed: impl Iterator<Item = u64>) {
        let mut writer = ChainWriter::create(dir.join("blocks")).unwrap();
        for (block, _) in &self.blocks {
            writer.write(block).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), BLOCKS);
        let mut writer = AccessListWriter::create(dir.join("lists")).unwrap();
        for number in listed {
            let list = &self.blocks[number as usize - 1].1;
            writer.write(self.id(number), list).unwrap();
        }
        writer.finish().unwrap();
    }
}

fn import(chain: &Chain, block: &Block, list: Option<&[u8]>) -> Result<BlockId, ChainError> {
    let mut rlp = Vec::new();
    block.encode(&mut rlp);
    chain.import_block(rlp.into(), list)
}

#[test]
fn lists_are_checked_and_kept_and_survive_a_restart() {
    let made = Made::new(Fork::Amsterdam);
    let disk = FaultyDisk::new(1);
    let chain = empty(&made.workload, &disk);
    for (block, list) in &made.blocks {
        // The block after it has its list made, and finds the same.
        let given = (block.header.number % 2 == 0).then_some(&list[..]);
        import(&chain, block, given).unwrap();
    }
    chain.db().flush(0).unwrap();
    drop(chain);
    let (chain, _) = Chain::open(Arc::new(disk), options()).unwrap();
    for (block, list) in &made.blocks {
        let (number, header) = (block.header.number, &block.header);
        let kept = chain.kept_access_list(number).unwrap().unwrap();
        assert_eq!(kept, *list);
        assert_eq!(header.block_access_list_hash, Some(keccak256(&kept)));
        assert_eq!(chain.access_list(number).unwrap().encode(), *list);
        assert_eq!(chain.block(number).unwrap(), *block);
        let mut rlp = Vec::new();
        block.encode(&mut rlp);
        assert_eq!(chain.block_rlp(number).unwrap(), rlp);
        let sizes = chain.access_list_sizes(number, &chain.access_list(number).unwrap());
        assert_eq!(sizes.unwrap().batched, list.len() as u64);
    }
}

#[test]
fn a_false_list_is_refused_with_its_block_and_nothing_changes() {
    for fork in [Fork::Amsterdam, Fork::Osaka] {
        let made = Made::new(fork);
        for kind in ExecutorKind::ALL {
            false_lists_are_refused(&made, fork, kind);
        }
    }
}

fn false_lists_are_refused(made: &Made, fork: Fork, kind: ExecutorKind) {
    let executor = BlockExecutor::new(kind).with_gas_min(0);
    let chain = empty(&made.workload, &FaultyDisk::new(1)).with_executor(executor);
    let ((last, true_list), before) = made.blocks.split_last().unwrap();
    for (block, list) in before {
        import(&chain, block, Some(list)).unwrap();
    }
    let transactions = last.body.transactions.len();
    let limits = match fork {
        Fork::Amsterdam => AccessListLimits::of_block(transactions, last.header.gas_limit),
        _ => AccessListLimits::of_transactions(transactions),
    };
    let list = made.chain.access_list(last.header.number).unwrap();
    let at = |chain: &Chain| (chain.db().head(), chain.db().view().unwrap().state_root());
    let before = at(&chain);
    let all = false_lists(&list, &limits);
    assert!(all.len() > 20, "{} kinds of false lists", all.len());
    for false_list in all {
        let mut block = last.clone();
        let hash = &mut block.header.block_access_list_hash;
        *hash = hash.map(|_| keccak256(&false_list.rlp));
        let error = import(&chain, &block, Some(&false_list.rlp)).unwrap_err();
        assert!(matches!(error, ChainError::Block { .. }), "{error}");
        let (fault, said) = (false_list.fault, error.to_string());
        let expected = &false_list.message;
        assert!(said.ends_with(expected), "{kind:?}: {fault}: {said}");
        assert_eq!(at(&chain), before, "{kind:?}: {fault}");
    }
    import(&chain, last, Some(true_list)).unwrap();
    assert_eq!(at(&chain), at(&made.chain));
}

#[test]
fn a_list_is_the_one_that_the_header_names() {
    let made = Made::new(Fork::Amsterdam);
    let chain = empty(&made.workload, &FaultyDisk::new(1));
    let (block, list) = &made.blocks[0];
    let said = |block, list| import(&chain, block, list).unwrap_err().to_string();
    let (hash, other) = (keccak256(list), keccak256(&made.blocks[1].1));
    let expected = format!("body: blockAccessListHash is {hash}, but the access list has {other}");
    assert!(said(block, Some(&made.blocks[1].1)).ends_with(&expected));
    let mut false_block = block.clone();
    false_block.header.block_access_list_hash = Some(B256::ZERO);
    let zero = B256::ZERO;
    let expected = format!("blockAccessListHash is {zero} in the header, {hash} by execution");
    assert!(said(&false_block, None).ends_with(&expected));
    import(&chain, block, Some(list)).unwrap();
}

#[test]
fn a_list_from_before_amsterdam_is_made_when_it_is_asked_for() {
    let made = Made::new(Fork::Osaka);
    for (block, list) in &made.blocks {
        let number = block.header.number;
        assert_eq!(made.chain.kept_access_list(number).unwrap(), None);
        assert_eq!(made.chain.access_list(number).unwrap().encode(), *list);
        assert!(made.chain.access_list(number).unwrap().counts().accounts > 10);
    }
    let empty = made.chain.access_list(0).unwrap();
    assert_eq!(empty.accounts(), []);
    made.chain.access_list_sizes(0, &empty).unwrap();
}

fn with_lists(dir: &Path) -> Result<Vec<RawBlock>, FileError> {
    let lists = AccessListReader::open(dir.join("lists"))?;
    WithAccessLists::new(BlockSource::open(dir.join("blocks"))?, lists)?.collect()
}

#[test]
fn lists_go_through_a_file_beside_that_of_their_blocks() {
    let made = Made::new(Fork::Amsterdam);
    let dir = tempfile::tempdir().unwrap();
    for listed in [vec![1, 2, 3], vec![2, 3], vec![1, 3], vec![]] {
        made.write(dir.path(), listed.iter().copied());
        let blocks = with_lists(dir.path()).unwrap();
        for (raw, (_, list)) in blocks.iter().zip(&made.blocks) {
            let is_listed = listed.contains(&raw.number().unwrap());
            let expected = is_listed.then_some(&list[..]);
            assert_eq!(raw.access_list.as_ref().map(|list| &list[..]), expected);
        }
        let chain = empty(&made.workload, &FaultyDisk::new(1));
        let done = chain.import(blocks.into_iter().map(Ok), &mut |_| {});
        assert_eq!(done.unwrap().done.head, made.chain.db().head());
    }
}

#[test]
fn a_file_of_lists_that_does_not_fit_is_refused() {
    let made = Made::new(Fork::Amsterdam);
    let dir = tempfile::tempdir().unwrap();
    let said = || with_lists(dir.path()).unwrap_err().to_string();
    made.write(dir.path(), [2, 1].into_iter());
    let expected = format!(
        "lists: its next access list is that of block {}, and the blocks have block {}: the lists are of \
         other blocks",
        made.id(1),
        made.id(3)
    );
    assert!(said().ends_with(&expected), "{}", said());

    made.write(dir.path(), 1..=BLOCKS);
    let lists = dir.path().join("lists");
    let whole = fs::read(&lists).unwrap();
    let first =
        1 + usize::from(whole[0] - 0xf7) + (usize::from(whole[1]) << 8) + usize::from(whole[2]);
    fs::write(&lists, &whole[..first + 40]).unwrap();
    let expected = format!("lists: access list at byte {first} (after block 1): cut short");
    assert!(said().contains(&expected), "{}", said());
    fs::write(&lists, [0xc2, 1, 2]).unwrap();
    assert!(
        said().contains("access list at byte 0 (the file's first): not the number"),
        "{}",
        said()
    );
    // A file of lists may go further than that of blocks.
    fs::write(&lists, whole).unwrap();
    let mut writer = ChainWriter::create(dir.path().join("blocks")).unwrap();
    writer.write(&made.blocks[0].0).unwrap();
    writer.finish().unwrap();
    assert_eq!(with_lists(dir.path()).unwrap().len(), 1);
}

#[test]
fn blocks_are_applied_by_their_lists_to_the_same_states() {
    for fork in [Fork::Amsterdam, Fork::Osaka] {
        let made = Made::new(fork);
        let dir = tempfile::tempdir().unwrap();
        for (listed, applied) in [(vec![1, 2, 3], 3), (vec![1, 3], 2), (vec![], 0)] {
            made.write(dir.path(), listed.into_iter());
            let disk = FaultyDisk::new(1);
            let chain = empty(&made.workload, &disk).with_applying(true);
            let blocks = with_lists(dir.path()).unwrap();
            let done = chain
                .import(blocks.into_iter().map(Ok), &mut |_| {})
                .unwrap();
            assert_eq!(done.done.applied, applied);
            assert_eq!(done.done.head, made.chain.db().head());
            assert_eq!(
                done.state_root,
                made.chain.db().view().unwrap().state_root()
            );
            chain.db().flush(0).unwrap();
            for (block, list) in &made.blocks {
                let kept = chain.kept_access_list(block.header.number).unwrap();
                assert_eq!(kept.is_some(), fork == Fork::Amsterdam);
                assert!(kept.is_none_or(|kept| kept == *list));
            }
            assert_eq!(
                chain.db().check(&mut |_| {}).unwrap().damage,
                Vec::<String>::new()
            );
        }
    }
}

#[test]
fn a_block_whose_list_leads_elsewhere_is_executed_before_it_is_judged() {
    let made = Made::new(Fork::Osaka);
    let chain = empty(&made.workload, &FaultyDisk::new(1)).with_applying(true);
    let (block, list) = &made.blocks[0];
    // No header names the list: the block is as good as any, and what is said is of the list.
    let other = &made.blocks[1].1;
    let said = import(&chain, block, Some(other)).unwrap_err().to_string();
    assert!(said.contains("access list: account "), "{said}");
    // Applied, a block is not executed: nothing but its root is held against it.
    let mut false_gas = block.clone();
    false_gas.header.gas_used += 1;
    import(&chain, &false_gas, Some(list)).unwrap();
    let said = import(&chain, &false_gas, None).unwrap_err().to_string();
    assert!(said.contains("gasUsed"), "{said}");
    let mut false_root = block.clone();
    false_root.header.state_root = B256::ZERO;
    let said = import(&chain, &false_root, Some(list))
        .unwrap_err()
        .to_string();
    assert!(said.contains("stateRoot"), "{said}");
}

#[test]
fn blocks_executed_at_once_are_what_they_are_one_by_one() {
    for fork in [Fork::Amsterdam, Fork::Osaka] {
        let made = Made::new(fork);
        let dir = tempfile::tempdir().unwrap();
        for (batch, listed, at_once) in [
            (8, vec![1, 2, 3], 3),
            (2, vec![1, 2, 3], 2),
            (8, vec![1, 2], 2),
            (8, vec![1, 3], 0),
        ] {
            made.write(dir.path(), listed.into_iter());
            let chain = empty(&made.workload, &FaultyDisk::new(1)).with_batch(batch);
            let blocks = with_lists(dir.path()).unwrap();
            let done = chain.import(blocks.into_iter().map(Ok), &mut |_| {});
            let done = done.unwrap();
            assert_eq!(done.done.head, made.chain.db().head());
            let state_root = made.chain.db().view().unwrap().state_root();
            assert_eq!(done.state_root, state_root);
            let transactions = made.blocks[0].0.body.transactions.len() as u64;
            assert_eq!(done.done.parallel.parallel, at_once * transactions);
        }
    }
}

#[test]
fn a_false_list_among_blocks_executed_at_once_is_refused_after_those_before_it() {
    let made = Made::new(Fork::Osaka);
    let dir = tempfile::tempdir().unwrap();
    made.write(dir.path(), 1..=BLOCKS);
    let transactions = made.blocks[1].0.body.transactions.len();
    let limits = AccessListLimits::of_transactions(transactions);
    let list = made.chain.access_list(2).unwrap();
    for false_list in false_lists(&list, &limits) {
        let chain = empty(&made.workload, &FaultyDisk::new(1)).with_batch(8);
        let mut blocks = with_lists(dir.path()).unwrap();
        blocks[1].access_list = Some(false_list.rlp.into());
        let said = chain.import(blocks.into_iter().map(Ok), &mut |_| {});
        let (fault, said) = (false_list.fault, said.unwrap_err().to_string());
        assert!(said.ends_with(&false_list.message), "{fault}: {said}");
        assert_eq!(chain.db().head(), made.id(1), "{fault}");
    }
}
