//! Creation of the database of a run.

use super::{commitment::TestedCommitment, heights::meta};
use crate::{Model, Random, random};
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{AccountUpdate, BlockId};
use cambium_state::{Db, FaultyDisk, KeptStorage, Loader, Options};
use std::sync::Arc;

/// A database with a random genesis state.
pub(crate) struct FirstState {
    pub(crate) db: Db,
    pub(crate) model: Model,
    pub(crate) id: BlockId,
    pub(crate) root: B256,
}

impl FirstState {
    /// Loads `accounts` random accounts, or entries, into a new database on `disk`. The genesis block's hash
    /// follows from `seed`.
    pub(crate) fn new(
        disk: &FaultyDisk,
        options: Options,
        seed: u64,
        accounts: u64,
        random: &mut Random,
    ) -> Self {
        let mut model = Model::default();
        let genesis = random::genesis(random, options.leaves, accounts);
        model.apply(&genesis);
        let codes = random::codes(&genesis);
        let arc = Arc::new(disk.clone());
        let loader = match TestedCommitment::of(&options) {
            TestedCommitment::Partial => {
                let kept = (0..accounts * 5 / 4).map(random::account_path);
                let kept = KeptStorage::new(kept.filter(random::keeps_storage));
                Loader::partial(arc, options, kept.expect("a short list"))
            }
            _ => Loader::new(arc, options),
        };
        let mut loader = loader.expect("a loader on a new disk");
        for change in genesis.accounts() {
            let taken = match &change.account {
                AccountUpdate::Put(account) => {
                    let slots = change.slots.iter().copied();
                    loader.account(change.path, account, slots)
                }
                AccountUpdate::Entry(value) => loader.entry(change.path, value),
                AccountUpdate::Keep | AccountUpdate::Delete => Ok(()),
            };
            taken.expect("a leaf is taken");
        }
        for (hash, code) in &codes {
            loader.code(*hash, code).expect("code is taken");
        }
        model.add_codes(codes);
        let loaded = loader.finish(&mut |_| {}).expect("a state is loaded");
        let root = TestedCommitment::of(&options).first_root(&model);
        assert_eq!(loaded.root(), root, "genesis root");
        let id = BlockId::new(0, keccak256(seed.to_le_bytes()));
        let db = loaded
            .create(meta(id, B256::ZERO, root), vec![])
            .expect("a database is made");
        Self {
            db,
            model,
            id,
            root,
        }
    }
}
