//! On faulty disks, behind a faulty stream, with branches that compete and builders that depose each other.

use crate::common::{databases::*, stream::fault};
use cambium_cluster::{BuilderKeys, FollowingDatabase, MemoryStream, Record, Signer};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::BlockId;
use cambium_seeds::{Random, seeds};
use std::sync::{Arc, atomic::AtomicBool};

#[test]
fn databases_follow_a_stream_through_faults_and_branches() {
    let workload = workload();
    let first_engine = Engine::new(&workload);
    let genesis = first_engine.chain.db().genesis();
    let (mut reorganized, mut crashes) = (0, 0);
    for seed in seeds!(0..30) {
        let random = &mut Random::new(seed);
        let mut builder = Builder::new(genesis);
        builder.faults = Some(Random::new(random.next()));
        let kept = builder.kept.clone();
        let (none, token) = (all_but_the_token(), with_the_token());
        let mut nodes = [None, Some(&none), Some(&token)]
            .map(|storage| Node::new(&workload, random.next(), storage, &kept));
        let engine = first_engine.anew(&workload);
        let mut marks = 0;
        while builder.chain.len() <= BLOCKS as usize {
            // Another branch from somewhere above what is final.
            let length = builder.chain.len();
            if length > 3 && random.percent(20) {
                builder
                    .chain
                    .truncate(length - 1 - random.below(2) as usize);
                reorganized += 1;
            }
            marks += 1;
            let parent = builder.head();
            let signed = signer().sign_update(1, engine.on(parent, marks));
            builder.chain.push(signed.id());
            builder.publish(&signed);
            if random.percent(70) {
                builder.choose();
            }
            for node in &mut nodes {
                match random.below(8) {
                    0 => {
                        node.crash();
                        crashes += 1;
                    }
                    1 => node.note = FaultyDisk::new(random.next()),
                    2 => {}
                    _ => drop(node.read(&builder.stream, 1 + random.below(6))),
                }
            }
        }
        builder.faults = None;
        builder.choose();
        for (at, node) in nodes.iter_mut().enumerate() {
            node.read(&builder.stream, u64::MAX);
            if random.percent(50) {
                node.crash();
                crashes += 1;
            }
            let chain = node.chain();
            assert_eq!(chain.db().head(), builder.head(), "seed {seed}, node {at}");
            let root = chain.db().view().unwrap().state_root();
            let last = engine.chain.block(BLOCKS).unwrap();
            assert_eq!(root, last.header.state_root);
            for id in &builder.chain[1..] {
                let number = id.number as usize;
                let block = chain.block(id.number).unwrap();
                let own = engine.chain.block(id.number).unwrap();
                assert_eq!(block.header.hash_slow(), id.hash, "seed {seed}, node {at}");
                assert_eq!(block.body, own.body, "block {number}");
            }
            let finality = chain.db().finality();
            let below = builder.chain.len() - 1 - 4;
            assert_eq!(finality.finalized, Some(builder.chain[below]));
        }
    }
    eprintln!("  {reorganized} times another branch, {crashes} losses of power");
    assert!(reorganized > 0 && crashes > 0);
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
        nodes.iter_mut().for_each(|node| node.keys = keys.clone());
        let engine = first_engine.anew(&workload);
        let read = |node: &Node, stream: &MemoryStream, count: u64| {
            let read = node.try_read(stream, count);
            read.map_err(|error| format!("seed {seed}: {error}"))
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
                builder.append(Record::from(signers[who].open_epoch(epoch)).encode());
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
            let parent = builder.head();
            if let Some((epoch, who, choices)) = old.last_mut().filter(|_| random.percent(40)) {
                // The deposed builder goes on.
                let stray = signers[*who].sign_update(*epoch, engine.on(parent, 1_000 + marks));
                builder.publish(&stray);
                *choices += 1;
                let choice =
                    signers[*who].choose(*epoch, *choices, stray.id(), parent, builder.chain[0]);
                builder.append(Record::from(choice).encode());
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
                builder.append(Record::from(choice).encode());
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
            if head != builder.head() || finality.finalized != Some(final_one) {
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
    builder.append(chosen(1, other.id(), genesis, genesis));
    for (at, update) in updates.iter().enumerate() {
        builder.publish(&signer().sign_update(1, update.clone()));
        let head = update.id();
        let finalized = updates[at / 2].id();
        builder.append(chosen(2 + at as u64, head, finalized, finalized));
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
                let ran = FollowingDatabase::new(node.chain(), disks, keys(), vec![], MOMENT)
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
