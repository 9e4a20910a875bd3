//! Faults under the files of NATS servers: what a loss of power and rot leave in the files of one server at a time, also of a
//! stream's leader. The stream may lose what it has acknowledged; the shards must not.

use crate::{
    builders::{engine, shards_of},
    common::{
        databases::{self, workload_of},
        nats::options,
        together,
    },
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_chain::ChainSpec;
use cambium_cluster::{
    AppendError, Builder, BuilderOptions, BuilderProcess, Incomplete, JournalOptions, Nats,
    NatsOptions, NatsStream, Peer, ProcessOptions, Publisher, Reader, Record, Shard, ShardHost,
    ShardLimits, ShardProcess, ShardRange, SnapshotError, Stream, StreamBounds, StreamError,
    StreamPosition, StreamReader, Wanted,
};
use cambium_disk::FaultyDisk;
use cambium_primitives::BlockId;
use cambium_seeds::{Random, seeds};
use cambium_testkit::NatsServers;
use cambium_workload::Workload;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Longest time for anything.
const LONGEST: Duration = Duration::from_secs(60);

fn eventually<T, E: std::fmt::Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) if start.elapsed() > LONGEST => panic!("{what}: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A stream that notes what it has acknowledged: the position and the hash of each record.
#[derive(Clone)]
struct Noted {
    stream: Arc<NatsStream>,
    acknowledged: Arc<Mutex<Vec<(u64, B256)>>>,
}

impl Stream for Noted {
    fn bounds(&self) -> Result<StreamBounds, StreamError> {
        self.stream.bounds()
    }

    fn append(
        &self,
        record: &Bytes,
        id: &str,
        after: StreamPosition,
    ) -> Result<StreamPosition, AppendError> {
        let position = self.stream.append(record, id, after)?;
        let mut acknowledged = self.acknowledged.lock();
        acknowledged.push((position.0, keccak256(record)));
        Ok(position)
    }

    fn append_all(
        &self,
        records: &[(Bytes, String)],
        after: StreamPosition,
    ) -> Vec<Result<StreamPosition, AppendError>> {
        let answers = self.stream.append_all(records, after);
        let mut acknowledged = self.acknowledged.lock();
        for (answer, (record, _)) in answers.iter().zip(records) {
            if let Ok(position) = answer {
                acknowledged.push((position.0, keccak256(record)));
            }
        }
        answers
    }

    fn reader(&self, from: StreamPosition) -> Result<Box<dyn StreamReader>, StreamError> {
        self.stream.reader(from)
    }

    fn pause(&self, attempt: u32) {
        self.stream.pause(attempt);
    }
}

/// Another replica.
struct Other(Arc<Mutex<Option<Arc<ShardProcess>>>>);

impl Peer for Other {
    fn name(&self) -> String {
        "the other replica".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let process = self.0.lock().clone().ok_or("it does not run")?;
        Ok(process.record(wanted)?.map(|record| record.to_vec()))
    }

    fn snapshot(&self, _: ShardRange, _: ShardLimits) -> Result<(Shard, Vec<u8>), SnapshotError> {
        Err(SnapshotError::Damaged {
            at: 0,
            what: "it has the same".to_owned(),
        })
    }
}

/// A chain's genesis, from which builders and shards begin.
pub(crate) struct Genesis {
    workload: Workload,
    pub(crate) header: Header,
    pub(crate) spec: ChainSpec,
}

impl Genesis {
    pub(crate) fn new() -> Self {
        let workload = workload_of(1, 1);
        let engine = engine(&workload);
        Self {
            header: engine.block(0).unwrap().header,
            spec: engine.spec().clone(),
            workload,
        }
    }

    pub(crate) fn shard(&self) -> Arc<Shard> {
        shards_of(&self.workload, &self.header, 1).remove(0)
    }

    /// A replica of the only shard, on a disk of its own.
    pub(crate) fn replica(&self, peers: Vec<Box<dyn Peer>>) -> Arc<ShardProcess> {
        self.replica_with(peers, Duration::from_secs(2))
    }

    /// A replica that waits for so long for a block that nobody has.
    pub(crate) fn replica_with(
        &self,
        peers: Vec<Box<dyn Peer>>,
        patience: Duration,
    ) -> Arc<ShardProcess> {
        let options = ProcessOptions {
            range: ShardRange::new(0, 1).unwrap(),
            limits: ShardLimits {
                versions: 10_000,
                ..ShardLimits::default()
            },
            journal: JournalOptions::default(),
            snapshot_blocks: 100_000,
            patience,
        };
        let disk = Arc::new(FaultyDisk::new(1));
        let process = ShardProcess::open(disk, databases::keys(), peers, options).unwrap();
        let shard = self.shard();
        let bytes = shard.write_snapshot(Vec::new(), &[]).unwrap();
        process.load(&bytes[..]).unwrap();
        Arc::new(process)
    }
}

/// One stream with its builder and two replicas.
struct Chain {
    options: NatsOptions,
    /// The builder, and its epoch.
    builder: Mutex<(u64, BuilderProcess<Noted>)>,
    /// What the builder reads.
    local: Arc<Shard>,
    replicas: [Arc<ShardProcess>; 2],
    acknowledged: Arc<Mutex<Vec<(u64, B256)>>>,
    built: Mutex<Vec<BlockId>>,
    spec: ChainSpec,
}

impl Chain {
    fn new(genesis: &Genesis, number: usize, servers: &NatsServers) -> Self {
        let options = NatsOptions {
            name: format!("chain-{number}"),
            // So that a stream has several files.
            stream_bytes_max: 1 << 20,
            ..options(servers)
        };
        let nats = connect(&options);
        let stream = eventually("making a stream", || nats.stream());
        let acknowledged = Arc::<Mutex<Vec<_>>>::default();
        let local = genesis.shard();
        let noted = Noted {
            stream: Arc::new(stream),
            acknowledged: Arc::clone(&acknowledged),
        };
        let builder = builder(noted, 1, &local, &genesis.header, &genesis.spec);
        let [one, two] = [(); 2].map(|()| Arc::<Mutex<Option<Arc<ShardProcess>>>>::default());
        let replicas = [(&one, &two), (&two, &one)].map(|(own, other)| {
            let process = genesis.replica(vec![Box::new(Other(Arc::clone(other)))]);
            *own.lock() = Some(Arc::clone(&process));
            process
        });
        Self {
            options,
            builder: Mutex::new((1, builder)),
            local,
            replicas,
            acknowledged,
            built: Mutex::default(),
            spec: genesis.spec.clone(),
        }
    }

    /// Builds and publishes until `stop` is set.
    fn write(&self, wanted: &AtomicUsize, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if self.built.lock().len() >= wanted.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            let (_, builder) = &*self.builder.lock();
            // Later than its parent.
            let (built, _) = builder.make(0).unwrap();
            self.local.apply(built.id, &built.update).unwrap();
            self.local.finalize(built.id).unwrap();
            eventually("publishing", || builder.publish());
            self.built.lock().push(built.id);
        }
    }

    /// Another builder goes on.
    fn depose(&self) {
        let mut builder = self.builder.lock();
        let epoch = builder.0 + 1;
        let (head, _) = builder.1.status();
        let (header, _) = self.local.header(head).unwrap();
        let noted = Noted {
            stream: Arc::new(eventually("the stream", || connect(&self.options).stream())),
            acknowledged: Arc::clone(&self.acknowledged),
        };
        let next = self::builder(noted, epoch, &self.local, &header, &self.spec);
        *builder = (epoch, next);
    }

    fn follow(&self, replica: &ShardProcess, stop: &AtomicBool) {
        let stream = eventually("the stream", || connect(&self.options).stream());
        replica.run(&stream, stop).unwrap();
    }

    /// What the stream has lost, replaced or moved of what it had acknowledged.
    fn lost(&self) -> usize {
        let stream = connect(&self.options).stream().unwrap();
        let last = stream.bounds().unwrap().last;
        let mut reader = stream.reader(StreamPosition(1)).unwrap();
        let mut found = BTreeMap::new();
        let mut next = || eventually("reading", || reader.next(Duration::from_secs(2)));
        while let Some(item) = next() {
            if let Some(record) = item.record {
                found.insert(item.position.0, keccak256(&record));
            }
            if item.position >= last {
                break;
            }
        }
        let acknowledged = self.acknowledged.lock();
        let lost = acknowledged.iter();
        lost.filter(|(at, hash)| found.get(at) != Some(hash))
            .count()
    }

    /// All blocks that were published and that a replica does not have.
    fn missing(&self, replica: &ShardProcess) -> Vec<BlockId> {
        let shard = replica.shard().unwrap();
        let built = self.built.lock();
        // Of what is final, the journal has the record alone.
        let missing = built.iter().filter(|id| {
            let is_journaled = || replica.record(Wanted::Block(id.hash)).unwrap().is_some();
            !shard.knows(&id.hash) && !is_journaled()
        });
        missing.copied().collect()
    }

    /// A replica has all blocks, and no other ones.
    fn check(&self, replica: &ShardProcess, name: &str) {
        let start = Instant::now();
        while !self.missing(replica).is_empty() {
            let missing = self.missing(replica);
            let (own, name) = (&self.options.name, name);
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{own}: {name} lacks {} blocks from {}, and says {:?}",
                missing.len(),
                missing[0],
                replica.status()
            );
            thread::sleep(Duration::from_millis(50));
        }
        let built: BTreeSet<_> = self.built.lock().iter().map(|id| id.hash).collect();
        for position in 1..=replica.status().position {
            let record = replica.record(Wanted::Position(position)).unwrap();
            if let Some(Ok(Record::Update(update))) = record.map(|it| Record::decode(&it)) {
                assert!(built.contains(&update.id().hash), "{name}: a false block");
            }
        }
        for hash in &built {
            let record = replica.record(Wanted::Block(*hash)).unwrap().unwrap();
            let Ok(Record::Update(update)) = Record::decode(&record) else {
                panic!("another record");
            };
            assert_eq!(update.id().hash, *hash);
        }
    }
}

