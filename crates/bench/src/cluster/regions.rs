//! A builder in one of four regions, and three servers with the stream in the others; and the same in one region.
//!
//! ```text
//!   region 1: server   region 2: server   region 3: server   region 4: builder, its shards and clients
//! ```
//!
//! Blocks are executed, signed and appended to a stream with three replicas, each record durable on two of them before it is acknowledged.
//! The next blocks are made meanwhile, as long as few enough are not acknowledged. Clients have run all transactions before; that does not
//! count.

use super::{
    genesis::Genesis,
    rounds::{Rounds, eventually, win_epoch},
    task::{BuilderTask, Task},
};
use crate::{
    process::tell,
    report::{Report, Target, median, object, quantile},
};
use alloy_consensus::Transaction as _;
use cambium_cluster::{BuilderHost, Nats, NatsOptions, Service, ShardRange, Shards};
use cambium_evm::recover_senders;
use cambium_testkit::wan::{Wan, address};
use cambium_testkit::{NatsServers, nats_server};
use cambium_workload::{BlockSize, Spread, WorkloadParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    env,
    error::Error,
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const HOSTS: usize = 4;
const SERVERS: usize = 3;
/// Between two looks at what is to be published.
const LOOK: Duration = Duration::from_millis(1);

/// Sizes of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) accounts: u64,
    pub(super) payments: u64,
    pub(super) blocks: usize,
    pub(super) in_flight: usize,
    /// From each region to each other one, one way.
    pub(super) delay_ms: f64,
}

/// Servers that run on hosts. They end when this is dropped.
struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

pub(super) fn run(sizes: Sizes, data: &Path, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let mut skip = |why: &str| {
        let note = format!("SKIPPED: four regions: {why}");
        eprintln!("{note}");
        report.notes.push(note);
    };
    let Some(program) = nats_server() else {
        skip("there is no NATS server");
        return Ok(());
    };
    let folder = tempfile::Builder::new()
        .prefix("regions")
        .tempdir_in(data)?;
    let wan = match Wan::start(folder.path(), HOSTS, sizes.delay_ms) {
        Ok(wan) => wan,
        Err(why) => {
            skip(&why);
            return Ok(());
        }
    };
    eprintln!("regions: one region");
    let own = env::current_exe()?;
    let alone = {
        let servers = NatsServers::start(SERVERS).ok_or("no servers")?;
        builder(Command::new(&own), sizes, servers.urls())?
    };
    eprintln!("regions: four regions, {} ms apart", sizes.delay_ms);
    let _servers = servers(&wan, program, folder.path())?;
    let urls = (1..=SERVERS).map(|host| format!("nats://{}:4222", address(host)));
    let apart = builder(wan.on(HOSTS, &own), sizes, urls.collect())?;
    let rates = [("one region", &alone), ("four regions", &apart)]
        .map(|(name, rounds)| add(report, name, sizes, rounds));
    let round_trip = 2.0 * sizes.delay_ms / 1e3;
    let share = 100.0 * rates[1].rate / rates[0].rate;
    report.targets.push(Target {
        name: "rate over four regions against one".to_owned(),
        value: share,
        unit: "%",
        target: "at least 80".to_owned(),
        met: share >= 80.0,
    });
    let trips = rates[1].acknowledged / round_trip;
    report.targets.push(Target {
        name: "until a block is acknowledged over four regions, median".to_owned(),
        value: trips,
        unit: "round trips",
        target: "at most 3".to_owned(),
        met: trips <= 3.0,
    });
    Ok(())
}

fn servers(wan: &Wan, program: &Path, folder: &Path) -> Result<Servers, Box<dyn Error>> {
    let routes: Vec<_> = (1..=SERVERS)
        .map(|host| format!("nats://{}:6222", address(host)))
        .collect();
    let mut servers = Servers(Vec::new());
    for host in 1..=SERVERS {
        let (own, store) = (address(host), folder.join(format!("nats{host}")));
        let config = format!(
            "server_name: n{host}\nlisten: {own}:4222\nmax_payload: 1MB\n\
             jetstream {{ store_dir: {store:?}, max_file_store: 4GB, sync_interval: always }}\n\
             cluster {{ name: test, listen: {own}:6222, routes: [{}] }}\n",
            routes.join(", ")
        );
        let file = folder.join(format!("nats{host}.conf"));
        fs::write(&file, config)?;
        let server = wan
            .on(host, program)
            .arg("-c")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join(format!("nats{host}.log")))?)
            .spawn()?;
        servers.0.push(server);
    }
    Ok(servers)
}

