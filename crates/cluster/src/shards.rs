//! All shards as one.

use crate::{
    bag::{NodeBag, ReadError, ReadGroup, ReadRequest},
    range::{RangeError, ShardRange},
    shard::Shard,
};
use alloy_primitives::B256;
use cambium_crew::{Crew, threads};
use cambium_trie::ProofTargets;
use parking_lot::RwLock;
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

/// Pause before a shard that does not know a block yet is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// Threads that wait for the answers of several shards, and use them.
static READERS: LazyLock<Crew> = LazyLock::new(|| Crew::new("readers", threads() - 1));

/// What answers requests to one shard: the shard itself, or a way to it.
pub trait Service: Send + Sync {
    /// Answers a request.
    ///
    /// # Errors
    ///
    /// [`ReadError`] says why there is no answer.
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError>;

    /// Begins to answer a request, and goes on by itself. Returns `answered` if it can't: then [`Self::read`] is called.
    fn begin(&self, request: &ReadRequest, answered: Answered) -> Option<Answered> {
        let _ = request;
        Some(answered)
    }
}

/// Takes the answer to a request that was begun. If it is dropped, there is none.
#[derive(Debug)]
pub struct Answered {
    /// Number of the shard.
    shard: usize,
    replica: usize,
    to: Option<Sender<(usize, Result<NodeBag, ReadError>)>>,
}

impl Answered {
    /// Hands over the answer.
    pub fn with(mut self, answer: Result<NodeBag, ReadError>) {
        self.send(answer);
    }

    fn send(&mut self, answer: Result<NodeBag, ReadError>) {
        if let Some(to) = self.to.take() {
            // Nobody waits any more if another replica was faster.
            let _ = to.send((self.replica, answer));
        }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.send(Err(ReadError::Unavailable {
            index: self.shard,
            what: "the request was dropped".to_owned(),
        }));
    }
}

impl Service for Shard {
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        Self::read(self, request)
    }
}

impl<T: Service + ?Sized> Service for Arc<T> {
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        (**self).read(request)
    }

    fn begin(&self, request: &ReadRequest, answered: Answered) -> Option<Answered> {
        (**self).begin(request, answered)
    }
}

/// All shards of a state, each with its replicas.
#[derive(Clone)]
pub struct Shards {
    range: ShardRange,
    shards: Arc<Vec<Replicas>>,
    /// How long to wait for a block that no replica of a shard has yet.
    patience: Duration,
}

type Services = Arc<[Arc<dyn Service>]>;

/// The replicas of a shard.
struct Replicas {
    /// Those that there are now: a request that has begun goes on with those that it began with.
    services: RwLock<Services>,
    /// The one that had the last right answer.
    right: AtomicUsize,
    slow: Slow,
    hedged: AtomicU64,
}

/// An estimate of the time within which 99 of 100 answers come, in microseconds.
struct Slow(AtomicU64);

impl Slow {
    const FIRST: u64 = 100_000;
    const RANGE: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;

    fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Moves up by nearly a tenth if an answer took longer, and down by a thousandth otherwise: so that one of a hundred takes
    /// longer.
    fn add(&self, taken: Duration) {
        let before = self.0.load(Ordering::Relaxed);
        let after = match taken.as_micros() > u128::from(before) {
            true => before + before * 99 / 1_000,
            false => before - before / 1_000,
        };
        // Of two threads at once, one counts.
        let after = after.clamp(*Self::RANGE.start(), *Self::RANGE.end());
        self.0.store(after, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shards({})", self.shards.len())
    }
}

impl Shards {
    /// Shards by their numbers, each with one or more replicas in the order in which they are asked.
    ///
    /// # Errors
    ///
    /// If a state can't be divided into so many.
    pub fn new(replicas: Vec<Vec<Arc<dyn Service>>>) -> Result<Self, RangeError> {
        let range = ShardRange::new(0, replicas.len())?;
        let shards = replicas.into_iter().map(|services| Replicas {
            services: RwLock::new(services.into()),
            right: AtomicUsize::new(0),
            slow: Slow(AtomicU64::new(Slow::FIRST)),
            hedged: AtomicU64::new(0),
        });
        let shards = Arc::new(shards.collect());
        let patience = Duration::ZERO;
        Ok(Self {
            range,
            shards,
            patience,
        })
    }