/// A builder that goes on behind a block, of an epoch that it opens.
fn builder(
    stream: Noted,
    epoch: u64,
    local: &Arc<Shard>,
    head: &Header,
    spec: &ChainSpec,
) -> BuilderProcess<Noted> {
    let signer = databases::signer();
    let publisher = || Publisher::new(stream.clone(), databases::keys(), epoch);
    let mut publisher = eventually("a publisher", publisher);
    let record = Record::from(signer.open_epoch(epoch));
    eventually("the epoch", || publisher.publish(&record));
    let reader = Reader::new(together(&[Arc::clone(local)]), head, 1, 0);
    let depth = local.range().depth();
    let builder = Builder::new(reader, spec.clone(), depth, Incomplete::Fetch);
    let options = BuilderOptions {
        final_below: 100_000,
        ..BuilderOptions::default()
    };
    let (head, spec) = (head.clone(), spec.clone());
    BuilderProcess::new(builder, head, spec, signer, publisher, epoch, options)
}

fn connect(options: &NatsOptions) -> Nats {
    eventually("connecting", || Nats::connect(options.clone()))
}

/// A fault of a file.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The end of the newest file of messages was not written.
    Torn,
    /// The end of the newest file of messages is zeros.
    Zeros,
    /// Bits of a file of messages are others.
    Flipped,
    /// Bits of the index are others.
    Index,
    /// The index is that of an empty file.
    NoIndex,
    /// Its newest file of messages is gone.
    Gone,
}

