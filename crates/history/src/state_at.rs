//! The state after a block: the one type for states of the database and for those of a history.

use crate::{
    HistoryError,
    entry::{Key, decode_account, decode_slot},
    in_order::OldValues,
    nodes::{NodeReader, trie_error},
    old::Old,
    rewind::Source,
    run::PagesAhead,
    runs::Runs,
};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, BlockId, BlockNumber, Changes, Path, SlotValue};
use cambium_state::{StateError, StateTrie, View, account_info};
use cambium_trie::{
    AccountProof, EMPTY_ROOT, ExtractedRange, LayeredProof, LeafRange, Link, NoResolve, NodeRef,
    PartialTrie, ProofTargets, RangeProof, Resolve, StorageKey, Stub, TrieError, UpdateError,
};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::{
    num::NonZeroUsize,
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

impl DBErrorMarker for HistoryError {}

/// The state after a block: at the head, restored from the log, or at an old block of a history. It never
/// changes and holds no lock. That of a history takes no memory for the distance to the head.
#[derive(Clone)]
pub struct StateAt {
    /// The state after the newest block of the runs, or the state itself.
    present: Arc<Present>,
    old: Option<Old>,
}

/// The state after the newest block of a history, shared by all views of old blocks.
pub(crate) struct Present {
    pub(crate) view: View,
    /// Made for the first proof.
    trie: OnceLock<StateTrie>,
}

impl Present {
    pub(crate) const fn new(view: View) -> Self {
        Self {
            view,
            trie: OnceLock::new(),
        }
    }

    /// The state trie.
    pub(crate) fn trie(&self) -> Result<&StateTrie, HistoryError> {
        if let Some(trie) = self.trie.get() {
            return Ok(trie);
        }
        let trie = StateTrie::of(&self.view)?;
        Ok(self.trie.get_or_init(|| trie))
    }
}

impl StateAt {
    /// The state after `block`. `present` is that after the newest block of `runs`.
    pub(crate) const fn new(present: Arc<Present>, runs: Arc<Runs>, block: BlockId) -> Self {
        Self {
            present,
            old: Some(Old { runs, block }),
        }
    }

    /// The block whose state this is.
    pub fn block(&self) -> BlockId {
        match &self.old {
            Some(old) => old.block,
            None => self.present.view.block(),
        }
    }

    /// Reads the account at keccak(address); `None` if it didn't exist. Takes one device read in
    /// most cases, and one more of the present state if it has not changed since.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Damaged`] names a file whose bytes are not those that were written, and the
    /// errors of [`View::account`].
    pub fn account(&self, path: &B256) -> Result<Option<Account>, HistoryError> {
        if let Some(old) = &self.old
            && let Some(account) =
                old.find(&Key::account(path), &PagesAhead::NONE, decode_account)?
        {
            return Ok(account);
        }
        Ok(self.present.view.account(path)?)
    }

    /// Reads the slot at keccak(slot) of the account at keccak(address); zero if it was not set.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, HistoryError> {
        if let Some(old) = &self.old
            && let Some(value) =
                old.find(&Key::slot(account, slot), &PagesAhead::NONE, decode_slot)?
        {
            return Ok(value);
        }
        Ok(self.present.view.slot(account, slot)?)
    }

    /// The first block after this one that changed the account at keccak(address), or its slot at keccak(slot), as far as the
    /// history goes; `None` if none has, and for a state that is not below the history's newest block. Takes one device read in most
    /// cases.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn changed_by(
        &self,
        account: &B256,
        slot: Option<&B256>,
    ) -> Result<Option<BlockNumber>, HistoryError> {
        let Some(old) = &self.old else {
            return Ok(None);
        };
        match slot {
            None => old.changed_by(&Key::account(account)),
            Some(slot) => old.changed_by(&Key::slot(account, slot)),
        }
    }

    /// Reads the code with that hash. Codes are never removed.
    ///
    /// # Errors
    ///
    /// As [`View::code`].
    pub fn code(&self, hash: &B256) -> Result<Bytes, HistoryError> {
        Ok(self.present.view.code(hash)?)
    }

    /// Reads all non-zero slots of an account, by keccak(slot).
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn slots(&self, account: &B256) -> Result<Vec<(B256, U256)>, HistoryError> {
        let mut slots = Vec::new();
        self.each_slot(account, |slot, value| {
            slots.push((slot, value));
            ControlFlow::Continue(())
        })?;
        Ok(slots)
    }

    /// Visits the non-zero slots of an account in the order of keccak(slot), until `visit` breaks.
    /// Some pages of each run are in memory at a time.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn each_slot(
        &self,
        account: &B256,
        visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), HistoryError> {
        self.each_slot_from(account, &B256::ZERO, visit)
    }

    /// As [`StateAt::each_slot`], from keccak(slot) `from` on.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn each_slot_from(
        &self,
        account: &B256,
        from: &B256,
        mut visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), HistoryError> {
        let present = &self.present.view;
        let Some(old) = &self.old else {
            return Ok(present.each_slot_from(account, from, visit)?);
        };
        OldValues::slots(old, account, from)?.over(&mut visit, |visit| {
            present.each_slot_from(account, from, visit)
        })
    }

    /// Visits the accounts from keccak(address) `from` on, in the order of keccak(address), until `visit`
    /// breaks, as [`View::each_account`]. At an old block this reads everything that has changed since in the
    /// part of the keys that is visited, slots included.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn each_account(
        &self,
        from: &B256,
        mut visit: impl FnMut(B256, Account) -> ControlFlow<()>,
    ) -> Result<(), HistoryError> {
        let present = &self.present.view;
        let Some(old) = &self.old else {
            return Ok(present.each_account(from, visit)?);
        };
        OldValues::accounts(old, from)?.over(&mut visit, |visit| present.each_account(from, visit))
    }

    /// Reads the account at an address; `None` if it didn't exist. Hashes the address, and costs what
    /// [`StateAt::account`] does.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn account_at(&self, address: Address) -> Result<Option<Account>, HistoryError> {
        self.account(&keccak256(address))
    }

    /// Reads a slot of the account at an address; zero if it was not set. Hashes both, and costs what
    /// [`StateAt::slot`] does.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn slot_at(&self, address: Address, slot: U256) -> Result<U256, HistoryError> {
        self.slot(&keccak256(address), &keccak256(slot.to_be_bytes::<32>()))
            .map_err(|error| error.at_address(address))
    }

    /// Whether an account had a non-zero slot. Reads no further than the first one.
    ///
    /// # Errors
    ///
    /// As [`StateAt::account`].
    pub fn has_storage(&self, account: &B256) -> Result<bool, HistoryError> {
        if self.old.is_none() {
            return Ok(self.present.view.has_storage(account)?);
        }
        let mut has_one = false;
        self.each_slot(account, |_, _| {
            has_one = true;
            ControlFlow::Break(())
        })?;
        Ok(has_one)
    }

    /// The hash of this block or of an ancestor: as [`View::block_hash`].
    ///
    /// # Errors
    ///
    /// As [`View::block_hash`].
    pub fn block_hash(&self, number: BlockNumber) -> Result<Option<B256>, HistoryError> {
        match number > self.block().number {
            true => Ok(None),
            false => Ok(self.present.view.block_hash(number)?),
        }
    }
}

