//! Threads on one database, with files so small that merges, cleaning, checkpoints and new log files
//! come hundreds of times, and with faults that come meanwhile.

use cambium_testkit::{ConcurrentDriver, ConcurrentParams, RoundFaults, TINY_FILES, say};
use std::{collections::BTreeMap, sync::Once};

fn long() -> bool {
    std::env::var_os("CAMBIUM_LONG").is_some()
}

const fn params(seed: u64, faults: RoundFaults) -> ConcurrentParams {
    ConcurrentParams {
        seed,
        accounts: 400,
        changes_max: 40,
        memory_bytes: 4 << 20,
        index_bytes_max: None,
        files: TINY_FILES,
        readers: 3,
        steps: 100,
        faults,
    }
}

/// Lets panics that were asked for say nothing.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str() != Some("a panic that was asked for") {
                loud(panic);
            }
        }));
    });
}

/// Returns what was done, and how often.
fn run(
    name: &str,
    seeds: u64,
    rounds: u64,
    params: ConcurrentParams,
) -> BTreeMap<&'static str, u64> {
    let mut done = BTreeMap::new();
    for seed in 0..seeds {
        let mut driver = ConcurrentDriver::new(ConcurrentParams {
            seed: params.seed + seed,
            ..params
        });
        driver.run(rounds);
        for (name, count) in driver.done() {
            *done.entry(name).or_insert(0) += count;
        }
    }
    say(&format!(
        "{name}: {seeds} runs of {rounds} rounds: {done:?}"
    ));
    done
}

#[test]
fn readers_beside_blocks_branches_unwinds_and_merges_see_the_state_of_their_block() {
    let (seeds, rounds) = if long() { (4, 10) } else { (1, 1) };
    let done = run("threads", seeds, rounds, params(20_000, RoundFaults::None));
    assert!(done["merges"] > 30 * seeds * rounds && done["proofs"] > 0);
    assert!(!done.contains_key("reads that met a fault"));
}

#[test]
fn readers_beside_merges_see_the_state_of_their_block_with_an_index_on_disk() {
    let params = ConcurrentParams {
        index_bytes_max: Some(0),
        ..params(21_000, RoundFaults::None)
    };
    let (seeds, rounds) = if long() { (4, 10) } else { (1, 1) };
    run("threads, index on disk", seeds, rounds, params);
}

#[test]
fn reads_that_fail_are_errors_and_never_values_of_another_block() {
    let (seeds, rounds) = if long() { (4, 15) } else { (1, 2) };
    let done = run(
        "failed reads",
        seeds,
        rounds,
        params(22_000, RoundFaults::Reads),
    );
    assert!(done["reads that met a fault"] > 0);
}

#[test]
fn an_engine_that_stops_under_its_readers_opens_at_the_acknowledged_head() {
    let (seeds, rounds) = if long() { (6, 20) } else { (1, 3) };
    let done = run(
        "failures",
        seeds,
        rounds,
        params(23_000, RoundFaults::Failures),
    );
    assert!(done["stopped"] > 0);
}

#[test]
fn a_panic_in_an_update_or_a_merge_leaves_readers_and_the_disk_as_they_were() {
    quiet_panics();
    let (seeds, rounds) = if long() { (6, 30) } else { (1, 5) };
    let done = run("panics", seeds, rounds, params(24_000, RoundFaults::Panics));
    if long() {
        assert!(done["panics in an update"] > 0 && done["panics in a merge"] > 0);
    }
    assert!(done["rounds"] == seeds * rounds);
}
