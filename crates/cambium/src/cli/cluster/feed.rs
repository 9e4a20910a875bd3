//! The blocks of a database as updates in the stream: a database that blocks are imported into is the cluster's builder.

use super::{
    super::{
        args::cluster::FeedArgs,
        beside::Serving,
        error::Failure,
        open,
        output::{Output, Report, count},
        signals::Stop,
    },
    connect, init, key, members,
    metrics::FeedFigures,
};
use cambium::{BlockId, Chain};
use cambium_cluster::{NatsStream, PublishError, Publisher, Record, ShardRange, Signer, Source};
use serde_json::json;
use std::{sync::Arc, thread, time::Duration};

/// Time between two looks for new blocks.
const LOOK: Duration = Duration::from_millis(200);
/// Number of the newest blocks that are published again after the stream has lost records.
const PUBLISHED_AGAIN: u64 = 256;
/// Pause before a stream that has no room, or no leader, is tried again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn run(args: &FeedArgs, out: &Output) -> Result<Report, Failure> {
    let chain = open::chain_to_read(&args.source.db, out)?;
    let signer = key::read(&args.source.key, chain.spec().chain_id)?;
    let nats = connect::nats(&args.nats, None)?;
    let range = ShardRange::new(0, args.source.shards).map_err(Failure::cluster)?;
    let store = nats.snapshots().map_err(Failure::cluster)?;
    let newest = store.newest(0).map_err(Failure::cluster)?;
    let first = newest.ok_or_else(|| {
        Failure::cluster("there are no snapshots of shards: cluster init makes a cluster")
    })?;
    let runtime = connect::runtime()?;
    let shown = Serving::new(args.metrics.metrics, "feed", &runtime, out)?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let tls = connect::tls(&args.tls);
    let known = members::epoch_of(&registry, tls.as_ref(), &runtime)?;
    let (publisher, epoch) = init::open_epoch(&signer, &args.builders, known, &nats)?;
    let stop = Stop::on_signals();
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
        published: first.block,
        first: first.block.number,
        final_below: args.final_below,
        bodies: !args.no_bodies,
        blocks: 0,
        figures,
    };
    out.note(format_args!(
        "epoch {epoch}: blocks from {} on are published",
        first.block.number + 1
    ));
    while stop.asked().is_none() {
        if !feed.step(out)? {
            if args.once {
                break;
            }
            thread::sleep(LOOK);
        }
    }
    let Feed {
        blocks, published, ..
    } = feed;
    let text = format!(
        "{} blocks were published, the last one is {published}.",
        count(blocks)
    );
    let mut report = Report::new(text, json!({ "blocks": blocks, "head": published.hash }));
    if let Some(exit) = stop.asked() {
        report.exit = exit;
    }
    Ok(report)
}

/// A database that is published.
pub(super) struct Feed {
    pub(super) chain: Chain,
    pub(super) range: ShardRange,
    pub(super) signer: Signer,
    pub(super) publisher: Publisher<NatsStream>,
    pub(super) epoch: u64,
    pub(super) choices: u64,
    /// The newest block that the stream has.
    pub(super) published: BlockId,
    /// Number of the block that all shards began with.
    pub(super) first: u64,
    pub(super) final_below: u64,
    /// Whether updates have the blocks' transactions.
    pub(super) bodies: bool,
    pub(super) blocks: u64,
    pub(super) figures: Arc<FeedFigures>,
}

impl Feed {
    /// Publishes what is new. Returns whether there was anything.
    pub(super) fn step(&mut self, out: &Output) -> Result<bool, Failure> {
        let stepped = self.publish_new(out);
        self.figures.published.set(self.published.number);
        stepped
    }

    fn publish_new(&mut self, out: &Output) -> Result<bool, Failure> {
        let mut db = self.chain.db().clone();
        db.catch_up()?;
        let head = db.head();
        self.figures.head.set(head.number);
        if head == self.published {
            return Ok(false);
        }
        self.chain = Chain::of(db)?;
        let db = self.chain.db();
        // After a reorganization the blocks from the fork on are new.
        let mut from = self.published;
        while !db.is_canonical(from)? {
            let header = self.chain.block_of(from)?;
            let (block, _) = header.ok_or_else(|| {
                Failure::cluster(format!(
                    "block {from}, which was published last, is not in the database any more"
                ))
            })?;
            from = BlockId::new(from.number - 1, block.header.parent_hash);
        }
        if head.number > from.number {
            let source = Source::new(&self.chain, self.range).with_bodies(self.bodies);
            let updates = source.updates(from.number + 1, head.number);
            let updates: Vec<_> = updates.map_err(Failure::cluster)?.take(64).collect();
            for update in updates {
                let update = update.map_err(Failure::cluster)?;
                let signed = self.signer.sign_update(self.epoch, update);
                let id = signed.id();
                if !self.publish(&Record::from(signed), out)? {
                    return self.go_back();
                }
                self.published = id;
                self.blocks += 1;
                self.figures.published.set(id.number);
                self.figures.blocks.add(1);
            }
        } else {
            self.published = head;
        }
        let finality = self.chain.db().finality();
        let below = self.published.number.saturating_sub(self.final_below);
        let fallback = self.chain.db().block_id(below)?;
        let genesis = self.chain.db().genesis();
        let finalized = finality.finalized.or(fallback).unwrap_or(genesis);
        let finalized = match finalized.number <= self.published.number {
            true => finalized,
            false => self.published,
        };
        let safe = finality.safe.unwrap_or(finalized);
        let safe = match (finalized.number..=self.published.number).contains(&safe.number) {
            true => safe,
            false => finalized,
        };
        self.choices += 1;
        let head = self.published;
        let choice = self
            .signer
            .choose(self.epoch, self.choices, head, safe, finalized);
        if !self.publish(&Record::from(choice), out)? {
            return self.go_back();
        }
        Ok(true)
    }

    /// Publishes the newest blocks again: no shard may have those that the stream has lost. Those that are known are ignored.
    fn go_back(&mut self) -> Result<bool, Failure> {
        let below = self.published.number.saturating_sub(PUBLISHED_AGAIN);
        let before = self.chain.db().block_id(below.max(self.first))?;
        self.published = before.unwrap_or(self.published);
        Ok(true)
    }

    /// Publishes a record. Returns false if the stream has lost what it had acknowledged: then the epoch alone is open again.
    fn publish(&mut self, record: &Record, out: &Output) -> Result<bool, Failure> {
        loop {
            match self.publisher.publish(record) {
                Ok(_) => return Ok(true),
                Err(
                    error @ (PublishError::Full(_)
                    | PublishError::Unknown { .. }
                    | PublishError::Stream(_)),
                ) => {
                    out.note(format_args!("{error}; it is tried again"));
                    thread::sleep(PAUSE);
                }
                Err(error @ PublishError::Lost { .. }) => {
                    out.note(format_args!("{error}"));
                    self.publisher.read_again().map_err(Failure::cluster)?;
                    let epoch = Record::from(self.signer.open_epoch(self.epoch));
                    self.publisher.publish(&epoch).map_err(Failure::cluster)?;
                    return Ok(false);
                }
                Err(error) => return Err(Failure::cluster(error)),
            }
        }
    }
}
