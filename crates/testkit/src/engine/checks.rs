//! Comparisons of the engine with the model.

use super::{
    commitment::TestedCommitment,
    driver::{EngineDriver, Failed},
};
use crate::random;
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{BlockId, Path};
use cambium_state::{LeafKind, StateError, View};
use cambium_trie::{Lookup, PartialTrie, ProofTargets};
use std::ops::ControlFlow;

/// Views kept at a time.
const VIEWS_MAX: usize = 4;

impl EngineDriver {
    /// All of an older canonical block's state.
    pub(super) fn read_back(&mut self, at: &str) -> Result<(), Failed> {
        self.count("read back");
        let depth = self.random.below(30);
        let target = self.ancestor(depth);
        let number = self.known[&target].id.number;
        let view = self.db().view_at(number);
        let view = self.outcome_at(target, view, at)?;
        assert_eq!(view.block().hash, target, "{at}: block {number}");
        self.compare(&view, target, 40, at)?;
        if self.views.len() < VIEWS_MAX {
            self.views.push(view);
        }
        Ok(())
    }

    /// The kept views still have the same states.
    pub(super) fn read_kept_views(&mut self, at: &str) -> Result<(), Failed> {
        self.count("read kept views");
        let views = std::mem::take(&mut self.views);
        for view in &views {
            self.compare(view, view.block().hash, 20, at)?;
        }
        let gone = self.random.below(views.len() as u64 + 1) as usize;
        self.views = views.into_iter().skip(gone).collect();
        let recent = self.recent();
        let view = self.db().view_of(self.known[&recent].id);
        let view = self.outcome_at(recent, view, at)?;
        self.compare(&view, recent, 20, at)?;
        self.views.push(view);
        Ok(())
    }

    pub(super) fn check_all(&mut self, at: &str) -> Result<(), Failed> {
        self.count("check");
        let report = self.db().check(&mut |_| {});
        let report = self.outcome(report, at)?;
        if !self.is_faulty {
            assert!(report.damage.is_empty(), "{at}: {:?}", report.damage);
        }
        Ok(())
    }

    /// Which block has a number: on the canonical chain, and seen from any block.
    pub(super) fn check_numbers(&mut self, at: &str) -> Result<(), Failed> {
        self.count("check numbers");
        let head = self.known[&self.head].id.number;
        for number in [head, head + 1, self.random.below(head + 1)] {
            let expected = (number <= head).then(|| self.ancestor(head - number));
            let got = self.db().block_id(number);
            let got = self.outcome(got, at)?;
            let expected = expected.map(|hash| BlockId::new(number, hash));
            assert_eq!(got, expected, "{at}: canonical block {number}");
        }
        let block = self.recent();
        let view = self.db().view_of(self.known[&block].id);
        let view = self.outcome_at(block, view, at)?;
        let mut expected = self.known[&block].id;
        for _ in 0..self.random.below(20) {
            let got = view.block_hash(expected.number);
            let got = self.outcome(got, at)?;
            let number = expected.number;
            assert_eq!(
                got,
                Some(expected.hash),
                "{at}: block {number} seen from {block}"
            );
            let parent = self.known[&expected.hash].parent;
            if number == 0 {
                break;
            }
            expected = BlockId::new(number - 1, parent);
        }
        Ok(())
    }

    pub(super) fn prove(&mut self, at: &str) -> Result<(), Failed> {
        self.count("prove");
        let target = self.recent();
        let view = self.db().view_of(self.known[&target].id);
        let view = self.outcome_at(target, view, at)?;
        let index = self.random.below(self.params.accounts * 5 / 4);
        let account = random::account_path(index);
        let slots = vec![random::slot_path(self.random.below(2000))];
        let keys = ProofTargets::new(vec![(account, slots)]);
        match self.params.commitment {
            TestedCommitment::Mpt => {}
            TestedCommitment::Partial => return self.prove_partial(&view, &keys, at),
            TestedCommitment::Layered { .. } => return self.prove_layered(&view, &keys, at),
            TestedCommitment::Entries(commitment) => {
                return self.prove_entries(&view, commitment, random::entry_key(index), at);
            }
            TestedCommitment::LayeredEntries { .. } => {
                return self.prove_layered_entries(&view, random::entry_key(index), at);
            }
        }
        let trie = view.extract(&keys);
        let trie = self.outcome(trie, at)?;
        let known = &self.known[&target];
        let root = trie.state_root();
        assert_eq!(root, Some(known.root), "{at}: root of an extract");
        let found = match trie.lookup(&Path::account(&account)) {
            Lookup::Account(account) => Some(account),
            Lookup::Absent => None,
            other => panic!("{at}: {other:?}"),
        };
        let expected = known.model.account(&account).map(|entry| entry.account);
        assert_eq!(found, expected, "{at}: account in an extract");
        Ok(())
    }

