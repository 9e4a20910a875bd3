//! Programs of a hostile reading of databases that follow a stream: each is a promise of the documents.

use crate::common::databases::*;
use crate::common::stream::{fault, item};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_chain::{Chain, Fork, InitOptions};
use cambium_cluster::{
    BlockUpdate, BuilderKeys, FollowError, FollowingDatabase, MemoryStream, Peer, Record, Shard,
    ShardLimits, ShardRange, Signer, SnapshotError, Stream, StreamPosition, Taken, Wanted,
};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::{
    Account, AccountDiff, AccountUpdate, BlockId, Changes, EntryValue, STORAGE_ROOT_KEY,
};
use cambium_seeds::{Random, seeds};
use cambium_state::Options;
use cambium_workload::{BlockSize, TOKEN, Workload, WorkloadParams};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

fn signed(update: BlockUpdate) -> Vec<u8> {
    Record::from(signer().sign_update(1, update)).encode()
}

fn opened() -> Vec<u8> {
    Record::from(signer().open_epoch(1)).encode()
}

fn chosen(number: u64, head: BlockId, safe: BlockId, finalized: BlockId) -> Vec<u8> {
    Record::from(signer().choose(1, number, head, safe, finalized)).encode()
}

/// Gives records to a follower, one after the other.
struct Feeding<'a, 'c> {
    database: &'a mut FollowingDatabase<'c>,
    position: u64,
}

impl<'a, 'c> Feeding<'a, 'c> {
    fn new(database: &'a mut FollowingDatabase<'c>) -> Self {
        let position = database.state().position.0;
        Self { database, position }
    }

    fn take(&mut self, record: Vec<u8>) -> Result<Taken, FollowError> {
        self.position += 1;
        self.database.take(&item(self.position, record))
    }
}

/// A peer that counts what it is asked, and has nothing any more after so many questions.
struct Counting {
    of: Kept,
    asked: Arc<AtomicU64>,
    most: u64,
}

impl Peer for Counting {
    fn name(&self) -> String {
        "a peer that counts".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        match self.asked.fetch_add(1, Ordering::Relaxed) < self.most {
            true => self.of.record(wanted),
            false => Ok(None),
        }
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        self.of.snapshot(range, limits)
    }
}

/// Promise: lies about a branch do not end a follower.
#[test]
fn a_choice_whose_blocks_are_on_different_branches_does_not_end_the_follower() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 2);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let genesis = node.chain().db().head();
    let other = marked(&updates[0], 9);
    node.follow(|database| {
        let mut feeding = Feeding::new(database);
        feeding.take(opened()).unwrap();
        feeding.take(signed(updates[0].clone())).unwrap();
        feeding.take(signed(updates[1].clone())).unwrap();
        feeding.take(signed(other.clone())).unwrap();
        assert_eq!(feeding.database.followed().blocks, 3);
        let head = updates[1].id();
        let taken = feeding.take(chosen(1, head, other.id(), genesis));
        assert!(
            taken.is_ok(),
            "safe on another branch: {}",
            taken.unwrap_err()
        );
        let taken = feeding.take(chosen(2, head, head, other.id()));
        assert!(
            taken.is_ok(),
            "finalized on another branch: {}",
            taken.unwrap_err()
        );
        // What is right is followed afterwards.
        feeding
            .take(chosen(3, head, head, updates[0].id()))
            .unwrap();
    });
    assert_eq!(node.chain().db().head(), updates[1].id());
}

/// Promise: every follower ends at the builder's head. A choice that the database refuses does not make later ones wrong.
#[test]
fn a_choice_that_is_refused_does_not_raise_what_is_final() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let genesis = node.chain().db().head();
    let other = marked(&updates[2], 9);
    node.follow(|database| {
        let mut feeding = Feeding::new(database);
        feeding.take(opened()).unwrap();
        for update in updates.iter().chain([&other]) {
            feeding.take(signed(update.clone())).unwrap();
        }
        let head = updates[2].id();
        // The final block is on another branch than the head.
        let _ = feeding.take(chosen(1, head, other.id(), other.id()));
        assert_eq!(node.chain().db().finality().finalized, None);
        feeding
            .take(chosen(2, head, updates[0].id(), genesis))
            .unwrap();
    });
    assert_eq!(node.chain().db().head(), updates[2].id());
}

