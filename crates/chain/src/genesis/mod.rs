//! Genesis files, as geth, reth and hive write them.
//!
//! A genesis file is one JSON object: `config` (the fork rules), the fields of block 0's header,
//! and `alloc` (the initial accounts). `alloc` may have millions of accounts and may precede
//! `config`, so the file is streamed: [`Genesis::stream`] passes on one account at a time, accounts
//! with many slots in pieces, and keeps none.
//!
//! Field names are case-insensitive, as in geth (`mixhash` is common). Numbers may be JSON numbers,
//! decimal strings or hex strings. Unknown fields are skipped and listed in [`Genesis::ignored`].
//! `stateRoot` is among them: the accounts determine the root, and some files in use have a wrong
//! one.

mod error;
mod block;
mod known;
mod values;
mod config;
mod parse;
mod alloy;

pub(crate) use alloy::each_part;
pub use block::{Genesis, GenesisAccount, GenesisPart};
pub(crate) use config::BLOBS_MAX;
pub use error::GenesisError;
pub(crate) use values::{Value, optional, required, shown};

use crate::ChainSpec;
use alloy_primitives::{Address, B256};
use std::{collections::HashSet, fs::File, io, path::Path};

impl Genesis {
    /// Reads the file `path` and passes its accounts to `on_part` in order. Slots of an account
    /// with many slots are passed in pieces before the account. Duplicate addresses are passed on.
    ///
    /// # Errors
    ///
    /// If the file can't be opened or is malformed, or if `on_part` fails, which ends the reading.
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

    /// As [`stream`](Self::stream), from any reader. `name` is used in errors.
    ///
    /// # Errors
    ///
    /// If the input is malformed, or if `on_part` fails.
    pub fn stream_from<E: From<GenesisError>>(
        name: &str,
        reader: impl io::Read,
        on_part: impl FnMut(GenesisPart) -> Result<(), E>,
    ) -> Result<Self, E> {
        parse::parse(name, reader, on_part)
    }

    /// Reads the file `path` into memory: for small files.
    ///
    /// # Errors
    ///
    /// If the file can't be opened, is malformed, or has an account twice.
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

    /// The fork rules of the file. A file without any gets the built-in rules of the public chain
    /// whose genesis block it describes, given its state root.
    ///
    /// # Errors
    ///
    /// If the file has no rules, and is not the genesis of a public chain known here.
    pub fn spec(&self, state_root: B256) -> Result<ChainSpec, GenesisError> {
        let known = || known::spec_of(self, state_root);
        let spec = self.config.clone().or_else(known);
        spec.ok_or_else(|| GenesisError::NoConfig {
            file: self.file.clone(),
        })
    }

    /// Rejects a chain whose rules Cambium does not implement.
    ///
    /// # Errors
    ///
    /// If there are [`refused`](Self::refused) fields.
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
