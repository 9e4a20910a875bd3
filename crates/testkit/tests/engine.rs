//! The engine beside the model, with and without crashes. `CAMBIUM_SEED=9060` runs that seed alone.

use cambium_state::FileSizes;
use cambium_testkit::{EngineDriver, EngineParams, FaultKinds, TINY_FILES, say};
use std::collections::BTreeMap;

const FAILURES: FaultKinds = FaultKinds {
    failures: true,
    ..FaultKinds::NONE
};

fn long() -> bool {
    std::env::var_os("CAMBIUM_LONG").is_some()
}

/// Returns what was done, and how often.
fn run(name: &str, seeds: u64, steps: u64, params: EngineParams) -> BTreeMap<&'static str, u64> {
    let mut done = BTreeMap::new();
    let only: Option<u64> = std::env::var("CAMBIUM_SEED").map_or(None, |seed| seed.parse().ok());
    let all = params.seed..params.seed + seeds;
    for seed in all.filter(|seed| only.is_none_or(|only| *seed == only)) {
        let mut driver = EngineDriver::new(EngineParams { seed, ..params });
        driver.run(steps);
        for (name, count) in &driver.done {
            *done.entry(*name).or_insert(0) += count;
        }
    }
    say(&format!("{name}: {seeds} runs of {steps} steps: {done:?}"));
    done
}

#[test]
fn the_engine_and_the_model_agree_through_blocks_branches_and_merges() {
    let params = EngineParams {
        seed: 1000,
        accounts: 3000,
        changes_max: 120,
        memory_bytes: 64 << 20,
        index_bytes_max: None,
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults: FaultKinds::NONE,
    };
    let (seeds, steps) = if long() { (100, 400) } else { (3, 120) };
    run("engine against model", seeds, steps, params);
}

#[test]
fn small_states_agree_down_to_the_last_account() {
    let params = EngineParams {
        seed: 2000,
        accounts: 6,
        changes_max: 6,
        memory_bytes: 64 << 20,
        index_bytes_max: None,
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults: FaultKinds::NONE,
    };
    let (seeds, steps) = if long() { (200, 400) } else { (6, 150) };
    run("small states", seeds, steps, params);
}

#[test]
fn small_memory_makes_merges_run_beside_all_else() {
    let params = EngineParams {
        seed: 4000,
        accounts: 2000,
        changes_max: 300,
        memory_bytes: 4 << 20,
        index_bytes_max: None,
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults: FaultKinds::NONE,
    };
    let (seeds, steps) = if long() { (50, 400) } else { (2, 150) };
    run("small memory", seeds, steps, params);
}

#[test]
fn acknowledged_blocks_survive_repeated_failures_of_the_disk() {
    let params = EngineParams {
        seed: 3000,
        accounts: 300,
        changes_max: 40,
        memory_bytes: 64 << 20,
        index_bytes_max: None,
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults: FAILURES,
    };
    let (seeds, steps) = if long() { (300, 400) } else { (6, 150) };
    run("failures", seeds, steps, params);
}

#[test]
fn an_index_on_disk_gives_what_one_in_memory_does() {
    let params = EngineParams {
        seed: 5000,
        accounts: 3000,
        changes_max: 120,
        memory_bytes: 64 << 20,
        // No more than the tops and a few parts.
        index_bytes_max: Some(16 << 10),
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults: FaultKinds::NONE,
    };
    let (seeds, steps) = if long() { (50, 400) } else { (3, 120) };
    let done = run("index on disk", seeds, steps, params);
    assert!(done["index on disk"] > 0 && !done.contains_key("index in memory"));
}

#[test]
fn an_index_that_is_in_memory_now_and_then_agrees_with_the_model() {
    let params = EngineParams {
        seed: 6000,
        accounts: 400,
        changes_max: 200,
        memory_bytes: 64 << 20,
        // About what it takes.
        index_bytes_max: Some(140 << 10),
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults: FaultKinds::NONE,
    };
    let (seeds, steps) = if long() { (50, 400) } else { (3, 120) };
    let done = run("index at its limit", seeds, steps, params);
    assert!(done["index on disk"] > 0 && done["index in memory"] > 0);
}

