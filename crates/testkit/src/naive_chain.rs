//! A chain on the naive model: it keeps every state as a whole, makes every check, and favours
//! simplicity over speed. It is the reference for the engine's chain.

use crate::{Backend, Model, ModelAccount, ModelError, Unanimous};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_chain::{
    Ancestor, Block, ChainSpec, OMMER_ANCESTORS, validate_access_list, validate_body,
    validate_header, validate_ommers, verify_outcome, verify_state_root,
};
use cambium_evm::{BlockInput, Executor, Hooks, Outcome, recover_senders};
use cambium_primitives::{AccessList, Changes};
use revm::primitives::hardfork::SpecId;
use std::collections::HashMap;

/// Number of ancestors that BLOCKHASH can return.
const BLOCK_HASHES: u64 = 256;

/// All blocks of all branches, each with its post-state.
pub struct NaiveChain {
    spec: ChainSpec,
    blocks: HashMap<B256, Stored>,
    head: B256,
}

struct Stored {
    block: Ancestor,
    total_difficulty: U256,
    post_merge: bool,
    state: Model,
    access_list: Bytes,
}

impl NaiveChain {
    /// Validates and executes a block, and makes it the head according to the fork choice.
    fn import_block(
        &mut self,
        block: &Block,
        hash: B256,
        access_list: Option<&[u8]>,
    ) -> Result<(), String> {
        let header = &block.header;
        let parent = self
            .blocks
            .get(&header.parent_hash)
            .ok_or("unknown parent")?;
        let post_merge = self
            .spec
            .is_post_merge(header.number, parent.total_difficulty);
        let (parent_header, parent_hash) = (&parent.block.header, parent.block.hash);
        validate_header(&self.spec, header, parent_header, parent_hash, post_merge)
            .map_err(|error| error.to_string())?;
        validate_body(&self.spec, block, post_merge).map_err(|error| error.to_string())?;
        validate_ommers(&self.spec, block, &self.ancestors(parent_hash))
            .map_err(|error| error.to_string())?;
        let transactions = block.body.transactions.len();
        let given = access_list
            .map(|rlp| validate_access_list(header, transactions, rlp))
            .transpose()
            .map_err(|error| error.to_string())?;
        let (outcome, state) = self.execute(block, parent, post_merge, given.as_ref())?;
        let access_list = outcome.access_list.as_ref().map(AccessList::encode);
        let total_difficulty = parent.total_difficulty.saturating_add(header.difficulty);
        let ommers = block.body.ommers.iter().map(Header::hash_slow).collect();
        let block = Ancestor {
            hash,
            header: header.clone(),
            ommers,
        };
        let stored = Stored {
            block,
            total_difficulty,
            post_merge,
            state,
            access_list: access_list.unwrap_or_default().into(),
        };
        let head = &self.blocks[&self.head];
        if stored.post_merge || !head.post_merge && total_difficulty > head.total_difficulty {
            self.head = hash;
        }
        self.blocks.insert(hash, stored);
        Ok(())
    }

    fn ancestors(&self, parent: B256) -> Vec<Ancestor> {
        let mut next = parent;
        let mut ancestors = Vec::with_capacity(OMMER_ANCESTORS);
        while let Some(stored) = self.blocks.get(&next)
            && ancestors.len() < OMMER_ANCESTORS
        {
            next = stored.block.header.parent_hash;
            ancestors.push(stored.block.clone());
        }
        ancestors
    }

    fn execute(
        &self,
        block: &Block,
        parent: &Stored,
        post_merge: bool,
        given: Option<&AccessList>,
    ) -> Result<(Outcome, Model), String> {
        let header = &block.header;
        let rules = self
            .spec
            .rules_at(header.number, header.timestamp, post_merge);
        let senders = recover_senders(&block.body.transactions, rules.is(SpecId::HOMESTEAD))
            .map_err(|error| error.to_string())?;
        let input = BlockInput {
            access_list: given,
            ..BlockInput::of_block(rules, block, &senders)
        };
        let mut state = parent.state.clone();
        self.add_block_hashes(&mut state, header);
        let mut in_mid_block = state.clone();
        let mut roots = |changes: &Changes| {
            in_mid_block.apply(changes);
            Ok::<_, ModelError>(in_mid_block.root())
        };
        let outcome = Unanimous::default()
            .execute(
                &input,
                &state,
                Hooks {
                    roots: Some(&mut roots),
                    ..Hooks::default()
                },
            )
            .map_err(|error| error.to_string())?;
        let verified =
            verify_outcome(header, &outcome, given).map_err(|error| error.to_string())?;
        assert!(verified.receipts_root, "the receipts' root went unchecked");
        state.apply(&outcome.changes);
        state.add_codes(outcome.codes.iter().cloned());
        verify_state_root(header, state.root()).map_err(|error| error.to_string())?;
        Ok((outcome, state))
    }

    fn add_block_hashes(&self, state: &mut Model, header: &Header) {
        let mut hash = header.parent_hash;
        for number in (header.number.saturating_sub(BLOCK_HASHES)..header.number).rev() {
            let Some(stored) = self.blocks.get(&hash) else {
                return;
            };
            state.add_block_hash(number, hash);
            hash = stored.block.header.parent_hash;
        }
    }
}

impl Backend for NaiveChain {
    fn name() -> &'static str {
        "naive model"
    }

    fn new(
        spec: ChainSpec,
        genesis: Header,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
    ) -> Result<Self, String> {
        let mut state = Model::default();
        state.apply(&changes);
        state.add_codes(codes);
        verify_state_root(&genesis, state.root()).map_err(|error| error.to_string())?;
        let head = genesis.hash_slow();
        let total_difficulty = genesis.difficulty;
        let block = Ancestor {
            hash: head,
            header: genesis,
            ommers: Vec::new(),
        };
        let stored = Stored {
            block,
            total_difficulty,
            post_merge: false,
            state,
            access_list: Bytes::new(),
        };
        Ok(Self {
            spec,
            blocks: HashMap::from([(head, stored)]),
            head,
        })
    }

    fn import(&mut self, rlp: &[u8], access_list: Option<&[u8]>) -> Result<(), String> {
        let mut rest = rlp;
        let block = Block::decode_sealed(&mut rest).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err(format!("{} bytes after the block", rest.len()));
        }
        let (block, hash) = block.into_parts();
        if alloy_rlp::encode(&block) != rlp {
            return Err("not in its canonical encoding".to_owned());
        }
        self.import_block(&block, hash, access_list)
    }

    fn head(&self) -> B256 {
        self.head
    }

    fn access_list(&self) -> Bytes {
        self.blocks[&self.head].access_list.clone()
    }

    fn account(&self, address: alloy_primitives::Address) -> Option<cambium_primitives::Account> {
        Some(
            self.blocks[&self.head]
                .state
                .account(&keccak256(address))?
                .account,
        )
    }

    fn slot(&self, address: alloy_primitives::Address, slot: U256) -> U256 {
        let account: Option<&ModelAccount> =
            self.blocks[&self.head].state.account(&keccak256(address));
        let slot = keccak256(slot.to_be_bytes::<32>());
        account
            .and_then(|account| account.slots.get(&slot))
            .copied()
            .unwrap_or_default()
    }

    fn state_root(&self) -> B256 {
        self.blocks[&self.head].state.root()
    }
}
