//! Preimages of whole chains: each hash in the state has one, for every way of making the chain.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_chain::{
    Chain, ChainError, ChainSealer, FilePosition, Fork, InitOptions, InputFile, RawBlock,
};
use cambium_preimages::{Preimages, PreimagesError};
use cambium_state::{Db, Disk, FaultyDisk, FileSizes, Options};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::{
    io::{Seek, Write},
    ops::ControlFlow,
    sync::Arc,
};

const BLOCKS: u64 = 40;

/// So little memory and so small files that much is merged, and leaves the log.
fn small() -> Options {
    Options {
        memory_bytes: 2 << 20,
        keep_blocks: Some(4),
        unfinalized_blocks: 4,
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 16 << 10,
            log_file_bytes_max: 64 << 10,
            log_extend_bytes: 64 << 10,
            log_spare_blocks: 0,
            ..FileSizes::default()
        },
        ..Options::default()
    }
}

fn with_preimages(db: Options) -> InitOptions {
    let preimages = true;
    InitOptions {
        db,
        preimages,
        ..InitOptions::default()
    }
}

fn params(fork: Fork) -> WorkloadParams {
    WorkloadParams {
        fork,
        accounts: 300,
        senders: Some(20),
        blocks: BLOCKS,
        erc20_percent: 60,
        block_size: BlockSize::Transactions(12),
        ..WorkloadParams::default()
    }
}

fn workload(fork: Fork) -> Workload {
    Workload::new(params(fork)).unwrap()
}

fn init(disk: &FaultyDisk, workload: &Workload, options: impl Into<InitOptions>) -> Chain {
    workload
        .init(Arc::new(disk.clone()), options, &mut |_| {})
        .unwrap()
}

fn open(disk: &FaultyDisk) -> Result<Chain, ChainError> {
    Ok(Chain::open(Arc::new(disk.clone()), small())?.0)
}

/// The blocks of a workload, with their access lists.
fn blocks(workload: &Workload) -> Vec<(Bytes, Vec<u8>)> {
    let chain = init(&FaultyDisk::new(99), workload, Options::default());
    generate(&chain, workload);
    let block = |number| {
        let list = chain.access_list(number).unwrap().encode();
        (chain.block_rlp(number).unwrap(), list)
    };
    (1..=chain.db().head().number).map(block).collect()
}

/// Imports blocks as from a file.
fn import(chain: &Chain, blocks: &[(Bytes, Vec<u8>)]) {
    let raw = blocks.iter().zip(0u64..).map(|((rlp, list), index)| {
        Ok(RawBlock {
            rlp: rlp.clone(),
            receipts: None,
            total_difficulty: None,
            access_list: Some(list.clone().into()),
            update: None,
            place: FilePosition {
                item: "block",
                file: "memory".into(),
                offset: 0,
                index,
                after: None,
                unpacked: false,
            },
        })
    });
    chain.import(raw, &mut |_| {}).unwrap();
}

fn generate(chain: &Chain, workload: &Workload) {
    let genesis = chain.block(0).unwrap().header;
    let mut sealer = ChainSealer(chain);
    workload
        .generate(&genesis, &mut sealer, |_| Ok(()))
        .unwrap();
}

/// Hashes of the head's state: accounts and slots. And those of which no preimage is known.
fn hashes(chain: &Chain) -> (u64, Vec<B256>) {
    let preimages = chain.preimages().unwrap().expect("preimages");
    assert_eq!(preimages.upto(), Some(chain.db().head()));
    hashes_of(chain)
}

