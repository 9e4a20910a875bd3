//! The engine's face over maps, until the engine takes entries.

use alloy_primitives::{B256, Bytes, Keccak256, keccak256};
use cambium_disk::Disk;
use cambium_primitives::{AccountUpdate, BlockId, BlockNumber, Changes, EntryValue, StoredValue};

use parking_lot::Mutex;
use std::{collections::BTreeMap, num::NonZeroU64, sync::Arc};

type Map = Arc<BTreeMap<B256, Bytes>>;

#[derive(Default)]
struct Inner {
    canonical: Vec<(BlockMeta, Map)>,
    side: Vec<(BlockMeta, Map)>,
    sealed: Vec<(BlockMeta, Map)>,
    values: BTreeMap<B256, Bytes>,
}

#[derive(Clone)]
pub(crate) struct Db(Arc<Mutex<Inner>>);

#[derive(Clone)]
pub(crate) struct View {
    db: Db,
    meta: BlockMeta,
    map: Map,
}

pub(crate) fn root_of(map: &BTreeMap<B256, Bytes>) -> B256 {
    let mut hash = Keccak256::new();
    for (key, value) in map {
        hash.update(key);
        hash.update(keccak256(value));
    }
    hash.finalize()
}

impl Db {
    pub(crate) fn create(
        _disk: Arc<dyn Disk>,
        meta: BlockMeta,
        map: BTreeMap<B256, Bytes>,
    ) -> Self {
        let inner = Inner {
            canonical: vec![(meta, Arc::new(map))],
            ..Inner::default()
        };
        Self(Arc::new(Mutex::new(inner)))
    }
    pub(crate) fn head(&self) -> BlockId {
        self.0.lock().canonical.last().unwrap().0.id
    }
    pub(crate) fn genesis(&self) -> BlockId {
        self.0.lock().canonical[0].0.id
    }
    fn view_from(&self, (meta, map): &(BlockMeta, Map)) -> View {
        View {
            db: self.clone(),
            meta: meta.clone(),
            map: map.clone(),
        }
    }
    pub(crate) fn view(&self) -> Result<View, StateError> {
        let inner = self.0.lock();
        Ok(self.view_from(inner.canonical.last().unwrap()))
    }
    pub(crate) fn view_at(&self, number: BlockNumber) -> Result<View, StateError> {
        let inner = self.0.lock();
        let head = inner.canonical.last().unwrap().0.id;
        let found = inner.canonical.get(number as usize);
        Ok(self.view_from(found.ok_or(StateError::NoSuchBlock { number, head })?))
    }
    pub(crate) fn block(&self, number: BlockNumber) -> Result<Option<BlockMeta>, StateError> {
        let inner = self.0.lock();
        Ok(inner.canonical.get(number as usize).map(|it| it.0.clone()))
    }
    pub(crate) fn find(&self, hash: &B256) -> Option<BlockId> {
        let inner = self.0.lock();
        let mut all = inner
            .canonical
            .iter()
            .chain(&inner.side)
            .chain(&inner.sealed);
        all.map(|it| it.0.id).find(|id| id.hash == *hash)
    }
    pub(crate) fn has(&self, id: BlockId) -> Result<bool, StateError> {
        let inner = self.0.lock();
        let mut all = inner.canonical.iter().chain(&inner.side);
        Ok(all.any(|it| it.0.id == id))
    }
    pub(crate) fn value(&self, value: Bytes) -> Result<EntryValue, StateError> {
        if value.len() <= cambium_primitives::INLINE_VALUE_BYTES_MAX {
            return Ok(EntryValue::Inline(value));
        }
        let (hash, len) = (keccak256(&value), value.len() as u32);
        self.0.lock().values.insert(hash, value);
        let place = NonZeroU64::MIN;
        Ok(EntryValue::Stored(StoredValue { hash, len, place }))
    }
    pub(crate) fn commit_all(&self, sealed: Vec<Sealed>) -> Result<(), StateError> {
        for block in sealed {
            let mut inner = self.0.lock();
            let at = inner.sealed.iter().position(|it| it.0.id == block.meta.id);
            let found = inner.sealed.remove(at.unwrap());
            inner.canonical.push(found);
            drop(inner);
        }
        Ok(())
    }
    pub(crate) fn unwind(&self, to: BlockNumber) -> Result<BlockId, StateError> {
        let mut inner = self.0.lock();
        let gone = inner.canonical.split_off(to as usize + 1);
        inner.side.extend(gone);
        Ok(inner.canonical.last().unwrap().0.id)
    }
}

