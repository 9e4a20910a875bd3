//! Workloads: generated twice they are the same bytes, and what is generated is a valid chain.

mod support;

use alloy_consensus::{Block as AnyBlock, Transaction as _, proofs::calculate_receipt_root};
use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, b256, bytes, keccak256};
use cambium_chain::{
    Block, BlockSealer, BlockSource, ChainSpec, ChainWriter, Fork, Genesis, GenesisAccount, Spread,
    TOKEN, Workload, WorkloadError, WorkloadParams, token_balance_slot, validate_body,
    validate_header, verify_outcome,
};
use cambium_evm::{BlockInput, Executor, Outcome, Sequential, StateRead, recover_senders};
use cambium_primitives::{AccountUpdate, Changes};
use revm::{DatabaseRef, bytecode::Bytecode, state::AccountInfo};
use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    io::{BufWriter, Write},
    path::Path,
};

/// A state too simple to be wrong: maps by path.
#[derive(Default)]
struct Model {
    accounts: BTreeMap<B256, cambium_primitives::Account>,
    slots: BTreeMap<B256, BTreeMap<B256, U256>>,
    codes: HashMap<B256, Bytecode>,
    hashes: HashMap<u64, B256>,
}

impl Model {
    fn insert(&mut self, address: Address, account: GenesisAccount) {
        let GenesisAccount {
            balance,
            nonce,
            code,
            storage,
        } = account;
        let path = keccak256(address);
        let mut code_hash = KECCAK256_EMPTY;
        if !code.is_empty() {
            code_hash = keccak256(&code);
            self.codes.insert(code_hash, Bytecode::new_raw(code));
        }
        self.accounts.insert(
            path,
            cambium_primitives::Account {
                nonce,
                balance,
                code_hash,
            },
        );
        if !storage.is_empty() {
            let slots = storage
                .into_iter()
                .map(|(slot, value)| (keccak256(slot), value));
            self.slots.insert(path, slots.collect());
        }
    }

    fn apply(&mut self, changes: &Changes) {
        for change in changes.accounts() {
            if change.wipe || change.account == AccountUpdate::Delete {
                self.slots.remove(&change.path);
            }
            match change.account {
                AccountUpdate::Keep => {}
                AccountUpdate::Put(account) => drop(self.accounts.insert(change.path, account)),
                AccountUpdate::Delete => drop(self.accounts.remove(&change.path)),
            }
            for &(slot, value) in &change.slots {
                let slots = self.slots.entry(change.path).or_default();
                if value.is_zero() {
                    slots.remove(&slot)
                } else {
                    slots.insert(slot, value)
                };
            }
        }
    }

    fn root(&self) -> B256 {
        let storage_root = |path| {
            alloy_trie::root::storage_root(
                self.slots
                    .get(path)
                    .into_iter()
                    .flatten()
                    .map(|(k, v)| (*k, *v)),
            )
        };
        alloy_trie::root::state_root(self.accounts.iter().map(|(path, account)| {
            let account = alloy_trie::TrieAccount {
                nonce: account.nonce,
                balance: account.balance,
                storage_root: storage_root(path),
                code_hash: account.code_hash,
            };
            (*path, account)
        }))
    }

    fn execute(&self, spec: &ChainSpec, block: &Block) -> Outcome {
        let (header, body) = (&block.header, &block.body);
        let senders = recover_senders(&body.transactions, true).unwrap();
        let input = BlockInput {
            rules: spec.rules_at(header.number, header.timestamp, true),
            header,
            transactions: &body.transactions,
            senders: &senders,
            ommers: &[],
            withdrawals: body.withdrawals.as_ref().unwrap(),
        };
        Sequential.execute(&input, self, None).unwrap()
    }
}

impl StateRead for Model {
    fn has_storage(&self, address: Address) -> Result<bool, Infallible> {
        Ok(self
            .slots
            .get(&keccak256(address))
            .is_some_and(|slots| !slots.is_empty()))
    }
}

