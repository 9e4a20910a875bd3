//! Real mainnet blocks on the sparse state that they touch: gas, bloom and receipts against the
//! real header, and the state after against an independent implementation.
//!
//! The header's own state root can't be had from a sparse state. Receipts before Byzantium hold
//! it, so their root is not compared in those blocks, which the report counts.

use crate::{
    Case, MainnetData, Model, Suite, Verdict, changes_of_list,
    mainnet_data::{number_of, sparse_changes},
};
use alloy_primitives::{B256, keccak256};
use cambium_chain::{validate_access_list, verify_outcome};
use cambium_evm::{Executor, Hooks, recover_senders};
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, Path as TriePath};
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

/// The mainnet blocks of pack 06, over an executor.
pub struct MainnetBlocks<E> {
    executor: E,
    shared: Arc<Shared>,
}

/// What all blocks draw from, and add to.
struct Shared {
    data: MainnetData,
    receipts_unchecked: AtomicUsize,
    tries_checked: AtomicUsize,
}

impl<E> MainnetBlocks<E> {
    /// All blocks; `None` if the pack is not there. Panics if it is not what it was.
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

    /// Blocks run so far whose known root after was compared with that of our own trie.
    pub fn tries_checked(&self) -> usize {
        self.shared.tries_checked.load(Ordering::Relaxed)
    }

    /// Blocks run so far in which the receipts' root was not compared.
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
        // A list says nothing of accounts that are empty and exist.
        same(
            "the root from the access list alone",
            without_empty(&from_list).root(),
            without_empty(&model).root(),
        )?;
        self.check_trie(trie, &outcome.changes, &model, known_root)
    }

    /// The block's changes applied to our own trie give the known root too.
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

/// The model's state as a trie grown from its leaves, with the model's root.
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

/// The state without accounts that were in the sparse state, empty, and stayed so.
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
