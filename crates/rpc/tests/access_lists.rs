//! Access lists of blocks, against those that the chain has.

use crate::common::{ask, made_at, service_of};
use alloy_primitives::{B256, Bytes, U64, keccak256};
use cambium_chain::{Chain, ChainSealer, Fork};
use cambium_rpc::{Limits, Service};
use serde_json::{Value, json};

fn chain(fork: Fork) -> Chain {
    let (workload, chain) = made_at(3, fork);
    let genesis = chain.block(0).unwrap().header;
    let generated = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
    generated.unwrap();
    chain
}

fn call(service: &Service, method: &str, param: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": [param]});
    ask(service, &request.to_string())
}

/// The list of a block as JSON, written field by field.
fn expected(chain: &Chain, number: u64) -> Value {
    let list = chain.access_list(number).unwrap();
    let index = |at: u64| json!(U64::from(at));
    let accounts = list.accounts().iter().map(|account| {
        let slots = account.storage_changes.iter().map(|slot| {
            let changes = slot.changes.iter().map(|change| {
                json!({"index": index(change.block_access_index.0), "value": B256::from(change.new_value)})
            });
            json!({"key": B256::from(slot.slot), "changes": changes.collect::<Vec<_>>()})
        });
        let reads = account.storage_reads.iter().map(|slot| json!(B256::from(*slot)));
        let balances = account.balance_changes.iter().map(|change| {
            json!({"index": index(change.block_access_index.0), "value": change.post_balance})
        });
        let nonces = account.nonce_changes.iter().map(|change| {
            json!({"index": index(change.block_access_index.0), "value": U64::from(change.new_nonce)})
        });
        let codes = account.code_changes.iter().map(|change| {
            json!({"index": index(change.block_access_index.0), "code": change.new_code})
        });
        json!({
            "address": account.address,
            "storageChanges": slots.collect::<Vec<_>>(),
            "storageReads": reads.collect::<Vec<_>>(),
            "balanceChanges": balances.collect::<Vec<_>>(),
            "nonceChanges": nonces.collect::<Vec<_>>(),
            "codeChanges": codes.collect::<Vec<_>>(),
        })
    });
    Value::Array(accounts.collect())
}

#[test]
fn access_lists_are_those_that_headers_commit_to() {
    let chain = chain(Fork::Amsterdam);
    let expected: Vec<_> = (0..=3).map(|number| expected(&chain, number)).collect();
    let headers: Vec<_> = (0..=3)
        .map(|number| chain.block(number).unwrap().header)
        .collect();
    assert!(expected[3].as_array().unwrap().len() > 20);
    let service = service_of(chain, Limits::default());
    for (number, (expected, header)) in expected.iter().zip(&headers).enumerate() {
        for name in [json!(format!("{number:#x}")), json!(header.hash_slow())] {
            let list = call(&service, "eth_getBlockAccessList", name.clone());
            assert_eq!(&list["result"], expected, "{number}");
            let raw = call(&service, "debug_getRawBlockAccessList", name);
            let raw: Bytes = serde_json::from_value(raw["result"].clone()).unwrap();
            assert_eq!(header.block_access_list_hash, Some(keccak256(&raw)));
        }
    }
    let list = call(&service, "eth_getBlockAccessList", json!("latest"));
    assert_eq!(&list["result"], &expected[3]);
}

#[test]
fn blocks_before_the_fork_have_no_access_list() {
    let service = service_of(chain(Fork::Osaka), Limits::default());
    let unknown = json!(B256::repeat_byte(9));
    for method in ["eth_getBlockAccessList", "debug_getRawBlockAccessList"] {
        let answer = call(&service, method, json!("0x1"));
        assert_eq!(answer["error"]["code"], -32001, "{answer}");
    }
    let none = call(&service, "eth_getBlockAccessList", unknown.clone());
    assert_eq!(none, json!({"jsonrpc": "2.0", "id": 1, "result": null}));
    let none = call(&service, "debug_getRawBlockAccessList", unknown);
    assert_eq!(none["error"]["code"], -32001);
}
