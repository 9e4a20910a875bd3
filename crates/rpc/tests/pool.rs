//! Transactions that wait for a block, and blocks that are built of them.

use crate::common::{
    ask, made_at, served_of,
    signing::{GWEI, payment, signed},
};
use alloy_consensus::TxEip1559;
use alloy_eips::{eip2718::Encodable2718, eip7685::Requests};
use alloy_primitives::{B256, Bytes};
use alloy_rpc_types_engine::{
    CancunPayloadFields, ExecutionPayload, ExecutionPayloadSidecar, ExecutionPayloadV3,
    ExecutionPayloadV4, PraguePayloadFields,
};
use cambium_chain::{Block, ChainSealer, Fork};
use cambium_node::Node;
use cambium_rpc::{Limits, Methods, PoolLimits, Served, Service};
use cambium_workload::Workload;
use serde_json::{Value, json};
use std::sync::Arc;

/// A chain at its genesis with a pool.
struct Pooled {
    workload: Workload,
    served: Arc<Served>,
    service: Service,
}

impl Pooled {
    fn new(limits: PoolLimits) -> Self {
        Self::at(Fork::Osaka, limits)
    }

    fn at(fork: Fork, limits: PoolLimits) -> Self {
        let (workload, chain) = made_at(3, fork);
        let served = served_of(chain, Limits::default(), limits);
        let methods = Methods::of_chain().with_testing();
        Self {
            workload,
            service: Service::new(Arc::clone(&served), methods),
            served,
        }
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        ask(&self.service, &request.to_string())
    }

    fn send(&self, sender: u64, change: impl FnOnce(&mut TxEip1559)) -> Result<B256, String> {
        let mut own = payment(&self.workload);
        change(&mut own);
        self.send_raw(&signed(&self.workload, sender, own))
    }

    fn send_raw(&self, raw: &[u8]) -> Result<B256, String> {
        let raw = Bytes::copy_from_slice(raw);
        let answer = self.call("eth_sendRawTransaction", json!([raw]));
        match answer.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap().to_owned()),
            None => Ok(serde_json::from_value(answer["result"].clone()).unwrap()),
        }
    }

    fn status(&self) -> (String, String) {
        let status = self.call("txpool_status", json!([]))["result"].clone();
        let text = |field: &str| status[field].as_str().unwrap().to_owned();
        (text("pending"), text("queued"))
    }

    /// Builds a block of what waits, inserts it as any other, and makes it the head. Returns its transactions.
    fn build_and_insert(&self) -> Vec<Bytes> {
        let node = self.served.node();
        let chain = node.chain().unwrap();
        let head = chain.block(node.head().number).unwrap().header;
        let fork = self.workload.params().fork;
        let mut attributes = json!({
            "timestamp": format!("{:#x}", head.timestamp + 12),
            "prevRandao": B256::repeat_byte(3),
            "suggestedFeeRecipient": "0x00000000000000000000000000000000000000fe",
            "withdrawals": [
                {"index": "0x1", "validatorIndex": "0x2", "address": "0x00000000000000000000000000000000000000aa", "amount": "0x5"}
            ],
            "parentBeaconBlockRoot": B256::repeat_byte(4),
        });
        if fork == Fork::Amsterdam {
            attributes["slotNumber"] = json!("0x9");
        }
        let answer = self.call(
            "testing_buildBlockV1",
            json!([node.head().hash, attributes, null, "0x61"]),
        );
        let built = &answer["result"];
        let own = built["executionPayload"].clone();
        let mut list = None;
        let payload = match fork {
            Fork::Amsterdam => {
                let own: ExecutionPayloadV4 =
                    serde_json::from_value(own).unwrap_or_else(|_| panic!("{answer}"));
                list = Some(own.block_access_list.to_vec());
                ExecutionPayload::V4(own)
            }
            _ => {
                let own: ExecutionPayloadV3 =
                    serde_json::from_value(own).unwrap_or_else(|_| panic!("{answer}"));
                ExecutionPayload::V3(own)
            }
        };
        let hash = payload.block_hash();
        let requests: Requests =
            serde_json::from_value(built["executionRequests"].clone()).unwrap();
        let sidecar = ExecutionPayloadSidecar::v4(
            CancunPayloadFields::new(B256::repeat_byte(4), vec![]),
            PraguePayloadFields::new(requests),
        );
        let block: Block = payload.try_into_block_with_sidecar(&sidecar).unwrap();
        assert_eq!(block.header.hash_slow(), hash);
        let inserted = chain
            .insert(alloy_rlp::encode(&block).into(), list.as_deref())
            .unwrap();
        assert_eq!(inserted.id.hash, hash);
        chain.set_canonical(hash, None, None).unwrap();
        let own = block.body.transactions.iter();
        own.map(|own| own.encoded_2718().into()).collect()
    }
}

