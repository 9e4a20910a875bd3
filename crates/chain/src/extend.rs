//! A partial database made anew with another list of contracts.
//!
//! Accounts and kept slots come from the partial database, one page at a time, and the slots of added contracts from a source, which
//! is untrusted: the slots of each must give the storage root of its account, and the whole state the state root of the block. The
//! old database is only read. The new one becomes a database with its first checkpoint, after everything is verified.

use crate::{Chain, ChainError, ExtendError, InitOptions, InitProgress, validate_access_list};
use alloy_primitives::{B256, KECCAK256_EMPTY, U256};
use cambium_primitives::{Account, BlockId};
use cambium_state::{Disk, KeptStorage, Loader, StateError, View, root_of_slots};
use std::{ops::ControlFlow, sync::Arc};

/// Number of slots that are passed on at once.
const SLOTS: usize = 4096;
/// Number of accounts between progress reports.
const TELL_ACCOUNTS: u64 = 4096;

/// A contract after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractAt {
    /// The block.
    pub block: BlockId,
    /// The state root after it.
    pub state_root: B256,
    /// keccak(address).
    pub account: B256,
}

/// Where the slots of added contracts come from. Nothing that it returns is trusted.
pub trait StorageSource {
    /// Names the source for errors.
    fn name(&self) -> String;

    /// Visits the slots of a contract, by keccak(slot) and in that order, until `visit` breaks.
    ///
    /// # Errors
    ///
    /// Why the slots can't be read.
    fn slots(
        &self,
        contract: &ContractAt,
        visit: &mut dyn FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), String>;
}

/// A full database, or a partial one that keeps the storage of the added contracts.
impl StorageSource for Chain {
    fn name(&self) -> String {
        "the other database".to_owned()
    }

    fn slots(
        &self,
        contract: &ContractAt,
        visit: &mut dyn FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let view = self.db().view_of(contract.block);
        let read = view.and_then(|view| view.each_slot(&contract.account, visit));
        read.map_err(|error| error.to_string())
    }
}

/// A partial database that was made anew.
pub struct Extended {
    /// The new database, whose first block is the one of the view.
    pub chain: Chain,
    /// Contracts whose slots came from the source, by keccak(address).
    pub added: Vec<B256>,
    /// Number of slots of these.
    pub added_slots: u64,
    /// Contracts of the list that the state does not have, by keccak(address). Their storage is kept once they are created.
    pub absent: Vec<B256>,
}

