//! Shards in other processes, as far as one process can show it: over loopback, with all that a network does to calls.

use crate::common::{Keys, State, pick, random_hash};
use alloy_primitives::{B256, Bytes};
use cambium_cluster::{
    ClientLimits, HostStatus, ReadError, ReadGroup, ReadRequest, Reader, RemoteShard, Server,
    ServerLimits, Service, Shard, ShardClient, ShardHost, ShardLimits, ShardRange, Shards,
    TlsFiles, Wanted,
};
use cambium_primitives::BlockId;
use cambium_seeds::{Random, seeds};
use cambium_trie::{BagLevels, Deletes, ProofTargets};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot};

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A server that ends when it is dropped.
struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    done: Option<tokio::task::JoinHandle<()>>,
    runtime: tokio::runtime::Handle,
}

impl Serving {
    fn at(
        runtime: &Runtime,
        address: SocketAddr,
        host: impl ShardHost,
        limits: ServerLimits,
        tls: Option<TlsFiles>,
    ) -> Self {
        let server = runtime.block_on(Server::listen(address)).unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let done = runtime.spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            server
                .run(Arc::new(host), limits, tls.as_ref(), stop)
                .await
                .unwrap();
        });
        Self {
            address,
            stop: Some(stop),
            done: Some(done),
            runtime: runtime.handle().clone(),
        }
    }

    fn new(runtime: &Runtime, host: impl ShardHost) -> Self {
        Self::at(runtime, FREE, host, ServerLimits::default(), None)
    }

    fn client(&self, runtime: &Runtime, limits: ClientLimits) -> ShardClient {
        let _entered = runtime.enter();
        ShardClient::new(&format!("http://{}", self.address), limits, None).unwrap()
    }

    fn remote(&self, runtime: &Runtime, range: ShardRange) -> RemoteShard {
        let client = self.client(runtime, ClientLimits::default());
        RemoteShard::new(client, range, runtime.handle().clone())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(done) = self.done.take() {
            let _ = self
                .runtime
                .block_on(async { tokio::time::timeout(Duration::from_secs(5), done).await });
        }
    }
}

fn a_state(random: &mut Random, keys: &Keys, blocks: u64) -> State {
    let mut state = State::genesis();
    for salt in 0..blocks {
        let changes = keys.changes(random, &state.model);
        state = state.child(&changes, salt);
    }
    state
}

fn request(block: BlockId, accounts: &[B256], slots: &[B256], level: u8) -> ReadRequest {
    let targets = accounts.iter().map(|path| (*path, slots.to_vec()));
    ReadRequest {
        block,
        groups: vec![ReadGroup {
            targets: ProofTargets::new(targets.collect()),
            levels: BagLevels {
                accounts: level,
                slots: 0,
                deletes: Deletes::Nothing,
            },
        }],
        codes: Vec::new(),
        slots_from: None,
    }
}

