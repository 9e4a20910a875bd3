//! Builders make the blocks that the engine makes of the same transactions, from stale bags or none; shards take their
//! updates, and a verifier without state executes the blocks again.

use crate::common::together;
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use cambium_chain::{
    Block, Chain, ChainSealer, DraftAttributes, Fork, GenesisPart, StatelessError, StatelessRules,
};
use cambium_cluster::{
    BuildError, Builder, Built, DroppedError, Incomplete, LeftOut, NodeBag, Reader, Shard,
    ShardLimits, ShardLoader, ShardRange, Submission, top_nodes,
};
use cambium_evm::recover_senders;
use cambium_primitives::Path;
use cambium_seeds::Random;
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::genesis_state;
use cambium_trie::{Alone, NoResolve, PartialTrie, ProofTargets, commit_with};
use cambium_workload::{BlockSealer, BlockSize, Spread, Workload, WorkloadParams};
use std::{convert::Infallible, num::NonZeroUsize, sync::Arc};

pub(crate) fn params(fork: Fork) -> WorkloadParams {
    WorkloadParams {
        fork,
        accounts: 200,
        senders: Some(120),
        holders: Some(150),
        pools: 3,
        slots: 600,
        blocks: 6,
        block_size: BlockSize::Transactions(30),
        erc20_percent: 30,
        swap_percent: 30,
        ..WorkloadParams::default()
    }
}

/// The shards of a workload's genesis state.
pub(crate) fn shards_of(workload: &Workload, genesis: &Header, count: usize) -> Vec<Arc<Shard>> {
    let mut accounts = Vec::new();
    let listed = workload.for_each_part(|part| {
        let GenesisPart::Account(address, account) = part else {
            return Err("few slots are in one piece");
        };
        accounts.push((address, account));
        Ok(())
    });
    listed.unwrap();
    let (changes, codes) = genesis_state(accounts);
    let mut trie = PartialTrie::new(Path::EMPTY);
    trie.apply(changes.accounts(), &mut NoResolve).unwrap();
    commit_with(&mut [&mut trie], &mut Default::default(), &Alone);
    assert_eq!(trie.state_root(), Some(genesis.state_root));
    let ranges = ShardRange::all(count).unwrap().into_iter();
    ranges
        .map(|range| {
            let mut loader = ShardLoader::new(range);
            loader.put(changes.accounts()).unwrap();
            for (_, code) in &codes {
                loader.put_code(code.clone());
            }
            let top = top_nodes(&trie, range.depth());
            Arc::new(
                loader
                    .finish(genesis, &top, ShardLimits::default())
                    .unwrap(),
            )
        })
        .collect()
}

fn empty_bag(transaction: &cambium_chain::Transaction, reader: &Reader) -> Submission {
    Submission {
        transaction: transaction.clone(),
        ran_on: reader.block(),
        touched: ProofTargets::default(),
        bag: NodeBag::default(),
    }
}

/// Whether two builders, which differ in their threads, have made the same.
fn assert_same(one: &Built, other: &Built) {
    assert_eq!(one.id, other.id);
    assert_eq!(one.block, other.block);
    assert_eq!(one.update, other.update);
    assert_eq!(one.access_list, other.access_list);
    assert_eq!(one.bag, other.bag);
    assert_eq!(one.gas_used, other.gas_used);
    let left_out = |built: &Built| {
        let left_out = built.left_out.iter();
        left_out
            .map(|(number, why)| (*number, why.to_string()))
            .collect::<Vec<_>>()
    };
    assert_eq!(left_out(one), left_out(other));
}

struct Cluster<'a> {
    engine: &'a Chain,
    shards: Vec<Arc<Shard>>,
    builder: Builder,
    /// Others, which divide the work over threads.
    others: Vec<Builder>,
    /// At an older block than the builder.
    client: Reader,
    behind: Vec<(Header, cambium_primitives::Changes)>,
    lag: usize,
    level: u8,
    parent: Bytes,
    submitted: usize,
    prepared: usize,
    last: Option<Built>,
}

