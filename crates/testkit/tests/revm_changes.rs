//! revm's own records of changes, converted to changes of the state. The reference is the change set that revm itself
//! computes for a database of plain accounts and slots.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_chain::EvmSession;
use cambium_evm::{BlockChanges, BlockInput, BlockState, block_env, config_env, transaction_env};
use cambium_primitives::{AccountUpdate, Changes, HashedPostState, HashedStorage};
use cambium_state::{BlockMeta, FaultyDisk, Loader, Options};
use cambium_testkit::{Model, ModelAccount, RandomBlocks, say};
use revm::{
    Context, DatabaseCommit, ExecuteCommitEvm, ExecuteEvm, MainBuilder, MainnetEvm,
    context::{BlockEnv, CfgEnv, Journal, TxEnv},
    database::{
        BundleState, State,
        states::{
            StateChangeset,
            bundle_state::{BundleRetention, OriginalValuesKnown},
        },
    },
    primitives::hardfork::SpecId,
};
use std::{collections::BTreeMap, sync::Arc};

type Evm<DB> = MainnetEvm<Context<BlockEnv, TxEnv, CfgEnv, DB, Journal<DB>, ()>>;

fn evm<DB: revm::Database>(input: &BlockInput<'_>, db: DB) -> Evm<DB> {
    let context: Context<BlockEnv, TxEnv, CfgEnv, DB, Journal<DB>, ()> =
        Context::new(db, input.rules.spec);
    context
        .with_cfg(config_env(&input.rules, input.header.gas_limit))
        .with_block(block_env(input.header, &input.rules))
        .build_mainnet()
}

/// Accounts by path, without codes.
type Plain = BTreeMap<B256, ModelAccount>;

fn plain(state: &Model) -> Plain {
    let accounts = state.accounts();
    accounts
        .map(|(path, account)| (*path, account.clone()))
        .collect()
}

fn path(slot: U256) -> B256 {
    keccak256(slot.to_be_bytes::<32>())
}

/// Applies a change set of revm's: the reference.
fn apply_plain(state: &mut Plain, set: &StateChangeset) {
    for storage in &set.storage {
        let account = state.entry(keccak256(storage.address)).or_default();
        if storage.wipe_storage {
            account.slots.clear();
        }
        for (slot, value) in &storage.storage {
            match value.is_zero() {
                true => account.slots.remove(&path(*slot)),
                false => account.slots.insert(path(*slot), *value),
            };
        }
    }
    for (address, info) in &set.accounts {
        let path = keccak256(address);
        match info {
            Some(info) => {
                state.entry(path).or_default().account = cambium_evm::account(info);
            }
            None => {
                state.remove(&path);
            }
        }
    }
}

/// The post-state of a bundle, put together as clients do that keep one: every touched account with its
/// fields, and every slot of it that revm has loaded for a change.
fn post_state(bundle: &BundleState) -> HashedPostState {
    let mut state = HashedPostState::default();
    for (address, touched) in &bundle.state {
        let path = keccak256(address);
        let fields = touched.info.as_ref().map(cambium_evm::account);
        state.accounts.insert(path, fields);
        let slots = touched.storage.iter();
        let storage = HashedStorage {
            wiped: touched.was_destroyed(),
            storage: slots
                .map(|(slot, value)| (self::path(*slot), value.present_value))
                .collect(),
        };
        if storage != HashedStorage::default() {
            state.storages.insert(path, storage);
        }
    }
    state
}

fn applied(state: &Model, changes: &Changes) -> Plain {
    let mut after = state.clone();
    after.apply(changes);
    plain(&after)
}

