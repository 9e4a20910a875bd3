//! Whole contracts read from shards, page by page: what a partial database adds to its list.

use super::error::ReaderError;
use crate::{
    bag::{NodeBag, ReadRequest},
    shard::SLOTS_AT_ONCE,
    shards::Shards,
};
use alloy_primitives::{B256, U256};
use cambium_chain::{ContractAt, StorageSource};
use cambium_trie::{ProvedPage, verify_slots_from};
use parking_lot::Mutex;
use std::ops::ControlFlow;

/// Shards as the source of all slots of contracts. Each page is verified against the state root before it is passed on, so a replica
/// that leaves something out, or makes it up, costs no more than the question to the next one.
#[derive(Clone, Debug)]
pub struct ShardStorage(Shards);

impl ShardStorage {
    /// The storage of all contracts of a state.
    pub const fn new(shards: Shards) -> Self {
        Self(shards)
    }

    /// A page of the slots of a contract, by keccak(slot), that begins at `from`.
    ///
    /// # Errors
    ///
    /// If no replica has an answer that can be verified.
    pub fn page(&self, contract: &ContractAt, from: B256) -> Result<ProvedPage<U256>, ReaderError> {
        let ContractAt {
            block,
            state_root,
            account,
        } = *contract;
        let request = ReadRequest {
            block,
            groups: Vec::new(),
            codes: Vec::new(),
            slots_from: Some((account, from)),
        };
        let page = Mutex::new(None);
        self.0.read(&request, |_, NodeBag { nodes, .. }| {
            let proved = verify_slots_from(state_root, account, from, &nodes, SLOTS_AT_ONCE);
            let proved = proved.map_err(|source| ReaderError::Slots {
                block,
                account,
                source: Box::new(source),
            })?;
            *page.lock() = Some(proved);
            Ok::<_, ReaderError>(())
        })?;
        let page = page.into_inner();
        Ok(page.expect("an answer was taken, or there was an error"))
    }
}

impl StorageSource for ShardStorage {
    fn name(&self) -> String {
        "the shards".to_owned()
    }

    fn slots(
        &self,
        contract: &ContractAt,
        visit: &mut dyn FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let mut from = Some(B256::ZERO);
        while let Some(start) = from {
            let page = self.page(contract, start);
            let page = page.map_err(|error| error.to_string())?;
            for (slot, value) in page.values {
                if visit(slot, value).is_break() {
                    return Ok(());
                }
            }
            from = page.next;
        }
        Ok(())
    }
}
