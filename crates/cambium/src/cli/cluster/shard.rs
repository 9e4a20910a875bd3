//! The process of a shard.

use super::{
    super::{
        args::cluster::ShardArgs,
        beside::Serving,
        error::Failure,
        numbers::memory_of_machine,
        output::{Output, Report},
        signals::Stop,
    },
    connect,
    members::{Membership, Replicas},
};
use cambium::{BlockId, Disk, StdDisk};
use cambium_cluster::{
    FollowerState, JournalOptions, NatsError, ProcessError, ProcessOptions, Role, ServerLimits,
    ShardHost, ShardLimits, ShardProcess, SnapshotInfo, Snapshots, Stream,
};
use serde_json::json;
use std::{
    io::{Read, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// Longest time for calls that have begun, at the end.
const END: Duration = Duration::from_secs(5);
/// Time between two looks at what is to be done beside following the stream.
const LOOK: Duration = Duration::from_millis(500);
/// Longest time without a block that a record needs, before the record is passed.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(args: &ShardArgs, out: &Output) -> Result<Report, Failure> {
    let tls = connect::tls(&args.tls);
    let stop = Stop::on_signals();
    let runtime = connect::runtime()?;
    let (server, own) = connect::listen(&args.at, tls.as_ref(), &runtime)?;
    let shown = Serving::new(args.metrics.metrics, "shard", &runtime, out)?;
    let of_server = server.figures();
    let nats = connect::nats(&args.nats, None)?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let stream = nats.stream().map_err(Failure::cluster)?;
    let snapshots = nats.snapshots().map_err(Failure::cluster)?;

    let replicas = Replicas {
        registry: registry.clone(),
        range: Some(args.shard),
        own: own.clone(),
        tls: tls.clone(),
        runtime: runtime.handle().clone(),
    };
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(&args.folder));
    let options = ProcessOptions {
        range: args.shard,
        limits: ShardLimits {
            versions: args.versions,
            bytes: args.memory.unwrap_or_else(own_memory) as usize,
            ..ShardLimits::default()
        },
        journal: JournalOptions {
            bytes_max: args.journal_size,
            ..JournalOptions::default()
        },
        snapshot_blocks: args.snapshot_blocks,
        patience: PATIENCE,
    };
    let keys = connect::keys(&args.builders);
    let process = ShardProcess::open(disk, keys, vec![Box::new(replicas)], options);
    let process = Arc::new(process.map_err(Failure::cluster)?);
    let host = Arc::clone(&process);
    shown.add(Arc::<ShardProcess>::clone(&process));
    shown.add(of_server);
    let (end, ended) = oneshot::channel::<()>();
    let files = tls.clone();
    let serving = runtime.spawn(async move {
        let stop = async {
            let _ = ended.await;
        };
        let limits = ServerLimits::default();
        server.run(host, limits, files.as_ref(), stop).await
    });
    let name = args.member.clone().unwrap_or_else(|| {
        let port = own.rsplit(':').next().unwrap_or_default();
        format!("shard-{}-{port}", args.shard.index())
    });
    let role = Role::Shard {
        range: args.shard,
        address: own.clone(),
    };
    let beside = Beside {
        process: &process,
        snapshots,
        membership: Membership {
            registry,
            lease: nats.options().lease,
            name,
            about: role.to_string(),
        },
    };
    let (index, count) = (args.shard.index(), args.shard.count());
    out.note(format_args!("shard {index} of {count} answers at {own}"));
    let followed = follow(&beside, &stream, &stop);
    drop(end);
    // An idle connection does not keep the program.
    let _ = runtime.block_on(async { tokio::time::timeout(END, serving).await });
    followed.map_err(Failure::cluster)?;
    let stats = process.shard().map(|shard| shard.stats());
    let head = stats.map(|stats| stats.newest);
    let text = head.map_or_else(
        || "It ends without a state.".to_owned(),
        |head| format!("It ends at block {head}."),
    );
    let mut report = Report::new(text, json!({ "head": head.map(|head| head.hash) }));
    if let Some(exit) = stop.asked() {
        report.exit = exit;
    }
    Ok(report)
}

/// Three quarters of the machine's memory.
fn own_memory() -> u64 {
    memory_of_machine().map_or(u64::MAX, |memory| memory / 4 * 3)
}

/// What a process does beside following the stream.
struct Beside<'p> {
    process: &'p ShardProcess,
    snapshots: Snapshots,
    membership: Membership,
}

/// Follows the stream until the user asks for the end.
fn follow(beside: &Beside<'_>, stream: &dyn Stream, stop: &Stop) -> Result<(), ProcessError> {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| beside.membership.stay(&ends));
        let watching = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                if stop.asked().is_some() {
                    ends.store(true, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let followed = (|| {
            while !beside.process.is_loaded() && !ends.load(Ordering::Relaxed) {
                if !beside.load()? {
                    thread::sleep(LOOK);
                }
            }
            match ends.load(Ordering::Relaxed) {
                true => Ok(()),
                false => {
                    scope.spawn(|| beside.share(&ends));
                    beside.process.run(stream, &ends)
                }
            }
        })();
        ends.store(true, Ordering::Relaxed);
        let _ = watching.join();
        followed
    })
}

impl Beside<'_> {
    /// Loads the newest snapshot of the object store, or that of a replica. False if there is none that is whole.
    fn load(&self) -> Result<bool, ProcessError> {
        let shard = self.process.status().range.index();
        if let Ok(Some(pointer)) = self.snapshots.newest(shard)
            && let Ok(mut file) = tempfile::tempfile()
            && self.snapshots.get(&pointer, &mut file).is_ok()
            && file.seek(SeekFrom::Start(0)).is_ok()
        {
            let source = std::io::BufReader::with_capacity(1 << 20, file);
            match self.process.load(source) {
                Ok(()) => return Ok(true),
                Err(ProcessError::Snapshot(error)) => tracing::warn!("{error}"),
                Err(error) => return Err(error),
            }
        }
        self.process.load_from_peers()
    }

    /// Puts the newest snapshot of the folder into the object store, whenever that has none as new.
    fn share(&self, ends: &AtomicBool) {
        let mut shared = None;
        while !ends.load(Ordering::Relaxed) {
            if let Ok(Some((info, source))) = self.process.newest_snapshot()
                && shared != Some(info.header.number)
            {
                match self.put(&info, source) {
                    Ok(()) => shared = Some(info.header.number),
                    Err(error) => tracing::warn!("{error}"),
                }
            }
            thread::sleep(LOOK);
        }
    }

    fn put(&self, info: &SnapshotInfo, mut source: impl Read + Send) -> Result<(), NatsError> {
        let (shard, header) = (info.range.index(), &info.header);
        let newest = self.snapshots.newest(shard)?;
        if newest.is_some_and(|newest| newest.block.number >= header.number) {
            return Ok(());
        }
        let block = BlockId::new(header.number, header.hash_slow());
        let state = FollowerState::decode(&info.note).unwrap_or_default();
        let root = header.state_root;
        let put = self.snapshots.put(shard, block, root, &state, &mut source);
        self.snapshots.remove_before(&put?)?;
        Ok(())
    }
}
