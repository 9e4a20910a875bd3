//! The engine beside its model, with and without faults of the disk: one suite of cases, run with
//! each commitment.

use cambium_state::FileSizes;
use cambium_testkit::{
    EngineDriver, EngineParams, FaultKinds, TINY_FILES, TestedCommitment, is_long, say,
};
use cambium_trie::{Blake3, Commitment, Sha256};
use std::collections::BTreeMap;

/// A commitment in the suite. The seeds of a run are drawn from all of its variants in turn.
struct Suite {
    name: &'static str,
    variants: &'static [TestedCommitment],
    /// Added to the seeds of a case.
    seed: u64,
    /// Number of accounts in states that are not to be small.
    accounts: u64,
}

const MPT: Suite = Suite {
    name: "mpt",
    variants: &[TestedCommitment::Mpt],
    seed: 0,
    accounts: 3000,
};

/// Of about half of the accounts the storage root alone.
const PARTIAL: Suite = Suite {
    name: "partial",
    variants: &[TestedCommitment::Partial],
    seed: 80_000,
    accounts: 3000,
};

/// The model of a root compares the states before and after each block of two intervals.
const LAYERED: Suite = Suite {
    name: "layered",
    variants: &[
        TestedCommitment::Layered { interval: 1 },
        TestedCommitment::Layered { interval: 2 },
        TestedCommitment::Layered { interval: 4 },
        TestedCommitment::Layered { interval: 9 },
    ],
    seed: 20_000,
    accounts: 400,
};

const ENTRIES: Suite = Suite {
    name: "entries",
    variants: &[
        TestedCommitment::Entries(Commitment::Binary(&Blake3)),
        TestedCommitment::Entries(Commitment::Binary(&Sha256)),
        TestedCommitment::Entries(Commitment::Mpt),
    ],
    seed: 40_000,
    accounts: 3000,
};

/// The model compares whole states, as that of accounts does.
const LAYERED_ENTRIES: Suite = Suite {
    name: "layered entries",
    variants: &[
        TestedCommitment::LayeredEntries { interval: 1 },
        TestedCommitment::LayeredEntries { interval: 2 },
        TestedCommitment::LayeredEntries { interval: 4 },
        TestedCommitment::LayeredEntries { interval: 9 },
    ],
    seed: 60_000,
    accounts: 400,
};

/// Number of operations by name.
type Done = BTreeMap<&'static str, u64>;

const FAILURES: FaultKinds = FaultKinds {
    failures: true,
    ..FaultKinds::NONE
};
const READS: FaultKinds = FaultKinds {
    reads: true,
    ..FAILURES
};
const ROT: FaultKinds = FaultKinds {
    rot: true,
    ..FaultKinds::NONE
};
const LIES: FaultKinds = FaultKinds {
    lies: true,
    ..FaultKinds::NONE
};

impl Suite {
    /// Of little state, so that each block changes much of it.
    fn params(&self, seed: u64, faults: FaultKinds) -> EngineParams {
        EngineParams {
            seed: seed + self.seed,
            commitment: self.variants[0],
            accounts: 300,
            changes_max: 40,
            memory_bytes: 64 << 20,
            index_bytes_max: None,
            // References in the log, which an opening restores the tries from.
            files: FileSizes {
                log_reference_leaves: 12,
                ..TINY_FILES
            },
            keep_blocks: None,
            finalizes: false,
            faults,
        }
    }

    /// With few blocks kept, so that old files leave the log all the time.
    fn keeping_few(&self, seed: u64, faults: FaultKinds) -> EngineParams {
        EngineParams {
            keep_blocks: Some(12),
            files: FileSizes {
                log_file_bytes_max: 8 << 10,
                log_extend_bytes: 4 << 10,
                ..TINY_FILES
            },
            ..self.params(seed, faults)
        }
    }

    /// Seeds, of which `mpt` has `most` and others as many, or fewer where the case is about what is
    /// below all commitments.
    fn seeds(&self, most: u64, others: u64, long: u64) -> u64 {
        match (is_long(), self.name) {
            (true, _) => long,
            (false, "mpt") => most,
            (false, _) => others,
        }
    }

    fn run(&self, case: &str, seeds: u64, steps: u64, params: EngineParams) -> Done {
        let mut done = Done::new();
        let steps = if is_long() { 400 } else { steps };
        for seed in cambium_seeds::seeds!(params.seed..params.seed + seeds) {
            let at = seed.wrapping_sub(params.seed) as usize;
            let commitment = self.variants[at % self.variants.len()];
            let mut driver = EngineDriver::new(EngineParams {
                seed,
                commitment,
                ..params
            });
            driver.run(steps);
            for (name, count) in &driver.done {
                *done.entry(*name).or_insert(0) += count;
            }
        }
        let name = self.name;
        say(&format!(
            "{name}: {case}: {seeds} runs of {steps} steps: {done:?}"
        ));
        done
    }
}

