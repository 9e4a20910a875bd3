//! Epochs, members and placement, in key-value buckets: each change compares the revision that it replaces.

use super::connection::{Nats, NatsError, request_error, ride_out};
use alloy_primitives::Address;
use async_nats::jetstream::{
    self,
    kv::{self, CreateErrorKind, Operation, Store, UpdateErrorKind},
    stream::StorageType,
};
use futures_util::StreamExt;
use std::time::Duration;

/// How long a bucket keeps the mark of an entry that has expired. It must not be longer than the lease, which would be raised to it.
const MARKERS: Duration = Duration::from_secs(1);
/// Most members that are listed.
const MEMBERS_MAX: usize = 10_000;
const EPOCH: &str = "epoch";

/// A member of the cluster, while its lease lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the process: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What it tells the others: its role and addresses, for instance.
    pub about: String,
}

/// The lease of a member, which has to be renewed before it ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    member: Member,
    revision: u64,
}

/// Who serves a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Goes up with each change.
    pub epoch: u64,
    /// Names of members, in the order in which they are asked.
    pub replicas: Vec<String>,
    /// Revision of the entry: 0 for a placement that is not stored yet.
    pub revision: u64,
}

/// Epochs, members and placement.
#[derive(Clone, Debug)]
pub struct Registry {
    pub(super) nats: Nats,
    pub(super) state: Store,
    members: Store,
}

impl Nats {
    /// The buckets of epochs, members and placement. Makes them if there are none, and if the options say so.
    ///
    /// # Errors
    ///
    /// If they can't be made.
    pub fn registry(&self) -> Result<Registry, NatsError> {
        let options = self.options();
        let state = self.bucket("state", None)?;
        let members = self.bucket("members", Some(options.lease))?;
        Ok(Registry {
            nats: self.clone(),
            state,
            members,
        })
    }

    fn bucket(&self, name: &str, max_age: Option<Duration>) -> Result<Store, NatsError> {
        let options = self.options();
        let bucket = format!("{}-{name}", options.name);
        let config = kv::Config {
            bucket: bucket.clone(),
            history: 1,
            max_age: max_age.unwrap_or_default(),
            storage: StorageType::File,
            num_replicas: options.replicas,
            limit_markers: max_age.map(|_| MARKERS),
            ..kv::Config::default()
        };
        self.wait(async {
            if !options.makes {
                let look =
                    async |context: &jetstream::Context| context.get_key_value(&bucket).await;
                return self.look_for(look).await;
            }
            // If it is there with another configuration, this fails.
            match self.context().create_key_value(config).await {
                Ok(store) => Ok(store),
                Err(made) => {
                    let found = self.context().get_key_value(&bucket).await;
                    found.map_err(|_| request_error(made))
                }
            }
        })
        .and_then(|store| match max_age {
            None => Ok(store),
            Some(lease) => {
                let found = store.stream.cached_info().config.max_age;
                match found == lease {
                    true => Ok(store),
                    false => Err(NatsError::Other {
                        name: bucket,
                        what: format!("a lease of {found:?} instead of {lease:?}"),
                    }),
                }
            }
        })
    }
}

fn malformed(key: &str, value: &[u8]) -> NatsError {
    NatsError::Malformed {
        key: key.to_owned(),
        value: String::from_utf8_lossy(&value[..value.len().min(80)]).into_owned(),
    }
}

/// Value and revision of an entry, unless it was deleted or has expired. The revision is there in any case.
pub(super) async fn entry(store: &Store, key: &str) -> Result<(Option<String>, u64), NatsError> {
    let read = ride_out(async || store.entry(key).await.map_err(request_error));
    let Some(entry) = read.await? else {
        return Ok((None, 0));
    };
    if entry.operation != Operation::Put {
        return Ok((None, entry.revision));
    }
    let value = std::str::from_utf8(&entry.value).map_err(|_| malformed(key, &entry.value))?;
    Ok((Some(value.to_owned()), entry.revision))
}

/// Replaces an entry whose revision is known. Returns the new revision, or `None` if it has another one by now.
pub(super) async fn replace(
    store: &Store,
    key: &str,
    value: String,
    revision: u64,
) -> Result<Option<u64>, NatsError> {
    if revision == 0 {
        return match store.create(key, value.into()).await {
            Ok(revision) => Ok(Some(revision)),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(request_error(error)),
        };
    }
    match store.update(key, value.into(), revision).await {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
        Err(error) => Err(request_error(error)),
    }
}

impl Registry {
    /// The epoch that was won last, and its builder.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached.
    pub fn epoch(&self) -> Result<Option<(u64, Address)>, NatsError> {
        let (value, _) = self.nats.wait(entry(&self.state, EPOCH))?;
        value.map(|value| epoch_of(&value)).transpose()
    }

