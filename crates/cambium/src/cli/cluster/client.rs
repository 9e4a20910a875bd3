//! Transactions that are run on the state of a cluster, and submitted with what they read.

use super::{
    super::{
        args::cluster::ClientArgs,
        beside::Serving,
        error::Failure,
        output::{Output, Report, Table, count, rate},
        proof::fork_rules,
    },
    connect, get,
    members::{self, Ways},
    metrics::{ClientFigures, dropped},
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
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a shard may take for a block that was published a moment ago.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(args: &ClientArgs, out: &Output) -> Result<Report, Failure> {
    let tls = connect::tls(&args.tls);
    let spec = fork_rules(&args.rules)?;
    let runtime = connect::runtime()?;
    let shown = Serving::new(args.metrics.metrics, "client", &runtime, out)?;
    let nats = connect::nats(&args.nats, None)?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let ways = Ways::new(&nats, tls.as_ref(), runtime.handle())?;
    let (shards, clients) = (ways.shards(), ways.clients());
    let _followed = ways.follow();
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
    let figures = Arc::new(ClientFigures::new());
    shown.add(Arc::<ClientFigures>::clone(&figures));
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
                        figures.dropped.add(dropped::SIGNATURE);
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
                            DroppedError::Invalid { .. } => dropped::INVALID,
                            DroppedError::Reverts { .. } => dropped::REVERTS,
                            DroppedError::Reader(ReaderError::Read(_)) => dropped::UNREADABLE,
                            _ => dropped::OTHER,
                        };
                        figures.dropped.add(kind);
                        out.note(format_args!("transaction {hash} is dropped: {error}"));
                        continue;
                    }
                };
                figures.bytes.add(submission.bag.bytes() as u64);
                let taken = runtime.block_on(builder.submit(&submission));
                taken
                    .map_err(Failure::cluster)?
                    .map_err(|refused| Failure::cluster(format!("the builder: {refused}")))?;
                figures.submitted.add(1);
            }
        }
    }
    let elapsed = start.elapsed();
    let (submitted, bytes) = (figures.submitted.get(), figures.bytes.get());
    let counts = figures.dropped.counts();
    let dropped: BTreeMap<_, _> = counts.filter(|(_, count)| *count > 0).collect();
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