/// What a reader sees over the network is what the shards have, and the answers are the same to the byte.
#[test]
fn a_reader_reads_and_follows_a_chain_over_the_network() {
    let runtime = Runtime::new().unwrap();
    for seed in seeds!(0..4) {
        let mut random = Random::new(seed);
        let count = pick(&mut random, &[1, 2, 16]);
        let keys = Keys::new(&mut random, 60, 12);
        let mut state = a_state(&mut random, &keys, 20);
        let shards = state.shards(count);
        let serving: Vec<_> = shards
            .iter()
            .map(|shard| Serving::new(&runtime, Arc::clone(shard)))
            .collect();
        let remote = serving.iter().zip(&shards).map(|(serving, shard)| {
            vec![Arc::new(serving.remote(&runtime, shard.range())) as Arc<dyn Service>]
        });
        let together = Shards::new(remote.collect()).unwrap();
        let mut reader = Reader::new(together, &state.header, 2, 1);
        for salt in 0..6 {
            for _ in 0..12 {
                let account = pick(&mut random, &keys.accounts);
                let expected = state.model.get(&account);
                let found = reader.account(&account).unwrap();
                assert_eq!(found, expected.map(|it| it.0));
                let slot = pick(&mut random, &keys.slots);
                let expected = expected.and_then(|it| it.1.get(&slot).copied());
                let found = reader.slot(&account, &slot).unwrap();
                assert_eq!(found, expected.unwrap_or_default());
            }
            let changes = keys.changes(&mut random, &state.model);
            let child = state.child(&changes, salt);
            let update = child.update(shards[0].range().depth());
            shards
                .iter()
                .for_each(|shard| shard.apply(child.id, &update).unwrap());
            reader.advance(&child.header, &child.changes).unwrap();
            state = child;
        }
        for (serving, shard) in serving.iter().zip(&shards) {
            let mut own = keys.accounts.clone();
            own.retain(|account| shard.range().place(account).is_some());
            own.sort();
            let request = request(state.id, &own, &keys.slots, 0);
            let remote = serving.remote(&runtime, shard.range());
            assert_eq!(remote.read(&request), shard.read(&request));
        }
    }
}

/// Every reason for which a shard has no answer arrives as it is.
#[test]
fn errors_arrive_as_they_are() {
    let runtime = Runtime::new().unwrap();
    let mut random = Random::new(7);
    let keys = Keys::new(&mut random, 40, 6);
    let state = a_state(&mut random, &keys, 20);
    let range = ShardRange::new(1, 2).unwrap();
    let limits = ShardLimits {
        bag_bytes: 4_000,
        ..ShardLimits::default()
    };
    let shard = Arc::new(state.shard(range, limits));
    let serving = Serving::new(&runtime, Arc::clone(&shard));
    let remote = serving.remote(&runtime, range);
    let of_other = B256::ZERO;
    let mut own = keys.accounts.clone();
    own.retain(|account| range.place(account).is_some());
    let mut next = state.id;
    next.number += 1;
    next.hash = B256::repeat_byte(3);
    let old = BlockId::new(1, B256::repeat_byte(4));
    let mut no_code = request(state.id, &own[..1], &[], 0);
    no_code.codes = vec![(B256::repeat_byte(5), own[0])];
    for (request, expected) in [
        (request(next, &own, &[], 0), "NotYet"),
        (request(old, &own, &[], 0), "Gone"),
        (request(state.id, &[of_other], &[], 0), "OtherShard"),
        (no_code, "NoCode"),
        (request(state.id, &own, &keys.slots, 0), "TooBig"),
    ] {
        let error = remote.read(&request).unwrap_err();
        assert_eq!(error, shard.read(&request).unwrap_err());
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
    }
    // A request that is too long for a message is divided by whoever asks.
    let limits = ClientLimits {
        request_bytes: 200,
        ..ClientLimits::default()
    };
    let client = serving.client(&runtime, limits);
    let remote = RemoteShard::new(client, range, runtime.handle().clone());
    let long = request(state.id, &own, &[], 0);
    let error = remote.read(&long).unwrap_err();
    assert_eq!(error, ReadError::TooBig { bytes_max: 200 });
}

/// A host that does what a test wants.
struct Host {
    shard: Option<Arc<Shard>>,
    range: ShardRange,
    pause: Duration,
    updates: Vec<(B256, Bytes)>,
}

impl ShardHost for Host {
    fn shard(&self) -> Option<Arc<Shard>> {
        std::thread::sleep(self.pause);
        self.shard.clone()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Bytes>, String> {
        let mut updates = self.updates.iter();
        let found = match wanted {
            Wanted::Block(block) => updates.find(|(hash, _)| *hash == block),
            Wanted::Position(at) => self.updates.get(at as usize),
        };
        Ok(found.map(|(_, update)| update.clone()))
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            range: self.range,
            loading: "it loads a snapshot".to_owned(),
            position: 17,
            epoch: 3,
            trouble: "none to speak of".to_owned(),
        }
    }
}

