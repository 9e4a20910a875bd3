//! Writing a state.

use crate::{Chain, ChainError, FileError, stored::StoredBlock};
use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256};
use cambium_history::StateAt;
use cambium_preimages::{PreimagesError, PreimagesLookup};
use cambium_primitives::Account;
use std::{
    io::{self, Write},
    ops::ControlFlow,
};

/// Version of the form.
pub(super) const VERSION: u64 = 1;
/// Number of accounts and slots between progress reports.
const TELL_LEAVES: u64 = 4096;
/// Accounts and slots that are in memory at most, so that preimages of the slots are looked up in the order of their
/// hashes. An account with more slots is written from one page after another.
const BATCH_LEAVES: usize = 1 << 17;

/// Progress of writing a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpProgress {
    /// keccak(address) of the account that is being written: accounts are in this order.
    pub account: B256,
    /// Number of accounts so far, this one included.
    pub accounts: u64,
    /// Number of slots so far.
    pub slots: u64,
}

/// Counts of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpSummary {
    /// Number of accounts.
    pub accounts: u64,
    /// Number of slots.
    pub slots: u64,
    /// Number of accounts with a code.
    pub contracts: u64,
    /// Number of accounts by keccak(address), since their addresses are not known.
    pub hashed_accounts: u64,
    /// Number of slots by keccak(slot), since their keys are not known.
    pub hashed_slots: u64,
    /// Whether the block itself is there, so that a database can be made of the dump.
    pub has_block: bool,
    /// Why a preimage could not be read, the first time, if the chain keeps any. That key is a hash.
    pub preimages_error: Option<String>,
}

