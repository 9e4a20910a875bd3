//! `engine_newPayload`: blocks are inserted, on any branch.

use super::{
    payload::{Given, GivenBlock},
    remembered::{Fault, Remembered},
    state::Engine,
};
use crate::error::RpcError;
use alloy_consensus::Header;
use alloy_primitives::B256;
use alloy_rpc_types_engine::{PayloadStatus, PayloadStatusEnum};
use cambium_chain::{BlockFault, BodyError, Chain, ChainError, VerifyError};
use cambium_state::StateError;

/// A status without more.
pub(super) const fn status(status: PayloadStatusEnum) -> PayloadStatus {
    PayloadStatus::from_status(status)
}

pub(super) const fn valid(hash: B256) -> PayloadStatus {
    PayloadStatus::new(PayloadStatusEnum::Valid, Some(hash))
}

pub(super) fn invalid(fault: &Fault) -> PayloadStatus {
    let validation_error = fault.why.clone();
    PayloadStatus::new(PayloadStatusEnum::Invalid { validation_error }, fault.valid)
}

impl Engine {
    pub(super) fn new_payload(&self, given: Given) -> Result<PayloadStatus, RpcError> {
        let node = self.served.node();
        let chain = node.chain()?;
        // A block that is not what its hash says is not remembered: the hash may be that of a valid one.
        let block = match given.block(chain.spec()) {
            Ok(block) => block,
            Err(why) => return Ok(invalid(&Fault { valid: None, why })),
        };
        let hash = block.encoded.hash;
        let mut remembered = self.remembered.lock();
        let status = insert(chain, &mut remembered, block)?;
        if status.is_valid() {
            insert_descendants(chain, &mut remembered, hash);
        }
        Ok(status)
    }
}

/// Inserts what has waited for a block, and so on.
fn insert_descendants(chain: &Chain, remembered: &mut Remembered, of: B256) {
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for child in remembered.take_children(&parent) {
            let hash = child.hash;
            let decoded = child.decode().map_err(RpcError::internal);
            match decoded.and_then(|child| insert(chain, remembered, child)) {
                Ok(status) if status.is_valid() => parents.push(hash),
                Ok(status) => tracing::debug!(%hash, ?status, "a block that waited is not valid"),
                Err(error) => tracing::error!(%hash, %error, "a block that waited is lost"),
            }
        }
    }
}

fn insert(
    chain: &Chain,
    remembered: &mut Remembered,
    block: GivenBlock,
) -> Result<PayloadStatus, RpcError> {
    let GivenBlock { block, encoded } = block;
    let (hash, header) = (encoded.hash, block.header.clone());
    if let Some(fault) = remembered.fault(&hash) {
        return Ok(invalid(fault));
    }
    if let Some(fault) = remembered.fault(&encoded.parent).cloned() {
        remembered.reject(hash, &fault);
        return Ok(invalid(&fault));
    }
    let list = encoded.access_list.as_deref().map(|list| &**list);
    let why = match chain.insert_decoded(block, encoded.rlp.clone(), list) {
        Ok(inserted) => return Ok(valid(inserted.id.hash)),
        Err(ChainError::Block { fault, .. }) => match *fault {
            BlockFault::UnknownParent(_) => {
                remembered.wait(encoded);
                return Ok(status(PayloadStatusEnum::Syncing));
            }
            fault => (is_of_list(&fault), fault.to_string()),
        },
        // Its branch left the chain below the finalized block, or below what is kept.
        Err(ChainError::State(
            error @ (StateError::NotOnFinalized { .. }
            | StateError::UnknownBlock(_)
            | StateError::NotKept { .. }
            | StateError::TooFar { .. }),
        )) => {
            tracing::debug!(%hash, %error, "a block is on a branch that is not built upon");
            return Ok(status(PayloadStatusEnum::Accepted));
        }
        Err(error) => return Err(error.into()),
    };
    let (is_of_list, why) = why;
    let valid = match is_of_list {
        true => None,
        false => Some(valid_ancestor(chain, &header)?),
    };
    let fault = Fault { valid, why };
    remembered.reject(hash, &fault);
    Ok(invalid(&fault))
}

/// The parent of an invalid block, or zero if it is before the merge.
fn valid_ancestor(chain: &Chain, header: &Header) -> Result<B256, RpcError> {
    let parent = chain.block_of(chain.parent_of(header))?;
    let is_merged = parent.is_none_or(|(parent, _)| parent.header.difficulty.is_zero());
    Ok(match is_merged {
        true => header.parent_hash,
        false => B256::ZERO,
    })
}

/// Whether it is the access list that is wrong: the specification wants no valid ancestor then.
fn is_of_list(fault: &BlockFault) -> bool {
    matches!(
        fault,
        BlockFault::Verify(VerifyError::AccessList(_))
            | BlockFault::Body(BodyError::AccessList(_) | BodyError::AccessListHash { .. })
    )
}
