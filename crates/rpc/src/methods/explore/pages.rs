//! The state's pages as a map, its layers, and the way of a read, step by step.

use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_primitives::{Account, BlockId, Path};
use cambium_state::{Layering, ReadStep, ReadWay};
use serde_json::{Value, json};

/// Most pages of a part of the state that are listed.
const PAGES_MAX: usize = 4096;
/// Pages of a part whose sizes stand for those of all.
const SAMPLED: usize = 16;
/// Most layers that are listed.
const LAYERS_MAX: usize = 1024;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with("cambium_map() -> Map", Kind::Scan, map)
        .with("cambium_mapShard(Shard) -> Pages", Kind::Scan, shard)
        .with(
            "cambium_walk(Address, Storage slot?) -> Steps",
            Kind::Quick,
            walk,
        )
        .with("cambium_layers() -> Layers", Kind::Quick, layers)
}

fn named(block: BlockId) -> Value {
    json!({ "number": block.number, "hash": block.hash })
}

/// A path as its nibbles.
fn nibbles(path: &Path) -> String {
    let digits = path.nibbles();
    digits
        .filter_map(|nibble| char::from_digit(nibble.into(), 16))
        .collect()
}

fn map(call: &Call<'_>, params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    params.end()?;
    let db = call.node.db();
    let mut shards = Vec::new();
    for (shard, pages) in db.pages_by_shard().into_iter().enumerate() {
        call.cancel.check()?;
        let (sampled, _) = db.pages_of_shard(shard, SAMPLED)?;
        let bytes: u64 = sampled.iter().map(|page| page.addr.len()).sum();
        let bytes = bytes * pages / (sampled.len() as u64).max(1);
        shards.push(json!({
            "pages": pages,
            "bytes": bytes,
            "isEstimated": pages > sampled.len() as u64,
        }));
    }
    let mut segments = db.segments();
    segments.sort_unstable_by_key(|segment| segment.sequence);
    let segments = segments.iter().map(|segment| {
        json!({
            "number": segment.segment,
            "sequence": segment.sequence,
            "bytes": segment.bytes,
            "liveBytes": segment.live_bytes,
        })
    });
    reply.value(&json!({
        "snapshot": named(db.snapshot_block()),
        "shards": shards,
        "segments": segments.collect::<Vec<_>>(),
    }))
}

fn shard(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let shard: u8 = params.required()?;
    params.end()?;
    let (pages, more) = call.node.db().pages_of_shard(shard.into(), PAGES_MAX)?;
    let pages = pages.iter().map(|page| {
        json!({
            "path": nibbles(&page.path),
            "segment": page.addr.segment(),
            "offset": page.addr.offset(),
            "bytes": page.addr.len(),
            "cached": page.is_cached,
        })
    });
    reply.value(&json!({ "pages": pages.collect::<Vec<_>>(), "more": more }))
}

fn walk(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let address: Address = params.required()?;
    let slot: Option<U256> = params.optional()?;
    params.end()?;
    let db = call.node.db();
    let path = keccak256(address);
    let Some(slot) = slot else {
        let way = db.walk_account(&path)?;
        let value = way.value.as_ref().map(account);
        return reply.value(&walked(path, None, &way, json!(value)));
    };
    let slot = keccak256(B256::from(slot));
    let way = db.walk_slot(&path, &slot)?;
    let value = B256::from(way.value);
    reply.value(&walked(path, Some(slot), &way, json!(value)))
}

fn account(account: &Account) -> Value {
    json!({
        "nonce": format!("{:#x}", account.nonce),
        "balance": account.balance,
        "codeHash": account.code_hash,
    })
}

fn walked<V>(path: B256, slot_path: Option<B256>, way: &ReadWay<V>, value: Value) -> Value {
    let mut steps = vec![json!({
        "at": "layers",
        "count": way.layers,
        "found": way.found_in,
    })];
    let mut device_reads = 0;
    let mut is_found = way.found_in.is_some();
    for step in &way.steps {
        let (reads, found, step) = match step {
            ReadStep::ValueCache { found } => {
                (0, *found, json!({ "at": "valueCache", "found": found }))
            }
            ReadStep::Index {
                shard,
                page,
                device_reads,
            } => {
                let step = json!({
                    "at": "index",
                    "shard": shard,
                    "page": page.as_ref().map(nibbles),
                    "deviceReads": device_reads,
                });
                (*device_reads, page.is_none(), step)
            }
            ReadStep::Page {
                addr,
                is_cached,
                leaves,
                found,
            } => {
                let step = json!({
                    "at": "page",
                    "segment": addr.segment(),
                    "offset": addr.offset(),
                    "bytes": addr.len(),
                    "cached": is_cached,
                    "leaves": leaves,
                    "found": found,
                });
                (u32::from(!is_cached), true, step)
            }
        };
        // A read ends where the value is found. What comes after is shown, and was not needed.
        if !is_found {
            device_reads += reads;
        }
        is_found |= found;
        steps.push(step);
    }
    json!({
        "path": path,
        "slotPath": slot_path,
        "steps": steps,
        "value": value,
        "deviceReads": device_reads,
    })
}

fn layers(call: &Call<'_>, params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    params.end()?;
    let Layering {
        head,
        layers,
        has_more,
        merging,
        snapshot,
        last_merge,
    } = call.node.db().layering(LAYERS_MAX);
    let layers = layers.iter().map(|layer| {
        json!({
            "number": layer.block.number,
            "hash": layer.block.hash,
            "accounts": layer.accounts,
            "slots": layer.slots,
            "bytes": layer.bytes,
        })
    });
    let merging = merging.map(|(block, merging)| {
        json!({
            "upTo": named(block),
            "partsDone": merging.parts_done,
            "parts": merging.parts,
            "bytes": merging.bytes,
        })
    });
    let last_merge = last_merge.map(|last| {
        json!({
            "upTo": last.block.number,
            "blocks": last.blocks,
            "seconds": last.seconds,
            "pagesWritten": last.pages_written,
            "pagesMoved": last.pages_moved,
            "bytes": last.page_bytes,
        })
    });
    reply.value(&json!({
        "head": named(head),
        "layers": layers.collect::<Vec<_>>(),
        "more": has_more,
        "merging": merging,
        "snapshot": named(snapshot),
        "lastMerge": last_merge,
    }))
}
