//! What becomes of choices, and of blocks beside the head.

use crate::common::databases::*;
use cambium_chain::InitOptions;
use cambium_cluster::{BlockUpdate, Taken};
use cambium_state::Options;

/// Promise: lies about a branch do not end a follower.
#[test]
fn a_choice_whose_blocks_are_on_different_branches_does_not_end_the_follower() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 2);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let genesis = node.chain().db().head();
    let other = marked(&updates[0], 9);
    node.feed(|feeding| {
        feeding.take(signed(updates[0].clone())).unwrap();
        feeding.take(signed(updates[1].clone())).unwrap();
        feeding.take(signed(other.clone())).unwrap();
        assert_eq!(feeding.database.followed().blocks, 3);
        let head = updates[1].id();
        let taken = feeding.take(chosen(1, head, other.id(), genesis));
        assert!(
            taken.is_ok(),
            "safe on another branch: {}",
            taken.unwrap_err()
        );
        let taken = feeding.take(chosen(2, head, head, other.id()));
        assert!(
            taken.is_ok(),
            "finalized on another branch: {}",
            taken.unwrap_err()
        );
        // What is right is followed afterwards.
        feeding
            .take(chosen(3, head, head, updates[0].id()))
            .unwrap();
    });
    assert_eq!(node.chain().db().head(), updates[1].id());
}

/// Promise: every follower ends at the builder's head. A choice that the database refuses does not make later ones wrong.
#[test]
fn a_choice_that_is_refused_does_not_raise_what_is_final() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let genesis = node.chain().db().head();
    let other = marked(&updates[2], 9);
    node.feed(|feeding| {
        for update in updates.iter().chain([&other]) {
            feeding.take(signed(update.clone())).unwrap();
        }
        let head = updates[2].id();
        // The final block is on another branch than the head.
        let _ = feeding.take(chosen(1, head, other.id(), other.id()));
        assert_eq!(node.chain().db().finality().finalized, None);
        feeding
            .take(chosen(2, head, updates[0].id(), genesis))
            .unwrap();
    });
    assert_eq!(node.chain().db().head(), updates[2].id());
}

/// Promise: a choice of the builder sets head, safe and finalized block.
#[test]
fn a_choice_whose_safe_block_is_the_final_one_sets_it() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 6);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let id = |number: usize| updates[number - 1].id();
    node.feed(|feeding| {
        feeding.take_all(&updates);
        feeding.take(chosen(1, id(6), id(5), id(2))).unwrap();
        feeding.take(chosen(2, id(6), id(2), id(2))).unwrap();
    });
    let finality = node.chain().db().finality();
    assert_eq!(finality.finalized, Some(id(2)));
    assert_eq!(finality.safe, Some(id(2)));
}

/// The same for a stream whose choices are all lost but the last.
#[test]
fn many_blocks_without_a_choice_between_them_are_followed() {
    let blocks = 200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&updates, false);
    builder.choose();
    for crashes in [false, true] {
        let mut node = Node::new(&workload, 7, None, &Kept::default());
        for _ in 0..10 {
            if crashes {
                node.read(&builder.stream, 23);
                node.crash();
            }
        }
        node.read(&builder.stream, u64::MAX);
        assert_eq!(
            node.chain().db().head(),
            builder.head(),
            "crashes: {crashes}"
        );
    }
}

/// Promise: lies about a branch do not end a follower. This one builds on a block whose state is not kept any more.
#[test]
fn a_block_on_an_old_one_does_not_end_the_follower() {
    let blocks = 200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let genesis = engine.chain.db().genesis();
    let few = Options {
        keep_blocks: Some(8),
        unfinalized_blocks: 4,
        ..options()
    };
    let node = Node::with(&workload, 1, InitOptions::from(few), &Kept::default());
    node.feed(|feeding| {
        for (at, update) in updates.iter().enumerate() {
            feeding.take(signed(update.clone())).unwrap();
            feeding
                .take(chosen(1 + at as u64, update.id(), genesis, genesis))
                .unwrap();
        }
        assert_eq!(node.chain().db().head(), updates[blocks as usize - 1].id());
        node.chain().db().flush(0).unwrap();
        let mut ended = Vec::new();
        for at in [1, 20, 100, 150, 180, 190, 195] {
            let id = updates[at - 1].id();
            let what = feeding.take(signed(marked(&updates[at], 77)));
            if let Err(error) = what {
                ended.push(format!("a block on {id}: {error}"));
            }
            let number = feeding.database.state().choice + 1;
            let what = feeding.take(chosen(number, id, genesis, genesis));
            if let Err(error) = what {
                ended.push(format!("the choice of {id}: {error}"));
            }
        }
        assert!(ended.is_empty(), "{ended:#?}");
    });
}

