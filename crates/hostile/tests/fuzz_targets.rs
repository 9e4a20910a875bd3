//! The fuzz targets, without a fuzzer: over their seeds, and over random changes of them. A search
//! that is worth the name is `scripts/fuzz`.

use cambium_fuzz::{TARGETS, Target, seeds, target};
use cambium_seeds::Random;
use std::{
    fs,
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

/// Changed inputs of each target, at most.
const MUTATIONS: u64 = 3000;
/// Maximum time of each target: opening a database a thousand times takes longer.
const TIME_MAX: Duration = Duration::from_millis(900);

fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = fs::read_dir(folder.join(target.name)).expect("a folder of seeds");
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("a seed");
            let bytes = fs::read(entry.path()).expect("a seed");
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    seeds.sort();
    seeds
}

/// The seed with a few bytes changed, taken out, put in, or taken from another seed.
fn mutated(random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        let end = bytes.len().min(at + 1 + random.below(9) as usize);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            2 => drop(bytes.drain(at..end)),
            3 => drop(bytes.splice(at..at, [random.next() as u8, 0])),
            4 => bytes.truncate(at),
            _ => {
                let from = random.below(other.len() as u64 + 1) as usize;
                let piece = other[from..].iter().take(1 + random.below(32) as usize);
                drop(bytes.splice(at..at, piece.copied()));
            }
        }
    }
    bytes
}

/// Memory is counted for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn seeds_and_random_changes_of_them_are_read_as_promised() {
    let _alone = ALONE.lock();
    let mut random = Random::new(std::env::var("FUZZ_SEED").map_or(31, |s| s.parse().unwrap()));
    let only = std::env::var("FUZZ_ONLY").ok();
    let time_max =
        std::env::var("FUZZ_SECONDS").map_or(TIME_MAX, |s| Duration::from_secs(s.parse().unwrap()));
    let most = if only.is_some() { u64::MAX } else { MUTATIONS };
    for target in TARGETS
        .iter()
        .filter(|t| only.as_ref().is_none_or(|o| t.name == o))
    {
        let seeds = corpus(target);
        for (_, bytes) in &seeds {
            target.run(bytes);
        }
        let begin = Instant::now();
        let mut tried = 0;
        while tried < most && begin.elapsed() < time_max {
            let [seed, other] = [(); 2].map(|()| random.below(seeds.len() as u64) as usize);
            let bytes = mutated(&mut random, &seeds[seed].1, &seeds[other].1);
            let run = std::panic::catch_unwind(|| target.run(&bytes));
            if run.is_err() {
                panic!("{}: fails with the bytes {bytes:02x?}", target.name);
            }
            tried += 1;
        }
        println!(
            "{}: {} seeds, {tried} changed ones",
            target.name,
            seeds.len()
        );
    }
}

/// The folder may also have inputs found by a search and kept by a person.
#[test]
fn the_seeds_are_those_that_are_made() {
    let _alone = ALONE.lock();
    for target in TARGETS {
        let there = corpus(target);
        for (name, bytes) in seeds(target.name) {
            assert!(
                there.contains(&(name.clone(), bytes)),
                "{}/{name}: run `scripts/fuzz seeds`",
                target.name
            );
        }
    }
}

#[test]
fn each_target_has_its_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let programs = fs::read_dir(folder).expect("the programs").count();
    assert_eq!(programs, TARGETS.len());
    assert!(target("no such target").is_none());
}