#[test]
fn a_process_without_a_state_says_what_it_waits_for() {
    let runtime = Runtime::new().unwrap();
    let range = ShardRange::new(2, 4).unwrap();
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| at as u8).collect();
    let hash = B256::repeat_byte(1);
    let host = Host {
        shard: None,
        range,
        pause: Duration::ZERO,
        updates: vec![(hash, long.clone().into())],
    };
    let serving = Serving::new(&runtime, host);
    let block = BlockId::new(1, B256::ZERO);
    let request = request(block, &[], &[], 0);
    let error = serving.remote(&runtime, range).read(&request).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("shard 2: shard 2: the shard has no state yet: it loads a snapshot")
    );
    let client = serving.client(&runtime, ClientLimits::default());
    let status = runtime.block_on(client.status()).unwrap();
    assert_eq!((status.index, status.count), (2, 4));
    assert_eq!((status.position, status.epoch), (17, 3));
    assert_eq!(status.loading, "it loads a snapshot");
    assert_eq!(status.trouble, "none to speak of");
    let error = runtime.block_on(client.snapshot(range, ShardLimits::default()));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the shard has no state yet"), "{error}");
    // An update comes in parts.
    let record = |wanted| runtime.block_on(client.record(wanted)).unwrap();
    assert_eq!(record(Wanted::Block(hash)), Some(long.clone()));
    assert_eq!(record(Wanted::Block(B256::repeat_byte(2))), None);
    assert_eq!(record(Wanted::Position(0)), Some(long));
    assert_eq!(record(Wanted::Position(1)), None);
}

/// A shard that takes too long, or that nobody serves, is an error within the time that the client waits.
#[test]
fn a_call_ends_at_its_deadline() {
    let runtime = Runtime::new().unwrap();
    let state = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let host = Host {
        shard: Some(Arc::new(state.shard(range, ShardLimits::default()))),
        range,
        pause: Duration::from_secs(2),
        updates: Vec::new(),
    };
    let serving = Serving::new(&runtime, host);
    let limits = ClientLimits {
        time: Duration::from_millis(200),
        ..ClientLimits::default()
    };
    let remote = |client| RemoteShard::new(client, range, runtime.handle().clone());
    let request = request(state.id, &[], &[], 0);
    let started = Instant::now();
    let client = serving.client(&runtime, limits);
    let error = remote(client).read(&request).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(1));

    // An address at which nobody listens, and one that takes connections and says nothing.
    let silent = runtime.block_on(TcpListener::bind(FREE)).unwrap();
    let gone = runtime.block_on(TcpListener::bind(FREE)).unwrap();
    let addresses = [silent.local_addr().unwrap(), gone.local_addr().unwrap()];
    drop(gone);
    for address in addresses {
        let started = Instant::now();
        let client = {
            let _entered = runtime.enter();
            ShardClient::new(&format!("http://{address}"), limits, None).unwrap()
        };
        let error = remote(client).read(&request).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(&address.to_string()), "{shown}");
        assert!(started.elapsed() < Duration::from_secs(1));
    }
    drop(silent);
}

/// A server that was gone and is back is used again, with the same client.
#[test]
fn a_client_finds_a_server_that_comes_back() {
    let runtime = Runtime::new().unwrap();
    let state = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let shard = Arc::new(state.shard(range, ShardLimits::default()));
    let serving = Serving::new(&runtime, Arc::clone(&shard));
    let remote = serving.remote(&runtime, range);
    let request = request(state.id, &[], &[], 0);
    remote.read(&request).unwrap();
    let address = serving.address;
    drop(serving);
    let error = remote.read(&request).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
    let _again = Serving::at(&runtime, address, shard, ServerLimits::default(), None);
    let started = Instant::now();
    while let Err(error) = remote.read(&request) {
        assert!(started.elapsed() < Duration::from_secs(5), "{error}");
    }
}

