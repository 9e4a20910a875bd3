//! Generation of a workload's genesis state.

use crate::{
    ROUTER, SLOT_READER, TOKEN, Workload,
    contracts::{
        PAIR_CODE, ROUTER_CODE, SLOT_READER_CODE, SLOT_READER_COUNT_SLOT, TOKEN_CODE,
        TOKEN_SUPPLY_SLOT, pair_slots, slot_reader_slot, token_allowance_slot, token_balance_slot,
    },
    keys::hash,
};
use alloy_eips::{
    eip1559::INITIAL_BASE_FEE,
    eip2935::{HISTORY_STORAGE_ADDRESS, HISTORY_STORAGE_CODE},
    eip4788::{BEACON_ROOTS_ADDRESS, BEACON_ROOTS_CODE},
    eip7002::{WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, WITHDRAWAL_REQUEST_PREDEPLOY_CODE},
    eip7251::{CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS, CONSOLIDATION_REQUEST_PREDEPLOY_CODE},
};
use alloy_primitives::{Address, B256, Bytes, U256, address, uint};
use cambium_chain::{Genesis, GenesisAccount, GenesisPart};
use rayon::prelude::*;

/// Beneficiary of all blocks.
pub(crate) const COINBASE: Address = address!("c01bba5e00000000000000000000000000000000");
pub(crate) const EXTRA_DATA: &[u8] = b"cambium workload";
const GENESIS_TIMESTAMP: u64 = 1_700_000_000;

/// Number of accounts or slots that are derived in one batch, on all cores.
const CHUNK: u64 = 1 << 16;

const ETHER: U256 = uint!(1_000_000_000_000_000_000_U256);
/// Minimum balance of a sender in wei: a million ether.
const SENDER_BALANCE: U256 = uint!(1_000_000_000_000_000_000_000_000_U256);
/// Token balance of each holder, and reserve of each pool.
const TOKENS: u128 = 1_000_000_000_000_000_000_000_000;

/// A contract of the genesis state.
struct Contract<'a> {
    address: Address,
    code: Bytes,
    /// Number of slots.
    slots: u64,
    /// Returns the slot with an index, and its value.
    slot: Box<dyn Fn(u64) -> (B256, U256) + Sync + 'a>,
}

impl Contract<'_> {
    fn without_slots(address: Address, code: &Bytes) -> Self {
        Self {
            address,
            code: code.clone(),
            slots: 0,
            slot: Box::new(|_| Default::default()),
        }
    }
}

impl Workload {
    /// The genesis block's header fields and fork rules, without the accounts.
    pub fn genesis(&self) -> Genesis {
        Genesis {
            file: "workload".into(),
            config: Some(self.params().spec()),
            timestamp: GENESIS_TIMESTAMP,
            extra_data: Bytes::from_static(EXTRA_DATA),
            gas_limit: self.params().gas_limit(),
            coinbase: COINBASE,
            base_fee_per_gas: Some(INITIAL_BASE_FEE),
            excess_blob_gas: Some(0),
            blob_gas_used: Some(0),
            accounts: self.contracts().count() as u64 + self.params().accounts,
            ..Genesis::default()
        }
    }

    /// Total number of slots in the genesis state.
    pub fn genesis_slots(&self) -> u64 {
        self.contracts().map(|contract| contract.slots).sum()
    }

    /// Passes the genesis state to `on_part` piece by piece, in the order of the genesis file:
    /// contracts first, then accounts by index.
    ///
    /// # Errors
    ///
    /// If `on_part` fails, which ends the iteration.
    pub fn for_each_part<E>(
        &self,
        mut on_part: impl FnMut(GenesisPart) -> Result<(), E>,
    ) -> Result<(), E> {
        for contract in self.contracts() {
            let mut chunks = chunks(contract.slots, &contract.slot);
            let account = GenesisAccount {
                nonce: 1,
                code: contract.code.clone(),
                storage: chunks.next().unwrap_or_default(),
                ..GenesisAccount::default()
            };
            on_part(GenesisPart::Account(contract.address, account))?;
            for slots in chunks {
                on_part(GenesisPart::Slots(contract.address, slots))?;
            }
        }
        for chunk in chunks(self.params().accounts, &|index| self.account(index)) {
            for (address, balance) in chunk {
                let account = GenesisAccount {
                    balance,
                    ..GenesisAccount::default()
                };
                on_part(GenesisPart::Account(address, account))?;
            }
        }
        Ok(())
    }

