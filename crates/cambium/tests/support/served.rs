//! A server in a process of its own.

use super::{
    http::{Client, call},
    program,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

/// A server in a process of its own.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    /// Of the Engine API.
    pub(crate) engine: Option<String>,
}

impl Served {
    pub(crate) fn start(db: &Path, more: &[&str]) -> Self {
        let mut command = program();
        command
            .args(["serve", "--json", "--http", "0", "--datadir"])
            .arg(db)
            .args(more);
        Self::of(command)
    }

    /// Waits until what a command starts says that it serves.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut engine) = (String::new(), None);
        let address = |line: &str| {
            let address = line.split("http://").nth(1).unwrap();
            address.split(' ').next().unwrap().to_owned()
        };
        while !line.contains("serve block") {
            line.clear();
            assert!(told.read_line(&mut line).unwrap() > 0, "it ended early");
            if line.contains("Engine API") {
                engine = Some(address(&line));
            }
        }
        let address = address(&line);
        // The rest of what it tells is read, so that it never waits.
        thread::spawn(move || {
            let mut rest = String::new();
            let _ = told.read_to_string(&mut rest);
        });
        Self {
            child,
            address,
            engine,
        }
    }

    pub(crate) fn call(&self, method: &str, params: Value) -> Value {
        Client::new(&self.address).ask(&call(method, params))
    }

    pub(crate) fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params);
        answer
            .get("result")
            .unwrap_or_else(|| panic!("{answer}"))
            .clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a user does. Returns what it reports.
    pub(crate) fn stop(mut self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut report = String::new();
        let out = self.child.stdout.as_mut().unwrap();
        out.read_to_string(&mut report).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{report}");
        serde_json::from_str(&report).unwrap()
    }
}

/// Sends a call with further lines of a header. Returns the whole answer.
pub(crate) fn post(address: &str, header: &str, method: &str, params: Value) -> String {
    let body = call(method, params);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{header}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