impl BlockSealer for Cluster<'_> {
    type Error = Infallible;

    fn seal(&mut self, draft: Block) -> Result<Block, Infallible> {
        let mut drafted = draft.clone();
        drafted.header.slot_number = None;
        let expected = ChainSealer(self.engine).seal(drafted.clone()).unwrap();
        let senders = recover_senders(&draft.body.transactions, true).unwrap();
        let mut submissions = Vec::new();
        for (transaction, sender) in draft.body.transactions.iter().zip(senders) {
            self.submitted += 1;
            let spec = self.engine.spec();
            let mut guessed = draft.header.clone();
            guessed.number = self.client.block().number + 1;
            guessed.parent_hash = self.client.block().hash;
            let prepared = Submission::prepare(
                &self.client,
                spec,
                &guessed,
                transaction.clone(),
                sender,
                self.level,
            );
            submissions.push(match prepared {
                Ok(submission) => {
                    self.prepared += 1;
                    submission
                }
                // On the older state others come before it.
                Err(DroppedError::Invalid { .. } | DroppedError::Reverts { .. }) => {
                    empty_bag(transaction, &self.client)
                }
                Err(error) => panic!("{error}"),
            });
        }
        let built = self.builder.build(drafted.clone(), &submissions).unwrap();
        assert!(built.left_out.is_empty(), "{:?}", built.left_out);
        for other in &mut self.others {
            assert_same(&other.build(drafted.clone(), &submissions).unwrap(), &built);
        }
        assert_eq!(built.block, expected);
        for shard in &self.shards {
            shard.apply(built.id, &built.update).unwrap();
        }
        // Without any state.
        let rules = StatelessRules::of(self.engine.spec());
        let report = built.witness(self.parent.clone()).execute(&rules).unwrap();
        assert_eq!(report.state_root, expected.header.state_root);
        assert_eq!(report.unused_nodes, 0);
        for (account, root) in &built.update.storage_roots {
            let shard = &self.shards[self.shards[0].range().owner(account)];
            let found = shard.account(built.id, account).unwrap().unwrap();
            assert_eq!(found.1, *root);
        }
        self.behind
            .push((built.block.header.clone(), built.update.changes.clone()));
        while self.behind.len() > self.lag {
            let (header, changes) = self.behind.remove(0);
            self.client.advance(&header, &changes).unwrap();
        }
        self.parent = alloy_rlp::encode(&expected.header).into();
        self.last = Some(built);
        Ok(expected)
    }
}

pub(crate) fn engine(workload: &Workload) -> Chain {
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    workload
        .init(Arc::new(FaultyDisk::new(1)), options, &mut |_| {})
        .unwrap()
}

