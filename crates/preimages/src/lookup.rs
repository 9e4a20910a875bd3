//! Looking up many preimages in the order of their hashes.

use crate::{PreimagesError, kind::Kind, page::ReadPage, run::RunFile, seen::Seen};
use alloy_primitives::{Address, B256};
use std::sync::Arc;

/// Looks up preimages, and keeps the newest page of each run: hashes that are asked for in ascending order cost
/// one read for each page, as a walk over the accounts of a state asks for them. The slots of each account begin
/// from the lowest hash again: [`PreimagesLookup::slots_of`] is for those of many accounts. It has the preimages that
/// were there when it was made.
pub struct PreimagesLookup {
    seen: Seen,
    /// For each run and kind the page that was read last, with its number.
    pages: Vec<[Option<(u64, ReadPage)>; 2]>,
    reads: u64,
}

impl PreimagesLookup {
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
    /// As [`PreimagesLookup::address_of`].
    pub fn slot_of(&mut self, hash: &B256) -> Result<Option<B256>, PreimagesError> {
        Ok(self.find(Kind::Slot, hash)?.map(B256::new))
    }

    /// Returns the result of [`PreimagesLookup::slot_of`] for each of these hashes, in their order. Looks them up in
    /// the order of the hashes: a page is read once for all hashes in it.
    pub fn slots_of(&mut self, hashes: &[B256]) -> Vec<Result<Option<B256>, PreimagesError>> {
        let mut order: Vec<usize> = (0..hashes.len()).collect();
        order.sort_unstable_by_key(|at| hashes[*at]);
        let mut found: Vec<_> = hashes.iter().map(|_| Ok(None)).collect();
        for at in order {
            found[at] = self.slot_of(&hashes[at]);
        }
        found
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
        // The largest run is most likely to have it. Skips a run that can't be read; another may have the hash.
        let mut failure = None;
        for at in 0..self.seen.runs.len() {
            match self.find_in(at, kind, hash) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(None), Err)
    }

    fn find_in(
        &mut self,
        at: usize,
        kind: Kind,
        hash: &B256,
    ) -> Result<Option<[u8; 32]>, PreimagesError> {
        let run = self.seen.runs[at].clone();
        let mut next = run.page_of(kind, hash);
        while let Some(page) = next.take() {
            if let Some(found) = self.page(at, &run, kind, page)?.find(hash) {
                return Ok(Some(found.preimage));
            }
            if run.may_begin_before(kind, page, hash) {
                next = page.checked_sub(1);
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
    ) -> Result<&mut ReadPage, PreimagesError> {
        let kept = &mut self.pages[at][kind as usize];
        let read = match kept.take() {
            Some((number, read)) if number == page => read,
            _ => {
                self.reads += 1;
                run.read(kind, page)?
            }
        };
        Ok(&mut kept.insert((page, read)).1)
    }
}
