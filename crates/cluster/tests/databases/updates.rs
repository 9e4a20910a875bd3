//! Updates that are false, or that a database can do nothing with.

use crate::common::databases::*;
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_chain::{Chain, Fork, InitOptions};
use cambium_cluster::{BlockUpdate, FollowError, Peer, Record, Signer, Taken};
use cambium_primitives::{
    Account, AccountDiff, AccountUpdate, Changes, EntryValue, STORAGE_ROOT_KEY,
};
use cambium_workload::{BlockSize, TOKEN, Workload, WorkloadParams};
use std::time::{Duration, Instant};

/// Promise: false updates are counted.
#[test]
fn a_false_update_with_a_child_is_counted_once() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let mut builder = Builder::new(engine.chain.db().genesis());
    let mut false_update = updates[0].clone();
    false_update.changes = Changes::default();
    builder.publish(&signer().sign_update(1, false_update));
    builder.publish(&signer().sign_update(1, updates[1].clone()));
    let node = Node::new(&workload, 7, None, &builder.kept);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(builder.kept.clone())];
    let followed = node.read_with(peers, Duration::from_secs(3), &builder.stream, u64::MAX);
    assert_eq!(followed.refused, 1, "{followed:?}");
}

/// Promise: what is wrong with a record does not end a follower, and takes it no unbounded time.
#[test]
fn an_update_with_many_codes_is_judged_in_linear_time() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let update = engine.updates(1, 1).remove(0);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let took: Vec<Duration> = [10_000_u32, 40_000]
        .map(|count| {
            let mut update = update.clone();
            let codes: Vec<Bytes> = (0..count)
                .map(|at| at.to_be_bytes().to_vec().into())
                .collect();
            let accounts = codes.iter().enumerate().map(|(at, code)| AccountDiff {
                path: keccak256(at.to_be_bytes()),
                account: AccountUpdate::Put(Account {
                    nonce: 1,
                    balance: U256::from(1),
                    code_hash: keccak256(code),
                }),
                wipe: false,
                slots: Vec::new(),
            });
            update.changes = Changes::new(accounts.collect());
            update.codes = codes;
            let record = signed(update);
            eprintln!("{count} codes, {} bytes", record.len());
            node.feed(|feeding| {
                let started = Instant::now();
                feeding.take(record).unwrap();
                assert_eq!(feeding.database.followed().refused, 1);
                started.elapsed()
            })
        })
        .into();
    eprintln!("{took:?}");
    assert!(took[1] < 10 * took[0], "four times as many codes: {took:?}");
}

