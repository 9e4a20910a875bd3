//! The tables: writing a block, and looking up what a key had at an old one.

use super::entries::Key;
use crate::{history::plan::Failure, state::stores::mdbx::open_with_tables};
use roaring::RoaringTreemap;
use signet_libmdbx::{
    Database, DatabaseFlags, Environment, WriteFlags,
    tx::aliases::{RoCursorUnsync, RoTxUnsync, RwCursorUnsync, RwTxUnsync},
};
use std::{borrow::Cow, path::Path};

/// Block numbers in a shard.
const SHARD: usize = 2_000;
/// The number of a key's last shard; that of others is their last block.
const LAST_SHARD: u64 = u64::MAX;

/// A key and its value.
pub(super) type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The three tables of one kind of key.
#[derive(Clone, Copy)]
pub(super) struct Domain {
    present: Database,
    /// Former values of what a block changed, sorted under its number.
    change_sets: Database,
    /// Numbers of the blocks that changed a key, in shards.
    history: Database,
}

impl Domain {
    fn create(txn: &RwTxUnsync, name: &str) -> Result<Self, Failure> {
        let create = |table: &str, flags| txn.create_db(Some(&format!("{name}{table}")), flags);
        Ok(Self {
            present: create("", DatabaseFlags::empty())?,
            change_sets: create("-change-sets", DatabaseFlags::DUP_SORT)?,
            history: create("-history", DatabaseFlags::empty())?,
        })
    }

    /// A cursor over the present values.
    pub(super) fn present<'a>(&self, txn: &'a RoTxUnsync) -> Result<RoCursorUnsync<'a>, Failure> {
        Ok(txn.cursor(self.present)?)
    }

    /// Writes what a block put, sorted by key.
    fn write<K: Key>(
        &self,
        txn: &RwTxUnsync,
        block: u64,
        put: &[(K, Vec<u8>)],
    ) -> Result<(), Failure> {
        let mut present = txn.cursor(self.present)?;
        let mut change_sets = txn.cursor(self.change_sets)?;
        for (key, value) in put {
            let present_key = key.present();
            let former: Option<Cow<'_, [u8]>> = present.set(&present_key)?;
            let mut entry = key.in_change_set();
            // The empty value stands for an absent one.
            entry.extend_from_slice(former.as_deref().unwrap_or_default());
            change_sets.append_dup(&block.to_be_bytes(), &entry)?;
            present.put(&present_key, value, WriteFlags::UPSERT)?;
        }
        let mut history = txn.cursor(self.history)?;
        for (key, _) in put {
            add_block(&mut history, &key.in_history(), block)?;
        }
        Ok(())
    }

    /// The value that a key had after a block, where `present` is the present one: the former value in the first block
    /// above that has changed it, if one has.
    pub(super) fn value_at<'a>(
        &self,
        txn: &'a RoTxUnsync,
        key: &impl Key,
        block: u64,
        present: Cow<'a, [u8]>,
    ) -> Result<Option<Cow<'a, [u8]>>, Failure> {
        let Some(changed) = self.first_change_above(txn, &key.in_history(), block)? else {
            return Ok(Some(present));
        };
        let entry_key = key.in_change_set();
        let entry: Option<Cow<'_, [u8]>> = txn
            .cursor(self.change_sets)?
            .get_both_range(&changed.to_be_bytes(), &entry_key)?;
        let entry = entry
            .filter(|entry| entry.starts_with(&entry_key))
            .ok_or_else(|| format!("block {changed} has changed a key, and has no entry of it"))?;
        let value = match entry {
            Cow::Borrowed(entry) => Cow::Borrowed(&entry[entry_key.len()..]),
            Cow::Owned(entry) => Cow::Owned(entry[entry_key.len()..].to_vec()),
        };
        Ok((!value.is_empty()).then_some(value))
    }

    fn first_change_above(
        &self,
        txn: &RoTxUnsync,
        key: &[u8],
        block: u64,
    ) -> Result<Option<u64>, Failure> {
        // The first shard whose last block is above.
        let sought = shard_key(key, block + 1);
        let shard: Option<Pair<'_>> = txn.cursor(self.history)?.set_range(&sought)?;
        let is_of_key = |found: &[u8]| found.len() == sought.len() && found.starts_with(key);
        match shard {
            Some((found, blocks)) if is_of_key(&found) => {
                let blocks = RoaringTreemap::deserialize_from(&*blocks)?;
                Ok(blocks.select(blocks.rank(block)))
            }
            _ => Ok(None),
        }
    }
}

/// Adds the newest block to the blocks that have changed a key.
fn add_block(history: &mut RwCursorUnsync<'_>, key: &[u8], block: u64) -> Result<(), Failure> {
    let last_key = shard_key(key, LAST_SHARD);
    let last: Option<Cow<'_, [u8]>> = history.set(&last_key)?;
    let mut blocks = match last {
        Some(last) => RoaringTreemap::deserialize_from(&*last)?,
        None => RoaringTreemap::new(),
    };
    if blocks.len() >= SHARD as u64
        && let Some(newest) = blocks.max()
    {
        put_shard(history, &shard_key(key, newest), &blocks)?;
        blocks.clear();
    }
    blocks.insert(block);
    put_shard(history, &last_key, &blocks)
}

