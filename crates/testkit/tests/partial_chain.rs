//! Partial databases of chains: blocks are imported with state updates that a full database has made, which are untrusted.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_chain::{
    BlockSource, Chain, ChainError, ChainSealer, ChainWriter, Fork, ImportSummary, InitOptions,
    InputFile, StateUpdate, UpdateReader, UpdateWriter, WithUpdates,
};
use cambium_history::{History, HistoryOptions};
use cambium_primitives::{AccountUpdate, BlockId, Changes};
use cambium_state::{FaultyDisk, FileSizes, KeptStorage, Options, StateError, View};
use cambium_testkit::{Random, TINY_FILES, raw_block, say};
use cambium_workload::{BlockSize, ROUTER, TOKEN, Workload, WorkloadParams};
use std::{
    fs,
    io::{Seek, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

const BLOCKS: u64 = 30;

fn options() -> Options {
    Options {
        memory_bytes: 8 << 20,
        files: TINY_FILES,
        ..Options::default()
    }
}

/// A chain in a full database, and files of its blocks and state updates.
struct Made {
    workload: Workload,
    full: Chain,
    blocks: Vec<Bytes>,
    updates: Vec<(BlockId, StateUpdate)>,
    dir: tempfile::TempDir,
}

impl Made {
    fn new(fork: Fork) -> Self {
        let params = WorkloadParams {
            fork,
            accounts: 300,
            senders: Some(20),
            blocks: BLOCKS,
            erc20_percent: 60,
            block_size: BlockSize::Transactions(12),
            ..WorkloadParams::default()
        };
        let workload = Workload::new(params).unwrap();
        let full = workload.init(Arc::new(FaultyDisk::new(1)), options(), &mut |_| {});
        let full = full.unwrap();
        let genesis = full.block(0).unwrap().header;
        let generated = workload.generate(&genesis, &mut ChainSealer(&full), |_| Ok(()));
        generated.unwrap();
        let blocks = (1..=BLOCKS).map(|number| full.block_rlp(number).unwrap());
        let blocks = blocks.collect();
        let updates = full.state_updates(1, BLOCKS).unwrap();
        let updates: Vec<_> = updates.collect::<Result<_, _>>().unwrap();
        let made = Self {
            workload,
            full,
            blocks,
            updates,
            dir: tempfile::tempdir().unwrap(),
        };
        made.write(&made.blocks_file(), &made.updates_file(""), BLOCKS as usize);
        made
    }

    fn blocks_file(&self) -> PathBuf {
        self.dir.path().join("blocks.rlp")
    }

    fn updates_file(&self, ending: &str) -> PathBuf {
        self.dir.path().join(format!("updates{ending}"))
    }

    /// Writes the first blocks and their updates.
    fn write(&self, blocks: &Path, updates: &Path, count: usize) {
        let mut writer = ChainWriter::create(blocks).unwrap();
        for rlp in &self.blocks[..count] {
            writer.write_rlp(rlp).unwrap();
        }
        writer.finish().unwrap();
        let mut writer = UpdateWriter::create(updates).unwrap();
        for (id, update) in &self.updates[..count] {
            writer.write(*id, update).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), count as u64);
    }

    fn init(&self, disk: &FaultyDisk, kept: &[Address]) -> Chain {
        let kept = KeptStorage::new(kept.iter().map(keccak256)).unwrap();
        let options = InitOptions {
            db: options(),
            storage_of: Some(kept),
            ..InitOptions::default()
        };
        let chain = self
            .workload
            .init(Arc::new(disk.clone()), options, &mut |_| {});
        chain.unwrap()
    }
}

fn import(chain: &Chain, blocks: &Path, updates: &Path) -> Result<ImportSummary, ChainError> {
    let source = BlockSource::open(blocks)?;
    let updates = UpdateReader::open(updates)?;
    chain.import(WithUpdates::new(source, updates)?, &mut |_| {})
}

/// Compares a partial state with the full one: all accounts, and the slots of what is kept.
fn compare(full: &View, partial: &View, kept: &[Address]) -> u64 {
    assert_eq!(full.block(), partial.block());
    assert_eq!(full.state_root(), partial.state_root());
    let accounts = |view: &View| {
        let mut accounts = Vec::new();
        view.each_account(&B256::ZERO, |path, account| {
            accounts.push((path, account));
            ControlFlow::Continue(())
        })
        .unwrap();
        accounts
    };
    let all = accounts(full);
    assert_eq!(all, accounts(partial));
    let mut slots = 0;
    for (path, account) in all {
        assert_eq!(
            full.code(&account.code_hash).unwrap(),
            partial.code(&account.code_hash).unwrap()
        );
        assert_eq!(
            full.has_storage(&path).unwrap(),
            partial.has_storage(&path).unwrap()
        );
        if kept.iter().any(|address| keccak256(address) == path) {
            let expected = full.slots(&path).unwrap();
            assert_eq!(partial.slots(&path).unwrap(), expected);
            slots += expected.len() as u64;
        } else {
            let refused = partial.slots(&path);
            assert!(
                matches!(refused, Err(StateError::StorageNotKept { .. })),
                "{path}"
            );
        }
    }
    slots
}

#[test]
fn blocks_with_their_updates_make_a_partial_database_of_the_same_state() {
    let mut slots = Vec::new();
    for fork in [Fork::Osaka, Fork::Prague] {
        let made = Made::new(fork);
        made.write(
            &made.blocks_file(),
            &made.updates_file(".gz"),
            BLOCKS as usize,
        );
        let lists: [&[Address]; 4] = [&[], &[TOKEN], &[ROUTER], &[TOKEN, ROUTER]];
        for (kept, ending) in lists.into_iter().zip(["", ".gz", "", ".gz"]) {
            let disk = FaultyDisk::new(2);
            let chain = made.init(&disk, kept);
            let updates = made.updates_file(ending);
            let done = import(&chain, &made.blocks_file(), &updates).unwrap().done;
            assert_eq!((done.blocks, done.applied), (BLOCKS, BLOCKS));
            let mut of_all = 0;
            for number in 0..=BLOCKS {
                let views = [&made.full, &chain].map(|chain| chain.db().view_at(number).unwrap());
                of_all += compare(&views[0], &views[1], kept);
            }
            slots.push((fork, kept.len(), of_all));
            assert_eq!(
                chain.db().check(&mut |_| {}).unwrap().damage,
                Vec::<String>::new()
            );
            // Again, nothing is new.
            let done = import(&chain, &made.blocks_file(), &updates).unwrap().done;
            assert_eq!((done.blocks, done.skipped), (0, BLOCKS));
            chain.close().unwrap();
            let (chain, _) = Chain::open(Arc::new(disk), options()).unwrap();
            let views = [&made.full, &chain].map(|chain| chain.db().view().unwrap());
            compare(&views[0], &views[1], kept);
        }
    }
    say(&format!(
        "  slots that are kept, over all blocks: {slots:?}"
    ));
}

#[test]
fn a_partial_import_goes_on_where_it_ended_and_a_full_database_takes_updates_as_well() {
    let made = Made::new(Fork::Osaka);
    let disk = FaultyDisk::new(3);
    let chain = made.init(&disk, &[TOKEN]);
    let first = [made.dir.path().join("b"), made.dir.path().join("u")];
    made.write(&first[0], &first[1], 11);
    assert_eq!(
        import(&chain, &first[0], &first[1]).unwrap().done.blocks,
        11
    );
    chain.close().unwrap();
    let (chain, _) = Chain::open(Arc::new(disk), options()).unwrap();
    // More blocks than updates: those without are named, and those before are committed.
    let error = import(&chain, &made.blocks_file(), &first[1]).unwrap_err();
    assert!(
        matches!(error, ChainError::NoUpdate(id) if id.number == 12),
        "{error}"
    );
    assert!(error.to_string().contains("--updates"), "{error}");
    // Updates alone of later blocks.
    let mut writer = UpdateWriter::create(&first[1]).unwrap();
    for (id, update) in &made.updates[7..] {
        writer.write(*id, update).unwrap();
    }
    writer.finish().unwrap();
    let done = import(&chain, &made.blocks_file(), &first[1]).unwrap().done;
    assert_eq!((done.skipped, done.blocks), (11, BLOCKS - 11));
    compare(
        &made.full.db().view().unwrap(),
        &chain.db().view().unwrap(),
        &[TOKEN],
    );
    let full = made
        .workload
        .init(Arc::new(FaultyDisk::new(4)), options(), &mut |_| {});
    let full = full.unwrap();
    let done = import(&full, &made.blocks_file(), &made.updates_file(""))
        .unwrap()
        .done;
    assert_eq!(
        (done.blocks, done.applied, done.head),
        (BLOCKS, BLOCKS, made.full.db().head())
    );
    assert_eq!(
        full.db().check(&mut |_| {}).unwrap().damage,
        Vec::<String>::new()
    );
}

/// Each way in which an update may be false.
fn falsified(update: &StateUpdate, kind: usize) -> Option<StateUpdate> {
    let mut bad = update.clone();
    let token = keccak256(TOKEN);
    let at = bad
        .storage_roots
        .iter()
        .position(|(path, _)| *path == token);
    let router = keccak256(ROUTER);
    let mut accounts = std::mem::take(&mut bad.changes).into_accounts();
    match kind {
        // Roots of what is kept and of what is not; missing, false, of an account that doesn't exist, empty.
        0 => bad.storage_roots[at?].1 = B256::repeat_byte(3),
        1 => {
            let other = bad
                .storage_roots
                .iter()
                .position(|(path, _)| *path != token)?;
            bad.storage_roots[other].1 = B256::repeat_byte(3);
        }
        2 => {
            let other = bad
                .storage_roots
                .iter()
                .position(|(path, _)| *path != token)?;
            bad.storage_roots.remove(other);
        }
        3 => {
            bad.storage_roots
                .push((B256::repeat_byte(0xff), B256::repeat_byte(3)));
        }
        4 => {
            let other = bad
                .storage_roots
                .iter()
                .position(|(path, _)| *path != token)?;
            bad.storage_roots[other].1 = cambium_trie::EMPTY_ROOT;
        }
        // Values.
        5 => {
            let change = accounts.iter_mut().find(|change| change.path == token)?;
            change.slots.first_mut()?.1 += U256::from(1);
        }
        6 => {
            let change = accounts.iter_mut().find(|change| change.path == token)?;
            change.slots.pop()?;
        }
        7 => {
            let put = accounts
                .iter_mut()
                .find_map(|change| match &mut change.account {
                    AccountUpdate::Put(account) => Some(account),
                    _ => None,
                });
            put?.balance += U256::from(1);
        }
        8 => drop(accounts.pop()?),
        9 => {
            let change = accounts
                .iter_mut()
                .find(|change| change.path != token && change.path != router)?;
            change.account = AccountUpdate::Delete;
            change.slots.clear();
            bad.storage_roots.retain(|(path, _)| *path != change.path);
        }
        // The reserved key, in place of slots that are kept.
        10 => {
            let root = bad.storage_roots[at?].1;
            let change = accounts.iter_mut().find(|change| change.path == token)?;
            change.slots = vec![(cambium_primitives::STORAGE_ROOT_KEY, root.into())];
        }
        _ => {
            let change = accounts.iter_mut().find(|change| change.path == token)?;
            change.wipe = true;
        }
    }
    bad.changes = Changes::new(accounts);
    Some(bad)
}

#[test]
fn a_false_update_is_named_and_stores_nothing() {
    let made = Made::new(Fork::Osaka);
    let chain = made.init(&FaultyDisk::new(5), &[TOKEN]);
    let mut tried = [0; 12];
    for (number, rlp) in (1u64..).zip(&made.blocks) {
        let (id, update) = &made.updates[number as usize - 1];
        for (kind, tried) in tried.iter_mut().enumerate() {
            let Some(bad) = falsified(update, kind) else {
                continue;
            };
            let before = chain.db().view().unwrap().state_root();
            let raw = |update: &StateUpdate| {
                let mut raw = raw_block(number, rlp.clone(), None);
                raw.update = Some(update.encode().into());
                std::iter::once(Ok(raw))
            };
            let refused = chain.import(raw(&bad), &mut |_| {});
            let error = refused.map(|_| ()).unwrap_err();
            assert!(
                matches!(&error, ChainError::FalseUpdate { id: of, .. } if of == id),
                "block {number}, kind {kind}: {error}"
            );
            assert_eq!(chain.db().view().unwrap().state_root(), before);
            *tried += 1;
        }
        let prepared = chain
            .prepare_with_update(rlp.clone(), update.clone())
            .unwrap();
        let executed = chain.execute(prepared, chain.db().head()).unwrap();
        assert_eq!(executed.commit().unwrap(), *id);
    }
    say(&format!("  false updates by kind: {tried:?}"));
    assert!(
        tried.iter().filter(|tried| **tried > 0).count() >= 9,
        "{tried:?}"
    );
    compare(
        &made.full.db().view().unwrap(),
        &chain.db().view().unwrap(),
        &[TOKEN],
    );
}

#[test]
fn a_file_of_updates_with_any_damage_makes_no_other_state() {
    let made = Made::new(Fork::Osaka);
    let (blocks, updates) = (made.dir.path().join("few"), made.dir.path().join("damaged"));
    made.write(&blocks, &updates, 4);
    let bytes = fs::read(&updates).unwrap();
    let mut random = Random::new(9);
    let (mut whole, mut named) = (0, 0);
    for round in 0..150 {
        let mut damaged = bytes.clone();
        let at = random.below(bytes.len() as u64) as usize;
        match round % 5 {
            0 => damaged.truncate(at),
            1 => damaged.extend([0xc0, 0x80]),
            2 => drop(damaged.drain(at..(at + 5).min(bytes.len()))),
            _ => damaged[at] ^= 1 << random.below(8),
        }
        fs::write(&updates, &damaged).unwrap();
        let chain = made.init(&FaultyDisk::new(6), &[TOKEN]);
        match import(&chain, &blocks, &updates) {
            // Damage behind the last block that there is.
            Ok(done) => {
                assert_eq!(done.done.blocks, 4);
                whole += 1;
            }
            Err(error) => {
                let told = error.to_string();
                assert!(
                    told.contains("update") || told.contains("damaged"),
                    "{told}"
                );
                named += 1;
            }
        }
        let number = chain.db().head().number;
        let views = [&made.full, &chain].map(|chain| chain.db().view_at(number).unwrap());
        compare(&views[0], &views[1], &[TOKEN]);
    }
    say(&format!(
        "  damaged files: {named} named, {whole} imported whole"
    ));
    assert!(named > 100);
}

#[test]
fn what_needs_all_storage_says_so_by_name() {
    let made = Made::new(Fork::Osaka);
    let disk = Arc::new(FaultyDisk::new(7));
    let chain = made.init(&disk, &[TOKEN]);
    import(&chain, &made.blocks_file(), &made.updates_file("")).unwrap();
    let told = |error: String| {
        assert!(error.contains("partial"), "{error}");
    };
    let db = chain.db();
    let history = History::create(disk.clone(), db, BLOCKS, None, HistoryOptions::default());
    told(history.map(drop).unwrap_err().to_string());
    told(chain.state_updates(1, 2).map(drop).unwrap_err().to_string());
    let view = db.view().unwrap().into();
    let dump = chain.dump_state(&view, false, "memory", &mut Vec::new(), &mut |_| {});
    told(dump.map(drop).unwrap_err().to_string());
    let rlp = made.blocks[0].clone();
    assert!(
        chain.insert(rlp, None).unwrap().outcome.is_none(),
        "it is there"
    );
    // A block is executed again where the storage that it reads is kept, and nowhere else.
    let again = chain.outcome_of(db.head());
    told(again.map(drop).unwrap_err().to_string());
    let options = InitOptions {
        db: options(),
        preimages: true,
        storage_of: db.kept_storage().cloned(),
    };
    let init = made
        .workload
        .init(Arc::new(FaultyDisk::new(8)), options, &mut |_| {});
    told(init.map(drop).unwrap_err().to_string());
}

#[test]
fn a_dump_of_a_full_database_makes_a_partial_one() {
    let made = Made::new(Fork::Osaka);
    let at = 12;
    let full = &made.full;
    let mut out = Vec::new();
    let view = full.db().view_at(at).unwrap().into();
    full.dump_state(&view, false, "memory", &mut out, &mut |_| {})
        .unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&out).unwrap();
    file.rewind().unwrap();
    let options = InitOptions {
        db: Options {
            files: FileSizes {
                log_file_bytes_max: 16 << 10,
                ..TINY_FILES
            },
            ..options()
        },
        storage_of: Some(KeptStorage::new([keccak256(TOKEN)]).unwrap()),
        ..InitOptions::default()
    };
    let disk = Arc::new(FaultyDisk::new(9));
    let loaded = Chain::load_dump(disk, InputFile::named("dump", file), options, &mut |_| {});
    let chain = loaded.unwrap();
    compare(
        &full.db().view_at(at).unwrap(),
        &chain.db().view().unwrap(),
        &[TOKEN],
    );
    let blocks = made.dir.path().join("rest");
    let mut writer = ChainWriter::create(&blocks).unwrap();
    for rlp in &made.blocks[at as usize..] {
        writer.write_rlp(rlp).unwrap();
    }
    writer.finish().unwrap();
    let done = import(&chain, &blocks, &made.updates_file(""))
        .unwrap()
        .done;
    assert_eq!(done.blocks, BLOCKS - at);
    compare(
        &full.db().view().unwrap(),
        &chain.db().view().unwrap(),
        &[TOKEN],
    );
}
