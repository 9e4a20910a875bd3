//! The workload generator: a chain of payments, token transfers, swaps, and transactions that do
//! nothing but read slots, the same to the byte for the same parameters, that other clients import
//! too.
//!
//! A [`Workload`] is the genesis state, streamed at any size, and an endless row of signed
//! transactions. Valid headers need execution, which is not the generator's: [`generate`] drafts
//! block after block, and a [`BlockSealer`] (the state engine, or a model in a test) executes each
//! draft and fills in what only execution tells.
//!
//! ```
//! use cambium_chain::{Workload, WorkloadParams};
//!
//! let params = WorkloadParams { accounts: 100, senders: Some(10), ..WorkloadParams::default() };
//! let workload = Workload::new(params)?;
//! let mut json = Vec::new();
//! workload.write_genesis(&mut json)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All forks up to Prague, Osaka or Amsterdam are in force from genesis, so the chain is past the
//! merge from its first block. Accounts below [`WorkloadParams::senders`] have keys, derived from
//! the seed; all others have addresses straight from a hash, which nobody has a key to.
//!
//! | transactions | what they do, from what the genesis has |
//! |---|---|
//! | payments | send ether |
//! | token transfers | move units of one ERC-20 token, from a sender to anybody |
//! | swaps | one token for another, through a router, in a pool like Uniswap V2's |
//! | slot reads | read slot after slot, each found by hashing, until their gas is used up |
//!
//! The contracts are Solidity's, in `contracts/`.

mod contracts;
mod genesis;
mod genesis_file;
mod keys;
mod params;
mod spread;
mod transactions;

pub use contracts::{ROUTER, SLOT_READER, TOKEN, token_balance_slot};
pub use params::{BlockSize, WorkloadError, WorkloadParams};
pub use spread::{NoSpread, Spread};

use crate::{Block, Fork, Transaction};
use alloy_consensus::{
    BlockBody, Header,
    constants::{EMPTY_WITHDRAWALS, GWEI_TO_WEI},
    proofs::calculate_transaction_root,
};
use alloy_eips::{
    eip1559::{BaseFeeParams, calc_next_block_base_fee},
    eip7685::EMPTY_REQUESTS_HASH,
};
use alloy_primitives::{Address, B256, Bytes, address};
use cambium_primitives::AccessList;
use contracts::pair_address;
use keys::{Sender, derive_senders, hash};
use transactions::Stream;

/// Who gets the tips.
const COINBASE: Address = address!("c01bba5e00000000000000000000000000000000");
const EXTRA_DATA: &[u8] = b"cambium workload";
const GENESIS_TIMESTAMP: u64 = 1_700_000_000;
const BLOCK_SECONDS: u64 = 12;
/// Blocks whose transactions are signed ahead of execution.
const SIGNED_AHEAD_BLOCKS: usize = 2;

/// A chain in the making: see the module's description.
#[derive(Debug)]
pub struct Workload {
    params: WorkloadParams,
    senders: Vec<Sender>,
}

/// A pool to swap in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The token that it has beside [`TOKEN`].
    pub token: Address,
    /// The contract that holds its reserves of both.
    pub pair: Address,
}

/// Executes drafts of blocks, each on the one before.
pub trait BlockSealer {
    /// Why a draft can't be executed.
    type Error;

    /// Executes `draft`, fills in its header's state root, receipts root, logs bloom, gas used and
    /// requests hash and, in Amsterdam, the access list's hash, and keeps the state after it for
    /// the next. The rest of the header is final.
    fn seal(&mut self, draft: Block) -> Result<Block, Self::Error>;
}

impl Workload {
    /// Checks the parameters and derives the senders' keys, some 25 us of processor time each.
    pub fn new(params: WorkloadParams) -> Result<Self, WorkloadError> {
        params.check()?;
        let senders = derive_senders(params.seed, params.senders());
        Ok(Self { params, senders })
    }