fn hashes_of(chain: &Chain) -> (u64, Vec<B256>) {
    let preimages = chain.preimages().unwrap().expect("preimages");
    let view = chain.db().view().unwrap();
    let (mut lookup, mut unknown, mut count) = (preimages.lookup(), Vec::new(), 0);
    view.each_account(&B256::ZERO, |path, _| {
        count += 1;
        match lookup.address_of(&path).unwrap() {
            Some(address) => assert_eq!(keccak256(address), path),
            None => unknown.push(path),
        }
        view.each_slot_from(&path, &B256::ZERO, |hash, _| {
            count += 1;
            match lookup.slot_of(&hash).unwrap() {
                Some(slot) => assert_eq!(keccak256(slot), hash),
                None => unknown.push(hash),
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        ControlFlow::Continue(())
    })
    .unwrap();
    (count, unknown)
}

fn assert_whole(chain: &Chain) -> u64 {
    let (count, unknown) = hashes(chain);
    assert_eq!(unknown, Vec::<B256>::new(), "of {count}");
    assert_eq!(chain.preimages().unwrap().unwrap().stats().lost_blocks, 0);
    count
}

#[test]
fn sealed_imported_batched_and_applied_blocks_add_what_they_create() {
    for fork in [Fork::Prague, Fork::Osaka, Fork::Amsterdam] {
        let workload = workload(fork);
        let disk = FaultyDisk::new(1);
        let sealed = init(&disk, &workload, with_preimages(small()));
        let first = assert_whole(&sealed);
        generate(&sealed, &workload);
        assert!(assert_whole(&sealed) > first + 40, "{fork:?}");
        let head = sealed.db().head();
        // The source list is not stored with a block whose header lacks its hash.
        let kept = sealed.kept_access_list(BLOCKS).unwrap();
        assert_eq!(kept.is_some(), fork == Fork::Amsterdam);
        sealed.close().unwrap();
        let again = open(&disk).unwrap();
        assert_eq!(again.db().head(), head);
        assert_whole(&again);

        let blocks = blocks(&workload);
        for how in 0..4 {
            let chain = init(&FaultyDisk::new(2), &workload, with_preimages(small()));
            let chain = match how {
                2 => chain.with_applying(true),
                3 => chain.with_batch(8),
                _ => chain,
            };
            match how {
                0 => {
                    for (rlp, _) in &blocks {
                        let inserted = chain.insert(rlp.clone(), None).unwrap();
                        let outcome = inserted.outcome.unwrap();
                        assert_eq!(outcome.access_list.is_some(), fork == Fork::Amsterdam);
                        chain.set_canonical(inserted.id.hash, None, None).unwrap();
                    }
                }
                1 => {
                    for (rlp, _) in &blocks {
                        chain.import_block(rlp.clone(), None).unwrap();
                    }
                }
                _ => import(&chain, &blocks),
            }
            assert_eq!(chain.db().head(), head);
            assert_whole(&chain);
        }
    }
}

#[test]
fn a_branch_adds_its_own_when_it_becomes_canonical() {
    // The same genesis: its state is of neither the seed nor the number of transactions.
    let workloads = [12, 9].map(|transactions| {
        let workload = WorkloadParams {
            block_size: BlockSize::Transactions(transactions),
            ..params(Fork::Prague)
        };
        Workload::new(workload).unwrap()
    });
    let [one, other] = workloads.each_ref().map(blocks);
    let disk = FaultyDisk::new(3);
    let options = Options {
        unfinalized_blocks: 64,
        ..small()
    };
    let chain = init(&disk, &workloads[0], with_preimages(options));
    let insert = |branch: &[(Bytes, _)], numbers: std::ops::Range<usize>| {
        let mut tip = None;
        for (rlp, _) in &branch[numbers] {
            tip = Some(chain.insert(rlp.clone(), None).unwrap().id);
        }
        tip.unwrap()
    };
    let first = insert(&one, 0..20);
    let second = insert(&other, 0..25);
    for head in [first, second, first, second] {
        chain.set_canonical(head.hash, None, None).unwrap();
        assert_whole(&chain);
    }
    // The follower skips branches that are not canonical, and remembers those that were.
    let third = insert(&one, 20..40);
    assert_whole(&chain);
    chain.preimages().unwrap().unwrap().flush().unwrap();
    chain.set_canonical(third.hash, None, None).unwrap();
    chain.close().unwrap();
    let again = Chain::open(Arc::new(disk.clone()), options).unwrap().0;
    assert_eq!(again.db().head(), third);
    assert_whole(&again);
}

#[test]
fn after_any_loss_of_power_the_log_has_what_is_not_in_files() {
    let blocks_max = 120;
    let workload = Workload::new(WorkloadParams {
        blocks: blocks_max,
        block_size: BlockSize::Transactions(3),
        ..params(Fork::Osaka)
    });
    let workload = workload.unwrap();
    let blocks = blocks(&workload);
    let (mut losses, mut trimmed) = (0, 0);
    for seed in cambium_seeds::seeds!(0..10) {
        let mut disk = FaultyDisk::new(seed);
        let chain = init(&disk, &workload, with_preimages(small()));
        chain.close().unwrap();
        for round in 0u64.. {
            let opened = {
                disk.lose_power_after(60 + (seed * 377 + round * 531) % 350);
                open(&disk)
            };
            let done = opened.and_then(|chain| {
                let next = chain.db().head().number as usize;
                for (at, (rlp, _)) in blocks.iter().enumerate().skip(next) {
                    chain.import_block(rlp.clone(), None)?;
                    if at % 5 == 4 {
                        chain.db().flush(2)?;
                    }
                }
                Ok(())
            });
            losses += usize::from(done.is_err());
            disk = disk.crash();
            let chain = open(&disk).unwrap();
            assert_whole(&chain);
            let (durable, kept) = {
                let durable = chain.preimages().unwrap().unwrap().durable();
                (durable.unwrap().number, chain.db().stats().unwrap())
            };
            trimmed += usize::from(durable + 1 >= kept.kept_from && kept.kept_from > 1);
            if chain.db().head().number == blocks_max {
                break;
            }
            // Half of the times what is in memory goes to a file.
            if round.is_multiple_of(2) {
                chain.close().unwrap();
            }
        }
    }
    assert!(losses > 30 && trimmed > 10, "{losses} {trimmed}");
}

#[test]
fn an_initialization_that_is_interrupted_is_begun_again_with_or_without_preimages() {
    let workload = workload(Fork::Osaka);
    let (mut interrupted, mut whole) = (0, 0);
    for calls in (0..).step_by(3) {
        let disk = FaultyDisk::new(4);
        disk.lose_power_after(calls);
        let options = with_preimages(small());
        let made = workload.init(Arc::new(disk.clone()), options, &mut |_| {});
        let is_made = made.is_ok();
        drop(made);
        for wanted in [true, false] {
            let disk = disk.duplicate().crash();
            if is_made || open(&disk).is_ok() {
                assert_whole(&open(&disk).unwrap());
                whole += 1;
                continue;
            }
            interrupted += 1;
            let preimages = wanted;
            let options = InitOptions {
                db: small(),
                preimages,
                ..InitOptions::default()
            };
            let chain = init(&disk, &workload, options);
            assert_eq!(chain.keeps_preimages(), wanted);
            if wanted {
                assert_whole(&chain);
            }
            drop(chain);
            let exist = Preimages::exist(&disk).unwrap();
            assert_eq!(exist, wanted);
        }
        if is_made {
            break;
        }
    }
    assert!(interrupted > 20 && whole > 1, "{interrupted} {whole}");
}

#[test]
fn blocks_that_no_preimages_are_known_of_are_counted() {
    let workload = workload(Fork::Osaka);
    let blocks = blocks(&workload);
    let disk = FaultyDisk::new(5);
    let options = Options {
        keep_blocks: None,
        ..small()
    };
    init(&disk, &workload, with_preimages(options))
        .close()
        .unwrap();
    let import = |numbers: std::ops::Range<usize>| {
        let (chain, _) = Chain::open(Arc::new(disk.clone()), options).unwrap();
        for (rlp, _) in &blocks[numbers] {
            chain.import_block(rlp.clone(), None).unwrap();
        }
        chain
    };
    let chain = import(0..10);
    assert_whole(&chain);
    chain.close().unwrap();
    // The folder is away for some blocks.
    let folder: Vec<(String, Vec<u8>)> = disk
        .files()
        .into_iter()
        .filter(|name| name.starts_with("preimages/") && !name.ends_with("LOCK"))
        .map(|name| {
            let bytes = disk.contents(&name).unwrap();
            disk.remove(&name).unwrap();
            (name, bytes)
        })
        .collect();
    let without = import(10..15);
    assert!(!without.keeps_preimages());
    assert!(without.preimages().unwrap().is_none());
    without.close().unwrap();
    for (name, bytes) in folder {
        disk.create(&name).unwrap().write_at(&bytes, 0).unwrap();
    }
    let chain = import(15..20);
    let (_, unknown) = hashes(&chain);
    assert!(!unknown.is_empty());
    let stats = chain.preimages().unwrap().unwrap().stats();
    assert_eq!(stats.lost_blocks, 5);
    // A dump has the hashes, and says so.
    let view = chain.db().view().unwrap().into();
    let mut out = Vec::new();
    let done = chain
        .dump_state(&view, false, "memory", &mut out, &mut |_| {})
        .unwrap();
    assert_eq!(
        done.hashed_accounts + done.hashed_slots,
        unknown.len() as u64
    );
    assert!(done.hashed_accounts < done.accounts && done.hashed_slots < done.slots);
    let required = chain.dump_state(&view, true, "memory", &mut Vec::new(), &mut |_| {});
    let told = required.unwrap_err().to_string();
    assert!(told.contains("by its hash 0x"), "{told}");
    // It is loaded without preimages alone.
    let load = |options: InitOptions| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&out).unwrap();
        file.rewind().unwrap();
        let disk = Arc::new(FaultyDisk::new(6));
        Chain::load_dump(disk, InputFile::named("d", file), options, &mut |_| {})
    };
    let told = load(with_preimages(options)).map(drop).unwrap_err();
    assert!(told.to_string().contains("preimage"), "{told}");
    let loaded = load(options.into()).unwrap();
    assert_eq!(
        loaded.db().view().unwrap().state_root(),
        chain.db().view().unwrap().state_root()
    );
}

#[test]
fn a_dump_has_addresses_and_slots_and_a_database_of_it_knows_them() {
    let workload = workload(Fork::Amsterdam);
    let disk = FaultyDisk::new(7);
    let chain = init(&disk, &workload, with_preimages(Options::default()));
    generate(&chain, &workload);
    for number in [0, 20, BLOCKS] {
        let view = chain.db().view_at(number).unwrap().into();
        let mut out = Vec::new();
        let done = chain
            .dump_state(&view, true, "memory", &mut out, &mut |_| {})
            .unwrap();
        assert_eq!((done.hashed_accounts, done.hashed_slots), (0, 0));
        assert!(done.slots > 20, "{done:?}");
        let text = String::from_utf8(out.clone()).unwrap();
        assert!(!text.contains("hashedStorage"));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&out).unwrap();
        file.rewind().unwrap();
        let options = with_preimages(Options::default());
        let disk = Arc::new(FaultyDisk::new(8));
        let loaded = Chain::load_dump(disk, InputFile::named("d", file), options, &mut |_| {});
        let loaded = loaded.unwrap();
        assert_whole(&loaded);
        let view = loaded.db().view().unwrap().into();
        let mut again = Vec::new();
        loaded
            .dump_state(&view, true, "memory", &mut again, &mut |_| {})
            .unwrap();
        assert_eq!(again, out);
    }
}