/// Promise: what is wrong with a record does not hang a follower.
#[test]
fn a_choice_with_a_false_number_is_not_judged_forever() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let genesis = node.chain().db().head();
    let kept = Kept::default();
    for update in &updates {
        kept.0
            .lock()
            .0
            .insert(update.id().hash, signed(update.clone()).into());
    }
    let asked = Arc::new(AtomicU64::new(0));
    let peer = Counting {
        of: kept,
        asked: asked.clone(),
        most: 1_000,
    };
    node.follow_with(vec![Box::new(peer)], Duration::from_millis(1), |database| {
        let mut feeding = Feeding::new(database);
        feeding.take(opened()).unwrap();
        for update in &updates {
            feeding.take(signed(update.clone())).unwrap();
        }
        let head = BlockId::new(9, updates[2].id().hash);
        let taken = feeding.take(chosen(1, head, genesis, genesis));
        eprintln!("{taken:?} {:?}", feeding.database.followed());
    });
    let asked = asked.load(Ordering::Relaxed);
    assert!(
        asked < 10,
        "one record: a peer was asked {asked} times until it had nothing any more"
    );
}

/// As above, with the number in a header.
#[test]
fn an_update_with_a_false_number_is_not_judged_forever() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let kept = Kept::default();
    for update in &updates {
        kept.0
            .lock()
            .0
            .insert(update.id().hash, signed(update.clone()).into());
    }
    let asked = Arc::new(AtomicU64::new(0));
    let peer = Counting {
        of: kept,
        asked: asked.clone(),
        most: 1_000,
    };
    node.follow_with(vec![Box::new(peer)], Duration::from_millis(1), |database| {
        let mut feeding = Feeding::new(database);
        feeding.take(opened()).unwrap();
        for update in &updates[..2] {
            feeding.take(signed(update.clone())).unwrap();
        }
        let mut false_number = updates[2].clone();
        false_number.header.number = 7;
        let taken = feeding.take(signed(false_number));
        eprintln!("{taken:?} {:?}", feeding.database.followed());
    });
    let asked = asked.load(Ordering::Relaxed);
    assert!(
        asked < 10,
        "one record: a peer was asked {asked} times until it had nothing any more"
    );
}

/// Promise: blocks that the stream does not have any more come from the shards' journals, by hash; and every follower ends at the
/// builder's head.
#[test]
fn many_blocks_that_the_stream_has_not_come_by_hash() {
    let blocks = 200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        let signed = signer().sign_update(1, update.clone());
        builder.chain.push(signed.id());
        builder.publish(&signed);
        builder.choose();
    }
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    let kept = builder.kept.clone();
    // Only the epoch comes by position.
    kept.0.lock().1.retain(|position, _| *position == 1);
    for storage in [None, Some(all_but_the_token())] {
        let node = Node::new(&workload, 7, storage.as_ref(), &kept);
        node.read(&builder.stream, u64::MAX);
        node.follow(|database| eprintln!("{:?}", database.state()));
        assert_eq!(node.chain().db().head(), *builder.chain.last().unwrap());
    }
}

/// The same for a stream whose choices are all lost but the last.
#[test]
fn many_blocks_without_a_choice_between_them_are_followed() {
    let blocks = 200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        let signed = signer().sign_update(1, update.clone());
        builder.chain.push(signed.id());
        builder.publish(&signed);
    }
    builder.choose();
    for crashes in [false, true] {
        let mut node = Node::new(&workload, 7, None, &Kept::default());
        for _ in 0..10 {
            if crashes {
                node.read(&builder.stream, 23);
                node.crash();
            }
        }
        node.read(&builder.stream, u64::MAX);
        assert_eq!(
            node.chain().db().head(),
            *builder.chain.last().unwrap(),
            "crashes: {crashes}"
        );
    }
}

/// Promise: a stream without its beginning is followed, where shards have what it has not.
#[test]
fn an_epoch_far_behind_the_beginning_of_a_stream_is_found() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    for number in 1..=1_100 {
        builder.append(chosen(number, genesis, genesis, genesis).into(), None);
    }
    let second = Signer::new(4_093, [1; 32]).unwrap();
    builder.append(Record::from(second.open_epoch(2)).encode().into(), None);
    for update in &updates {
        let update = second.sign_update(2, update.clone());
        builder.publish(&update);
    }
    let head = updates[2].id();
    let choice = Record::from(second.choose(2, 1, head, genesis, genesis)).encode();
    builder.append(choice.into(), None);
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(
        node.chain().db().head(),
        head,
        "shards have all records of the stream"
    );
}

