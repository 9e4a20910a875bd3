//! What a server allows.

use std::time::Duration;

/// Kinds of work, of which each has its share of the threads, so that none starves another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A value of the state, or of the chain: microseconds, unless it is on the disk.
    Value,
    /// A few reads.
    Quick,
    /// Proofs.
    Proof,
    /// Execution of calls.
    Execution,
    /// Work over many blocks or accounts: logs, traces.
    Scan,
}

impl Kind {
    /// All kinds, the lightest first.
    pub const ALL: [Self; 5] = [
        Self::Value,
        Self::Quick,
        Self::Proof,
        Self::Execution,
        Self::Scan,
    ];

    /// The name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Quick => "quick",
            Self::Proof => "proof",
            Self::Execution => "execution",
            Self::Scan => "scan",
        }
    }

    /// Whether it is done in less time than a thread of the pool takes to begin.
    pub(crate) const fn is_brief(self) -> bool {
        matches!(self, Self::Value | Self::Proof)
    }
}

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections. Further ones wait until one ends.
    pub connections: usize,
    /// Longest time for the header of a request to come.
    pub header_time: Duration,
    /// Longest time of a connection without a request, and for the next bytes of one, or of an answer, to move.
    pub idle_time: Duration,
    /// Most bytes of a request.
    pub body_bytes: usize,
    /// Most calls of a batch.
    pub batch: usize,
    /// Most bytes of an answer.
    pub answer_bytes: u64,
    /// Most bytes of the answer to a batch.
    pub batch_bytes: u64,
    /// Threads that answer. Each kind of work has at most its share of them.
    pub threads: usize,
    /// Most requests that wait for a thread. Further ones are refused.
    pub waiting: usize,
    /// Most bytes that all requests and their answers hold in memory. Further ones are refused.
    pub held_bytes: usize,
    /// Longest time for an answer.
    pub time: Duration,
    /// Longest time for executing a call.
    pub call_time: Duration,
    /// Most gas of a call.
    pub call_gas: u64,
    /// Most logs of an answer.
    pub logs: usize,
    /// Most blocks that logs are looked for in.
    pub log_blocks: u64,
    /// Most addresses, and most alternatives of a topic. The subscriptions of a connection have 16 times as many, and all polled
    /// filters 256 times.
    pub alternatives: usize,
    /// Most blocks that are simulated.
    pub simulated_blocks: u64,
    /// Most slots that are proved, or read, at once.
    pub proof_keys: usize,
    /// Most blocks of a history of fees.
    pub fee_blocks: u64,
    /// Most subscriptions of a connection.
    pub subscriptions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 500,
            header_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(120),
            body_bytes: 5 << 20,
            batch: 1000,
            answer_bytes: 160_000_000,
            batch_bytes: 25_000_000,
            threads: (2 * cambium_crew::threads()).max(4),
            waiting: 4096,
            held_bytes: 512 << 20,
            time: Duration::from_secs(30),
            call_time: Duration::from_secs(5),
            call_gas: 50_000_000,
            logs: 20_000,
            log_blocks: 100_000,
            alternatives: 1000,
            simulated_blocks: 256,
            proof_keys: 1024,
            fee_blocks: 1024,
            subscriptions: 1024,
        }
    }
}

impl Limits {
    /// Limits for a consensus client: blocks are large, and take as long as they take.
    pub fn of_engine() -> Self {
        Self {
            body_bytes: 64 << 20,
            call_time: Duration::from_secs(60),
            time: Duration::from_secs(60),
            ..Self::default()
        }
    }

    /// Threads that a kind of work may have at once.
    pub(crate) const fn threads_of(&self, kind: Kind) -> usize {
        let share = match kind {
            Kind::Value | Kind::Quick => self.threads,
            Kind::Proof | Kind::Execution => self.threads.div_ceil(2),
            Kind::Scan => self.threads.div_ceil(4),
        };
        if share == 0 { 1 } else { share }
    }

    /// The longest time for an answer of a kind.
    pub(crate) const fn time_of(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Execution => self.call_time,
            _ => self.time,
        }
    }
}
