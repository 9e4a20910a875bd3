//! Searches a history of transactions for a cycle in their dependencies: a history without one is
//! serializable (Adya, Liskov and O'Neil, "Generalized Isolation Level Definitions", 2000).
//!
//! ```text
//!   write-read   the reader read what the writer wrote       writer -> reader
//!   write-write  the later writer replaced its version       writer -> next writer
//!   read-write   the writer replaced what the reader read    reader -> next writer
//! ```
//!
//! A range that was iterated over is a predicate: it reads each key in it, absent ones included. The versions of a key
//! are in the order of their commits. The result of a read is first compared with the version that its snapshot has; so
//! the dependencies don't rest on trust in snapshots, and an absent value, which several deletions could have left, has
//! one version.

use alloy_primitives::{B256, Bytes};
use std::collections::{BTreeMap, BTreeSet};

/// Where a transaction is in the order of commits: its commit, and its place in the group.
pub(crate) type Place = (u64, usize);

/// A transaction's read of another transaction's version.
#[derive(Clone, Debug)]
pub(crate) enum Observed {
    Key(B256, Option<Bytes>),
    /// All entries from the first key through the second one, but for those in the set, which the
    /// transaction had written itself.
    Range(B256, B256, BTreeMap<B256, Bytes>, BTreeSet<B256>),
}

/// A transaction that was committed, or that only read.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Number of the commit whose entries it read.
    pub snapshot: u64,
    /// `None` if it wrote nothing.
    pub place: Option<Place>,
    pub reads: Vec<Observed>,
    /// `None` for deletions.
    pub writes: BTreeMap<B256, Option<Bytes>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dependency {
    WriteRead,
    WriteWrite,
    ReadWrite,
}

/// Violation found in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A transaction read something else than its snapshot has.
    WrongRead { transaction: usize, key: B256 },
    /// Transactions, each with its dependency to the next one, and the last one's to the first.
    Cycle(Vec<(usize, Dependency)>),
}

/// The versions of a key in the order of their commits: place, transaction and value.
type Versions = BTreeMap<B256, Vec<(Place, usize, Option<Bytes>)>>;
type Graph = Vec<BTreeMap<usize, Dependency>>;

/// Checks a history that began with an empty store.
pub(crate) fn check(history: &[Done]) -> Result<(), Violation> {
    let versions = versions_of(history);
    let mut graph: Graph = vec![BTreeMap::new(); history.len()];
    let mut depend = |from: usize, to: usize, kind| {
        if from != to {
            graph[from].entry(to).or_insert(kind);
        }
    };
    for written in versions.values() {
        for (one, next) in written.iter().zip(written.iter().skip(1)) {
            depend(one.1, next.1, Dependency::WriteWrite);
        }
    }
    for (reader, done) in history.iter().enumerate() {
        for (key, value) in reads_of(done, &versions) {
            let written = versions.get(&key).map_or(&[][..], Vec::as_slice);
            let after = written.partition_point(|(place, ..)| place.0 <= done.snapshot);
            let read = after.checked_sub(1).map(|at| &written[at]);
            if value != read.and_then(|(_, _, value)| value.clone()) {
                let transaction = reader;
                return Err(Violation::WrongRead { transaction, key });
            }
            if let Some((_, writer, _)) = read {
                depend(*writer, reader, Dependency::WriteRead);
            }
            if let Some((_, writer, _)) = written.get(after) {
                depend(reader, *writer, Dependency::ReadWrite);
            }
        }
    }
    match cycle_in(&graph) {
        Some(cycle) => Err(Violation::Cycle(cycle)),
        None => Ok(()),
    }
}

fn versions_of(history: &[Done]) -> Versions {
    let mut versions = Versions::new();
    for (at, done) in history.iter().enumerate() {
        for (key, value) in &done.writes {
            let place = done.place.expect("a place for a writer");
            let written = versions.entry(*key).or_default();
            written.push((place, at, value.clone()));
        }
    }
    for written in versions.values_mut() {
        written.sort();
    }
    versions
}

/// Each key that a transaction read, with its value. Ranges read all keys that were ever written in them, and those
/// that they returned.
fn reads_of(done: &Done, versions: &Versions) -> Vec<(B256, Option<Bytes>)> {
    let mut reads = Vec::new();
    for observed in &done.reads {
        match observed {
            Observed::Key(key, value) => reads.push((*key, value.clone())),
            Observed::Range(from, through, entries, own) => {
                let written = versions.range(*from..=*through).map(|(key, _)| *key);
                let keys: BTreeSet<_> = written.chain(entries.keys().copied()).collect();
                let foreign = keys.difference(own);
                reads.extend(foreign.map(|key| (*key, entries.get(key).cloned())));
            }
        }
    }
    reads
}

/// Finds a cycle: repeatedly drops transactions that depend on none that is left, and then walks
/// backwards through those that remain.
fn cycle_in(graph: &Graph) -> Option<Vec<(usize, Dependency)>> {
    let mut before = vec![BTreeMap::new(); graph.len()];
    for (from, edges) in graph.iter().enumerate() {
        for (to, kind) in edges {
            before[*to].insert(from, *kind);
        }
    }
    let mut free: Vec<_> = (0..graph.len())
        .filter(|at| before[*at].is_empty())
        .collect();
    let mut left: BTreeSet<_> = (0..graph.len()).collect();
    while let Some(at) = free.pop() {
        left.remove(&at);
        for to in graph[at].keys() {
            before[*to].remove(&at);
            if before[*to].is_empty() {
                free.push(*to);
            }
        }
    }
    let mut walk = vec![*left.first()?];
    loop {
        let last = *walk.last()?;
        let (from, _) = before[last].first_key_value().expect("none is free");
        if let Some(at) = walk.iter().position(|seen| seen == from) {
            let cycle: Vec<_> = walk[at..].iter().rev().copied().collect();
            let next = cycle.iter().cycle().skip(1);
            let edges = cycle.iter().zip(next);
            return Some(edges.map(|(one, next)| (*one, graph[*one][next])).collect());
        }
        walk.push(*from);
    }
}
