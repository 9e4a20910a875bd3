//! Servers as clients see them: viem, ethers and web3.py, with what they verify on their own side; and every method at blocks of all kinds.

use crate::support::{
    Fixture, number, quantity, say,
    served::{Served, post},
};
use cambium::{
    B256, ChainIndex, FaultyDisk, InitOptions, Node,
    chain::{Chain, ChainSealer},
};
use cambium_rpc::{Engine, JwtSecret, Limits, Methods, Pool, PoolLimits, Server, Service};
use cambium_workload::{BlockSize, TOKEN, Workload, WorkloadParams};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
};
use tokio::{runtime::Builder, sync::oneshot};

/// Blocks of the chains that are served.
const BLOCKS: u64 = 12;

/// The workload of [`Fixture::generate`] with these numbers.
fn workload() -> Workload {
    Workload::new(WorkloadParams {
        seed: 7,
        accounts: 200,
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(10),
        erc20_percent: 40,
        ..WorkloadParams::default()
    })
    .unwrap()
}

/// Attributes of a block after one with this header. `fee_recipient` tells siblings apart.
fn attributes(parent: &Value, fee_recipient: u8) -> Value {
    json!({
        "timestamp": format!("{:#x}", number(&parent["timestamp"]) + 12),
        "prevRandao": B256::repeat_byte(3),
        "suggestedFeeRecipient": cambium::Address::repeat_byte(fee_recipient),
        "withdrawals": [],
        "parentBeaconBlockRoot": B256::repeat_byte(4),
    })
}

/// Answers a call: method and parameters.
type Ask<'a> = dyn Fn(&str, Value) -> Value + 'a;

/// The Engine API of a server.
struct Consensus<'a> {
    ask: Box<Ask<'a>>,
}

impl Consensus<'_> {
    fn result(&self, method: &str, params: Value) -> Value {
        let answer = (self.ask)(method, params);
        let result = answer.get("result").cloned();
        result.unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    fn choose(&self, head: &Value, attributes: Value) -> Value {
        let state = json!({
            "headBlockHash": head,
            "safeBlockHash": B256::ZERO,
            "finalizedBlockHash": B256::ZERO,
        });
        let chosen = self.result("engine_forkchoiceUpdatedV3", json!([state, attributes]));
        assert_eq!(chosen["payloadStatus"]["status"], "VALID", "{chosen}");
        chosen["payloadId"].clone()
    }

    /// Hands a block over that was built. Returns its hash.
    fn insert(&self, built: &Value) -> Value {
        let payload = &built["executionPayload"];
        let params = json!([
            payload,
            [],
            B256::repeat_byte(4),
            built["executionRequests"]
        ]);
        let status = self.result("engine_newPayloadV4", params);
        assert_eq!(status["status"], "VALID", "{status}");
        payload["blockHash"].clone()
    }

    /// Has a block built after the head, and takes it.
    fn build(&self, parent: &Value, fee_recipient: u8) -> Value {
        let id = self.choose(&parent["hash"], attributes(parent, fee_recipient));
        self.insert(&self.result("engine_getPayloadV5", json!([id])))
    }
}

/// A server process over a database that has the workload's chain, with a history and an index.
struct OfProcess {
    fixture: Fixture,
    server: Served,
    secret: JwtSecret,
}

impl OfProcess {
    fn start() -> Self {
        let fixture = Fixture::generate(200, BLOCKS, 10);
        let db = fixture.db();
        fixture.import_new(&db, "--index --history flat").done();
        let secret = fixture.path("secret.hex");
        let options = ["--engine", "0", "--jwt", secret.to_str().unwrap()];
        let server = Served::start(&db, &options);
        let secret = JwtSecret::read(&secret).unwrap();
        Self {
            fixture,
            server,
            secret,
        }
    }

    fn consensus(&self) -> Consensus<'_> {
        let ask = |method: &str, params: Value| {
            let token = format!("Authorization: Bearer {}\r\n", self.secret.token());
            let engine = self.server.engine.as_ref().unwrap();
            let answer = post(engine, &token, method, params);
            let body = answer.split("\r\n\r\n").nth(1).unwrap();
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {answer}"))
        };
        Consensus { ask: Box::new(ask) }
    }

    fn head(&self) -> Value {
        self.server
            .result("eth_getBlockByNumber", json!(["latest", false]))
    }
}