fn cluster(
    workload: &Workload,
    engine: &Chain,
    count: usize,
    lag: usize,
    level: u8,
    check: impl Fn(&Cluster<'_>),
) {
    let genesis = engine.block(0).unwrap().header;
    let shards = shards_of(workload, &genesis, count);
    let reader = |level| Reader::new(together(&shards), &genesis, level, 0);
    let depth = shards[0].range().depth();
    let spec = engine.spec().clone();
    let mut cluster = Cluster {
        engine,
        others: [2, 16]
            .map(|threads| {
                let reader = reader(level);
                let builder = Builder::new(reader, spec.clone(), depth, Incomplete::Fetch);
                builder.with_threads(NonZeroUsize::new(threads).unwrap())
            })
            .into(),
        builder: Builder::new(reader(level), spec, depth, Incomplete::Fetch)
            .with_threads(NonZeroUsize::MIN),
        client: reader(1),
        shards: shards.clone(),
        behind: Vec::new(),
        lag,
        level,
        parent: alloy_rlp::encode(&genesis).into(),
        submitted: 0,
        prepared: 0,
        last: None,
    };
    let head = workload
        .generate(&genesis, &mut cluster, |_| Ok(()))
        .unwrap();
    assert_eq!(head.number, workload.params().blocks);
    check(&cluster);
}

#[test]
fn a_builder_makes_the_engines_blocks_from_bags_of_any_age() {
    for (fork, count, lag, level) in [
        (Fork::Osaka, 4, 0, 2),
        (Fork::Osaka, 16, 2, 1),
        (Fork::Osaka, 256, 1, 0),
        (Fork::Prague, 1, 3, 2),
    ] {
        let workload = Workload::new(params(fork)).unwrap();
        let engine = engine(&workload);
        cluster(&workload, &engine, count, lag, level, |cluster| {
            assert!(
                cluster.prepared * 3 > cluster.submitted,
                "{} of {}",
                cluster.prepared,
                cluster.submitted
            );
            let asked = cluster.builder.reader().counts().0;
            assert!(asked > 0);
        });
    }
}

/// With fresh bags the builder asks nobody but for what its own changes need, and rejects nothing.
#[test]
fn what_is_incomplete_is_rejected_if_so_wanted() {
    let workload = Workload::new(WorkloadParams {
        blocks: 1,
        block_size: BlockSize::Transactions(40),
        spread: Spread::Distinct,
        erc20_percent: 0,
        swap_percent: 0,
        fresh_percent: 0,
        senders: Some(80),
        ..params(Fork::Osaka)
    })
    .unwrap();
    let engine = engine(&workload);
    let genesis = engine.block(0).unwrap().header;
    let shards = shards_of(&workload, &genesis, 4);
    let client = Reader::new(together(&shards), &genesis, 1, 0);
    let reader = Reader::new(together(&shards), &genesis, 1, 0);
    let spec = engine.spec().clone();
    let mut builder = Builder::new(reader, spec.clone(), 1, Incomplete::Reject);
    struct Take(Option<Block>);
    impl BlockSealer for Take {
        type Error = ();
        fn seal(&mut self, draft: Block) -> Result<Block, ()> {
            self.0 = Some(draft);
            Err(())
        }
    }
    let mut take = Take(None);
    workload
        .generate(&genesis, &mut take, |_| Ok(()))
        .unwrap_err();
    let draft = take.0.unwrap();
    let senders = recover_senders(&draft.body.transactions, true).unwrap();
    let mut random = Random::new(9);
    let mut damaged = Vec::new();
    let submissions: Vec<_> = draft
        .body
        .transactions
        .iter()
        .zip(senders)
        .enumerate()
        .map(|(number, (transaction, sender))| {
            let prepared = Submission::prepare(
                &client,
                &spec,
                &draft.header,
                transaction.clone(),
                sender,
                1,
            );
            let mut submission = prepared.unwrap();
            match number % 5 {
                // A bag that was cut off, one with another node in place of the last, and one of nothing.
                0 => drop(submission.bag.nodes.pop()),
                1 => {
                    let node = submission.bag.nodes.last_mut().unwrap();
                    let mut other = node.to_vec();
                    let at = random.below(other.len() as u64) as usize;
                    other[at] ^= 1;
                    *node = other.into();
                }
                2 => submission.bag = NodeBag::default(),
                _ => return submission,
            }
            damaged.push(number);
            submission
        })
        .collect();
    let mut skips = draft.clone();
    skips.header.number += 1;
    for wrong in [Block::default(), skips] {
        let error = builder.build(wrong, &[]).unwrap_err();
        assert!(matches!(error, BuildError::OtherParent { .. }), "{error}");
    }
    let built = builder.build(draft, &submissions).unwrap();
    let stale: Vec<_> = built
        .left_out
        .iter()
        .map(|(number, why)| {
            assert!(matches!(why, LeftOut::Stale { .. }), "{why}");
            *number
        })
        .collect();
    assert!(
        stale.iter().all(|number| damaged.contains(number)),
        "{stale:?}"
    );
    // The nodes of others' bags may complete a damaged one, at this size not of all.
    assert!(stale.len() * 2 > damaged.len(), "{stale:?} of {damaged:?}");
    assert_eq!(built.block.body.transactions.len(), 40 - stale.len());
}

/// Transactions that fail, bags that are damaged or lack codes, on any number of threads.
#[test]
fn builders_on_any_number_of_threads_leave_out_the_same() {
    let workload = Workload::new(WorkloadParams {
        accounts: 3_000,
        senders: Some(300),
        holders: Some(300),
        block_size: BlockSize::Transactions(120),
        ..params(Fork::Osaka)
    })
    .unwrap();
    let engine = engine(&workload);
    let genesis = engine.block(0).unwrap().header;
    let shards = shards_of(&workload, &genesis, 4);
    let spec = engine.spec().clone();
    let mut left_out = 0;
    for (seed, incomplete) in [
        (1, Incomplete::Fetch),
        (2, Incomplete::Fetch),
        (3, Incomplete::Reject),
        (4, Incomplete::Reject),
    ] {
        let mut random = Random::new(seed);
        let client = Reader::new(together(&shards), &genesis, 1, 0);
        let attributes = DraftAttributes {
            timestamp: genesis.timestamp + 12,
            beneficiary: genesis.beneficiary,
            gas_limit: genesis.gas_limit,
            ..DraftAttributes::default()
        };
        let draft = spec.draft(&genesis, client.block().hash, &attributes);
        let transactions = workload.transactions().next().unwrap();
        let senders = recover_senders(&transactions, true).unwrap();
        let mut submissions = Vec::new();
        for (transaction, sender) in transactions.iter().zip(senders) {
            let header = &draft.header;
            let prepared =
                Submission::prepare(&client, &spec, header, transaction.clone(), sender, 1);
            let mut submission = prepared.unwrap_or_else(|_| empty_bag(transaction, &client));
            // Seeds 2 and 4 damage nothing.
            match random.below(if seed % 2 == 1 { 12 } else { u64::MAX }) {
                0 => drop(submission.bag.nodes.pop()),
                1 => submission.bag = NodeBag::default(),
                2 => submission.bag.codes.clear(),
                3 => submission.touched = ProofTargets::default(),
                // Its nonce is used up.
                4 => submissions.push(submission.clone()),
                _ => {}
            }
            submissions.push(submission);
        }
        let mut first: Option<Built> = None;
        for threads in [1, 2, 16] {
            let reader = Reader::new(together(&shards), &genesis, 1, 0);
            let builder = Builder::new(reader, spec.clone(), 1, incomplete);
            let mut builder = builder.with_threads(NonZeroUsize::new(threads).unwrap());
            let built = builder.build(draft.clone(), &submissions).unwrap();
            assert!(built.block.body.transactions.len() > 40);
            left_out += built.left_out.len();
            match &first {
                Some(first) => assert_same(&built, first),
                None => first = Some(built),
            }
        }
    }
    assert!(left_out > 0);
}

/// The fees' receiver is in no bag: it is there by the second block, and below the levels that the builder keeps.
#[test]
fn a_builder_that_rejects_incomplete_paths_takes_whole_bags_block_after_block() {
    let workload = Workload::new(WorkloadParams {
        accounts: 2_000,
        senders: Some(100),
        holders: Some(100),
        blocks: 3,
        block_size: BlockSize::Transactions(30),
        erc20_percent: 0,
        swap_percent: 0,
        spread: Spread::Distinct,
        ..params(Fork::Osaka)
    })
    .unwrap();
    let engine = engine(&workload);
    let genesis = engine.block(0).unwrap().header;
    let shards = shards_of(&workload, &genesis, 4);
    let (spec, level) = (engine.spec().clone(), 1);
    let reader = Reader::new(together(&shards), &genesis, level, 0);
    let mut builder = Builder::new(reader, spec.clone(), 1, Incomplete::Reject);
    let mut parent = genesis;
    for transactions in workload.transactions().take(3) {
        let client = Reader::new(together(&shards), &parent, level, 0);
        let attributes = DraftAttributes {
            timestamp: parent.timestamp + 12,
            beneficiary: parent.beneficiary,
            gas_limit: parent.gas_limit,
            ..DraftAttributes::default()
        };
        let draft = spec.draft(&parent, client.block().hash, &attributes);
        let senders = recover_senders(&transactions, true).unwrap();
        let submissions = transactions.iter().zip(senders).map(|(it, sender)| {
            Submission::prepare(&client, &spec, &draft.header, it.clone(), sender, level).unwrap()
        });
        let submissions: Vec<_> = submissions.collect();
        let built = builder.build(draft.clone(), &submissions).unwrap();
        assert!(built.left_out.is_empty(), "{:?}", built.left_out);
        for shard in &shards {
            shard.apply(built.id, &built.update).unwrap();
        }
        parent = built.block.header;
    }
}

/// Whoever executes a block again from its bag notices what is missing or wrong.
#[test]
fn a_verifier_says_what_is_wrong() {
    let workload = Workload::new(WorkloadParams {
        blocks: 1,
        ..params(Fork::Osaka)
    })
    .unwrap();
    let engine = engine(&workload);
    let genesis = engine.block(0).unwrap().header;
    cluster(&workload, &engine, 4, 0, 1, |cluster| {
        let built = cluster.last.as_ref().unwrap();
        let rules = StatelessRules::of(engine.spec());
        let parent: Bytes = alloy_rlp::encode(&genesis).into();
        let whole = built.witness(parent);
        whole.execute(&rules).unwrap();
        for lost in 0..whole.witness.state.len() {
            let mut less = whole.clone();
            less.witness.state.remove(lost);
            let error = less.execute(&rules).unwrap_err();
            assert!(matches!(error, StatelessError::Lacks(_)), "{error}");
        }
        let mut other = whole.clone();
        let mut block = built.block.clone();
        block.header.state_root = B256::repeat_byte(1);
        other.block = alloy_rlp::encode(&block).into();
        let error = other.execute(&rules).unwrap_err();
        assert!(matches!(error, StatelessError::Invalid { .. }), "{error}");
    });
}

#[test]
fn transactions_that_would_fail_are_not_submitted() {
    let workload = Workload::new(params(Fork::Osaka)).unwrap();
    let engine = engine(&workload);
    let genesis = engine.block(0).unwrap().header;
    let shards = shards_of(&workload, &genesis, 4);
    let reader = Reader::new(together(&shards), &genesis, 1, 0);
    let mut blocks = workload.transactions();
    let _first = blocks.next();
    // Of the second block, whose nonces follow those of the first.
    let second = blocks.next().unwrap();
    let senders = recover_senders(&second, true).unwrap();
    let mut header = genesis.clone();
    header.number = 1;
    header.parent_hash = genesis.hash_slow();
    header.timestamp += 12;
    let mut invalid = 0;
    for (transaction, sender) in second.iter().zip(senders) {
        let prepared = Submission::prepare(
            &reader,
            engine.spec(),
            &header,
            transaction.clone(),
            sender,
            1,
        );
        match prepared {
            Ok(_) => {}
            Err(DroppedError::Invalid { .. }) => invalid += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(invalid > 0);
}
