//! Making a database: the state of its first block, of any size, straight into pages.

use crate::{
    base::{Base, Snapshot},
    checkpoint,
    commit::LogWriter,
    counters::Counters,
    db::{Current, Db, Inner, Options},
    delta::Delta,
    error::StateError,
    forest::{Forest, hash, shard_prefix},
    merge::{collect, merge_shard},
    merger::Retired,
    open::{GENESIS_HASH, GENESIS_NUMBER},
    overlay::{LayerId, Overlay},
    pages::Pages,
    pool,
    records::{BlockMeta, BlockRecord, KIND_BLOCK},
    tree::Tree,
};
use alloy_primitives::{B256, Bytes, U256};
use cambium_disk::{Disk, DiskError};
use cambium_primitives::{Account, BlockId, Changes, Path, Reader, SlotValue, put_varint};
use cambium_store::{
    BlockEntry, BlockIndex, BlockLog, Codes, DataDirLock, LogOptions, LogPosition, Manifest,
    SegmentOptions, Segments, StoreError, load_latest_checkpoint, lock_data_dir,
};
use cambium_trie::{LeafValue, NodeKind, PartialTrie, SHARDS, Stub, crown};
use parking_lot::{Mutex, RwLock};
use rayon::prelude::*;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

/// Collects the accounts of a database's first block, in any order.
///
/// They are kept in memory in their compact form until all are there: about 45 bytes an account
/// without code or storage.
pub struct Loader {
    /// By first byte of the path: accounts, each with its path, value and slots.
    buckets: Vec<Vec<u8>>,
    codes: HashMap<B256, Bytes>,
    accounts: u64,
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}

impl Loader {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            buckets: vec![Vec::new(); SHARDS],
            codes: HashMap::new(),
            accounts: 0,
        }
    }

    /// Number of accounts taken.
    pub const fn accounts(&self) -> u64 {
        self.accounts
    }

    /// Takes an account by keccak(address), with its slots by keccak(slot), in any order. Slots
    /// of zero are left out.
    pub fn account(&mut self, path: B256, account: &Account, slots: &[(B256, U256)]) {
        let bucket = &mut self.buckets[usize::from(path[0])];
        bucket.extend_from_slice(path.as_slice());
        account.encode_to(bucket);
        let slots = slots.iter().filter(|(_, value)| !value.is_zero());
        put_varint(bucket, slots.clone().count() as u64);
        for (slot, value) in slots {
            bucket.extend_from_slice(slot.as_slice());
            let value = SlotValue::new(*value);
            bucket.push(value.as_bytes().len() as u8);
            bucket.extend_from_slice(value.as_bytes());
        }
        self.accounts += 1;
    }

    /// Takes the code of an account.
    pub fn code(&mut self, hash: B256, code: Bytes) {
        self.codes.insert(hash, code);
    }

    /// The state root of these accounts, without a disk: to compare them with a database's.
    pub fn root(self) -> Result<B256, StateError> {
        let counters = Counters::default();
        let shards: Vec<_> = self
            .buckets
            .into_par_iter()
            .enumerate()
            .map(|(shard, bucket)| {
                let mut trie = build_shard(shard, bucket)?;
                hash(&mut [&mut trie], &counters);
                // A branch is all that its neighbours need to know of it: memory is bounded by
                // dropping the rest.
                Ok(match (trie.kind(trie.root()), trie.memo(trie.root())) {
                    (Some(NodeKind::Branch), Some(node)) => PartialTrie::from_stub(
                        shard_prefix(shard),
                        Stub {
                            node,
                            kind: Some(NodeKind::Branch),
                            place: None,
                        },
                    ),
                    _ => trie,
                })
            })
            .collect::<Result<_, StateError>>()?;
        let broken = StateError::Broken {
            path: Path::EMPTY,
            what: "a hashed root",
        };
        let shards: Vec<_> = shards.iter().collect();
        let crown = crown(&shards).ok();
        crown.and_then(|crown| crown.state_root()).ok_or(broken)
    }

    /// Builds the state on `disk`, which must hold no database. It is none until
    /// [`Loaded::create`] names its block.
    pub fn load(self, disk: Arc<dyn Disk>, options: Options) -> Result<Loaded, StateError> {
        disk.create_dir("").map_err(StoreError::from)?;
        let lock = lock_data_dir(&*disk)?;
        // A manifest without a checkpoint is an attempt that was cut short.
        if Manifest::exists(&*disk)? && load_latest_checkpoint(&disk)?.is_some() {
            return Err(StoreError::AlreadyADatabase {
                dir: disk.display_path(""),
            }
            .into());
        }
        remove_unfinished(&*disk).map_err(StoreError::from)?;
        let counters = Arc::new(Counters::default());
        let (segments, _) = Segments::open(disk.clone(), SegmentOptions::default(), None)?;
        let pages = Arc::new(Pages::new(
            segments,
            options.cache_bytes(),
            counters.clone(),
        ));
        // A shard's trie is made, hashed and written before the next, to bound memory.
        let one = |(shard, bucket)| {
            let mut trie = build_shard(shard, bucket)?;
            hash(&mut [&mut trie], &counters);
            let empty = Arc::new(PartialTrie::new(shard_prefix(shard)));
            merge_shard(shard, &empty, &trie, &pages)
        };
        let buckets = self.buckets.into_par_iter().enumerate();
        let shards = pool::install(|| buckets.map(one).collect::<Result<Vec<_>, StateError>>())?;
        let merged = collect(shards);
        counters.pages_written.add(merged.pages_written);
        counters.page_bytes_written.add(merged.bytes_written);
        let snapshot = Arc::new(Snapshot {
            block: BlockId::default(),
            parent_hash: B256::ZERO,
            state_root: B256::ZERO,
            index: merged.index,
            pages,
        });
        let base = Base {
            snapshot,
            intermediate: None,
        };
        let root = Forest::on(&base, &counters)?.root();
        let snapshot = base.snapshot;
        Ok(Loaded {
            disk,
            lock,
            options,
            counters,
            snapshot,
            codes: self.codes,
            root,
        })
    }
}