/// Promise: a note that is lost costs reading records again whose blocks are known.
#[test]
fn a_lost_note_and_a_branch_that_has_lost_pass_no_record() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    let mut lost = Vec::new();
    let engine = engine.anew(&workload);
    let mut parent = genesis;
    for mark in 0..6 {
        let update = engine.on(parent, 100 + mark);
        parent = update.id();
        lost.push(signer().sign_update(1, update));
    }
    let engine = engine.anew(&workload);
    let mut parent = genesis;
    let mut won = Vec::new();
    for mark in 0..12 {
        let update = engine.on(parent, mark);
        parent = update.id();
        won.push(signer().sign_update(1, update));
    }
    for update in lost.iter().chain(&won) {
        builder.publish(update);
    }
    let head = won[11].id();
    builder.append(chosen(1, head, won[1].id(), won[1].id()).into(), None);
    let mut node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), head);
    node.note = FaultyDisk::new(3);
    let never = AtomicBool::new(false);
    let followed = node.follow(|database| {
        database
            .run(&builder.stream, &never, &mut |_, is_idle| is_idle)
            .unwrap();
        database.followed().clone()
    });
    assert_eq!(node.chain().db().head(), head);
    assert_eq!(
        followed.passed, 0,
        "shards have each of these blocks: {followed:?}"
    );
}

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
    let never = AtomicBool::new(false);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(builder.kept.clone())];
    let followed = node.follow_with(peers, Duration::from_secs(3), |database| {
        database
            .run(&builder.stream, &never, &mut |_, is_idle| is_idle)
            .unwrap();
        database.followed().clone()
    });
    assert_eq!(followed.refused, 1, "{followed:?}");
}

/// Promise: a choice of the builder sets head, safe and finalized block.
#[test]
fn a_choice_whose_safe_block_is_the_final_one_sets_it() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 6);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let id = |number: usize| updates[number - 1].id();
    node.follow(|database| {
        let mut feeding = Feeding::new(database);
        feeding.take(opened()).unwrap();
        for update in &updates {
            feeding.take(signed(update.clone())).unwrap();
        }
        feeding.take(chosen(1, id(6), id(5), id(2))).unwrap();
        feeding.take(chosen(2, id(6), id(2), id(2))).unwrap();
    });
    let finality = node.chain().db().finality();
    assert_eq!(finality.finalized, Some(id(2)));
    assert_eq!(finality.safe, Some(id(2)));
}

