//! Proofs at the head of the deep chain, and many blocks back: in memory, and from the disk.
//!
//! Cambium's history is an archive (`--history archive`), geth's the path scheme's history of trie nodes. A cold round starts the server
//! anew, after the page cache has lost the database, and asks for each proof once. Beside it the same proofs are made by the history
//! alone, in this process, without a server.

use super::{
    bench::Bench,
    chains::Chained,
    load::send_each,
    measured::{Bound, Measured},
    plan::MEMORY_BYTES,
    requests::Method,
    same,
    server::{Kind, Server},
};
use crate::{
    report::{Notes, Report, quantile},
    state::stores::Failure,
    system,
};
use cambium_history::{History, HistoryOptions};
use cambium_state::{Db, Options, StdDisk};
use cambium_testkit::Random;
use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Proofs that are made again and again at each depth.
const WARM_PROOFS: u64 = 200;
/// Longest time until a server has its histories, and the time between two looks.
const HISTORY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);
/// Latency at an old block over that at the head.
const WARM_MAX: f64 = 2.0;
/// What the server may add to a proof of the history alone, in milliseconds.
const SERVER_MS_MAX: f64 = 1.0;
const P50: &str = "p50 ms";
const P99: &str = "p99 ms";
const CPU: &str = "server cpu us/call";
/// Columns of the history alone, which no server has.
const OWN_P50: &str = "p50 ms of the history alone";
const OWN_P99: &str = "p99 ms of the history alone";

pub(super) fn run(bench: &mut Bench, report: &mut Report) -> Result<(), Failure> {
    let chain = bench.deep()?;
    let mut measured = Measured::default();
    warm(bench, &chain, &mut measured, report)?;
    for round in 1..=bench.plan.rounds {
        eprintln!("cold proofs: round {round} of {}", bench.plan.rounds);
        cold(bench, &chain, round, &mut measured)?;
    }
    measured.write(report);
    let of = |name: &str, figure| measured.median(name, figure, Kind::Cambium);
    for depth in &bench.plan.depths {
        let name = warm_name(*depth);
        if let (Some(old), Some(head)) = (of(&name, P50), of(&warm_name(0), P50))
            && *depth > 0
        {
            let name = format!("{name}: p50 against the head's");
            let bound = Bound::AtMost(WARM_MAX);
            report.targets.push(bound.target(name, old / head, "x"));
        }
        let name = cold_name(*depth);
        for (figure, alone) in [(P50, OWN_P50), (P99, OWN_P99)] {
            if let (Some(served), Some(alone)) = (of(&name, figure), of(&name, alone)) {
                let name = format!("{name}: {figure} more than the history's alone");
                let bound = Bound::AtMost(SERVER_MS_MAX);
                report
                    .targets
                    .push(bound.target(name, served - alone, "ms"));
            }
        }
    }
    Ok(())
}

fn warm_name(depth: u64) -> String {
    match depth {
        0 => "proof at the head".to_owned(),
        depth => format!("proof {depth} blocks back"),
    }
}

fn cold_name(depth: u64) -> String {
    format!("cold {}", warm_name(depth))
}

/// Requests for proofs of random accounts at a depth.
fn requests(chain: &Chained, depth: u64, seed: u64, count: u64) -> Vec<Vec<u8>> {
    let block = format!("{:#x}", chain.head - depth);
    Method::Proof.singles(&chain.workload, seed, &block, count)
}