impl Chain {
    /// Writes the state of a view as JSON ([`Chain::load_dump`] reads it), account by account, in the order of
    /// keccak(address). Accounts are written by address and slots by key if their preimages are known, which requires
    /// that the chain keeps them. Otherwise they are by their hashes, or the first of them is an error if
    /// `requires_preimages`. One page of the state, and one code, are in memory at a time; with preimages up to 131,072
    /// accounts and slots as well. `out` should be buffered; `name` is used in errors.
    ///
    /// # Errors
    ///
    /// If the state can't be read, or `out` can't be written to. [`ChainError::NoPreimage`] names a hash whose
    /// preimage is required and not known, and [`ChainError::Preimages`] says why none can be read.
    pub fn dump_state(
        &self,
        view: &StateAt,
        requires_preimages: bool,
        name: &str,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(DumpProgress),
    ) -> Result<DumpSummary, ChainError> {
        let block = self.db().block_by_id(view.block());
        let block = match block {
            Ok(meta) => meta.map(StoredBlock::read).transpose()?,
            Err(error) if error.has_left_log() => None,
            Err(error) => return Err(error.into()),
        };
        let names = Names::of(self, requires_preimages)?;
        let mut dump = Dump {
            view,
            names,
            pending: Vec::new(),
            pending_leaves: 0,
            out,
            progress,
            done: DumpSummary {
                accounts: 0,
                slots: 0,
                contracts: 0,
                hashed_accounts: 0,
                hashed_slots: 0,
                has_block: block.is_some(),
                preimages_error: None,
            },
        };
        let written = |source| FileError::Write {
            file: name.into(),
            source,
        };
        dump.head(self, block.as_ref()).map_err(written)?;
        let mut failure = None;
        view.each_account(&B256::ZERO, |path, account| {
            match dump.account(path, &account) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        match failure.map_or_else(|| dump.write_pending(), Err) {
            Err(Failure::Chain(error)) => return Err(*error),
            Err(Failure::Io(error)) => return Err(written(error).into()),
            Ok(()) => {}
        }
        let mut done = dump.done;
        done.preimages_error = dump.names.error;
        writeln!(out, "\n  }}\n}}")
            .and_then(|()| out.flush())
            .map_err(written)?;
        Ok(done)
    }
}

/// Known preimages of the hashes in the state.
struct Names {
    lookup: Option<PreimagesLookup>,
    are_required: bool,
    /// The first error of a look-up.
    error: Option<String>,
}

impl Names {
    fn of(chain: &Chain, are_required: bool) -> Result<Self, ChainError> {
        let (lookup, error) = match chain.preimages() {
            Ok(preimages) => (preimages.map(|preimages| preimages.lookup()), None),
            Err(error) if are_required => return Err(error),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Self {
            lookup,
            are_required,
            error,
        })
    }

    /// Returns the preimage found for a hash of the kind `what`. `None` if it is unknown.
    fn take<T>(
        &mut self,
        what: &'static str,
        hash: &B256,
        found: Option<Result<Option<T>, PreimagesError>>,
    ) -> Result<Option<T>, Failure> {
        match found.unwrap_or(Ok(None)) {
            Ok(None) if self.are_required => {
                let hash = *hash;
                Err(Box::new(ChainError::NoPreimage { what, hash }).into())
            }
            Err(error) if self.are_required => Err(Box::new(error).into()),
            Err(error) => {
                let error = self.error.get_or_insert_with(|| error.to_string());
                tracing::debug!(%error, %hash, "a preimage can't be read");
                Ok(None)
            }
            Ok(found) => Ok(found),
        }
    }

    fn address_of(&mut self, hash: &B256) -> Result<Option<Address>, Failure> {
        let found = self.lookup.as_mut().map(|lookup| lookup.address_of(hash));
        self.take("an account", hash, found)
    }

    fn slot_of(&mut self, hash: &B256) -> Result<Option<B256>, Failure> {
        let found = self.lookup.as_mut().map(|lookup| lookup.slot_of(hash));
        self.take("a slot", hash, found)
    }

    /// Those of many slots, in any order.
    fn slots_of(&mut self, hashes: &[B256]) -> Result<Vec<Option<B256>>, Failure> {
        let Some(lookup) = &mut self.lookup else {
            return hashes.iter().map(|hash| self.slot_of(hash)).collect();
        };
        let found = lookup.slots_of(hashes).into_iter().zip(hashes);
        found
            .map(|(found, hash)| self.take("a slot", hash, Some(found)))
            .collect()
    }
}

enum Failure {
    Chain(Box<ChainError>),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<E: Into<ChainError>> From<Box<E>> for Failure {
    fn from(error: Box<E>) -> Self {
        Self::Chain(Box::new((*error).into()))
    }
}

/// An account that is not written yet, with all its slots.
struct Pending {
    path: B256,
    account: Account,
    slots: Vec<(B256, U256)>,
}

struct Dump<'a> {
    view: &'a StateAt,
    names: Names,
    pending: Vec<Pending>,
    /// Number of these accounts and of their slots.
    pending_leaves: usize,
    out: &'a mut dyn Write,
    progress: &'a mut dyn FnMut(DumpProgress),
    done: DumpSummary,
}

impl Dump<'_> {
    /// Writes what precedes the accounts.
    fn head(&mut self, chain: &Chain, block: Option<&StoredBlock>) -> io::Result<()> {
        let id = self.view.block();
        let rules = serde_json::to_string(chain.spec())?;
        writeln!(self.out, "{{\n  \"cambiumDump\": {VERSION},")?;
        writeln!(self.out, "  \"rules\": {rules},")?;
        writeln!(self.out, "  \"number\": \"{:#x}\",", id.number)?;
        writeln!(self.out, "  \"hash\": \"{}\",", id.hash)?;
        if let Some(block) = block {
            let difficulty = block.body.total_difficulty;
            writeln!(self.out, "  \"totalDifficulty\": \"{difficulty:#x}\",")?;
            writeln!(self.out, "  \"block\": \"{}\",", block.body.rlp)?;
            if !block.body.access_list.is_empty() {
                writeln!(
                    self.out,
                    "  \"blockAccessList\": \"{}\",",
                    block.body.access_list
                )?;
            }
        }
        write!(self.out, "  \"alloc\": {{")
    }

    fn account(&mut self, path: B256, account: &Account) -> Result<(), Failure> {
        if self.names.lookup.is_none() {
            return self.write_page_by_page(path, account);
        }
        let (mut slots, mut is_large) = (Vec::new(), false);
        let read = |slot, value| {
            is_large = slots.len() == BATCH_LEAVES;
            match is_large {
                true => ControlFlow::Break(()),
                false => {
                    slots.push((slot, value));
                    ControlFlow::Continue(())
                }
            }
        };
        let walked = self.view.each_slot_from(&path, &B256::ZERO, read);
        walked.map_err(Box::new)?;
        if is_large {
            drop(slots);
            self.write_pending()?;
            return self.write_page_by_page(path, account);
        }
        self.pending_leaves += 1 + slots.len();
        self.pending.push(Pending {
            path,
            account: *account,
            slots,
        });
        match self.pending_leaves >= BATCH_LEAVES {
            true => self.write_pending(),
            false => Ok(()),
        }
    }

    fn write_pending(&mut self) -> Result<(), Failure> {
        self.pending_leaves = 0;
        let pending = std::mem::take(&mut self.pending);
        let slots = pending.iter().flat_map(|pending| &pending.slots);
        let hashes: Vec<B256> = slots.map(|(hash, _)| *hash).collect();
        let mut keys = self.names.slots_of(&hashes)?.into_iter();
        for pending in pending {
            let Pending {
                path,
                account,
                slots,
            } = pending;
            self.begin(path, &account)?;
            let (mut known, mut hashed) = (Object::new("storage"), Vec::new());
            for ((hash, value), key) in slots.into_iter().zip(keys.by_ref()) {
                match key {
                    Some(key) => self.slot(&mut known, path, key, value)?,
                    None => hashed.push((hash, value)),
                }
            }
            known.end(self.out)?;
            let mut unknown = Object::new("hashedStorage");
            for (hash, value) in hashed {
                self.slot(&mut unknown, path, hash, value)?;
            }
            self.done.hashed_slots += unknown.end(self.out)?;
            self.out.write_all(b"}")?;
        }
        Ok(())
    }

    /// Writes an account while its slots are read: all by their hashes, or, if keys are known, in two passes.
    fn write_page_by_page(&mut self, path: B256, account: &Account) -> Result<(), Failure> {
        self.begin(path, account)?;
        let mut known = Marks::default();
        if self.names.lookup.is_some() {
            self.slots(Object::new("storage"), path, |names, slot| {
                let key = names.slot_of(slot)?;
                known.push(key.is_some());
                Ok(key)
            })?;
        }
        // The others, in an object of their own. Found slots are not looked up again: the look-up may fail now.
        if known.falses > 0 || self.names.lookup.is_none() {
            let mut at = 0;
            let unknown = Object::new("hashedStorage");
            self.done.hashed_slots += self.slots(unknown, path, |names, slot| {
                at += 1;
                match known.get(at - 1) {
                    Some(true) => Ok(None),
                    Some(false) => Ok(Some(*slot)),
                    // Fails with `NoPreimage` if preimages are required.
                    None => Ok(Some(names.slot_of(slot)?.unwrap_or(*slot))),
                }
            })?;
        }
        Ok(self.out.write_all(b"}")?)
    }

    /// Writes an account up to its slots.
    fn begin(&mut self, path: B256, account: &Account) -> Result<(), Failure> {
        let Account {
            nonce,
            balance,
            code_hash,
        } = account;
        let separator = if self.done.accounts > 0 { "," } else { "" };
        self.done.accounts += 1;
        tell(&self.done, path, self.progress);
        match self.names.address_of(&path)? {
            Some(address) => write!(self.out, "{separator}\n    \"{address:#x}\": {{")?,
            None => {
                self.done.hashed_accounts += 1;
                write!(self.out, "{separator}\n    \"{path}\": {{")?;
            }
        }
        write!(
            self.out,
            "\"balance\": \"{balance:#x}\", \"nonce\": \"{nonce:#x}\""
        )?;
        if *code_hash != KECCAK256_EMPTY {
            let code = self.view.code(code_hash).map_err(Box::new)?;
            write!(self.out, ", \"code\": \"{code}\"")?;
            self.done.contracts += 1;
        }
        Ok(())
    }

    fn slot(
        &mut self,
        object: &mut Object,
        account: B256,
        key: B256,
        value: U256,
    ) -> Result<(), Failure> {
        object.put(self.out, key, value)?;
        self.done.slots += 1;
        tell(&self.done, account, self.progress);
        Ok(())
    }

    /// Writes the slots of an account as an object: those to which `key` gives a key. Returns their number.
    fn slots(
        &mut self,
        mut object: Object,
        account: B256,
        mut key: impl FnMut(&mut Names, &B256) -> Result<Option<B256>, Failure>,
    ) -> Result<u64, Failure> {
        let (view, mut failure) = (self.view, None);
        view.each_slot_from(&account, &B256::ZERO, |slot, value| {
            let written = key(&mut self.names, &slot).and_then(|key| match key {
                Some(key) => self.slot(&mut object, account, key, value),
                None => Ok(()),
            });
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
        .map_err(Box::new)?;
        match failure {
            Some(error) => Err(error),
            None => Ok(object.end(self.out)?),
        }
    }
}

/// Slots of an account as a field of it, which is left out if there are none.
struct Object {
    name: &'static str,
    written: u64,
}

impl Object {
    const fn new(name: &'static str) -> Self {
        let written = 0;
        Self { name, written }
    }

    fn put(&mut self, out: &mut dyn Write, key: B256, value: U256) -> io::Result<()> {
        match self.written {
            0 => write!(out, ", \"{}\": {{", self.name)?,
            _ => out.write_all(b",")?,
        }
        self.written += 1;
        write!(out, "\n      \"{key}\": \"{value:#x}\"")
    }

    fn end(self, out: &mut dyn Write) -> io::Result<u64> {
        if self.written > 0 {
            out.write_all(b"}")?;
        }
        Ok(self.written)
    }
}

/// Reports progress from time to time.
fn tell(done: &DumpSummary, account: B256, progress: &mut dyn FnMut(DumpProgress)) {
    let (accounts, slots) = (done.accounts, done.slots);
    if (accounts + slots).is_multiple_of(TELL_LEAVES) {
        progress(DumpProgress {
            account,
            accounts,
            slots,
        });
    }
}

/// A mark for each slot of an account, in their order: a bit.
#[derive(Default)]
struct Marks {
    words: Vec<u64>,
    len: usize,
    falses: usize,
}

impl Marks {
    fn push(&mut self, mark: bool) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        if let Some(word) = self.words.last_mut() {
            *word |= u64::from(mark) << (self.len % 64);
        }
        self.len += 1;
        self.falses += usize::from(!mark);
    }

    fn get(&self, at: usize) -> Option<bool> {
        let word = self.words.get(at / 64).filter(|_| at < self.len)?;
        Some(word >> (at % 64) & 1 == 1)
    }
}
