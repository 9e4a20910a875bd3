//! Real mainnet transactions replayed under Amsterdam's rules on the sparse state that they
//! touch: everything that the block's header would claim, its access list included. Transactions
//! that those rules refuse are left out.

use crate::{
    Alloc, Case, Model, Pack, Suite, Unanimous, Verdict, alloc_changes, changes_of_list,
    false_lists, json_files, mainnet_blocks::rpc_transactions, network,
};
use alloy_consensus::Header;
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bloom, Bytes, U64, U256, keccak256};
use cambium_chain::{AccessListSizes, validate_access_list, verify_outcome, verify_state_root};
use cambium_evm::{BlockInput, Executor, ExecutorKind, Hooks, Outcome, recover_senders};
use cambium_primitives::AccessListLimits;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

#[derive(Debug, Deserialize)]
struct Replay {
    env: Env,
    pre: Alloc,
    number: u64,
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

impl Replay {
    fn header(&self) -> Result<Header, String> {
        let (env, claims) = (&self.env, &self.result);
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

    /// Executes the block, compares all that is known of it, and measures its list.
    fn check(&self, executor: &impl Executor, blocks: &Path) -> Result<AccessListSizes, String> {
        let mut state = Model::default();
        let (changes, codes) = alloc_changes(&self.pre);
        state.apply(&changes);
        state.add_codes(codes);
        for (number, hash) in &self.env.block_hashes {
            state.add_block_hash(number.to(), *hash);
        }
        let header = self.header()?;
        let spec = network("Amsterdam").ok_or("Amsterdam is not known")?;
        let mut index = 0;
        let (_, mut transactions) = rpc_transactions(blocks, self.number)?;
        transactions.retain(|_| {
            index += 1;
            !self.dropped_tx_indices.contains(&(index - 1))
        });
        let senders = recover_senders(&transactions, true).map_err(|error| error.to_string())?;
        let input = BlockInput {
            rules: spec.rules_at(header.number, header.timestamp, true),
            header: &header,
            transactions: &transactions,
            senders: &senders,
            ommers: &[],
            withdrawals: &self.env.withdrawals,
            access_list: None,
            found: None,
        };
        let outcome = executor
            .execute(&input, &state, Hooks::default())
            .map_err(|error| error.to_string())?;
        let list = outcome.access_list.as_ref().ok_or("no access list")?;
        if list.encode() != self.result.block_access_list {
            return Err("another access list".to_owned());
        }
        let rlp = &self.result.block_access_list;
        let given = validate_access_list(&header, transactions.len(), rlp);
        let given = given.map_err(|error| error.to_string())?;
        let verified =
            verify_outcome(&header, &outcome, Some(&given)).map_err(|error| error.to_string())?;
        if !verified.receipts_root {
            return Err("the receipts' root went unchecked".to_owned());
        }
        refuse_false_lists(&input, &state, &outcome)?;
        let sizes = AccessListSizes::measure(list, &state).map_err(|error| error.to_string())?;
        let mut from_list = state.clone();
        from_list.apply(&changes_of_list(list, &state));
        verify_state_root(&header, from_list.root())
            .map_err(|error| format!("from the list alone: {error}"))?;
        state.apply(&outcome.changes);
        verify_state_root(&header, state.root()).map_err(|error| error.to_string())?;
        Ok(sizes)
    }
}

/// Holds lists against the block that are not the block's: each must be refused, and for what is
/// wrong with it; and no executor that is given it, of which each gets some, is misled by it. In
/// the short form of the tests only some are given away.
fn refuse_false_lists(
    input: &BlockInput<'_>,
    state: &Model,
    outcome: &Outcome,
) -> Result<(), String> {
    let (header, transactions) = (input.header, input.transactions.len());
    let limits = AccessListLimits::of_block(transactions, header.gas_limit);
    let list = outcome.access_list.as_ref().ok_or("no access list")?;
    let expected = Ok(outcome.clone());
    let mut kinds = ExecutorKind::ALL[1..].chunks(1).cycle();
    let is_long = env::var_os("CAMBIUM_LONG").is_some();
    for (index, false_list) in false_lists(list, &limits).into_iter().enumerate() {
        let header = Header {
            block_access_list_hash: Some(keccak256(&false_list.rlp)),
            ..header.clone()
        };
        let said = match validate_access_list(&header, transactions, &false_list.rlp) {
            Err(error) => error.to_string(),
            Ok(given) => {
                let misled = BlockInput {
                    access_list: Some(&given),
                    ..*input
                };
                if is_long || index % 4 == 1 {
                    let kinds = kinds.next().unwrap_or_default();
                    Unanimous::default().compare(&misled, state, &expected, kinds);
                }
                match verify_outcome(&header, outcome, Some(&given)) {
                    Err(error) => error.to_string(),
                    Ok(_) => "nothing".to_owned(),
                }
            }
        };
        let (fault, wanted) = (false_list.fault, false_list.message);
        if said != wanted {
            return Err(format!("{fault}: said is {said:?}, not {wanted:?}"));
        }
    }
    Ok(())
}

/// The replayed mainnet blocks of pack 06, over an executor.
pub struct MainnetReplays<E> {
    executor: E,
    folder: PathBuf,
    sizes: Sizes,
}

/// The sizes of access lists, by block.
type Sizes = Arc<Mutex<BTreeMap<u64, AccessListSizes>>>;

impl<E> MainnetReplays<E> {
    /// All replays; `None` if the pack is not there.
    pub fn new(executor: E) -> Option<Self> {
        Some(Self {
            executor,
            folder: Pack::MainnetExec.open()?,
            sizes: Sizes::default(),
        })
    }

    /// The sizes of the access lists of the blocks run so far.
    pub fn sizes(&self) -> BTreeMap<u64, AccessListSizes> {
        self.sizes.lock().expect("no case panics").clone()
    }
}

impl<E: Executor + Clone + Sync> Suite for MainnetReplays<E> {
    type Case = MainnetReplay<E>;

    fn name(&self) -> String {
        "mainnet blocks replayed under Amsterdam".to_owned()
    }

    fn files(&self) -> Vec<PathBuf> {
        json_files(&self.folder.join("mainnet-bal-replay"))
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        let blocks = self.folder.join("pevm-mainnet/blocks");
        let (executor, file) = (self.executor.clone(), file.to_path_buf());
        Ok(vec![MainnetReplay {
            executor,
            file,
            blocks,
            sizes: self.sizes.clone(),
        }])
    }
}

/// One replayed block.
pub struct MainnetReplay<E> {
    executor: E,
    file: PathBuf,
    blocks: PathBuf,
    sizes: Sizes,
}

impl<E: Executor + Sync> Case for MainnetReplay<E> {
    fn name(&self) -> String {
        self.file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    fn run(&self) -> Verdict {
        let replay = fs::read(&self.file)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                serde_json::from_slice::<Replay>(&bytes).map_err(|error| error.to_string())
            });
        let checked = replay.and_then(|replay| {
            let sizes = replay.check(&self.executor, &self.blocks)?;
            let mut all = self.sizes.lock().expect("no case panics");
            all.insert(replay.number, sizes);
            Ok(())
        });
        match checked {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}