/// Promise: a hole that hides an epoch is filled by a replica that has it, whatever another one says.
#[test]
fn a_peer_that_answers_with_another_record_does_not_hide_an_epoch() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    builder.publish(&signer().sign_update(1, updates[0].clone()));
    builder.append(Record::from(signer().open_epoch(2)).encode().into(), None);
    let hole = builder.tail;
    for update in &updates[1..] {
        builder.publish(&signer().sign_update(2, update.clone()));
    }
    let head = updates[2].id();
    let choice = Record::from(signer().choose(2, 1, head, genesis, genesis)).encode();
    builder.append(choice.into(), None);
    builder.stream.damage(hole, Some(5));
    // It says of each position that an old record is there.
    let liar = Kept::default();
    for position in 0..100 {
        let record = signed(updates[0].clone());
        liar.0.lock().1.insert(position, record.into());
    }
    let node = Node::new(&workload, 7, None, &builder.kept);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(liar), Box::new(builder.kept.clone())];
    let never = AtomicBool::new(false);
    node.follow_with(peers, Duration::from_millis(1), |database| {
        database
            .run(&builder.stream, &never, &mut |_, is_idle| is_idle)
            .unwrap();
        eprintln!("{:?}", database.followed());
    });
    assert_eq!(node.chain().db().head(), head);
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
            node.follow(|database| {
                let mut feeding = Feeding::new(database);
                feeding.take(opened()).unwrap();
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
            node.follow(|database| {
                let mut feeding = Feeding::new(database);
                feeding.take(opened()).unwrap();
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

/// Promise: a database may begin with files or a later state, where shards have not the blocks, and records, before that.
#[test]
fn a_database_that_begins_late_learns_which_epoch_is_open() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        let signed = signer().sign_update(1, update.clone());
        builder.chain.push(signed.id());
        builder.publish(&signed);
        builder.choose();
    }
    let node = Node::new(&workload, 7, None, &builder.kept);
    // It has all blocks but the last, as from files.
    for update in &updates[..BLOCKS as usize - 1] {
        node.chain()
            .import_block(update.block_rlp().unwrap(), None)
            .unwrap();
    }
    assert_eq!(node.chain().db().head().number, BLOCKS - 1);
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 3));
    // Snapshots of shards have taken the place of what their journals had before.
    let first = builder.tail.0 - 3;
    builder
        .kept
        .0
        .lock()
        .1
        .retain(|position, _| *position >= first);
    node.read(&builder.stream, u64::MAX);
    node.follow(|database| eprintln!("{:?}", database.followed()));
    assert_eq!(node.chain().db().head(), *builder.chain.last().unwrap());
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
        let mut records = vec![opened()];
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
        node.follow(|database| {
            let mut feeding = Feeding::new(database);
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

/// Promise: power loss, a failure and a full disk at any operation leave a database that opens and goes on.
#[test]
fn each_operation_may_fail() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 6);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    let other = marked(&updates[0], 1);
    builder.publish(&signer().sign_update(1, other.clone()));
    builder.append(chosen(1, other.id(), genesis, genesis).into(), None);
    for (at, update) in updates.iter().enumerate() {
        builder.publish(&signer().sign_update(1, update.clone()));
        let head = update.id();
        let finalized = updates[at / 2].id();
        builder.append(
            chosen(2 + at as u64, head, finalized, finalized).into(),
            None,
        );
    }
    let head = updates[5].id();
    let never = AtomicBool::new(false);
    for kind in 0..3 {
        for of_note in [false, true] {
            let mut done = 0;
            for at in 0..2_000 {
                let token = with_the_token();
                let storage = (at % 2 == 0).then_some(&token);
                let mut node = Node::new(&workload, 100 + at, storage, &builder.kept);
                let disk = if of_note { &node.note } else { &node.db };
                match kind {
                    0 => disk.lose_power_after(at),
                    1 => disk.fail_call_after(at),
                    _ => disk.fill_after(at),
                }
                let before = disk.calls();
                let disks: Arc<dyn Disk> = Arc::new(node.note.clone());
                let mut last = BlockId::default();
                let ran = FollowingDatabase::new(
                    node.chain(),
                    disks,
                    keys(),
                    vec![],
                    Duration::from_millis(1),
                )
                .and_then(|mut database| {
                    database.run(&builder.stream, &never, &mut |database, is_idle| {
                        last = database.chain().db().head();
                        is_idle
                    })
                });
                let disk = if of_note { &node.note } else { &node.db };
                let used = disk.calls() - before;
                if kind == 2 {
                    disk.clear_faults();
                }
                node.crash();
                assert!(
                    node.chain().db().head() == last
                        || ran.is_err()
                        || last.number <= node.chain().db().head().number,
                    "kind {kind}, note {of_note}, at {at}"
                );
                node.read(&builder.stream, u64::MAX);
                assert_eq!(
                    node.chain().db().head(),
                    head,
                    "kind {kind}, note {of_note}, at {at}: {ran:?}"
                );
                assert_eq!(
                    node.chain().db().finality().finalized,
                    Some(updates[2].id())
                );
                done += 1;
                if ran.is_ok() && at > used {
                    break;
                }
            }
            eprintln!("  kind {kind}, note {of_note}: {done} operations");
        }
    }
}

/// Promise: lies about a branch do not end a follower. This one builds on a block whose state is not kept any more.
#[test]
fn a_block_on_an_old_one_does_not_end_the_follower() {
    let blocks = 200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let genesis = engine.chain.db().genesis();
    let few = Options {
        keep_blocks: Some(8),
        unfinalized_blocks: 4,
        ..options()
    };
    let disk = FaultyDisk::new(1);
    let init = InitOptions::from(few);
    let chain = workload
        .init(Arc::new(disk.clone()), init, &mut |_| {})
        .unwrap();
    let node = Node {
        db: disk,
        note: FaultyDisk::new(2),
        chain: Some(chain),
        kept: Kept::default(),
    };
    node.follow(|database| {
        let mut feeding = Feeding::new(database);
        feeding.take(opened()).unwrap();
        for (at, update) in updates.iter().enumerate() {
            feeding.take(signed(update.clone())).unwrap();
            feeding
                .take(chosen(1 + at as u64, update.id(), genesis, genesis))
                .unwrap();
        }
        assert_eq!(node.chain().db().head(), updates[blocks as usize - 1].id());
        node.chain().db().flush(0).unwrap();
        let mut ended = Vec::new();
        for at in [1, 20, 100, 150, 180, 190, 195] {
            let id = updates[at - 1].id();
            let what = feeding.take(signed(marked(&updates[at], 77)));
            if let Err(error) = what {
                ended.push(format!("a block on {id}: {error}"));
            }
            let number = feeding.database.state().choice + 1;
            let what = feeding.take(chosen(number, id, genesis, genesis));
            if let Err(error) = what {
                ended.push(format!("the choice of {id}: {error}"));
            }
        }
        assert!(ended.is_empty(), "{ended:#?}");
    });
}

/// What is told about a database of another chain with the same number.
#[test]
fn a_database_of_another_chain_is_told_so() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        let signed = signer().sign_update(1, update.clone());
        builder.chain.push(signed.id());
        builder.publish(&signed);
        builder.choose();
    }
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
    let never = AtomicBool::new(false);
    let followed = node.follow(|database| {
        database
            .run(&builder.stream, &never, &mut |_, is_idle| is_idle)
            .unwrap();
        database.followed().clone()
    });
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

