//! Workloads: generated twice they are the same bytes, and what is generated is a valid chain.

use crate::support::model::Model;
use alloy_consensus::{
    Block as AnyBlock, Transaction as _, proofs::calculate_receipt_root,
    transaction::SignerRecoverable,
};
use alloy_primitives::{Address, B256, b256, keccak256};
use cambium_chain::{
    Block, BlockSource, Chain, ChainSpec, ChainWriter, Fork, Genesis, GenesisPart, validate_body,
    validate_header, verify_outcome,
};
use cambium_evm::Outcome;
use cambium_state::{FaultyDisk, Options};
use cambium_workload::{
    BlockSealer, BlockSize, ROUTER, SLOT_READER, Spread, TOKEN, Workload, WorkloadError,
    WorkloadParams, token_balance_slot,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io::{BufWriter, Write},
    path::Path,
    sync::Arc,
};

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
    ModelSealer {
        model: Model::of(workload),
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
        block_size: BlockSize::Transactions(50),
        erc20_percent: 40,
        ..WorkloadParams::default()
    }
}

/// Transactions of all kinds.
fn mixed() -> WorkloadParams {
    WorkloadParams {
        holders: Some(300),
        pools: 5,
        slots: 1_000,
        block_size: BlockSize::Transactions(40),
        swap_percent: 30,
        slot_read_percent: 5,
        slot_read_gas: 1_000_000,
        ..small()
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
        mixed(),
        // The price of a slot is higher in larger blocks.
        WorkloadParams {
            fork: Fork::Amsterdam,
            accounts: 5_000,
            erc20_percent: 100,
            fresh_percent: 100,
            blocks: 2,
            block_size: BlockSize::Transactions(800),
            ..small()
        },
        WorkloadParams {
            fork: Fork::Amsterdam,
            spread: Spread::Hot(80),
            pool_spread: Spread::Zipf,
            ..mixed()
        },
        WorkloadParams {
            fork: Fork::Prague,
            block_size: BlockSize::Gas(4_000_000),
            pool_spread: Spread::Hot(100),
            ..mixed()
        },
    ] {
        is_valid(&params);
    }
}

fn is_valid(params: &WorkloadParams) {
    let dir = tempfile::tempdir().unwrap();
    let head_root = generate(params, dir.path());

    let (genesis, accounts) = Genesis::read(dir.path().join("genesis.json")).unwrap();
    assert_eq!(genesis.ignored, [""; 0]);
    assert_eq!(genesis.config, Some(params.spec()));
    let mut model = Model::default();
    for (address, account) in accounts {
        model.insert(address, account);
    }
    let spec = params.spec();
    let mut parent = genesis.header(&spec, model.root());
    let (mut all, mut tokens, mut swaps, mut reads) = (0u64, 0u64, 0u64, 0u64);
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
            all += 1;
            let (count, logs) = match tx.to() {
                Some(TOKEN) => (&mut tokens, 1),
                Some(ROUTER) => (&mut swaps, 4),
                Some(SLOT_READER) => (&mut reads, 1),
                // From Amsterdam on there is a log of ether that another account gets.
                to => {
                    let is_other = to != Some(tx.recover_signer().unwrap());
                    let logged = params.fork == Fork::Amsterdam && is_other;
                    (&mut 0, usize::from(logged))
                }
            };
            *count += 1;
            assert_eq!(receipt.logs().len(), logs);
        }
        let AnyBlock { header, .. } = block;
        parent = header;
    }
    assert_eq!(
        (parent.number, parent.state_root),
        (params.blocks, head_root)
    );
    if let BlockSize::Transactions(count) = params.block_size {
        assert_eq!(all, params.blocks * count);
    }
    for (name, count, percent) in [
        ("token transfers", tokens, params.erc20_percent),
        ("swaps", swaps, params.swap_percent),
        ("slot reads", reads, params.slot_read_percent),
    ] {
        let expected = all * u64::from(percent) / 100;
        assert!(
            count.abs_diff(expected) < 40 && (count > 0) == (percent > 0),
            "{count} {name}, not {expected}"
        );
    }
}

