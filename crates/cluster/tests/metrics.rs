//! The figures of a cluster's processes: their names are those of the tables in `docs/CLUSTER.md`, and their values are those of
//! what was done.

use crate::{
    builders::{engine, params, shards_of},
    common::{
        Keys, State,
        databases::{self, Engine, Kept, Node, marked},
        stream::{item, keys, signer},
        together,
    },
};
use alloy_primitives::{B256, Bytes};
use cambium_chain::Fork;
use cambium_cluster::{
    Builder, BuilderHost, BuilderOptions, BuilderProcess, ClientLimits, HostStatus, Incomplete,
    JournalOptions, MemoryStream, MetricsHost, MetricsPage, MetricsRegistry, NodeBag,
    ProcessOptions, Publisher, ReadError, ReadGroup, ReadRequest, Reader, Record, Server,
    ServerLimits, Shard, ShardClient, ShardHost, ShardLimits, ShardProcess, ShardRange, Stream,
    StreamEnd, StreamFault, StreamPosition, Submission, Taken, Wanted,
};
use cambium_disk::FaultyDisk;
use cambium_evm::recover_senders;
use cambium_primitives::BlockId;
use cambium_seeds::Random;
use cambium_testkit::exposition::{Exposition, FigureTables};
use cambium_trie::{BagLevels, Deletes, ProofTargets};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, sync::oneshot};

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn tables() -> FigureTables {
    let mut tables = FigureTables::of(include_str!("../../../docs/CLUSTER.md"));
    tables.add_engine("the engine", include_str!("../../../docs/OPERATIONS.md"));
    tables
}

fn page(host: &dyn MetricsHost) -> Exposition {
    let mut page = MetricsPage::default();
    host.report(&mut page);
    parsed(&page.to_string())
}

