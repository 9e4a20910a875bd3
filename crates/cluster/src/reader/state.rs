//! The trie of a reader: what is loaded into it, how it moves on, and what is made of it.

use super::{
    error::ReaderError,
    trie::{Job, StateTrie, leaves},
};
use crate::{
    bag::{NodeBag, ReadGroup, ReadRequest},
    shards::Shards,
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY, keccak256, map::HashMap};
use cambium_primitives::{BlockId, BlockNumber, Changes, Path};
use cambium_trie::{
    BagLevels, BagNodes, Deletes, Lookup, PartialTrie, ProofTargets, UnfoldError, UpdateError,
};
use parking_lot::RwLock;
use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, Ordering},
};

/// Bytes of codes beyond which a reader forgets them, between two blocks.
const CODE_BYTES_MAX: usize = 256 << 20;

/// The state at one block, verified against its root.
#[derive(Debug)]
pub struct Reader {
    shards: Shards,
    pub(super) block: BlockId,
    /// Nodes at depths below these are kept from block to block.
    levels: [u8; 2],
    pub(super) trie: RwLock<StateTrie>,
    pub(super) codes: RwLock<HashMap<B256, Bytes>>,
    pub(super) hashes: HashMap<BlockNumber, B256>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    nodes: AtomicU64,
    bytes: AtomicU64,
}

/// The same state with all that is loaded of it, which goes its own way. It has counted nothing yet.
impl Clone for Reader {
    fn clone(&self) -> Self {
        Self {
            shards: self.shards.clone(),
            block: self.block,
            levels: self.levels,
            trie: RwLock::new(self.trie.read().clone()),
            codes: RwLock::new(self.codes.read().clone()),
            hashes: self.hashes.clone(),
            counters: Counters::default(),
        }
    }
}

impl Reader {
    /// Reads the state after the block with this header, whose hash the caller trusts. It keeps nodes of the account trie at
    /// depths below `accounts`, and those of storage tries below `slots`.
    pub fn new(shards: Shards, header: &Header, accounts: u8, slots: u8) -> Self {
        let block = BlockId::new(header.number, header.hash_slow());
        let hashes = [(block.number, block.hash)].into_iter();
        let parent = header.number.checked_sub(1);
        Self {
            shards,
            block,
            levels: [accounts, slots],
            trie: RwLock::new(StateTrie::new(header.state_root, NonZeroUsize::MIN)),
            codes: RwLock::default(),
            hashes: hashes
                .chain(parent.map(|number| (number, header.parent_hash)))
                .collect(),
            counters: Counters::default(),
        }
    }

    /// The same, keeping at least the nodes of the account trie at depths below `accounts`.
    pub(crate) fn keeping(mut self, accounts: u8) -> Self {
        self.levels[0] = self.levels[0].max(accounts);
        self
    }

    /// Lets as many threads work on the trie.
    pub(crate) fn set_threads(&mut self, threads: NonZeroUsize) {
        self.trie.get_mut().set_threads(threads);
    }

    /// Divides the trie into parts for threads, if its root is a branch that is loaded.
    pub(crate) fn divide(&mut self) {
        self.trie.get_mut().divide();
    }

    /// How many threads work on the trie.
    pub(crate) fn threads(&self) -> NonZeroUsize {
        self.trie.read().threads()
    }

    /// Loads all nodes of the account trie at depths below `depth`, which is 1 or 2.
    pub(crate) fn load_top(&self, depth: usize) -> Result<(), ReaderError> {
        let nibbles = if depth > 1 { 16 } else { 1 };
        let keys = (0..nibbles).map(|nibble| some_key_below(&Path::from_nibbles(&[nibble])));
        self.load(&ProofTargets::new(keys.collect()), Deletes::Nothing)
    }

    /// The block after which the state is read.
    pub const fn block(&self) -> BlockId {
        self.block
    }

    /// Requests to shards, and nodes and bytes that came with their answers.
    pub fn counts(&self) -> (u64, u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters {
            requests,
            nodes,
            bytes,
        } = &self.counters;
        (get(requests), get(nodes), get(bytes))
    }

    /// Bytes of the trie in memory.
    pub fn memory_bytes(&self) -> usize {
        self.trie.read().memory_bytes()
    }

