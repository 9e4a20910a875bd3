//! Load: connections that send prepared requests one after another, and what the server did meanwhile.

use super::{connection::Connection, server::Server};
use crate::{report::quantile, state::stores::Failure};
use memchr::memmem;
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Beginning of an answer's error, which no result of the measured methods contains.
const ERROR: &[u8] = b"\"error\":{";

/// Latencies and counts of one measurement of a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    pub(super) requests: u64,
    pub(super) seconds: f64,
    /// Processor time of the server, user and system.
    pub(super) server_cpu_seconds: f64,
    /// Ascending, in milliseconds.
    pub(super) latencies_ms: Vec<f64>,
}

impl Load {
    pub(super) fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(super) fn latency_ms(&self, part: f64) -> f64 {
        quantile(&self.latencies_ms, part)
    }

    /// Processor time of the server for each of `calls` in a request, in microseconds.
    pub(super) fn cpu_us_per_call(&self, calls: usize) -> f64 {
        1e6 * self.server_cpu_seconds / (self.requests as f64 * calls as f64)
    }
}

/// Sends requests over `connections` connections for a time, each connection beginning elsewhere in the list.
pub(super) fn drive(
    server: &Server,
    requests: &[Vec<u8>],
    connections: usize,
    time: Duration,
) -> Result<Load, Failure> {
    let barrier = Barrier::new(connections + 1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..connections)
            .map(|index| {
                let (barrier, is_over) = (&barrier, &is_over);
                scope.spawn(move || {
                    let opened = Connection::open(server.http);
                    barrier.wait();
                    let first = index * requests.len() / connections;
                    let cycle = requests.iter().cycle().skip(first);
                    send(opened?, cycle, is_over)
                })
            })
            .collect();
        barrier.wait();
        let (start, cpu) = (Instant::now(), server.cpu_seconds());
        thread::sleep(time);
        // Requests that are under way then are finished, and count.
        is_over.store(true, Ordering::Relaxed);
        let mut latencies_ms = Vec::new();
        for client in clients {
            let sent = client.join().map_err(|_| "a client panicked")??;
            latencies_ms.extend(sent);
        }
        let server_cpu_seconds = server.cpu_seconds() - cpu;
        let seconds = start.elapsed().as_secs_f64();
        latencies_ms.sort_unstable_by(f64::total_cmp);
        Ok(Load {
            requests: latencies_ms.len() as u64,
            seconds,
            server_cpu_seconds,
            latencies_ms,
        })
    })
}

/// Sends each request once. Returns their latencies in milliseconds, ascending.
pub(super) fn send_each(server: &Server, requests: &[Vec<u8>]) -> Result<Vec<f64>, Failure> {
    let never = AtomicBool::new(false);
    let mut sent = send(Connection::open(server.http)?, requests.iter(), &never)?;
    sent.sort_unstable_by(f64::total_cmp);
    Ok(sent)
}

fn send<'a>(
    mut connection: Connection,
    requests: impl Iterator<Item = &'a Vec<u8>>,
    is_over: &AtomicBool,
) -> Result<Vec<f64>, Failure> {
    let mut latencies = Vec::new();
    for request in requests {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        let answer = connection.ask(request)?;
        latencies.push(1e3 * start.elapsed().as_secs_f64());
        if let Some(at) = memmem::find(answer, ERROR) {
            let end = answer.len().min(at + 200);
            let text = String::from_utf8_lossy(&answer[at..end]);
            return Err(format!("an answer is an error: {text}").into());
        }
    }
    Ok(latencies)
}

/// Sends requests at a steady rate for as long as `is_over` is not set. Returns their number. A request whose time has passed is sent
/// at once.
pub(super) fn steadily(
    server: &Server,
    requests: &[Vec<u8>],
    per_second: u64,
    is_over: &AtomicBool,
) -> Result<u64, Failure> {
    let mut connection = Connection::open(server.http)?;
    let (start, mut sent) = (Instant::now(), 0);
    for request in requests.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let due = Duration::from_secs_f64(sent as f64 / per_second as f64);
        thread::sleep(due.saturating_sub(start.elapsed()));
        let answer = connection.ask(request)?;
        if memmem::find(answer, ERROR).is_some() {
            return Err(String::from_utf8_lossy(answer).into_owned().into());
        }
        sent += 1;
    }
    Ok(sent)
}
