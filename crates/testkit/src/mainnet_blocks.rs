//! Real mainnet blocks on the sparse state that they touch: gas, bloom and receipts against the
//! real header, and the state after against an independent implementation.
//!
//! The header's own state root can't be had from a sparse state. Receipts before Byzantium hold
//! it, so their root is not compared in those blocks, which the report counts.

use crate::{Case, Model, ModelError, Pack, Suite, Verdict, changes_of_list, network};
use alloy_consensus::Header;
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bytes, U64, U256, keccak256};
use cambium_chain::{validate_access_list, verify_outcome};
use cambium_evm::{BlockInput, Executor, Hooks, StateRead, Transaction, recover_senders};
use cambium_keccak::Batch;
use cambium_primitives::{
    Account, AccountChange, AccountUpdate, Changes, KECCAK_EMPTY, Path as TriePath,
};
use cambium_trie::{LeafValue, NoResolve, PartialTrie, commit};
use revm::{DatabaseRef, bytecode::Bytecode, primitives::hardfork::SpecId, state::AccountInfo};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs, iter,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The mainnet blocks of pack 06, over an executor.
pub struct MainnetBlocks<E> {
    executor: E,
    folder: PathBuf,
    expected: BTreeMap<String, Expected>,
    shared: Arc<Shared>,
}

/// What all blocks draw from.
struct Shared {
    codes: Vec<(B256, Bytes)>,
    block_hashes: BTreeMap<u64, B256>,
    receipts_unchecked: AtomicUsize,
    tries_checked: AtomicUsize,
}

#[derive(Clone, Debug, Deserialize)]
struct Expected {
    fork: String,
    sparse_pre_root: B256,
    sparse_post_root: Option<B256>,
}

#[derive(Debug, Deserialize)]
struct SparseAccount {
    balance: U256,
    #[serde(deserialize_with = "number")]
    nonce: u64,
    code_hash: Option<B256>,
    #[serde(default)]
    storage: BTreeMap<U256, U256>,
}

#[derive(Debug, Deserialize)]
struct RpcBlock {
    #[serde(flatten)]
    header: Header,
    transactions: Vec<RpcTransaction>,
    #[serde(default)]
    withdrawals: Vec<Withdrawal>,
}

#[derive(Debug, Deserialize)]
struct RpcTransaction {
    from: Address,
    #[serde(flatten)]
    transaction: Transaction,
}

