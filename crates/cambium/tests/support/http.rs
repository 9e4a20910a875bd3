//! Requests over HTTP, byte by byte as a test wants them.

use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// A call.
pub(crate) fn call(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// A request with a body.
pub(crate) fn http(body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body.as_bytes()].concat()
}

/// A connection that stays, for one request after another.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    heard: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            heard: Vec::new(),
        }
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 1 << 16];
        let read = self.stream.read(&mut buffer).unwrap_or(0);
        self.heard.extend(&buffer[..read]);
        read > 0
    }

    /// The next answer: its status and its body, with a length or in chunks. `None` if the connection ends.
    pub(crate) fn answer(&mut self) -> Option<(u16, Vec<u8>)> {
        let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|at| at == what);
        let end = loop {
            match find(&self.heard, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None if self.more() => {}
                None => return None,
            }
        };
        let head: Vec<u8> = self.heard.drain(..end).collect();
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut body = Vec::new();
        if let Some(length) = head.split("content-length: ").nth(1) {
            let length: usize = length.split("\r\n").next()?.parse().ok()?;
            while self.heard.len() < length {
                if !self.more() {
                    return None;
                }
            }
            body.extend(self.heard.drain(..length));
            return Some((status, body));
        }
        loop {
            let line = loop {
                match find(&self.heard, b"\r\n") {
                    Some(line) => break line,
                    None if self.more() => {}
                    None => return None,
                }
            };
            let digits: Vec<u8> = self.heard.drain(..line + 2).take(line).collect();
            let length = usize::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
            while self.heard.len() < length + 2 {
                if !self.more() {
                    return None;
                }
            }
            body.extend(self.heard.drain(..length + 2).take(length));
            if length == 0 {
                return Some((status, body));
            }
        }
    }

    /// The answer to a call or a batch.
    pub(crate) fn ask(&mut self, body: &str) -> Value {
        self.stream.write_all(&http(body)).unwrap();
        let (status, answer) = self.answer().expect("an answer");
        assert_eq!(status, 200, "{body}");
        serde_json::from_slice(&answer).unwrap()
    }
}
