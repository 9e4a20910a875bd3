//! Public chains: the states of all their blocks, by their headers, and as the database itself has them.

use cambium_chain::{BlockSource, Chain};
use cambium_conformance::{Pack, import_execution_apis_chain};
use cambium_history::{History, HistoryOptions, WholeNodes};
use cambium_state::{Db, Disk, FaultyDisk, Options};
use cambium_testkit::{EngineChain, say};
use cambium_trie::ProofTargets;
use std::sync::Arc;

const OPTIONS: HistoryOptions = HistoryOptions {
    memory_bytes: 512 << 10,
    trie_bytes: 1 << 20,
    cache_bytes: 1 << 20,
    buffer_bytes: 64 << 10,
    keep_blocks: None,
};
/// Blocks whose states are compared with those that the database makes of its log, at most.
const COMPARED: u64 = 250;

fn create(db: &Db, first: u64) -> History {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(first));
    History::create(disk, db, first, Some(WholeNodes::default()), OPTIONS).unwrap()
}

/// Compares two archives of a chain, one made upwards, one downwards, with headers, log and database.
fn compare(what: &str, db: &Db) {
    let head = db.head().number;
    let above = create(db, 0);
    above.catch_up(db, &mut |_| true).unwrap();
    let below = create(db, head);
    below.extend_down(db, 0, &mut |_| true).unwrap();
    let (mut values, mut proofs) = (0, 0);
    for history in [&above, &below] {
        history.flush().unwrap();
        history.merge().unwrap();
        history.check().unwrap();
        assert_eq!(history.blocks().0.number, 0);
        assert_eq!(history.blocks().1, db.head());
        for number in 0..head {
            assert!(history.check_nodes(db, number).unwrap());
            values += history.check_block(db, number + 1).unwrap().unwrap();
        }
    }
    for number in (0..head).step_by(head.div_ceil(COMPARED) as usize) {
        let (changes, reverts) = db.block_changes(number + 1).unwrap().unwrap();
        let keys = ProofTargets::of_changes(changes.accounts());
        let keys = keys.and(&ProofTargets::of_changes(reverts.accounts()));
        let expected = db.view_at(number).unwrap();
        let nodes = expected.extract(&keys).unwrap().witness_nodes();
        for history in [&above, &below] {
            let view = history.state_at(db, number).unwrap();
            assert_eq!(view.state_root().unwrap(), expected.state_root());
            let proof = view.extract(&keys).unwrap();
            assert_eq!(proof.witness_nodes(), nodes, "block {number}");
            for (account, slots) in keys.accounts() {
                let found = view.account(account).unwrap();
                assert_eq!(found, expected.account(account).unwrap());
                for slot in slots {
                    let found = view.slot(account, slot).unwrap();
                    assert_eq!(found, expected.slot(account, slot).unwrap());
                }
            }
            proofs += 1;
        }
    }
    say(&format!(
        "history of {what}: states of {head} blocks, {values} values and {proofs} proofs compared"
    ));
}

#[test]
fn the_execution_apis_chain() {
    if let Some(chain) = import_execution_apis_chain::<EngineChain>() {
        compare("the execution-apis chain", chain.chain().db());
    }
}

#[test]
fn the_first_era_of_mainnet() {
    let Some(folder) = Pack::TrieGenesisEra.open(&["trin", "reth"]) else {
        return;
    };
    let era = folder.join("trin/test_assets/era1/mainnet-00000-5ec1ffb8.era1");
    let genesis = folder.join("reth/crates/chainspec/res/genesis/mainnet.json");
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = Chain::init(disk, genesis, options, &mut |_| {}).unwrap();
    let blocks = BlockSource::open(&era).unwrap();
    chain.import(blocks, &mut |_| {}).unwrap();
    assert_eq!(chain.db().head().number, 8_191);
    compare("mainnet's first era", chain.db());
}
