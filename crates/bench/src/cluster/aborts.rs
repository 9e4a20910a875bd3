//! Transactions that a builder leaves out because the bags that came with them are stale: by the levels that it keeps, the number of
//! accounts, and the age of the bags. After figure 12 of DMPT.
//!
//! ```text
//!   block 0 ... block h-b ........... block h      a chain of full blocks, made by a builder that fetches what it lacks
//!                  |                     |
//!               clients run           builders, one for each retention level, which keep all nodes at
//!               a block's             their levels and reject incomplete paths, are given
//!               transactions -------> their submissions
//! ```
//!
//! DMPT counts the root as level 0: retention level r keeps nodes at depths below r + 1. Each sender sends once in all blocks, so that
//! nothing but an incomplete path makes a transaction fail; receivers are uniform or Zipf.

use super::genesis::Genesis;
use crate::report::{Report, object};
use alloy_consensus::{Header, Transaction as _};
use alloy_primitives::B256;
use cambium_chain::Transaction;
use cambium_cluster::{
    Builder, Incomplete, LeftOut, NodeBag, Reader, Service, Shard, ShardRange, Shards, Submission,
};
use cambium_evm::recover_senders;
use cambium_trie::{Deletes, ProofTargets};
use cambium_workload::{BlockSize, Spread, Workload, WorkloadParams};
use serde_json::json;
use std::{error::Error, sync::Arc};

/// Retention levels, as DMPT counts them: from 0 on.
pub(super) const LEVELS: u8 = 8;
/// Keys that a builder loads at once before it is measured.
const LOADED: usize = 10_000;

/// Sizes of the measurement.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) accounts: Vec<u64>,
    /// Transactions of a block.
    pub(super) block: u64,
    /// Ages of bags in blocks.
    pub(super) staleness: Vec<u64>,
}

/// Share of transactions that were left out, in per cent, by retention level.
pub(super) struct Curve {
    pub(super) accounts: u64,
    pub(super) receivers: &'static str,
    pub(super) staleness: u64,
    pub(super) aborted: Vec<f64>,
}

pub(super) fn run(sizes: &Sizes, report: &mut Report) -> Result<Vec<Curve>, Box<dyn Error>> {
    let mut curves = Vec::new();
    for accounts in &sizes.accounts {
        eprintln!("aborts: a state of {accounts} accounts");
        let state = State::new(*accounts, sizes)?;
        for (name, spread) in [("uniform", Spread::Uniform), ("Zipf", Spread::Zipf)] {
            curves.extend(state.measure(name, spread, sizes, report)?);
        }
    }
    for curve in &curves {
        report.results.push(object([
            ("aborts: accounts", json!(curve.accounts)),
            ("receivers", json!(curve.receivers)),
            ("bags are older by blocks", json!(curve.staleness)),
            ("aborted by level, %", json!(curve.aborted)),
        ]));
    }
    Ok(curves)
}

struct State {
    genesis: Genesis,
    params: WorkloadParams,
    shard: Arc<Shard>,
    shards: Shards,
    /// Paths of all accounts, in order.
    paths: Vec<B256>,
}

impl State {
    fn new(accounts: u64, sizes: &Sizes) -> Result<Self, Box<dyn Error>> {
        let oldest = sizes.staleness.iter().max().copied().unwrap_or(0);
        let needed = (oldest + 1) * sizes.block;
        if needed > accounts {
            return Err(format!("{needed} senders of {accounts} accounts").into());
        }
        let senders = (2 * needed).min(accounts);
        let params = WorkloadParams {
            accounts,
            senders: Some(senders),
            holders: Some(senders),
            blocks: 1,
            block_size: BlockSize::Transactions(sizes.block),
            erc20_percent: 0,
            fresh_percent: 0,
            ..WorkloadParams::default()
        };
        let genesis = Genesis::new(params.clone())?;
        let shard = genesis.shard(ShardRange::new(0, 1)?)?;
        let service: Arc<dyn Service> = Arc::clone(&shard) as _;
        Ok(Self {
            paths: genesis.paths().collect(),
            genesis,
            params,
            shard,
            shards: Shards::new(vec![vec![service]])?,
        })
    }

