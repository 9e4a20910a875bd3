//! `engine_forkchoiceUpdated`: the head, and which of its ancestors are safe and finalized.

use super::{
    attributes,
    new_payload::{invalid, status, valid},
    state::Engine,
    version::Schema,
};
use crate::{builder::draft_attributes, error::RpcError};
use alloy_primitives::B256;
use alloy_rpc_types_engine::{
    ForkchoiceState, ForkchoiceUpdated, PayloadAttributes, PayloadStatusEnum,
};
use cambium_chain::{Chain, ChainError};
use cambium_node::BlockRef;
use cambium_primitives::BlockId;
use cambium_state::StateError;

fn invalid_state(why: impl std::fmt::Display) -> RpcError {
    let message = format!("Invalid forkchoice state: {why}");
    RpcError::new(RpcError::FORKCHOICE_STATE, message)
}

/// What became of a choice.
enum Chosen {
    /// This block is the head.
    Head,
    /// The head is above it, and stays.
    Ancestor,
    Unknown,
}

impl Engine {
    pub(super) fn forkchoice_updated(
        &self,
        schema: Schema,
        state: &ForkchoiceState,
        given: Option<&PayloadAttributes>,
    ) -> Result<ForkchoiceUpdated, RpcError> {
        let node = self.served.node();
        let chain = node.chain()?;
        let spec = chain.spec();
        if let Some(given) = given {
            attributes::check_parameters(spec, schema, given)?;
        }
        let head = state.head_block_hash;
        let remembered = self.remembered.lock();
        if let Some(fault) = remembered.fault(&head) {
            return Ok(ForkchoiceUpdated::new(invalid(fault)));
        }
        let updated = match choose(chain, state)? {
            Chosen::Unknown => {
                return Ok(ForkchoiceUpdated::new(status(PayloadStatusEnum::Syncing)));
            }
            Chosen::Ancestor => return Ok(ForkchoiceUpdated::new(valid(head))),
            Chosen::Head => ForkchoiceUpdated::new(valid(head)),
        };
        drop(remembered);
        let Some(given) = given else {
            return Ok(updated);
        };
        attributes::check(spec, schema, given)?;
        let parent = node.block(BlockRef::Hash(head))?;
        let draft = draft_attributes(spec, &parent, given, &self.served.building)
            .map_err(attributes::not_after_parent)?;
        let id = self.building.begin(head, given, draft)?;
        Ok(updated.with_payload_id(id))
    }
}

fn choose(chain: &Chain, state: &ForkchoiceState) -> Result<Chosen, RpcError> {
    let db = chain.db();
    if state.head_block_hash.is_zero() {
        return Err(invalid_state("headBlockHash is zero"));
    }
    let committed = |hash: &B256| -> Result<Option<BlockId>, StateError> {
        match db.search(hash)? {
            Some(id) if db.has(id)? => Ok(Some(id)),
            _ => Ok(None),
        }
    };
    let Some(head) = committed(&state.head_block_hash)? else {
        return Ok(Chosen::Unknown);
    };
    let marked = |hash: B256, what: &str| -> Result<Option<B256>, RpcError> {
        if hash.is_zero() {
            return Ok(None);
        }
        let found = committed(&hash)?.ok_or_else(|| {
            invalid_state(format_args!("{what} {hash} is not a block of the database"))
        })?;
        match db.ancestor(head, found.number)? == Some(found) {
            true => Ok(Some(hash)),
            false => Err(invalid_state(format_args!(
                "{what} {hash} is no ancestor of the head"
            ))),
        }
    };
    let safe = marked(state.safe_block_hash, "safeBlockHash")?;
    let finalized = marked(state.finalized_block_hash, "finalizedBlockHash")?;
    if head.number < db.head().number && db.is_canonical(head)? {
        return Ok(Chosen::Ancestor);
    }
    match chain.set_canonical(head.hash, safe, finalized) {
        Ok(()) => Ok(Chosen::Head),
        Err(ChainError::State(
            error @ (StateError::NotAnAncestor { .. }
            | StateError::SafeBelowFinalized { .. }
            | StateError::NotOnFinalized { .. }),
        )) => Err(invalid_state(error)),
        Err(ChainError::State(
            error @ (StateError::TooFar { .. } | StateError::NotKept { .. }),
        )) => {
            let message = format!("Too deep reorg: {error}");
            Err(RpcError::new(RpcError::TOO_DEEP_REORG, message))
        }
        Err(error) => Err(error.into()),
    }
}