#[test]
fn a_reader_knows_what_the_writer_has_in_memory_alone() {
    let workload = workload(Fork::Osaka);
    let disk = FaultyDisk::new(9);
    let options = Options::default();
    let writer = init(&disk, &workload, with_preimages(options));
    let blocks = blocks(&workload);
    let read = || {
        let (db, _) = Db::open_read_only(Arc::new(disk.clone()), options).unwrap();
        Chain::of(db).unwrap()
    };
    let early = read();
    for (at, (rlp, _)) in blocks.iter().enumerate() {
        writer.import_block(rlp.clone(), None).unwrap();
        if at % 8 == 3 {
            let reader = read();
            assert_eq!(reader.db().head(), writer.db().head());
            assert_whole(&reader);
            assert_whole(&reader);
        }
    }
    let preimages = writer.preimages().unwrap().unwrap();
    assert_eq!(preimages.durable(), Some(writer.db().genesis()));
    preimages.flush().unwrap();
    preimages.merge().unwrap();
    // It is at the first block still, and its preimages are those of later ones.
    let known = early.preimages().unwrap().unwrap();
    assert_eq!(known.upto(), Some(writer.db().head()));
    assert_whole(&read());
}

#[test]
fn damaged_preimages_close_no_chain_and_are_named() {
    let workload = workload(Fork::Osaka);
    let disk = FaultyDisk::new(10);
    let chain = init(&disk, &workload, with_preimages(small()));
    generate(&chain, &workload);
    let expected = chain.db().head();
    chain.close().unwrap();
    for name in disk.files() {
        let is_theirs = name.starts_with("preimages/") && !name.ends_with("LOCK");
        if !is_theirs {
            continue;
        }
        for at in [9, disk.contents(&name).unwrap().len() - 9] {
            let broken = disk.duplicate();
            let file = broken.open(&name).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at as u64).unwrap();
            file.write_at(&[byte[0] ^ 4], at as u64).unwrap();
            let chain = open(&broken).unwrap();
            assert_eq!(chain.db().head(), expected);
            // A dump is whole, by hashes.
            let view = chain.db().view().unwrap().into();
            let mut out = Vec::new();
            let done = chain
                .dump_state(&view, false, "memory", &mut out, &mut |_| {})
                .unwrap();
            let told = match chain.preimages() {
                Ok(preimages) => preimages.unwrap().check(&mut |_| {}).unwrap_err(),
                Err(ChainError::Preimages(error)) => {
                    assert_eq!(done.hashed_accounts, done.accounts);
                    assert!(done.preimages_error.is_some());
                    *error
                }
                Err(error) => panic!("{error}"),
            };
            assert!(
                matches!(
                    told,
                    PreimagesError::Damaged { .. } | PreimagesError::Missing { .. }
                ),
                "{told}"
            );
            assert!(told.to_string().contains(&name), "{told}");
        }
    }
}

