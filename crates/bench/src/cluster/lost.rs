//! A shard that is lost and comes back.
//!
//! ```text
//!   process lost   its folder is there: the newest snapshot in it, and the journal behind that
//!   folder lost    the object store's snapshot, and the stream behind that; without a NATS server a file stands for the store, and
//!                  the records come from memory
//! ```
//!
//! Blocks behind the snapshot change accounts at random. The shard has to end with the builder's root, which it verifies block by block.

use crate::{
    report::{Report, Target, object},
    shard::{account_of, key_of, put, uniform},
    system,
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes};
use cambium_cluster::{
    BlockUpdate, BuilderKeys, FollowerState, JournalOptions, Nats, NatsOptions, ProcessOptions,
    Reader, Record, Service, ShardHost, ShardLimits, ShardProcess, ShardRange, Shards, Signer,
    SnapshotWriter, Snapshots, StreamItem, StreamPosition, Taken, top_nodes,
};
use cambium_primitives::{BlockId, Changes, Path as TriePath};
use cambium_state::StdDisk;
use cambium_testkit::{NatsServers, Random};
use cambium_trie::{Batch, NoResolve, PartialTrie, commit};
use serde_json::json;
use std::{
    error::Error,
    fs::{self, File},
    io::{BufReader, BufWriter, Seek, SeekFrom},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Accounts of a part of the snapshot.
const PART: usize = 10_000;
const TARGET_SECONDS: f64 = 15.0;
const CHAIN: u64 = 4_093;

/// Sizes of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) accounts: usize,
    /// Blocks behind the snapshot.
    pub(super) blocks: u64,
    /// Accounts that each of them changes.
    pub(super) changes: usize,
}

/// Where the shard begins.
struct Start {
    range: ShardRange,
    header: Header,
    keys: BuilderKeys,
    signer: Signer,
}

pub(super) fn run(sizes: Sizes, data: &Path, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let Sizes {
        accounts,
        blocks,
        changes,
    } = sizes;
    let folder = tempfile::Builder::new().prefix("lost").tempdir_in(data)?;
    let snapshot = folder.path().join("snapshot");
    eprintln!("lost: a snapshot of {accounts} accounts");
    let signer = Signer::new(CHAIN, [7; 32])?;
    let start = Start {
        range: ShardRange::new(0, 1)?,
        header: write_snapshot(accounts, &snapshot)?,
        keys: BuilderKeys {
            chain_id: CHAIN,
            keys: vec![signer.address()],
        },
        signer,
    };
    let bytes = fs::metadata(&snapshot)?.len();

    // As it was before it is lost, with what the builder has published since.
    let first = folder.path().join("first");
    let process = start.open(&first)?;
    process.load(BufReader::with_capacity(1 << 20, File::open(&snapshot)?))?;
    eprintln!("lost: {blocks} blocks behind it");
    let (records, head) = start.blocks(&process, sizes)?;
    process.sync()?;
    drop(process);
    system::drop_files(&first)?;
    eprintln!("lost: the process comes back");
    let began = Instant::now();
    let process = start.open(&first)?;
    let process_lost = began.elapsed().as_secs_f64();
    check(&process, head)?;
    drop(process);
    fs::remove_dir_all(&first)?;

    let servers = NatsServers::start(1);
    let store = servers
        .as_ref()
        .map(|servers| start.store(servers, &snapshot));
    let store = store.transpose()?;
    system::drop_file(&snapshot)?;
    eprintln!("lost: the folder comes back");
    let second = folder.path().join("second");
    let began = Instant::now();
    let process = start.open(&second)?;
    let file = match &store {
        Some(store) => {
            let pointer = store.newest(0)?.ok_or("the store has no snapshot")?;
            let mut file = tempfile::tempfile_in(folder.path())?;
            store.get(&pointer, &mut file)?;
            file.seek(SeekFrom::Start(0))?;
            file
        }
        None => File::open(&snapshot)?,
    };
    let fetched = began.elapsed().as_secs_f64();
    process.load(BufReader::with_capacity(1 << 20, file))?;
    let loaded = began.elapsed().as_secs_f64();
    take_all(&process, &records)?;
    process.sync()?;
    let folder_lost = began.elapsed().as_secs_f64();
    check(&process, head)?;

    let source = match store {
        Some(_) => "the object store of one NATS server",
        None => "a file",
    };
    if servers.is_none() {
        report.notes.push(
            "no NATS server: a file stands for the object store that a lost folder comes from"
                .to_owned(),
        );
    }
    report.results.push(object([
        ("lost: accounts of the shard", json!(accounts)),
        ("blocks behind the snapshot", json!(blocks)),
        ("accounts that a block changes", json!(changes)),
        ("snapshot, MB", json!(bytes as f64 / 1e6)),
        (
            "process lost: until it has the head, s",
            json!(process_lost),
        ),
        ("folder lost: a snapshot from", json!(source)),
        ("folder lost: until it is fetched, s", json!(fetched)),
        (
            "folder lost: until it is loaded and written, s",
            json!(loaded),
        ),
        ("folder lost: until it has the head, s", json!(folder_lost)),
    ]));
    for (name, value) in [("process", process_lost), ("folder", folder_lost)] {
        report.targets.push(Target {
            name: format!("a shard of {accounts} accounts is back, its {name} lost"),
            value,
            unit: "s",
            target: format!("under {TARGET_SECONDS:.0}"),
            met: value < TARGET_SECONDS,
        });
    }
    Ok(())
}