/// As `cambium import --follow --once` does: promise is that it ends once all that is published is there.
#[test]
fn once_ends_where_a_stream_has_nothing_any_more() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in engine.updates(1, 3) {
        builder.publish(&signer().sign_update(1, update));
    }
    builder.stream.remove_before(builder.tail.next());
    assert_eq!(builder.stream.bounds().unwrap().last, builder.tail);
    let node = Node::new(&workload, 7, None, &builder.kept);
    let never = AtomicBool::new(false);
    let (mut idle, mut ended) = (0, false);
    node.follow(|database| {
        let run = database.run(&builder.stream, &never, &mut |database, is_idle| {
            let position = database.state().position;
            ended = is_idle
                && builder
                    .stream
                    .bounds()
                    .is_ok_and(|bounds| position >= bounds.last || bounds.first > bounds.last);
            idle += u64::from(is_idle);
            ended || idle > 10
        });
        run.unwrap();
    });
    assert!(ended, "nothing more will come, and it would wait for ever");
}

/// A peer that takes its time.
struct Slow(Kept, Duration);

impl Peer for Slow {
    fn name(&self) -> String {
        "a slow peer".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        std::thread::sleep(self.1);
        self.0.record(wanted)
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        self.0.snapshot(range, limits)
    }
}

/// Promise: a stream is followed until `stop` is set.
#[test]
fn a_follower_that_asks_for_blocks_stops_although_its_peer_is_slow() {
    stops_although_its_peer_is_slow(true);
}

/// As above.
#[test]
fn a_follower_that_asks_for_records_stops_although_its_peer_is_slow() {
    stops_although_its_peer_is_slow(false);
}

fn stops_although_its_peer_is_slow(by_hash: bool) {
    let blocks = 100;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in engine.updates(1, blocks) {
        builder.publish(&signer().sign_update(1, update));
    }
    let kept = builder.kept.clone();
    let stream = MemoryStream::new();
    let mut all = builder.stream.reader(StreamPosition(1)).unwrap();
    let mut count = 0;
    while let Some(item) = all.next(Duration::ZERO).unwrap() {
        let last = stream.bounds().unwrap().last;
        stream
            .append(&item.record.unwrap(), &count.to_string(), last)
            .unwrap();
        count += 1;
    }
    if by_hash {
        // The second block comes first, which is as if one were missing of a long chain.
        for position in 2..count {
            stream.damage(StreamPosition(position), None);
        }
        kept.0.lock().1.clear();
    } else {
        stream.remove_before(StreamPosition(count - 1));
    }
    let node = Node::new(&workload, 7, None, &kept);
    let stop = AtomicBool::new(false);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(Slow(kept, Duration::from_millis(100)))];
    let late = node.follow_with(peers, Duration::from_secs(60), |database| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                // In the middle of what it asks the peer for.
                let ms = if by_hash { 100 * blocks + 1_000 } else { 1_000 };
                std::thread::sleep(Duration::from_millis(ms));
                stop.store(true, Ordering::Relaxed);
                Instant::now()
            });
            database.run(&stream, &stop, &mut |_, _| false).unwrap();
            let ended = Instant::now();
            ended.saturating_duration_since(asked.join().unwrap())
        })
    });
    assert!(
        late < Duration::from_secs(2),
        "by hash: {by_hash}: it went on for {late:?}"
    );
}

/// A stream whose records come after a while, as over a slow network.
struct Late(MemoryStream, Duration);

struct LateReader(Box<dyn cambium_cluster::StreamReader>, Duration, Instant);

impl Stream for Late {
    fn append(
        &self,
        record: &Bytes,
        id: &str,
        last: StreamPosition,
    ) -> Result<StreamPosition, cambium_cluster::AppendError> {
        self.0.append(record, id, last)
    }

    fn bounds(&self) -> Result<cambium_cluster::StreamBounds, cambium_cluster::StreamError> {
        self.0.bounds()
    }

    fn reader(
        &self,
        from: StreamPosition,
    ) -> Result<Box<dyn cambium_cluster::StreamReader>, cambium_cluster::StreamError> {
        Ok(Box::new(LateReader(
            self.0.reader(from)?,
            self.1,
            Instant::now(),
        )))
    }

    fn pause(&self, attempt: u32) {
        self.0.pause(attempt);
    }
}

impl cambium_cluster::StreamReader for LateReader {
    fn next(
        &mut self,
        wait: Duration,
    ) -> Result<Option<cambium_cluster::StreamItem>, cambium_cluster::StreamError> {
        let left = self.1.saturating_sub(self.2.elapsed());
        std::thread::sleep(left.min(wait));
        if left > wait {
            return Ok(None);
        }
        self.0.next(wait)
    }
}