    /// A proof from a partial database: of every account, and of the slots that are kept.
    fn prove_partial(&mut self, view: &View, keys: &ProofTargets, at: &str) -> Result<(), Failed> {
        self.count("prove partial");
        let (path, slots) = &keys.accounts()[0];
        let (path, slot) = (*path, slots[0]);
        let hash = view.block().hash;
        let model = self.known[&hash].model.clone();
        let entry = model.account(&path);
        let root = self.outcome_at(hash, view.storage_root(&path), at)?;
        let expected = entry.map(|entry| entry.storage_root());
        assert_eq!(root, expected, "{at}: storage root of {path}");
        let is_kept = self.params.commitment.keeps(&path);
        let slots = match view.extract(keys) {
            Err(StateError::StorageNotKept { account, .. }) if !is_kept => {
                assert_eq!(account, path, "{at}");
                self.count("refused proof of what is not kept");
                vec![]
            }
            _ if !is_kept => panic!("{at}: a proof of a slot that is not kept"),
            extracted => {
                self.outcome_at(hash, extracted, at)?;
                vec![slot]
            }
        };
        let targets = ProofTargets::new(vec![(path, slots.clone())]);
        let extracted = self.outcome_at(hash, view.extract(&targets), at)?;
        // A verifier has the root and the nodes alone, and its trie is not partial.
        let root = self.known[&hash].root;
        let (trie, _) = PartialTrie::from_witness(root, &extracted.witness_nodes())
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        let found = match trie.lookup(&Path::account(&path)) {
            Lookup::Account(account) => Some(account),
            Lookup::Absent => None,
            other => panic!("{at}: {other:?}"),
        };
        assert_eq!(found, entry.map(|entry| entry.account), "{at}: {path}");
        for slot in slots {
            let expected = entry.and_then(|entry| entry.slots.get(&slot).copied());
            let found = match trie.lookup(&Path::slot(&path, &slot)) {
                Lookup::Slot(value) => Some(value),
                Lookup::Absent => None,
                other => panic!("{at}: {other:?}"),
            };
            assert_eq!(found, expected, "{at}: slot {slot} of {path}");
        }
        Ok(())
    }

    /// A contract whose storage is not kept: its slots are refused by name, and its root is there.
    fn compare_root(&mut self, view: &View, path: &B256, at: &str) -> Result<(), Failed> {
        self.count("refused slots");
        let slot = random::slot_path(0);
        let none = |_, _| ControlFlow::Continue(());
        for refused in [
            view.slot(path, &slot).map(drop),
            view.storage(&[(*path, slot)]).map(drop),
            view.slots(path).map(drop),
            view.each_slot(path, none),
            view.each_slot_from(path, &slot, none),
            view.clone().session().storage(&[(*path, slot)]).map(drop),
        ] {
            match refused {
                Err(StateError::StorageNotKept { account, .. }) if account == *path => {}
                other => panic!("{at}: slots of {path}: {other:?}"),
            }
        }
        let model = &self.known[&view.block().hash].model;
        let expected = model.account(path).map(|entry| !entry.slots.is_empty());
        let has_storage = self.outcome(view.has_storage(path), at)?;
        assert_eq!(
            has_storage,
            expected.unwrap_or(false),
            "{at}: storage of {path}"
        );
        Ok(())
    }

    /// A proof of three tries, of the block of `view`.
    fn prove_layered(&mut self, view: &View, keys: &ProofTargets, at: &str) -> Result<(), Failed> {
        self.count("prove layered");
        let hash = view.block().hash;
        let proof = self.outcome_at(hash, view.prove_layered(keys), at)?;
        let known = &self.known[&hash];
        let proved = proof.verify(known.root, keys);
        let proved = proved.unwrap_or_else(|error| panic!("{at}: {error}"));
        for proved in proved {
            let expected = known.model.account(&proved.path);
            let account = expected.map(|entry| entry.account);
            assert_eq!(proved.account, account, "{at}: account in a proof");
            for (slot, value) in proved.slots {
                let expected = expected.and_then(|entry| entry.slots.get(&slot).copied());
                assert_eq!(value, expected.unwrap_or_default(), "{at}: slot in a proof");
            }
        }
        Ok(())
    }

