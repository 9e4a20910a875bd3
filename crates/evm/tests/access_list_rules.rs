//! Rules of EIP-7928 that public fixtures do not reach, or reach by chance: the touched keys when
//! gas runs out at a certain place, and steps of several calls.

use alloy_consensus::{Header, SignableTransaction, TxLegacy};
use alloy_eips::{
    eip4895::Withdrawal, eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
    eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS, eip7840::BlobParams,
};
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, keccak256};
use cambium_evm::{BlockInput, Executor, Hooks, Rules, Sequential, StateRead, Transaction};
use cambium_primitives::{AccessList, AccountChanges, BalanceChange, BlockAccessIndex};
use revm::{DatabaseRef, bytecode::Bytecode, primitives::hardfork::SpecId, state::AccountInfo};
use std::{collections::HashMap, convert::Infallible};

const SENDER: Address = Address::repeat_byte(0x11);
const MINER: Address = Address::repeat_byte(0xee);
const CONTRACT: Address = Address::repeat_byte(0xc0);
const OTHER: Address = Address::repeat_byte(0x0d);
const WITHDRAWALS: Address = WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS;
const CONSOLIDATIONS: Address = CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS;

/// Returns nothing.
const STOP: &[u8] = &[0x00];
/// Flips slot 0 between 0 and 1.
const FLIP: &[u8] = &[0x60, 1, 0x60, 0, 0x54, 0x18, 0x60, 0, 0x55, 0x00];

/// A state of contracts, with a sender who is rich.
struct State(HashMap<Address, Bytes>);

impl State {
    fn new(codes: &[(Address, &[u8])]) -> Self {
        let system = [(WITHDRAWALS, STOP), (CONSOLIDATIONS, STOP)];
        let all = system.iter().chain(codes);
        Self(
            all.map(|(at, code)| (*at, Bytes::copy_from_slice(code)))
                .collect(),
        )
    }

    fn code(&self, hash: B256) -> Bytes {
        let code = self.0.values().find(|code| keccak256(code) == hash);
        code.cloned().unwrap_or_default()
    }
}

