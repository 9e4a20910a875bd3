//! Nanoseconds a hash, batched and one by one, over the sizes of trie nodes.
//!
//! `cargo run --release -p cambium-keccak --example speed`

use cambium_keccak::{Batch, keccak256, lanes};
use std::{hint::black_box, time::Instant};

const INPUTS: usize = 4096;
const ROUNDS: usize = 20;

fn main() {
    println!("{} lanes", lanes());
    println!(
        "{:>22} {:>12} {:>12} {:>8}",
        "input", "one by one", "batched", "ratio"
    );
    row("32 bytes", |_| 32);
    row("account leaf ~110", |at| 104 + at % 12);
    row("branch of 532", |_| 532);
    row("branches of 2 to 16", |at| 532 - 32 * (at % 15));
    row("any length to 600", |at| at * 7919 % 600);
}

fn row(name: &str, len: impl Fn(usize) -> usize) {
    let inputs: Vec<Vec<u8>> = (0..INPUTS).map(|at| vec![at as u8; len(at)]).collect();
    let single = nanos(|| {
        for input in &inputs {
            black_box(keccak256(black_box(input)));
        }
    });
    let mut batch = Batch::new();
    let batched = nanos(|| {
        batch.clear();
        for input in &inputs {
            batch.push(black_box(input));
        }
        black_box(batch.run());
    });
    println!(
        "{name:>22} {single:>9.0} ns {batched:>9.0} ns {:>7.2}x",
        single / batched
    );
}

/// Best time of a round, by input.
fn nanos(mut work: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / INPUTS as f64
    });
    times.fold(f64::INFINITY, f64::min)
}