/// Promise: a stream that has lost what it acknowledged is noticed. One that is slow has lost nothing.
#[test]
fn a_slow_stream_is_not_taken_for_another_one() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in engine.updates(1, 3) {
        builder.publish(&signer().sign_update(1, update));
    }
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    let late = Late(builder.stream.clone(), Duration::from_millis(300));
    let never = AtomicBool::new(false);
    node.follow(|database| {
        let mut idle = 0;
        let run = database.run(&late, &never, &mut |_, is_idle| {
            idle += u64::from(is_idle);
            idle > 5
        });
        run.unwrap();
        assert_eq!(database.followed().trouble, None);
    });
}

/// Promise: what peers say is verified. One of them has a block as a builder has signed it with --no-bodies, and another one has it whole.
#[test]
fn a_peer_without_bodies_does_not_end_the_follower_where_another_has_them() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        builder.publish(&signer().sign_update(1, update.clone()));
    }
    let head = updates[2].id();
    builder.append(chosen(1, head, head, head).into(), None);
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    builder.kept.0.lock().1.retain(|position, _| *position == 1);
    let (bare, lying) = (Kept::default(), Kept::default());
    for update in &updates {
        let mut update = update.clone();
        update.body = Bytes::new();
        bare.0
            .lock()
            .0
            .insert(update.id().hash, signed(update.clone()).into());
        update.changes = Changes::default();
        lying
            .0
            .lock()
            .0
            .insert(update.id().hash, signed(update).into());
    }
    drop(lying);
    let node = Node::new(&workload, 7, None, &builder.kept);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(bare), Box::new(builder.kept.clone())];
    let never = AtomicBool::new(false);
    node.follow_with(peers, Duration::from_millis(1), |database| {
        let run = database.run(&builder.stream, &never, &mut |_, is_idle| is_idle);
        assert!(run.is_ok(), "the second peer has all: {}", run.unwrap_err());
    });
    assert_eq!(node.chain().db().head(), head);
}

/// As above: one peer has false updates that a builder has signed, and another one has the true ones.
#[test]
fn a_peer_with_false_updates_does_not_hide_true_ones() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        builder.publish(&signer().sign_update(1, update.clone()));
    }
    let head = updates[2].id();
    builder.append(chosen(1, head, head, head).into(), None);
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    builder.kept.0.lock().1.retain(|position, _| *position == 1);
    let lying = Kept::default();
    for update in &updates {
        let mut update = update.clone();
        update.changes = Changes::default();
        lying
            .0
            .lock()
            .0
            .insert(update.id().hash, signed(update).into());
    }
    let node = Node::new(&workload, 7, None, &builder.kept);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(lying), Box::new(builder.kept.clone())];
    let never = AtomicBool::new(false);
    node.follow_with(peers, Duration::from_millis(1), |database| {
        database
            .run(&builder.stream, &never, &mut |_, is_idle| is_idle)
            .unwrap();
    });
    assert_eq!(node.chain().db().head(), head);
}

/// Promise: blocks that the stream does not have any more come from shards.
#[test]
fn more_blocks_than_are_got_at_once_come_by_hash() {
    let blocks = 4_200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    let engine = engine.anew(&workload);
    for mark in 0..blocks {
        let update = engine.on(*builder.chain.last().unwrap(), mark);
        let signed = signer().sign_update(1, update);
        builder.chain.push(signed.id());
        builder.publish(&signed);
    }
    builder.choose();
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    builder.kept.0.lock().1.retain(|position, _| *position == 1);
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), *builder.chain.last().unwrap());
}

