//! A cluster over slow networks that are cut: four hosts, each a network namespace with delays to the others. Needs root, iproute2, Python
//! and the program that routes between them (`wan.py`), which CAMBIUM_WAN names or which is beside this checkout.

use crate::support::{Fixture, Run, program};
use cambium_testkit::{
    is_long, nats_server, say,
    wan::{Wan, address},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const HOSTS: usize = 4;
/// From each host to each other one.
const DELAY_MS: f64 = 50.0;
const BLOCKS: u64 = 36;

/// Everything that runs on the hosts. It ends before they do.
struct World {
    children: Vec<Child>,
    wan: Wan,
    fixture: Fixture,
    key: PathBuf,
    builder: String,
}

impl Drop for World {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl World {
    fn new() -> Option<Self> {
        let server = nats_server()?;
        let fixture = Fixture::generate_with(300, BLOCKS, 20, &["--fork", "osaka"]);
        let wan = match Wan::start(fixture.dir.path(), HOSTS, DELAY_MS) {
            Ok(wan) => wan,
            Err(why) => {
                say(&format!("SKIPPED: no cluster over slow networks: {why}"));
                return None;
            }
        };
        let key = fixture.path("builder.key");
        let made = cambium!("cluster", "key", &key, "--json").done().json();
        let mut world = Self {
            children: Vec::new(),
            wan,
            fixture,
            key,
            builder: made["address"].as_str().unwrap().to_owned(),
        };
        world.certify();
        let routes: Vec<_> = (1..=3)
            .map(|host| format!("nats://{}:6222", address(host)))
            .collect();
        for host in 1..=3 {
            let (own, store) = (address(host), world.fixture.path(&format!("nats{host}")));
            let config = format!(
                "server_name: n{host}\nlisten: {own}:4222\nmax_payload: 1MB\n\
                 jetstream {{ store_dir: {store:?}, max_file_store: 4GB, sync_interval: always }}\n\
                 cluster {{ name: test, listen: {own}:6222, routes: [{}] }}\n",
                routes.join(", ")
            );
            let file = world.fixture.path(&format!("nats{host}.conf"));
            fs::write(&file, config).unwrap();
            let mut command = world.wan.on(host, server);
            command.arg("-c").arg(file);
            world.spawn(command, &format!("nats{host}.log"));
        }
        Some(world)
    }

    fn spawn(&mut self, mut command: Command, log: &str) {
        let log = fs::File::create(self.fixture.path(log)).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.children.push(child.unwrap());
    }

    /// One authority, and a certificate for all hosts.
    fn certify(&self) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let side_key = KeyPair::generate().unwrap();
        let hosts: Vec<_> = (1..=HOSTS).map(address).collect();
        let side = CertificateParams::new(hosts).unwrap();
        let side = side.signed_by(&side_key, &issuer).unwrap();
        let write = |name: &str, text: String| fs::write(self.fixture.path(name), text).unwrap();
        write("authority.pem", authority.pem());
        write("side.pem", side.pem());
        write("side.key", side_key.serialize_pem());
    }

    fn tls(&self) -> Vec<String> {
        let files = [
            ("--tls-authority", "authority.pem"),
            ("--tls-certificate", "side.pem"),
            ("--tls-key", "side.key"),
        ];
        let words = files.iter().flat_map(|(option, file)| {
            let file = self.fixture.path(file);
            [(*option).to_owned(), file.to_str().unwrap().to_owned()]
        });
        words.collect()
    }

    fn nats(&self) -> Vec<String> {
        let urls = (1..=3).flat_map(|host| {
            [
                "--nats".to_owned(),
                format!("nats://{}:4222", address(host)),
            ]
        });
        urls.collect()
    }

    /// Runs the program on a host.
    fn run(&self, host: usize, args: &[&str], more: &[String]) -> Run {
        let program = program();
        let mut command = self.wan.on(host, Path::new(program.get_program()));
        command
            .env_remove("CAMBIUM_LOG")
            .args(args)
            .arg("--json")
            .args(self.nats())
            .args(more);
        Run::of(command.output().unwrap())
    }

    fn shard(&mut self, host: usize) {
        let name = format!("s{host}");
        let program = program();
        let mut command = self.wan.on(host, Path::new(program.get_program()));
        command
            .args([
                "shard",
                "--shard",
                "0/1",
                "--member",
                &name,
                "--chain-id",
                "4093",
            ])
            .args(["--builder", &self.builder, "--snapshot-blocks", "4"])
            .args(["--listen", &format!("{}:7100", address(host)), "--folder"])
            .arg(self.fixture.path(&name))
            .args(self.nats())
            .args(self.tls());
        self.spawn(command, &format!("{name}.log"));
    }

    fn import(&self, last: u64) {
        let (part, fixture) = (self.fixture.path("part.rlp"), &self.fixture);
        let whole = fixture.path("whole");
        let number = last.to_string();
        cambium!("export", &part, "--to", &number, "--force", "-d", &whole).done();
        fixture.import(&part).done();
    }

    /// Publishes what is new, on a host. Returns how many seconds a block took.
    fn feed(&self, host: usize) -> f64 {
        let (db, key) = (self.fixture.db(), self.key.clone());
        let (db, key) = (db.to_str().unwrap(), key.to_str().unwrap());
        let args = [
            "cluster",
            "feed",
            "--once",
            "--shards",
            "1",
            "--final-below",
            "4",
            "-d",
            db,
            "--key",
            key,
        ];
        let started = Instant::now();
        let fed = self.run(host, &args, &self.tls()).done().json();
        let blocks = fed["blocks"].as_u64().unwrap();
        assert!(blocks > 0);
        started.elapsed().as_secs_f64() / blocks as f64
    }

    /// Waits until a replica has the state after a block, as seen from a host.
    fn wait(&self, from: usize, replica: usize, number: u64) -> Value {
        let (started, name) = (Instant::now(), format!("s{replica}"));
        loop {
            let run = self.run(from, &["cluster", "status"], &self.tls());
            if let Ok(status) = serde_json::from_str::<Value>(&run.stdout) {
                let replicas = status["replicas"].as_array().cloned().unwrap_or_default();
                let own = replicas.iter().find(|it| it["name"] == *name);
                if let Some(own) = own.filter(|own| own["newest"]["number"] == number) {
                    return own.clone();
                }
            }
            let late = started.elapsed() > Duration::from_secs(90);
            assert!(
                !late,
                "{name} is not at {number}: {}{}",
                run.stdout, run.stderr
            );
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// What the cluster says of an account on a host is what the database says.
    fn check(&self, host: usize, account: &str) -> Duration {
        let builder = [
            "--chain-id".to_owned(),
            "4093".to_owned(),
            "--builder".to_owned(),
            self.builder.clone(),
        ];
        let more = [&builder[..], &self.tls()].concat();
        let started = Instant::now();
        let found = self
            .run(host, &["cluster", "get", account], &more)
            .done()
            .json();
        let taken = started.elapsed();
        let db = self.fixture.db();
        let expected = cambium!("get", account, "--json", "-d", &db).done().json();
        for field in ["balance", "nonce", "block_hash", "state_root"] {
            assert_eq!(found[field], expected[field], "{field}");
        }
        taken
    }
}

/// Replicas in two regions of four, and servers in three. A region is cut off, then a server, then the region of the replica that was never
/// behind. Nothing that was acknowledged is lost, reads go on, and who was cut off catches up.
#[test]
fn regions_that_are_cut_off_catch_up() {
    let Some(mut world) = World::new() else {
        return;
    };
    let fixture = &world.fixture;
    fixture.import(&fixture.chain()).done();
    fs::rename(fixture.db(), fixture.path("whole")).unwrap();
    let genesis = fixture.genesis();
    cambium!("init", &genesis, "-d", &fixture.db()).done();
    world.import(12);
    let (db, key) = (fixture.db(), world.key.clone());
    let init = [
        "cluster",
        "init",
        "--shards",
        "1",
        "-d",
        db.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
        "--final-below",
        "0",
        "--copies",
        "3",
        "--stream-size",
        "256M",
        "--snapshots-size",
        "512M",
    ];
    // The servers find each other first.
    let started = Instant::now();
    loop {
        let made = world.run(1, &init, &[]);
        if made.code == 0 {
            break;
        }
        let late = started.elapsed() > Duration::from_secs(60);
        assert!(!late, "{}", made.stderr);
        thread::sleep(Duration::from_secs(1));
    }
    world.shard(1);
    world.shard(4);
    let text = fs::read(world.fixture.genesis()).unwrap();
    let text: Value = serde_json::from_slice(&text).unwrap();
    let account = text["alloc"]
        .as_object()
        .unwrap()
        .keys()
        .next_back()
        .unwrap()
        .clone();
    world.import(18);
    let all_there = world.feed(1);
    let there = world.wait(2, 1, 18);
    world.wait(2, 4, 18);
    assert_eq!(there["trouble"], "");
    world.check(2, &account);

    // The region of one replica is cut off: the other one answers, and the cluster goes on.
    world.wan.connect(4, false);
    world.import(24);
    let without_replica = world.feed(1);
    world.wait(2, 1, 24);
    let taken = world.check(2, &account);
    assert!(taken < Duration::from_secs(20), "{taken:?}");
    world.wan.connect(4, true);
    world.wait(2, 4, 24);

    // A server is cut off, which may lead.
    world.wan.connect(2, false);
    world.import(30);
    let without_server = world.feed(1);
    world.wait(3, 1, 30);
    world.wait(3, 4, 30);
    world.wan.connect(2, true);

    let ms = |seconds: f64| (seconds * 1e3).round();
    eprintln!(
        "  a block and its share of starting, {} ms from region to region: {} ms; {} ms with a replica cut off, {} ms with a server",
        DELAY_MS,
        ms(all_there),
        ms(without_replica),
        ms(without_server)
    );
    // What follows takes minutes.
    if !is_long() {
        return;
    }

    // The region with the builder, a server and a replica is cut off: it can't publish, and the rest has all that was acknowledged.
    world.wan.connect(1, false);
    world.wait(3, 4, 30);
    world.check(3, &account);
    world.wan.connect(1, true);
    world.import(BLOCKS);
    world.feed(1);
    world.wait(2, 1, BLOCKS);
    world.wait(3, 4, BLOCKS);
    world.check(4, &account);
}
