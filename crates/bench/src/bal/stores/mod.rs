//! One executor over several state providers: Cambium's engine and other stores.
//!
//! ```text
//!   workload -> genesis state in each store, made once        pairs.rs, rocksdb.rs, mdbx.rs
//!            -> block, its lists and senders, in files         child_block.rs
//!   round    -> way of executing -> store after store, each    ways.rs, store.rs, child.rs,
//!               in a process of its own with limited memory,     provider.rs
//!               nothing of its files in the page cache
//!   report   -> times, rates, reads                            summary.rs
//! ```
//!
//! A store's memory, including its part of the page cache, is a tenth of the size of Cambium's
//! state. In addition the process has as much memory as execution takes without a store, which is
//! measured (`memory.rs`). Every outcome is compared with that of sequential execution over
//! Cambium.

mod child_block;
mod ways;
mod provider;
mod memory;
#[cfg(any(test, feature = "mdbx", feature = "rocksdb"))]
mod pairs;
#[cfg(feature = "mdbx")]
mod mdbx;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod child;
mod store;
mod summary;

use super::{
    block::{BalBlock, dir_of, state_in},
    cold::{MEMORY_BYTES_MIN, STATE_OVER_MEMORY},
    plan::{Case, Plan},
};
use crate::{
    report::{Notes, Report},
    state::{fio_reads_per_second, stores::Failure},
    system,
};
use cambium_chain::Chain;
use cambium_state::{Options, StdDisk};
use cambium_workload::Workload;
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use store::{Setup, Store};
use ways::Way;

pub(crate) use child::run as child;
pub(crate) use ways::Provider;

/// Memory budget for creating the state and the block.
const MAKING_BYTES: u64 = 1 << 30;
pub(crate) fn run(
    plan: &Plan,
    case: &Case,
    peers: &[Provider],
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let workload = Workload::new(case.params.clone())?;
    let dir = dir_of(&plan.data_dir, &case.params);
    state_in(&dir, &workload)?;
    let mut setup = prepare(plan, &dir, &workload)?;
    let mut stores = vec![Store::new(Provider::Cambium, dir.clone())];
    for peer in peers {
        stores.push(Store::new(*peer, load(*peer, &dir, &workload)?));
    }
    drop(workload);
    let mut bare = Store::new(Provider::Memory, setup.block.clone());
    let mut notes = Notes::default();
    setup.process_bytes = process_bytes(plan, &mut setup, &mut bare, &mut notes)?;
    stores.push(bare);
    rustix::fs::sync();
    let mut device = Vec::new();
    for round in 1..=plan.rounds {
        eprintln!("stores: round {round} of {}", plan.rounds);
        device.extend(fio_reads_per_second(&plan.data_dir, plan.quick).ok());
        for way in Way::all() {
            // Rotated, so that no store is always the first.
            stores.rotate_left(1);
            for store in stores.iter_mut().filter(|store| store.failure.is_none()) {
                let limit = setup.limit_bytes();
                match store.execute(plan, &setup, way, limit, &mut notes) {
                    Ok(executed) if executed.outcome != setup.outcome => {
                        let provider = store.provider;
                        let error = format!("{way} over {provider} differs from sequential");
                        report.errors.push(error);
                    }
                    Ok(executed) => store.take(way, executed),
                    Err(error) => {
                        let error = format!("{way} over {}: {error}", store.provider);
                        report.errors.push(error.clone());
                        store.failure = Some(error);
                    }
                }
            }
        }
    }
    stores.sort_unstable_by_key(|store| store.provider);
    summary::add(case, &setup, &stores, device, report);
    report.notes.extend(notes.into_lines());
    Ok(())
}

