//! Chains, branches and recent blocks of small synthetic databases.

use super::*;
use cambium_disk::FaultyDisk;
use std::sync::Arc;

fn hash(branch: u8, number: u64) -> B256 {
    let mut hash = B256::with_last_byte(branch);
    hash.0[16] = number as u8;
    hash
}

fn id(branch: u8, number: u64) -> BlockId {
    BlockId::new(number, hash(branch, number))
}

fn block(branch: u8, number: u64, parent: B256) -> RecentBlock {
    RecentBlock {
        id: id(branch, number),
        parent,
        position: LogPosition {
            file: 1 + u32::from(branch),
            offset: number as u32,
        },
    }
}

/// A range whose head is reached.
fn range(base: u64, head: u64, heights: u64) -> UnfinalizedRange {
    UnfinalizedRange {
        base,
        head,
        heights,
        target_head: None,
        finalized: None,
    }
}

/// Blocks 0 to 10 of branch 0, and branch 1 from its block 5 up to 12. The base is block 10.
fn two_branches() -> Blocks {
    let index = BlockIndex::open(Arc::new(FaultyDisk::new(1)), 0).unwrap().0;
    let parent = |branch, number: u64| hash(branch, number.saturating_sub(1));
    for number in 0..=10 {
        let entry = block(0, number, B256::ZERO).entry();
        index.set(number, entry).unwrap();
    }
    let blocks = Blocks::new(
        index,
        0,
        Kept::ALL,
        id(0, 10),
        vec![block(0, 10, parent(0, 10))],
    )
    .unwrap();
    blocks.insert(block(1, 6, hash(0, 5)));
    for number in 7..=12 {
        blocks.insert(block(1, number, parent(1, number)));
    }
    blocks
}

fn hashes(blocks: &Blocks, numbers: std::ops::RangeInclusive<u64>) -> Vec<Option<B256>> {
    let canonical = |number| blocks.canonical(number).unwrap();
    numbers
        .map(|number| canonical(number).map(|entry| entry.hash))
        .collect()
}

#[test]
fn the_canonical_chain_goes_through_index_base_and_head() {
    let blocks = two_branches();
    let of_branch_0 = [Some(hash(0, 9)), Some(hash(0, 10)), None];
    assert_eq!(hashes(&blocks, 9..=11), of_branch_0);
    blocks.set_head(blocks.chain_of(id(1, 12)).unwrap());
    let of_branch_1 = [Some(hash(0, 5)), Some(hash(1, 6)), Some(hash(1, 7))];
    assert_eq!(hashes(&blocks, 5..=7), of_branch_1);
    assert_eq!(hashes(&blocks, 12..=13), [Some(hash(1, 12)), None]);
    // Back to a block below the base: the blocks above it are not canonical any more.
    blocks.set_head(blocks.chain_of(id(0, 3)).unwrap());
    assert_eq!(hashes(&blocks, 3..=4), [Some(hash(0, 3)), None]);
    assert_eq!(blocks.ancestor_hash(id(1, 8), 6).unwrap(), Some(hash(1, 6)));
    assert_eq!(blocks.ancestor_hash(id(1, 8), 2).unwrap(), Some(hash(0, 2)));
}

#[test]
fn a_base_on_another_branch_takes_the_index_and_remembers_the_recent_blocks() {
    let blocks = two_branches();
    let head = id(1, 12);
    blocks.set_head(blocks.chain_of(head).unwrap());
    let plan = blocks.plan_move(head, range(12, 12, 3)).unwrap();
    blocks.move_base(plan);
    for _ in 0..2 {
        // Block 10 of branch 0 is recent, and the blocks between it and the base's chain are known.
        for number in 6..=10 {
            assert!(blocks.position_of(id(0, number)).unwrap().is_some());
        }
        assert_eq!(blocks.chain_of(id(0, 10)).unwrap().len(), 6);
        let of_branch_1 = [Some(hash(0, 5)), Some(hash(1, 6)), Some(hash(1, 7))];
        assert_eq!(hashes(&blocks, 5..=7), of_branch_1);
        assert_eq!(hashes(&blocks, 12..=13), [Some(hash(1, 12)), None]);
        blocks.extend_index().unwrap();
    }
    // Blocks far below the new base are forgotten.
    for number in 13..=20 {
        blocks.insert(block(1, number, hash(1, number - 1)));
    }
    let plan = blocks.plan_move(id(1, 20), range(20, 20, 3)).unwrap();
    assert_eq!(plan.recent().len(), 3);
    blocks.move_base(plan);
    assert_eq!(blocks.position_of(id(0, 10)).unwrap(), None);
    assert!(blocks.position_of(id(1, 13)).unwrap().is_some());
}