/// Promise: every follower ends at the builder's head. Blocks without a choice between them are a branch beside the head, which takes
/// memory.
#[test]
fn a_long_branch_is_followed_with_little_memory() {
    let blocks = 400;
    let workload = workload_of(blocks, 40);
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    let engine = engine.anew(&workload);
    builder.make_all(&engine, blocks);
    let little = Options {
        memory_bytes: 16 << 20,
        ..Options::default()
    };
    let mut node = Node::with(&workload, 1, InitOptions::from(little), &builder.kept);
    let mut errors = Vec::new();
    for _ in 0..4 {
        let read = node.try_read(&builder.stream, u64::MAX);
        errors.extend(read.err().map(|error| error.to_string()));
        // It is started again.
        node.crash();
    }
    assert_eq!(node.chain().db().head(), builder.head(), "{errors:#?}");
}

/// Promise: what is final stays so, and neither the head nor the safe block is ever below it, whatever a builder chooses, and whatever
/// the follower has forgotten.
#[test]
fn finality_stays_whatever_choices_say() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 8);
    let genesis = engine.chain.db().genesis();
    let own = |number: usize| match number {
        0 => genesis,
        number => updates[number - 1].id(),
    };
    let mut others: Vec<BlockUpdate> = Vec::new();
    for mark in 0..3 {
        let parent = others.last().map_or(own(3), BlockUpdate::id);
        others.push(engine.on(parent, mark));
    }
    let kept = Kept::of(updates.iter().chain(&others).cloned());
    let node = Node::new(&workload, 1, None, &kept);
    let other = |number: usize| others[number - 4].id();
    let choices = [
        (own(8), own(6), own(4)),
        // The final one goes back, alone or with the others.
        (own(8), own(6), own(2)),
        (own(4), own(4), own(4)),
        (own(3), own(3), own(3)),
        (own(8), own(2), own(1)),
        // Blocks of a branch that has lost, one by one.
        (other(6), other(6), own(1)),
        (own(8), other(6), own(4)),
        (own(8), own(6), other(6)),
        // In the wrong order.
        (own(8), own(7), own(8)),
        (own(6), own(8), own(5)),
        (genesis, genesis, genesis),
    ];
    let mut last_final = 0;
    // The second follower knows nothing of the first one.
    for lost in [false, true] {
        node.feed(|feeding| {
            feeding.take_all(&updates);
            feeding.take_all(&others);
            for (at, &(head, safe, finalized)) in choices.iter().enumerate() {
                let choice = chosen(1 + at as u64, head, safe, finalized);
                assert_eq!(feeding.take(choice).unwrap(), Taken::Judged);
                let db = node.chain().db();
                let (head, finality) = (db.head(), db.finality());
                let final_now = finality.finalized.unwrap();
                let when = format!("lost: {lost}, choice {at}: {head}, {finality:?}");
                assert!(final_now.number >= last_final, "{when}");
                assert_eq!(final_now, own(final_now.number as usize), "{when}");
                assert_eq!(head, own(head.number as usize), "{when}");
                assert!(head.number >= final_now.number, "{when}");
                let safe = finality.safe.map_or(final_now, |safe| safe);
                assert!(safe.number >= final_now.number, "{when}");
                assert!(safe.number <= head.number, "{when}");
                last_final = final_now.number;
            }
            // What is right is followed afterwards.
            let right = chosen(1_000, own(8), own(7), own(last_final as usize));
            feeding.take(right).unwrap();
        });
        let db = node.chain().db();
        assert_eq!(db.head(), own(8));
        assert_eq!(db.finality().safe, Some(own(7)));
    }
    assert!((4..8).contains(&last_final), "{last_final}");
}
