//! What a shard has in its journal, published in a new stream after the old one was lost.

use super::{
    super::{
        args::cluster::RepublishArgs,
        error::Failure,
        output::{Output, Report, count},
    },
    connect,
};
use cambium::{Disk, StdDisk};
use cambium_cluster::{AppendError, Journal, JournalOptions, Stream};
use serde_json::json;
use std::sync::Arc;

/// How often an append is tried.
const ATTEMPTS: u32 = 10;

pub(super) fn run(args: &RepublishArgs, out: &Output) -> Result<Report, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(&args.folder));
    // The process of the shard has this lock while it runs.
    let _lock = disk.lock("lock").map_err(Failure::cluster)?;
    if !disk.exists("journal.id").map_err(Failure::cluster)? {
        return Err(Failure::cluster(format!(
            "{} has no journal: it is no folder of a shard",
            args.folder.display()
        )));
    }
    let opened = Journal::open(disk, JournalOptions::default());
    let (journal, recovery) = opened.map_err(Failure::cluster)?;
    for damage in &recovery.damage {
        out.note(damage);
    }
    let nats = connect::nats(&args.nats, Some(&args.make))?;
    let stream = nats.stream().map_err(Failure::cluster)?;
    nats.registry().map_err(Failure::cluster)?;
    nats.snapshots().map_err(Failure::cluster)?;
    let bounds = stream.bounds().map_err(Failure::cluster)?;
    if bounds.first <= bounds.last {
        return Err(Failure::cluster(format!(
            "the stream has records {} to {}: what is published behind them is ignored if a later epoch was opened there. Only an \
             empty stream is filled",
            bounds.first, bounds.last
        )));
    }
    let (mut published, mut tail) = (0_u64, bounds.last);
    let bar = out.bar(recovery.entries as u64, "{bar:30} {pos} of {len} records");
    for entry in journal.entries() {
        let entry = entry.map_err(Failure::cluster)?;
        let id = format!("again-{}-{published}", entry.position);
        let mut attempt = 1;
        tail = loop {
            match stream.append(&entry.record, &id, tail) {
                Ok(position) => break position,
                // It may have come through.
                Err(AppendError::Duplicate | AppendError::OtherTail) if attempt > 1 => {
                    break stream.bounds().map_err(Failure::cluster)?.last;
                }
                Err(AppendError::Unknown(_)) if attempt < ATTEMPTS => {
                    stream.pause(attempt);
                    attempt += 1;
                }
                Err(error) => return Err(Failure::cluster(error)),
            }
        };
        published += 1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let text = format!(
        "{} records were published: shards read them when they connect. A builder, or cluster feed, goes on with a new epoch.",
        count(published)
    );
    Ok(Report::new(
        text,
        json!({ "records": published, "last": tail.0 }),
    ))
}
