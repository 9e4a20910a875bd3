//! The workload's contracts, by what they do in our own EVM, and their codes, by what `solc` makes
//! of their sources.

use crate::support::model::Model;
use alloy_consensus::{BlockBody, Header, SignableTransaction, TxEip1559};
use alloy_primitives::{
    Address, B256, Bytes, Log, Signature, TxKind, U256, address, b256, hex, keccak256, uint,
};
use cambium_chain::{Block, Fork};
use cambium_evm::{Outcome, Receipt};
use cambium_primitives::AccessList;
use cambium_workload::{
    ROUTER, SLOT_READER, Spread, TOKEN, Workload, WorkloadParams, token_balance_slot,
};
use revm::{
    Context, ExecuteEvm, MainBuilder, MainContext,
    context::{TxEnv, result::ExecutionResult},
    database::CacheDB,
};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

/// Events as they are in mainnet's logs.
const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
const APPROVAL: B256 = b256!("8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925");
const SWAP: B256 = b256!("d78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822");
const SYNC: B256 = b256!("1c411e9a96e071241c2f21f7726b17ae89e3cab4c78be50e062b03a9fffbbad1");

/// Balance of a token that each holder and pool has.
const UNITS: U256 = uint!(1_000_000_000_000_000_000_000_000_U256);
const ONE: U256 = uint!(1_U256);
const NOBODY: Address = address!("00000000000000000000000000000000000000ff");
const GENESIS_TIMESTAMP: u64 = 1_700_000_000;
const BLOCK_SECONDS: u64 = 12;

/// A workload's genesis state, and blocks of one transaction on it.
struct World {
    workload: Workload,
    model: Model,
    blocks: u64,
    nonces: BTreeMap<Address, u64>,
    access_list: AccessList,
}

impl World {
    fn new() -> Self {
        let params = WorkloadParams {
            fork: Fork::Amsterdam,
            accounts: 10,
            senders: Some(4),
            erc20_percent: 30,
            swap_percent: 30,
            slot_read_percent: 30,
            pools: 3,
            slots: 8_000,
            pool_spread: Spread::Uniform,
            ..WorkloadParams::default()
        };
        let workload = Workload::new(params).unwrap();
        Self {
            model: Model::of(&workload),
            workload,
            blocks: 0,
            nonces: BTreeMap::new(),
            access_list: AccessList::default(),
        }
    }

    fn sender(&self, index: u64) -> Address {
        self.workload.address(index)
    }

    /// Executes a block of one transaction.
    fn send(&mut self, from: Address, to: Address, input: &[u8], gas_limit: u64) -> Receipt {
        self.blocks += 1;
        let nonce = self.nonces.entry(from).or_default();
        let transaction = TxEip1559 {
            chain_id: self.workload.params().chain_id,
            nonce: *nonce,
            gas_limit,
            max_fee_per_gas: 1,
            to: TxKind::Call(to),
            input: Bytes::copy_from_slice(input),
            ..TxEip1559::default()
        };
        *nonce += 1;
        let transaction = transaction.into_signed(Signature::test_signature()).into();
        let header = Header {
            number: self.blocks,
            timestamp: GENESIS_TIMESTAMP + BLOCK_SECONDS * self.blocks,
            gas_limit: 1 << 25,
            base_fee_per_gas: Some(1),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(B256::ZERO),
            ..Header::default()
        };
        let body = BlockBody {
            transactions: vec![transaction],
            ommers: vec![],
            withdrawals: Some(Default::default()),
        };
        let spec = self.workload.params().spec();
        let block = Block::new(header, body);
        let Outcome {
            mut receipts,
            changes,
            access_list,
            ..
        } = self.model.execute_as(&spec, &block, &[from]);
        self.model.apply(&changes);
        self.access_list = access_list.unwrap();
        receipts.pop().unwrap()
    }

    /// Calls a contract, which must succeed; its logs.
    fn logs(&mut self, from: Address, to: Address, input: &[u8]) -> Vec<Log> {
        let receipt = self.send(from, to, input, 1_000_000);
        assert!(receipt.status());
        receipt.logs().to_vec()
    }