    /// Replaces the replicas of a shard, for all clones of this. Requests that have begun go on with those that were there.
    ///
    /// # Errors
    ///
    /// If there is no such shard.
    pub fn replace(&self, shard: usize, services: Vec<Arc<dyn Service>>) -> Result<(), RangeError> {
        let range = ShardRange::new(shard, self.shards.len())?;
        let replicas = &self.shards[range.index()];
        let mut before = replicas.services.write();
        // Who was right stays the first one to ask.
        let right = before.get(replicas.right.load(Ordering::Relaxed));
        let right = right.and_then(|right| services.iter().position(|it| Arc::ptr_eq(it, right)));
        replicas.right.store(right.unwrap_or(0), Ordering::Relaxed);
        *before = services.into();
        Ok(())
    }

    /// The same shards, of which each is asked again for this long if it does not know the block yet: for who reads the
    /// state of blocks that were published a moment ago.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Reads from all shards that a request concerns, at the same time. `use_bag` is called with each shard's answer until
    /// it likes one: an answer of a replica that it refuses is as good as none.
    ///
    /// The replica that was right last is asked first, the next one when it fails, or when it takes longer than 99 of 100 answers
    /// of the shard before.
    ///
    /// # Errors
    ///
    /// The error of the last replica of a shard if none of them has an answer.
    pub fn read<E: From<ReadError> + Send>(
        &self,
        request: &ReadRequest,
        use_bag: impl Fn(&ReadRequest, NodeBag) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let parts = self.divide(request);
        let asked = parts.iter().map(|(shard, part)| self.ask(*shard, part));
        let asked: Vec<_> = asked.collect();
        READERS.each(usize::MAX, asked, |asked| asked.answer(&use_bag))?;
        Ok(())
    }

    /// Begins to ask a shard.
    fn ask<'r>(&'r self, shard: usize, request: &'r ReadRequest) -> Asked<'r> {
        let (index, shard) = (shard, &self.shards[shard]);
        let (to, answers) = mpsc::channel();
        let mut asked = Asked {
            shards: self,
            index,
            shard,
            services: Arc::clone(&shard.services.read()),
            request,
            first: shard.right.load(Ordering::Relaxed),
            next: 0,
            waiting: 0,
            to,
            answers,
            started: Instant::now(),
        };
        asked.begin_next();
        asked
    }

    /// Requests that a second replica was asked too, since the first one took long.
    pub fn hedged(&self) -> u64 {
        let shards = self.shards.iter();
        shards
            .map(|shard| shard.hedged.load(Ordering::Relaxed))
            .sum()
    }

    /// The parts of a request, by the shards that they concern.
    fn divide(&self, request: &ReadRequest) -> Vec<(usize, ReadRequest)> {
        let mut parts = BTreeMap::<usize, ReadRequest>::new();
        let empty = || ReadRequest {
            block: request.block,
            groups: Vec::new(),
            codes: Vec::new(),
            slots_from: None,
        };
        for group in &request.groups {
            let mut targets = BTreeMap::<usize, Vec<(B256, Vec<B256>)>>::new();
            for target in group.targets.accounts() {
                let owner = self.range.owner(&target.0);
                targets.entry(owner).or_default().push(target.clone());
            }
            for (shard, targets) in targets {
                let part = parts.entry(shard).or_insert_with(empty);
                part.groups.push(ReadGroup {
                    targets: ProofTargets::new(targets),
                    levels: group.levels,
                });
            }
        }
        for code in &request.codes {
            let part = parts.entry(self.range.owner(&code.1)).or_insert_with(empty);
            part.codes.push(*code);
        }
        if let Some((account, _)) = &request.slots_from {
            let part = parts.entry(self.range.owner(account)).or_insert_with(empty);
            part.slots_from = request.slots_from;
        }
        parts.into_iter().collect()
    }
}

/// A request that a shard was asked.
struct Asked<'r> {
    shards: &'r Shards,
    /// Number of the shard.
    index: usize,
    shard: &'r Replicas,
    services: Services,
    request: &'r ReadRequest,
    /// The replica that was asked first.
    first: usize,
    /// How many replicas were asked.
    next: usize,
    /// How many of them have not answered.
    waiting: usize,
    to: Sender<(usize, Result<NodeBag, ReadError>)>,
    answers: Receiver<(usize, Result<NodeBag, ReadError>)>,
    started: Instant,
}

