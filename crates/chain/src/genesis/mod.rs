//! Genesis files, as geth, reth and hive write them.
//!
//! A genesis file is one JSON object: `config` (the fork rules), the fields of block 0's header,
//! and `alloc`, the accounts that there are from the start. `alloc` may hold millions of accounts
//! and may come before `config`, so the file is streamed: [`Genesis::stream`] hands over account
//! by account, those with many slots in pieces, and keeps none.
//!
//! Names of fields are matched without regard to case, as geth does (`mixhash` is common).
//! Numbers may be JSON numbers, decimal strings or hex strings. Fields that are not known are
//! passed over and listed in [`Genesis::ignored`]. One of them is `stateRoot`: the accounts decide
//! the root, and there are files in use in which it is wrong.

mod error;
mod block;
mod known;
mod values;
mod config;
mod parse;

pub use block::{Genesis, GenesisAccount, GenesisPart};
pub use error::GenesisError;

use crate::ChainSpec;
use alloy_primitives::{Address, B256};
use std::{collections::HashSet, fs::File, io, path::Path};

impl Genesis {
    /// Reads `path`, handing each account to `on_part` as it comes: many slots in pieces before
    /// it.
    ///
    /// An address that the file gives twice comes twice. An error of `on_part` ends the reading and
    /// is returned.
    pub fn stream<E: From<GenesisError>>(
        path: impl AsRef<Path>,
        on_part: impl FnMut(GenesisPart) -> Result<(), E>,
    ) -> Result<Self, E> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| GenesisError::Open {
            file: name.as_str().into(),
            source,
        })?;
        Self::stream_from(
            &name,
            io::BufReader::with_capacity(256 << 10, file),
            on_part,
        )
    }

    /// As [`stream`](Self::stream), from anything that can be read; `name` is for errors.
    pub fn stream_from<E: From<GenesisError>>(
        name: &str,
        reader: impl io::Read,
        on_part: impl FnMut(GenesisPart) -> Result<(), E>,
    ) -> Result<Self, E> {
        parse::parse(name, reader, on_part)
    }

    /// Reads `path` whole: for small files.
    pub fn read(
        path: impl AsRef<Path>,
    ) -> Result<(Self, Vec<(Address, GenesisAccount)>), GenesisError> {
        let mut accounts = Vec::new();
        let mut slots = Vec::new();
        let genesis = Self::stream(path, |part| {
            match part {
                GenesisPart::Slots(_, mut more) => slots.append(&mut more),
                GenesisPart::Account(address, mut account) => {
                    slots.append(&mut account.storage);
                    account.storage = std::mem::take(&mut slots);
                    accounts.push((address, account));
                }
            }
            Ok::<_, GenesisError>(())
        })?;
        let mut seen = HashSet::with_capacity(accounts.len());
        match accounts.iter().find(|(address, _)| !seen.insert(*address)) {
            Some(&(address, _)) => Err(GenesisError::Twice {
                file: genesis.file,
                address,
            }),
            None => Ok((genesis, accounts)),
        }
    }

    /// The fork rules: the file's own or, of a file without, those of the public chain of which
    /// this is the genesis block, given the root of its accounts.
    pub fn spec(&self, state_root: B256) -> Result<ChainSpec, GenesisError> {
        let known = || known::spec_of(self, state_root);
        let spec = self.config.clone().or_else(known);
        spec.ok_or_else(|| GenesisError::NoConfig {
            file: self.file.clone(),
        })
    }

    /// Refuses a chain whose rules are not known here.
    pub fn check_rules(&self) -> Result<(), GenesisError> {
        match self.refused.is_empty() {
            true => Ok(()),
            false => Err(GenesisError::OtherRules {
                file: self.file.clone(),
                fields: self.refused.clone(),
            }),
        }
    }
}