    /// Result of a call: its output, or its revert data.
    fn call(&self, from: Address, to: Address, input: &[u8], value: u64) -> Result<Bytes, Bytes> {
        let mut evm = Context::mainnet()
            .with_db(CacheDB::new(&self.model))
            .modify_block_chained(|block| block.timestamp = U256::from(GENESIS_TIMESTAMP))
            .build_mainnet();
        let nonce = self.nonces.get(&from).copied().unwrap_or_default();
        let tx = TxEnv::builder()
            .caller(from)
            .to(to)
            .data(Bytes::copy_from_slice(input))
            .value(U256::from(value))
            .gas_limit(1_000_000)
            .nonce(nonce)
            .build()
            .unwrap();
        match evm.transact(tx).unwrap().result {
            ExecutionResult::Success { output, .. } => Ok(output.into_data()),
            ExecutionResult::Revert { output, .. } => Err(output),
            halt => panic!("{halt:?}"),
        }
    }

    /// Result of a call that returns a number.
    fn ask(&self, to: Address, input: &[u8]) -> U256 {
        U256::from_be_slice(&self.call(NOBODY, to, input, 0).unwrap())
    }

    fn balance(&self, token: Address, holder: Address) -> U256 {
        let said = self.ask(token, &abi("balanceOf(address)", &[word(holder)]));
        assert_eq!(said, self.model.slot(token, token_balance_slot(&holder)));
        said
    }

    /// Reserves in the order of the pool's tokens, and the time of the last swap.
    fn reserves(&self, pair: Address) -> [U256; 3] {
        let output = self.call(NOBODY, pair, &abi("getReserves()", &[]), 0);
        let output = output.unwrap();
        std::array::from_fn(|at| U256::from_be_slice(&output[32 * at..32 * (at + 1)]))
    }
}

/// A call: the signature's selector, and the arguments.
fn abi(signature: &str, arguments: &[U256]) -> Vec<u8> {
    let mut call = keccak256(signature)[..4].to_vec();
    call.extend(words(arguments));
    call
}

fn words(words: &[U256]) -> Vec<u8> {
    words
        .iter()
        .flat_map(|word| word.to_be_bytes::<32>())
        .collect()
}

fn word(address: Address) -> U256 {
    U256::from_be_bytes(address.into_word().0)
}

/// Revert data of `require`.
fn error(reason: &str) -> Bytes {
    assert!(reason.len() <= 32);
    let mut output = abi("Error(string)", &[U256::from(32), U256::from(reason.len())]);
    output.extend(reason.as_bytes());
    output.resize(4 + 3 * 32, 0);
    output.into()
}

fn transfer(to: U256, amount: U256) -> Vec<u8> {
    abi("transfer(address,uint256)", &[to, amount])
}

fn assert_log(log: &Log, of: Address, topics: &[B256], data: &[U256]) {
    assert_eq!(log.address, of);
    assert_eq!(log.topics(), topics);
    assert_eq!(log.data.data, words(data));
}

#[test]
fn a_token_transfer_moves_units_and_logs_them() {
    let mut world = World::new();
    let (from, amount) = (world.sender(0), U256::from(123));
    for to in [world.sender(1), NOBODY, from] {
        let before = [from, to].map(|holder| world.balance(TOKEN, holder));
        let logs = world.logs(from, TOKEN, &transfer(word(to), amount));
        let topics = [TRANSFER, from.into_word(), to.into_word()];
        assert_log(&logs[0], TOKEN, &topics, &[amount]);
        assert_eq!(logs.len(), 1);
        let after = [from, to].map(|holder| world.balance(TOKEN, holder));
        if from == to {
            assert_eq!(after, before);
        } else {
            assert_eq!(after, [before[0] - amount, before[1] + amount]);
        }
    }
    let yes = world.call(from, TOKEN, &transfer(word(NOBODY), ONE), 0);
    assert_eq!(yes.unwrap(), words(&[ONE]));
}