/// Fails unless all of `what` was done.
#[track_caller]
fn assert_done(done: &Done, what: &[&str]) {
    for what in what {
        assert!(done.contains_key(what), "{what}: never, in {done:?}");
    }
}

const FILES_LEAVE: [&str; 2] = [
    "files have left the log",
    "refused for blocks that are not kept",
];
const ROT_OUTCOMES: [&str; 3] = ["rot: opens", "rot: named", "rot: whole after repair"];

fn agree(suite: &Suite) {
    let params = EngineParams {
        accounts: suite.accounts,
        changes_max: 120,
        ..suite.params(1000, FaultKinds::NONE)
    };
    let done = suite.run("blocks", suite.seeds(3, 6, 100), 120, params);
    let proofs = match suite.name {
        "mpt" => ["prove", "witness"],
        "partial" => ["prove partial", "refused proof of what is not kept"],
        "layered" => ["prove", "prove layered"],
        "layered entries" => ["prove layered entries", "layered witness"],
        _ => ["prove entries", "witness"],
    };
    assert_done(&done, &proofs);
    assert_done(
        &done,
        &["unwind", "side block", "blocks ahead", "reopen", "check"],
    );
}

fn small_states(suite: &Suite) {
    let params = EngineParams {
        accounts: 6,
        changes_max: 6,
        ..suite.params(2000, FaultKinds::NONE)
    };
    suite.run("small states", suite.seeds(6, 12, 400), 150, params);
}

fn small_memory(suite: &Suite) {
    let params = EngineParams {
        accounts: 2000,
        changes_max: 300,
        memory_bytes: 4 << 20,
        ..suite.params(4000, FaultKinds::NONE)
    };
    suite.run("small memory", suite.seeds(2, 2, 50), 120, params);
}

fn failures(suite: &Suite) {
    let params = suite.params(3000, FAILURES);
    suite.run("failures", suite.seeds(6, 6, 300), 150, params);
}

/// Where a shard has blocks above pages of accounts, and not above slots alone.
fn failures_with_blocks(suite: &Suite) {
    let state = EngineParams {
        accounts: 3000,
        ..suite.params(8000, FAILURES)
    };
    let params = [
        state,
        EngineParams {
            faults: ROT,
            ..state
        },
    ];
    for (case, params) in ["failures, blocks", "rot, blocks"].into_iter().zip(params) {
        let done = suite.run(case, suite.seeds(3, 2, 100), 120, params);
        assert_done(&done, &["blocks of the index opened"]);
    }
}

fn failed_reads(suite: &Suite) {
    let params = suite.params(8000, READS);
    let done = suite.run("failed reads", suite.seeds(6, 6, 300), 150, params);
    assert_done(&done, &["went on after a failed read"]);
}

fn index_on_disk(suite: &Suite) {
    let params = EngineParams {
        accounts: 3000,
        changes_max: 120,
        // No more than the tops and a few parts.
        index_bytes_max: Some(16 << 10),
        ..suite.params(5000, FaultKinds::NONE)
    };
    let done = suite.run("index on disk", suite.seeds(3, 2, 50), 100, params);
    assert!(done.contains_key("index on disk") && !done.contains_key("index in memory"));
}

fn failures_with_an_index_on_disk(suite: &Suite) {
    let params = EngineParams {
        // Fewer entries have no index below its top.
        accounts: match suite.name.ends_with("entries") {
            true => 3000,
            false => 300,
        },
        index_bytes_max: Some(0),
        ..suite.params(7000, FAILURES)
    };
    let seeds = suite.seeds(6, 3, 300);
    let done = suite.run("failures, index on disk", seeds, 150, params);
    assert_done(&done, &["index on disk"]);
}

fn few_blocks_kept(suite: &Suite) {
    let params = suite.keeping_few(11_000, FaultKinds::NONE);
    let done = suite.run("few blocks kept", suite.seeds(6, 6, 200), 250, params);
    assert_done(&done, &FILES_LEAVE);
}

fn few_blocks_kept_through_failures(suite: &Suite) {
    let params = suite.keeping_few(12_000, FAILURES);
    let seeds = suite.seeds(6, 3, 200);
    let done = suite.run("few blocks kept, failures", seeds, 250, params);
    assert_done(&done, &FILES_LEAVE[..1]);
}

const FINALITY: [&str; 4] = [
    "canonical",
    "refused finality",
    "freed branch",
    "block below finality",
];

fn finality(suite: &Suite) {
    let params = EngineParams {
        finalizes: true,
        ..suite.params(15_000, FaultKinds::NONE)
    };
    let done = suite.run("finality", suite.seeds(8, 8, 300), 250, params);
    assert_done(&done, &FINALITY);
}

fn finality_through_failures(suite: &Suite) {
    let params = EngineParams {
        finalizes: true,
        ..suite.keeping_few(16_000, READS)
    };
    let done = suite.run("finality, failures", suite.seeds(8, 4, 300), 250, params);
    assert_done(&done, &FINALITY[..2]);
}

