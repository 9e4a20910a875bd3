//! Requests over JSON-RPC, answered over a small chain in memory.

use crate::input::Input;
use cambium_chain::{Chain, ChainSealer, InitOptions};
use cambium_disk::FaultyDisk;
use cambium_index::{ChainIndex, IndexOptions};
use cambium_node::Node;
use cambium_rpc::{Limits, Methods, Pool, PoolLimits, Served, Service};
use cambium_state::Options;
use cambium_workload::{BlockSize, TOKEN, Workload, WorkloadParams};
use serde_json::Value;
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

const BLOCKS: u64 = 2;
/// Names of methods that trace begin with it.
const TRACE: &str = "debug_trace";
const INTERNAL: i64 = -32603;
/// Longest error message, but for the reasons of reverts.
const MESSAGE_CHARS_MAX: usize = 1200;
/// Codes of errors with a reason that the code of a contract gives.
const REVERT: i64 = 3;
/// Longest time of a request. A batch has calls of half a second.
const TIME_MAX: Duration = Duration::from_secs(15);

/// A small chain, and parameters that mean something on it.
struct Template {
    node: Arc<Node>,
    /// Names of methods in order: those that trace, and all others.
    traces: Vec<String>,
    others: Vec<String>,
    parts: Vec<String>,
}

fn chain(blocks: u64) -> Chain {
    let workload = Workload::new(WorkloadParams {
        accounts: 12,
        senders: Some(6),
        holders: Some(8),
        pools: 1,
        blocks,
        block_size: BlockSize::Transactions(3),
        erc20_percent: 60,
        ..WorkloadParams::default()
    });
    let workload = workload.expect("a small chain");
    let options = Options {
        memory_bytes: 8 << 20,
        ..Options::default()
    };
    let disk: Arc<FaultyDisk> = Arc::new(FaultyDisk::new(1));
    let chain = workload.init(disk.clone(), InitOptions::from(options), &mut |_| {});
    let chain = chain.expect("a disk that works");
    let index = ChainIndex::create(disk, chain.db(), 0, IndexOptions::default());
    let chain = chain.with_index(index.expect("a disk that works"));
    let genesis = chain.block(0).expect("it is there").header;
    let made = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
    made.expect("a disk that works");
    chain
}

fn service(node: Arc<Node>, keeps: impl Fn(&str) -> bool) -> Service {
    let limits = Limits {
        batch: 16,
        threads: 2,
        answer_bytes: 8 << 20,
        batch_bytes: 8 << 20,
        time: Duration::from_secs(2),
        call_time: Duration::from_millis(500),
        call_gas: 1_000_000,
        ..Limits::default()
    };
    let pool = Arc::new(Pool::new(PoolLimits::default()));
    let served = Served::new(node, limits).with_pool(pool);
    let methods = Methods::of_chain().with_testing().only(keeps);
    Service::new(Arc::new(served), methods)
}

fn ask(service: &Service, method: &str, params: &str) -> Value {
    let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let answer = service.call(request.as_bytes());
    let mut answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    let result = answer["result"].take();
    assert!(!result.is_null(), "{method} {params}: {answer}");
    result
}

fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let node = |blocks| {
            let node = Node::of_chain(chain(blocks));
            node.build_index(&mut |_| true).expect("a disk that works");
            Arc::new(node)
        };
        let own = node(BLOCKS);
        let asked = service(Arc::clone(&own), |_| true);
        // Its last block, and the transactions in it, are valid after the own head.
        let next = service(node(BLOCKS + 1), |_| true);
        let block = ask(&asked, "eth_getBlockByNumber", r#"["latest",true]"#);
        let first = ask(&asked, "eth_getBlockByNumber", r#"["0x1",false]"#);
        let transaction = &block["transactions"][0];
        let (hash, sender) = (&block["hash"], &transaction["from"]);
        let old = ask(&asked, "debug_getRawTransaction", &format!("[{}]", transaction["hash"]));
        let coming = r#"["latest","0x0"]"#;
        let coming = ask(&next, "eth_getRawTransactionByBlockNumberAndIndex", coming);
        let encoded = ask(&next, "debug_getRawBlock", r#"["latest"]"#);
        let call = format!(
            r#"{{"from":{sender},"to":"{TOKEN}","data":"0x70a08231{:0>64}","gas":"0xffff"}}"#,
            "1"
        );
        let create = r#"{"data":"0x60015f5560ff5ff35b5f56","value":"0x0","maxFeePerGas":"0x77359400"}"#;
        let parts = [
            format!("\"{TOKEN}\""),
            sender.to_string(),
            format!("\"0x{:040x}\"", 0),
            format!("\"0x{:040x}\"", 1),
            r#""latest""#.to_owned(),
            r#""0x1""#.to_owned(),
            hash.to_string(),
            format!(r#"{{"blockHash":{hash},"requireCanonical":true}}"#),
            transaction["hash"].to_string(),
            first["hash"].to_string(),
            coming.to_string(),
            encoded.to_string(),
            call.clone(),
            format!(r#"{{"fromBlock":"0x0","toBlock":"latest","address":"{TOKEN}","topics":[]}}"#),
            format!(
                r#"{{{sender}:{{"balance":"0xffffffffffff","nonce":"0x7","code":"0x5f5ffd","state":{{}}}},"{TOKEN}":{{"movePrecompileToAddress":"0x0000000000000000000000000000000000000777"}}}}"#
            ),
            r#"{"number":"0x9","time":"0x7fffffff","gasLimit":"0xfffff","feeRecipient":"0x0000000000000000000000000000000000000777","baseFeePerGas":"0x1","blobBaseFee":"0x1"}"#.to_owned(),
            format!(
                r#"{{"blockStateCalls":[{{"blockOverrides":{{}},"calls":[{call},{create}]}}],"traceTransfers":true,"validation":true}}"#
            ),
            r#"{"enableMemory":true}"#.to_owned(),
            r#"["0x2","0x0000000000000000000000000000000000000000000000000000000000000003"]"#.to_owned(),
            r#""0x0""#.to_owned(),
            "[0,50.5,100]".to_owned(),
            "true".to_owned(),
            "null".to_owned(),
            r#""pending""#.to_owned(),
            r#""0xffffffffffffffff""#.to_owned(),
            old.to_string(),
            r#"{"tracer":"callTracer","tracerConfig":{"withLog":true}}"#.to_owned(),
            r#"{"tracer":"prestateTracer","tracerConfig":{"diffMode":true}}"#.to_owned(),
            create.to_owned(),
        ];
        let methods = Methods::of_chain().with_testing();
        let mut names: Vec<_> = methods.names().map(str::to_owned).collect();
        names.sort();
        let (traces, others) = names
            .into_iter()
            .partition(|name| name.starts_with(TRACE));
        Template {
            node: own,
            traces,
            others,
            parts: parts.into(),
        }
    })
}

/// Input: a byte. If it is even, the rest is a request as it is. Else a byte that chooses a method follows, and its parameters, each with a
/// byte and: a value that means something on the chain (0); such a value with bytes of it replaced (1); a piece as it is (2).
///
/// Every call is answered in JSON, in the order of its batch and with its identifier, by a result or an error that has a short message.
/// No error is the server's own fault, no request takes long, and nothing happens to the chain. Methods that trace are left out.
pub fn rpc(bytes: &[u8]) {
    run(bytes, false);
}

/// The same for methods that trace, which may take much memory.
pub fn rpc_traces(bytes: &[u8]) {
    run(bytes, true);
}

fn run(bytes: &[u8], traces: bool) {
    let template = template();
    let names = match traces {
        true => &template.traces,
        false => &template.others,
    };
    let mut input = Input::new(bytes);
    let request = match input.u8() & 1 {
        0 => input.rest().to_vec(),
        _ => call_of_parts(&mut input, names, &template.parts),
    };
    let keeps = |name: &str| name.starts_with(TRACE) == traces;
    let service = service(Arc::clone(&template.node), keeps);
    let begun = Instant::now();
    let answer = service.call(&request);
    assert!(begun.elapsed() < TIME_MAX, "{:?}", begun.elapsed());
    check(&request, &answer);
    assert_eq!(template.node.head().number, BLOCKS);
}

fn call_of_parts(input: &mut Input<'_>, names: &[String], parts: &[String]) -> Vec<u8> {
    let name = &names[input.below(names.len())];
    let mut request =
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{name}","params":["#).into_bytes();
    let mut is_first = true;
    while !input.is_empty() {
        if !is_first {
            request.push(b',');
        }
        is_first = false;
        let how = input.u8() % 3;
        if how == 2 {
            request.extend_from_slice(input.piece());
            continue;
        }
        let mut part = parts[input.below(parts.len())].clone().into_bytes();
        if how == 1 {
            let at = usize::from(input.u16()).min(part.len());
            let end = (at + usize::from(input.u8())).min(part.len());
            part.splice(at..end, input.piece().iter().copied());
        }
        request.extend_from_slice(&part);
    }
    request.extend_from_slice(b"]}");
    request
}

fn check(request: &[u8], answer: &[u8]) {
    let shown = || String::from_utf8_lossy(request);
    let asked = serde_json::from_slice::<Value>(request);
    if answer.is_empty() {
        let is_silent = |one: &Value| one.get("id").is_none() && one.get("method").is_some();
        // What is too deep for the model is a batch all the same.
        return assert!(
            asked.map_or(true, |asked| match &asked {
                Value::Array(all) => !all.is_empty() && all.iter().all(is_silent),
                one => is_silent(one),
            }),
            "no answer to {}",
            shown()
        );
    }
    // Identifiers are repeated as they were sent, and so may be no text of the model's: surrogates, or numbers without bounds.
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else {
        let has_escape = request.windows(2).any(|two| two == b"\\u");
        assert!(
            has_escape || asked.is_err(),
            "no JSON: {} for {}",
            String::from_utf8_lossy(answer),
            shown()
        );
        return;
    };
    match (&answer, asked.ok()) {
        (Value::Array(answers), asked) => {
            answers
                .iter()
                .for_each(|answer| check_one(answer, &shown()));
            let Some(Value::Array(asked)) = asked else {
                return;
            };
            assert!(
                answers.len() <= asked.len(),
                "too many answers to {}",
                shown()
            );
            let with_id = asked.iter().filter(|one| one.get("id").is_some()).count();
            assert!(answers.len() >= with_id, "too few answers to {}", shown());
            // Identifiers that are repeated come in the order of their calls.
            let mut calls = asked.iter();
            for answer in answers.iter().filter(|answer| !answer["id"].is_null()) {
                let is_there = calls.any(|one| one.get("id") == Some(&answer["id"]));
                assert!(is_there, "order of the answers to {}", shown());
            }
        }
        (one, asked) => {
            check_one(one, &shown());
            if let Some(Value::Object(asked)) = asked
                && !one["id"].is_null()
            {
                assert_eq!(asked.get("id"), Some(&one["id"]), "{}", shown());
            }
        }
    }
}

fn check_one(answer: &Value, shown: &str) {
    assert_eq!(answer["jsonrpc"], "2.0", "{answer} for {shown}");
    assert!(answer.get("id").is_some(), "{answer} for {shown}");
    let error = answer.get("error");
    assert_ne!(
        error.is_some(),
        answer.get("result").is_some(),
        "{answer} for {shown}"
    );
    let Some(error) = error else {
        return;
    };
    let code = error["code"].as_i64().expect("an error has a code");
    assert_ne!(code, INTERNAL, "{error} for {shown}");
    let message = error["message"].as_str().expect("an error has a message");
    assert!(!message.is_empty(), "{error} for {shown}");
    let is_short = message.chars().count() <= MESSAGE_CHARS_MAX;
    assert!(is_short || code == REVERT, "{error} for {shown}");
}
