//! Random blocks full of conflicts, by all executors.

use alloy_primitives::B256;
use cambium_evm::{
    BatchBlock, BlockInput, Executor, ExecutorKind, Hooks, Sequential, execute_batch,
};
use cambium_primitives::AccessListLimits;
use cambium_testkit::{
    Random, RandomBlocks, Unanimous, assert_same_outcome, is_long, mutated, say,
};
use revm::primitives::hardfork::SpecId;
use std::num::NonZeroUsize;

/// Seeds of a run in its short form and in its long form.
fn seeds(short: u64, long: u64) -> std::ops::Range<u64> {
    0..if is_long() { long } else { short }
}

#[test]
fn all_executors_say_the_same_of_random_blocks() {
    let executor = Unanimous::default();
    let (mut valid, mut invalid, mut transactions) = (0, 0, 0);
    for seed in cambium_seeds::seeds!(seeds(150, 20_000)) {
        let (mut blocks, mut state) = RandomBlocks::new(seed);
        for _ in 0..3 {
            let block = blocks.block(&state);
            let input = block.input();
            match executor.execute(&input, &state, Hooks::default()) {
                Err(_) => invalid += 1,
                Ok(outcome) => {
                    valid += 1;
                    transactions += outcome.receipts.len();
                    state.apply(&outcome.changes);
                    state.add_codes(outcome.codes);
                }
            }
        }
    }
    say(&format!(
        "  {valid} random blocks of {transactions} transactions, and {invalid} that are invalid"
    ));
    assert!(valid > 4 * invalid && invalid > 0);
    assert!(executor.listed() > valid, "half of them have lists");
    let ahead = executor.ahead();
    say(&format!(
        "  {ahead} times a transaction was right to run ahead of its turn"
    ));
    // How often depends on when threads run.
    assert!(ahead > 0);
}

/// In the last block of this seed, of Amsterdam, a contract creates another one with a value that it
/// may not have, depending on earlier transactions. revm compares the two before there is a frame.
#[test]
fn a_creation_that_may_lack_its_value_depends_on_the_balance() {
    let executor = Unanimous::default();
    for _ in 0..8 {
        let (mut blocks, mut state) = RandomBlocks::new(1348);
        for _ in 0..3 {
            let block = blocks.block(&state);
            let outcome = executor.execute(&block.input(), &state, Hooks::default());
            let outcome = outcome.unwrap();
            state.apply(&outcome.changes);
            state.add_codes(outcome.codes);
        }
    }
}

#[test]
fn random_blocks_executed_at_once_are_what_they_are_one_by_one() {
    let (mut at_once, mut told) = (0, 0);
    for seed in cambium_seeds::seeds!(seeds(150, 20_000)) {
        let (mut blocks, first) = RandomBlocks::new(seed);
        let (mut state, mut done) = (first.clone(), Vec::new());
        while done.len() < 4 {
            let block = blocks.block(&state);
            let mut input = block.input();
            input.rules.block_access_list = true;
            let outcome = Sequential.execute(&input, &state, Hooks::default());
            let Ok(outcome) = outcome else { break };
            state.apply(&outcome.changes);
            state.add_codes(outcome.codes.iter().cloned());
            done.push((block, outcome));
        }
        let batch = done
            .iter()
            .enumerate()
            .map(|(index, (block, outcome))| BatchBlock {
                input: BlockInput {
                    access_list: outcome.access_list.as_ref(),
                    ..block.input()
                },
                hash: B256::with_last_byte(index as u8),
            });
        let batch: Vec<_> = batch.collect();
        let has_lists = batch
            .first()
            .is_some_and(|block| block.input.rules.is(SpecId::CANCUN));
        let threads = NonZeroUsize::new(3).expect("three");
        execute_batch(&batch, &first, threads, |index, outcome, _| {
            assert!(has_lists || outcome.is_none());
            at_once += u64::from(has_lists);
            if let Some(outcome) = outcome {
                told += 1;
                assert_same_outcome(&outcome, &done[index].1, &format!("seed {seed}"));
            }
            true
        });
    }
    say(&format!(
        "  {told} of {at_once} random blocks executed at once with others"
    ));
    assert!(told > 100 && told * 10 > at_once * 9);
}

#[test]
fn no_executor_is_misled_by_a_list_with_something_else_in_one_place() {
    let executor = Unanimous::default();
    let mut lists = 0;
    for seed in cambium_seeds::seeds!(seeds(60, 5_000)) {
        let (mut blocks, state) = RandomBlocks::new(seed);
        let block = blocks.block(&state);
        let mut input = block.input();
        input.rules.block_access_list = true;
        let outcome = Sequential.execute(&input, &state, Hooks::default());
        let Ok(done) = &outcome else { continue };
        let list = done.access_list.as_ref().expect("it was asked for");
        let limits = AccessListLimits::of_transactions(input.transactions.len());
        let mut random = Random::new(seed);
        for kind in ExecutorKind::ALL[1..].iter().cycle().take(12) {
            let Some(false_list) = mutated(&mut random, list, &limits) else {
                continue;
            };
            let input = BlockInput {
                access_list: Some(&false_list),
                ..input
            };
            executor.compare(&input, &state, &outcome, &[*kind]);
            lists += 1;
        }
    }
    say(&format!("  {lists} lists with something else in one place"));
    assert!(lists > 100);
}
