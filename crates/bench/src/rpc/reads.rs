//! Reads at the head of the wide chain: batches, single calls, and proofs by threads.

use super::{
    bench::Bench,
    chains::Chained,
    load::{Load, drive, send_each},
    measured::{Bound, Measured},
    plan::{BATCH_CALLS, Part},
    requests::Method,
    same,
    server::{Kind, Server, Setting},
};
use crate::{
    report::{Report, median},
    state::stores::Failure,
};
use std::time::Duration;

/// Accounts that are asked for, as single calls and in batches.
const CALLS: u64 = 20_000;
/// Numbers of connections for single calls.
const CONNECTIONS: [usize; 3] = [1, 4, 16];
/// Connections for batches.
const BATCH_CONNECTIONS: usize = 2;
/// Processor time for a call in a batch, against geth's.
const BATCH_CPU_MAX: f64 = 1.0 / 3.0;
const SINGLE_RATE_MIN: f64 = 1.5;
/// Threads of Cambium's server at which one proof, and two, are made at once: proofs get half of the threads.
const PROOF_THREADS: [(usize, usize); 2] = [(1, 2), (2, 4)];
const THREADS_GAIN_MIN: f64 = 1.8;

const CPU: &str = "server cpu us/call";
const RATE: &str = "calls/s";
const P50: &str = "p50 ms";
const P99: &str = "p99 ms";

pub(super) fn run(bench: &mut Bench, report: &mut Report) -> Result<(), Failure> {
    let chain = bench.wide()?;
    if bench.plan.has(Part::Batch) || bench.plan.has(Part::Single) {
        let servers = bench.serve(&chain)?;
        let mut measured = Measured::default();
        measure(bench, &chain, &servers, &mut measured, report)?;
        measured.write(report);
        for server in servers {
            server.stop()?;
        }
    }
    if bench.plan.has(Part::Threads) {
        threads(bench, &chain, report)?;
    }
    Ok(())
}

fn measure(
    bench: &Bench,
    chain: &Chained,
    servers: &[Server],
    measured: &mut Measured,
    report: &mut Report,
) -> Result<(), Failure> {
    let plan = &bench.plan;
    for method in Method::ALL {
        let seed = method as u64 + 1;
        let batches = CALLS / BATCH_CALLS as u64;
        let batches = method.batches(&chain.workload, seed, "latest", batches, BATCH_CALLS);
        let singles = method.singles(&chain.workload, seed, "latest", CALLS);
        // The calls are those of the batches, so this warms both.
        for server in servers {
            send_each(server, &batches)?;
        }
        report
            .errors
            .extend(same::answers(servers, &batches[..2], method.name())?);
        if plan.has(Part::Batch) {
            let name = format!("{} in batches of {BATCH_CALLS}", method.name());
            eprintln!("{name}");
            bench.rounds(servers, &batches, BATCH_CONNECTIONS, |kind, load| {
                measured.add(&name, CPU, kind, load.cpu_us_per_call(BATCH_CALLS));
                let rate = load.per_second() * BATCH_CALLS as f64;
                measured.add(&name, RATE, kind, rate);
            })?;
            measured.demand(&name, CPU, Bound::AtMost(BATCH_CPU_MAX), report);
        }
        if plan.has(Part::Single) {
            for connections in CONNECTIONS {
                let name = format!("{}, {connections} at once", method.name());
                eprintln!("{name}");
                bench.rounds(servers, &singles, connections, |kind, load| {
                    measured.add(&name, RATE, kind, load.per_second());
                    measured.add(&name, P50, kind, load.latency_ms(0.5));
                    measured.add(&name, P99, kind, load.latency_ms(0.99));
                    measured.add(&name, CPU, kind, load.cpu_us_per_call(1));
                })?;
                measured.demand(&name, RATE, Bound::AtLeast(SINGLE_RATE_MIN), report);
                measured.demand(&name, P99, Bound::AtMost(1.0), report);
            }
        }
    }
    Ok(())
}

/// Proofs in batches, with so few threads that one is made at a time, and two.
fn threads(bench: &mut Bench, chain: &Chained, report: &mut Report) -> Result<(), Failure> {
    let dir = chain.database(Kind::Cambium, &bench.programs, &mut bench.notes)?;
    let batches = CALLS / BATCH_CALLS as u64;
    let batches = Method::Proof.batches(&chain.workload, 4, "latest", batches, BATCH_CALLS);
    let mut servers = Vec::new();
    for (_, threads) in PROOF_THREADS {
        let threads = Some(threads);
        let setting = Setting {
            threads,
            ..Setting::default()
        };
        let server = bench
            .programs
            .serve(Kind::Cambium, &dir, chain.head, &setting)?;
        send_each(&server, &batches)?;
        servers.push(server);
    }
    let mut loads = [Vec::new(), Vec::new()];
    for round in 1..=bench.plan.rounds {
        eprintln!("proofs by threads: round {round} of {}", bench.plan.rounds);
        for ((server, loads), (proofs, _)) in servers.iter().zip(&mut loads).zip(PROOF_THREADS) {
            // One more request waits, so that a thread never does.
            let window = bench.plan.window.max(Duration::from_secs(1));
            loads.push(drive(server, &batches, proofs + 1, window)?);
        }
    }
    let of =
        |loads: &[Load], figure: &dyn Fn(&Load) -> f64| median(loads.iter().map(figure).collect());
    let rate = |load: &Load| load.per_second() * BATCH_CALLS as f64;
    let cpu = |load: &Load| load.cpu_us_per_call(BATCH_CALLS);
    let busy = |load: &Load| load.server_cpu_seconds / load.seconds;
    for ((proofs, threads), loads) in PROOF_THREADS.into_iter().zip(&loads) {
        report.results.push(crate::report::object([
            ("measured", "proofs by threads".into()),
            ("proofs_at_once", proofs.into()),
            ("server_threads", threads.into()),
            ("proofs_per_second", of(loads, &rate).into()),
            ("server_cpu_us_per_proof", of(loads, &cpu).into()),
            ("processors_busy", of(loads, &busy).into()),
        ]));
    }
    let gain = |figure: &dyn Fn(&Load) -> f64| of(&loads[1], figure) / of(&loads[0], figure);
    let name = "proofs a second with two threads over one, both sharing processors with the client";
    let bound = Bound::AtLeast(THREADS_GAIN_MIN);
    report
        .targets
        .push(bound.target(name.to_owned(), gain(&rate), "x"));
    // What the client and others leave: the rate that the same processor time would have made with two free processors.
    let name = "the same, by processor time alone";
    let by_cpu = 2.0 / gain(&cpu);
    report
        .targets
        .push(bound.target(name.to_owned(), by_cpu, "x"));
    for server in servers {
        server.stop()?;
    }
    Ok(())
}