fn parsed(text: &str) -> Exposition {
    Exposition::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The process of the only shard, which has the first state of a chain.
struct Following {
    process: ShardProcess,
    states: Vec<State>,
    keys: Keys,
    random: Random,
    position: u64,
}

impl Following {
    fn new() -> Self {
        let range = ShardRange::new(0, 1).unwrap();
        let limits = ShardLimits {
            versions: 5,
            bytes: 10_000_000,
            ..ShardLimits::default()
        };
        let options = ProcessOptions {
            range,
            limits,
            journal: JournalOptions::default(),
            snapshot_blocks: 1_000,
            patience: Duration::from_millis(1),
        };
        let disk = Arc::new(FaultyDisk::new(1));
        let process = ShardProcess::open(disk, keys(), Vec::new(), options).unwrap();
        let mut random = Random::new(5);
        let keys = Keys::new(&mut random, 10, 4);
        let first = State::genesis();
        Self {
            process,
            states: vec![first],
            keys,
            random,
            position: 0,
        }
    }

    fn load(&self) {
        let first = &self.states[0];
        let range = ShardRange::new(0, 1).unwrap();
        let limits = ShardLimits {
            versions: 5,
            bytes: 10_000_000,
            ..ShardLimits::default()
        };
        self.process.adopt(first.shard(range, limits), &[]).unwrap();
    }

    fn take(&mut self, record: impl Into<Record>) -> Taken {
        self.position += 1;
        let record: Bytes = record.into().encode().into();
        self.process.take(&item(self.position, record)).unwrap()
    }

    /// The next state, which nobody has yet.
    fn next(&mut self) -> State {
        let last = self.states.last().unwrap();
        let changes = self.keys.changes(&mut self.random, &last.model);
        last.child(&changes, 1_000 + last.header.number)
    }

    fn take_next(&mut self) -> Taken {
        let next = self.next();
        let update = signer(1).sign_update(1, next.update(1));
        self.states.push(next);
        self.take(update)
    }

    fn choose(&mut self, number: u64, finalized: usize) -> Taken {
        let (head, finalized) = (self.states.last().unwrap().id, self.states[finalized].id);
        self.take(signer(1).choose(1, number, head, finalized, finalized))
    }
}

#[test]
fn figures_of_a_shard_follow_what_it_does() {
    let mut own = Following::new();
    let before = page(&own.process);
    assert_eq!(before.value("cambium_shard_loaded", &[]), 0.0);
    assert_eq!(before.find("cambium_shard_newest_block", &[]), None);
    let why = own.process.ready().unwrap_err();
    assert!(why.contains("no snapshot yet"), "{why}");
    own.load();
    own.take(signer(1).open_epoch(1));
    for _ in 0..3 {
        assert_eq!(own.take_next(), Taken::Judged);
    }
    own.choose(1, 1);
    let page_of = |own: &Following| page(&own.process);
    let page = page_of(&own);
    tables().check(
        &page,
        &["A shard", "Place in the stream", "Records"],
        // Nobody has looked at the stream.
        &["stream_last_position", "stream_behind_positions"],
    );
    let records = |page: &Exposition, outcome| {
        page.value("cambium_stream_records_total", &[("outcome", outcome)])
    };
    for (outcome, count) in [
        ("opened", 1.0),
        ("applied", 3.0),
        ("chosen", 1.0),
        ("damaged", 0.0),
    ] {
        assert_eq!(records(&page, outcome), count, "{outcome}");
    }
    let first = own.states[0].header.number as f64;
    for (name, value) in [
        ("cambium_shard_index", 0.0),
        ("cambium_shard_count", 1.0),
        ("cambium_shard_loaded", 1.0),
        ("cambium_shard_newest_block", first + 3.0),
        ("cambium_shard_newest_timestamp_seconds", 1_002.0 + first),
        ("cambium_shard_head_block", first + 3.0),
        ("cambium_shard_oldest_block", first + 1.0),
        ("cambium_stream_finalized_block", first + 1.0),
        ("cambium_shard_versions", 3.0),
        ("cambium_shard_versions_max", 5.0),
        ("cambium_shard_bytes_max", 1e7),
        ("cambium_shard_updates_total", 3.0),
        ("cambium_shard_snapshot_block", first),
        ("cambium_shard_snapshot_write_seconds_count", 1.0),
        ("cambium_journal_records", 5.0),
        ("cambium_stream_position", 5.0),
        ("cambium_stream_epoch", 1.0),
        ("cambium_stream_holes", 0.0),
    ] {
        assert_eq!(page.value(name, &[]), value, "{name}");
    }
    let live = page.value("cambium_shard_live_bytes", &[]);
    let memory = page.value("cambium_shard_memory_bytes", &[]);
    assert!(
        live > 0.0 && live <= memory && memory < 1e7,
        "{live} {memory}"
    );
    let journal = page.value("cambium_journal_bytes", &[]);
    assert!(journal > 0.0);

    // A read, a snapshot, and one more block.
    let newest = own.states.last().unwrap().id;
    let request = request(newest, &own.keys.accounts[..2]);
    own.process.shard().unwrap().read(&request).unwrap();
    own.process.write_snapshot().unwrap().unwrap();
    own.take_next();
    let page = page_of(&own);
    for (name, value) in [
        ("cambium_shard_reads_total", 1.0),
        ("cambium_shard_read_keys_total", 2.0),
        ("cambium_shard_snapshot_block", first + 1.0),
        ("cambium_shard_snapshot_timestamp_seconds", 1_000.0 + first),
        ("cambium_shard_snapshot_write_seconds_count", 2.0),
        ("cambium_journal_records", 6.0),
    ] {
        assert_eq!(page.value(name, &[]), value, "{name}");
    }
    assert!(page.value("cambium_shard_read_bytes_total", &[]) > 0.0);
    assert!(page.value("cambium_journal_bytes", &[]) > journal);

    // A damaged record, one that is skipped, one that is known, a false update, one whose parent nobody has, and no room.
    own.position += 1;
    let damaged = item(own.position, Bytes::from_static(b"no record"));
    assert_eq!(own.process.take(&damaged).unwrap(), Taken::Judged);
    own.position += 2;
    let known = signer(1).sign_update(1, own.states[2].update(1));
    own.take(known);
    let next = own.next();
    let mut lie = next.update(1);
    lie.header.state_root = B256::repeat_byte(1);
    own.take(signer(1).sign_update(1, lie));
    let mut orphan = next.update(1);
    orphan.header.parent_hash = B256::repeat_byte(2);
    let orphan = signer(1).sign_update(1, orphan);
    assert!(matches!(own.take(orphan.clone()), Taken::Waits(_)));
    let again = item(own.position, Record::from(orphan).encode());
    own.process.pass(&again);
    own.take_next();
    assert_eq!(own.take_next(), Taken::Full);
    let page = page_of(&own);
    for (outcome, count) in [
        ("applied", 5.0),
        ("damaged", 1.0),
        ("ignored", 1.0),
        ("refused", 1.0),
        ("passed", 1.0),
        ("lost", 0.0),
    ] {
        assert_eq!(records(&page, outcome), count, "{outcome}");
    }
    for (name, labels, value) in [
        (
            "cambium_stream_records_ignored_total",
            ("reason", "known"),
            1.0,
        ),
        (
            "cambium_shard_updates_refused_total",
            ("reason", "top"),
            1.0,
        ),
        ("cambium_stream_missing_total", ("kind", "block"), 1.0),
        ("cambium_stream_waits_total", ("reason", "block"), 1.0),
        ("cambium_stream_waits_total", ("reason", "room"), 1.0),
        // The damaged one, and the two that were skipped.
        (
            "cambium_stream_hole_positions_total",
            ("outcome", "found"),
            3.0,
        ),
    ] {
        assert_eq!(page.value(name, &[labels]), value, "{name} {labels:?}");
    }
    // They are beside each other.
    assert_eq!(page.value("cambium_stream_holes", &[]), 1.0);
    // A choice needs what is in the holes, and nobody has it.
    own.process.pass(&item(own.position, Bytes::new()));
    own.states.pop();
    own.choose(2, 2);
    let page = page_of(&own);
    assert_eq!(page.value("cambium_stream_holes", &[]), 0.0);
    let given_up = [("outcome", "given_up")];
    assert_eq!(
        page.value("cambium_stream_hole_positions_total", &given_up),
        3.0
    );
    let missing = [("kind", "records")];
    assert!(page.value("cambium_stream_missing_total", &missing) >= 1.0);
}

/// A process is behind until it has read the stream, and says so.
#[test]
fn a_process_knows_how_far_it_is_behind_its_stream() {
    let stream = MemoryStream::new();
    let append = |count: u64| {
        for _ in 0..count {
            let last = stream.bounds().unwrap().last;
            let id = last.0.to_string();
            stream.append(&Bytes::from_static(b"x"), &id, last).unwrap();
        }
    };
    let end = StreamEnd::default();
    assert_eq!(end.behind(), None);
    assert!(end.ready().unwrap_err().contains("not be reached yet"));
    append(70);
    end.look(&stream);
    assert_eq!(end.behind(), Some(70));
    assert!(end.ready().unwrap_err().contains("70 positions behind"));
    end.at(StreamPosition(10));
    assert_eq!((end.behind(), end.ready()), (Some(60), Ok(())));
    // It is looked once a second, and not at each record.
    append(10);
    end.look(&stream);
    assert_eq!(end.behind(), Some(60));
    let page = page(&end);
    tables().check(&page, &["Place in the stream"], &[]);
    assert_eq!(page.value("cambium_stream_behind_positions", &[]), 60.0);
    assert_eq!(page.value("cambium_stream_reachable", &[]), 1.0);

    // The process of a shard does it by itself.
    let own = Following::new();
    own.load();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| own.process.run(&stream, &stop).unwrap());
        let started = Instant::now();
        while own.process.ready().is_err() {
            assert!(started.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn request(block: BlockId, accounts: &[B256]) -> ReadRequest {
    let targets = accounts.iter().map(|path| (*path, Vec::new()));
    ReadRequest {
        block,
        groups: vec![ReadGroup {
            targets: ProofTargets::new(targets.collect()),
            levels: BagLevels {
                accounts: 0,
                slots: 0,
                deletes: Deletes::Nothing,
            },
        }],
        codes: Vec::new(),
        slots_from: None,
    }
}

/// A shard that answers late.
struct Late {
    shard: Arc<Shard>,
    pause: Duration,
}

impl ShardHost for Late {
    fn shard(&self) -> Option<Arc<Shard>> {
        thread::sleep(self.pause);
        Some(Arc::clone(&self.shard))
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Bytes>, String> {
        match wanted {
            Wanted::Position(1) => Ok(Some(vec![7; 3_000_000].into())),
            Wanted::Position(2) => Err("it is damaged".to_owned()),
            _ => Ok(None),
        }
    }

    fn status(&self) -> HostStatus {
        self.shard.status()
    }
}

/// A server that ends when it is dropped, with what it counts.
struct Serving {
    address: SocketAddr,
    figures: Arc<cambium_cluster::ServerFigures>,
    _stop: oneshot::Sender<()>,
}

fn serve(runtime: &Runtime, host: impl ShardHost, limits: ServerLimits) -> Serving {
    let server = runtime.block_on(Server::listen(FREE)).unwrap();
    let (address, figures) = (server.address(), server.figures());
    let (_stop, stopped) = oneshot::channel();
    runtime.spawn(async move {
        let stop = async {
            let _ = stopped.await;
        };
        server
            .run(Arc::new(host), limits, None, stop)
            .await
            .unwrap();
    });
    Serving {
        address,
        figures,
        _stop,
    }
}

fn client(runtime: &Runtime, serving: &Serving, time: Duration) -> ShardClient {
    let _entered = runtime.enter();
    let limits = ClientLimits {
        time,
        ..ClientLimits::default()
    };
    ShardClient::new(&format!("http://{}", serving.address), limits, None).unwrap()
}

#[test]
fn calls_are_counted_by_how_they_end() {
    let runtime = Runtime::new().unwrap();
    let mut random = Random::new(7);
    let keys = Keys::new(&mut random, 40, 6);
    let mut state = State::genesis();
    for salt in 0..3 {
        state = state.child(&keys.changes(&mut random, &state.model), salt);
    }
    let range = ShardRange::new(0, 1).unwrap();
    let all = request(state.id, &keys.accounts);
    let whole = state.shard(range, ShardLimits::default()).read(&all);
    let limits = ShardLimits {
        bag_bytes: whole.unwrap().bytes() - 1,
        ..ShardLimits::default()
    };
    let shard = Arc::new(state.shard(range, limits));
    let late = |pause| Late {
        shard: Arc::clone(&shard),
        pause,
    };
    let serving = serve(&runtime, late(Duration::ZERO), ServerLimits::default());
    let own = client(&runtime, &serving, Duration::from_secs(20));
    let read = |request: &ReadRequest| {
        let (block, bytes) = (request.block, request.encode());
        runtime.block_on(own.read(range, block, bytes))
    };
    read(&request(state.id, &keys.accounts[..1])).unwrap();
    let next = BlockId::new(state.id.number + 1, B256::repeat_byte(3));
    let before = BlockId::new(1, B256::repeat_byte(3));
    for block in [next, next, before] {
        read(&request(block, &keys.accounts[..1])).unwrap_err();
    }
    let error = read(&all).unwrap_err();
    assert!(matches!(error, ReadError::TooBig { .. }), "{error}");
    let mut no_code = request(state.id, &keys.accounts[..1]);
    no_code.codes = vec![(B256::repeat_byte(5), keys.accounts[0])];
    read(&no_code).unwrap_err();
    runtime
        .block_on(own.read(range, state.id, vec![1, 2, 3]))
        .unwrap_err();
    runtime.block_on(own.status()).unwrap();
    let record = |position| runtime.block_on(own.record(Wanted::Position(position)));
    assert_eq!(record(1).unwrap().unwrap().len(), 3_000_000);
    record(2).unwrap_err();
    assert_eq!(record(3), Ok(None));
    runtime.block_on(own.snapshot(range, limits)).unwrap();
    let page = page(&*serving.figures);
    tables().check(&page, &["Calls"], &[]);
    let calls = |page: &Exposition, method, outcome| {
        let labels = [("method", method), ("outcome", outcome)];
        page.value("cambium_rpc_calls_total", &labels)
    };
    for (method, outcome, count) in [
        ("read", "ok", 1.0),
        ("read", "not_yet", 2.0),
        ("read", "gone", 1.0),
        ("read", "too_big", 1.0),
        ("read", "no_code", 1.0),
        ("read", "invalid", 1.0),
        ("read", "other_shard", 0.0),
        ("read", "deadline", 0.0),
        ("status", "ok", 1.0),
        ("update", "ok", 1.0),
        ("update", "damaged", 1.0),
        ("update", "not_found", 1.0),
        ("snapshot", "ok", 1.0),
    ] {
        assert_eq!(calls(&page, method, outcome), count, "{method} {outcome}");
    }
    let of = |method| [("method", method)];
    assert_eq!(
        page.value("cambium_rpc_call_seconds_count", &of("read")),
        7.0
    );
    assert!(page.value("cambium_rpc_answer_bytes_total", &of("read")) > 0.0);
    assert_eq!(
        page.value("cambium_rpc_answer_bytes_total", &of("update")),
        3e6
    );
    assert!(page.value("cambium_rpc_answer_bytes_total", &of("snapshot")) > 1_000.0);
    assert_eq!(page.value("cambium_rpc_connections_total", &[]), 1.0);
    assert_eq!(page.value("cambium_rpc_connections_open", &[]), 1.0);
    assert_eq!(page.value("cambium_rpc_calls_running", &[]), 0.0);

    // Calls that take too long, those that are given up, and those for which there is no room.
    let limits = ServerLimits {
        calls: 1,
        waiting: 1,
        time: Duration::from_millis(600),
        ..ServerLimits::default()
    };
    let serving = serve(&runtime, late(Duration::from_secs(2)), limits);
    let patient = client(&runtime, &serving, Duration::from_secs(20));
    let call = || {
        let own = patient.clone();
        let request = request(state.id, &keys.accounts[..1]);
        runtime.spawn(async move { own.read(range, request.block, request.encode()).await })
    };
    let (first, second) = (call(), call());
    let running = |count: f64| {
        let started = Instant::now();
        while page_of(&serving).value("cambium_rpc_calls_running", &[]) != count {
            assert!(started.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(2));
        }
    };
    running(2.0);
    let third = call();
    assert!(runtime.block_on(third).unwrap().is_err());
    second.abort();
    running(1.0);
    assert!(runtime.block_on(first).unwrap().is_err());
    let page = page_of(&serving);
    for (outcome, count) in [
        ("deadline", 1.0),
        ("canceled", 1.0),
        ("limit", 1.0),
        ("ok", 0.0),
    ] {
        assert_eq!(calls(&page, "read", outcome), count, "{outcome}");
    }
    assert_eq!(page.value("cambium_rpc_calls_running", &[]), 0.0);
    assert_eq!(page.value("cambium_rpc_calls_waiting", &[]), 0.0);
}

fn page_of(serving: &Serving) -> Exposition {
    page(&*serving.figures)
}

#[test]
fn figures_of_a_builder_follow_what_it_does() {
    let workload = Workload::new(WorkloadParams {
        blocks: 2,
        block_size: BlockSize::Transactions(12),
        ..params(Fork::Osaka)
    })
    .unwrap();
    let engine = engine(&workload);
    let genesis = engine.block(0).unwrap().header;
    let shards = shards_of(&workload, &genesis, 4);
    let reader = || Reader::new(together(&shards), &genesis, 1, 0);
    let spec = engine.spec().clone();
    let builder = Builder::new(reader(), spec.clone(), 1, Incomplete::Fetch);
    let own = databases::signer();
    let stream = MemoryStream::new();
    let mut publisher = Publisher::new(stream.clone(), databases::keys(), 3).unwrap();
    publisher.publish(&Record::from(own.open_epoch(3))).unwrap();
    let options = BuilderOptions {
        waiting: 15,
        final_below: 1,
        ..BuilderOptions::default()
    };
    let process = BuilderProcess::new(
        builder,
        genesis.clone(),
        spec.clone(),
        own,
        publisher,
        3,
        options,
    );
    let first = page(&process);
    tables().check(&first, &["A builder", "Publishing"], &[]);
    assert_eq!(first.value("cambium_publish_epoch", &[]), 3.0);
    assert_eq!(
        first.value("cambium_builder_submissions_total", &[("outcome", "taken")]),
        0.0
    );

    // Twelve transactions, one of them again, and one with another's nonce: these can't be executed.
    let client = reader();
    let transactions: Vec<_> = workload.transactions().take(2).flatten().collect();
    let mut bytes = 0;
    for transaction in transactions[..12].iter().chain(&transactions[..1]) {
        let sender = recover_senders(std::slice::from_ref(transaction), true).unwrap()[0];
        let mut header = genesis.clone();
        (header.number, header.parent_hash) = (1, genesis.hash_slow());
        header.timestamp += 12;
        let prepared = Submission::prepare(&client, &spec, &header, transaction.clone(), sender, 1);
        let submission = prepared.unwrap_or_else(|_| Submission {
            transaction: transaction.clone(),
            ran_on: client.block(),
            touched: ProofTargets::default(),
            bag: NodeBag::default(),
        });
        bytes += submission.bag.bytes();
        process.submit(submission).unwrap();
    }
    let page_now = page(&process);
    for (name, value) in [
        ("cambium_builder_waiting_submissions", 13.0),
        ("cambium_builder_waiting_submissions_max", 15.0),
        ("cambium_builder_waiting_bytes", bytes as f64),
        ("cambium_builder_blocks_total", 0.0),
    ] {
        assert_eq!(page_now.value(name, &[]), value, "{name}");
    }
    // An append without an answer, which is tried again.
    stream.plan(Some(StreamFault::Lost));
    let (built, left_out) = process.build(genesis.timestamp + 12).unwrap();
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    let page_now = page(&process);
    for (name, value) in [
        ("cambium_builder_waiting_submissions", 0.0),
        ("cambium_builder_waiting_bytes", 0.0),
        ("cambium_builder_blocks_total", 1.0),
        ("cambium_builder_transactions_total", 12.0),
        ("cambium_builder_gas_total", built.gas_used as f64),
        ("cambium_builder_head_block", 1.0),
        ("cambium_builder_finalized_block", 0.0),
        ("cambium_builder_kept_blocks", 1.0),
        ("cambium_builder_unpublished_blocks", 0.0),
        ("cambium_builder_bags_revised_total", 0.0),
        ("cambium_publish_retries_total", 1.0),
        // The epoch, the block and the choice.
        ("cambium_publish_tail_position", 3.0),
        ("cambium_publish_seconds_count", 3.0),
    ] {
        assert_eq!(page_now.value(name, &[]), value, "{name}");
    }
    for (name, labels, value) in [
        (
            "cambium_builder_submissions_total",
            ("outcome", "taken"),
            13.0,
        ),
        (
            "cambium_builder_left_out_total",
            ("reason", "execution"),
            1.0,
        ),
        (
            "cambium_builder_build_seconds_count",
            ("part", "execute"),
            1.0,
        ),
    ] {
        assert_eq!(page_now.value(name, &[labels]), value, "{name}");
    }
    let execute = [("part", "execute"), ("quantile", "1")];
    assert!(page_now.value("cambium_builder_build_seconds", &execute) > 0.0);

    // Bags of the older block, of which one has no nodes.
    for shard in &shards {
        shard.apply(built.id, &built.update).unwrap();
    }
    for transaction in &transactions[12..16] {
        process
            .submit(Submission {
                transaction: transaction.clone(),
                ran_on: client.block(),
                touched: ProofTargets::default(),
                bag: NodeBag::default(),
            })
            .unwrap();
    }
    let (built, _) = process.build(genesis.timestamp + 24).unwrap();
    for shard in &shards {
        shard.apply(built.id, &built.update).unwrap();
    }
    let page_now = page(&process);
    assert_eq!(
        page_now.value("cambium_builder_bags_revised_total", &[]),
        4.0
    );
    assert_eq!(page_now.value("cambium_builder_finalized_block", &[]), 1.0);
    assert_eq!(process.ready(), Ok(()));

    // No room in the queue, and a stream that refuses.
    let empty = || Submission {
        transaction: transactions[20].clone(),
        ran_on: client.block(),
        touched: ProofTargets::default(),
        bag: NodeBag::default(),
    };
    (0..15).for_each(|_| process.submit(empty()).unwrap());
    process.submit(empty()).unwrap_err();
    assert!(process.ready().unwrap_err().contains("15 submissions wait"));
    // What can't be appended with others is tried alone.
    stream.plan(Some(StreamFault::Full));
    stream.plan(Some(StreamFault::Full));
    process.build(genesis.timestamp + 36).unwrap_err();
    let page_now = page(&process);
    for (name, labels, value) in [
        (
            "cambium_builder_submissions_total",
            ("outcome", "refused"),
            1.0,
        ),
        ("cambium_builder_failures_total", ("step", "publish"), 1.0),
        ("cambium_publish_failures_total", ("reason", "full"), 1.0),
    ] {
        assert_eq!(page_now.value(name, &[labels]), value, "{name}");
    }
    assert_eq!(
        page_now.value("cambium_builder_unpublished_blocks", &[]),
        1.0
    );
    assert!(
        process
            .ready()
            .unwrap_err()
            .contains("1 blocks are not published")
    );
}

#[test]
fn figures_of_a_database_follow_what_it_does() {
    let workload = databases::workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 6);
    // The stream lacks the third block.
    let node = Node::new(&workload, 1, None, &Kept::of(updates[2..3].to_vec()));
    node.feed(|feeding| {
        let figures = feeding.database.figures();
        feeding.take_all(&updates[..2]);
        feeding.take_all(&updates[3..5]);
        let mut lie = updates[5].clone();
        lie.header.state_root = B256::repeat_byte(1);
        feeding.take(databases::signed(lie)).unwrap();
        let orphan = {
            let mut orphan = marked(&updates[5], 9);
            orphan.header.parent_hash = B256::repeat_byte(2);
            databases::signed(orphan)
        };
        assert!(matches!(feeding.take(orphan).unwrap(), Taken::Waits(_)));
        let head = updates[4].id();
        let (safe, finalized) = (updates[3].id(), updates[2].id());
        let page_now = page(&figures);
        tables().check(
            &page_now,
            &[
                "A database that follows",
                "Place in the stream",
                "Records",
                "the engine",
            ],
            &["stream_last_position", "stream_behind_positions"],
        );
        feeding
            .take(databases::chosen(1, head, safe, finalized))
            .unwrap();
        let page_now = page(&figures);
        for (name, value) in [
            ("cambium_database_blocks_total", 5.0),
            ("cambium_database_blocks_fetched_total", 1.0),
            ("cambium_database_choices_total", 1.0),
            ("cambium_database_updates_refused_total", 1.0),
            ("cambium_head_block", 5.0),
            ("cambium_safe_block", 4.0),
            ("cambium_finalized_block", 3.0),
            ("cambium_blocks_committed_total", 5.0),
            ("cambium_stream_epoch", 1.0),
        ] {
            assert_eq!(page_now.value(name, &[]), value, "{name}");
        }
        for (outcome, count) in [
            ("opened", 1.0),
            ("applied", 4.0),
            ("refused", 1.0),
            ("chosen", 1.0),
        ] {
            let labels = [("outcome", outcome)];
            let found = page_now.value("cambium_stream_records_total", &labels);
            assert_eq!(found, count, "{outcome}");
        }
        let waits = [("reason", "block")];
        assert_eq!(page_now.value("cambium_stream_waits_total", &waits), 1.0);
    });
}

#[test]
fn a_registry_has_the_process_and_all_of_its_parts() {
    let registry = MetricsRegistry::new("test");
    assert!(registry.ready().unwrap_err().contains("starting"));
    let page = parsed(&registry.page());
    tables().check(&page, &["Every process"], &[]);
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("role", "test")];
    assert_eq!(page.value("cambium_build_info", &labels), 1.0);
    assert!(page.value("process_resident_memory_bytes", &[]) > 1e6);
    let before = page.value("process_open_fds", &[]);
    assert!(before > 2.0 && before < page.value("process_max_fds", &[]));
    let files: Vec<_> = (0..50)
        .map(|_| std::fs::File::open("/dev/null").unwrap())
        .collect();
    let after = parsed(&registry.page()).value("process_open_fds", &[]);
    // Other tests open and close files meanwhile.
    assert!(after > before, "{before} {after}");
    drop(files);
    registry.add(Arc::new(StreamEnd::default()));
    assert!(registry.ready().unwrap_err().contains("stream"));
    parsed(&registry.page()).value("cambium_stream_position", &[]);
}