/// Runs a client, with a block whenever it asks for one. Panics if it fails.
fn run(mut client: Command, mut mine: impl FnMut() -> Value) {
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut is_done = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        match &*line.unwrap() {
            "mine" => writeln!(to, "{}", mine().as_str().unwrap()).unwrap(),
            "ok" => is_done = true,
            other => say(other),
        }
    }
    let status = child.wait().unwrap();
    assert!(status.success() && is_done, "{client:?}: {status}");
}

/// A client's program, once it is installed.
struct Client {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<PathBuf>,
}

impl Client {
    fn command(&self, address: &str, secret: B256) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(format!("http://{address}"))
            .arg(secret.to_string())
            .arg(TOKEN.to_string());
        command
    }
}

/// The clients that are here, installed if need be. What is missing is said.
fn clients() -> Vec<Client> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scripts = own.join("tests/clients");
    let place = own.join("../../target/clients");
    // Tests that run at once install one after another.
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _installing = INSTALLING.lock();
    let has = |of: &str, tools: &[&str]| {
        let is_there = |tool: &&str| {
            let asked = Command::new(tool)
                .arg("--version")
                .stdout(Stdio::null())
                .status();
            asked.is_ok_and(|status| status.success())
        };
        let is_here = tools.iter().all(is_there);
        let installed = is_here
            && Command::new(scripts.join("install"))
                .arg(of)
                .status()
                .is_ok_and(|status| status.success());
        if !installed {
            let why = if is_here {
                "can't be installed"
            } else {
                "is not here"
            };
            say(&format!(
                "SKIPPED: clients of {of}, which {why} ({})",
                tools.join(", ")
            ));
        }
        installed
    };
    let mut all = Vec::new();
    if has("npm", &["node", "npm"]) {
        for name in ["viem", "ethers"] {
            all.push(Client {
                name,
                program: "node".into(),
                arguments: vec![scripts.join(name).with_extension("mjs"), place.clone()],
            });
        }
    }
    if has("python", &["python3"]) {
        all.push(Client {
            name: "web3.py",
            program: place.join("python/bin/python"),
            arguments: vec![scripts.join("web3_client.py")],
        });
    }
    all
}

#[test]
fn real_clients_see_the_chain_of_a_process_and_verify_it() {
    let clients = clients();
    if clients.is_empty() {
        return;
    }
    let served = OfProcess::start();
    let workload = workload();
    for (index, client) in clients.iter().enumerate() {
        let secret = workload.secret(index as u64).unwrap();
        run(client.command(&served.server.address, secret), || {
            let consensus = served.consensus();
            let hash = consensus.build(&served.head(), 1);
            consensus.choose(&hash, Value::Null);
            hash
        });
        say(&format!("{}: done", client.name));
    }
    let head = served.head();
    assert_eq!(head["number"], quantity(BLOCKS + clients.len() as u64));
    served.server.stop();
    cambium!("db", "check", "-d", served.fixture.db()).done();
}