/// Promise: every follower ends at the builder's head. Blocks without a choice between them are a branch beside the head, which takes
/// memory.
#[test]
fn a_long_branch_is_followed_with_little_memory() {
    let blocks = 400;
    let workload = workload_of(blocks, 40);
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    let engine = engine.anew(&workload);
    for mark in 0..blocks {
        let update = engine.on(*builder.chain.last().unwrap(), mark);
        let signed = signer().sign_update(1, update);
        builder.chain.push(signed.id());
        builder.publish(&signed);
    }
    builder.choose();
    let disk = FaultyDisk::new(1);
    let little = Options {
        memory_bytes: 16 << 20,
        ..Options::default()
    };
    let chain = workload
        .init(
            Arc::new(disk.clone()),
            InitOptions::from(little),
            &mut |_| {},
        )
        .unwrap();
    let mut node = Node {
        db: disk,
        note: FaultyDisk::new(2),
        chain: Some(chain),
        kept: builder.kept.clone(),
    };
    let never = AtomicBool::new(false);
    let mut errors = Vec::new();
    for _ in 0..4 {
        let run = node
            .follow(|database| database.run(&builder.stream, &never, &mut |_, is_idle| is_idle));
        errors.extend(run.err().map(|error| error.to_string()));
        // It is started again.
        node.chain = None;
        node.db = node.db.crash();
        let (chain, _) = Chain::open(Arc::new(node.db.clone()), little).unwrap();
        node.chain = Some(chain);
    }
    assert_eq!(
        node.chain().db().head(),
        *builder.chain.last().unwrap(),
        "{errors:#?}"
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
    builder.append(chosen(1, right.id(), genesis, genesis).into(), None);
    let node = Node::new(&workload, 7, None, &builder.kept);
    let never = AtomicBool::new(false);
    let patience = Duration::from_secs(1);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(builder.kept.clone())];
    let started = Instant::now();
    node.follow_with(peers, patience, |database| {
        database
            .run(&builder.stream, &never, &mut |_, is_idle| is_idle)
            .unwrap();
    });
    let took = started.elapsed();
    assert_eq!(node.chain().db().head(), right.id());
    assert!(
        took < 3 * patience,
        "one block is missing, and the next right one came after {took:?}"
    );
}

/// Promise: a note is only a place in the stream, which may be lost. This one is newer than the database, which was made anew.
#[test]
fn a_note_that_is_ahead_of_its_database_costs_reading_again() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 4);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    for update in &updates[..3] {
        builder.publish(&signer().sign_update(1, update.clone()));
    }
    let id = |number: usize| updates[number - 1].id();
    builder.append(chosen(1, id(3), genesis, genesis).into(), None);
    let mut node = Node::new(&workload, 7, None, &Kept::default());
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), id(3));
    let note = node.note.duplicate();
    node = Node {
        note,
        ..Node::new(&workload, 9, None, &Kept::default())
    };
    builder.publish(&signer().sign_update(1, updates[3].clone()));
    builder.append(chosen(2, id(4), genesis, genesis).into(), None);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), id(4), "the stream has all of it");
}

/// Promise: every follower ends at the builder's head, also where it was unwound.
#[test]
fn a_database_that_was_unwound_follows_on() {
    let blocks = 150;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    let mut last = genesis;
    for (at, update) in updates[..blocks as usize - 1].iter().enumerate() {
        builder.publish(&signer().sign_update(1, update.clone()));
        last = update.id();
        builder.append(chosen(1 + at as u64, last, genesis, genesis).into(), None);
    }
    let mut node = Node::new(&workload, 7, None, &Kept::default());
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), last);
    node.chain().db().flush(0).unwrap();
    node.chain().db().unwind(5).unwrap();
    node.chain().db().flush(0).unwrap();
    node.crash();
    let update = updates.last().unwrap();
    builder.publish(&signer().sign_update(1, update.clone()));
    builder.append(chosen(blocks, update.id(), genesis, genesis).into(), None);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(
        node.chain().db().head(),
        update.id(),
        "the stream has all of it"
    );
}