fn put_shard(
    history: &mut RwCursorUnsync<'_>,
    key: &[u8],
    blocks: &RoaringTreemap,
) -> Result<(), Failure> {
    let mut bytes = Vec::with_capacity(blocks.serialized_size());
    blocks.serialize_into(&mut bytes)?;
    Ok(history.put(key, &bytes, WriteFlags::UPSERT)?)
}

fn shard_key(key: &[u8], number: u64) -> Vec<u8> {
    [key, &number.to_be_bytes()].concat()
}

/// An open database.
pub(super) struct Tables {
    env: Environment,
    /// Branches of the state trie, by their paths.
    pub(super) nodes: Domain,
    /// Accounts, by the hashes of their addresses.
    pub(super) accounts: Domain,
}

impl Tables {
    /// Opens the database in a directory, or creates it.
    pub(super) fn open(dir: &Path) -> Result<Self, Failure> {
        let env = open_with_tables(dir, 6)?;
        let txn = env.begin_rw_unsync()?;
        let nodes = Domain::create(&txn, "branches")?;
        let accounts = Domain::create(&txn, "accounts")?;
        txn.commit()?;
        Ok(Self {
            env,
            nodes,
            accounts,
        })
    }

    /// Adds the values of the first state, sorted, so that pages are full.
    pub(super) fn load<K: Key>(
        &self,
        domain: Domain,
        values: impl IntoIterator<Item = (K, Vec<u8>)>,
    ) -> Result<(), Failure> {
        let txn = self.env.begin_rw_unsync()?;
        for (key, value) in values {
            txn.append(domain.present, key.present(), value)?;
        }
        Ok(txn.commit()?)
    }

    /// Writes what a block put, sorted by key, durably.
    pub(super) fn write<N: Key, A: Key>(
        &self,
        block: u64,
        nodes: &[(N, Vec<u8>)],
        accounts: &[(A, Vec<u8>)],
    ) -> Result<(), Failure> {
        let txn = self.env.begin_rw_unsync()?;
        self.nodes.write(&txn, block, nodes)?;
        self.accounts.write(&txn, block, accounts)?;
        Ok(txn.commit()?)
    }

    pub(super) fn begin_read(&self) -> Result<RoTxUnsync, Failure> {
        Ok(self.env.begin_ro_unsync()?)
    }

    /// Bytes of pages that are in use, and of those that are free in the file.
    pub(super) fn bytes(&self) -> Result<(u64, u64), Failure> {
        let page = u64::from(self.env.stat()?.page_size());
        let pages = self.env.info()?.last_pgno() as u64 + 1;
        let free = self.env.freelist()? as u64;
        Ok((pages.saturating_sub(free) * page, free * page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::B256;

    #[test]
    fn a_key_with_several_shards_has_the_value_of_every_block() -> Result<(), Failure> {
        let dir = tempfile::tempdir()?;
        let tables = Tables::open(dir.path())?;
        let value = |block: u64| block.to_be_bytes().to_vec();
        let (often, once) = (B256::repeat_byte(1), B256::repeat_byte(2));
        tables.load(tables.accounts, [(often, value(0)), (once, value(0))])?;
        let (newest, changed_once) = (2 * SHARD as u64 + 100, 3_000);
        let txn = tables.env.begin_rw_unsync()?;
        for block in 1..=newest {
            let mut put = vec![(often, value(block))];
            if block == changed_once {
                put.push((once, value(block)));
            }
            tables.accounts.write(&txn, block, &put)?;
        }
        txn.commit()?;
        let txn = tables.begin_read()?;
        let at = |key, block, present| {
            let present = Cow::Owned(value(present));
            tables.accounts.value_at(&txn, &key, block, present)
        };
        for block in 0..=newest {
            assert_eq!(at(often, block, newest)?.as_deref(), Some(&*value(block)));
            let of_once = if block < changed_once {
                0
            } else {
                changed_once
            };
            assert_eq!(
                at(once, block, changed_once)?.as_deref(),
                Some(&*value(of_once))
            );
        }
        Ok(())
    }

    #[test]
    fn what_a_block_has_created_did_not_exist_before_it() -> Result<(), Failure> {
        let dir = tempfile::tempdir()?;
        let tables = Tables::open(dir.path())?;
        let key = B256::repeat_byte(1);
        tables.write::<B256, _>(5, &[], &[(key, vec![7])])?;
        let txn = tables.begin_read()?;
        let at = |block| {
            tables
                .accounts
                .value_at(&txn, &key, block, Cow::Owned(vec![7]))
        };
        assert_eq!(at(4)?, None);
        assert_eq!(at(5)?.as_deref(), Some(&[7][..]));
        Ok(())
    }
}
