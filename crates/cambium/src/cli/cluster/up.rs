//! A whole cluster on this machine: a NATS server, shards with replicas in processes of their own, and the feed of a database.

use super::{
    super::{
        args::{
            cluster::{MakeArgs, NatsArgs, OnNatsArgs, UpArgs},
            database::{DbArgs, FileArgs},
        },
        beside::Serving,
        error::Failure,
        open,
        output::{Output, Report},
        signals::Stop,
        workload::{How, generate},
    },
    connect,
    feed::Feed,
    init, key, members,
    metrics::FeedFigures,
    nats_server::NatsServer,
};
use cambium::{BlockSource, Chain, Options, StdDisk};
use cambium_cluster::{ShardRange, Signer};
use cambium_workload::{Workload, WorkloadParams};
use serde_json::json;
use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Longest time for all shards to have a state.
const START_MAX: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);
/// How far below the head blocks are final, where the database does not say.
const FINAL_BELOW: u64 = 32;
/// Blocks of a generated chain, and its accounts.
const BLOCKS: u64 = 50;
const ACCOUNTS: u64 = 20_000;

/// Processes that end when this is dropped.
struct Shards(Vec<Child>);

impl Drop for Shards {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

pub(super) fn run(args: &UpArgs, out: &Output) -> Result<Report, Failure> {
    let stop = Stop::on_signals();
    let runtime = connect::runtime()?;
    let shown = Serving::new(args.metrics, "feed", &runtime, out)?;
    let folder = &args.folder;
    fs::create_dir_all(folder).map_err(Failure::io(folder, "create"))?;
    let datadir = match &args.datadir {
        Some(datadir) => datadir.clone(),
        None => generated(folder, out)?,
    };
    let chain = chain_of(&datadir, out)?;
    let key_file = folder.join("builder.key");
    key::make(&key_file)?;
    let signer = key::read(&key_file, chain.spec().chain_id)?;
    let server = match args.nats.as_str() {
        "embedded" => Some(NatsServer::start(&folder.join("nats"), out)?),
        _ => None,
    };
    let url = server.as_ref().map_or(&args.nats, |server| &server.url);
    let nats_args = NatsArgs {
        nats: vec![url.clone()],
        on: OnNatsArgs {
            name: "cambium".to_owned(),
            nats_credentials: None,
            nats_authority: None,
        },
    };
    let make = MakeArgs {
        copies: 1,
        stream_size: 1 << 30,
        snapshots_size: 4 << 30,
    };
    let nats = connect::nats(&nats_args, Some(&make))?;
    let store = nats.snapshots().map_err(Failure::cluster)?;
    let newest = store.newest(0).map_err(Failure::cluster)?;
    if newest.is_none() {
        init::init(&chain, args.shards, FINAL_BELOW, &signer, &nats, out)?;
    }
    let newest = store.newest(0).map_err(Failure::cluster)?;
    let first = newest.map_or_else(|| chain.db().genesis(), |newest| newest.block);
    let shards = start(args, url, &signer)?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let wanted = shards.0.len();
    let started = Instant::now();
    let mut shards = shards;
    while members::roles(&registry)?.len() < wanted {
        ends_early(&mut shards, folder)?;
        if stop.asked().is_some() || started.elapsed() > START_MAX {
            break;
        }
        thread::sleep(LOOK);
    }
    out.say(how_to(args, url, &signer, started.elapsed()))?;
    let known = members::epoch_of(&registry, None, &runtime)?;
    let (publisher, epoch) = init::open_epoch(&signer, &[], known, &nats)?;
    let range = ShardRange::new(0, args.shards).map_err(Failure::cluster)?;
    let figures = Arc::new(FeedFigures::default());
    shown.add(Arc::<FeedFigures>::clone(&figures));
    shown.add(publisher.figures());
    let mut feed = Feed {
        chain,
        range,
        signer,
        publisher,
        epoch,
        choices: 0,
        published: first,
        first: first.number,
        final_below: FINAL_BELOW,
        bodies: true,
        blocks: 0,
        figures,
    };
    while stop.asked().is_none() {
        ends_early(&mut shards, folder)?;
        if feed.step(out)? {
            continue;
        }
        if args.once && are_there(&nats, feed.published.number)? {
            break;
        }
        thread::sleep(LOOK);
    }
    let (blocks, head) = (feed.blocks, feed.published);
    drop(shards);
    let text = format!(
        "{blocks} blocks were published, the last one is {head}. All processes have ended."
    );
    let mut report = Report::new(text, json!({ "blocks": blocks, "head": head.hash }));
    if let Some(exit) = stop.asked() {
        report.exit = exit;
    }
    Ok(report)
}

/// Whether all replicas are at a block.
fn are_there(nats: &cambium_cluster::Nats, number: u64) -> Result<bool, Failure> {
    let runtime = connect::runtime()?;
    let (_, clients) = members::shards(nats, None, runtime.handle())?;
    Ok(clients.iter().all(|client| {
        let status = runtime.block_on(client.status());
        status.is_ok_and(|status| status.newest().is_some_and(|it| it.number >= number))
    }))
}

fn chain_of(datadir: &Path, out: &Output) -> Result<Chain, Failure> {
    let args = DbArgs {
        datadir: datadir.to_owned(),
        memory: Options::default().memory_bytes,
        files: FileArgs {
            segment_size: None,
            segment_buffer: None,
            log_file_size: None,
        },
    };
    open::chain_to_read(&args, out)
}

/// A generated chain, imported into a database of its own.
fn generated(folder: &Path, out: &Output) -> Result<PathBuf, Failure> {
    let db = folder.join("db");
    if db.exists() {
        return Ok(db);
    }
    out.note(format_args!(
        "no --datadir is given: a chain of {BLOCKS} blocks is generated in {}",
        folder.display()
    ));
    let params = WorkloadParams {
        accounts: ACCOUNTS,
        blocks: BLOCKS,
        ..WorkloadParams::default()
    };
    let workload = Workload::new(params)?;
    let how = How {
        memory_bytes: Options::default().memory_bytes,
        force: true,
        access_lists: false,
        merge_interval: None,
    };
    let made = generate(&workload, folder, how, out)?;
    let disk = Arc::new(StdDisk::new(&db));
    let chain = Chain::init(disk, &made.genesis, Options::default(), &mut |_| {})?;
    chain.import(BlockSource::open(&made.chain)?, &mut |_| {})?;
    chain.close()?;
    Ok(db)
}

/// Starts the shards.
fn start(args: &UpArgs, url: &str, signer: &Signer) -> Result<Shards, Failure> {
    let program = env::current_exe().map_err(Failure::cluster)?;
    let ranges = ShardRange::all(args.shards).map_err(Failure::cluster)?;
    let mut shards = Shards(Vec::new());
    for range in ranges {
        for replica in 0..args.replicas {
            let (index, count) = (range.index(), range.count());
            let name = format!("shard-{index}-{replica}");
            let folder = args.folder.join(&name);
            fs::create_dir_all(&folder).map_err(Failure::io(&folder, "create"))?;
            let log = folder.join("output.log");
            let output = fs::File::create(&log).map_err(Failure::io(&log, "create"))?;
            let errors = output.try_clone().map_err(Failure::io(&log, "create"))?;
            let number = shards.0.len() as u64 + 1;
            let metrics = args.metrics.map(|feed| metrics_of(feed, number));
            let metrics = metrics.transpose()?.map(|address| address.to_string());
            let child = Command::new(&program)
                .args(["shard", "--snapshot-blocks", "16"])
                .args(metrics.iter().flat_map(|it| ["--metrics", it]))
                .args(["--shard", &format!("{index}/{count}")])
                .args(["--nats", url])
                .args(["--member", &name])
                .args(["--chain-id", &signer.chain_id().to_string()])
                .args(["--builder", &signer.address().to_string()])
                .arg("--folder")
                .arg(&folder)
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(errors)
                .spawn()
                .map_err(Failure::io(&program, "run"))?;
            shards.0.push(child);
        }
    }
    Ok(shards)
}

/// Where a child shows its figures, by its number from 1. Port 0 is that for all.
fn metrics_of(feed: SocketAddr, number: u64) -> Result<SocketAddr, Failure> {
    let port = match feed.port() {
        0 => Some(0),
        port => u16::try_from(u64::from(port) + number).ok(),
    };
    let port = port.ok_or_else(|| {
        Failure::cluster(format!(
            "--metrics: {feed} leaves no port for child {number}: each takes the next one"
        ))
    })?;
    Ok(SocketAddr::new(feed.ip(), port))
}

/// Fails if a process of a shard has ended.
fn ends_early(shards: &mut Shards, folder: &Path) -> Result<(), Failure> {
    for child in &mut shards.0 {
        if let Some(status) = child.try_wait().map_err(Failure::cluster)? {
            return Err(Failure::cluster(format!(
                "a shard has ended ({status}): the logs are {}/shard-*/output.log",
                folder.display()
            )));
        }
    }
    Ok(())
}

fn how_to(args: &UpArgs, url: &str, signer: &Signer, taken: Duration) -> String {
    let (chain, builder) = (signer.chain_id(), signer.address());
    let (shards, replicas) = (args.shards, args.replicas);
    let metrics = match args.metrics.map(|feed| (feed, feed.port())) {
        None => String::new(),
        Some((_, 0)) => format!(
            "\nFigures for collectors: each process notes where, in {}/shard-*/output.log",
            args.folder.display()
        ),
        Some((feed, first)) => {
            let last = u64::from(first) + shards as u64 * replicas;
            format!(
                "\nFigures for collectors: http://{feed}/metrics, and at the ports up to {last}"
            )
        }
    };
    format!(
        "The cluster is up after {:.1} s: {shards} shards, each in {replicas} processes. Ctrl-C ends it.\n\
         To look at it:\n  cambium cluster status --nats {url}\n\
         To read, verified:\n  cambium cluster get ADDRESS --nats {url} --chain-id {chain} --builder {builder}{metrics}",
        taken.as_secs_f64()
    )
}
