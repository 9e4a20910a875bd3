//! Dumps of states in memory: of accounts with many slots, and damaged ones.

use alloy_primitives::{Address, B256, U256};
use cambium_chain::{Chain, ChainError, ChainSealer, Fork, InputFile};
use cambium_history::StateAt;
use cambium_state::{FaultyDisk, Options};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::{
    io::{Seek, Write},
    sync::Arc,
};

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    }
}

fn dump(chain: &Chain, view: &StateAt) -> Vec<u8> {
    let mut out = Vec::new();
    let written = chain.dump_state(view, false, "memory", &mut out, &mut |_| {});
    assert!(written.unwrap().has_block);
    out
}

fn load(bytes: &[u8]) -> Result<Chain, ChainError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    let disk = Arc::new(FaultyDisk::new(2));
    Chain::load_dump(disk, InputFile::named("d", file), options(), &mut |_| {})
}

/// A chain of one block with an access list, and more, whose state is dumped.
fn chain() -> Chain {
    let workload = Workload::new(WorkloadParams {
        fork: Fork::Amsterdam,
        accounts: 12,
        senders: Some(4),
        blocks: 3,
        erc20_percent: 50,
        block_size: BlockSize::Transactions(4),
        ..WorkloadParams::default()
    });
    let workload = workload.unwrap();
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = workload.init(disk, options(), &mut |_| {}).unwrap();
    let genesis = chain.block(0).unwrap().header;
    workload
        .generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))
        .unwrap();
    chain
}

/// Blocks with access lists come with them.
#[test]
fn the_block_of_a_dump_is_kept_whole() {
    let chain = chain();
    for number in 0..=3 {
        let view = chain.db().view_at(number).unwrap().into();
        let bytes = dump(&chain, &view);
        let loaded = load(&bytes).unwrap();
        assert_eq!(loaded.spec(), chain.spec());
        assert_eq!(loaded.db().genesis(), view.block());
        assert_eq!(loaded.db().head(), view.block());
        assert_eq!(
            loaded.block_rlp(number).unwrap(),
            chain.block_rlp(number).unwrap()
        );
        assert_eq!(
            loaded.kept_access_list(number).unwrap(),
            chain.kept_access_list(number).unwrap()
        );
        assert_eq!(
            loaded.total_difficulty(number).unwrap(),
            chain.total_difficulty(number).unwrap()
        );
        let again = loaded.db().view().unwrap().into();
        assert_eq!(dump(&loaded, &again), bytes);
    }
}

#[test]
fn accounts_with_more_slots_than_a_piece_are_loaded_whole() {
    let slots = |count: u64| {
        let slots = (1..=count).map(|slot| (B256::from(U256::from(slot)), B256::with_last_byte(1)));
        alloy_genesis::GenesisAccount::default().with_storage(Some(slots.collect()))
    };
    let many = [(1u8, 1 << 16), (2, (1 << 16) + 1), (3, 140_000)];
    let accounts = many.map(|(byte, count)| (Address::repeat_byte(byte), slots(count)));
    let mut genesis = alloy_genesis::Genesis::default().extend_accounts(accounts);
    genesis.config.chain_id = 9;
    let disk = Arc::new(FaultyDisk::new(5));
    let chain = Chain::init_genesis(disk, &genesis, options(), &mut |_| {}).unwrap();
    let view = chain.db().view().unwrap();
    let (mut reports, mut out) = (0, Vec::new());
    let done = chain.dump_state(
        &view.clone().into(),
        false,
        "memory",
        &mut out,
        &mut |progress| {
            reports += 1;
            assert!(progress.accounts <= 3);
        },
    );
    let done = done.unwrap();
    let slots: u64 = many.iter().map(|(_, count)| count).sum();
    assert_eq!((done.accounts, done.slots, done.contracts), (3, slots, 0));
    assert_eq!(reports, (slots + 3) / 4096);
    let loaded = load(&out).unwrap();
    let root = loaded.db().view().unwrap().state_root();
    assert_eq!(root, view.state_root());
}

/// With any byte changed, the state is the same or the dump is rejected.
#[test]
fn a_dump_with_random_damage_never_makes_another_state() {
    let chain = chain();
    let view = chain.db().view().unwrap();
    let whole = dump(&chain, &view.clone().into());
    let (mut seed, mut refused, mut same) = (7u64, 0, 0);
    let mut random = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % end
    };
    for _ in 0..150 {
        let mut bytes = whole.clone();
        let at = random(bytes.len());
        match random(4) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random(7),
            2 => bytes[at] = b"\"{}[]:,0af"[random(10)],
            _ => {
                let end = (at + random(200)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
        match load(&bytes) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
            Ok(loaded) => {
                let found = loaded.db().view().unwrap();
                assert_eq!(found.state_root(), view.state_root());
                assert_eq!(found.block(), view.block());
                same += 1;
            }
        }
    }
    assert!(refused > 100, "{refused} refused, {same} the same");
}