#[test]
fn ancestors_of_a_block_of_a_dropped_branch_are_an_error() {
    let blocks = two_branches();
    let head = id(1, 12);
    blocks.set_head(blocks.chain_of(head).unwrap());
    for number in 13..=20 {
        blocks.insert(block(1, number, hash(1, number - 1)));
    }
    let plan = blocks.plan_move(id(1, 20), range(20, 20, 3)).unwrap();
    blocks.move_base(plan);
    assert_eq!(
        blocks.ancestor_hash(id(1, 20), 3).unwrap(),
        Some(hash(0, 3))
    );
    // A view of that block may still be alive. `None` would mean that the block does not exist.
    let found = blocks.ancestor_hash(id(0, 10), 7);
    assert!(
        matches!(found, Err(StateError::UnknownBlock(_))),
        "{found:?}"
    );
}

#[test]
fn the_head_that_is_not_reached_yet_stays_known_with_its_branch() {
    let blocks = two_branches();
    let head = id(1, 12);
    let mut down = range(2, 2, 3);
    for (target_head, known) in [(None, false), (Some(head), true)] {
        down.target_head = target_head;
        let plan = blocks.plan_move(id(0, 2), down).unwrap();
        let recent = plan.recent();
        let on_the_way = recent.iter().filter(|block| block.id.hash.0[31] == 1);
        assert_eq!(on_the_way.count(), if known { 7 } else { 0 });
        assert_eq!(blocks.stays(&plan, head).unwrap(), known);
        assert!(blocks.stays(&plan, id(0, 1)).unwrap());
        // Block 10 of branch 0 is near the head that is not reached, and this is its parent.
        assert_eq!(blocks.stays(&plan, id(0, 9)).unwrap(), known);
    }
}

#[test]
fn blocks_near_a_head_that_is_not_reached_yet_stay_however_deep_its_way_leads() {
    let blocks = two_branches();
    // The head before, as high as the one to which the head in memory goes.
    let before = id(2, 12);
    blocks.insert(block(2, 11, hash(1, 10)));
    blocks.insert(block(2, 12, hash(2, 11)));
    let down = UnfinalizedRange {
        target_head: Some(id(1, 12)),
        ..range(2, 2, 3)
    };
    let plan = blocks.plan_move(id(0, 2), down).unwrap();
    assert!(blocks.stays(&plan, before).unwrap());
    assert!(plan.recent().iter().any(|block| block.id == before));
    // Branches beside blocks below the old head, which are near it as well.
    assert!(plan.recent().iter().any(|block| block.id == id(0, 10)));
}

#[test]
fn blocks_behind_a_missing_one_are_there_once_it_is() {
    let blocks = two_branches();
    // Block 13 of branch 1 is missing, and block 19 of branch 2 claims a height that is not its
    // own.
    for number in 14..=16 {
        blocks.insert_orphan(block(1, number, hash(1, number - 1)));
    }
    blocks.insert_orphan(block(2, 19, hash(1, 13)));
    assert_eq!(blocks.orphans(), 4);
    assert_eq!(blocks.position_of(id(1, 15)).unwrap(), None);
    // Orphans survive a merge and an opening.
    let plan = blocks.plan_move(id(1, 12), range(12, 12, 8)).unwrap();
    let recent = plan.recent();
    blocks.move_base(plan);
    blocks.extend_index().unwrap();
    let Blocks { index, .. } = blocks;
    let blocks = Blocks::new(index, 0, Kept::ALL, id(1, 12), recent).unwrap();
    assert_eq!(blocks.orphans(), 4);
    assert!(blocks.is_parent_known(13, &hash(1, 12)).unwrap());
    assert!(!blocks.is_parent_known(14, &hash(1, 13)).unwrap());
    assert_eq!(blocks.insert(block(1, 13, hash(1, 12))), 3);
    assert!(blocks.position_of(id(1, 16)).unwrap().is_some());
    assert_eq!(blocks.position_of(id(2, 19)).unwrap(), None);
    assert_eq!(blocks.chain_of(id(1, 16)).unwrap().len(), 4);
}

#[test]
fn recent_blocks_are_bounded() {
    let blocks = two_branches();
    for sibling in 0..10_000u32 {
        let mut one = block(2, 11, hash(0, 10));
        one.id.hash.0[..4].copy_from_slice(&sibling.to_be_bytes());
        one.position.offset = sibling;
        blocks.insert(one);
    }
    let plan = blocks.plan_move(id(1, 12), range(12, 12, 8)).unwrap();
    let recent = plan.recent();
    assert!(recent.len() <= RECENT_PER_HEIGHT_MAX * 9 + 10);
    let newest = recent.iter().map(|block| block.position).max().unwrap();
    assert_eq!((newest.file, newest.offset), (3, 9_999));
}
