//! The whole state at one block, read from shards that nobody trusts.
//!
//! A reader has the state trie from its root down, pruned. What it lacks it asks for, and takes a node only where its trie has
//! a blinded node with that hash. So every value that it returns follows from the state root, whoever answered.

use crate::{
    bag::{NodeBag, ReadError, ReadGroup, ReadRequest},
    shards::Shards,
};
use alloy_consensus::Header;
use alloy_primitives::{
    Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256,
    map::{HashMap, HashSet},
};
use cambium_evm::{ManyRead, StateRead, account_info};
use cambium_primitives::{Account, BlockId, BlockNumber, Changes, Path};
use cambium_state::bytecode;
use cambium_trie::{
    Alone, BagLevels, BagMaker, BagNodes, Deletes, EMPTY_ROOT, Lookup, NodeRef, PartialTrie,
    ProofTargets, Stub, TrieError, UnfoldError, UpdateError, commit_with,
};
use parking_lot::RwLock;
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of codes beyond which a reader forgets them, between two blocks.
const CODE_BYTES_MAX: usize = 256 << 20;

/// How often a read is asked for again after an answer that leaves something out.
const ROUNDS_MAX: usize = 3;

/// Why a read fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderError {
    /// No replica has an answer.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An answer lacks a node, or has a malformed one.
    #[error("the answer for block {block}: {source}")]
    Bag {
        /// The block.
        block: BlockId,
        /// What is wrong with it.
        source: Box<UnfoldError>,
    },
    /// An answer lacks a code, or has another one.
    #[error("the answer for block {block} lacks the code {code}")]
    Code {
        /// The block.
        block: BlockId,
        /// Hash of the code.
        code: B256,
    },
    /// A block's changes do not lead to its state root.
    #[error("block {block} has the state root {expected}, and its changes lead to {got}")]
    Root {
        /// The block.
        block: BlockId,
        /// In the header.
        expected: B256,
        /// After the changes.
        got: B256,
    },
    /// A block is not a child of the reader's.
    #[error("block {block} is not a child of {head}")]
    NotChild {
        /// The block.
        block: BlockId,
        /// The reader's block.
        head: BlockId,
    },
    /// The changes of a block don't fit the state.
    #[error("block {block}: {source}")]
    Changes {
        /// The block.
        block: BlockId,
        /// What does not fit.
        source: Box<TrieError>,
    },
    /// A node or a code is missing, and nobody was to be asked.
    #[error("the state after block {0} is incomplete here")]
    Incomplete(BlockId),
    /// The hash of an old block is not known.
    #[error("the hash of block {0} is not known here")]
    BlockHash(BlockNumber),
}

impl DBErrorMarker for ReaderError {}

/// The state at one block, verified against its root.
#[derive(Debug)]
pub struct Reader {
    shards: Shards,
    block: BlockId,
    /// Nodes at depths below these are kept from block to block.
    levels: [u8; 2],
    trie: RwLock<PartialTrie>,
    codes: RwLock<HashMap<B256, Bytes>>,
    hashes: HashMap<BlockNumber, B256>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    nodes: AtomicU64,
    bytes: AtomicU64,
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
            trie: RwLock::new(trie_of(header.state_root)),
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
        let left = trie.load_siblings(targets, deletes, &mut BagNodes::default().unfolder(1));
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
        let stub_at = |path: &Path| match trie.lookup(path) {
            Lookup::Stub { depth, .. } => Some(depth),
            _ => None,
        };
        let mut groups = HashMap::<(u8, u8), Vec<(B256, Vec<B256>)>>::default();
        for (account, slots) in targets.accounts() {
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
    fn ask(&self, groups: Vec<ReadGroup>, codes: Vec<(B256, B256)>) -> Result<(), ReaderError> {
        let block = self.block;
        let request = ReadRequest {
            block,
            groups,
            codes,
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
        for group in groups {
            let targets = group.targets.accounts();
            let leaves = targets.iter().map(|(_, slots)| 1 + slots.len()).sum();
            let loaded = trie.load(&group.targets, &mut bag.unfolder(leaves));
            loaded.map_err(|error| update_error(self.block, error))?;
            let deletes = group.levels.deletes;
            if deletes != Deletes::Nothing {
                let loaded = trie.load_siblings(&group.targets, deletes, &mut bag.unfolder(leaves));
                loaded.map_err(|error| update_error(self.block, error))?;
            }
        }
        Ok(())
    }

    /// Takes nodes of a bag on the paths of targets where the trie has blinded nodes with their hashes. Returns the number of
    /// accounts and slots whose paths are incomplete afterwards.
    pub fn offer(&self, bag: &BagNodes, targets: &ProofTargets) -> usize {
        let keys = targets.accounts().iter();
        let slots = keys.map(|(_, slots)| slots.len()).sum::<usize>();
        let leaves = targets.accounts().len() + slots;
        let mut trie = self.trie.write();
        // A node that does not belong where it was found leaves the path incomplete, as one does that is missing.
        let missing = trie.load_known(targets, &mut bag.unfolder(leaves));
        if slots > 0 {
            let _ = trie.load_siblings(targets, Deletes::Slots, &mut bag.unfolder(leaves));
        }
        missing.unwrap_or(leaves)
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
            .filter_map(|(path, _)| match trie.lookup(&Path::account(path)) {
                Lookup::Account(account) => Some(account.code_hash),
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
        let trie = self.trie.read();
        let mut maker = BagMaker::of_trie(&trie, usize::MAX);
        let added = maker.add(targets, levels);
        added.map_err(|_| ReaderError::Incomplete(self.block))?;
        Ok(maker.finish())
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
        let mut trie = self.trie.write();
        let nothing = BagNodes::default();
        let extracted =
            trie.extract_for_changes(targets, changes.accounts(), &mut nothing.unfolder(1));
        let extracted = extracted.map_err(|_| ReaderError::Incomplete(self.block))?;
        Ok(extracted.witness_nodes())
    }

    /// The account at a path.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn account(&self, path: &B256) -> Result<Option<Account>, ReaderError> {
        self.asking().account(path)
    }

    /// The value of a slot; zero if there is none.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, ReaderError> {
        self.asking().slot(account, slot)
    }

    const fn asking(&self) -> ReaderView<'_> {
        ReaderView {
            reader: self,
            asks: true,
        }
    }

    /// The same state, without a request to anybody: where a node is missing, a read fails.
    pub const fn without_asking(&self) -> ReaderView<'_> {
        ReaderView {
            reader: self,
            asks: false,
        }
    }

