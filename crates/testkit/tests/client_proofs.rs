//! Proofs in the types of their clients: alloy's response of eth_getProof, and pages of accounts and slots, of the head
//! and of old blocks, verified without the database.

use alloy_primitives::{Address, B256, U256, keccak256};
use alloy_trie::{Nibbles, TrieAccount, proof::verify_proof};
use cambium_chain::{Chain, ChainSealer, Fork};
use cambium_history::{History, HistoryOptions, StateAt, WholeNodes};
use cambium_primitives::Account;
use cambium_state::{FaultyDisk, Options, StateError, View};
use cambium_trie::{
    AccountProof, EIP1186AccountProofResponse, RangeProof, RangeProofError, verify_account_proof,
};
use cambium_workload::{BlockSize, TOKEN, Workload, WorkloadParams, token_balance_slot};
use std::{num::NonZeroUsize, ops::ControlFlow, sync::Arc};

const BLOCKS: u64 = 8;

fn workload() -> Workload {
    Workload::new(WorkloadParams {
        fork: Fork::Prague,
        accounts: 300,
        senders: Some(20),
        blocks: BLOCKS,
        erc20_percent: 80,
        block_size: BlockSize::Transactions(12),
        ..WorkloadParams::default()
    })
    .unwrap()
}

/// A chain of token transfers, and its archive.
fn chain(merge_interval: Option<u64>) -> (Chain, Option<History>) {
    let disk = Arc::new(FaultyDisk::new(6));
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let options = merge_interval.map_or(options, |blocks| options.layered(blocks));
    let chain = workload().init(disk.clone(), options, &mut |_| {}).unwrap();
    let nodes = Some(WholeNodes::default());
    let history = merge_interval
        .is_none()
        .then(|| History::create(disk, chain.db(), 0, nodes, HistoryOptions::default()).unwrap());
    let genesis = chain.block(0).unwrap().header;
    workload()
        .generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))
        .unwrap();
    if let Some(history) = &history {
        history.catch_up(chain.db(), &mut |_| true).unwrap();
    }
    (chain, history)
}

/// Verifies a response with alloy's types and verifier, and with our own.
fn verify(root: B256, response: &EIP1186AccountProofResponse, expected: Option<Account>) {
    let value = expected.map(|account| {
        assert_eq!(response.nonce, account.nonce);
        assert_eq!(response.balance, account.balance);
        assert_eq!(response.code_hash, account.code_hash);
        alloy_rlp::encode(TrieAccount {
            nonce: account.nonce,
            balance: account.balance,
            storage_root: response.storage_hash,
            code_hash: account.code_hash,
        })
    });
    assert_eq!(expected.is_none(), response.is_empty());
    let key = Nibbles::unpack(keccak256(response.address));
    verify_proof(root, key, value, &response.account_proof).unwrap();
    for slot in &response.storage_proof {
        let value = (!slot.value.is_zero()).then(|| alloy_rlp::encode(slot.value));
        let key = Nibbles::unpack(keccak256(slot.key.as_b256()));
        verify_proof(response.storage_hash, key, value, &slot.proof).unwrap();
    }
    let verified = verify_account_proof(root, &AccountProof::from(response.clone())).unwrap();
    assert_eq!(verified.account, expected);
    let claimed = response.storage_proof.iter();
    let claimed: Vec<_> = claimed
        .map(|slot| (slot.key.as_b256(), slot.value))
        .collect();
    assert_eq!(verified.slots, claimed);
}