    /// What this was made from.
    pub const fn params(&self) -> &WorkloadParams {
        &self.params
    }

    /// The address of account `index`, below [`WorkloadParams::accounts`].
    pub fn address(&self, index: u64) -> Address {
        let sender = usize::try_from(index)
            .ok()
            .and_then(|index| self.senders.get(index));
        sender.map_or_else(
            || Address::from_word(hash("account", self.params.seed, index)),
            |sender| sender.address,
        )
    }

    /// The secret key of account `index`, if it has one.
    pub fn secret(&self, index: u64) -> Option<B256> {
        let sender = self.senders.get(usize::try_from(index).ok()?)?;
        Some(B256::new(sender.secret.secret_bytes()))
    }

    /// Pool `index`, below [`WorkloadParams::pools`].
    pub fn pool(&self, index: u64) -> Pool {
        let token = Address::from_word(hash("token", self.params.seed, index));
        let pair = pair_address(&[TOKEN, token]);
        Pool { token, pair }
    }

    /// The transactions of block after block, from block 1 on, without end.
    pub fn transactions(&self) -> impl Iterator<Item = Vec<Transaction>> + Send + '_ {
        Stream::new(self)
    }

    /// Drafts the child of `parent`: all of a block but what execution tells.
    fn draft(&self, parent: &Header, transactions: Vec<Transaction>) -> Block {
        let number = parent.number + 1;
        let base_fee = calc_next_block_base_fee(
            parent.gas_used,
            parent.gas_limit,
            parent.base_fee_per_gas.unwrap_or(GWEI_TO_WEI),
            BaseFeeParams::ethereum(),
        );
        let header = Header {
            parent_hash: parent.hash_slow(),
            beneficiary: COINBASE,
            transactions_root: calculate_transaction_root(&transactions),
            number,
            gas_limit: parent.gas_limit,
            timestamp: parent.timestamp + BLOCK_SECONDS,
            extra_data: Bytes::from_static(EXTRA_DATA),
            mix_hash: hash("randao", self.params.seed, number),
            base_fee_per_gas: Some(base_fee),
            withdrawals_root: Some(EMPTY_WITHDRAWALS),
            blob_gas_used: Some(0),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(hash("beacon root", self.params.seed, number)),
            requests_hash: Some(EMPTY_REQUESTS_HASH),
            block_access_list_hash: (self.params.fork >= Fork::Amsterdam)
                .then(|| AccessList::default().hash()),
            slot_number: parent.slot_number.map(|slot| slot + 1),
            ..Header::default()
        };
        let withdrawals = Some(Vec::new().into());
        Block::new(
            header,
            BlockBody {
                transactions,
                ommers: Vec::new(),
                withdrawals,
            },
        )
    }

    /// Makes the chain on `genesis`, the header of this workload's genesis block: each block is
    /// executed by `sealer` and handed to `on_block`. Transactions are signed on all cores while
    /// earlier blocks execute. The last block's header is returned.
    pub fn generate<S: BlockSealer>(
        &self,
        genesis: &Header,
        sealer: &mut S,
        mut on_block: impl FnMut(&Block) -> Result<(), S::Error>,
    ) -> Result<Header, S::Error> {
        let blocks = usize::try_from(self.params.blocks).unwrap_or(usize::MAX);
        let (signed, to_execute) = crossbeam_channel::bounded(SIGNED_AHEAD_BLOCKS);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for transactions in self.transactions().take(blocks) {
                    if signed.send(transactions).is_err() {
                        break;
                    }
                }
            });
            let mut parent = genesis.clone();
            // Owned by this closure, so that an early return closes the channel.
            let to_execute = to_execute;
            for transactions in to_execute.iter() {
                let block = sealer.seal(self.draft(&parent, transactions))?;
                on_block(&block)?;
                parent = block.header;
            }
            Ok(parent)
        })
    }
}
