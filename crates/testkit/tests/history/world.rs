//! A database, its history and the naive model.

use alloy_primitives::{B256, U256};
use cambium_history::{History, HistoryOptions, StateAt, WholeNodes};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes, Path};
use cambium_state::{Db, Disk, FaultyDisk, Options};
use cambium_testkit::{
    Model, Random, TINY_FILES,
    plain::{self, account, path, random_changes},
};
use cambium_trie::{LeafRange, LeafValue, Lookup, PartialTrie, ProofTargets};
use std::{collections::HashMap, num::NonZeroUsize, ops::ControlFlow, sync::Arc};

pub(crate) const ACCOUNTS: u64 = 40;
pub(crate) const SLOTS: u64 = 30;

/// Memory so little that a few blocks fill it.
pub(crate) const LITTLE: HistoryOptions = HistoryOptions {
    memory_bytes: 16 << 10,
    trie_bytes: 64 << 10,
    cache_bytes: 32 << 10,
    buffer_bytes: 8 << 10,
    keep_blocks: None,
};

pub(crate) fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        files: TINY_FILES,
        ..Options::default()
    }
}

/// A database, its history, and the model at each block that was ever canonical.
pub(crate) struct World {
    pub disk: FaultyDisk,
    pub db: Db,
    pub history: History,
    pub models: HashMap<B256, Model>,
    pub random: Random,
    pub blocks: u64,
}

/// Opens the history as soon as its lock is free.
pub(crate) fn open_history(disk: &FaultyDisk, db: &Db) -> History {
    History::open(Arc::new(disk.clone()), db, LITTLE).unwrap()
}

/// Proves keys, those of nothing included, and compares what the proof says with the model.
pub(crate) fn compare_proof(view: &StateAt, model: &Model, keys: ProofTargets) {
    let id = view.block();
    let part = view
        .extract(&keys)
        .unwrap_or_else(|error| panic!("{id}: {error}"));
    let (proof, unused) = PartialTrie::from_witness(model.root(), &part.witness_nodes())
        .unwrap_or_else(|error| panic!("{id}: {error}"));
    assert_eq!(unused, 0, "{id}");
    for (account, slots) in keys.accounts() {
        let expected = model.account(account);
        let found = match proof.lookup(&Path::account(account)) {
            Lookup::Absent => None,
            Lookup::Account(account) => Some(account),
            other => panic!("{account} at {id}: {other:?}"),
        };
        assert_eq!(
            found,
            expected.map(|account| account.account),
            "{account} at {id}"
        );
        for slot in slots {
            let value = expected.and_then(|account| account.slots.get(slot));
            let found = match proof.lookup(&Path::slot(account, slot)) {
                Lookup::Absent => None,
                Lookup::Slot(value) => Some(value),
                other => panic!("{slot} of {account} at {id}: {other:?}"),
            };
            assert_eq!(found.as_ref(), value, "{slot} of {account} at {id}");
        }
    }
}

/// Extracts leaves of a range in parts, proves each, and compares all of them with the model's.
pub(crate) fn compare_range(view: &StateAt, model: &Model, range: &LeafRange, limit: usize) {
    let id = view.block();
    let within = range.first..=range.last;
    let expected: Vec<(B256, LeafValue)> = match &range.account {
        None => model
            .accounts()
            .filter(|(key, _)| within.contains(*key))
            .map(|(key, account)| (*key, LeafValue::Account(account.account)))
            .collect(),
        Some(account) => model
            .account(account)
            .into_iter()
            .flat_map(|account| &account.slots)
            .filter(|(key, _)| within.contains(*key))
            .map(|(key, value)| (*key, LeafValue::Slot(*value)))
            .collect(),
    };
    let limit = NonZeroUsize::new(limit).unwrap();
    let (mut found, mut rest) = (Vec::new(), *range);
    loop {
        let part = view
            .extract_range(&rest, limit)
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        let nodes = part.trie.witness_nodes();
        let (proof, unused) = PartialTrie::from_witness(model.root(), &nodes).unwrap();
        assert_eq!(unused, 0, "{id}");
        let leaves = proof.leaves(&part.range).unwrap();
        assert!(leaves.len() <= limit.get());
        // No node can be left out.
        if !nodes.is_empty() && found.is_empty() {
            let mut nodes = nodes;
            nodes.remove(id.number as usize % nodes.len());
            if let Ok((proof, _)) = PartialTrie::from_witness(model.root(), &nodes) {
                let told = proof.leaves(&part.range);
                assert!(told.is_err() || told.as_ref() == Ok(&leaves), "{id}");
            }
        }
        found.extend(leaves);
        match part.next {
            Some(next) => rest.first = next,
            None => break,
        }
    }
    assert_eq!(found, expected, "{range:?} at {id}");
}

