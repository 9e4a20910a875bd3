//! A workload's genesis state as sorted keys and values.

use super::provider::{account_key, slot_key};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_chain::GenesisPart;
use cambium_primitives::{Account, SlotValue};
use cambium_workload::Workload;
use std::convert::Infallible;

/// Keys and values, sorted by key, so that no store has to sort them.
pub(crate) struct Pairs {
    /// The pairs: length of the key and of the value in a byte each, key, value.
    bytes: Vec<u8>,
    /// Offset of each pair, in the order of keys.
    starts: Vec<usize>,
}

impl Pairs {
    /// Builds the pairs of a workload's genesis state, in the format of
    /// [`super::provider::Values`].
    pub(crate) fn of(workload: &Workload) -> Self {
        let mut pairs = Self {
            bytes: Vec::new(),
            starts: Vec::new(),
        };
        let streamed: Result<(), Infallible> = workload.for_each_part(|part| {
            match part {
                GenesisPart::Account(address, genesis) => {
                    let account = Account {
                        nonce: genesis.nonce,
                        balance: genesis.balance,
                        code_hash: match genesis.code.is_empty() {
                            true => KECCAK256_EMPTY,
                            false => keccak256(&genesis.code),
                        },
                    };
                    let mut value = Vec::new();
                    account.encode_to(&mut value);
                    pairs.push(account_key(&address).as_slice(), &value);
                    pairs.push_slots(&address, &genesis.storage);
                }
                GenesisPart::Slots(address, slots) => pairs.push_slots(&address, &slots),
            }
            Ok(())
        });
        streamed.unwrap_or_else(|never| match never {});
        let Self { bytes, starts } = &mut pairs;
        starts.sort_unstable_by(|one, other| pair(bytes, *one).0.cmp(pair(bytes, *other).0));
        pairs
    }

    fn push_slots(&mut self, address: &Address, slots: &[(B256, U256)]) {
        for (slot, value) in slots.iter().filter(|(_, value)| !value.is_zero()) {
            let key = slot_key(address, (*slot).into());
            self.push(&key, SlotValue::new(*value).as_bytes());
        }
    }

    /// Appends a pair. Keys have 32 or 64 bytes, and values at most 75.
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend([key.len() as u8, value.len() as u8]);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Returns the pairs in the order of keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.starts.iter().map(|start| pair(&self.bytes, *start))
    }
}

fn pair(bytes: &[u8], start: usize) -> (&[u8], &[u8]) {
    let [key, value] = [bytes[start], bytes[start + 1]].map(usize::from);
    bytes[start + 2..start + 2 + key + value].split_at(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_workload::WorkloadParams;

    #[test]
    fn pairs_are_sorted_and_are_the_whole_state() {
        let params = WorkloadParams {
            accounts: 100,
            senders: Some(10),
            holders: Some(50),
            ..WorkloadParams::default()
        };
        let workload = Workload::new(params).unwrap();
        let pairs = Pairs::of(&workload);
        let keys: Vec<_> = pairs.iter().map(|(key, _)| key).collect();
        assert!(keys.is_sorted_by(|one, other| one < other));
        let [accounts, slots] = [32, 64].map(|len| keys.iter().filter(move |key| key.len() == len));
        assert_eq!(accounts.count() as u64, workload.genesis().accounts);
        assert_eq!(slots.count() as u64, workload.genesis_slots());
        let key = account_key(&workload.address(99));
        let found = pairs.iter().find(|(at, _)| *at == key.as_slice()).unwrap();
        assert_eq!(Account::decode(found.1).unwrap().code_hash, KECCAK256_EMPTY);
    }
}