/// Promise: a false update is refused, and nothing is stored; what is wrong does not end the follower.
#[test]
fn malformed_changes_headers_and_bodies_are_refused() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let some = keccak256("nobody");
    let token = keccak256(TOKEN);
    let change =
        |path: B256, account: AccountUpdate, wipe: bool, slots: &[(B256, u64)]| AccountDiff {
            path,
            account,
            wipe,
            slots: slots
                .iter()
                .map(|(slot, value)| (*slot, U256::from(*value)))
                .collect(),
        };
    let slot = B256::repeat_byte(3);
    for (at, storage) in [None, Some(all_but_the_token()), Some(with_the_token())]
        .into_iter()
        .enumerate()
    {
        let good = &updates[0];
        let with = |name: &'static str, edit: &dyn Fn(&mut BlockUpdate)| {
            let mut update = good.clone();
            edit(&mut update);
            (name, update)
        };
        let changes = |name: &'static str, more: AccountDiff| {
            with(name, &|update| {
                let mut accounts = update.changes.clone().into_accounts();
                accounts.retain(|it| it.path != more.path);
                accounts.push(more.clone());
                update.changes = Changes::new(accounts);
            })
        };
        let root_of_token = good
            .storage_roots
            .iter()
            .find(|(path, _)| *path == token)
            .unwrap()
            .1;
        let code: Bytes = vec![0xfe; 77].into();
        let false_ones = vec![
            changes(
                "slots of nobody",
                change(some, AccountUpdate::Keep, false, &[(slot, 1)]),
            ),
            changes(
                "zero slot of nobody",
                change(some, AccountUpdate::Keep, false, &[(slot, 0)]),
            ),
            changes(
                "an entry",
                change(
                    some,
                    AccountUpdate::Entry(EntryValue::Inline(vec![1].into())),
                    false,
                    &[],
                ),
            ),
            changes(
                "a deletion of nobody",
                change(some, AccountUpdate::Delete, true, &[]),
            ),
            changes(
                "a wipe of nobody",
                change(some, AccountUpdate::Keep, true, &[]),
            ),
            changes(
                "nothing of nobody",
                change(some, AccountUpdate::Keep, false, &[]),
            ),
            changes(
                "a deleted token",
                change(token, AccountUpdate::Delete, true, &[]),
            ),
            changes(
                "an unknown code",
                change(
                    some,
                    AccountUpdate::Put(Account {
                        code_hash: slot,
                        ..Account::default()
                    }),
                    false,
                    &[],
                ),
            ),
            with("a code without an account", &|update| {
                update.codes.push(code.clone())
            }),
            with("the reserved key", &|update| {
                let mut accounts = update.changes.clone().into_accounts();
                for change in &mut accounts {
                    if change.path == token {
                        change.wipe = true;
                        change.slots = vec![(STORAGE_ROOT_KEY, root_of_token.into())];
                    }
                }
                update.changes = Changes::new(accounts);
            }),
            with("roots of nobody", &|update| {
                update.storage_roots.push((some, slot));
                update.storage_roots.sort();
            }),
            with("empty roots of nobody", &|update| {
                update
                    .storage_roots
                    .push((some, alloy_consensus::EMPTY_ROOT_HASH));
                update.storage_roots.sort();
            }),
            with("false roots", &|update| {
                update.storage_roots.iter_mut().for_each(|it| it.1 = slot)
            }),
            with("zero roots", &|update| {
                update
                    .storage_roots
                    .iter_mut()
                    .for_each(|it| it.1 = B256::ZERO)
            }),
            with("no roots", &|update| update.storage_roots.clear()),
            with("roots twice", &|update| {
                let first = update.storage_roots[0];
                update.storage_roots.insert(0, first);
            }),
            with("number 0", &|update| update.header.number = 0),
            with("number 2", &|update| update.header.number = 2),
            with("the largest number", &|update| {
                update.header.number = u64::MAX
            }),
            with("the largest numbers", &|update| {
                update.header.timestamp = u64::MAX;
                update.header.gas_limit = u64::MAX;
                update.header.gas_used = u64::MAX;
                update.header.base_fee_per_gas = Some(u64::MAX);
                update.header.excess_blob_gas = Some(u64::MAX);
                update.header.blob_gas_used = Some(u64::MAX);
            }),
            with("a difficulty", &|update| {
                update.header.difficulty = U256::MAX
            }),
            with("much extra data", &|update| {
                update.header.extra_data = vec![1; 8 << 20].into()
            }),
            with("no base fee", &|update| {
                update.header.base_fee_per_gas = None
            }),
            with("no withdrawals", &|update| {
                update.header.withdrawals_root = None
            }),
            with("its own parent", &|update| {
                update.header.parent_hash = update.header.hash_slow()
            }),
            with("the default header", &|update| {
                update.header = Header::default()
            }),
            with("a body of one byte", &|update| {
                update.body = vec![0xc0].into()
            }),
            with("a body of many lists", &|update| {
                update.body = vec![0xc0; 8 << 20].into()
            }),
            with("a body of zeros", &|update| {
                update.body = vec![0; 1 << 20].into()
            }),
            with("a body that claims much", &|update| {
                update.body = vec![0xff; 9].into()
            }),
            with("an ommer", &|update| {
                let mut body = update.body.to_vec();
                body.push(0xc0);
                update.body = body.into();
            }),
        ];
        for (name, update) in false_ones {
            let id = update.id();
            let record = signed(update);
            let node = Node::new(&workload, 3, storage.as_ref(), &Kept::default());
            let files = || {
                let mut files: Vec<_> = node
                    .db
                    .files()
                    .into_iter()
                    .map(|file| (node.db.contents(&file), file))
                    .collect();
                files.sort();
                files
            };
            let before = files();
            node.feed(|feeding| {
                let taken = feeding.take(record);
                let followed = feeding.database.followed();
                let has = node.chain().db().has(id).unwrap();
                let is_in = followed.blocks;
                eprintln!(
                    "  database {at}, {name}: {}, {:?}, {is_in} blocks, it has it: {has}",
                    match &taken {
                        Ok(taken) => format!("{taken:?}"),
                        Err(error) => format!("ENDS: {error}"),
                    },
                    followed.trouble
                );
                if is_in == 0 {
                    assert!(
                        files() == before,
                        "database {at}, {name}: something is stored"
                    );
                }
                assert!(taken.is_ok(), "database {at}, {name}");
            });
        }
    }
}

