//! Real mainnet blocks of pack 06, each with the part of the state that it touches: in their
//! original form, and replayed under Amsterdam's rules. This module only reads them.

use crate::{Alloc, Pack, alloc_changes, json_files};
use alloy_consensus::Header;
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bloom, Bytes, U64, U256, keccak256};
use cambium_chain::AmsterdamRules;
use cambium_evm::{BlockInput, Rules, Transaction};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};
use cambium_testkit::{Model, network};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Number of ancestors that BLOCKHASH can return.
const ANCESTORS: u64 = 256;

/// The mainnet blocks of pack 06.
#[derive(Debug)]
pub struct MainnetData {
    folder: PathBuf,
    expected: BTreeMap<u64, Expected>,
    codes: BTreeMap<B256, Bytes>,
    block_hashes: BTreeMap<u64, B256>,
}

/// A block with everything needed to execute it.
#[derive(Clone, Debug)]
pub struct SparseBlock {
    /// Name of the fork in fixtures.
    pub fork: String,
    /// Fork rules in force.
    pub rules: Rules,
    /// The header with the expected results. The state root of an original block is that of the
    /// whole state, which can't be computed from a sparse one.
    pub header: Header,
    /// The transactions.
    pub transactions: Vec<Transaction>,
    /// Sender of each transaction, according to the source of the block.
    pub senders: Vec<Address>,
    /// The withdrawals.
    pub withdrawals: Vec<Withdrawal>,
    /// RLP of the expected access list, for a replay.
    pub access_list: Option<Bytes>,
    /// The part of the state that the block touches, with codes and ancestors' hashes. For an
    /// original block it may contain absent accounts as empty ones.
    pub state: Model,
}

impl SparseBlock {
    /// Returns the input for an executor, without an access list.
    pub fn input(&self) -> BlockInput<'_> {
        BlockInput {
            withdrawals: &self.withdrawals,
            ..BlockInput::new(self.rules, &self.header, &self.transactions, &self.senders)
        }
    }
}

/// Expected results of an original block that its header does not have.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Expected {
    pub(crate) fork: String,
    pub(crate) sparse_pre_root: B256,
    pub(crate) sparse_post_root: Option<B256>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SparseAccount {
    balance: U256,
    #[serde(deserialize_with = "number")]
    nonce: u64,
    code_hash: Option<B256>,
    #[serde(default)]
    storage: BTreeMap<U256, U256>,
}

#[derive(Debug, Deserialize)]
struct RpcBlock {
    #[serde(flatten)]
    header: Header,
    transactions: Vec<RpcTransaction>,
    #[serde(default)]
    withdrawals: Vec<Withdrawal>,
}

#[derive(Debug, Deserialize)]
struct RpcTransaction {
    from: Address,
    #[serde(flatten)]
    transaction: Transaction,
}

