//! A long chain, with reorganizations, that a follower follows; and the same made afterwards.

use super::world::*;
use cambium_history::{HistoryFollower, HistoryOptions, WholeNodes};
use cambium_testkit::{is_long, say};
use std::num::NonZeroU32;

/// Distance in blocks between remembered models.
const REMEMBERED: u64 = 97;

impl World {
    /// Compares the states at the canonical blocks whose models are remembered.
    fn compare_remembered(&self) -> u64 {
        let head = self.db.head().number;
        let mut compared = 0;
        for number in (0..=head).step_by(REMEMBERED as usize) {
            self.compare(number);
            assert!(self.history.check_nodes(&self.db, number).unwrap());
            compared += 1;
        }
        compared
    }
}

#[test]
fn a_long_chain_is_as_it_was_at_any_block() {
    let blocks = if is_long() { 100_000 } else { 4_000 };
    let nodes = Some(WholeNodes {
        one_of: NonZeroU32::new(5).unwrap(),
    });
    let options = HistoryOptions {
        memory_bytes: 1 << 20,
        trie_bytes: 1 << 20,
        ..LITTLE
    };
    let mut world = World::with(nodes, 71).remade(0, nodes, options);
    world.crowd();
    let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
    let mut unwound = 0;
    while world.db.head().number < blocks {
        let before = world.db.head();
        world.block();
        if !before.number.is_multiple_of(REMEMBERED) {
            world.models.remove(&before.hash);
        }
        if world.random.below(400) == 0 {
            let head = world.db.head().number;
            let back = world.random.below(4) * REMEMBERED;
            let to = (head.saturating_sub(back) / REMEMBERED) * REMEMBERED;
            world.db.unwind(to).unwrap();
            unwound += head - to;
        }
        if world.random.below(200) == 0 {
            world.db.flush(world.blocks as usize % 4).unwrap();
        }
    }
    follower.finish().unwrap();
    assert_eq!(world.history.durable(), world.db.head());
    let followed = world.compare_remembered();
    world.history.check().unwrap();
    let bytes = world.history.stats().file_bytes;
    let head = world.db.head().number;
    let world = world.remade(head, nodes, options);
    world
        .history
        .extend_down(&world.db, 0, &mut |_| true)
        .unwrap();
    let made = world.compare_remembered();
    world.history.check().unwrap();
    assert_eq!(made, followed);
    say(&format!(
        "{head} blocks, {unwound} unwound, {made} states compared twice, {bytes} bytes"
    ));
    assert!(made > 40 && unwound > 500);
}
