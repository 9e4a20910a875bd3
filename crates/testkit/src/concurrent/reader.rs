//! Reading threads: reads of the head, of old blocks, and of views held for long.

use super::{
    shared::{Known, Refused, Shared},
    watchdog::WatchSlot,
};
use crate::{Random, random};
use alloy_primitives::{B256, U256};
use cambium_state::{Db, View};
use cambium_trie::{MultiProof, ProofTargets};
use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

/// Maximum number of views that a reader holds.
const VIEWS_MAX: usize = 6;

pub(super) struct Reader<'a> {
    shared: Arc<Shared>,
    db: Db,
    random: Random,
    slot: WatchSlot,
    at: &'a str,
    /// Views with their blocks, the one held longest first.
    held: VecDeque<(View, Arc<Known>)>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(
        shared: Arc<Shared>,
        db: Db,
        random: Random,
        slot: WatchSlot,
        at: &'a str,
    ) -> Self {
        Self {
            shared,
            db,
            random,
            slot,
            at,
            held: VecDeque::new(),
        }
    }

    /// Reads until the round ends.
    pub(super) fn run(&mut self) {
        while !self.shared.is_over.load(Ordering::SeqCst) {
            let shared = self.shared.clone();
            // A failed read returns no value to compare.
            match shared.guarded("panics in a reader", || self.step()) {
                Ok(()) => shared.count("reads", 1),
                Err(Refused::Fault) => shared.count("reads that met a fault", 1),
                Err(Refused::Memory) => {
                    shared.count("reads refused for want of memory", 1);
                    self.held.pop_front();
                }
                Err(Refused::Unknown) => shared.count("reads of blocks that are gone", 1),
            }
            self.slot.idle();
            if self.random.percent(25) {
                thread::sleep(Duration::from_micros(self.random.below(2000)));
            }
        }
    }

    fn step(&mut self) -> Result<(), Refused> {
        match self.random.below(100) {
            0..35 => {
                self.slot.doing("reading the head");
                let view = self.shared.outcome(self.db.view(), self.at)?;
                self.read(view)
            }
            35..60 => {
                self.slot.doing("reading a recent block");
                let view = self.view_of_any()?;
                self.read(view)
            }
            60..72 => {
                self.slot.doing("reading by number");
                let number = self.random.below(self.db.head().number + 1);
                let view = self.shared.outcome(self.db.view_at(number), self.at)?;
                assert_eq!(view.block().number, number, "{}", self.at);
                self.read(view)
            }
            _ => {
                self.slot.doing("reading a view that is held");
                let Some((view, known)) = self.held.pop_front() else {
                    return Ok(());
                };
                let read = self.compare(&view, &known);
                if self.random.percent(90) {
                    self.held.push_back((view, known));
                }
                read
            }
        }
    }

    /// Returns a view of any block on any branch, mostly of a recent one. The block may be gone.
    fn view_of_any(&mut self) -> Result<View, Refused> {
        let known = {
            let blocks = &self.shared.blocks.read().in_order;
            let newest = match self.random.percent(80) {
                true => blocks.len().min(40),
                false => blocks.len(),
            };
            let back = self.random.below(newest as u64) as usize;
            blocks[blocks.len() - 1 - back].clone()
        };
        let was_there = known.must_be_there();
        let view = self.shared.outcome(self.db.view_of(known.id), self.at);
        if matches!(view, Err(Refused::Unknown)) {
            let is_there = was_there && known.must_be_there();
            let (at, block) = (self.at, known.id);
            let (head, base) = (self.db.head(), self.db.snapshot_block());
            assert!(
                !is_there,
                "{at}: block {block} is gone, head {head}, base {base}"
            );
        }
        view
    }

    fn read(&mut self, view: View) -> Result<(), Refused> {
        let known = self.shared.known(&view.block().hash);
        self.compare(&view, &known)?;
        if self.held.len() < VIEWS_MAX && self.random.percent(30) {
            self.held.push_back((view, known));
        }
        Ok(())
    }

    /// Compares a part of a view with the model of its block.
    fn compare(&mut self, view: &View, known: &Known) -> Result<(), Refused> {
        assert_eq!(view.block(), known.id, "{}", self.at);
        assert_eq!(view.state_root(), known.root, "{}", self.at);
        match self.random.below(100) {
            0..55 => self.compare_singly(view, known),
            55..70 => self.compare_many(view, known),
            70..82 => self.compare_storage(view, known),
            82..90 => self.compare_ancestors(view, known),
            _ => self.prove(view, known),
        }
    }

    fn account(&mut self) -> B256 {
        random::account_path(self.random.below(self.shared.params.accounts * 5 / 4))
    }

    /// Returns a slot. Large accounts have slots up to 1500.
    fn slot(&mut self) -> B256 {
        let end = if self.random.percent(70) { 40 } else { 1600 };
        random::slot_path(self.random.below(end))
    }

    fn compare_singly(&mut self, view: &View, known: &Known) -> Result<(), Refused> {
        for _ in 0..12 {
            let (path, slot) = (self.account(), self.slot());
            let got = self.shared.outcome(view.account(&path), self.at)?;
            self.assert_account(known, &path, got);
            if let Some(hash) = random::code_of(got) {
                let code = self.shared.outcome(view.code(&hash), self.at)?;
                assert_eq!(Some(&code), known.model.code(&hash), "{}", self.at);
            }
            let got = self.shared.outcome(view.slot(&path, &slot), self.at)?;
            self.assert_slot(known, &path, &slot, got);
        }
        Ok(())
    }

    /// Compares a batch read, which runs on all threads of the engine.
    fn compare_many(&mut self, view: &View, known: &Known) -> Result<(), Refused> {
        let count = self.random.below(400);
        let paths: Vec<_> = (0..count).map(|_| self.account()).collect();
        let slots: Vec<_> = (0..count).map(|_| (self.account(), self.slot())).collect();
        if self.random.percent(30) {
            let prefetched = view.prefetch(&paths, &slots);
            self.shared.outcome(prefetched, self.at)?;
        }
        let got = self.shared.outcome(view.accounts(&paths), self.at)?;
        for (path, got) in paths.iter().zip(got) {
            self.assert_account(known, path, got);
        }
        let got = self.shared.outcome(view.storage(&slots), self.at)?;
        for ((path, slot), got) in slots.iter().zip(got) {
            self.assert_slot(known, path, slot, got);
        }
        Ok(())
    }

    /// Compares all slots of an account.
    fn compare_storage(&mut self, view: &View, known: &Known) -> Result<(), Refused> {
        let path = match self.random.percent(30) {
            true => random::account_path(self.random.below(random::LARGE_ACCOUNTS)),
            false => self.account(),
        };
        let expected = known.model.account(&path);
        let mut expected = expected
            .into_iter()
            .flat_map(|entry| &entry.slots)
            .map(|(slot, value)| (*slot, *value));
        let has_any = self.shared.outcome(view.has_storage(&path), self.at)?;
        assert_eq!(has_any, expected.clone().next().is_some(), "{}", self.at);
        let visited = view.each_slot(&path, |slot, value| {
            let (at, block) = (self.at, known.id);
            let got = Some((slot, value));
            assert_eq!(got, expected.next(), "{at}: slots of {path} at {block}");
            ControlFlow::Continue(())
        });
        self.shared.outcome(visited, self.at)?;
        assert_eq!(expected.next(), None, "{}: slots of {path}", self.at);
        Ok(())
    }

    /// Compares the hashes of ancestors.
    fn compare_ancestors(&mut self, view: &View, known: &Known) -> Result<(), Refused> {
        let depth = self.random.below(20).min(known.id.number);
        let expected = self.shared.ancestor(&known.id.hash, depth).id;
        match self
            .shared
            .outcome(view.block_hash(expected.number), self.at)
        {
            Ok(got) => {
                assert_eq!(got, Some(expected.hash), "{}: {} seen", self.at, known.id);
                Ok(())
            }
            // A block of a branch that was dropped meanwhile.
            Err(Refused::Unknown) if !known.must_be_there() => Ok(()),
            Err(refused) => Err(refused),
        }
    }

    /// Makes a proof, and verifies it against the block's state root.
    fn prove(&mut self, view: &View, known: &Known) -> Result<(), Refused> {
        let count = self.random.below(4) + 1;
        let keys = (0..count).map(|_| (self.account(), vec![self.slot(), self.slot()]));
        let keys = ProofTargets::new(keys.collect());
        let trie = self.shared.outcome(view.extract(&keys), self.at)?;
        let proof = MultiProof {
            nodes: trie.witness_nodes(),
        };
        let proved = proof.verify(known.root, &keys);
        let proved = proved.unwrap_or_else(|error| panic!("{}: a proof: {error}", self.at));
        for account in proved {
            self.assert_account(known, &account.path, account.account);
            for (slot, value) in account.slots {
                self.assert_slot(known, &account.path, &slot, value);
            }
        }
        self.shared.count("proofs", 1);
        Ok(())
    }

    fn assert_account(&self, known: &Known, path: &B256, got: Option<cambium_primitives::Account>) {
        let expected = known.model.account(path).map(|entry| entry.account);
        assert_eq!(got, expected, "{}: account {path} at {}", self.at, known.id);
    }

    fn assert_slot(&self, known: &Known, path: &B256, slot: &B256, got: U256) {
        let entry = known.model.account(path);
        let expected = entry.and_then(|entry| entry.slots.get(slot).copied());
        let expected = expected.unwrap_or_default();
        let (at, block) = (self.at, known.id);
        assert_eq!(got, expected, "{at}: slot {slot} of {path} at {block}");
    }
}