/// Promise: every follower ends at the builder's head. Here two builders depose each other, and the deposed one goes on.
#[test]
fn databases_follow_builders_that_depose_each_other() {
    let workload = workload();
    let first_engine = Engine::new(&workload);
    let genesis = first_engine.chain.db().genesis();
    let signers = [[1; 32], [2; 32]].map(|secret| Signer::new(4_093, secret).unwrap());
    let keys = BuilderKeys {
        chain_id: 4_093,
        keys: signers.iter().map(Signer::address).collect(),
    };
    let (mut failed, mut ran) = (Vec::new(), 0);
    for seed in seeds!(0..60) {
        let random = &mut Random::new(seed);
        let mut builder = Builder::new(genesis);
        let kept = builder.kept.clone();
        let (none, token) = (all_but_the_token(), with_the_token());
        let mut nodes = [None, Some(&none), Some(&token)]
            .map(|storage| Node::new(&workload, random.next(), storage, &kept));
        let engine = first_engine.anew(&workload);
        let read = |node: &Node, stream: &MemoryStream, count: u64| {
            let disk: Arc<dyn Disk> = Arc::new(node.note.clone());
            let peers: Vec<Box<dyn Peer>> = vec![Box::new(kept.clone())];
            let mut database = FollowingDatabase::new(
                node.chain(),
                disk,
                keys.clone(),
                peers,
                Duration::from_millis(1),
            )
            .unwrap();
            let (never, mut left) = (AtomicBool::new(false), count);
            let run = database.run(stream, &never, &mut |_, is_idle| {
                left = left.saturating_sub(1);
                is_idle || left == 0
            });
            run.map_err(|error| format!("seed {seed}: {error}"))
        };
        let (mut epoch, mut who, mut marks) = (1_u64, 0_usize, 0);
        let mut old: Vec<(u64, usize, u64)> = Vec::new();
        let mut error = None;
        while builder.chain.len() <= BLOCKS as usize && error.is_none() {
            let length = builder.chain.len();
            if random.percent(12) {
                old.push((epoch, who, builder.choices));
                (epoch, who) = (epoch + 1 + random.below(3), 1 - who);
                builder.choices = 0;
                builder.append(
                    Record::from(signers[who].open_epoch(epoch)).encode().into(),
                    None,
                );
                if random.percent(50) {
                    builder
                        .stream
                        .damage(builder.tail, Some(random.below(50) as usize));
                }
            }
            if length > 3 && random.percent(20) {
                builder
                    .chain
                    .truncate(length - 1 - random.below(2) as usize);
            }
            marks += 1;
            let parent = *builder.chain.last().unwrap();
            if let Some((epoch, who, choices)) = old.last_mut().filter(|_| random.percent(40)) {
                // The deposed builder goes on.
                let stray = signers[*who].sign_update(*epoch, engine.on(parent, 1_000 + marks));
                builder.publish(&stray);
                *choices += 1;
                let choice =
                    signers[*who].choose(*epoch, *choices, stray.id(), parent, builder.chain[0]);
                builder.append(Record::from(choice).encode().into(), None);
            }
            let signed = signers[who].sign_update(epoch, engine.on(parent, marks));
            builder.chain.push(signed.id());
            builder.stream.plan(fault(random, 20));
            builder.publish(&signed);
            let choose = |builder: &mut Builder| {
                builder.choices += 1;
                let at =
                    |below: usize| builder.chain[builder.chain.len().saturating_sub(1 + below)];
                let choice = signers[who].choose(epoch, builder.choices, at(0), at(2), at(4));
                builder.append(Record::from(choice).encode().into(), None);
            };
            if random.percent(70) {
                builder.stream.plan(fault(random, 20));
                choose(&mut builder);
            }
            if builder.chain.len() > BLOCKS as usize {
                choose(&mut builder);
            }
            for node in &mut nodes {
                match random.below(8) {
                    0 => node.crash(),
                    1 => node.note = FaultyDisk::new(random.next()),
                    2 => {}
                    _ => error = error.or(read(node, &builder.stream, 1 + random.below(6)).err()),
                }
            }
        }
        for (at, node) in nodes.iter().enumerate() {
            error = error.or(read(node, &builder.stream, u64::MAX).err());
            let (head, finality) = (node.chain().db().head(), node.chain().db().finality());
            let final_one = builder.chain[builder.chain.len() - 5];
            if head != *builder.chain.last().unwrap() || finality.finalized != Some(final_one) {
                failed.push(format!(
                    "seed {seed}, node {at}: the head is {head}, final {finality:?}; {:?}",
                    builder.chain
                ));
            }
        }
        failed.extend(error);
        ran += 1;
    }
    assert!(failed.is_empty(), "{} of {ran}: {failed:#?}", failed.len());
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
    let disk = FaultyDisk::new(1);
    let init = InitOptions {
        preimages: true,
        ..InitOptions::from(options())
    };
    let chain = workload
        .init(Arc::new(disk.clone()), init, &mut |_| {})
        .unwrap();
    let node = Node {
        db: disk,
        note: FaultyDisk::new(2),
        chain: Some(chain),
        kept: Kept::default(),
    };
    let genesis = node.chain().db().head();
    node.follow(|database| {
        let mut feeding = Feeding::new(database);
        feeding.take(opened()).unwrap();
        let error = feeding.take(signed(updates[0].clone())).unwrap_err();
        assert!(error.to_string().contains("--preimages"), "{error}");
    });
    assert_eq!(node.chain().db().head(), genesis);
}

/// Promise: a record that the stream can't read is a hole. It does not make the stream another one.
#[test]
fn a_stream_whose_last_record_is_unreadable_is_not_taken_for_another_one() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in engine.updates(1, 3) {
        builder.publish(&signer().sign_update(1, update));
    }
    builder.stream.damage(builder.tail, None);
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert!(node.chain().db().has(engine.updates(3, 3)[0].id()).unwrap());
    let never = AtomicBool::new(false);
    node.follow(|database| {
        assert_eq!(database.state().position, builder.tail);
        let mut troubles = Vec::new();
        let run = database.run(&builder.stream, &never, &mut |database, is_idle| {
            troubles.extend(database.followed().trouble.clone());
            is_idle
        });
        run.unwrap();
        let trouble = troubles.join("; ");
        assert!(!trouble.contains("another one"), "{trouble}");
    });
}