#[test]
fn real_clients_see_blocks_that_a_library_builds_for_tests() {
    let clients = clients();
    if clients.is_empty() {
        return;
    }
    let workload = workload();
    let disk: Arc<FaultyDisk> = Arc::new(FaultyDisk::new(1));
    let chain: Chain = workload
        .init(disk.clone(), InitOptions::default(), &mut |_| {})
        .unwrap();
    let index = ChainIndex::create(disk, chain.db(), 0, Default::default()).unwrap();
    let chain = chain.with_index(index);
    let genesis = chain.block(0).unwrap().header;
    let made = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
    assert_eq!(made.unwrap().number, BLOCKS);
    // What docs/RPC.md shows, with building of blocks.
    let node = Arc::new(Node::of_chain(chain));
    let pool = Arc::new(Pool::new(PoolLimits::default()));
    let served = cambium_rpc::Served::new(node, Limits::default()).with_pool(pool);
    let served = Arc::new(served);
    let methods = Methods::of_chain().with_testing();
    let service = Arc::new(Service::new(Arc::clone(&served), methods));
    let engine = Arc::new(Engine::new(Arc::clone(&served)));
    let engine = Service::new(served, engine.methods());
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::listen("127.0.0.1:0".parse().unwrap()));
    let server = server.unwrap();
    let address = server.address().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let own = Arc::clone(&service);
    let running = thread::spawn(move || {
        runtime.block_on(server.run(own, async {
            let _ = stopped.await;
        }));
    });
    let ask = |service: &Service, method: &str, params: Value| -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        serde_json::from_slice(&service.call(request.to_string().as_bytes())).unwrap()
    };
    let consensus = Consensus {
        ask: Box::new(|method, params| ask(&engine, method, params)),
    };
    for (index, client) in clients.iter().enumerate() {
        let secret = workload.secret(index as u64).unwrap();
        run(client.command(&address, secret), || {
            let head = ask(&service, "eth_getBlockByNumber", json!(["latest", false]));
            let head = &head["result"];
            let params = json!([head["hash"], attributes(head, 1), null, null]);
            let built = ask(&service, "testing_buildBlockV1", params);
            let hash = consensus.insert(&built["result"]);
            consensus.choose(&hash, Value::Null);
            hash
        });
        say(&format!("{}: done", client.name));
    }
    drop(stop);
    running.join().unwrap();
}

/// A block that methods are asked about.
struct Subject {
    /// As a parameter that names a state.
    id: Value,
    /// `None` on a side branch.
    number: Option<Value>,
    hash: Value,
}

/// The parameters of a method that is asked about a block; `None` if it does not take one of this kind.
fn params(method: &str, subject: &Subject, sender: &Value) -> Option<Value> {
    let token = json!(TOKEN);
    // balanceOf(TOKEN)
    let call =
        json!({ "from": sender, "to": token, "data": format!("0x70a08231{:0>64}", hex(TOKEN)) });
    let of_state = |mut params: Vec<Value>| {
        params.push(subject.id.clone());
        Some(Value::Array(params))
    };
    let of_block = |rest: &[Value]| {
        let by_hash = method.contains("ByHash") || method.contains("ByBlockHash");
        let first = match by_hash {
            true => subject.hash.clone(),
            false => subject.number.clone()?,
        };
        Some(Value::Array([&[first], rest].concat()))
    };
    let index = json!("0x0");
    match method {
        "eth_getBalance" | "eth_getTransactionCount" | "eth_getAccount" => {
            of_state(vec![sender.clone()])
        }
        "eth_getCode" => of_state(vec![token]),
        "eth_getStorageAt" => of_state(vec![token, index]),
        "eth_getStorageValues" => of_state(vec![json!({ TOKEN.to_string(): [index] })]),
        "eth_getProof" => of_state(vec![token, json!([index])]),
        "eth_call" | "eth_estimateGas" | "eth_createAccessList" => of_state(vec![call]),
        "eth_simulateV1" => of_state(vec![json!({ "blockStateCalls": [{ "calls": [call] }] })]),
        "debug_traceCall" => of_state(vec![call]),
        "eth_getBlockReceipts"
        | "debug_getRawBlock"
        | "debug_getRawHeader"
        | "debug_getRawReceipts" => of_state(vec![]),
        "debug_executionWitness" => of_block(&[]),
        "eth_getLogs" => Some(json!([{ "blockHash": subject.hash }])),
        "eth_feeHistory" => Some(json!(["0x2", subject.number.clone()?, [50]])),
        "eth_getBlockByNumber" | "eth_getBlockByHash" => of_block(&[json!(true)]),
        "eth_getHeaderByNumber"
        | "eth_getHeaderByHash"
        | "eth_getBlockTransactionCountByNumber"
        | "eth_getBlockTransactionCountByHash"
        | "eth_getUncleCountByBlockNumber"
        | "eth_getUncleCountByBlockHash"
        | "debug_traceBlockByNumber"
        | "debug_traceBlockByHash" => of_block(&[]),
        "eth_getTransactionByBlockNumberAndIndex"
        | "eth_getTransactionByBlockHashAndIndex"
        | "eth_getRawTransactionByBlockNumberAndIndex"
        | "eth_getRawTransactionByBlockHashAndIndex" => of_block(&[index]),
        _ => None,
    }
}

