//! The shards of a cluster on the explorer page: `cambium_shards`.

use super::{
    super::{
        args::cluster::{NatsArgs, OnNatsArgs, TlsArgs},
        error::Failure,
    },
    connect, members, replicas,
};
use cambium_cluster::{Nats, Registry, ShardRange, Stream, TlsFiles};
use cambium_rpc::{Kind, Methods, RpcError};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Time for which an answer is given again: many pages ask the cluster no more often than one.
const FRESH: Duration = Duration::from_secs(1);

/// A cluster that is shown.
struct Shown {
    nats: Nats,
    registry: Registry,
    tls: Option<TlsFiles>,
    runtime: Handle,
    last: Mutex<Option<(Instant, Value)>>,
}

/// Adds the method that answers with the shards of the cluster on the NATS servers `urls`; none if there are no addresses.
///
/// # Errors
///
/// If the servers can't be reached, or have no such cluster.
pub(crate) fn show(
    methods: Methods,
    urls: &[String],
    on: &OnNatsArgs,
    tls: &TlsArgs,
    runtime: &Handle,
) -> Result<Methods, Failure> {
    if urls.is_empty() {
        return Ok(methods);
    }
    let at = NatsArgs {
        nats: urls.to_vec(),
        on: on.clone(),
    };
    let nats = connect::nats(&at, None)?;
    let shown = Shown {
        registry: nats.registry().map_err(Failure::cluster)?,
        nats,
        tls: connect::tls(tls),
        runtime: runtime.clone(),
        last: Mutex::default(),
    };
    // It waits for other machines.
    Ok(methods.with(
        "cambium_shards() -> Cluster",
        Kind::Scan,
        move |_, params, reply| {
            params.end()?;
            let shards = shown.shards().map_err(RpcError::server);
            reply.value(&shards?)
        },
    ))
}

impl Shown {
    fn shards(&self) -> Result<Value, String> {
        let mut last = self.last.lock();
        if let Some((at, value)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(value.clone());
        }
        let value = self.asked().map_err(|error| error.to_string())?;
        *last = Some((Instant::now(), value.clone()));
        Ok(value)
    }

    fn asked(&self) -> Result<Value, Failure> {
        let stream = self.nats.stream().map_err(Failure::cluster)?;
        let end = stream.bounds().map_err(Failure::cluster)?.last.0;
        let roles = members::roles(&self.registry)?;
        let replicas = replicas::ask(&roles, self.tls.as_ref(), &self.runtime)?;
        let count = members::count_of(&roles).unwrap_or(0);
        let shards = (0..count).map(|index| {
            let range = ShardRange::new(index, count).map_err(Failure::cluster)?;
            let own = replicas.iter().filter(|replica| replica.range == range);
            let own = own.map(|replica| match &replica.status {
                Err(error) => json!({
                    "name": replica.name,
                    "address": replica.address,
                    "number": null,
                    "behind": null,
                    "error": error,
                }),
                Ok(status) => json!({
                    "name": replica.name,
                    "address": replica.address,
                    "number": status.newest().map(|block| block.number),
                    "behind": end.saturating_sub(status.position),
                    "error": Some(&status.trouble).filter(|trouble| !trouble.is_empty()),
                }),
            });
            let (from, to) = bounds(range);
            Ok(json!({ "from": from, "to": to, "replicas": own.collect::<Vec<_>>() }))
        });
        let shards = shards.collect::<Result<Vec<_>, Failure>>()?;
        Ok(json!({ "shards": shards }))
    }
}

/// The first and the last prefix of the keys of a shard, of one nibble or of two; empty if it has all keys.
fn bounds(range: ShardRange) -> (String, String) {
    let (index, count) = (range.index(), range.count());
    let (nibbles, prefixes) = match count {
        1 => return (String::new(), String::new()),
        ..=16 => (1, 16),
        _ => (2, 256),
    };
    let of_each = prefixes / count;
    let text = |prefix: usize| format!("{prefix:0nibbles$x}");
    (text(index * of_each), text((index + 1) * of_each - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_prefixes_of_the_keys() {
        for (index, count, from, to) in [
            (0, 1, "", ""),
            (1, 2, "8", "f"),
            (2, 4, "8", "b"),
            (15, 16, "f", "f"),
            (17, 256, "11", "11"),
        ] {
            let range = ShardRange::new(index, count).unwrap();
            assert_eq!(bounds(range), (from.to_owned(), to.to_owned()));
        }
    }
}
