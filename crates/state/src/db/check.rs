//! Verifying a database: everything is read and hashed again, from the leaves up.
//!
//! ```text
//!   each page   its leaves hash to the index's reference, and to the references cached in the page
//!   each shard  its pages' references hash to its root, and the roots to the state root
//!   each code   its bytes have its hash, and the codes of all accounts are there
//!   each value  that is stored apart from its leaf: its bytes have its hash
//!   each block  its record is whole, and follows the one before it
//! ```

use crate::{db::handle::Db, values::LongValues};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, EntryValue, StoredValue};
use cambium_snapshot::{CheckProgress, CheckReport, StateError, check_codes, check_state};
use std::ops::ControlFlow;

/// Bytes of values that are read in one batch; the last value may exceed them.
const VALUE_BYTES_AT_ONCE: usize = 8 << 20;

impl Db {
    /// Reads every page, code, block and long value of the head's state, hashes the state from its
    /// leaves, and compares the root of the snapshot, and the root of the head by the blocks above the
    /// snapshot. Damage is reported, not repaired. The whole database is read, with little memory;
    /// blocks can be committed meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReaderBehind`](cambium_store::StoreError::ReaderBehind) for a reader, if the
    /// writing process has removed files that were to be checked.
    pub fn check(
        &self,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<CheckReport, StateError> {
        let snapshot = self.inner.layers.current.read().base.snapshot.clone();
        let mut report = CheckReport::default();
        let codes = &self.inner.store.codes;
        let kept = self.inner.kept_storage.as_ref();
        check_state(&snapshot, codes, kept, &mut report, progress);
        self.check_head(&mut report);
        check_codes(codes, &mut report, progress);
        self.check_values(&mut report);
        self.check_blocks(&mut report, progress);
        if !report.damage.is_empty() {
            self.check_not_behind()?;
        }
        Ok(report)
    }

    /// Reads every value of the head's state that is stored apart from its leaf, and compares its hash.
    /// Values that only older blocks have are verified when they are read.
    pub(crate) fn check_values(&self, report: &mut CheckReport) {
        let Some(values) = &self.inner.store.values else {
            return;
        };
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let visited = self.view().and_then(|view| {
            view.each_value(&B256::ZERO, |key, value| {
                if let EntryValue::Stored(stored) = value {
                    bytes += stored.len as usize;
                    batch.push((key, stored));
                }
                if bytes > VALUE_BYTES_AT_ONCE {
                    self.check_batch(values, &batch, report);
                    batch.clear();
                    bytes = 0;
                }
                Ok(ControlFlow::Continue(()))
            })
        });
        self.check_batch(values, &batch, report);
        if let Err(error) = visited {
            let what = "the values of entries from there on were not checked";
            report.damage(format!("{error}; {what}"));
        }
    }

    /// Reads values, and compares their hashes.
    fn check_batch(
        &self,
        values: &LongValues,
        batch: &[(B256, StoredValue)],
        report: &mut CheckReport,
    ) {
        let commitment = self.inner.options.commitment;
        for ((key, stored), read) in batch.iter().zip(values.read_batch(batch)) {
            report.values += 1;
            match read {
                Ok(value) if commitment.value_hash(&value) == stored.hash => {}
                Ok(_) => report.damage(format!(
                    "the value of key {key} has another hash than {}: put it again",
                    stored.hash
                )),
                Err(error) => report.damage(error),
            }
        }
    }

    /// Checks the head's root, from the snapshot and the changes of the blocks above it.
    fn check_head(&self, report: &mut CheckReport) {
        let root = self.view().and_then(|view| {
            if let Some(root) = self.inner.layered_root_anew(&view)? {
                return Ok((view.block(), root, view.state_root()));
            }
            let trie = view.extract(&Default::default())?;
            Ok((
                view.block(),
                trie.state_root().unwrap_or_default(),
                view.state_root(),
            ))
        });
        match root {
            Ok((_, got, expected)) if got == expected => {}
            Ok((block, got, expected)) => report.damage(StateError::WrongRoot {
                block,
                got,
                expected,
            }),
            Err(error) => report.damage(error),
        }
    }

    /// Checks the records of the canonical chain, lowest block first.
    fn check_blocks(&self, report: &mut CheckReport, progress: &mut dyn FnMut(CheckProgress)) {
        let (head, genesis) = (self.head(), self.genesis());
        let mut parent = None;
        let lowest = genesis.number.max(self.inner.journal.kept().lowest);
        for number in lowest..=head.number {
            let checked = self.check_block(number, parent);
            let checked = checked.or_else(|_| self.check_block_again(number));
            if checked == Ok(None) {
                break;
            }
            parent = checked.as_ref().ok().copied().flatten();
            match checked {
                Ok(_) => report.blocks += 1,
                // The block has left the log meanwhile.
                Err(_) if number < self.inner.journal.kept().lowest => {}
                Err(damage) => report.damage(damage),
            }
            let (done, of) = (number - lowest + 1, head.number - lowest + 1);
            progress(CheckProgress::Blocks { done, of });
        }
    }

    /// Does the same as [`Db::check_block`] with the head in place: if the head moves between two
    /// blocks, they belong to different chains. `None` if the head is below `number` by now.
    fn check_block_again(&self, number: u64) -> Result<Option<B256>, String> {
        let _head_stays = self.inner.journal.head_moves.lock();
        if number > self.head().number {
            return Ok(None);
        }
        let below = number.checked_sub(1);
        let below = below.filter(|below| *below >= self.genesis().number);
        let parent = below.and_then(|below| self.check_block(below, None).ok().flatten());
        self.check_block(number, parent)
    }

    /// Checks one record, and that it follows `parent` if that is known. Returns the block's hash.
    fn check_block(&self, number: u64, parent: Option<B256>) -> Result<Option<B256>, String> {
        let entry = self.inner.journal.blocks.canonical(number);
        let Some(entry) = entry.map_err(|error| error.to_string())? else {
            return Err(format!("block {number} is not in the block index"));
        };
        let id = BlockId::new(number, entry.hash);
        let record = self.inner.journal.record_of(id, entry.position);
        let record = record.map_err(|error| format!("block {number}: {error}"))?;
        if parent.is_some_and(|parent| parent != record.meta.parent) {
            return Err(format!(
                "block {number} does not follow the block before it"
            ));
        }
        Ok(Some(record.meta.id.hash))
    }
}