impl DatabaseRef for Model {
    type Error = Infallible;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Infallible> {
        let account = self.accounts.get(&keccak256(address));
        Ok(account.map(|account| AccountInfo {
            balance: account.balance,
            nonce: account.nonce,
            code_hash: account.code_hash,
            code: None,
            ..AccountInfo::default()
        }))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Infallible> {
        Ok(self.codes.get(&hash).cloned().unwrap_or_default())
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Infallible> {
        let slots = self.slots.get(&keccak256(address));
        let value = slots.and_then(|slots| slots.get(&keccak256(B256::from(slot))));
        Ok(value.copied().unwrap_or_default())
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Infallible> {
        Ok(self.hashes.get(&number).copied().unwrap_or_default())
    }
}

/// Seals drafts by executing them on the model.
struct ModelSealer {
    model: Model,
    spec: ChainSpec,
}

impl BlockSealer for ModelSealer {
    type Error = String;

    fn seal(&mut self, mut draft: Block) -> Result<Block, String> {
        let outcome = self.model.execute(&self.spec, &draft);
        if let Some(at) = outcome
            .receipts
            .iter()
            .position(|receipt| !receipt.status())
        {
            return Err(format!(
                "transaction {at} of block {} reverts",
                draft.header.number
            ));
        }
        self.model.apply(&outcome.changes);
        let header = &mut draft.header;
        header.gas_used = outcome.gas_used;
        header.logs_bloom = outcome.logs_bloom();
        header.receipts_root = calculate_receipt_root(&outcome.receipts);
        header.requests_hash = Some(outcome.requests.requests_hash());
        header.block_access_list_hash = outcome.access_list.map(|list| list.hash());
        header.state_root = self.model.root();
        self.model.hashes.insert(header.number, header.hash_slow());
        Ok(draft)
    }
}

fn sealer(workload: &Workload) -> ModelSealer {
    let mut model = Model::default();
    let filled = workload.for_each_account(|address, account| {
        model.insert(address, account);
        Ok::<_, Infallible>(())
    });
    filled.unwrap();
    ModelSealer {
        model,
        spec: workload.params().spec(),
    }
}

/// Writes the workload's genesis and chain into `dir`; the head's state root.
fn generate(params: &WorkloadParams, dir: &Path) -> B256 {
    let workload = Workload::new(params.clone()).unwrap();
    let file = std::fs::File::create(dir.join("genesis.json")).unwrap();
    let mut out = BufWriter::new(file);
    workload.write_genesis(&mut out).unwrap();
    out.flush().unwrap();
    let mut sealer = sealer(&workload);
    let genesis = workload
        .genesis()
        .header(&params.spec(), sealer.model.root());
    sealer.model.hashes.insert(0, genesis.hash_slow());
    let mut writer = ChainWriter::create(dir.join("chain.rlp")).unwrap();
    let write = |block: &Block| writer.write(block).map_err(|error| error.to_string());
    let head = workload.generate(&genesis, &mut sealer, write).unwrap();
    assert_eq!(writer.finish().unwrap(), params.blocks);
    head.state_root
}

fn small() -> WorkloadParams {
    WorkloadParams {
        accounts: 600,
        senders: Some(40),
        blocks: 6,
        transfers_per_block: 50,
        erc20_percent: 40,
        ..WorkloadParams::default()
    }
}

#[test]
fn a_generated_chain_is_valid_from_its_genesis_to_its_head() {
    for params in [
        small(),
        WorkloadParams {
            fork: Fork::Prague,
            spread: Spread::Zipf,
            seed: 7,
            ..small()
        },
        WorkloadParams {
            fork: Fork::Amsterdam,
            ..small()
        },
        WorkloadParams {
            erc20_percent: 0,
            fresh_percent: 100,
            ..small()
        },
        WorkloadParams {
            accounts: 1,
            senders: None,
            erc20_percent: 100,
            ..small()
        },
    ] {
        let dir = tempfile::tempdir().unwrap();
        let head_root = generate(&params, dir.path());

        let (genesis, accounts) = Genesis::read(dir.path().join("genesis.json")).unwrap();
        assert_eq!(genesis.ignored, [""; 0]);
        assert_eq!(genesis.config, Some(params.spec()));
        let mut model = Model::default();
        for (address, account) in accounts {
            model.insert(address, account);
        }
        let spec = params.spec();
        let mut parent = genesis.header(&spec, model.root());
        let (mut payments, mut tokens) = (0, 0);
        for raw in BlockSource::open(dir.path().join("chain.rlp")).unwrap() {
            let block = raw.unwrap().decode().unwrap();
            let parent_hash = parent.hash_slow();
            model.hashes.insert(parent.number, parent_hash);
            validate_header(&spec, &block.header, &parent, parent_hash, true).unwrap();
            validate_body(&spec, &block, true).unwrap();
            let outcome = model.execute(&spec, &block);
            assert!(
                verify_outcome(&block.header, &outcome, None)
                    .unwrap()
                    .receipts_root
            );
            model.apply(&outcome.changes);
            assert_eq!(block.header.state_root, model.root());
            for (tx, receipt) in block.body.transactions.iter().zip(&outcome.receipts) {
                assert!(receipt.status());
                let is_token = tx.to() == Some(TOKEN);
                assert_eq!(receipt.logs().len(), usize::from(is_token));
                *if is_token { &mut tokens } else { &mut payments } += 1;
            }
            let AnyBlock { header, .. } = block;
            parent = header;
        }
        assert_eq!(
            (parent.number, parent.state_root),
            (params.blocks, head_root)
        );
        assert_eq!(
            payments + tokens,
            params.blocks * params.transfers_per_block
        );
        let expected = (payments + tokens) * u64::from(params.erc20_percent) / 100;
        assert!(
            tokens.abs_diff(expected) < 40,
            "{tokens} token transfers, not {expected}"
        );
    }
}

#[test]
fn a_token_transfer_moves_units_and_logs_them_as_solidity_would() {
    let params = WorkloadParams {
        erc20_percent: 100,
        transfers_per_block: 1,
        blocks: 1,
        ..small()
    };
    let workload = Workload::new(params.clone()).unwrap();
    let mut sealer = sealer(&workload);
    let genesis = workload
        .genesis()
        .header(&params.spec(), sealer.model.root());
    let mut blocks = Vec::new();
    let before = sealer.model.slots[&keccak256(TOKEN)].clone();
    let keep = |block: &Block| {
        blocks.push(block.clone());
        Ok(())
    };
    workload.generate(&genesis, &mut sealer, keep).unwrap();
    let after = &sealer.model.slots[&keccak256(TOKEN)];

    let tx = &blocks[0].body.transactions[0];
    let from = recover_senders(&blocks[0].body.transactions, true).unwrap()[0];
    let to = Address::from_slice(&tx.input()[16..36]);
    let amount = U256::from_be_slice(&tx.input()[36..]);
    assert!(!amount.is_zero() && from != to);
    let slot = |holder| keccak256(token_balance_slot(holder));
    let held = |slots: &BTreeMap<B256, U256>, holder| {
        slots.get(&slot(holder)).copied().unwrap_or_default()
    };
    assert_eq!(held(after, &from), held(&before, &from) - amount);
    assert_eq!(held(after, &to), held(&before, &to) + amount);

    let outcome = self::sealer(&workload)
        .model
        .execute(&params.spec(), &blocks[0]);
    let log = &outcome.receipts[0].logs()[0];
    let transfer = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
    assert_eq!(keccak256("Transfer(address,address,uint256)"), transfer);
    assert_eq!(log.address, TOKEN);
    assert_eq!(log.topics(), [transfer, from.into_word(), to.into_word()]);
    assert_eq!(log.data.data[..], amount.to_be_bytes::<32>());
}

/// Calls the token on `model` and gives its output, or `None` where it reverts.
fn call(
    model: &Model,
    caller: Address,
    input: &[u8],
    value: u64,
) -> Option<alloy_primitives::Bytes> {
    use revm::{Context, ExecuteEvm, MainBuilder, MainContext, context::TxEnv, database::CacheDB};
    let mut evm = Context::mainnet()
        .with_db(CacheDB::new(model))
        .build_mainnet();
    let tx = TxEnv::builder()
        .caller(caller)
        .to(TOKEN)
        .data(input.to_vec().into())
        .value(U256::from(value))
        .gas_limit(100_000)
        .nonce(0)
        .build()
        .unwrap();
    let result = evm.transact(tx).unwrap().result;
    if result.is_success() {
        result.into_output()
    } else {
        None
    }
}

#[test]
fn the_token_refuses_what_solidity_would_refuse() {
    let workload = Workload::new(small()).unwrap();
    let model = sealer(&workload).model;
    let (holder, other) = (workload.address(0), workload.address(599));
    let words = |selector: [u8; 4], words: &[U256]| {
        let mut input = selector.to_vec();
        words
            .iter()
            .for_each(|word| input.extend(word.to_be_bytes::<32>()));
        input
    };
    let of = |address: Address| U256::from_be_bytes(address.into_word().0);
    let balance = U256::from(10).pow(U256::from(24));
    let balance_of = |who| {
        call(
            &model,
            other,
            &words([0x70, 0xa0, 0x82, 0x31], &[of(who)]),
            0,
        )
    };
    assert_eq!(balance_of(holder).unwrap()[..], balance.to_be_bytes::<32>());
    assert_eq!(balance_of(other).unwrap()[..], [0; 32]);

    let transfer = |caller, to, amount, value| {
        call(
            &model,
            caller,
            &words([0xa9, 0x05, 0x9c, 0xbb], &[to, amount]),
            value,
        )
    };
    let one = U256::from(1);
    let yes = one.to_be_bytes::<32>();
    assert_eq!(transfer(holder, of(other), balance, 0).unwrap()[..], yes);
    assert_eq!(transfer(holder, of(holder), balance, 0).unwrap()[..], yes);
    assert_eq!(
        transfer(holder, of(other), balance + one, 0),
        None,
        "more than there is"
    );
    assert_eq!(
        transfer(holder, of(other), one, 1),
        None,
        "ether sent along"
    );
    assert_eq!(
        transfer(holder, of(other) | (one << 160), one, 0),
        None,
        "not an address"
    );
    assert_eq!(
        call(&model, holder, &bytes!("deadbeef"), 0),
        None,
        "no such function"
    );
    assert_eq!(call(&model, holder, &[], 0), None, "no function");
}

#[test]
fn the_same_parameters_give_the_same_bytes_and_others_give_others() {
    let [first, again, other] = [(), (), ()].map(|()| tempfile::tempdir().unwrap());
    generate(&small(), first.path());
    generate(&small(), again.path());
    generate(&WorkloadParams { seed: 2, ..small() }, other.path());
    for name in ["genesis.json", "chain.rlp"] {
        let [first, again, other] =
            [&first, &again, &other].map(|dir| std::fs::read(dir.path().join(name)).unwrap());
        assert!(first == again && first != other, "{name}");
    }
    // What the parameters mean is fixed: a change of these hashes is a change of every workload.
    let golden = |name: &str| keccak256(std::fs::read(first.path().join(name)).unwrap());
    let expected = [
        b256!("9a452cc0fe597da01d3e11728c5551ecbcbd8391cf4f9a619253b80d5b94afc4"),
        b256!("61055ee074013ef9d94bfd56dd55f41ac64b4a6e5df27f71dd6f1a6246aa2f2f"),
    ];
    assert_eq!([golden("genesis.json"), golden("chain.rlp")], expected);
}

#[test]
fn accounts_below_the_number_of_senders_have_keys_and_the_others_none() {
    let workload = Workload::new(small()).unwrap();
    let mut addresses = Vec::new();
    let listed = workload.for_each_account(|address, _| {
        addresses.push(address);
        Ok::<_, Infallible>(())
    });
    listed.unwrap();
    let contracts = addresses.len() - 600;
    assert_eq!(workload.genesis().accounts, addresses.len() as u64);
    for index in 0..600 {
        assert_eq!(
            workload.address(index),
            addresses[contracts + index as usize]
        );
        assert_eq!(workload.secret(index).is_some(), index < 40);
    }
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), contracts + 600);
}

#[test]
fn impossible_parameters_are_refused_by_name() {
    let refused = |params| Workload::new(params).unwrap_err();
    let range = |params, expected| match refused(params) {
        WorkloadError::Range { name, .. } => assert_eq!(name, expected),
        error => panic!("{error}"),
    };
    range(
        WorkloadParams {
            accounts: 0,
            ..small()
        },
        "accounts",
    );
    range(
        WorkloadParams {
            senders: Some(0),
            ..small()
        },
        "senders",
    );
    range(
        WorkloadParams {
            senders: Some(601),
            ..small()
        },
        "senders",
    );
    range(
        WorkloadParams {
            fresh_percent: 101,
            ..small()
        },
        "fresh_percent",
    );
    range(
        WorkloadParams {
            transfers_per_block: 40_001,
            ..small()
        },
        "transfers_per_block",
    );
    range(
        WorkloadParams {
            blocks: u64::MAX,
            ..small()
        },
        "blocks",
    );
    range(
        WorkloadParams {
            chain_id: 0,
            ..small()
        },
        "chain_id",
    );
    let fork = Fork::London;
    assert_eq!(
        refused(WorkloadParams { fork, ..small() }),
        WorkloadError::Fork(fork)
    );
    let message = refused(WorkloadParams {
        accounts: 0,
        ..small()
    })
    .to_string();
    assert_eq!(message, "accounts is 0: it must be from 1 to 4294967295");
}

#[test]
fn a_sealers_error_ends_the_generation() {
    struct Refuses(u64);
    impl BlockSealer for Refuses {
        type Error = u64;
        fn seal(&mut self, draft: Block) -> Result<Block, u64> {
            if draft.header.number == self.0 {
                Err(self.0)
            } else {
                Ok(draft)
            }
        }
    }
    let workload = Workload::new(WorkloadParams {
        blocks: 1_000,
        ..small()
    })
    .unwrap();
    let genesis = workload
        .genesis()
        .header(&workload.params().spec(), B256::ZERO);
    let mut blocks = 0;
    let count = |_: &Block| {
        blocks += 1;
        Ok(())
    };
    assert_eq!(
        workload
            .generate(&genesis, &mut Refuses(3), count)
            .unwrap_err(),
        3
    );
    assert_eq!(blocks, 2);
}
