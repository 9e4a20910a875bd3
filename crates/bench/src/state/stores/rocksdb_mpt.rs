//! A Merkle Patricia trie whose nodes are in RocksDB by their hashes, without a flat copy of the
//! values, as in OpenEthereum.
//!
//! Reading an account is a walk from the root, one look-up for each node. A commit writes all nodes
//! on the changed paths. Nodes that are replaced stay, as in an archive, so nothing is spent on
//! counting references or on deletions. Nodes that a batch has read are kept for its commit, and
//! hashed in the lanes of Cambium's own hash function: the store is faster than its model.

use super::{
    Committed, Failure, Setup, Store, Write,
    bytes::{read_on_threads, read_threads},
    cambium::changes,
    rocksdb::{cache_bytes, options, settle},
};
use crate::state::workload::Workload;
use alloy_primitives::{B256, Bytes};
use alloy_rlp::Decodable;
use alloy_trie::{
    Nibbles, TrieAccount,
    nodes::{RlpNode, TrieNode},
};
use cambium_keccak::Batch;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{NoResolve, PartialTrie, commit, top_levels};
use rocksdb::{DB, WriteBatch, WriteOptions};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Key of the entry with the root's hash: shorter than any node's.
const ROOT: &[u8] = b"root";
/// Number of shards that are loaded one after the other.
const SHARDS: usize = 256;
/// Number of nodes that are hashed at once.
const HASHED: usize = 512;

type Nodes = HashMap<B256, Bytes>;

/// Adds nodes by their hashes.
fn put_nodes(batch: &mut WriteBatch, nodes: &[Bytes]) {
    let mut keccak = Batch::new();
    for group in nodes.chunks(HASHED) {
        keccak.clear();
        for node in group {
            keccak.push(node);
        }
        for (hash, node) in keccak.run().iter().zip(group) {
            batch.put(hash, node);
        }
    }
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let db = DB::open(&options(cache_bytes(setup)), &setup.dir)?;
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let mut keys = setup.workload.keys(0..setup.workload.accounts);
    keys.sort_unstable();
    let mut rest = &keys[..];
    let mut shards = Vec::with_capacity(SHARDS);
    for first in 0..SHARDS {
        let len = rest.partition_point(|key| usize::from(key[0]) == first);
        let (own, others) = rest.split_at(len);
        rest = others;
        let base = Path::from_nibbles(&[(first >> 4) as u8, (first & 15) as u8]);
        let put = |key: &B256| AccountDiff {
            path: *key,
            account: AccountUpdate::Put(Workload::first_state(key)),
            wipe: false,
            slots: Vec::new(),
        };
        let mut shard = PartialTrie::new(base);
        shard.apply(&own.iter().map(put).collect::<Vec<_>>(), &mut NoResolve)?;
        commit(&mut [&mut shard], &mut Batch::new());
        let mut batch = WriteBatch::default();
        put_nodes(&mut batch, &shard.witness_nodes());
        db.write_opt(batch, &unlogged)?;
        let root = shard.root();
        shards.push(match shard.as_stub(root) {
            Some(stub) if !root.is_empty() => PartialTrie::from_stub(base, stub),
            _ => shard,
        });
    }
    let top = top_levels(&shards.iter().collect::<Vec<_>>())?;
    let root = top.state_root().ok_or("the top levels are not hashed")?;
    let mut batch = WriteBatch::default();
    put_nodes(&mut batch, &top.witness_nodes());
    batch.put(ROOT, root);
    db.write_opt(batch, &unlogged)?;
    settle(&db)
}

/// An open database of nodes.
pub(super) struct RocksMptStore {
    db: DB,
    root: B256,
    cache_mib: usize,
    /// The nodes that the batch has read, for its commit.
    nodes: Nodes,
}

impl RocksMptStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        let db = DB::open(&options(cache_bytes(setup)), &setup.dir)?;
        let root = db.get(ROOT)?.ok_or("the database has no root")?;
        Ok(Self {
            db,
            root: B256::try_from(&root[..])?,
            cache_mib: cache_bytes(setup) >> 20,
            nodes: Nodes::new(),
        })
    }

    /// Walks from the root to the account at `key`, and keeps the nodes in `nodes`.
    fn walk(&self, key: &B256, nodes: &mut Nodes) -> Result<Option<Account>, Failure> {
        let path = Nibbles::unpack(key);
        let (mut next, mut depth) = (RlpNode::word_rlp(&self.root), 0);
        loop {
            let node = match next.as_hash() {
                None => TrieNode::decode(&mut next.as_slice())?,
                Some(hash) => {
                    let rlp = match nodes.get(&hash) {
                        Some(rlp) => rlp,
                        None => {
                            let rlp = self.db.get(hash)?;
                            let rlp = rlp.ok_or_else(|| format!("the node {hash} is missing"))?;
                            nodes.entry(hash).or_insert(rlp.into())
                        }
                    };
                    TrieNode::decode(&mut &rlp[..])?
                }
            };
            match node {
                TrieNode::EmptyRoot => return Ok(None),
                TrieNode::Branch(branch) => {
                    let nibble = path.get_unchecked(depth);
                    if !branch.state_mask.is_bit_set(nibble) {
                        return Ok(None);
                    }
                    let below = (1u32 << nibble) - 1;
                    let before = u32::from(branch.state_mask.get()) & below;
                    next = branch.stack[before.count_ones() as usize].clone();
                    depth += 1;
                }
                TrieNode::Extension(extension) => {
                    if !path.slice(depth..).starts_with(&extension.key) {
                        return Ok(None);
                    }
                    depth += extension.key.len();
                    next = extension.child;
                }
                TrieNode::Leaf(leaf) => {
                    if leaf.key != path.slice(depth..) {
                        return Ok(None);
                    }
                    let account: TrieAccount = alloy_rlp::decode_exact(&leaf.value)?;
                    return Ok(Some(Account {
                        nonce: account.nonce,
                        balance: account.balance,
                        code_hash: account.code_hash,
                    }));
                }
            }
        }
    }
}

impl Store for RocksMptStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        let all = Mutex::new(Nodes::new());
        let values = read_on_threads(keys, |keys| {
            let mut nodes = Nodes::new();
            let values = keys.iter().map(|key| self.walk(key, &mut nodes));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(nodes);
            Ok(values)
        })?;
        self.nodes = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(values)
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let start = Instant::now();
        let nodes: Vec<_> = std::mem::take(&mut self.nodes).into_values().collect();
        let (mut trie, _) = PartialTrie::from_witness(self.root, &nodes)?;
        let changes = changes(write.keys, write.new);
        trie.apply(changes.accounts(), &mut NoResolve)?;
        commit(&mut [&mut trie], &mut Batch::new());
        let root = trie.state_root().ok_or("the trie is not hashed")?;
        let root_time = start.elapsed();
        let mut batch = WriteBatch::default();
        put_nodes(&mut batch, &trie.witness_nodes());
        batch.put(ROOT, root);
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        self.db.write_opt(batch, &synced)?;
        self.root = root;
        Ok(Committed {
            root: Some(root),
            root_time: Some(root_time),
            witness: None,
        })
    }

    fn settle(&mut self) -> Result<(), Failure> {
        settle(&self.db)
    }

    fn configuration(&self) -> String {
        format!(
            "Merkle Patricia trie, nodes by hash in RocksDB (crate 0.25), replaced nodes stay; log \
             synced for each batch; block cache of {} MiB; {readers} reading threads; otherwise \
             as rocksdb",
            self.cache_mib,
            readers = read_threads()
        )
    }
}
