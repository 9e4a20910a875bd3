//! Real mainnet blocks, executed on the part of the state that they touch. Gas, bloom and receipts
//! are compared with the block's header, and the post-state with that of an independent
//! implementation.
//!
//! The state root in the header can't be computed from a sparse state. Receipts before Byzantium
//! contain state roots, so the receipts root of those blocks is not compared; the report counts
//! them.

use crate::{
    Case, MainnetData, Suite, Verdict,
    mainnet_data::{number_of, sparse_changes},
};
use alloy_primitives::{B256, keccak256};
use cambium_chain::{validate_access_list, verify_outcome};
use cambium_evm::{Executor, Hooks, recover_senders};
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, Path as TriePath};
use cambium_testkit::{Model, changes_of_list};
use cambium_trie::{LeafValue, NoResolve, PartialTrie, commit};
use revm::primitives::hardfork::SpecId;
use std::{
    iter,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The mainnet blocks of pack 06, run by an executor.
pub struct MainnetBlocks<E> {
    executor: E,
    shared: Arc<Shared>,
}

/// Input and counters that all cases share.
struct Shared {
    data: MainnetData,
    receipts_unchecked: AtomicUsize,
    tries_checked: AtomicUsize,
}

impl<E> MainnetBlocks<E> {
    /// Returns all blocks, or `None` if the pack is missing. Panics if the pack's content is
    /// unexpected.
    pub fn new(executor: E) -> Option<Self> {
        Some(Self {
            executor,
            shared: Arc::new(Shared {
                data: MainnetData::open()?,
                receipts_unchecked: AtomicUsize::new(0),
                tries_checked: AtomicUsize::new(0),
            }),
        })
    }

    /// Returns the number of blocks so far whose post-state root, where known, was compared with
    /// that of the partial trie.
    pub fn tries_checked(&self) -> usize {
        self.shared.tries_checked.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks so far whose receipts root was not compared.
    pub fn receipts_unchecked(&self) -> usize {
        self.shared.receipts_unchecked.load(Ordering::Relaxed)
    }
}

impl<E: Executor + Clone + Sync> Suite for MainnetBlocks<E> {
    type Case = MainnetBlock<E>;

    fn name(&self) -> String {
        "mainnet blocks on sparse states".to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        let data = &self.shared.data;
        let folders = data.blocks().map(|number| data.block_folder(number));
        folders.collect()
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        Ok(vec![MainnetBlock {
            executor: self.executor.clone(),
            number: number_of(file).ok_or("no block's number")?,
            shared: self.shared.clone(),
        }])
    }
}

/// One mainnet block.
pub struct MainnetBlock<E> {
    executor: E,
    number: u64,
    shared: Arc<Shared>,
}

impl<E: Executor + Sync> Case for MainnetBlock<E> {
    fn name(&self) -> String {
        let expected = self.shared.data.expected(self.number);
        let fork = expected.map_or("no fork", |expected| &expected.fork);
        format!("block {} ({fork})", self.number)
    }

    fn run(&self) -> Verdict {
        match self.check() {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}

impl<E: Executor> MainnetBlock<E> {
    fn check(&self) -> Result<(), String> {
        let data = &self.shared.data;
        let expected = data.expected(self.number)?;
        let block = data.block(self.number)?;
        let (header, state) = (&block.header, &block.state);
        let mut input = block.input();
        input.rules.block_access_list = true;
        let senders = recover_senders(&block.transactions, input.rules.is(SpecId::HOMESTEAD))
            .map_err(|error| error.to_string())?;
        if senders != block.senders {
            return Err("other senders than the node's".to_owned());
        }
        let before = match input.rules.is(SpecId::SPURIOUS_DRAGON) {
            true => without_empty(state).root(),
            false => state.root(),
        };
        same("the root before", before, expected.sparse_pre_root)?;
        let outcome = self
            .executor
            .execute(&input, state, Hooks::default())
            .map_err(|error| error.to_string())?;
        let list = outcome.access_list.as_ref().ok_or("no access list")?;
        let given = validate_access_list(header, block.transactions.len(), &list.encode());
        let given = given.map_err(|error| error.to_string())?;
        let verified =
            verify_outcome(header, &outcome, Some(&given)).map_err(|error| error.to_string())?;
        if !verified.receipts_root {
            self.shared
                .receipts_unchecked
                .fetch_add(1, Ordering::Relaxed);
        }
        let trie = partial_trie(state)?;
        let mut from_list = state.clone();
        from_list.apply(&changes_of_list(list, state));
        let mut model = block.state;
        model.apply(&outcome.changes);
        let known_root = expected.sparse_post_root;
        self.check_state(&model, known_root)?;
        // An access list does not say that an existing empty account is deleted.
        same(
            "the root from the access list alone",
            without_empty(&from_list).root(),
            without_empty(&model).root(),
        )?;
        self.check_trie(trie, &outcome.changes, &model, known_root)
    }

    /// Applies the block's changes to the partial trie, and compares its root with the known one.
    fn check_trie(
        &self,
        mut trie: PartialTrie,
        block: &Changes,
        after: &Model,
        known_root: Option<B256>,
    ) -> Result<(), String> {
        let mut apply = |changes: &Changes| {
            let applied = trie.apply(changes.accounts(), &mut NoResolve);
            applied.map_err(|error| error.to_string())?;
            root_of(&mut trie)
        };
        same("the trie's root after", apply(block)?, after.root())?;
        if let Some(root) = known_root {
            same(
                "the trie's root after",
                apply(&deletions_of_empty(after))?,
                root,
            )?;
            self.shared.tries_checked.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_state(&self, model: &Model, known_root: Option<B256>) -> Result<(), String> {
        let post = self.shared.data.state_after(self.number)?;
        let mut wanted = Model::default();
        wanted.apply(&sparse_changes(&post));
        if let Some(root) = known_root {
            same("the root after", without_empty(model).root(), root)?;
        }
        for (address, account) in &post {
            let path = keccak256(address);
            let got = model.account(&path);
            let got = got.filter(|got| !got.account.is_empty());
            let want = wanted
                .account(&path)
                .filter(|_| !account.plain().is_empty());
            if got != want {
                return Err(format!("{address} is {got:?}, not {want:?}"));
            }
        }
        Ok(())
    }
}

/// Returns a partial trie of the model's leaves, after comparing its root with the model's.
fn partial_trie(model: &Model) -> Result<PartialTrie, String> {
    let leaves = model.accounts().flat_map(|(path, held)| {
        let slots = held.slots.iter();
        let slots =
            slots.map(|(slot, value)| (TriePath::slot(path, slot), LeafValue::Slot(*value)));
        iter::once((TriePath::account(path), LeafValue::Account(held.account))).chain(slots)
    });
    let mut trie = PartialTrie::new(TriePath::EMPTY);
    let root = trie.graft_leaves(&TriePath::EMPTY, leaves, iter::empty());
    trie.set_root(root.map_err(|error| error.to_string())?);
    same("the trie's root before", root_of(&mut trie)?, model.root())?;
    Ok(trie)
}

fn root_of(trie: &mut PartialTrie) -> Result<B256, String> {
    commit(&mut [&mut *trie], &mut Batch::new());
    trie.state_root().ok_or("a trie without a root".to_owned())
}

fn same(what: &str, got: B256, wanted: B256) -> Result<(), String> {
    if got != wanted {
        return Err(format!("{what} is {got}, not {wanted}"));
    }
    Ok(())
}

/// Returns the state without empty accounts.
fn without_empty(model: &Model) -> Model {
    let mut without = model.clone();
    without.apply(&deletions_of_empty(model));
    without
}

fn deletions_of_empty(model: &Model) -> Changes {
    let empty = model
        .accounts()
        .filter(|(_, account)| account.account.is_empty());
    let deletions = empty.map(|(path, _)| AccountDiff {
        path: *path,
        account: AccountUpdate::Delete,
        wipe: true,
        slots: Vec::new(),
    });
    Changes::new(deletions.collect())
}
