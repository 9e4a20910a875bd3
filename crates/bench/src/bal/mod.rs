//! `./bench bal`: all executors compared on generated blocks and real ones.
//!
//! ```text
//!   workload -> genesis state on disk, made once
//!            -> first block, executed in sequence: its access list and pre-state values
//!   warm     state in memory; rounds over all executors
//!   cold     memory of a tenth of the state's size; the database opened for each execution
//!   mainnet  real blocks on the part of the state that they touch, in memory
//!   stores   with --peers: as cold, over Cambium and other stores
//! ```
//!
//! Every outcome is compared with that of sequential execution. Reads bypass the page cache, so a
//! database is cold as soon as it is opened again.

mod plan;
mod block;
mod simulate;
mod warm;
mod cold;
mod mainnet;
mod stores;

use crate::report::{Report, data_dir};
use cambium_chain::Fork;
use cambium_workload::{BlockSize, Spread, WorkloadParams};
use clap::Args;
use plan::{Case, Plan};
use serde_json::{Map, json};
use std::{error::Error, fs};
use stores::Provider;

pub(crate) use block::{BalBlock, dir_of, state_in};
pub(crate) use mainnet::{InsertedBlocks, MainnetBlocks};
pub(crate) use stores::child;

/// Gas of a large block, in the range that studies of parallel execution use.
const MEGA_GAS: u64 = 1_000_000_000;
/// Gas of a block on mainnet.
const BLOCK_GAS: u64 = 36_000_000;

#[derive(Clone, Debug, Args)]
pub(crate) struct BalArgs {
    /// Number of rounds, in each of which every executor runs once.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Number of threads of executors that wait for reads.
    #[arg(long, default_value_t = 32)]
    readers: usize,
    /// Leave out the measurements on a state larger than memory.
    #[arg(long)]
    only_warm: bool,
    /// Measure real mainnet blocks only.
    #[arg(long, conflicts_with = "only_warm")]
    only_mainnet: bool,
    /// Stores to compare with Cambium's engine, separated by commas, all or none: rocksdb, mdbx.
    #[arg(long, default_value = "none", conflicts_with_all = ["only_warm", "only_mainnet"])]
    peers: String,
    /// Measure the comparison of stores only.
    #[arg(long, requires = "peers")]
    only_peers: bool,
}

pub(crate) fn run(args: &BalArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    let peers = Provider::peers(&args.peers)?;
    let data_dir = data_dir()?.join("bal");
    fs::create_dir_all(&data_dir)?;
    let plan = Plan {
        data_dir,
        rounds: if quick { 3 } else { args.rounds },
        readers: args.readers,
        quick,
    };
    let mut report = Report::new("bal");
    report.parameters.extend(Map::from_iter([
        ("rounds".to_owned(), json!(plan.rounds)),
        ("readers".to_owned(), json!(plan.readers)),
    ]));
    if !args.only_peers {
        mainnet::run(&plan, &mut report)?;
        if args.only_mainnet {
            return Ok(report);
        }
        warm::run(&plan, &warm_cases(quick), &mut report)?;
    }
    if !args.only_peers && !args.only_warm {
        cold::run(&plan, &cold_cases(quick), &mut report)?;
    }
    if !peers.is_empty() {
        for case in cold_cases(quick) {
            if case.params.erc20_percent == 100 {
                stores::run(&plan, &case, &peers, &mut report)?;
            }
        }
    }
    Ok(report)
}

fn base() -> WorkloadParams {
    WorkloadParams {
        fork: Fork::Amsterdam,
        blocks: 1,
        // Under EIP-8037 a new account or slot costs more, the higher the gas limit. Blocks of this
        // size would have room for few transactions that create any.
        fresh_percent: 0,
        ..WorkloadParams::default()
    }
}

fn warm_cases(quick: bool) -> Vec<Case> {
    let part = if quick { 10 } else { 1 };
    let mega = BlockSize::Gas(MEGA_GAS / part);
    let state = WorkloadParams {
        accounts: 200_000 / part,
        senders: Some(50_000 / part),
        block_size: mega,
        erc20_percent: 0,
        ..base()
    };
    vec![
        Case {
            name: "token transfers, mega-block",
            params: WorkloadParams {
                erc20_percent: 100,
                holders: Some(state.accounts),
                ..state.clone()
            },
        },
        Case {
            name: "swaps in 16 pools, mega-block",
            params: WorkloadParams {
                swap_percent: 100,
                ..state.clone()
            },
        },
        Case {
            name: "swaps, tokens, payments, block",
            params: WorkloadParams {
                block_size: BlockSize::Gas(BLOCK_GAS),
                erc20_percent: 40,
                swap_percent: 30,
                holders: Some(state.accounts),
                ..state.clone()
            },
        },
        Case {
            name: "payments, no two alike, block",
            params: WorkloadParams {
                block_size: BlockSize::Gas(BLOCK_GAS),
                spread: Spread::Distinct,
                ..state
            },
        },
    ]
}

fn cold_cases(quick: bool) -> Vec<Case> {
    let part = if quick { 20 } else { 1 };
    vec![
        Case {
            name: "slot reads until the gas is used up",
            params: WorkloadParams {
                accounts: 20_000,
                senders: Some(1_000),
                slots: 16_000_000 / part,
                slot_read_percent: 100,
                erc20_percent: 0,
                block_size: BlockSize::Transactions(2),
                ..base()
            },
        },
        Case {
            name: "token transfers, mega-block",
            params: WorkloadParams {
                accounts: 8_000_000 / part,
                senders: Some(200_000 / part),
                holders: Some(8_000_000 / part),
                erc20_percent: 100,
                block_size: BlockSize::Gas(MEGA_GAS / part),
                ..base()
            },
        },
    ]
}
