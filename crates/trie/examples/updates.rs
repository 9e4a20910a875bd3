//! Time and memory of one trie: building it, and changing random accounts of it, on one thread;
//! then changing as many slots of one account that has as many, on one thread and on all.
//!
//! `cargo run --release -p cambium-trie --example updates [ACCOUNTS] [CHANGES] [ROUNDS]`

use alloy_primitives::{B256, U256};
use cambium_keccak::{Batch, keccak256, lanes};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, Path};
use cambium_trie::{
    HashJob, LeafValue, Lookup, NoResolve, PartialTrie, Spread, commit, commit_with,
};
use rayon::prelude::*;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

fn path(number: usize) -> B256 {
    keccak256(&(number as u64).to_le_bytes())
}

fn rich(wei: usize) -> Account {
    Account {
        nonce: 1,
        balance: U256::from(wei) << 40,
        ..Account::default()
    }
}

fn timed<T>(what: &str, times: usize, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let took = start.elapsed();
    let each = took.as_nanos() as usize / times.max(1);
    println!("{what:>44} {:>9.1} ms {each:>8} ns each", millis(took));
    result
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Threads of `rayon`.
struct Threads;

impl Spread for Threads {
    fn threads(&self) -> usize {
        rayon::current_num_threads()
    }

    fn run(&self, jobs: &mut [HashJob<'_>]) {
        jobs.par_iter_mut().for_each(HashJob::run);
    }
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|it| it.parse().expect("a number"));
    let accounts: usize = arguments.next().unwrap_or(1_000_000);
    let changed: usize = arguments.next().unwrap_or(50_000);
    let rounds: usize = arguments.next().unwrap_or(5);
    println!(
        "{accounts} accounts, {changed} changes a round, {} lanes",
        lanes()
    );

    let mut paths: Vec<_> = (0..accounts).map(path).collect();
    paths.sort_unstable();
    let mut batch = Batch::new();
    let mut trie = PartialTrie::new(Path::EMPTY);
    timed("build from sorted leaves", accounts, || {
        let leaves = paths.iter().enumerate();
        let leaves = leaves.map(|(at, p)| (Path::account(p), LeafValue::Account(rich(at))));
        let root = trie
            .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
            .expect("sorted");
        trie.set_root(root);
    });
    timed("hash all", accounts, || {
        commit(&mut [&mut trie], &mut batch)
    });
    let bytes = trie.memory_bytes();
    println!(
        "{:>44} {:>9} MiB {:>7} B each",
        "memory",
        bytes >> 20,
        bytes / accounts
    );
    timed("look up", changed, || {
        for number in 0..changed {
            let found = trie.lookup(&Path::account(&paths[number * 7919 % accounts]));
            assert!(matches!(black_box(found), Lookup::Account(_)));
        }
    });
    for round in 0..rounds {
        let start = round * changed;
        let random = |it| {
            path(accounts + it)[..6]
                .iter()
                .fold(0, |n, b| n << 8 | usize::from(*b))
        };
        let mut numbers: Vec<_> = (start..start + changed)
            .map(|it| random(it) % accounts)
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let changes = numbers.iter().map(|number| AccountDiff {
            path: paths[*number],
            account: AccountUpdate::Put(rich(number + round)),
            wipe: false,
            slots: vec![],
        });
        let changes = Changes::new(changes.collect());
        timed("apply changes", changed, || {
            trie.apply(changes.accounts(), &mut NoResolve)
                .expect("nothing is absent");
        });
        timed("hash what changed", changed, || {
            commit(&mut [&mut trie], &mut batch)
        });
    }
    println!("root {}", trie.state_root().expect("hashed"));
    drop(trie);
    change_slots(&paths, changed, rounds);
}

/// As above with slots of one account.
fn change_slots(slots: &[B256], changed: usize, rounds: usize) {
    let change = |slots| AccountDiff {
        path: path(0),
        account: AccountUpdate::Put(rich(1)),
        wipe: false,
        slots,
    };
    let mut batch = Batch::new();
    let mut trie = PartialTrie::new(Path::EMPTY);
    let all = change(slots.iter().map(|slot| (*slot, U256::ONE)).collect());
    trie.apply(&[all], &mut NoResolve)
        .expect("nothing is absent");
    commit(&mut [&mut trie], &mut batch);
    for round in 0..2 * rounds {
        let spread = round % 2 == 1;
        let stride = slots.len() / changed;
        let some = slots.iter().skip(round % stride).step_by(stride);
        let some = change(some.map(|slot| (*slot, U256::from(round + 2))).collect());
        timed("apply changes to slots", changed, || {
            trie.apply(&[some], &mut NoResolve)
                .expect("nothing is absent");
        });
        if spread {
            let what = format!("hash on {} threads", Threads.threads());
            timed(&what, changed, || {
                commit_with(&mut [&mut trie], &mut batch, &Threads)
            });
        } else {
            timed("hash on one thread", changed, || {
                commit(&mut [&mut trie], &mut batch)
            });
        }
    }
}
