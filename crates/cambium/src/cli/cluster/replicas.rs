//! The replicas of all shards, and what each of them says of itself.

use super::{super::error::Failure, members};
use cambium_cluster::{Role, ShardRange, StatusReply, TlsFiles};
use tokio::{runtime::Handle, task::JoinSet};

/// A member that serves a shard.
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) range: ShardRange,
    pub(super) address: String,
    /// What it answers, or why it doesn't.
    pub(super) status: Result<StatusReply, String>,
}

impl Replica {
    /// Whether it has a state of the shard with this number.
    pub(super) fn serves(&self, index: usize) -> bool {
        let has_state = self.status.as_ref().is_ok_and(|it| it.newest().is_some());
        self.range.index() == index && has_state
    }
}

/// Asks the shards among the members, all at once. They come in the order of their shards.
pub(super) fn ask(
    roles: &[(String, Role)],
    tls: Option<&TlsFiles>,
    runtime: &Handle,
) -> Result<Vec<Replica>, Failure> {
    let mut asked = JoinSet::new();
    for (name, role) in roles {
        let Role::Shard { range, address } = role else {
            continue;
        };
        let client = members::client(address, tls, runtime)?;
        let (name, range, address) = (name.clone(), *range, address.clone());
        let asking = async move {
            let status = client.status().await;
            Replica {
                name,
                range,
                address,
                status,
            }
        };
        asked.spawn_on(asking, runtime);
    }
    let mut replicas = runtime.block_on(asked.join_all());
    replicas.sort_by(|a, b| {
        let key = |it: &Replica| (it.range.count(), it.range.index());
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(replicas)
}
