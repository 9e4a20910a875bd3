//! Values of any length beside a model: merges, side branches, unwinds, old views, losses of power.

use super::database::{
    Entries, MODEL_KEEP_BLOCKS, assert_reads, create, key, open, options, root_of, seal, segments,
    value_of,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::BlockId;
use cambium_state::{Db, FaultyDisk, Options, Sealed, StateError, View, backup};
use cambium_testkit::plain::wait_until_closed;
use cambium_testkit::{Random, say};
use cambium_trie::{Blake3, Commitment, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

struct World {
    options: Options,
    random: Random,
    keys: Vec<B256>,
    /// States by the hash of their block.
    states: HashMap<B256, Entries>,
    names: u64,
}

impl World {
    fn value(&mut self) -> Bytes {
        let len = match self.random.below(8) {
            0 => 0,
            1 => 512,
            2 => 513,
            3 | 4 => self.random.below(512),
            5 => self.random.below(40 << 10),
            _ => 513 + self.random.below(4 << 10),
        };
        self.names += 1;
        value_of(self.names, len as usize)
    }

    /// Seals a block of random writes on a block. Its state is in the model from now on.
    fn block(&mut self, db: &Db, parent: BlockId) -> Result<Sealed, StateError> {
        let mut state = self.states[&parent.hash].clone();
        let mut writes = BTreeMap::new();
        for _ in 0..1 + self.random.below(5) {
            // Most writes are of a few keys, so that values of the others stay among dead ones.
            let keys = match self.random.below(8) {
                0 => self.keys.len(),
                _ => self.keys.len() / 8,
            };
            let key = self.keys[self.random.below(keys as u64) as usize];
            let value = match (self.random.below(8), state.get(&key)) {
                (0 | 1, _) => None,
                // The same bytes, at another place.
                (2, Some(value)) => Some(value.clone()),
                _ => Some(self.value()),
            };
            match &value {
                Some(value) => _ = state.insert(key, value.clone()),
                None => _ = state.remove(&key),
            }
            writes.insert(key, value);
        }
        self.names += 1;
        let sealed = seal(db.view_of(parent)?, self.names, &writes)?;
        let root = sealed.view()?.state_root();
        assert_eq!(root, root_of(self.options.commitment, &state));
        self.states.insert(sealed.id().hash, state);
        Ok(sealed)
    }

    /// Commits a side branch of two blocks, and returns the second one.
    fn branch(&mut self, db: &Db, parent: BlockId) -> Result<BlockId, StateError> {
        let first = self.block(db, parent)?;
        let id = first.id();
        first.commit_side_branch()?;
        let second = self.block(db, id)?;
        let id = second.id();
        second.commit_side_branch()?;
        Ok(id)
    }

    /// One random action. It may fail if the disk is losing power.
    fn act(&mut self, db: &Db) -> Result<(), StateError> {
        let head = db.head();
        match self.random.below(16) {
            // A session that is dropped, and a block.
            0 => {
                let session = db.view()?.session();
                for _ in 0..3 {
                    let value = self.value();
                    session.value(&self.keys[0], value)?;
                }
            }
            1 => drop(self.block(db, head)?),
            // A branch beside the head, which becomes the head or not.
            2 | 3 => {
                let below = head.number.saturating_sub(self.random.below(4));
                let Some(parent) = db.block_id(below)? else {
                    return Ok(());
                };
                let Some(id) = unless_removed(self.branch(db, parent))? else {
                    return Ok(());
                };
                if self.random.below(2) == 0 {
                    for _ in 0..self.random.below(3) {
                        self.block(db, head)?.commit()?;
                    }
                    _ = unless_removed(db.set_head(id))?;
                }
            }
            4 => {
                let kept = db.stats()?.kept_from;
                let to = head.number.saturating_sub(1 + self.random.below(12));
                _ = unless_removed(db.unwind(to.max(kept)))?;
            }
            5 => db.flush(self.random.below(3) as usize)?,
            _ => _ = self.block(db, head)?.commit()?,
        }
        Ok(())
    }

    fn check(&mut self, db: &Db, at: &str) {
        let head = db.head();
        assert_reads(
            &db.view().unwrap(),
            &self.keys,
            &self.states[&head.hash],
            at,
        );
        let kept = db.stats().unwrap().kept_from;
        let older = head
            .number
            .saturating_sub(self.random.below(MODEL_KEEP_BLOCKS));
        // A merge that runs may have removed it since.
        let Some(view) = unless_removed(db.view_at(older.max(kept))).unwrap() else {
            return;
        };
        let state = &self.states[&view.block().hash];
        assert_reads(&view, &self.keys, state, at);
    }
}

#[test]
fn values_of_any_length_agree_with_the_model_through_merges_branches_and_losses_of_power() {
    let commitments = [
        Commitment::Mpt,
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
    ];
    let (mut merges, mut moved, mut removed, mut losses) = (0, 0, 0, 0);
    let seeds = if cambium_seeds::is_long() { 60 } else { 6 };
    for seed in cambium_seeds::seeds!(0..seeds) {
        let commitment = commitments[seed as usize % 3];
        let mut world = World {
            options: Options {
                unfinalized_blocks: 4,
                keep_blocks: Some(MODEL_KEEP_BLOCKS),
                ..options(commitment)
            },
            random: Random::new(seed),
            keys: (0..40).map(key).collect(),
            states: HashMap::new(),
            names: seed << 32,
        };
        let mut disk = FaultyDisk::new(seed);
        let mut first = Entries::new();
        for at in 0..20 {
            let value = world.value();
            first.insert(key(at), value);
        }
        let mut db = create(&disk, world.options, &first);
        world.states.insert(db.head().hash, first);
        let mut views: Vec<View> = Vec::new();
        for round in 0..400 {
            let at = format!("seed {seed}, round {round}");
            let loses_power = world.random.below(12) == 0;
            if loses_power {
                disk.lose_power_after(world.random.below(60));
            }
            let mut acts = 0;
            let lost = loop {
                acts += 1;
                let acted = world.act(&db);
                match acted {
                    Ok(()) if loses_power && acts < 20 => {}
                    Ok(()) => break loses_power,
                    Err(error) => {
                        assert!(loses_power, "{at}: {error}");
                        break true;
                    }
                }
            };
            if lost || world.random.below(10) == 0 {
                merges += db.counters().merges;
                moved += db.counters().values_moved;
                views.clear();
                drop(db);
                // A merge that goes on may lose the power that is to be lost.
                wait_until_closed(&disk);
                if lost || world.random.below(2) == 0 {
                    disk = disk.crash();
                    losses += 1;
                }
                db = open(&disk, world.options);
            }
            if world.random.below(3) == 0 {
                world.check(&db, &at);
                let view = db.view().unwrap();
                views.push(view);
            }
            for view in &views {
                let state = &world.states[&view.block().hash];
                assert_reads(view, &world.keys, state, &at);
            }
            if !views.is_empty() && world.random.below(4) == 0 {
                let one = world.random.below(views.len() as u64) as usize;
                views.swap_remove(one);
            }
            if round % 50 == 49 {
                let report = db.check(&mut |_| {}).unwrap();
                assert_eq!(report.damage, Vec::<String>::new(), "{at}");
            }
        }
        merges += db.counters().merges;
        moved += db.counters().values_moved;
        let numbers = segments(&disk);
        let number = |file: &String| file["values/".len()..][..8].parse::<usize>().unwrap();
        removed += number(&numbers[numbers.len() - 1]) - numbers.len();
        views.clear();

        let copy = FaultyDisk::new(seed);
        let (from, to) = (Arc::new(disk.clone()) as _, Arc::new(copy.clone()) as _);
        backup(&from, &to, world.options, &mut |_| {}).unwrap();
        let copied = open(&copy, world.options);
        assert_eq!(copied.head(), db.head());
        world.check(&copied, "the copy");
    }
    say(&format!(
        "long values: {merges} merges, {losses} losses of power, {moved} values moved, \
         {removed} segments removed"
    ));
    assert!(
        merges > 30 && removed > 200 && moved > 20,
        "{merges} merges, {removed} removed, {moved} moved"
    );
}

/// Passes over that a merge has removed what is needed to go back to a block, or to build on it.
fn unless_removed<T>(done: Result<T, StateError>) -> Result<Option<T>, StateError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(StateError::NotKept { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
