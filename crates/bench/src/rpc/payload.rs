//! Blocks of 500 payments on the wide chain through the Engine API: `engine_newPayload`, then `engine_forkchoiceUpdated`, over JSON and, of
//! Cambium, over REST with SSZ.
//!
//! Each round has a new copy of both databases, whose servers have read all accounts of the blocks before. Cambium's answer to
//! `newPayload` means that the block is durable. geth writes a block without waiting for the disk, and its state when it ends or its
//! cache is full.

use super::{
    bench::Bench,
    chains::Chained,
    engine::{Consensus, Timed, Transport},
    load::send_each,
    measured::{Bound, Measured},
    requests::balances,
    server::{Kind, Setting},
};
use crate::{
    report::{Report, quantile},
    state::stores::Failure,
    system,
};
use alloy_consensus::Transaction as _;
use alloy_primitives::Address;
use cambium_chain::Block;
use std::collections::BTreeSet;

/// First blocks, whose time does not count.
const WARM_BLOCKS: usize = 5;
/// Accounts of a batch that brings them into memory.
const WARM_CALLS: usize = 1_000;
const P99_MS_MAX: f64 = 50.0;
const RATE_MIN: f64 = 3.0;
const RATE: &str = "blocks/s";
const P50: &str = "p50 ms";
const P99: &str = "p99 ms";
const PAYLOAD_P50: &str = "newPayload p50 ms";
const CPU: &str = "server cpu ms/block";

pub(super) fn run(bench: &mut Bench, report: &mut Report) -> Result<(), Failure> {
    let chain = bench.wide()?;
    let blocks = chain.rest()?;
    if blocks.len() <= WARM_BLOCKS {
        return Err(format!("--payloads: more than {WARM_BLOCKS} are needed").into());
    }
    let warming = balances(&addresses(&chain, &blocks), WARM_CALLS);
    let mut measured = Measured::default();
    let mut ways = vec![
        (Kind::Cambium, Transport::Json),
        (Kind::Cambium, Transport::Ssz),
    ];
    ways.extend(
        bench
            .programs
            .geth
            .as_ref()
            .map(|_| (Kind::Geth, Transport::Json)),
    );
    for round in 0..bench.plan.rounds as usize {
        eprintln!("payloads: round {} of {}", round + 1, bench.plan.rounds);
        for turn in 0..ways.len() {
            let (kind, transport) = ways[(round + turn) % ways.len()];
            let (times, cpu_seconds) = send_all(bench, &chain, kind, transport, &blocks, &warming)?;
            add(&mut measured, kind, transport, &times, cpu_seconds);
        }
    }
    measured.write(report);
    let rate = |kind, transport| measured.median(&name(transport), RATE, kind);
    for transport in [Transport::Json, Transport::Ssz] {
        let name = name(transport);
        if let Some(p99) = measured.median(&name, P99, Kind::Cambium) {
            let bound = Bound::AtMost(P99_MS_MAX);
            report
                .targets
                .push(bound.target(format!("{name}: p99"), p99, "ms"));
        }
        let geth = rate(Kind::Geth, Transport::Json);
        if let (Some(own), Some(geth)) = (rate(Kind::Cambium, transport), geth) {
            let name = format!("{name}: {RATE} against geth's over JSON");
            let bound = Bound::AtLeast(RATE_MIN);
            report.targets.push(bound.target(name, own / geth, "x"));
        }
    }
    Ok(())
}

/// Name of the measurement.
fn name(transport: Transport) -> String {
    format!("newPayload + forkchoiceUpdated over {}", transport.name())
}

/// Adds the figures of a round.
fn add(
    measured: &mut Measured,
    kind: Kind,
    transport: Transport,
    times: &[Timed],
    cpu_seconds: f64,
) {
    let sorted = |of: &dyn Fn(&Timed) -> f64| {
        let mut all: Vec<f64> = times.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    };
    let both = sorted(&|timed| timed.new_payload_ms + timed.forkchoice_ms);
    let payloads = sorted(&|timed| timed.new_payload_ms);
    let count = times.len() as f64;
    let seconds = both.iter().sum::<f64>() / 1e3;
    let name = name(transport);
    measured.add(&name, RATE, kind, count / seconds);
    measured.add(&name, P50, kind, quantile(&both, 0.5));
    measured.add(&name, P99, kind, quantile(&both, 0.99));
    measured.add(&name, PAYLOAD_P50, kind, quantile(&payloads, 0.5));
    measured.add(&name, CPU, kind, 1e3 * cpu_seconds / count);
}

/// Sends the blocks to a server of a new copy. Returns the times of those that count, and the server's processor time for them.
fn send_all(
    bench: &mut Bench,
    chain: &Chained,
    kind: Kind,
    transport: Transport,
    blocks: &[Block],
    warming: &[Vec<u8>],
) -> Result<(Vec<Timed>, f64), Failure> {
    let from = chain.database(kind, &bench.programs, &mut bench.notes)?;
    let place = tempfile::Builder::new()
        .prefix("payloads-")
        .tempdir_in(&bench.plan.data)?;
    let dir = place.path().join("data");
    system::copy_dir(&from, &dir)?;
    let setting = Setting {
        has_engine: true,
        ..Setting::default()
    };
    let server = bench.programs.serve(kind, &dir, chain.head, &setting)?;
    send_each(&server, warming)?;
    server.wait_until_idle();
    let mut consensus = Consensus::connect(&server, transport)?;
    let (first, counted) = blocks.split_at(WARM_BLOCKS);
    for block in first {
        consensus.send(block)?;
    }
    let cpu = server.cpu_seconds();
    let times = counted
        .iter()
        .map(|block| consensus.send(block))
        .collect::<Result<Vec<_>, Failure>>()?;
    let cpu_seconds = server.cpu_seconds() - cpu;
    drop(consensus);
    server.stop()?;
    Ok((times, cpu_seconds))
}

/// The accounts with keys, and the receivers of the blocks' transactions.
fn addresses(chain: &Chained, blocks: &[Block]) -> Vec<Address> {
    let senders = 0..chain.workload.params().senders();
    let transactions = blocks.iter().flat_map(|block| &block.body.transactions);
    let receivers = transactions.filter_map(|transaction| transaction.to());
    let senders = senders.map(|index| chain.workload.address(index));
    let all: BTreeSet<Address> = receivers.chain(senders).collect();
    all.into_iter().collect()
}