/// Waits until a server has the histories that a request needs: geth indexes them in the background. Returns whether it has them; a geth
/// without them is noted, and not measured.
fn has_history(server: &Server, request: &[u8], notes: &mut Notes) -> Result<bool, Failure> {
    let start = Instant::now();
    loop {
        match send_each(server, &[request.to_vec()]) {
            Ok(_) => return Ok(true),
            Err(_) if start.elapsed() <= HISTORY_MAX => thread::sleep(POLL),
            Err(error) if server.kind == Kind::Geth => {
                notes.add(format!("geth makes no proofs of old blocks: {error}"));
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
}

fn warm(
    bench: &mut Bench,
    chain: &Chained,
    measured: &mut Measured,
    report: &mut Report,
) -> Result<(), Failure> {
    let servers = bench.serve(chain)?;
    for depth in bench.plan.depths.clone() {
        let name = warm_name(depth);
        eprintln!("{name}");
        let requests = requests(chain, depth, 7, WARM_PROOFS);
        let mut able = 0;
        for server in &servers {
            // geth is the last one.
            if has_history(server, &requests[0], &mut bench.notes)? {
                send_each(server, &requests)?;
                able += 1;
            }
        }
        let servers = &servers[..able];
        let sample = &requests[..requests.len().min(20)];
        report.errors.extend(same::answers(servers, sample, &name)?);
        bench.rounds(servers, &requests, 1, |kind, load| {
            measured.add(&name, P50, kind, load.latency_ms(0.5));
            measured.add(&name, P99, kind, load.latency_ms(0.99));
            measured.add(&name, CPU, kind, load.cpu_us_per_call(1));
        })?;
    }
    for server in servers {
        server.stop()?;
    }
    Ok(())
}

fn cold(
    bench: &mut Bench,
    chain: &Chained,
    round: u64,
    measured: &mut Measured,
) -> Result<(), Failure> {
    for kind in bench.programs.kinds() {
        let dir = chain.database(kind, &bench.programs, &mut bench.notes)?;
        for depth in bench.plan.depths.clone() {
            // A server that has not the history is known by now.
            if measured.median(&warm_name(depth), P50, kind).is_none() {
                continue;
            }
            let name = cold_name(depth);
            system::drop_files(&dir)?;
            if kind == Kind::Cambium {
                let number = chain.head - depth;
                let alone = of_history(&dir, chain, number, round, bench.plan.cold_reads)?;
                measured.add(&name, OWN_P50, kind, quantile(&alone, 0.5));
                measured.add(&name, OWN_P99, kind, quantile(&alone, 0.99));
                system::drop_files(&dir)?;
            }
            let server = bench.serve_by(kind, chain)?;
            // Of an account that is not asked for again.
            has_history(&server, &requests(chain, depth, 99, 1)[0], &mut bench.notes)?;
            let requests = requests(chain, depth, 100 + round, bench.plan.cold_reads);
            let latencies = send_each(&server, &requests)?;
            measured.add(&name, P50, kind, quantile(&latencies, 0.5));
            measured.add(&name, P99, kind, quantile(&latencies, 0.99));
            server.stop()?;
        }
    }
    Ok(())
}

/// Makes the proofs of a cold round by the history alone. Returns their latencies in milliseconds, ascending.
fn of_history(
    dir: &Path,
    chain: &Chained,
    number: u64,
    round: u64,
    count: u64,
) -> Result<Vec<f64>, Failure> {
    let disk = Arc::new(StdDisk::new(dir));
    let of_history = HistoryOptions::beside(MEMORY_BYTES);
    let options = Options {
        memory_bytes: MEMORY_BYTES - of_history.budget_bytes(),
        ..Options::default()
    };
    let (db, _) = Db::open_read_only(disk.clone(), options)?;
    let history = History::open_read_only(disk, &db, of_history)?;
    // The same accounts as those of the requests.
    let mut random = Random::new(100 + round);
    let accounts = chain.workload.params().accounts;
    let mut latencies = Vec::new();
    for _ in 0..count {
        let address = chain.workload.address(random.below(accounts));
        let start = Instant::now();
        match number == db.head().number {
            true => drop(cambium_history::StateAt::from(db.view()?).prove_account(address, &[])?),
            false => drop(history.state_at(&db, number)?.prove_account(address, &[])?),
        }
        latencies.push(1e3 * start.elapsed().as_secs_f64());
    }
    latencies.sort_unstable_by(f64::total_cmp);
    Ok(latencies)
}
