//! Subscribers take events, which are compared with the model.

use super::{
    driver::{EngineDriver, Failed},
    subscriber::{Habit, Subscriber},
};
use crate::Random;
use alloy_primitives::B256;
use cambium_primitives::{BlockId, Changes};
use cambium_state::{ChainEvent, StateError};
use std::{sync::Arc, time::Duration};

impl EngineDriver {
    /// Subscribers take events.
    pub(super) fn follow(&mut self, at: &str) -> Result<(), Failed> {
        // Which is not drawn from the random numbers that the seed stands for.
        let mut random = Random::new(self.params.seed ^ self.next_hash.rotate_left(17));
        let subscribers = std::mem::take(&mut self.subscribers);
        let mut outcome = Ok(());
        for mut subscriber in subscribers {
            if outcome.is_ok() {
                outcome = self.take_events(&mut subscriber, &mut random, at);
            }
            self.subscribers.push(subscriber);
        }
        outcome
    }

    fn take_events(
        &mut self,
        subscriber: &mut Subscriber,
        random: &mut Random,
        at: &str,
    ) -> Result<(), Failed> {
        let most = match subscriber.habit {
            Habit::Eager | Habit::Finalized => usize::MAX,
            Habit::Slow if random.percent(3) => usize::MAX,
            Habit::Slow if random.percent(30) => 1,
            Habit::Away if random.percent(4) => random.below(60) as usize,
            Habit::Slow | Habit::Away => return Ok(()),
        };
        if subscriber.habit == Habit::Away {
            subscriber.subscription = None;
            match random.percent(30) {
                // It was stopped before it had stored what it made of the last events.
                true => (subscriber.cursor, subscriber.state) = subscriber.stored.clone(),
                false => subscriber.stored = (subscriber.cursor, subscriber.state.clone()),
            }
        }
        for _ in 0..most {
            let (db, cursor) = (self.db(), subscriber.cursor);
            if subscriber.subscription.is_none() {
                subscriber.received.clear();
            }
            let only_finalized = subscriber.habit == Habit::Finalized;
            let events = subscriber
                .subscription
                .get_or_insert_with(|| match only_finalized {
                    true => db.subscribe_finalized(cursor),
                    false => db.subscribe(cursor),
                });
            let event = match random.percent(90) {
                true => events.try_next(),
                false => events.wait(Duration::ZERO),
            };
            if let Err(StateError::CannotFollow {
                cursor: lost,
                oldest,
                head,
                ..
            }) = event
            {
                assert_eq!((lost, head), (cursor, db.head()), "{at}");
                let was_received = subscriber.received.contains(&lost.hash);
                self.may_not_follow(lost, was_received, at);
                self.count("subscriber that began again");
                let number = oldest + random.below(head.number + 1 - oldest);
                let block = self.ancestor(head.number - number);
                let known = &self.known[&block];
                let state = self.params.commitment.seen(&known.model);
                *subscriber = subscriber.begun_at(known.id, &state);
                continue;
            }
            let Some(event) = self.outcome(event, at)? else {
                let habit = subscriber.habit;
                let finality = db.finality().finalized;
                match only_finalized {
                    true => assert!(
                        finality.is_none_or(|block| block.number <= cursor.number),
                        "{at}: {habit:?} waits at {cursor}, {finality:?} is finalized"
                    ),
                    false => {
                        assert_eq!(cursor, db.head(), "{at}: {habit:?} waits");
                        if finality.is_some() {
                            assert_eq!(subscriber.finalized, finality, "{at}: {habit:?}");
                        }
                    }
                }
                break;
            };
            let events = subscriber.subscription.as_ref().expect("a subscription");
            subscriber.cursor = events.cursor();
            self.take_event(subscriber, cursor, event, random, at);
        }
        if subscriber.habit == Habit::Away {
            subscriber.subscription = None;
        }
        Ok(())
    }

    fn take_event(
        &mut self,
        subscriber: &mut Subscriber,
        before: BlockId,
        event: ChainEvent,
        random: &mut Random,
        at: &str,
    ) {
        let cursor = subscriber.cursor;
        let state = Arc::make_mut(&mut subscriber.state);
        let touched = match event {
            ChainEvent::Committed(block) => {
                subscriber.received.insert(cursor.hash);
                self.count("committed event");
                assert_eq!(block.meta.id, cursor, "{at}");
                let on = (block.meta.id.number - 1, block.meta.parent);
                assert_eq!(on, (before.number, before.hash), "{at}");
                if subscriber.habit == Habit::Finalized {
                    let finalized = self.db().finality().finalized;
                    let finalized = finalized.expect("a finalized block");
                    assert!(self.is_ancestor(cursor, finalized.hash), "{at}: {cursor}");
                }
                state.apply(&block.changes);
                // An announced block must stay.
                self.known.get_mut(&cursor.hash).expect("a block").durable = true;
                [block.changes, block.reverts]
            }
            ChainEvent::Reverted(block) => {
                self.count("reverted event");
                assert_eq!(block.meta.id, before, "{at}");
                let parent = (before.number - 1, block.meta.parent);
                assert_eq!(parent, (cursor.number, cursor.hash), "{at}");
                state.apply(&block.reverts);
                [block.changes, block.reverts]
            }
            ChainEvent::Finalized(block) => {
                self.count("finalized event");
                assert_eq!(before, cursor, "{at}");
                assert!(self.is_ancestor(block, cursor.hash), "{at}: {block}");
                assert_eq!(self.db().finality().finalized, Some(block), "{at}");
                subscriber.finalized = Some(block);
                return;
            }
        };
        let model = self.params.commitment.seen(&self.known[&cursor.hash].model);
        let state = &*subscriber.state;
        for path in touched.iter().flat_map(paths) {
            assert_eq!(state.account(&path), model.account(&path), "{at}: {path}");
            let entries = (state.entries().get(&path), model.entries().get(&path));
            assert_eq!(entries.0, entries.1, "{at}: {path}");
        }
        if random.percent(5) {
            assert!(state.accounts().eq(model.accounts()), "{at}: {cursor}");
            assert_eq!(state.entries(), model.entries(), "{at}: {cursor}");
        }
    }

    /// Checks that the chain need not be followed from a block: the block has left the chain, and it was another
    /// subscription that had received it, or what follows it may have left the log.
    fn may_not_follow(&self, cursor: BlockId, was_received: bool, at: &str) {
        let is_stale = !self.is_ancestor(cursor, self.head);
        match self.params.keep_blocks {
            None => assert!(
                is_stale && !was_received,
                "{at}: can't follow from {cursor}"
            ),
            Some(keep) => assert!(
                is_stale || cursor.number + keep < self.highest,
                "{at}: {cursor} is kept, the highest was {}",
                self.highest
            ),
        }
    }
}

fn paths(changes: &Changes) -> impl Iterator<Item = B256> {
    changes.accounts().iter().map(|change| change.path)
}