    /// Wins the epoch after the last one, and after `known`, the highest that the stream is known to have. Returns its number, or
    /// `None` if another builder was faster. The winner opens it with a record in the stream.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached. The epoch may have been won: the next one will be another.
    pub fn win_epoch(&self, builder: Address, known: u64) -> Result<Option<u64>, NatsError> {
        // What was won without an answer is the last one of the next attempt.
        self.nats.wait(ride_out(async || {
            let (value, revision) = entry(&self.state, EPOCH).await?;
            let last = value.map(|value| epoch_of(&value)).transpose()?;
            let last = last.map_or(0, |(number, _)| number).max(known);
            let number = last
                .checked_add(1)
                .ok_or_else(|| malformed(EPOCH, last.to_string().as_bytes()))?;
            let value = format!("{number} {builder}");
            let won = replace(&self.state, EPOCH, value, revision).await?;
            Ok(won.map(|_| number))
        }))
    }

    /// Enters a member, whose name nobody has while its lease lasts.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached. `Ok(None)` if another process has the name.
    pub fn join(&self, member: Member) -> Result<Option<Lease>, NatsError> {
        self.nats.wait(async {
            let key = &member.name;
            let (value, revision) = entry(&self.members, key).await?;
            if value.is_some() {
                return Ok(None);
            }
            let about = member.about.clone();
            let joined = replace(&self.members, key, about, revision).await?;
            Ok(joined.map(|revision| Lease { member, revision }))
        })
    }

    /// Renews a lease, with what the member tells now. Returns false if it has ended: another process may have the name.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached. The lease may have been renewed all the same; then the next attempt finds it.
    pub fn renew(&self, lease: &mut Lease, about: &str) -> Result<bool, NatsError> {
        self.nats.wait(async {
            let (key, value) = (&lease.member.name, about.to_owned());
            let renewed = replace(&self.members, key, value, lease.revision).await?;
            if let Some(revision) = renewed {
                lease.revision = revision;
                about.clone_into(&mut lease.member.about);
                return Ok(true);
            }
            // An attempt whose answer was lost has changed the revision: the value is this member's own.
            let (value, revision) = entry(&self.members, key).await?;
            let is_own = value.as_deref() == Some(about) && revision > lease.revision;
            if is_own {
                lease.revision = revision;
                about.clone_into(&mut lease.member.about);
            }
            Ok(is_own)
        })
    }

    /// Ends a lease. Does nothing if it has ended.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached: then it ends by itself.
    pub fn leave(&self, lease: Lease) -> Result<(), NatsError> {
        self.nats.wait(async {
            let (key, revision) = (&lease.member.name, Some(lease.revision));
            match self.members.delete_expect_revision(key, revision).await {
                Err(error) if !error.to_string().contains("wrong last") => {
                    Err(request_error(error))
                }
                _ => Ok(()),
            }
        })
    }

    /// All members whose leases last, by name.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached.
    pub fn members(&self) -> Result<Vec<Member>, NatsError> {
        self.nats.wait(ride_out(async || self.listed().await))
    }

    async fn listed(&self) -> Result<Vec<Member>, NatsError> {
        let mut keys = self.members.keys().await.map_err(request_error)?;
        let mut members = Vec::new();
        while let Some(key) = keys.next().await {
            let name = key.map_err(request_error)?;
            if members.len() == MEMBERS_MAX {
                break;
            }
            if let (Some(about), _) = entry(&self.members, &name).await? {
                members.push(Member { name, about });
            }
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members.dedup_by(|a, b| a.name == b.name);
        Ok(members)
    }

    /// Who serves a shard. `None` if that was never said.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached.
    pub fn placement(&self, shard: usize) -> Result<Option<Placement>, NatsError> {
        let key = shard_key(shard);
        let (value, revision) = self.nats.wait(entry(&self.state, &key))?;
        let Some(value) = value else {
            return Ok(None);
        };
        let mut words = value.split(' ');
        let epoch = words.next().and_then(|word| word.parse().ok());
        let epoch = epoch.ok_or_else(|| malformed(&key, value.as_bytes()))?;
        Ok(Some(Placement {
            epoch,
            replicas: words.map(str::to_owned).collect(),
            revision,
        }))
    }

    /// Places a shard, if nobody has placed it since `placement` was read. Returns false if somebody has.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached, or if a name has a space.
    pub fn place(&self, shard: usize, placement: &mut Placement) -> Result<bool, NatsError> {
        let mut value = (placement.epoch + 1).to_string();
        for replica in &placement.replicas {
            if replica.is_empty() || replica.contains(' ') {
                return Err(malformed(&shard_key(shard), replica.as_bytes()));
            }
            value.push(' ');
            value.push_str(replica);
        }
        let key = shard_key(shard);
        let replaced = replace(&self.state, &key, value, placement.revision);
        let Some(revision) = self.nats.wait(replaced)? else {
            return Ok(false);
        };
        placement.epoch += 1;
        placement.revision = revision;
        Ok(true)
    }
}

fn shard_key(shard: usize) -> String {
    format!("shard.{shard}")
}

fn epoch_of(value: &str) -> Result<(u64, Address), NatsError> {
    let parsed = value
        .split_once(' ')
        .and_then(|(number, builder)| Some((number.parse().ok()?, builder.parse().ok()?)));
    parsed.ok_or_else(|| malformed(EPOCH, value.as_bytes()))
}
