//! Whether both servers answer the same.

use super::{connection::Connection, server::Server};
use crate::state::stores::Failure;
use serde_json::Value;

/// Fields of logs that geth gives and the specification leaves open, or the other way round.
const OPEN: [&str; 1] = ["blockTimestamp"];

/// Sends requests to all servers. Returns where results differ from the first server's.
pub(super) fn answers(
    servers: &[Server],
    requests: &[Vec<u8>],
    what: &str,
) -> Result<Vec<String>, Failure> {
    let mut errors = Vec::new();
    let Some((first, others)) = servers.split_first() else {
        return Ok(errors);
    };
    for request in requests {
        let wanted = results(first, request)?;
        for other in others {
            let found = results(other, request)?;
            if found != wanted {
                let (a, b) = (first.kind.name(), other.kind.name());
                errors.push(format!("{what}: {b} answers otherwise than {a}"));
            }
        }
    }
    Ok(errors)
}

/// The results of a call or a batch, by id.
fn results(server: &Server, request: &[u8]) -> Result<Vec<Value>, Failure> {
    let mut connection = Connection::open(server.http)?;
    let answer: Value = serde_json::from_slice(connection.ask(request)?)?;
    let mut calls = match answer {
        Value::Array(calls) => calls,
        one => vec![one],
    };
    calls.sort_by_key(|call| call["id"].as_u64());
    calls
        .into_iter()
        .map(|mut call| match call.get_mut("result") {
            Some(result) => Ok(plain(result.take())),
            None => Err(format!("{}: {call}", server.kind.name()).into()),
        })
        .collect()
}

/// A result without the fields that are left open.
fn plain(result: Value) -> Value {
    match result {
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter(|(name, _)| !OPEN.contains(&name.as_str()));
            kept.map(|(name, value)| (name, plain(value))).collect()
        }
        other => other,
    }
}
