//! Reads of a shard over gRPC, on the loopback: server and clients on the same cores.

use super::data::{BATCH_KEYS, key_of, shard_of, uniform};
use crate::report::{Report, Target, median, object};
use cambium_cluster::{
    ClientLimits, ReadGroup, ReadRequest, Reader, RemoteShard, Server, ServerLimits, Service,
    ShardClient, Shards,
};
use cambium_testkit::Random;
use cambium_trie::{BagLevels, Deletes, ProofTargets};
use serde_json::json;
use std::{
    error::Error,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// Requests under way at once.
const CALLS: usize = 8;
/// Retention levels of the reader: nodes at depths below are not sent.
const LEVELS: [u8; 2] = [3, 4];

/// Gets with witnesses over gRPC, decoded; and the same verified against the state root.
pub(super) fn run(
    accounts: usize,
    rounds: usize,
    time: Duration,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    eprintln!("remote: loading {accounts} accounts");
    let (shard, block) = shard_of(accounts)?;
    let (header, _) = shard.header(block)?;
    let (range, shard) = (shard.range(), Arc::new(shard));
    let runtime = Runtime::new()?;
    let server = runtime.block_on(Server::listen((Ipv4Addr::LOCALHOST, 0).into()))?;
    let address = format!("http://{}", server.address());
    let host = Arc::clone(&shard);
    runtime.spawn(async move {
        let forever = std::future::pending();
        let limits = ServerLimits::default();
        server.run(Arc::new(host), limits, None, forever).await
    });
    let client = {
        let _entered = runtime.enter();
        ShardClient::new(&address, ClientLimits::default(), None)?
    };
    let remote = || RemoteShard::new(client.clone(), range, runtime.handle().clone());
    for level in LEVELS {
        let (mut plain, mut verified, mut bytes) = (vec![], vec![], vec![]);
        for round in 0..rounds {
            eprintln!(
                "remote: round {} of {rounds}, depths below {level} kept",
                round + 1
            );
            let (gets, sent) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let start = Instant::now();
            thread::scope(|scope| {
                for call in 0..CALLS {
                    let (remote, gets, sent) = (remote(), &gets, &sent);
                    let mut random = Random::new((round * CALLS + call) as u64);
                    scope.spawn(move || {
                        while start.elapsed() < time {
                            let targets = targets(&mut random, accounts);
                            let request = ReadRequest {
                                block,
                                groups: vec![ReadGroup {
                                    targets,
                                    levels: BagLevels {
                                        accounts: level,
                                        slots: 0,
                                        deletes: Deletes::Nothing,
                                    },
                                }],
                                codes: Vec::new(),
                                slots_from: None,
                            };
                            let Ok(bag) = remote.read(&request) else {
                                continue;
                            };
                            gets.fetch_add(BATCH_KEYS, Ordering::Relaxed);
                            sent.fetch_add(bag.bytes(), Ordering::Relaxed);
                        }
                    });
                }
            });
            let count = gets.into_inner();
            plain.push(count as f64 / start.elapsed().as_secs_f64());
            bytes.push(sent.into_inner() as f64 / count.max(1) as f64);
            verified.push(verify(&remote, &header, accounts, level, time)?);
        }
        let (plain, verified) = (median(plain), median(verified));
        report.results.push(object([
            ("gRPC, accounts", json!(accounts)),
            ("nodes kept at depths below", json!(level)),
            ("gets/s with witnesses, batches of 100", json!(plain)),
            ("gets/s verified", json!(verified)),
            ("nodes, bytes a get", json!(median(bytes))),
        ]));
        if level == LEVELS[1] {
            report.targets.push(Target {
                name: "gets with witnesses over gRPC, batches of 100".to_owned(),
                value: plain,
                unit: "/s",
                target: "at least 300,000".to_owned(),
                met: plain >= 300_000.0,
            });
        }
    }
    Ok(())
}

fn targets(random: &mut Random, accounts: usize) -> ProofTargets {
    let keys = (0..BATCH_KEYS).map(|_| (key_of(uniform(random, accounts)), Vec::new()));
    ProofTargets::new(keys.collect())
}

/// As many readers as processors load batches of accounts that they do not have.
fn verify(
    remote: &impl Fn() -> RemoteShard,
    header: &alloy_consensus::Header,
    accounts: usize,
    level: u8,
    time: Duration,
) -> Result<f64, Box<dyn Error>> {
    let count = cambium_crew::threads();
    let mut readers = Vec::new();
    for _ in 0..count {
        let services: Vec<Arc<dyn Service>> = vec![Arc::new(remote())];
        let reader = Reader::new(Shards::new(vec![services])?, header, level, 0);
        // The upper levels, once: of accounts that are not there.
        let mut random = Random::new(1);
        for _ in 0..(1_usize << (4 * level)).div_ceil(BATCH_KEYS) * 3 {
            let absent = (0..BATCH_KEYS).map(|_| {
                let key = key_of(accounts + uniform(&mut random, accounts));
                (key, Vec::new())
            });
            reader.load(&ProofTargets::new(absent.collect()), Deletes::Nothing)?;
        }
        readers.push(reader);
    }
    let (gets, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for (at, reader) in readers.iter().enumerate() {
            let (gets, failed) = (&gets, &failed);
            scope.spawn(move || {
                // Each account once.
                let mut own = (at..accounts).step_by(count);
                while start.elapsed() < time {
                    let keys = own.by_ref().take(BATCH_KEYS);
                    let keys: Vec<_> = keys.map(|index| (key_of(index), Vec::new())).collect();
                    if keys.len() < BATCH_KEYS {
                        break;
                    }
                    match reader.load(&ProofTargets::new(keys), Deletes::Nothing) {
                        Ok(()) => gets.fetch_add(BATCH_KEYS, Ordering::Relaxed),
                        Err(_) => failed.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
    });
    match failed.into_inner() {
        0 => Ok(gets.into_inner() as f64 / start.elapsed().as_secs_f64()),
        failed => Err(format!("{failed} reads failed").into()),
    }
}
