//! Hashing of changed nodes, by their trie's commitment, bottom-up and level by level, over any number of tries at once.
//!
//! Nodes of one level do not depend on each other, so the lanes of [`Batch`] stay full, and several
//! threads can share a level ([`Spread`]). The level of a node is its height above the lowest
//! unhashed node below it, not its depth: a leaf at depth 3 is hashed together with one at depth 9.
//! Nodes are collected children first, so collected nodes never depend on nodes not yet collected.
//! They are hashed in portions that fit into the processor's caches.

use crate::{
    arena::{Link, NodeId, bits},
    binary::BinaryBatch,
    commitment::Commitment,
    node_ref::{EMPTY_ROOT, NodeRef},
    partial::PartialTrie,
    rlp::{self, HashBranch},
};
use alloc::{vec, vec::Vec};
use alloy_primitives::{B256, U256};
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, EntryValue, STORAGE_ROOT_KEY};
use hashbrown::HashMap;

/// Number of nodes that are collected before they are hashed. Enough to fill the lanes on all but
/// the topmost levels, and few enough that the nodes and their children's references are still in
/// the second-level cache.
const COLLECTED_NODES: usize = 1024;
/// The same per thread if several threads hash: larger portions mean that they wait for each other
/// less often.
const COLLECTED_NODES_SPREAD: usize = 4096;
/// How many nodes ahead a thread prefetches the children of a node.
const AHEAD_NODES: usize = 6;
/// Number of nodes in one batch. Their RLP fits into the second-level cache even if all are full
/// branches.
const BATCH_NODES: usize = 256;
/// Minimum number of nodes of a level that is split over threads: waking them costs more than
/// smaller levels take.
const SPREAD_NODES_MIN: usize = 512;

/// A node to hash: the number of its trie, and its link.
type Node = (u32, Link);

/// A pool of threads that share the hashing of large levels.
pub trait Spread {
    /// Returns how many jobs can run in parallel.
    fn threads(&self) -> usize;

    /// Calls [`HashJob::run`] once on each of `jobs`, in any order and in parallel where possible.
    /// Returns when all jobs have finished.
    fn run(&self, jobs: &mut [HashJob<'_>]);
}

/// Hashes on the caller's thread.
pub struct Alone;

impl Spread for Alone {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, jobs: &mut [HashJob<'_>]) {
        jobs.iter_mut().for_each(HashJob::run);
    }
}

/// Computes the missing references of all nodes that the roots of `tries` depend on. Returns the
/// number of nodes hashed.
///
/// ```
/// use alloy_primitives::{B256, U256};
/// use cambium_keccak::Batch;
/// use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
/// use cambium_trie::{NoResolve, PartialTrie, commit};
///
/// let mut trie = PartialTrie::new(Path::EMPTY);
/// let rich = Account { balance: U256::from(1_000), ..Account::default() };
/// let change = AccountDiff {
///     path: B256::repeat_byte(1),
///     account: AccountUpdate::Put(rich),
///     wipe: false,
///     slots: vec![],
/// };
/// trie.apply(&[change], &mut NoResolve).unwrap();
/// commit(&mut [&mut trie], &mut Batch::new());
/// println!("{}", trie.state_root().unwrap());
/// ```
pub fn commit(tries: &mut [&mut PartialTrie], batch: &mut Batch) -> usize {
    commit_with(tries, batch, &Alone)
}

/// Like [`commit`], but hashes large levels on the threads of a [`Spread`].
pub fn commit_with(
    tries: &mut [&mut PartialTrie],
    batch: &mut Batch,
    spread: &dyn Spread,
) -> usize {
    // Subtries of different tries have no node in common.
    let roots: Vec<Node> = (0..).zip(tries.iter().map(|trie| trie.root)).collect();
    hash(tries, roots, None, batch, spread)
}

/// A portion of the nodes of one level, to be encoded and hashed on any thread.
pub struct HashJob<'a> {
    commitment: Commitment,
    tries: &'a [&'a mut PartialTrie],
    nodes: &'a [Node],
    /// Whether another thread has the nodes in its caches.
    elsewhere: bool,
    worker: &'a mut Worker,
}