    /// Loads what applying changes needs.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn load_for_changes(&self, changes: &Changes) -> Result<(), ReaderError> {
        self.load(&ProofTargets::of_changes(changes.accounts()), Deletes::All)
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
        let before = self.trie.get_mut().state_root().unwrap_or_default();
        let (got, expected) = (self.apply(block, changes)?, header.state_root);
        if got != expected {
            // What was read of the block is lost.
            *self.trie.get_mut() = trie_of(before);
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
        let root = self.apply(self.block, changes)?;
        let header = header(self.trie.get_mut(), root);
        let block = BlockId::new(header.number, header.hash_slow());
        self.move_to(block);
        Ok(block)
    }

    /// Applies changes of `block`. Returns the root.
    fn apply(&mut self, block: BlockId, changes: &Changes) -> Result<B256, ReaderError> {
        let trie = self.trie.get_mut();
        let before = trie.state_root().unwrap_or_default();
        let applied = trie.apply(changes.accounts(), &mut BagNodes::default().unfolder(1));
        if let Err(error) = applied {
            *trie = trie_of(before);
            return Err(update_error(block, error));
        }
        commit_with(&mut [&mut *trie], &mut Default::default(), &Alone);
        Ok(trie.state_root().unwrap_or_default())
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
        let [accounts, slots] = self.levels;
        let block = self.block;
        let trie = self.trie.get_mut();
        let pruned = trie.prune(accounts, slots);
        pruned.map_err(|error| update_error(block, UpdateError::Trie(error)))?;
        if let Some(compacted) = trie.compacted() {
            *trie = compacted;
        }
        let codes = self.codes.get_mut();
        if codes.values().map(|code| code.len()).sum::<usize>() > CODE_BYTES_MAX {
            codes.clear();
        }
        Ok(())
    }
}

/// The state of a [`Reader`], with or without requests for what is missing.
#[derive(Clone, Copy, Debug)]
pub struct ReaderView<'r> {
    reader: &'r Reader,
    asks: bool,
}

impl ReaderView<'_> {
    fn account(&self, path: &B256) -> Result<Option<Account>, ReaderError> {
        let found = self.lookup(&Path::account(path), || vec![(*path, vec![])])?;
        Ok(found.and_then(|leaf| leaf.left()))
    }

    fn slot(&self, account: &B256, slot: &B256) -> Result<U256, ReaderError> {
        let path = Path::slot(account, slot);
        let found = self.lookup(&path, || vec![(*account, vec![*slot])])?;
        Ok(found.and_then(|leaf| leaf.right()).unwrap_or_default())
    }

    fn lookup(
        &self,
        path: &Path,
        targets: impl Fn() -> Vec<(B256, Vec<B256>)>,
    ) -> Result<Option<Leaf>, ReaderError> {
        let reader = self.reader;
        for _ in 0..ROUNDS_MAX {
            match reader.trie.read().lookup(path) {
                Lookup::Account(account) => return Ok(Some(Leaf::Account(account))),
                Lookup::Slot(value) => return Ok(Some(Leaf::Slot(value))),
                Lookup::Absent | Lookup::Entry(_) => return Ok(None),
                Lookup::Stub { .. } if !self.asks => break,
                Lookup::Stub { .. } => {}
            }
            reader.load(&ProofTargets::new(targets()), Deletes::Nothing)?;
        }
        Err(ReaderError::Incomplete(reader.block))
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

/// A trie of which the root alone is known.
fn trie_of(root: B256) -> PartialTrie {
    match root {
        EMPTY_ROOT => PartialTrie::new(Path::EMPTY),
        root => PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(root))),
    }
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

