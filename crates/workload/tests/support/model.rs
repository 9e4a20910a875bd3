//! A chain's state in maps, for generated chains.

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, keccak256};
use cambium_chain::{Block, ChainSpec, GenesisAccount, GenesisPart};
use cambium_evm::{
    BlockInput, Executor, Hooks, Outcome, Sequential, StateRead, account_info, recover_senders,
};
use cambium_primitives::{AccountUpdate, Changes};
use cambium_workload::Workload;
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
};

/// A state too simple to be wrong: maps by path.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) accounts: BTreeMap<B256, cambium_primitives::Account>,
    pub(crate) slots: BTreeMap<B256, BTreeMap<B256, U256>>,
    codes: HashMap<B256, Bytecode>,
    pub(crate) hashes: HashMap<u64, B256>,
}

impl Model {
    /// A workload's genesis state.
    pub(crate) fn of(workload: &Workload) -> Self {
        let mut model = Self::default();
        let filled = workload.for_each_part(|part| {
            match part {
                GenesisPart::Account(address, account) => model.insert(address, account),
                GenesisPart::Slots(address, slots) => model.insert_slots(address, slots),
            }
            Ok::<_, Infallible>(())
        });
        filled.unwrap();
        model
    }

    pub(crate) fn insert(&mut self, address: Address, account: GenesisAccount) {
        let GenesisAccount {
            balance,
            nonce,
            code,
            storage,
        } = account;
        let path = keccak256(address);
        let mut code_hash = KECCAK256_EMPTY;
        if !code.is_empty() {
            code_hash = keccak256(&code);
            self.codes.insert(code_hash, Bytecode::new_raw(code));
        }
        self.accounts.insert(
            path,
            cambium_primitives::Account {
                nonce,
                balance,
                code_hash,
            },
        );
        if !storage.is_empty() {
            self.insert_slots(address, storage);
        }
    }

    fn insert_slots(&mut self, address: Address, storage: Vec<(B256, U256)>) {
        let slots = self.slots.entry(keccak256(address)).or_default();
        for (slot, value) in storage {
            assert_eq!(slots.insert(keccak256(slot), value), None, "{slot} twice");
        }
    }

    /// A slot's value.
    pub(crate) fn slot(&self, address: Address, slot: B256) -> U256 {
        self.storage_ref(address, slot.into()).unwrap()
    }

    pub(crate) fn apply(&mut self, changes: &Changes) {
        for change in changes.accounts() {
            if change.wipe || change.account == AccountUpdate::Delete {
                self.slots.remove(&change.path);
            }
            match change.account {
                AccountUpdate::Keep => {}
                AccountUpdate::Entry(_) => panic!("a chain's state has no entries"),
                AccountUpdate::Put(account) => drop(self.accounts.insert(change.path, account)),
                AccountUpdate::Delete => drop(self.accounts.remove(&change.path)),
            }
            for &(slot, value) in &change.slots {
                let slots = self.slots.entry(change.path).or_default();
                if value.is_zero() {
                    slots.remove(&slot)
                } else {
                    slots.insert(slot, value)
                };
            }
        }
    }

    pub(crate) fn root(&self) -> B256 {
        let storage_root = |path| {
            alloy_trie::root::storage_root(
                self.slots
                    .get(path)
                    .into_iter()
                    .flatten()
                    .map(|(k, v)| (*k, *v)),
            )
        };
        alloy_trie::root::state_root(self.accounts.iter().map(|(path, account)| {
            let account = alloy_trie::TrieAccount {
                nonce: account.nonce,
                balance: account.balance,
                storage_root: storage_root(path),
                code_hash: account.code_hash,
            };
            (*path, account)
        }))
    }

    pub(crate) fn execute(&self, spec: &ChainSpec, block: &Block) -> Outcome {
        let senders = recover_senders(&block.body.transactions, true).unwrap();
        self.execute_as(spec, block, &senders)
    }

    /// As if `senders` had signed the transactions.
    pub(crate) fn execute_as(
        &self,
        spec: &ChainSpec,
        block: &Block,
        senders: &[Address],
    ) -> Outcome {
        let rules = spec.rules_at(block.header.number, block.header.timestamp, true);
        let input = BlockInput::of_block(rules, block, senders);
        Sequential.execute(&input, self, Hooks::default()).unwrap()
    }
}

impl StateRead for Model {
    fn has_storage(&self, address: Address) -> Result<bool, Infallible> {
        Ok(self
            .slots
            .get(&keccak256(address))
            .is_some_and(|slots| !slots.is_empty()))
    }
}

impl DatabaseRef for Model {
    type Error = Infallible;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Infallible> {
        let account = self.accounts.get(&keccak256(address));
        Ok(account.copied().map(account_info))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Infallible> {
        Ok(self.codes.get(&hash).cloned().unwrap_or_default())
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Infallible> {
        let slots = self.slots.get(&keccak256(address));
        let value = slots.and_then(|slots| slots.get(&keccak256(B256::from(slot))));
        Ok(value.copied().unwrap_or_default())
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Infallible> {
        Ok(self.hashes.get(&number).copied().unwrap_or_default())
    }
}