/// Executes a workload's blocks, and calls `on_block` with each block and its outcome.
fn execute(params: &WorkloadParams, mut on_block: impl FnMut(&Block, &Outcome)) {
    let workload = Workload::new(params.clone()).unwrap();
    let mut sealer = sealer(&workload);
    let spec = params.spec();
    let genesis = workload.genesis().header(&spec, sealer.model.root());
    let mut blocks = Vec::new();
    let keep = |block: &Block| {
        blocks.push(block.clone());
        Ok(())
    };
    workload.generate(&genesis, &mut sealer, keep).unwrap();
    let mut model = Model::of(&workload);
    for block in blocks {
        let parent_hash = block.header.parent_hash;
        model.hashes.insert(block.header.number - 1, parent_hash);
        let outcome = model.execute(&spec, &block);
        on_block(&block, &outcome);
        model.apply(&outcome.changes);
    }
}

#[test]
fn transactions_with_a_distinct_spread_are_independent() {
    for (erc20_percent, swap_percent) in [(0, 0), (100, 0), (0, 100)] {
        let params = WorkloadParams {
            fork: Fork::Amsterdam,
            senders: Some(60),
            erc20_percent,
            swap_percent,
            fresh_percent: 50,
            pools: 50,
            spread: Spread::Distinct,
            pool_spread: Spread::Distinct,
            ..small()
        };
        execute(&params, |block, outcome| {
            let transactions = block.body.transactions.len() as u64;
            let within = |index: u64| (1..=transactions).contains(&index);
            for account in outcome.access_list.as_ref().unwrap().accounts() {
                let address = account.address;
                if address == block.header.beneficiary {
                    continue;
                }
                let balances = account.balance_changes.iter();
                let balances = balances.filter(|c| within(c.block_access_index.get()));
                assert!(balances.count() <= 1, "{address}");
                assert!(account.nonce_changes.len() <= 1, "{address}");
                for slot in &account.storage_changes {
                    assert!(slot.changes.len() <= 1, "{address} {}", slot.slot);
                }
            }
        });
    }
}

#[test]
fn a_hot_spread_makes_transactions_fight_for_the_first() {
    let params = WorkloadParams {
        fork: Fork::Amsterdam,
        erc20_percent: 50,
        fresh_percent: 0,
        spread: Spread::Hot(100),
        ..small()
    };
    let first = Workload::new(params.clone()).unwrap().address(0);
    let slot = token_balance_slot(&first);
    execute(&params, |block, outcome| {
        let transactions = &block.body.transactions;
        let tokens = transactions
            .iter()
            .filter(|tx| (*tx).to() == Some(TOKEN))
            .count();
        let list = outcome.access_list.as_ref().unwrap();
        let of = |address| list.accounts().iter().find(|a| a.address == address);
        let slots = &of(TOKEN).unwrap().storage_changes;
        let slot = slots.iter().find(|s| B256::from(s.slot) == slot).unwrap();
        // Those that it sends to itself change nothing.
        assert!((tokens - 5..=tokens).contains(&slot.changes.len()));
        let balances = of(first).unwrap().balance_changes.len();
        assert!(balances >= transactions.len() - tokens - 5, "{balances}");
        let senders: BTreeSet<_> = transactions
            .iter()
            .map(|tx| tx.recover_signer().unwrap())
            .collect();
        assert!(senders.len() > 20, "senders are uniform");
    });
}

#[test]
fn a_block_of_so_much_gas_uses_about_that() {
    let gas = 3_000_000;
    for (erc20_percent, swap_percent, slot_read_percent) in [
        (0, 0, 0),
        (100, 0, 0),
        (0, 100, 0),
        (0, 0, 100),
        (50, 40, 5),
    ] {
        let params = WorkloadParams {
            block_size: BlockSize::Gas(gas),
            erc20_percent,
            swap_percent,
            slot_read_percent,
            ..mixed()
        };
        let mut used = 0;
        execute(&params, |_, outcome| used += outcome.gas_used);
        let each = used / params.blocks;
        assert!(
            each.abs_diff(gas) < gas / 5,
            "{each} gas a block, not {gas}"
        );
    }
}

