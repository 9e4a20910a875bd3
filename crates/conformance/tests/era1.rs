//! Mainnet's first 8,192 blocks, from their era1 file into the engine: empty blocks, so that every
//! state is known from the rewards alone.

use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_chain::{Block, BlockSource, Chain};
use cambium_conformance::Pack;
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{Random, say};
use cambium_trie::{ProofTargets, verify_account_proof};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Instant};

const BLOCKS: u64 = 8192;
const MEMORY_BYTES: u64 = 64 << 20;
/// Blocks between flushes.
const CHUNK: usize = 1200;
/// Old heights that are looked at.
const HEIGHTS: usize = 200;

/// Rewards in wei of a block's miner and its ommers' miners, before Byzantium.
fn rewards(block: &Block) -> Vec<(Address, U256)> {
    let reward = U256::from(5_000_000_000_000_000_000_u64);
    let uncles = &block.body.ommers;
    let own = reward + reward / U256::from(32) * U256::from(uncles.len());
    let mut all = vec![(block.header.beneficiary, own)];
    for uncle in uncles {
        let share = U256::from(8 + uncle.number - block.header.number);
        all.push((uncle.beneficiary, reward * share / U256::from(8)));
    }
    all
}

fn sound(chain: &Chain) -> u64 {
    let report = chain.db().check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
    assert_eq!(report.blocks, BLOCKS, "blocks in the log");
    report.accounts
}

#[test]
fn the_first_era_of_mainnet_is_imported_flushed_reopened_and_read_at_old_heights() {
    let Some(folder) = Pack::TrieGenesisEra.open(&["trin", "reth"]) else {
        return;
    };
    let era = folder.join("trin/test_assets/era1/mainnet-00000-5ec1ffb8.era1");
    let genesis = folder.join("reth/crates/chainspec/res/genesis/mainnet.json");
    let start = Instant::now();
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        ..Options::default()
    };
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = Chain::init(disk.clone(), genesis, options, &mut |_| {}).unwrap();

    let mut source = BlockSource::open(&era).unwrap();
    let (mut imported, mut skipped) = (0, 0);
    for keep in [3, 64, 0, 1].into_iter().cycle() {
        let part = source.by_ref().take(CHUNK);
        let done = chain.import(part, &mut |_| {}).unwrap().done;
        if done.blocks == 0 {
            break;
        }
        (imported, skipped) = (imported + done.blocks, skipped + done.skipped);
        chain.db().flush(keep).unwrap();
        let snapshot = chain.db().snapshot_block().number;
        assert_eq!(snapshot, done.head.number - keep as u64, "merged up to");
    }
    assert_eq!((imported, skipped), (BLOCKS - 1, 1), "all but the genesis");
    let head = chain.db().head();
    assert_eq!(head.number, BLOCKS - 1);
    let accounts = sound(&chain);
    drop(chain);

    let (chain, _) = Chain::open(disk, options).unwrap();
    assert_eq!(chain.db().head(), head);
    assert_eq!(sound(&chain), accounts);
    let reads = read_old_heights(&chain, &era);
    say(&format!(
        "suite mainnet era 0 over the state engine: {imported} blocks run, 0 skipped: {accounts} \
         accounts, {reads} balances proved at {HEIGHTS} heights, {:.1?}",
        start.elapsed()
    ));
}

/// Compares root, miner's balance and its proof at some heights, and returns how many balances.
fn read_old_heights(chain: &Chain, era: &Path) -> usize {
    let mut random = Random::new(8192);
    let mut heights: Vec<u64> = vec![1, BLOCKS - 2];
    heights.extend((heights.len()..HEIGHTS).map(|_| 1 + random.below(BLOCKS - 1)));
    let mut mined: BTreeMap<Address, U256> = BTreeMap::new();
    let mut reads = 0;
    for raw in BlockSource::open(era).unwrap().skip(1) {
        let block = raw.unwrap().decode().unwrap();
        let rewards = rewards(&block);
        for (miner, wei) in &rewards {
            *mined.entry(*miner).or_default() += *wei;
        }
        for _ in heights
            .iter()
            .filter(|height| **height == block.header.number)
        {
            let view = chain.db().view_at(block.header.number).unwrap();
            assert_eq!(view.block().hash, block.header.hash_slow());
            for (miner, _) in &rewards {
                let path = keccak256(miner);
                let mut part = view
                    .extract(&ProofTargets::new(vec![(path, vec![])]))
                    .unwrap();
                assert_eq!(part.state_root(), Some(block.header.state_root));
                let proof = part
                    .prove_account(*miner, &[], &mut cambium_trie::NoResolve)
                    .unwrap();
                verify_account_proof(block.header.state_root, &proof).unwrap();
                let balance = view.account(&path).unwrap().unwrap().balance;
                assert_eq!(
                    (balance, proof.balance),
                    (mined[miner], mined[miner]),
                    "{miner}"
                );
                reads += 1;
            }
        }
    }
    let untouched = view_root(chain, 0);
    assert_eq!(untouched, chain.block(0).unwrap().header.state_root);
    reads
}

fn view_root(chain: &Chain, number: u64) -> B256 {
    let view = chain.db().view_at(number).unwrap();
    view.extract(&ProofTargets::default())
        .unwrap()
        .state_root()
        .unwrap()
}
