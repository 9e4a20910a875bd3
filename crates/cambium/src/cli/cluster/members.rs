//! The processes of a cluster, as they have entered themselves, and ways to them.

use super::super::error::Failure;
use cambium_cluster::{
    BuilderClient, ClientLimits, Lease, Member, Nats, Peer, Registry, RemotePeer, RemoteShard,
    Role, Shard, ShardClient, ShardLimits, ShardProgress, ShardRange, Shards, SnapshotError,
    StreamPosition, TlsFiles, Wanted, replicas,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Handle, Runtime},
    task::JoinSet,
};

/// Time between two looks at whether to end.
const LOOK: Duration = Duration::from_millis(50);
/// Time between two looks at who has joined and left.
pub(super) const MEMBERS: Duration = Duration::from_secs(3);

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
    let ways = Ways::new(nats, tls, runtime)?;
    Ok((ways.shards(), ways.clients()))
}

/// Ways to the replicas of all shards, which follow those who join and leave.
pub(super) struct Ways {
    registry: Registry,
    tls: Option<TlsFiles>,
    runtime: Handle,
    shards: Shards,
    /// The replicas of each shard, with their addresses, in the order of their names.
    replicas: Vec<Vec<(String, Way)>>,
}

/// The way to a replica.
#[derive(Clone)]
struct Way {
    client: ShardClient,
    service: Arc<RemoteShard>,
}

impl Ways {
    /// Ways to those that there are now.
    pub(super) fn new(
        nats: &Nats,
        tls: Option<&TlsFiles>,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let registry = nats.registry().map_err(Failure::cluster)?;
        let name = &nats.options().name;
        let count = count_of(&roles(&registry)?).ok_or_else(|| {
            Failure::cluster(format!(
                "no shard of the cluster {name:?} is there: cambium shard starts one"
            ))
        })?;
        let nobody = (0..count).map(|_| Vec::new());
        let mut ways = Self {
            registry,
            tls: tls.cloned(),
            runtime: runtime.clone(),
            shards: Shards::new(nobody.collect()).map_err(Failure::cluster)?,
            replicas: vec![Vec::new(); count],
        };
        ways.refresh()?;
        Ok(ways)
    }

    /// All shards. Clones have what a later refresh finds as well.
    pub(super) fn shards(&self) -> Shards {
        self.shards.clone()
    }

    /// Clients of all replicas.
    pub(super) fn clients(&self) -> Vec<ShardClient> {
        let all = self.replicas.iter().flatten();
        all.map(|(_, way)| way.client.clone()).collect()
    }

    /// Takes up replicas that have joined, and drops those that have left. A shard that nobody seems to serve keeps those that it had: when the
    /// servers come back, all leases have ended. Returns who has joined and who has left.
    pub(super) fn refresh(&mut self) -> Result<Vec<String>, Failure> {
        let roles = roles(&self.registry)?;
        let all: Vec<_> = roles.into_iter().map(|(_, role)| role).collect();
        let count = self.replicas.len();
        let mut changes = Vec::new();
        for (index, addresses) in replicas(&all, count).into_iter().enumerate() {
            let range = ShardRange::new(index, count).map_err(Failure::cluster)?;
            let before = &self.replicas[index];
            let same = addresses
                .iter()
                .eq(before.iter().map(|(address, _)| address));
            if same || addresses.is_empty() {
                continue;
            }
            let mut now = Vec::<(String, Way)>::new();
            for address in addresses {
                let way = match before.iter().find(|(known, _)| *known == address) {
                    Some((_, way)) => way.clone(),
                    None => {
                        changes.push(format!("shard {index}: {address} has joined"));
                        let client = client(&address, self.tls.as_ref(), &self.runtime)?;
                        let service = RemoteShard::new(client.clone(), range, self.runtime.clone());
                        Way {
                            client,
                            service: Arc::new(service),
                        }
                    }
                };
                now.push((address, way));
            }
            let left = before.iter().filter(|(address, _)| {
                let mut there = now.iter();
                there.all(|(it, _)| it != address)
            });
            changes.extend(left.map(|(it, _)| format!("shard {index}: {it} has left")));
            let services = now.iter();
            let services = services.map(|(_, way)| Arc::<RemoteShard>::clone(&way.service) as _);
            self.shards
                .replace(index, services.collect())
                .map_err(Failure::cluster)?;
            self.replicas[index] = now;
        }
        Ok(changes)
    }

    /// Follows those who join and leave by itself, until what it returns is dropped.
    pub(super) fn follow(mut self) -> FollowedWays {
        let ends = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut refreshed = Instant::now();
            while !own.load(Ordering::Relaxed) {
                if refreshed.elapsed() >= MEMBERS {
                    if let Err(error) = self.refresh() {
                        tracing::warn!("{error}");
                    }
                    refreshed = Instant::now();
                }
                thread::sleep(LOOK);
            }
        });
        FollowedWays {
            ends,
            thread: Some(thread),
        }
    }

    /// Where each shard is, by the replica of it that has come farthest; `None` for one whose replicas don't answer.
    pub(super) fn progress(&self) -> Vec<Option<ShardProgress>> {
        let mut asked = JoinSet::new();
        for (index, replicas) in self.replicas.iter().enumerate() {
            for (_, way) in replicas {
                let client = way.client.clone();
                asked.spawn_on(async move { (index, client.status().await) }, &self.runtime);
            }
        }
        let mut progress = vec![None::<ShardProgress>; self.replicas.len()];
        while let Some(answer) = self.runtime.block_on(asked.join_next()) {
            let Ok((index, Ok(status))) = answer else {
                continue;
            };
            let Some(newest) = status.newest() else {
                continue;
            };
            let own = ShardProgress {
                newest: newest.number,
                position: StreamPosition(status.position),
            };
            let best = &mut progress[index];
            if best.is_none_or(|best| (best.newest, best.position) < (own.newest, own.position)) {
                *best = Some(own);
            }
        }
        progress
    }
}

/// A thread that follows the members.
pub(super) struct FollowedWays {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FollowedWays {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
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

/// The replicas of all shards but this process, as they are there when they are asked: those of one shard first, if there is one.
pub(super) struct Replicas {
    pub(super) registry: Registry,
    /// Which shard.
    pub(super) range: Option<ShardRange>,
    /// This process.
    pub(super) own: String,
    pub(super) tls: Option<TlsFiles>,
    pub(super) runtime: Handle,
}

impl Replicas {
    /// `own_alone`: those of the shard alone, if there is one.
    fn there(&self, own_alone: bool) -> Vec<RemotePeer> {
        let roles = roles(&self.registry).unwrap_or_default();
        let others = roles.into_iter().filter_map(|(_, role)| match role {
            Role::Shard { range, address } if address != self.own => Some((range, address)),
            _ => None,
        });
        let (own, others): (Vec<_>, Vec<_>) =
            others.partition(|(range, _)| self.range.is_none_or(|own| *range == own));
        let others = if own_alone { Vec::new() } else { others };
        let all = own.into_iter().chain(others);
        let peers = all.filter_map(|(_, address)| {
            let client = client(&address, self.tls.as_ref(), &self.runtime);
            Some(RemotePeer::new(client.ok()?, self.runtime.clone()))
        });
        peers.collect()
    }
}

impl Peer for Replicas {
    fn name(&self) -> String {
        "the replicas".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let mut last = Ok(None);
        // A journal has the updates of all shards.
        for peer in self.there(false) {
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
        for peer in self.there(true) {
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
