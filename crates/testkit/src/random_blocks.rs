//! Random blocks with many conflicts: few accounts and slots, nested calls, contracts that are
//! created and destroyed, many transactions of one sender, payments to few accounts, a sender with
//! little, and a miner that is read and sends transactions.

use crate::{Model, Random, network};
use alloy_consensus::{Header, SignableTransaction, TxEip1559, TxEip7702, TxLegacy};
use alloy_eips::{
    eip4895::Withdrawal,
    eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
    eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
    eip7702::{Authorization, SignedAuthorization},
};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, keccak256};
use cambium_evm::{BlockInput, Rules, Transaction};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};
use revm::primitives::hardfork::SpecId;

/// Networks of the blocks, from the first fork whose receipts have a status on.
const NETWORKS: [&str; 8] = [
    "Byzantium",
    "Istanbul",
    "London",
    "Shanghai",
    "Cancun",
    "Prague",
    "Osaka",
    "Amsterdam",
];
const SENDERS: u8 = 6;
/// The sender whose balance lasts for a few transactions only.
const POOR: u8 = 5;
/// Balance of the poor sender, in wei, and the amount that others send it now and then. A transaction
/// takes up to seven million.
const LITTLE: u64 = 30_000_000;
const CONTRACTS: u8 = 7;
/// Number of slots that contracts use.
const SLOTS: u64 = 4;

/// A block that has not been executed.
pub struct RandomBlock {
    rules: Rules,
    header: Header,
    transactions: Vec<Transaction>,
    senders: Vec<Address>,
    withdrawals: Vec<Withdrawal>,
}

/// A generator of blocks on one state.
pub struct RandomBlocks {
    random: Random,
    network: &'static str,
    /// All addresses in use, including those of absent accounts.
    pool: Vec<Address>,
    /// Contracts that come and go, if there are to be many such.
    mortal: Vec<Address>,
    number: u64,
}

impl RandomBlock {
    /// Returns the input for an executor, without an access list.
    pub fn input(&self) -> BlockInput<'_> {
        BlockInput {
            withdrawals: &self.withdrawals,
            ..BlockInput::new(self.rules, &self.header, &self.transactions, &self.senders)
        }
    }
}

const fn sender(index: u8) -> Address {
    Address::repeat_byte(0x10 + index)
}

const fn contract(index: u8) -> Address {
    Address::repeat_byte(0xc0 + index)
}

/// Init code of a contract that destroys itself when it is called.
const MORTAL: &[u8] = &[0x61, 0x33, 0xff, 0x60, 0, 0x52, 0x60, 2, 0x60, 30, 0xf3];
/// The same, but the contract has a slot.
const MORTAL_WITH_SLOT: &[u8] = &[
    0x60, 7, 0x60, 1, 0x55, 0x61, 0x33, 0xff, 0x60, 0, 0x52, 0x60, 2, 0x60, 30, 0xf3,
];
/// Init code that destroys the contract during its creation.
const STILLBORN: &[u8] = &[0x60, 7, 0x60, 1, 0x55, 0x33, 0xff];
/// Init code of a contract that destroys itself when it is called with a value, and logs a slot otherwise.
const MORTAL_READER: &[u8] = &[
    0x6f, 0x34, 0x60, 13, 0x57, 0x60, 1, 0x54, 0x60, 0, 0x60, 0, 0xa1, 0, 0x5b, 0x33, 0xff, 0x60,
    0, 0x52, 0x60, 16, 0x60, 16, 0xf3,
];
/// The code of such a contract.
const MORTAL_READER_CODE: &[u8] = MORTAL_READER.split_at(1).1.split_at(16).0;

impl RandomBlocks {
    /// Creates a generator in which everything follows from `seed`, and the pre-state of its first
    /// block.
    pub fn new(seed: u64) -> (Self, Model) {
        Self::with(seed, false)
    }

    /// As [`new`](Self::new), but blocks mostly call, destroy and create again a few contracts, some of
    /// which there are at first, with a slot, and which may be the miner.
    pub fn of_mortals(seed: u64) -> (Self, Model) {
        Self::with(seed, true)
    }