#[test]
fn a_proof_is_alloys_response_at_the_head_and_at_old_blocks() {
    let (chain, history) = chain(None);
    let (db, history) = (chain.db(), history.unwrap());
    let (mut slots_set, mut present) = (0, 0);
    for number in 0..=BLOCKS {
        let root = chain.block(number).unwrap().header.state_root;
        let recent: View = db.view_at(number).unwrap();
        let old: StateAt = history.state_at(db, number).unwrap();
        for index in 0..25 {
            let holder = workload().address(index);
            let slots = [token_balance_slot(&holder), B256::repeat_byte(0x77)];
            for address in [TOKEN, holder, Address::repeat_byte(0x99)] {
                let response = recent.prove(address, &slots).unwrap();
                assert_eq!(old.prove(address, &slots).unwrap(), response);
                let expected = recent.account_at(address).unwrap();
                assert_eq!(old.account_at(address).unwrap(), expected);
                present += usize::from(expected.is_some());
                verify(root, &response, expected);
                for (slot, proof) in slots.iter().zip(&response.storage_proof) {
                    let slot = U256::from_be_bytes(slot.0);
                    let value = recent.slot_at(address, slot).unwrap();
                    assert_eq!(old.slot_at(address, slot).unwrap(), value);
                    assert_eq!(proof.value, value);
                    slots_set += usize::from(!value.is_zero());
                }
            }
        }
    }
    assert!(slots_set > 20 && present > 100, "{slots_set} {present}");
}

#[test]
fn pages_prove_all_accounts_and_slots_of_any_block() {
    let (chain, history) = chain(None);
    let (db, history) = (chain.db(), history.unwrap());
    for number in [0, BLOCKS / 2, BLOCKS] {
        let root = chain.block(number).unwrap().header.state_root;
        let recent = db.view_at(number).unwrap();
        let old = history.state_at(db, number).unwrap();
        let limit = NonZeroUsize::new(23).unwrap();
        let pages = |prove: &dyn Fn(B256) -> RangeProof| {
            let (mut accounts, mut next, mut pages) = (Vec::new(), Some(B256::ZERO), 0);
            while let Some(from) = next {
                let page = prove(from).verify_accounts(root, from).unwrap();
                accounts.extend(page.values);
                (next, pages) = (page.next, pages + 1);
            }
            assert!(pages > 10);
            accounts
        };
        let mut expected = Vec::new();
        let visited = recent.each_account(&B256::ZERO, |path, account| {
            expected.push((path, account));
            ControlFlow::Continue(())
        });
        visited.unwrap();
        assert!(expected.len() > 300);
        assert_eq!(
            pages(&|from| recent.prove_accounts(from, limit).unwrap()),
            expected
        );
        assert_eq!(
            pages(&|from| old.prove_accounts(from, limit).unwrap()),
            expected
        );
        let (mut slots, mut next) = (Vec::new(), Some(B256::ZERO));
        while let Some(from) = next {
            let proof = recent.prove_slots(TOKEN, from, limit).unwrap();
            assert_eq!(old.prove_slots(TOKEN, from, limit).unwrap(), proof);
            // Survives JSON.
            let json = serde_json::to_string(&proof).unwrap();
            let proof: RangeProof = serde_json::from_str(&json).unwrap();
            let page = proof.verify_slots(root, TOKEN, from).unwrap();
            assert!(page.values.len() <= limit.get());
            slots.extend(page.values);
            next = page.next;
        }
        assert_eq!(slots, recent.slots(&keccak256(TOKEN)).unwrap());
        // A page of another state is rejected.
        let other = chain.block((number + 1) % BLOCKS).unwrap().header;
        let proof = recent.prove_accounts(B256::ZERO, limit).unwrap();
        let error = proof.verify_accounts(other.state_root, B256::ZERO);
        assert!(matches!(error, Err(RangeProofError::Missing(_))));
    }
}

#[test]
fn proofs_of_nodes_are_refused_by_name_under_layered() {
    let (chain, _) = chain(Some(4));
    let view = chain.db().view().unwrap();
    let limit = NonZeroUsize::MIN;
    for error in [
        view.prove(TOKEN, &[]).map(|_| ()).unwrap_err(),
        view.prove_accounts(B256::ZERO, limit)
            .map(|_| ())
            .unwrap_err(),
        view.prove_slots(TOKEN, B256::ZERO, limit)
            .map(|_| ())
            .unwrap_err(),
    ] {
        assert!(matches!(error, StateError::NotUnderLayered(_)), "{error}");
    }
}
