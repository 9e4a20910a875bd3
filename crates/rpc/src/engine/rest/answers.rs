//! From an endpoint and its body to the answer, by the same calls as JSON-RPC.

use super::{
    endpoint::{Endpoint, payload_bytes_max},
    problem::Problem,
};
use crate::{
    engine::{
        blobs::{BLOBS_MAX, PooledBlob, blobs_of},
        bodies::{ids_by_hash, ids_by_range, stored_body},
        cells::extension,
        methods::identity,
        payload::Given,
        ssz::{
            AvailableCells, BlobsRequest, BodiesRequest, CellsRequest, ForkchoiceUpdate,
            PayloadEnvelope, StoredBody, append_body, append_cells, append_list, append_offset,
            append_proven_blob, append_whole_blob, built_payload, forkchoice_updated,
            payload_status,
        },
        state::Engine,
        version::{FORKS, Schema, unsupported},
    },
    error::RpcError,
    figures::MethodFigures,
    limits::Limits,
    reply::too_large,
    table::Call,
};
use alloy_primitives::Bytes;
use alloy_rpc_types_engine::PayloadId;
use cambium_chain::{ChainSpec, Fork};
use cambium_metrics::LabelledMetrics;
use cambium_primitives::BlockId;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Bytes of an offset.
const OFFSET_BYTES: usize = 4;

/// The endpoints of an engine, for [`Service::with_rest`](crate::Service::with_rest).
#[derive(Clone, Debug)]
pub struct Rest {
    engine: Arc<Engine>,
    figures: Arc<[MethodFigures; Endpoint::NAMES.len()]>,
}

impl Engine {
    /// The same methods as endpoints.
    pub fn rest(self: &Arc<Self>) -> Rest {
        Rest {
            engine: Arc::clone(self),
            figures: Arc::default(),
        }
    }
}

impl Rest {
    /// Counts a request that was answered.
    pub(crate) fn add(&self, endpoint: Endpoint, is_ok: bool, taken: Duration) {
        self.figures[endpoint.index()].add(is_ok, taken);
    }