/// A leaf of the state trie.
enum Leaf {
    Account(Account),
    Slot(U256),
}

impl Leaf {
    const fn left(self) -> Option<Account> {
        match self {
            Self::Account(account) => Some(account),
            Self::Slot(_) => None,
        }
    }

    const fn right(self) -> Option<U256> {
        match self {
            Self::Slot(value) => Some(value),
            Self::Account(_) => None,
        }
    }
}

impl DatabaseRef for ReaderView<'_> {
    type Error = ReaderError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ReaderError> {
        let path = keccak256(address);
        let Some(account) = self.account(&path)? else {
            return Ok(None);
        };
        let hash = account.code_hash;
        let reader = self.reader;
        if hash != KECCAK256_EMPTY && !reader.codes.read().contains_key(&hash) {
            if !self.asks {
                return Err(ReaderError::Incomplete(reader.block));
            }
            // Execution asks for a code by its hash alone, which no shard is known by.
            reader.ask(Vec::new(), vec![(hash, path)])?;
        }
        Ok(Some(account_info(account)))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, ReaderError> {
        let block = self.reader.block;
        if code_hash == KECCAK256_EMPTY {
            return Ok(Bytecode::default());
        }
        let code = self.reader.codes.read().get(&code_hash).cloned();
        let code = code.ok_or(ReaderError::Code {
            block,
            code: code_hash,
        })?;
        Ok(bytecode(code))
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, ReaderError> {
        self.slot(&keccak256(address), &keccak256(B256::from(index)))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ReaderError> {
        let hash = self.reader.hashes.get(&number).copied();
        hash.ok_or(ReaderError::BlockHash(number))
    }
}

impl DatabaseRef for Reader {
    type Error = ReaderError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ReaderError> {
        self.asking().basic_ref(address)
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, ReaderError> {
        self.asking().code_by_hash_ref(code_hash)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, ReaderError> {
        self.asking().storage_ref(address, index)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, ReaderError> {
        self.asking().block_hash_ref(number)
    }
}

impl StateRead for ReaderView<'_> {
    fn has_storage(&self, address: Address) -> Result<bool, ReaderError> {
        let path = keccak256(address);
        self.account(&path)?;
        Ok(self.reader.trie.read().has_storage(&path))
    }
}

impl StateRead for Reader {
    fn has_storage(&self, address: Address) -> Result<bool, ReaderError> {
        self.asking().has_storage(address)
    }

    fn read_all(
        &self,
        accounts: &[Address],
        slots: &[(Address, U256)],
    ) -> Result<ManyRead, ReaderError> {
        let mut targets = HashMap::<B256, HashSet<B256>>::default();
        for address in accounts {
            targets.entry(keccak256(address)).or_default();
        }
        for (address, slot) in slots {
            let slots = targets.entry(keccak256(address)).or_default();
            slots.insert(keccak256(B256::from(*slot)));
        }
        let targets = targets.into_iter();
        let targets = targets.map(|(account, slots)| (account, slots.into_iter().collect()));
        self.load(&ProofTargets::new(targets.collect()), Deletes::Nothing)?;
        let mut codes = Vec::new();
        for address in accounts {
            let path = keccak256(address);
            let account = self.account(&path)?.unwrap_or_default();
            let hash = account.code_hash;
            if hash != KECCAK256_EMPTY && !self.codes.read().contains_key(&hash) {
                codes.push((hash, path));
            }
        }
        codes.sort_unstable();
        codes.dedup_by_key(|(hash, _)| *hash);
        if !codes.is_empty() {
            self.ask(Vec::new(), codes)?;
        }
        let accounts = accounts.iter().map(|address| self.basic_ref(*address));
        let accounts = accounts.collect::<Result<_, _>>()?;
        let slots = slots.iter();
        let values = slots.map(|(address, slot)| self.storage_ref(*address, *slot));
        Ok((accounts, values.collect::<Result<_, _>>()?))
    }
}
