//! The processes of a cluster, as they have entered themselves, and ways to them.

use super::super::error::Failure;
use cambium_cluster::{
    BuilderClient, ClientLimits, Lease, Member, Nats, Peer, Registry, RemotePeer, RemoteShard,
    Role, Service, Shard, ShardClient, ShardLimits, ShardRange, Shards, SnapshotError, TlsFiles,
    Wanted, replicas,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::{Handle, Runtime};

/// Time between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// The names and roles of all members. One whose role can't be understood is left out.
pub(super) fn roles(registry: &Registry) -> Result<Vec<(String, Role)>, Failure> {
    let members = registry.members().map_err(Failure::cluster)?.into_iter();
    Ok(members
        .filter_map(|member| Some((member.name, member.about.parse().ok()?)))
        .collect())
}

/// Number of shards of a cluster, by its members.
pub(super) fn count_of(roles: &[(String, Role)]) -> Option<usize> {
    let counts = roles.iter().filter_map(|(_, role)| match role {
        Role::Shard { range, .. } => Some(range.count()),
        Role::Builder { .. } => None,
    });
    counts.max()
}

pub(super) fn client(
    address: &str,
    tls: Option<&TlsFiles>,
    runtime: &Handle,
) -> Result<ShardClient, Failure> {
    let _entered = runtime.enter();
    ShardClient::new(address, ClientLimits::default(), tls).map_err(Failure::cluster)
}

/// All shards of a cluster, with the replicas that there are now.
pub(super) fn shards(
    nats: &Nats,
    tls: Option<&TlsFiles>,
    runtime: &Handle,
) -> Result<(Shards, Vec<ShardClient>), Failure> {
    let registry = nats.registry().map_err(Failure::cluster)?;
    let roles = roles(&registry)?;
    let name = &nats.options().name;
    let count = count_of(&roles).ok_or_else(|| {
        Failure::cluster(format!(
            "no shard of the cluster {name:?} is there: cambium shard starts one"
        ))
    })?;
    let all: Vec<_> = roles.iter().map(|(_, role)| role.clone()).collect();
    let (mut services, mut clients) = (Vec::new(), Vec::new());
    for (index, addresses) in replicas(&all, count).into_iter().enumerate() {
        let range = ShardRange::new(index, count).map_err(Failure::cluster)?;
        let mut own: Vec<Arc<dyn Service>> = Vec::new();
        for address in addresses {
            let client = client(&address, tls, runtime)?;
            clients.push(client.clone());
            own.push(Arc::new(RemoteShard::new(client, range, runtime.clone())));
        }
        services.push(own);
    }
    let shards = Shards::new(services).map_err(Failure::cluster)?;
    Ok((shards, clients))
}

/// The highest epoch that a shard has seen: the servers may have lost it.
pub(super) fn epoch_of(
    registry: &Registry,
    tls: Option<&TlsFiles>,
    runtime: &Runtime,
) -> Result<u64, Failure> {
    let mut highest = 0;
    for (_, role) in roles(registry)? {
        if let Role::Shard { address, .. } = role
            && let Ok(status) = runtime.block_on(client(&address, tls, runtime.handle())?.status())
        {
            highest = highest.max(status.epoch);
        }
    }
    Ok(highest)
}

/// Depth of the shards' roots in the state trie.
pub(super) fn depth_of(registry: &Registry) -> Result<usize, Failure> {
    let count = count_of(&roles(registry)?).unwrap_or(1);
    let range = ShardRange::new(0, count).map_err(Failure::cluster)?;
    Ok(range.depth())
}

/// All builders that there are now.
pub(super) fn builders(
    registry: &Registry,
    tls: Option<&TlsFiles>,
    runtime: &Handle,
) -> Result<Vec<BuilderClient>, Failure> {
    let _entered = runtime.enter();
    let addresses = roles(registry)?
        .into_iter()
        .filter_map(|(_, role)| match role {
            Role::Builder { address } => Some(address),
            Role::Shard { .. } => None,
        });
    addresses
        .map(|address| BuilderClient::new(&address, ClientLimits::default(), tls))
        .collect::<Result<_, _>>()
        .map_err(Failure::cluster)
}

/// The other replicas of a shard, or all of all shards, as they are there when they are asked.
pub(super) struct Replicas {
    pub(super) registry: Registry,
    /// Which shard; `None` for all.
    pub(super) range: Option<ShardRange>,
    /// This process.
    pub(super) own: String,
    pub(super) tls: Option<TlsFiles>,
    pub(super) runtime: Handle,
}

impl Replicas {
    fn there(&self) -> Vec<RemotePeer> {
        let roles = roles(&self.registry).unwrap_or_default();
        let others = roles.into_iter().filter_map(|(_, role)| {
            let Role::Shard { range, address } = role else {
                return None;
            };
            let is_other = self.range.is_none_or(|own| range == own) && address != self.own;
            let client = client(&address, self.tls.as_ref(), &self.runtime);
            is_other.then_some(RemotePeer::new(client.ok()?, self.runtime.clone()))
        });
        others.collect()
    }
}

impl Peer for Replicas {
    fn name(&self) -> String {
        "the replicas".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let mut last = Ok(None);
        for peer in self.there() {
            match peer.record(wanted) {
                Ok(Some(record)) => return Ok(Some(record)),
                other => last = other,
            }
        }
        last
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        let mut last = SnapshotError::Io {
            at: 0,
            source: io::Error::other("there is no replica"),
        };
        for peer in self.there() {
            match peer.snapshot(range, limits) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// A process that is a member of the cluster.
pub(super) struct Membership {
    pub(super) registry: Registry,
    pub(super) lease: Duration,
    pub(super) name: String,
    /// Its role.
    pub(super) about: String,
}

impl Membership {
    /// Enters the process as a member, and stays one.
    pub(super) fn stay(&self, ends: &AtomicBool) {
        let every = self.lease / 3;
        let mut lease: Option<Lease> = None;
        let mut next = Instant::now();
        while !ends.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                next = Instant::now() + every;
                let renewed = match &mut lease {
                    Some(lease) => self.registry.renew(lease, &self.about),
                    None => Ok(false),
                };
                match renewed {
                    Ok(true) => {}
                    Ok(false) => {
                        let member = Member {
                            name: self.name.clone(),
                            about: self.about.clone(),
                        };
                        match self.registry.join(member) {
                            Ok(joined) => lease = joined,
                            Err(error) => tracing::warn!("{error}"),
                        }
                        if lease.is_none() {
                            next = Instant::now() + 10 * LOOK;
                        }
                    }
                    Err(error) => tracing::warn!("{error}"),
                }
            }
            thread::sleep(LOOK);
        }
        if let Some(lease) = lease {
            let _ = self.registry.leave(lease);
        }
    }
}
