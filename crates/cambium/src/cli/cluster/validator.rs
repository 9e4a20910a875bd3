//! Blocks of a cluster's builders, executed again without any state.

use super::{
    super::{
        args::cluster::ValidatorArgs,
        beside::Serving,
        error::{Exit, Failure},
        output::{Output, Report, count},
        proof::fork_rules,
        signals::Stop,
    },
    connect, members,
    metrics::{ValidatorFigures, checked},
};
use cambium::{BlockWitness, chain::ChainSpec, proof::StatelessRules};
use cambium_cluster::{BuilderClient, BuilderKeys, Record, SignedUpdate, Stream, StreamPosition};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// Longest wait for a record before looking whether to stop.
const WAIT: Duration = Duration::from_millis(200);

pub(super) fn run(args: &ValidatorArgs, out: &Output) -> Result<Report, Failure> {
    let tls = connect::tls(&args.tls);
    let stop = Stop::on_signals();
    let spec = fork_rules(&args.rules)?;
    let runtime = connect::runtime()?;
    let shown = Serving::new(args.metrics.metrics, "validator", &runtime, out)?;
    let nats = connect::nats(&args.nats, None)?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let stream = nats.stream().map_err(Failure::cluster)?;
    let keys = BuilderKeys {
        chain_id: spec.chain_id,
        keys: args.believed.builders.clone(),
    };
    let from = match args.from_record {
        Some(from) => StreamPosition(from),
        None => stream.bounds().map_err(Failure::cluster)?.last.next(),
    };
    let mut reader = stream.reader(from).map_err(Failure::cluster)?;
    let (mut agreed, mut unseen, mut transactions, mut gas) = (0_u64, 0_u64, 0_u64, 0_u64);
    let figures = Arc::new(ValidatorFigures::new());
    figures.end.at(StreamPosition(from.0.saturating_sub(1)));
    shown.add(Arc::<ValidatorFigures>::clone(&figures));
    let mut disagreed = None;
    while stop.asked().is_none() && args.blocks.is_none_or(|wanted| agreed + unseen < wanted) {
        if figures.end.look(&stream)
            && let Ok(bounds) = stream.bounds()
        {
            out.note(format_args!(
                "the stream has lost records, and ends at {}: it is read on from there",
                bounds.last
            ));
            reader = stream
                .reader(bounds.last.next())
                .map_err(Failure::cluster)?;
            figures.end.at(bounds.last);
        }
        let item = match reader.next(WAIT) {
            Ok(Some(item)) => item,
            Ok(None) => continue,
            Err(error) => {
                out.note(format_args!("{error}; it is tried again"));
                continue;
            }
        };
        // A record that is executed now is the last one that is not judged yet.
        figures
            .end
            .at(StreamPosition(item.position.0.saturating_sub(1)));
        let record = item.record.as_ref().map(|bytes| Record::decode(bytes));
        let Some(Ok(record)) = record else { continue };
        if keys.verify(&record).is_err() {
            continue;
        }
        let Record::Update(update) = record else {
            continue;
        };
        let start = Instant::now();
        let builders = members::builders(&registry, tls.as_ref(), runtime.handle())?;
        let Some(witness) = fetch(&runtime, &builders, &update) else {
            // A database that feeds a cluster keeps no witnesses.
            out.note(format_args!(
                "block {}: nobody has its witness",
                update.id()
            ));
            unseen += 1;
            figures.blocks.add(checked::UNSEEN);
            figures.end.at(item.position);
            continue;
        };
        match check(&spec, &update, &witness) {
            Ok(report) => {
                agreed += 1;
                transactions += report.0;
                gas += report.1;
                figures.blocks.add(checked::AGREED);
                figures.newest.set(update.id().number);
                figures.transactions.add(report.0);
                figures.gas.add(report.1);
                out.note(format_args!(
                    "block {} agrees: {} transactions, {} gas, in {:.1} ms",
                    update.id(),
                    count(report.0),
                    count(report.1),
                    start.elapsed().as_secs_f64() * 1e3
                ));
            }
            Err(why) => {
                figures.blocks.add(checked::DISAGREED);
                disagreed = Some(format!("block {} does not hold: {why}", update.id()));
                break;
            }
        }
    }
    let mut text = format!(
        "{} blocks agree, with {} transactions and {} gas; of {} nobody has the witness.",
        count(agreed),
        count(transactions),
        count(gas),
        count(unseen)
    );
    if let Some(why) = &disagreed {
        text = format!("{why}\n{text}");
    }
    let json = json!({
        "agreed": agreed,
        "without_witness": unseen,
        "transactions": transactions,
        "gas": gas,
        "disagreed": disagreed,
    });
    let mut report = Report::new(text, json);
    if disagreed.is_some() {
        report.exit = Exit::DoesNotHold;
    } else if let Some(exit) = stop.asked() {
        report.exit = exit;
    }
    Ok(report)
}

fn fetch(runtime: &Runtime, builders: &[BuilderClient], update: &SignedUpdate) -> Option<Vec<u8>> {
    let hash = update.id().hash;
    let mut found = builders
        .iter()
        .filter_map(|builder| runtime.block_on(builder.witness(&hash)).ok().flatten());
    found.next()
}

/// Executes a block. Returns its transactions and gas.
fn check(spec: &ChainSpec, update: &SignedUpdate, witness: &[u8]) -> Result<(u64, u64), String> {
    let text = std::str::from_utf8(witness).map_err(|error| error.to_string())?;
    let witness = BlockWitness::from_json(text, None).map_err(|error| error.to_string())?;
    let report = witness
        .execute(&StatelessRules::of(spec))
        .map_err(|error| error.to_string())?;
    if report.id != update.id() {
        return Err(format!("the witness is of block {}", report.id));
    }
    Ok((report.transactions as u64, report.gas_used))
}
