//! The genesis block: header fields and accounts.

use crate::{ChainSpec, Fork};
use alloy_consensus::{
    Header,
    constants::{EMPTY_OMMER_ROOT_HASH, EMPTY_WITHDRAWALS},
};
use alloy_eips::{eip1559::INITIAL_BASE_FEE, eip7685::EMPTY_REQUESTS_HASH};
use alloy_primitives::{Address, B256, Bytes, U256};
use std::sync::Arc;

/// An account of a genesis file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GenesisAccount {
    /// Balance in wei.
    pub balance: U256,
    /// Nonce.
    pub nonce: u64,
    /// Contract code; empty for other accounts.
    pub code: Bytes,
    /// Slots and values in the order of the file. A slot with value zero does not exist.
    pub storage: Vec<(B256, U256)>,
}

/// A piece of the genesis state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenesisPart {
    /// An account with all or some of its slots.
    Account(Address, GenesisAccount),
    /// More slots of the account that directly precedes or follows.
    Slots(Address, Vec<(B256, U256)>),
}

/// A genesis file without its accounts.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Genesis {
    /// Name of the file as it was given.
    pub file: Arc<str>,
    /// The fork rules, if the file has any. [`spec`](Self::spec) also covers files without.
    pub config: Option<ChainSpec>,
    /// Nonce of the header.
    pub nonce: u64,
    /// Timestamp of the header.
    pub timestamp: u64,
    /// Extra data of the header, of any length.
    pub extra_data: Bytes,
    /// Gas limit of the header.
    pub gas_limit: u64,
    /// Gas used in the header.
    pub gas_used: u64,
    /// Difficulty of the header.
    pub difficulty: U256,
    /// Mix hash of the header, or previous RANDAO.
    pub mix_hash: B256,
    /// Beneficiary of the header.
    pub coinbase: Address,
    /// Block number; 0 except in some tests.
    pub number: u64,
    /// Parent hash; zero except in some tests.
    pub parent_hash: B256,
    /// Base fee in wei, used from London on; 1 gwei if `None`.
    pub base_fee_per_gas: Option<u64>,
    /// Excess blob gas, used from Cancun on; zero if `None`.
    pub excess_blob_gas: Option<u64>,
    /// Blob gas used, used from Cancun on; zero if `None`.
    pub blob_gas_used: Option<u64>,
    /// Parent beacon block root, used from Cancun on; zero if `None`.
    pub parent_beacon_block_root: Option<B256>,
    /// Slot number of the beacon chain (EIP-7843), used with all EIPs of Amsterdam; zero if `None`.
    pub slot_number: Option<u64>,
    /// Number of accounts in the file.
    pub accounts: u64,
    /// Fields of `config`, such as `clique`, for rules that Cambium does not implement.
    /// Initializing a database from such a file is refused.
    pub refused: Vec<String>,
    /// Fields that were skipped, such as `config.verkleTime` and `alloc.*.comment`.
    pub ignored: Vec<String>,
}

impl Genesis {
    /// Builds the header of the genesis block.
    pub fn header(&self, spec: &ChainSpec, state_root: B256) -> Header {
        // The forks decide whether a genesis block is past the merge, not its difficulty. A fork
        // includes the forks before it, even those that the file leaves out.
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
            // The hash of an empty RLP list, as of no ommers.
            block_access_list_hash: amsterdam.then_some(EMPTY_OMMER_ROOT_HASH),
            slot_number: spec
                .has_slot_number(fork)
                .then(|| self.slot_number.unwrap_or(0)),
            ..Header::default()
        }
    }
}