    /// Loads what reading `targets` needs, all in one round of requests.
    ///
    /// # Errors
    ///
    /// If no replica has an answer that can be verified.
    pub fn load(&self, targets: &ProofTargets, deletes: Deletes) -> Result<(), ReaderError> {
        let groups = self.missing(targets, deletes);
        if !groups.is_empty() {
            self.ask(groups, Vec::new())?;
        }
        if deletes == Deletes::Nothing {
            return Ok(());
        }
        // Siblings below nodes that were here already.
        let mut trie = self.trie.write();
        let left = trie.load_siblings(targets, deletes, &BagNodes::default());
        drop(trie);
        let left = left.map_err(|error| update_error(self.block, error))?;
        let keys = left.iter().map(some_key_below);
        let groups = self.missing(&ProofTargets::new(keys.collect()), Deletes::Nothing);
        if groups.is_empty() {
            return Ok(());
        }
        self.ask(groups, Vec::new())
    }

    /// The targets whose paths end at blinded nodes, by the depths of these.
    fn missing(&self, targets: &ProofTargets, deletes: Deletes) -> Vec<ReadGroup> {
        let trie = self.trie.read();
        let found = trie.read_with(targets.accounts(), missing_of);
        let mut groups = ByDepths::default();
        for (levels, targets) in found.into_iter().flatten() {
            groups.entry(levels).or_default().extend(targets);
        }
        let mut groups: Vec<_> = groups
            .into_iter()
            .map(|((accounts, slots), targets)| ReadGroup {
                targets: ProofTargets::new(targets),
                levels: BagLevels {
                    accounts,
                    slots,
                    deletes,
                },
            })
            .collect();
        groups.sort_by_key(|group| (group.levels.accounts, group.levels.slots));
        groups
    }

    /// Asks the shards, and takes what can be verified.
    pub(super) fn ask(
        &self,
        groups: Vec<ReadGroup>,
        codes: Vec<(B256, B256)>,
    ) -> Result<(), ReaderError> {
        let block = self.block;
        let request = ReadRequest {
            block,
            groups,
            codes,
            slots_from: None,
        };
        self.shards.read(&request, |part, bag| self.take(part, bag))
    }

    /// Takes an answer to a request, if it has all that was asked for.
    fn take(&self, request: &ReadRequest, bag: NodeBag) -> Result<(), ReaderError> {
        let block = self.block;
        let count = |counter: &AtomicU64, by: usize| {
            counter.fetch_add(by as u64, Ordering::Relaxed);
        };
        count(&self.counters.requests, 1);
        count(&self.counters.nodes, bag.nodes.len());
        count(&self.counters.bytes, bag.bytes());
        let mut codes = Vec::new();
        let given = bag.codes.iter().map(|code| (keccak256(code), code));
        let given: HashMap<_, _> = given.collect();
        for (hash, _) in &request.codes {
            let code = *given
                .get(hash)
                .ok_or(ReaderError::Code { block, code: *hash })?;
            codes.push((*hash, code.clone()));
        }
        self.codes.write().extend(codes);
        self.take_nodes(&BagNodes::new(&bag.nodes), &request.groups)
    }

    /// Unfolds the nodes of a bag on the paths of targets.
    fn take_nodes(&self, bag: &BagNodes, groups: &[ReadGroup]) -> Result<(), ReaderError> {
        let mut trie = self.trie.write();
        for ReadGroup { targets, levels } in groups {
            let loaded = trie.load(targets, bag);
            loaded.map_err(|error| update_error(self.block, error))?;
            if levels.deletes != Deletes::Nothing {
                let loaded = trie.load_siblings(targets, levels.deletes, bag);
                loaded.map_err(|error| update_error(self.block, error))?;
            }
        }
        Ok(())
    }

    /// Takes nodes of a bag on the paths of targets where the trie has blinded nodes with their hashes. Returns the number of
    /// accounts and slots whose paths are incomplete afterwards.
    pub fn offer(&self, bag: &BagNodes, targets: &ProofTargets) -> usize {
        let all = leaves(targets.accounts());
        let mut trie = self.trie.write();
        // A node that does not belong where it was found leaves the path incomplete, as one does that is missing.
        let missing = trie.load_known(targets, bag);
        if all > targets.accounts().len() {
            let _ = trie.load_siblings(targets, Deletes::Slots, bag);
        }
        missing.unwrap_or(all)
    }

