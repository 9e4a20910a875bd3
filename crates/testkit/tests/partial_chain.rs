//! Partial databases of chains: blocks are imported with state updates that a full database has made, which are untrusted.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_chain::{
    BlockSource, Chain, ChainError, ChainSealer, ChainWriter, ContractAt, Extended, Fork,
    ImportSummary, InitOptions, InputFile, StateUpdate, StorageSource, UpdateReader, UpdateWriter,
    WithUpdates,
};
use cambium_history::{History, HistoryOptions};
use cambium_primitives::{AccountUpdate, BlockId, Changes, STORAGE_ROOT_KEY};
use cambium_state::{FaultyDisk, FileSizes, KeptStorage, Options, StateError, View};
use cambium_testkit::{Random, TINY_FILES, raw_block, say};
use cambium_trie::{StorageKey, verify_account_proof};
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

fn list(kept: &[Address]) -> InitOptions {
    InitOptions {
        db: options(),
        storage_of: Some(KeptStorage::new(kept.iter().map(keccak256)).unwrap()),
        ..InitOptions::default()
    }
}

fn extend(
    chain: &Chain,
    to: &FaultyDisk,
    kept: &[Address],
    source: Option<&dyn StorageSource>,
) -> Result<Extended, ChainError> {
    let view = chain.db().view()?;
    let to = Arc::new(to.clone());
    chain.extend(&view, to, list(kept), source, &mut |_| {})
}

/// Imports the rest of the blocks into a database that begins in the middle.
fn import_rest(made: &Made, chain: &Chain) {
    let from = chain.db().head().number;
    let blocks = made.dir.path().join(format!("rest{from}"));
    let mut writer = ChainWriter::create(&blocks).unwrap();
    for rlp in &made.blocks[from as usize..] {
        writer.write_rlp(rlp).unwrap();
    }
    writer.finish().unwrap();
    let done = import(chain, &blocks, &made.updates_file("")).unwrap();
    assert_eq!(done.done.blocks, BLOCKS - from);
}

/// A partial database in the middle of the chain.
fn half(made: &Made, disk: &FaultyDisk, kept: &[Address]) -> Chain {
    let chain = made.init(disk, kept);
    let first = [made.dir.path().join("b"), made.dir.path().join("u")];
    made.write(&first[0], &first[1], 15);
    import(&chain, &first[0], &first[1]).unwrap();
    chain
}

#[test]
fn a_database_with_another_list_is_that_of_a_chain_with_this_list() {
    let made = Made::new(Fork::Osaka);
    let unknown = Address::repeat_byte(0xee);
    let lists: [(&[Address], &[Address]); 6] = [
        (&[], &[TOKEN]),
        (&[TOKEN], &[TOKEN, ROUTER]),
        (&[TOKEN], &[ROUTER]),
        (&[TOKEN, ROUTER], &[]),
        (&[TOKEN], &[TOKEN]),
        (&[ROUTER], &[TOKEN, unknown]),
    ];
    for (before, after) in lists {
        let old = half(&made, &FaultyDisk::new(10), before);
        let old_state = |chain: &Chain| {
            compare(
                &made.full.db().view_at(15).unwrap(),
                &chain.db().view().unwrap(),
                before,
            )
        };
        let slots = old_state(&old);
        let disk = FaultyDisk::new(11);
        let Extended {
            chain,
            added,
            added_slots,
            absent,
        } = extend(&old, &disk, after, Some(&made.full)).unwrap();
        let view = made.full.db().view_at(15).unwrap();
        let new = after.iter().filter(|address| !before.contains(address));
        let new = new.map(keccak256);
        // Of contracts without storage there is nothing to add.
        let expected: Vec<_> = new
            .filter(|path| !view.slots(path).unwrap().is_empty())
            .collect();
        assert_eq!(added, expected);
        let count: usize = added
            .iter()
            .map(|path| view.slots(path).unwrap().len())
            .sum();
        assert_eq!(added_slots, count as u64);
        let paths = after.iter().map(keccak256);
        let nobody: Vec<_> = paths
            .filter(|path| view.account(path).unwrap().is_none())
            .collect();
        assert_eq!(absent, nobody);
        compare(&view, &chain.db().view().unwrap(), after);
        // As one that was made with this list, to the counts of the pages.
        let other = Chain::init_counts(&made, after);
        let report = chain.db().check(&mut |_| {}).unwrap();
        assert_eq!(report.damage, Vec::<String>::new());
        assert_eq!((report.accounts, report.slots, report.codes), other);
        // It is there after it was closed, goes on, and proves its slots.
        chain.close().unwrap();
        let (chain, _) = Chain::open(Arc::new(disk), options()).unwrap();
        import_rest(&made, &chain);
        let view = chain.db().view().unwrap();
        compare(&made.full.db().view().unwrap(), &view, after);
        for address in after.iter().filter(|address| **address != unknown) {
            let slots = [StorageKey::from(B256::ZERO)];
            let proof = view.prove_account(*address, &slots).unwrap();
            verify_account_proof(view.state_root(), &proof).unwrap();
        }
        assert_eq!(old_state(&old), slots);
        assert_eq!(old.db().head().number, 15);
    }
}

trait InitCounts {
    fn init_counts(made: &Made, kept: &[Address]) -> (u64, u64, u64);
}