/// Visits accounts and the slots of some from a key on, whole and up to a limit.
pub(crate) fn compare_order(view: &StateAt, model: &Model, from: &B256) {
    let id = view.block();
    let expected = model.accounts().filter(|(path, _)| *path >= from);
    let expected: Vec<_> = expected
        .map(|(path, account)| (*path, account.account))
        .collect();
    for limit in [usize::MAX, 1 + id.number as usize % 9] {
        let mut found = Vec::new();
        let visited = view.each_account(from, |path, account| {
            found.push((path, account));
            match found.len() < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        visited.unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(found, expected[..limit.min(expected.len())], "{id}");
    }
    for (path, account) in model.accounts().take(12) {
        let expected = account.slots.range(*from..);
        let expected: Vec<_> = expected.map(|(slot, value)| (*slot, *value)).collect();
        let mut found = Vec::new();
        let visited = view.each_slot_from(path, from, |slot, value| {
            found.push((slot, value));
            ControlFlow::Continue(())
        });
        visited.unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(found, expected, "{path} at {id}");
    }
}

/// Proves all accounts in pages, which are verified against the root alone.
pub(crate) fn compare_pages(view: &StateAt, model: &Model, limit: usize) {
    let id = view.block();
    let limit = NonZeroUsize::new(limit).unwrap();
    let (mut found, mut next) = (Vec::new(), Some(B256::ZERO));
    while let Some(from) = next {
        let proof = view.prove_accounts(from, limit);
        let proof = proof.unwrap_or_else(|error| panic!("{id}: {error}"));
        let page = proof.verify_accounts(model.root(), from);
        let page = page.unwrap_or_else(|error| panic!("{id}: {error}"));
        assert!(page.values.len() <= limit.get());
        found.extend(page.values);
        next = page.next;
    }
    let expected = model.accounts();
    let expected: Vec<_> = expected
        .map(|(path, account)| (*path, account.account))
        .collect();
    assert_eq!(found, expected, "{id}");
}

impl World {
    /// A history of values alone.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(None, seed)
    }

    /// A history with nodes or without.
    pub(crate) fn with(nodes: Option<WholeNodes>, seed: u64) -> Self {
        Self::of(seed, options(), nodes, LITTLE)
    }

    /// A database and a history with some options.
    pub(crate) fn of(
        seed: u64,
        options: Options,
        nodes: Option<WholeNodes>,
        history: HistoryOptions,
    ) -> Self {
        let disk = FaultyDisk::new(seed);
        let db = plain::make(Arc::new(disk.clone()), options, 0, |_| 0);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let history = History::create(shared, &db, 0, nodes, history).unwrap();
        Self {
            models: HashMap::from([(db.head().hash, Model::default())]),
            disk,
            db,
            history,
            random: Random::new(seed),
            blocks: 0,
        }
    }

    pub(crate) fn model(&self) -> &Model {
        &self.models[&self.db.head().hash]
    }

    /// Random changes of the state at the head: new, changed, wiped, deleted and recreated accounts.
    pub(crate) fn changes(&mut self) -> Changes {
        let model = self.model().clone();
        random_changes(&mut self.random, &model, ACCOUNTS, SLOTS)
    }

    pub(crate) fn block(&mut self) {
        let changes = self.changes();
        self.commit(changes);
    }

    pub(crate) fn commit(&mut self, changes: Changes) {
        let mut model = self.model().clone();
        model.apply(&changes);
        self.blocks += 1;
        let name = format!("block {}", self.blocks);
        let sealed = plain::seal(self.db.view().unwrap(), name, changes, vec![]).unwrap();
        sealed.commit().unwrap();
        self.models.insert(self.db.head().hash, model);
    }

    /// A block of accounts that are never changed again: they make tries deeper.
    pub(crate) fn crowd(&mut self) {
        let crowd = (1_000..1_700).map(|at| AccountDiff {
            path: path(at),
            account: AccountUpdate::Put(account(at)),
            wipe: false,
            slots: (0..at % 3)
                .map(|slot| (path(slot), U256::from(at)))
                .collect(),
        });
        self.commit(Changes::new(crowd.collect()));
    }

    pub(crate) fn catch_up(&self) {
        self.history.catch_up(&self.db, &mut |_| true).unwrap();
    }

    /// Compares the whole state at a block with the model's.
    pub(crate) fn compare(&self, number: u64) {
        let id = self
            .db
            .block_id(number)
            .unwrap()
            .expect("a canonical block");
        let view = self.history.state_at(&self.db, number).unwrap();
        self.compare_view(&view, id);
    }

    pub(crate) fn compare_view(&self, view: &StateAt, id: BlockId) {
        assert_eq!(view.block(), id);
        let model = &self.models[&id.hash];
        for at in (0..ACCOUNTS).map(path) {
            let expected = model.account(&at);
            let what = format!("account {at} at {id}");
            assert_eq!(
                view.account(&at).unwrap(),
                expected.map(|a| a.account),
                "{what}"
            );
            let slots: Vec<(B256, U256)> = expected
                .map(|account| account.slots.iter().map(|(k, v)| (*k, *v)).collect())
                .unwrap_or_default();
            assert_eq!(view.slots(&at).unwrap(), slots, "{what}");
            for slot in (0..SLOTS).step_by(7).map(path) {
                let value = slots.iter().find(|(key, _)| *key == slot);
                let value = value.map_or(U256::ZERO, |(_, value)| *value);
                assert_eq!(view.slot(&at, &slot).unwrap(), value, "{slot} of {what}");
            }
        }
        let froms = [B256::ZERO, path(id.number), B256::repeat_byte(0xf7)];
        froms
            .iter()
            .for_each(|from| compare_order(view, model, from));
        if self.history.has_nodes() {
            compare_pages(view, model, 7 + id.number as usize % 40);
            let first = path(id.number);
            let mut last = first;
            last[0] = first[0].saturating_add(9);
            let range = LeafRange::accounts(first, last);
            compare_range(view, model, &range, 60);
            let account = path(id.number % ACCOUNTS);
            let range = LeafRange::slots(account, B256::ZERO, B256::repeat_byte(0xff));
            compare_range(view, model, &range, 3);
            assert_eq!(view.state_root().unwrap(), model.root(), "{id}");
            let slots: Vec<_> = (0..SLOTS + 5).step_by(3).map(path).collect();
            let keys = (0..ACCOUNTS + 30).map(|at| (path(at), slots.clone()));
            compare_proof(view, model, ProofTargets::new(keys.collect()));
            for at in [id.number % ACCOUNTS, ACCOUNTS + 2 + id.number] {
                let keys = vec![(path(at), vec![path(id.number % SLOTS)])];
                compare_proof(view, model, ProofTargets::new(keys));
            }
        }
    }

    /// Compares some blocks, old ones above all.
    pub(crate) fn compare_some(&mut self) {
        let head = self.db.head().number;
        for _ in 0..3 {
            let number = self.random.below(head + 1);
            self.compare(number);
        }
        self.compare(0);
        self.compare(head.saturating_sub(1));
    }

    /// Removes the history, and begins another one at a block.
    pub(crate) fn remade(
        self,
        first: u64,
        nodes: Option<WholeNodes>,
        options: HistoryOptions,
    ) -> Self {
        let Self {
            disk,
            db,
            history,
            models,
            random,
            blocks,
        } = self;
        drop(history);
        let names = disk.files().into_iter();
        for name in names.filter(|name| name.starts_with("history/")) {
            disk.remove(&name).unwrap();
        }
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        Self {
            history: History::create(shared, &db, first, nodes, options).unwrap(),
            disk,
            db,
            models,
            random,
            blocks,
        }
    }

    /// Opens database and history again, after a crash or not.
    pub(crate) fn reopen(self, crash: bool) -> Self {
        let Self {
            disk,
            db,
            history,
            models,
            random,
            blocks,
        } = self;
        let disk = match crash {
            true => disk.crash(),
            false => disk,
        };
        drop((db, history));
        plain::wait_until_closed(&disk);
        let (db, _) = Db::open(Arc::new(disk.clone()), options()).unwrap();
        Self {
            history: open_history(&disk, &db),
            disk,
            db,
            models,
            random,
            blocks,
        }
    }
}
