//! Bodies of blocks.

use super::fields::{
    Container, FieldLength, Fields, SszError, append_hashes, append_list, append_withdrawals,
};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{B256, Bytes};
use cambium_chain::{Block, Fork};

/// A block, for its body, and its access list where the block has one that is kept.
pub(in crate::engine) struct StoredBody {
    pub(in crate::engine) block: Block,
    pub(in crate::engine) access_list: Option<Bytes>,
}

/// Fields of `BodyEntry`: whether it is available; the body.
const ENTRY: [FieldLength; 2] = [Some(1), None];
/// Fields of `ExecutionPayloadBody`, those of later forks last: transactions; withdrawals; access list.
const BODY: [FieldLength; 3] = [None; 3];

/// `BodiesByHashRequest`: the body of `POST /engine/v1/bodies/hash`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodiesRequest {
    /// Hashes of blocks.
    pub block_hashes: Vec<B256>,
}

impl BodiesRequest {
    /// Most hashes.
    pub const MOST: usize = 32;

    /// Decodes a request.
    ///
    /// # Errors
    ///
    /// [`SszError`] if an offset or a length does not fit, or there are more than [`Self::MOST`] hashes.
    pub fn decode(bytes: &Bytes) -> Result<Self, SszError> {
        let mut fields = Fields::of("request", bytes, bytes, &[None])?;
        Ok(Self {
            block_hashes: fields.hashes("block_hashes", Self::MOST)?,
        })
    }

    /// Encodes it, as a consensus client does.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut fields = Container::new(&mut out, &[None]);
        fields.variable(|out| append_hashes(out, &self.block_hashes));
        out
    }
}

/// Appends `BodyEntry` by the schema of a fork; a block that is not available has an empty body.
pub(in crate::engine) fn append_body(out: &mut Vec<u8>, fork: Fork, found: Option<&StoredBody>) {
    let mut entry = Container::new(out, &ENTRY);
    entry.fixed(&[u8::from(found.is_some())]);
    entry.variable(|out| {
        let count = match fork {
            Fork::Amsterdam => 3,
            fork if fork >= Fork::Shanghai => 2,
            _ => 1,
        };
        let mut body = Container::new(out, &BODY[..count]);
        let transactions = found.map_or(&[][..], |found| &found.block.body.transactions);
        body.variable(|out| {
            append_list(out, transactions.iter(), |out, own| own.encode_2718(out));
        });
        if count >= 2 {
            let withdrawals = found.and_then(|found| found.block.body.withdrawals.as_ref());
            body.variable(|out| append_withdrawals(out, withdrawals.map_or(&[], |all| all)));
        }
        if count >= 3 {
            let list = found.and_then(|found| found.access_list.as_ref());
            body.bytes(list.map_or(&[], |list| list));
        }
    });
}