    pub(super) fn check_head(&mut self, at: &str) -> Result<(), Failed> {
        let view = self.db().view();
        let view = self.outcome(view, at)?;
        let known = &self.known[&self.head];
        assert_eq!(view.block(), known.id, "{at}: head");
        assert_eq!(self.db().finality(), self.finality, "{at}");
        assert_eq!(view.state_root(), known.root, "{at}: root of the head");
        self.compare(&view, self.head, 8, at)
    }

    /// All acknowledged blocks that must be kept are there, on every branch.
    pub(super) fn check_durable(&mut self, at: &str) -> Result<(), Failed> {
        let known = self.known.values();
        for known in known.filter(|known| known.durable && known.kept) {
            let has = self.outcome(self.db().has(known.id), at)?;
            assert!(has, "{at}: acknowledged block {} is gone", known.id);
        }
        Ok(())
    }

    pub(super) fn compare(
        &mut self,
        view: &View,
        block: B256,
        keys: u64,
        at: &str,
    ) -> Result<(), Failed> {
        let model = self.known[&block].model.clone();
        if self.params.commitment.leaves() == LeafKind::Entries {
            return self.compare_entries(view, &model, keys, at);
        }
        for _ in 0..keys {
            let path = random::account_path(self.random.below(self.params.accounts * 5 / 4));
            let expected = model.account(&path);
            let got = self.outcome(view.account(&path), at)?;
            let account = expected.map(|entry| entry.account);
            assert_eq!(got, account, "{at}: account {path}");
            if let Some(code_hash) = random::code_of(account) {
                let code = self.outcome(view.code(&code_hash), at)?;
                assert_eq!(Some(&code), model.code(&code_hash), "{at}: code of {path}");
            }
            let slot = random::slot_path(self.random.below(40));
            if !self.params.commitment.keeps(&path) {
                self.compare_root(view, &path, at)?;
                continue;
            }
            let expected = expected.and_then(|entry| entry.slots.get(&slot).copied());
            let got = self.outcome(view.slot(&path, &slot), at)?;
            let value = expected.unwrap_or_default();
            assert_eq!(got, value, "{at}: slot {slot} of {path}");
        }
        // Accounts in order, from anywhere.
        let (from, count) = (self.some_path(), self.some_count());
        let expected = model.accounts().filter(|(path, _)| **path >= from);
        let expected = expected.map(|(path, entry)| (*path, entry.account));
        let expected: Vec<_> = expected.take(count).collect();
        let mut got = Vec::new();
        let visited = view.each_account(&from, |path, account| {
            got.push((path, account));
            stop_at(count, &got)
        });
        self.outcome(visited, at)?;
        assert_eq!(got, expected, "{at}: {count} accounts from {from}");
        // All slots, often of an account that has many.
        let path = random::account_path(self.random.below(2 * random::LARGE_ACCOUNTS));
        if !self.params.commitment.keeps(&path) {
            return self.compare_root(view, &path, at);
        }
        let expected = model.account(&path).map(|entry| &entry.slots);
        let expected: Vec<_> = expected
            .into_iter()
            .flatten()
            .map(|(slot, value)| (*slot, *value))
            .collect();
        let has_storage = self.outcome(view.has_storage(&path), at)?;
        assert_eq!(has_storage, !expected.is_empty(), "{at}: storage of {path}");
        let mut got = self.outcome(view.slots(&path), at)?;
        got.sort_unstable();
        assert_eq!(got, expected, "{at}: all slots of {path}");
        let (from, count) = (self.some_path(), self.some_count());
        let expected = expected.into_iter().filter(|(slot, _)| *slot >= from);
        let expected: Vec<_> = expected.take(count).collect();
        let mut got = Vec::new();
        let visited = view.each_slot_from(&path, &from, |slot, value| {
            got.push((slot, value));
            stop_at(count, &got)
        });
        self.outcome(visited, at)?;
        assert_eq!(got, expected, "{at}: {count} slots of {path} from {from}");
        Ok(())
    }

    /// A path, and a count of leaves from it on, derived from the steps done and not from the random numbers, which
    /// would change the meaning of seeds.
    fn some_path(&self) -> B256 {
        keccak256(self.next_hash.to_le_bytes())
    }

    const fn some_count(&self) -> usize {
        1 + (self.next_hash % 40) as usize
    }
}

/// Goes on until there are `count` items.
fn stop_at<T>(count: usize, items: &[T]) -> ControlFlow<()> {
    match items.len() < count {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}
