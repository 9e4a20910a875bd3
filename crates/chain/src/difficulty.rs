//! Difficulty of proof-of-work blocks: each fork's formula (EIP-2, EIP-100), and the difficulty
//! bomb.

use crate::{ChainSpec, Fork};
use alloy_consensus::{Header, constants::EMPTY_OMMER_ROOT_HASH};
use alloy_primitives::U256;

/// Minimum difficulty.
const MIN: u64 = 131_072;
/// The difficulty changes in steps of the parent's difficulty divided by this.
const FRACTION: u64 = 2_048;
/// The bomb doubles every this many blocks.
const BOMB_PERIOD_BLOCKS: u64 = 100_000;
/// Maximum number of steps down (EIP-2).
const STEPS_DOWN_MAX: u64 = 99;

/// The difficulty of a child of `parent` with this timestamp, which must be later than the
/// parent's.
pub(crate) fn difficulty(spec: &ChainSpec, parent: &Header, timestamp: u64) -> U256 {
    let number = parent.number.saturating_add(1);
    let fork = spec.fork_at(number, timestamp, false);
    let late = timestamp.saturating_sub(parent.timestamp);
    let unit = parent.difficulty / U256::from(FRACTION);
    let (up, down) = match fork {
        Fork::Frontier => (u64::from(late < 13), u64::from(late >= 13)),
        Fork::Homestead | Fork::Tangerine | Fork::SpuriousDragon => steps(1, late / 10),
        _ => {
            let base = if parent.ommers_hash == EMPTY_OMMER_ROOT_HASH {
                1
            } else {
                2
            };
            steps(base, late / 9)
        }
    };
    let mut difficulty = parent
        .difficulty
        .saturating_add(unit.saturating_mul(U256::from(up)))
        .saturating_sub(unit.saturating_mul(U256::from(down)))
        .max(U256::from(MIN));
    let bomb_number = number.saturating_sub(spec.bomb_delay_blocks(number));
    let period = bomb_number / BOMB_PERIOD_BLOCKS;
    if period > 1 {
        let exponent = usize::try_from(period - 2).unwrap_or(usize::MAX).min(255);
        difficulty = difficulty.saturating_add(U256::from(1) << exponent);
    }
    difficulty
}

/// `base - slots`, as steps up and steps down.
fn steps(base: u64, slots: u64) -> (u64, u64) {
    (
        base.saturating_sub(slots),
        slots.saturating_sub(base).min(STEPS_DOWN_MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(number: u64, difficulty: u64) -> Header {
        Header {
            number,
            difficulty: U256::from(difficulty),
            timestamp: 1_000,
            ..Header::default()
        }
    }

    fn next(spec: &ChainSpec, parent: &Header, late: u64) -> u64 {
        difficulty(spec, parent, parent.timestamp + late).to()
    }

    #[test]
    fn frontier_moves_by_one_step_and_never_under_the_minimum() {
        let spec = ChainSpec::default();
        assert_eq!(next(&spec, &parent(1, 2_048_000), 12), 2_049_000);
        assert_eq!(next(&spec, &parent(1, 2_048_000), 13), 2_047_000);
        assert_eq!(next(&spec, &parent(1, MIN), 13), MIN);
    }

    #[test]
    fn homestead_falls_by_ninety_nine_steps_at_most() {
        let spec = ChainSpec {
            homestead_block: Some(0),
            ..ChainSpec::default()
        };
        assert_eq!(next(&spec, &parent(1, 2_048_000), 19), 2_048_000);
        assert_eq!(next(&spec, &parent(1, 2_048_000), 20), 2_047_000);
        assert_eq!(
            next(&spec, &parent(1, 2_048_000), 1_000_000),
            2_048_000 - 99_000
        );
    }

    #[test]
    fn the_bomb_doubles_each_hundred_thousand_blocks_and_is_set_back_by_forks() {
        let mut spec = ChainSpec {
            homestead_block: Some(0),
            ..ChainSpec::default()
        };
        assert_eq!(next(&spec, &parent(299_998, 2_048_000), 12), 2_048_000 + 1);
        assert_eq!(next(&spec, &parent(299_999, 2_048_000), 12), 2_048_000 + 2);
        spec.byzantium_block = Some(0);
        assert_eq!(next(&spec, &parent(3_299_998, 2_048_000), 9), 2_048_000 + 1);
    }
}
