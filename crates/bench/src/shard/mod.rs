//! `./bench shard`: a shard of the state in memory, on one core, the bytes of what it answers with, and a builder.
//!
//! ```text
//!   table     1.19 million accounts: bytes of memory; gets one by one and in batches; puts; a root every 1,000 puts
//!   bags      a block's keys, uniform and Zipf: bytes of the node bag by retention level, against a proof for each key
//!   remote    gets over gRPC with witnesses, in batches, as they come and verified; server and clients on the same cores
//!   builder   transfers that clients have run: bags verified, executed, state root, on one thread and on all cores
//! ```
//!
//! Figures to beat are those of DMPT (216,000 gets/s, 245,000 puts/s, 775 MB at 1.19 million accounts; witnesses 95 % smaller
//! with a retention level of 5 at 10 million accounts). Its level counts the root as level 0, so that level 5 has six levels of
//! nodes: here, those at depths below 6.

mod data;
mod builder;
mod remote;
mod rainblock;

use crate::report::{Report, Target, median, object};
use alloy_primitives::{B256, Bytes};
use cambium_cluster::NodeBag;
use cambium_primitives::Path;
use cambium_testkit::Random;
use cambium_trie::{Alone, BagLevels, BagMaker, Deletes, ProofTargets, VersionView, VersionedTrie};
use clap::Args;
use data::{BATCH_KEYS, shard_of, trie_of, zipf};
use rainblock::{RainBlock, Round};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;
use std::{error::Error, num::NonZeroUsize, time::Instant};

pub(crate) use data::{account_of, key_of, put, uniform};

#[derive(Debug, Args)]
pub(crate) struct ShardArgs {
    /// Number of accounts of the table [default: 1,190,000, with --quick 100,000]
    #[arg(long)]
    accounts: Option<usize>,
    /// Number of accounts of the state that bags are made of [default: 10,000,000, with --quick 300,000]
    #[arg(long)]
    bag_accounts: Option<usize>,
    /// Number of keys of a block
    #[arg(long, default_value_t = 10_000)]
    keys: usize,
    /// Number of accounts of the builder's state [default: 1,000,000, with --quick 50,000]
    #[arg(long)]
    builder_accounts: Option<u64>,
    /// Numbers of threads of the builder, separated by commas [default: 1, and as many as processors]
    #[arg(long, value_delimiter = ',')]
    builder_threads: Vec<NonZeroUsize>,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Parts to run, separated by commas: table, bags, remote, builder [default: all]
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// Tries to compare the table with, separated by commas: rainblock
    #[arg(long, value_delimiter = ',')]
    peers: Vec<Peer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// RainBlock's package for Node.js
    Rainblock,
}

const PARTS: [&str; 4] = ["table", "bags", "remote", "builder"];

/// Puts between two roots.
const ROOT_PUTS: usize = 1_000;
/// Accounts of a state beyond which a sixteenth of it stands for all: the accounts below one first nibble.
const WHOLE_MAX: usize = 16_000_000;