/// Promise: what is accepted leaves a sound database, whatever is beside the changes that count.
#[test]
fn changes_that_change_nothing_leave_a_sound_database() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    let [some, other, third, fourth] =
        ["nobody", "nothing", "none", "never"].map(keccak256::<&str>);
    let diff = |path, account, wipe| AccountDiff {
        path,
        account,
        wipe,
        slots: Vec::new(),
    };
    let code: Bytes = vec![0xfe; 77].into();
    for (at, storage) in [None, Some(all_but_the_token()), Some(with_the_token())]
        .into_iter()
        .enumerate()
    {
        let mut node = Node::new(&workload, 3, storage.as_ref(), &Kept::default());
        let genesis = node.chain().db().head();
        let state_before = node.chain().db().view().unwrap().state_root();
        let mut records = Vec::new();
        for update in &updates {
            let mut update = update.clone();
            let mut accounts = update.changes.clone().into_accounts();
            accounts.push(diff(some, AccountUpdate::Delete, true));
            accounts.push(diff(other, AccountUpdate::Keep, true));
            accounts.push(diff(third, AccountUpdate::Keep, false));
            if at > 0 {
                update
                    .storage_roots
                    .push((fourth, alloy_consensus::EMPTY_ROOT_HASH));
                update.storage_roots.sort();
            }
            update.changes = Changes::new(accounts);
            update.codes.push(code.clone());
            records.push(signed(update));
        }
        let (head, below) = (updates[BLOCKS as usize - 1].id(), updates[8].id());
        records.push(chosen(1, head, below, genesis));
        node.feed(|feeding| {
            for record in records {
                feeding.take(record).unwrap();
            }
            assert_eq!(
                feeding.database.followed().blocks,
                BLOCKS,
                "{:?}",
                feeding.database.followed()
            );
        });
        let check = |chain: &Chain, when: &str| {
            let report = chain.db().check(&mut |_| {}).unwrap();
            assert!(
                report.damage.is_empty(),
                "database {at}, {when}: {:?}",
                report.damage
            );
            let code = chain.db().view().unwrap().code(&keccak256(&code)).is_ok();
            eprintln!(
                "  database {at}, {when}: sound, a code that no account has is there: {code}"
            );
        };
        check(node.chain(), "after the blocks");
        node.chain().db().flush(0).unwrap();
        check(node.chain(), "after a merge");
        node.crash();
        check(node.chain(), "after a loss of power");
        assert_eq!(node.chain().db().head(), head);
        node.chain().db().unwind(0).unwrap();
        assert_eq!(node.chain().db().view().unwrap().state_root(), state_before);
        check(node.chain(), "after unwinding");
        node.chain().db().flush(0).unwrap();
        check(node.chain(), "after unwinding and a merge");
        node.chain().set_canonical(head.hash, None, None).unwrap();
        check(node.chain(), "after coming back");
    }
}

/// What is told about a database of another chain with the same number.
#[test]
fn a_database_of_another_chain_is_told_so() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&updates, true);
    let others = Workload::new(WorkloadParams {
        seed: 999,
        accounts: 61,
        fork: Fork::Osaka,
        senders: Some(40),
        blocks: 3,
        ..WorkloadParams::default()
    })
    .unwrap();
    let node = Node::new(&others, 7, None, &builder.kept);
    assert_ne!(node.chain().db().head(), engine.chain.db().genesis());
    let followed = node.read(&builder.stream, u64::MAX);
    assert_eq!(followed.blocks, 0);
    assert_eq!(followed.refused, 0, "none of them is false: {followed:?}");
    let trouble = followed
        .trouble
        .clone()
        .expect("it is told that this is another chain");
    assert!(
        !trouble.contains("no shard has"),
        "a shard has it: {followed:?}"
    );
}

