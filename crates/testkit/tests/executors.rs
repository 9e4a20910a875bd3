//! Random blocks full of conflicts, by all executors.

use alloy_primitives::B256;
use cambium_evm::{
    BatchBlock, BlockInput, Executor, ExecutorKind, Hooks, Outcome, Sequential, execute_batch,
};
use cambium_primitives::AccessListLimits;
use cambium_testkit::{
    Model, Random, RandomBlock, RandomBlocks, Unanimous, assert_same_outcome, is_long, mutated, say,
};
use revm::primitives::hardfork::SpecId;
use std::num::NonZeroUsize;

/// Seeds of a run in its short form and in its long form.
fn seeds(short: u64, long: u64) -> std::ops::Range<u64> {
    0..if is_long() { long } else { short }
}

#[test]
fn all_executors_say_the_same_of_contracts_that_come_and_go() {
    let executor = Unanimous::thorough();
    for seed in cambium_seeds::seeds!(seeds(300, 20_000)) {
        let (mut blocks, mut state) = RandomBlocks::of_mortals(seed);
        for _ in 0..4 {
            let block = blocks.block(&state);
            if let Ok(outcome) = executor.execute(&block.input(), &state, Hooks::default()) {
                state.apply(&outcome.changes);
                state.add_codes(outcome.codes);
            }
        }
    }
    assert!(executor.ahead() > 0);
}

#[test]
fn all_executors_say_the_same_of_random_blocks() {
    let executor = Unanimous::thorough();
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

/// Consecutive valid blocks with their outcomes, and the state before them.
fn consecutive(seed: u64) -> (Model, Vec<(RandomBlock, Outcome)>) {
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
    (first, done)
}

fn batch_of(done: &[(RandomBlock, Outcome)]) -> Vec<BatchBlock<'_>> {
    let batch = done.iter().enumerate();
    let batch = batch.map(|(index, (block, outcome))| BatchBlock {
        input: BlockInput {
            access_list: outcome.access_list.as_ref(),
            ..block.input()
        },
        hash: B256::with_last_byte(index as u8),
    });
    batch.collect()
}

/// A number of threads, another one for the next seed.
fn threads(seed: u64) -> NonZeroUsize {
    let all = [1, 2, 16, 64];
    NonZeroUsize::new(all[seed as usize % all.len()]).expect("not zero")
}

/// In the last block of this seed, of Amsterdam, a contract creates another one with a value that it
/// may not have, depending on earlier transactions. revm compares the two before there is a frame.
#[test]
fn a_creation_that_may_lack_its_value_depends_on_the_balance() {
    let executor = Unanimous::thorough();
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
        let (first, done) = consecutive(seed);
        let batch = batch_of(&done);
        let has_lists = batch
            .first()
            .is_some_and(|block| block.input.rules.is(SpecId::CANCUN));
        let mut expected = 0;
        execute_batch(&batch, &first, threads(seed), |index, outcome, _| {
            assert_eq!(index, expected);
            expected += 1;
            assert!(has_lists || outcome.is_none());
            at_once += u64::from(has_lists);
            if let Some(outcome) = outcome {
                told += 1;
                assert_same_outcome(&outcome, &done[index].1, &format!("seed {seed}"));
            }
            true
        });
        assert_eq!(expected, batch.len(), "seed {seed}");
    }
    say(&format!(
        "  {told} of {at_once} random blocks executed at once with others"
    ));
    assert!(told > 100 && told * 10 > at_once * 9);
}

#[test]
fn a_false_list_in_a_batch_changes_no_outcome_up_to_its_block() {
    let (mut false_lists, mut before, mut refused) = (0, 0, 0);
    for seed in cambium_seeds::seeds!(seeds(100, 10_000)) {
        let (first, done) = consecutive(seed);
        let batch = batch_of(&done);
        let first_block = batch.first();
        if !first_block.is_some_and(|block| block.input.rules.is(SpecId::CANCUN)) {
            continue;
        }
        let mut random = Random::new(seed);
        for place in 0..batch.len() {
            let input = batch[place].input;
            let list = input.access_list.expect("it was recorded");
            let limits = AccessListLimits::of_transactions(input.transactions.len());
            let mut tries = (0..8).map(|_| mutated(&mut random, list, &limits));
            let Some(false_list) = tries.find_map(|made| made) else {
                continue;
            };
            let mut others = batch.clone();
            others[place].input.access_list = Some(&false_list);
            let mut outcomes = Vec::new();
            execute_batch(
                &others,
                &first,
                threads(seed + place as u64),
                |_, outcome, _| {
                    outcomes.push(outcome);
                    // As a caller that refuses the block.
                    outcomes.len() <= place
                },
            );
            assert_eq!(outcomes.len(), place + 1, "seed {seed}");
            let right = outcomes.iter().zip(&done);
            for (outcome, (_, expected)) in right.take(place) {
                if let Some(outcome) = outcome {
                    before += 1;
                    assert_same_outcome(outcome, expected, &format!("seed {seed}"));
                }
            }
            false_lists += 1;
            match outcomes.last().and_then(Option::as_ref) {
                None => refused += 1,
                // Its list is the true one, not the one that came with it.
                Some(outcome) => assert_same_outcome(outcome, &done[place].1, "a false list"),
            }
            // Later blocks run to the end, whatever becomes of them.
            let mut count = 0;
            execute_batch(&others, &first, threads(seed), |_, _, _| {
                count += 1;
                true
            });
            assert_eq!(count, batch.len(), "seed {seed}");
        }
    }
    say(&format!(
        "  {false_lists} false lists in batches, {refused} of them found by a step, after {before} right blocks"
    ));
    assert!(false_lists > 100 && before > 100 && refused * 2 > false_lists);
}

#[test]
fn no_executor_is_misled_by_a_list_with_something_else_in_one_place() {
    let executor = Unanimous::thorough();
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