/// Buffers that are reused from job to job.
#[derive(Default)]
struct Worker {
    batch: Batch,
    binary: BinaryBatch,
    /// References to the job's nodes, in their order.
    refs: Vec<NodeRef>,
}

impl HashJob<'_> {
    /// Encodes and hashes the nodes.
    pub fn run(&mut self) {
        let Worker {
            batch,
            binary,
            refs,
        } = &mut *self.worker;
        refs.clear();
        for nodes in self.nodes.chunks(BATCH_NODES) {
            let first = refs.len();
            if let Commitment::Binary(hasher) = self.commitment {
                let tries = self.tries;
                let nodes = nodes.iter();
                let nodes = nodes.map(|(number, link)| (&*tries[*number as usize], *link));
                binary.hash(hasher, nodes, refs);
                continue;
            }
            batch.clear();
            let is_partial = self.commitment == Commitment::PartialMpt;
            for (at, &(number, link)) in nodes.iter().enumerate() {
                if self.elsewhere {
                    prefetch_ahead(self.tries, &nodes[at..]);
                }
                let trie = &self.tries[number as usize];
                if is_partial && let Some(root) = trie.given_storage_root(link) {
                    refs.push(NodeRef::hash(root));
                    continue;
                }
                refs.push(push_node(batch, |out| trie.encode_node(link, out)));
            }
            set_hashes(&mut refs[first..], batch);
        }
    }
}

/// Prefetches what encoding the nodes a few places after the first of `nodes` will need.
fn prefetch_ahead(tries: &[&mut PartialTrie], nodes: &[Node]) {
    if let Some(&(number, link)) = nodes.get(2 * AHEAD_NODES) {
        tries[number as usize].arena.prefetch(link);
    }
    if let Some(&(number, link)) = nodes.get(AHEAD_NODES)
        && let NodeId::Branch(index) = link.id()
    {
        let arena = &tries[number as usize].arena;
        arena.prefetch_children(&arena.branches[index].children, 0);
    }
}

/// Hashes the unhashed nodes from `nodes` down, and returns their number. `levels_below` must be an
/// empty map if one of `nodes` may lie below another.
fn hash(
    tries: &mut [&mut PartialTrie],
    nodes: impl IntoIterator<Item = Node>,
    levels_below: Option<HashMap<Link, usize>>,
    batch: &mut Batch,
    spread: &dyn Spread,
) -> usize {
    let commitment = tries
        .first()
        .map_or(Commitment::Mpt, |trie| trie.commitment);
    assert!(
        tries.iter().all(|trie| trie.commitment == commitment),
        "tries that are hashed together have one commitment"
    );
    let mut hasher = Hasher {
        commitment,
        tries,
        spread,
        threads: spread.threads().max(1),
        levels: vec![],
        levels_below,
        collected: 0,
        hashed: 0,
        workers: vec![Worker {
            batch: core::mem::take(batch),
            ..Worker::default()
        }],
    };
    for (number, link) in nodes {
        hasher.collect(number, link);
    }
    hasher.hash_collected();
    *batch = core::mem::take(&mut hasher.workers[0].batch);
    hasher.hashed
}

/// Computes references of leaves that are not in a trie, many at a time.
#[derive(Default)]
pub struct LeafHasher {
    commitment: Commitment,
    batch: Batch,
    binary: BinaryBatch,
    refs: Vec<NodeRef>,
}

impl LeafHasher {
    /// Creates a hasher of leaves that are in a trie with this commitment.
    pub fn new(commitment: Commitment) -> Self {
        Self {
            commitment: commitment.nodes(),
            ..Self::default()
        }
    }

    /// Adds the leaf, at depth `depth` in nibbles, of the entry with key `key`.
    pub fn entry(&mut self, depth: usize, key: &B256, value: &EntryValue) {
        match self.commitment {
            Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => {
                self.leaf(depth, key, &rlp::entry_value(value));
            }
            Commitment::Binary(hasher) => {
                let at = self.refs.len() as u32;
                self.binary.push_leaf(hasher, at, &key.0, value);
                self.refs.push(NodeRef::UNKNOWN);
            }
        }
    }