impl StateAt {
    /// The state root. The node that has it is put together and hashed.
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`].
    pub fn state_root(&self) -> Result<B256, HistoryError> {
        let Some(old) = &self.old else {
            return Ok(self.present.view.state_root());
        };
        let mut nodes = self.nodes(old)?;
        let mut trie = nodes.root()?;
        let root = trie.state_root().ok_or(HistoryError::NoNodes)?;
        if root != EMPTY_ROOT {
            trie.load_node(&Path::EMPTY, &mut nodes)
                .map_err(trie_error)?;
        }
        Ok(root)
    }

    /// The state trie, blinded from the root on, with a resolver of its nodes. Callers that compute roots of states
    /// above this one apply their changes to it, one block after another: each node is loaded once.
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`].
    pub fn partial_trie(&self) -> Result<(PartialTrie, StateNodes<'_>), HistoryError> {
        if let Some(old) = &self.old {
            let mut nodes = self.nodes(old)?;
            let trie = nodes.root()?;
            return Ok((trie, StateNodes(Source::Past(Box::new(nodes)))));
        }
        let present = self.present.trie()?;
        let trie = match present.root() {
            EMPTY_ROOT => PartialTrie::new(Path::EMPTY),
            root => PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(root))),
        };
        let nodes = Source::Present(Box::new(present.reader()));
        Ok((trie, StateNodes(nodes)))
    }

    /// Extracts the nodes on the paths to `keys`, from the state root on. All other subtries are blinded. Each node is
    /// hashed, and compared with the reference in its parent. No proof waits for another, or for an import.
    ///
    /// # Errors
    ///
    /// [`HistoryError::NoNodes`] if the history has values alone, [`HistoryError::BrokenNode`] if a
    /// node has another hash, and the errors of [`StateAt::account`].
    pub fn extract(&self, keys: &ProofTargets) -> Result<PartialTrie, HistoryError> {
        let Some(old) = &self.old else {
            return Ok(self.present.view.extract(keys)?);
        };
        let mut nodes = self.nodes(old)?;
        nodes.read_paths_ahead(keys);
        let mut trie = nodes.root()?;
        trie.extract(keys, &mut nodes).map_err(trie_error)
    }

    /// Proves the values, or the absence, of the account at `address` and of some of its slots, as
    /// `eth_getProof` does (EIP-1186).
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`].
    pub fn prove_account(
        &self,
        address: Address,
        slots: &[StorageKey],
    ) -> Result<AccountProof, HistoryError> {
        let paths = slots.iter().map(|key| keccak256(key.slot)).collect();
        let targets = ProofTargets::new(vec![(keccak256(address), paths)]);
        // The extracted trie has all nodes of the proof, so there is nothing to resolve.
        self.extract(&targets)
            .map_err(|error| error.at_address(address))?
            .prove_account(address, slots, &mut NoResolve)
            .map_err(|error| {
                let error = match error {
                    UpdateError::Trie(error) => error,
                    UpdateError::Resolve(missing) => TrieError::NoNode { path: missing.path },
                };
                StateError::Trie(error).into()
            })
    }

    /// As [`StateAt::prove_account`], in alloy's type for the response of `eth_getProof`.
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`].
    #[cfg(feature = "rpc")]
    pub fn prove(
        &self,
        address: Address,
        slots: &[B256],
    ) -> Result<cambium_trie::EIP1186AccountProofResponse, HistoryError> {
        let slots: Vec<_> = slots.iter().map(|slot| StorageKey::from(*slot)).collect();
        Ok(self.prove_account(address, &slots)?.into())
    }

    /// Proves values under the commitment `layered`, as [`View::prove_layered`].
    ///
    /// # Errors
    ///
    /// [`HistoryError::NoNodes`] at an old block of a history, and the errors of [`View::prove_layered`].
    pub fn prove_layered(&self, targets: &ProofTargets) -> Result<LayeredProof, HistoryError> {
        match &self.old {
            Some(_) => Err(HistoryError::NoNodes),
            None => Ok(self.present.view.prove_layered(targets)?),
        }
    }

    /// Proves a page of accounts, as [`View::prove_accounts`].
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`].
    pub fn prove_accounts(
        &self,
        from: B256,
        limit: NonZeroUsize,
    ) -> Result<RangeProof, HistoryError> {
        let range = LeafRange::accounts(from, B256::repeat_byte(u8::MAX));
        Ok(RangeProof::new(None, &self.extract_range(&range, limit)?))
    }

    /// Proves a page of the slots of an account, as [`View::prove_slots`].
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`].
    pub fn prove_slots(
        &self,
        address: Address,
        from: B256,
        limit: NonZeroUsize,
    ) -> Result<RangeProof, HistoryError> {
        let range = LeafRange::slots(keccak256(address), from, B256::repeat_byte(u8::MAX));
        let extracted = self.extract_range(&range, limit);
        let extracted = extracted.map_err(|error| error.at_address(address))?;
        Ok(RangeProof::new(Some(address), &extracted))
    }

    /// Extracts the nodes on the paths to `keys`, and all nodes that applying `changes` needs.
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`], and an error if `changes` contradict the state.
    pub fn extract_for_changes(
        &self,
        keys: &ProofTargets,
        changes: &Changes,
    ) -> Result<PartialTrie, HistoryError> {
        let Some(old) = &self.old else {
            return Ok(self.present.view.extract_for_changes(keys, changes)?);
        };
        let mut nodes = self.nodes(old)?;
        nodes.read_paths_ahead(
            &keys
                .clone()
                .and(&ProofTargets::of_changes(changes.accounts())),
        );
        let mut trie = nodes.root()?;
        trie.extract_for_changes(keys, changes.accounts(), &mut nodes)
            .map_err(trie_error)
    }

    /// Extracts the leaves of a range in the order of their paths, `limit` of them at most, and the nodes
    /// that prove that there are no others.
    ///
    /// # Errors
    ///
    /// As [`StateAt::extract`], and an error if the range ends before it begins.
    pub fn extract_range(
        &self,
        range: &LeafRange,
        limit: NonZeroUsize,
    ) -> Result<ExtractedRange, HistoryError> {
        let Some(old) = &self.old else {
            return Ok(self.present.view.extract_range(range, limit)?);
        };
        let mut nodes = self.nodes(old)?;
        let first = match range.account {
            None => (range.first, Vec::new()),
            Some(account) => (account, vec![range.first]),
        };
        nodes.read_paths_ahead(&ProofTargets::new(vec![first]));
        let mut trie = nodes.root()?;
        trie.extract_range(range, limit, &mut nodes)
            .map_err(trie_error)
    }

    /// The nodes of the state trie at this old block.
    pub(crate) fn nodes<'a>(&'a self, old: &'a Old) -> Result<NodeReader<'a>, HistoryError> {
        if !old.runs.has_nodes {
            return Err(HistoryError::NoNodes);
        }
        let present = &*self.present;
        Ok(NodeReader::new(old, &present.view, present.trie()?))
    }

    /// The value of a key, as entries have it.
    pub(crate) fn encoded(&self, key: &Key) -> Result<Vec<u8>, HistoryError> {
        let mut value = Vec::new();
        let (account, slot) = key.paths();
        match slot {
            None => {
                if let Some(account) = self.account(&account)? {
                    account.encode_to(&mut value);
                }
            }
            Some(slot) => {
                let slot = SlotValue::new(self.slot(&account, &slot)?);
                value.extend_from_slice(slot.as_bytes());
            }
        }
        Ok(value)
    }
}

/// Resolves the blinded nodes of the state trie after a block: see [`StateAt::partial_trie`].
pub struct StateNodes<'a>(Source<'a>);

impl Resolve for StateNodes<'_> {
    type Error = HistoryError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, HistoryError> {
        self.0.resolve(path, stub, into)
    }

    fn read_ahead(&mut self, nodes: &[(Path, Stub)]) -> Result<(), HistoryError> {
        match &mut self.0 {
            Source::Present(reader) => Ok(reader.read_ahead(nodes)?),
            Source::Past(reader) => reader.read_ahead(nodes),
        }
    }
}

impl From<View> for StateAt {
    /// The state that a view of the database has.
    fn from(base: View) -> Self {
        Self {
            present: Arc::new(Present::new(base)),
            old: None,
        }
    }
}

/// revm reads by address and slot number, whose hashes are the keys of the state.
impl DatabaseRef for StateAt {
    type Error = HistoryError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, HistoryError> {
        Ok(self.account_at(address)?.map(account_info))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, HistoryError> {
        Ok(self.present.view.code_by_hash_ref(code_hash)?)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, HistoryError> {
        self.slot_at(address, index)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, HistoryError> {
        Ok(self.block_hash(number)?.unwrap_or_default())
    }
}
