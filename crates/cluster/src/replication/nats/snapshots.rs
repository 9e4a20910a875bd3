//! Snapshots of shards in an object store. The pointer to the newest one, in a key-value bucket, is written last.

use super::{
    super::follower::FollowerState,
    connection::{Nats, NatsError, request_error},
    registry::{Registry, entry, replace},
};
use alloy_primitives::{B256, Keccak256, hex};
use async_nats::jetstream::{
    self,
    object_store::{self, GetErrorKind, ObjectMetadata, ObjectStore},
    stream::StorageType,
};
use cambium_primitives::BlockId;
use futures_util::StreamExt;
use std::{
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Bytes of an object's messages.
const CHUNK_BYTES: usize = 256 << 10;

/// Which snapshot of a shard is the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPointer {
    /// The shard.
    pub shard: usize,
    /// The block after which its state is in the snapshot.
    pub block: BlockId,
    /// State root of that block.
    pub root: B256,
    /// State of the shard's follower: from its position on a shard reads the stream that has loaded the snapshot, and its epoch is
    /// open there.
    pub state: FollowerState,
    /// Number of its bytes.
    pub bytes: u64,
    /// Keccak-256 of its bytes.
    pub digest: B256,
}

impl SnapshotPointer {
    /// Name of the object: shard, height and root.
    pub fn object(&self) -> String {
        format!("{}/{}/{}", self.shard, self.block.number, self.root)
    }

    fn encode(&self) -> String {
        let Self {
            block,
            root,
            state,
            bytes,
            digest,
            ..
        } = self;
        let (number, hash, state) = (block.number, block.hash, hex::encode(state.encode()));
        format!("{number} {hash} {root} {bytes} {digest} {state}")
    }

    fn decode(shard: usize, text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let block = BlockId::new(words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let pointer = Self {
            shard,
            block,
            root: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
            digest: words.next()?.parse().ok()?,
            state: FollowerState::decode(&hex::decode(words.next()?).ok()?).ok()?,
        };
        words.next().is_none().then_some(pointer)
    }
}

/// Snapshots of all shards.
#[derive(Clone)]
pub struct Snapshots {
    registry: Registry,
    store: ObjectStore,
}

impl std::fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshots")
    }
}

impl Nats {
    /// The store of snapshots. Makes it if there is none, and if the options say so.
    ///
    /// # Errors
    ///
    /// If it can't be made.
    pub fn snapshots(&self) -> Result<Snapshots, NatsError> {
        let options = self.options();
        let bucket = format!("{}-snapshots", options.name);
        let config = object_store::Config {
            bucket: bucket.clone(),
            max_bytes: options.snapshot_bytes_max as i64,
            storage: StorageType::File,
            num_replicas: options.replicas,
            ..object_store::Config::default()
        };
        let store = self.wait(async {
            if !options.makes {
                let look =
                    async |context: &jetstream::Context| context.get_object_store(&bucket).await;
                return self.look_for(look).await;
            }
            match self.context().create_object_store(config).await {
                Ok(store) => Ok(store),
                Err(made) => {
                    let found = self.context().get_object_store(&bucket).await;
                    found.map_err(|_| request_error(made))
                }
            }
        })?;
        let registry = self.registry()?;
        Ok(Snapshots { registry, store })
    }
}

/// A reader that blocks, for a future that a thread of its own waits for. Counts and hashes what is read.
struct Blocking<'a> {
    source: &'a mut (dyn Read + Send),
    hasher: Keccak256,
    bytes: u64,
}

