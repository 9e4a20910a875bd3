//! ERC-20 transfers from end to end: clients run them on the shards' state, a builder makes blocks of them, the shards follow the stream.
//!
//! ```text
//!   processes     16 shards, each a process of its own, behind gRPC; builder and clients in this one; the stream on a NATS server
//!   one process   one shard, builder, clients and stream in the same process
//! ```
//!
//! The rounds are in lock step: clients wait for a block before they run the transactions of the next. All transfers are of one token, whose
//! slots are in one shard: that is the hottest one.

use super::{
    genesis::Genesis,
    rounds::{Round, Rounds, eventually, signer, win_epoch},
    task::{ShardTask, Task},
};
use crate::report::{Report, median, object};
use cambium_chain::Transaction;
use cambium_cluster::{
    Answered, BuilderClient, BuilderKeys, ClientLimits, FollowerState, JournalOptions,
    MemoryStream, Nats, NatsOptions, NodeBag, ProcessOptions, ReadError, ReadRequest, Reader,
    RemoteShard, Server, ServerLimits, Service, ShardClient, ShardLimits, ShardProcess, ShardRange,
    Shards, Stream, Submission,
};
use cambium_state::StdDisk;
use cambium_testkit::NatsServers;
use cambium_trie::{Deletes, ProofTargets};
use cambium_workload::{BlockSize, Spread, WorkloadParams};
use serde_json::json;
use std::{
    env,
    error::Error,
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const CLIENTS: usize = 4;
/// How long a shard may take for a block that was published a moment ago.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sizes of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) accounts: u64,
    pub(super) shards: usize,
    pub(super) blocks: usize,
    /// Transfers of a block.
    pub(super) transfers: u64,
}

/// Counts what a shard is asked for.
struct Counting {
    inner: Arc<dyn Service>,
    keys: AtomicU64,
}

impl Counting {
    fn count(&self, request: &ReadRequest) {
        let targets = request.groups.iter().flat_map(|it| it.targets.accounts());
        let keys = targets.map(|(_, slots)| slots.len().max(1) as u64);
        let keys = keys.sum::<u64>() + request.codes.len() as u64;
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }
}

impl Service for Counting {
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        self.count(request);
        self.inner.read(request)
    }

    fn begin(&self, request: &ReadRequest, answered: Answered) -> Option<Answered> {
        let left = self.inner.begin(request, answered);
        // Otherwise it is read.
        if left.is_none() {
            self.count(request);
        }
        left
    }
}

fn genesis(sizes: Sizes) -> Result<Genesis, Box<dyn Error>> {
    let senders = (2 * sizes.transfers).min(sizes.accounts / 2);
    Genesis::new(WorkloadParams {
        accounts: sizes.accounts,
        senders: Some(senders),
        holders: Some(sizes.accounts),
        blocks: sizes.blocks as u64,
        block_size: BlockSize::Transactions(sizes.transfers),
        erc20_percent: 100,
        fresh_percent: 0,
        spread: Spread::Distinct,
        ..WorkloadParams::default()
    })
}

pub(super) fn run(sizes: Sizes, data: &Path, report: &mut Report) -> Result<(), Box<dyn Error>> {
    eprintln!("tokens: one process");
    let alone = one_process(sizes)?;
    add(report, "one process, one shard", sizes, &alone, None);
    let Some(servers) = NatsServers::start(1) else {
        report
            .notes
            .push("SKIPPED: shards in processes of their own: there is no NATS server".to_owned());
        return Ok(());
    };
    eprintln!("tokens: {} processes of shards", sizes.shards);
    let (rounds, keys) = processes(sizes, &servers, data)?;
    let name = format!("{} processes of shards, NATS", sizes.shards);
    let all: u64 = keys.iter().sum();
    let hottest = keys.iter().copied().max().unwrap_or(0);
    let share = 100.0 * hottest as f64 / all.max(1) as f64;
    add(report, &name, sizes, &rounds, Some((share, all)));
    Ok(())
}

