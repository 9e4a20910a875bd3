//! Blocks of plain transfers over a state in a map: their inputs and outputs, and the classes of
//! their errors.

use alloy_consensus::{Header, SignableTransaction, TxLegacy};
use alloy_primitives::{Address, B256, Signature, TxKind, U256, keccak256};
use cambium_evm::{
    BlockInput, ExecutionError, Executor, Hooks, Recorder, Rules, Sequential, StateRead,
    Transaction, TransactionFault,
};
use cambium_primitives::{AccountUpdate, Changes};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker,
    primitives::hardfork::SpecId, state::AccountInfo,
};
use std::{collections::HashMap, convert::Infallible};

const MINER: Address = Address::repeat_byte(0xee);
const RICH: Address = Address::repeat_byte(1);
const POOR: Address = Address::repeat_byte(2);

struct Balances(HashMap<Address, U256>);

impl DatabaseRef for Balances {
    type Error = Infallible;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Infallible> {
        Ok(self
            .0
            .get(&address)
            .map(|balance| AccountInfo::from_balance(*balance)))
    }

    fn code_by_hash_ref(&self, _: B256) -> Result<Bytecode, Infallible> {
        Ok(Bytecode::default())
    }

    fn storage_ref(&self, _: Address, _: U256) -> Result<U256, Infallible> {
        Ok(U256::ZERO)
    }

    fn block_hash_ref(&self, _: u64) -> Result<B256, Infallible> {
        Ok(B256::ZERO)
    }
}

impl StateRead for Balances {
    fn has_storage(&self, _: Address) -> Result<bool, Infallible> {
        Ok(false)
    }
}

fn state() -> Balances {
    Balances(HashMap::from([(RICH, U256::from(10_000_000))]))
}

fn transfer(nonce: u64, value: u64) -> Transaction {
    let legacy = TxLegacy {
        nonce,
        gas_price: 1,
        gas_limit: 21_000,
        to: TxKind::Call(POOR),
        value: U256::from(value),
        ..TxLegacy::default()
    };
    legacy.into_signed(Signature::test_signature()).into()
}

fn rules(spec: SpecId) -> Rules {
    Rules {
        chain_id: 1,
        spec,
        eip1283: false,
        eip155: true,
        block_access_list: false,
        blobs: None,
        block_reward: U256::from(5),
        dao_change: false,
        deposit_contract: Address::ZERO,
    }
}

fn header() -> Header {
    Header {
        number: 1,
        gas_limit: 100_000,
        beneficiary: MINER,
        ..Header::default()
    }
}

fn input<'a>(
    spec: SpecId,
    header: &'a Header,
    transactions: &'a [Transaction],
    senders: &'a [Address],
) -> BlockInput<'a> {
    let rules = rules(spec);
    BlockInput::new(rules, header, transactions, senders)
}

fn balance(changes: &Changes, address: Address) -> Option<U256> {
    match changes.account(&keccak256(address))?.account {
        AccountUpdate::Put(account) => Some(account.balance),
        _ => None,
    }
}

#[test]
fn transfers_move_value_and_pay_the_miner() {
    let (header, transactions) = (header(), [transfer(0, 700), transfer(1, 300)]);
    let input = input(SpecId::BYZANTIUM, &header, &transactions, &[RICH; 2]);
    let outcome = Sequential
        .execute(&input, state(), Hooks::default())
        .unwrap();
    assert_eq!((outcome.gas_used, outcome.receipts.len()), (42_000, 2));
    assert!(outcome.receipts_complete && outcome.codes.is_empty());
    assert_eq!(balance(&outcome.changes, POOR), Some(U256::from(1_000)));
    assert_eq!(balance(&outcome.changes, MINER), Some(U256::from(42_005)));
    assert_eq!(
        balance(&outcome.changes, RICH),
        Some(U256::from(10_000_000 - 43_000))
    );
    assert_eq!(outcome.changes.counts(), (3, 0));
}

