//! A cluster from a database: the stream, its first epoch, and a snapshot for each shard.

use super::{
    super::{
        args::cluster::ClusterInitArgs,
        error::Failure,
        open,
        output::{Output, Report, Table, count},
    },
    connect, key,
};
use cambium::{Address, BlockId, Chain};
use cambium_cluster::{
    BuilderKeys, FollowerState, Nats, NatsStream, PublishError, Publisher, Record, ShardRange,
    Signer, Source,
};
use serde_json::json;
use std::{
    io::{BufReader, Seek, SeekFrom},
    thread,
    time::{Duration, Instant},
};

/// Longest time that servers need to choose a leader.
const ELECTION: Duration = Duration::from_secs(30);
/// Pause before the servers are asked again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn run(args: &ClusterInitArgs, out: &Output) -> Result<Report, Failure> {
    let chain = open::chain_to_read(&args.source.db, out)?;
    let signer = key::read(&args.source.key, chain.spec().chain_id)?;
    let nats = connect::nats(&args.nats, Some(&args.make))?;
    // All that a cluster has is made here.
    nats.stream().map_err(Failure::cluster)?;
    let (block, epoch) = init(
        &chain,
        args.source.shards,
        args.final_below,
        &signer,
        &nats,
        out,
    )?;
    let (name, builder) = (&nats.options().name, signer.address());
    let table = Table::default()
        .row("cluster", name)
        .row("chain", chain.spec().chain_id)
        .row("block", block)
        .row("shards", count(args.source.shards as u64))
        .row("epoch", epoch)
        .row("builder", builder);
    let chain_id = chain.spec().chain_id;
    let last = args.source.shards - 1;
    let text = format!(
        "{table}\nNow start the shards, from 0 to {last}: cambium shard --shard 0/{} --folder DIR --name {name} --chain-id {chain_id} --builder {builder}",
        args.source.shards
    );
    let json = json!({ "block": block.hash, "shards": args.source.shards, "epoch": epoch, "builder": builder });
    Ok(Report::new(text, json))
}

/// Makes a cluster at the newest final block of a chain, or so far below its head. Returns the block and the epoch.
pub(super) fn init(
    chain: &Chain,
    shards: usize,
    final_below: u64,
    signer: &Signer,
    nats: &Nats,
    out: &Output,
) -> Result<(BlockId, u64), Failure> {
    let ranges = ShardRange::all(shards).map_err(Failure::cluster)?;
    let db = chain.db();
    let block = match db.finality().finalized {
        Some(block) => block,
        None => {
            let number = db.head().number.saturating_sub(final_below);
            let number = number.max(db.genesis().number);
            db.block_id(number)?.unwrap_or_else(|| db.head())
        }
    };
    let view = db.view_of(block)?;
    let source = Source::new(chain, ranges[0]);
    let store = nats.snapshots().map_err(Failure::cluster)?;
    // Shards read the stream from its beginning.
    let state = FollowerState::default();
    let bar = out.bar(shards as u64, "{bar:30} {pos} of {len} snapshots");
    for range in ranges {
        let file = tempfile::tempfile().map_err(Failure::cluster)?;
        let mut file = source
            .write_snapshot(
                &view,
                range,
                std::io::BufWriter::with_capacity(1 << 20, file),
            )
            .map_err(Failure::cluster)?
            .into_inner()
            .map_err(Failure::cluster)?;
        file.seek(SeekFrom::Start(0)).map_err(Failure::cluster)?;
        let root = view.state_root();
        let mut bytes = BufReader::with_capacity(1 << 20, file);
        let put = store.put(range.index(), block, root, &state, &mut bytes);
        put.map_err(Failure::cluster)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let epoch = open_epoch(signer, &[], 0, nats)?;
    Ok((block, epoch.1))
}

/// Wins an epoch above `known`, and opens it in the stream.
pub(super) fn open_epoch(
    signer: &Signer,
    others: &[Address],
    known: u64,
    nats: &Nats,
) -> Result<(Publisher<NatsStream>, u64), Failure> {
    let registry = nats.registry().map_err(Failure::cluster)?;
    let won = registry.win_epoch(signer.address(), known);
    let epoch = won.map_err(Failure::cluster)?.ok_or_else(|| {
        Failure::cluster("another builder won the epoch at the same moment: try again")
    })?;
    let keys = BuilderKeys {
        chain_id: signer.chain_id(),
        keys: [&[signer.address()], others].concat(),
    };
    let record = Record::from(signer.open_epoch(epoch));
    let started = Instant::now();
    loop {
        let stream = nats.stream().map_err(Failure::cluster)?;
        let opened = Publisher::new(stream, keys.clone(), epoch)
            .map_err(PublishError::from)
            .and_then(|mut publisher| publisher.publish(&record).map(|_| publisher));
        match opened {
            Ok(publisher) => return Ok((publisher, epoch)),
            // The servers may be choosing a leader.
            Err(PublishError::Stream(_) | PublishError::Unknown { .. })
                if started.elapsed() < ELECTION =>
            {
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(Failure::cluster(error)),
        }
    }
}