    /// Keeps codes, which are known by their hashes.
    pub fn offer_codes(&self, codes: &[Bytes]) {
        let known = codes.iter().map(|code| (keccak256(code), code.clone()));
        self.codes.write().extend(known);
    }

    /// Those of the codes with these hashes that are here.
    pub fn codes<'h>(&self, hashes: impl Iterator<Item = &'h B256>) -> Vec<Bytes> {
        let codes = self.codes.read();
        hashes.filter_map(|hash| codes.get(hash).cloned()).collect()
    }

    /// The codes that are here of the accounts among targets.
    pub fn codes_of(&self, targets: &ProofTargets) -> Vec<Bytes> {
        let trie = self.trie.read();
        let hashes: std::collections::BTreeSet<_> = targets
            .accounts()
            .iter()
            .filter_map(|(path, _)| match trie.account(path) {
                Lookup::Account(account) if account.code_hash != KECCAK256_EMPTY => {
                    Some(account.code_hash)
                }
                _ => None,
            })
            .collect();
        drop(trie);
        self.codes(hashes.iter())
    }

    /// The nodes on the paths of targets, from these levels on. All of them must have been loaded.
    ///
    /// # Errors
    ///
    /// If a node was not loaded.
    pub fn nodes(
        &self,
        targets: &ProofTargets,
        levels: BagLevels,
    ) -> Result<Vec<Bytes>, ReaderError> {
        let nodes = self.trie.read().nodes(targets, levels);
        nodes.ok_or(ReaderError::Incomplete(self.block))
    }

    /// The nodes that reading targets and applying changes need, and no others. All of them must have been loaded.
    ///
    /// # Errors
    ///
    /// If a node was not loaded.
    pub(crate) fn witness(
        &self,
        targets: &ProofTargets,
        changes: &Changes,
    ) -> Result<Vec<Bytes>, ReaderError> {
        let nodes = self.trie.write().witness(targets, changes.accounts());
        nodes.map_err(|_| ReaderError::Incomplete(self.block))
    }

    /// Loads what applying changes needs.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn load_for_changes(&self, changes: &Changes) -> Result<(), ReaderError> {
        self.load(
            &ProofTargets::of_changes(changes.accounts()),
            Deletes::Nothing,
        )?;
        // The kind of a node that remains beside a deleted leaf decides how their branch collapses.
        let deleted = ProofTargets::of_deletes(changes.accounts());
        match deleted.accounts() {
            [] => Ok(()),
            _ => self.load(&deleted, Deletes::All),
        }
    }

    /// Moves on to a child of the block: applies its changes, verifies that they lead to its state root, and prunes the
    /// trie. What the changes need is loaded first. After an error, the reader is at its block as before.
    ///
    /// # Errors
    ///
    /// If the block is no child, if what the changes need can't be read, or if they lead to another root.
    pub fn advance(&mut self, header: &Header, changes: &Changes) -> Result<(), ReaderError> {
        let block = BlockId::new(header.number, header.hash_slow());
        let head = self.block;
        if header.parent_hash != head.hash || head.number.checked_add(1) != Some(block.number) {
            return Err(ReaderError::NotChild { block, head });
        }
        self.load_for_changes(changes)?;
        let before = self.trie.get_mut().state_root();
        let got = self.apply(block, changes, Vec::new())?;
        let expected = header.state_root;
        if got != expected {
            // What was read of the block is lost.
            self.trie.get_mut().forget(before);
            return Err(ReaderError::Root {
                block,
                expected,
                got,
            });
        }
        self.move_to(block);
        self.settle()
    }

    /// Moves on to a block of one's own: applies its changes, for which all was loaded, and makes its header of the
    /// trie and of its root. [`Self::settle`] comes after it. Returns the block's name.
    ///
    /// # Errors
    ///
    /// If the changes don't fit the state. The reader is at its block as before.
    pub fn advance_by(
        &mut self,
        changes: &Changes,
        header: impl FnOnce(&PartialTrie, B256) -> Header,
    ) -> Result<BlockId, ReaderError> {
        self.advance_beside(changes, Vec::new(), header)
    }

    /// As [`Self::advance_by`]. Threads do the jobs `beside` meanwhile, which end before the header is made.
    pub(crate) fn advance_beside(
        &mut self,
        changes: &Changes,
        beside: Vec<Box<dyn FnOnce() + Send + '_>>,
        header: impl FnOnce(&PartialTrie, B256) -> Header,
    ) -> Result<BlockId, ReaderError> {
        let beside = beside.into_iter().map(|job| -> Job<'_> {
            Box::new(|| {
                job();
                Ok(())
            })
        });
        let root = self.apply(self.block, changes, beside.collect())?;
        let header = header(self.trie.get_mut().top(), root);
        let block = BlockId::new(header.number, header.hash_slow());
        self.move_to(block);
        Ok(block)
    }

    /// Applies changes of `block`. Returns the root.
    fn apply(
        &mut self,
        block: BlockId,
        changes: &Changes,
        beside: Vec<Job<'_>>,
    ) -> Result<B256, ReaderError> {
        let trie = self.trie.get_mut();
        let before = trie.state_root();
        trie.apply(changes.accounts(), beside).map_err(|error| {
            trie.forget(before);
            update_error(block, error)
        })
    }

    fn move_to(&mut self, block: BlockId) {
        self.block = block;
        self.hashes.insert(block.number, block.hash);
        self.hashes
            .retain(|number, _| block.number.saturating_sub(*number) <= 256);
    }

    /// The storage roots of the accounts whose slots are among these changes, sorted by path.
    pub fn storage_roots(&self, changes: &Changes) -> Vec<(B256, B256)> {
        let trie = self.trie.read();
        let changes = changes.accounts().iter();
        changes
            .filter(|change| change.wipe || !change.slots.is_empty())
            .filter_map(|change| Some((change.path, trie.storage_root_of(&change.path)?)))
            .collect()
    }

    /// Prunes the trie to the levels that are kept.
    ///
    /// # Errors
    ///
    /// Never for a trie that was read, and hashed since it changed.
    pub fn settle(&mut self) -> Result<(), ReaderError> {
        let ([accounts, slots], block) = (self.levels, self.block);
        let pruned = self.trie.get_mut().prune([accounts, slots]);
        pruned.map_err(|error| update_error(block, UpdateError::Trie(error)))?;
        let codes = self.codes.get_mut();
        if codes.values().map(|code| code.len()).sum::<usize>() > CODE_BYTES_MAX {
            codes.clear();
        }
        Ok(())
    }
}

