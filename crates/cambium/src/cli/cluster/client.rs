//! Transactions that are run on the state of a cluster, and submitted with what they read.

use super::{
    super::{
        args::cluster::ClientArgs,
        error::Failure,
        output::{Output, Report, Table, count, rate},
        proof::fork_rules,
    },
    connect, get, members,
};
use cambium::{
    BlockSource, ChainError,
    chain::DraftAttributes,
    execution::{SignatureError, recover_sender},
};
use cambium_cluster::{BuilderKeys, DroppedError, NodeBag, Reader, ReaderError, Submission};
use serde_json::json;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long a shard may take for a block that was published a moment ago.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(args: &ClientArgs, out: &Output) -> Result<Report, Failure> {
    let tls = connect::tls(&args.tls);
    let spec = fork_rules(&args.rules)?;
    let runtime = connect::runtime()?;
    let nats = connect::nats(&args.nats, None)?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let (shards, clients) = members::shards(&nats, tls.as_ref(), runtime.handle())?;
    let builders = members::builders(&registry, tls.as_ref(), runtime.handle())?;
    let builder = builders
        .first()
        .ok_or_else(|| Failure::cluster("no builder is there: cambium builder starts one"))?;
    let keys = BuilderKeys {
        chain_id: spec.chain_id,
        keys: args.believed.builders.clone(),
    };
    let header = get::header(&runtime, &clients, &keys, None)?;
    let reader = Reader::new(shards.with_patience(PATIENCE), &header, args.level, 1);
    let ran_on = reader.block();
    let attributes = DraftAttributes {
        timestamp: header.timestamp + 12,
        gas_limit: header.gas_limit,
        ..DraftAttributes::default()
    };
    let guessed = spec.draft(&header, ran_on.hash, &attributes).header;
    let (mut submitted, mut bytes) = (0_u64, 0_u64);
    let mut dropped = BTreeMap::<&str, u64>::new();
    let start = Instant::now();
    for file in &args.files {
        for block in BlockSource::open(file).map_err(ChainError::from)? {
            let block = block
                .and_then(|raw| raw.decode())
                .map_err(ChainError::from)?;
            for (index, transaction) in block.body.transactions.into_iter().enumerate() {
                let sender = match recover_sender(index, &transaction, true) {
                    Ok(sender) => sender,
                    Err(SignatureError { .. }) => {
                        *dropped.entry("an invalid signature").or_default() += 1;
                        continue;
                    }
                };
                let bare = args.all.then(|| transaction.clone());
                let hash = *transaction.tx_hash();
                let prepared =
                    Submission::prepare(&reader, &spec, &guessed, transaction, sender, args.level);
                let submission = match (prepared, bare) {
                    (Ok(submission), _) => submission,
                    (
                        Err(DroppedError::Invalid { .. } | DroppedError::Reverts { .. }),
                        Some(bare),
                    ) => Submission {
                        transaction: bare,
                        ran_on,
                        touched: Default::default(),
                        bag: NodeBag::default(),
                    },
                    (Err(error), _) => {
                        let kind = match &error {
                            DroppedError::Invalid { .. } => "invalid",
                            DroppedError::Reverts { .. } => "reverts",
                            DroppedError::Reader(ReaderError::Read(_)) => "the state can't be read",
                            _ => "other reasons",
                        };
                        *dropped.entry(kind).or_default() += 1;
                        out.note(format_args!("transaction {hash} is dropped: {error}"));
                        continue;
                    }
                };
                bytes += submission.bag.bytes() as u64;
                let taken = runtime.block_on(builder.submit(&submission));
                taken
                    .map_err(Failure::cluster)?
                    .map_err(|refused| Failure::cluster(format!("the builder: {refused}")))?;
                submitted += 1;
            }
        }
    }
    let elapsed = start.elapsed();
    let mut table = Table::default()
        .row("ran on", ran_on)
        .row("submitted", count(submitted))
        .row("bytes of nodes and codes", count(bytes))
        .row("a second", format_args!("{:.0}", rate(submitted, elapsed)));
    for (reason, number) in &dropped {
        table = table.row(format_args!("dropped, {reason}"), count(*number));
    }
    let json = json!({
        "ran_on": ran_on.hash,
        "submitted": submitted,
        "bytes": bytes,
        "seconds": elapsed.as_secs_f64(),
        "dropped": dropped,
    });
    Ok(Report::new(table.to_string(), json))
}
