//! The state engine's chain as a backend, for the same suites as the naive chain.

use crate::{Backend, genesis_chain, raw_block};
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_chain::{Chain, ChainError, ChainSpec};
use cambium_preimages::{Preimages, PreimagesOptions};
use cambium_primitives::{Account, AccountDiff, BlockId, Changes};
use cambium_state::{FaultyDisk, View};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
    thread,
};

/// Number of blocks after which all but the newest are merged into pages. So even short chains are
/// read from pages, and reorganised below the snapshot.
const FLUSH_EVERY: u64 = 3;

/// A chain in a database in memory. Every other one, by its genesis state, keeps preimages: those of what its blocks
/// create, since the genesis state is given without any. When it is dropped, they are held against the state.
pub struct EngineChain {
    chain: Chain,
    imported: u64,
    /// Accounts of the genesis state, and slots of each.
    genesis: BTreeMap<B256, BTreeSet<B256>>,
}

impl EngineChain {
    /// Returns the chain.
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Imports a block in the stages that blocks in files go through, reading ahead included.
    fn import_as_file(&self, rlp: Bytes, access_list: Option<&[u8]>) -> Result<(), ChainError> {
        let raw = raw_block(self.imported, rlp, access_list.map(Bytes::copy_from_slice));
        self.chain.import(std::iter::once(Ok(raw)), &mut |_| {})?;
        Ok(())
    }

    /// Panics if there is an account or a slot at the head whose preimage is not known, and that is not of the genesis
    /// state.
    fn check_preimages(&self) {
        let preimages = self.chain.preimages().expect("preimages that are whole");
        let Some(preimages) = preimages else { return };
        assert_eq!(preimages.stats().lost_blocks, 0);
        let (view, none) = (self.view(), BTreeSet::new());
        let mut lookup = preimages.lookup();
        let walked = view.each_account(&B256::ZERO, |path, _| {
            let found = lookup.address_of(&path).expect("a look-up");
            let genesis = self.genesis.get(&path);
            assert_eq!(found.map_or(path, keccak256), path);
            assert!(
                found.is_some() || genesis.is_some(),
                "the account at {path}"
            );
            let walked = view.each_slot_from(&path, &B256::ZERO, |slot, _| {
                let found = lookup.slot_of(&slot).expect("a look-up");
                assert_eq!(found.map_or(slot, keccak256), slot);
                let is_first = genesis.unwrap_or(&none).contains(&slot);
                assert!(found.is_some() || is_first, "the slot {slot} of {path}");
                ControlFlow::Continue(())
            });
            walked.expect("slots are read");
            ControlFlow::Continue(())
        });
        walked.expect("accounts are read");
    }

    fn view(&self) -> View {
        self.chain.db().view().expect("the head has a state")
    }
}

impl Drop for EngineChain {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.check_preimages();
        }
    }
}

impl Backend for EngineChain {
    fn name() -> &'static str {
        "state engine"
    }

    fn new(
        spec: ChainSpec,
        genesis: Header,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
    ) -> Result<Self, String> {
        let of = |change: &AccountDiff| {
            let slots = change.slots.iter().map(|(slot, _)| *slot);
            (change.path, slots.collect())
        };
        let first = changes.accounts().iter().map(of).collect();
        let create = || {
            let disk = Arc::new(FaultyDisk::new(1));
            if genesis.state_root[31] % 2 == 1 {
                let preimages = Preimages::create(disk.clone(), PreimagesOptions::default())?;
                preimages.advance(BlockId::new(genesis.number, genesis.hash_slow()));
                preimages.flush()?;
            }
            genesis_chain(disk, spec, genesis, &changes, &codes)
        };
        let chain = create().map_err(|error: ChainError| error.to_string())?;
        Ok(Self {
            chain,
            imported: 0,
            genesis: first,
        })
    }

    fn import(&mut self, rlp: &[u8], access_list: Option<&[u8]>) -> Result<(), String> {
        let head = self.head();
        let rlp = Bytes::copy_from_slice(rlp);
        let imported = match self.imported.is_multiple_of(2) {
            true => self.chain.import_block(rlp, access_list).map(|_| ()),
            false => self.import_as_file(rlp, access_list),
        };
        let imported = imported.map_err(|error| match error {
            ChainError::Block { .. } | ChainError::NotABlock(_) | ChainError::File(_) => {
                error.to_string()
            }
            // Not an invalid block, so no case may pass because of it.
            error => panic!("the engine failed: {error}"),
        });
        if imported.is_err() {
            assert_eq!(self.head(), head, "a refused block moves no head");
        }
        self.imported += 1;
        if self.imported.is_multiple_of(FLUSH_EVERY) {
            let flushed = self.chain.db().flush((self.imported % 2) as usize);
            flushed.expect("blocks are merged");
        }
        imported
    }

    fn head(&self) -> B256 {
        self.chain.db().head().hash
    }

    fn access_list(&self) -> Bytes {
        let list = self.chain.kept_access_list(self.chain.db().head().number);
        list.expect("the head is read").unwrap_or_default()
    }

    fn account(&self, address: Address) -> Option<Account> {
        let account = self.view().account(&keccak256(address));
        account.expect("an account is read")
    }

    fn slot(&self, address: Address, slot: U256) -> U256 {
        let slot = keccak256(slot.to_be_bytes::<32>());
        let value = self.view().slot(&keccak256(address), &slot);
        value.expect("a slot is read")
    }

    fn state_root(&self) -> B256 {
        self.view().state_root()
    }
}