fn add(
    report: &mut Report,
    name: &str,
    sizes: Sizes,
    rounds: &[Measured],
    reads: Option<(f64, u64)>,
) {
    let of = |figure: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(figure).collect());
    let mut result = object([
        ("ERC-20 from end to end", json!(name)),
        ("accounts", json!(sizes.accounts)),
        ("transfers of a block", json!(sizes.transfers)),
        (
            "transfers/s",
            json!(of(&|it| it.round.transactions as f64 / it.whole_s)),
        ),
        (
            "a block, s: clients run and submit",
            json!(of(&|it| it.round.clients_s)),
        ),
        (
            "a block, s: the builder",
            json!(of(&|it| it.round.builder_s - it.round.stream_s)),
        ),
        ("a block, s: the stream", json!(of(&|it| it.round.stream_s))),
        (
            "a block, s: until all shards have it",
            json!(of(&|it| it.shards_s)),
        ),
    ]);
    if let Some((share, all)) = reads {
        let each = all as f64 / (rounds.len() as f64 * sizes.transfers as f64);
        result.insert("keys read, a transfer".to_owned(), json!(each));
        result.insert("share of the hottest shard, %".to_owned(), json!(share));
    }
    report.results.push(result);
}

/// A round, and what came after it.
struct Measured {
    round: Round,
    /// From the block's acknowledgement until all shards had it.
    shards_s: f64,
    whole_s: f64,
}

fn one_process(sizes: Sizes) -> Result<Vec<Measured>, Box<dyn Error>> {
    let genesis = genesis(sizes)?;
    let shard = genesis.shard(ShardRange::new(0, 1)?)?;
    let service: Arc<dyn Service> = Arc::clone(&shard) as _;
    let shards = Shards::new(vec![vec![service]])?;
    let blocks = blocks_of(&genesis, sizes);
    let stream = MemoryStream::new();
    let mut rounds = Rounds::new(genesis, shards.clone(), &shards, CLIENTS, stream, 1)?;
    let submit = rounds.submit_here();
    let mut measured = Vec::new();
    for transactions in &blocks {
        let began = Instant::now();
        let (round, built) = rounds.round(transactions, &submit)?;
        let shards = Instant::now();
        shard.apply(built.id, &built.update)?;
        measured.push(Measured {
            round,
            shards_s: shards.elapsed().as_secs_f64(),
            whole_s: began.elapsed().as_secs_f64(),
        });
    }
    Ok(measured)
}

fn blocks_of(genesis: &Genesis, sizes: Sizes) -> Vec<Vec<Transaction>> {
    genesis.workload.transactions().take(sizes.blocks).collect()
}

/// A shard's process. It ends when it is dropped.
struct ShardChild {
    child: Child,
    address: String,
}