impl InitCounts for Chain {
    /// What `db check` counts in a database that is loaded from a dump with this list.
    fn init_counts(made: &Made, kept: &[Address]) -> (u64, u64, u64) {
        let mut out = Vec::new();
        let view = made.full.db().view_at(15).unwrap().into();
        let full = &made.full;
        full.dump_state(&view, false, "memory", &mut out, &mut |_| {})
            .unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&out).unwrap();
        file.rewind().unwrap();
        let disk = Arc::new(FaultyDisk::new(12));
        let from = InputFile::named("dump", file);
        let chain = Self::load_dump(disk, from, list(kept), &mut |_| {}).unwrap();
        let report = chain.db().check(&mut |_| {}).unwrap();
        (report.accounts, report.slots, report.codes)
    }
}

/// A source that returns what a full database has, but for one lie.
struct Liar<'c>(&'c Chain, usize);

impl StorageSource for Liar<'_> {
    fn name(&self) -> String {
        "the liar".to_owned()
    }

    fn slots(
        &self,
        contract: &ContractAt,
        visit: &mut dyn FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let Self(chain, kind) = self;
        let ContractAt { block, account, .. } = *contract;
        let account = &account;
        let of = match kind {
            0 => chain.db().view_at(block.number - 1).unwrap(),
            _ => chain.db().view_of(block).unwrap(),
        };
        let mut slots = of.slots(account).unwrap();
        let middle = slots.len() / 2;
        match kind {
            1 => slots[middle].1 += U256::from(1),
            2 => drop(slots.remove(middle)),
            3 => drop(slots.pop()),
            4 => slots.insert(middle, slots[middle]),
            5 => slots.swap(middle, middle - 1),
            6 => slots.push((B256::repeat_byte(0xff), U256::from(1))),
            7 => slots.insert(middle, (slots[middle - 1].0, U256::ZERO)),
            8 => slots.clear(),
            9 => {
                slots = vec![(
                    STORAGE_ROOT_KEY,
                    of.storage_root(account).unwrap().unwrap().into(),
                )]
            }
            10 => return Err("it is broken".to_owned()),
            11 => slots.push((B256::repeat_byte(0xff), U256::ZERO)),
            _ => {}
        }
        for (slot, value) in slots {
            if visit(slot, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

const LIES: usize = 12;

#[test]
fn a_source_that_lies_makes_no_database_and_is_named() {
    let made = Made::new(Fork::Osaka);
    let old = half(&made, &FaultyDisk::new(13), &[]);
    let token = keccak256(TOKEN).to_string();
    for kind in 0..LIES {
        let disk = FaultyDisk::new(14);
        let refused = extend(&old, &disk, &[TOKEN], Some(&Liar(&made.full, kind)));
        let error = refused.map(drop).unwrap_err();
        assert!(matches!(error, ChainError::Extend(_)), "{kind}: {error}");
        let told = error.to_string();
        assert!(told.contains(&token) && told.contains("the liar"), "{told}");
        let is_root = matches!(kind, 0..=3 | 6 | 8);
        assert_eq!(told.contains("storage root 0x"), is_root, "{kind}: {told}");
        let opened = Chain::open(Arc::new(disk.clone()), options());
        assert!(opened.is_err(), "{kind}");
        // The directory can be used again.
        let honest = Liar(&made.full, LIES);
        extend(&old, &disk, &[TOKEN], Some(&honest)).unwrap();
    }
    // No source, a source without the contract, and databases that are not partial.
    let refused = extend(&old, &FaultyDisk::new(15), &[TOKEN], None);
    assert!(
        refused
            .map(drop)
            .unwrap_err()
            .to_string()
            .contains("--from")
    );
    let other = half(&made, &FaultyDisk::new(16), &[ROUTER]);
    let refused = extend(&old, &FaultyDisk::new(17), &[TOKEN], Some(&other));
    assert!(
        refused
            .map(drop)
            .unwrap_err()
            .to_string()
            .contains("not kept")
    );
    let refused = extend(&made.full, &FaultyDisk::new(18), &[TOKEN], Some(&old));
    assert!(
        refused
            .map(drop)
            .unwrap_err()
            .to_string()
            .contains("not partial")
    );
    // A partial database is a source of what it keeps, and a disk with a database is refused.
    let disk = FaultyDisk::new(19);
    extend(&old, &disk, &[ROUTER], Some(&other)).unwrap();
    let refused = extend(&old, &disk, &[ROUTER], Some(&other));
    assert!(refused.is_err());
}

#[test]
fn a_crash_leaves_a_database_that_is_whole_or_none() {
    let made = Made::new(Fork::Osaka);
    let old = half(&made, &FaultyDisk::new(20), &[ROUTER]);
    let expected = made.full.db().view_at(15).unwrap();
    let (mut none, mut at) = (0, 0);
    loop {
        let disk = FaultyDisk::new(at);
        disk.lose_power_after(at);
        let done = extend(&old, &disk, &[TOKEN], Some(&made.full)).map(drop);
        let was_lost = disk.is_off();
        let disk = disk.crash();
        match Chain::open(Arc::new(disk.clone()), options()) {
            Ok((chain, _)) => {
                compare(&expected, &chain.db().view().unwrap(), &[TOKEN]);
            }
            Err(_) => {
                assert!(done.is_err(), "{at}");
                none += 1;
                extend(&old, &disk, &[TOKEN], Some(&made.full)).unwrap();
            }
        }
        if !was_lost {
            break;
        }
        at += 1;
    }
    say(&format!(
        "  {at} operations, {none} of which left no database"
    ));
    assert!(none > 10);
}
