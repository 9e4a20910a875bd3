//! Measures the first root after a kill: a process commits batches and is killed before a checkpoint has them, another one
//! opens the database and commits a small block and a batch.
//!
//! `cargo run --release -p cambium-state --example first_root -- [ACCOUNTS] [BATCHES] [CHANGES] [MEMORY_MIB]` measures it
//! without and with references in the block log, in a temporary directory below `TMPDIR`, with
//! `MEMORY_MIB` for the process that opens it.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, FileSizes, Loader, Options, StateError, StdDisk};
use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

/// Memory of the process that is killed, in MiB: it begins no merge.
const WRITER_MEMORY_MIB: u64 = 64 << 10;
/// Accounts that the first block after the kill changes.
const SMALL: u64 = 10;

/// Processor time of the process's threads that do not merge.
fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let of = |thread: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let stat = read("schedstat");
        let nanoseconds = stat.split_whitespace().next().map(str::parse::<u64>);
        let merges = read("comm").starts_with("cambium-merge");
        match nanoseconds {
            Some(Ok(nanoseconds)) if !merges => nanoseconds,
            _ => 0,
        }
    };
    Duration::from_nanos(threads.flatten().map(of).sum())
}

fn path(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

fn options(memory_mib: u64, references: bool) -> Options {
    let files = FileSizes::default();
    Options {
        memory_bytes: memory_mib << 20,
        files: FileSizes {
            log_reference_leaves: if references {
                files.log_reference_leaves
            } else {
                0
            },
            ..files
        },
        ..Options::default()
    }
}

fn account(nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(1_000_000_000_000_000_000_u64),
        ..Account::default()
    }
}

fn id(number: u64) -> BlockId {
    BlockId::new(number, B256::left_padding_from(&(number + 1).to_be_bytes()))
}

fn load(dir: &Path, accounts: u64, options: Options) -> Result<(), StateError> {
    let mut loader = Loader::new(Arc::new(StdDisk::new(dir)), options)?;
    for index in 0..accounts {
        loader.account(path(index), &account(0), [])?;
    }
    let loaded = loader.finish(&mut |_| {})?;
    let state_root = loaded.root();
    let meta = BlockMeta {
        id: id(0),
        parent: B256::ZERO,
        state_root,
        body: Default::default(),
    };
    loaded.create(meta, vec![]).map(drop)
}

/// Times of a block: reading what it changes, its root, and its commit.
struct Times {
    read: Duration,
    root: Duration,
    commit: Duration,
}

/// Commits a block that changes up to `count` random accounts.
fn block(db: &Db, accounts: u64, count: u64) -> Result<Times, StateError> {
    let head = db.head();
    let mut changed: Vec<_> = (0..count)
        .map(|at| {
            let random = path(u64::MAX / 2 + head.number * 1_000_003 + at);
            path(u64::from_be_bytes(*random.first_chunk().expect("32 bytes")) % accounts)
        })
        .collect();
    changed.sort_unstable();
    changed.dedup();
    let start = Instant::now();
    let session = db.view()?.session();
    let before = session.accounts(&changed)?;
    let read = start.elapsed();
    let change = |(path, before): (B256, Option<Account>)| AccountDiff {
        path,
        account: AccountUpdate::Put(account(before.map_or(0, |before| before.nonce) + 1)),
        wipe: false,
        slots: vec![],
    };
    let changes = changed.into_iter().zip(before).map(change).collect();
    let start = Instant::now();
    let staged = session.finish(Changes::new(changes), vec![])?;
    let root = start.elapsed();
    let meta = BlockMeta {
        id: id(head.number + 1),
        parent: head.hash,
        state_root: staged.root(),
        body: Default::default(),
    };
    let start = Instant::now();
    staged.seal(meta)?.commit()?;
    Ok(Times {
        read,
        root,
        commit: start.elapsed(),
    })
}