    /// Adds the leaf, at depth `depth` in nibbles, of an account without storage.
    pub fn account(&mut self, depth: usize, path: &B256, account: &Account) {
        let value = rlp::account_value(account, &EMPTY_ROOT);
        self.leaf(depth, path, value.as_bytes());
    }

    /// Adds the leaf, at depth `depth` (64 to 128 nibbles), of the slot whose hash is `slot`.
    pub fn slot(&mut self, depth: usize, slot: &B256, value: U256) {
        let is_alone = depth == ACCOUNT_NIBBLES;
        if is_alone && self.commitment == Commitment::PartialMpt && *slot == STORAGE_ROOT_KEY {
            self.refs.push(NodeRef::hash(value.into()));
            return;
        }
        let value = rlp::slot_value(&value.to_be_bytes());
        self.leaf(depth - ACCOUNT_NIBBLES, slot, value.as_bytes());
    }

    fn leaf(&mut self, depth: usize, key: &B256, value: &[u8]) {
        let put = |out: &mut Vec<u8>| rlp::put_leaf(out, &key.0, depth, ACCOUNT_NIBBLES, value);
        self.refs.push(push_node(&mut self.batch, put));
    }

    /// Returns the references of the leaves added since the last call, in their order.
    pub fn finish(&mut self) -> impl Iterator<Item = NodeRef> {
        if let Commitment::Binary(hasher) = self.commitment {
            self.binary.hash_leaves(hasher, &mut self.refs);
        } else {
            set_hashes(&mut self.refs, &mut self.batch);
            self.batch.clear();
        }
        self.refs.drain(..)
    }
}

/// Adds a node to the batch and returns [`NodeRef::UNKNOWN`]. Returns the inline reference instead
/// if the node is inlined in its parent.
fn push_node(batch: &mut Batch, put: impl FnOnce(&mut Vec<u8>)) -> NodeRef {
    let index = batch.push_with(put);
    let inline = NodeRef::inline(batch.input(index));
    if inline.is_some() {
        batch.pop();
    }
    inline.unwrap_or(NodeRef::UNKNOWN)
}

/// Hashes the batch and fills in the unknown references. The batch holds the nodes of these
/// references, in the same order.
fn set_hashes(refs: &mut [NodeRef], batch: &mut Batch) {
    let hashed = refs.iter_mut().filter(|node| node.is_unknown());
    for (node, hash) in hashed.zip(batch.run()) {
        *node = NodeRef::hash(*hash);
    }
}

/// Collects unhashed nodes, and hashes them.
struct Hasher<'a, 'b> {
    commitment: Commitment,
    tries: &'a mut [&'b mut PartialTrie],
    spread: &'a dyn Spread,
    threads: usize,
    /// Collected nodes, by height above the lowest unhashed node of their subtrie.
    levels: Vec<Vec<Node>>,
    /// For each node in `levels`, the number of levels that its subtrie fills. A second visit of
    /// the node must neither collect it again nor treat it as hashed. `None` if no node can be
    /// visited twice.
    levels_below: Option<HashMap<Link, usize>>,
    /// Number of nodes in `levels`.
    collected: usize,
    /// Number of nodes hashed so far.
    hashed: usize,
    /// One worker per job that runs in parallel.
    workers: Vec<Worker>,
}

