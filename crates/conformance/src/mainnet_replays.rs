//! Real mainnet transactions, replayed under Amsterdam's rules on the part of the state that they
//! touch. Everything that a header commits to is compared, including the access list. Transactions
//! that are invalid under these rules are left out.

use crate::{Case, MainnetData, SparseBlock, Suite, Verdict, mainnet_data::number_of};
use alloy_consensus::Header;
use alloy_primitives::keccak256;
use cambium_chain::{AccessListSizes, validate_access_list, verify_outcome, verify_state_root};
use cambium_evm::{BlockInput, Executor, ExecutorKind, Hooks, Outcome, recover_senders};
use cambium_primitives::AccessListLimits;
use cambium_testkit::{Model, Unanimous, changes_of_list, false_lists, is_long};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Executes a replay, compares it with all expected results, and measures its access list.
fn check(executor: &impl Executor, block: &SparseBlock) -> Result<AccessListSizes, String> {
    let (header, transactions) = (&block.header, &block.transactions);
    let senders = recover_senders(transactions, true).map_err(|error| error.to_string())?;
    if senders != block.senders {
        return Err("other senders than the node's".to_owned());
    }
    let (input, mut state) = (block.input(), block.state.clone());
    let outcome = executor
        .execute(&input, &state, Hooks::default())
        .map_err(|error| error.to_string())?;
    let list = outcome.access_list.as_ref().ok_or("no access list")?;
    let rlp = block.access_list.as_ref().ok_or("no known access list")?;
    if list.encode() != *rlp {
        return Err("another access list".to_owned());
    }
    let given = validate_access_list(header, transactions.len(), rlp);
    let given = given.map_err(|error| error.to_string())?;
    let verified =
        verify_outcome(header, &outcome, Some(&given)).map_err(|error| error.to_string())?;
    if !verified.receipts_root {
        return Err("the receipts' root went unchecked".to_owned());
    }
    refuse_false_lists(&input, &state, &outcome)?;
    let sizes = AccessListSizes::measure(list, &state).map_err(|error| error.to_string())?;
    let mut from_list = state.clone();
    from_list.apply(&changes_of_list(list, &state));
    verify_state_root(header, from_list.root())
        .map_err(|error| format!("from the list alone: {error}"))?;
    state.apply(&outcome.changes);
    verify_state_root(header, state.root()).map_err(|error| error.to_string())?;
    Ok(sizes)
}

/// Checks that false lists are rejected for the right reason, and that no executor is misled by
/// one. Each list is given to one kind of executor, and in the short form of the tests only every
/// fourth list.
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
    let is_long = is_long();
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

/// The replayed mainnet blocks of pack 06, run by an executor.
pub struct MainnetReplays<E> {
    executor: E,
    data: Arc<MainnetData>,
    sizes: Sizes,
}

/// Sizes of access lists, by block number.
type Sizes = Arc<Mutex<BTreeMap<u64, AccessListSizes>>>;

impl<E> MainnetReplays<E> {
    /// Returns all replays, or `None` if the pack is missing.
    pub fn new(executor: E) -> Option<Self> {
        Some(Self {
            executor,
            data: MainnetData::open()?.into(),
            sizes: Sizes::default(),
        })
    }

    /// Returns the sizes of the access lists of the blocks run so far.
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
        self.data.replay_files()
    }

    fn cases(&self, file: &Path) -> Result<Vec<Self::Case>, String> {
        Ok(vec![MainnetReplay {
            executor: self.executor.clone(),
            number: number_of(file).ok_or("no block's number")?,
            data: self.data.clone(),
            sizes: self.sizes.clone(),
        }])
    }
}

/// A replayed block.
pub struct MainnetReplay<E> {
    executor: E,
    number: u64,
    data: Arc<MainnetData>,
    sizes: Sizes,
}

impl<E: Executor + Sync> Case for MainnetReplay<E> {
    fn name(&self) -> String {
        self.number.to_string()
    }

    fn run(&self) -> Verdict {
        let checked = self.data.replay(self.number).and_then(|block| {
            let sizes = check(&self.executor, &block)?;
            let mut all = self.sizes.lock().expect("no case panics");
            all.insert(self.number, sizes);
            Ok(())
        });
        match checked {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        }
    }
}
