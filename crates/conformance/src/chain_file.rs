//! Chains made by other clients: the chain of the execution-apis suite, with blocks of every fork
//! from Homestead to BPO2, and the chains of geth's and besu's own tests.

use crate::Pack;
use alloy_primitives::B256;
use cambium_chain::{BlockSource, Genesis};
use cambium_testkit::{Backend, Model, genesis_state, say};
use serde::Deserialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Number of blocks of the chain, without genesis.
pub const EXECUTION_APIS_BLOCKS: usize = 54;

#[derive(Deserialize)]
struct ForkChoice {
    params: (Head, serde_json::Value),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    head_block_hash: B256,
}

/// Imports the whole chain into a backend, and compares the head. Returns `None` if the pack is
/// missing. Panics if a block is rejected.
pub fn import_execution_apis_chain<B: Backend>() -> Option<B> {
    let folder = Pack::ExecutionApis
        .open(&["execution-apis"])?
        .join("execution-apis/tests");
    let (chain, count) = import::<B>(&folder.join("genesis.json"), &folder.join("chain.rlp"));
    let head = fs::read(folder.join("headfcu.json")).expect("the fork choice");
    let head: ForkChoice = serde_json::from_slice(&head).expect("the fork choice");
    assert_eq!(chain.head(), head.params.0.head_block_hash, "the head");
    assert_eq!(count, EXECUTION_APIS_BLOCKS, "blocks");
    say(&format!(
        "suite execution-apis chain over the {}: {count} blocks run, 0 skipped",
        B::name()
    ));
    Some(chain)
}

/// A chain from another client's tests, in a folder that `scripts/public-data` fetches.
struct ClientChain {
    /// Folder of `chain.rlp`, below `CAMBIUM_DATA`.
    folder: &'static str,
    /// Path of the genesis file, below `CAMBIUM_DATA`.
    genesis: &'static str,
    blocks: usize,
}

const CLIENT_CHAINS: [ClientChain; 8] = [
    of_client("geth-chains/osaka", "geth-chains/osaka/genesis.json", 600),
    of_client("geth-chains/prague", "geth-chains/prague/genesis.json", 600),
    of_client("geth-chains/cancun", "geth-chains/cancun/genesis.json", 500),
    of_client(
        "geth-chains/berlin",
        "geth-chains/berlin/genesis.json",
        3_000,
    ),
    of_client(
        "besu-chains/frontier",
        "besu-chains/frontier/genesis.json",
        32,
    ),
    of_client("besu-chains/rpc", "besu-chains/rpc/genesis.json", 3),
    of_client("besu-chains/snap", "besu-chains/snap/genesis.json", 500),
    of_client(
        "besu-chains/mainnet",
        "reth/crates/chainspec/res/genesis/mainnet.json",
        999,
    ),
];

/// Besu's genesis files with proof of work of a fixed difficulty, which Cambium rejects.
const REFUSED: [&str; 2] = [
    "besu-chains/london/genesis.json",
    "besu-chains/upgraded/genesis.json",
];

const fn of_client(folder: &'static str, genesis: &'static str, blocks: usize) -> ClientChain {
    ClientChain {
        folder,
        genesis,
        blocks,
    }
}

/// Imports the chains of geth's and besu's tests, and compares their heads. Also checks that
/// genesis files with unknown rules are rejected by name. Prints which chains are missing.
pub fn import_client_chains<B: Backend>() {
    let root = std::env::var_os("CAMBIUM_DATA").map(PathBuf::from);
    let there = |path: &str| {
        let path = root.as_ref()?.join(path);
        path.exists().then_some(path)
    };
    let mut skipped = Vec::new();
    for chain in &CLIENT_CHAINS {
        let (Some(folder), Some(genesis)) = (there(chain.folder), there(chain.genesis)) else {
            skipped.push(chain.folder);
            continue;
        };
        let (imported, count) = import::<B>(&genesis, &folder.join("chain.rlp"));
        assert_eq!(count, chain.blocks, "blocks of {}", chain.folder);
        if let Ok(head) = fs::read(folder.join("headblock.json")) {
            let head: HeadBlock = serde_json::from_slice(&head).expect("the head");
            assert_eq!(imported.head(), head.hash, "the head of {}", chain.folder);
        }
    }
    for path in REFUSED {
        let Some(path) = there(path) else {
            skipped.push(path);
            continue;
        };
        let (genesis, _) = Genesis::read(path).expect("the genesis");
        let refused = genesis.check_rules().expect_err("a fixed difficulty");
        assert!(refused.to_string().contains("fixeddifficulty"), "{refused}");
    }
    say(&format!(
        "suite chains of geth and besu over the {}: {} run, {} skipped",
        B::name(),
        CLIENT_CHAINS.len() + REFUSED.len() - skipped.len(),
        skipped.len()
    ));
    if !skipped.is_empty() {
        say(&format!(
            "  SKIPPED, not in CAMBIUM_DATA (scripts/public-data fetches them): {}",
            skipped.join(", ")
        ));
    }
}

#[derive(Deserialize)]
struct HeadBlock {
    hash: B256,
}

/// Imports a whole chain into a backend, and returns it with its number of blocks. Panics if one is
/// rejected.
fn import<B: Backend>(genesis: &Path, blocks: &Path) -> (B, usize) {
    let (genesis, accounts) = Genesis::read(genesis).expect("the genesis");
    let (changes, codes) = genesis_state(accounts);
    let mut model = Model::default();
    model.apply(&changes);
    let spec = genesis.spec(model.root()).expect("fork rules");
    let header = genesis.header(&spec, model.root());
    let mut chain = B::new(spec, header, changes, codes).expect("the genesis");

    let mut count = 0;
    for block in BlockSource::open(blocks).expect("the chain") {
        let block = block.expect("a block");
        // Some files begin with the genesis block.
        if block.number() == Some(0) {
            continue;
        }
        if let Err(error) = chain.import(&block.rlp, None) {
            panic!(
                "block {:?} of {}: {error}",
                block.number(),
                blocks.display()
            );
        }
        count += 1;
    }
    (chain, count)
}