impl Hasher<'_, '_> {
    /// Collects the unhashed nodes from `link` down. Returns the number of levels that they fill.
    /// Recursion is bounded by the path's 128 nibbles.
    fn collect(&mut self, number: u32, link: Link) -> usize {
        let threads = self.threads;
        let arena = &mut self.tries[number as usize].arena;
        if link.is_empty() || !arena.cached_ref(link).is_unknown() {
            return 0;
        }
        if let Some(levels) = self
            .levels_below
            .as_ref()
            .and_then(|known| known.get(&link))
        {
            return *levels;
        }
        let height = match link.id() {
            NodeId::Branch(index) => {
                let node = &mut arena.branches[index];
                let (children, unhashed) = (node.children, core::mem::take(&mut node.unhashed));
                match threads {
                    1 => arena.prefetch_children(&children, unhashed),
                    // The thread that encodes the node prefetches the siblings' cached references.
                    _ => bits(unhashed).for_each(|at| arena.prefetch(children[at])),
                }
                let mut height = 0;
                for at in bits(unhashed) {
                    height = height.max(self.collect(number, children[at]));
                }
                height
            }
            NodeId::Extension(index) => {
                let child = arena.extensions[index].child;
                self.collect(number, child)
            }
            NodeId::Account(index) => {
                let storage = arena.accounts[index].storage;
                self.collect(number, storage)
            }
            NodeId::Storage(_) | NodeId::Entry(_) => 0,
            NodeId::Empty | NodeId::Stub(_) => return 0,
        };
        if self.levels.len() <= height {
            self.levels.resize(height + 1, vec![]);
        }
        self.levels[height].push((number, link));
        if let Some(known) = &mut self.levels_below {
            known.insert(link, height + 1);
        }
        self.collected += 1;
        let enough = match self.threads {
            1 => COLLECTED_NODES,
            threads => COLLECTED_NODES_SPREAD * threads,
        };
        if self.collected < enough {
            return height + 1;
        }
        // Everything collected is hashed now, so nodes above start at level 0.
        self.hash_collected();
        0
    }

    /// Hashes the nodes collected so far.
    fn hash_collected(&mut self) {
        let mut levels = core::mem::take(&mut self.levels);
        for level in &mut levels {
            if self.threads > 1 && level.len() >= SPREAD_NODES_MIN {
                self.hash_nodes(level, level.len().div_ceil(self.threads));
            } else {
                for nodes in level.chunks(BATCH_NODES) {
                    self.hash_nodes(nodes, nodes.len());
                }
            }
            level.clear();
        }
        self.levels = levels;
        if let Some(known) = &mut self.levels_below {
            known.clear();
        }
        self.hashed += core::mem::take(&mut self.collected);
    }

    /// Hashes nodes that don't depend on each other, in jobs of `job_nodes` nodes.
    fn hash_nodes(&mut self, whole: &[Node], job_nodes: usize) {
        let jobs = whole.chunks(job_nodes);
        if self.workers.len() < jobs.len() {
            self.workers.resize_with(jobs.len(), Worker::default);
        }
        let mut jobs: Vec<_> = jobs
            .zip(&mut self.workers)
            .map(|(nodes, worker)| HashJob {
                commitment: self.commitment,
                tries: self.tries,
                nodes,
                elsewhere: job_nodes < whole.len(),
                worker,
            })
            .collect();
        match &mut jobs[..] {
            [job] => job.run(),
            jobs => self.spread.run(jobs),
        }
        for (nodes, worker) in whole.chunks(job_nodes).zip(&self.workers) {
            for (&(number, link), node) in nodes.iter().zip(&worker.refs) {
                self.tries[number as usize]
                    .arena
                    .set_cached_ref(link, *node);
            }
        }
    }
}

impl PartialTrie {
    /// Computes the missing references of the nodes at `links` and of the nodes that they depend
    /// on. The links may come in any order, and one may lie below another. Returns the number of
    /// nodes hashed.
    pub fn hash_nodes(
        &mut self,
        links: impl IntoIterator<Item = Link>,
        batch: &mut Batch,
    ) -> usize {
        let nodes = links.into_iter().map(|link| (0, link));
        hash(&mut [self], nodes, Some(HashMap::new()), batch, &Alone)
    }

    /// Computes the references of all nodes, those below nodes that have one included.
    pub(crate) fn hash_all(&mut self, batch: &mut Batch) {
        let mut open = Vec::from([self.root]);
        let mut links = Vec::new();
        while let Some(link) = open.pop() {
            if !link.is_empty() && self.arena.cached_ref(link).is_unknown() {
                links.push(link);
            }
            open.extend(
                self.children(link)
                    .into_iter()
                    .filter(|link| !link.is_empty()),
            );
        }
        self.hash_nodes(links, batch);
    }

    /// Computes the references that [`Self::graft_node`] needs to copy the nodes at `links`.
    pub(crate) fn hash_to_graft(&mut self, links: &[Link], batch: &mut Batch) {
        let mut below = Vec::new();
        for child in links.iter().flat_map(|link| self.children(*link)) {
            below.push(child);
            if let NodeId::Account(index) = child.id() {
                below.push(self.arena.accounts[index].storage);
            }
        }
        self.hash_nodes(below, batch);
    }