/// Writes a snapshot of accounts at block 1. Returns its header.
fn write_snapshot(accounts: usize, file: &Path) -> Result<Header, Box<dyn Error>> {
    let mut keys: Vec<_> = (0..accounts).map(|at| (key_of(at), at as u32)).collect();
    keys.sort_unstable();
    let part = |keys: &[(B256, u32)]| {
        let puts = keys.iter();
        let puts = puts.map(|(key, at)| put(*key, account_of(*at as usize, 0)));
        puts.collect::<Vec<_>>()
    };
    let mut trie = PartialTrie::new(TriePath::EMPTY);
    for keys in keys.chunks(PART) {
        trie.apply(&part(keys), &mut NoResolve)?;
    }
    commit(&mut [&mut trie], &mut Batch::new());
    let header = Header {
        state_root: trie.state_root().unwrap_or_default(),
        number: 1,
        ..Header::default()
    };
    let top = top_nodes(&trie, 1);
    drop(trie);
    let out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let note = FollowerState::default().encode();
    let mut writer = SnapshotWriter::new(out, ShardRange::new(0, 1)?, &header, &top, &note)?;
    for keys in keys.chunks(PART) {
        writer.accounts(part(keys))?;
    }
    writer.finish()?;
    Ok(header)
}

impl Start {
    fn open(&self, folder: &Path) -> Result<ShardProcess, Box<dyn Error>> {
        fs::create_dir_all(folder)?;
        let options = ProcessOptions {
            range: self.range,
            limits: ShardLimits::default(),
            journal: JournalOptions::default(),
            snapshot_blocks: u64::MAX,
            patience: Duration::from_secs(10),
        };
        let disk = Arc::new(StdDisk::new(folder));
        Ok(ShardProcess::open(
            disk,
            self.keys.clone(),
            Vec::new(),
            options,
        )?)
    }

    /// Makes blocks on the state of a process, which takes them. Returns the records, and the last block.
    fn blocks(
        &self,
        process: &ShardProcess,
        sizes: Sizes,
    ) -> Result<(Vec<StreamItem>, BlockId), Box<dyn Error>> {
        let shard = process.shard().ok_or("no shard")?;
        let service: Arc<dyn Service> = shard;
        let shards = Shards::new(vec![vec![service]])?;
        let mut reader = Reader::new(shards, &self.header, 5, 0);
        let mut random = Random::new(3);
        let mut records = Vec::new();
        let mut add = |record: Record| {
            let position = StreamPosition(records.len() as u64 + 1);
            let item = StreamItem::new(position, record.encode().into());
            records.push(item.clone());
            take_all(process, &[item])
        };
        add(Record::from(self.signer.open_epoch(1)))?;
        let mut parent = self.header.clone();
        for salt in 1..=sizes.blocks {
            let mut changes: Vec<_> = (0..sizes.changes)
                .map(|_| {
                    let at = uniform(&mut random, sizes.accounts);
                    put(key_of(at), account_of(at, salt))
                })
                .collect();
            changes.sort_unstable_by_key(|change| change.path);
            changes.dedup_by_key(|change| change.path);
            let changes = Changes::new(changes);
            reader.load_for_changes(&changes)?;
            let mut header = Header {
                parent_hash: parent.hash_slow(),
                number: parent.number + 1,
                ..Header::default()
            };
            let mut top = Vec::new();
            reader.advance_by(&changes, |trie, root| {
                header.state_root = root;
                top = top_nodes(trie, 1);
                header.clone()
            })?;
            reader.settle()?;
            parent = header.clone();
            let update = BlockUpdate {
                header,
                changes,
                codes: Vec::new(),
                storage_roots: Vec::new(),
                top,
                body: Bytes::new(),
            };
            add(Record::from(self.signer.sign_update(1, update)))?;
        }
        Ok((records, reader.block()))
    }

    /// Puts the snapshot into an object store.
    fn store(&self, servers: &NatsServers, snapshot: &Path) -> Result<Snapshots, Box<dyn Error>> {
        let options = NatsOptions {
            urls: servers.urls(),
            makes: true,
            replicas: 1,
            stream_bytes_max: 1 << 30,
            snapshot_bytes_max: 3 << 30,
            ..NatsOptions::default()
        };
        let began = Instant::now();
        let snapshots = loop {
            // The server has only started.
            match Nats::connect(options.clone()).and_then(|nats| nats.snapshots()) {
                Ok(snapshots) => break snapshots,
                Err(error) if began.elapsed() > Duration::from_secs(20) => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        eprintln!("lost: the snapshot goes into the object store");
        let block = BlockId::new(self.header.number, self.header.hash_slow());
        let state = FollowerState::default();
        let root = self.header.state_root;
        let mut source = BufReader::with_capacity(1 << 20, File::open(snapshot)?);
        snapshots.put(0, block, root, &state, &mut source)?;
        Ok(snapshots)
    }
}

fn take_all(process: &ShardProcess, records: &[StreamItem]) -> Result<(), Box<dyn Error>> {
    for item in records {
        match process.take(item)? {
            Taken::Judged => {}
            other => return Err(format!("record {}: {other:?}", item.position).into()),
        }
    }
    Ok(())
}

fn check(process: &ShardProcess, head: BlockId) -> Result<(), Box<dyn Error>> {
    let newest = process.shard().map(|shard| shard.stats().newest);
    let trouble = process.status().trouble;
    match newest == Some(head) && trouble.is_empty() {
        true => Ok(()),
        false => Err(format!("the shard is at {newest:?} instead of {head}: {trouble}").into()),
    }
}