#[test]
fn a_token_has_the_supply_that_its_holders_have() {
    let world = World::new();
    let pools: Vec<_> = (0..3).map(|index| world.workload.pool(index)).collect();
    let pairs: Vec<_> = pools.iter().map(|pool| pool.pair).collect();
    let senders: Vec<_> = (0..4).map(|index| world.sender(index)).collect();
    let supply = |token, holders: &[Address]| {
        let held = holders.iter().map(|holder| world.balance(token, *holder));
        let held: Vec<_> = held.collect();
        assert!(held.iter().all(|held| *held == UNITS));
        let supply = world.ask(token, &abi("totalSupply()", &[]));
        assert_eq!(supply, held.into_iter().sum::<U256>());
    };
    supply(TOKEN, &[&senders[..], &pairs].concat());
    for pool in &pools {
        supply(pool.token, &[&senders[..], &[pool.pair]].concat());
    }
    assert_eq!(world.balance(TOKEN, world.sender(9)), U256::ZERO);
    assert_eq!(world.ask(TOKEN, &abi("decimals()", &[])), U256::from(18));
    let text = |call: &str| {
        let output = world.call(NOBODY, TOKEN, &abi(call, &[]), 0).unwrap();
        let length = U256::from_be_slice(&output[32..64]).to::<usize>();
        String::from_utf8(output[64..64 + length].to_vec()).unwrap()
    };
    assert_eq!(text("name()"), "Cambium Workload Token");
    assert_eq!(text("symbol()"), "RING");
}

#[test]
fn an_allowance_is_used_up_unless_it_has_no_end() {
    let mut world = World::new();
    let [owner, spender] = [0, 1].map(|index| world.sender(index));
    let allowance = |world: &World| {
        let call = abi("allowance(address,address)", &[word(owner), word(spender)]);
        world.ask(TOKEN, &call)
    };
    let approve = |amount| abi("approve(address,uint256)", &[word(spender), amount]);
    let take = |amount| {
        let arguments = [word(owner), word(NOBODY), amount];
        abi("transferFrom(address,address,uint256)", &arguments)
    };
    let insufficient = |there, wanted| {
        let signature = "InsufficientAllowance(uint256,uint256)";
        Err(Bytes::from(abi(signature, &[there, wanted])))
    };
    let [five, eight] = [5, 8].map(U256::from);
    let refused = world.call(spender, TOKEN, &take(ONE), 0);
    assert_eq!(refused, insufficient(U256::ZERO, ONE));

    let logs = world.logs(owner, TOKEN, &approve(eight));
    let topics = [APPROVAL, owner.into_word(), spender.into_word()];
    assert_log(&logs[0], TOKEN, &topics, &[eight]);
    assert_eq!(allowance(&world), eight);
    let logs = world.logs(spender, TOKEN, &take(five));
    let topics = [TRANSFER, owner.into_word(), NOBODY.into_word()];
    assert_log(&logs[0], TOKEN, &topics, &[five]);
    assert_eq!(world.balance(TOKEN, NOBODY), five);
    assert_eq!(world.balance(TOKEN, owner), UNITS - five);
    assert_eq!(allowance(&world), eight - five);
    let refused = world.call(spender, TOKEN, &take(five), 0);
    assert_eq!(refused, insufficient(eight - five, five));

    world.logs(owner, TOKEN, &approve(U256::MAX));
    world.logs(spender, TOKEN, &take(five));
    assert_eq!(world.balance(TOKEN, NOBODY), five + five);
    assert_eq!(allowance(&world), U256::MAX);
}

#[test]
fn a_token_refuses_what_it_cannot_do() {
    let world = World::new();
    let (holder, other) = (world.sender(0), word(world.sender(9)));
    let call = |input: &[u8], value| world.call(holder, TOKEN, input, value);
    let insufficient = abi(
        "InsufficientBalance(uint256,uint256)",
        &[UNITS, UNITS + ONE],
    );
    assert_eq!(call(&transfer(other, UNITS), 0).unwrap(), words(&[ONE]));
    let refused = call(&transfer(other, UNITS + ONE), 0);
    assert_eq!(refused, Err(insufficient.into()), "more than there is");
    let nothing = Err(Bytes::new());
    let refused = call(&transfer(other, ONE), 1);
    assert_eq!(refused, nothing, "ether sent along");
    let refused = call(&transfer(other | (ONE << 160), ONE), 0);
    assert_eq!(refused, nothing, "not an address");
    assert_eq!(
        call(&[0xde, 0xad, 0xbe, 0xef], 0),
        nothing,
        "no such function"
    );
    assert_eq!(call(&[], 0), nothing, "no function");
}

