//! `eth_getLogs` on the deep chain, whose blocks move two tokens each.

use super::{
    bench::Bench,
    chains::Chained,
    connection::request,
    load::send_each,
    measured::{Bound, Measured},
    same,
};
use crate::{report::Report, state::stores::Failure};
use alloy_primitives::keccak256;
use cambium_testkit::Random;
use cambium_workload::TOKEN;
use serde_json::json;

/// Different requests of a kind.
const REQUESTS: u64 = 100;
/// Blocks of a request for all transfers, which are as many as twice that.
const ALL_BLOCKS: u64 = 1_000;
const RATE: &str = "requests/s";
const CPU: &str = "server cpu us/call";
const P50: &str = "p50 ms";

pub(super) fn run(bench: &mut Bench, report: &mut Report) -> Result<(), Failure> {
    let chain = bench.deep()?;
    let servers = bench.serve(&chain)?;
    let mut measured = Measured::default();
    let blocks = bench.plan.log_blocks;
    let all = ALL_BLOCKS.min(blocks);
    for (name, requests) in [
        (
            format!("logs of one receiver in {blocks} blocks"),
            requests(&chain, blocks, true),
        ),
        (
            format!("logs of a token in {all} blocks"),
            requests(&chain, all, false),
        ),
    ] {
        eprintln!("{name}");
        for server in &servers {
            send_each(server, &requests)?;
            server.wait_until_idle();
        }
        report
            .errors
            .extend(same::answers(&servers, &requests[..5], &name)?);
        bench.rounds(&servers, &requests, 1, |kind, load| {
            measured.add(&name, RATE, kind, load.per_second());
            measured.add(&name, P50, kind, load.latency_ms(0.5));
            measured.add(&name, CPU, kind, load.cpu_us_per_call(1));
        })?;
        measured.demand(&name, RATE, Bound::AtLeast(1.0), report);
    }
    measured.write(report);
    for server in servers {
        server.stop()?;
    }
    Ok(())
}

/// Requests over random ranges of so many blocks: for the transfers to one account, or for all.
fn requests(chain: &Chained, blocks: u64, of_one: bool) -> Vec<Vec<u8>> {
    let mut random = Random::new(11);
    let holders = chain.workload.params().holders();
    let transfer = keccak256("Transfer(address,address,uint256)");
    (0..REQUESTS)
        .map(|id| {
            let first = 1 + random.below(chain.head - blocks + 1);
            let receiver = chain.workload.address(random.below(holders));
            let topics = match of_one {
                true => json!([transfer, null, receiver.into_word()]),
                false => json!([transfer]),
            };
            let filter = json!({
                "fromBlock": format!("{first:#x}"),
                "toBlock": format!("{:#x}", first + blocks - 1),
                "address": TOKEN,
                "topics": topics,
            });
            let call =
                json!({"jsonrpc": "2.0", "id": id, "method": "eth_getLogs", "params": [filter]});
            request(&call.to_string(), None)
        })
        .collect()
}
