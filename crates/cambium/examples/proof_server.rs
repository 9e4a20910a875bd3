//! A proof server: answers `eth_getProof`, `eth_getBalance` and `eth_blockNumber` by JSON-RPC over HTTP, from a
//! chain's directory that another process writes to.
//! `cargo run -p cambium --example proof_server DIRECTORY [ADDRESS:PORT]`
//!
//! All input of a client is bounded: a request's head, its body, the number of slots, the time that it takes, and the
//! number of requests at once.

use cambium::{Address, HistoryError, Node, StateAt, StorageKey, keccak256};
use serde_json::{Value, json};
use std::{
    env,
    error::Error,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const HEAD_BYTES_MAX: u64 = 8 << 10;
const BODY_BYTES_MAX: u64 = 64 << 10;
const SLOTS_MAX: usize = 256;
const REQUESTS_MAX: usize = 16;
const READER_BYTES: u64 = 256 << 20;
/// Time for a request to arrive, and for its answer to leave.
const TIME_MAX: Duration = Duration::from_secs(5);

/// A JSON-RPC error: code and message.
type Refusal = (i64, String);

fn invalid(message: impl Into<String>) -> Refusal {
    (-32602, message.into())
}

/// Logs an error of the database. The client receives only the status.
fn internal(error: HistoryError) -> Refusal {
    eprintln!("{error}");
    (-32603, "the state can't be read".to_owned())
}

struct Server {
    node: Mutex<Node>,
    requests: AtomicUsize,
}

impl Server {
    fn open(directory: &Path) -> Result<Arc<Self>, HistoryError> {
        Ok(Arc::new(Self {
            node: Mutex::new(Node::open(directory, READER_BYTES)?),
            requests: AtomicUsize::new(0),
        }))
    }

    /// Accepts connections, each on a thread of its own, until accepting fails.
    fn serve(self: Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept()?;
            if self.requests.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
                self.requests.fetch_sub(1, Ordering::Relaxed);
                // The server does not wait for a client that does not read this.
                let _ = stream.set_nonblocking(true);
                let _ = respond(&stream, "503 Service Unavailable", "");
                continue;
            }
            let server = self.clone();
            thread::spawn(move || {
                if let Err(error) = server.answer(&stream) {
                    eprintln!("{error}");
                }
                server.requests.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn answer(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(TIME_MAX))?;
        let body = match read_request(stream)? {
            Ok(body) => body,
            Err(status) => {
                respond(stream, status, "")?;
                // Unread bytes would reset the connection before the client has the status.
                stream.shutdown(Shutdown::Write)?;
                let mut rest = stream.take(BODY_BYTES_MAX);
                return io::copy(&mut rest, &mut io::sink()).map(drop);
            }
        };
        respond(stream, "200 OK", &self.reply(&body).to_string())
    }

    fn reply(&self, body: &[u8]) -> Value {
        let Ok(request) = serde_json::from_slice::<Value>(body) else {
            let error = json!({"code": -32700, "message": "the request is no JSON"});
            return json!({"jsonrpc": "2.0", "id": null, "error": error});
        };
        let id = request.get("id").cloned().unwrap_or_default();
        match self.call(&request) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err((code, message)) => {
                let error = json!({"code": code, "message": message});
                json!({"jsonrpc": "2.0", "id": id, "error": error})
            }
        }
    }

    fn call(&self, request: &Value) -> Result<Value, Refusal> {
        let method = request["method"]
            .as_str()
            .ok_or((-32600, "a request is an object with a method".to_owned()))?;
        let param = |at: usize| &request["params"][at];
        match method {
            "eth_blockNumber" => Ok(quantity(self.state(&json!("latest"))?.block().number)),
            "eth_getBalance" => {
                let path = keccak256(address(param(0))?);
                let account = self.state(param(1))?.account(&path).map_err(internal)?;
                Ok(json!(account.unwrap_or_default().balance))
            }
            "eth_getProof" => {
                let (address, slots) = (address(param(0))?, slots(param(1))?);
                let proof = self.state(param(2))?.prove_account(address, &slots);
                Ok(json!(proof.map_err(internal)?))
            }
            _ => Err((-32601, format!("there is no method {method:?}"))),
        }
    }

    /// The state at a block: `latest`, `earliest` or a number.
    fn state(&self, block: &Value) -> Result<StateAt, Refusal> {
        let mut node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let head = node.catch_up().map_err(internal)?;
        let number = match block.as_str().unwrap_or("latest") {
            "latest" => Some(head.number),
            "earliest" => Some(0),
            name => name
                .strip_prefix("0x")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok()),
        };
        let what = "a block is \"latest\", \"earliest\" or a number such as \"0x1f\"";
        let number = number.ok_or(invalid(what))?;
        if number > head.number {
            return Err(invalid(format!("no block {number}: the head is {head}")));
        }
        node.kept_state_at(number).map_err(internal)
    }
}

fn quantity(number: u64) -> Value {
    json!(format!("{number:#x}"))
}

fn address(param: &Value) -> Result<Address, Refusal> {
    let parsed = serde_json::from_value(param.clone());
    parsed.map_err(|_| invalid("an address is 0x and 40 hex digits"))
}

fn slots(param: &Value) -> Result<Vec<StorageKey>, Refusal> {
    if param
        .as_array()
        .is_some_and(|slots| slots.len() > SLOTS_MAX)
    {
        return Err(invalid(format!("more than {SLOTS_MAX} slots")));
    }
    let parsed = serde_json::from_value(param.clone());
    parsed.map_err(|error| invalid(format!("the slots: {error}")))
}