    fn with(seed: u64, has_mortals: bool) -> (Self, Model) {
        let mut random = Random::new(seed);
        let network = NETWORKS[random.below(NETWORKS.len() as u64) as usize];
        let mut pool: Vec<_> = (0..SENDERS).map(sender).collect();
        pool.extend((0..CONTRACTS).map(contract));
        pool.extend([Address::with_last_byte(2), Address::repeat_byte(0xfe)]);
        pool.push(Address::repeat_byte(0xf0));
        for creator in 0..CONTRACTS {
            for code in [MORTAL, MORTAL_WITH_SLOT, STILLBORN] {
                pool.push(contract(creator).create2(B256::ZERO, keccak256(code)));
            }
        }
        let mut mortal = Vec::new();
        if has_mortals {
            for code in [MORTAL_READER, MORTAL_WITH_SLOT] {
                mortal.extend(
                    [0, 1].map(|creator| contract(creator).create2(B256::ZERO, keccak256(code))),
                );
            }
        }
        let mut blocks = Self {
            random,
            network,
            pool,
            mortal,
            number: 0,
        };
        let state = blocks.first_state();
        (blocks, state)
    }

    fn first_state(&mut self) -> Model {
        let mut state = Model::default();
        let rich = U256::from(10).pow(U256::from(20));
        let mut accounts = Vec::new();
        let mut put = |address: Address, nonce, balance, code_hash, slots| {
            let account = Account {
                nonce,
                balance,
                code_hash,
            };
            accounts.push(AccountDiff {
                path: keccak256(address),
                account: AccountUpdate::Put(account),
                wipe: false,
                slots,
            });
        };
        for index in 0..SENDERS {
            let balance = if index == POOR {
                U256::from(LITTLE)
            } else {
                rich
            };
            put(sender(index), 0, balance, KECCAK256_EMPTY, Vec::new());
        }
        let mut codes = Vec::new();
        for index in 0..CONTRACTS {
            let code = self.code();
            let slots = (0..SLOTS).filter_map(|slot| {
                let value = U256::from(self.random.below(3));
                let path = keccak256(U256::from(slot).to_be_bytes::<32>());
                (!value.is_zero()).then_some((path, value))
            });
            let slots = slots.collect();
            let balance = U256::from(self.random.below(4));
            put(contract(index), 1, balance, keccak256(&code), slots);
            codes.push((keccak256(&code), code));
        }
        let reader = Bytes::from_static(MORTAL_READER_CODE);
        for address in self.mortal.iter().take(2) {
            let slot = keccak256(U256::from(1).to_be_bytes::<32>());
            let slots = vec![(slot, U256::from(5))];
            put(*address, 1, U256::ZERO, keccak256(&reader), slots);
        }
        codes.push((keccak256(&reader), reader));
        // The system contracts stop at once.
        let stop = Bytes::from_static(&[0]);
        for contract in [
            WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
            CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
        ] {
            put(contract, 1, U256::ZERO, keccak256(&stop), Vec::new());
        }
        codes.push((keccak256(&stop), stop));
        state.apply(&Changes::new(accounts));
        state.add_codes(codes);
        state
    }