fn finality_through_rot(suite: &Suite) {
    let params = EngineParams {
        finalizes: true,
        ..suite.params(17_000, ROT)
    };
    let done = suite.run("finality, rot", suite.seeds(4, 2, 200), 150, params);
    assert_done(&done, &FINALITY[..1]);
}

fn rot(suite: &Suite) {
    let params = suite.params(9000, ROT);
    let done = suite.run("rot", suite.seeds(4, 4, 200), 150, params);
    assert_done(&done, &ROT_OUTCOMES);
}

fn rot_where_few_blocks_are_kept(suite: &Suite) {
    let params = suite.keeping_few(13_000, ROT);
    let seeds = suite.seeds(4, 4, 200);
    let done = suite.run("few blocks kept, rot", seeds, 250, params);
    assert_done(&done, &FILES_LEAVE[..1]);
    assert_done(&done, &ROT_OUTCOMES);
}

fn lies(suite: &Suite) {
    let seeds = suite.seeds(30, 9, 2000);
    let done = suite.run("lies", seeds, 150, suite.params(10_000, LIES));
    assert_reckoned(&done, seeds);
}

fn lies_where_few_blocks_are_kept(suite: &Suite) {
    let seeds = suite.seeds(20, 6, 1000);
    let params = suite.keeping_few(14_000, LIES);
    let done = suite.run("few blocks kept, lies", seeds, 250, params);
    assert_reckoned(&done, seeds);
}

/// Most runs ended with a disk that had lied.
fn assert_reckoned(done: &Done, seeds: u64) {
    let count = |what| done.get(what).copied().unwrap_or(0);
    assert!(count("lies: opens") + count("lies: named") > seeds / 2);
}

/// Runs all cases with a commitment.
macro_rules! stamp {
    ($($module:ident: $suite:expr;)+) => {$(
        mod $module {
            #[test]
            fn the_engine_and_the_model_agree_through_blocks_branches_and_merges() {
                super::agree(&$suite);
            }

            #[test]
            fn small_states_agree_down_to_the_last_leaf() {
                super::small_states(&$suite);
            }

            #[test]
            fn small_memory_makes_merges_run_beside_all_else() {
                super::small_memory(&$suite);
            }

            #[test]
            fn acknowledged_blocks_survive_repeated_failures_of_the_disk() {
                super::failures(&$suite);
            }

            #[test]
            fn acknowledged_blocks_survive_failures_and_rot_where_the_index_has_blocks() {
                super::failures_with_blocks(&$suite);
            }

            #[test]
            fn reads_that_fail_stop_nothing_for_good() {
                super::failed_reads(&$suite);
            }

            #[test]
            fn an_index_on_disk_gives_what_one_in_memory_does() {
                super::index_on_disk(&$suite);
            }

            #[test]
            fn acknowledged_blocks_survive_failures_with_an_index_on_disk() {
                super::failures_with_an_index_on_disk(&$suite);
            }

            #[test]
            fn old_blocks_leave_the_log_and_nothing_else() {
                super::few_blocks_kept(&$suite);
            }

            #[test]
            fn old_blocks_leave_through_failures_of_the_disk() {
                super::few_blocks_kept_through_failures(&$suite);
            }

            #[test]
            fn finalized_blocks_stay_canonical_and_free_all_other_branches() {
                super::finality(&$suite);
            }

            #[test]
            fn what_is_finalized_survives_failures_of_the_disk() {
                super::finality_through_failures(&$suite);
            }

            #[test]
            fn what_is_finalized_is_canonical_whatever_file_rots() {
                super::finality_through_rot(&$suite);
            }

            #[test]
            fn a_file_that_rots_is_named_and_brought_back() {
                super::rot(&$suite);
            }

            #[test]
            fn a_file_that_rots_where_old_blocks_have_left_is_named_and_brought_back() {
                super::rot_where_few_blocks_are_kept(&$suite);
            }

            #[test]
            fn what_a_disk_has_lost_is_never_taken_for_what_was_written() {
                super::lies(&$suite);
            }

            #[test]
            fn what_a_disk_has_lost_is_told_where_old_blocks_have_left() {
                super::lies_where_few_blocks_are_kept(&$suite);
            }
        }
    )+};
}

stamp! {
    mpt: crate::engine::MPT;
    partial: crate::engine::PARTIAL;
    layered: crate::engine::LAYERED;
    entries: crate::engine::ENTRIES;
    layered_entries: crate::engine::LAYERED_ENTRIES;
}

#[test]
fn an_index_that_is_in_memory_now_and_then_agrees_with_the_model() {
    let params = EngineParams {
        accounts: 400,
        changes_max: 200,
        // About what it takes.
        index_bytes_max: Some(190 << 10),
        ..MPT.params(6000, FaultKinds::NONE)
    };
    let done = MPT.run("index at its limit", MPT.seeds(3, 3, 50), 120, params);
    assert_done(&done, &["index on disk", "index in memory"]);
}
