//! An import by `cambium import` alone, and beside `cambium serve` of the same database, which answers 1,000 requests a second meanwhile.
//!
//! geth has no counterpart: `geth import` and a geth that serves can't share a database.

use super::{
    bench::Bench,
    chains::Chained,
    load::steadily,
    measured::Bound,
    plan::MEMORY_BYTES,
    requests::mixed,
    server::{Kind, Setting},
};
use crate::{
    report::{Report, median, object},
    state::stores::Failure,
    system,
};
use serde_json::Value;
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const REQUESTS_PER_SECOND: u64 = 1_000;
const CONNECTIONS: u64 = 4;
/// Different requests.
const REQUESTS: u64 = 20_000;
/// Part of the wanted rate that must be reached for the figures to count.
const RATE_MIN: f64 = 0.95;
/// Time that the import may lose beyond the processor time of client and server, as a part of its time alone.
const LOST_MAX: f64 = 0.1;

/// An import.
#[derive(Clone, Copy, Debug, Default)]
struct Imported {
    seconds: f64,
    server_cpu_seconds: f64,
    client_cpu_seconds: f64,
    requests: u64,
}

pub(super) fn run(bench: &mut Bench, report: &mut Report) -> Result<(), Failure> {
    let chain = bench.wide()?;
    let requests = mixed(&chain.workload, 21, REQUESTS);
    // The first import reads files that later ones have in the page cache, and does not count.
    import_once(bench, &chain, &[])?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 1..=bench.plan.rounds {
        eprintln!(
            "import beside requests: round {round} of {}",
            bench.plan.rounds
        );
        alone.push(import_once(bench, &chain, &[])?);
        beside.push(import_once(bench, &chain, &requests)?);
    }
    let of = |all: &[Imported], figure: &dyn Fn(&Imported) -> f64| {
        median(all.iter().map(figure).collect())
    };
    let alone = of(&alone, &|import| import.seconds);
    let seconds = of(&beside, &|import| import.seconds);
    let server = of(&beside, &|import| import.server_cpu_seconds);
    let client = of(&beside, &|import| import.client_cpu_seconds);
    let rate = of(&beside, &|import| import.requests as f64 / import.seconds);
    report.results.push(object([
        ("measured", "import beside requests".into()),
        ("seconds_alone", alone.into()),
        ("seconds_beside", seconds.into()),
        ("server_cpu_seconds", server.into()),
        ("client_cpu_seconds", client.into()),
        ("requests_per_second", rate.into()),
    ]));
    let rows = [
        ("import alone, s", alone),
        ("import beside 1,000 requests/s, s", seconds),
        ("processor time of the server, s", server),
        ("processor time of the client, s", client),
        ("requests/s", rate),
    ];
    let rows = rows.map(|(name, figure)| (name.to_owned(), vec![format!("{figure:.2}")]));
    report.comparison.extend(rows);
    let lost = seconds - alone - server - client;
    let name = "import beside requests: time lost beyond processor time of client and server, % of the import's";
    let bound = Bound::AtMost(100.0 * LOST_MAX);
    report
        .targets
        .push(bound.target(name.to_owned(), 100.0 * lost / alone, "%"));
    let least = REQUESTS_PER_SECOND as f64 * RATE_MIN;
    let name = "import beside requests: requests a second that were answered".to_owned();
    report
        .targets
        .push(Bound::AtLeast(least).target(name, rate, "requests/s"));
    Ok(())
}

/// Imports the blocks into a copy of the first state, beside requests if there are any.
fn import_once(
    bench: &mut Bench,
    chain: &Chained,
    requests: &[Vec<u8>],
) -> Result<Imported, Failure> {
    let place = tempfile::Builder::new()
        .prefix("beside-")
        .tempdir_in(&bench.plan.data)?;
    let dir = place.path().join("data");
    system::copy_dir(&chain.inputs.state(), &dir)?;
    let blocks = chain.base()?;
    if requests.is_empty() {
        let seconds = import(bench, &dir, &blocks)?;
        return Ok(Imported {
            seconds,
            ..Imported::default()
        });
    }
    let server = bench
        .programs
        .serve(Kind::Cambium, &dir, 0, &Setting::default())?;
    let is_over = AtomicBool::new(false);
    let (cpu, own) = (server.cpu_seconds(), system::own_cpu_seconds());
    let (imported, sent) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS as usize)
            .map(|index| {
                let (server, is_over) = (&server, &is_over);
                let part = &requests[index * requests.len() / CONNECTIONS as usize..];
                let rate = REQUESTS_PER_SECOND / CONNECTIONS;
                scope.spawn(move || steadily(server, part, rate, is_over))
            })
            .collect();
        let imported = import(bench, &dir, &blocks);
        is_over.store(true, Ordering::Relaxed);
        let sent = clients
            .into_iter()
            .map(|client| client.join().map_err(|_| "a client panicked")?);
        (imported, sent.collect::<Result<Vec<_>, Failure>>())
    });
    let imported = Imported {
        seconds: imported?,
        requests: sent?.into_iter().sum(),
        server_cpu_seconds: server.cpu_seconds() - cpu,
        client_cpu_seconds: system::own_cpu_seconds() - own,
    };
    server.stop()?;
    Ok(imported)
}

/// Imports a file. Returns the seconds that the import reports.
fn import(bench: &Bench, dir: &Path, blocks: &Path) -> Result<f64, Failure> {
    let memory = format!("{}M", MEMORY_BYTES >> 20);
    let mut command = bench
        .programs
        .cambium(&["import", "--json", "--memory", &memory, "-d"]);
    let output = command.arg(dir).arg(blocks).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).map_err(|_| {
        format!(
            "cambium import: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    let seconds = report["seconds"].as_f64();
    seconds.ok_or_else(|| format!("cambium import: {report}").into())
}