/// Removes what an attempt that did not come to its first checkpoint left.
fn remove_unfinished(disk: &dyn Disk) -> Result<(), DiskError> {
    for dir in ["segments", "log"] {
        if disk.exists(dir)? {
            for name in disk.list(dir)? {
                disk.remove(&format!("{dir}/{name}"))?;
            }
        }
    }
    for name in disk.list("")? {
        let ours = ["cambium.db", "codes.dat", "blocks.idx"].contains(&&*name);
        if ours || name.starts_with("checkpoint-") {
            disk.remove(&name)?;
        }
    }
    disk.sync_dir("")
}

/// The trie of one shard, from its accounts.
fn build_shard(shard: usize, bucket: Vec<u8>) -> Result<PartialTrie, StateError> {
    let mut leaves: Vec<(Path, LeafValue)> = Vec::new();
    let mut reader = Reader::new(&bucket);
    let damaged = |source| StateError::Damaged {
        what: "the loader's memory".to_owned(),
        source,
    };
    while reader.remaining() > 0 {
        let mut read = || {
            let account = reader.b256()?;
            let value = LeafValue::Account(Account::decode_from(&mut reader)?);
            leaves.push((Path::account(&account), value));
            for _ in 0..reader.count(33)? {
                let slot = reader.b256()?;
                let len = usize::from(reader.u8()?);
                let value = SlotValue::decode(reader.take(len)?)?;
                leaves.push((Path::slot(&account, &slot), LeafValue::Slot(value)));
            }
            Ok(())
        };
        read().map_err(damaged)?;
    }
    drop(bucket);
    leaves.sort_unstable_by_key(|(path, _)| *path);
    let mut trie = PartialTrie::new(shard_prefix(shard));
    let root = trie.graft_leaves(&shard_prefix(shard), leaves.into_iter(), std::iter::empty())?;
    trie.set_root(root);
    Ok(trie)
}

/// A first state that is on disk, but not named yet.
pub struct Loaded {
    disk: Arc<dyn Disk>,
    lock: DataDirLock,
    options: Options,
    counters: Arc<Counters>,
    snapshot: Arc<Snapshot>,
    codes: HashMap<B256, Bytes>,
    root: B256,
}

impl Loaded {
    /// The state root, which the first block's header needs.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// Names the first block and opens the database at it. `properties` are kept with the
    /// database and given back by [`Db::property`].
    pub fn create(
        self,
        meta: BlockMeta,
        properties: Vec<(String, Vec<u8>)>,
    ) -> Result<Db, StateError> {
        if meta.state_root != self.root {
            let (got, expected) = (self.root, meta.state_root);
            return Err(StateError::WrongRoot {
                block: meta.id,
                got,
                expected,
            });
        }
        let disk = self.disk;
        let own = [
            (
                GENESIS_NUMBER.to_owned(),
                meta.id.number.to_le_bytes().to_vec(),
            ),
            (GENESIS_HASH.to_owned(), meta.id.hash.to_vec()),
        ];
        let manifest = Manifest::create(&*disk, own.into_iter().chain(properties))?;
        let (codes, _) = Codes::open(disk.clone(), manifest.salt(), 0)?;
        for (hash, code) in &self.codes {
            codes.put(*hash, code)?;
        }
        let log_options = LogOptions {
            salt: manifest.salt(),
            ..LogOptions::default()
        };
        let (log, _) = BlockLog::open(disk.clone(), log_options, LogPosition::START)?;
        let none = Changes::default();
        let record = BlockRecord::encode(&meta, &none, &none, &[]);
        let position = log.append(KIND_BLOCK, &[&record])?;
        log.sync()?;
        let (blocks, _) = BlockIndex::open(disk.clone(), 0)?;
        blocks.set(
            meta.id.number,
            BlockEntry {
                hash: meta.id.hash,
                position,
            },
        )?;
        blocks.sync()?;
        let snapshot = Arc::new(Snapshot {
            block: meta.id,
            parent_hash: meta.parent,
            state_root: self.root,
            index: self.snapshot.index.clone(),
            pages: self.snapshot.pages.clone(),
        });
        let layer = LayerId(1);
        let base = Arc::new(Base {
            snapshot: snapshot.clone(),
            intermediate: None,
        });
        let inner = Arc::new(Inner {
            options: self.options,
            disk,
            counters: self.counters.clone(),
            pages: snapshot.pages.clone(),
            codes,
            retired: Mutex::new(Retired::default()),
            log: Mutex::new(LogWriter {
                log: Arc::new(log),
                blocks,
                positions: HashMap::from([(meta.id.hash, position)]),
                head_chain: BTreeMap::new(),
                rewound: HashMap::new(),
                merge: None,
            }),
            delta: Mutex::new(Delta::on(base.clone(), layer, self.counters)?),
            prover: Mutex::new(None),
            current: RwLock::new(Current {
                base,
                overlay: Arc::new(Overlay::new()),
                tree: Tree::new(meta.id, meta.parent, self.root, layer),
            }),
            poisoned: OnceLock::new(),
            genesis: meta.id,
            manifest,
            _lock: self.lock,
        });
        // Only with its first checkpoint does the directory hold a finished database.
        checkpoint::write(&inner, &snapshot, position, &[])?;
        Ok(Db { inner })
    }
}
