//! A builder that verifies and executes transfers which clients have run.

use crate::{
    report::{Report, Target, median, object},
    system::own_cpu_seconds,
};
use alloy_consensus::Header;
use cambium_chain::{Block, GenesisPart, Transaction};
use cambium_cluster::{
    Builder, Incomplete, Reader, Service, Shard, ShardLimits, ShardLoader, ShardRange, Shards,
    Submission, top_nodes,
};
use cambium_evm::recover_senders;
use cambium_primitives::Path;
use cambium_testkit::genesis_state;
use cambium_trie::{Batch, Deletes, NoResolve, PartialTrie, commit};
use cambium_workload::{BlockSealer, BlockSize, Spread, Workload, WorkloadParams};
use serde_json::json;
use std::{error::Error, num::NonZeroUsize, sync::Arc};

/// Takes the first draft of a workload.
struct FirstDraft(Option<Block>);

impl BlockSealer for FirstDraft {
    type Error = ();

    fn seal(&mut self, draft: Block) -> Result<Block, ()> {
        self.0 = Some(draft);
        Err(())
    }
}

/// What builders do.
pub(super) struct Work {
    /// Number of accounts of the state.
    pub(super) accounts: u64,
    /// Number of transfers of a block.
    pub(super) transfers: u64,
    /// The builder has the nodes at depths below this.
    pub(super) level: u8,
    pub(super) rounds: usize,
}

/// Rates and times of the rounds with one number of threads.
#[derive(Default)]
struct Rounds {
    /// Transfers a second, without and with signatures.
    rates: [Vec<f64>; 2],
    /// Microseconds of a transfer: signatures, bags, execution, root and pruning, the bag for verifiers.
    parts: [Vec<f64>; 5],
    /// Microseconds of processors of a transfer, in all parts.
    processors: Vec<f64>,
}