const FAULTS: [Fault; 6] = [
    Fault::Torn,
    Fault::Zeros,
    Fault::Flipped,
    Fault::Index,
    Fault::NoIndex,
    Fault::Gone,
];

/// The files of messages in a folder, oldest first.
fn blocks(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = files
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let number = path.file_stem()?.to_str()?.parse::<u64>().ok()?;
            path.extension()
                .is_some_and(|it| it == "blk")
                .then_some((number, path))
        })
        .collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

fn flip(path: &Path, random: &mut Random) {
    let mut bytes = fs::read(path).unwrap_or_default();
    if bytes.is_empty() {
        return;
    }
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    fs::write(path, bytes).unwrap();
}

/// Damages the files in a folder of messages.
fn damage(folder: &Path, fault: Fault, random: &mut Random) {
    let files = blocks(folder);
    let Some(newest) = files.last() else {
        return;
    };
    let bytes = fs::read(newest).unwrap();
    let lost = 1 + random.below(bytes.len().clamp(1, 8_000) as u64) as usize;
    let kept = bytes.len().saturating_sub(lost);
    let index = folder.join("index.db");
    match fault {
        Fault::Torn => fs::write(newest, &bytes[..kept]).unwrap(),
        Fault::Zeros => {
            let mut bytes = bytes;
            bytes[kept..].fill(0);
            fs::write(newest, bytes).unwrap();
        }
        Fault::Flipped => flip(&files[random.below(files.len() as u64) as usize], random),
        Fault::Index => flip(&index, random),
        Fault::NoIndex => fs::write(index, []).unwrap(),
        Fault::Gone => fs::remove_file(newest).unwrap(),
    }
}

