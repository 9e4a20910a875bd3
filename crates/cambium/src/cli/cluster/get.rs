//! An account through the shards: verified against the state root of a block that a builder has signed.

use super::{
    super::{
        args::cluster::ClusterGetArgs,
        error::Failure,
        output::{Report, Table, quantity},
    },
    connect, members,
};
use alloy_primitives::keccak256;
use cambium::{B256, alloy_consensus::Header};
use cambium_cluster::{BuilderKeys, Reader, Record, ShardClient, Wanted};
use serde_json::json;
use tokio::runtime::Runtime;

/// Depths of nodes that are kept: a command keeps none.
const LEVEL: u8 = 0;

pub(super) fn run(args: &ClusterGetArgs) -> Result<Report, Failure> {
    let nats = connect::nats(&args.nats, None)?;
    let tls = connect::tls(&args.tls);
    let runtime = connect::runtime()?;
    let (shards, clients) = members::shards(&nats, tls.as_ref(), runtime.handle())?;
    let keys = connect::keys(&args.builders);
    let header = header(&runtime, &clients, &keys, args.block_hash)?;
    let reader = Reader::new(shards, &header, LEVEL, LEVEL);
    let account = keccak256(args.address);
    let found = reader.account(&account).map_err(Failure::cluster)?;
    let block = reader.block();
    let mut table = Table::default()
        .row("block", block)
        .row("state root", header.state_root)
        .row("account", args.address);
    let mut slots = Vec::new();
    table = match found {
        Some(account) => table
            .row("nonce", account.nonce)
            .row("balance", account.balance)
            .row("code hash", account.code_hash),
        None => table.row("", "there is no such account"),
    };
    for slot in &args.slots {
        let path = keccak256(slot.to_be_bytes::<32>());
        let value = reader.slot(&account, &path).map_err(Failure::cluster)?;
        table = table.row(format_args!("slot {slot}"), format_args!("{value:#x}"));
        slots.push(json!({ "slot": slot, "value": value }));
    }
    let (requests, nodes, bytes) = reader.counts();
    table = table.row(
        "proof",
        format_args!("{nodes} nodes of {bytes} bytes, in {requests} answers"),
    );
    let shown = found.unwrap_or_default();
    let json = json!({
        "address": args.address,
        "exists": found.is_some(),
        "nonce": quantity(shown.nonce),
        "balance": shown.balance,
        "code_hash": shown.code_hash,
        "slots": slots,
        "block_number": quantity(block.number),
        "block_hash": block.hash,
        "state_root": header.state_root,
        "nodes": nodes,
        "bytes": bytes,
    });
    Ok(Report::new(table.to_string(), json))
}

/// The header of a block, from its update, which a builder has signed.
pub(super) fn header(
    runtime: &Runtime,
    clients: &[ShardClient],
    keys: &BuilderKeys,
    block: Option<B256>,
) -> Result<Header, Failure> {
    let mut last = "no shard has a state yet".to_owned();
    for client in clients {
        let wanted = match block {
            Some(hash) => hash,
            None => match runtime.block_on(client.status()) {
                Ok(status) => match status.newest() {
                    Some(newest) => newest.hash,
                    None => continue,
                },
                Err(error) => {
                    last = error;
                    continue;
                }
            },
        };
        let record = runtime.block_on(client.record(Wanted::Block(wanted)));
        match record.map(|record| record.map(|record| Record::decode(&record))) {
            Ok(Some(Ok(record))) => match (keys.verify(&record), record) {
                (Ok(_), Record::Update(update)) if update.id().hash == wanted => {
                    return Ok(update.update().header.clone());
                }
                (Err(error), _) => last = format!("{}: {error}", client.address()),
                (Ok(_), _) => last = format!("{}: another record", client.address()),
            },
            Ok(Some(Err(error))) => last = format!("{}: {error}", client.address()),
            Ok(None) => {
                last = format!(
                    "{} has no signed update of block {wanted}: give --block-hash, or wait for the next one",
                    client.address()
                );
            }
            Err(error) => last = error,
        }
    }
    Err(Failure::cluster(last))
}
