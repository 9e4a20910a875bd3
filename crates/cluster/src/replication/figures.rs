//! How far a follower is behind its stream, for collectors.

use super::{follower::StreamPosition, stream::Stream};
use cambium_metrics::{Count, LabelledMetrics, MetricsHost};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Time between two looks at the end of a stream.
const BETWEEN: Duration = Duration::from_secs(1);
/// Number of positions behind the end of the stream from which on a process is not ready.
const BEHIND_MAX: u64 = 64;

/// Where the stream ended at the last look, and how far a process has read it.
#[derive(Debug, Default)]
pub struct StreamEnd {
    position: Count,
    last: Count,
    looked: Mutex<Look>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Look {
    last: Option<Instant>,
    is_there: bool,
    was_there: bool,
}

impl StreamEnd {
    /// Notes that all up to a position was judged.
    pub fn at(&self, position: StreamPosition) {
        self.position.set(position.0);
    }

    /// Asks the stream where it ends, at most once a second. For the thread that reads the stream: it waits for the answer. Returns
    /// whether the stream ends before what was judged, so that it has lost records.
    pub fn look(&self, stream: &dyn Stream) -> bool {
        let mut look = *self.looked.lock();
        if look.last.is_some_and(|last| last.elapsed() < BETWEEN) {
            return false;
        }
        let bounds = stream.bounds();
        look.is_there = bounds.is_ok();
        look.was_there |= bounds.is_ok();
        look.last = Some(Instant::now());
        let last = bounds.ok().map(|bounds| bounds.last.0);
        if let Some(last) = last {
            self.last.set(last);
        }
        *self.looked.lock() = look;
        last.is_some_and(|last| last < self.position.get())
    }

    /// Number of positions between what was judged and the end of the stream; `None` before the first look.
    pub fn behind(&self) -> Option<u64> {
        let position = self.position.get();
        let was_there = self.looked.lock().was_there;
        was_there.then(|| self.last.get().saturating_sub(position))
    }
}

impl MetricsHost for StreamEnd {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        let look = *self.looked.lock();
        metrics.gauges([
            (
                "stream_position",
                "Position in the stream up to which all records were judged.",
                self.position.get(),
            ),
            (
                "stream_reachable",
                "1 if the last look at the end of the stream had an answer; it is looked every second.",
                look.is_there.into(),
            ),
        ]);
        if let Some(behind) = self.behind() {
            metrics.gauges([
                (
                    "stream_last_position",
                    "Position of the stream's last record, when it was looked last.",
                    self.last.get(),
                ),
                (
                    "stream_behind_positions",
                    "Positions of the stream that are not judged yet. A block takes one, or several if it is long, and a choice of the head one.",
                    behind,
                ),
            ]);
        }
    }

    fn ready(&self) -> Result<(), String> {
        match self.behind() {
            None => Err("the stream could not be reached yet".to_owned()),
            Some(behind) if behind > BEHIND_MAX => {
                Err(format!("{behind} positions behind the end of the stream"))
            }
            Some(_) => Ok(()),
        }
    }
}