/// The folders of the logs by which servers agree on what is in a stream.
fn logs(store: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(store.join("$SYS/_js_")).into_iter().flatten();
    let folders = folders.map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> = folders
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("S-"))
        })
        .map(|path| path.join("msgs"))
        .collect();
    logs.sort();
    logs
}

/// How far builders go.
struct Writing<'c> {
    chains: &'c [Chain],
    wanted: AtomicUsize,
    stop: AtomicBool,
    end: AtomicBool,
}

impl Writing<'_> {
    /// Lets builders go on by some blocks, and does not wait for them.
    fn begin(&self, count: usize) {
        self.wanted.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until all blocks that are wanted are published, and some more.
    fn more(&self, count: usize) {
        let wanted = self.wanted.fetch_add(count, Ordering::Relaxed) + count;
        let start = Instant::now();
        while self.chains.iter().any(|it| it.built.lock().len() < wanted) {
            assert!(start.elapsed() < LONGEST, "builders hang");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Ends the threads of [`running`] when the test fails.
impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.end.store(true, Ordering::Relaxed);
    }
}

struct Ending<'w>(&'w Writing<'w>);

/// Lets builders write and replicas follow while `act` is done. Then each replica has each block once, and so has one that begins anew with
/// the stream, and with the others' journals.
fn running(genesis: &Genesis, chains: &[Chain], act: impl FnOnce(&Writing<'_>)) {
    let writing = Writing {
        chains,
        wanted: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        end: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let _ending = Ending(&writing);
        let Writing {
            wanted, stop, end, ..
        } = &writing;
        let builders = chains.iter();
        let builders = builders.map(|chain| scope.spawn(move || chain.write(wanted, stop)));
        let builders: Vec<_> = builders.collect();
        for chain in chains {
            for replica in &chain.replicas {
                scope.spawn(move || chain.follow(replica, end));
            }
        }
        act(&writing);
        stop.store(true, Ordering::Relaxed);
        for builder in builders {
            builder.join().unwrap();
        }
        for chain in chains {
            let late = genesis.replica(vec![Box::new(Other(Arc::new(Mutex::new(Some(
                Arc::clone(&chain.replicas[0]),
            )))))]);
            let following = Arc::clone(&late);
            scope.spawn(move || chain.follow(&following, end));
            chain.check(&chain.replicas[0], "a");
            chain.check(&chain.replicas[1], "b");
            chain.check(&late, "one that begins anew");
            let (name, blocks) = (&chain.options.name, chain.built.lock().len());
            let acknowledged = chain.acknowledged.lock().len();
            println!(
                "{name}: {blocks} blocks, {} of {acknowledged} records lost by the servers",
                chain.lost(),
            );
        }
    });
}

/// The server that leads the most streams, other than one.
fn leader(chains: &[Chain], but: Option<usize>) -> usize {
    let mut leads = [0; 3];
    for chain in chains {
        let stream = connect(&chain.options).stream().unwrap();
        if let Some(leader) = eventually("a leader", || stream.leader()) {
            leads[leader[1..].parse::<usize>().unwrap()] += 1;
        }
    }
    println!("servers lead {leads:?} streams");
    let others = (0..3).filter(|at| Some(*at) != but);
    others.max_by_key(|at| leads[*at]).unwrap()
}

/// A server that leads some streams, and follows others, is killed under load, with faults under its files: once alone, and once with all
/// others.
#[test]
fn what_servers_lose_with_their_files_shards_keep() {
    // Where files are hit; which server leads a stream is not in the hands of the test.
    for seed in seeds!(1..2) {
        let mut random = Random::new(seed);
        let Some(mut servers) = NatsServers::start(3) else {
            return;
        };
        let genesis = Genesis::new();
        let chains: Vec<_> = (0..2 * FAULTS.len())
            .map(|at| Chain::new(&genesis, at, &servers))
            .collect();
        running(&genesis, &chains, |writing| {
            writing.more(15);
            let mut last = None;
            for round in 0..2 {
                let at = leader(&chains, last);
                last = Some(at);
                let killed = match round {
                    0 => at..at + 1,
                    _ => 0..servers.count(),
                };
                writing.begin(10);
                thread::sleep(Duration::from_millis(20));
                killed.clone().for_each(|at| servers.kill(at));
                let store = servers.store(at);
                for (number, chain) in chains.iter().enumerate() {
                    let fault = FAULTS[(number + 2 * round) % FAULTS.len()];
                    let folder = format!("$G/streams/{}/msgs", chain.options.name);
                    damage(&store.join(folder), fault, &mut random);
                }
                for folder in logs(&store) {
                    if random.percent(50) {
                        let fault = FAULTS[random.below(FAULTS.len() as u64) as usize];
                        damage(&folder, fault, &mut random);
                    }
                }
                killed.for_each(|at| servers.restart(at));
                writing.more(10);
            }
        });
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// All servers lose the end of what they have acknowledged, as they do with the power if they don't sync. One builder goes on; another one is
/// deposed afterwards, by the record of an epoch that takes a position which shards have passed.
#[test]
fn servers_that_come_back_with_older_files_take_nothing_from_shards() {
    let Some(mut servers) = NatsServers::start(3) else {
        return;
    };
    let genesis = Genesis::new();
    let chains: Vec<_> = (0..2)
        .map(|at| Chain::new(&genesis, at, &servers))
        .collect();
    running(&genesis, &chains, |writing| {
        writing.more(10);
        let old = tempfile::tempdir().unwrap();
        (0..3).for_each(|at| servers.kill(at));
        for at in 0..3 {
            copy(&servers.store(at), &old.path().join(at.to_string()));
        }
        (0..3).for_each(|at| servers.restart(at));
        writing.more(20);
        for chain in &chains {
            chain.check(&chain.replicas[0], "a");
            chain.check(&chain.replicas[1], "b");
        }
        (0..3).for_each(|at| servers.kill(at));
        for at in 0..3 {
            fs::remove_dir_all(servers.store(at)).unwrap();
            copy(&old.path().join(at.to_string()), &servers.store(at));
        }
        (0..3).for_each(|at| servers.restart(at));
        chains[1].depose();
        writing.more(20);
    });
    for chain in &chains {
        assert!(chain.lost() > 0, "the test has lost nothing");
    }
}