impl Drop for ShardChild {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl ShardChild {
    fn start(task: ShardTask) -> Result<Self, Box<dyn Error>> {
        let index = task.index;
        let mut child = Command::new(env::current_exe()?)
            .args(["cluster-child", &serde_json::to_string(&Task::Shard(task))?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or("no output")?;
        let mut address = String::new();
        let mut child = Self {
            child,
            address: String::new(),
        };
        BufReader::new(out).read_line(&mut address)?;
        child.address = address.trim().to_owned();
        match child.address.is_empty() {
            true => Err(format!("shard {index} does not start").into()),
            false => Ok(child),
        }
    }
}

fn processes(
    sizes: Sizes,
    servers: &NatsServers,
    data: &Path,
) -> Result<(Vec<Measured>, Vec<u64>), Box<dyn Error>> {
    let genesis = genesis(sizes)?;
    let blocks = blocks_of(&genesis, sizes);
    let folder = tempfile::Builder::new().prefix("tokens").tempdir_in(data)?;
    let options = NatsOptions {
        urls: servers.urls(),
        makes: true,
        replicas: 1,
        stream_bytes_max: 2 << 30,
        snapshot_bytes_max: 1 << 20,
        ..NatsOptions::default()
    };
    let nats = eventually(|| Nats::connect(options.clone()))?;
    let stream = eventually(|| nats.stream())?;
    let signer = signer(&genesis)?;
    let mut children = Vec::new();
    for range in ShardRange::all(sizes.shards)? {
        let index = range.index();
        let snapshot = folder.path().join(format!("snapshot{index}"));
        let out = BufWriter::new(File::create(&snapshot)?);
        let note = FollowerState::default().encode();
        genesis.shard(range)?.write_snapshot(out, &note)?.flush()?;
        children.push(ShardChild::start(ShardTask {
            index,
            count: sizes.shards,
            snapshot,
            folder: folder.path().join(format!("shard{index}")),
            urls: servers.urls(),
            chain_id: signer.chain_id(),
            builder: signer.address(),
        })?);
    }
    let runtime = Runtime::new()?;
    let mut counted = Vec::new();
    for (child, range) in children.iter().zip(ShardRange::all(sizes.shards)?) {
        let client = {
            let _entered = runtime.enter();
            ShardClient::new(&child.address, ClientLimits::default(), None)?
        };
        counted.push(Arc::new(Counting {
            inner: Arc::new(RemoteShard::new(client, range, runtime.handle().clone())),
            keys: AtomicU64::new(0),
        }));
    }
    let services = counted.iter();
    let services = services.map(|it| vec![Arc::clone(it) as Arc<dyn Service>]);
    let shards = Shards::new(services.collect())?.with_patience(PATIENCE);
    let epoch = win_epoch(&nats, &genesis)?;
    let mut rounds = Rounds::new(genesis, shards.clone(), &shards, CLIENTS, stream, epoch)?;

    // Clients reach the builder as in another process.
    let server = runtime.block_on(Server::listen((Ipv4Addr::LOCALHOST, 0).into()))?;
    let address = format!("http://{}", server.address());
    let host = Arc::clone(&rounds.process);
    runtime.spawn(async move {
        let forever = std::future::pending();
        let limits = ServerLimits::default();
        server.run_builder(host, limits, None, forever).await
    });
    let builder = {
        let _entered = runtime.enter();
        BuilderClient::new(&address, ClientLimits::default(), None)?
    };
    let handle = runtime.handle().clone();
    let submit = move |submission: Submission| handle.block_on(builder.submit(&submission))?;
    let mut measured = Vec::new();
    for transactions in &blocks {
        let began = Instant::now();
        let (round, built) = rounds.round(transactions, &submit)?;
        let published = Instant::now();
        // One key of each shard.
        let reader = Reader::new(shards.clone(), &built.block.header, 1, 0);
        let keys = (0..16_u8).map(|nibble| {
            let mut key = [0; 32];
            key[0] = nibble << 4;
            (key.into(), Vec::new())
        });
        reader.load(&ProofTargets::new(keys.collect()), Deletes::Nothing)?;
        measured.push(Measured {
            round,
            shards_s: published.elapsed().as_secs_f64(),
            whole_s: began.elapsed().as_secs_f64(),
        });
    }
    let keys = counted.iter().map(|it| it.keys.load(Ordering::Relaxed));
    Ok((measured, keys.collect()))
}

/// Serves a shard until the standard input ends.
pub(super) fn shard(task: &ShardTask) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(&task.folder)?;
    let options = ProcessOptions {
        range: ShardRange::new(task.index, task.count)?,
        limits: ShardLimits::default(),
        journal: JournalOptions::default(),
        snapshot_blocks: u64::MAX,
        patience: PATIENCE,
    };
    let keys = BuilderKeys {
        chain_id: task.chain_id,
        keys: vec![task.builder],
    };
    let disk = Arc::new(StdDisk::new(&task.folder));
    let process = Arc::new(ShardProcess::open(disk, keys, Vec::new(), options)?);
    process.load(BufReader::new(File::open(&task.snapshot)?))?;
    let runtime = Runtime::new()?;
    let server = runtime.block_on(Server::listen((Ipv4Addr::LOCALHOST, 0).into()))?;
    let address = server.address();
    let host = Arc::clone(&process);
    runtime.spawn(async move {
        let forever = std::future::pending();
        let limits = ServerLimits::default();
        server.run(host, limits, None, forever).await
    });
    let nats = eventually(|| {
        Nats::connect(NatsOptions {
            urls: task.urls.clone(),
            replicas: 1,
            ..NatsOptions::default()
        })
    })?;
    let stream: Box<dyn Stream> = Box::new(nats.stream()?);
    let mut out = io::stdout().lock();
    writeln!(out, "http://{address}")?;
    out.flush()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
        process.run(&*stream, &stop)
    })?;
    Ok(())
}