impl View {
    pub(crate) fn block(&self) -> BlockId {
        self.meta.id
    }
    pub(crate) fn state_root(&self) -> B256 {
        self.meta.state_root
    }
    pub(crate) fn entry(&self, key: &B256) -> Result<Option<Bytes>, StateError> {
        Ok(self.map.get(key).cloned())
    }
    pub(crate) fn entries(&self, keys: &[B256]) -> Result<Vec<Option<Bytes>>, StateError> {
        keys.iter().map(|key| self.entry(key)).collect()
    }
    pub(crate) fn next_entries(
        &self,
        from: B256,
        limit: usize,
    ) -> Result<Vec<(B256, Bytes)>, StateError> {
        let found = self.map.range(from..).take(limit);
        Ok(found.map(|(key, value)| (*key, value.clone())).collect())
    }
    pub(crate) fn session(self) -> Session {
        Session(self)
    }
}

pub(crate) struct Session(View);

impl Session {
    pub(crate) fn entries(&self, keys: &[B256]) -> Result<Vec<Option<Bytes>>, StateError> {
        self.0.entries(keys)
    }
    pub(crate) fn finish(
        self,
        changes: Changes,
        _codes: Vec<(B256, Bytes)>,
    ) -> Result<Staged, StateError> {
        let mut map = (*self.0.map).clone();
        for change in changes.into_accounts() {
            match change.account {
                AccountUpdate::Entry(EntryValue::Inline(value)) => {
                    map.insert(change.path, value);
                }
                AccountUpdate::Entry(EntryValue::Stored(stored)) => {
                    let value = self.0.db.0.lock().values[&stored.hash].clone();
                    map.insert(change.path, value);
                }
                _ => {
                    map.remove(&change.path);
                }
            }
        }
        Ok(Staged {
            root: root_of(&map),
            view: self.0,
            map,
        })
    }
}

pub(crate) struct Staged {
    view: View,
    map: BTreeMap<B256, Bytes>,
    root: B256,
}

impl Staged {
    pub(crate) fn root(&self) -> B256 {
        self.root
    }
    pub(crate) fn seal(self, meta: BlockMeta) -> Result<Sealed, StateError> {
        let db = self.view.db;
        assert_eq!(meta.parent, self.view.meta.id.hash);
        db.0.lock().sealed.push((meta.clone(), Arc::new(self.map)));
        Ok(Sealed { db, meta })
    }
}

pub(crate) struct Sealed {
    db: Db,
    meta: BlockMeta,
}

impl Sealed {
    pub(crate) fn id(&self) -> BlockId {
        self.meta.id
    }
    pub(crate) fn view(&self) -> Result<View, StateError> {
        let inner = self.db.0.lock();
        let found = inner.sealed.iter().find(|it| it.0.id == self.meta.id);
        Ok(self
            .db
            .view_from(found.ok_or(StateError::UnknownBlock(self.meta.id.hash))?))
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.db.0.lock().sealed.retain(|it| it.0.id != self.meta.id);
    }
}

#[derive(Clone, Debug)]
pub struct BlockMeta {
    pub id: BlockId,
    pub parent: B256,
    pub state_root: B256,
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FileSizes;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("block {0} is not in the database")]
    UnknownBlock(B256),
    #[error("no block {number}: the head is {head}")]
    NoSuchBlock { number: BlockNumber, head: BlockId },
    #[error("not kept")]
    NotKept { oldest: BlockNumber },
}
