//! Transactions of mainnet blocks through the Engine API.
//!
//! Each of the replayed blocks of pack 06 becomes block 1 of a chain of its own, under Osaka's rules, whose genesis state is the part of
//! mainnet's state that the block touches: geth takes no first block of another number. So number, parent hashes and base fee are not
//! those of mainnet, the trie is small, and Cambium computes the header anew. Siblings of the block, which differ in their extra data,
//! are sent one after another; the first of them does not count.

use super::{
    bench::Bench,
    engine::{Consensus, Transport},
    measured::Measured,
    server::{Kind, SCHEME, Setting},
};
use crate::{
    geth::{command, failed},
    report::{Report, median},
    state::stores::Failure,
    system,
};
use alloy_consensus::{EMPTY_ROOT_HASH, proofs::calculate_transaction_root};
use alloy_eips::eip7685::EMPTY_REQUESTS_HASH;
use cambium_chain::{Block, Chain, ChainSealer, DraftAttributes};
use cambium_conformance::{MainnetData, Pack, SparseBlock};
use cambium_state::{Options, StdDisk};
use cambium_workload::{Workload, WorkloadParams};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Siblings of each block that count.
const SIBLINGS: u64 = 10;
const INIT_MAX: Duration = Duration::from_secs(300);
const P50: &str = "p50 ms";
const ALL: &str = "newPayload of mainnet's transactions, median of blocks";

pub(super) fn run(bench: &mut Bench, report: &mut Report) -> Result<(), Failure> {
    let Some(folder) = Pack::MainnetExec.find(&MainnetData::FOLDERS) else {
        bench.notes.add(format!(
            "no mainnet blocks were sent: there is no {}; CAMBIUM_DATA may name a folder with its content",
            Pack::MainnetExec.name()
        ));
        return Ok(());
    };
    let data = MainnetData::new(&folder)?;
    let numbers = data.replays();
    let count = bench.plan.mainnet_blocks;
    let mut measured = Measured::default();
    for number in numbers.into_iter().rev().take(count) {
        eprintln!("mainnet's block {number}");
        let sparse = data.replay(number)?;
        let file = folder.join(format!("mainnet-bal-replay/{number}.json"));
        let place = tempfile::Builder::new()
            .prefix("mainnet-")
            .tempdir_in(&bench.plan.data)?;
        let genesis = write_genesis(&file, &sparse, place.path())?;
        let block = seal(&sparse, &genesis, place.path())?;
        if block.header.requests_hash != Some(EMPTY_REQUESTS_HASH) {
            let note = format!("mainnet's block {number} has requests, and was left out");
            bench.notes.add(note);
            continue;
        }
        let name = format!(
            "newPayload of block {number}: {} transactions, {:.1} Mgas",
            block.body.transactions.len(),
            block.header.gas_used as f64 / 1e6
        );
        for kind in bench.programs.kinds() {
            let p50 = send(bench, kind, &genesis, &block, place.path())?;
            measured.add(&name, P50, kind, p50);
            measured.add(ALL, P50, kind, p50);
        }
    }
    measured.write(report);
    Ok(())
}

/// Writes the genesis file of a block's chain.
fn write_genesis(file: &Path, sparse: &SparseBlock, dir: &Path) -> Result<PathBuf, Failure> {
    let replay: Value = serde_json::from_slice(&fs::read(file)?)?;
    // Rules and remaining fields are those of workloads.
    let workload = Workload::new(WorkloadParams {
        chain_id: 1,
        accounts: 1,
        blocks: 0,
        ..WorkloadParams::default()
    })?;
    let mut bytes = Vec::new();
    workload.write_genesis(&mut bytes)?;
    let mut genesis: Value = serde_json::from_slice(&bytes)?;
    let header = &sparse.header;
    genesis["alloc"] = replay["pre"].clone();
    for account in genesis["alloc"].as_object_mut().into_iter().flatten() {
        pad_slots(account.1);
    }
    genesis["timestamp"] = json!(format!("{:#x}", header.timestamp - 12));
    genesis["gasLimit"] = json!(format!("{:#x}", header.gas_limit));
    // The block's base fee is lower by an eighth, so all transactions stay valid.
    let fee = header.base_fee_per_gas.unwrap_or_default();
    genesis["baseFeePerGas"] = json!(format!("{fee:#x}"));
    let path = dir.join("genesis.json");
    fs::write(&path, serde_json::to_vec(&genesis)?)?;
    Ok(path)
}