#[test]
fn what_revm_changed_is_what_its_own_change_sets_say() {
    let (mut blocks, mut transactions, mut wipes, mut deletions, mut codes) = (0, 0, 0, 0, 0);
    for seed in cambium_seeds::seeds!(0..400) {
        let (mut random, mut state) = RandomBlocks::new(seed);
        for _ in 0..3 {
            let block = random.block(&state);
            let input = block.input();
            if input.rules.is(SpecId::AMSTERDAM) {
                break;
            }
            let db = State::builder()
                .with_database_ref(&state)
                .with_bundle_update();
            let mut evm_of_revm = evm(&input, db.build());
            let mut evm_of_state = evm(&input, BlockState::new(&state));
            let mut one_by_one = BlockChanges::default();
            let (mut valid, mut destroyed) = (Vec::new(), false);
            for (transaction, sender) in input.transactions.iter().zip(input.senders) {
                let transaction = transaction_env(transaction, *sender);
                let done = evm_of_revm.transact(transaction.clone());
                let other = evm_of_state.transact(transaction.clone());
                let (Ok(done), Ok(other)) = (done, other) else {
                    continue;
                };
                assert_eq!(done.result, other.result, "seed {seed}");
                transactions += 1;
                valid.push(transaction);
                let of_one = BlockChanges::of_evm_state(&done.state);
                destroyed |= done
                    .state
                    .values()
                    .any(|account| account.is_selfdestructed());
                let created = done.state.values().any(|account| account.is_created());
                let may_have_codes = created || input.rules.is(SpecId::PRAGUE);
                assert!(may_have_codes || of_one.codes.is_empty(), "seed {seed}");
                one_by_one.changes = one_by_one.changes.then(of_one.changes);
                one_by_one.codes.extend(of_one.codes);
                evm_of_revm.ctx.journaled_state.database.commit(done.state);
                evm_of_state
                    .ctx
                    .journaled_state
                    .database
                    .commit(other.state);
            }
            let mut db = evm_of_revm.ctx.journaled_state.database;
            db.merge_transitions(BundleRetention::Reverts);
            let bundle = db.take_bundle();
            let mut expected = plain(&state);
            apply_plain(
                &mut expected,
                &bundle.to_plain_state(OriginalValuesKnown::Yes),
            );
            let of_bundle = BlockChanges::of_bundle(&bundle);
            let of_post_state = BlockChanges {
                changes: Changes::try_from(post_state(&bundle)).unwrap(),
                codes: vec![],
            };
            let of_state = evm_of_state.ctx.journaled_state.database.finish().unwrap();
            // All of them in one commit, in which a slot's value before is that before the last one. It does not show
            // an account that one of them destroys and another one creates again.
            let mut at_once = evm(&input, BlockState::new(&state));
            let done = at_once.transact_many_commit(valid.into_iter());
            assert!(done.is_ok(), "seed {seed}");
            let at_once = at_once.ctx.journaled_state.database.finish().unwrap();
            for (name, found) in [
                ("a bundle", &of_bundle),
                ("a post-state", &of_post_state),
                ("one commit", if destroyed { &of_state } else { &at_once }),
                ("a state", &of_state),
                ("transactions", &one_by_one),
            ] {
                let after = applied(&state, &found.changes);
                assert_eq!(after, expected, "seed {seed}: changes of {name}");
            }
            for change in of_bundle.changes.accounts() {
                let is_deletion = change.account == AccountUpdate::Delete;
                deletions += u64::from(is_deletion);
                wipes += u64::from(change.wipe && !is_deletion);
            }
            // Codes that accounts have afterwards are given.
            for account in expected.values() {
                let hash = account.account.code_hash;
                let was_known = state.code(&hash).is_some() || hash == keccak256([]);
                for found in [&of_bundle.codes, &of_state.codes, &one_by_one.codes] {
                    let given = found.iter().find(|(given, _)| *given == hash);
                    assert!(was_known || given.is_some(), "seed {seed}: code {hash}");
                    codes += u64::from(given.is_some());
                    assert!(given.is_none_or(|(hash, code)| keccak256(code) == *hash));
                }
            }
            blocks += 1;
            state.apply(&of_state.changes);
            state.add_codes(of_state.codes);
        }
    }
    say(&format!(
        "  {blocks} blocks of {transactions} transactions: {deletions} deletions, {wipes} wipes, \
         {codes} codes"
    ));
    assert!(blocks > 500 && transactions > 3000 && deletions > 20 && wipes > 0 && codes > 0);
}

/// A session that transactions are committed to has the root of the reference.
#[test]
fn a_session_takes_what_revm_commits() {
    let mut blocks = 0;
    for seed in cambium_seeds::seeds!(0..60) {
        let (mut random, state) = RandomBlocks::new(seed);
        let block = random.block(&state);
        let input = block.input();
        if input.rules.is(SpecId::AMSTERDAM) {
            continue;
        }
        let options = Options {
            memory_bytes: 16 << 20,
            ..Options::default()
        };
        let mut loader = Loader::new(Arc::new(FaultyDisk::new(seed)), options).unwrap();
        for (path, entry) in state.accounts() {
            let slots = entry.slots.iter().map(|(slot, value)| (*slot, *value));
            loader.account(*path, &entry.account, slots).unwrap();
            let hash = entry.account.code_hash;
            if let Some(code) = state.code(&hash) {
                loader.code(hash, code).unwrap();
            }
        }
        let loaded = loader.finish(&mut |_| {}).unwrap();
        let root = loaded.root();
        assert_eq!(root, state.root());
        let meta = |number, parent, state_root| BlockMeta {
            id: cambium_primitives::BlockId::new(number, B256::with_last_byte(number as u8 + 1)),
            parent,
            state_root,
            body: Bytes::new(),
        };
        let first = meta(0, B256::ZERO, root);
        let db = loaded.create(first.clone(), vec![]).unwrap();
        let mut evm = evm(&input, EvmSession::new(db.view().unwrap()));
        let mut expected = BlockState::new(&state);
        for (transaction, sender) in input.transactions.iter().zip(input.senders) {
            if let Ok(done) = evm.transact(transaction_env(transaction, *sender)) {
                evm.ctx.journaled_state.database.commit(done.state.clone());
                expected.commit(done.state);
            }
        }
        let somebody = Address::repeat_byte(0x77);
        let mut session = evm.ctx.journaled_state.database;
        session.add_balance(somebody, U256::from(5)).unwrap();
        expected.add_balance(somebody, U256::from(5)).unwrap();
        // Adding nothing does not create an account (EIP-161).
        session
            .add_balance(Address::repeat_byte(0x78), U256::ZERO)
            .unwrap();
        let staged = session.finish().unwrap();
        let mut after = state.clone();
        after.apply(&expected.finish().unwrap().changes);
        assert_eq!(staged.root(), after.root(), "seed {seed}");
        let root = staged.root();
        staged
            .seal(meta(1, first.id.hash, root))
            .unwrap()
            .commit()
            .unwrap();
        let account = db.view().unwrap().account(&keccak256(somebody)).unwrap();
        assert_eq!(account.unwrap().balance, U256::from(5));
        blocks += 1;
    }
    assert!(blocks > 20);
}
