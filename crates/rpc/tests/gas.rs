//! Gas of calls, against what blocks charge.

use crate::common::{
    ask, made_at, served_of,
    signing::{GWEI, payment, signed},
};
use alloy_primitives::{Address, Bytes, TxKind, U256};
use cambium_chain::{ChainSealer, Fork};
use cambium_rpc::{Limits, Methods, PoolLimits, Service};
use cambium_workload::{TOKEN, Workload};
use serde_json::{Value, json};

/// The estimate may be too high by this share, and by what it is rounded.
const ESTIMATE_ERROR: f64 = 0.015;

struct Made {
    workload: Workload,
    service: Service,
}

impl Made {
    fn new(fork: Fork) -> Self {
        let (workload, chain) = made_at(2, fork);
        let genesis = chain.block(0).unwrap().header;
        let generated = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
        generated.unwrap();
        let served = served_of(chain, Limits::default(), PoolLimits::default());
        let service = Service::new(served, Methods::of_chain().with_testing());
        Self { workload, service }
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        ask(&self.service, &request.to_string())
    }

    fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params);
        answer
            .get("result")
            .unwrap_or_else(|| panic!("{method}: {answer}"))
            .clone()
    }

    /// The gas that a block of one transaction charges for it: in its receipt, which the header's bloom and root commit to. `None` if
    /// it fails.
    fn charged(&self, to: TxKind, value: U256, input: &Bytes, gas_limit: u64) -> Option<u64> {
        let sender = self.workload.address(1);
        let nonce = self.result("eth_getTransactionCount", json!([sender, "latest"]));
        let mut own = payment(&self.workload);
        own.nonce = number(&nonce);
        own.max_fee_per_gas = 1000 * GWEI;
        own.to = to;
        own.value = value;
        own.input = input.clone();
        own.gas_limit = gas_limit;
        let raw = signed(&self.workload, 1, own);
        let head = self.result("eth_getBlockByNumber", json!(["latest", false]));
        let mut attributes = json!({
            "timestamp": format!("{:#x}", number(&head["timestamp"]) + 12),
            "prevRandao": head["mixHash"],
            "suggestedFeeRecipient": Address::repeat_byte(0xfe),
            "withdrawals": [],
            "parentBeaconBlockRoot": head["hash"],
            "slotNumber": "0x9",
        });
        if head.get("blockAccessListHash").is_none() {
            attributes.as_object_mut().unwrap().remove("slotNumber");
        }
        let built = self.call(
            "testing_buildBlockV1",
            json!([head["hash"], attributes, [raw], "0x"]),
        );
        let payload = &built["result"]["executionPayload"];
        let transactions = payload["transactions"].as_array();
        if transactions.is_none_or(Vec::is_empty) {
            return None;
        }
        // The same transaction, executed as a block of a simulation with all checks: its receipts have the root of those of the
        // block that was built, which says whether it succeeded, and what it used.
        let call = json!({
            "from": sender, "to": to.to(), "value": value, "input": input, "gas": format!("{gas_limit:#x}"),
            "maxFeePerGas": format!("{:#x}", 1000 * GWEI), "maxPriorityFeePerGas": format!("{GWEI:#x}"), "nonce": nonce,
        });
        let overrides = json!({
            "time": payload["timestamp"], "prevRandao": payload["prevRandao"], "feeRecipient": payload["feeRecipient"],
            "gasLimit": payload["gasLimit"], "beaconRoot": head["hash"],
        });
        let simulated = json!({"validation": true, "blockStateCalls": [{"calls": [call], "blockOverrides": overrides}]});
        let simulated = self.result("eth_simulateV1", json!([simulated, "latest"]));
        let simulated = &simulated[0];
        for field in ["receiptsRoot", "gasUsed", "stateRoot"] {
            assert_eq!(
                simulated[field], payload[field],
                "{field}: {simulated} {payload}"
            );
        }
        let done = &simulated["calls"][0];
        (done["status"] == "0x1").then(|| number(&done["gasUsed"]))
    }
}

fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value}"));
    u64::from_str_radix(&text[2..], 16).unwrap()
}

#[test]
fn estimated_gas_is_what_a_block_charges() {
    let mut all = Vec::new();
    for fork in [Fork::Osaka, Fork::Amsterdam] {
        let made = Made::new(fork);
        let sender = made.workload.address(1);
        // transfer(address,uint256) to a new holder: a slot that is set.
        let mut transfer = vec![0xa9, 0x05, 0x9c, 0xbb];
        transfer.extend(Address::repeat_byte(0x5a).into_word());
        transfer.extend(U256::ONE.to_be_bytes::<32>());
        let transfer = Bytes::from(transfer);
        // Code that returns 64 zeros, as the code of a contract.
        let create = Bytes::from_static(&[0x60, 0x40, 0x5f, 0xf3]);
        let (none, one) = (U256::ZERO, U256::ONE);
        let (old, new) = (made.workload.address(2), Address::repeat_byte(0x5b));
        let mut of_fork = Vec::new();
        for (to, value, input) in [
            (TxKind::Call(old), one, Bytes::new()),
            (TxKind::Call(new), one, Bytes::new()),
            (TxKind::Call(TOKEN), none, transfer),
            (TxKind::Create, none, create),
        ] {
            let call = json!({"from": sender, "to": to.to(), "value": value, "input": input});
            let estimate = number(&made.result("eth_estimateGas", json!([call, "latest"])));
            let charged = made.charged(to, value, &input, estimate);
            let charged =
                charged.unwrap_or_else(|| panic!("{fork:?}: {call} fails with {estimate}"));
            assert!(
                charged <= estimate,
                "{fork:?}: {call}: {charged} of {estimate}"
            );
            // A little less is not enough.
            let less = (estimate as f64 * (1.0 - ESTIMATE_ERROR)) as u64 - 1;
            assert_eq!(
                made.charged(to, value, &input, less),
                None,
                "{fork:?}: {call}: {less}"
            );
            // What is called before it is sent shows the same gas.
            let listed = made.result("eth_createAccessList", json!([call, "latest"]));
            assert!(listed["error"].is_null(), "{listed}");
            of_fork.push(charged);
        }
        all.push(of_fork);
    }
    // Payments cost the same; a new slot and a new contract do not.
    let (osaka, amsterdam) = (&all[0], &all[1]);
    assert_eq!(osaka[0], amsterdam[0]);
    for at in [2, 3] {
        assert_ne!(osaka[at], amsterdam[at], "{all:?}");
    }
}
