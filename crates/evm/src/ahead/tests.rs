//! Scouts over a state whose values all arrive late.

use super::{AheadState, Scouts};
use crate::{BlockInput, Rules, Transaction};
use alloy_consensus::{Header, SignableTransaction, TxLegacy};
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, hex, keccak256};
use revm::{bytecode::Bytecode, primitives::hardfork::SpecId, state::AccountInfo};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    task::Poll,
};

const SENDER: Address = Address::repeat_byte(1);
const CHAIN: Address = Address::repeat_byte(2);

/// Reads slot 0, then the slot whose number it found, and so on, seven times; then writes slot 99.
const FOLLOW: [u8; 13] = hex!("5f54545454545454" "6001" "6063" "55");

struct Block {
    header: Header,
    transactions: Vec<Transaction>,
    senders: Vec<Address>,
}

/// A state in which slot n holds n + 1. Each key is late, and failing ones never come.
#[derive(Default)]
struct Late {
    here: BTreeSet<(Address, Option<U256>)>,
    tickets: Vec<u64>,
    failing: Option<U256>,
    panicking: Option<U256>,
    loaded: BTreeSet<(Address, Option<U256>)>,
    asked: BTreeMap<(Address, Option<U256>), u32>,
}

impl Late {
    fn ask<T>(
        &mut self,
        key: (Address, Option<U256>),
        ticket: u64,
        value: T,
    ) -> Result<Poll<T>, ()> {
        *self.asked.entry(key).or_default() += 1;
        let panics = key.1.is_some() && key.1 == self.panicking;
        assert!(!panics, "as told");
        if self.here.contains(&key) {
            return Ok(Poll::Ready(value));
        }
        self.tickets.push(ticket);
        if key.1.is_none() || key.1 != self.failing {
            self.here.insert(key);
        }
        Ok(Poll::Pending)
    }
}

impl AheadState for Late {
    type Block = Block;
    type Error = ();

    fn input<'a>(block: &'a Block) -> BlockInput<'a> {
        let rules = Rules {
            chain_id: 1,
            spec: SpecId::SHANGHAI,
            eip1283: false,
            eip155: true,
            block_access_list: false,
            blobs: None,
            block_reward: U256::ZERO,
            dao_change: false,
            deposit_contract: Address::ZERO,
        };
        BlockInput::new(rules, &block.header, &block.transactions, &block.senders)
    }

    fn account(
        &mut self,
        _: &Block,
        address: Address,
        ticket: u64,
    ) -> Result<Poll<Option<AccountInfo>>, ()> {
        let code = Bytecode::new_raw(Bytes::from_static(&FOLLOW));
        let info = (address == CHAIN).then(|| AccountInfo {
            code_hash: keccak256(FOLLOW),
            code: Some(code),
            nonce: 1,
            ..AccountInfo::default()
        });
        self.ask((address, None), ticket, info)
    }

    fn slot(
        &mut self,
        _: &Block,
        address: Address,
        slot: U256,
        ticket: u64,
    ) -> Result<Poll<U256>, ()> {
        self.ask((address, Some(slot)), ticket, slot + U256::ONE)
    }

    fn code(&mut self, _: &Block, _: B256) -> Result<Bytecode, ()> {
        Ok(Bytecode::new_raw(Bytes::from_static(&FOLLOW)))
    }

    fn block_hash(&mut self, _: &Block, _: u64) -> Result<B256, ()> {
        Ok(B256::ZERO)
    }

    fn load_account(&mut self, _: &Block, address: Address) -> Result<(), ()> {
        self.loaded.insert((address, None));
        Ok(())
    }

    fn load_slot(&mut self, _: &Block, address: Address, slot: U256) -> Result<(), ()> {
        self.loaded.insert((address, Some(slot)));
        Ok(())
    }
}

fn block(transactions: usize) -> Rc<Block> {
    let call = TxLegacy {
        // Neither its nonce nor the sender's balance fits the state.
        nonce: 77,
        gas_price: 10,
        gas_limit: 200_000,
        to: TxKind::Call(CHAIN),
        value: U256::from(1_000),
        ..TxLegacy::default()
    };
    let call: Transaction = call.into_signed(Signature::test_signature()).into();
    let header = Header {
        gas_limit: 30_000_000,
        base_fee_per_gas: Some(1),
        ..Header::default()
    };
    Rc::new(Block {
        header,
        transactions: vec![call; transactions],
        senders: vec![SENDER; transactions],
    })
}

