//! Shards as the source of `cambium db extend`.

use super::{
    super::{
        args::cluster::{FromClusterArgs, NatsArgs},
        error::Failure,
    },
    connect, members,
};
use cambium::{
    B256, U256,
    chain::{ContractAt, StorageSource},
};
use cambium_cluster::ShardStorage;
use std::ops::ControlFlow;
use tokio::runtime::Runtime;

/// The shards of a cluster, and what keeps the connections to them.
pub(crate) struct ClusterStorage {
    storage: ShardStorage,
    name: String,
    _runtime: Runtime,
}

/// The storage of contracts by the shards of a cluster, if one is named.
pub(crate) fn storage_of(args: &FromClusterArgs) -> Result<Option<ClusterStorage>, Failure> {
    let FromClusterArgs {
        from_cluster,
        on,
        tls,
    } = args.clone();
    if from_cluster.is_empty() {
        return Ok(None);
    }
    let name = format!("the shards of the cluster {:?}", on.name);
    let nats = from_cluster;
    let nats = connect::nats(&NatsArgs { nats, on }, None)?;
    let runtime = connect::runtime()?;
    let tls = connect::tls(&tls);
    let (shards, _) = members::shards(&nats, tls.as_ref(), runtime.handle())?;
    Ok(Some(ClusterStorage {
        storage: ShardStorage::new(shards),
        name,
        _runtime: runtime,
    }))
}

impl StorageSource for ClusterStorage {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn slots(
        &self,
        contract: &ContractAt,
        visit: &mut dyn FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), String> {
        self.storage.slots(contract, visit)
    }
}