/// A number, bare or as a hex string.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Bare(u64),
        Hex(U64),
    }
    Ok(match Number::deserialize(deserializer)? {
        Number::Bare(number) => number,
        Number::Hex(number) => number.to(),
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Senders and transactions of a block, of which `blocks` has a folder.
pub(crate) fn rpc_transactions(
    blocks: &Path,
    number: u64,
) -> Result<(Vec<Address>, Vec<Transaction>), String> {
    let block: RpcBlock = read(&blocks.join(number.to_string()).join("block.json"))?;
    Ok(block
        .transactions
        .into_iter()
        .map(|tx| (tx.from, tx.transaction))
        .unzip())
}

impl<E> MainnetBlocks<E> {
    /// All blocks; `None` if the pack is not there. Panics if it is not what it was.
    pub fn new(executor: E) -> Option<Self> {
        let folder = Pack::MainnetExec.open()?.join("pevm-mainnet");
        let codes: BTreeMap<B256, Bytes> = read(&folder.join("bytecodes.json")).expect("codes");
        let hashes: BTreeMap<String, B256> =
            read(&folder.join("block_hashes.json")).expect("block hashes");
        let block_hashes = hashes
            .into_iter()
            .map(|(number, hash)| (number.parse().expect("a block number"), hash))
            .collect();
        Some(Self {
            executor,
            expected: read(&folder.join("expected.dev.json")).expect("expectations"),
            shared: Arc::new(Shared {
                codes: codes.into_iter().collect(),
                block_hashes,
                receipts_unchecked: AtomicUsize::new(0),
                tries_checked: AtomicUsize::new(0),
            }),
            folder,
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
        self.expected
            .keys()
            .map(|number| self.folder.join("blocks").join(number))
            .collect()
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        let number = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let expected = self.expected[&number].clone();
        let (executor, shared) = (self.executor.clone(), self.shared.clone());
        Ok(vec![MainnetBlock {
            executor,
            folder: file.to_path_buf(),
            number,
            expected,
            shared,
        }])
    }
}

/// One mainnet block.
pub struct MainnetBlock<E> {
    executor: E,
    folder: PathBuf,
    number: String,
    expected: Expected,
    shared: Arc<Shared>,
}

impl<E: Executor + Sync> Case for MainnetBlock<E> {
    fn name(&self) -> String {
        format!("block {} ({})", self.number, self.expected.fork)
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
        let pre: BTreeMap<Address, SparseAccount> = read(&self.folder.join("pre_state.json"))?;
        let block: RpcBlock = read(&self.folder.join("block.json"))?;
        let mut state = Sparse {
            model: Model::default(),
            shared: &self.shared,
        };
        state.model.apply(&changes(&pre));
        state.model.add_codes(self.shared.codes.iter().cloned());
        let spec = network(&self.expected.fork).ok_or("a fork that is not known")?;
        let header = &block.header;
        let merged = header.difficulty.is_zero();
        let mut rules = spec.rules_at(header.number, header.timestamp, merged);
        rules.block_access_list = true;
        let (from, transactions): (Vec<_>, Vec<_>) = block
            .transactions
            .into_iter()
            .map(|tx| (tx.from, tx.transaction))
            .unzip();
        let senders = recover_senders(&transactions, rules.is(SpecId::HOMESTEAD))
            .map_err(|error| error.to_string())?;
        if senders != from {
            return Err("other senders than the node's".to_owned());
        }
        let before = match rules.is(SpecId::SPURIOUS_DRAGON) {
            true => without_empty(&state.model).root(),
            false => state.model.root(),
        };
        same("the root before", before, self.expected.sparse_pre_root)?;
        let input = BlockInput {
            rules,
            header,
            transactions: &transactions,
            senders: &senders,
            ommers: &[],
            withdrawals: &block.withdrawals,
            access_list: None,
            found: None,
        };
        let outcome = self
            .executor
            .execute(&input, &state, Hooks::default())
            .map_err(|error| error.to_string())?;
        let list = outcome.access_list.as_ref().ok_or("no access list")?;
        let given = validate_access_list(header, transactions.len(), &list.encode());
        let given = given.map_err(|error| error.to_string())?;
        let verified =
            verify_outcome(header, &outcome, Some(&given)).map_err(|error| error.to_string())?;
        if !verified.receipts_root {
            self.shared
                .receipts_unchecked
                .fetch_add(1, Ordering::Relaxed);
        }
        let trie = partial_trie(&state.model)?;
        let mut from_list = state.model.clone();
        from_list.apply(&changes_of_list(list, &state.model));
        let mut model = state.model;
        model.apply(&outcome.changes);
        self.check_state(&model)?;
        // A list says nothing of accounts that are empty and exist.
        same(
            "the root from the access list alone",
            without_empty(&from_list).root(),
            without_empty(&model).root(),
        )?;
        self.check_trie(trie, &outcome.changes, &model)
    }

    /// The block's changes applied to our own trie give the known root too.
    fn check_trie(
        &self,
        mut trie: PartialTrie,
        block: &Changes,
        after: &Model,
    ) -> Result<(), String> {
        let mut apply = |changes: &Changes| {
            let applied = trie.apply(changes.accounts(), &mut NoResolve);
            applied.map_err(|error| error.to_string())?;
            root_of(&mut trie)
        };
        same("the trie's root after", apply(block)?, after.root())?;
        if let Some(root) = self.expected.sparse_post_root {
            same(
                "the trie's root after",
                apply(&deletions_of_empty(after))?,
                root,
            )?;
            self.shared.tries_checked.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_state(&self, model: &Model) -> Result<(), String> {
        let post: BTreeMap<Address, SparseAccount> =
            read(&self.folder.join("post_state.eels.json"))?;
        let mut wanted = Model::default();
        wanted.apply(&changes(&post));
        if let Some(root) = self.expected.sparse_post_root {
            same("the root after", without_empty(model).root(), root)?;
        }
        for (address, account) in &post {
            let path = keccak256(address);
            let got = model.account(&path);
            let got = got.filter(|got| !got.account.is_empty());
            let want = wanted.account(&path).filter(|_| !plain(account).is_empty());
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

fn plain(account: &SparseAccount) -> Account {
    let code_hash = account.code_hash.unwrap_or(KECCAK_EMPTY);
    Account {
        nonce: account.nonce,
        balance: account.balance,
        code_hash,
    }
}

fn changes(accounts: &BTreeMap<Address, SparseAccount>) -> Changes {
    let accounts = accounts.iter().map(|(address, account)| AccountChange {
        path: keccak256(address),
        account: AccountUpdate::Put(plain(account)),
        wipe: false,
        slots: account
            .storage
            .iter()
            .filter(|(_, value)| !value.is_zero())
            .map(|(slot, value)| (keccak256(slot.to_be_bytes::<32>()), *value))
            .collect(),
    });
    Changes::new(accounts.collect())
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
    let deletions = empty.map(|(path, _)| AccountChange {
        path: *path,
        account: AccountUpdate::Delete,
        wipe: true,
        slots: Vec::new(),
    });
    Changes::new(deletions.collect())
}

/// A sparse state. The hash of a block that is not listed is that of its number as text.
struct Sparse<'a> {
    model: Model,
    shared: &'a Shared,
}

impl DatabaseRef for Sparse<'_> {
    type Error = ModelError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ModelError> {
        self.model.basic_ref(address)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, ModelError> {
        self.model.code_by_hash_ref(hash)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, ModelError> {
        self.model.storage_ref(address, slot)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ModelError> {
        let listed = self.shared.block_hashes.get(&number).copied();
        Ok(listed.unwrap_or_else(|| keccak256(number.to_string())))
    }
}

impl StateRead for Sparse<'_> {
    fn has_storage(&self, address: Address) -> Result<bool, ModelError> {
        self.model.has_storage(address)
    }
}