/// Commits batches, says so, and ends by a signal that nothing can handle.
fn write(dir: &Path, accounts: u64, batches: u64, changes: u64, references: bool) {
    let run = || -> Result<(), StateError> {
        let disk = Arc::new(StdDisk::new(dir));
        let (db, _) = Db::open(disk, options(WRITER_MEMORY_MIB, references))?;
        let (mut read, mut root, mut commit) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..batches {
            let times = block(&db, accounts, changes)?;
            read.push(times.read);
            root.push(times.root);
            commit.push(times.commit);
        }
        for times in [&mut read, &mut root, &mut commit] {
            times.sort_unstable();
        }
        let counters = db.counters();
        let middle = batches as usize / 2;
        println!(
            "  a batch: {} ms read, {} ms root, {} ms seal and commit (medians); {:.2} MB of log; {} merges",
            read[middle].as_millis(),
            root[middle].as_millis(),
            commit[middle].as_millis(),
            counters.log_bytes_written as f64 / batches as f64 / 1e6,
            counters.merges,
        );
        Ok(())
    };
    run().expect("a disk that is whole");
    let own = std::process::id().to_string();
    let _ = Command::new("kill").args(["-9", &own]).status();
}

fn measure(dir: &Path, accounts: u64, changes: u64, memory_mib: u64) -> Result<(), StateError> {
    let start = Instant::now();
    let disk = Arc::new(StdDisk::new(dir));
    let (db, recovery) = Db::open(disk, options(memory_mib, true))?;
    let opened = start.elapsed();
    let (start, before) = (Instant::now(), processor_time());
    let small = block(&db, accounts, SMALL)?;
    let (first, processor) = (start.elapsed(), processor_time() - before);
    let counters = db.counters();
    println!(
        "  {} blocks replayed, open in {} ms; the first block in {} ms, {} of a processor (read {}, root {}, commit {}): {} pages \
         read for tries, {} by merges, {} subtries restored, {} ms to catch up",
        recovery.replayed_blocks,
        opened.as_millis(),
        first.as_millis(),
        processor.as_millis(),
        small.read.as_millis(),
        small.root.as_millis(),
        small.commit.as_millis(),
        counters.page_reads_trie,
        counters.page_reads_merge,
        counters.subtries_restored,
        counters.catch_up_ns / 1_000_000,
    );
    let start = Instant::now();
    let times = block(&db, accounts, changes)?;
    println!(
        "  a batch after it in {} ms (read {}, root {}, commit {})",
        start.elapsed().as_millis(),
        times.read.as_millis(),
        times.root.as_millis(),
        times.commit.as_millis(),
    );
    let start = Instant::now();
    db.flush(0)?;
    let counters = db.counters();
    println!(
        "  merged after {} ms more: {} merges, {} pages read by merges, {} for tries; root {}",
        start.elapsed().as_millis(),
        counters.merges,
        counters.page_reads_merge,
        counters.page_reads_trie,
        db.view()?.state_root(),
    );
    Ok(())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => _ = std::fs::copy(entry.path(), target)?,
        }
    }
    Ok(())
}

fn main() -> Result<(), StateError> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        let given = args.get(at).and_then(|arg| arg.parse().ok());
        given.unwrap_or(default)
    };
    let (accounts, batches) = (number(0, 1 << 20), number(1, 6));
    let (changes, memory_mib) = (number(2, 49_000), number(3, 1024));
    if let Some(dir) = args.get(5) {
        let references = args[4] == "with";
        write(Path::new(dir), accounts, batches, changes, references);
        return Ok(());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    std::fs::create_dir_all(&first).expect("a directory");
    load(&first, accounts, options(memory_mib, false))?;
    copy(&first, &second).expect("room for a copy");
    let program = std::env::current_exe().expect("a program");
    for (how, dir) in [("without", &first), ("with", &second)] {
        println!("{accounts} accounts, {batches} batches of {changes}, {how} references:");
        let numbers = [accounts, batches, changes, memory_mib].map(|number| number.to_string());
        let mut command = Command::new(&program);
        let status = command.args(numbers).arg(how).arg(dir).status();
        assert!(!status.expect("a process").success(), "it is killed");
        measure(dir, accounts, changes, memory_mib)?;
    }
    Ok(())
}