/// Writes keys and values of slots with all of their 64 digits, as geth wants them.
fn pad_slots(account: &mut Value) {
    let padded = |text: &str| format!("0x{:0>64}", text.trim_start_matches("0x"));
    if let Some(slots) = account.get_mut("storage").and_then(Value::as_object_mut) {
        let all = std::mem::take(slots).into_iter();
        slots.extend(all.map(|(key, value)| {
            let value = padded(value.as_str().unwrap_or_default());
            (padded(&key), Value::from(value))
        }));
    }
}

fn chain(genesis: &Path, dir: &Path) -> Result<Chain, Failure> {
    let disk = Arc::new(StdDisk::new(dir));
    Ok(Chain::init(disk, genesis, Options::default(), &mut |_| {})?)
}

/// The block on its genesis block, with all fields that follow.
fn seal(sparse: &SparseBlock, genesis: &Path, dir: &Path) -> Result<Block, Failure> {
    let chain = chain(genesis, &dir.join("sealing"))?;
    let parent = chain.block(0)?.header;
    let header = &sparse.header;
    let attributes = DraftAttributes {
        timestamp: header.timestamp,
        beneficiary: header.beneficiary,
        prev_randao: header.mix_hash,
        withdrawals: sparse.withdrawals.clone(),
        parent_beacon_block_root: header.parent_beacon_block_root.unwrap_or_default(),
        slot_number: 0,
        gas_limit: header.gas_limit,
    };
    let spec = chain.spec().clone();
    let mut draft = spec.draft(&parent, parent.hash_slow(), &attributes);
    draft.body.transactions.clone_from(&sparse.transactions);
    draft.header.transactions_root = calculate_transaction_root(&draft.body.transactions);
    let block = ChainSealer(&chain).seal(draft)?;
    match block.header.transactions_root == EMPTY_ROOT_HASH {
        true => Err("a block without transactions".into()),
        false => Ok(block),
    }
}

/// Sends siblings of the block to a server of a new database. Returns the median time of one, in milliseconds.
fn send(
    bench: &mut Bench,
    kind: Kind,
    genesis: &Path,
    block: &Block,
    place: &Path,
) -> Result<f64, Failure> {
    let dir = place.join(kind.name());
    match kind {
        Kind::Cambium => drop(chain(genesis, &dir)?),
        Kind::Geth => {
            let geth = bench
                .programs
                .geth
                .as_ref()
                .ok_or("geth is not asked for")?;
            let mut args = command("init", SCHEME, &dir);
            args.push(genesis.into());
            let log = place.join("init.log");
            let limit = system::memory_available_bytes();
            let ended = geth.run(&args, limit, INIT_MAX, &log, &mut bench.notes)?;
            if !ended.status.success() {
                return Err(failed("init", &ended, &fs::read_to_string(&log)?).into());
            }
        }
    }
    let setting = Setting {
        has_engine: true,
        ..Setting::default()
    };
    let server = bench.programs.serve(kind, &dir, 0, &setting)?;
    let mut consensus = Consensus::connect(&server, Transport::Json)?;
    let mut times = Vec::new();
    for sibling in 0..=SIBLINGS {
        let mut block = block.clone();
        block.header.extra_data = sibling.to_be_bytes().to_vec().into();
        times.push(consensus.new_payload(&block)?);
    }
    drop(consensus);
    server.stop()?;
    Ok(median(times.split_off(1)))
}