#[test]
fn whoever_has_the_preimages_still_keeps_no_block_from_them() {
    let workload = workload(Fork::Osaka);
    let blocks = blocks(&workload);
    let disk = FaultyDisk::new(11);
    let chain = init(&disk, &workload, with_preimages(small()));
    let kept = chain.preimages().unwrap().unwrap();
    chain.close().unwrap();
    let chain = open(&disk).unwrap();
    let told = chain.preimages().map(drop).unwrap_err().to_string();
    assert!(told.contains("is open in this process already"), "{told}");
    for (rlp, _) in &blocks {
        chain.import_block(rlp.clone(), None).unwrap();
        chain.db().flush(2).unwrap();
    }
    drop(kept);
    assert_whole(&chain);
}

/// Two chains with the same genesis.
fn two() -> [Workload; 2] {
    [(12, 25), (9, 90)].map(|(transactions, fresh_percent)| {
        let workload = WorkloadParams {
            block_size: BlockSize::Transactions(transactions),
            fresh_percent,
            ..params(Fork::Prague)
        };
        Workload::new(workload).unwrap()
    })
}

#[test]
fn a_crash_after_the_chain_has_left_what_is_in_files_loses_none() {
    let workloads = two();
    let [one, other] = workloads.each_ref().map(blocks);
    let options = Options {
        unfinalized_blocks: 8,
        files: FileSizes {
            log_file_bytes_max: 8 << 10,
            log_extend_bytes: 8 << 10,
            ..small().files
        },
        ..small()
    };
    let opened = |disk: &FaultyDisk| Chain::open(Arc::new(disk.clone()), options).unwrap().0;
    for left in [1, 5, 8] {
        let disk = FaultyDisk::new(12);
        let chain = init(&disk, &workloads[0], with_preimages(options));
        for (rlp, _) in &one[..left] {
            chain.import_block(rlp.clone(), None).unwrap();
        }
        assert_whole(&chain);
        chain.close().unwrap();
        let chain = opened(&disk);
        let durable = chain.preimages().unwrap().unwrap().durable();
        assert_eq!(durable.unwrap().number, left as u64);
        let mut tip = chain.db().genesis();
        for (rlp, _) in &other[..=left] {
            tip = chain.insert(rlp.clone(), None).unwrap().id;
        }
        chain.set_canonical(tip.hash, None, None).unwrap();
        assert_whole(&chain);
        for (rlp, _) in &other[left + 1..] {
            chain.import_block(rlp.clone(), None).unwrap();
            chain.db().flush(0).unwrap();
        }
        assert_whole(&chain);
        let crashed = disk.crash();
        drop(chain);
        assert_whole(&opened(&crashed));
    }
}