    /// Computes the references that copying the root elsewhere needs: its own, and those of its children.
    /// A trie that was only read lacks the latter, where its nodes came from pages.
    pub fn hash_around_root(&mut self) {
        let mut batch = Batch::new();
        self.hash_nodes([self.root], &mut batch);
        self.hash_to_graft(&[self.root], &mut batch);
        if let NodeId::Account(index) = self.root.id() {
            self.hash_nodes([self.arena.accounts[index].storage], &mut batch);
        }
    }

    /// Returns the storage root that the leaf at `link` stands for under [`Commitment::PartialMpt`], or `None` for any
    /// other node.
    fn given_storage_root(&self, link: Link) -> Option<B256> {
        let NodeId::Storage(index) = link.id() else {
            return None;
        };
        let node = &self.arena.slots[index];
        let is_alone = node.depth == 0;
        (is_alone && node.key == STORAGE_ROOT_KEY.0).then(|| node.value.into())
    }

    /// Appends the RLP of an expanded node.
    ///
    /// # Panics
    ///
    /// Panics if a child is not hashed: its parent would be encoded, and hashed, without it.
    pub(crate) fn encode_node(&self, link: Link, out: &mut Vec<u8>) {
        match link.id() {
            NodeId::Branch(index) => {
                let children = &self.arena.branches[index].children;
                let mut node = HashBranch::new(children.map(|child| !child.is_empty()));
                self.arena
                    .for_each_memo(children, |at, memo| node.set(at, memo));
                if !node.put(out) {
                    let refs = children.each_ref().map(|child| {
                        let memo = self.arena.cached_ref(*child);
                        assert!(
                            child.is_empty() || !memo.is_unknown(),
                            "{child:?} is not hashed, and its parent is to be"
                        );
                        memo
                    });
                    rlp::put_branch(out, &refs, &[]);
                }
            }
            NodeId::Extension(index) => {
                let node = &self.arena.extensions[index];
                let (start, end) = (usize::from(node.start), usize::from(node.end));
                let (from, to) = (start - node.level(), end - node.level());
                let memo = self.arena.cached_ref(node.child);
                assert!(
                    !memo.is_unknown(),
                    "{:?} is not hashed, and its parent is to be",
                    node.child
                );
                rlp::put_extension(out, &node.key, from, to, memo);
            }
            NodeId::Account(index) => {
                let node = &self.arena.accounts[index];
                let root = self.storage_root_at(node.storage);
                let root = root.expect("an account's storage is hashed before the account");
                let account = self.arena.account(index);
                let value = match node.mark {
                    0 => rlp::account_value(&account, &root),
                    mark => rlp::marked_value(mark, &account, &root),
                };
                rlp::put_leaf(out, &node.key, node.depth.into(), 64, value.as_bytes());
            }
            NodeId::Storage(index) => {
                let node = &self.arena.slots[index];
                let value = rlp::slot_value(&node.value);
                rlp::put_leaf(out, &node.key, node.depth.into(), 64, value.as_bytes());
            }
            NodeId::Entry(index) => {
                let node = &self.arena.entries[index];
                let (key, depth) = (&node.key, usize::from(node.depth));
                match node.is_tombstone {
                    false => rlp::put_leaf(out, key, depth, 64, &rlp::entry_value(&node.value)),
                    true => rlp::put_leaf(out, key, depth, 64, &rlp::ENTRY_TOMBSTONE),
                }
            }
            NodeId::Empty | NodeId::Stub(_) => panic!("{link:?} has no RLP here"),
        }
    }

    /// Returns the root hash of the storage trie whose root is at `storage`, or `None` if it is not
    /// hashed.
    pub fn storage_root_at(&self, storage: Link) -> Option<B256> {
        if storage.is_empty() {
            return Some(self.commitment.empty_root());
        }
        self.cached_ref(storage).map(|node| node.root_hash())
    }

    /// Returns the root hash of the trie, or `None` if it is not hashed. It is a state root only if
    /// the trie is based at the empty path.
    pub fn state_root(&self) -> Option<B256> {
        self.storage_root_at(self.root)
    }
}