#[test]
fn what_may_wait_and_what_may_not() {
    let pooled = Pooled::new(PoolLimits::default());
    let refused = |why: &str, sent: Result<B256, String>| {
        let error = sent.unwrap_err();
        assert!(error.contains(why), "{error} is not {why}");
    };
    let hash = pooled.send(0, |_| ()).unwrap();
    refused("already known", pooled.send(0, |_| ()));
    refused("chain id", pooled.send(0, |own| own.chain_id += 1));
    refused(
        "intrinsic gas",
        pooled.send(0, |own| own.gas_limit = 20_999),
    );
    refused(
        "higher than max fee",
        pooled.send(0, |own| own.max_priority_fee_per_gas = 200 * GWEI),
    );
    refused(
        "insufficient funds",
        pooled.send(1, |own| own.value = alloy_primitives::U256::MAX >> 8),
    );
    refused(
        "oversized",
        pooled.send(1, |own| own.input = vec![0; 129 << 10].into()),
    );
    refused(
        "greater than the cap",
        pooled.send(1, |own| own.gas_limit = (1 << 24) + 1),
    );
    refused("decoded", pooled.send_raw(&[1, 2, 3]));
    refused("decoded", pooled.send_raw(&[]));

    // A replacement pays ten percent more.
    refused(
        "underpriced",
        pooled.send(0, |own| own.max_fee_per_gas = 109 * GWEI),
    );
    refused(
        "underpriced",
        pooled.send(0, |own| own.max_fee_per_gas = 110 * GWEI),
    );
    let better = |own: &mut TxEip1559| {
        own.max_fee_per_gas = 110 * GWEI;
        own.max_priority_fee_per_gas = GWEI * 11 / 10;
    };
    let replaced = pooled.send(0, better).unwrap();
    assert_ne!(hash, replaced);
    assert_eq!(pooled.status(), ("0x1".into(), "0x0".into()));
    let found =
        |hash: B256| pooled.call("eth_getTransactionByHash", json!([hash]))["result"].clone();
    assert_eq!(found(hash), Value::Null);
    let waits = found(replaced);
    assert_eq!(waits["hash"], json!(replaced));
    assert_eq!(waits["blockHash"], Value::Null);

    // One with a gap waits for the one between.
    pooled.send(0, |own| own.nonce = 2).unwrap();
    assert_eq!(pooled.status(), ("0x1".into(), "0x1".into()));
    let sender = pooled.workload.address(0);
    let nonce = |tag: &str| {
        let answer = pooled.call("eth_getTransactionCount", json!([sender, tag]));
        answer["result"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (nonce("latest"), nonce("pending")),
        ("0x0".into(), "0x1".into())
    );
    pooled.send(0, |own| own.nonce = 1).unwrap();
    assert_eq!(pooled.status(), ("0x3".into(), "0x0".into()));
    assert_eq!(nonce("pending"), "0x3");
    let of_sender = pooled.call("txpool_contentFrom", json!([sender]))["result"]["pending"].clone();
    assert_eq!(of_sender.as_object().unwrap().len(), 3);
    let lines = pooled.call("txpool_inspect", json!([]))["result"]["pending"].clone();
    let line = &lines[sender.to_checksum(None)]["1"];
    assert_eq!(
        line,
        "0x7777777777777777777777777777777777777777: 1 wei + 21000 gas × 100000000000 wei"
    );

    // What a block has is dropped, and comes back if the block leaves the chain.
    assert_eq!(pooled.build_and_insert().len(), 3);
    assert_eq!(pooled.status(), ("0x0".into(), "0x0".into()));
    refused("nonce too low", pooled.send(0, |own| own.nonce = 2));
    assert_eq!(nonce("pending"), "0x3");
    let node = pooled.served.node();
    node.chain().unwrap().db().unwind(0).unwrap();
    assert_eq!(pooled.status(), ("0x3".into(), "0x0".into()));
}

#[test]
fn a_pool_is_bounded() {
    let pooled = Pooled::new(PoolLimits {
        transactions: 4,
        of_sender: 3,
        ..PoolLimits::default()
    });
    for nonce in 0..3 {
        pooled.send(0, |own| own.nonce = nonce).unwrap();
    }
    let error = pooled.send(0, |own| own.nonce = 3).unwrap_err();
    assert!(error.contains("account limit"), "{error}");
    pooled
        .send(1, |own| own.max_fee_per_gas = 101 * GWEI)
        .unwrap();
    let error = pooled.send(2, |_| ()).unwrap_err();
    assert!(error.contains("full"), "{error}");
    // The last one of the sender that pays least goes.
    pooled
        .send(2, |own| own.max_fee_per_gas = 101 * GWEI)
        .unwrap();
    assert_eq!(pooled.status(), ("0x4".into(), "0x0".into()));
    let left = pooled.call("txpool_contentFrom", json!([pooled.workload.address(0)]));
    assert_eq!(left["result"]["pending"].as_object().unwrap().len(), 2);
}

#[test]
fn blocks_of_what_waits_are_valid_and_take_the_best_first() {
    for fork in [Fork::Prague, Fork::Osaka, Fork::Amsterdam] {
        let pooled = Pooled::at(fork, PoolLimits::default());
        let (workload, other) = made_at(3, fork);
        let genesis = other.block(0).unwrap().header;
        let mut all = 0;
        let generated = workload.generate(&genesis, &mut ChainSealer(&other), |block| {
            for own in &block.body.transactions {
                pooled.send_raw(&own.encoded_2718()).unwrap();
                all += 1;
            }
            Ok(())
        });
        generated.unwrap();
        pooled
            .send(90, |own| own.max_priority_fee_per_gas = 50 * GWEI)
            .unwrap();
        // It may have replaced another one of its sender.
        let (pending, queued) = pooled.status();
        assert!(pending == format!("{all:#x}") || pending == format!("{:#x}", all + 1));
        assert_eq!(queued, "0x0");
        let mut built = 0;
        for _ in 0..8 {
            let block = pooled.build_and_insert();
            if built == 0 {
                let mut best = payment(&workload);
                best.max_priority_fee_per_gas = 50 * GWEI;
                assert_eq!(block[0], signed(&workload, 90, best));
            }
            built += block.len();
        }
        assert_eq!(format!("{built:#x}"), pending, "at {fork:?}");
        assert_eq!(pooled.status(), ("0x0".into(), "0x0".into()));
    }
}

#[test]
fn a_server_without_a_pool_says_so() {
    let (_, chain) = made_at(0, Fork::Osaka);
    let served = Served::new(Arc::new(Node::of_chain(chain)), Limits::default());
    let service = Service::new(Arc::new(served), Methods::of_chain());
    for method in ["txpool_status", "txpool_content", "eth_sendRawTransaction"] {
        let params = match method {
            "eth_sendRawTransaction" => json!(["0x"]),
            _ => json!([]),
        };
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let error = ask(&service, &request.to_string())["error"].clone();
        assert_eq!(error["code"], -32000);
        assert!(error["message"].as_str().unwrap().contains("no pool"));
    }
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"testing_buildBlockV1","params":[]}"#;
    assert_eq!(ask(&service, request)["error"]["code"], -32601);
}