/// Creates the block, over Cambium's state in `dir`.
fn prepare(plan: &Plan, dir: &Path, workload: &Workload) -> Result<Setup, Box<dyn Error>> {
    let options = Options {
        memory_bytes: MAKING_BYTES,
        ..Options::default()
    };
    let (chain, _) = Chain::open(Arc::new(StdDisk::new(dir)), options)?;
    let block = BalBlock::first(&chain, workload)?;
    let files = plan.data_dir.join("child-block");
    child_block::write(&files, &block, &chain)?;
    let state_bytes = chain.db().stats()?.segment_bytes;
    Ok(Setup {
        block: files,
        outcome: child_block::digest(&block.expected),
        transactions: block.transactions(),
        gas: block.gas(),
        state_bytes,
        share_bytes: (state_bytes / STATE_OVER_MEMORY).max(MEMORY_BYTES_MIN),
        process_bytes: 0,
        slow_reads: false,
    })
}

/// Returns the directory of a peer's store, and creates the store if it is missing.
fn load(peer: Provider, dir: &Path, workload: &Workload) -> Result<PathBuf, Box<dyn Error>> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let dir = dir.with_file_name(format!("{peer}-{name}"));
    let done = dir.with_extension("done");
    if done.exists() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    eprintln!("loading {} (once)", dir.display());
    make(peer, &dir, workload).map_err(|error| error as Box<dyn Error>)?;
    fs::write(done, "")?;
    Ok(dir)
}

#[cfg_attr(
    not(any(feature = "mdbx", feature = "rocksdb")),
    expect(unused_variables, reason = "no peer is built in")
)]
fn make(peer: Provider, dir: &Path, workload: &Workload) -> Result<(), Failure> {
    match peer {
        #[cfg(feature = "rocksdb")]
        Provider::Rocksdb => rocksdb::load(dir, &pairs::Pairs::of(workload)),
        #[cfg(feature = "mdbx")]
        Provider::Mdbx => mdbx::load(dir, &pairs::Pairs::of(workload)),
        missing => Err(format!("no store to load: {missing}").into()),
    }
}

/// Returns the maximum memory that executing the block takes without a store, plus a quarter for
/// variation between runs. Reads take as long as from a disk: otherwise hardly more threads than
/// processors would hold memory at the same time.
fn process_bytes(
    plan: &Plan,
    setup: &mut Setup,
    bare: &mut Store,
    notes: &mut Notes,
) -> Result<u64, Box<dyn Error>> {
    let mut most = 0;
    setup.slow_reads = true;
    for way in Way::all() {
        let limit = system::memory_available_bytes();
        let executed = bare.execute(plan, setup, way, limit, notes)?;
        most = most.max(executed.rss_peak_bytes);
    }
    setup.slow_reads = false;
    // Without cgroups, the peak of resident memory.
    let most = match std::mem::take(&mut bare.cgroup_peak_bytes) {
        0 => most,
        peak => peak,
    };
    Ok(most / 4 * 5)
}

#[cfg(test)]
mod tests {
    use super::{child::Task, *};
    use cambium_workload::{BlockSize, WorkloadParams};

    #[test]
    fn a_block_does_the_same_over_every_provider_in_every_way() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            data_dir: folder.path().to_owned(),
            rounds: 1,
            readers: 1,
            quick: true,
        };
        let workload = Workload::new(WorkloadParams {
            accounts: 1000,
            senders: Some(100),
            holders: Some(1000),
            erc20_percent: 80,
            block_size: BlockSize::Gas(4_000_000),
            ..crate::bal::base()
        });
        let workload = workload.unwrap();
        let dir = folder.path().join("state");
        state_in(&dir, &workload).unwrap();
        let setup = prepare(&plan, &dir, &workload).unwrap();
        let mut providers = vec![Provider::Cambium, Provider::Memory];
        providers.extend(Provider::PEERS.iter().filter(|peer| peer.is_built()));
        for provider in providers {
            let dir = match provider {
                Provider::Cambium | Provider::Memory => dir.clone(),
                peer => load(peer, &dir, &workload).unwrap(),
            };
            for way in Way::all() {
                let task = Task {
                    provider,
                    dir: dir.clone(),
                    block: setup.block.clone(),
                    way,
                    slow_reads: false,
                    share_bytes: setup.share_bytes,
                    cgroup: None,
                };
                let executed = child::execute(&task).unwrap();
                assert_eq!(executed.outcome, setup.outcome, "{way} over {provider}");
            }
        }
    }
}