    /// Returns the next block. `state` is its pre-state.
    pub fn block(&mut self, state: &Model) -> RandomBlock {
        self.number += 1;
        let fork = NETWORKS.iter().position(|name| *name == self.network);
        let merged = fork >= Some(3);
        let spec = network(self.network).expect("a network that is known");
        let rules = spec.rules_at(self.number, 0, merged);
        let is = |fork| rules.is(fork);
        // A low limit, so that sometimes not all transactions fit.
        let is_small = self.random.percent(5);
        let header = Header {
            number: self.number,
            timestamp: self.number,
            gas_limit: if is_small { 800_000 } else { 60_000_000 },
            beneficiary: self.miner(),
            difficulty: U256::from(u8::from(!merged)),
            base_fee_per_gas: is(SpecId::LONDON).then_some(7),
            excess_blob_gas: is(SpecId::CANCUN).then_some(0),
            parent_beacon_block_root: is(SpecId::CANCUN).then_some(B256::repeat_byte(3)),
            slot_number: is(SpecId::AMSTERDAM).then_some(self.number),
            ..Header::default()
        };
        let mut nonces: Vec<_> = (0..SENDERS)
            .map(|index| {
                let account = state.account(&keccak256(sender(index)));
                account.map_or(0, |account| account.account.nonce)
            })
            .collect();
        let (mut transactions, mut senders) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.random.below(24) {
            // About half of the transactions are of one sender.
            let index = match self.random.below(100) {
                0..50 => 0,
                50..53 => POOR,
                _ => self.random.below(POOR.into()) as u8,
            };
            let nonce = &mut nonces[usize::from(index)];
            let wrong = u64::from(self.random.below(400) == 0);
            transactions.push(self.transaction(*nonce + wrong, &rules));
            *nonce += 1;
            senders.push(sender(index));
        }
        let count = match is(SpecId::SHANGHAI) {
            true => self.random.below(3),
            false => 0,
        };
        let withdrawals = (0..count).map(|_| Withdrawal {
            address: self.anybody(),
            amount: self.random.below(2),
            ..Withdrawal::default()
        });
        RandomBlock {
            rules,
            header,
            withdrawals: withdrawals.collect(),
            transactions,
            senders,
        }
    }

    fn miner(&mut self) -> Address {
        if !self.mortal.is_empty() && self.random.percent(50) {
            return self.any_mortal();
        }
        match self.random.below(4) {
            0 => sender(0),
            1 => contract(0),
            2 => Address::repeat_byte(0xfe),
            _ => Address::repeat_byte(0xee),
        }
    }

    fn any_mortal(&mut self) -> Address {
        self.mortal[self.random.below(self.mortal.len() as u64) as usize]
    }

    fn anybody(&mut self) -> Address {
        if !self.mortal.is_empty() && self.random.percent(60) {
            return self.any_mortal();
        }
        self.pool[self.random.below(self.pool.len() as u64) as usize]
    }

    fn transaction(&mut self, nonce: u64, rules: &Rules) -> Transaction {
        let (to, value) = match self.random.below(100) {
            0..62 => {
                let to = contract(self.random.below(CONTRACTS.into()) as u8);
                (to, self.random.below(3))
            }
            62..70 => (sender(POOR), LITTLE),
            // Payments to few accounts without code, which mostly do not exist at first.
            70..80 => {
                let to = Address::repeat_byte(0xf0 + self.random.below(2) as u8);
                (to, self.random.below(3))
            }
            _ => (self.anybody(), self.random.below(3)),
        };
        let value = U256::from(value);
        let gas_limit = 60_000 + self.random.below(700_000);
        let price = 7 + u128::from(self.random.below(3));
        let signature = Signature::test_signature();
        let kind = self.random.below(10);
        if kind == 0 && rules.is(SpecId::PRAGUE) {
            let authorization_list = (0..1 + self.random.below(2)).map(|_| self.authorization());
            let transaction = TxEip7702 {
                chain_id: rules.chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: price,
                max_priority_fee_per_gas: 1,
                to,
                value,
                authorization_list: authorization_list.collect(),
                ..TxEip7702::default()
            };
            return transaction.into_signed(signature).into();
        }
        let (to, input) = match kind {
            1 => (TxKind::Create, self.init_code()),
            _ => (TxKind::Call(to), Bytes::new()),
        };
        if rules.is(SpecId::LONDON) && kind < 6 {
            let transaction = TxEip1559 {
                chain_id: rules.chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: price,
                max_priority_fee_per_gas: u128::from(self.random.below(2)),
                to,
                value,
                input,
                ..TxEip1559::default()
            };
            return transaction.into_signed(signature).into();
        }
        let transaction = TxLegacy {
            nonce,
            gas_limit,
            gas_price: price,
            to,
            value,
            input,
            ..TxLegacy::default()
        };
        transaction.into_signed(signature).into()
    }

    /// An authorization by which an account, fixed for each delegate, delegates to a contract or to
    /// the zero address.
    fn authorization(&mut self) -> SignedAuthorization {
        let delegate = match self.random.percent(25) {
            true => Address::ZERO,
            false => contract(self.random.below(3) as u8),
        };
        let authorization = Authorization {
            chain_id: U256::ZERO,
            address: delegate,
            nonce: self.random.below(2),
        };
        authorization.into_signed(Signature::test_signature())
    }