    fn account(&self, index: u64) -> (Address, U256) {
        let balance = hash("balance", self.params().seed, index);
        let base = if index < self.params().senders() {
            SENDER_BALANCE
        } else {
            ETHER
        };
        (
            self.address(index),
            base + U256::from_be_bytes(balance.0) % ETHER,
        )
    }

    fn contracts(&self) -> impl Iterator<Item = Contract<'_>> {
        let pools = match self.params().swap_percent {
            0 => 0,
            _ => self.params().pools,
        };
        let token = self.token(TOKEN, self.params().holders(), 0..pools);
        let pools = (0..pools).flat_map(|index| {
            let token = self.pool(index).token;
            let senders = self.params().senders();
            [
                self.token(token, senders, index..index + 1),
                self.pair(index),
            ]
        });
        let router =
            (self.params().swap_percent > 0).then(|| Contract::without_slots(ROUTER, &ROUTER_CODE));
        let reader = (self.params().slot_read_percent > 0).then(|| self.slot_reader());
        let system = [
            (BEACON_ROOTS_ADDRESS, &BEACON_ROOTS_CODE),
            (HISTORY_STORAGE_ADDRESS, &HISTORY_STORAGE_CODE),
            (
                WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
                &WITHDRAWAL_REQUEST_PREDEPLOY_CODE,
            ),
            (
                CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
                &CONSOLIDATION_REQUEST_PREDEPLOY_CODE,
            ),
        ];
        let system = system.map(|(address, code)| Contract::without_slots(address, code));
        std::iter::once(token)
            .chain(pools)
            .chain(router)
            .chain(reader)
            .chain(system)
    }

    /// A token contract: its supply, a balance for each of the first `holders` accounts and each
    /// pair of `pools`, and, if there are pools, each sender's allowance for the router.
    fn token(&self, address: Address, holders: u64, pools: std::ops::Range<u64>) -> Contract<'_> {
        let pairs = pools.end - pools.start;
        let allowances = match pairs {
            0 => 0,
            _ => self.params().senders(),
        };
        let balances = holders + pairs;
        let slot = move |index| match index {
            0 => {
                let supply = U256::from(balances) * U256::from(TOKENS);
                (TOKEN_SUPPLY_SLOT, supply)
            }
            index if index <= balances => {
                let holder = match (index - 1).checked_sub(holders) {
                    None => self.address(index - 1),
                    Some(pair) => self.pool(pools.start + pair).pair,
                };
                (token_balance_slot(&holder), U256::from(TOKENS))
            }
            index => {
                let owner = self.address(index - 1 - balances);
                (token_allowance_slot(&owner, &ROUTER), U256::MAX)
            }
        };
        Contract {
            address,
            code: TOKEN_CODE.clone(),
            slots: 1 + balances + allowances,
            slot: Box::new(slot),
        }
    }

    fn pair(&self, index: u64) -> Contract<'_> {
        let pool = self.pool(index);
        let slots = pair_slots(&[TOKEN, pool.token], TOKENS, GENESIS_TIMESTAMP as u32);
        Contract {
            address: pool.pair,
            code: PAIR_CODE.clone(),
            slots: slots.len() as u64,
            slot: Box::new(move |index| slots[index as usize]),
        }
    }

    fn slot_reader(&self) -> Contract<'_> {
        let (seed, slots) = (self.params().seed, self.params().slots);
        let slot = move |index| match index {
            0 => (SLOT_READER_COUNT_SLOT, U256::from(slots)),
            index => {
                // A hash, so never zero.
                let value = hash("value", seed, index - 1);
                (slot_reader_slot(index - 1), value.into())
            }
        };
        Contract {
            address: SLOT_READER,
            code: SLOT_READER_CODE.clone(),
            slots: 1 + slots,
            slot: Box::new(slot),
        }
    }
}

/// Applies `of` to each number below `count`, on all cores, and returns the results in order, in
/// chunks.
fn chunks<T: Send>(count: u64, of: &(impl Fn(u64) -> T + Sync)) -> impl Iterator<Item = Vec<T>> {
    (0..count).step_by(CHUNK as usize).map(move |start| {
        let end = (start + CHUNK).min(count);
        (start..end).into_par_iter().map(of).collect()
    })
}