#[test]
fn a_genesis_state_in_many_pieces_is_the_same_in_its_file() {
    let params = WorkloadParams {
        accounts: 70_000,
        senders: Some(5),
        holders: Some(70_000),
        slot_read_percent: 1,
        slots: 140_000,
        blocks: 0,
        ..small()
    };
    let workload = Workload::new(params).unwrap();
    let (mut accounts, mut slots, mut pieces) = (0, 0, 0);
    let mut storage = BTreeMap::<Address, Vec<_>>::new();
    let listed = workload.for_each_part(|part| {
        match part {
            GenesisPart::Account(address, account) => {
                accounts += 1;
                slots += account.storage.len();
                storage.insert(address, account.storage);
            }
            GenesisPart::Slots(address, more) => {
                pieces += 1;
                slots += more.len();
                storage.get_mut(&address).unwrap().extend(more);
            }
        }
        Ok::<_, Infallible>(())
    });
    listed.unwrap();
    assert_eq!((accounts, pieces), (workload.genesis().accounts, 1 + 2));
    assert_eq!(slots as u64, workload.genesis_slots());
    assert_eq!(slots, 70_001 + 140_001);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("genesis.json");
    let mut out = BufWriter::new(std::fs::File::create(&file).unwrap());
    workload.write_genesis(&mut out).unwrap();
    out.flush().unwrap();
    let (genesis, read) = Genesis::read(&file).unwrap();
    assert_eq!(genesis.accounts, accounts);
    let mut model = Model::default();
    for (address, account) in &read {
        model.insert(*address, account.clone());
    }
    let root = model.root();
    let disk = || Arc::new(FaultyDisk::new(1));
    let options = Options {
        memory_bytes: 4 << 20,
        ..Options::default()
    };
    let chain = Chain::init(disk(), &file, options, &mut |_| {}).unwrap();
    assert_eq!(chain.block(0).unwrap().header.state_root, root);
    chain.check_genesis_file(&file, &mut |_| {}).unwrap();
    let chain = workload.init(disk(), options, &mut |_| {}).unwrap();
    assert_eq!(chain.block(0).unwrap().header.state_root, root);
    for (address, account) in read {
        assert!(
            storage.remove(&address) == Some(account.storage),
            "{address}"
        );
    }
    assert_eq!(storage.len(), 0);
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
    // The meaning of the parameters is fixed: a change of these hashes changes every workload.
    let golden = |dir: &Path| {
        ["genesis.json", "chain.rlp"].map(|name| keccak256(std::fs::read(dir.join(name)).unwrap()))
    };
    let expected = [
        b256!("00dd8411ad261854300df347be6c6ca168768e6b7698773ddbb04649dfd7caed"),
        b256!("c09c7e5c441d39d21e2fca20ebb71d6b27f74e5aef862fa1533ccf62d1b38f0f"),
    ];
    assert_eq!(golden(first.path()), expected);
    generate(&mixed(), other.path());
    let expected = [
        b256!("4a9d35431f41c4fc9d925d385ebce1984e72de7c2bf9854a853d1977b92b59c1"),
        b256!("f3ab1e378a51546f7c1050908a7a34db1a759603ada02566c6287bef3798c07e"),
    ];
    assert_eq!(golden(other.path()), expected);
}

#[test]
fn accounts_below_the_number_of_senders_have_keys_and_the_others_none() {
    let workload = Workload::new(small()).unwrap();
    let mut addresses = Vec::new();
    let listed = workload.for_each_part(|part| {
        if let GenesisPart::Account(address, _) = part {
            addresses.push(address);
        }
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
            block_size: BlockSize::Transactions(40_000),
            ..small()
        },
        "transactions in a block",
    );
    range(
        WorkloadParams {
            block_size: BlockSize::Gas(u64::MAX),
            ..small()
        },
        "gas of a block",
    );
    range(
        WorkloadParams {
            holders: Some(39),
            ..small()
        },
        "holders",
    );
    range(
        WorkloadParams {
            slot_read_gas: (1 << 24) + 1,
            ..mixed()
        },
        "slot_read_gas",
    );
    range(
        WorkloadParams {
            slots: 400,
            ..mixed()
        },
        "slots",
    );
    range(
        WorkloadParams {
            swap_percent: 61,
            ..small()
        },
        "the share of ERC-20 transfers, swaps and slot reads together",
    );
    let distinct = |params| match refused(params) {
        WorkloadError::TooFew { name, .. } => name,
        error => panic!("{error}"),
    };
    let spread = Spread::Distinct;
    assert_eq!(distinct(WorkloadParams { spread, ..small() }), "senders");
    let senders = Some(580);
    let params = WorkloadParams {
        spread,
        senders,
        ..small()
    };
    assert_eq!(distinct(params), "accounts that do not send");
    let params = WorkloadParams {
        pool_spread: spread,
        ..mixed()
    };
    assert_eq!(distinct(params), "pools");
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
