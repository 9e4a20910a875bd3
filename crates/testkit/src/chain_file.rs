//! The chain of the execution-apis suite: blocks of every fork from Homestead to BPO2.

use crate::{Backend, Pack, say};
use alloy_primitives::{Address, B256, Bytes, keccak256};
use cambium_chain::{BlockSource, Genesis, GenesisAccount};
use cambium_primitives::{Account, AccountChange, AccountUpdate, Changes, KECCAK_EMPTY};
use serde::Deserialize;
use std::fs;

/// Blocks of the chain, without its genesis.
pub const EXECUTION_APIS_BLOCKS: usize = 54;

#[derive(Deserialize)]
struct ForkChoice {
    params: (Head, serde_json::Value),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    head_block_hash: B256,
}

/// Imports the whole chain into a backend and compares the head. `None` if the pack is not there;
/// panics if a block is refused.
pub fn import_execution_apis_chain<B: Backend>() -> Option<B> {
    let folder = Pack::ExecutionApis.open()?.join("execution-apis/tests");
    let (genesis, accounts) = Genesis::read(folder.join("genesis.json")).expect("the genesis");
    let (changes, codes) = genesis_state(accounts);
    let mut model = crate::Model::default();
    model.apply(&changes);
    let spec = genesis.spec(model.root()).expect("fork rules");
    let header = genesis.header(&spec, model.root());
    let mut chain = B::new(spec, header, changes, codes).expect("the genesis");

    let mut count = 0;
    for block in BlockSource::open(folder.join("chain.rlp")).expect("the chain") {
        let block = block.expect("a block");
        if let Err(error) = chain.import(&block.rlp, None) {
            panic!("block {:?} is refused: {error}", block.number());
        }
        count += 1;
    }
    let head = fs::read(folder.join("headfcu.json")).expect("the fork choice");
    let head: ForkChoice = serde_json::from_slice(&head).expect("the fork choice");
    assert_eq!(chain.head(), head.params.0.head_block_hash, "the head");
    assert_eq!(count, EXECUTION_APIS_BLOCKS, "blocks");
    say(&format!(
        "suite execution-apis chain over the {}: {count} blocks run, 0 skipped",
        B::name()
    ));
    Some(chain)
}

/// The state of a genesis file, as changes of no state, and its codes by hash.
pub fn genesis_state(accounts: Vec<(Address, GenesisAccount)>) -> (Changes, Vec<(B256, Bytes)>) {
    let mut codes = Vec::new();
    let changes = accounts.into_iter().map(|(address, account)| {
        let code_hash = match account.code.is_empty() {
            true => KECCAK_EMPTY,
            false => keccak256(&account.code),
        };
        if !account.code.is_empty() {
            codes.push((code_hash, account.code));
        }
        let slots = account.storage.iter().filter(|(_, value)| !value.is_zero());
        AccountChange {
            path: keccak256(address),
            account: AccountUpdate::Put(Account {
                nonce: account.nonce,
                balance: account.balance,
                code_hash,
            }),
            wipe: false,
            slots: slots
                .map(|(slot, value)| (keccak256(slot), *value))
                .collect(),
        }
    });
    let changes = Changes::new(changes.collect());
    (changes, codes)
}