impl DatabaseRef for State {
    type Error = Infallible;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Infallible> {
        let contract = |code: &Bytes| AccountInfo {
            nonce: 1,
            code_hash: keccak256(code),
            code: None,
            ..AccountInfo::default()
        };
        Ok(match address {
            SENDER => Some(AccountInfo::from_balance(
                U256::from(10).pow(U256::from(18)),
            )),
            _ => self.0.get(&address).map(contract),
        })
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Infallible> {
        Ok(Bytecode::new_raw(self.code(hash)))
    }

    fn storage_ref(&self, _: Address, _: U256) -> Result<U256, Infallible> {
        Ok(U256::ZERO)
    }

    fn block_hash_ref(&self, _: u64) -> Result<B256, Infallible> {
        Ok(B256::ZERO)
    }
}

impl StateRead for State {
    fn has_storage(&self, _: Address) -> Result<bool, Infallible> {
        Ok(false)
    }
}

/// The list of a block of one call to `CONTRACT` for each gas limit.
fn list(state: &State, gas_limits: &[u64], withdrawals: &[Withdrawal]) -> AccessList {
    let rules = Rules {
        chain_id: 1,
        spec: SpecId::OSAKA,
        eip1283: false,
        eip155: true,
        block_access_list: true,
        blobs: Some(BlobParams::osaka()),
        block_reward: U256::ZERO,
        dao_change: false,
        deposit_contract: Address::ZERO,
    };
    let header = Header {
        number: 1,
        gas_limit: 30_000_000,
        beneficiary: MINER,
        base_fee_per_gas: Some(1),
        excess_blob_gas: Some(0),
        ..Header::default()
    };
    let calls = gas_limits.iter().enumerate().map(|(nonce, gas_limit)| {
        let call = TxLegacy {
            nonce: nonce as u64,
            gas_price: 2,
            gas_limit: *gas_limit,
            to: TxKind::Call(CONTRACT),
            ..TxLegacy::default()
        };
        call.into_signed(Signature::test_signature()).into()
    });
    let transactions: Vec<Transaction> = calls.collect();
    let senders = vec![SENDER; transactions.len()];
    let input = BlockInput {
        withdrawals,
        ..BlockInput::new(rules, &header, &transactions, &senders)
    };
    let outcome = Sequential.execute(&input, state, Hooks::default()).unwrap();
    outcome.access_list.unwrap()
}

fn of(list: &AccessList, address: Address) -> Option<&AccountChanges> {
    list.accounts()
        .iter()
        .find(|account| account.address == address)
}

fn push_address(address: Address) -> Vec<u8> {
    [&[0x73][..], address.as_slice()].concat()
}

fn one_withdrawal(address: Address) -> Vec<Withdrawal> {
    vec![Withdrawal {
        address,
        amount: 3,
        ..Withdrawal::default()
    }]
}

#[test]
fn the_heir_of_a_contract_is_touched_once_its_access_is_paid_for() {
    let code = [&push_address(OTHER)[..], &[0xff]].concat();
    let state = State::new(&[(CONTRACT, &code)]);
    // PUSH20, SELFDESTRUCT, and a cold account.
    let enough = 21_000 + 3 + 5_000 + 2_600;
    assert!(of(&list(&state, &[enough], &[]), OTHER).is_some());
    let short = list(&state, &[enough - 1], &[]);
    assert_eq!(of(&short, OTHER), None);
    // Out of gas, all the same: who was touched before that stays in the list.
    let contract = of(&short, CONTRACT).unwrap();
    assert_eq!(*contract, AccountChanges::new(CONTRACT));
    let sender = of(&short, SENDER).unwrap();
    assert_eq!(
        (sender.balance_changes.len(), sender.nonce_changes.len()),
        (1, 1)
    );
}

#[test]
fn a_delegates_code_is_touched_only_if_its_own_access_is_paid_for() {
    const DELEGATE: Address = Address::repeat_byte(0xde);
    // CALL(gas, OTHER, 1 wei): there is no such balance, so the call fails after all look-ups.
    let call = [
        &[0x5f, 0x5f, 0x5f, 0x5f, 0x60, 1][..],
        &push_address(OTHER),
        &[0x5a, 0xf1, 0x00],
    ]
    .concat();
    let delegated = [&[0xef, 0x01, 0x00][..], DELEGATE.as_slice()].concat();
    let state = State::new(&[(CONTRACT, &call), (OTHER, &delegated), (DELEGATE, STOP)]);
    // Four PUSH0, PUSH1, PUSH20, GAS; value, and two cold accounts.
    let enough = 21_000 + 4 * 2 + 3 + 3 + 2 + 9_000 + 2 * 2_600;
    let all = list(&state, &[enough], &[]);
    assert_eq!(of(&all, OTHER), Some(&AccountChanges::new(OTHER)));
    assert_eq!(of(&all, DELEGATE), Some(&AccountChanges::new(DELEGATE)));
    let short = list(&state, &[enough - 1], &[]);
    assert!(of(&short, OTHER).is_some());
    assert_eq!(of(&short, DELEGATE), None);
    let shorter = list(&state, &[enough - 2_601], &[]);
    assert_eq!(of(&shorter, OTHER), None);
}

#[test]
fn a_creation_without_means_touches_no_address() {
    // CREATE of nothing, with more value than there is, then without any.
    let poor = [0x5f, 0x5f, 0x60, 1, 0xf0, 0x00];
    let state = State::new(&[(CONTRACT, &poor)]);
    let created = CONTRACT.create(1);
    assert_eq!(of(&list(&state, &[100_000], &[]), created), None);
    let free = [0x5f, 0x5f, 0x5f, 0xf0, 0x00];
    let state = State::new(&[(CONTRACT, &free)]);
    let list = list(&state, &[100_000], &[]);
    let nonces = of(&list, created).map(|account| account.nonce_changes[0].new_nonce);
    assert_eq!(nonces, Some(1));
}

#[test]
fn what_goes_and_comes_back_within_a_step_is_no_change() {
    // After the transactions the first contract flips its slot, and the second has it flipped
    // again.
    let again = [
        &[0x5f, 0x5f, 0x5f, 0x5f, 0x5f][..],
        &push_address(WITHDRAWALS),
        &[0x5a, 0xf1, 0x00],
    ]
    .concat();
    let state = State::new(&[(WITHDRAWALS, FLIP), (CONSOLIDATIONS, &again)]);
    let list = list(&state, &[], &[]);
    let expected = AccountChanges {
        storage_reads: vec![U256::ZERO],
        ..AccountChanges::new(WITHDRAWALS)
    };
    assert_eq!(of(&list, WITHDRAWALS), Some(&expected));
}

#[test]
fn what_changes_once_within_a_step_stays_changed_however_often_it_is_touched() {
    // A withdrawal to a contract that is called after it.
    let state = State::new(&[]);
    let list = list(&state, &[], &one_withdrawal(WITHDRAWALS));
    let after = BlockAccessIndex(1);
    let wei = U256::from(3_000_000_000u64);
    let expected = AccountChanges {
        balance_changes: vec![BalanceChange::new(after, wei)],
        ..AccountChanges::new(WITHDRAWALS)
    };
    assert_eq!(of(&list, WITHDRAWALS), Some(&expected));
}

#[test]
fn steps_are_numbered_through_and_compared_with_the_step_before() {
    // Slot 0 goes from 0 to 1 to 0 and, after the transactions, to 1 again.
    let state = State::new(&[(CONTRACT, FLIP), (WITHDRAWALS, FLIP)]);
    let list = list(&state, &[100_000, 100_000], &one_withdrawal(OTHER));
    let changes = |address| {
        let account: &AccountChanges = of(&list, address).unwrap();
        assert_eq!(account.storage_reads, [U256::ZERO; 0]);
        let changes = account.storage_changes[0].changes.iter();
        let changes = changes.map(|c| (c.block_access_index.get(), c.new_value.to::<u64>()));
        changes.collect::<Vec<_>>()
    };
    assert_eq!(changes(CONTRACT), [(1, 1), (2, 0)]);
    assert_eq!(changes(WITHDRAWALS), [(3, 1)]);
    let heir = of(&list, OTHER).unwrap();
    assert_eq!(heir.balance_changes[0].block_access_index.get(), 3);
    let miner = of(&list, MINER).unwrap().balance_changes.iter();
    let indices: Vec<_> = miner.map(|c| c.block_access_index.get()).collect();
    assert_eq!(indices, [1, 2]);
}

#[test]
fn a_withdrawal_of_nothing_touches_its_receiver() {
    let nothing = [Withdrawal {
        address: OTHER,
        ..Withdrawal::default()
    }];
    let list = list(&State::new(&[]), &[], &nothing);
    assert_eq!(of(&list, OTHER), Some(&AccountChanges::new(OTHER)));
    // The miner of an empty block is not paid.
    assert_eq!(of(&list, MINER), None);
}
