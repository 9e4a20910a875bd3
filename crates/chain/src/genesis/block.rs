//! The genesis block: its header's fields, and its accounts.

use crate::{ChainSpec, Fork};
use alloy_consensus::{
    Header,
    constants::{EMPTY_OMMER_ROOT_HASH, EMPTY_WITHDRAWALS},
};
use alloy_eips::{eip1559::INITIAL_BASE_FEE, eip7685::EMPTY_REQUESTS_HASH};
use alloy_primitives::{Address, B256, Bytes, U256};
use std::sync::Arc;

/// An account as a genesis file gives it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GenesisAccount {
    /// Balance in wei.
    pub balance: U256,
    /// Nonce.
    pub nonce: u64,
    /// Code; empty for most.
    pub code: Bytes,
    /// Slots and values in the order of the file; a zero value is a slot that isn't there.
    pub storage: Vec<(B256, U256)>,
}

/// A piece of a genesis block's accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenesisPart {
    /// An account, with its slots or some of them.
    Account(Address, GenesisAccount),
    /// More slots of an account, which comes next to them: before or after.
    Slots(Address, Vec<(B256, U256)>),
}

/// All of a genesis file but its accounts.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Genesis {
    /// The file, as it was named.
    pub file: Arc<str>,
    /// The fork rules, if the file has any: see [`spec`](Self::spec).
    pub config: Option<ChainSpec>,
    /// Nonce of the header.
    pub nonce: u64,
    /// Timestamp of the header.
    pub timestamp: u64,
    /// Extra data, of any length.
    pub extra_data: Bytes,
    /// Gas limit of the header.
    pub gas_limit: u64,
    /// Gas used, as the header says it.
    pub gas_used: u64,
    /// Difficulty of the header.
    pub difficulty: U256,
    /// Mix hash, or previous randao.
    pub mix_hash: B256,
    /// Beneficiary of the header.
    pub coinbase: Address,
    /// Number: 0 but in some tests.
    pub number: u64,
    /// Parent: zero but in some tests.
    pub parent_hash: B256,
    /// Base fee, used from London on; 1 gwei if not given.
    pub base_fee_per_gas: Option<u64>,
    /// Excess blob gas, used from Cancun on.
    pub excess_blob_gas: Option<u64>,
    /// Blob gas used, used from Cancun on.
    pub blob_gas_used: Option<u64>,
    /// Root of the parent beacon block, used from Cancun on; zero if not given.
    pub parent_beacon_block_root: Option<B256>,
    /// Of the beacon chain (EIP-7843).
    pub slot_number: Option<u64>,
    /// How many accounts there were.
    pub accounts: u64,
    /// Fields of `config` that make other rules than those known here: `clique`. A database is not
    /// made from such a file.
    pub refused: Vec<String>,
    /// Fields that were passed over: `config.verkleTime`, `alloc.*.comment`.
    pub ignored: Vec<String>,
}

impl Genesis {
    /// The header of the genesis block, given the root of its accounts.
    pub fn header(&self, spec: &ChainSpec, state_root: B256) -> Header {
        // A genesis block is past the merge if its forks say so; its difficulty may say otherwise. A
        // fork brings what the forks before it bring, those too that the file leaves out.
        let fork = spec.fork_at(self.number, self.timestamp, false);
        let london = fork >= Fork::London;
        let fork = match london {
            true => spec.fork_at(self.number, self.timestamp, true),
            false => fork,
        };
        let shanghai = fork >= Fork::Shanghai;
        let cancun = fork >= Fork::Cancun;
        let prague = fork >= Fork::Prague;
        let amsterdam = fork >= Fork::Amsterdam;
        Header {
            parent_hash: self.parent_hash,
            beneficiary: self.coinbase,
            state_root,
            difficulty: self.difficulty,
            number: self.number,
            gas_limit: self.gas_limit,
            gas_used: self.gas_used,
            timestamp: self.timestamp,
            extra_data: self.extra_data.clone(),
            mix_hash: self.mix_hash,
            nonce: self.nonce.into(),
            base_fee_per_gas: london.then(|| self.base_fee_per_gas.unwrap_or(INITIAL_BASE_FEE)),
            withdrawals_root: shanghai.then_some(EMPTY_WITHDRAWALS),
            blob_gas_used: cancun.then(|| self.blob_gas_used.unwrap_or(0)),
            excess_blob_gas: cancun.then(|| self.excess_blob_gas.unwrap_or(0)),
            parent_beacon_block_root: cancun
                .then(|| self.parent_beacon_block_root.unwrap_or_default()),
            requests_hash: prague.then_some(EMPTY_REQUESTS_HASH),
            // Both are the hash of an empty RLP list.
            block_access_list_hash: amsterdam.then_some(EMPTY_OMMER_ROOT_HASH),
            slot_number: spec
                .has_slot_number(fork)
                .then(|| self.slot_number.unwrap_or(0)),
            ..Header::default()
        }
    }
}
