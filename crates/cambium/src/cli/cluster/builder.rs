//! The process of a builder.

use super::{
    super::{
        args::cluster::BuilderProcessArgs,
        error::Failure,
        output::{Output, Report, count},
        proof::fork_rules,
        signals::Stop,
    },
    connect, get, init, key,
    members::{self, Membership},
    metrics::Serving,
};
use cambium_cluster::{
    Builder, BuilderKeys, BuilderOptions, BuilderProcess, Incomplete, Reader, Role, ServerLimits,
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How long a shard may take for a block that was published a moment ago.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

pub(super) fn run(args: &BuilderProcessArgs, out: &Output) -> Result<Report, Failure> {
    let tls = connect::tls(&args.tls);
    let stop = Stop::on_signals();
    let spec = fork_rules(&args.rules)?;
    let signer = key::read(&args.key, spec.chain_id)?;
    let runtime = connect::runtime()?;
    let (server, own) = connect::listen(&args.at, tls.as_ref(), &runtime)?;
    let shown = Serving::new(args.metrics.metrics, "builder", &runtime, out)?;
    let nats = connect::nats(&args.nats, None)?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let (shards, clients) = members::shards(&nats, tls.as_ref(), runtime.handle())?;
    let depth = members::depth_of(&registry)?;
    let keys = BuilderKeys {
        chain_id: spec.chain_id,
        keys: [&[signer.address()], &args.builders[..]].concat(),
    };
    let header = get::header(&runtime, &clients, &keys, None)?;
    let reader = Reader::new(shards.with_patience(PATIENCE), &header, args.level, 1);
    let incomplete = match args.reject_incomplete {
        true => Incomplete::Reject,
        false => Incomplete::Fetch,
    };
    let builder = Builder::new(reader, spec.clone(), depth, incomplete);
    let known = members::epoch_of(&registry, tls.as_ref(), &runtime)?;
    let (publisher, epoch) = init::open_epoch(&signer, &args.builders, known, &nats)?;
    let options = BuilderOptions {
        beneficiary: args.beneficiary,
        gas_limit: args.gas_limit,
        final_below: args.final_below,
        bodies: !args.no_bodies,
        ..BuilderOptions::default()
    };
    let first = builder.reader().block();
    let process = BuilderProcess::new(builder, header, spec, signer, publisher, epoch, options);
    let process = Arc::new(process);
    let host = Arc::clone(&process);
    shown.add(Arc::<BuilderProcess<_>>::clone(&process));
    shown.add(server.figures());
    runtime.spawn(async move {
        let forever = std::future::pending();
        let limits = ServerLimits::default();
        server
            .run_builder(host, limits, tls.as_ref(), forever)
            .await
    });
    let port = own.rsplit(':').next().unwrap_or_default();
    let membership = Membership {
        registry,
        lease: nats.options().lease,
        name: format!("builder-{port}"),
        about: Role::Builder {
            address: own.clone(),
        }
        .to_string(),
    };
    out.note(format_args!(
        "epoch {epoch}: blocks after {first} are built of what is submitted at {own}"
    ));
    let ends = AtomicBool::new(false);
    let (mut blocks, mut transactions) = (0_u64, 0_u64);
    let every = Duration::from_millis(args.interval);
    let built = thread::scope(|scope| {
        scope.spawn(|| membership.stay(&ends));
        let mut last = Instant::now();
        let built = (|| {
            while stop.asked().is_none() && args.blocks.is_none_or(|wanted| blocks < wanted) {
                let (_, waiting) = process.status();
                if waiting == 0 || last.elapsed() < every {
                    thread::sleep(LOOK);
                    continue;
                }
                last = Instant::now();
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let (built, left_out) = process
                    .build(now.map_or(0, |now| now.as_secs()))
                    .map_err(Failure::cluster)?;
                for reason in left_out {
                    out.note(reason);
                }
                blocks += 1;
                let count_of = built.block.body.transactions.len() as u64;
                transactions += count_of;
                out.note(format_args!(
                    "block {}: {} transactions, {} gas, in {:.1} ms",
                    built.id,
                    count(count_of),
                    count(built.gas_used),
                    last.elapsed().as_secs_f64() * 1e3
                ));
            }
            Ok::<_, Failure>(())
        })();
        ends.store(true, Ordering::Relaxed);
        built
    });
    built?;
    let (head, _) = process.status();
    let text = format!(
        "{} blocks with {} transactions were built, the last one is {head}.",
        count(blocks),
        count(transactions)
    );
    let json = json!({ "blocks": blocks, "transactions": transactions, "head": head.hash });
    let mut report = Report::new(text, json);
    if let Some(exit) = stop.asked() {
        report.exit = exit;
    }
    Ok(report)
}