    fn init_code(&mut self) -> Bytes {
        if !self.mortal.is_empty() {
            let code = [MORTAL_READER, MORTAL_WITH_SLOT];
            return Bytes::from_static(code[self.random.below(2) as usize]);
        }
        let code = [MORTAL, MORTAL_WITH_SLOT, STILLBORN];
        Bytes::from_static(code[self.random.below(3) as usize])
    }

    /// Returns code with a few random actions.
    fn code(&mut self) -> Bytes {
        let mut code = Vec::new();
        for _ in 0..2 + self.random.below(5) {
            self.extend_code(&mut code);
        }
        code.push(0);
        code.into()
    }

    fn extend_code(&mut self, code: &mut Vec<u8>) {
        let (slot, other) = (self.slot(), self.slot());
        let store = [0x60, slot, 0x55];
        let action = match self.mortal.is_empty() {
            true => self.random.below(12),
            // Calls, creations and conditions.
            false => [5, 6, 7, 8, 8, 9, 0][self.random.below(7) as usize],
        };
        match action {
            0..=2 => {
                let add = self.random.below(3) as u8;
                code.extend([0x60, add, 0x60, other, 0x54, 0x01]);
                code.extend(store);
            }
            3 => {
                self.push_anybody(code);
                code.push(if self.random.percent(50) { 0x31 } else { 0x3b });
                code.extend(store);
            }
            // Reads the balance of the miner, or that of the contract.
            4 => {
                let is_own = !matches!(self.network, "Byzantium") && self.random.percent(30);
                let op: &[u8] = if is_own { &[0x47] } else { &[0x41, 0x31] };
                code.extend(op);
                code.extend(store);
            }
            5..=7 => {
                // CALL, CALLCODE, DELEGATECALL, STATICCALL.
                let (op, has_value) = [(0xf1, true), (0xf2, true), (0xf4, false), (0xfa, false)]
                    [[0, 0, 0, 1, 2, 2, 3][self.random.below(7) as usize]];
                code.extend([0x60, 0, 0x60, 0, 0x60, 0, 0x60, 0]);
                if has_value {
                    code.extend([0x60, self.random.below(2) as u8]);
                }
                self.push_anybody(code);
                code.extend([0x62, 1, 0, 0, op, 0x50]);
            }
            8 => {
                let init = self.init_code();
                let (len, value) = (init.len() as u8, self.random.below(2) as u8);
                code.push(0x5f + len);
                code.extend_from_slice(&init);
                code.extend([0x60, 0, 0x52]);
                // CREATE2 by salt 0, or before there is that, and now and then, CREATE.
                let create2 = self.network != "Byzantium" && self.random.percent(75);
                if create2 {
                    code.extend([0x60, 0]);
                }
                code.extend([0x60, len, 0x60, 32 - len, 0x60, value]);
                code.push(if create2 { 0xf5 } else { 0xf0 });
                code.extend(store);
            }
            9 => {
                // Whether execution continues depends on a slot.
                let end = code.len() + 15;
                code.extend([0x60, other, 0x54, 0x60, 1, 0x16, 0x61]);
                code.extend([(end >> 8) as u8, end as u8, 0x57]);
                code.extend([0x60, 0, 0x60, 0, 0xfd, 0x5b]);
                debug_assert_eq!(code.len(), end + 1);
            }
            10 => code.extend([0x60, slot, 0x54, 0x60, 0, 0x60, 0, 0xa1]),
            _ if self.random.percent(30) => {
                self.push_anybody(code);
                code.push(0xff);
            }
            _ => {
                self.push_anybody(code);
                code.push(if self.network == "Byzantium" {
                    0x3b
                } else {
                    0x3f
                });
                code.extend(store);
            }
        }
    }

    fn slot(&mut self) -> u8 {
        self.random.below(SLOTS) as u8
    }

    fn push_anybody(&mut self, code: &mut Vec<u8>) {
        let address = self.anybody();
        code.push(0x73);
        code.extend_from_slice(address.as_slice());
    }
}