#[test]
fn what_is_told_for_roots_adds_up_to_all_that_transactions_change() {
    let (header, transactions) = (header(), [transfer(0, 700), transfer(1, 300)]);
    let input = input(SpecId::HOMESTEAD, &header, &transactions, &[RICH; 2]);
    let mut steps = Vec::new();
    let mut roots = |step: &Changes| {
        steps.push(step.clone());
        Ok(B256::with_last_byte(steps.len() as u8))
    };
    let outcome = Sequential
        .execute(
            &input,
            state(),
            Hooks {
                roots: Some(&mut roots),
                ..Hooks::default()
            },
        )
        .unwrap();
    assert!(outcome.receipts_complete);
    assert_eq!(steps.len(), 2);
    let receipt = |index: usize| outcome.receipts[index].as_receipt().unwrap().status;
    assert_eq!(receipt(1).as_post_state(), Some(B256::with_last_byte(2)));
    assert_eq!(balance(&steps[0], POOR), Some(U256::from(700)));
    let all = steps.into_iter().reduce(Changes::then).unwrap();
    for address in [RICH, POOR] {
        assert_eq!(balance(&all, address), balance(&outcome.changes, address));
    }
    assert_eq!(
        balance(&all, MINER),
        Some(U256::from(42_000)),
        "before the reward"
    );
}

#[test]
fn receipts_without_roots_are_said_to_be_incomplete() {
    let (header, transactions) = (header(), [transfer(0, 700)]);
    let input = input(SpecId::HOMESTEAD, &header, &transactions, &[RICH]);
    assert!(
        !Sequential
            .execute(&input, state(), Hooks::default())
            .unwrap()
            .receipts_complete
    );
}

#[test]
fn a_transaction_that_the_block_has_no_gas_left_for_is_named() {
    let header = Header {
        gas_limit: 41_999,
        ..header()
    };
    let transactions = [transfer(0, 700), transfer(1, 300)];
    let input = input(SpecId::BYZANTIUM, &header, &transactions, &[RICH; 2]);
    let error = Sequential
        .execute(&input, state(), Hooks::default())
        .unwrap_err();
    assert!(matches!(
        error,
        ExecutionError::InvalidTransaction {
            index: 1,
            reason: TransactionFault::BlockGas {
                limit: 21_000,
                left: 20_999
            },
        }
    ));
}

#[test]
fn a_wrong_nonce_and_an_empty_purse_are_the_transactions_fault() {
    let header = header();
    for (transaction, sender, words) in [
        (transfer(5, 1), RICH, "too high, expected 0"),
        (transfer(u64::MAX, 1), RICH, "nonce overflow in transaction"),
        (transfer(0, 1), POOR, "lack of funds"),
    ] {
        let transactions = [transaction];
        let senders = [sender];
        let input = input(SpecId::BYZANTIUM, &header, &transactions, &senders);
        let error = Sequential
            .execute(&input, state(), Hooks::default())
            .unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let index = match error {
            ExecutionError::InvalidTransaction {
                index,
                reason: TransactionFault::Evm(_),
            } => index,
            other => panic!("{other}"),
        };
        assert_eq!(index, 0);
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the disk is on fire")]
struct Fire;

impl DBErrorMarker for Fire {}

struct Burning;

impl DatabaseRef for Burning {
    type Error = Fire;

    fn basic_ref(&self, _: Address) -> Result<Option<AccountInfo>, Fire> {
        Err(Fire)
    }

    fn code_by_hash_ref(&self, _: B256) -> Result<Bytecode, Fire> {
        Err(Fire)
    }

    fn storage_ref(&self, _: Address, _: U256) -> Result<U256, Fire> {
        Err(Fire)
    }

    fn block_hash_ref(&self, _: u64) -> Result<B256, Fire> {
        Err(Fire)
    }
}

impl StateRead for Burning {
    fn has_storage(&self, _: Address) -> Result<bool, Fire> {
        Err(Fire)
    }
}

#[test]
fn a_bad_disk_is_not_taken_for_a_bad_block() {
    let (header, transactions) = (header(), [transfer(0, 700)]);
    for count in [0, 1] {
        let senders = vec![RICH; count];
        let input = input(SpecId::BYZANTIUM, &header, &transactions[..count], &senders);
        let error = Sequential
            .execute(&input, Burning, Hooks::default())
            .unwrap_err();
        assert!(matches!(error, ExecutionError::Database(Fire)), "{error}");
    }
}

#[test]
fn all_that_changes_has_been_recorded_as_read() {
    let (header, transactions) = (header(), [transfer(0, 700)]);
    let input = input(SpecId::BYZANTIUM, &header, &transactions, &[RICH]);
    let recorder = Recorder::new(state());
    let outcome = Sequential
        .execute(&input, &recorder, Hooks::default())
        .unwrap();
    let touched = recorder.into_touched();
    let read: Vec<_> = touched.accounts.keys().map(keccak256).collect();
    assert!(
        outcome
            .changes
            .accounts()
            .iter()
            .all(|change| read.contains(&change.path))
    );
    assert_eq!(touched.accounts.len(), 3);
}
