//! A database that follows a cluster: `cambium import --follow`.

use super::{
    super::{
        args::cluster::{FollowArgs, NatsArgs},
        beside::Serving,
        error::Failure,
        output::{Output, count},
        signals::Stop,
    },
    connect,
    members::Replicas,
};
use cambium::{Chain, Disk, StdDisk};
use cambium_cluster::{BuilderKeys, Followed, FollowingDatabase};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Folder of the note, in that of the database.
const FOLDER: &str = "cluster";
/// Longest time without a block that a record needs, before the record is passed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two notes about what was done.
const NOTES: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// Follows a cluster until the user asks for the end, or with `--once` until all that is published is there.
pub(crate) fn follow(
    chain: &Chain,
    args: &FollowArgs,
    datadir: &Path,
    stop: &Stop,
    serving: Option<&Serving>,
    out: &Output,
) -> Result<Followed, Failure> {
    let FollowArgs {
        follow,
        builders,
        once,
        on,
        tls,
    } = args.clone();
    let nats = connect::nats(&NatsArgs { nats: follow, on }, None)?;
    let runtime = connect::runtime()?;
    let peers = Replicas {
        registry: nats.registry().map_err(Failure::cluster)?,
        range: None,
        own: String::new(),
        tls: connect::tls(&tls),
        runtime: runtime.handle().clone(),
    };
    let stream = nats.stream().map_err(Failure::cluster)?;
    let keys = BuilderKeys {
        chain_id: chain.spec().chain_id,
        keys: builders,
    };
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(datadir.join(FOLDER)));
    let database = FollowingDatabase::new(chain, disk, keys, vec![Box::new(peers)], PATIENCE);
    let mut database = database.map_err(Failure::cluster)?;
    if let Some(serving) = serving {
        serving.add(Arc::new(database.figures()));
    }
    out.note(format_args!(
        "the cluster is followed from block {} on",
        chain.db().head()
    ));
    let ends = AtomicBool::new(false);
    let mut meter = Meter::new(out);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                if stop.asked().is_some() {
                    ends.store(true, Ordering::Relaxed);
                }
                thread::sleep(LOOK);
            }
        });
        let followed = database.run(&stream, &ends, &mut |database, is_idle| {
            meter.look(database);
            once && is_idle && database.is_at_the_end(&stream)
        });
        ends.store(true, Ordering::Relaxed);
        followed
    })
    .map_err(Failure::cluster)?;
    Ok(database.followed().clone())
}

/// Tells what was done, now and then, and what is wrong, once.
struct Meter<'o> {
    out: &'o Output,
    last: Instant,
    blocks: u64,
    trouble: Option<String>,
}

impl<'o> Meter<'o> {
    fn new(out: &'o Output) -> Self {
        Self {
            out,
            last: Instant::now(),
            blocks: 0,
            trouble: None,
        }
    }

    fn look(&mut self, database: &FollowingDatabase<'_>) {
        let followed = database.followed();
        if followed.trouble != self.trouble {
            self.trouble.clone_from(&followed.trouble);
            if let Some(trouble) = &self.trouble {
                self.out.note(trouble);
            }
        }
        let elapsed = self.last.elapsed();
        if elapsed < NOTES || followed.blocks == self.blocks {
            return;
        }
        let blocks = followed.blocks - self.blocks;
        self.out.note(format_args!(
            "{} blocks more, {:.1} a second; the head is {}",
            count(blocks),
            blocks as f64 / elapsed.as_secs_f64(),
            database.chain().db().head()
        ));
        (self.last, self.blocks) = (Instant::now(), followed.blocks);
    }
}