/// Blocks of transfers between accounts of a state in one shard, by builders with these numbers of threads.
pub(super) fn run(
    work: &Work,
    threads: &[NonZeroUsize],
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let Work {
        accounts,
        transfers,
        level,
        rounds,
    } = *work;
    eprintln!("builder: loading {accounts} accounts");
    let workload = Workload::new(WorkloadParams {
        accounts,
        senders: Some((2 * transfers).min(accounts / 2)),
        holders: Some((2 * transfers).min(accounts / 2)),
        pools: 1,
        slots: 1,
        blocks: 1,
        block_size: BlockSize::Transactions(transfers),
        erc20_percent: 0,
        fresh_percent: 0,
        spread: Spread::Distinct,
        ..WorkloadParams::default()
    })?;
    let mut parts = Vec::new();
    workload.for_each_part(|part| {
        if let GenesisPart::Account(address, account) = part {
            parts.push((address, account));
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    let (changes, codes) = genesis_state(parts);
    let mut trie = PartialTrie::new(Path::EMPTY);
    trie.apply(changes.accounts(), &mut NoResolve)?;
    commit(&mut [&mut trie], &mut Batch::new());
    let spec = workload.params().spec();
    let genesis = workload
        .genesis()
        .header(&spec, trie.state_root().unwrap_or_default());
    let shard = shard_of(&genesis, changes.accounts(), &codes, &trie)?;
    drop((trie, changes));
    let services: Arc<dyn Service> = Arc::new(shard);
    let shards = Shards::new(vec![vec![services]])?;
    let mut take = FirstDraft(None);
    let _ = workload.generate(&genesis, &mut take, |_| Ok(()));
    let draft = take.0.ok_or("no draft")?;
    eprintln!("builder: clients run {transfers} transfers");
    let transactions: &[Transaction] = &draft.body.transactions;
    let senders = recover_senders(transactions, true)?;
    let client = Reader::new(shards.clone(), &genesis, level, 0);
    let mut submissions = Vec::new();
    for (transaction, sender) in transactions.iter().zip(senders) {
        let transaction = transaction.clone();
        let prepared =
            Submission::prepare(&client, &spec, &draft.header, transaction, sender, level)?;
        submissions.push(prepared);
    }
    let bytes: usize = submissions.iter().map(|it| it.bag.bytes()).sum();
    // What a builder that runs keeps of the state.
    let mut kept = Reader::new(shards, &genesis, level, 0);
    for submission in &submissions {
        kept.load(&submission.touched, Deletes::Nothing)?;
    }
    kept.settle()?;
    let mut all: Vec<_> = threads.iter().map(|_| Rounds::default()).collect();
    for round in 0..rounds {
        eprintln!("builder: round {} of {rounds}", round + 1);
        for (threads, of_threads) in threads.iter().zip(&mut all) {
            let builder = Builder::new(kept.clone(), spec.clone(), 1, Incomplete::Fetch);
            let mut builder = builder.with_threads(*threads);
            let draft = draft.clone();
            let before = own_cpu_seconds();
            let built = builder.build(draft, &submissions)?;
            let spent = own_cpu_seconds() - before;
            if built.block.body.transactions.len() != submissions.len() {
                let left_out = built.left_out.len();
                let error = format!("{left_out} transfers were left out");
                report.errors.push(error);
            }
            let fetched = builder.reader().counts().0;
            // For what every block reads, and the nodes above the shards: not for transfers.
            if fetched > 16 {
                let error = format!("the builder asked the shard {fetched} times");
                report.errors.push(error);
            }
            let timings = built.timings;
            let count = submissions.len() as f64;
            let parts = [
                timings.senders,
                timings.revise,
                timings.execute,
                timings.finish,
                timings.witness,
            ];
            let parts = parts.map(|part| part.as_secs_f64() * 1e6 / count);
            of_threads.rates[0].push(1e6 / parts[1..4].iter().sum::<f64>());
            of_threads.rates[1].push(1e6 / parts.iter().sum::<f64>());
            for (all, part) in of_threads.parts.iter_mut().zip(parts) {
                all.push(part);
            }
            of_threads.processors.push(spent * 1e6 / count);
        }
    }
    let mut best = 0.0_f64;
    for (threads, of_threads) in threads.iter().zip(all) {
        let [without, with] = of_threads.rates.map(median);
        let [signatures, bags, execution, root, witness] = of_threads.parts.map(median);
        best = best.max(without);
        report.results.push(object([
            ("builder: threads", json!(threads)),
            ("accounts", json!(accounts)),
            ("transfers of a block", json!(transfers)),
            ("nodes kept at depths below", json!(level)),
            (
                "bag of a transfer, bytes",
                json!(bytes as f64 / transfers as f64),
            ),
            ("transfers/s without signatures", json!(without)),
            ("transfers/s with signatures", json!(with)),
            ("us of a transfer: signatures", json!(signatures)),
            ("us of a transfer: bags", json!(bags)),
            ("us of a transfer: execution", json!(execution)),
            ("us of a transfer: root and pruning", json!(root)),
            ("us of a transfer: bag for verifiers", json!(witness)),
            (
                "us of processors, all parts",
                json!(median(of_threads.processors)),
            ),
        ]));
    }
    report.targets.push(Target {
        name: "a builder verifies and executes transfers, without signatures".to_owned(),
        value: best,
        unit: "/s",
        target: "at least 60,000".to_owned(),
        met: best >= 60_000.0,
    });
    Ok(())
}

fn shard_of(
    genesis: &Header,
    accounts: &[cambium_primitives::AccountDiff],
    codes: &[(alloy_primitives::B256, alloy_primitives::Bytes)],
    trie: &PartialTrie,
) -> Result<Shard, Box<dyn Error>> {
    let mut loader = ShardLoader::new(ShardRange::new(0, 1)?);
    loader.put(accounts)?;
    for (_, code) in codes {
        loader.put_code(code.clone());
    }
    let top = top_nodes(trie, 1);
    Ok(loader.finish(genesis, &top, ShardLimits::default())?)
}