    fn measure(
        &self,
        receivers: &'static str,
        spread: Spread,
        sizes: &Sizes,
        report: &mut Report,
    ) -> Result<Vec<Curve>, Box<dyn Error>> {
        let (accounts, spec) = (self.params.accounts, &self.genesis.spec);
        eprintln!("aborts: {accounts} accounts, {receivers}: blocks");
        let oldest = sizes.staleness.iter().max().copied().unwrap_or(0);
        let count = ((oldest + 1) * sizes.block) as usize;
        let workload = Workload::new(WorkloadParams {
            spread,
            ..self.params.clone()
        })?;
        // Each sender's first.
        let transactions = workload.transactions().flatten();
        let first = transactions.filter(|transaction| transaction.nonce() == 0);
        let mut transactions: Vec<_> = first.take(count).collect();
        let measured = transactions.split_off(count - sizes.block as usize);
        let headers = self.chain(&transactions, sizes.block as usize)?;
        let head = headers.last().ok_or("no head")?;
        let draft = spec.draft(head, head.hash_slow(), &self.genesis.attributes(head));
        let senders = recover_senders(&measured, true)?;
        let clients: Vec<_> = sizes
            .staleness
            .iter()
            .map(|age| {
                let header = &headers[(oldest - age) as usize];
                (header, Reader::new(self.shards.clone(), header, 1, 1))
            })
            .collect();
        let mut aborted = vec![Vec::new(); clients.len()];
        for level in 0..LEVELS {
            eprintln!("aborts: {accounts} accounts, {receivers}: level {level}");
            let depth = level + 1;
            let kept = self.warm(head, depth)?;
            let mut bytes = 0;
            for ((header, client), aborted) in clients.iter().zip(&mut aborted) {
                let guessed =
                    spec.draft(header, header.hash_slow(), &self.genesis.attributes(header));
                let mut submissions = Vec::with_capacity(measured.len());
                for (transaction, sender) in measured.iter().zip(&senders) {
                    let transaction = transaction.clone();
                    let guessed = &guessed.header;
                    submissions.push(Submission::prepare(
                        client,
                        spec,
                        guessed,
                        transaction,
                        *sender,
                        depth,
                    )?);
                }
                bytes += submissions.iter().map(|it| it.bag.bytes()).sum::<usize>();
                let mut builder = Builder::new(kept.clone(), spec.clone(), 1, Incomplete::Reject);
                let built = builder.build(draft.clone(), &submissions)?;
                let is_stale = |why: &LeftOut| matches!(why, LeftOut::Stale { .. });
                let (stale, others): (Vec<_>, Vec<_>) = built
                    .left_out
                    .into_iter()
                    .partition(|(_, why)| is_stale(why));
                if let Some((_, why)) = others.first() {
                    let count = others.len();
                    report
                        .errors
                        .push(format!("aborts: {count} transactions left out: {why}"));
                }
                aborted.push(100.0 * stale.len() as f64 / measured.len() as f64);
            }
            let each = bytes as f64 / (clients.len() * measured.len()) as f64;
            report.results.push(object([
                ("builder of a state of", json!(accounts)),
                ("receivers", json!(receivers)),
                ("retention level", json!(level)),
                (
                    "memory of what is kept, MB",
                    json!(kept.memory_bytes() as f64 / 1e6),
                ),
                ("bag of a payment, bytes", json!(each)),
            ]));
        }
        let curves = sizes.staleness.iter().zip(aborted);
        Ok(curves
            .map(|(staleness, aborted)| Curve {
                accounts,
                receivers,
                staleness: *staleness,
                aborted,
            })
            .collect())
    }

    /// Makes a chain of full blocks. Returns the headers, from genesis on.
    fn chain(
        &self,
        transactions: &[Transaction],
        block: usize,
    ) -> Result<Vec<Header>, Box<dyn Error>> {
        let spec = &self.genesis.spec;
        let mut headers = vec![self.genesis.header.clone()];
        let reader = Reader::new(self.shards.clone(), &headers[0], 4, 1);
        let mut builder = Builder::new(reader, spec.clone(), 1, Incomplete::Fetch);
        for transactions in transactions.chunks(block) {
            let (parent, head) = (&headers[headers.len() - 1], builder.reader().block());
            let draft = spec.draft(parent, head.hash, &self.genesis.attributes(parent));
            let bare = transactions.iter().map(|transaction| Submission {
                transaction: transaction.clone(),
                ran_on: head,
                touched: ProofTargets::default(),
                bag: NodeBag::default(),
            });
            let built = builder.build(draft, &bare.collect::<Vec<_>>())?;
            if let Some((_, why)) = built.left_out.first() {
                return Err(format!("a transaction of the chain is left out: {why}").into());
            }
            self.shard.apply(built.id, &built.update)?;
            headers.push(built.block.header);
        }
        Ok(headers)
    }

    /// A reader that has all nodes at depths below `depth`, as that of a builder which has run for long.
    fn warm(&self, head: &Header, depth: u8) -> Result<Reader, Box<dyn Error>> {
        let mut reader = Reader::new(self.shards.clone(), head, depth, 1);
        // One key for each of the prefixes that are there has all of these nodes on its path.
        let mut keys = self.paths.clone();
        keys.dedup_by_key(|key| prefix(key, depth));
        for keys in keys.chunks(LOADED) {
            let keys = keys.iter().map(|key| (*key, Vec::new()));
            reader.load(&ProofTargets::new(keys.collect()), Deletes::Nothing)?;
        }
        reader.settle()?;
        Ok(reader)
    }
}

/// The first nibbles of a path, at most 16.
fn prefix(path: &B256, nibbles: u8) -> u64 {
    let first = u64::from_be_bytes(path[..8].try_into().expect("eight bytes"));
    first >> (64 - 4 * u32::from(nibbles))
}