impl AsyncRead for Blocking<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let space = buf.initialize_unfilled();
        let count = this.source.read(space)?;
        let Some(read) = space.get(..count) else {
            return Poll::Ready(Err(io::Error::other("a reader returned more than it read")));
        };
        this.hasher.update(read);
        this.bytes += count as u64;
        buf.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl Snapshots {
    /// Stores a snapshot, and then the pointer to it, unless there is one to a higher block. Returns the newest pointer.
    ///
    /// # Errors
    ///
    /// If it can't be read or stored: the pointer is what it was.
    pub fn put(
        &self,
        shard: usize,
        block: BlockId,
        root: B256,
        state: &FollowerState,
        source: &mut (dyn Read + Send),
    ) -> Result<SnapshotPointer, NatsError> {
        let mut pointer = SnapshotPointer {
            shard,
            block,
            root,
            state: state.clone(),
            bytes: 0,
            digest: B256::ZERO,
        };
        let nats = &self.registry.nats;
        nats.wait(async {
            let mut reader = Blocking {
                source,
                hasher: Keccak256::new(),
                bytes: 0,
            };
            let meta = ObjectMetadata {
                name: pointer.object(),
                chunk_size: Some(CHUNK_BYTES),
                ..ObjectMetadata::default()
            };
            let stored = self.store.put(meta, &mut reader).await;
            stored.map_err(request_error)?;
            pointer.bytes = reader.bytes;
            pointer.digest = reader.hasher.finalize();
            let key = pointer_key(shard);
            loop {
                let (value, revision) = entry(&self.registry.state, &key).await?;
                let newest = value.map(|value| decode(shard, &value)).transpose()?;
                if let Some(newest) = newest
                    && newest.block.number > block.number
                {
                    return Ok(newest);
                }
                let value = pointer.encode();
                let store = &self.registry.state;
                if replace(store, &key, value, revision).await?.is_some() {
                    return Ok(pointer);
                }
            }
        })
    }

    /// The newest snapshot of a shard.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached.
    pub fn newest(&self, shard: usize) -> Result<Option<SnapshotPointer>, NatsError> {
        let key = pointer_key(shard);
        let (value, _) = self.registry.nats.wait(entry(&self.registry.state, &key))?;
        value.map(|value| decode(shard, &value)).transpose()
    }

    /// Reads a snapshot. What was written to `target` counts only if this succeeds: the bytes are verified against the pointer.
    /// Whether the state is that of the block, the shard verifies.
    ///
    /// # Errors
    ///
    /// If it is not there, damaged, or can't be written.
    pub fn get(
        &self,
        pointer: &SnapshotPointer,
        target: &mut (dyn Write + Send),
    ) -> Result<(), NatsError> {
        let name = pointer.object();
        let damaged = |what: String| NatsError::Snapshot {
            name: name.clone(),
            what,
        };
        let nats = &self.registry.nats;
        nats.wait(async {
            let mut object = match self.store.get(&name).await {
                Ok(object) => object,
                Err(error) if error.kind() == GetErrorKind::NotFound => {
                    return Err(damaged("it is not there".to_owned()));
                }
                Err(error) => return Err(request_error(error)),
            };
            let mut hasher = Keccak256::new();
            let (mut bytes, mut buffer) = (0_u64, vec![0; CHUNK_BYTES]);
            loop {
                let read = tokio::time::timeout(nats.options().timeout, object.read(&mut buffer));
                let count = read.await.map_err(request_error)?;
                let count = count.map_err(|error| damaged(error.to_string()))?;
                let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else {
                    break;
                };
                bytes += count as u64;
                if bytes > pointer.bytes {
                    return Err(damaged(format!("more than its {} bytes", pointer.bytes)));
                }
                hasher.update(read);
                target.write_all(read).map_err(request_error)?;
            }
            let digest = hasher.finalize();
            if bytes != pointer.bytes || digest != pointer.digest {
                let (expected, named) = (pointer.bytes, pointer.digest);
                return Err(damaged(format!(
                    "{bytes} bytes that hash to {digest}, and the pointer names {expected} and {named}"
                )));
            }
            Ok(())
        })
    }

    /// Removes a shard's snapshots of blocks below that of a pointer. Returns how many.
    ///
    /// # Errors
    ///
    /// If the servers can't be reached.
    pub fn remove_before(&self, pointer: &SnapshotPointer) -> Result<usize, NatsError> {
        let nats = &self.registry.nats;
        nats.wait(async {
            let mut objects = self.store.list().await.map_err(request_error)?;
            let mut old = Vec::new();
            while let Some(object) = objects.next().await {
                let name = object.map_err(request_error)?.name;
                let mut parts = name.split('/');
                let shard = parts.next().and_then(|part| part.parse::<usize>().ok());
                let height = parts.next().and_then(|part| part.parse::<u64>().ok());
                let is_old = height.is_some_and(|height| height < pointer.block.number);
                if shard == Some(pointer.shard) && is_old {
                    old.push(name);
                }
            }
            for name in &old {
                self.store.delete(name).await.map_err(request_error)?;
            }
            Ok(old.len())
        })
    }
}

fn pointer_key(shard: usize) -> String {
    format!("snapshot.{shard}")
}

fn decode(shard: usize, text: &str) -> Result<SnapshotPointer, NatsError> {
    SnapshotPointer::decode(shard, text).ok_or_else(|| NatsError::Malformed {
        key: pointer_key(shard),
        value: text.chars().take(80).collect(),
    })
}