/// The router's call to swap along a path.
fn swap(amount_in: U256, min: U256, path: &[Address], to: Address, deadline: u64) -> Vec<u8> {
    let mut arguments = vec![
        amount_in,
        min,
        U256::from(5 * 32),
        word(to),
        U256::from(deadline),
        U256::from(path.len()),
    ];
    arguments.extend(path.iter().map(|token| word(*token)));
    let signature = "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)";
    abi(signature, &arguments)
}

/// Output of a pool that keeps 0.3 % of its input, and its product.
fn quote(amount_in: U256, reserve_in: U256, reserve_out: U256) -> U256 {
    let product = reserve_in * reserve_out * U256::from(1000);
    let reserve_in_after = reserve_in * U256::from(1000) + amount_in * U256::from(997);
    // Rounded up, in favor of the pool.
    let left = (product + reserve_in_after - ONE) / reserve_in_after;
    reserve_out - left
}

#[test]
fn swaps_there_and_back_keep_to_the_constant_product() {
    let mut world = World::new();
    let pool = world.workload.pool(1);
    let (trader, receiver) = (world.sender(2), world.sender(9));
    let tokens = [TOKEN.min(pool.token), TOKEN.max(pool.token)];
    let mut sums = [3, 4].map(|slot| world.model.slot(pool.pair, B256::with_last_byte(slot)));
    let mut product = UNITS * UNITS;
    for (round, (is_first_in, amount_in)) in [
        (true, UNITS / U256::from(7)),
        (true, ONE + ONE),
        (false, UNITS / U256::from(3)),
        (true, UNITS / U256::from(1_000_003)),
    ]
    .into_iter()
    .enumerate()
    {
        let before = world.reserves(pool.pair);
        let (of_in, of_out) = if is_first_in { (0, 1) } else { (1, 0) };
        let path = [tokens[of_in], tokens[of_out]];
        let amount_out = quote(amount_in, before[of_in], before[of_out]);
        let held = [
            world.balance(path[0], trader),
            world.balance(path[1], receiver),
        ];
        let call = swap(amount_in, amount_out, &path, receiver, u64::MAX);
        let logs = world.logs(trader, ROUTER, &call);

        let mut after = before;
        after[of_in] += amount_in;
        after[of_out] -= amount_out;
        after[2] = U256::from(GENESIS_TIMESTAMP + BLOCK_SECONDS * (round as u64 + 1));
        assert_eq!(world.reserves(pool.pair), after);
        assert_eq!(world.balance(path[0], trader), held[0] - amount_in);
        assert_eq!(world.balance(path[1], receiver), held[1] + amount_out);
        let pair_holds = tokens.map(|token| world.balance(token, pool.pair));
        assert_eq!(pair_holds, after[..2]);
        assert!(after[0] * after[1] >= product, "the product never falls");
        product = after[0] * after[1];

        let [trader, receiver, pair] = [trader, receiver, pool.pair].map(|a| a.into_word());
        assert_log(&logs[0], path[0], &[TRANSFER, trader, pair], &[amount_in]);
        assert_log(
            &logs[1],
            path[1],
            &[TRANSFER, pair, receiver],
            &[amount_out],
        );
        assert_log(&logs[2], pool.pair, &[SYNC], &after[..2]);
        let mut amounts = [U256::ZERO; 4];
        (amounts[of_in], amounts[2 + of_out]) = (amount_in, amount_out);
        let topics = [SWAP, ROUTER.into_word(), receiver];
        assert_log(&logs[3], pool.pair, &topics, &amounts);
        assert_eq!(logs.len(), 4);

        for (sum, (own, other)) in sums.iter_mut().zip([(0, 1), (1, 0)]) {
            let price = (before[other] << 112) / before[own];
            *sum += price * U256::from(BLOCK_SECONDS);
        }
        let said = ["price0CumulativeLast()", "price1CumulativeLast()"];
        assert_eq!(said.map(|call| world.ask(pool.pair, &abi(call, &[]))), sums);
    }
}