/// Promise: what is wrong does not end a follower, and others go on. Five blocks descend from one that is refused, each a record.
#[test]
fn descendants_of_a_refused_block_do_not_wait_for_it_one_after_the_other() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 6);
    let mut builder = Builder::new(engine.chain.db().genesis());
    let mut false_update = updates[0].clone();
    false_update.changes = Changes::default();
    builder.publish(&signer().sign_update(1, false_update));
    for update in &updates[1..] {
        builder.publish(&signer().sign_update(1, update.clone()));
    }
    let right = marked(&updates[0], 7);
    builder.publish(&signer().sign_update(1, right.clone()));
    let genesis = builder.chain[0];
    builder.append(chosen(1, right.id(), genesis, genesis));
    let node = Node::new(&workload, 7, None, &builder.kept);
    let patience = Duration::from_secs(1);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(builder.kept.clone())];
    let started = Instant::now();
    node.read_with(peers, patience, &builder.stream, u64::MAX);
    let took = started.elapsed();
    assert_eq!(node.chain().db().head(), right.id());
    assert!(
        took < 3 * patience,
        "one block is missing, and the next right one came after {took:?}"
    );
}

/// An update does not say what is behind the hashes in the state, so that a database which keeps that refuses it.
#[test]
fn a_database_that_keeps_preimages_refuses_updates() {
    let workload = Workload::new(WorkloadParams {
        fork: Fork::Osaka,
        accounts: 60,
        senders: Some(40),
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(5),
        fresh_percent: 50,
        ..WorkloadParams::default()
    })
    .unwrap();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 1);
    let init = InitOptions {
        preimages: true,
        ..InitOptions::from(options())
    };
    let node = Node::with(&workload, 1, init, &Kept::default());
    let genesis = node.chain().db().head();
    node.feed(|feeding| {
        let error = feeding.take(signed(updates[0].clone())).unwrap_err();
        assert!(error.to_string().contains("--preimages"), "{error}");
    });
    assert_eq!(node.chain().db().head(), genesis);
}

#[test]
fn false_updates_are_refused_and_what_is_left_out_is_said() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    for storage in [None, Some(all_but_the_token()), Some(with_the_token())] {
        let node = Node::new(&workload, 3, storage.as_ref(), &Kept::default());
        let before = node.chain().db().head();
        // The changes of another block, or none at all.
        let mut false_changes = updates[0].clone();
        false_changes.changes = updates[1].changes.clone();
        let mut no_changes = marked(&updates[0], 1);
        no_changes.changes = Changes::default();
        // The transactions of another block.
        let mut false_body = marked(&updates[0], 2);
        false_body.body = updates[1].body.clone();
        // No block at all.
        let mut cut = marked(&updates[0], 3);
        cut.body = cut.body.slice(..cut.body.len() / 2);
        let mut trailing = marked(&updates[0], 4);
        trailing.body = [&trailing.body[..], &[0x80]].concat().into();
        node.feed(|feeding| {
            let false_ones = [false_changes, no_changes, false_body, cut, trailing];
            let count = false_ones.len() as u64;
            for update in false_ones {
                assert_eq!(feeding.take(signed(update)).unwrap(), Taken::Judged);
            }
            // None of them is there, so a choice of one comes to nothing, and one of another block waits for it.
            let mut choose = |number, head| {
                let choice = chosen(number, head, before, before);
                feeding.take(choice).unwrap()
            };
            assert_eq!(choose(1, updates[0].id()), Taken::Judged);
            let waits = choose(2, updates[5].id());
            assert_eq!(waits, Taken::Waits(updates[5].id().hash));
            let mut bare = marked(&updates[0], 5);
            bare.body = Bytes::new();
            let error = feeding.take(signed(bare)).unwrap_err();
            assert!(matches!(error, FollowError::NoBody(_)), "{error}");
            assert!(error.to_string().contains("--no-bodies"));
            let followed = feeding.database.followed();
            assert_eq!((followed.refused, followed.blocks), (count, 0));
        });
        assert_eq!(node.chain().db().head(), before);
        // Whoever is not configured is not believed.
        let stranger = Signer::new(4_093, [9; 32]).unwrap();
        node.feed(|feeding| {
            let update = stranger.sign_update(1, updates[0].clone());
            feeding.take(Record::from(update).encode()).unwrap();
            let followed = feeding.database.followed();
            assert_eq!(followed.blocks, 0);
            assert!(followed.trouble.is_some());
        });
    }
}