fn rate(count: usize, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

/// Gets and puts on one core.
fn table(args: &ShardArgs, accounts: usize, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let mut peer = match args.peers.contains(&Peer::Rainblock) {
        true => Some(RainBlock::load(accounts)?),
        false => None,
    };
    let mut peer_rounds = Vec::new();
    eprintln!("loading {accounts} accounts");
    let (shard, block) = shard_of(accounts)?;
    let memory = shard.stats().memory_bytes as f64 / 1e6;
    let mut random = Random::new(7);
    let keys: Vec<_> = (0..1_000_000)
        .map(|_| key_of(uniform(&mut random, accounts)))
        .collect();
    let (mut singles, mut batches, mut puts, mut roots) = (vec![], vec![], vec![], vec![]);
    for round in 0..args.rounds {
        eprintln!("round {} of {}: gets", round + 1, args.rounds);
        let start = Instant::now();
        let mut found = 0;
        for key in &keys {
            found += usize::from(shard.account(block, key)?.is_some());
        }
        singles.push(rate(keys.len(), start));
        let start = Instant::now();
        for keys in keys.chunks(BATCH_KEYS) {
            found += shard.accounts(block, keys)?.iter().flatten().count();
        }
        batches.push(rate(keys.len(), start));
        if found != 2 * keys.len() {
            report.errors.push(format!("{found} gets found something"));
        }
        if let Some(peer) = &mut peer {
            peer_rounds.push(peer.round()?);
        }
    }
    drop(shard);
    let changes = (0..accounts).map(|index| put(key_of(index), account_of(index, 0)));
    let (mut trie, mut version) = VersionedTrie::new(trie_of(changes.collect(), Path::EMPTY)?)?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}: puts", round + 1, args.rounds);
        let mut batch = |count: usize| {
            let mut batch: Vec<_> = (0..count)
                .map(|_| {
                    let index = uniform(&mut random, accounts);
                    put(key_of(index), account_of(index, round as u64 + 1))
                })
                .collect();
            batch.sort_unstable_by_key(|change| change.path);
            batch.dedup_by_key(|change| change.path);
            batch
        };
        let all: Vec<_> = (0..400).map(|_| batch(ROOT_PUTS)).collect();
        let count = all.iter().map(Vec::len).sum();
        let start = Instant::now();
        let mut draft = trie.draft(&version);
        for batch in &all {
            draft.put(batch)?;
        }
        puts.push(rate(count, start));
        let mut after = draft.end(&Alone);
        trie.retire(version, &mut after);
        version = after;
        let start = Instant::now();
        for batch in &all {
            let mut after = trie.child(&version, batch, &Alone)?;
            trie.retire(version, &mut after);
            version = after;
        }
        roots.push(rate(count, start));
    }
    drop(peer);
    let (singles, batches) = (median(singles), median(batches));
    let (puts, roots) = (median(puts), median(roots));
    report.results.push(object([
        ("accounts", json!(accounts)),
        ("memory, MB", json!(memory)),
        (
            "memory, bytes an account",
            json!(memory * 1e6 / accounts as f64),
        ),
        ("gets/s one by one", json!(singles)),
        ("gets/s in batches of 100", json!(batches)),
        ("puts/s in batches of 1,000", json!(puts)),
        ("puts/s with a root every 1,000", json!(roots)),
    ]));
    let mut target = |name: &str, value: f64, unit, text: &str, met| {
        report.targets.push(Target {
            name: name.to_owned(),
            value,
            unit,
            target: text.to_owned(),
            met,
        });
    };
    let (gets, stored) = (batches.max(singles) / 1e6, puts / 1e6);
    target("gets on one core", gets, "M/s", "at least 2.1", gets >= 2.1);
    target(
        "puts on one core",
        stored,
        "M/s",
        "at least 2.4",
        stored >= 2.4,
    );
    if accounts == 1_190_000 {
        target("memory", memory, "MB", "at most 200", memory <= 200.0);
    }
    if let Some(first) = peer_rounds.first() {
        let of = |figure: fn(&Round) -> f64| median(peer_rounds.iter().map(figure).collect());
        let (gets, puts, rooted) = (of(|it| it.gets), of(|it| it.puts), of(|it| it.roots));
        report.results.push(object([
            ("RainBlock: accounts", json!(accounts)),
            ("memory, MB", json!(first.memory_mb)),
            ("gets/s one by one", json!(gets)),
            ("puts/s one by one", json!(puts)),
            ("puts/s with a root every 1,000", json!(rooted)),
        ]));
        let mut against = |name: &str, times: f64, wanted: f64| {
            report.targets.push(Target {
                name: format!("{name}, against RainBlock's package"),
                value: times,
                unit: "times",
                target: format!("at least {wanted}"),
                met: times >= wanted,
            });
        };
        against("gets one by one", singles / gets, 1.0);
        against("puts", 1e6 * stored / puts, 1.0);
        against("a root every 1,000 puts", roots / rooted, 25.0);
    }
    Ok(())
}

/// Size of a bag.
struct BagSize {
    nodes: usize,
    /// Of all nodes.
    bytes: usize,
    /// As it travels.
    compact: usize,
}

/// The size of a bag of these keys.
fn bag_size(view: VersionView<'_>, keys: &[B256], level: u8) -> Result<BagSize, Box<dyn Error>> {
    let targets = ProofTargets::new(keys.iter().map(|key| (*key, vec![])).collect());
    let mut maker = BagMaker::new(view, usize::MAX);
    let levels = BagLevels {
        accounts: level,
        slots: 0,
        deletes: Deletes::Nothing,
    };
    maker.add(&targets, levels)?;
    let nodes: Vec<Bytes> = maker.finish();
    let bag = NodeBag {
        nodes,
        codes: Vec::new(),
    };
    Ok(BagSize {
        nodes: bag.nodes.len(),
        bytes: bag.bytes(),
        compact: bag.encode().len(),
    })
}

