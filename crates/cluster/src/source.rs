//! A full database as the source of a cluster: snapshots of its state for shards, and updates of its blocks.

use crate::{
    range::ShardRange,
    snapshot::{SnapshotError, SnapshotWriter},
    top::top_nodes,
    update::{BlockUpdate, body_of},
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, KECCAK256_EMPTY};
use cambium_chain::{Chain, ChainError};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, BlockNumber};
use cambium_state::{StateError, View};
use cambium_trie::ProofTargets;
use std::{collections::HashSet, io::Write, ops::ControlFlow};

/// Leaves that are written at once.
const LEAVES: usize = 10_000;

/// Why a database is no source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A block can't be read.
    #[error(transparent)]
    Chain(#[from] Box<ChainError>),
    /// The state can't be read.
    #[error(transparent)]
    State(#[from] Box<StateError>),
    /// A snapshot can't be written.
    #[error(transparent)]
    Snapshot(#[from] Box<SnapshotError>),
    /// The database does not have the block on its canonical chain.
    #[error("block {0} is not in the database, or not on its canonical chain")]
    NoBlock(BlockId),
}

impl From<ChainError> for SourceError {
    fn from(error: ChainError) -> Self {
        Self::Chain(Box::new(error))
    }
}

impl From<StateError> for SourceError {
    fn from(error: StateError) -> Self {
        Self::State(Box::new(error))
    }
}

impl From<SnapshotError> for SourceError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(Box::new(error))
    }
}

/// A full database, for shards whose roots are at some depth.
#[derive(Clone, Copy)]
pub struct Source<'c> {
    chain: &'c Chain,
    depth: usize,
    has_bodies: bool,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source(shards at depth {})", self.depth)
    }
}

impl<'c> Source<'c> {
    /// A source for shards of this division.
    pub const fn new(chain: &'c Chain, range: ShardRange) -> Self {
        Self {
            chain,
            depth: range.depth(),
            has_bodies: true,
        }
    }

    /// Sets whether updates have the blocks' bodies. Shards don't need them; databases that follow the stream do.
    pub const fn with_bodies(self, has_bodies: bool) -> Self {
        Self { has_bodies, ..self }
    }

    /// The updates of canonical blocks, in order. The blocks have to be in the log.
    ///
    /// # Errors
    ///
    /// If the database is a partial one.
    pub fn updates(
        &self,
        first: BlockNumber,
        last: BlockNumber,
    ) -> Result<impl Iterator<Item = Result<BlockUpdate, SourceError>> + use<'c>, SourceError> {
        let source = *self;
        let updates = self.chain.state_updates(first, last)?;
        Ok(updates.map(move |update| {
            let (id, update) = update?;
            let header = source.header(id)?;
            let view = source.chain.db().view_of(id)?;
            let body = match source.has_bodies {
                true => source.body(id)?,
                false => Bytes::new(),
            };
            Ok(BlockUpdate {
                body,
                top: source.top(&view)?,
                header,
                changes: update.changes,
                codes: update.codes,
                storage_roots: update.storage_roots,
            })
        }))
    }

    /// The header of a block.
    ///
    /// # Errors
    ///
    /// If the database does not have it.
    pub fn header(&self, id: BlockId) -> Result<Header, SourceError> {
        let block = self.chain.block_of(id)?;
        let (block, _) = block.ok_or(SourceError::NoBlock(id))?;
        Ok(block.header)
    }

    fn body(&self, id: BlockId) -> Result<Bytes, SourceError> {
        let stored = self.chain.stored_of(id)?;
        let stored = stored.ok_or(SourceError::NoBlock(id))?;
        let body = body_of(&stored.body.rlp);
        body.map_err(|error| ChainError::unreadable(id, error).into())
    }

    /// The nodes above the shards.
    fn top(&self, view: &View) -> Result<Vec<Bytes>, SourceError> {
        let keys = (0..1_u16 << (4 * (self.depth - 1))).map(|nibble| {
            let mut key = B256::ZERO;
            key.0[0] = (nibble as u8) << 4;
            (key, Vec::new())
        });
        let trie = view.extract(&ProofTargets::new(keys.collect()))?;
        Ok(top_nodes(&trie, self.depth))
    }

    /// Writes the snapshot of a shard at the block of a view.
    ///
    /// # Errors
    ///
    /// If the state can't be read, or the snapshot written.
    pub fn write_snapshot<W: Write>(
        &self,
        view: &View,
        range: ShardRange,
        out: W,
    ) -> Result<W, SourceError> {
        let header = self.header(view.block())?;
        let mut writer = SnapshotWriter::new(out, range, &header, &self.top(view)?, &[])?;
        let mut codes = HashSet::new();
        for prefix in range.prefixes() {
            let mut from = prefix.first_leaf().account_part();
            while let Some(start) = from {
                let mut accounts = Vec::new();
                from = None;
                view.each_account(&start, |path, account| {
                    if range.place(&path).is_none() {
                        return ControlFlow::Break(());
                    }
                    if accounts.len() == LEAVES {
                        from = Some(path);
                        return ControlFlow::Break(());
                    }
                    accounts.push((path, account));
                    ControlFlow::Continue(())
                })?;
                let is_own =
                    |path: &B256| cambium_primitives::Path::account(path).starts_with(&prefix);
                accounts.retain(|(path, _)| is_own(path));
                from = from.filter(is_own);
                self.write_accounts(view, accounts, &mut codes, &mut writer)?;
            }
        }
        Ok(writer.finish()?)
    }

    fn write_accounts<W: Write>(
        &self,
        view: &View,
        accounts: Vec<(B256, cambium_primitives::Account)>,
        codes: &mut HashSet<B256>,
        writer: &mut SnapshotWriter<W>,
    ) -> Result<(), SourceError> {
        let mut part = Vec::new();
        let mut leaves = 0;
        for (path, account) in accounts {
            if account.code_hash != KECCAK256_EMPTY && codes.insert(account.code_hash) {
                writer.code(view.code(&account.code_hash)?)?;
            }
            let (mut update, mut from) = (AccountUpdate::Put(account), Some(B256::ZERO));
            while let Some(start) = from.take() {
                let mut slots = Vec::new();
                view.each_slot_from(&path, &start, |slot, value| {
                    if leaves + slots.len() >= LEAVES {
                        from = Some(slot);
                        return ControlFlow::Break(());
                    }
                    slots.push((slot, value));
                    ControlFlow::Continue(())
                })?;
                leaves += 1 + slots.len();
                part.push(AccountDiff {
                    path,
                    account: std::mem::replace(&mut update, AccountUpdate::Keep),
                    wipe: false,
                    slots,
                });
                if leaves >= LEAVES {
                    writer.accounts(std::mem::take(&mut part))?;
                    leaves = 0;
                }
            }
        }
        match part.is_empty() {
            true => Ok(()),
            false => Ok(writer.accounts(part)?),
        }
    }
}