#[derive(Debug, Deserialize)]
struct Replay {
    env: Env,
    pre: Alloc,
    dropped_tx_indices: Vec<usize>,
    result: Claims,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Env {
    current_coinbase: Address,
    current_gas_limit: U64,
    current_number: U64,
    current_timestamp: U64,
    current_random: B256,
    current_base_fee: U64,
    current_excess_blob_gas: U64,
    parent_beacon_block_root: B256,
    block_hashes: BTreeMap<U256, B256>,
    withdrawals: Vec<Withdrawal>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claims {
    state_root: B256,
    receipts_root: B256,
    logs_bloom: Bloom,
    gas_used: U64,
    requests_hash: B256,
    block_access_list: Bytes,
    block_access_list_hash: B256,
}

/// Reads a number, or a number as a hex string.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Bare(u64),
        Hex(U64),
    }
    Ok(match Number::deserialize(deserializer)? {
        Number::Bare(number) => number,
        Number::Hex(number) => number.to(),
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

impl MainnetData {
    /// Folders of the pack that are read.
    pub const FOLDERS: [&str; 2] = ["pevm-mainnet", "mainnet-bal-replay"];

    /// Opens the data in `folder`, which has the content of pack 06.
    ///
    /// # Errors
    ///
    /// Returns which file can't be read, and why.
    pub fn new(folder: &Path) -> Result<Self, String> {
        let blocks = folder.join("pevm-mainnet");
        Ok(Self {
            folder: folder.to_path_buf(),
            expected: read(&blocks.join("expected.dev.json"))?,
            codes: read(&blocks.join("bytecodes.json"))?,
            block_hashes: read(&blocks.join("block_hashes.json"))?,
        })
    }

    /// As [`Self::new`] for the pack. Returns `None`, and prints that, if one of [`Self::FOLDERS`]
    /// is missing. Panics if the pack's content is unexpected.
    pub fn open() -> Option<Self> {
        let data = Self::new(&Pack::MainnetExec.open(&Self::FOLDERS)?);
        Some(data.unwrap_or_else(|error| panic!("mainnet blocks: {error}")))
    }

    /// Returns the numbers of the original blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.expected.keys().copied()
    }

    /// Returns the numbers of the replayed blocks, in order.
    pub fn replays(&self) -> Vec<u64> {
        let files = self.replay_files();
        files.iter().filter_map(|file| number_of(file)).collect()
    }

    /// Reads an original block. An ancestor without a known hash gets the hash of its number as
    /// text.
    ///
    /// # Errors
    ///
    /// Returns which file can't be read, and why.
    pub fn block(&self, number: u64) -> Result<SparseBlock, String> {
        let folder = self.block_folder(number);
        let fork = &self.expected(number)?.fork;
        let pre: BTreeMap<Address, SparseAccount> = read(&folder.join("pre_state.json"))?;
        let RpcBlock {
            header,
            transactions,
            withdrawals,
        } = read(&folder.join("block.json"))?;
        let mut state = Model::default();
        state.apply(&sparse_changes(&pre));
        let codes = self.codes.iter();
        state.add_codes(codes.map(|(hash, code)| (*hash, code.clone())));
        for ancestor in header.number.saturating_sub(ANCESTORS)..header.number {
            let listed = self.block_hashes.get(&ancestor).copied();
            let hash = listed.unwrap_or_else(|| keccak256(ancestor.to_string()));
            state.add_block_hash(ancestor, hash);
        }
        let (senders, transactions) = signed(transactions).unzip();
        Ok(SparseBlock {
            fork: fork.clone(),
            rules: rules(fork, &header)?,
            header,
            transactions,
            senders,
            withdrawals,
            access_list: None,
            state,
        })
    }

    /// Reads a replayed block, without the transactions that are invalid under Amsterdam's rules.
    ///
    /// # Errors
    ///
    /// Returns which file can't be read, and why.
    pub fn replay(&self, number: u64) -> Result<SparseBlock, String> {
        let file = format!("mainnet-bal-replay/{number}.json");
        let Replay {
            env,
            pre,
            dropped_tx_indices,
            result,
        } = read(&self.folder.join(file))?;
        let block: RpcBlock = read(&self.block_folder(number).join("block.json"))?;
        let (changes, codes) = alloc_changes(&pre);
        let mut state = Model::default();
        state.apply(&changes);
        state.add_codes(codes);
        for (number, hash) in &env.block_hashes {
            state.add_block_hash(number.to(), *hash);
        }
        let header = replay_header(&env, &result)?;
        let kept = signed(block.transactions).enumerate();
        let kept = kept.filter(|(index, _)| !dropped_tx_indices.contains(index));
        let (senders, transactions) = kept.map(|(_, signed)| signed).unzip();
        let fork = "Amsterdam".to_owned();
        Ok(SparseBlock {
            rules: rules(&fork, &header)?,
            fork,
            header,
            transactions,
            senders,
            withdrawals: env.withdrawals,
            access_list: Some(result.block_access_list),
            state,
        })
    }

    pub(crate) fn expected(&self, number: u64) -> Result<&Expected, String> {
        let expected = self.expected.get(&number);
        expected.ok_or_else(|| format!("no block {number}"))
    }

    /// Reads the state after a block, as computed by another implementation.
    pub(crate) fn state_after(
        &self,
        number: u64,
    ) -> Result<BTreeMap<Address, SparseAccount>, String> {
        read(&self.block_folder(number).join("post_state.eels.json"))
    }

    pub(crate) fn block_folder(&self, number: u64) -> PathBuf {
        let blocks = self.folder.join("pevm-mainnet/blocks");
        blocks.join(number.to_string())
    }

    pub(crate) fn replay_files(&self) -> Vec<PathBuf> {
        json_files(&self.folder.join("mainnet-bal-replay"))
    }
}

/// Returns the number in the name of a file or folder.
pub(crate) fn number_of(file: &Path) -> Option<u64> {
    file.file_stem()?.to_str()?.parse().ok()
}

fn signed(transactions: Vec<RpcTransaction>) -> impl Iterator<Item = (Address, Transaction)> {
    let transactions = transactions.into_iter();
    transactions.map(|signed| (signed.from, signed.transaction))
}

fn rules(fork: &str, header: &Header) -> Result<Rules, String> {
    let mut spec = network(fork).ok_or("a fork that is not known")?;
    // The replays use Osaka with access lists only.
    spec.amsterdam_rules = AmsterdamRules::Lists;
    let merged = header.difficulty.is_zero();
    Ok(spec.rules_at(header.number, header.timestamp, merged))
}

fn replay_header(env: &Env, claims: &Claims) -> Result<Header, String> {
    let number: u64 = env.current_number.to();
    let parent = env
        .block_hashes
        .get(&U256::from(number - 1))
        .ok_or("no parent's hash")?;
    Ok(Header {
        parent_hash: *parent,
        beneficiary: env.current_coinbase,
        state_root: claims.state_root,
        receipts_root: claims.receipts_root,
        logs_bloom: claims.logs_bloom,
        number,
        gas_limit: env.current_gas_limit.to(),
        gas_used: claims.gas_used.to(),
        timestamp: env.current_timestamp.to(),
        mix_hash: env.current_random,
        base_fee_per_gas: Some(env.current_base_fee.to()),
        excess_blob_gas: Some(env.current_excess_blob_gas.to()),
        parent_beacon_block_root: Some(env.parent_beacon_block_root),
        requests_hash: Some(claims.requests_hash),
        block_access_list_hash: Some(claims.block_access_list_hash),
        ..Header::default()
    })
}

impl SparseAccount {
    /// Returns the account without its storage.
    pub(crate) fn plain(&self) -> Account {
        let code_hash = self.code_hash.unwrap_or(KECCAK256_EMPTY);
        Account {
            nonce: self.nonce,
            balance: self.balance,
            code_hash,
        }
    }
}

/// Returns accounts as changes to the empty state.
pub(crate) fn sparse_changes(accounts: &BTreeMap<Address, SparseAccount>) -> Changes {
    let accounts = accounts.iter().map(|(address, account)| AccountDiff {
        path: keccak256(address),
        account: AccountUpdate::Put(account.plain()),
        wipe: false,
        slots: account
            .storage
            .iter()
            .filter(|(_, value)| !value.is_zero())
            .map(|(slot, value)| (keccak256(slot.to_be_bytes::<32>()), *value))
            .collect(),
    });
    Changes::new(accounts.collect())
}
