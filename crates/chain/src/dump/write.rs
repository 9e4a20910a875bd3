//! Writing a state.

use crate::{Chain, ChainError, FileError, stored::StoredBlock};
use alloy_primitives::{B256, KECCAK256_EMPTY};
use cambium_history::HistoryView;
use cambium_primitives::Account;
use std::{
    io::{self, Write},
    ops::ControlFlow,
};

/// Version of the form.
pub(super) const VERSION: u64 = 1;
/// Number of accounts and slots between progress reports.
const TELL_LEAVES: u64 = 4096;

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

/// What a dump has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpSummary {
    /// Number of accounts, all of them by keccak(address).
    pub accounts: u64,
    /// Number of slots, all of them by keccak(slot).
    pub slots: u64,
    /// Number of accounts with a code.
    pub contracts: u64,
    /// Whether the block itself is there, so that a database can be made of the dump.
    pub has_block: bool,
}

impl Chain {
    /// Writes the state of a view as JSON ([`Chain::load_dump`] reads it), account by account, in the order of
    /// keccak(address). One page of the state, and one code, are in memory at a time. `out` should be
    /// buffered; `name` is used in errors.
    ///
    /// # Errors
    ///
    /// If the state can't be read, or `out` can't be written to.
    pub fn dump_state(
        &self,
        view: &HistoryView,
        name: &str,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(DumpProgress),
    ) -> Result<DumpSummary, ChainError> {
        let block = self.db().block_by_id(view.block());
        let block = match block {
            Ok(meta) => meta.map(StoredBlock::read).transpose()?,
            Err(cambium_state::StateError::NotKept { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let mut dump = Dump {
            view,
            out,
            progress,
            done: DumpSummary {
                accounts: 0,
                slots: 0,
                contracts: 0,
                has_block: block.is_some(),
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
        match failure {
            Some(Failure::Chain(error)) => return Err(*error),
            Some(Failure::Io(error)) => return Err(written(error).into()),
            None => {}
        }
        let done = dump.done;
        writeln!(out, "\n  }}\n}}")
            .and_then(|()| out.flush())
            .map_err(written)?;
        Ok(done)
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

struct Dump<'a> {
    view: &'a HistoryView,
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
        let Account {
            nonce,
            balance,
            code_hash,
        } = account;
        let separator = if self.done.accounts > 0 { "," } else { "" };
        self.done.accounts += 1;
        write!(
            self.out,
            "{separator}\n    \"{path}\": {{\"balance\": \"{balance:#x}\", \"nonce\": \"{nonce:#x}\""
        )?;
        if *code_hash != KECCAK256_EMPTY {
            let code = self.view.code(code_hash).map_err(Box::new)?;
            write!(self.out, ", \"code\": \"{code}\"")?;
            self.done.contracts += 1;
        }
        let (mut slots, mut failure) = (0u64, None);
        let Self {
            view,
            out,
            progress,
            done,
        } = self;
        view.each_slot_from(&path, &B256::ZERO, |slot, value| {
            let before = match slots {
                0 => ", \"hashedStorage\": {",
                _ => ",",
            };
            if let Err(error) = write!(out, "{before}\n      \"{slot}\": \"{value:#x}\"") {
                failure = Some(error);
                return ControlFlow::Break(());
            }
            slots += 1;
            done.slots += 1;
            if (done.accounts + done.slots).is_multiple_of(TELL_LEAVES) {
                progress(DumpProgress {
                    account: path,
                    accounts: done.accounts,
                    slots: done.slots,
                });
            }
            ControlFlow::Continue(())
        })
        .map_err(Box::new)?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        out.write_all(if slots > 0 { b"}}" } else { b"}" })?;
        if slots == 0 && (done.accounts + done.slots).is_multiple_of(TELL_LEAVES) {
            progress(DumpProgress {
                account: path,
                accounts: done.accounts,
                slots: done.slots,
            });
        }
        Ok(())
    }
}