#[test]
fn a_height_of_which_nothing_is_known_is_counted_once() {
    let workload = workload(Fork::Osaka);
    let blocks = blocks(&workload);
    let disk = FaultyDisk::new(13);
    let options = Options {
        keep_blocks: None,
        unfinalized_blocks: 64,
        ..small()
    };
    let opened = || Chain::open(Arc::new(disk.clone()), options).unwrap().0;
    init(&disk, &workload, with_preimages(options))
        .close()
        .unwrap();
    // The folder is somewhere else meanwhile.
    let files = ["runs.list", "00000001.run"].map(|name| format!("preimages/{name}"));
    let away = |file: &String| format!("{file}.away");
    for file in &files {
        disk.rename(file, &away(file)).unwrap();
    }
    let chain = opened();
    for (rlp, _) in &blocks[..10] {
        chain.import_block(rlp.clone(), None).unwrap();
    }
    chain.close().unwrap();
    for file in &files {
        disk.rename(&away(file), file).unwrap();
    }
    let chain = opened();
    let head = chain.db().head();
    for _ in 0..3 {
        let (_, unknown) = hashes(&chain);
        assert!(!unknown.is_empty());
        let stats = chain.preimages().unwrap().unwrap().stats();
        assert_eq!(stats.lost_blocks, 10);
        chain.db().unwind(0).unwrap();
        assert_eq!(hashes(&chain).1, Vec::<B256>::new());
        chain.db().set_head(head).unwrap();
    }
}