#[test]
fn a_swap_over_two_pools_hands_on_what_the_first_gives() {
    let mut world = World::new();
    let [from, to] = [0, 2].map(|index| world.workload.pool(index));
    let trader = world.sender(0);
    let path = [from.token, TOKEN, to.token];
    let between = quote(UNITS / U256::from(10), UNITS, UNITS);
    let out = quote(between, UNITS, UNITS);
    let call = swap(UNITS / U256::from(10), out, &path, trader, u64::MAX);
    let amounts = world.call(trader, ROUTER, &call, 0).unwrap();
    let amounts: Vec<_> = amounts[64..].chunks(32).map(U256::from_be_slice).collect();
    assert_eq!(amounts, [UNITS / U256::from(10), between, out]);
    world.logs(trader, ROUTER, &call);
    assert_eq!(world.balance(to.token, trader), UNITS + out);
    assert_eq!(world.balance(TOKEN, trader), UNITS);
    assert_eq!(world.balance(TOKEN, to.pair), UNITS + between);
}

#[test]
fn swaps_that_would_take_from_a_pool_are_refused() {
    let mut world = World::new();
    let pool = world.workload.pool(0);
    let (trader, stranger) = (world.sender(1), world.sender(9));
    let (path, ten) = ([TOKEN, pool.token], U256::from(10));
    let router = |from, call: &[u8]| world.call(from, ROUTER, call, 0);
    let call = |min, path: &[Address], deadline| swap(ten, min, path, trader, deadline);
    assert!(router(trader, &call(ONE, &path, GENESIS_TIMESTAMP)).is_ok());
    let refused = router(trader, &call(ONE, &path, GENESIS_TIMESTAMP - 1));
    assert_eq!(refused, Err(error("expired")));
    let refused = router(trader, &call(ten, &path, u64::MAX));
    assert_eq!(refused, Err(error("too little output")));
    let refused = router(trader, &call(ONE, &path[..1], u64::MAX));
    assert_eq!(refused, Err(error("no path")));
    let refused = router(trader, &swap(U256::ZERO, ONE, &path, trader, u64::MAX));
    assert_eq!(refused, Err(error("nothing to swap")));
    let refused = router(trader, &call(ONE, &[TOKEN, NOBODY], u64::MAX));
    assert_eq!(refused, Err(Bytes::new()), "no such pool");
    let allowance = "InsufficientAllowance(uint256,uint256)";
    let refused = router(stranger, &swap(ten, ONE, &path, stranger, u64::MAX));
    assert_eq!(refused, Err(abi(allowance, &[U256::ZERO, ten]).into()));

    let direct = |first: U256, second: U256, to: Address| {
        abi("swap(uint256,uint256,address)", &[first, second, word(to)])
    };
    let pair = |world: &World, call: &[u8]| world.call(trader, pool.pair, call, 0);
    let zero = U256::ZERO;
    for (call, reason) in [
        (direct(zero, zero, trader), "no output"),
        (direct(UNITS, zero, trader), "too little liquidity"),
        (direct(zero, UNITS, trader), "too little liquidity"),
        (direct(ten, zero, TOKEN), "to a token"),
        (direct(ten, zero, pool.token), "to a token"),
        (direct(ten, zero, trader), "no input"),
    ] {
        assert_eq!(pair(&world, &call), Err(error(reason)));
    }
    // Paid in first: then what makes up for it is given out, and no unit more.
    world.logs(trader, TOKEN, &transfer(word(pool.pair), UNITS));
    let out = quote(UNITS, UNITS, UNITS);
    let give = |out| match TOKEN < pool.token {
        true => direct(zero, out, trader),
        false => direct(out, zero, trader),
    };
    assert_eq!(pair(&world, &give(out + ONE)), Err(error("product")));
    assert!(pair(&world, &give(out)).is_ok());
    let locked = world.model.slots.get_mut(&keccak256(pool.pair)).unwrap();
    locked.remove(&keccak256(B256::with_last_byte(5)));
    assert_eq!(pair(&world, &give(out)), Err(error("locked")));
}

