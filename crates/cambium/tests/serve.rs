//! `cambium serve`: the chain over JSON-RPC, beside the process that imports it.

use crate::support::{
    Fixture,
    served::{Served, post},
};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

#[test]
fn a_chain_is_served_beside_its_import() {
    let fixture = Fixture::generate(200, 20, 10);
    let first = fixture.path("first.rlp");
    fixture.import(&fixture.chain()).done();
    let (db, copy) = (fixture.db(), fixture.path("copy"));
    cambium!("export", &first, "--to", "10", "-d", &db).done();
    cambium!(
        "import",
        &first,
        "--genesis",
        fixture.genesis(),
        "--index",
        "-d",
        &copy
    )
    .done();

    let server = Served::start(&copy, &[]);
    assert_eq!(server.result("eth_blockNumber", json!([])), "0xa");
    let block = server.result("eth_getBlockByNumber", json!(["0x5", true]));
    let own = cambium!("block", "5", "--json", "-d", &copy).done().json();
    assert_eq!(block["hash"], own["hash"]);
    let transaction = &block["transactions"][0];
    let found = server.result("eth_getTransactionByHash", json!([transaction["hash"]]));
    assert_eq!(&found, transaction);
    let receipt = server.result("eth_getTransactionReceipt", json!([transaction["hash"]]));
    assert_eq!(receipt["blockHash"], block["hash"]);
    let sender = &transaction["from"];
    let nonce = server.result("eth_getTransactionCount", json!([sender, "0x5"]));
    assert_ne!(nonce, "0x0");
    let proof = server.result("eth_getProof", json!([sender, [], "latest"]));
    let file = fixture.write("proof.json", proof.to_string().as_bytes());
    let root = server.result("eth_getBlockByNumber", json!(["latest", false]))["stateRoot"].clone();
    cambium!("verify", &file, "--root", root.as_str().unwrap()).done();

    // The rest is imported by another process; the server follows.
    cambium!("import", fixture.chain(), "--index", "-d", &copy).done();
    let started = Instant::now();
    while server.result("eth_blockNumber", json!([])) != "0x14" {
        assert!(started.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(20));
    }
    let logs = server.result(
        "eth_getLogs",
        json!([{ "fromBlock": "0x0", "toBlock": "0x14" }]),
    );
    assert!(logs.as_array().unwrap().len() > 20);
    let last = server.result("eth_getBlockByNumber", json!(["latest", true]));
    let hash = &last["transactions"][0]["hash"];
    assert_eq!(
        server.result("eth_getTransactionByHash", json!([hash]))["blockNumber"],
        "0x14"
    );
    let report = server.stop();
    assert_eq!(report["head_number"], "0x14");
    assert_eq!(report["errors"], 0);
    assert!(report["calls"].as_u64().unwrap() > 8);
}

#[test]
fn what_is_not_to_be_served_is_not() {
    let fixture = Fixture::generate(50, 2, 5);
    fixture.import(&fixture.chain()).done();
    let db = fixture.db();
    let server = Served::start(
        &db,
        &["--api", "eth", "--batch-calls", "2", "--call-gas", "100000"],
    );
    assert_eq!(
        server.call("net_version", json!([]))["error"]["code"],
        -32601
    );
    assert_eq!(server.result("eth_blockNumber", json!([])), "0x2");
    // Without an index the answer says how one is made.
    let missing = server.call("eth_getTransactionByHash", json!([format!("0x{:064x}", 1)]));
    assert!(
        missing["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cambium index build"),
        "{missing}"
    );
    cambium!("serve", "-d", &db, "--http", &server.address).fails(1, &["can't be listened at"]);
    drop(server);
    cambium!("serve", "-d", &db, "--api", "eth,rain").fails(1, &["\"rain\""]);
    cambium!("serve", "-d", &db, "--http", "nowhere").fails(2, &["127.0.0.1:8545"]);
    cambium!("serve", "-d", fixture.path("nothing")).fails(1, &["nothing"]);
}

#[test]
fn a_consensus_client_drives_the_database() {
    let fixture = Fixture::generate(50, 4, 5);
    fixture.import(&fixture.chain()).done();
    cambium!("index", "build", "-d", fixture.db()).done();
    let secret = fixture.path("secret.hex");
    let options = ["--engine", "0", "--jwt", secret.to_str().unwrap()];
    let server = Served::start(&fixture.db(), &options);
    let engine = server.engine.clone().unwrap();
    let ask = |token: &str, method: &str, params: Value| {
        let header = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        post(&engine, &header, method, params)
    };
    let none = ask("", "engine_exchangeCapabilities", json!([[]]));
    assert!(none.starts_with("HTTP/1.1 401"), "{none}");
    let token = cambium_rpc::JwtSecret::read(&secret).unwrap().token();
    let able = ask(&token, "engine_exchangeCapabilities", json!([[]]));
    assert!(able.contains("engine_newPayloadV4"), "{able}");
    // The head goes back to an earlier block only if the client says so of a branch; here it stays.
    let head = server.result("eth_getBlockByNumber", json!(["latest", false]))["hash"].clone();
    let choice =
        json!([{ "headBlockHash": head, "safeBlockHash": head, "finalizedBlockHash": head }, null]);
    let chosen = ask(&token, "engine_forkchoiceUpdatedV3", choice);
    assert!(chosen.contains("\"VALID\""), "{chosen}");
    let finalized = server.result("eth_getBlockByNumber", json!(["finalized", false]));
    assert_eq!(finalized["hash"], head);
    assert_eq!(server.result("txpool_status", json!([]))["pending"], "0x0");
    // Nobody else writes meanwhile.
    cambium!("import", fixture.chain(), "-d", fixture.db()).fails(1, &["in use"]);
    let report = server.stop();
    assert_eq!(report["head_number"], "0x4");
    assert_eq!(report["index_error"], Value::Null);
    cambium!("db", "check", "-d", fixture.db()).done();
}

#[test]
fn limits_that_no_server_can_keep_are_refused() {
    let most = u64::MAX.to_string();
    for (option, range) in [
        ("--connections", "1000000"),
        ("--threads", "1024"),
        ("--answer-seconds", "31536000"),
        ("--call-seconds", "31536000"),
    ] {
        cambium!("serve", "-d", "nowhere", option, &most).fails(2, &[option, range]);
    }
}