/// Runs a builder in a process of its own.
fn builder(
    mut command: Command,
    sizes: Sizes,
    urls: Vec<String>,
) -> Result<Blocks, Box<dyn Error>> {
    let task = Task::Builder(BuilderTask {
        urls,
        accounts: sizes.accounts,
        payments: sizes.payments,
        blocks: sizes.blocks,
        in_flight: sizes.in_flight,
    });
    let output = command
        .args(["cluster-child", &serde_json::to_string(&task)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the builder's process: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What blocks have taken.
#[derive(Debug, Serialize, Deserialize)]
struct Blocks {
    payments: usize,
    /// From the first payment to the last acknowledgement.
    seconds: f64,
    /// The making of each block.
    made_s: Vec<f64>,
    /// From then on until its update was acknowledged.
    acknowledged_s: Vec<f64>,
    /// Among that, the append of the update.
    append_s: Vec<f64>,
    /// Length of an update.
    bytes: f64,
}

struct Figures {
    /// Payments a second, from the first block to the last acknowledgement.
    rate: f64,
    /// Median of seconds from making a block until its update is acknowledged.
    acknowledged: f64,
}

fn add(report: &mut Report, name: &str, sizes: Sizes, blocks: &Blocks) -> Figures {
    let ms = |figures: &[f64], part: f64| {
        let mut sorted = figures.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        json!(quantile(&sorted, part) * 1e3)
    };
    let rate = blocks.payments as f64 / blocks.seconds;
    let delay = if name == "one region" {
        0.0
    } else {
        sizes.delay_ms
    };
    report.results.push(object([
        ("regions", json!(name)),
        ("from each to each, one way, ms", json!(delay)),
        ("payments of a block", json!(sizes.payments)),
        ("blocks", json!(blocks.made_s.len())),
        ("blocks in flight, at most", json!(sizes.in_flight)),
        ("payments/s", json!(rate)),
        ("an update, MB", json!(blocks.bytes / 1e6)),
        ("block made, ms, median", ms(&blocks.made_s, 0.5)),
        ("append, ms, median", ms(&blocks.append_s, 0.5)),
        (
            "acknowledged after it was made, ms, median",
            ms(&blocks.acknowledged_s, 0.5),
        ),
        (
            "acknowledged after it was made, ms, p99",
            ms(&blocks.acknowledged_s, 0.99),
        ),
    ]));
    Figures {
        rate,
        acknowledged: median(blocks.acknowledged_s.clone()),
    }
}

/// Builds blocks, and prints what they have taken.
pub(super) fn child(task: &BuilderTask) -> Result<(), Box<dyn Error>> {
    let count = (task.blocks * task.payments as usize).max(1);
    // Each sends once, so that all can be run on the first state.
    let senders = (2 * count as u64).min(task.accounts / 2);
    let genesis = Genesis::new(WorkloadParams {
        accounts: task.accounts,
        senders: Some(senders),
        holders: Some(senders),
        blocks: 1,
        block_size: BlockSize::Transactions(task.payments),
        erc20_percent: 0,
        fresh_percent: 0,
        spread: Spread::Distinct,
        ..WorkloadParams::default()
    })?;
    let transactions = genesis.workload.transactions().flatten();
    let first = transactions.filter(|transaction| transaction.nonce() == 0);
    let transactions: Vec<_> = first.take(count).collect();
    let shard = genesis.shard(ShardRange::new(0, 1)?)?;
    let service: Arc<dyn Service> = Arc::clone(&shard) as _;
    let shards = Shards::new(vec![vec![service]])?;
    let options = NatsOptions {
        urls: task.urls.clone(),
        makes: true,
        replicas: SERVERS,
        stream_bytes_max: 2 << 30,
        snapshot_bytes_max: 1 << 20,
        timeout: Duration::from_secs(20),
        lease: Duration::from_secs(30),
        ..NatsOptions::default()
    };
    let nats = eventually(|| Nats::connect(options.clone()))?;
    let stream = eventually(|| nats.stream())?;
    let epoch = win_epoch(&nats, &genesis)?;
    let timestamp = genesis.header.timestamp;
    let mut rounds = Rounds::new(genesis, shards.clone(), &shards, 2, stream, epoch)?;
    let submissions = Mutex::new(Vec::new());
    let senders = recover_senders(&transactions, true)?;
    rounds.submit_all(&transactions, &senders, &|submission| {
        submissions.lock().map_err(|_| "poisoned")?.push(submission);
        Ok(())
    })?;
    let submissions = submissions.into_inner()?;
    let (process, ended) = (&rounds.process, AtomicBool::new(false));
    let (mut made_s, mut made_at) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let built = thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            while process.unpublished() > 0 || !ended.load(Ordering::Relaxed) {
                process.publish().map_err(|error| error.to_string())?;
                thread::sleep(LOOK);
            }
            Ok::<_, String>(())
        });
        let built = (|| {
            for submissions in submissions.chunks(task.payments as usize) {
                while process.unpublished() >= task.in_flight && !publishing.is_finished() {
                    thread::sleep(LOOK);
                }
                let began = Instant::now();
                for submission in submissions {
                    process.submit(submission.clone())?;
                }
                let (built, left_out) = process.make(timestamp)?;
                made_s.push(began.elapsed().as_secs_f64());
                made_at.push(Instant::now());
                if let Some(reason) = left_out.first() {
                    return Err(reason.clone().into());
                }
                shard.apply(built.id, &built.update)?;
            }
            Ok::<_, Box<dyn Error>>(())
        })();
        ended.store(true, Ordering::Relaxed);
        publishing.join().map_err(|_| "the publisher panics")??;
        built
    });
    built?;
    let seconds = began.elapsed().as_secs_f64();
    // An update and a choice of each block.
    let appends: Vec<_> = rounds.appended.try_iter().step_by(2).collect();
    if appends.len() != made_at.len() {
        return Err("an append was repeated: measure again".into());
    }
    let acknowledged = appends.iter().zip(&made_at);
    let blocks = Blocks {
        payments: count,
        seconds,
        made_s,
        acknowledged_s: acknowledged
            .map(|(append, made)| (append.ended - *made).as_secs_f64())
            .collect(),
        append_s: appends.iter().map(|append| append.seconds()).collect(),
        bytes: median(appends.iter().map(|append| append.bytes as f64).collect()),
    };
    tell(&blocks).map_err(|error| error as Box<dyn Error>)
}