#[test]
fn acknowledged_blocks_survive_failures_with_an_index_on_disk() {
    let params = EngineParams {
        seed: 7000,
        accounts: 300,
        changes_max: 40,
        memory_bytes: 64 << 20,
        index_bytes_max: Some(0),
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults: FAILURES,
    };
    let (seeds, steps) = if long() { (300, 400) } else { (6, 150) };
    let done = run("failures, index on disk", seeds, steps, params);
    assert!(done["index on disk"] > 0);
}

/// With few blocks kept, so that old files leave the log all the time.
fn keeping_few(params: EngineParams) -> EngineParams {
    EngineParams {
        keep_blocks: Some(12),
        files: FileSizes {
            log_file_bytes_max: 8 << 10,
            log_extend_bytes: 4 << 10,
            ..TINY_FILES
        },
        ..params
    }
}

fn assert_files_left(done: &BTreeMap<&'static str, u64>) {
    for what in [
        "files have left the log",
        "refused for blocks that are not kept",
    ] {
        assert!(done.contains_key(what), "{what}: never");
    }
}

#[test]
fn old_blocks_leave_the_log_and_nothing_else() {
    let (seeds, steps) = if long() { (200, 400) } else { (6, 250) };
    let params = keeping_few(faulty(11_000, FaultKinds::NONE));
    assert_files_left(&run("few blocks kept", seeds, steps, params));
}

#[test]
fn old_blocks_leave_through_failures_of_the_disk() {
    let (seeds, steps) = if long() { (200, 400) } else { (6, 250) };
    let params = keeping_few(faulty(12_000, FAILURES));
    assert_files_left(&run("few blocks kept, failures", seeds, steps, params));
}

#[test]
fn a_file_that_rots_where_old_blocks_have_left_is_named_and_brought_back() {
    let faults = FaultKinds {
        rot: true,
        ..FaultKinds::NONE
    };
    let (seeds, steps) = if long() { (200, 400) } else { (4, 250) };
    let done = run(
        "few blocks kept, rot",
        seeds,
        steps,
        keeping_few(faulty(13_000, faults)),
    );
    assert_files_left(&done);
    for outcome in ["opens", "named", "whole after repair"] {
        assert!(done[&*format!("rot: {outcome}")] > 0);
    }
}

#[test]
fn what_a_disk_has_lost_is_told_where_old_blocks_have_left() {
    let faults = FaultKinds {
        lies: true,
        ..FaultKinds::NONE
    };
    let (seeds, steps) = if long() { (1000, 400) } else { (20, 250) };
    let done = run(
        "few blocks kept, lies",
        seeds,
        steps,
        keeping_few(faulty(14_000, faults)),
    );
    assert!(done["lies: opens"] + done["lies: named"] > seeds / 2);
}

fn faulty(seed: u64, faults: FaultKinds) -> EngineParams {
    EngineParams {
        seed,
        accounts: 300,
        changes_max: 40,
        memory_bytes: 64 << 20,
        index_bytes_max: None,
        merge_interval: None,
        files: TINY_FILES,
        keep_blocks: None,
        faults,
    }
}

#[test]
fn reads_that_fail_stop_nothing_for_good() {
    let faults = FaultKinds {
        failures: true,
        reads: true,
        ..FaultKinds::NONE
    };
    let (seeds, steps) = if long() { (300, 400) } else { (6, 150) };
    let done = run("failed reads", seeds, steps, faulty(8000, faults));
    assert!(done["went on after a failed read"] > 0);
}

#[test]
fn a_file_that_rots_is_named_and_brought_back() {
    let faults = FaultKinds {
        rot: true,
        ..FaultKinds::NONE
    };
    let (seeds, steps) = if long() { (200, 400) } else { (4, 150) };
    let done = run("rot", seeds, steps, faulty(9000, faults));
    for outcome in ["opens", "named", "whole after repair"] {
        assert!(done[&*format!("rot: {outcome}")] > 0);
    }
}

#[test]
fn what_a_disk_has_lost_is_never_taken_for_what_was_written() {
    let faults = FaultKinds {
        lies: true,
        ..FaultKinds::NONE
    };
    let (seeds, steps) = if long() { (2000, 400) } else { (30, 150) };
    let done = run("lies", seeds, steps, faulty(10_000, faults));
    assert!(done["lies: opens"] + done["lies: named"] > seeds / 2);
}
