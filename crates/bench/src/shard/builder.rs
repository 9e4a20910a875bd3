//! A builder that verifies and executes transfers which clients have run.

use crate::report::{Report, Target, median, object};
use alloy_consensus::Header;
use cambium_chain::{Block, GenesisPart, Transaction};
use cambium_cluster::{
    Builder, Built, Incomplete, Reader, Service, Shard, ShardLimits, ShardLoader, ShardRange,
    Shards, Submission, top_nodes,
};
use cambium_evm::recover_senders;
use cambium_primitives::Path;
use cambium_testkit::genesis_state;
use cambium_trie::{Batch, NoResolve, PartialTrie, commit};
use cambium_workload::{BlockSealer, BlockSize, Spread, Workload, WorkloadParams};
use serde_json::json;
use std::{error::Error, sync::Arc};

/// Takes the first draft of a workload.
struct FirstDraft(Option<Block>);

impl BlockSealer for FirstDraft {
    type Error = ();

    fn seal(&mut self, draft: Block) -> Result<Block, ()> {
        self.0 = Some(draft);
        Err(())
    }
}

/// Blocks of transfers between accounts of a state in one shard.
pub(super) fn run(
    accounts: u64,
    transfers: u64,
    level: u8,
    rounds: usize,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
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
    let (mut without, mut with, mut shares) = (Vec::new(), Vec::new(), [0.0; 5]);
    for round in 0..rounds {
        eprintln!("builder: round {} of {rounds}", round + 1);
        // What it keeps of the state is there already, as in a builder that runs.
        let reader = Reader::new(shards.clone(), &genesis, level, 0);
        for submission in &submissions {
            reader.load(&submission.touched, cambium_trie::Deletes::Nothing)?;
        }
        let mut builder = Builder::new(reader, spec.clone(), 1, Incomplete::Fetch);
        builder.prune()?;
        let asked = builder.reader().counts().0;
        let built: Built = builder.build(draft.clone(), &submissions)?;
        if !built.left_out.is_empty() || built.block.body.transactions.len() != submissions.len() {
            let left_out = built.left_out.len();
            report
                .errors
                .push(format!("{left_out} transfers were left out"));
        }
        let fetched = builder.reader().counts().0 - asked;
        // For what every block reads, and the nodes above the shards: not for transfers.
        if fetched > 16 {
            report
                .errors
                .push(format!("the builder asked the shard {fetched} times"));
        }
        let timings = built.timings;
        let parts = [
            timings.senders,
            timings.revise,
            timings.execute,
            timings.finish,
            timings.witness,
        ];
        let parts = parts.map(|part| part.as_secs_f64());
        let count = submissions.len() as f64;
        with.push(count / parts.iter().sum::<f64>());
        without.push(count / parts[1..4].iter().sum::<f64>());
        shares = parts.map(|part| part * 1e6 / count);
    }
    let (without, with) = (median(without), median(with));
    report.results.push(object([
        ("builder: accounts", json!(accounts)),
        ("transfers of a block", json!(transfers)),
        ("nodes kept at depths below", json!(level)),
        (
            "bag of a transfer, bytes",
            json!(bytes as f64 / transfers as f64),
        ),
        ("transfers/s without signatures", json!(without)),
        ("transfers/s with signatures", json!(with)),
        ("us of a transfer: signatures", json!(shares[0])),
        ("us of a transfer: bags", json!(shares[1])),
        ("us of a transfer: execution", json!(shares[2])),
        ("us of a transfer: root and pruning", json!(shares[3])),
        ("us of a transfer: bag for verifiers", json!(shares[4])),
    ]));
    report.targets.push(Target {
        name: "a builder verifies and executes transfers, without signatures".to_owned(),
        value: without,
        unit: "/s",
        target: "at least 60,000".to_owned(),
        met: without >= 60_000.0,
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
