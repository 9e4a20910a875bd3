//! The process of a builder.

use super::{
    super::{
        args::cluster::BuilderProcessArgs,
        beside::Serving,
        error::Failure,
        output::{Output, Report, count},
        proof::fork_rules,
        signals::Stop,
    },
    connect, get, init, key,
    members::{self, MEMBERS, Membership, Ways},
};
use cambium_cluster::{
    Builder, BuilderKeys, BuilderOptions, BuilderProcess, BuilderProcessError, Incomplete, Reader,
    Role, ServerLimits, Stream,
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
/// Pause before what can't be built or published now is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// Time between two looks at where the shards are.
const PROGRESS: Duration = Duration::from_millis(250);

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
    let mut ways = Ways::new(&nats, tls.as_ref(), runtime.handle())?;
    let (shards, clients) = (ways.shards(), ways.clients());
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
        ahead_max: args.ahead,
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
        scope.spawn(|| watch(&process, &mut ways, &ends, out));
        let mut last = Instant::now();
        let mut patience = Patience::default();
        let built = (|| {
            while stop.asked().is_none() && args.blocks.is_none_or(|wanted| blocks < wanted) {
                let (_, waiting) = process.status();
                if waiting == 0 || last.elapsed() < every {
                    thread::sleep(LOOK);
                    continue;
                }
                last = Instant::now();
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let made = process.publish();
                let made = made.and_then(|()| process.make(now.map_or(0, |now| now.as_secs())));
                let Some((built, left_out)) = patience.take(made, out)? else {
                    continue;
                };
                while patience.take(process.publish(), out)?.is_none() && stop.asked().is_none() {}
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

/// Watches shards: replicas that join and leave, and where each shard is.
fn watch<S: Stream>(process: &BuilderProcess<S>, ways: &mut Ways, ends: &AtomicBool, out: &Output) {
    let mut refreshed = Instant::now();
    while !ends.load(Ordering::Relaxed) {
        if refreshed.elapsed() >= MEMBERS {
            match ways.refresh() {
                Ok(changes) => changes.into_iter().for_each(|change| out.note(change)),
                Err(error) => tracing::warn!("{error}"),
            }
            refreshed = Instant::now();
        }
        process.note_shards(&ways.progress());
        // What all shards lack is published again, also while nothing is built.
        if let Err(error) = process.publish() {
            tracing::warn!("{error}");
        }
        thread::sleep(PROGRESS);
    }
}

/// Tries again what fails for now, and says once what it waits for.
#[derive(Default)]
struct Patience {
    waits_for: String,
}

impl Patience {
    /// What was done; `None`, after a pause, if it has to be tried again.
    fn take<T>(
        &mut self,
        done: Result<T, BuilderProcessError>,
        out: &Output,
    ) -> Result<Option<T>, Failure> {
        match done {
            Ok(done) => {
                self.waits_for.clear();
                Ok(Some(done))
            }
            Err(error) if error.is_passing() => {
                let error = error.to_string();
                if self.waits_for != error {
                    out.note(format_args!("{error}; it is tried again"));
                    self.waits_for = error;
                }
                thread::sleep(PAUSE);
                Ok(None)
            }
            Err(error) => Err(Failure::cluster(error)),
        }
    }
}
