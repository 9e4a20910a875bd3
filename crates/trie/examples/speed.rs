//! Time and memory of one trie: building it, and changing random accounts of it, on one thread.
//!
//! `cargo run --release -p cambium-trie --example speed [ACCOUNTS] [CHANGES] [ROUNDS]`

use alloy_primitives::{B256, U256};
use cambium_keccak::{Batch, keccak256, lanes};
use cambium_primitives::{Account, AccountChange, AccountUpdate, Changes, Path};
use cambium_trie::{LeafValue, Lookup, NoResolve, PartialTrie, commit};
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
        let changes = numbers.iter().map(|number| AccountChange {
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
}