#[test]
fn a_reader_of_a_branch_that_is_lower_than_what_is_in_files_knows_it() {
    let workloads = two();
    let [one, other] = workloads.each_ref().map(blocks);
    for unfinalized_blocks in [4, 64] {
        let options = Options {
            unfinalized_blocks,
            ..Options::default()
        };
        let disk = FaultyDisk::new(14);
        let writer = init(&disk, &workloads[0], with_preimages(options));
        import(&writer, &one);
        writer.preimages().unwrap().unwrap().flush().unwrap();
        writer.db().unwind(0).unwrap();
        // Without a look-up of preimages, none of the new branch are written to files.
        import(&writer, &other[..25]);
        let (db, _) = Db::open_read_only(Arc::new(disk.clone()), options).unwrap();
        let reader = Chain::of(db).unwrap();
        assert_eq!(reader.db().head().number, 25);
        assert_eq!(hashes_of(&reader).1, Vec::<B256>::new());
    }
}

#[test]
fn whole_preimages_without_a_database_are_not_removed() {
    let workload = workload(Fork::Osaka);
    let disk = FaultyDisk::new(15);
    let chain = init(&disk, &workload, with_preimages(small()));
    generate(&chain, &workload);
    chain.close().unwrap();
    for name in disk.files() {
        if !name.starts_with("preimages/") {
            disk.remove(&name).unwrap();
        }
    }
    let again = workload.init(Arc::new(disk.clone()), small(), &mut |_| {});
    let told = again.map(drop).unwrap_err().to_string();
    assert!(told.contains("has preimages already"), "{told}");
    assert!(Preimages::exist(&disk).unwrap());
}

#[test]
fn a_record_that_a_repair_cuts_out_costs_the_preimages_of_its_block_alone() {
    let workload = workload(Fork::Osaka);
    let blocks = blocks(&workload);
    let disk = FaultyDisk::new(17);
    let options = Options {
        keep_blocks: None,
        ..small()
    };
    let chain = init(&disk, &workload, with_preimages(options));
    for (rlp, _) in &blocks[..30] {
        chain.import_block(rlp.clone(), None).unwrap();
        chain.db().flush(0).unwrap();
    }
    let crashed = disk.crash();
    drop(chain);
    let log = crashed
        .files()
        .into_iter()
        .find(|name| name.starts_with("log/"));
    let log = log.unwrap();
    let middle = crashed.contents(&log).unwrap().len() as u64 / 3;
    let file = crashed.open(&log).unwrap();
    file.write_at(&[0xff; 8], middle).unwrap();
    let shared: Arc<dyn Disk> = Arc::new(crashed.clone());
    let report = cambium_state::repair(&shared, options, false, &mut |_| {}).unwrap();
    assert!(!report.lost_history.is_empty(), "{report:?}");
    let chain = Chain::open(shared, options).unwrap().0;
    let (count, unknown) = hashes(&chain);
    let lost = chain.preimages().unwrap().unwrap().stats().lost_blocks;
    assert!((1..4).contains(&lost), "{lost}");
    assert!(!unknown.is_empty() && (unknown.len() as u64) < count / 4);
    // Later blocks are added.
    for (rlp, _) in &blocks[chain.db().head().number as usize..] {
        chain.import_block(rlp.clone(), None).unwrap();
    }
    assert_eq!(hashes(&chain).1.len(), unknown.len());
}
