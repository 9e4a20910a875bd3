//! What becomes of the records of a stream, for collectors.

use crate::replication::{Follower, Ignored, StreamEnd};
use cambium_metrics::{Count, LabelledMetrics, MetricsHost, Tally};

/// The records that a process has judged, counted where it judges them.
#[derive(Debug)]
pub(super) struct RecordFigures {
    pub(super) end: StreamEnd,
    records: Tally,
    ignored: Tally,
    missing: Tally,
    waits: Tally,
    /// Positions of holes, as the follower counts them.
    found: Count,
    filled: Count,
    given_up: Count,
    holes: Count,
    epoch: Count,
    finalized: Count,
    rewinds: Count,
    failures: Count,
}

/// What became of a record.
pub(super) mod outcome {
    pub(in super::super) const APPLIED: &str = "applied";
    pub(in super::super) const CHOSEN: &str = "chosen";
    pub(in super::super) const OPENED: &str = "opened";
    pub(in super::super) const DAMAGED: &str = "damaged";
    pub(in super::super) const REFUSED: &str = "refused";
    pub(in super::super) const LOST: &str = "lost";
    pub(in super::super) const PASSED: &str = "passed";
    pub(super) const IGNORED: &str = "ignored";
}

/// What a record waits for.
pub(super) const BLOCK: &str = "block";
pub(super) const RECORDS: &str = "records";
pub(super) const ROOM: &str = "room";

impl RecordFigures {
    pub(super) fn new() -> Self {
        use outcome::{APPLIED, CHOSEN, DAMAGED, IGNORED, LOST, OPENED, PASSED, REFUSED};
        let outcomes = [
            APPLIED, CHOSEN, OPENED, IGNORED, DAMAGED, REFUSED, LOST, PASSED,
        ];
        Self {
            end: StreamEnd::default(),
            records: Tally::new(&outcomes),
            ignored: Tally::new(&Ignored::NAMES),
            missing: Tally::new(&[BLOCK, RECORDS]),
            waits: Tally::new(&[BLOCK, ROOM]),
            found: Count::default(),
            filled: Count::default(),
            given_up: Count::default(),
            holes: Count::default(),
            epoch: Count::default(),
            finalized: Count::default(),
            rewinds: Count::default(),
            failures: Count::default(),
        }
    }

    /// Counts a record, by what became of it.
    pub(super) fn judged(&self, outcome: &str) {
        self.records.add(outcome);
    }

    pub(super) fn ignored(&self, reason: &Ignored) {
        self.judged(outcome::IGNORED);
        self.ignored.add(reason.name());
    }

    /// Counts that a record needs something that is not there.
    pub(super) fn missing(&self, what: &str) {
        self.missing.add(what);
    }

    /// Counts that a record has to be given again.
    pub(super) fn waits(&self, what: &str) {
        self.waits.add(what);
    }

    pub(super) fn rewound(&self) {
        self.rewinds.add(1);
    }

    pub(super) fn failed(&self) {
        self.failures.add(1);
    }

    /// Shows where the follower is.
    pub(super) fn show(&self, follower: &Follower) {
        let (state, counts) = (follower.state(), follower.counts());
        self.end.at(state.position);
        self.holes.set(state.holes.len() as u64);
        self.epoch.set(state.epoch);
        self.finalized.set(state.finalized);
        self.found.set(counts.damaged);
        self.filled.set(counts.filled);
        self.given_up.set(counts.given_up);
    }
}

impl MetricsHost for RecordFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        self.end.report(metrics);
        metrics.gauges([
            (
                "stream_epoch",
                "The epoch that is open in the stream; 0 if none was seen.",
                self.epoch.get(),
            ),
            (
                "stream_finalized_block",
                "The newest final block, by the choices in the stream; 0 before the first one.",
                self.finalized.get(),
            ),
            (
                "stream_holes",
                "Ranges of positions whose records are damaged or missing, and neither filled nor given up.",
                self.holes.get(),
            ),
        ]);
        let help = "Records that were judged, by what became of them.";
        metrics.tally("stream_records", help, "outcome", &self.records);
        let help = "Records that were ignored, by reason.";
        metrics.tally("stream_records_ignored", help, "reason", &self.ignored);
        let help = "Times that a record needed a block, or records of a hole, that were not there.";
        metrics.tally("stream_missing", help, "kind", &self.missing);
        let help = "Times that a record had to wait: for a block that nobody has, or for room.";
        metrics.tally("stream_waits", help, "reason", &self.waits);
        let positions = [
            ("found", &self.found),
            ("filled", &self.filled),
            ("given_up", &self.given_up),
        ];
        for (outcome, count) in positions {
            metrics.labels(&[("outcome", outcome)]);
            metrics.counter(
                "stream_hole_positions",
                "Positions of damaged and missing records, and those of them that others had or that were given up.",
                count.get(),
            );
        }
        metrics.labels(&[]);
        metrics.counters([
            (
                "stream_rewinds",
                "Times that the stream was found to be another one, and read again.",
                self.rewinds.get(),
            ),
            (
                "stream_failures",
                "Times that the stream could not be read.",
                self.failures.get(),
            ),
        ]);
    }

    fn ready(&self) -> Result<(), String> {
        self.end.ready()
    }
}