/// A replica that takes long is overtaken by the next one, and a dead one costs its time once.
#[test]
fn a_slow_replica_is_overtaken() {
    let runtime = Runtime::new().unwrap();
    let mut random = Random::new(5);
    let keys = Keys::new(&mut random, 40, 6);
    let state = a_state(&mut random, &keys, 20);
    let range = ShardRange::new(0, 1).unwrap();
    let shard = Arc::new(state.shard(range, ShardLimits::default()));
    let slow = Host {
        shard: Some(Arc::clone(&shard)),
        range,
        pause: Duration::from_secs(3),
        updates: Vec::new(),
    };
    let slow = Serving::new(&runtime, slow);
    let fast = Serving::new(&runtime, shard);
    let replicas: Vec<Arc<dyn Service>> = vec![
        Arc::new(slow.remote(&runtime, range)),
        Arc::new(fast.remote(&runtime, range)),
    ];
    let shards = Shards::new(vec![replicas]).unwrap();
    for at in 0..5 {
        let started = Instant::now();
        let reader = Reader::new(shards.clone(), &state.header, 0, 0);
        reader.account(&keys.accounts[at]).unwrap();
        assert!(started.elapsed() < Duration::from_secs(1));
    }
    // From then on the faster one is asked first.
    assert_eq!(shards.hedged(), 1);
}

/// More calls than may wait are refused at once, and those that wait are answered.
#[test]
fn a_flood_of_calls_is_turned_away() {
    let runtime = Runtime::new().unwrap();
    let state = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let host = Host {
        shard: Some(Arc::new(state.shard(range, ShardLimits::default()))),
        range,
        pause: Duration::from_millis(100),
        updates: Vec::new(),
    };
    let limits = ServerLimits {
        calls: 2,
        waiting: 3,
        ..ServerLimits::default()
    };
    let serving = Serving::at(&runtime, FREE, host, limits, None);
    let client = serving.client(&runtime, ClientLimits::default());
    let bytes = request(state.id, &[], &[], 0).encode();
    let answers = runtime.block_on(async {
        let calls: Vec<_> = (0..40)
            .map(|_| {
                let (client, bytes) = (client.clone(), bytes.clone());
                tokio::spawn(async move { client.read(range, state.id, bytes).await })
            })
            .collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap());
        }
        answers
    });
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    assert_eq!(refused, 35, "two run and three wait");
    let status = runtime.block_on(client.status()).unwrap();
    assert_eq!(status.turned_away, 35);
}

/// Over the most connections, a further one waits, and the others go on.
#[test]
fn connections_are_limited() {
    let runtime = Runtime::new().unwrap();
    let state = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let shard = Arc::new(state.shard(range, ShardLimits::default()));
    let limits = ServerLimits {
        connections: 2,
        ..ServerLimits::default()
    };
    let serving = Serving::at(&runtime, FREE, shard, limits, None);
    let of_client = ClientLimits {
        time: Duration::from_millis(300),
        ..ClientLimits::default()
    };
    let status = |client: &ShardClient| runtime.block_on(client.status());
    let first = serving.client(&runtime, of_client);
    let second = serving.client(&runtime, of_client);
    status(&first).unwrap();
    status(&second).unwrap();
    let third = serving.client(&runtime, of_client);
    status(&third).unwrap_err();
    status(&first).unwrap();
    drop(first);
    let started = Instant::now();
    while let Err(error) = status(&third) {
        assert!(started.elapsed() < Duration::from_secs(5), "{error}");
    }
}

