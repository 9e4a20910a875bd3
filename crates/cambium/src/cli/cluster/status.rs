//! Who serves which shard, at which block, and what is wrong.

use super::{
    super::{
        args::cluster::StatusArgs,
        error::{Exit, Failure},
        output::{Report, bytes, count},
    },
    connect, members,
    replicas::{self, Replica},
};
use cambium_cluster::{Role, Stream};
use serde_json::json;
use std::fmt::Write;

pub(super) fn run(args: &StatusArgs) -> Result<Report, Failure> {
    let nats = connect::nats(&args.nats, None)?;
    let tls = connect::tls(&args.tls);
    let runtime = connect::runtime()?;
    let registry = nats.registry().map_err(Failure::cluster)?;
    let stream = nats.stream().map_err(Failure::cluster)?;
    let bounds = stream.bounds().map_err(Failure::cluster)?;
    let epoch = registry.epoch().map_err(Failure::cluster)?;
    let roles = members::roles(&registry)?;
    let builders = roles
        .iter()
        .filter(|(_, role)| matches!(role, Role::Builder { .. }));
    let builders: Vec<_> = builders.map(|(_, role)| role.to_string()).collect();
    let replicas = replicas::ask(&roles, tls.as_ref(), runtime.handle())?;
    let shards = members::count_of(&roles).unwrap_or(0);
    let unserved: Vec<_> = (0..shards)
        .filter(|index| !replicas.iter().any(|it| it.serves(*index)))
        .collect();

    let mut text = format!("Cluster {}", nats.options().name);
    let _ = match &epoch {
        Some((number, builder)) => writeln!(text, ": epoch {number}, of builder {builder}"),
        None => writeln!(text, ": no epoch was opened; cluster init makes a cluster"),
    };
    let last = bounds.last;
    let _ = writeln!(text, "The stream has records {} to {last}.", bounds.first);
    for builder in &builders {
        let _ = writeln!(text, "  {builder}");
    }
    if replicas.is_empty() {
        text.push_str("No shard is there: cambium shard starts one.\n");
    }
    for replica in &replicas {
        describe(replica, &mut text, last.0);
    }
    for index in &unserved {
        let _ = writeln!(text, "Shard {index} is served by nobody: reads of it fail.");
    }
    let json = json!({
        "epoch": epoch.map(|(number, builder)| json!({ "number": number, "builder": builder })),
        "stream": { "first": bounds.first.0, "last": last.0 },
        "shards": shards,
        "builders": builders,
        "unserved": unserved,
        "replicas": replicas.iter().map(to_json).collect::<Vec<_>>(),
    });
    let mut report = Report::new(text.trim_end().to_owned(), json);
    if !unserved.is_empty() || shards == 0 {
        report.exit = Exit::CouldNotBeDone;
    }
    Ok(report)
}

fn describe(replica: &Replica, text: &mut String, last: u64) {
    let Replica {
        name,
        range,
        address,
        status,
    } = replica;
    let (index, count_of) = (range.index(), range.count());
    let _ = write!(
        text,
        "  shard {index:>2} of {count_of}  {name:<20} {address:<28}"
    );
    let _ = match status {
        Err(error) => writeln!(text, "does not answer: {error}"),
        Ok(status) => match (status.oldest(), status.newest()) {
            (Some(oldest), Some(newest)) => {
                let behind = last.saturating_sub(status.position);
                let behind = match behind {
                    0 => "at the end of the stream".to_owned(),
                    1 => "1 record behind".to_owned(),
                    behind => format!("{} records behind", count(behind)),
                };
                writeln!(
                    text,
                    "blocks {} to {}, {behind}, {}, {} keys read",
                    count(oldest.number),
                    count(newest.number),
                    bytes(status.memory_bytes),
                    count(status.keys)
                )
            }
            _ => writeln!(text, "has no state yet: {}", status.loading),
        },
    };
    if let Ok(status) = status
        && !status.trouble.is_empty()
    {
        let _ = writeln!(text, "      {}", status.trouble);
    }
}

fn to_json(replica: &Replica) -> serde_json::Value {
    let mut json = json!({
        "name": replica.name,
        "shard": replica.range.index(),
        "count": replica.range.count(),
        "address": replica.address,
    });
    match &replica.status {
        Err(error) => json["error"] = json!(error),
        Ok(status) => {
            let block = |block: Option<cambium::BlockId>| {
                block.map(|block| json!({ "number": block.number, "hash": block.hash }))
            };
            json["oldest"] = json!(block(status.oldest()));
            json["newest"] = json!(block(status.newest()));
            json["position"] = json!(status.position);
            json["epoch"] = json!(status.epoch);
            json["versions"] = json!(status.versions);
            json["memory_bytes"] = json!(status.memory_bytes);
            json["updates"] = json!(status.updates);
            json["refused"] = json!(status.refused);
            json["reads"] = json!(status.reads);
            json["keys"] = json!(status.keys);
            json["bag_bytes"] = json!(status.bag_bytes);
            json["turned_away"] = json!(status.turned_away);
            json["loading"] = json!(status.loading);
            json["trouble"] = json!(status.trouble);
        }
    }
    json
}
