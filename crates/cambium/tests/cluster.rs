//! A cluster as its users run it: a NATS server, shards with replicas in processes of their own, the feed of a database, reads.

use crate::support::{Fixture, program, served::Served};
use cambium::Address;
use cambium_testkit::NatsServers;
use cambium_workload::{TOKEN, token_balance_slot};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const BLOCKS: u64 = 40;
const ACCOUNTS: u64 = 400;

/// Processes that end when this is dropped.
struct Processes(Vec<(String, Child)>);

impl Processes {
    fn kill(&mut self, name: &str) {
        let at = self.0.iter().position(|(own, _)| own == name).unwrap();
        let (_, mut child) = self.0.swap_remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Processes {
    /// Asks a process to end, which leaves the cluster then.
    fn end(&mut self, name: &str) {
        let at = self.0.iter().position(|(own, _)| own == name).unwrap();
        let (_, mut child) = self.0.swap_remove(at);
        let id = child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        assert!(asked.unwrap().success());
        child.wait().unwrap();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Cluster {
    fixture: Fixture,
    nats: String,
    key: PathBuf,
    builder: String,
    processes: Processes,
}

impl Cluster {
    fn run(&self, args: &[&str]) -> crate::support::Run {
        let nats = ["--nats", &self.nats, "--json"];
        crate::support::cambium(args.iter().chain(&nats))
    }

    /// A shard in a process of its own, in the folder of its name.
    fn start(&mut self, range: &str, name: &str) {
        let folder = self.fixture.path(name);
        fs::create_dir_all(&folder).unwrap();
        let log = fs::File::create(folder.join("output.log")).unwrap();
        let child = program()
            .args(["shard", "--shard", range, "--member", name])
            .args(["--nats", &self.nats])
            .args(["--chain-id", "4093", "--builder", &self.builder])
            .args(["--snapshot-blocks", "4", "--folder"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.processes.0.push((name.to_owned(), child));
    }

    fn status(&self) -> Value {
        let run = self.run(&["cluster", "status"]);
        run.json()
    }

    /// Waits until replicas with these names have the state after a block, and nobody else is there.
    fn wait(&self, names: &[&str], number: u64) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status();
            let replicas = status["replicas"].as_array().unwrap().clone();
            let is_there = |name: &&str| {
                replicas.iter().any(|replica| {
                    replica["name"] == **name && replica["newest"]["number"] == number
                })
            };
            if names.iter().all(is_there) {
                return status;
            }
            let late = started.elapsed() > Duration::from_secs(40);
            assert!(!late, "{status:#}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn feed(&self) -> Value {
        let (db, key) = (self.fixture.db(), self.key.clone());
        let args = [
            "cluster",
            "feed",
            "--once",
            "--shards",
            "2",
            "--final-below",
            "4",
        ];
        let (db, key) = (db.to_str().unwrap(), key.to_str().unwrap());
        let all = [&args[..], &["-d", db, "--key", key]].concat();
        self.run(&all).done().json()
    }

    /// What the cluster says of accounts is what the database says.
    fn check(&self, addresses: &[Address]) {
        for address in addresses {
            let own = address.to_string();
            let builder = ["--chain-id", "4093", "--builder", &self.builder];
            let slot = token_balance_slot(address).to_string();
            let all = [&["cluster", "get", &own][..], &builder].concat();
            let found = self.run(&all).done().json();
            let db = self.fixture.db();
            let expected = cambium!("get", &own, "--json", "-d", &db).done().json();
            for field in [
                "exists",
                "nonce",
                "balance",
                "code_hash",
                "block_hash",
                "state_root",
            ] {
                assert_eq!(found[field], expected[field], "{field}");
            }
            assert_eq!(found["exists"], true);
            let token = TOKEN.to_string();
            let all = [&["cluster", "get", &token, &slot][..], &builder].concat();
            let found = self.run(&all).done().json();
            let expected = cambium!("get", &token, &slot, "--json", "-d", &db);
            let expected = expected.done().json();
            assert_eq!(found["slots"][0]["value"], expected["value"]);
        }
    }
}

fn cluster(servers: &NatsServers) -> Cluster {
    let fixture = Fixture::generate_with(ACCOUNTS, BLOCKS, 20, &["--fork", "osaka"]);
    let key = fixture.path("builder.key");
    let made = cambium!("cluster", "key", &key, "--json").done().json();
    assert_eq!(made["made"], true);
    let again = cambium!("cluster", "key", &key, "--json").done().json();
    assert_eq!(again["address"], made["address"]);
    Cluster {
        fixture,
        nats: servers.urls()[0].clone(),
        key,
        builder: made["address"].as_str().unwrap().to_owned(),
        processes: Processes(Vec::new()),
    }
}

/// Two shards with two replicas each. Replicas are killed, lose their folders, and come back; blocks are imported meanwhile.
#[test]
fn a_cluster_serves_what_the_database_has() {
    let Some(servers) = NatsServers::start(1) else {
        return;
    };
    let mut cluster = cluster(&servers);
    // Half of the chain at first.
    let halves = cluster.fixture.path("halves.rlp");
    let fixture = &cluster.fixture;
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    let updates = fixture.path("halves.updates");
    let export = cambium!(
        "export",
        &halves,
        "--to",
        "20",
        "--updates",
        &updates,
        "-d",
        &db
    );
    export.done();
    fs::remove_dir_all(&db).unwrap();
    fixture.import(&halves).done();
    let (key, db) = (cluster.key.clone(), db.to_str().unwrap().to_owned());
    let key = key.to_str().unwrap();
    let init = ["cluster", "init", "--shards", "2", "-d", &db, "--key", key];
    let sizes = [
        "--final-below",
        "0",
        "--copies",
        "1",
        "--stream-size",
        "512M",
        "--snapshots-size",
        "1G",
    ];
    // Before that there is none, and that is said.
    let none = cluster.run(&["cluster", "status"]);
    none.fails(1, &["there is no cluster"]);
    let made = cluster.run(&[&init[..], &sizes].concat()).done().json();
    assert_eq!(made["shards"], 2);
    // Nobody serves anything yet, and that is said.
    let empty = cluster.run(&["cluster", "status"]);
    assert_eq!(empty.code, 1, "{}", empty.stdout);

    let names = ["a0", "a1", "b0", "b1"];
    for (range, name) in ["0/2", "0/2", "1/2", "1/2"].iter().zip(names) {
        cluster.start(range, name);
    }
    cluster.wait(&names, 20);
    let fixture = &cluster.fixture;
    fixture.import(&fixture.chain()).done();
    let fed = cluster.feed();
    assert_eq!(fed["blocks"], BLOCKS - 20);
    let status = cluster.wait(&names, BLOCKS);
    for replica in status["replicas"].as_array().unwrap() {
        assert_eq!(replica["trouble"], "", "{status:#}");
        assert_eq!(replica["oldest"]["number"], BLOCKS - 4, "{status:#}");
    }
    is_shown(&cluster);
    let genesis = fs::read(cluster.fixture.genesis()).unwrap();
    let genesis: Value = serde_json::from_slice(&genesis).unwrap();
    let accounts = genesis["alloc"].as_object().unwrap().keys();
    let addresses: Vec<Address> = accounts.map(|address| address.parse().unwrap()).collect();
    let addresses = &addresses[addresses.len() - 6..];
    cluster.check(addresses);

    // One replica of each shard is killed: the others answer.
    cluster.processes.kill("a0");
    cluster.processes.kill("b1");
    cluster.check(&addresses[..2]);
    // One comes back with its folder, the other one without.
    fs::remove_dir_all(cluster.fixture.path("b1")).unwrap();
    cluster.start("0/2", "a0");
    cluster.start("1/2", "b1");
    cluster.wait(&names, BLOCKS);
    // And now those that stayed are killed.
    cluster.processes.kill("a1");
    cluster.processes.kill("b0");
    cluster.check(&addresses[2..4]);

    follow(&cluster, &halves, &updates, &addresses[5]);

    // A reader that believes another builder gets nothing.
    let other = "0x00000000000000000000000000000000000000aa";
    let refused = cluster.run(&[
        "cluster",
        "get",
        other,
        "--chain-id",
        "4093",
        "--builder",
        other,
    ]);
    refused.fails(1, &["no configured builder"]);
}

/// A server of the database shows the shards of the cluster.
fn is_shown(cluster: &Cluster) {
    let server = Served::start(&cluster.fixture.db(), &["--cluster", &cluster.nats]);
    let shards = server.result("cambium_shards", json!([]));
    let shards = shards["shards"].as_array().unwrap();
    for (shard, (from, to)) in shards.iter().zip([("0", "7"), ("8", "f")]) {
        assert_eq!((&shard["from"], &shard["to"]), (&json!(from), &json!(to)));
        let replicas = shard["replicas"].as_array().unwrap();
        assert_eq!(replicas.len(), 2, "{shard:#}");
        for replica in replicas {
            assert_eq!(replica["number"], BLOCKS, "{shard:#}");
            assert_eq!(replica["error"], Value::Null, "{shard:#}");
        }
    }
    assert_eq!(shards.len(), 2);
}

/// Databases that had the first half of the chain follow the cluster: a full one, which is killed on its way, and one without
/// storage.
fn follow(cluster: &Cluster, halves: &Path, updates: &Path, address: &Address) {
    let fixture = &cluster.fixture;
    let genesis = fixture.genesis();
    let none = fixture.path("none.txt");
    fs::write(&none, "# no contract\n").unwrap();
    let (full, partial) = (fixture.path("follows"), fixture.path("follows-partly"));
    cambium!("import", halves, "--genesis", &genesis, "-d", &full).done();
    cambium!(
        "import",
        halves,
        "--genesis",
        &genesis,
        "--storage-of",
        &none,
        "--updates",
        updates,
        "-d",
        &partial
    )
    .done();
    let follow = |datadir: &Path, builder: &str| {
        cambium!(
            "import",
            "--follow",
            &cluster.nats,
            "--builder",
            builder,
            "--once",
            "--json",
            "-d",
            datadir
        )
    };
    // Whom nobody has configured is not believed.
    let other = follow(&full, &address.to_string()).done().json();
    assert_eq!(other["followed"]["blocks"], 0, "{other:#}");
    assert_eq!(other["head_number"], 20);
    let mut killed = program()
        .args([
            "import",
            "--follow",
            &cluster.nats,
            "--builder",
            &cluster.builder,
            "-d",
        ])
        .arg(&full)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(300));
    killed.kill().unwrap();
    killed.wait().unwrap();
    for datadir in [&full, &partial] {
        let followed = follow(datadir, &cluster.builder).done().json();
        assert_eq!(followed["head_number"], BLOCKS, "{followed:#}");
        assert_eq!(followed["followed"]["refused"], 0, "{followed:#}");
        let again = follow(datadir, &cluster.builder).done().json();
        assert_eq!(again["followed"]["blocks"], 0, "{again:#}");
        cambium!("db", "check", "-d", datadir).done();
        let own = address.to_string();
        let found = cambium!("get", &own, "--json", "-d", datadir).done().json();
        let db = fixture.db();
        let expected = cambium!("get", &own, "--json", "-d", &db).done().json();
        assert_eq!(found, expected);
        let block = |db: &Path| cambium!("block", "40", "--json", "-d", db).done().json();
        assert_eq!(block(datadir)["hash"], block(&db)["hash"]);
        let status = cambium!("db", "stats", "--json", "-d", datadir)
            .done()
            .json();
        assert!(status.is_object());
    }
    let (token, slot) = (TOKEN.to_string(), token_balance_slot(address).to_string());
    let slot_of = |db: &Path| cambium!("get", &token, &slot, "--json", "-d", db);
    let expected = slot_of(&fixture.db()).done().json();
    assert_eq!(slot_of(&full).done().json(), expected);
    slot_of(&partial).fails(1, &["storage", &token]);
    extend(cluster, &partial, address);
}

/// A partial database gets the storage of the token from the shards.
fn extend(cluster: &Cluster, partial: &Path, address: &Address) {
    let fixture = &cluster.fixture;
    let (list, new) = (fixture.path("token.txt"), fixture.path("extended"));
    fs::write(&list, format!("{TOKEN}\n")).unwrap();
    let extend = |nats: &str, name: &str, block: &str| {
        cambium!(
            "db",
            "extend",
            "--storage-of",
            &list,
            "--to",
            &new,
            "--from-cluster",
            nats,
            "--name",
            name,
            "--block",
            block,
            "--json",
            "-d",
            partial
        )
    };
    let token = TOKEN.to_string();
    // The shards keep no block that is far below the final one.
    extend(&cluster.nats, "cambium", "3").fails(1, &["the shards of the cluster", "is gone"]);
    extend(&cluster.nats, "nobody", "latest").fails(1, &["there is no cluster \"nobody\""]);
    let none = extend("nats://127.0.0.1:1", "cambium", "latest");
    none.fails(1, &["127.0.0.1:1"]);
    assert!(!new.exists());
    let done = extend(&cluster.nats, "cambium", "latest").done().json();
    assert_eq!(done["head_number"], format!("{BLOCKS:#x}"), "{done:#}");
    assert_eq!(done["storage_kept_of"], 1);
    assert!(done["added_slots"].as_u64().unwrap() > 0);
    let slot = token_balance_slot(address).to_string();
    let slot_of = |db: &Path| {
        cambium!("get", &token, &slot, "--json", "-d", db)
            .done()
            .json()
    };
    assert_eq!(slot_of(&new), slot_of(&fixture.db()));
    cambium!("db", "check", "-d", &new).done();
}

/// Clients run transactions on the shards, a builder makes blocks of them, shards follow, a validator executes them again.
#[test]
fn blocks_are_built_of_what_clients_submit() {
    let Some(servers) = NatsServers::start(1) else {
        return;
    };
    let mut cluster = cluster(&servers);
    let fixture = &cluster.fixture;
    // All blocks but the last one are there; the transactions of that one are submitted.
    let most = fixture.path("most.rlp");
    let last = fixture.path("last.rlp");
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    let (before, end) = ((BLOCKS - 1).to_string(), BLOCKS.to_string());
    cambium!("export", &most, "--to", &before, "-d", &db).done();
    cambium!("export", &last, "--from", &end, "--to", &end, "-d", &db).done();
    fs::remove_dir_all(&db).unwrap();
    fixture.import(&most).done();
    let (key, db) = (cluster.key.clone(), db.to_str().unwrap().to_owned());
    let key = key.to_str().unwrap().to_owned();
    let init = ["cluster", "init", "--shards", "2", "-d", &db, "--key", &key];
    let sizes = [
        "--final-below",
        "4",
        "--copies",
        "1",
        "--stream-size",
        "512M",
    ];
    let sizes = [&sizes[..], &["--snapshots-size", "1G"]].concat();
    cluster.run(&[&init[..], &sizes].concat()).done();
    let names = ["a0", "b0"];
    cluster.start("0/2", "a0");
    cluster.start("1/2", "b0");
    cluster.feed();
    cluster.wait(&names, BLOCKS - 1);

    // Another builder takes over from the database.
    let genesis = cluster.fixture.genesis().to_str().unwrap().to_owned();
    let nats = cluster.nats.clone();
    let builder = cluster.builder.clone();
    let child = |args: &[&str], out: &str| {
        let file = fs::File::create(cluster.fixture.path(out)).unwrap();
        program()
            .args(args)
            .args([
                "--genesis",
                &genesis,
                "--nats",
                &nats,
                "--builder",
                &builder,
                "--json",
            ])
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(fs::File::create(cluster.fixture.path(&format!("{out}.log"))).unwrap())
            .spawn()
            .unwrap()
    };
    let mut validator = child(&["validator", "--blocks", "1"], "validator.json");
    let building = child(
        &[
            "builder",
            "--key",
            &key,
            "--interval",
            "1500",
            "--blocks",
            "2",
            "--final-below",
            "2",
        ],
        "builder.json",
    );
    cluster.processes.0.push(("builder".to_owned(), building));
    let started = Instant::now();
    while cluster.status()["builders"].as_array().unwrap().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(50));
    }
    let file = last.to_str().unwrap();
    let client = [
        "client",
        file,
        "--all",
        "--genesis",
        &genesis,
        "--builder",
        &builder,
    ];
    let sent = cluster.run(&client).done().json();
    assert_eq!(sent["submitted"], 20, "{sent}");
    assert!(sent["bytes"].as_u64().unwrap() > 0);
    let status = cluster.wait(&names, BLOCKS);
    assert_eq!(status["replicas"][0]["trouble"], "", "{status:#}");
    assert!(validator.wait().unwrap().success());
    let json = |name: &Path| -> Value {
        let text = fs::read(name).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let agreed = json(&cluster.fixture.path("validator.json"));
    assert_eq!(
        (&agreed["agreed"], &agreed["transactions"]),
        (&1.into(), &20.into())
    );
    // Both shards move: the builder, which runs, takes up those that have joined.
    let moved = ["a1", "b1"];
    cluster.start("0/2", "a1");
    cluster.start("1/2", "b1");
    let log = cluster.fixture.path("builder.json.log");
    let joined = || {
        fs::read_to_string(&log)
            .unwrap()
            .matches("has joined")
            .count()
    };
    let started = Instant::now();
    while joined() < 2 {
        assert!(started.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(50));
    }
    names.iter().for_each(|name| cluster.processes.end(name));
    cluster.wait(&moved, BLOCKS);
    // The first transaction makes a block, through these shards, in which it can't be; then the builder ends.
    cluster.run(&client);
    let at = cluster.processes.0.iter_mut().find(|it| it.0 == "builder");
    assert!(at.unwrap().1.wait().unwrap().success());
    let built = json(&cluster.fixture.path("builder.json"));
    assert_eq!(
        (&built["blocks"], &built["transactions"]),
        (&2.into(), &20.into())
    );

    // A database that is behind opens an epoch of its own: what the shards have is not taken back.
    cluster.feed();
    let status = cluster.wait(&moved, BLOCKS + 1);
    assert_eq!(status["epoch"]["number"], 4);
}

/// The servers lose everything. Shards have what they had; one of them publishes its journal anew, and the database goes on.
#[test]
fn a_stream_that_is_lost_is_published_anew() {
    let Some(servers) = NatsServers::start(1) else {
        return;
    };
    let mut cluster = cluster(&servers);
    let fixture = &cluster.fixture;
    fixture.import(&fixture.chain()).done();
    let most = fixture.path("most.rlp");
    let (db, before) = (fixture.db(), (BLOCKS - 2).to_string());
    cambium!("export", &most, "--to", &before, "-d", &db).done();
    fs::remove_dir_all(&db).unwrap();
    fixture.import(&most).done();
    let (key, db) = (cluster.key.clone(), db.to_str().unwrap().to_owned());
    let key = key.to_str().unwrap().to_owned();
    let sizes = [
        "--copies",
        "1",
        "--stream-size",
        "512M",
        "--snapshots-size",
        "1G",
    ];
    let init = [
        "cluster",
        "init",
        "--shards",
        "2",
        "-d",
        &db,
        "--key",
        &key,
        "--final-below",
        "6",
    ];
    cluster.run(&[&init[..], &sizes].concat()).done();
    let names = ["a0", "b0"];
    cluster.start("0/2", "a0");
    cluster.start("1/2", "b0");
    cluster.feed();
    cluster.wait(&names, BLOCKS - 2);
    cluster.processes.kill("a0");
    cluster.processes.kill("b0");
    drop(servers);

    let servers = NatsServers::start(1).unwrap();
    cluster.nats = servers.urls()[0].clone();
    let folder = cluster.fixture.path("a0").to_str().unwrap().to_owned();
    let again = ["cluster", "republish", "--folder", &folder];
    let again = [&again[..], &sizes].concat();
    let done = cluster.run(&again).done().json();
    assert!(done["records"].as_u64().unwrap() > 5, "{done}");
    cluster
        .run(&again)
        .fails(1, &["Only an empty stream is filled"]);
    cluster.start("0/2", "a0");
    cluster.start("1/2", "b0");
    cluster.wait(&names, BLOCKS - 2);
    let fixture = &cluster.fixture;
    fixture.import(&fixture.chain()).done();
    // Shards put their snapshots into the new store by themselves, without which the feed has no beginning.
    let started = Instant::now();
    loop {
        let args = [
            "cluster",
            "feed",
            "--once",
            "--shards",
            "2",
            "--final-below",
            "4",
        ];
        let fed = cluster.run(&[&args[..], &["-d", &db, "--key", &key]].concat());
        if fed.code == 0 {
            break;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{}",
            fed.stderr
        );
        thread::sleep(Duration::from_millis(200));
    }
    let status = cluster.wait(&names, BLOCKS);
    assert!(
        status["epoch"]["number"].as_u64().unwrap() > 2,
        "{status:#}"
    );
}

#[test]
fn what_is_wrong_is_said() {
    let fixture = Fixture::generate(10, 1, 1);
    let folder = fixture.path("shard");
    let shard = |args: &[&str]| {
        let fixed = ["shard", "--folder", folder.to_str().unwrap()];
        let builder = "0x00000000000000000000000000000000000000aa";
        let fixed = fixed
            .into_iter()
            .chain(["--chain-id", "1", "--builder", builder]);
        crate::support::cambium(fixed.chain(args.iter().copied()))
    };
    shard(&["--shard", "3/3"]).fails(2, &["a state has 1, 2, 4, 8, 16 or 256"]);
    shard(&["--shard", "x"]).fails(2, &["such as 0/4"]);
    shard(&["--shard", "0/1", "--listen", "0.0.0.0:0"])
        .fails(1, &["not the loopback", "--tls-key"]);
    // Nobody listens there.
    shard(&["--shard", "0/1", "--nats", "nats://127.0.0.1:9"]).fails(1, &["127.0.0.1:9"]);
    let key = fixture.write("key", b"no key");
    cambium!("cluster", "key", &key).fails(1, &["is no key", "32 bytes"]);
}
