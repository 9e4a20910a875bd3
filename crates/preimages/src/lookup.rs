//! Looking up many preimages in the order of their hashes.

use crate::{
    PreimagesError,
    kind::{Entry, Kind},
    run::RunFile,
    seen::Seen,
};
use alloy_primitives::{Address, B256};
use std::sync::Arc;

/// A page that was read: its number, and its preimages.
type ReadPage = (u64, Vec<Entry>);

/// Looks up preimages, and keeps the newest page of each run: hashes that are asked for in ascending order cost
/// one read for each page, as a walk over the accounts of a state asks for them. The slots of each account
/// begin from the lowest hash again, so that those of accounts with few slots cost a read of each run. It has the
/// preimages that were there when it was made.
pub struct Lookup {
    seen: Seen,
    /// For each run and kind the page that was read last, with its number.
    pages: Vec<[Option<ReadPage>; 2]>,
    reads: u64,
}

impl Lookup {
    pub(crate) fn new(seen: Seen) -> Self {
        let pages = seen.runs.iter().map(|_| [None, None]).collect();
        Self {
            seen,
            pages,
            reads: 0,
        }
    }

    /// The address with that hash, if it is known.
    ///
    /// # Errors
    ///
    /// [`PreimagesError::Damaged`] names the file whose bytes are not those that were written.
    pub fn address_of(&mut self, hash: &B256) -> Result<Option<Address>, PreimagesError> {
        let found = self.find(Kind::Address, hash)?;
        Ok(found.map(|bytes| Address::from_slice(&bytes[..20])))
    }

    /// The key of a slot with that hash, if it is known.
    ///
    /// # Errors
    ///
    /// As [`Lookup::address_of`].
    pub fn slot_of(&mut self, hash: &B256) -> Result<Option<B256>, PreimagesError> {
        Ok(self.find(Kind::Slot, hash)?.map(B256::new))
    }

    /// Number of pages that it has read.
    pub const fn reads(&self) -> u64 {
        self.reads
    }

    fn find(&mut self, kind: Kind, hash: &B256) -> Result<Option<[u8; 32]>, PreimagesError> {
        for recent in &self.seen.recent {
            if let Some(preimage) = recent.get(kind, hash) {
                return Ok(Some(preimage));
            }
        }
        // The largest run is most likely to have it.
        for at in 0..self.seen.runs.len() {
            let run = self.seen.runs[at].clone();
            let mut next = run.page_of(kind, hash);
            while let Some(page) = next.take() {
                let entries = self.page(at, &run, kind, page)?;
                if let Ok(found) = entries.binary_search_by_key(hash, |entry| entry.hash) {
                    return Ok(Some(entries[found].preimage));
                }
                if run.may_begin_before(kind, page, hash) {
                    next = page.checked_sub(1);
                }
            }
        }
        Ok(None)
    }

    fn page(
        &mut self,
        at: usize,
        run: &Arc<RunFile>,
        kind: Kind,
        page: u64,
    ) -> Result<&[Entry], PreimagesError> {
        let kept = &mut self.pages[at][kind as usize];
        if !matches!(kept, Some((number, _)) if *number == page) {
            *kept = Some((page, run.read(kind, page)?));
            self.reads += 1;
        }
        Ok(kept.as_ref().map_or(&[], |(_, entries)| entries))
    }
}
