//! Building blocks for tests.

use crate::{
    builder::{Candidates, PayloadVersion, build, draft_attributes, envelope},
    error::RpcError,
    limits::Kind,
    params::Params,
    pool::PooledTransaction,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::eip2718::Decodable2718;
use alloy_primitives::{Address, Bytes};
use alloy_rpc_types_engine::PayloadAttributes;
use cambium_chain::{Transaction, recover_sender};
use cambium_node::BlockRef;

/// Most bytes of a block's extra data.
const EXTRA_DATA_BYTES_MAX: usize = 32;

impl Methods {
    /// Adds `testing_buildBlockV1`, by which anyone who may call makes the server execute blocks: for tests alone.
    #[must_use]
    pub fn with_testing(self) -> Self {
        self.with("testing_buildBlockV1(Parent block hash, Payload attributes, Transactions?, Extra data?) -> Response object", Kind::Execution, build_block)
    }
}

fn build_block(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let parent = params.hash()?;
    let attributes: PayloadAttributes = params.required()?;
    let transactions: Option<Vec<Bytes>> = params.optional()?;
    let extra_data: Option<Bytes> = params.optional()?;
    params.end()?;
    let extra_data = extra_data.unwrap_or_default();
    if extra_data.len() > EXTRA_DATA_BYTES_MAX {
        return Err(RpcError::params(format!(
            "extraData has {} bytes, over the limit of {EXTRA_DATA_BYTES_MAX}",
            extra_data.len()
        )));
    }
    let parent = call.node.block(BlockRef::Hash(parent))?;
    let spec = call.node.chain()?.spec();
    let options = &call.served.building;
    let attributes =
        draft_attributes(spec, &parent, &attributes, options).map_err(RpcError::params)?;
    let candidates = match (transactions, call.served.pool()) {
        (Some(raw), _) => {
            let decoded = raw
                .iter()
                .enumerate()
                .map(|(index, raw)| decode(index, raw));
            Candidates::Given(decoded.collect::<Result<_, _>>()?)
        }
        (None, Some(pool)) => Candidates::Pool(pool),
        (None, None) => Candidates::None,
    };
    let built = build(call.node, &parent, &attributes, extra_data, candidates)?;
    let header = &built.block.header;
    let fork = spec.fork_at(header.number, header.timestamp, true);
    envelope(spec, &built, PayloadVersion::of(fork), reply)
}

/// A transaction with its sender.
fn decode(index: usize, raw: &[u8]) -> Result<(Transaction, Address), RpcError> {
    let wrong =
        |what: &dyn std::fmt::Display| RpcError::server(format!("transaction {index}: {what}"));
    let Ok(bare) = Transaction::decode_2718_exact(raw) else {
        let own = PooledTransaction::decode(raw).map_err(|error| wrong(&error.message))?;
        return Ok((own.transaction, own.sender));
    };
    let sender = recover_sender(index, &bare, true).map_err(|error| wrong(&error))?;
    Ok((bare, sender))
}