/// The body of a POST request, or the status of a rejected one.
fn read_request(stream: &TcpStream) -> io::Result<Result<Vec<u8>, &'static str>> {
    let started = Instant::now();
    // Each read waits for the rest of the time, so that bytes sent one by one don't prolong it.
    let in_time = || {
        let left = TIME_MAX.saturating_sub(started.elapsed());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))
    };
    let mut reader = BufReader::new(Timed(stream, &in_time)).take(HEAD_BYTES_MAX);
    let (mut line, mut length, mut is_post) = (Vec::new(), None, None);
    loop {
        line.clear();
        reader.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(Err("431 Request Header Fields Too Large"));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if is_post.is_none() {
            is_post = Some(text.starts_with("POST "));
        } else if text.is_empty() {
            break;
        } else if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse::<u64>().ok();
        }
    }
    match (is_post, length) {
        (Some(true), Some(length)) if length <= BODY_BYTES_MAX => {
            reader.set_limit(length);
            let mut body = Vec::new();
            reader.read_to_end(&mut body)?;
            Ok(match body.len() as u64 == length {
                true => Ok(body),
                false => Err("400 Bad Request"),
            })
        }
        (Some(true), Some(_)) => Ok(Err("413 Content Too Large")),
        (Some(true), None) => Ok(Err("411 Length Required")),
        _ => Ok(Err("405 Method Not Allowed")),
    }
}

/// A stream whose reads all end in time.
struct Timed<'a, F>(&'a TcpStream, &'a F);

impl<F: Fn() -> io::Result<()>> Read for Timed<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (self.1)()?;
        self.0.read(into)
    }
}

fn respond(mut stream: &TcpStream, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    stream.write_all(
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .as_bytes(),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let directory = arguments
        .next()
        .ok_or("usage: proof_server DIRECTORY [ADDRESS:PORT]")?;
    let listen = arguments.next().unwrap_or("127.0.0.1:8545".to_owned());
    let server = Server::open(Path::new(&directory))?;
    let listener = TcpListener::bind(listen)?;
    println!("listening on {}", listener.local_addr()?);
    Ok(server.serve(&listener)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium::{
        AccountProof, B256, Options, StdDisk, U256, chain::ChainSealer, verify_account_proof,
    };
    use cambium_workload::{BlockSize, TOKEN, Workload, WorkloadParams, token_balance_slot};
    use std::net::SocketAddr;

    fn send(server: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(server).expect("a server");
        stream.write_all(bytes).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn ask(server: SocketAddr, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let body = body.to_string();
        let head = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
        let answer = send(server, (head + &body).as_bytes());
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let reply: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(reply["id"], 7);
        reply
    }

    #[test]
    fn clients_verify_what_the_server_proves_and_strangers_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let workload = Workload::new(WorkloadParams {
            accounts: 40,
            senders: Some(8),
            blocks: 4,
            block_size: BlockSize::Transactions(10),
            erc20_percent: 100,
            ..WorkloadParams::default()
        })
        .expect("valid");
        let disk = Arc::new(StdDisk::new(directory.path()));
        let chain = workload.init(disk, Options::default(), &mut |_| {});
        let chain = chain.expect("a chain");
        let genesis = chain.block(0).expect("a block").header;

        let reader = Server::open(directory.path()).expect("a reader");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("an address");
        thread::spawn(move || reader.serve(&listener));
        assert_eq!(ask(server, "eth_blockNumber", json!([]))["result"], "0x0");

        // The server follows the chain while it is written.
        let head = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
        let head = head.expect("blocks");
        assert_eq!(ask(server, "eth_blockNumber", json!([]))["result"], "0x4");
        let alice = workload.address(1);
        let slot = token_balance_slot(&alice);
        for (block, root) in [("latest", head.state_root), ("0x0", genesis.state_root)] {
            let reply = ask(server, "eth_getProof", json!([TOKEN, [slot], block]));
            let proof: AccountProof =
                serde_json::from_value(reply["result"].clone()).expect("a proof");
            let verified = verify_account_proof(root, &proof).expect("proved");
            let number = if block == "latest" { 4 } else { 0 };
            let view = chain.db().view_at(number).expect("a state");
            let tokens = view.slot_at(TOKEN, slot.into()).expect("readable");
            assert_ne!(tokens, U256::ZERO);
            assert_eq!(verified.slots, [(slot, tokens)]);
            let balance = ask(server, "eth_getBalance", json!([alice, block]));
            let account = view.account_at(alice).expect("readable").expect("there");
            assert_eq!(balance["result"], json!(account.balance));
        }
        let unknown: B256 = B256::repeat_byte(1);
        for (method, params, code) in [
            ("eth_getBalance", json!(["0x12", "latest"]), -32602),
            ("eth_getBalance", json!([alice, "0x5"]), -32602),
            ("eth_getBalance", json!([alice, "5"]), -32602),
            ("eth_getProof", json!([alice, vec![unknown; 257]]), -32602),
            ("eth_getProof", json!([alice, ["0xzz"]]), -32602),
            ("eth_getProof", json!(null), -32602),
            ("eth_call", json!([]), -32601),
        ] {
            let reply = ask(server, method, params);
            assert_eq!(reply["error"]["code"], code, "{method}: {reply}");
        }
        let long = format!("POST / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1 << 13));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "405"),
            ("POST / HTTP/1.1\r\n\r\n", "411"),
            ("POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", "413"),
            (long.as_str(), "431"),
            ("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n{{{{", "200"),
            ("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nnull", "200"),
        ] {
            let answer = send(server, request.as_bytes());
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{request:.60}: {answer}");
        }
    }
}
