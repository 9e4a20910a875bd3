//! What a consensus client does over REST. SSZ of answers is taken apart here by the words of the specification, not by the
//! library.

use super::consensus::{Consensus, Known};
use alloy_primitives::{B256, Bytes};
use cambium_chain::Fork;
use http::{Request, header::CONTENT_TYPE};
use serde_json::{Value, json};

pub const SSZ: &str = "application/octet-stream";

/// All forks with an Engine API.
pub const FORKS: [Fork; 6] = [
    Fork::Paris,
    Fork::Shanghai,
    Fork::Cancun,
    Fork::Prague,
    Fork::Osaka,
    Fork::Amsterdam,
];

/// The name of a fork in a header.
pub fn name_of(fork: Fork) -> String {
    format!("{fork:?}").to_lowercase()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub media: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The SSZ of an answer that is no error.
    pub fn ssz(&self) -> &[u8] {
        assert_eq!((self.status, &*self.media), (200, SSZ), "{}", self.text());
        &self.body
    }

    /// Status and class of a problem.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.media, "application/problem+json", "{self:?}");
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        let fields = problem.as_object().unwrap();
        assert!(
            fields.keys().all(|key| key == "type" || key == "detail"),
            "{problem}"
        );
        let kind = problem["type"].as_str().unwrap();
        let class = kind.strip_prefix("/engine-api/errors/").unwrap();
        (self.status, class.to_owned())
    }

    pub fn json(&self) -> Value {
        assert_eq!((self.status, &*self.media), (200, "application/json"));
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Consensus {
    pub fn send(&self, request: Request<Bytes>) -> Answer {
        let response = self.service.rest(request);
        let media = response.headers().get(CONTENT_TYPE);
        Answer {
            status: response.status().as_u16(),
            media: media.map_or("", |media| media.to_str().unwrap()).to_owned(),
            body: response.into_body(),
        }
    }

    pub fn post(&self, path: &str, fork: Option<Fork>, body: impl Into<Bytes>) -> Answer {
        let request = Request::post(format!("/engine/v1/{path}")).header(CONTENT_TYPE, SSZ);
        let request = match fork {
            Some(fork) => request.header("Eth-Execution-Version", name_of(fork)),
            None => request,
        };
        self.send(request.body(body.into()).unwrap())
    }

    pub fn get(&self, path: &str, fork: Option<Fork>) -> Answer {
        let request = Request::get(format!("/engine/v1/{path}"));
        let request = match fork {
            Some(fork) => request.header("Eth-Execution-Version", name_of(fork)),
            None => request,
        };
        self.send(request.body(Bytes::new()).unwrap())
    }

    /// The status of a payload that is handed over as SSZ, as JSON-RPC has it.
    pub fn new_payload_ssz(&self, known: &Known) -> Value {
        let fork = known.fork(self.served.node().chain().unwrap());
        let answer = self.post("payloads", Some(fork), known.envelope(fork).encode(fork));
        status(answer.ssz())
    }

    /// The status of a choice of the head alone.
    pub fn head_ssz(&self, head: B256) -> Value {
        let mut update = vec![0; 96];
        update[..32].copy_from_slice(head.as_slice());
        update.extend([100, 0, 0, 0]);
        let answer = self.post("forkchoice", Some(Fork::Osaka), update);
        updated(answer.ssz())["payloadStatus"].clone()
    }
}

fn offset(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// The fields of a container, each of which has a length, or `None`.
pub fn fields<'b>(bytes: &'b [u8], lengths: &[Option<usize>]) -> Vec<&'b [u8]> {
    let (mut at, mut offsets) = (0, Vec::new());
    for length in lengths {
        if length.is_none() {
            offsets.push(offset(bytes, at));
        }
        at += length.unwrap_or(4);
    }
    assert_eq!(offsets.first().copied().unwrap_or(bytes.len()), at);
    offsets.push(bytes.len());
    let mut ends = offsets.windows(2);
    let mut at = 0;
    let field = |length: &Option<usize>| match length {
        Some(length) => {
            at += length;
            &bytes[at - length..at]
        }
        None => {
            at += 4;
            let ends = ends.next().unwrap();
            &bytes[ends[0]..ends[1]]
        }
    };
    lengths.iter().map(field).collect()
}

/// The items of a list, each of any length.
pub fn items(list: &[u8]) -> Vec<&[u8]> {
    if list.is_empty() {
        return Vec::new();
    }
    let count = offset(list, 0) / 4;
    fields(list, &vec![None; count])
}

/// `PayloadStatus` as JSON-RPC has it.
pub fn status(bytes: &[u8]) -> Value {
    let all = fields(bytes, &[Some(1), None, None]);
    let name = ["VALID", "INVALID", "SYNCING", "ACCEPTED"][usize::from(all[0][0])];
    let error = items(all[2]);
    assert!(error.len() <= 1);
    let error = error
        .first()
        .map(|it| String::from_utf8(it.to_vec()).unwrap());
    let hash = match all[1].len() {
        0 => None,
        _ => Some(B256::from_slice(all[1])),
    };
    json!({"status": name, "latestValidHash": hash, "validationError": error})
}

/// `ForkchoiceUpdateResponse` as JSON-RPC has it.
pub fn updated(bytes: &[u8]) -> Value {
    let all = fields(bytes, &[None, None]);
    let id = match all[1].len() {
        0 => None,
        _ => Some(alloy_primitives::B64::from_slice(all[1])),
    };
    json!({"payloadStatus": status(all[0]), "payloadId": id})
}
