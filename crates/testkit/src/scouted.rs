//! Scouting of a block's transactions on fibers, on a state in memory: all of their code, precompiled contracts and
//! deep calls included, must fit onto a fiber's stack, whose overflow would end the process.

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, U256};
use cambium_evm::{AheadState, BlockInput, Rules, Scouts, StateRead, Transaction};
use cambium_primitives::AccessList;
use revm::{bytecode::Bytecode, state::AccountInfo};
use std::{collections::HashMap, rc::Rc, task::Poll};

/// A block to scout.
struct Scouted {
    rules: Rules,
    header: Header,
    transactions: Vec<Transaction>,
    senders: Vec<Address>,
}

/// The values that a block reads. All others are absent.
#[derive(Default)]
struct Values {
    accounts: HashMap<Address, AccountInfo>,
    slots: HashMap<(Address, U256), U256>,
    codes: HashMap<B256, Bytecode>,
}

impl AheadState for Values {
    type Block = Scouted;
    type Error = ();

    fn input<'a>(block: &'a Scouted) -> BlockInput<'a> {
        BlockInput::new(
            block.rules,
            &block.header,
            &block.transactions,
            &block.senders,
        )
    }

    fn account(
        &mut self,
        _: &Scouted,
        address: Address,
        _: u64,
    ) -> Result<Poll<Option<AccountInfo>>, ()> {
        Ok(Poll::Ready(self.accounts.get(&address).cloned()))
    }

    fn slot(
        &mut self,
        _: &Scouted,
        address: Address,
        slot: U256,
        _: u64,
    ) -> Result<Poll<U256>, ()> {
        let value = self.slots.get(&(address, slot)).copied();
        Ok(Poll::Ready(value.unwrap_or_default()))
    }

    fn code(&mut self, _: &Scouted, hash: B256) -> Result<Bytecode, ()> {
        self.codes.get(&hash).cloned().ok_or(())
    }

    fn block_hash(&mut self, _: &Scouted, _: u64) -> Result<B256, ()> {
        Ok(B256::ZERO)
    }

    fn load_account(&mut self, _: &Scouted, _: Address) -> Result<(), ()> {
        Ok(())
    }

    fn load_slot(&mut self, _: &Scouted, _: Address, _: U256) -> Result<(), ()> {
        Ok(())
    }
}

/// Scouts all transactions of a block, of which `list` is the access list.
pub(crate) fn scout<DB: StateRead>(input: &BlockInput<'_>, db: &DB, list: &AccessList) {
    let mut values = Values::default();
    for listed in list.accounts() {
        let address = listed.address;
        if let Ok(Some(account)) = db.basic_ref(address) {
            if let Ok(code) = db.code_by_hash_ref(account.code_hash) {
                values.codes.insert(account.code_hash, code);
            }
            values.accounts.insert(address, account);
        }
        let changed = listed.storage_changes.iter().map(|change| change.slot);
        for slot in changed.chain(listed.storage_reads.iter().copied()) {
            if let Ok(value) = db.storage_ref(address, slot) {
                values.slots.insert((address, slot), value);
            }
        }
    }
    let block = Rc::new(Scouted {
        rules: input.rules,
        header: input.header.clone(),
        transactions: input.transactions.to_vec(),
        senders: input.senders.to_vec(),
    });
    let mut scouts = Scouts::new(values, 1);
    for index in 0..block.transactions.len() {
        assert!(scouts.start(block.clone(), index), "nothing is waited for");
    }
}