/// Bytes of node bags against those of a proof for each key.
fn bags(args: &ShardArgs, accounts: usize, report: &mut Report) -> Result<(), Box<dyn Error>> {
    // A sixteenth of a large state has the same shape below the first nibble.
    let (base, own) = match accounts <= WHOLE_MAX {
        true => (Path::EMPTY, accounts),
        false => (Path::from_nibbles(&[0]), accounts / 16),
    };
    let key = |index| {
        let mut key = key_of(index);
        if !base.is_empty() {
            key.0[0] &= 0x0f;
        }
        key
    };
    eprintln!("bags: loading {own} of {accounts} accounts");
    let changes = (0..own).map(|index| put(key(index), account_of(index, 0)));
    let trie = trie_of(changes.collect(), base)?;
    let (trie, version) = VersionedTrie::new(trie)?;
    let view = trie.at(&version);
    let keys = match base.is_empty() {
        true => args.keys,
        false => args.keys / 16,
    };
    let mut random = Random::new(11);
    for (name, is_zipf) in [("uniform", false), ("Zipf", true)] {
        let mut chosen: Vec<_> = (0..keys)
            .map(|_| {
                key(match is_zipf {
                    true => zipf(&mut random, own),
                    false => uniform(&mut random, own),
                })
            })
            .collect();
        // Each access has a proof of its own, as in a transaction's witness.
        let mut proofs = 0;
        for key in &chosen {
            proofs += bag_size(view, &[*key], 0)?.bytes;
        }
        let accesses = chosen.len();
        chosen.sort_unstable();
        chosen.dedup();
        // The root of a whole state is above this part of it.
        let root = if base.is_empty() { 0 } else { 532 };
        let plain = (proofs + accesses * root) as f64 / accesses as f64;
        for level in [5, 6, 7] {
            let size = bag_size(view, &chosen, level)?;
            let each = |bytes: usize| bytes as f64 / accesses as f64;
            let travels = each(size.compact);
            let smaller = 100.0 * (1.0 - travels / plain);
            let cache = cache_bytes(view, level) as f64 / 1e6 * if root > 0 { 16.0 } else { 1.0 };
            report.results.push(object([
                ("bags of a state of", json!(accounts)),
                (
                    "accesses",
                    json!(format!("{accesses} {name}, {} keys", chosen.len())),
                ),
                ("nodes kept at depths below", json!(level)),
                ("proof of one, bytes", json!(plain)),
                ("bag, bytes an access", json!(each(size.bytes))),
                ("bag, compact, bytes an access", json!(travels)),
                ("bag, nodes", json!(size.nodes)),
                ("smaller by, %", json!(smaller)),
                ("memory of what is kept, MB", json!(cache)),
            ]));
            let wanted = if accounts > WHOLE_MAX { 7 } else { 6 };
            if level == wanted {
                report.targets.push(Target {
                    name: format!(
                        "bag against proofs, {accounts} accounts, {name}, level {}",
                        level - 1
                    ),
                    value: smaller,
                    unit: "% smaller",
                    target: "at least 95".to_owned(),
                    met: smaller >= 95.0,
                });
            }
        }
    }
    Ok(())
}

/// Bytes of the nodes above a level, and of the blinded nodes below them, in memory.
fn cache_bytes(view: VersionView<'_>, level: u8) -> usize {
    let mut kept = view.to_trie_above(level);
    kept.shrink_to_fit();
    kept.memory_bytes()
}

pub(crate) fn run(args: &ShardArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    let default =
        |given: Option<usize>, long, short| given.unwrap_or(if quick { short } else { long });
    let accounts = default(args.accounts, 1_190_000, 100_000).max(1);
    let bag_accounts = default(args.bag_accounts, 10_000_000, 300_000).max(1);
    let mut report = Report::new("shard");
    report
        .parameters
        .insert("rounds".to_owned(), json!(args.rounds));
    let builder_accounts = args
        .builder_accounts
        .unwrap_or(if quick { 50_000 } else { 1_000_000 });
    if let Some(unknown) = args.parts.iter().find(|it| !PARTS.contains(&it.as_str())) {
        let parts = PARTS.join(", ");
        return Err(format!("there is no part {unknown:?}: {parts}").into());
    }
    let is_wanted = |part: &str| args.parts.is_empty() || args.parts.iter().any(|it| it == part);
    if is_wanted("builder") {
        let transfers = (args.keys as u64).min(builder_accounts / 8);
        let work = builder::Work {
            accounts: builder_accounts,
            transfers,
            level: 4,
            rounds: args.rounds,
        };
        let mut threads = args.builder_threads.clone();
        if threads.is_empty() {
            threads = vec![NonZeroUsize::MIN];
            threads.extend(NonZeroUsize::new(cambium_crew::threads()));
            threads.dedup();
        }
        builder::run(&work, &threads, &mut report)?;
    }
    if is_wanted("remote") {
        let time = std::time::Duration::from_millis(if quick { 300 } else { 3_000 });
        remote::run(accounts, args.rounds, time, &mut report)?;
    }
    let mut one = CpuSet::new();
    one.set(0);
    if sched_setaffinity(None, &one).is_err() {
        report.notes.push("not bound to one core".to_owned());
    }
    if is_wanted("table") {
        table(args, accounts, &mut report)?;
    }
    if is_wanted("bags") {
        bags(args, bag_accounts, &mut report)?;
    }
    Ok(report)
}
