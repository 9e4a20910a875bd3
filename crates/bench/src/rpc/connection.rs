//! A connection for requests over HTTP/1.1, one after another. It costs little, since client and server share processors.

use crate::state::stores::Failure;
use memchr::memmem;
use serde_json::Value;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Most bytes of an answer.
const BYTES_MAX: usize = 256 << 20;

/// Returns the bytes of a request with a JSON body, and a bearer token if there is one.
pub(super) fn request(body: &str, token: Option<&str>) -> Vec<u8> {
    let authorization = token.map_or(String::new(), |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    let headers = format!("Content-Type: application/json\r\n{authorization}");
    post("/", &headers, body.as_bytes())
}

/// Returns the bytes of a request with these headers, each with its end of line.
pub(super) fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Returns the result of one call, or its error.
pub(super) fn result_of(answer: &[u8]) -> Result<Value, Failure> {
    let mut answer: Value = serde_json::from_slice(answer)?;
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(format!("no result: {answer}").into()),
    }
}

/// An open connection.
pub(super) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    body: Vec<u8>,
}

/// Where the body of an answer is, after its head.
enum Framing {
    Length(usize),
    Chunks,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Self {
            stream,
            received: Vec::new(),
            body: Vec::new(),
        })
    }

    /// Sends a request. Returns the body of the answer, whose status must be 200.
    pub(super) fn ask(&mut self, request: &[u8]) -> Result<&[u8], Failure> {
        self.stream.write_all(request)?;
        self.received.clear();
        self.body.clear();
        let head = loop {
            if let Some(end) = memmem::find(&self.received, b"\r\n\r\n") {
                break end + 4;
            }
            self.receive()?;
        };
        let text = String::from_utf8_lossy(&self.received[..head]).into_owned();
        if !text.starts_with("HTTP/1.1 200") {
            return Err(format!("the server refuses: {text}").into());
        }
        match framing(&text).ok_or("an answer without a length")? {
            Framing::Length(length) => {
                while self.received.len() < head + length {
                    self.receive()?;
                }
                self.body
                    .extend_from_slice(&self.received[head..head + length]);
            }
            Framing::Chunks => self.join_chunks(head)?,
        }
        Ok(&self.body)
    }

    /// Calls a method once. Returns its result.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Failure> {
        let body =
            serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = self.ask(&request(&body.to_string(), None))?;
        result_of(answer).map_err(|error| format!("{method}: {error}").into())
    }

    /// Joins the chunks that begin at `at`.
    fn join_chunks(&mut self, mut at: usize) -> Result<(), Failure> {
        loop {
            let line = loop {
                if let Some(end) = memmem::find(&self.received[at..], b"\r\n") {
                    break at + end;
                }
                self.receive()?;
            };
            let digits = std::str::from_utf8(&self.received[at..line])?;
            let length = usize::from_str_radix(digits.trim(), 16)?;
            if length > BYTES_MAX {
                return Err("a chunk is too large".into());
            }
            let (start, end) = (line + 2, line + 2 + length);
            while self.received.len() < end + 2 {
                self.receive()?;
            }
            self.body.extend_from_slice(&self.received[start..end]);
            at = end + 2;
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let before = self.received.len();
        if before > BYTES_MAX {
            return Err("an answer is too large".into());
        }
        self.received.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.received[before..])?;
        self.received.truncate(before + read);
        match read {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

fn framing(head: &str) -> Option<Framing> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            return value.trim().parse().ok().map(Framing::Length);
        }
        let is_chunked = name.eq_ignore_ascii_case("transfer-encoding")
            && value.trim().eq_ignore_ascii_case("chunked");
        is_chunked.then_some(Framing::Chunks)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    /// The body of an answer that comes in pieces.
    fn answered(pieces: &[&str]) -> Result<Vec<u8>, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 1024];
                assert!(stream.read(&mut bytes).unwrap() > 0);
                for piece in pieces {
                    stream.write_all(piece.as_bytes()).unwrap();
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let mut connection = Connection::open(address)?;
            Ok(connection.ask(&request("{}", None))?.to_vec())
        })
    }

    #[test]
    fn answers_with_a_length_and_in_chunks_are_whole() -> Result<(), Failure> {
        let length = answered(&["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r", "\n{\"", "a\""])?;
        assert_eq!(length, b"{\"a\"");
        let chunks = answered(&[
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r",
            "\n2\r\nef\r\n0\r\n\r\n",
        ])?;
        assert_eq!(chunks, b"abcdef");
        Ok(())
    }

    #[test]
    fn a_refusal_and_an_answer_that_breaks_off_are_errors() {
        let refused = answered(&["HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"]);
        assert!(refused.unwrap_err().to_string().contains("401"));
        assert!(answered(&["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"]).is_err());
        assert!(result_of(br#"{"id":1,"error":{"message":"no"}}"#).is_err());
    }
}