    /// Passes the figures of the endpoints, all of which have this label.
    pub(crate) fn report(&self, own: (&'static str, &str), metrics: &mut dyn LabelledMetrics) {
        for (name, figures) in Endpoint::NAMES.iter().zip(&*self.figures) {
            figures.report(own, name, metrics);
        }
    }

    /// Answers a request.
    pub(crate) fn answer(
        &self,
        call: &Call<'_>,
        endpoint: Endpoint,
        body: &Bytes,
    ) -> Result<Response<Vec<u8>>, Problem> {
        let engine = &self.engine;
        let chain = || call.node.chain().map_err(RpcError::from);
        Ok(match endpoint {
            Endpoint::NewPayload(fork) => {
                let envelope = PayloadEnvelope::decode(fork, body)?;
                let given = Given::of_envelope(chain()?.spec(), fork, envelope)?;
                ssz(payload_status(&engine.new_payload(given)?))
            }
            Endpoint::Forkchoice(fork) => {
                // The pool samples no columns: it has whole blobs, which were sent to this server.
                let update = ForkchoiceUpdate::decode(fork, body)?;
                let attributes = update.attributes.as_ref();
                let updated =
                    engine.forkchoice_updated(Schema::Fork(fork), &update.state, attributes)?;
                ssz(forkchoice_updated(&updated))
            }
            Endpoint::BuiltPayload(fork, id) => self.built(chain()?.spec(), fork, id)?,
            Endpoint::BodiesByHash(fork) => {
                let request = BodiesRequest::decode(body).map_err(Problem::of_list)?;
                let ids = ids_by_hash(call, request.block_hashes, BodiesRequest::MOST)?;
                bodies(call, fork, ids)?
            }
            Endpoint::BodiesByRange { fork, from, count } => {
                let ids = ids_by_range(call, from, count, BodiesRequest::MOST)?;
                bodies(call, fork, ids)?
            }
            Endpoint::Blobs(version) => blobs(call, version, body)?,
            Endpoint::Capabilities => json_answer(&capabilities(call.limits())),
            Endpoint::Identity => json_answer(&identity()),
        })
    }

    fn built(
        &self,
        spec: &ChainSpec,
        fork: Fork,
        id: PayloadId,
    ) -> Result<Response<Vec<u8>>, RpcError> {
        let built = self.engine.building.get(id)?;
        let header = &built.block.header;
        let own = spec.fork_at(header.number, header.timestamp, true);
        if own != fork {
            return Err(unsupported("the payload", own));
        }
        let mut response = ssz(built_payload(fork, &built));
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().insert(CACHE_CONTROL, no_store);
        Ok(response)
    }
}

fn json_answer(value: &Value) -> Response<Vec<u8>> {
    with_type(value.to_string().into_bytes(), "application/json")
}

fn ssz(bytes: Vec<u8>) -> Response<Vec<u8>> {
    with_type(bytes, "application/octet-stream")
}

fn with_type(body: Vec<u8>, media: &'static str) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    let media = HeaderValue::from_static(media);
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

fn no_content() -> Response<Vec<u8>> {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// `BodiesResponse`. Blocks that are not kept, or not of the fork, are in it as not available.
fn bodies(
    call: &Call<'_>,
    fork: Fork,
    ids: impl Iterator<Item = Result<Option<BlockId>, RpcError>>,
) -> Result<Response<Vec<u8>>, RpcError> {
    let spec = call.node.chain()?.spec();
    let mut entries = Vec::with_capacity(BodiesRequest::MOST);
    let mut bytes = 0;
    for id in ids {
        call.cancel.check()?;
        let found = match id? {
            Some(id) => stored_body(call, id)?,
            None => None,
        };
        let found = found.as_ref().and_then(|found| of_fork(spec, fork, found));
        let mut entry = Vec::new();
        append_body(&mut entry, fork, found);
        bytes += entry.len();
        if bytes as u64 > call.limits().answer_bytes {
            return Err(too_large());
        }
        entries.push(entry);
    }
    let mut out = Vec::with_capacity(bytes + OFFSET_BYTES * (1 + entries.len()));
    append_offset(&mut out, OFFSET_BYTES);
    append_list(&mut out, entries.iter(), |out, entry| {
        out.extend_from_slice(entry);
    });
    Ok(ssz(out))
}

/// A body, if its block is of a fork, and if its access list is kept where the fork has one.
fn of_fork<'f>(spec: &ChainSpec, fork: Fork, found: &'f StoredBody) -> Option<&'f StoredBody> {
    let header = &found.block.header;
    let is_merged = header.difficulty.is_zero();
    let own = spec.fork_at(header.number, header.timestamp, is_merged);
    let is_whole = own < Fork::Amsterdam || found.access_list.is_some();
    (own == fork && is_whole).then_some(found)
}

/// `BlobsVNResponse`. The second revision has all blobs, or no content.
fn blobs(call: &Call<'_>, version: u8, body: &Bytes) -> Result<Response<Vec<u8>>, Problem> {
    let mut out = Vec::new();
    append_offset(&mut out, OFFSET_BYTES);
    if version == 4 {
        let request = CellsRequest::decode(body).map_err(Problem::of_list)?;
        let found = blobs_of(call, version, &request.versioned_hashes)?;
        let mut extensions = Vec::with_capacity(found.len());
        for one in &found {
            call.cancel.check()?;
            let blob = one.with_cell_proofs().filter(|_| request.wants_extension());
            extensions.push(blob.and_then(|(blob, _)| extension(blob.as_slice())));
        }
        let both = found.iter().zip(&extensions);
        append_list(&mut out, both, |out, (one, extension)| {
            let cells = one.with_cell_proofs().map(|(blob, proofs)| AvailableCells {
                request: &request,
                blob,
                extension: extension.as_deref(),
                proofs,
            });
            append_cells(out, cells);
        });
        return Ok(ssz(out));
    }
    let request = BlobsRequest::decode(body).map_err(Problem::of_list)?;
    let found = blobs_of(call, version, &request.versioned_hashes)?;
    if version == 1 {
        for one in &found {
            append_whole_blob(&mut out, one.whole());
        }
        return Ok(ssz(out));
    }
    let is_missing = |one: &PooledBlob| one.with_cell_proofs().is_none();
    if version == 2 && found.iter().any(is_missing) {
        return Ok(no_content());
    }
    append_list(&mut out, found.iter(), |out, one| {
        append_proven_blob(out, one.with_cell_proofs());
    });
    Ok(ssz(out))
}

/// What a consensus client may ask for.
fn capabilities(limits: &Limits) -> Value {
    json!({
        "supported_forks": FORKS.map(|(name, _)| name),
        "fork_scoped_endpoints": ["payloads", "forkchoice", "bodies"],
        "independently_versioned": { "blobs": ["v1", "v2", "v3", "v4"] },
        "unscoped_endpoints": ["capabilities", "identity"],
        "limits": {
            "bodies.max_count": BodiesRequest::MOST,
            "blobs.max_versioned_hashes": BLOBS_MAX,
            "payload.max_bytes": payload_bytes_max(limits),
        },
    })
}