fn update_error(block: BlockId, error: UpdateError<UnfoldError>) -> ReaderError {
    match error {
        UpdateError::Resolve(error) => {
            let source = Box::new(error);
            ReaderError::Bag { block, source }
        }
        UpdateError::Trie(error) => {
            let source = Box::new(error);
            ReaderError::Changes { block, source }
        }
    }
}

/// Targets by the depths of the blinded nodes at which their paths end: in the account trie, and in a storage trie.
type ByDepths = HashMap<(u8, u8), Vec<(B256, Vec<B256>)>>;

/// The targets of one trie whose paths end at blinded nodes.
fn missing_of(trie: &PartialTrie, targets: &[(B256, Vec<B256>)]) -> ByDepths {
    let stub_at = |path: &Path| match trie.lookup(path) {
        Lookup::Stub { depth, .. } => Some(depth),
        _ => None,
    };
    let mut groups = ByDepths::default();
    for (account, slots) in targets {
        if let Some(depth) = stub_at(&Path::account(account)) {
            let group = groups.entry((depth as u8, 0)).or_default();
            group.push((*account, slots.clone()));
            continue;
        }
        let mut of_depth = HashMap::<u8, Vec<B256>>::default();
        for slot in slots {
            if let Some(depth) = stub_at(&Path::slot(account, slot)) {
                of_depth.entry((depth - 64) as u8).or_default().push(*slot);
            }
        }
        for (depth, slots) in of_depth {
            let group = groups.entry((64, depth)).or_default();
            group.push((*account, slots));
        }
    }
    groups
}

/// A key whose path begins with this one.
fn some_key_below(path: &Path) -> (B256, Vec<B256>) {
    let mut packed = [0; 64];
    let own = path.packed();
    packed[..own.len()].copy_from_slice(own);
    let (account, slot) = packed.split_at(32);
    let slot = (path.len() > 64).then(|| B256::from_slice(slot));
    (B256::from_slice(account), slot.into_iter().collect())
}
