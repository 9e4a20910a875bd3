//! Payloads on their way: each begins on a thread of its own, and is built again when it is asked for, if the pool has got
//! more meanwhile.

use crate::{
    builder::{BuiltBlock, Candidates, build},
    error::RpcError,
    served::Served,
};
use alloy_primitives::{B64, B256, keccak256};
use alloy_rpc_types_engine::{PayloadAttributes, PayloadId};
use cambium_chain::DraftAttributes;
use cambium_node::BlockRef;
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc, thread};

/// Payloads that can be asked for.
const PAYLOADS_MAX: usize = 10;

/// A payload that was asked for.
struct Job {
    id: PayloadId,
    parent: B256,
    attributes: DraftAttributes,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    built: Option<Arc<BuiltBlock>>,
    /// It has been given away, and stays as it is.
    is_final: bool,
}

pub(super) struct Building {
    served: Arc<Served>,
    /// The newest last.
    jobs: Mutex<VecDeque<Arc<Job>>>,
}

impl Building {
    pub(super) const fn new(served: Arc<Served>) -> Self {
        Self {
            served,
            jobs: Mutex::new(VecDeque::new()),
        }
    }

    /// Begins a payload, unless the same has begun.
    pub(super) fn begin(
        &self,
        parent: B256,
        given: &PayloadAttributes,
        attributes: DraftAttributes,
    ) -> Result<PayloadId, RpcError> {
        let mut named = parent.to_vec();
        serde_json::to_writer(&mut named, given).map_err(RpcError::internal)?;
        let id = PayloadId(B64::from_slice(&keccak256(named)[..8]));
        let mut jobs = self.jobs.lock();
        if jobs.iter().any(|job| job.id == id) {
            return Ok(id);
        }
        let job = Arc::new(Job {
            id,
            parent,
            attributes,
            state: Mutex::default(),
        });
        jobs.push_back(Arc::clone(&job));
        if jobs.len() > PAYLOADS_MAX {
            jobs.pop_front();
        }
        let served = Arc::clone(&self.served);
        let begin = move || {
            if let Err(error) = job.build(&served, false) {
                tracing::error!(%error, "a payload can't be built");
            }
        };
        // Without a thread it is built when it is asked for.
        let _ = thread::Builder::new()
            .name("cambium-payload".to_owned())
            .spawn(begin);
        Ok(id)
    }

    /// The payload, as it stays from now on.
    pub(super) fn get(&self, id: PayloadId) -> Result<Arc<BuiltBlock>, RpcError> {
        let job = self.jobs.lock().iter().find(|job| job.id == id).cloned();
        let unknown = || RpcError::new(RpcError::UNKNOWN_PAYLOAD, "Unknown payload");
        job.ok_or_else(unknown)?.build(&self.served, true)
    }
}

impl Job {
    fn build(&self, served: &Served, is_final: bool) -> Result<Arc<BuiltBlock>, RpcError> {
        let mut state = self.state.lock();
        let pool = served.pool();
        let added = pool.map_or(0, |pool| pool.added());
        if let Some(built) = &state.built
            && (state.is_final || built.pool_added == added)
        {
            let built = Arc::clone(built);
            state.is_final |= is_final;
            return Ok(built);
        }
        let new = self.build_now(served);
        let built = match (new, &state.built) {
            (Ok(new), _) => Arc::new(new),
            (Err(error), Some(old)) => {
                tracing::warn!(%error, "a payload can't be built again: it is as it was");
                Arc::clone(old)
            }
            (Err(error), None) => return Err(error),
        };
        state.built = Some(Arc::clone(&built));
        state.is_final |= is_final;
        Ok(built)
    }

    fn build_now(&self, served: &Served) -> Result<BuiltBlock, RpcError> {
        let node = served.node();
        let parent = node.block(BlockRef::Hash(self.parent))?;
        let candidates = served.pool().map_or(Candidates::None, Candidates::Pool);
        let extra_data = served.building.extra_data.clone();
        build(&node, &parent, &self.attributes, extra_data, candidates)
    }
}