impl Chain {
    /// Makes a new partial database on `disk` at the block of `view`, which is a state of this partial database. It keeps the
    /// storage of the contracts in `options.storage_of`: slots of those that this database keeps are copied, slots of others come
    /// from `source`, and of contracts that are not in the list the storage root remains. Memory is bounded as in [`Chain::init`].
    ///
    /// A block below the first one of a database can't be reached any more, so a finalized block is the one to take where it is known.
    ///
    /// # Errors
    ///
    /// [`ChainError::Extend`] if this database is not partial, and if the source lacks slots or returns false ones;
    /// [`ChainError::State`] if `disk` has a database, or can't be written. Then `disk` has no database, or the one that it had.
    pub fn extend(
        &self,
        view: &View,
        disk: Arc<dyn Disk>,
        options: InitOptions,
        source: Option<&dyn StorageSource>,
        progress: &mut dyn FnMut(InitProgress),
    ) -> Result<Extended, ChainError> {
        let before = self.db().kept_storage().ok_or(ExtendError::NotPartial)?;
        let wanted = options.storage_of.clone().ok_or(ExtendError::NoList)?;
        let id = view.block();
        let stored = self
            .stored_of(id)?
            .ok_or(StateError::UnknownBlock(id.hash))?;
        let block = stored.block()?;
        let list = match stored.body.access_list.is_empty() {
            true => None,
            false => {
                let rlp = &stored.body.access_list;
                let list = validate_access_list(&block.header, block.body.transactions.len(), rlp);
                Some(list.map_err(|error| ChainError::unreadable(id, error))?)
            }
        };
        let (mut added, mut absent) = (Vec::new(), Vec::new());
        for account in wanted.accounts() {
            if view.account(account)?.is_none() {
                absent.push(*account);
            } else if !before.keeps(account) && view.root_in_place_of_slots(account)?.is_some() {
                added.push(*account);
            }
        }
        if let (Some(account), None) = (added.first(), source) {
            return Err(ExtendError::NoSource { account: *account }.into());
        }
        let (loader, preimages) = options.begin(disk)?;
        let mut copy = StateCopy {
            view,
            before,
            wanted: &wanted,
            source,
            loader,
            added_slots: 0,
        };
        let mut failure = None;
        view.each_account(&B256::ZERO, |path, account| {
            let done = copy.loader.accounts() + 1;
            if done.is_multiple_of(TELL_ACCOUNTS) {
                let (done, of) = (u64::from(path[0]), 256);
                progress(InitProgress::Accounts { done, of });
            }
            match copy.account(path, &account) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        let added_slots = copy.added_slots;
        let loaded = copy
            .loader
            .finish(&mut |built| progress(InitProgress::State(built)))?;
        preimages.finish(id)?;
        // Refuses another state root than the header's.
        let total_difficulty = stored.body.total_difficulty;
        let spec = self.spec().clone();
        let chain = Self::create_at(loaded, spec, &block, total_difficulty, list.as_ref())?;
        Ok(Extended {
            chain,
            added,
            added_slots,
            absent,
        })
    }
}

/// Copies a state into a new database.
struct StateCopy<'a> {
    view: &'a View,
    before: &'a KeptStorage,
    wanted: &'a KeptStorage,
    source: Option<&'a dyn StorageSource>,
    loader: Loader,
    added_slots: u64,
}

impl StateCopy<'_> {
    fn account(&mut self, path: B256, account: &Account) -> Result<(), ChainError> {
        self.loader.account(path, account, [])?;
        if account.code_hash != KECCAK256_EMPTY {
            let code = self.view.code(&account.code_hash)?;
            self.loader.code(account.code_hash, &code)?;
        }
        if self.before.keeps(&path) {
            let view = self.view;
            let read = |visit: &mut dyn FnMut(B256, U256) -> ControlFlow<()>| {
                Ok::<_, ChainError>(view.each_slot(&path, visit)?)
            };
            // The loader computes the root of those that are not to be kept.
            self.pass(path, read).map(drop)
        } else {
            match self.view.root_in_place_of_slots(&path)? {
                None => Ok(()),
                Some(root) if self.wanted.keeps(&path) => self.fetch(path, root),
                Some(root) => Ok(self.loader.storage_root(path, root)?),
            }
        }
    }

    /// Adds the slots of a contract from the source, and verifies them.
    fn fetch(&mut self, path: B256, expected: B256) -> Result<(), ChainError> {
        let source = self.source.ok_or(ExtendError::NoSource { account: path })?;
        let block = self.view.block();
        let contract = ContractAt {
            block,
            state_root: self.view.state_root(),
            account: path,
        };
        let no_slots = |why: String| {
            ChainError::from(ExtendError::NoSlots {
                account: path,
                source_name: source.name(),
                block,
                why,
            })
        };
        let mut count = 0;
        let got = root_of_slots(path, |put| {
            let mut refused = None;
            let read = |visit: &mut dyn FnMut(B256, U256) -> ControlFlow<()>| {
                let both = |slot, value| match put(slot, value) {
                    Ok(()) => visit(slot, value),
                    Err(error) => {
                        refused = Some(error);
                        ControlFlow::Break(())
                    }
                };
                let mut both = both;
                source.slots(&contract, &mut both).map_err(no_slots)?;
                // Of these slots no trie can be made.
                refused
                    .take()
                    .map_or(Ok(()), |error| Err(no_slots(error.to_string())))
            };
            count = self.pass(path, read)?;
            Ok::<_, ChainError>(())
        })?;
        if got != expected {
            return Err(ExtendError::OtherRoot {
                account: path,
                source_name: source.name(),
                block,
                got,
                expected,
            }
            .into());
        }
        self.added_slots += count;
        Ok(())
    }

    /// Passes slots that `read` visits on to the loader. Returns their number.
    fn pass(
        &mut self,
        path: B256,
        read: impl FnOnce(&mut dyn FnMut(B256, U256) -> ControlFlow<()>) -> Result<(), ChainError>,
    ) -> Result<u64, ChainError> {
        let (mut slots, mut count, mut failure) = (Vec::new(), 0, None);
        read(&mut |slot, value| {
            slots.push((slot, value));
            count += 1;
            if slots.len() < SLOTS {
                return ControlFlow::Continue(());
            }
            match self.loader.slots(path, slots.drain(..)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        self.loader.slots(path, slots)?;
        Ok(count)
    }
}
