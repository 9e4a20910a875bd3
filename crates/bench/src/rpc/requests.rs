//! Prepared requests: the same calls for both servers.

use super::connection::request;
use alloy_primitives::{Address, hex};
use cambium_testkit::Random;
use cambium_workload::{TOKEN, Workload, token_balance_slot};
use serde_json::{Value, json};

/// Selector of `balanceOf(address)`.
const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31];

/// A method that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Method {
    Balance,
    Storage,
    TokenBalance,
    Proof,
}

impl Method {
    pub(super) const ALL: [Self; 4] = [
        Self::Balance,
        Self::Storage,
        Self::TokenBalance,
        Self::Proof,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Balance => "eth_getBalance",
            Self::Storage => "eth_getStorageAt",
            Self::TokenBalance => "eth_call balanceOf",
            Self::Proof => "eth_getProof",
        }
    }

    /// A call for a random account, or a random holder of tokens, at a block.
    fn call(self, workload: &Workload, random: &mut Random, block: &str, id: u64) -> Value {
        let params = workload.params();
        let account = |random: &mut Random| workload.address(random.below(params.accounts));
        let holder = |random: &mut Random| workload.address(random.below(params.holders()));
        let (method, params) = match self {
            Self::Balance => ("eth_getBalance", json!([account(random), block])),
            Self::Storage => {
                let slot = token_balance_slot(&holder(random));
                ("eth_getStorageAt", json!([TOKEN, slot, block]))
            }
            Self::TokenBalance => {
                let call = json!({"to": TOKEN, "data": balance_of(&holder(random))});
                ("eth_call", json!([call, block]))
            }
            Self::Proof => ("eth_getProof", json!([account(random), [], block])),
        };
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// Requests of one call each.
    pub(super) fn singles(
        self,
        workload: &Workload,
        seed: u64,
        block: &str,
        count: u64,
    ) -> Vec<Vec<u8>> {
        let mut random = Random::new(seed);
        (0..count)
            .map(|id| {
                request(
                    &self.call(workload, &mut random, block, id).to_string(),
                    None,
                )
            })
            .collect()
    }

    /// Requests of this many calls each.
    pub(super) fn batches(
        self,
        workload: &Workload,
        seed: u64,
        block: &str,
        count: u64,
        calls: usize,
    ) -> Vec<Vec<u8>> {
        let mut random = Random::new(seed);
        (0..count)
            .map(|_| {
                let calls = (0..calls as u64).map(|id| self.call(workload, &mut random, block, id));
                request(&Value::from(calls.collect::<Vec<_>>()).to_string(), None)
            })
            .collect()
    }
}

/// Requests of a wallet's kind: 60 % balances and slots, 30 % token balances, 10 % proofs.
pub(super) fn mixed(workload: &Workload, seed: u64, count: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|id| {
            let method = match random.below(10) {
                0..3 => Method::Balance,
                3..6 => Method::Storage,
                6..9 => Method::TokenBalance,
                _ => Method::Proof,
            };
            request(
                &method.call(workload, &mut random, "latest", id).to_string(),
                None,
            )
        })
        .collect()
}

/// Batches of balances of some accounts, which bring them into memory.
pub(super) fn balances(addresses: &[Address], calls: usize) -> Vec<Vec<u8>> {
    addresses
        .chunks(calls)
        .map(|addresses| {
            let calls = addresses.iter().map(|address| {
                json!({"jsonrpc": "2.0", "id": 1, "method": "eth_getBalance", "params": [address, "latest"]})
            });
            request(&Value::from(calls.collect::<Vec<_>>()).to_string(), None)
        })
        .collect()
}

fn balance_of(holder: &Address) -> String {
    let call = [&BALANCE_OF[..], holder.into_word().as_slice()].concat();
    hex::encode_prefixed(call)
}