/// Resumes scouts until none waits. Returns the number of rounds.
fn run_out(scouts: &mut Scouts<Late>) -> u32 {
    let mut rounds = 0;
    while scouts.waiting() > 0 {
        let tickets = scouts.with_state(|state| std::mem::take(&mut state.tickets));
        tickets.into_iter().for_each(|ticket| scouts.resume(ticket));
        rounds += 1;
        assert!(rounds < 100, "no end");
    }
    rounds
}

fn kinds(count: usize) -> [Scouts<Late>; 2] {
    [
        Scouts::new(Late::default(), count),
        Scouts::restarting(Late::default(), count),
    ]
}

#[test]
fn a_scout_finds_keys_that_follow_from_what_it_has_read() {
    for mut scouts in kinds(4) {
        let block = block(6);
        let started: Vec<_> = (0..6).map(|at| scouts.start(block.clone(), at)).collect();
        assert_eq!(scouts.waiting(), 4, "the rest found no idle scout");
        assert_eq!(&started[..4], [false; 4]);
        run_out(&mut scouts);
        let slots = (0..7).map(|n| (CHAIN, Some(U256::from(n))));
        scouts.with_state(|state| {
            assert!(slots.clone().all(|key| state.here.contains(&key)));
            assert!(state.loaded.contains(&(CHAIN, Some(U256::from(99)))));
            assert!(state.loaded.contains(&(SENDER, None)));
        });
        assert_eq!(scouts.idle(), 4);
        assert!(scouts.start(block, 5), "all is in memory");
    }
}

#[test]
fn a_scout_that_waits_runs_nothing_twice() {
    let mut scouts = Scouts::new(Late::default(), 1);
    scouts.start(block(1), 0);
    run_out(&mut scouts);
    scouts.with_state(|state| {
        assert_eq!(state.asked.len(), 2 + 8, "two accounts, eight slots");
        // Each key is asked for before it arrives and after it.
        assert!(
            state.asked.values().all(|times| *times == 2),
            "{:?}",
            state.asked
        );
    });
}

#[test]
fn a_value_that_never_comes_ends_its_scout_alone() {
    for mut scouts in kinds(3) {
        scouts.with_state(|state| state.failing = Some(U256::from(3)));
        let block = block(3);
        (0..3).for_each(|at| _ = scouts.start(block.clone(), at));
        run_out(&mut scouts);
        assert_eq!(scouts.idle(), 3);
        scouts.with_state(|state| {
            assert!(!state.here.contains(&(CHAIN, Some(U256::from(4)))));
            state.failing = None;
        });
        (0..3).for_each(|at| _ = scouts.start(block.clone(), at));
        run_out(&mut scouts);
        scouts.with_state(|state| assert!(state.here.contains(&(CHAIN, Some(U256::from(6))))));
    }
}

#[test]
fn scouts_end_when_they_are_abandoned_or_dropped() {
    for mut scouts in kinds(8) {
        let block = block(8);
        (0..8).for_each(|at| _ = scouts.start(block.clone(), at));
        assert_eq!(scouts.waiting(), 8);
        scouts.abandon_all();
        assert_eq!((scouts.waiting(), scouts.idle()), (0, 8));
        // Tickets of ended scouts wake none.
        let tickets = scouts.with_state(|state| std::mem::take(&mut state.tickets));
        tickets.into_iter().for_each(|ticket| scouts.resume(ticket));
        (0..8).for_each(|at| _ = scouts.start(block.clone(), at));
        drop(scouts);
        assert_eq!(Rc::strong_count(&block), 1);
    }
}

#[test]
fn a_panic_ends_its_scout_alone() {
    for mut scouts in kinds(3) {
        scouts.with_state(|state| state.panicking = Some(U256::from(3)));
        let block = block(3);
        for _ in 0..2 {
            (0..3).for_each(|at| _ = scouts.start(block.clone(), at));
            run_out(&mut scouts);
            assert_eq!(scouts.idle(), 3);
        }
        scouts.with_state(|state| state.panicking = None);
        scouts.start(block, 0);
        run_out(&mut scouts);
        scouts.with_state(|state| assert!(state.here.contains(&(CHAIN, Some(U256::from(6))))));
    }
}
