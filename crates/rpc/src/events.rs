//! What happens on the chain, for all who subscribe to it: one thread follows it.

use crate::{methods::logs, served::Served};
use alloy_rpc_types_eth::{Header, Log};
use cambium_index::LogFilter;
use cambium_node::BlockRef;
use cambium_primitives::BlockId;
use cambium_state::{ChainEvent, Subscription};
use serde_json::value::RawValue;
use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::sync::broadcast;

/// Blocks that wait for a subscriber. One that is further behind is dropped.
const BLOCKS_WAITING: usize = 256;
/// Time between two looks at whether anyone is there.
const LOOK: Duration = Duration::from_millis(500);

/// A block that became part of the canonical chain, or left it.
#[derive(Debug, Default)]
pub(crate) struct BlockEvent {
    /// Whether blocks are missing here: who is told has to subscribe anew.
    pub(crate) is_gap: bool,
    /// The header, as clients get it; `None` if the block left.
    pub(crate) header: Option<Box<RawValue>>,
    id: BlockId,
    /// All logs of the block; `None` if they can't be had. They are read at once only if somebody has asked for logs before.
    logs: OnceLock<Option<Vec<Log>>>,
}

impl BlockEvent {
    /// The logs of the block, if they are read already.
    pub(crate) fn known_logs(&self) -> Option<&Option<Vec<Log>>> {
        self.logs.get()
    }

    /// Reads the logs of the block, which may take a while.
    pub(crate) fn read_logs(&self, served: &Served) {
        self.logs.get_or_init(|| {
            let node = served.node_with(self.id);
            let mut logs = logs::of_block(&node, self.id.hash, &LogFilter::default()).ok()?;
            let has_left = self.header.is_none();
            logs.iter_mut().for_each(|log| log.removed = has_left);
            Some(logs)
        });
    }
}

/// Subscriptions to the chain.
#[derive(Debug)]
pub(crate) struct Events {
    to: broadcast::Sender<Arc<BlockEvent>>,
    /// Subscriptions to logs.
    of_logs: AtomicUsize,
}

/// A subscription to logs, which counts while it lives.
#[derive(Debug)]
pub(crate) struct WantsLogs(Arc<Events>);

impl Drop for WantsLogs {
    fn drop(&mut self) {
        self.0.of_logs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Events {
    /// Follows a chain from now on, until the result is dropped.
    pub(crate) fn of(served: &Arc<Served>) -> Arc<Self> {
        let (to, _) = broadcast::channel(BLOCKS_WAITING);
        let events = Arc::new(Self {
            to,
            of_logs: AtomicUsize::new(0),
        });
        // From here on, whenever the thread begins.
        let node = served.node();
        let subscription = node.subscribe(node.head());
        let (own, served) = (Arc::downgrade(&events), Arc::downgrade(served));
        let follow = move || follow(&own, &served, subscription);
        // Without the thread there are no events: the process is out of threads, and has greater worries.
        let _ = thread::Builder::new()
            .name("cambium-events".to_owned())
            .spawn(follow);
        events
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<BlockEvent>> {
        self.to.subscribe()
    }

    pub(crate) fn wanting_logs(self: &Arc<Self>) -> WantsLogs {
        self.of_logs.fetch_add(1, Ordering::Relaxed);
        WantsLogs(Arc::clone(self))
    }

    fn tell(&self, served: &Served, event: ChainEvent) {
        let (id, has_left) = match event {
            ChainEvent::Committed(block) => (block.meta.id, false),
            ChainEvent::Reverted(block) => (block.meta.id, true),
            ChainEvent::Finalized(_) => return,
        };
        self.send(self.event(served, id, has_left).unwrap_or(BlockEvent {
            is_gap: true,
            ..BlockEvent::default()
        }));
    }

    fn send(&self, event: BlockEvent) {
        // Nobody may be there.
        let _ = self.to.send(Arc::new(event));
    }

    /// What is told of a block; `None` if its header can't be read.
    fn event(&self, served: &Served, id: BlockId, has_left: bool) -> Option<BlockEvent> {
        let node = served.node_with(id);
        let header = match has_left {
            true => None,
            false => {
                let (_, header) = node.header(BlockRef::Hash(id.hash)).ok()?;
                let sealed = alloy_consensus::Sealed::new_unchecked(header, id.hash);
                let header = Header::from_sealed(sealed);
                Some(serde_json::value::to_raw_value(&header).ok()?)
            }
        };
        let event = BlockEvent {
            header,
            id,
            ..BlockEvent::default()
        };
        if self.of_logs.load(Ordering::Relaxed) > 0 {
            event.read_logs(served);
        }
        Some(event)
    }
}

fn follow(events: &Weak<Events>, served: &Weak<Served>, mut subscription: Subscription) {
    loop {
        let event = subscription.wait(LOOK);
        let (Some(events), Some(served)) = (events.upgrade(), served.upgrade()) else {
            return;
        };
        match event {
            Ok(Some(event)) => events.tell(&served, event),
            Ok(None) => {}
            Err(_) => {
                // The cursor is gone, or can't be read: go on at the head, and say so.
                let node = served.node();
                subscription = node.subscribe(node.head());
                events.send(BlockEvent {
                    is_gap: true,
                    ..BlockEvent::default()
                });
                thread::sleep(LOOK);
            }
        }
    }
}