fn hex(address: cambium::Address) -> String {
    address.to_string().to_lowercase()[2..].to_owned()
}

#[test]
fn every_method_answers_at_the_head_an_old_block_and_a_side_branch() {
    let served = OfProcess::start();
    let (server, consensus) = (&served.server, served.consensus());
    let old = server.result("eth_getBlockByNumber", json!(["0x5", false]));
    let last = server.result("eth_getBlockByNumber", json!(["latest", true]));
    let raw = server.result(
        "eth_getRawTransactionByHash",
        json!([last["transactions"][0]["hash"]]),
    );
    let sender = &last["transactions"][0]["from"];
    // A transaction of the last block again is refused, and says why.
    let refused = server.call("eth_sendRawTransaction", json!([raw]));
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    // Two blocks after the same parent, of which one stays on a side branch.
    let side = consensus.build(&last, 2);
    let head = consensus.build(&last, 1);
    assert_ne!(side, head);
    consensus.choose(&head, Value::Null);
    let subjects = [
        (
            "head",
            Subject {
                id: json!("latest"),
                number: Some(json!("latest")),
                hash: head.clone(),
            },
        ),
        (
            "old",
            Subject {
                id: json!("0x5"),
                number: Some(json!("0x5")),
                hash: old["hash"].clone(),
            },
        ),
        (
            "side",
            Subject {
                id: json!({ "blockHash": side }),
                number: None,
                hash: side.clone(),
            },
        ),
    ];
    let methods = Methods::of_chain();
    let mut asked = 0;
    for name in methods.names() {
        let mut takes_blocks = false;
        for (what, subject) in &subjects {
            let Some(params) = params(name, subject, sender) else {
                continue;
            };
            takes_blocks = true;
            asked += 1;
            let answer = server.call(name, params.clone());
            let result = answer.get("result");
            let result = result.unwrap_or_else(|| panic!("{name} {params} ({what}): {answer}"));
            // The blocks that are built here have no transactions.
            assert!(
                !result.is_null() || (name.contains("AndIndex") && *what != "old"),
                "{name} {params} ({what})"
            );
            let hash = match name {
                "eth_getBlockByNumber" | "eth_getBlockByHash" => &result["hash"],
                "eth_getHeaderByNumber" | "eth_getHeaderByHash" => &result["hash"],
                _ => continue,
            };
            assert_eq!(*hash, subject.hash, "{name} ({what})");
        }
        if !takes_blocks {
            let answer = server.call(name, json!([]));
            assert!(answer["error"]["code"] != -32603, "{name}: {answer}");
        }
    }
    assert!(asked > 60, "{asked}");
    for (what, subject) in &subjects {
        let root =
            server.result("eth_getBlockByHash", json!([subject.hash, false]))["stateRoot"].clone();
        let proof = server.result("eth_getProof", json!([TOKEN, ["0x2"], subject.id]));
        let file = served
            .fixture
            .write("proof.json", proof.to_string().as_bytes());
        cambium!("verify", &file, "--root", root.as_str().unwrap()).done();
        let value = server.result("eth_getStorageAt", json!([TOKEN, "0x2", subject.id]));
        let proved = &proof["storageProof"][0]["value"];
        let word = |value: &Value| cambium::U256::from_str_radix(&value.as_str().unwrap()[2..], 16);
        assert_eq!(word(proved).unwrap(), word(&value).unwrap(), "{what}");
    }
    let strict = json!([sender, { "blockHash": side, "requireCanonical": true }]);
    assert_eq!(
        server.call("eth_getBalance", strict)["error"]["code"],
        -32000
    );
    let strict = json!([sender, { "blockHash": head, "requireCanonical": true }]);
    server.result("eth_getBalance", strict);
    // Witnesses are those of canonical blocks.
    let witness = server.call("debug_executionWitness", json!([{ "blockHash": side }]));
    assert_eq!(witness["error"]["code"], -32000, "{witness}");
    // The other branch becomes the chain.
    consensus.choose(&side, Value::Null);
    assert_eq!(served.head()["hash"], side);
}
