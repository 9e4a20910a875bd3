//! All shards as one.

use crate::{
    bag::{NodeBag, ReadError, ReadGroup, ReadRequest},
    range::{RangeError, ShardRange},
    shard::Shard,
};
use alloy_primitives::B256;
use cambium_trie::ProofTargets;
use std::{collections::BTreeMap, sync::Arc, thread};

/// What answers requests to one shard: the shard itself, or a way to it.
pub trait Service: Send + Sync {
    /// Answers a request.
    ///
    /// # Errors
    ///
    /// [`ReadError`] says why there is no answer.
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError>;
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
}

/// All shards of a state, each with its replicas.
#[derive(Clone)]
pub struct Shards {
    range: ShardRange,
    replicas: Vec<Vec<Arc<dyn Service>>>,
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shards({})", self.replicas.len())
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
        Ok(Self { range, replicas })
    }

    /// Reads from all shards that a request concerns, at the same time. `use_bag` is called with each shard's answer until
    /// it likes one: an answer of a replica that it refuses is as good as none.
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
        let ask = |shard: usize, part: &ReadRequest| self.ask(shard, part, &use_bag);
        if let [(shard, part)] = &parts[..] {
            return ask(*shard, part);
        }
        thread::scope(|scope| {
            let asked: Vec<_> = parts
                .iter()
                .map(|(shard, part)| scope.spawn(|| ask(*shard, part)))
                .collect();
            let mut result = Ok(());
            for thread in asked {
                let answer = thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result = result.and(answer);
            }
            result
        })
    }

    /// Asks the replicas of a shard in turn. A request whose answer is too big is divided.
    fn ask<E: From<ReadError>>(
        &self,
        shard: usize,
        part: &ReadRequest,
        use_bag: &impl Fn(&ReadRequest, NodeBag) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last = E::from(ReadError::Unavailable {
            index: shard,
            what: "it has no replica".to_owned(),
        });
        for replica in &self.replicas[shard] {
            let used = match replica.read(part) {
                Ok(bag) => use_bag(part, bag),
                Err(error @ (ReadError::TooBig { .. } | ReadError::Request(_))) => {
                    match part.halves() {
                        Some(halves) => halves
                            .iter()
                            .try_for_each(|half| self.ask(shard, half, use_bag)),
                        None => Err(error.into()),
                    }
                }
                Err(error) => Err(error.into()),
            };
            match used {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The parts of a request, by the shards that they concern.
    fn divide(&self, request: &ReadRequest) -> Vec<(usize, ReadRequest)> {
        let mut parts = BTreeMap::<usize, ReadRequest>::new();
        let empty = || ReadRequest {
            block: request.block,
            groups: Vec::new(),
            codes: Vec::new(),
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
        parts.into_iter().collect()
    }
}
