//! Making witnesses from a database: blocks are executed again on their parents' states.

use super::witness::{BlockWitness, LayeredWitness, WitnessForm};
use crate::{Block, Chain, ChainError, error::execution_error, reads::OldState};
use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use alloy_rlp::Encodable;
use cambium_evm::{Executor, Hooks, Recorder, Sequential, StateRead, Touched};
use cambium_history::StateAt;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{StateError, View};
use cambium_trie::{ProofTargets, Witness};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};

impl Chain {
    /// Builds the witness of a canonical block, by executing it again on its parent's state.
    ///
    /// # Errors
    ///
    /// [`ChainError::NoSuchBlock`] if there is none, [`ChainError::NotExecuted`] for the first one, and
    /// [`ChainError::State`] if the block or its parent's state can't be read.
    pub fn witness(&self, number: BlockNumber) -> Result<BlockWitness, ChainError> {
        self.witness_on(number, |parent| Ok(self.db().view_of(parent)?.into()))
    }

    /// As [`Chain::witness`], on the state that `parent_state` makes of the parent: that of a history,
    /// for an old block.
    ///
    /// # Errors
    ///
    /// As [`Chain::witness`], and the errors of `parent_state`.
    pub fn witness_on(
        &self,
        number: BlockNumber,
        parent_state: impl FnOnce(BlockId) -> Result<StateAt, ChainError>,
    ) -> Result<BlockWitness, ChainError> {
        let head = self.db().head();
        let genesis = self.db().genesis();
        if number == genesis.number {
            return Err(ChainError::NotExecuted(genesis));
        }
        let parent_number = number
            .checked_sub(1)
            .ok_or(ChainError::NoSuchBlock { number, head })?;
        let block = self.block(number)?;
        let parent_total_difficulty = self.total_difficulty(parent_number)?;
        let post_merge = self.spec().is_post_merge(number, parent_total_difficulty);
        let id = BlockId::new(number, block.header.hash_slow());
        let senders = self.senders(&block);
        let senders = senders.map_err(|error| ChainError::invalid(id, error))?;
        let parent = self.parent_of(&block.header);
        if self.db().merge_interval().is_some() {
            return self.layered_witness(&block, &senders, post_merge, parent);
        }
        let view = parent_state(parent)?;
        let recorder = Recorder::new(OldState(&view));
        let input = self.spec().input(&block, &senders, post_merge);
        let outcome = Sequential.execute(&input, &recorder, Hooks::default());
        let outcome = outcome.map_err(|error| execution_error(id, error))?;
        let touched = recorder.into_touched();
        let trie = view.extract_for_changes(&keys_of(&touched), &outcome.changes)?;
        let state = trie.witness_nodes();
        self.finish_witness(number, &touched, state, None, |hash| Ok(view.code(hash)?))
    }

    /// The witness of a block of a chain with the commitment `layered`.
    fn layered_witness(
        &self,
        block: &Block,
        senders: &[Address],
        post_merge: bool,
        parent: BlockId,
    ) -> Result<BlockWitness, ChainError> {
        let number = block.header.number;
        let id = BlockId::new(number, block.header.hash_slow());
        let view = self.db().view_of(parent)?;
        let recorder = Recorder::new(LayeredState {
            view: &view,
            storage: Mutex::default(),
        });
        let input = self.spec().input(block, senders, post_merge);
        let outcome = Sequential.execute(&input, &recorder, Hooks::default());
        let outcome = outcome.map_err(|error| execution_error(id, error))?;
        let (state, touched) = recorder.into_parts();
        let changes = outcome.changes.accounts();
        // Whether an account has slots was asked by execution, and is by net changes.
        let mut asked = state
            .storage
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let wiped = changes.iter().filter(|change| change.wipe);
        asked.extend(wiped.map(|change| change.path));
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for path in asked {
            let mut any = None;
            view.each_slot(&path, |slot, _| {
                any = Some(slot);
                ControlFlow::Break(())
            })?;
            match any {
                Some(slot) => with.push((path, vec![slot])),
                None => without.push(path),
            }
        }
        let targets = keys_of(&touched)
            .and(&ProofTargets::of_changes(changes))
            .and(&ProofTargets::new(with));
        let accounts = without.iter().map(|path| (*path, vec![])).collect();
        let targets = targets.and(&ProofTargets::new(accounts));
        let layered = LayeredWitness {
            tries: view.layered_witness(&targets, &without)?.bytes,
            next_snapshot: view.next_snapshot_root()?,
        };
        let code = |hash: &B256| Ok(view.code(hash)?);
        self.finish_witness(number, &touched, Vec::new(), Some(layered), code)
    }

    /// Adds to the state what else a witness has: codes, keys, headers, and the block itself.
    fn finish_witness(
        &self,
        number: BlockNumber,
        touched: &Touched,
        state: Vec<Bytes>,
        layered: Option<LayeredWitness>,
        code: impl Fn(&B256) -> Result<Bytes, ChainError>,
    ) -> Result<BlockWitness, ChainError> {
        let parent_number = number.saturating_sub(1);
        let codes = touched
            .codes
            .iter()
            .filter(|hash| **hash != KECCAK256_EMPTY);
        let codes = codes.map(code).collect::<Result<_, _>>()?;
        let oldest = touched
            .block_hashes
            .keys()
            .next()
            .copied()
            .unwrap_or(parent_number);
        let headers = oldest.min(parent_number)..=parent_number;
        let headers = headers.map(|number| {
            let mut rlp = Vec::new();
            self.block(number)?.header.encode(&mut rlp);
            Ok(rlp.into())
        });
        let witness = Witness {
            state,
            codes,
            keys: raw_keys(touched),
            headers: headers.collect::<Result<_, ChainError>>()?,
        };
        Ok(BlockWitness {
            form: WitnessForm::Own,
            block: self.block_rlp(number)?,
            witness,
            layered,
        })
    }
}

/// The state before a block under the commitment `layered`. It notes of which accounts it was asked
/// whether they have slots.
struct LayeredState<'a> {
    view: &'a View,
    storage: Mutex<BTreeSet<B256>>,
}

impl DatabaseRef for LayeredState<'_> {
    type Error = StateError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, StateError> {
        self.view.basic_ref(address)
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, StateError> {
        self.view.code_by_hash_ref(code_hash)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, StateError> {
        self.view.storage_ref(address, index)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, StateError> {
        self.view.block_hash_ref(number)
    }
}

impl StateRead for LayeredState<'_> {
    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        let path = keccak256(address);
        let mut storage = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
        storage.insert(path);
        self.view.has_storage(&path)
    }
}

/// The trie keys of everything that execution read.
fn keys_of(touched: &Touched) -> ProofTargets {
    let hashed = touched.accounts.iter().map(|(address, slots)| {
        let slots = slots.iter().map(|slot| keccak256(slot.to_be_bytes::<32>()));
        (keccak256(address), slots.collect())
    });
    ProofTargets::new(hashed.collect())
}

fn raw_keys(touched: &Touched) -> Vec<Bytes> {
    let mut keys = Vec::new();
    for (address, slots) in &touched.accounts {
        keys.push(Bytes::copy_from_slice(address.as_slice()));
        keys.extend(
            slots
                .iter()
                .map(|slot| Bytes::from(slot.to_be_bytes::<32>())),
        );
    }
    keys
}