#[test]
fn a_slot_read_uses_up_its_gas_on_slots_that_are_there_and_cold() {
    let mut world = World::new();
    let count = U256::from(8_000);
    assert_eq!(world.ask(SLOT_READER, &abi("count()", &[])), count);
    for (reader, seed, gas) in [(0, 7, 16_000_000), (0, 8, 1 << 24), (1, 7, 100_000)] {
        let reader = world.sender(reader);
        let call = abi("read(uint256)", &[U256::from(seed)]);
        let receipt = world.send(reader, SLOT_READER, &call, gas);
        assert!(receipt.status());
        let used = receipt.cumulative_gas_used();
        assert!(gas - used < 6_000, "{} gas is left", gas - used);

        let mut derived = words(&[word(reader), U256::from(seed)]);
        let first = U256::from_be_bytes(keccak256(&derived).0) % count;
        let log = &receipt.logs()[0];
        let reads = U256::from_be_slice(&log.data.data[..32]).to::<u64>();
        let expected = (gas - 30_000) / 2_220;
        assert!(
            reads.abs_diff(expected) <= 1 + expected / 100,
            "{reads} reads"
        );
        let mut digest = U256::ZERO;
        let mut slots = BTreeSet::from([U256::ZERO]);
        for index in 0..reads {
            derived = words(&[(first + U256::from(index)) % count, ONE]);
            let slot = keccak256(&derived);
            let value = world.model.slot(SLOT_READER, slot);
            assert_ne!(value, U256::ZERO);
            digest ^= value;
            slots.insert(slot.into());
        }
        let event = keccak256("Read(address,uint256,uint256)");
        let topics = [event, reader.into_word()];
        assert_log(log, SLOT_READER, &topics, &[U256::from(reads), digest]);

        let accounts = world.access_list.accounts().iter();
        let mut accounts = accounts.filter(|account| account.address == SLOT_READER);
        let listed: BTreeSet<_> = accounts
            .next()
            .unwrap()
            .storage_reads
            .iter()
            .copied()
            .collect();
        assert_eq!(
            listed.len() as u64,
            reads + 1,
            "each read is of another slot"
        );
        assert_eq!(listed, slots);
    }
}

fn contracts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/contracts")
}

/// The codes that are kept.
fn kept() -> BTreeMap<String, String> {
    let mut codes = BTreeMap::new();
    for entry in fs::read_dir(contracts()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "hex") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            codes.insert(name, fs::read_to_string(path).unwrap().trim().to_owned());
        }
    }
    codes
}

#[test]
fn sources_and_codes_are_those_that_were_compiled_together() {
    let sums = fs::read_to_string(contracts().join("SHA256SUMS")).unwrap();
    let mut listed = BTreeSet::new();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let bytes = fs::read(contracts().join(name)).unwrap();
        let found = hex::encode(Sha256::digest(bytes));
        assert_eq!(found, sum, "{name} has changed: run contracts/compile");
        listed.insert(name.to_owned());
    }
    let files = fs::read_dir(contracts()).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let expected = files.filter(|name| !["SHA256SUMS", "compile", "mod.rs"].contains(&&**name));
    assert_eq!(listed, expected.collect());
    let names: Vec<_> = kept().into_keys().collect();
    assert_eq!(names, ["Pair", "Router", "SlotReader", "Token"]);
}

#[test]
fn codes_are_what_solc_makes_of_the_sources() {
    let solc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/solc");
    if !solc.join(".installed").exists() {
        let skipped = "SKIPPED: the workload's contracts are not compiled again, for want of solc: \
                       with node and npm, contracts/compile --install gets it";
        // Past the test harness, which keeps what passing tests print to itself.
        let _ = writeln!(io::stdout().lock(), "{skipped}");
        return;
    }
    let script = contracts().join("compile.mjs");
    let run = Command::new("node").arg(script).arg(solc).output();
    let run = run.expect("node is there, as solc is");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let made: BTreeMap<String, String> = serde_json::from_slice(&run.stdout).unwrap();
    assert!(
        made == kept(),
        "solc makes other codes: run contracts/compile"
    );
}