/// Nonsense instead of messages ends a call, and nothing else.
#[test]
fn nonsense_is_refused() {
    let runtime = Runtime::new().unwrap();
    let mut random = Random::new(11);
    let state = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let shard = Arc::new(state.shard(range, ShardLimits::default()));
    let serving = Serving::new(&runtime, shard);
    let client = serving.client(&runtime, ClientLimits::default());
    for _ in 0..200 {
        let length = random.below(200) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        if random.percent(50) {
            bytes = request(state.id, &[random_hash(&mut random)], &[], 0).encode();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        let _ = runtime.block_on(client.read(range, state.id, bytes));
    }
    // Bytes that are no HTTP/2 at all.
    use std::io::Write;
    for _ in 0..20 {
        let mut stream = std::net::TcpStream::connect(serving.address).unwrap();
        let bytes: Vec<u8> = (0..500).map(|_| random.next() as u8).collect();
        let _ = stream.write_all(&bytes);
    }
    let bytes = request(state.id, &[], &[], 0).encode();
    runtime
        .block_on(client.read(range, state.id, bytes))
        .unwrap();
    let error = {
        let _entered = runtime.enter();
        ShardClient::new("no address", ClientLimits::default(), None).unwrap_err()
    };
    assert!(
        error.to_string().contains("is no address of a shard"),
        "{error}"
    );
}

/// Certificates of an authority, each side's in files of its own.
struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Files of an authority and of one that it has certified.
    fn files(&self, authority: &str, side: &str) -> TlsFiles {
        let path = |name: String| self.folder.path().join(name);
        let files = TlsFiles {
            authority: path(format!("{authority}.pem")),
            certificate: path(format!("{authority}-{side}.pem")),
            key: path(format!("{authority}-{side}.key")),
        };
        let (own_key, own) = (path(format!("{authority}.key")), files.authority.clone());
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = match std::fs::read_to_string(&own_key) {
            Ok(pem) => rcgen::KeyPair::from_pem(&pem).unwrap(),
            Err(_) => {
                let key = rcgen::KeyPair::generate().unwrap();
                std::fs::write(&own_key, key.serialize_pem()).unwrap();
                std::fs::write(&own, params.self_signed(&key).unwrap().pem()).unwrap();
                key
            }
        };
        let issuer = rcgen::Issuer::new(params, key);
        let side_key = rcgen::KeyPair::generate().unwrap();
        let of_side = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = of_side.signed_by(&side_key, &issuer).unwrap();
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, side_key.serialize_pem()).unwrap();
        files
    }
}

/// Each side shows a certificate of the cluster's authority, or there is no connection.
#[test]
fn both_sides_show_certificates() {
    let runtime = Runtime::new().unwrap();
    let state = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let shard = Arc::new(state.shard(range, ShardLimits::default()));
    let authority = Authority::new();
    let server = authority.files("ours", "server");
    let limits = ServerLimits::default();
    let serving = Serving::at(&runtime, FREE, shard, limits, Some(server));
    let status = |scheme: &str, tls: Option<&TlsFiles>| {
        let client = {
            let _entered = runtime.enter();
            let address = format!("{scheme}://{}", serving.address);
            ShardClient::new(&address, ClientLimits::default(), tls).unwrap()
        };
        runtime.block_on(client.status())
    };
    let own = authority.files("ours", "client");
    let reply = status("https", Some(&own)).unwrap();
    assert_eq!((reply.index, reply.count), (0, 1));
    // Without a certificate, with one of another authority, and one who believes another.
    status("http", None).unwrap_err();
    let other = authority.files("others", "client");
    status("https", Some(&other)).unwrap_err();
    let believes = TlsFiles {
        authority: own.authority.clone(),
        ..other.clone()
    };
    status("https", Some(&believes)).unwrap_err();
    let doubts = TlsFiles {
        authority: other.authority,
        ..own.clone()
    };
    status("https", Some(&doubts)).unwrap_err();
    // Files that are not there are named.
    let missing = TlsFiles {
        key: "no/such/file".into(),
        ..own
    };
    let _entered = runtime.enter();
    let error = ShardClient::new(
        "https://127.0.0.1:1",
        ClientLimits::default(),
        Some(&missing),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no/such/file"), "{error}");
}
