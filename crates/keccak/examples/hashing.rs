//! Nanoseconds a hash over the sizes of trie nodes: one by one, in each number of lanes that the
//! processor has, and by `p3-keccak` (which wants inputs of one length). Rounds are interleaved,
//! and the best of each is shown.
//!
//! `cargo run --release -p cambium-keccak --example hashing`

use cambium_keccak::{Batch, keccak256};
use p3_keccak::Keccak256Hash;
use p3_symmetric::CryptographicHasher;
use std::{hint::black_box, time::Instant};

const INPUTS: usize = 512;
const ROUNDS: usize = 200;

fn main() {
    let mut batches: Vec<_> = [2, 4, 8]
        .into_iter()
        .filter_map(Batch::with_lanes)
        .collect();
    print!("{:>22} {:>10}", "ns a hash", "one by one");
    for batch in &batches {
        print!(" {:>8}", format!("{} lanes", batch.lanes()));
    }
    println!(" {:>8}", "p3");
    row(&mut batches, "32 bytes", |_| 32);
    row(&mut batches, "110 bytes", |_| 110);
    row(&mut batches, "account leaf ~110", |at| 104 + at % 12);
    row(&mut batches, "branch of 532", |_| 532);
    row(&mut batches, "branches of 2 to 16", |at| {
        532 - 32 * (at % 15)
    });
    row(&mut batches, "any length to 600", |at| at * 7919 % 600);
}

fn row(batches: &mut [Batch], name: &str, len: impl Fn(usize) -> usize) {
    let inputs: Vec<Vec<u8>> = (0..INPUTS).map(|at| vec![at as u8; len(at)]).collect();
    let of_one_length = inputs.iter().all(|input| input.len() == inputs[0].len());
    let mut single = f64::INFINITY;
    let mut batched = vec![f64::INFINITY; batches.len()];
    let mut other = f64::INFINITY;
    for _ in 0..ROUNDS {
        single = single.min(nanos(|| {
            for input in &inputs {
                black_box(keccak256(black_box(input)));
            }
        }));
        for (batch, best) in batches.iter_mut().zip(&mut batched) {
            *best = best.min(nanos(|| {
                batch.clear();
                for input in &inputs {
                    batch.push(black_box(input));
                }
                black_box(batch.run());
            }));
        }
        if of_one_length {
            let mut digests = [[0; 32]; INPUTS];
            other = other.min(nanos(|| {
                let mut joined = Vec::with_capacity(INPUTS * inputs[0].len());
                for input in &inputs {
                    joined.extend_from_slice(black_box(input));
                }
                Keccak256Hash.hash_many(&joined, black_box(&mut digests));
            }));
        }
    }
    print!("{name:>22} {single:>10.0}");
    for best in batched {
        print!(" {best:>8.0}");
    }
    println!(
        " {:>8}",
        if of_one_length {
            format!("{other:.0}")
        } else {
            "-".into()
        }
    );
}

/// Time of one round, by input.
fn nanos(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / INPUTS as f64
}