impl Asked<'_> {
    /// Asks the next replica, if it can answer by itself. False if there is none, or if it can't.
    fn begin_next(&mut self) -> bool {
        let Some((replica, answered)) = self.next_replica() else {
            return false;
        };
        match self.services[replica].begin(self.request, answered) {
            None => {
                self.next += 1;
                self.waiting += 1;
                true
            }
            Some(mut answered) => {
                answered.to = None;
                false
            }
        }
    }

    /// Whether it asks the replicas that there are now.
    fn has_all(&self) -> bool {
        Arc::ptr_eq(&self.services, &self.shard.services.read())
    }

    fn next_replica(&self) -> Option<(usize, Answered)> {
        let count = self.services.len();
        if self.next == count {
            return None;
        }
        let replica = (self.first + self.next) % count;
        let to = Some(self.to.clone());
        let shard = self.index;
        let answered = Answered { shard, replica, to };
        Some((replica, answered))
    }

    /// Waits for an answer that `use_bag` likes.
    fn answer<E: From<ReadError>>(
        mut self,
        use_bag: &impl Fn(&ReadRequest, NodeBag) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut last, mut waits) = (None, false);
        loop {
            let (replica, answer) = match self.wait() {
                Some(answer) => answer,
                None if waits && self.started.elapsed() < self.shards.patience => {
                    thread::sleep(PAUSE);
                    (self.next, waits) = (0, false);
                    self.services = Arc::clone(&self.shard.services.read());
                    continue;
                }
                // Others are there by now.
                None if !self.has_all() => {
                    (self.next, waits) = (0, false);
                    self.services = Arc::clone(&self.shard.services.read());
                    continue;
                }
                None => {
                    return Err(last.unwrap_or_else(|| {
                        E::from(ReadError::Unavailable {
                            index: self.index,
                            what: "it has no replica".to_owned(),
                        })
                    }));
                }
            };
            // One that always says that it is too much is not right.
            let is_whole = answer.is_ok();
            let used = match answer {
                Ok(bag) => {
                    self.shard.slow.add(self.started.elapsed());
                    use_bag(self.request, bag)
                }
                Err(error @ (ReadError::TooBig { .. } | ReadError::Request(_))) => {
                    self.in_halves(error, use_bag)
                }
                Err(error) => {
                    waits |= matches!(error, ReadError::NotYet(_));
                    Err(error.into())
                }
            };
            match used {
                Ok(()) => {
                    // Of those that were replaced meanwhile none is remembered.
                    if is_whole && self.has_all() {
                        self.shard.right.store(replica, Ordering::Relaxed);
                    }
                    return Ok(());
                }
                Err(error) => last = Some(error),
            }
        }
    }

    /// The next answer; `None` if all replicas have answered.
    fn wait(&mut self) -> Option<(usize, Result<NodeBag, ReadError>)> {
        loop {
            if self.waiting == 0 && !self.begin_next() {
                return self.read_next();
            }
            let slow = self.shard.slow.get();
            let answer = match self.next < self.services.len() {
                true => self.answers.recv_timeout(slow),
                false => self.answers.recv().map_err(RecvTimeoutError::from),
            };
            match answer {
                Ok(answer) => {
                    self.waiting -= 1;
                    return Some(answer);
                }
                Err(_) => {
                    self.shard.slow.add(self.started.elapsed());
                    if self.begin_next() {
                        self.shard.hedged.fetch_add(1, Ordering::Relaxed);
                    } else {
                        // The next one answers on this thread alone.
                        self.shard.hedged.fetch_add(1, Ordering::Relaxed);
                        return self.read_next();
                    }
                }
            }
        }
    }

    /// Asks the next replica on this thread; `None` if there is none.
    fn read_next(&mut self) -> Option<(usize, Result<NodeBag, ReadError>)> {
        let (replica, mut answered) = self.next_replica()?;
        answered.to = None;
        self.next += 1;
        let read = || self.services[replica].read(self.request);
        // A replica that panics is as one that does not answer.
        let answer = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
            Err(ReadError::Unavailable {
                index: self.index,
                what: "the replica panicked".to_owned(),
            })
        });
        Some((replica, answer))
    }

    /// Asks for each half of the request, which is for too much.
    fn in_halves<E: From<ReadError>>(
        &self,
        error: ReadError,
        use_bag: &impl Fn(&ReadRequest, NodeBag) -> Result<(), E>,
    ) -> Result<(), E> {
        let halves = self.request.halves().ok_or(error)?;
        halves
            .iter()
            .try_for_each(|half| self.shards.ask(self.index, half).answer(use_bag))
    }
}
